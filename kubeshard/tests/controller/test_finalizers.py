"""Finalizers: added before anything is created, removed after cleanup, in order, and reported when they are stuck."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Annotated, Any

import msgspec
import pytest
from app_cluster import App, AppCluster, app, app_cluster

from kubeshard import (
    EVERY_CLUSTER,
    OTHER_CLUSTERS,
    Context,
    Controller,
    Finalizer,
    Key,
    KubeObject,
    Manager,
    Result,
    Selector,
    Struct,
    Watch,
    field,
    metadata_only,
    when,
)
from kubeshard.cache import Scope
from kubeshard.cache.deltas import Deleted
from kubeshard.controller import Reconciler
from kubeshard.controller.controller import check_controllers
from kubeshard.controller.runner import ControllerRunner
from kubeshard.controller.when import Predicate
from kubeshard.core import JsonPatch, Kind, MergePatch
from kubeshard.core.patches import add, remove
from kubeshard_lab.virtual_time import virtual_time

BUCKET, ENTRY, THEIRS = "example.com/bucket", "example.com/entry", "others.example.com/theirs"


class Outside(Reconciler[App]):
    """Creates a bucket and a record in an external system, and cleans up unless `act` says otherwise."""

    def __init__(self) -> None:
        self.made: list[tuple[str, tuple[str, ...]]] = []
        self.cleaned: list[str] = []
        self.left: list[Key] = []
        self.act: dict[str, Any] = {}
        """The outcome of a cleanup by key: an exception or a result."""

    async def reconcile(self, ctx: Context, obj: App) -> None:
        assert not obj.metadata.deleting
        self.made.append((obj.metadata.name, obj.metadata.finalizers))

    async def gone(self, ctx: Context, key: Key) -> None:
        self.left.append(key)

    def cleanup(self, key: str) -> Finalizer[App]:
        async def clean(ctx: Context, obj: App) -> Result | None:
            self.cleaned.append(f"{obj.metadata.name} {key.partition('/')[2]}")
            act = self.act.get(f"{obj.metadata.name} {key}")
            if isinstance(act, BaseException):
                raise act
            result: Result | None = await act() if callable(act) else act
            return result

        return Finalizer(key, clean)

    def controller(self, *keys: str, **options: Any) -> Controller[App]:
        finalizers = [self.cleanup(key) for key in keys or (BUCKET, ENTRY)]
        options = {"primary": App, **options}
        return Controller(name="app", reconciler=self, finalizers=finalizers, **options)


async def finalizers(cluster: AppCluster, name: str = "a") -> tuple[str, ...]:
    found = await cluster.get(name)
    return found.metadata.finalizers if found else ()


async def events(cluster: AppCluster) -> list[str]:
    body = (await cluster.client.raw("GET", "/apis/events.k8s.io/v1/namespaces/default/events")).body
    return [f"{each['type']} {each['reason']} {each['note']}" for each in json.loads(body)["items"]]


@virtual_time
async def test_they_are_on_before_anything_is_made_and_the_run_goes_on_with_the_object_as_it_is_then() -> (
    None
):
    async with app_cluster() as cluster:
        outside = Outside()
        await cluster.client.create(app("a", THEIRS))
        async with cluster.running(outside.controller()):
            assert outside.made[0] == ("a", (THEIRS, BUCKET, ENTRY))
            assert {found for _, found in outside.made} == {(THEIRS, BUCKET, ENTRY)}
            assert cluster.sent == ["PATCH a"]


@virtual_time
async def test_cleanups_run_in_their_order_each_before_its_finalizer_goes_and_others_stay() -> None:
    async with app_cluster() as cluster:
        outside = Outside()
        seen: list[tuple[str, ...]] = []

        async def look() -> None:
            seen.append(await finalizers(cluster))

        outside.act = {f"a {BUCKET}": look, f"a {ENTRY}": look}
        await cluster.client.create(app("a", THEIRS))
        async with cluster.running(outside.controller()):
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(5)
            assert outside.cleaned == ["a bucket", "a entry"]
            assert seen == [(THEIRS, BUCKET, ENTRY), (THEIRS, ENTRY)]
            assert await finalizers(cluster) == (THEIRS,)
            made = len(outside.made)
            label = MergePatch({"metadata": {"labels": {"x": "y"}}})
            await cluster.client.patch(App, "a", "default", label)
            await asyncio.sleep(5)
            assert (len(outside.made), len(outside.cleaned)) == (made, 2)  # no longer its business
            theirs = JsonPatch([remove("/metadata/finalizers/0")])
            await cluster.client.patch(App, "a", "default", theirs)
            await asyncio.sleep(5)
            assert outside.left == [Key("default", "a")]


@virtual_time
async def test_an_object_that_was_deleted_before_it_had_them_is_left_alone() -> None:
    async with app_cluster() as cluster:
        outside = Outside()
        await cluster.client.create(app("a", THEIRS))
        await cluster.client.delete(App, "a", "default")
        async with cluster.running(outside.controller()):
            assert (outside.made, outside.cleaned) == ([], [])
            assert await finalizers(cluster) == (THEIRS,)


@virtual_time
async def test_a_cleanup_that_raises_is_retried_and_holds_up_no_other_object() -> None:
    async with app_cluster() as cluster:
        outside = Outside()
        outside.act[f"a {BUCKET}"] = OSError("no route")
        for name in "ab":
            await cluster.client.create(app(name))
        async with cluster.running(outside.controller()):
            for name in "ab":
                await cluster.client.delete(App, name, "default")
            await asyncio.sleep(120)
            assert await cluster.get("b") is None
            assert await finalizers(cluster) == (BUCKET, ENTRY)
            assert outside.cleaned.count("a bucket") > 5
            assert "a entry" not in outside.cleaned
            (event,) = await events(cluster)
            assert "Warning CleanupPending finalizer example.com/bucket" in event
            assert "OSError: no route" in event
            del outside.act[f"a {BUCKET}"]
            await asyncio.sleep(120)
            assert await cluster.get() is None


@virtual_time
async def test_a_cleanup_that_never_ends_is_cancelled_and_holds_up_no_other_object() -> None:
    async with app_cluster() as cluster:
        outside = Outside()
        outside.act[f"a {BUCKET}"] = asyncio.Event().wait
        for name in "ab":
            await cluster.client.create(app(name))
        async with cluster.running(outside.controller(workers=2, reconcile_timeout=30.0)):
            for name in "ab":
                await cluster.client.delete(App, name, "default")
            await asyncio.sleep(5)
            assert await cluster.get("b") is None
            await asyncio.sleep(100)
            assert outside.cleaned.count("a bucket") > 2


@virtual_time
async def test_a_cleanup_that_asks_for_time_is_asked_again_and_told_of_when_that_takes_long() -> None:
    async with app_cluster() as cluster:
        outside = Outside()
        outside.act[f"a {BUCKET}"] = Result(requeue_after=20)
        await cluster.client.create(app())
        async with cluster.running(outside.controller()):
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(50)
            assert outside.cleaned == ["a bucket"] * 3
            assert await events(cluster) == []
            await asyncio.sleep(50)
            (event,) = await events(cluster)
            assert event.endswith(
                "finalizer example.com/bucket, 1 min after the deletion: not cleaned up yet"
            )
            outside.act.clear()
            await asyncio.sleep(30)
            assert await cluster.get() is None


@virtual_time
async def test_another_operator_that_changes_the_list_at_the_same_time_loses_nothing() -> None:
    """Between the cleanup and the patch another finalizer is inserted in front, so the index has changed."""
    async with app_cluster() as cluster:
        outside = Outside()

        async def interfere() -> None:
            if THEIRS not in await finalizers(cluster):
                patch = JsonPatch([add("/metadata/finalizers", [THEIRS, BUCKET, ENTRY])])
                await cluster.client.patch(App, "a", "default", patch)

        await cluster.client.create(app("a", BUCKET, ENTRY, THEIRS))
        async with cluster.running(outside.controller()):
            outside.act[f"a {BUCKET}"] = interfere
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(30)
            assert await finalizers(cluster) == (THEIRS,)


@virtual_time
async def test_finalizers_that_people_took_off_by_hand_are_no_error() -> None:
    async with app_cluster() as cluster:
        outside = Outside()

        async def take_off() -> None:
            patch = JsonPatch([remove("/metadata/finalizers")])
            await cluster.client.patch(App, "a", "default", patch)

        outside.act[f"a {BUCKET}"] = take_off
        await cluster.client.create(app())
        async with cluster.running(outside.controller()):
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(30)
            assert await cluster.get() is None
            assert outside.cleaned == ["a bucket"]


async def clean(ctx: Context, obj: App) -> None: ...


@pytest.mark.parametrize("key", ["bucket", "example.com/", "example/bucket", "Example.com/bucket", ""])
def test_a_key_without_a_domain_of_ones_own_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="<your domain>/<what>"):
        Finalizer(key, clean)


def test_what_cannot_be_a_cleanup_is_refused() -> None:
    async def of_the_object_alone(obj: App) -> None: ...

    for wrong in (lambda ctx, obj: None, None, "clean", of_the_object_alone):
        with pytest.raises(TypeError, match="`async def` function"):
            Finalizer(BUCKET, wrong)  # type: ignore[arg-type]


def test_a_controller_takes_a_list_of_finalizers_with_keys_of_their_own() -> None:
    one = Finalizer(BUCKET, clean)
    with pytest.raises(ValueError, match="two finalizers have the same key"):
        Controller(name="app", reconciler=Outside(), primary=App, finalizers=[one, one])
    for wrong in (one, [clean], ["example.com/bucket"], "example.com/bucket"):
        with pytest.raises(TypeError, match="finalizers takes a list"):
            Controller(name="app", reconciler=Outside(), primary=App, finalizers=wrong)  # type: ignore[arg-type]


def size(obj: App) -> object:
    return obj.spec.size


WHEN: dict[str, when.Predicate[App]] = {
    "generation": when.generation_changed,
    "changed": when.changed(size),
    "labels": when.labels_changed,
    "or": when.changed(size) | when.labels_changed,
    "no longer matching": when.matching(lambda obj: obj.spec.size == 0) & when.generation_changed,
}


@pytest.mark.parametrize("when", WHEN.values(), ids=WHEN)
@virtual_time
async def test_a_deletion_triggers_the_cleanup_whatever_the_watch_lets_pass(
    when: when.Predicate[App],
) -> None:
    async with app_cluster() as cluster:
        outside = Outside()
        controller = replace(outside.controller(), primary=Watch(App, when=when))
        await cluster.client.create(app("a"))
        async with cluster.running(controller):
            await cluster.client.patch(App, "a", "default", MergePatch({"spec": {"size": 1}}))
            await asyncio.sleep(5)
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(5)
            assert outside.cleaned == ["a bucket", "a entry"]
            assert await cluster.get() is None


@virtual_time
async def test_a_deletion_by_a_run_triggers_the_cleanup_although_what_runs_write_triggers_nothing() -> None:
    class Once(Outside):
        async def reconcile(self, ctx: Context, obj: App) -> None:
            await ctx.client.delete_object(obj)

    async with app_cluster() as cluster:
        once = Once()
        await cluster.client.create(app("a", BUCKET, ENTRY))
        async with cluster.running(once.controller(primary=Watch(App, echoes=False))):
            await asyncio.sleep(5)
            assert once.cleaned[:2] == ["a bucket", "a entry"]
            assert await cluster.get() is None


@virtual_time
async def test_a_deletion_that_began_while_no_process_ran_triggers_the_cleanup_too() -> None:
    async with app_cluster() as cluster:
        outside = Outside()
        await cluster.client.create(app("ours", BUCKET))
        await cluster.client.create(app("theirs", THEIRS))
        for name in ("ours", "theirs"):
            await cluster.client.delete(App, name, "default")
        controller = replace(outside.controller(), primary=Watch(App, when=when.never))
        async with cluster.running(controller):
            assert outside.cleaned == ["ours bucket"]
            assert await cluster.get("ours") is None


@virtual_time
async def test_other_changes_of_an_object_that_is_being_deleted_are_the_watchs_to_judge() -> None:
    """Otherwise a cleanup that writes to its object would trigger itself."""
    async with app_cluster() as cluster:
        outside = Outside()
        outside.act = {f"a {BUCKET}": Result()}
        await cluster.client.create(app("a"))
        async with cluster.running(
            replace(outside.controller(), primary=Watch(App, when=when.changed(size)))
        ):
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(5)
            await cluster.client.patch(App, "a", "default", MergePatch({"metadata": {"labels": {"a": "b"}}}))
            await asyncio.sleep(5)
            assert outside.cleaned == ["a bucket"]


def test_two_controllers_with_one_finalizer_on_the_same_objects_are_refused_and_told_what_to_do() -> None:
    """Otherwise the object would be gone while the second cleanup runs."""
    outside = Outside()
    one, other = (replace(outside.controller(BUCKET, ENTRY), name=name) for name in ("one", "other"))
    says = "one and other both set the finalizer example.com/bucket on Apps: .* give each its own key"
    with pytest.raises(ValueError, match=says):
        Manager([one, other])
    v2 = Watch(metadata_only(Kind("example.com", "v2", "App", "apps")))
    with pytest.raises(ValueError, match="give each its own key"):
        Manager([one, replace(other, primary=v2)])


def _app_in(*namespaces: str) -> Watch[App]:
    return Watch(App, scope=Scope(namespaces=frozenset(namespaces)))


APART: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "other kind": ({}, {"primary": Watch(metadata_only(Kind("other.com", "v1", "App", "apps")))}, True),
    "other clusters": ({}, {"clusters": OTHER_CLUSTERS}, True),
    "named clusters": ({"clusters": ["a"]}, {"clusters": ["b", "c"]}, True),
    "other namespaces": ({"primary": _app_in("x")}, {"primary": _app_in("y", "z")}, True),
    "other keys": ({}, {"finalizers": [Outside().cleanup(THEIRS)]}, True),
    "every cluster": ({}, {"clusters": EVERY_CLUSTER}, False),
    "clusters added later": ({"clusters": EVERY_CLUSTER}, {"clusters": OTHER_CLUSTERS}, False),
    "a named cluster": ({"clusters": ["a"]}, {"clusters": OTHER_CLUSTERS}, False),
    "common namespace": ({"primary": _app_in("x", "y")}, {"primary": _app_in("y", "z")}, False),
    "one namespace of all": ({}, {"primary": _app_in("y")}, False),
}


@pytest.mark.parametrize(("first", "second", "apart"), APART.values(), ids=APART)
def test_one_finalizer_of_two_controllers_is_fine_only_where_no_object_can_be_both(
    first: dict[str, Any], second: dict[str, Any], apart: bool
) -> None:
    outside = Outside()
    one, other = (
        replace(outside.controller(BUCKET), **{"name": name, **more})
        for name, more in (("one", first), ("other", second))
    )
    if apart:
        check_controllers([one, other])
    else:
        with pytest.raises(ValueError, match="give each its own key"):
            check_controllers([one, other])


def managed_only(outside: Outside, **options: Any) -> Controller[App]:
    scope = Scope(labels=Selector.parse("managed=yes"))
    return Controller(
        name="app",
        reconciler=outside,
        primary=Watch(App, scope=scope),
        finalizers=[outside.cleanup(BUCKET)],
        **options,
    )


async def label(cluster: AppCluster, value: str | None) -> None:
    await cluster.client.patch(App, "a", "default", MergePatch({"metadata": {"labels": {"managed": value}}}))
    await asyncio.sleep(2)


ORDERS = ["label, delete", "delete, label", "label, restart, delete", "label, delete, restart"]


@pytest.mark.parametrize("order", ORDERS)
def test_an_object_that_left_the_selectors_is_cleaned_up_when_it_is_deleted(order: str) -> None:
    @virtual_time
    async def check() -> None:
        async with app_cluster() as cluster:
            outside = Outside()
            outside.act[f"a {BUCKET}"] = Result(requeue_after=3.0)
            await cluster.client.create(app("a", labels={"managed": "yes"}))
            steps = order.split(", ")
            while steps:
                async with cluster.running(managed_only(outside, error_condition="Ready")):
                    assert (await finalizers(cluster)) == (BUCKET,)
                    while steps and (step := steps.pop(0)) != "restart":
                        if step == "label":
                            await label(cluster, None)
                        else:
                            await cluster.client.delete(App, "a", "default")
                            await asyncio.sleep(2)
                    if not steps:
                        await asyncio.sleep(2)
                        condition = await cluster.condition()
                        assert condition is not None
                        assert (condition.status, condition.reason) == ("False", "Finalizing")
                        outside.act.clear()
                        await asyncio.sleep(10)
                        assert await cluster.get() is None
            assert "a bucket" in outside.cleaned

    check()


@pytest.mark.regression
def test_a_cleanup_goes_on_although_its_watch_tells_late_and_is_not_heard_that_the_object_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = ControllerRunner._left

    def late(runner: ControllerRunner, key: Key) -> None:
        asyncio.get_running_loop().call_later(0.5, told, runner, key)

    monkeypatch.setattr(ControllerRunner, "_left", late)

    @virtual_time
    async def check() -> None:
        async with app_cluster() as cluster:
            outside = Outside()
            outside.act[f"a {BUCKET}"] = Result(requeue_after=3.0)
            await cluster.client.create(app("a", labels={"managed": "yes"}))
            controller = managed_only(outside)
            stays = Predicate[App](lambda delta: not isinstance(delta, Deleted), "stays")
            primary = replace(controller.primary_watch, when=stays)
            async with cluster.running(replace(controller, primary=primary)):
                await cluster.client.delete(App, "a", "default")
                await asyncio.sleep(2)
                await label(cluster, None)
                outside.act.clear()
                await asyncio.sleep(10)
                assert await cluster.get() is None

    check()


@virtual_time
async def test_an_object_that_left_the_selectors_is_left_alone_while_it_lives() -> None:
    async with app_cluster() as cluster:
        outside = Outside()
        await cluster.client.create(app("a", labels={"managed": "yes"}))
        async with cluster.running(managed_only(outside)):
            await label(cluster, None)
            assert outside.left == [Key("default", "a")]
            made = len(outside.made)
            await cluster.client.patch(App, "a", "default", MergePatch({"spec": {"size": 3}}))
            await asyncio.sleep(100)
            assert (len(outside.made), outside.cleaned) == (made, [])
            assert await finalizers(cluster) == (BUCKET,)
            await label(cluster, "yes")
            assert len(outside.made) > made


class StrictSpec(Struct):
    size: Annotated[int, msgspec.Meta(le=5)] = 0


class Strict(KubeObject, group="example.com", version="v1", kind="App"):
    spec: StrictSpec = field(default_factory=StrictSpec)


@virtual_time
async def test_an_object_that_does_not_fit_its_class_says_what_holds_it_and_goes_when_it_is_corrected() -> (
    None
):
    cleaned: list[str] = []

    async def reconcile(ctx: Context, obj: Strict) -> None: ...

    async def clean(ctx: Context, obj: Strict) -> None:
        cleaned.append(obj.metadata.name)

    def controller() -> Controller[Strict]:
        finalizers = [Finalizer(BUCKET, clean)]
        return Controller(name="app", reconciler=reconcile, primary=Strict, finalizers=finalizers)

    async with app_cluster() as cluster:
        await cluster.client.create(app())
        async with cluster.running(controller()):
            await cluster.client.patch(App, "a", "default", MergePatch({"spec": {"size": 7}}))
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(2)
        async with cluster.running(controller()):  # nor does a new process know the object in another form
            (event, *_) = await events(cluster)
            assert event.startswith(
                f"Warning CleanupPending finalizer {BUCKET}, less than a minute after the deletion"
            )
            assert "does not fit Strict" in event
            assert f"correct it, or see `kubeshard release-finalizers --finalizer {BUCKET}`" in event
            await cluster.client.patch(App, "a", "default", MergePatch({"spec": {"size": 3}}))
            await asyncio.sleep(5)
            assert cleaned == ["a"]
            assert await cluster.get() is None
