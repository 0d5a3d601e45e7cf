"""A ring shares out the other clusters of a manager, which works in those that the ring engages, and in no others."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from clusters import DEFAULT, Places, Running, Seen
from manager_bench import FakeMembership

from kubeshard import HOME_CLUSTER, OTHER_CLUSTERS, Manager, errors
from kubeshard.controller import Context, Controller, Index, Reconciler
from kubeshard.controller.reconciler import RunFn
from kubeshard.controller.run import Run
from kubeshard.controller.workers import Workers
from kubeshard.core import ConfigMap, Key, Lease, MergePatch, ObjectMeta, Secret
from kubeshard.manager.membership import RightLost, SharedClusters
from kubeshard.shard import Ranges, Sharding
from kubeshard_lab.virtual_time import virtual_time


@asynccontextmanager
async def sharing(places: Places, act: Any, *more: Any, **options: Any) -> AsyncIterator[Running]:
    """A member of a ring that has its right to act; `ring_of` is what it may engage."""
    member = FakeMembership([], shares_clusters=True)
    sharded = Controller(name="sharded", reconciler=act, primary=ConfigMap, clusters=OTHER_CLUSTERS)
    async with places.manager(sharded, *more, sharding=member, **options) as process:
        await asyncio.sleep(1)
        yield process


def ring_of(process: Running) -> SharedClusters:
    member: Any = process.manager._declared.sharding
    return member.clusters  # type: ignore[no-any-return]


async def filled(places: Places) -> None:
    for place in places.by_name.values():
        await place.put("one")


@virtual_time
async def test_nothing_is_sent_to_a_cluster_that_the_ring_has_not_engaged() -> None:
    seen = Seen()
    async with Places("eu", "us") as places:
        await filled(places)
        async with sharing(places, seen) as process:
            ring = ring_of(process)
            assert sorted(ring.names) == ["eu", "us"]
            ring.engage("eu")
            await asyncio.sleep(60)
            assert (seen.of("eu"), seen.of("us"), seen.of(HOME_CLUSTER)) == (["one"], [], [])
            assert (places["eu"].line.tries > 0, places["us"].line.tries) == (True, 0)
            with pytest.raises(ValueError, match="cluster eu is engaged"):
                ring.engage("eu")


@virtual_time
async def test_a_cluster_that_is_released_is_disconnected_when_its_runs_have_ended() -> None:
    seen = Seen(10.0)
    async with Places("eu", "us") as places:
        await filled(places)
        async with sharing(places, seen) as process:
            ring = ring_of(process)
            ring.engage("eu")
            await asyncio.sleep(1)
            releasing = asyncio.create_task(ring.release("eu"))
            await asyncio.sleep(5)
            assert (releasing.done(), places["eu"].line.closed) == (False, 0)
            await ring.release("eu")
            assert (seen.of("eu"), places["eu"].line.closed) == (["one"], 1)
            tries = places["eu"].line.tries
            await asyncio.sleep(600)
            assert places["eu"].line.tries == tries
            assert not any('cluster="eu"' in line for line in await process.metrics())
            await releasing


@virtual_time
async def test_removing_a_cluster_that_is_being_released_cancels_its_runs_when_it_is_cancelled_itself() -> (
    None
):
    seen = Seen(math.inf)
    async with Places("eu") as places:
        await filled(places)
        async with sharing(places, seen) as process:
            ring, manager = ring_of(process), process.manager
            ring.engage("eu")
            await asyncio.sleep(1)
            releasing = asyncio.create_task(ring.release("eu"))
            await asyncio.sleep(1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await manager.remove_cluster("eu")
            manager.add_cluster("eu", places["eu"].config)
            assert (seen.of("eu"), places["eu"].line.closed) == ([], 1)
            await releasing


@virtual_time
async def test_a_cluster_that_is_engaged_again_begins_with_a_list_of_everything() -> None:
    seen = Seen()
    async with Places("eu") as places:
        await filled(places)
        async with sharing(places, seen) as process:
            ring = ring_of(process)
            ring.engage("eu")
            await asyncio.sleep(1)
            await ring.release("eu")
            await places["eu"].client.delete_object(await places["eu"].client.get(ConfigMap, "one", DEFAULT))
            await places["eu"].put("two")
            await places["eu"].put("three")
            ring.engage("eu")
            await asyncio.sleep(1)
            assert sorted(seen.of("eu")) == ["one", "three", "two"]


class Remembering(Reconciler[ConfigMap]):
    """Remembers the objects that it has seen, until they are gone. `busy`: seconds that a run takes."""

    def __init__(self, busy: float = 0.0) -> None:
        self.seen: set[Key] = set()
        self.forgotten: set[Key] = set()
        self.runs = 0
        self._busy = busy

    async def reconcile(self, ctx: Context, obj: ConfigMap) -> None:
        self.seen.add(ctx.key)
        self.runs += 1
        await asyncio.sleep(self._busy)

    async def gone(self, ctx: Context, key: Key) -> None:
        self.seen.discard(key)
        self.forgotten.add(key)

    def of(self, cluster: str) -> bool:
        return any(key.cluster == cluster for key in self.seen)


@pytest.mark.parametrize("reachable", [True, False])
@virtual_time
async def test_what_was_in_a_cluster_is_gone_for_the_reconciler_when_it_has_been_released(
    reachable: bool,
) -> None:
    remembering = Remembering(busy=5.0)
    async with Places("eu", "us") as places:
        await filled(places)
        async with sharing(places, remembering) as process:
            ring = ring_of(process)
            ring.engage("eu")
            ring.engage("us")
            await asyncio.sleep(60)
            if not reachable:
                places["eu"].line.break_off()
                await asyncio.sleep(120)
            await ring.release("eu")
            assert (remembering.of("eu"), remembering.of("us")) == (False, True)
            await process.manager.remove_cluster("us")
            assert not remembering.seen


@virtual_time
async def test_a_run_that_waits_while_its_cluster_is_handed_over_does_nothing_but_to_find_its_object_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remembering, newest, reads = Remembering(), Workers._newest, asyncio.Event()

    async def late(self: Workers, *of: Any) -> Any:
        found = await newest(self, *of)
        await reads.wait()
        return found

    def unless_handed_over(inner: RunFn) -> RunFn:
        async def run_of(run: Run, obj: Any) -> Any:
            return await inner(run, obj) if obj is None else None

        return run_of

    monkeypatch.setattr(Workers, "_newest", late)
    sharded = Controller(
        name="sharded", reconciler=remembering, primary=ConfigMap, clusters=OTHER_CLUSTERS
    ).guarded(unless_handed_over)
    async with Places("eu") as places:
        await filled(places)
        member = FakeMembership([], shares_clusters=True)
        async with places.manager(sharded, sharding=member) as process:
            await asyncio.sleep(1)
            ring_of(process).engage("eu")
            await asyncio.sleep(1)
            releasing = asyncio.create_task(ring_of(process).release("eu"))
            await asyncio.sleep(1)
            reads.set()
            await releasing
            assert (remembering.runs, len(remembering.forgotten)) == (0, 1)


@virtual_time
async def test_what_is_in_a_cluster_is_not_gone_because_the_process_stops() -> None:
    remembering = Remembering()
    async with Places("eu") as places:
        await filled(places)
        async with sharing(places, remembering) as process:
            ring_of(process).engage("eu")
            await asyncio.sleep(5)
        assert remembering.of("eu")


@virtual_time
async def test_a_run_cannot_get_at_a_cluster_of_another_shard() -> None:
    refused: list[errors.NotOurs] = []

    async def cross(ctx: Context, obj: ConfigMap) -> None:
        if obj.metadata.name != "one":
            return
        with pytest.raises(errors.NotOurs, match="cluster us is another shard's") as raised:
            ctx.at("us")
        refused.append(raised.value)
        with pytest.raises(errors.NoSuchCluster):
            ctx.at("mars")
        await ctx.at(HOME_CLUSTER).client.create(
            ConfigMap(metadata=ObjectMeta(name=f"from-{ctx.cluster}", namespace=DEFAULT))
        )

    async with Places("eu", "us") as places:
        await filled(places)
        async with sharing(places, cross) as process:
            ring_of(process).engage("eu")
            await asyncio.sleep(5)
            assert len(refused) == 1
            assert "from-eu" in await places.home.names()


def by_name(kind: type[ConfigMap | Secret]) -> Index[Any]:
    return Index(kind, "name", lambda obj: [obj.metadata.name])


@pytest.mark.parametrize(
    ("indexes", "says"),
    [
        (([by_name(Secret)], []), "one: index 'name' is of Secret.v1, which it does not watch"),
        (([by_name(ConfigMap), by_name(ConfigMap)], []), "one has two indexes 'name' of ConfigMap.v1"),
        (([by_name(ConfigMap)], [by_name(ConfigMap)]), "one and other have different indexes 'name'"),
    ],
)
def test_an_index_that_could_not_be_built_is_refused_before_a_cluster_is_engaged(
    indexes: tuple[list[Index[Any]], list[Index[Any]]], says: str
) -> None:
    declared = [
        Controller(name=name, reconciler=Seen(), primary=ConfigMap, clusters=OTHER_CLUSTERS, indexes=each)
        for name, each in zip(("one", "other"), indexes, strict=True)
    ]
    with pytest.raises(ValueError, match=says):
        Manager(declared, sharding=FakeMembership([], shares_clusters=True))


@virtual_time
async def test_the_ring_is_told_of_clusters_that_come_and_go_and_decides_about_them() -> None:
    seen, told = Seen(), list[list[str]]()
    async with Places("eu", "us") as places:
        await filled(places)
        async with sharing(places, seen, clusters={"eu": places["eu"].config}) as process:
            ring, manager = ring_of(process), process.manager
            ring.listen(lambda: told.append(sorted(ring.names)))
            manager.add_cluster("us", places["us"].config)
            await asyncio.sleep(5)
            assert (told, seen.of("us")) == ([["eu", "us"]], [])
            with pytest.raises(ValueError, match="there is already a cluster us"):
                manager.add_cluster("us", places["us"].config)
            ring.engage("us")
            await asyncio.sleep(5)
            assert seen.of("us") == ["one"]
            await manager.remove_cluster("us")
            await manager.remove_cluster("eu")
            assert told[1:] == [["eu"], []]
            assert places["us"].line.closed == 1
            with pytest.raises(KeyError):
                ring.engage("us")
            with pytest.raises(KeyError):
                await manager.remove_cluster("us")


@virtual_time
async def test_a_member_none_of_whose_clusters_can_be_reached_keeps_its_right_and_tries_ever_more_rarely() -> (
    None
):
    seen = Seen()
    async with Places("eu", "us") as places:
        await filled(places)
        async with sharing(places, seen) as process:
            ring_of(process).engage("eu")
            await asyncio.sleep(5)
            places["eu"].line.break_off()
            await asyncio.sleep(600)
            tries = places["eu"].line.tries
            await asyncio.sleep(600)
            assert 5 < places["eu"].line.tries - tries < 60
            member: Any = process.manager._declared.sharding
            assert member.health() is None
            assert 'kubeshard_cluster_up{cluster="eu"} 0.0' in await process.metrics()
            ring_of(process).engage("us")
            await asyncio.sleep(5)
            assert seen.of("us") == ["one"]


@virtual_time
async def test_the_connections_to_all_its_clusters_are_reset_when_a_shard_loses_its_lease() -> None:
    sharded = Controller(name="maps", reconciler=Seen(), primary=ConfigMap, clusters=OTHER_CLUSTERS)
    member = Sharding("ring", "a", DEFAULT, mode="both", delivery=Ranges(by="cluster"))
    async with Places("eu", "us") as places:
        places["us"].line.down = True

        async def lose() -> None:
            async with places.manager(sharded, sharding=member) as process:
                await asyncio.sleep(60)
                assert [places[name].line.aborted for name in ("home", "eu", "us")] == [0, 0, 0]
                stolen = MergePatch({"spec": {"holderIdentity": "another"}})
                await places.home.client.patch(Lease, "a", DEFAULT, stolen)
                await asyncio.wait([process.task])

        with pytest.raises(RightLost):
            await lose()
        assert all(places[name].line.aborted for name in ("home", "eu", "us"))
