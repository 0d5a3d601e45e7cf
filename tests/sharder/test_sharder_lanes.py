"""The lanes in which a ring's resources are scanned: which operations wait for each other, and which do not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from small_ring import SmallRing

from kubeshard.core.errors import Unavailable
from kubeshard.sharder.lanes import AT_ONCE, Lanes, Places
from kubeshard.sharder.ring import Lane
from kubeshard.sharder.schedule import Found, Reach
from kubeshard.sharding import RingGroupResource, RingResource
from kubeshard.testing.virtual_time import VirtualClock, virtual_time
from kubeshard.testing.virtual_world import SeededRng

MAIN = RingResource(resource="mains", controlled_resources=(RingGroupResource(resource="children"),))
CHILDLESS = RingResource(resource="mains")
CHILD_ALONE = RingResource(resource="children")
OTHER = RingResource(resource="others")


class Looks:
    """A ring in whose lanes scans take as long, and end, as the test says."""

    def __init__(self, *resources: RingResource) -> None:
        self.clock = VirtualClock()
        self.started: list[tuple[float, str, Reach]] = []
        self.takes: dict[str, float] = {}
        self.outcomes: dict[str, Found | Exception] = {}
        self.relists = 0
        self.small = SmallRing("a", "b", resources=resources, clock=self.clock)
        resync: Any = SimpleNamespace(look=self._look)
        self.ending = 0.0
        """Seconds that a watch takes to end."""
        unassigned: Any = SimpleNamespace(keep_watching=self._watch)
        observer: Any = SimpleNamespace(relist=self._relist, fresh=self.small.fresh)
        mover: Any = None
        self.lanes = Lanes(
            self.small.rings,
            observer,
            resync,
            unassigned,
            mover,
            sync_period=300.0,
            clock=self.clock,
            rng=SeededRng(1),
        )
        self.running = asyncio.create_task(self.lanes.run())
        self._began = self.clock.monotonic()

    def become(self, *resources: RingResource) -> None:
        self.small.become(*resources)
        self.lanes.follow(self.small.ring)

    async def _look(self, lane: Lane, reach: Reach) -> Found:
        resource = lane.entry.resource.resource
        self.started.append((round(self.clock.monotonic() - self._began, 2), resource, reach))
        view, tells_drains = lane.ring.view, reach is not Reach.MISPLACED
        assert view is not None
        if tells_drains:
            lane.pending.begin(complete=reach is Reach.ALL)
        await asyncio.sleep(self.takes.get(resource, 0.0))
        outcome = self.outcomes.get(resource, Found())
        if isinstance(outcome, Exception):
            raise outcome
        if tells_drains:
            lane.pending.end(view.hashring)
        return outcome

    async def _watch(self, lane: Lane) -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            await asyncio.sleep(self.ending)

    async def _relist(self) -> None:
        self.relists += 1
        await asyncio.sleep(1.0)
        if self.relists == 1:
            raise Unavailable("not now")
        self.small.is_fresh = True

    def of(self, resource: str) -> list[tuple[float, Reach]]:
        return [(at, reach) for at, name, reach in self.started if name == resource]


@virtual_time
async def test_a_controlled_resource_comes_after_its_owner_and_nothing_else_waits() -> None:
    looks = Looks(MAIN, OTHER)
    looks.takes["mains"] = 50.0
    await asyncio.sleep(60.0)
    assert looks.of("mains")[0] == looks.of("others")[0] == (0.0, Reach.ALL)
    assert looks.of("children") == [(50.0, Reach.ALL)]


@virtual_time
async def test_before_waiting_children_are_looked_at_again_the_drains_of_their_owners_are_read() -> None:
    looks = Looks(MAIN)
    looks.outcomes["children"] = Found(waiting=1)
    await asyncio.sleep(1.5)
    assert [entry[1:] for entry in looks.started] == [
        ("mains", Reach.ALL),
        ("children", Reach.ALL),
        ("mains", Reach.CONTROLLED),
        ("children", Reach.CONTROLLED),
    ]


@virtual_time
async def test_owners_that_were_read_with_other_shards_are_all_read_again_before_children_that_wait() -> None:
    looks = Looks(MAIN)
    looks.outcomes["children"] = Found(waiting=1)
    await asyncio.sleep(0.5)
    looks.small.shards = ("a",)
    looks.small.ring.members_changed()
    await asyncio.sleep(5.0)
    thorough = [reach for _, reach in looks.of("mains") if reach is not Reach.MISPLACED]
    assert thorough[:3] == [Reach.ALL, Reach.ALL, Reach.CONTROLLED]


@virtual_time
async def test_owners_that_cannot_be_read_are_waited_for_once_not_for_ever() -> None:
    looks = Looks(MAIN)
    looks.takes["mains"], looks.outcomes["mains"] = 60.0, Found(failed=True)
    looks.outcomes["children"] = Found(waiting=1)
    await asyncio.sleep(64.0)
    assert [at for at, _ in looks.of("children")] == [60.0, 61.0, 63.0]


@virtual_time
async def test_a_lost_shard_is_urgent_in_every_lane_also_beside_looks_under_way() -> None:
    looks = Looks(MAIN)
    looks.takes["mains"] = 50.0
    await asyncio.sleep(10.0)
    looks.small.shards = ("a",)
    looks.small.ring.members_changed()
    await asyncio.sleep(0.1)
    assert (10.0, Reach.MISPLACED) in looks.of("mains")
    assert (10.0, Reach.MISPLACED) in looks.of("children")


@virtual_time
async def test_a_look_that_crashes_ends_nothing_but_itself() -> None:
    looks = Looks(MAIN, OTHER)
    looks.outcomes["mains"] = RuntimeError("a bug")
    await asyncio.sleep(20.0)
    assert [at for at, _ in looks.of("mains")] == [0.0, 5.0, 15.0]
    assert looks.of("others")
    assert looks.of("children")


@virtual_time
async def test_a_resource_that_left_the_ring_is_looked_at_no_more_and_holds_nobody_up() -> None:
    looks = Looks(MAIN)
    looks.takes["mains"] = 1000.0
    await asyncio.sleep(10.0)
    looks.become(CHILD_ALONE)
    await asyncio.sleep(1.0)
    assert looks.of("children") == [(10.0, Reach.ALL)]
    looks.become()
    await asyncio.sleep(1000.0)
    assert len(looks.started) == 2
    assert not looks.running.done()


@pytest.mark.regression
@virtual_time
async def test_nothing_begins_in_a_lane_any_more_while_all_lanes_end() -> None:
    looks = Looks(OTHER)
    await asyncio.sleep(1.0)
    lane, ring = looks.small.lane("others"), looks.small.ring
    looks.ending = 5.0
    looks.running.cancel()
    await asyncio.sleep(1.0)
    begun: list[str] = []

    async def work() -> None:
        begun.append("work")

    lane.start(work, "look that would not be cancelled")
    looks.lanes.follow(ring)
    await asyncio.sleep(4.5)
    assert (begun, ring.lanes, looks.running.done()) == ([], {}, True)


@virtual_time
async def test_leases_that_may_be_old_are_read_once_for_all_and_nothing_is_decided_before() -> None:
    looks = Looks(CHILDLESS, OTHER)
    looks.small.is_fresh = False
    await asyncio.sleep(2.0)
    assert (looks.relists, looks.started) == (1, [])
    await asyncio.sleep(10.0)
    assert looks.relists == 2
    assert len(looks.started) == 2


@virtual_time
async def test_those_that_hang_give_their_places_to_those_that_come() -> None:
    slow = [f"slow{number}" for number in range(5 * AT_ONCE)]
    looks = Looks(*(RingResource(resource=resource) for resource in slow), CHILDLESS)
    looks.takes = dict.fromkeys(slow, 1000.0)
    await asyncio.sleep(0.4)
    assert len(looks.started) == AT_ONCE
    await asyncio.sleep(2.2)
    assert len(looks.of("mains")) == 1


@virtual_time
async def test_a_place_is_given_back_once() -> None:
    places, inside = Places(1, 0.5), 0

    async def visit(seconds: float) -> None:
        nonlocal inside
        async with places.taken():
            inside += 1
            await asyncio.sleep(seconds)
            inside -= 1

    async with asyncio.TaskGroup() as group:
        for seconds in (0.1, 2.0, 0.1, 0.1):
            group.create_task(visit(seconds))
        await asyncio.sleep(0.2)
        assert inside == 1
        await asyncio.sleep(0.45)
        assert inside == 2
    async with places.taken():
        pass
