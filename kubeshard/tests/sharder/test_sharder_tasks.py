"""Bounded concurrency, second attempts, and the scope of the watch on Leases (A19, A20, B1 in docs/defects.md)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from small_api import SmallApi, status
from small_ring import SmallRing, job_for, small_assignments

from kubeshard.core.errors import Timeout
from kubeshard.core.kinds import GroupResource, Kind, TypeMeta
from kubeshard.core.objects import metadata_only
from kubeshard.core.selectors import Selector
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharder.kinds_and_rights import Permissions, ResourceKinds
from kubeshard.sharder.lease_observer import shard_leases
from kubeshard.sharder.moves import Mover
from kubeshard.sharder.tasks import BoundedTaskGroup, DrivenResource, carried_out
from kubeshard.sharding import waiting
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.object_job import MoveResult
from kubeshard.sharding.planner import plan
from kubeshard.sharding.proofs import DeathProof
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.ring_machine import ResourceMachine, RingMachine
from kubeshard.sharding.ring_resources import RingEntry
from kubeshard.sharding.schedule import ScanResult, ScanScope
from kubeshard_lab.virtual_time import VirtualClock, virtual_time
from kubeshard_lab.virtual_world import SeededRng

SHARD = "shard.alpha.sharding.timebertt.dev/ring"
SECRETS = "/api/v1/namespaces/default/secrets"
SECRET = Kind("", "v1", "Secret", "secrets")
ENTRY = RingEntry(GroupResource("", "secrets"))


@virtual_time
async def test_no_more_than_the_size_of_the_group_run_at_a_time() -> None:
    running, most = 0, 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1.0)
        running -= 1

    async with BoundedTaskGroup(3) as tasks:
        for _ in range(10):
            await tasks.start(work())
    assert (running, most) == (0, 3)


@virtual_time
async def test_a_cancelled_pass_ends_at_once_though_its_producer_waits_for_room() -> None:
    """A20 in docs/defects.md."""

    async def produce() -> None:
        async with BoundedTaskGroup(2) as tasks:
            for _ in range(100):
                await tasks.start(asyncio.sleep(3600.0))

    task = asyncio.create_task(produce())
    await asyncio.sleep(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.get_running_loop().time() == 1.0


@virtual_time
async def test_what_the_producer_raises_cancels_the_jobs_and_comes_out_as_it_is() -> None:
    """This way `except ApiError` around a group works as expected."""
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(3600.0)
        finally:
            ended.append("job")

    async def produce() -> None:
        async with BoundedTaskGroup(2) as tasks:
            await tasks.start(work())
            await asyncio.sleep(1.0)
            raise Timeout("no answer in time")

    with pytest.raises(Timeout):
        await produce()
    assert ended == ["job"]


@virtual_time
async def test_a_cancellation_that_arrives_while_jobs_end_because_the_producer_failed_is_not_lost() -> None:
    """asyncio's task groups lose it before Python 3.13: a watch that broke as its process stopped went on forever."""
    ending = asyncio.Event()

    async def job() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ending.set()
            await asyncio.sleep(1)

    async def keep_watching() -> None:
        while True:
            with suppress(ValueError):
                async with BoundedTaskGroup(3) as group:
                    await group.start(job())
                    await asyncio.sleep(1)
                    raise ValueError("the watch broke")

    watching = asyncio.create_task(keep_watching())
    await ending.wait()
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(10):
            await watching


@virtual_time
async def test_a_cancellation_that_was_dealt_with_before_the_block_is_not_taken_for_a_new_one() -> None:
    async def once_cancelled() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        async with BoundedTaskGroup(3):
            raise ValueError("the producer")

    working = asyncio.create_task(once_cancelled())
    await asyncio.sleep(1)
    working.cancel()
    with pytest.raises(ValueError, match="the producer"):
        await working


@virtual_time
async def test_what_a_job_raises_ends_the_producer() -> None:
    async def work() -> None:
        raise ValueError("wrong")

    async def produce() -> None:
        async with BoundedTaskGroup(2) as tasks:
            await tasks.start(work())
            await asyncio.sleep(3600.0)

    with pytest.raises(ExceptionGroup) as raised:
        await produce()
    assert [str(error) for error in raised.value.exceptions] == ["wrong"]


class Refusals:
    """A ring with one Secret to be assigned, and everything that retries refused moves."""

    def __init__(self) -> None:
        self.api, self.clock = SmallApi(), VirtualClock()
        self.small = SmallRing("a", clock=self.clock)
        self._client = self.api.client(self.clock)
        observer: Any = SimpleNamespace(states=SimpleNamespace(fresh=lambda _: True))
        proofs: Any = SimpleNamespace(proven=_never_asked)
        self._mover = Mover(
            self._client, ResourceKinds(self._client), proofs, clock=self.clock, rng=SeededRng(1)
        )
        assignments = small_assignments(self.small, observer, _scanned)
        assignments._mover = self._mover
        assignments._permissions = Permissions(self._client, self.clock)
        self.api.put(SECRETS, "foo")
        sync = self.small.sync("secrets")
        self.scans: list[tuple[ScanScope, float]] = []
        sync.request = self._ask  # type: ignore[method-assign]
        self.running = asyncio.create_task(assignments._attend(sync))

    async def assign(self, name: str = "foo", of: RingMachine | None = None) -> MoveResult:
        await asyncio.sleep(0)
        meta = (await self._client.get(metadata_only(SECRET), name, "default")).metadata
        of = of or self.small.ring_sync
        view = of.ring.view
        assert view is not None
        decision = plan(view, ENTRY, TypeMeta("v1", "Secret"), meta)
        machine = of.resources.get(ENTRY.resource) or ResourceMachine(of, ENTRY, 300.0)
        return await carried_out(
            machine.carry_out(job_for(of.ring, ENTRY, SECRET, meta, decision)), self._mover.do
        )

    def _ask(self, scope: ScanScope, at: float) -> None:
        self.scans.append((scope, at))

    def labels(self) -> dict[str, str]:
        return self.api.labels(f"{SECRETS}/foo")

    def refuse(self, answer: HttpResponse, times: int = 1_000_000) -> list[float]:
        """Responds to patches like this; returns once one has arrived."""
        came: list[float] = []

        def refuse(request: HttpRequest) -> HttpResponse | None:
            if request.method != "PATCH" or len(came) >= times:
                return None
            came.append(self.clock.monotonic())
            return answer

        self.api.faults.append(refuse)
        return came


FORBIDDEN = status(403, "Forbidden", "policy")


@virtual_time
async def test_a_refused_object_is_tried_again_alone_until_it_works() -> None:
    w = Refusals()
    w.refuse(FORBIDDEN, times=3)
    assert await w.assign() is MoveResult.FAILED
    await asyncio.sleep(30.0)
    assert w.labels() == {SHARD: "a"}
    assert len([request for request in w.api.requests if request[0] == "PATCH"]) == 4
    w.running.cancel()


@virtual_time
async def test_when_one_succeeds_all_are_tried_again_at_once_and_those_that_were_not_remembered_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "REMEMBERED", 5)
    w = Refusals()
    names = [f"foo{number}" for number in range(8)]
    w.refuse(FORBIDDEN)
    for name in names:
        w.api.put(SECRETS, name)
        assert await w.assign(name) is MoveResult.FAILED
    overflowed = w.clock.monotonic()
    await asyncio.sleep(100.0)
    assert w.scans == [(ScanScope.MISPLACED, overflowed + waiting.MORE_AFTER)]
    w.api.faults.clear()
    await asyncio.sleep(10.1)
    assert [name for name in names if w.api.labels(f"{SECRETS}/{name}")] == names[:5]
    (scope, at) = w.scans[-1]
    assert (len(w.scans), scope) == (2, ScanScope.MISPLACED)
    assert at <= w.clock.monotonic()
    w.running.cancel()


@virtual_time
async def test_a_sync_without_refusals_has_no_workers_for_them() -> None:
    before = asyncio.all_tasks()
    w = Refusals()
    assert await w.assign() is MoveResult.MOVED
    await asyncio.sleep(0)
    assert asyncio.all_tasks() - before == {w.running}
    w.running.cancel()


@virtual_time
async def test_an_object_that_is_refused_again_and_again_is_tried_again_every_ten_seconds() -> None:
    """An earlier rule said a minute, which was how long objects of a dead shard waited after a brownout."""
    w = Refusals()
    tries = w.refuse(FORBIDDEN)
    await w.assign()
    await asyncio.sleep(900.0)
    pauses = [after - before for before, after in pairwise(tries)]
    assert min(pauses[-5:]) > 8.0
    assert max(pauses) <= 10.1
    w.running.cancel()


@pytest.mark.regression
@virtual_time
async def test_a_throttled_object_is_repaired_when_the_server_asked_to_come_back() -> None:
    w = Refusals()
    headers = {"content-type": "application/json", "retry-after": "45"}
    w.refuse(HttpResponse(429, headers, status(429, "TooManyRequests").body), times=1)
    assert await w.assign() is MoveResult.FAILED
    await asyncio.sleep(44.0)
    assert w.labels() == {}
    await asyncio.sleep(2.0)
    assert w.labels() == {SHARD: "a"}
    w.running.cancel()


@pytest.mark.regression
@virtual_time
async def test_an_object_is_not_repaired_after_its_resource_left_the_ring() -> None:
    """Its label would stay forever, because the resource is no longer scanned."""
    w = Refusals()
    w.refuse(FORBIDDEN)
    assert await w.assign() is MoveResult.FAILED
    w.small.become(RingResource(resource="configmaps"))
    w.api.faults.clear()
    await asyncio.sleep(600.0)
    assert w.labels() == {}
    w.running.cancel()


async def _scanned(sync: DrivenResource, scope: ScanScope) -> ScanResult:
    return ScanResult()


async def _never_asked(ring: Ring, shard: str, since: float) -> DeathProof | None:
    raise AssertionError


def test_only_the_leases_of_shards_are_watched() -> None:
    """Not the one per node: B1 in docs/defects.md."""
    label = "alpha.sharding.timebertt.dev/controllerring"
    assert shard_leases().labels == Selector.exists(label)
    assert shard_leases("mine").labels == Selector.equals(label, "mine")
