"""The triggers of the sharder's scans of a ring's objects."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from small_api import SmallApi
from small_ring import SmallRing, small_assignments

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.runtime.logs import get_logger
from kubeshard.sharder.assignment_controller import RINGS_A_TURN, assignment_controller
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.tasks import ResourceSync
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.names import RING_LABEL
from kubeshard.sharding.scans import ScanPriority, ScanResult, ScanScope
from kubeshard_lab.virtual_time import VirtualClock, virtual_time
from kubeshard_lab.virtual_world import virtual_world


class World:
    """One ring of one resource, the Leases of shards a and b, and scans that only take time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.version = 0
        self.scans: list[ScanScope] = []
        self.observer = LeaseObserver(SmallApi().client(self.clock), self.clock)
        self.observer.follow("ring")
        self.small = SmallRing(clock=self.clock)
        self.small.availability = self.observer.states.availability  # type: ignore[method-assign]
        self.observer.subscribe(self.small.rings.shard_changed)
        self.observer.states.fresh = lambda now: True  # type: ignore[method-assign]
        self.assignments = small_assignments(
            self.small, self.observer, self._scan, lambda _: asyncio.sleep(3600)
        )

    def hold(self, name: str, holder: str | None = None) -> None:
        """Replaces the shard's Lease."""
        self.version += 1
        meta = ObjectMeta(
            name=name,
            namespace="ns",
            uid=f"uid-{name}",
            resource_version=str(self.version),
            labels={RING_LABEL: "ring"},
        )
        holder = name if holder is None else holder
        spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=15, renew_time=str(self.version))
        self.observer.observe(Lease(metadata=meta, spec=spec))

    async def _scan(self, sync: ResourceSync, scope: ScanScope) -> ScanResult:
        self.scans.append(scope)
        await asyncio.sleep(10.0)
        return ScanResult()

    async def reconcile(self) -> None:
        ctx: Any = SimpleNamespace(log=get_logger("test"))
        await self.assignments.reconcile(ctx, self.small.resource)


@virtual_time
async def test_a_shard_that_left_and_came_back_during_a_scan_means_another_scan() -> None:
    """Half of the scan saw a ring without the shard, and moved its objects."""
    world = World()
    world.hold("a")
    world.hold("b")
    source = asyncio.create_task(world.assignments.run())
    await asyncio.sleep(0)
    await world.reconcile()
    await asyncio.sleep(2.0)
    world.hold("a", holder="")
    await asyncio.sleep(2.0)
    world.hold("a")
    await asyncio.sleep(16.0)
    assert world.scans[:2] == [ScanScope.ALL, ScanScope.MISPLACED]
    assert world.scans.count(ScanScope.ALL) == 2
    source.cancel()


@virtual_time
async def test_a_renewal_is_no_reason_for_a_scan_and_a_lost_shard_is() -> None:
    world = World()
    world.hold("a")
    running = asyncio.create_task(world.assignments.run())
    await asyncio.sleep(60.0)
    world.scans.clear()
    world.hold("a")
    await asyncio.sleep(0.1)
    assert world.scans == []
    world.hold("a", holder="")
    await asyncio.sleep(0.1)
    assert world.scans == [ScanScope.MISPLACED]
    running.cancel()


@virtual_time
async def test_a_shard_that_is_lost_without_an_event_is_a_reason_for_a_scan_when_its_time_is_over() -> None:
    world = World()
    world.hold("a")
    world.hold("b")
    running = asyncio.create_task(world.assignments.run())
    await asyncio.sleep(120.0)
    world.hold("a")
    world.observer.forget(Key("ns", "a"))
    await asyncio.sleep(14.9)
    world.scans.clear()
    await asyncio.sleep(0.2)
    assert world.scans == [ScanScope.MISPLACED]
    running.cancel()


@pytest.mark.regression
@pytest.mark.parametrize(
    ("sync_period", "delays"), [(300.0, [5.0, 10.0, 10.0, 10.0]), (7.0, [5.0, 7.0, 7.0])]
)
@virtual_time
async def test_a_ring_that_fails_again_and_again_is_tried_every_ten_seconds(
    sync_period: float, delays: list[float]
) -> None:
    make = assignment_controller(World().assignments, sync_period).limiter
    assert make is not None
    limiter = make(virtual_world())
    waits = [limiter.when(Key("", "ring")) for _ in delays]
    assert all(delay <= wait <= 1.2 * delay for delay, wait in zip(delays, waits, strict=True))
    assert len({wait / delay for delay, wait in zip(delays, waits, strict=True)}) > 1


@pytest.mark.long
@virtual_time
async def test_other_tasks_have_their_turn_between_the_reconciles_of_many_rings() -> None:
    world, turns = World(), 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    for _ in range(100):
        await world.reconcile()
    task.cancel()
    assert turns >= 100


@virtual_time
async def test_other_tasks_have_their_turn_while_the_work_for_many_rings_ends_or_all_is_scanned_again() -> (
    None
):
    world = World()
    world.hold("a")
    rings = [
        world.small.ring,
        *(world.small.add(f"ring-{n}", RingResource(resource="secrets")) for n in range(400)),
    ]
    source = asyncio.create_task(world.assignments.run())
    await asyncio.sleep(1000.0)
    syncs = tuple(world.assignments._syncs.values())
    assert len(syncs) == len(rings)
    assert all(sync.resources for sync in syncs)
    ended: list[int] = []
    asked: list[int] = []

    async def others() -> None:
        while True:
            ended.append(sum(not sync.resources for sync in syncs))
            asked.append(
                sum(
                    each.due_soon(ScanPriority.NORMAL, world.clock.monotonic())
                    for sync in syncs
                    for each in sync.resources.values()
                )
            )
            await asyncio.sleep(0)

    world.assignments._all_outdated.set()
    other = asyncio.create_task(others())
    for _ in range(500):
        await asyncio.sleep(0)
    assert max(asked) == len(rings)
    assert max(after - before for before, after in pairwise(asked)) <= 1
    source.cancel()
    await asyncio.wait([source])
    other.cancel()
    assert all(not sync.resources for sync in syncs)
    assert max(after - before for before, after in pairwise(ended)) <= RINGS_A_TURN
