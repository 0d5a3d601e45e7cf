"""Ordered sets in a running controller: what triggers the next step, and how an owner takes its members with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from app_cluster import App, AppCluster, AppStatus, app, app_cluster, definition
from desiring import DEFINITIONS, Tenant, World
from ordering import FAR, PARTS, Judge, Part, chain, make_ready, on_a_server_of_parts, part
from test_desired_runs import Shard, assign

from kubeshard import ALL, Condition, Context, Controller, Finalizer, Generator, Ordered, Result, Watch, when
from kubeshard.controller import Applied
from kubeshard.controller.event_series import Event
from kubeshard.core import KubeObject, MergePatch, Namespace, NotOurs, ObjectMeta
from kubeshard_apiserver.controllers import Controllers
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

KEY = "example.com/members"
KEPT = "example.com/kept"
TENANT = next(each for each in DEFINITIONS if each["spec"]["names"]["kind"] == "Tenant")
KINDS = (definition(), PARTS, TENANT)

Wanted = Callable[[App], Sequence[KubeObject | Ordered[Any]]]


class Operator:
    """A controller of Apps, with the status and the finalizer that the page on ordered sets recommends."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.runs = 0
        self.applied: Applied | None = None

    async def reconcile(self, ctx: Context, obj: App) -> None:
        self.runs += 1
        self.applied = await ctx.apply(*self.wanted(obj))
        waits = self.applied.held_because
        ready = Condition(
            type="Ready",
            status="False" if waits else "True",
            reason="Waiting" if waits else "Done",
            message=waits,
        )
        await ctx.status(obj, AppStatus(conditions=(ready,)))

    def controller(self, *applies: Any) -> Controller[App]:
        return Controller(
            name="apps",
            reconciler=self.reconcile,
            primary=Watch(App, when=when.generation_changed),
            applies=applies or [Part, Tenant],
            finalizers=[Finalizer.deleting_members(KEY)],
        )


def everywhere(_: App) -> list[KubeObject | Ordered[Any]]:
    """One without a namespace, then one in another namespace, then one beside the owner."""
    tenant, far, near = Tenant(metadata=ObjectMeta(name="t")), part("far", FAR), part("near")
    return [Ordered(tenant, ready=False), Ordered(far, after=[tenant]), Ordered(near, after=[far])]


async def there(cluster: AppCluster) -> set[str]:
    found = [*await cluster.client.list_all(Part, ALL), *await cluster.client.list_all(Tenant, ALL)]
    return {obj.metadata.name + ("-" if obj.metadata.deleting else "") for obj in found}


async def begun(cluster: AppCluster) -> None:
    await cluster.client.create(Namespace(metadata=ObjectMeta(name=FAR)))
    await cluster.client.create(app())


async def all_ready(cluster: AppCluster) -> None:
    for name, namespace in (("far", FAR), ("near", "default")):
        await make_ready(cluster.client, name, namespace)
        await asyncio.sleep(1)
    assert await there(cluster) == {"t", "far", "near"}


async def release(cluster: AppCluster, obj: Part) -> None:
    patch = MergePatch({"metadata": {"finalizers": None}})
    await cluster.client.patch(Part, obj.metadata.name, obj.metadata.namespace, patch)
    await asyncio.sleep(1)


@virtual_time
async def test_what_is_waited_for_triggers_the_next_step_and_nothing_is_polled() -> None:
    async with app_cluster(*KINDS) as cluster:
        await begun(cluster)
        operator = Operator(lambda _: chain("a", "b"))
        async with cluster.running(operator.controller()):
            assert await there(cluster) == {"a"}
            waiting = await cluster.condition()
            assert waiting is not None
            assert (waiting.reason, waiting.message) == (
                "Waiting",
                "Part default/b waits for Part default/a (it has no condition Ready)",
            )
            runs, requests = operator.runs, len(cluster.recording.requests)
            await asyncio.sleep(3600)
            assert operator.runs == runs
            assert len(cluster.recording.requests) == requests
            await make_ready(cluster.client, "a")
            await asyncio.sleep(1)
            assert await there(cluster) == {"a", "b"}
            done = await cluster.condition()
            assert done is not None
            assert done.status == "True"


@virtual_time
async def test_a_filter_of_events_delays_no_step() -> None:
    """Neither a status nor a removal passes it; once the set is complete, it filters as ever."""
    async with app_cluster(*KINDS) as cluster:
        await begun(cluster)
        desired: list[KubeObject | Ordered[Any]] = chain("a", "b")
        operator = Operator(lambda _: desired)
        only = when.on(added=lambda _: False, updated=lambda old, new: False, deleted=lambda _: False)
        async with cluster.running(operator.controller(Watch(Part, when=only), Tenant)):
            await make_ready(cluster.client, "a")
            await asyncio.sleep(1)
            assert await there(cluster) == {"a", "b"}
            runs = operator.runs
            await make_ready(cluster.client, "b")
            await asyncio.sleep(1)
            assert operator.runs == runs
            desired = []
            await cluster.client.patch(App, "a", "default", MergePatch({"spec": {"size": 1}}))
            await asyncio.sleep(1)
            assert await there(cluster) == {"a", "b-"}
            await release(cluster, part("b"))
            assert await there(cluster) == set()


@virtual_time
async def test_members_anywhere_go_in_reverse_before_the_owner_does() -> None:
    """The garbage collector knows nothing of two of them."""
    async with app_cluster(*KINDS) as cluster:
        await begun(cluster)
        async with cluster.running(Operator(everywhere).controller()):
            await all_ready(cluster)
            await cluster.client.delete(App, "a", "default")
            for left in ({"t", "far", "near-"}, {"t", "far-"}):
                await asyncio.sleep(1)
                assert await there(cluster) == left
                assert await cluster.get() is not None
                await release(cluster, part("near") if "near-" in left else part("far", FAR))
            assert await there(cluster) == set()
            assert await cluster.get() is None


@virtual_time
async def test_with_a_garbage_collector_everything_goes_by_itself() -> None:
    async with app_cluster(*KINDS) as cluster:
        await begun(cluster)
        async with cluster.running(Operator(everywhere).controller()), Controllers(cluster.server):
            await all_ready(cluster)
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(30)
            assert await there(cluster) == set()
            assert await cluster.get() is None


@virtual_time
async def test_another_process_goes_on_where_one_ended() -> None:
    async with app_cluster(*KINDS) as cluster:
        await begun(cluster)
        async with cluster.running(Operator(everywhere).controller()):
            assert await there(cluster) == {"t", "far"}
        await make_ready(cluster.client, "far", FAR)
        async with cluster.running(Operator(everywhere).controller()):
            await all_ready(cluster)
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(1)
        await release(cluster, part("near"))
        assert await there(cluster) == {"t", "far"}
        async with cluster.running(Operator(everywhere).controller()):
            assert await there(cluster) == {"t", "far-"}
            await release(cluster, part("far", FAR))
            assert await cluster.get() is None


@virtual_time
async def test_a_deletion_that_does_not_end_is_told_with_the_names_of_what_is_left() -> None:
    async with app_cluster(*KINDS) as cluster:
        await begun(cluster)
        kept = part("kept", finalizers=[KEPT])
        async with cluster.running(Operator(lambda _: [kept]).controller()):
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(150)
            told = [
                each.note
                for each in await cluster.client.list_all(Event, ALL)
                if each.reason == "CleanupPending"
            ]
            assert told
            assert all("waits for Part default/kept" in each for each in told)
            await release(cluster, kept)
            assert await cluster.get() is None


@virtual_time
async def test_the_finalizer_also_waits_for_kinds_that_are_not_declared_any_more() -> None:
    async with app_cluster(*KINDS) as cluster:
        await begun(cluster)
        kept = part("kept", finalizers=[KEPT])
        async with cluster.running(Operator(lambda _: [kept]).controller()):
            assert await there(cluster) == {"kept"}
        async with cluster.running(Operator(lambda _: []).controller(Tenant)):
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(60)
            assert await cluster.get() is not None
            await release(cluster, kept)
            await asyncio.sleep(10)
            assert await cluster.get() is None


@virtual_time
async def test_a_generator_yields_an_order_and_its_cleanup_follows_it() -> None:
    async with app_cluster(*KINDS) as cluster:
        await begun(cluster)

        async def parts(ctx: Context, obj: App) -> AsyncIterator[KubeObject | Ordered[Any]]:
            for each in everywhere(obj):
                yield each

        async def then(ctx: Context, obj: App, applied: Applied) -> Result | None:
            await ctx.status(obj, AppStatus(size=len(applied.held)))
            return None

        generator = Generator(parts, then=then)
        controller = Controller(
            name="apps",
            reconciler=generator,
            primary=Watch(App, when=when.generation_changed),
            applies=[Part, Tenant],
            finalizers=[generator.cleanup(KEY)],
        )
        async with cluster.running(controller):
            assert (await cluster.status()).size == 1
            await all_ready(cluster)
            assert (await cluster.status()).size == 0
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(1)
            assert await there(cluster) == {"t", "far", "near-"}


@on_a_server_of_parts
async def test_a_set_that_moves_to_another_shard_is_continued_there(world: World) -> None:
    """Only the cluster knows how far it is."""
    desired = chain("a", "b", "c")
    await assign(world, "one", app("shop"))
    async with world.operator(Part, fenced=Shard("one", Part.KIND)) as shard:
        shard.wire.judge = Judge(world)
        await shard.apply(*desired)
        await make_ready(world.client, "a")
        await shard.apply(*desired)
        await assign(world, "two", app("shop"), part("a"), part("b"))
        await make_ready(world.client, "b")
        with pytest.raises(NotOurs):
            await shard.apply(part("a", size=2), *desired[1:])
    async with world.operator(Part, fenced=Shard("two", Part.KIND)) as other:
        other.wire.judge = Judge(world)
        await other.apply(*desired)
        found = await world.client.list_all(Part, ALL)
        assert {obj.metadata.name: obj.metadata.label(Shard.label_key) for obj in found} == dict.fromkeys(
            "abc", "two"
        )
        applied = await other.apply()
        assert [each.key.name for each in applied.held] == ["b", "a"]
        await assign(world, "one", app("shop"), part("a"), part("b"))
        with pytest.raises(NotOurs):
            await other.apply(part("a", size=2))
