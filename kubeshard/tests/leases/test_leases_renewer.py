"""The renewer on virtual time, against a server in memory: what its users see of their right to act."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from lease_bench import LeaseServer, Process, Trouble, refused, status, unanswered

from kubeshard.core.errors import NotOurs
from kubeshard.leases.held_lease import HeldLease
from kubeshard.runtime.loop_thread import LoopThread
from kubeshard.runtime.transport import HttpRequest, HttpResponse, TransportError
from kubeshard_lab.virtual_time import VirtualClock, settle, virtual_time

WATCHING = pytest.mark.parametrize("watches", [True, False], ids=["watching", "not watching"])


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.msg for record in caplog.records if record.levelname == "WARNING"]


# -- in good weather


@virtual_time
async def test_the_lease_is_renewed_every_two_seconds_and_keeps_what_others_wrote() -> None:
    process = Process(LeaseServer())
    async with process.held() as held:
        await settle()  # the watch is open
        process.server.edit(labels={"team": "a"})
        await asyncio.sleep(59)
        held.check()
        assert held.gate.is_open
        held.stopped_cleanly()
    times = [at for at, _ in process.server.writes]
    assert times[:-1] == [2.0 * n for n in range(30)]
    assert process.server.lease is not None
    assert process.server.lease.metadata.labels == {"team": "a"}
    assert {method for _, method in process.server.requests[1:]} <= {"POST", "PUT"}


@virtual_time
async def test_after_a_proven_stop_the_lease_is_released_and_the_watchdog_called_off() -> None:
    process = Process(LeaseServer())
    async with process.held() as held:
        await asyncio.sleep(5)
        assert process.watchdog.deadline == 14
        held.stopped_cleanly()
        assert not held.holds()
    spec = process.server.spec
    assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("", 1, 0)
    assert spec.acquire_time == spec.renew_time
    assert process.watchdog.deadline is None
    assert process.aborts == 0


@virtual_time
async def test_without_a_proven_stop_the_lease_is_left_to_expire_under_the_watchdogs_deadline() -> None:
    process = Process(LeaseServer())
    async with process.held():
        await asyncio.sleep(5)
    assert process.server.holder == "me"
    assert process.watchdog.deadline == 14
    with pytest.raises(NotOurs):
        process.held_lease.check()
    assert not process.held_lease.gate.is_open


@virtual_time
async def test_an_error_of_the_work_passes_through_and_the_lease_is_kept() -> None:
    process = Process(LeaseServer())
    with pytest.raises(ZeroDivisionError):
        async with process.held():
            raise ZeroDivisionError
    assert process.server.holder == "me"


@virtual_time
async def test_metrics_say_who_holds_and_how_often_a_renewal_needed_a_read() -> None:
    process = Process(LeaseServer(), watches=False)
    async with process.held() as held:
        process.server.edit(labels={"team": "a"})  # the next renewal is based on an older version
        await asyncio.sleep(3)
        assert (process.metrics.holds, process.metrics.slow) == ([False, True], 1)
        held.stopped_cleanly()
    assert (process.metrics.holds, process.metrics.slow) == ([False, True, False], 1)


# -- the right and its end


@pytest.mark.parametrize(
    "trouble", [unanswered, refused, None], ids=["unanswered", "refused", "lands, and the answer is lost"]
)
@WATCHING
def test_the_right_ends_one_second_before_the_deadline_counted_from_the_last_renewal_that_was_answered(
    trouble: Trouble | None, watches: bool
) -> None:
    @virtual_time
    async def run() -> None:
        process = Process(LeaseServer(), watches=watches)
        process.server.slow = 0.5
        async with process.held() as held:
            began = process.now - 0.5
            assert process.watchdog.deadline == began + 10
            process.server.trouble = trouble
            process.server.loses_answers = trouble is None
            assert (await held.lost()).startswith("not renewed for 9s: ")
            assert process.now == pytest.approx(began + 9)
            assert not held.holds()
            assert not held.gate.is_open
            assert process.aborts == 1
            assert process.watchdog.deadline == began + 10
        assert process.watchdog.bitten_at is None
        assert process.watchdog.deadline == began + 10
        assert process.metrics.holds[:3] == [False, True, False]

    run()


@virtual_time
async def test_the_deadline_counts_from_the_start_of_a_slow_renewal() -> None:
    process = Process(LeaseServer())
    async with process.held() as held:
        await asyncio.sleep(19.5)
        process.server.slow = 1.9
        await asyncio.sleep(1)  # the renewal of 20 is in flight, and is answered at 21.9
        process.server.down = True
        await held.lost()
        assert process.now == 29


@virtual_time
async def test_one_dead_connection_does_not_end_the_right() -> None:
    process = Process(LeaseServer())
    async with process.held() as held:
        await asyncio.sleep(19.5)
        process.server.down = True
        await asyncio.sleep(3)
        process.server.down = False
        await asyncio.sleep(60)
        assert held.holds()


@virtual_time
async def test_the_gate_closes_two_seconds_before_the_deadline_even_while_an_attempt_hangs() -> None:
    process = Process(LeaseServer())
    async with process.held() as held:
        await asyncio.sleep(1)
        process.server.down = True
        await asyncio.sleep(6.9)
        assert held.gate.is_open
        await asyncio.sleep(0.2)
        assert not held.gate.is_open
        assert held.holds()


@virtual_time
async def test_a_renewal_within_the_last_seconds_opens_the_gate_again() -> None:
    process = Process(LeaseServer())
    async with process.held() as held:
        process.sick = "a worker hangs"
        await asyncio.sleep(8.5)
        assert not held.gate.is_open
        process.sick = None
        await asyncio.sleep(0.3)
        assert held.gate.is_open
        assert held.holds()


@pytest.mark.regression
@virtual_time
async def test_a_renewal_of_which_a_blocked_loop_hears_too_late_opens_no_gate() -> None:
    clock = VirtualClock()
    held = HeldLease(clock, "over", lambda: None)
    begun: list[str] = []

    async def work() -> None:
        await held.gate.passed()
        begun.append("work")

    working = asyncio.create_task(work())
    await settle()
    held.renewed(clock.boottime() - 0.5, clock.boottime() + 0.5)
    await held.acquired()
    await settle()
    assert (begun, held.gate.is_open, held.holds()) == ([], False, True)
    held.renewed(clock.boottime() + 1, clock.boottime() + 2)
    await working


@virtual_time
async def test_sleep_of_the_machine_counts_against_the_deadline() -> None:
    process = Process(LeaseServer(), watches=False)
    async with process.held() as held:
        await asyncio.sleep(0.5)
        writes = len(process.server.writes)
        process.clock.suspend(3600)
        assert not held.holds()
        async with asyncio.timeout(0.6):
            assert "not renewed" in await held.lost()
        assert len(process.server.writes) == writes


@virtual_time
async def test_an_unfit_process_loses_its_lease_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    process = Process(LeaseServer())
    async with process.held() as held:
        process.health = lambda: f"a worker is {process.now:.0f} s over its limit"  # type: ignore[method-assign]
        assert await held.lost() == "not renewed for 9s: a worker is 9 s over its limit"
        assert process.now == 9
    assert warnings(caplog) == ["Not renewing the Lease until this process works again"]


@virtual_time
async def test_a_process_whose_health_cannot_be_told_is_unfit() -> None:
    def fails() -> str | None:
        raise KeyError("worker")

    process = Process(LeaseServer())
    async with process.held() as held:
        process.health = fails  # type: ignore[method-assign]
        await asyncio.sleep(3)
        assert held.holds()
        assert "its health check failed: KeyError" in await held.lost()


@virtual_time
async def test_however_close_to_its_time_the_renewer_wakes_up_it_asks_before_it_renews(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read_slowly(clock: VirtualClock) -> float:
        clock.suspend(0.001)
        return boottime(clock)

    boottime = VirtualClock.boottime
    for early in range(1, 10):
        process = Process(LeaseServer())
        await asyncio.sleep(-process.clock.boottime() % 2)
        async with process.held() as held:
            await asyncio.sleep(2 - early / 1000)
            process.sick = "stuck"
            with monkeypatch.context() as slow:
                slow.setattr(VirtualClock, "boottime", read_slowly)
                process.server.edit(labels={"team": "a"})  # which the watch reports
                await asyncio.sleep(0.1)
            assert len(process.server.writes) == 1
            held.stopped_cleanly()


# -- other holders of the Lease


@pytest.mark.parametrize("holder", ["", "somebody"])
def test_another_holder_stops_the_work_at_once(holder: str) -> None:
    @virtual_time
    async def run() -> None:
        process = Process(LeaseServer())
        async with process.held() as held:
            await asyncio.sleep(1)
            process.server.edit(holder=holder)
            assert (await held.lost()).startswith("the Lease is held by")
            assert process.now == 1
            assert not held.holds()
            assert process.aborts == 1
            assert process.watchdog.deadline == 3
        assert process.server.holder == holder

    run()


@virtual_time
async def test_another_holder_is_heard_of_while_a_renewal_hangs() -> None:
    process = Process(LeaseServer())
    async with process.held() as held:
        await asyncio.sleep(1)
        process.server.slow = 1.9
        await asyncio.sleep(1.5)  # a renewal is in flight
        process.server.edit(holder="somebody")
        await held.lost()
        assert process.now == 2.5
        assert not held.holds()


@pytest.mark.parametrize("how", ["not watching", "the watch broke"])
def test_without_a_watch_another_holder_is_noticed_at_the_next_renewal(how: str) -> None:
    @virtual_time
    async def run() -> None:
        process = Process(LeaseServer(), watches=how != "not watching")
        async with process.held() as held:
            process.server.cut_watches()
            await asyncio.sleep(0.1)
            process.server.edit(holder="somebody")
            await held.lost()
            assert process.now == 2.0

    run()


@pytest.mark.parametrize(("watches", "at"), [(True, 0.5), (False, 2.0)])
def test_a_deleted_lease_is_created_again(watches: bool, at: float) -> None:
    @virtual_time
    async def run() -> None:
        process = Process(LeaseServer(), watches=watches)
        async with process.held() as held:
            await asyncio.sleep(0.5)
            process.server.delete()
            await asyncio.sleep(10)
            assert [time for time, method in process.server.requests if method == "POST"] == [0.0, at]
            assert held.holds()

    run()


@virtual_time
async def test_what_was_written_last_is_known_before_it_is_answered_and_in_which_history_and_how_often_it_was() -> (
    None
):
    process = Process(LeaseServer())
    async with process.held() as held:
        backup = process.server.lease
        await asyncio.sleep(5)
        for rewinds in range(2):
            (_, lease), renewal = process.server.writes[-1], held.renewal
            assert renewal is not None
            assert (renewal.name, renewal.time) == ("lock", lease.spec.renew_time)
            assert process.now - 2.2 <= renewal.sent <= process.now
            assert renewal.rewinds == rewinds
            assert held.sent == held.answered == sum(each != "GET" for _, each in process.server.requests)
            assert backup is not None
            process.server.restore(backup)
            await asyncio.sleep(5)
        process.server.loses_answers = True
        await asyncio.sleep(2.5)
        assert held.renewal is not None
        assert held.renewal.time == process.server.writes[-1][1].spec.renew_time
        assert held.sent == held.answered + 1


@WATCHING
def test_a_restored_server_costs_a_renewal_or_the_right(watches: bool) -> None:
    @virtual_time
    async def run() -> None:
        for holder in ("me", "other"):
            process = Process(LeaseServer(), watches=watches)
            backup = None
            async with process.held() as held:
                backup = process.server.lease
                await asyncio.sleep(5)
                assert backup is not None
                assert process.rewinds == 0
                process.server.restore(backup)
                process.server.edit(holder=holder)
                await asyncio.sleep(20)
                assert process.rewinds == 1
                assert held.holds() is (holder == "me")

    run()


@virtual_time
async def test_a_watch_that_fails_unforeseen_leaves_it_to_the_renewals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    process = Process(LeaseServer())

    def fails(request: Any) -> Any:
        raise ZeroDivisionError

    process.server.stream = fails  # type: ignore[method-assign]
    async with process.held() as held:
        await asyncio.sleep(30)
        assert held.holds()
    assert [record.msg for record in caplog.records if record.levelname == "ERROR"] == [
        "The Lease cannot be watched"
    ]


# -- what does not go on by itself


@virtual_time
async def test_a_process_that_does_not_leave_is_ended_at_its_deadline() -> None:
    process = Process(LeaseServer())
    async with AsyncExitStack() as stack:
        held = await stack.enter_async_context(process.held())
        process.server.down = True
        await held.lost()
        await asyncio.sleep(5)
        assert process.watchdog.bitten_at == 10


@pytest.mark.regression
@virtual_time
async def test_the_process_is_bitten_also_when_the_reset_of_its_connections_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = Process(LeaseServer())
    order: list[str] = []
    told = False

    def fails() -> None:
        order.append(f"reset, may write: {process.held_lease.holds()}, told: {told}")
        raise RuntimeError("set changed size during iteration")

    def tells(*args: Any) -> None:
        nonlocal told
        told = True
        post(*args)

    def refuses(deadline: float) -> None:
        order.append("arm")
        raise OSError("no timer")

    monkeypatch.setattr(process.held_lease, "_abort", fails)
    async with process.held() as held:
        post = held._in_loop
        monkeypatch.setattr(held, "_in_loop", tells)
        process.sick = "unwell"
        await asyncio.sleep(4)
        monkeypatch.setattr(process.watchdog, "arm", refuses)
        await asyncio.sleep(30)
        assert not held.holds()
        assert not held.gate.is_open
        assert await held.lost()
        assert order[:2] == ["arm", "reset, may write: False, told: True"]
        assert process.watchdog.bitten_at is not None
        held.stopped_cleanly()


@virtual_time
async def test_a_renewer_that_crashes_ends_the_right_with_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(LeaseServer())
    async with process.held() as held:
        await asyncio.sleep(1)
        monkeypatch.setattr(process.machine, "written", None)
        assert "the renewal of the Lease crashed: TypeError" in await held.lost()
        assert not held.holds()
        assert process.aborts == 1
    assert process.server.holder == "me"


@virtual_time
async def test_a_watchdog_that_cannot_be_armed_lets_no_work_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(deadline: float) -> None:
        raise OSError("no timer")

    process = Process(LeaseServer())
    monkeypatch.setattr(process.watchdog, "arm", refuses)
    with pytest.raises(OSError, match="no timer"):
        async with process.held():
            pytest.fail("entered")


# -- stopping


@pytest.mark.parametrize("moment", [0.5, 1.5, 2.5])
def test_stopping_while_the_lease_is_being_acquired_leaves_nothing_held(moment: float) -> None:
    @virtual_time
    async def run() -> None:
        process = Process(LeaseServer())
        process.server.slow = 1.0
        entering = asyncio.create_task(process.held().__aenter__())
        await asyncio.sleep(moment)
        entering.cancel()
        await asyncio.wait((entering,))
        assert entering.cancelled() or moment > 2
        assert not process.server.holder or moment > 2

    run()


@virtual_time
async def test_a_candidate_stops_at_once_whatever_its_request_does() -> None:
    process = Process(LeaseServer())
    process.server.down = True
    entering = asyncio.create_task(process.held().__aenter__())
    await asyncio.sleep(1)
    entering.cancel()
    with suppress(asyncio.CancelledError):
        await entering
    assert process.now == 1


@virtual_time
async def test_leaving_without_a_proven_stop_does_not_wait_for_a_renewal_that_hangs() -> None:
    process = Process(LeaseServer())
    async with process.held():
        await asyncio.sleep(1)
        process.server.down = True
        await asyncio.sleep(2)
    assert process.now == 3


@virtual_time
async def test_a_release_that_is_not_answered_is_tried_until_the_deadline_and_not_after() -> None:
    process = Process(LeaseServer())
    async with process.held() as held:
        await asyncio.sleep(1)
        process.server.down = True
        held.stopped_cleanly()
    assert process.now == 10
    assert process.watchdog.deadline is None


@virtual_time
async def test_a_stop_during_a_renewal_releases_what_the_renewal_wrote() -> None:
    process = Process(LeaseServer())
    async with process.held() as held:
        await asyncio.sleep(1)
        process.server.slow = 1.5
        await asyncio.sleep(2)  # the renewal of 2 is in flight
        held.stopped_cleanly()
    assert process.server.holder == ""


@pytest.mark.regression
async def test_a_stop_that_comes_before_the_renewers_thread_runs_is_heeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_run = threading.Event()
    main = LoopThread._main

    async def late(self: LoopThread, *args: Any) -> Any:
        may_run.wait(10)
        return await main(self, *args)

    monkeypatch.setattr(LoopThread, "_main", late)
    process = Process(LeaseServer())
    entering = asyncio.create_task(process.held(runner=LoopThread("lease")).__aenter__())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    entering.cancel()
    asyncio.get_running_loop().call_later(0.05, may_run.set)
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(10):
            await entering
    assert process.server.requests == []


# -- problems are logged once


@pytest.mark.regression
@virtual_time
async def test_an_outage_is_told_once_however_it_shows(caplog: pytest.LogCaptureFixture) -> None:
    async def in_turns(request: HttpRequest) -> HttpResponse:
        if len(process.server.requests) % 2:
            raise TransportError(f"connection {len(process.server.requests)} refused", sent=False)
        await unanswered(request)

    process = Process(LeaseServer())
    process.server.trouble = in_turns
    waiting = asyncio.create_task(process.held().__aenter__())
    await asyncio.sleep(600)
    assert warnings(caplog) == ["A request for the Lease failed"]
    assert 100 <= len(process.server.requests) <= 300
    process.server.trouble = None
    await asyncio.sleep(5)
    assert process.server.holder == "me"
    await waiting


@virtual_time
async def test_a_lease_that_may_be_read_but_not_written_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "kubeshard.leases")
    process = Process(LeaseServer())
    process.server.read_only = True
    asyncio.get_running_loop().call_later(60, setattr, process.server, "read_only", False)
    async with process.held() as held:
        assert 60 <= process.now <= 65
        held.stopped_cleanly()
    told = ["A request for the Lease failed", "Acquired the Lease", "Stopped keeping the Lease"]
    assert [record.msg for record in caplog.records] == told


@virtual_time
async def test_the_question_which_right_is_missing_does_not_delay_the_end_of_the_right() -> None:
    process = Process(LeaseServer())
    async with process.held() as held:
        began = process.now

        async def refused_late(request: HttpRequest) -> HttpResponse:
            if "/leases" in request.target:
                await asyncio.sleep(began + 8.9 - process.now)
                return status(403, "Forbidden")
            await unanswered(request)
            raise AssertionError

        process.server.trouble = refused_late
        await held.lost()
        assert process.now == pytest.approx(began + 9)


@virtual_time
async def test_a_missing_namespace_is_asked_for_at_the_pace_of_candidates() -> None:
    process = Process(LeaseServer())

    async def no_namespace(request: HttpRequest) -> HttpResponse:
        return status(404, "NotFound")

    process.server.trouble = no_namespace
    entering = asyncio.create_task(process.held().__aenter__())
    await asyncio.sleep(60)
    assert 20 <= len(process.server.requests) <= 60
    entering.cancel()
    await asyncio.wait([entering])


# -- several renewers


@virtual_time
async def test_two_holders_never_overlap_when_the_first_is_cut_off() -> None:
    server = LeaseServer()
    first, second = Process(server, "a"), Process(LeaseServer(), "b")
    second.server = server
    over = 0.0
    async with first.held() as held:
        await asyncio.sleep(10.5)
        waiting = asyncio.create_task(second.held().__aenter__())
        await settle()
        first.server = LeaseServer()  # another network
        first.sick = "cut off"
        await held.lost()
        over = first.now
    await waiting
    assert over == 19
    assert second.now == pytest.approx(25.5)


@virtual_time
async def test_of_many_candidates_one_holds_at_any_time() -> None:
    server = LeaseServer()
    terms: list[tuple[float, float]] = []
    stops = {f"c{n}": asyncio.Event() for n in range(6)}

    async def work(process: Process) -> None:
        async with process.held() as held:
            since = process.now
            await stops[process.identity].wait()
            terms.append((since, process.now))
            if process.identity != "c2":
                held.stopped_cleanly()

    async with asyncio.TaskGroup() as group:
        for identity in stops:
            group.create_task(work(Process(server, identity, watches=False)))
        for _ in stops:
            await asyncio.sleep(40)
            stops[server.holder or ""].set()
    assert len(terms) == 6
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(sorted(terms)))


def test_what_the_renewer_says_after_the_end_changes_nothing() -> None:
    @virtual_time
    async def run(end: Callable[[HeldLease], None]) -> None:
        process = Process(LeaseServer())
        async with process.held() as held:
            end(held)
            held.renewed(1000.0, 1000.0)
            await settle()
            assert not held.holds()
            assert not held.gate.is_open

    run(lambda held: held.lose("because"))
    run(HeldLease.stopped_cleanly)


@virtual_time
async def test_a_renewal_wakes_the_loop_only_if_nothing_may_begin_there_and_the_gate_closes_in_time() -> None:
    loop, clock, wakes = asyncio.get_running_loop(), VirtualClock(), 0
    held = HeldLease(clock, "over", lambda: None)
    threadsafe = loop.call_soon_threadsafe

    def counted(*args: Any, **options: Any) -> asyncio.Handle:
        nonlocal wakes
        wakes += 1
        return threadsafe(*args, **options)

    loop.call_soon_threadsafe = counted  # type: ignore[method-assign]

    def renewed() -> float:
        until = clock.boottime() + 8.0
        held.renewed(until, until + 1.0)
        return until

    renewed()
    await held.acquired()
    for _ in range(20):
        await asyncio.sleep(2.0)
        assert held.gate.is_open
        until = renewed()
    assert wakes == 1
    await asyncio.sleep(until - clock.boottime() - 0.01)
    assert held.gate.is_open
    await asyncio.sleep(0.02)
    assert not held.gate.is_open
    renewed()
    await settle()
    assert held.gate.is_open
    assert wakes == 2
