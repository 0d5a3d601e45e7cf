"""The triggers of the sharder's scans of a ring's objects."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from small_api import SmallApi
from small_ring import SmallRing, small_assignments

from kubeshard.cache import Added, Deleted
from kubeshard.core.builtin import Lease, LeaseSpec, Namespace
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.selectors import LabelSelector
from kubeshard.sharder.assignments import RINGS_A_TURN, Assignments
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.tasks import DrivenResource
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.names import RING_LABEL
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.ring_machine import Places
from kubeshard.sharding.schedule import RETRY_LAST, ScanPriority, ScanResult, ScanScope
from kubeshard.sharding.waiting import REMEMBERED
from kubeshard_lab.virtual_time import VirtualClock, virtual_time


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
        self.observer.rings = self.small.rings
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

    async def _scan(self, sync: DrivenResource, scope: ScanScope) -> ScanResult:
        self.scans.append(scope)
        await asyncio.sleep(10.0)
        return ScanResult()


@virtual_time
async def test_a_shard_that_left_and_came_back_during_a_scan_means_another_scan() -> None:
    """Half of the scan saw a ring without the shard, and moved its objects."""
    world = World()
    world.hold("a")
    world.hold("b")
    source = asyncio.create_task(world.assignments.run())
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
    syncs = tuple(world.assignments._machines.values())
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

    world.small.rings.rewound.tell(Key("ns", "a"))
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


@virtual_time
async def test_a_ring_that_cannot_be_followed_costs_no_other_and_is_tried_again_until_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, follow, failed = World(), Assignments.follow, list[float]()

    def bug(self: Assignments, ring: Ring) -> None:
        if ring.name == "ring" and len(failed) < 3:
            failed.append(world.clock.monotonic())
            raise RuntimeError("a bug")
        follow(self, ring)

    monkeypatch.setattr(Assignments, "follow", bug)
    world.hold("a")
    world.small.add("other", RingResource(resource="secrets"))
    running = asyncio.create_task(world.assignments.run())
    await asyncio.sleep(1.0)
    assert set(world.assignments._machines) == {"other"}
    await asyncio.sleep(3 * RETRY_LAST)
    assert set(world.assignments._machines) == {"other", "ring"}
    assert [round(after - before) for before, after in pairwise(failed)] == [RETRY_LAST, RETRY_LAST]
    running.cancel()


@virtual_time
async def test_other_tasks_have_their_turn_between_the_beginnings_of_many_rings() -> None:
    world, begun = World(), list[int]()
    for number in range(100):
        world.small.add(f"ring-{number}", RingResource(resource="secrets"))
    running = asyncio.create_task(world.assignments.run())
    for _ in range(200):
        begun.append(len(world.assignments._machines))
        await asyncio.sleep(0)
    running.cancel()
    assert begun[-1] == 101
    assert max(after - before for before, after in pairwise(begun)) <= 1


@pytest.mark.parametrize("selected_before", [True, False])
@virtual_time
async def test_objects_are_looked_at_again_that_were_seen_in_a_namespace_before_it_was_known_to_be_another_one(
    selected_before: bool,
) -> None:
    """It was deleted and made anew with other labels, and the watch of namespaces is late."""
    world = World()
    world.hold("a")
    world.small.become(RingResource(resource="secrets"), selector=LabelSelector(match_labels={"team": "a"}))
    looked: list[str] = []

    async def look_into(machine: DrivenResource, places: Places) -> None:
        looked.extend(map(str, places))

    assignments: Any = world.assignments
    assignments._scanner.look_into = look_into
    assignments._unassigned.namespace_appeared = lambda name: None
    running = asyncio.create_task(world.assignments.run())
    await asyncio.sleep(60.0)
    world.scans.clear()
    former, new = (
        Namespace(metadata=ObjectMeta(name="n", uid=team, labels={"team": team}))
        for team in ("ab" if selected_before else "ba")
    )
    for delta in Added(former), Deleted(former), Added(new):
        assignments._namespace_changed(delta)
    await asyncio.sleep(5.0)
    assert world.scans == [ScanScope.ALL]
    assert looked == ([] if selected_before else ["n"])
    assert not assignments._gone_namespaces
    running.cancel()


@virtual_time
async def test_of_deleted_namespaces_so_many_are_remembered() -> None:
    assignments: Any = World().assignments
    for number in range(2 * REMEMBERED):
        assignments._namespace_changed(Deleted(Namespace(metadata=ObjectMeta(name=f"n-{number}"))))
    assert len(assignments._gone_namespaces) == REMEMBERED
