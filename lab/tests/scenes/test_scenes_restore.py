"""etcd is restored from a backup: resource versions go backwards, and every process recovers the actual state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from test_scenes_in_manager import SHARDS, working

from kubeshard import when
from kubeshard.controller import Context, Controller, Finalizer, Reconciler, Result, Watch
from kubeshard.core import AlreadyExists, ApiError, ConfigMap, MergePatch, ObjectMeta
from kubeshard.core.objects import Key
from kubeshard.runtime.transport import HttpStream
from kubeshard.sharding.names import drain_label
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch, simulate
from kubeshard_lab.simulation.processes import Process, StreamAround
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression


async def running(world: SimulatedCluster) -> dict[str, Process]:
    await world.install()
    await world.make_ring()
    processes = {"x0": world.sharder("x0")}
    for name in ("s0", "s1"):
        processes[name] = world.shard(name, Touch())
    await world.make_things(6)
    settled = {"s0", "s1"}  # whichever of them was there first has handed over the other one's share
    await world.until(
        lambda: world.all_owned(*settled) and set(world.owners().values()) == settled, within=30
    )
    await world.until(lambda: len(world.owners("", "configmaps")) == 6, within=10)
    return processes


async def lose_a_minute(world: SimulatedCluster) -> None:
    """Everything written within a minute is lost, including renewals of Leases."""
    restore = world.backup()
    await world.make_things(2, prefix="lost")
    await asyncio.sleep(60)
    assert world.all_owned("s0", "s1")
    restore()


class Late(StreamAround):
    """A watch that delivers nothing until it is released."""

    def __init__(self, inner: HttpStream, let: asyncio.Event) -> None:
        super().__init__(inner)
        self._let = let

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            await self._let.wait()
            yield chunk
        await self._let.wait()


def child(world: SimulatedCluster, name: str) -> str:
    for key, obj in world.objects("", "configmaps").items():
        if key.name == f"c-{name}":
            return obj["data"]["v"]
    return ""


async def work_goes_on(world: SimulatedCluster, within: float) -> None:
    """Checks that a change of an old object, and a new object, reach their shards."""
    async with world.admin() as client:
        await client.patch(Thing, "t0", "team", MergePatch({"spec": {"v": 7}}))
    await world.make_things(2, prefix="new")
    await world.until(lambda: child(world, "t0") == "7" and child(world, "new0") == "0", within=within)
    assert world.all_owned("s0", "s1")


@virtual_time
async def test_nobody_is_declared_dead_because_of_a_restore_and_the_work_goes_on() -> None:
    async with SimulatedCluster() as world:
        processes = await running(world)
        owners = world.owners()
        await lose_a_minute(world)
        await work_goes_on(world, within=20)
        assert {name: world.owners()[name] for name in owners} == owners
        await asyncio.sleep(120)
        assert {name: world.owners()[name] for name in owners} == owners
        assert not [process.dead for process in processes.values() if process.dead]


@virtual_time
async def test_after_an_outage_a_restore_is_noticed_as_soon_as_somebody_answers() -> None:
    async with SimulatedCluster() as world:
        processes = await running(world)
        restore = world.backup()
        await asyncio.sleep(60)
        for process in processes.values():
            for network in process.networks:
                network.down = True
                network.abort()
        await asyncio.sleep(5)
        restore()
        for process in processes.values():
            process.cut_off(down=False)
        await work_goes_on(world, within=15)
        assert not [process.dead for process in processes.values() if process.dead]


@virtual_time
async def test_a_shard_whose_watches_are_held_up_over_a_restore_learns_of_it_from_its_lease() -> None:
    """When its watches resume, the new history has long passed their versions, so no version gives the restore away."""
    async with SimulatedCluster() as world:
        processes = await running(world)
        mine = [name for name, owner in world.owners().items() if owner == "s0"]
        restore = world.backup()
        async with world.admin() as client:
            for value in range(1, 21):
                await client.patch(Thing, mine[0], "team", MergePatch({"spec": {"v": value}}))
        await world.until(lambda: child(world, mine[0]) == "20", within=5)
        let = asyncio.Event()
        for network in processes["s0"].networks:
            network.through = lambda request, stream: Late(stream, let)
            network.abort()
        await asyncio.sleep(10)
        restore()
        await asyncio.sleep(5)
        async with world.admin() as client:
            for value in range(100, 250):
                await client.patch(Thing, mine[0], "team", MergePatch({"spec": {"v": value}}))
            await client.patch(Thing, mine[1], "team", MergePatch({"spec": {"v": 7}}))
            for value in range(250, 400):
                await client.patch(Thing, mine[0], "team", MergePatch({"spec": {"v": value}}))
        await asyncio.sleep(20)
        let.set()
        await world.until(lambda: child(world, mine[1]) == "7", within=15)
        await world.until(lambda: child(world, mine[0]) == "399", within=5)


@virtual_time
async def test_a_shard_that_died_in_a_restore_is_found_out_in_twice_its_leases_duration() -> None:
    async with SimulatedCluster() as world:
        processes = await running(world)
        await lose_a_minute(world)
        processes["s0"].kill()
        assert "s0" in world.owners().values()
        # Twice 15 s from the first list, which takes up to 5 s, and the moves.
        await world.until(lambda: "s0" not in world.owners().values(), within=38)
        await world.until(lambda: world.all_owned("s1"), within=5)


@virtual_time
async def test_an_object_that_a_restore_gave_back_to_its_former_shard_is_drained_once_more() -> None:
    """The shard had released it, which the backup does not know yet."""
    async with SimulatedCluster() as world:
        await running(world)
        name = next(name for name, owner in world.owners().items() if owner == "s0")
        async with world.admin() as client:
            asked = MergePatch({"metadata": {"labels": {drain_label(world.ring): "true"}}})
            await client.patch(Thing, name, "team", asked)
        restore = world.backup()
        await world.until(lambda: not world.draining(), within=10)
        await asyncio.sleep(1)
        restore()
        assert world.draining() == {name}
        await world.until(lambda: not world.draining(), within=15)
        await work_goes_on(world, within=15)


@virtual_time
async def test_a_hand_over_that_a_restore_undid_is_done_again_for_the_object_and_its_child() -> None:
    """Labels are those of the backup, and the ring has not changed: only the restore itself shows that they are out of
    date.
    """
    async with SimulatedCluster() as world:
        await running(world)
        joined = world.shard("s2", Touch())
        await world.until(lambda: world.draining() or "s2" in world.owners().values(), within=30, step=0.002)
        restore = world.backup()
        former = {name for name, owner in world.owners("", "configmaps").items() if owner != "s2"}
        await world.until(lambda: world.all_owned("s0", "s1", "s2"), within=30)
        await asyncio.sleep(120)
        after = world.owners(), world.owners("", "configmaps")
        assert former & {name for name, owner in after[1].items() if owner == "s2"}
        restore()
        await world.until(lambda: (world.owners(), world.owners("", "configmaps")) == after, within=60)
        assert not joined.dead


@pytest.mark.nightly
@virtual_time
async def test_two_shards_work_on_what_a_restore_gave_back_for_a_moment_at_most() -> None:
    async with working(seed=4) as team:
        world = team.world

        async def edit() -> None:
            async with world.admin() as admin:
                for value in range(1_000_000):
                    for name in world.owners():
                        with suppress(ApiError):
                            await admin.patch(Thing, name, "team", MergePatch({"spec": {"v": value}}))
                    await asyncio.sleep(2)

        restore = world.backup()
        team.shard("s3")
        await team.until_settled(*SHARDS, "s3")
        editing = asyncio.create_task(edit())
        await asyncio.sleep(20)
        assert team.together == []
        restore()
        restored = world.loop.time()
        await asyncio.sleep(60)
        editing.cancel()
        assert all(at - restored < 5 for at, *_ in team.together)
        await world.until(lambda: team.settled(*SHARDS, "s3"), within=60)


def _v(thing: Thing) -> object:
    return thing.spec.get("v", 0)


def _is_small(thing: Thing) -> bool:
    return int(thing.spec.get("v", 0)) < 3


PREDICATES: dict[str, when.Predicate[Thing]] = {
    "generation_changed": when.generation_changed,
    "generation_changed | labels_changed": when.generation_changed | when.labels_changed,
    "generation_changed & matching": when.generation_changed & when.matching(_is_small),
    "changed": when.changed(_v),
    "annotations_changed": when.annotations_changed,
    "resource_version_changed": when.resource_version_changed,
}


class Idle(Reconciler[Thing]):
    """Only its Lease and its hand-overs matter."""

    async def reconcile(self, ctx: Context, obj: Thing) -> None: ...


class Cleaned(Touch):
    """Also records which Things were cleaned up."""

    def __init__(self) -> None:
        super().__init__()
        self.cleaned: list[str] = []

    async def clean(self, ctx: Context, thing: Thing) -> Result | None:
        self.cleaned.append(ctx.key.name)
        return None

    def controller(self, triggers: when.Predicate[Thing]) -> Controller[Thing]:
        return Controller(
            name="cleaned",
            reconciler=self,
            primary=Watch(Thing, when=triggers),
            reads=[ConfigMap],
            finalizers=[Finalizer("sim.example/cleaned", self.clean)],
        )


@pytest.mark.parametrize(
    ("when", "sharded"),
    [
        *(pytest.param(when, False, id=name) for name, when in PREDICATES.items()),
        *(
            pytest.param(PREDICATES[name], True, id=f"{name}, sharded")
            for name in ("generation_changed", "changed")
        ),
    ],
)
def test_what_is_edited_or_deleted_again_after_a_restore_is_reconciled_though_its_numbers_repeat(
    when: when.Predicate[Thing], sharded: bool
) -> None:
    """The generations of the lost edits and deletions come again with other specs, and so do their versions."""

    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install()
            works = Cleaned()
            if sharded:
                await world.make_ring()
                world.sharder("x0")
                world.shard("s0", Idle(), controllers=[works.controller(when)])
            else:
                world.operator("o0", works.controller(when))
            await world.make_things(12)
            await world.until(lambda: len(world.objects("", "configmaps")) == 12, within=30)
            await asyncio.sleep(30)
            restore = world.backup()
            async with world.admin() as client:
                for number in range(8):
                    await client.patch(Thing, f"t{number}", "team", MergePatch({"spec": {"v": 1}}))
                for number in range(8, 12):
                    await client.delete(Thing, f"t{number}", "team")
            await world.make_things(12, prefix="lost")
            await asyncio.sleep(10)
            seen = {key.name: obj["metadata"]["generation"] for key, obj in things(world).items()}
            restore()
            async with world.admin() as client:
                for number in range(4):
                    await client.delete(Thing, f"t{number}", "team")
                for number in range(4, 12):
                    await client.patch(Thing, f"t{number}", "team", MergePatch({"spec": {"v": 2}}))
            again = {key.name: obj["metadata"]["generation"] for key, obj in things(world).items()}
            assert {name: again[name] for name in seen if name in again} | seen == seen
            await asyncio.sleep(30)
            assert sorted(key.name for key in things(world)) == sorted(f"t{n}" for n in range(4, 12))
            assert {n: child(world, f"t{n}") for n in range(4, 12)} == dict.fromkeys(range(4, 12), "2")
            assert {f"t{n}" for n in range(4)} <= set(works.cleaned)

    simulate(scene)


@pytest.mark.quick
@virtual_time
async def test_an_object_that_is_as_before_a_restore_is_reconciled_because_its_consequences_are_undone() -> (
    None
):
    async def make(ctx: Context, thing: Thing) -> None:
        metadata = ObjectMeta(name=f"c-{ctx.key.name}", namespace=ctx.key.namespace)
        with suppress(AlreadyExists):
            await ctx.client.create(ConfigMap(metadata=metadata))

    async with SimulatedCluster() as world:
        await world.install()
        await world.make_things(6)
        restore = world.backup()
        primary = Watch(Thing, when=when.generation_changed)
        world.operator("o0", Controller(name="maker", reconciler=make, primary=primary))
        await world.until(lambda: len(world.objects("", "configmaps")) == 6, within=10)
        await asyncio.sleep(120)  # bookmarks
        restore()
        assert not world.objects("", "configmaps")
        await world.until(lambda: len(world.objects("", "configmaps")) == 6, within=15)


def things(world: SimulatedCluster) -> dict[Key, dict[str, Any]]:
    return world.objects("sim.example", "things")
