"""The syncs in which a ring's resources are scanned: which operations wait for each other, and which do not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from small_ring import SmallRing, small_assignments

from kubeshard.core.errors import Unavailable
from kubeshard.core.kinds import GroupResource
from kubeshard.sharder.assignments import AT_ONCE
from kubeshard.sharder.tasks import DrivenResource, StartLimit
from kubeshard.sharding.api import RingGroupResource, RingResource
from kubeshard.sharding.ring_machine import Do, RingMachine
from kubeshard.sharding.schedule import ScanPriority, ScanResult, ScanScope
from kubeshard_lab.virtual_time import VirtualClock, virtual_time

MAIN = RingResource(resource="mains", controlled_resources=(RingGroupResource(resource="children"),))
CHILDLESS = RingResource(resource="mains")
CHILD_ALONE = RingResource(resource="children")
OTHER = RingResource(resource="others")


class Scans:
    """A ring in whose syncs scans take as long, and end, as the test says."""

    def __init__(self, *resources: RingResource) -> None:
        self.clock = VirtualClock()
        self.started: list[tuple[float, str, ScanScope]] = []
        self.takes: dict[str, float] = {}
        self.outcomes: dict[str, ScanResult | Exception] = {}
        self.relists = 0
        self.small = SmallRing("a", "b", resources=resources, clock=self.clock)
        self.ending = 0.0
        """Seconds that a watch takes to end."""
        observer: Any = SimpleNamespace(
            relist=self._relist,
            states=SimpleNamespace(fresh=self.small.fresh),
        )
        self.assignments = small_assignments(self.small, observer, self._scan, self._watch)
        self.running = asyncio.create_task(self.assignments.run())
        self._began = self.clock.monotonic()

    @property
    def sync(self) -> RingMachine:
        return self.assignments._machines["ring"]

    def become(self, *resources: RingResource) -> None:
        self.small.become(*resources)

    async def _scan(self, sync: DrivenResource, scope: ScanScope) -> ScanResult:
        resource = sync.entry.resource.resource
        self.started.append((round(self.clock.monotonic() - self._began, 2), resource, scope))
        view, tells_drains = sync.ring.view, scope is not ScanScope.MISPLACED
        assert view is not None
        if tells_drains:
            sync.pending_drains.begin()
        await asyncio.sleep(self.takes.get(resource, 0.0))
        outcome = self.outcomes.get(resource, ScanResult())
        if isinstance(outcome, Exception):
            raise outcome
        if tells_drains:
            sync.pending_drains.end()
        return outcome

    async def _watch(self, sync: DrivenResource) -> None:
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

    def of(self, resource: str) -> list[tuple[float, ScanScope]]:
        return [(at, scope) for at, name, scope in self.started if name == resource]


@virtual_time
async def test_a_controlled_resource_comes_after_its_owner_and_nothing_else_waits() -> None:
    scans = Scans(MAIN, OTHER)
    scans.takes["mains"] = 50.0
    await asyncio.sleep(60.0)
    assert scans.of("mains")[0] == scans.of("others")[0] == (0.0, ScanScope.ALL)
    assert scans.of("children") == [(50.0, ScanScope.ALL)]


@virtual_time
async def test_a_scan_begins_though_what_it_waits_for_ends_while_nothing_else_can_begin() -> None:
    """It began with the next news of its ring, perhaps after the sync period."""
    small = SmallRing("a", "b", resources=(MAIN,), clock=VirtualClock())
    mains, children = small.sync("mains"), small.sync("children")
    assert mains.due()
    work = mains.begin(ScanPriority.NORMAL)
    assert not children.due()
    mains.end(ScanPriority.NORMAL, work, ScanResult())  # here other work of `children` waits for room
    async with asyncio.timeout(1.0):
        await children.attended()
    assert children.due() == [(Do.SCAN, ScanPriority.NORMAL)]


@virtual_time
async def test_before_waiting_children_are_scanned_again_the_drains_of_their_owners_are_read() -> None:
    scans = Scans(MAIN)
    scans.outcomes["children"] = ScanResult(waiting=1)
    await asyncio.sleep(1.5)
    assert [entry[1:] for entry in scans.started] == [
        ("mains", ScanScope.ALL),
        ("children", ScanScope.ALL),
        ("mains", ScanScope.CONTROLLED),
        ("children", ScanScope.CONTROLLED),
    ]


@virtual_time
async def test_owners_that_cannot_be_read_are_waited_for_once_not_for_ever() -> None:
    scans = Scans(MAIN)
    scans.takes["mains"], scans.outcomes["mains"] = 60.0, ScanResult(failed=True)
    scans.outcomes["children"] = ScanResult(waiting=1)
    await asyncio.sleep(64.0)
    assert [at for at, _ in scans.of("children")] == [60.0, 61.0, 63.0]


@virtual_time
async def test_a_lost_shard_is_urgent_in_every_sync_also_beside_scans_under_way() -> None:
    scans = Scans(MAIN)
    scans.takes["mains"] = 50.0
    await asyncio.sleep(10.0)
    scans.small.shards = ("a",)
    scans.sync.members_changed()
    await asyncio.sleep(0.1)
    assert (10.0, ScanScope.MISPLACED) in scans.of("mains")
    assert (10.0, ScanScope.MISPLACED) in scans.of("children")


@virtual_time
async def test_a_scan_that_crashes_ends_nothing_but_itself() -> None:
    scans = Scans(MAIN, OTHER)
    scans.outcomes["mains"] = RuntimeError("a bug")
    await asyncio.sleep(20.0)
    assert [at for at, _ in scans.of("mains")] == [0.0, 5.0, 15.0]
    assert scans.of("others")
    assert scans.of("children")


@virtual_time
async def test_a_resource_that_left_the_ring_is_scanned_no_more_and_holds_nobody_up() -> None:
    scans = Scans(MAIN)
    scans.takes["mains"] = 1000.0
    await asyncio.sleep(10.0)
    scans.become(CHILD_ALONE)
    await asyncio.sleep(1.0)
    assert scans.of("children") == [(10.0, ScanScope.ALL)]
    scans.become()
    await asyncio.sleep(1000.0)
    assert len(scans.started) == 2
    assert not scans.running.done()


@pytest.mark.regression
@virtual_time
async def test_nothing_begins_in_a_sync_any_more_while_all_syncs_end() -> None:
    scans = Scans(OTHER)
    await asyncio.sleep(1.0)
    of, ring = scans.sync, scans.small.ring
    sync = of.resources[GroupResource("", "others")]
    scans.ending = 5.0
    scans.running.cancel()
    await asyncio.sleep(1.0)
    begun: list[str] = []

    async def work() -> None:
        begun.append("work")

    sync.start(work, "scan that would not be cancelled")
    scans.assignments.follow(ring)
    await asyncio.sleep(4.5)
    assert (begun, of.resources, scans.running.done()) == ([], {}, True)


@pytest.mark.regression
@virtual_time
async def test_what_was_to_be_found_in_a_namespace_is_scanned_if_a_crash_beside_it_ended_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It counted as looked into, and objects in it waited for the next scan of everything."""
    scans = Scans(OTHER)
    scans.assignments._scanner.look_into = lambda *_: asyncio.sleep(1e9)  # type: ignore[method-assign]
    await asyncio.sleep(1.0)
    sync = scans.sync.resources[GroupResource("", "others")]
    sync.appeared("new")
    await asyncio.sleep(1.0)
    with monkeypatch.context() as patch:
        patch.setattr(sync, "due", lambda: 1 / 0)
        sync.attend()
        await asyncio.sleep(0.5)
    await asyncio.sleep(2.0)
    assert [scope for _, scope in scans.of("others")] == [ScanScope.ALL, ScanScope.MISPLACED]


@virtual_time
async def test_leases_that_may_be_old_are_read_once_for_all_and_nothing_is_decided_before() -> None:
    scans = Scans(CHILDLESS, OTHER)
    scans.small.is_fresh = False
    await asyncio.sleep(2.0)
    assert (scans.relists, scans.started) == (1, [])
    await asyncio.sleep(10.0)
    assert scans.relists == 2
    assert len(scans.started) == 2


@virtual_time
async def test_those_that_hang_give_their_places_to_those_that_come() -> None:
    slow = [f"slow{number}" for number in range(5 * AT_ONCE)]
    scans = Scans(*(RingResource(resource=resource) for resource in slow), CHILDLESS)
    scans.takes = dict.fromkeys(slow, 1000.0)
    await asyncio.sleep(0.4)
    assert len(scans.started) == AT_ONCE
    await asyncio.sleep(2.2)
    assert len(scans.of("mains")) == 1


@virtual_time
async def test_a_place_is_given_back_once() -> None:
    places, inside = StartLimit(1, 0.5), 0

    async def visit(seconds: float) -> None:
        nonlocal inside
        async with places.slot():
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
    async with places.slot():
        pass
