"""The lifecycle of a Lease as tables: what is known and since when, the action, and the record after it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, pairwise

import pytest
from msgspec.structs import replace

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.times import micro_time
from kubeshard.leases.claim import Claim, GroupClaim
from kubeshard.leases.state_machine import (
    BLOCKED_AFTER,
    UNFIT_POLL,
    Action,
    Ask,
    Create,
    Done,
    Get,
    LeaseStateMachine,
    Replace,
    State,
    Wait,
)
from kubeshard.leases.timing import RENEW_JITTER, Timing

TIMING = Timing()
WALL = 1_800_000_000.0
NOW, EARLIER = micro_time(WALL), micro_time(WALL - 500)


def lease(
    holder: str | None = "me",
    *,
    duration: int | None = 15,
    transitions: int | None = 3,
    rv: str = "10",
    renewed: str = EARLIER,
) -> Lease:
    return Lease(
        metadata=ObjectMeta(
            name="lock",
            namespace="ns",
            uid="u",
            resource_version=rv,
            labels={"team": "a"},
            annotations={"note": "b"},
            finalizers=("f",),
        ),
        spec=LeaseSpec(
            holder_identity=holder,
            lease_duration_seconds=duration,
            acquire_time=EARLIER,
            renew_time=renewed,
            lease_transitions=transitions,
            strategy="OldestEmulationVersion",
        ),
    )


def stored(lease: Lease, version: str) -> Lease:
    return replace(lease, metadata=replace(lease.metadata, resource_version=version))


def middle(low: float, high: float) -> float:
    return (low + high) / 2


class Draw:
    """A number so far between two others."""

    def __init__(self, at: float) -> None:
        self._at = at

    def __call__(self, low: float, high: float) -> float:
        return low + self._at * (high - low)


class FitMachine(LeaseStateMachine):
    """Of a process that is always fit."""

    def next(self, now: float, wall: float) -> Action:
        if isinstance(action := super().next(now, wall), Ask):
            self.told(None, now)
            action = super().next(now, wall)
        return action


def machine(uniform: Callable[[float, float], float] = middle) -> LeaseStateMachine:
    return FitMachine(Claim("ns", "lock", "me", TIMING), uniform)


def holding(at: float = 100.0, m: LeaseStateMachine | None = None) -> LeaseStateMachine:
    """Returns a state machine that acquired its Lease at `at`, with an immediate response."""
    m = m or machine()
    assert isinstance(m.next(at, WALL), Get)
    m.found(lease(""), at)
    action = m.next(at, WALL)
    assert isinstance(action, Replace)
    m.written(stored(action.lease, "11"), at)
    assert m.state is State.HELD
    return m


def asking() -> LeaseStateMachine:
    """The same of a process that has to say whether it is fit, at 100."""
    return holding(m=LeaseStateMachine(Claim("ns", "lock", "me", TIMING), middle))


def until_it_writes(
    m: LeaseStateMachine, record: Callable[[float], Lease | None], now: float
) -> tuple[float, Create | Replace]:
    """Responds to every read with the record of that time."""
    while not isinstance(action := m.next(now, WALL), Create | Replace):
        assert not m.holds
        if isinstance(action, Get):
            m.found(record(now), now)
        else:
            assert isinstance(action, Wait)
            assert m.state is State.WAITING
            assert m.reason
            now = action.until
    return now, action


# -- acquiring


@dataclass
class Row:
    name: str
    record: Lease | None
    waits: float = 0.0
    transitions: int = 4
    acquired: str = NOW


ACQUIRING = [
    Row("none: create it", None, transitions=0),
    Row("released: take it at once", lease("")),
    Row("without a holder: take it at once", lease(None)),
    Row("with nothing in it: take it", lease(None, duration=None, transitions=None), transitions=1),
    Row("our own: keep acquire time and transitions", lease("me"), transitions=3, acquired=EARLIER),
    Row("somebody else's, whatever its renew time says: wait", lease("other", renewed=micro_time(0)), 15),
    Row("the duration of the record counts, not the own one", lease("other", duration=60), 60),
    Row("a shorter duration of the record counts as well", lease("other", duration=5), 5),
    Row("a record without duration has the own one", lease("other", duration=None), 15),
    Row("a record with duration 0 has the own one", lease("other", duration=0), 15),
]


@pytest.mark.parametrize("row", ACQUIRING, ids=lambda row: row.name)
def test_a_lease_is_taken_when_nobody_else_can_hold_it_any_more(row: Row) -> None:
    m = machine()
    assert m.next(50.0, WALL) == Get(timeout=2.0)
    now, action = until_it_writes(m, lambda _: row.record, 50.0)
    assert now == 50.0 + row.waits
    found = row.record or Lease(metadata=ObjectMeta(name="lock", namespace="ns"))
    assert isinstance(action, Create if row.record is None else Replace)
    assert action.lease == Lease(
        metadata=found.metadata,
        spec=LeaseSpec(
            holder_identity="me",
            lease_duration_seconds=15,
            acquire_time=row.acquired,
            renew_time=NOW,
            lease_transitions=row.transitions,
            strategy=found.spec.strategy,
        ),
    )


@pytest.mark.parametrize(("holder", "waits"), [("", 8.0), (None, 8.0), ("other", 23.0)])
def test_a_claim_that_defers_leaves_a_lease_to_others_for_so_much_longer(
    holder: str | None, waits: float
) -> None:
    m = FitMachine(Claim("ns", "lock", "me", TIMING, defers=8.0), middle)
    at, action = until_it_writes(m, lambda _: lease(holder), 50.0)
    assert (at, type(action)) == (50.0 + waits, Replace)


def test_a_claim_that_defers_takes_a_lease_that_another_one_has_taken_meanwhile_when_that_is_over() -> None:
    m = FitMachine(Claim("ns", "lock", "me", TIMING, defers=8.0), middle)
    at, _ = until_it_writes(m, lambda now: lease("" if now < 55 else "other"), 50.0)
    assert at > 55 + 15 + 8


def test_every_change_of_the_record_starts_the_waiting_anew() -> None:
    records = [lease("other", renewed=micro_time(WALL + n), rv=str(10 + n)) for n in range(3)]
    seen: dict[int, float] = {}

    def record(now: float) -> Lease:
        n = min(int(now // 10), 2)
        seen.setdefault(n, now)
        return records[n]

    now, _ = until_it_writes(machine(), record, 0.0)
    assert sorted(seen) == [0, 1, 2]
    assert now == seen[2] + 15.0


def waiting_for(record: Lease, at: float = 0.0) -> LeaseStateMachine:
    """Returns a state machine that has read the Lease."""
    m = machine()
    assert isinstance(m.next(at, WALL), Get)
    m.found(record, at)
    assert isinstance(m.next(at, WALL), Wait)
    return m


def shown(n: int) -> Lease:
    """The n-th renewal of another holder."""
    return lease("other", renewed=micro_time(WALL + n), rv=str(10 + n))


def test_a_lease_that_a_watch_shows_released_or_deleted_is_read_at_once() -> None:
    for deleted in False, True:
        m = waiting_for(shown(0))
        m.observed(shown(1), 2.0, deleted=False)
        assert isinstance(m.next(2.0, WALL), Wait)
        m.observed(lease("other" if deleted else "", rv="12"), 2.3, deleted=deleted)
        assert isinstance(m.next(2.3, WALL), Get)
    m = waiting_for(shown(0))
    m.observed(lease("", rv="12"), 0.3, deleted=False)
    m.next(0.3, WALL)
    m.found(lease("", rv="12"), 0.3)
    assert isinstance(m.next(0.3, WALL), Replace)


def test_while_a_watch_shows_that_a_lease_is_renewed_it_is_not_read_and_soon_when_a_renewal_is_missing() -> (
    None
):
    m = waiting_for(shown(0))
    for n in range(1, 20):
        now = n * (1 + RENEW_JITTER) * TIMING.retry_period
        assert isinstance(m.next(now, WALL), Wait)
        m.observed(shown(n), now, deleted=False)
    missing = m.next(now, WALL)
    assert isinstance(missing, Wait)
    assert missing.until <= now + (1 + TIMING.jitter) * TIMING.retry_period
    assert isinstance(m.next(missing.until, WALL), Get)
    m.found(shown(n), missing.until)
    at, action = until_it_writes(m, lambda _: shown(n), missing.until)
    assert (at, type(action)) == (
        now + TIMING.lease_duration,
        Replace,
    )  # since the last renewal that was seen
    assert action.lease.metadata.resource_version == shown(n).metadata.resource_version


def test_what_a_watch_shows_late_neither_prolongs_the_waiting_nor_puts_off_a_read() -> None:
    m = waiting_for(shown(5))
    waits = m.next(1.0, WALL)
    for late in shown(3), replace(shown(5), metadata=shown(6).metadata):
        m.observed(late, 1.0, deleted=False)
        assert m.next(1.0, WALL) == waits


def test_an_answer_that_is_older_than_what_a_watch_showed_before_it_was_asked_for_tells_of_a_restore() -> (
    None
):
    m = waiting_for(shown(0))
    m.observed(shown(3), 1.0, deleted=False)
    asked = m.next(1.0, WALL)
    assert isinstance(asked, Wait)
    m.next(asked.until, WALL)
    m.observed(shown(9), asked.until, deleted=False)  # meanwhile
    m.found(shown(3), asked.until)
    assert m.rewinds == 0
    later = m.next(asked.until, WALL)
    assert isinstance(later, Wait)
    assert isinstance(m.next(later.until, WALL), Get)
    m.found(shown(3), later.until)
    assert m.rewinds == 1
    at, _ = until_it_writes(m, lambda _: shown(3), later.until)
    assert at == later.until + TIMING.lease_duration


def test_a_change_of_metadata_alone_does_not_prolong_the_waiting() -> None:
    now, _ = until_it_writes(machine(), lambda now: lease("other", rv=str(10 + int(now))), 0.0)
    assert now == 15.0


def test_a_record_that_went_and_came_back_is_a_new_one() -> None:
    m = machine()
    now = 0.0
    while now < 10.0:
        action = m.next(now, WALL)
        if isinstance(action, Get):
            m.found(lease("other"), now)
        elif isinstance(action, Wait):
            now = action.until
    m.next(now, WALL)
    m.found(None, now)
    now += 5.0
    assert until_it_writes(m, lambda _: lease("other"), now)[0] >= now + 15.0


def test_a_lease_that_is_deleted_while_somebody_else_holds_it_is_waited_for_as_if_it_had_just_changed() -> (
    None
):
    m, gone = machine(), 0.0

    def record(now: float) -> Lease | None:
        nonlocal gone
        if now < 10.0:
            return lease("other", renewed=micro_time(WALL + now))
        gone = gone or now
        assert m.reason.startswith("the Lease" if now == gone else "the Lease was deleted")
        return None

    now, action = until_it_writes(m, record, 0.0)
    assert isinstance(action, Create)
    assert now == gone + 15.0
    m.failed("no answer", now)
    pause = m.next(now, WALL)
    assert isinstance(pause, Wait)
    assert until_it_writes(m, record, pause.until)[0] == pause.until  # it does not wait a second time


@pytest.mark.regression
@pytest.mark.parametrize("holder", ["me", ""], ids=["our own late create", "created and released"])
@pytest.mark.parametrize("seen_absent", [False, True])
def test_another_lease_in_the_place_of_a_deleted_one_is_waited_for_like_none(
    holder: str, seen_absent: bool
) -> None:
    """A create that timed out may take effect just after somebody deleted the holder's Lease."""
    m, gone = machine(), 0.0

    def record(now: float) -> Lease | None:
        nonlocal gone
        if now < 10.0:
            return lease("other", renewed=micro_time(WALL + now))
        gone = gone or now
        if seen_absent and now < gone + 5.0:
            return None
        found = lease(holder)
        return replace(found, metadata=replace(found.metadata, uid="v"))

    now, action = until_it_writes(m, record, 0.0)
    assert isinstance(action, Replace)
    assert now == gone + 15.0


def test_a_lease_that_vanishes_under_the_attempt_to_take_it_is_waited_for() -> None:
    m = machine()
    now, action = until_it_writes(m, lambda _: lease("other"), 0.0)
    assert isinstance(action, Replace)
    m.found(None, now)
    assert until_it_writes(m, lambda _: None, now)[0] == now + 15.0


@pytest.mark.parametrize("before", [lease(""), lease("me")], ids=["released", "our own"])
def test_a_lease_that_nobody_else_held_when_last_seen_may_have_been_taken_before_it_vanished(
    before: Lease,
) -> None:
    m = machine()
    m.next(0.0, WALL)
    m.found(before, 0.0)
    m.next(0.0, WALL)
    m.found(None, 0.0)
    now, action = until_it_writes(m, lambda _: None, 0.0)
    assert (now, type(action)) == (15.0, Create)


@pytest.mark.parametrize(("low", "pause"), [(True, 2.0), (False, 4.4)])
def test_candidates_look_again_after_a_retry_period_with_jitter(low: bool, pause: float) -> None:
    m = machine(lambda a, b: a if low else b)
    m.next(0.0, WALL)
    m.found(lease("other"), 0.0)
    assert m.next(0.0, WALL) == Wait(pause)
    assert isinstance(m.next(pause, WALL), Get)


def test_candidates_without_an_answer_try_again_as_rarely() -> None:
    m = machine()
    m.next(0.0, WALL)
    m.failed("connection refused", 0.0)
    assert m.next(0.0, WALL) == Wait(3.2)
    assert isinstance(m.next(3.2, WALL), Get)


def test_candidates_that_lose_the_race_look_at_once_and_then_pause() -> None:
    m = machine()
    for pause in (0.0, 0.75):
        m.next(0.0, WALL)
        m.found(lease(""), 0.0)
        assert isinstance(m.next(0.0, WALL), Replace)
        m.rejected(0.0)
        if pause:
            assert m.next(0.0, WALL) == Wait(pause)
    assert isinstance(m.next(0.75, WALL), Get)


def test_an_unanswered_create_that_took_effect_is_recognised_as_ours() -> None:
    m = machine()
    m.next(0.0, WALL)
    m.found(None, 0.0)
    assert isinstance(m.next(0.0, WALL), Create)
    m.failed("timeout", 2.5)
    assert not m.holds
    assert isinstance(m.next(10.0, WALL), Get)
    m.found(lease("me"), 10.0)
    action = m.next(10.0, WALL)
    assert isinstance(action, Replace)
    m.written(action.lease, 10.1)
    assert m.state is State.HELD
    assert m.deadline == 20.0


def test_a_take_over_that_is_answered_when_its_right_is_over_begins_anew() -> None:
    m = machine()
    m.next(0.0, WALL)
    m.found(None, 0.0)
    action = m.next(0.0, WALL)
    assert isinstance(action, Create)
    m.written(stored(action.lease, "1"), 600.0)  # the computer was asleep
    assert (m.holds, m.deadline) == (False, None)
    action = m.next(600.0, WALL)
    assert isinstance(action, Replace)
    m.written(stored(action.lease, "2"), 600.1)
    assert (m.holds, m.deadline) == (True, 610.0)


# -- holding


def test_the_deadline_counts_from_the_start_of_the_last_renewal_that_succeeded() -> None:
    m = holding(at=100.0)
    assert (m.deadline, m.begin_until, m.work_until) == (110.0, 108.0, 109.0)
    assert m.next(101.0, WALL) == Wait(102.0)
    assert isinstance(m.next(102.0, WALL), Replace)
    m.failed("refused", 102.1)
    assert m.deadline == 110.0
    assert m.next(102.1, WALL) == Wait(102.75)
    assert isinstance(m.next(102.75, WALL), Replace)
    m.failed("timeout", 104.75)
    action = m.next(104.75, WALL)
    assert isinstance(action, Replace)
    m.written(action.lease, 107.0)
    assert m.deadline == 114.75


def test_renewals_come_every_retry_period_without_a_read_and_keep_what_others_wrote() -> None:
    m = machine()
    m.next(100.0, WALL)
    m.found(lease("me", transitions=7), 100.0)
    action = m.next(100.0, WALL)
    assert isinstance(action, Replace)
    m.written(stored(action.lease, "11"), 100.1)
    assert m.next(100.1, WALL) == Wait(102.0)
    action = m.next(102.0, WALL + 5)
    assert isinstance(action, Replace)
    kept = lease("me", transitions=7, rv="11", renewed=micro_time(WALL + 5))
    assert action.lease == kept


def renewals(m: LeaseStateMachine, begun: float, booted: float, count: int = 6) -> list[float]:
    """When it renews, by the wall, on a machine that was booted then and whose timers are a little late."""
    now, times = begun - booted, list[float]()
    while len(times) < count:
        match m.next(now, now + booted):
            case Wait(until):
                now = until + 0.003
            case Get():
                m.found(lease(rv=str(len(times) + 1)), now)
            case Replace(renewed):
                times.append(now + booted)
                m.written(stored(renewed, str(len(times) + 1)), now + 0.1)
    return times


@pytest.mark.parametrize("begun", [0.0, 0.1, 0.25, 0.7, 1.0, 1.3, 1.9, 1.99])
@pytest.mark.parametrize("booted", [WALL - 1e6, WALL - 0.6])
def test_leases_of_a_node_are_renewed_at_the_same_moments_whenever_they_were_acquired(
    begun: float, booted: float
) -> None:
    ours = renewals(FitMachine(Claim("ns", "one", "me", TIMING), middle), WALL, booted)
    times = renewals(FitMachine(Claim("ns", "two", "you", TIMING), middle), WALL + begun, booted)
    pauses = [after - before for before, after in pairwise(times)]
    assert 0.1 * TIMING.retry_period <= pauses[0] <= TIMING.retry_period * (1 + RENEW_JITTER) + 0.01
    assert pauses[1:] == pytest.approx([TIMING.retry_period] * 4, abs=1e-5)
    assert (times[-1] - ours[-1] + 1.0) % TIMING.retry_period == pytest.approx(1.0, abs=1e-5)


def test_nodes_renew_at_moments_that_are_spread_as_their_starts_are() -> None:
    last = [
        renewals(FitMachine(Claim("ns", "one", "me", TIMING), middle), WALL, WALL - n / 5)[-1]
        for n in range(10)
    ]
    assert len({int(at % TIMING.retry_period * 5 + 0.5) % 10 for at in last}) == 10


def test_those_who_hold_a_lease_together_do_not_look_at_the_same_moment() -> None:
    looks = set[float]()
    for at in (0.0, 0.5, 1.0):
        draw = Draw(at)
        m = FitMachine(GroupClaim("ns", "lock", "me", TIMING), draw)
        m.next(100.0, WALL)
        m.found(lease(), 100.0)
        action = m.next(100.0, WALL)
        assert isinstance(action, Replace)
        m.written(stored(action.lease, "11"), 100.0)
        waiting = m.next(100.0, WALL)
        assert isinstance(waiting, Wait)
        looks.add(round(waiting.until, 6))
    assert looks == {101.8, 102.0, 102.2}


def test_what_has_changed_is_written_at_once_and_then_once_a_second() -> None:
    m = holding(at=100.0)
    written = []
    for tenth in range(30):
        m.renew_soon()
        if isinstance(action := m.next(100.0 + tenth / 10, WALL), Replace):
            written.append(tenth)
            m.renew_soon()  # too late for this request
            m.written(action.lease, 100.0 + tenth / 10)
    assert written == [0, 10, 20]
    assert isinstance(m.next(103.0, WALL), Replace)
    m.failed("timeout", 103.1)
    m.renew_soon()
    assert m.next(103.2, WALL) == Wait(103.75)


def test_the_right_ends_for_good_before_the_deadline() -> None:
    m = holding(at=100.0)
    now = 102.0
    while not isinstance(action := m.next(now, WALL), Done):
        if isinstance(action, Replace):
            now += action.timeout
            m.failed("timeout", now)
        elif isinstance(action, Wait):
            now = action.until
    assert now == 109.0
    assert (m.state, m.reason, m.deadline) == (State.LOST, "not renewed for 9s: timeout", 110.0)


def test_no_attempt_outlasts_the_right_it_serves() -> None:
    action = holding(at=100.0).next(107.5, WALL)
    assert isinstance(action, Replace)
    assert action.timeout == 1.5


def test_who_slept_through_the_deadline_does_not_renew() -> None:
    m = holding(at=100.0)
    assert m.next(500.0, WALL) == Done()
    assert m.state is State.LOST


def test_an_answer_that_came_too_late_does_not_revive_the_right() -> None:
    m = holding(at=100.0)
    action = m.next(102.0, WALL)
    assert isinstance(action, Replace)
    m.written(action.lease, 120.0)
    assert m.state is State.LOST
    assert m.next(120.0, WALL) == Done()


def test_a_conflict_with_somebody_who_left_us_the_lease_costs_one_read() -> None:
    m = holding()
    assert isinstance(m.next(102.0, WALL), Replace)
    m.rejected(102.1)
    assert m.state is State.CHECKING
    assert m.holds
    assert isinstance(m.next(102.1, WALL), Get)
    m.found(lease(rv="12"), 102.2)
    action = m.next(102.2, WALL)
    assert isinstance(action, Replace)
    assert action.lease.metadata.resource_version == "12"
    m.written(action.lease, 102.3)
    assert m.deadline == 112.2


@pytest.mark.parametrize(
    ("holder", "reason"), [("other", "held by 'other'"), ("", "held by nobody"), (None, "held by nobody")]
)
@pytest.mark.parametrize("how", ["conflict", "watch"])
def test_the_sight_of_another_holder_ends_the_right_now(holder: str | None, reason: str, how: str) -> None:
    m = holding()
    if how == "watch":
        m.observed(lease(holder, rv="12"), 102.0, deleted=False)
    else:
        assert isinstance(m.next(102.0, WALL), Replace)
        m.rejected(102.0)
        assert isinstance(m.next(102.0, WALL), Get)
        m.found(lease(holder, rv="12"), 102.0)
    assert m.state is State.LOST
    assert m.reason == f"the Lease is {reason}"
    assert m.next(102.0, WALL) == Done()


def test_news_older_than_the_last_answer_is_ignored() -> None:
    m = holding()
    m.observed(lease("other", rv="10"), 101.0, deleted=False)
    m.observed(lease(rv="10"), 101.0, deleted=True)
    assert m.state is State.HELD
    assert m.next(101.0, WALL) == Wait(102.0)


def test_news_of_the_own_lease_spare_the_next_renewal_its_conflict() -> None:
    m = holding()
    m.observed(lease(rv="12", transitions=9), 101.0, deleted=False)
    action = m.next(102.0, WALL)
    assert isinstance(action, Replace)
    assert (action.lease.metadata.resource_version, action.lease.spec.lease_transitions) == ("12", 9)


def test_only_news_that_change_what_there_is_to_do_are_worth_waking_up_for() -> None:
    m = holding()
    assert not m.observed(lease(rv="11"), 101.0, deleted=False)
    assert not m.observed(lease(rv="12"), 101.0, deleted=False)
    assert m.observed(lease(rv="13"), 101.0, deleted=True)
    m = holding()
    assert m.observed(lease("other", rv="12"), 101.0, deleted=False)
    m = waiting_for(shown(0))
    assert m.observed(shown(1), 2.0, deleted=False)
    assert not m.observed(shown(1), 2.0, deleted=False)
    assert m.observed(lease("", rv="12"), 2.0, deleted=False)


def test_a_burst_of_writes_by_others_does_not_end_the_right_before_its_time() -> None:
    m, now, burst_ends = holding(), 102.0, 105.0
    attempts = 0
    while m.deadline == 110.0:
        action = m.next(now, WALL)
        if isinstance(action, Wait):
            now = action.until
        elif isinstance(action, Get):
            m.found(lease(rv=f"{int(now * 1000)}"), now)
        else:
            assert isinstance(action, Replace)
            attempts += 1
            if now < burst_ends:
                m.rejected(now)
            else:
                m.written(stored(action.lease, f"{int(now * 1000) + 1}"), now)
        assert m.holds
    assert attempts <= 9  # the first conflict is answered at once, the others after a pause


def test_conflicts_without_end_end_the_right_when_its_time_is_up() -> None:
    m, now = holding(), 102.0
    while m.holds:
        action = m.next(now, WALL)
        if isinstance(action, Wait):
            now = action.until
        elif isinstance(action, Get):
            m.found(lease(rv=f"{int(now * 1000)}"), now)
        elif isinstance(action, Replace):
            m.rejected(now)
    assert (m.state, now) == (State.LOST, 109.0)
    assert m.reason == "not renewed for 9s: overtaken by somebody else's write"


@pytest.mark.parametrize("how", ["renewal", "conflict", "watch"])
def test_a_deleted_lease_is_created_again_at_once_as_it_was(how: str) -> None:
    m = holding()
    now = 101.0 if how == "watch" else 102.0
    if how == "watch":
        m.observed(lease(rv="12"), now, deleted=True)
    else:
        assert isinstance(m.next(now, WALL), Replace)
        if how == "conflict":
            m.rejected(now)
            assert isinstance(m.next(now, WALL), Get)
        m.found(None, now)
    assert m.holds
    action = m.next(now, WALL + 9)
    assert isinstance(action, Create)
    assert action.lease.metadata == ObjectMeta(name="lock", namespace="ns")
    assert (action.lease.spec.acquire_time, action.lease.spec.lease_transitions) == (NOW, 4)
    m.written(lease(rv="20"), now)
    assert m.state is State.HELD


def test_a_deleted_lease_that_somebody_else_created_first_ends_the_right() -> None:
    m = holding()
    m.observed(lease(rv="12"), 101.0, deleted=True)
    assert isinstance(m.next(101.0, WALL), Create)
    m.rejected(101.0)
    assert isinstance(m.next(101.0, WALL), Get)
    m.found(lease("other", rv="13"), 101.0)
    assert m.state is State.LOST


def test_a_restored_lease_that_still_names_us_is_held_and_one_that_does_not_is_lost() -> None:
    for holder, state in (("me", State.HELD), ("other", State.LOST)):
        m = holding()
        assert isinstance(m.next(102.0, WALL), Replace)
        m.rejected(102.0)
        assert isinstance(m.next(102.0, WALL), Get)
        m.found(lease(holder, rv="2"), 102.0)  # a very old version
        assert m.state is state
        assert m.rewinds == 1


def reads(m: LeaseStateMachine, found: Lease | None, now: float) -> None:
    assert isinstance(m.next(now, WALL), Get)
    m.found(found, now)


@pytest.mark.parametrize(("silence", "taken"), [(TIMING.renew_deadline, 115.0), (10.1, 128.3)])
def test_a_candidate_that_got_no_answer_for_longer_than_the_right_lasts_counts_anew(
    silence: float, taken: float
) -> None:
    """The holder may have renewed the Lease, and a restore have put the same record there again."""
    m = machine()
    for now in (100.0, 103.2, 103.2 + silence):
        reads(m, lease("other"), now)
    assert until_it_writes(m, lambda _: lease("other"), now)[0] == pytest.approx(taken)


def test_slow_answers_are_no_silence_after_which_a_candidate_would_count_anew_for_ever() -> None:
    m, now, slow = machine(lambda low, high: high), 100.0, 4.0
    while not isinstance(action := m.next(now, WALL), Replace):
        if isinstance(action, Wait):
            now = action.until
            continue
        assert isinstance(action, Get)
        now += min(slow, action.timeout)
        if slow <= action.timeout:
            m.found(lease("other"), now)
        else:
            m.failed("no response", now)
        assert now < 130.0


def test_a_candidate_counts_anew_after_a_restore_that_has_put_the_same_record_there_again() -> None:
    m = machine()
    reads(m, lease("other", rv="15"), 100.0)
    reads(m, lease("other", rv="12"), 103.2)
    assert until_it_writes(m, lambda _: lease("other", rv="12"), 103.2)[0] == pytest.approx(118.2)


def test_a_candidate_that_got_no_answer_waits_anew_for_the_holder_of_a_lease_that_was_deleted() -> None:
    m = machine()
    reads(m, lease("other"), 100.0)
    for now in (103.2, 114.0):
        reads(m, None, now)
    assert until_it_writes(m, lambda _: None, now)[0] == pytest.approx(129.0)


def test_a_lease_whose_versions_only_grow_tells_of_no_restore() -> None:
    m = holding()
    m.observed(lease(rv="15"), 101.0, deleted=True)
    action = m.next(101.0, WALL)
    assert isinstance(action, Create)
    m.written(stored(action.lease, "16"), 101.0)
    assert m.rewinds == 0


def test_a_lease_that_is_read_twice_as_it_was_tells_of_no_restore() -> None:
    m = machine()
    for now in (100.0, 102.0):
        m.next(now, WALL)
        m.found(lease("other", rv="15"), now)
    assert m.rewinds == 0


def test_a_lease_that_is_created_at_an_earlier_version_than_it_had_tells_of_a_restore() -> None:
    m = holding()
    m.next(102.0, WALL)
    m.found(None, 102.0)
    action = m.next(102.0, WALL)
    assert isinstance(action, Create)
    m.written(stored(action.lease, "9"), 102.0)
    assert m.rewinds == 1


@pytest.mark.parametrize("answers", [True, False])
def test_an_unfit_process_does_not_renew_and_loses_its_right_with_the_cause(answers: bool) -> None:
    m, now = asking(), 100.0
    while not isinstance(action := m.next(now, WALL), Done):
        match action:
            case Wait(until):
                now = until
            case Ask(timeout):
                now += 0.0 if answers else timeout
                m.told("a worker hangs", now) if answers else m.unanswered(now)
            case _:
                raise AssertionError(action)
    assert now == 109.0
    assert m.reason.startswith("not renewed for 9s: ")
    assert (
        m.reason.endswith("a worker hangs")
        or "the event loop is blocked: it has not answered for" in m.reason
    )


def test_a_process_that_recovers_renews_at_once() -> None:
    m = asking()
    assert m.next(102.0, WALL) == Ask(BLOCKED_AFTER)
    m.told("sick", 102.0)
    assert m.unfit == "sick"
    assert m.next(102.0, WALL) == Wait(102.0 + UNFIT_POLL)
    assert m.next(102.2, WALL) == Ask(BLOCKED_AFTER)
    m.told(None, 102.3)
    assert isinstance(m.next(102.3, WALL), Replace)
    assert m.unfit == ""


def test_a_process_is_asked_before_each_renewal_and_its_answer_counts_once() -> None:
    m = asking()
    m.next(102.0, WALL)
    m.told(None, 102.0)
    assert isinstance(m.next(102.0, WALL), Replace)
    m.failed("refused", 102.1)
    assert m.next(102.75, WALL) == Ask(BLOCKED_AFTER)
    m.told(None, 102.75)
    m.observed(lease(rv="12"), 102.75, deleted=True)
    assert isinstance(m.next(102.75, WALL), Create)
    m.rejected(102.8)
    assert m.next(102.8, WALL) == Ask(BLOCKED_AFTER)


def test_an_unfit_process_may_still_acquire() -> None:
    m = LeaseStateMachine(Claim("ns", "lock", "me", TIMING), middle)
    assert isinstance(m.next(0.0, WALL), Get)
    m.found(None, 0.0)
    assert isinstance(m.next(0.0, WALL), Create)


# -- slow and missing answers


HUNG = 1000.0
FIVE_MINUTES = 300.0


Course = Callable[[float], float]
"""How long a write takes that is sent at this time."""


def courses(*seconds: float) -> Callable[[], Course]:
    """Each write takes the next of these, in turns."""

    def course() -> Course:
        turns = cycle(seconds)
        return lambda now: next(turns)

    return course


def since(start: float, seconds: float) -> Callable[[], Course]:
    return lambda: lambda now: seconds if now >= start else 0.1


SLOW = {
    "0.1 s": (courses(0.1), None),
    "1.9 s": (courses(1.9), None),
    "2.1 s": (courses(2.1), None),
    "3 s": (courses(3), None),
    "4 s": (courses(4), None),
    "4.2 s": (courses(4.2), None),
    "3 s, from now on": (since(50, 3), None),
    "4.2 s, from now on": (since(50, 4.2), None),
    "8 s once, among quick ones": (courses(*[0.1] * 9, 8), None),
    "8 s once, among those of 1.9 s": (courses(*[1.9] * 9, 8), None),
    "quick and slow in turns": (courses(0.1, 4.2), None),
    "slower and slower, and quick again": (courses(*[n / 10 for n in range(1, 43)]), None),
    "a dead connection now and then": (courses(*[0.1] * 9, HUNG), None),
    "a dead connection, and then another": (courses(*[0.1] * 9, HUNG, HUNG), None),
    "a dead connection, and then a slow answer": (courses(*[0.1] * 9, HUNG, 4.2), None),
    "a dead connection among answers of 1.9 s": (courses(*[1.9] * 9, HUNG), None),
    "5 s, from now on": (since(50, 5), 9.0),
    "8 s, from now on": (since(50, 8), 9.0),
    "no answer, from now on": (since(50, HUNG), 9.0),
}


def lasts(m: LeaseStateMachine, takes: Course) -> tuple[float, float]:
    """Plays five minutes of a holder. The API server drops a write whose client has given it up. Returns when the
    right ended, and when the last renewal that was answered was sent.
    """
    now, renewed, version = 100.0, 100.0, 11
    while now < 100.0 + FIVE_MINUTES and not isinstance(action := m.next(now, WALL), Done):
        if isinstance(action, Wait):
            now = action.until
            continue
        sent, seconds = now, takes(now - 100.0)
        assert isinstance(action, Replace)
        assert sent + action.timeout <= m.work_until
        now += min(seconds, action.timeout)
        if seconds < action.timeout:
            version, renewed = version + 1, sent
            m.written(stored(action.lease, str(version)), now)
        else:
            m.failed("no answer", now)
    return now, renewed


@pytest.mark.parametrize(("course", "ends"), SLOW.values(), ids=SLOW)
@pytest.mark.parametrize("jitter", ["low", "high"])
def test_a_holder_keeps_its_lease_as_long_as_a_write_can_be_answered_in_time(
    course: Callable[[], Course], ends: float | None, jitter: str
) -> None:
    m = FitMachine(Claim("ns", "lock", "me", TIMING), min if jitter == "low" else max)
    reads(m, lease(""), 100.0)
    action = m.next(100.0, WALL)
    assert isinstance(action, Replace)
    m.written(stored(action.lease, "11"), 100.0)
    now, renewed = lasts(m, course())
    if ends is None:
        assert m.holds
    else:
        assert (m.state, now - renewed) == (State.LOST, pytest.approx(ends))
        assert m.reason == "not renewed for 9s: no answer"


@pytest.mark.parametrize("seconds", [0.1, 3.0, 4.2, 8.0])
def test_a_candidate_takes_a_lease_however_slow_writes_are_as_long_as_its_right_outlasts_them(
    seconds: float,
) -> None:
    m, now, attempts = machine(), 0.0, 0
    while not m.holds:
        action = m.next(now, WALL)
        if isinstance(action, Wait):
            now = action.until
        elif isinstance(action, Get):
            m.found(lease(""), now)
        else:
            assert isinstance(action, Replace)
            sent, attempts = now, attempts + 1
            now += min(seconds, action.timeout)
            if seconds < action.timeout:
                m.written(stored(action.lease, "11"), now)
            else:
                m.failed("no answer", now)
    assert m.deadline == sent + 10.0
    assert attempts <= 3


def test_a_release_that_is_slow_is_waited_for_as_long_as_the_right_lasts() -> None:
    m = holding(at=100.0)
    m.release(101.0)
    assert isinstance(m.next(101.0, WALL), Replace)
    m.failed("no answer", 103.0)
    reads(m, lease(rv="11"), 103.0)
    action = m.next(103.0, WALL)
    assert isinstance(action, Replace)
    m.written(stored(action.lease, "12"), 107.2)
    assert m.released


def test_members_of_a_group_keep_its_lease_when_each_write_takes_almost_three_seconds() -> None:
    store, version = lease("", rv="11"), 11
    members = [FitMachine(GroupClaim("ns", "lock", "group", TIMING), middle) for _ in range(3)]
    events: list[tuple[float, int, Replace | None]] = [(100.0 + 0.7 * n, n, None) for n in range(3)]
    while (event := heapq.heappop(events))[0] < 400.0:
        now, n, sent = event
        m, seconds = members[n], 0.1 if now < 110.0 else 2.8
        if sent and sent.timeout < seconds:
            m.failed("no answer", now)
        elif sent and sent.lease.metadata.resource_version != store.metadata.resource_version:
            m.rejected(now)
        elif sent:
            store = stored(sent.lease, str(version := version + 1))
            m.written(store, now)
        while isinstance(action := m.next(now, WALL + now), Get):
            m.found(store, now)
        assert isinstance(action, Wait | Replace), (n, now, m.reason)
        if isinstance(action, Wait):
            heapq.heappush(events, (action.until, n, None))
        else:
            heapq.heappush(events, (now + min(seconds, action.timeout), n, action))
    assert all(m.holds for m in members)


# -- the end


def test_release_writes_the_empty_holder_and_leaves_the_transitions() -> None:
    m = holding()
    m.observed(lease(rv="12", transitions=7), 101.0, deleted=False)
    m.release(101.0)
    assert not m.holds
    action = m.next(101.0, WALL + 60)
    assert isinstance(action, Replace)
    then = micro_time(WALL + 60)
    released = lease("", rv="12", transitions=7, duration=1, renewed=then)
    assert action.lease == replace(released, spec=replace(released.spec, acquire_time=then))
    m.written(action.lease, 101.1)
    assert (m.released, m.holder, m.next(101.1, WALL)) == (True, "", Done())


def _conflict_then_ours(m: LeaseStateMachine) -> None:
    m.rejected(101.0)
    assert isinstance(m.next(101.0, WALL), Get)
    m.found(lease(rv="12"), 101.0)
    action = m.next(101.0, WALL)
    assert isinstance(action, Replace)
    assert action.lease.spec.holder_identity == ""
    m.written(action.lease, 101.0)


def _conflict_then_anothers(m: LeaseStateMachine) -> None:
    m.rejected(101.0)
    assert isinstance(m.next(101.0, WALL), Get)
    m.found(lease("other", rv="12"), 101.0)


def _gone(m: LeaseStateMachine) -> None:
    m.found(None, 101.0)


def _unreachable(m: LeaseStateMachine) -> None:
    now = 101.0
    m.failed("unreachable", now)
    while not isinstance(action := m.next(now, WALL), Done):
        if isinstance(action, Get | Replace):
            m.failed("unreachable", now)
        elif isinstance(action, Wait):
            now = action.until
    assert now == 110.0


@pytest.mark.parametrize(
    ("course", "released"),
    [(_conflict_then_ours, True), (_conflict_then_anothers, False), (_gone, False), (_unreachable, False)],
)
def test_release_ends_whatever_the_server_says(
    course: Callable[[LeaseStateMachine], None], released: bool
) -> None:
    m = holding()
    m.release(101.0)
    assert isinstance(m.next(101.0, WALL), Replace)
    course(m)
    assert m.state is State.ENDED
    assert m.released is released


def test_releasing_a_lease_that_is_known_to_be_gone_writes_nothing() -> None:
    m = holding()
    m.observed(lease(rv="12"), 101.0, deleted=True)
    m.release(101.0)
    assert m.next(101.0, WALL) == Done()


def test_a_renewal_answered_after_the_request_to_release_is_not_taken_for_the_release() -> None:
    m = holding()
    action = m.next(102.0, WALL)
    assert isinstance(action, Replace)
    m.release(102.1)
    m.written(action.lease, 102.2)
    assert not m.released
    action = m.next(102.2, WALL)
    assert isinstance(action, Replace)
    assert action.lease.spec.holder_identity == ""


@pytest.mark.parametrize("answer", ["nothing", "absent", "another's"])
def test_stopping_before_the_lease_was_acquired_writes_nothing(answer: str) -> None:
    m = machine()
    assert isinstance(m.next(0.0, WALL), Get)
    if answer != "nothing":
        m.found(lease("other") if answer == "another's" else None, 0.0)
    m.release(0.0)
    m.found(None, 0.1)
    assert m.next(0.1, WALL) == Done()
    assert m.state is State.ENDED
    assert not m.released


@pytest.mark.parametrize("answers", ["written", "timeout", "timeout, and so is the next read"])
def test_a_take_over_on_its_way_when_the_process_stops_is_undone(answers: str) -> None:
    m = machine()
    m.next(0.0, WALL)
    m.found(None, 0.0)
    assert isinstance(m.next(0.0, WALL), Create)
    now = 0.2
    if answers == "written":
        m.release(0.1)
        m.written(lease(rv="10"), now)
    else:
        if "and" in answers:
            m.failed("timeout", 2.5)
            now = 10.0
            assert isinstance(m.next(now, WALL), Get)
        m.release(now)
        m.failed("timeout", now)
        now += 1.5
        assert isinstance(m.next(now, WALL), Get)
        m.found(lease(rv="10"), now)
    action = m.next(now, WALL)
    assert isinstance(action, Replace)
    assert action.lease.spec.holder_identity == ""
    m.written(action.lease, now)
    assert (m.released, m.state) == (True, State.ENDED)


def test_an_abandoned_lease_is_not_written_again() -> None:
    m = holding()
    m.abandon("because")
    assert m.next(103.0, WALL) == Done()
    assert (m.state, m.reason, m.released) == (State.ENDED, "because", False)


def test_a_driver_that_breaks_down_ends_the_right() -> None:
    m = holding()
    m.break_down("crashed")
    assert (m.state, m.reason) == (State.LOST, "crashed")
    m = machine()
    m.break_down("crashed")
    assert m.state is State.ENDED


@pytest.mark.parametrize("end", ["lost", "ended"])
def test_nothing_revives_a_right_that_is_over(end: str) -> None:
    m = holding()
    if end == "lost":
        m.observed(lease("other", rv="12"), 101.0, deleted=False)
    else:
        m.abandon("")
    state = m.state
    m.release(101.0)
    m.abandon("")
    m.found(lease(rv="13"), 101.0)
    m.found(None, 101.0)
    m.written(lease(rv="13"), 101.0)
    m.rejected(101.0)
    m.failed("x", 101.0)
    m.observed(lease(rv="14"), 101.0, deleted=False)
    m.break_down("")
    assert m.state is state
    assert m.next(101.0, WALL) == Done()
