"""The election's driver on virtual time, against a Lease store with scripted trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import pairwise

import msgspec
import pytest

from kubeshard.core import (
    AlreadyExists,
    Conflict,
    Lease,
    LeaseSpec,
    NotFound,
    NotOurs,
    Unavailable,
)
from kubeshard.manager.leader_election import LeaderElection, LeaderElector, Leadership
from kubeshard.testing.virtual_time import VirtualClock, settle, virtual_time


class LeaseStore:
    """One Lease, as an API server keeps it. `trouble(verb)` runs before each request and may raise or
    hang.
    """

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.version = 0
        self.requests: list[tuple[float, str, str]] = []
        self.trouble: Callable[[str], Awaitable[None]] | None = None
        self.loses_answers = False

    async def get(self, target: type[Lease], name: str, namespace: str, /) -> Lease:
        await self._request("get", "")
        if self.lease is None:
            raise NotFound("no lease", code=404)
        return self.lease

    async def create(self, lease: Lease, /) -> Lease:
        await self._request("create", lease.spec.holder_identity or "")
        if self.lease is not None:
            raise AlreadyExists("exists", code=409)
        return await self._store(lease)

    async def replace(self, lease: Lease, /) -> Lease:
        await self._request("replace", lease.spec.holder_identity or "")
        if self.lease is None:
            raise NotFound("no lease", code=404)
        if lease.metadata.resource_version != self.lease.metadata.resource_version:
            raise Conflict("changed", code=409)
        return await self._store(lease)

    def seize(self, holder: str) -> None:
        """Somebody writes the Lease behind everybody's back."""
        assert self.lease is not None
        self.version += 1
        self.lease = msgspec.structs.replace(
            self.lease,
            metadata=msgspec.structs.replace(self.lease.metadata, resource_version=str(self.version)),
            spec=msgspec.structs.replace(self.lease.spec, holder_identity=holder),
        )

    @property
    def holder(self) -> str | None:
        return self.lease.spec.holder_identity if self.lease else None

    def writes(self) -> list[float]:
        return [at for at, verb, _ in self.requests if verb != "get"]

    async def _request(self, verb: str, holder: str) -> None:
        self.requests.append((asyncio.get_running_loop().time(), verb, holder))
        if self.trouble:
            await self.trouble(verb)

    async def _store(self, lease: Lease) -> Lease:
        self.version += 1
        metadata = msgspec.structs.replace(lease.metadata, resource_version=str(self.version))
        self.lease = msgspec.structs.replace(lease, metadata=metadata)
        if self.loses_answers:
            await forever("answer")
        return self.lease


async def forever(verb: str) -> None:
    await asyncio.Event().wait()


async def unavailable(verb: str) -> None:
    raise Unavailable("no API server")


class Metrics:
    def __init__(self) -> None:
        self.leads: list[bool] = []
        self.slow = 0

    def leading(self, name: str, leads: bool) -> None:
        self.leads.append(leads)

    def slow_path(self, name: str) -> None:
        self.slow += 1


class Watchdog:
    def __init__(self) -> None:
        self.deadline: float | None = None

    def arm(self, deadline: float) -> None:
        self.deadline = deadline

    def disarm(self) -> None:
        self.deadline = None

    def bite(self) -> None: ...


class HalfJitter:
    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2

    def token(self) -> str:
        return "00000000-0000-4000-8000-000000000000"


class Candidate:
    """A process that works while it leads: the intervals in which it may act are recorded."""

    def __init__(self, store: LeaseStore, identity: str, **options: object) -> None:
        self.clock = VirtualClock()
        self.elector = LeaderElector(
            store,
            LeaderElection(name="lock", namespace="ns", identity=identity),
            clock=self.clock,
            rng=HalfJitter(),
            **options,  # type: ignore[arg-type]
        )
        self.stop = asyncio.Event()
        self.led: list[tuple[float, float]] = []
        self.reason = ""
        self.leadership: Leadership | None = None
        self.health: str | None = None

    def may_begin(self) -> bool:
        return self.leadership is not None and self.leadership.gate.is_open

    async def run(self, *, clean: bool = True) -> None:
        async with self.elector.held(lambda: self.health) as leadership:
            self.leadership = leadership
            since = self.clock.boottime()
            lost, stop = asyncio.create_task(leadership.lost()), asyncio.create_task(self.stop.wait())
            await asyncio.wait([lost, stop], return_when=asyncio.FIRST_COMPLETED)
            self.led.append((since, self.clock.boottime()))
            if lost.done():
                self.reason = lost.result()
            elif clean:
                leadership.stopped_cleanly()
            lost.cancel()
            stop.cancel()


@virtual_time
async def test_the_first_candidate_leads_at_once_and_renews_every_retry_period() -> None:
    store = LeaseStore()
    candidate = Candidate(store, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(60)
    assert store.holder == "a"
    assert store.writes() == [2.0 * n for n in range(30)]
    candidate.stop.set()
    await task
    assert candidate.led == [(0, 60)]


@virtual_time
async def test_a_second_candidate_takes_over_at_once_after_a_clean_stop() -> None:
    store = LeaseStore()
    first, second = Candidate(store, "a"), Candidate(store, "b")
    async with asyncio.TaskGroup() as group:
        group.create_task(first.run())
        await settle()
        group.create_task(second.run())
        await asyncio.sleep(30)
        assert second.led == []
        first.stop.set()
        await asyncio.sleep(5)
        assert store.holder == "b"
        second.stop.set()
    assert first.led[0][1] <= second.led[0][0] <= first.led[0][1] + 4.4


@virtual_time
async def test_work_that_did_not_stop_cleanly_keeps_the_lease_from_others_until_it_expires() -> None:
    store = LeaseStore()
    first, second = Candidate(store, "a"), Candidate(store, "b")
    async with asyncio.TaskGroup() as group:
        group.create_task(first.run(clean=False))
        await settle()
        group.create_task(second.run())
        await asyncio.sleep(30)
        first.stop.set()
        await asyncio.sleep(14)
        assert store.holder == "a"
        await asyncio.sleep(10)
        second.stop.set()
    assert second.led[0][0] >= first.led[0][1] + 13  # 15 s after the last renewal, which was at most 2 s old


@virtual_time
async def test_leadership_is_lost_before_its_deadline_when_nothing_answers() -> None:
    store = LeaseStore()
    candidate = Candidate(store, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(20.5)  # the last renewal began at 20
    store.trouble = forever
    await task
    assert candidate.led == [(0, 29)]
    assert "not renewed within 10s" in candidate.reason


@virtual_time
async def test_leadership_is_lost_before_its_deadline_when_everything_fails() -> None:
    store = LeaseStore()
    candidate = Candidate(store, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(20.5)
    store.trouble = unavailable
    await task
    assert candidate.led == [(0, 29)]
    assert store.holder == "a"


@virtual_time
async def test_one_dead_connection_does_not_end_the_leadership() -> None:
    store = LeaseStore()
    candidate = Candidate(store, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(20.5)
    store.trouble = forever
    await asyncio.sleep(3)
    store.trouble = None
    await asyncio.sleep(60)
    candidate.stop.set()
    await task
    assert candidate.led == [(0, 83.5)]


@virtual_time
async def test_a_renewal_whose_answer_was_lost_does_not_move_the_deadline() -> None:
    store = LeaseStore()
    candidate = Candidate(store, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(20.5)
    store.loses_answers = True  # the writes land, nobody learns of it
    await task
    assert candidate.led == [(0, 29)]


@virtual_time
async def test_the_deadline_counts_from_the_start_of_a_slow_renewal() -> None:
    store = LeaseStore()
    candidate = Candidate(store, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(19.5)

    async def slow_once(verb: str) -> None:
        store.trouble = forever
        await asyncio.sleep(2.4)

    store.trouble = slow_once  # the renewal of 20 is answered at 22.4, no later one at all
    await task
    assert candidate.led == [(0, 29)]
    assert store.version == 11


@virtual_time
async def test_two_leaders_never_overlap_when_the_first_is_cut_off() -> None:
    store = LeaseStore()
    first, second = Candidate(store, "a"), Candidate(store, "b")

    async def cut(verb: str) -> None:
        if store.requests[-1][2] == "a":
            await forever(verb)

    async with asyncio.TaskGroup() as group:
        group.create_task(first.run())
        await asyncio.sleep(10.5)
        group.create_task(second.run())
        store.trouble = cut
        await asyncio.sleep(60)
        second.stop.set()
    assert first.led[0][1] <= 19
    assert second.led[0][0] >= 25


@virtual_time
async def test_a_seized_lease_ends_the_leadership_at_the_next_renewal() -> None:
    store, metrics = LeaseStore(), Metrics()
    candidate = Candidate(store, "a", metrics=metrics)
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(20.5)
    store.seize("b")
    await task
    assert candidate.led == [(0, 22)]
    assert candidate.reason == "the Lease is held by 'b'"
    assert store.holder == "b"
    assert metrics.slow == 1


@virtual_time
async def test_a_deleted_lease_is_created_again_at_the_next_renewal() -> None:
    store = LeaseStore()
    candidate = Candidate(store, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(20.5)
    store.lease = None
    await asyncio.sleep(10)
    assert store.holder == "a"
    candidate.stop.set()
    await task


@virtual_time
async def test_the_gate_closes_before_leadership_is_lost_and_opens_when_a_renewal_succeeds() -> None:
    store = LeaseStore()
    candidate = Candidate(store, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(20.5)
    store.trouble = unavailable
    await asyncio.sleep(7.4)
    assert candidate.may_begin()
    await asyncio.sleep(0.2)  # 28.1
    assert not candidate.may_begin()
    store.trouble = None
    await asyncio.sleep(0.8)  # 28.9
    assert candidate.may_begin()
    candidate.stop.set()
    await task
    assert not candidate.may_begin()


@virtual_time
async def test_the_right_to_act_ends_by_the_clock_even_if_the_machine_was_suspended() -> None:
    store = LeaseStore()
    candidate = Candidate(store, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(20.5)
    assert candidate.leadership is not None
    candidate.leadership.check()
    candidate.clock.suspend(3600)
    with pytest.raises(NotOurs):
        candidate.leadership.check()
    await asyncio.sleep(0.5)
    await task
    assert "not renewed" in candidate.reason
    assert max(store.writes()) == 20


@virtual_time
async def test_an_unfit_leader_loses_its_lease() -> None:
    store = LeaseStore()
    candidate = Candidate(store, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(20.5)
    candidate.health = "the event loop does not turn"
    await task
    assert candidate.led == [(0, 29)]


@virtual_time
async def test_the_watchdog_is_armed_by_every_renewal_and_disarmed_by_a_clean_release_only() -> None:
    store = LeaseStore()
    clean, unclean = Watchdog(), Watchdog()
    for watchdog, identity in ((clean, "a"), (unclean, "b")):
        candidate = Candidate(store, identity, watchdog=watchdog)
        task = asyncio.create_task(candidate.run(clean=watchdog is clean))
        await asyncio.sleep(20.5)
        assert watchdog.deadline is not None
        assert 8 <= watchdog.deadline - candidate.clock.boottime() <= 10
        candidate.stop.set()
        await task
    assert clean.deadline is None
    assert unclean.deadline is not None


@virtual_time
async def test_the_renewals_go_on_while_work_is_being_stopped() -> None:
    store = LeaseStore()
    candidate = Candidate(store, "a")
    async with candidate.elector.held() as leadership:
        await asyncio.sleep(120)
        leadership.check()
        leadership.stopped_cleanly()
    assert store.holder == ""


@virtual_time
async def test_an_error_of_the_work_passes_through_and_the_lease_is_kept() -> None:
    store = LeaseStore()
    with pytest.raises(ZeroDivisionError):
        async with Candidate(store, "a").elector.held():
            raise ZeroDivisionError
    assert store.holder == "a"


@virtual_time
async def test_a_candidate_without_an_api_server_keeps_trying() -> None:
    store = LeaseStore()
    store.trouble = unavailable
    candidate = Candidate(store, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(300)
    assert 60 <= len(store.requests) <= 160
    store.trouble = None
    await asyncio.sleep(5)
    assert store.holder == "a"
    candidate.stop.set()
    await task


@virtual_time
async def test_a_missing_namespace_is_retried_at_the_pace_of_the_election() -> None:
    store = LeaseStore()

    async def no_namespace(verb: str) -> None:
        if verb == "create":
            raise NotFound("namespaces not found", code=404)

    store.trouble = no_namespace
    task = asyncio.create_task(Candidate(store, "a").run())
    await asyncio.sleep(60)
    assert len(store.requests) < 60
    task.cancel()


@virtual_time
async def test_metrics_say_who_leads_and_how_often_the_slow_path_was_taken() -> None:
    store, metrics = LeaseStore(), Metrics()
    candidate = Candidate(store, "a", metrics=metrics)
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(1)
    store.seize("a")  # somebody edited it: the leader's version is old
    await asyncio.sleep(3)
    assert metrics.leads == [False, True]
    candidate.stop.set()
    await task
    assert (metrics.leads, metrics.slow) == ([False, True, False], 1)


@virtual_time
async def test_a_leader_that_has_not_renewed_for_long_counts_as_hung() -> None:
    store = LeaseStore()
    candidate = Candidate(store, "a")
    task = asyncio.create_task(candidate.run())
    await settle()
    assert not candidate.elector.hung()
    candidate.clock.suspend(36)
    assert candidate.elector.hung()
    await task
    assert not candidate.elector.hung()


@virtual_time
async def test_the_identity_is_host_name_and_uuid() -> None:
    elector = LeaderElector(
        LeaseStore(), LeaderElection(name="lock", namespace="ns"), clock=VirtualClock(), rng=HalfJitter()
    )
    assert elector.identity.endswith("_00000000-0000-4000-8000-000000000000")
    assert elector.identity.partition("_")[0]


@virtual_time
async def test_of_many_candidates_one_leads_at_any_time() -> None:
    store = LeaseStore()
    candidates = [Candidate(store, f"c{number}") for number in range(6)]
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())
        for candidate in candidates:
            group.create_task(candidate.run(clean=candidate.elector.identity != "c2"))
        for _ in candidates:
            await asyncio.sleep(40)
            leading = next(c for c in candidates if c.elector.identity == store.holder)
            leading.stop.set()
    intervals = sorted(interval for candidate in candidates for interval in candidate.led)
    assert len(intervals) == 6
    assert all(end <= start for (_, end), (start, _) in pairwise(intervals))


def test_a_released_lease_is_written_with_an_empty_holder_present() -> None:
    released = Lease(spec=LeaseSpec(holder_identity="", lease_duration_seconds=1))
    assert msgspec.json.decode(msgspec.json.encode(released))["spec"] == {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
    }


@pytest.mark.regression
@virtual_time
async def test_an_outage_is_told_once_however_it_shows(caplog: pytest.LogCaptureFixture) -> None:
    async def in_turns(verb: str) -> None:
        if len(store.requests) % 2:
            raise Unavailable(f"connection {len(store.requests)} refused")
        await forever(verb)

    store = LeaseStore()
    store.trouble = in_turns
    waiting = asyncio.create_task(Candidate(store, "a").run())
    await asyncio.sleep(600)
    waiting.cancel()
    lines = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [line.__dict__["fields"]["trouble"] for line in lines] == ["no answer"]
    assert len(store.requests) > 50


@pytest.mark.regression
@virtual_time
async def test_being_unfit_to_lead_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    leading = Candidate(LeaseStore(), "a").elector
    async with leading.held(lambda: f"a worker is {clock.monotonic():.0f} s over its limit") as leadership:
        await leadership.lost()
    lines = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [line.__dict__["fields"]["trouble"] for line in lines] == ["unfit to lead"]
