"""The lanes in which a ring's resources are looked at: what waits for what, and what does not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from kubeshard.core.errors import Unavailable
from kubeshard.core.kinds import GroupResource
from kubeshard.sharder.lanes import AT_ONCE, Lanes
from kubeshard.sharder.places import Places
from kubeshard.sharder.schedule import Outcome, Reach
from kubeshard.sharding import RingEntry
from kubeshard.testing.virtual_time import VirtualClock, virtual_time

MAIN = RingEntry(GroupResource("", "mains"))
CHILD = RingEntry(GroupResource("", "children"), frozenset({MAIN.resource}))
OTHER = RingEntry(GroupResource("", "others"))


class Looks:
    """Lanes whose looks take as long, and end, as the test says."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.started: list[tuple[float, str, Reach]] = []
        self.takes: dict[str, float] = {}
        self.outcomes: dict[str, Outcome | Exception] = {}
        self.available: tuple[str, ...] = ("a", "b")
        self.relists = 0
        self.fresh = True
        resync: Any = SimpleNamespace(look=self._look, keep=lambda *_: None)
        views: Any = SimpleNamespace(available=lambda _: self.available, fresh=lambda: self.fresh)
        observer: Any = SimpleNamespace(relist=self._relist)
        self.lanes = Lanes(resync, views, observer, sync_period=300.0, clock=self.clock)
        self.running = asyncio.create_task(self.lanes.run())
        self._began = self.clock.monotonic()

    async def _look(self, ring: str, entry: RingEntry, reach: Reach) -> Outcome:
        resource = entry.resource.resource
        self.started.append((round(self.clock.monotonic() - self._began, 2), resource, reach))
        await asyncio.sleep(self.takes.get(resource, 0.0))
        outcome = self.outcomes.get(resource, Outcome())
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _relist(self) -> None:
        self.relists += 1
        await asyncio.sleep(1.0)
        if self.relists == 1:
            raise Unavailable("not now")
        self.fresh = True

    def of(self, resource: str) -> list[tuple[float, Reach]]:
        return [(at, reach) for at, name, reach in self.started if name == resource]


@virtual_time
async def test_a_controlled_resource_comes_after_its_owner_and_nothing_else_waits() -> None:
    looks = Looks()
    looks.takes["mains"] = 50.0
    looks.lanes.follow("ring", [MAIN, CHILD, OTHER])
    await asyncio.sleep(60.0)
    assert looks.of("mains")[0] == looks.of("others")[0] == (0.0, Reach.ALL)
    assert looks.of("children") == [(50.0, Reach.ALL)]


@virtual_time
async def test_before_waiting_children_are_looked_at_again_the_drains_of_their_owners_are_read() -> None:
    looks = Looks()
    looks.outcomes["children"] = Outcome(waiting=1)
    looks.lanes.follow("ring", [MAIN, CHILD])
    await asyncio.sleep(1.5)
    assert [entry[1:] for entry in looks.started] == [
        ("mains", Reach.ALL),
        ("children", Reach.ALL),
        ("mains", Reach.CONTROLLED),
        ("children", Reach.CONTROLLED),
    ]


@virtual_time
async def test_owners_that_cannot_be_read_are_waited_for_once_not_for_ever() -> None:
    looks = Looks()
    looks.takes["mains"], looks.outcomes["mains"] = 60.0, Outcome(failed=True)
    looks.outcomes["children"] = Outcome(waiting=1)
    looks.lanes.follow("ring", [MAIN, CHILD])
    await asyncio.sleep(64.0)
    assert [at for at, _ in looks.of("children")] == [60.0, 61.0, 63.0]


@virtual_time
async def test_a_lost_shard_is_urgent_in_every_lane_also_beside_looks_under_way() -> None:
    looks = Looks()
    looks.takes["mains"] = 50.0
    looks.lanes.follow("ring", [MAIN, CHILD])
    await asyncio.sleep(10.0)
    looks.available = ("a",)
    looks.lanes.members_changed("ring")
    await asyncio.sleep(0.1)
    assert (10.0, Reach.MISPLACED) in looks.of("mains")
    assert (10.0, Reach.MISPLACED) in looks.of("children")


@virtual_time
async def test_a_look_that_crashes_ends_nothing_but_itself() -> None:
    looks = Looks()
    looks.outcomes["mains"] = RuntimeError("a bug")
    looks.lanes.follow("ring", [MAIN, CHILD, OTHER])
    await asyncio.sleep(20.0)
    assert [at for at, _ in looks.of("mains")] == [0.0, 5.0, 15.0]
    assert looks.of("others")
    assert looks.of("children")


@virtual_time
async def test_a_resource_that_left_the_ring_is_looked_at_no_more_and_holds_nobody_up() -> None:
    looks = Looks()
    looks.takes["mains"] = 1000.0
    looks.lanes.follow("ring", [MAIN, CHILD])
    await asyncio.sleep(10.0)
    looks.lanes.follow("ring", [CHILD])
    await asyncio.sleep(1.0)
    assert looks.of("children") == [(10.0, Reach.ALL)]
    looks.lanes.follow("ring", [])
    await asyncio.sleep(1000.0)
    assert len(looks.started) == 2
    assert not looks.running.done()


@virtual_time
async def test_leases_that_may_be_old_are_read_once_for_all_and_nothing_is_decided_before() -> None:
    looks = Looks()
    looks.fresh = False
    looks.lanes.follow("ring", [MAIN])
    looks.lanes.follow("ring2", [OTHER])
    await asyncio.sleep(2.0)
    assert (looks.relists, looks.started) == (1, [])
    await asyncio.sleep(10.0)
    assert looks.relists == 2
    assert len(looks.started) == 2


@virtual_time
async def test_those_that_hang_give_their_places_to_those_that_come() -> None:
    looks = Looks()
    for number in range(5 * AT_ONCE):
        looks.takes[f"slow{number}"] = 1000.0
        looks.lanes.follow(f"bad{number}", [RingEntry(GroupResource("", f"slow{number}"))])
    looks.lanes.follow("ring", [MAIN])
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
