"""The order of a desired set: nothing is written before what it needs is ready, and nothing is deleted before what
needs it is gone.
"""

from __future__ import annotations

from typing import Any

import pytest
from desiring import NAMESPACE, Tenant, World, config, widget
from msgspec.structs import replace
from ordering import (
    FAR,
    Judge,
    OrderBroken,
    Part,
    PartStatus,
    chain,
    exists,
    let_go,
    make_ready,
    on_a_server_of_parts,
    part,
    parts,
)

from kubeshard import until
from kubeshard.cache import Added
from kubeshard.controller import Applied, ApplyFailed, Ordered
from kubeshard.controller.desired.applyset import Address, address_of
from kubeshard.controller.desired.order import Leaving, Order, in_order, order_of, recording, why_held
from kubeshard.controller.desired.sets import UnfinishedSets
from kubeshard.core import Condition, ConfigMap, Key, KubeObject, MergePatch, Namespace, ObjectMeta, Readiness
from kubeshard.core.kinds import GroupKind
from kubeshard.kinds import Container, Job, JobSpec, PodSpec, PodTemplateSpec

pytestmark = pytest.mark.regression


# The planner


def address(name: str, namespace: str = NAMESPACE) -> Address:
    return Address(GroupKind("example.com", "Part"), Key(namespace, name))


def ordered(**after: str) -> Order:
    """The order of parts: `b="a"` says that b comes after a."""
    given = {name: part(name) for name in sorted({*after, *"".join(after.values())})}
    return order_of(
        tuple(Ordered(obj, [given[o] for o in after.get(n, "")]) for n, obj in given.items()), ()
    )[2]


@pytest.mark.parametrize(
    ("done", "waits"),
    [
        ("", ["it is not as desired yet", "it is not as desired yet"]),
        ("a", ["it has no condition Ready", "it is not as desired yet"]),
        ("A", ["it is not as desired yet"]),
        ("Ab", ["it has no condition Ready"]),
        ("AB", []),
    ],
)
def test_what_comes_after_others_waits_until_each_is_as_desired_and_ready(
    done: str, waits: list[str]
) -> None:
    """A capital letter is a part that is ready."""
    there = {address(name.lower()): having_ready(part(name.lower()), name.isupper()) for name in done}
    why = ordered(c="ab").why_not(address("c"), there)
    assert [said.rpartition("(")[2].rstrip(")") for said in why.split(", ") if said] == waits
    assert ordered(c="ab").why_not(address("a"), there) == ""


def having_ready(obj: Part, ready: bool) -> Part:
    condition = Condition(type="Ready", status="True", reason="Said", message="")
    return replace(obj, status=PartStatus(conditions=(condition,) if ready else ()))


@pytest.mark.parametrize(
    ("ready", "why"),
    [
        (False, ""),
        (True, "Part default/a (it has no condition Ready)"),
        (until.condition("Synced"), "Part default/a (it has no condition Synced)"),
        (lambda a: a.spec.size == 1, ""),
        (lambda a: a.spec.size == 2, "Part default/a (it is not ready)"),
        (lambda a: Readiness("InProgress", "it is small"), "Part default/a (it is small)"),
    ],
)
def test_the_author_says_what_ready_means(ready: Any, why: str) -> None:
    a, b = part("a"), part("b")
    _, _, order = order_of((Ordered(a, ready=ready), Ordered(b, after=[a])), ())
    assert order.why_not(address_of(b), {address_of(a): a}) == why


def test_objects_are_written_in_an_order_that_ends_and_otherwise_as_they_are_given() -> None:
    names = [address(name) for name in "edcba"]
    assert [each.key.name for each in ordered(d="ab", b="c").sorted(names)] == ["e", "c", "a", "b", "d"]


def test_an_order_that_cannot_be_is_refused_with_the_names() -> None:
    a, b = part("a"), part("b")
    with pytest.raises(
        ValueError, match=r"Part default/b comes after Part default/a, which is not in the set"
    ):
        order_of((Ordered(b, after=[a]),), ())
    _, _, order = order_of((Ordered(a, after=[b]), Ordered(b, after=[a])), ())
    circle = r"goes round in a circle: Part default/(\w) after Part default/(?!\1)\w after Part default/\1$"
    with pytest.raises(ValueError, match=circle):
        order.sorted([address_of(a), address_of(b)])
    with pytest.raises(ValueError, match=r"in a circle: Part default/a after Part default/a$"):
        order_of((Ordered(a, after=[a]),), ())[2].sorted([address_of(a)])


def test_a_mistake_in_the_order_is_told_where_it_is_made() -> None:
    with pytest.raises(TypeError, match="give a list of objects"):
        Ordered(part("b"), after=part("a"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ready='Synced': a bool"):
        Ordered(part("b"), ready="Synced")  # type: ignore[arg-type]

    async def waits(obj: Part) -> bool:
        return True

    with pytest.raises(TypeError, match="a plain function of the object"):
        Ordered(part("b"), ready=waits)
    of_no_status = (widget("a"), Ordered(part("b"), after=[widget("a")]))
    with pytest.raises(
        TypeError, match=r"Widget default/a: Widget does not declare status.*ready=False is as soon"
    ):
        order_of(of_no_status, ())


def leaving(there: str, **after: str) -> Leaving:
    """Parts that are no longer desired; a capital letter is one that is being deleted."""
    found = []
    for name in there:
        meta = recording(part(name.lower()).metadata, [address(o) for o in after.get(name.lower(), "")])
        deleted = "2026-01-01T00:00:00Z" if name.isupper() else None
        found.append(Part(metadata=replace(meta, deletion_timestamp=deleted)))
    return Leaving(found)


@pytest.mark.parametrize(
    ("there", "after", "due"),
    [
        ("abc", {}, "abc"),
        ("abc", {"b": "a", "c": "b"}, "c"),
        ("ab", {"b": "a", "c": "b"}, "b"),
        ("abC", {"b": "a", "c": "b"}, ""),
        ("abc", {"b": "a", "c": "a"}, "bc"),
        ("abcd", {"b": "a", "c": "a"}, "bcd"),
        ("aB", {"b": "a"}, ""),
        ("a", {"a": "b"}, "a"),
        ("ab", {"a": "b", "b": "a"}, "ab"),
        ("abc", {"a": "b", "b": "a", "c": "a"}, "bc"),
        ("abc", {"a": "bc", "b": "a"}, "ab"),
        ("a", {"a": "a"}, "a"),
    ],
)
def test_what_others_came_after_is_deleted_when_these_are_gone(
    there: str, after: dict[str, str], due: str
) -> None:
    found = leaving(there, **after)
    assert "".join(obj.metadata.name for obj in found.due()) == due
    held = {name for name in there if name.islower()} - {*due}
    assert {each.key.name for each in why_held(found)} == held


def test_a_namespace_is_deleted_after_what_was_ordered_in_it() -> None:
    far = Namespace(metadata=ObjectMeta(name=FAR))
    a, b = part("a", FAR), part("b", FAR)
    last = Part(metadata=recording(b.metadata, [address_of(a)]))
    assert [obj.metadata.name for obj in in_order([a, last, far])] == ["b", "a", FAR]
    assert [obj.metadata.name for obj in Leaving([a, b, far]).due()] == ["a", "b", FAR]


@pytest.mark.parametrize(
    "said", ["", "{", '{"a": 1}', "[1]", '["nonsense"]', '["Part.example.com default/gone"]']
)
def test_an_annotation_that_says_nothing_holds_nothing_up(said: str) -> None:
    meta = ObjectMeta(name="a", namespace=NAMESPACE, annotations={"kubeshard.dev/after": said})
    assert len(Leaving([Part(metadata=meta), part("b")]).due()) == 2


def test_a_set_is_unfinished_until_each_key_that_began_it_has_ended_or_is_forgotten() -> None:
    sets, one, two = UnfinishedSets(), Key(NAMESPACE, "one"), Key(NAMESPACE, "two")
    labels = {"applyset.kubernetes.io/part-of": "id", "kubeshard.dev/set": "apps"}
    member = Added(Part(metadata=ObjectMeta(name="a", labels=labels)))
    assert not sets.concerns(member)
    for key in (one, one, two):
        sets.begin(key, "id/apps")
    sets.begin(one, "id/others")
    assert sets.concerns(member)
    assert not sets.concerns(Added(part("a")))
    sets.end(one, "id/apps")
    sets.end(one, "id/apps")
    assert sets.concerns(member)
    sets.forget(two)
    sets.forget(two)
    assert not sets.concerns(member)
    sets.forget(one)
    assert vars(sets) == vars(UnfinishedSets())


# On a server


@on_a_server_of_parts
async def test_each_is_created_when_what_it_comes_after_is_ready(world: World) -> None:
    desired = chain("a", "b", "c")
    async with world.operator(Part) as operator:
        operator.wire.judge = Judge(world)
        for there, waits in (("a", "bc"), ("ab", "c")):
            applied = await operator.apply(*desired)
            assert [each.key.name for each in applied.held] == [*waits]
            assert await parts(world) == [f"default/{name}" for name in there]
            again = await operator.apply(*desired)
            assert operator.wire.requests == []
            assert again.held == applied.held
            await make_ready(world.client, there[-1])
        applied = await operator.apply(*desired)
        assert applied.held == {}
        assert not (await operator.apply(*desired)).plan
        assert operator.wire.requests == []


@on_a_server_of_parts
async def test_what_is_ready_at_once_costs_no_second_run(world: World) -> None:
    first, second = config("first"), part("second")
    async with world.operator(ConfigMap, Part) as operator:
        applied = await operator.apply(Ordered(second, after=[first]), first)
        assert applied.held == {}
        assert [request.split()[0] for request in operator.wire.requests] == ["PATCH", "POST", "POST"]


@on_a_server_of_parts
async def test_what_waits_is_said_with_names_and_reasons(world: World) -> None:
    async with world.operator(Part) as operator:
        applied: Applied = await operator.apply(*chain("a", "b"))
        assert applied.held_because == "Part default/b waits for Part default/a (it has no condition Ready)"
        assert applied.get(part("b")) is None
        plan = await operator.plan(*chain("a", "b"))
        assert "> Part default/b waits for Part default/a (it has no condition Ready)" in str(plan)
        await make_ready(world.client, "a", status="False")
        assert "(Said)" in (await operator.apply(*chain("a", "b"))).held_because


@on_a_server_of_parts
async def test_what_has_failed_is_said_apart_from_what_waits(world: World) -> None:
    pod = PodSpec(containers=(Container(name="main", image="migrate"),), restart_policy="Never")
    meta = ObjectMeta(name="migration", namespace=NAMESPACE)
    job = Job(metadata=meta, spec=JobSpec(template=PodTemplateSpec(spec=pod)))
    desired = [job, Ordered(part("web"), after=[job])]
    async with world.operator(Job, Part) as operator:
        applied = await operator.apply(*desired)
        assert (applied.failed, applied.failed_because) == ({}, "")
        assert "Job default/migration (it has not started)" in applied.held_because
        why = "Job has reached the specified backoff limit"
        conditions = [
            {"type": each, "status": "True", "message": why} for each in ("FailureTarget", "Failed")
        ]
        body = {"startTime": "2026-01-02T03:04:05Z", "failed": 1, "conditions": conditions}
        status = MergePatch({"status": body})
        await world.client.patch(Job, "migration", NAMESPACE, status, subresource="status")
        applied = await operator.apply(*desired)
        assert [each.key.name for each in applied.held] == ["web"]
        assert applied.failed_because == (
            "Job default/migration has failed (1 failed pod: Job has reached the specified backoff limit)"
        )


@on_a_server_of_parts
async def test_a_change_waits_too_and_what_is_as_desired_stays(world: World) -> None:
    async with world.operator(Part) as operator:
        await operator.apply(*chain("a", "b"))
        await make_ready(world.client, "a")
        await operator.apply(*chain("a", "b"))
        await make_ready(world.client, "a", status="False")
        assert not (await operator.apply(*chain("a", "b"))).plan
        applied = await operator.apply(part("a"), Ordered(part("b", size=2), after=[part("a")]))
        assert [each.key.name for each in applied.held] == ["b"]
        assert (await world.client.get(Part, "b", NAMESPACE)).spec.size == 1
        await make_ready(world.client, "a")
        await operator.apply(part("a"), Ordered(part("b", size=2), after=[part("a")]))
        assert (await world.client.get(Part, "b", NAMESPACE)).spec.size == 2


@on_a_server_of_parts
async def test_a_member_that_fails_costs_only_what_comes_after_it(world: World) -> None:
    wrong, after, beside = part("wrong", size=101), part("after"), part("beside")
    async with world.operator(Part) as operator:
        with pytest.raises(ApplyFailed, match="Part default/wrong: ") as failed:
            await operator.apply(wrong, Ordered(after, after=[wrong]), beside)
        assert [str(each) for each in failed.value.problems] == ["Part default/wrong"]
        assert await parts(world) == ["default/beside"]


@on_a_server_of_parts
async def test_members_are_deleted_in_reverse_each_when_the_ones_after_it_are_gone(world: World) -> None:
    desired = chain("a", "b", "c", finalizers=["example.com/kept"])
    async with world.operator(Part) as operator:
        await everything(world, operator, desired)
        operator.wire.judge = Judge(world)
        for name in "cba":
            applied = await operator.apply()
            assert [request.split("?")[0] for request in operator.wire.writes] == [
                f"DELETE /apis/example.com/v1/namespaces/default/parts/{name}"
            ]
            assert {each.metadata.name for each in applied.leaving} == {*"abc"[: "abc".index(name) + 1]}
            again = await operator.apply()
            assert operator.wire.requests == []
            assert [each.metadata.name for each in again.leaving if each.metadata.deleting] == [name]
            await let_go(operator, part(name))
        assert (await operator.apply()).leaving == ()
        assert await parts(world) == []


@on_a_server_of_parts
async def test_what_is_gone_at_once_costs_no_second_run(world: World) -> None:
    async with world.operator(Part, ConfigMap) as operator:
        last = Ordered(config("last"), after=[part("a")])
        await operator.apply(part("a"), last)
        await make_ready(world.client, "a")
        await operator.apply(part("a"), last)
        # The last one is waited for, so it goes in the foreground: it stays until what it owns is gone.
        applied = await operator.apply()
        assert applied.held_because == "Part default/a waits for ConfigMap default/last (it still exists)"
        await let_go(operator, config("last"))
        applied = await operator.apply()
        assert applied.leaving == ()
        assert await world.there(Part, ConfigMap) == {}


@on_a_server_of_parts
async def test_pruning_follows_the_order_in_which_the_members_were_created(world: World) -> None:
    """The desired objects no longer say it: the members do."""
    async with world.operator(Part) as operator:
        await everything(world, operator, [*chain("a", "b"), part("kept")])
    async with world.operator(Part) as next_process:
        next_process.wire.judge = Judge(world)
        applied = await next_process.apply(part("kept"))
        assert [str(each) for each in applied.held] == ["Part default/a"]
        await let_go(next_process, part("b"))
        await next_process.apply(part("kept"))
        assert await parts(world) == ["default/kept"]


@on_a_server_of_parts
async def test_nothing_is_pruned_while_anything_is_held(world: World) -> None:
    async with world.operator(Part) as operator:
        await operator.apply(part("old"))
        applied = await operator.apply(*chain("a", "b"))
        assert await parts(world) == ["default/a", "default/old"]
        assert [each.metadata.name for each in applied.leaving] == ["old"]
        await make_ready(world.client, "a")
        await operator.apply(*chain("a", "b"))
        assert await parts(world) == ["default/a", "default/b"]


@on_a_server_of_parts
async def test_an_order_that_changes_is_recorded_before_anything_is_deleted_by_it(world: World) -> None:
    async with world.operator(Part) as operator:
        await everything(world, operator, chain("a", "b"))
        await everything(world, operator, chain("b", "a"))
        operator.wire.judge = Judge(world)
        assert [str(each) for each in (await operator.apply()).held] == ["Part default/b"]


@on_a_server_of_parts
async def test_members_elsewhere_and_without_a_namespace_have_their_place_too(world: World) -> None:
    tenant = Tenant(metadata=ObjectMeta(name="t"))
    near, far = part("near"), part("far", FAR)
    desired = [Ordered(tenant, ready=False), Ordered(far, after=[tenant]), Ordered(near, after=[far])]
    async with world.operator(Part, Tenant) as operator:
        operator.wire.judge = Judge(world)
        assert [str(each) for each in (await operator.apply(*desired)).held] == ["Part default/near"]
        await make_ready(world.client, "far", FAR)
        assert (await operator.apply(*desired)).held == {}
        for gone in ("near", "far"):
            await operator.apply()
            assert await exists(world, gone, NAMESPACE if gone == "near" else FAR)
            await let_go(operator, near if gone == "near" else far)
        await operator.apply()
        assert await world.there(Part, Tenant) == {}


@on_a_server_of_parts
async def test_what_another_controls_is_neither_deleted_nor_waited_for(world: World) -> None:
    async with world.operator(Part) as operator:
        await everything(world, operator, chain("a", "b"))
        theirs = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
        patch = MergePatch({"metadata": {"ownerReferences": [theirs]}})
        await world.client.patch(Part, "b", NAMESPACE, patch)
        assert (await operator.apply()).leaving == ()
        assert await parts(world) == ["default/b"]


@on_a_server_of_parts
async def test_an_object_that_is_created_once_has_its_place_in_the_order(world: World) -> None:
    password, web = config("password", value="first"), part("web")
    async with world.operator(Part, ConfigMap) as operator:
        await operator.apply(Ordered(web, after=[password]), create_once=[password])
        assert {*await world.there(Part, ConfigMap)} == {"Part default/web", "ConfigMap default/password"}
        applied = await operator.apply(web, create_once=[Ordered(config("token"), after=[web])])
        assert [str(each) for each in applied.held] == ["ConfigMap default/token"]


@on_a_server_of_parts
async def test_a_function_that_raises_fails_the_run_before_anything_is_sent(world: World) -> None:
    a = Ordered(part("a"), ready=lambda obj: obj.spec.colour == "red")  # type: ignore[attr-defined]
    async with world.operator(Part) as operator:
        await operator.apply(part("a"))
        with pytest.raises(AttributeError):
            await operator.apply(a, Ordered(part("b"), after=[a]), part("c"))
        assert operator.wire.requests == []


@on_a_server_of_parts
async def test_the_judge_of_these_tests_notices_what_is_too_early(world: World) -> None:
    async with world.operator(Part) as operator:
        await operator.apply(part("a"))
        operator.wire.judge = Judge(world)
        annotations = {"kubeshard.dev/after": '["Part.example.com default/a"]'}
        too_early = Part(metadata=ObjectMeta(name="b", namespace=NAMESPACE, annotations=annotations))
        with pytest.raises(OrderBroken):
            await operator.run(lambda ctx: ctx.client.create(too_early))
        await world.client.create(too_early)
        with pytest.raises(OrderBroken):
            await operator.run(lambda ctx: ctx.client.delete(Part, "a", NAMESPACE))


async def everything(world: World, operator: Any, desired: list[KubeObject | Ordered[Any]]) -> None:
    """Applies until all exist, and makes each ready."""
    while (await operator.apply(*desired)).held:
        for obj in await world.client.list_all(Part, NAMESPACE):
            await make_ready(world.client, obj.metadata.name)
