"""Desired objects exist, formerly desired ones do not, and everybody else's are left alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from desiring import (
    NAMESPACE,
    App,
    Tenant,
    Widget,
    World,
    app,
    config,
    on_a_server,
    widget,
)
from msgspec.structs import replace

from kubeshard.cache import UndeclaredKind
from kubeshard.cache.scope import ALL_NAMESPACES
from kubeshard.controller import AnothersApplySet, ApplyFailed, Context, ImmutableFields, NotAdopted
from kubeshard.core import (
    ConfigMap,
    Conflict,
    KubeObject,
    MergePatch,
    Namespace,
    ObjectMeta,
    Struct,
    controller_of,
    field,
)
from kubeshard.core.errors import Invalid, SchemaMismatch, TooLarge
from kubeshard.listwatch.state_machine import Listed
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.version import __version__

PARENT = (
    "applyset.kubernetes.io/id",
    "applyset.kubernetes.io/tooling",
    "applyset.kubernetes.io/contains-group-kinds",
    "applyset.kubernetes.io/additional-namespaces",
)


class Strict(Struct):
    size: str = ""  # the server stores a number


class Misfit(KubeObject, group="example.com", version="v1", kind="Widget"):
    spec: Strict = field(default_factory=Strict)


class AheadSpec(Struct):
    shade: str | None = None  # of a later version of the definition


class Ahead(KubeObject, group="example.com", version="v1", kind="Widget"):
    spec: AheadSpec = field(default_factory=AheadSpec)


async def raw(world: World, obj: Any) -> Any:
    path = obj.KIND.path(obj.metadata.namespace, obj.metadata.name)
    return json.loads((await world.client.raw("GET", path)).body)


async def parent(world: World, name: str = "shop") -> list[str | None]:
    meta = (await world.client.get(App, name, NAMESPACE)).metadata
    return [(meta.labels or {}).get(PARENT[0]), *((meta.annotations or {}).get(key) for key in PARENT[1:])]


@on_a_server
async def test_what_is_created_once_keeps_its_value_and_is_pruned_like_other_members(world: World) -> None:
    async with world.operator(ConfigMap, Widget) as operator:
        page = config("page", x="1")
        first = await operator.apply(page, create_once=[config("password", value="first")])
        assert first[config("password")].data == {"value": "first"}
        for value in ("second", "third"):
            again = await operator.apply(page, create_once=[config("password", value=value)])
            assert not again.plan
            assert again[config("password")].data == {"value": "first"}
        await world.client.patch(ConfigMap, "password", NAMESPACE, MergePatch({"data": {"value": "rotated"}}))
        assert not (await operator.plan(page, create_once=[config("password", value="x")]))
        await world.client.delete(ConfigMap, "password", NAMESPACE)
        made = await operator.apply(page, create_once=[config("password", value="new")])
        assert made[config("password")].data == {"value": "new"}
        await operator.apply(page)
    assert [each.metadata.name for each in await world.client.list_all(ConfigMap, NAMESPACE)] == ["page"]


@on_a_server
async def test_what_is_created_once_takes_nothing_that_is_not_its_own(world: World) -> None:
    await world.client.create(config("password", value="theirs"))
    async with world.operator(ConfigMap, Widget) as operator:
        with pytest.raises(ApplyFailed):
            await operator.apply(create_once=[config("password", value="ours")])
        with pytest.raises(ValueError, match="is given twice"):
            await operator.apply(config("a"), create_once=[config("a")])
    assert (await world.client.get(ConfigMap, "password", NAMESPACE)).data == {"value": "theirs"}


@on_a_server
async def test_what_is_desired_is_created_marked_and_controlled_by_the_owner(world: World) -> None:
    async with world.operator(ConfigMap, Widget) as operator:
        desired = [config("a", x="1"), widget("w", size=3)]
        applied = await operator.apply(*desired)
        assert [type(obj).__name__ for obj in applied.plan.creates] == ["ConfigMap", "Widget"]
        assert applied[desired[0]].data == {"x": "1"}
        assert applied.get(desired[0]) is applied[desired[0]]
        assert applied.get(config("not-desired")) is None
        assert applied[desired[1]].spec.colour == "grey"
        there = await world.client.get(ConfigMap, "a", NAMESPACE)
    owner = controller_of(there.metadata)
    assert owner is not None
    assert (owner.kind, owner.name) == ("App", "shop")
    # base64url(sha256("shop.default.App.example.com"))
    ours = "applyset-4WakPXPPbRnwcE6jIGmBPmMMB-lDfN3uYoI-hs4iNww-v1"
    assert there.metadata.label("applyset.kubernetes.io/part-of") == ours
    assert await parent(world) == [
        ours,
        f"kubeshard/v{__version__}",
        "ConfigMap,Widget.example.com",
        None,
    ]


@on_a_server
async def test_what_is_as_desired_costs_no_request(world: World) -> None:
    desired = [config("a", x="1"), widget("w", size=3)]
    async with world.operator(ConfigMap, Widget) as operator:
        await operator.apply(*desired)
        for _ in range(3):
            applied = await operator.apply(*desired)
            assert operator.wire.requests == []
            assert not applied.plan
            assert applied[desired[1]].spec.colour == "grey"
    async with world.operator(ConfigMap, Widget) as next_process:
        assert not (await next_process.apply(*desired)).plan
        assert next_process.wire.requests == []


@on_a_server
async def test_what_is_no_longer_desired_is_deleted_last(world: World) -> None:
    async with world.operator(ConfigMap, Widget) as operator:
        await operator.apply(config("a"), config("b"), widget("w"))
        await operator.apply(config("b"), config("c"))
        methods = [request.split()[0] for request in operator.wire.requests]
        assert methods == ["POST", "DELETE", "DELETE", "PATCH"]
        assert [*await world.there(ConfigMap, Widget)] == ["ConfigMap default/b", "ConfigMap default/c"]
        assert (await parent(world))[2] == "ConfigMap"


@on_a_server
async def test_fields_that_are_no_longer_desired_are_given_up_and_others_are_kept(world: World) -> None:
    async with world.operator(ConfigMap) as operator:
        await operator.apply(config("a", labels={"mine": "1", "old": "1"}, x="1", y="2"))
        theirs = {"metadata": {"labels": {"theirs": "1"}}, "data": {"z": "3"}}
        await world.client.patch(ConfigMap, "a", NAMESPACE, MergePatch(theirs))
        for _ in range(2):
            await operator.apply(config("a", labels={"mine": "1"}, x="1"))
        there = (await raw(world, config("a")))["metadata"]["labels"]
        assert {key for key in there if "/" not in key} == {"mine", "theirs"}


@on_a_server
async def test_what_others_add_to_a_map_costs_a_process_one_request(world: World) -> None:
    """It may have been added to a map that is applied as a whole; only the server knows."""
    desired = config("a", x="1")
    async with world.operator(ConfigMap) as operator:
        await operator.apply(desired)
        await world.client.patch(ConfigMap, "a", NAMESPACE, MergePatch({"data": {"theirs": "1"}}))
    for _ in range(2):
        async with world.operator(ConfigMap) as operator:
            assert 'data.theirs: "1" -> none, unless somebody else sets it' in str(
                await operator.plan(desired)
            )
            await operator.apply(desired)
            await operator.apply(desired)
            assert operator.wire.requests == []
    assert (await world.client.get(ConfigMap, "a", NAMESPACE)).data == {"theirs": "1", "x": "1"}


@on_a_server
async def test_what_somebody_changes_is_set_right(world: World) -> None:
    async with world.operator(ConfigMap) as operator:
        await operator.apply(config("a", x="1"))
        await world.client.patch(ConfigMap, "a", NAMESPACE, MergePatch({"data": {"x": "2"}}))
        applied = await operator.apply(config("a", x="1"))
        assert [dict(update.changes) for update in applied.plan.updates] == [{"data": {"x": "1"}}]
        assert (await world.client.get(ConfigMap, "a", NAMESPACE)).data == {"x": "1"}
        assert not (await operator.apply(config("a", x="1"))).plan


@pytest.mark.parametrize("now", ["changed", "gone"])
def test_what_a_full_read_shows_changed_or_gone_is_noticed(now: str) -> None:
    @on_a_server
    async def check(world: World) -> None:
        desired = [config("a", x="1")]
        async with world.operator(ConfigMap) as operator:
            await operator.apply(*desired)
            assert not (await operator.apply(*desired)).plan
            informer = operator._cache.informer(ConfigMap)
            there = {obj.key: obj for obj in informer.store.list()}
            key = desired[0].key
            version = str(int(informer.store.resource_version) + 1)
            if now == "gone":
                del there[key]
            else:
                metadata = replace(there[key].metadata, resource_version=version)
                there[key] = replace(there[key], metadata=metadata, data={"x": "2"})
            await informer.listed(Listed(version), there, ALL_NAMESPACES)
            plan = (await operator.apply(*desired)).plan
            assert (len(plan.creates), len(plan.updates)) == ((1, 0) if now == "gone" else (0, 1))

    check()


@on_a_server
async def test_what_somebody_deletes_is_created_again(world: World) -> None:
    async with world.operator(ConfigMap) as operator:
        await operator.apply(config("a", x="1"))
        await world.client.delete(ConfigMap, "a", NAMESPACE)
        assert len((await operator.apply(config("a", x="1"))).plan.creates) == 1
        assert not (await operator.apply(config("a", x="1"))).plan


@on_a_server
async def test_an_object_that_is_there_already_is_refused_unless_it_may_be_adopted(world: World) -> None:
    await world.client.create(config("a", theirs="1", x="0"))
    async with world.operator(ConfigMap) as operator:
        with pytest.raises(
            ApplyFailed, match="ConfigMap default/a: it exists already and has no owner"
        ) as failed:
            await operator.apply(config("a", x="1"), config("b"))
        assert [type(error) for error in failed.value.problems.values()] == [NotAdopted]
        assert (await world.client.get(ConfigMap, "a", NAMESPACE)).data == {"theirs": "1", "x": "0"}
        assert "ConfigMap default/b" in await world.there(ConfigMap)
        applied = await operator.apply(config("a", x="1"), config("b"), unowned="adopt")
        assert "~ ConfigMap default/a (adopted)" in str(applied.plan)
        assert (await world.client.get(ConfigMap, "a", NAMESPACE)).data == {"theirs": "1", "x": "1"}
        assert not (await operator.apply(config("a", x="1"), config("b"), unowned="adopt")).plan


@on_a_server
async def test_an_object_that_the_cache_does_not_show_is_judged_as_if_it_did(world: World) -> None:
    """This happens in the cache of a shard, or while a cache lags."""
    async with world.operator(ConfigMap) as operator:
        await world.api.client().create(config("a", x="0"))  # the operator does not wait for this one
        with pytest.raises((ApplyFailed, Conflict), match="has no owner"):
            await operator.apply(config("a", x="1"))


@on_a_server
async def test_what_ensure_made_becomes_a_member_with_all_its_fields(world: World) -> None:
    """An object that an earlier version of a program wrote by merge patch is dropped like an applied one."""
    from kubeshard.controller.dependents import ensure

    async with world.operator(ConfigMap) as operator:
        owner = await world.client.get(App, "shop", NAMESPACE)
        first = config("a", labels={"old": "1", "kept": "1"}, x="1")
        await operator.run(lambda ctx: ensure(ctx, first, owner=owner))
        desired = config("a", labels={"kept": "1"}, x="1")
        applied = await operator.apply(desired)
        assert applied.plan.updates[0].adopts
        labels = (await world.client.get(ConfigMap, "a", NAMESPACE)).metadata.labels or {}
        assert {key for key in labels if "/" not in key} == {"kept"}
        assert not (await operator.apply(desired)).plan


@on_a_server
async def test_what_others_own_is_neither_changed_nor_deleted(world: World) -> None:
    await world.client.create(app("other"))
    async with world.operator(ConfigMap) as operator:
        await operator.apply(config("a", x="1"), name="other")
        with pytest.raises(ApplyFailed, match="it exists already, and it is controlled by App other"):
            await operator.apply(config("a", x="2"), unowned="adopt")
        await world.client.create(config("c", labels={"applyset.kubernetes.io/part-of": "applyset-x-v1"}))
        with pytest.raises(ApplyFailed, match="it is in another ApplySet"):
            await operator.apply(config("c"), unowned="adopt")
        with pytest.raises(ApplyFailed, match="it is in the set 'apps' of the same owner"):
            await operator.apply(config("a", x="2"), name="other", set="second", unowned="adopt")
        # A member of this set that another owner controls now.
        await operator.apply(config("b"))
        theirs = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
        await world.client.patch(
            ConfigMap, "b", NAMESPACE, MergePatch({"metadata": {"ownerReferences": [theirs]}})
        )
        with pytest.raises(ApplyFailed, match="it is controlled by Pod p"):
            await operator.apply(config("b"))
        await operator.apply()
        assert {*await world.there(ConfigMap)} == {f"ConfigMap default/{name}" for name in "abc"}


@on_a_server
async def test_an_object_made_from_a_copy_of_a_member_is_not_deleted(world: World) -> None:
    async with world.operator(ConfigMap) as operator:
        await operator.apply(config("a", x="1"))
        member = await world.client.get(ConfigMap, "a", NAMESPACE)
        meta = ObjectMeta(
            name="copy",
            namespace=NAMESPACE,
            labels=member.metadata.labels,
            annotations=member.metadata.annotations,
        )
        await world.client.create(ConfigMap(metadata=meta, data=member.data))
        await operator.apply()
        assert [*await world.there(ConfigMap)] == ["ConfigMap default/copy"]


@on_a_server
async def test_sets_of_one_owner_know_nothing_of_each_other(world: World) -> None:
    async with world.operator(ConfigMap, Widget) as operator:
        await operator.apply(config("a"), widget("w"))
        await operator.apply(config("b"), set="second")
        assert (await parent(world))[2] == "ConfigMap,Widget.example.com"
        await operator.apply()
        assert [*await world.there(ConfigMap, Widget)] == ["ConfigMap default/b"]
        assert (await parent(world))[2] == "ConfigMap"
        await operator.apply(set="second")
        assert not await world.there(ConfigMap, Widget)
        assert await parent(world) == [None] * 4


@on_a_server
async def test_kinds_that_only_an_earlier_version_knew_are_pruned(world: World) -> None:
    async with world.operator(ConfigMap, Widget, Tenant) as earlier:
        tenant = Tenant(metadata=ObjectMeta(name="t"))
        await earlier.apply(config("a"), widget("w"), tenant)
    await world.client.create(widget("theirs"))
    async with world.operator(ConfigMap) as later:
        await later.apply(config("a"))
        assert {*await world.there(ConfigMap, Widget, Tenant)} == {
            "ConfigMap default/a",
            "Widget default/theirs",
        }
        await later.apply(config("a"))
        assert later.wire.requests == []  # the one search is not repeated


@on_a_server
async def test_where_earlier_members_cannot_be_looked_for_is_told_and_hinders_nothing_else(
    world: World,
) -> None:
    async with world.operator(ConfigMap, Widget) as earlier:
        await earlier.apply(config("a"), config("b"), widget("w"))
    async with world.operator(ConfigMap) as later:
        later.wire.broken = "/widgets"
        assert "! Widget default/*: " in str(await later.plan(config("a")))
        with pytest.raises(ApplyFailed, match=r"Widget default/\*: "):
            await later.apply(config("a"), config("new"))
        left = {"ConfigMap default/a", "ConfigMap default/new"}
        assert {*await world.there(ConfigMap, Widget)} == {*left, "Widget default/w"}
        later.wire.broken = " "
        await later.apply(config("a"), config("new"))
        assert {*await world.there(ConfigMap, Widget)} == left


@on_a_server
async def test_a_kind_of_which_the_server_does_not_tell_hinders_nothing_else(world: World) -> None:
    async with world.operator(ConfigMap, Widget) as earlier:
        await earlier.apply(config("a"), widget("w"))
    async with world.operator(ConfigMap) as later:
        later.wire.broken = "/apis/example.com"
        with pytest.raises(ApplyFailed, match=r"Widget \*: "):
            await later.apply(config("a"), config("new"))
        left = {"ConfigMap default/a", "ConfigMap default/new", "Widget default/w"}
        assert {*await world.there(ConfigMap, Widget)} == left


@on_a_server
async def test_a_kind_that_is_not_served_any_more_is_forgotten(world: World) -> None:
    async with world.operator(ConfigMap, Tenant) as earlier:
        await earlier.apply(config("a"), Tenant(metadata=ObjectMeta(name="t")))
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await world.client.raw("DELETE", f"{definitions}/tenants.example.com")
    async with world.operator(ConfigMap) as later:
        await later.apply(config("a"))
        assert (await parent(world))[2] == "ConfigMap"


@on_a_server
async def test_a_member_that_does_not_fit_its_class_any_more_is_told_or_deleted(world: World) -> None:
    async with world.operator(Widget, ConfigMap) as earlier:
        await earlier.apply(widget("w", size=1))
    async with world.operator(Misfit, ConfigMap) as later:
        desired = Misfit(metadata=ObjectMeta(name="w", namespace=NAMESPACE))
        with pytest.raises(ApplyFailed, match=r"Widget default/w: .* does not fit Misfit"):
            await later.apply(desired, config("a"))
        assert [*await world.there(ConfigMap)] == ["ConfigMap default/a"]
        await later.apply(config("a"))
        assert {*await world.there(ConfigMap, Widget)} == {"ConfigMap default/a"}


@on_a_server
async def test_namespaces_that_are_not_watched_any_more_are_pruned(world: World) -> None:
    from kubeshard.cache import Scope
    from kubeshard.controller import Watch

    await world.client.create(Namespace(metadata=ObjectMeta(name="far")))
    async with world.operator(ConfigMap) as earlier:
        await earlier.apply(config("a"), config("a", "far"))
        assert (await parent(world))[3] == "far"
    async with world.operator(Watch(ConfigMap, scope=Scope(frozenset({NAMESPACE})))) as later:
        await later.apply(config("a"))
        assert [*await world.there(ConfigMap)] == ["ConfigMap default/a"]
        assert (await parent(world))[3] is None
        await later.apply(config("a"))
        assert later.wire.requests == []


@on_a_server
async def test_members_out_of_the_owners_reach_carry_a_note_instead_of_a_reference(world: World) -> None:
    from kubeshard.controller.mapping import to_owner
    from kubeshard.core import Key

    await world.client.create(Namespace(metadata=ObjectMeta(name="far")))
    async with world.operator(ConfigMap, Tenant) as operator:
        desired = [config("a", "far"), Tenant(metadata=ObjectMeta(name="t"))]
        await operator.apply(*desired)
        for obj in (await world.there(ConfigMap, Tenant)).values():
            assert not obj.metadata.owner_references
            assert [*to_owner(App.KIND)(obj)] == [Key(NAMESPACE, "shop")]
            assert [*to_owner(Widget.KIND)(obj)] == []
        await operator.apply(*desired)
        assert operator.wire.requests == []
        await operator.apply()
        assert not await world.there(ConfigMap, Tenant)


@on_a_server
async def test_a_cluster_scoped_owner_controls_members_everywhere(world: World) -> None:
    await world.client.create(Tenant(metadata=ObjectMeta(name="t")))
    async with world.operator(ConfigMap, primary=Tenant) as operator:
        applied = await operator.apply(config("a"), name="t")
        owner = controller_of(applied[config("a")].metadata)
        assert owner is not None
        assert owner.kind == "Tenant"
        meta = (await world.client.get(Tenant, "t")).metadata
        assert meta.annotation(PARENT[3]) == NAMESPACE


@on_a_server
async def test_one_that_fails_keeps_none_from_being_applied_and_all_from_being_deleted(world: World) -> None:
    async with world.operator(ConfigMap, Widget) as operator:
        await operator.apply(config("a"), config("old"))
        with pytest.raises(
            ApplyFailed, match=r"set apps of App default/shop: Widget default/w: .*100"
        ) as failed:
            await operator.apply(widget("w", size=101), config("a"), config("b"))
        assert isinstance(failed.value.exceptions[0], Invalid)
        assert {*await world.there(ConfigMap, Widget)} == {
            f"ConfigMap default/{name}" for name in ("a", "b", "old")
        }
        await operator.apply(widget("w", size=99), config("a"), config("b"))
        assert "ConfigMap default/old" not in await world.there(ConfigMap)


@on_a_server
async def test_fields_that_cannot_be_changed_are_refused_or_the_object_is_made_anew(world: World) -> None:
    async with world.operator(Widget) as operator:
        await operator.apply(widget("w", serial="1"))
        before = await world.client.get(Widget, "w", NAMESPACE)
        with pytest.raises(ApplyFailed, match="immutable='recreate'") as failed:
            await operator.apply(widget("w", serial="2"))
        assert [type(error) for error in failed.value.exceptions] == [ImmutableFields]
        assert (await world.client.get(Widget, "w", NAMESPACE)).spec.serial == "1"
        applied = await operator.apply(widget("w", serial="2"), immutable="recreate")
        after = applied[widget("w")]
        assert (after.spec.serial, after.metadata.uid != before.metadata.uid) == ("2", True)
        assert not (await operator.apply(widget("w", serial="2"), immutable="recreate")).plan


@on_a_server
async def test_a_desired_object_that_is_wrong_in_itself_deletes_nothing(world: World) -> None:
    async with world.operator(Widget) as operator:
        await operator.apply(widget("w", serial="1"))
        before = await world.client.get(Widget, "w", NAMESPACE)
        with pytest.raises(ApplyFailed) as failed:
            await operator.apply(widget("w", serial="2", size=101), immutable="recreate")
        assert [type(error) for error in failed.value.exceptions] == [Invalid]
        after = await world.client.get(Widget, "w", NAMESPACE)
        assert (after.metadata.uid, after.spec) == (before.metadata.uid, before.spec)


class Etcd:
    """The connection to an API server whose etcd takes objects of 4 kB. A dry run does not get there."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def request(self, request: HttpRequest) -> HttpResponse:
        if "dryRun" in request.target or len(request.body or b"") < 4096:
            answer: HttpResponse = await self._inner.request(request)
            return answer
        status = {
            "kind": "Status",
            "status": "Failure",
            "code": 500,
            "message": "etcdserver: request is too large",
        }
        return HttpResponse(500, {"content-type": "application/json"}, json.dumps(status).encode())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@on_a_server
async def test_a_desired_object_that_is_too_large_deletes_nothing(world: World) -> None:
    async with world.operator(ConfigMap) as operator:
        operator.wire._inner = Etcd(operator.wire._inner)
        await operator.apply(config("c", x="small"))
        before = await world.client.get(ConfigMap, "c", NAMESPACE)
        for immutable in ("recreate", "refuse"):
            with pytest.raises(ApplyFailed, match="too large") as failed:
                await operator.apply(config("c", x="large" * 1000), immutable=immutable)
            assert [type(error) for error in failed.value.exceptions] == [TooLarge]
            after = await world.client.get(ConfigMap, "c", NAMESPACE)
            assert (after.metadata.uid, after.data) == (before.metadata.uid, {"x": "small"})


@on_a_server
async def test_a_desired_object_with_a_field_that_the_definition_lacks_deletes_nothing(world: World) -> None:
    def ahead(**spec: str) -> Ahead:
        return Ahead(metadata=ObjectMeta(name="w", namespace=NAMESPACE), spec=AheadSpec(**spec))

    async with world.operator(Ahead) as operator:
        await operator.apply(ahead())
        before = await world.client.get(Widget, "w", NAMESPACE)
        for immutable in ("recreate", "refuse"):
            with pytest.raises(ApplyFailed, match="shade") as failed:
                await operator.apply(ahead(shade="dark"), immutable=immutable)
            assert [type(error) for error in failed.value.exceptions] == [SchemaMismatch]
            assert (await world.client.get(Widget, "w", NAMESPACE)).metadata.uid == before.metadata.uid


@on_a_server
async def test_what_is_adopted_is_never_made_anew(world: World) -> None:
    before = await world.client.create(widget("w", serial="1"))
    async with world.operator(Widget) as operator:
        with pytest.raises(ApplyFailed) as failed:
            await operator.apply(widget("w", serial="2"), unowned="adopt", immutable="recreate")
        assert [type(error) for error in failed.value.exceptions] == [ImmutableFields]
        there = await world.client.get(Widget, "w", NAMESPACE)
        assert there.metadata.uid == before.metadata.uid


@on_a_server
async def test_what_is_being_deleted_is_waited_for_and_nothing_is_pruned_meanwhile(world: World) -> None:
    async with world.operator(ConfigMap, Widget) as operator:
        await operator.apply(widget("w", serial="1"), config("old"))
        await world.client.patch(
            Widget, "w", NAMESPACE, MergePatch({"metadata": {"finalizers": ["example.com/f"]}})
        )
        applied = await operator.apply(widget("w", serial="2"), immutable="recreate")
        assert [obj.metadata.name for obj in applied.waiting] == ["w"]
        with pytest.raises(KeyError):
            applied[widget("w")]
        applied = await operator.apply(widget("w", serial="2"), immutable="recreate")
        assert (operator.wire.requests, len(applied.waiting)) == ([], 1)
        assert "ConfigMap default/old" in await world.there(ConfigMap)
        await world.client.patch(Widget, "w", NAMESPACE, MergePatch({"metadata": {"finalizers": None}}))
        await operator.sees_no(Widget, "w")
        applied = await operator.apply(widget("w", serial="2"))
        assert not applied.waiting
        assert {*await world.there(ConfigMap, Widget)} == {"Widget default/w"}


@on_a_server
async def test_a_plan_is_what_would_be_done_and_does_nothing(world: World) -> None:
    async with world.operator(ConfigMap, Widget) as operator:
        await operator.apply(config("a", x="1"), widget("w", size=1), config("old"))
        before = await world.there(ConfigMap, Widget)
        plan = await operator.plan(config("a", x="1"), widget("w", size=2), config("new", y="1"))
        assert str(plan).splitlines() == [
            "+ ConfigMap default/new",
            '    data.y: "1"',
            "~ Widget default/w",
            "    spec.size: 1 -> 2",
            "- ConfigMap default/old",
        ]
        assert operator.wire.requests == []
        assert await world.there(ConfigMap, Widget) == before
        assert (
            str(await operator.plan(config("a", x="1"), widget("w", size=1), config("old")))
            == "nothing to do"
        )


@on_a_server
async def test_the_first_run_of_a_shard_reads_live(world: World) -> None:
    async with world.operator(ConfigMap, Widget) as operator:
        await operator.apply(config("a"), widget("w"), fresh=True)
        await operator.apply(config("a"), fresh=True)
        assert [*await world.there(ConfigMap, Widget)] == ["ConfigMap default/a"]
        applied = await operator.apply(config("a"), fresh=True)
        assert not applied.plan
        assert operator.wire.writes == []


@on_a_server
async def test_a_second_call_of_a_run_that_leaves_out_what_the_first_one_applied_is_refused(
    world: World,
) -> None:
    """It would delete those objects, and the next run would create them again, forever."""
    a, b = config("a"), config("b")

    async def one_by_one(ctx: Context) -> None:
        await ctx.apply(a)
        await ctx.apply(b)

    async def more_and_more(ctx: Context) -> None:
        await ctx.apply(a)
        await ctx.apply(a, b)
        await ctx.apply(config("c"), set="other")

    async with world.operator(ConfigMap) as operator:
        with pytest.raises(ValueError, match=r"^ConfigMap default/a: applied by an earlier call"):
            await operator.run(one_by_one)
        assert {*await world.there(ConfigMap)} == {"ConfigMap default/a"}
        await operator.run(more_and_more)
        await operator.apply(b)  # another run may omit any object
        assert {*await world.there(ConfigMap)} == {"ConfigMap default/b", "ConfigMap default/c"}


@on_a_server
async def test_an_applyset_of_another_tool_is_left_alone(world: World) -> None:
    patch = {"labels": {PARENT[0]: "applyset-x-v1"}, "annotations": {PARENT[1]: "kubectl/v1.36"}}
    await world.client.patch(App, "shop", NAMESPACE, MergePatch({"metadata": patch}))
    async with world.operator(ConfigMap) as operator:
        with pytest.raises(AnothersApplySet, match="is the parent of an ApplySet of kubectl"):
            await operator.apply(config("a"))
    assert not await world.there(ConfigMap)


@on_a_server
async def test_mistakes_are_told_before_anything_is_sent(world: World) -> None:
    mistakes: list[tuple[list[Any], dict[str, Any], str]] = [
        ([config("a"), config("a")], {}, "ConfigMap default/a is given twice"),
        ([config("")], {}, "a ConfigMap has no name"),
        ([config("a", "")], {}, "ConfigMap.v1 has namespaces"),
        ([config("a", labels={"kubeshard.dev/set": "x"})], {}, "leave kubeshard.dev/set out"),
        ([app()], {}, "App default/shop cannot be in a set that it owns"),
        ([config("a")], {"set": "-"}, "cannot be a label value"),
        ([config("a")], {"owner": app("new")}, "has no uid"),
        ([config("a")], {"unowned": "adapt"}, "unowned='adapt': one of refuse, adopt"),
        ([config("a")], {"immutable": "delete"}, "immutable='delete': one of refuse, recreate"),
    ]
    async with world.operator(ConfigMap) as operator:
        for desired, options, message in mistakes:
            with pytest.raises(ValueError, match=message):
                await operator.apply(*desired, **options)
            assert operator.wire.requests == []
        with pytest.raises(
            UndeclaredKind, match=r"apps does not say that it applies a Widget: .*=\[Widget\]"
        ):
            await operator.apply(config("a"), widget("w"))
        with pytest.raises(UndeclaredKind, match=r"applies=\[Widget\]"):
            await operator.plan(widget("w"))
        with pytest.raises(TypeError, match=r"a list is not an object: .* apply\(\*objects\)"):
            await operator.apply([config("a")])  # type: ignore[arg-type] # the mistake
        assert operator.wire.requests == []


@on_a_server
async def test_an_owner_that_is_gone_is_a_stale_read(world: World) -> None:
    async with world.operator(ConfigMap) as operator:
        with pytest.raises(Conflict, match="App default/other is gone"):
            await operator.apply(config("a"), name="other")


@on_a_server
async def test_values_of_secrets_are_not_in_a_diff(world: World) -> None:
    from kubeshard.core import Secret

    def secret(value: str) -> Secret:
        return Secret(metadata=ObjectMeta(name="s", namespace=NAMESPACE), data={"key": value})

    async with world.operator(Secret) as operator:
        created = await operator.apply(secret("aGk="))
        changed = await operator.apply(secret("aG8="))
    assert str(created.plan).splitlines() == ["+ Secret default/s", "    data.key: (hidden)"]
    assert str(changed.plan).splitlines() == ["~ Secret default/s", "    data.key: (hidden) -> (hidden)"]
