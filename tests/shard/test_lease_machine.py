"""The shard-lease machine against tables: record, observed time, action, record after (reliability 1.6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.times import micro_time
from kubeshard.shard.identity import ShardIdentity
from kubeshard.shard.incarnation import INCARNATION_ANNOTATION, Incarnation
from kubeshard.shard.lease_machine import (
    UNHEALTHY_POLL,
    Create,
    Done,
    Get,
    LeaseMachine,
    Put,
    State,
    Takeover,
    Wait,
)
from kubeshard.shard.lease_record import RETURNING_ANNOTATION
from kubeshard.shard.timing import LeaseTiming
from kubeshard.sharding.names import RING_LABEL, SHARDER_IDENTITY, STATE_LABEL

ME = ShardIdentity("ring", "shard-0", "ns", Incarnation("pod-1", "boot", "x"))
MINE = str(ME.incarnation)
RIVAL = "pod-2/boot/y"
PREDECESSOR = "pod-1/boot/w"
TIMING = LeaseTiming()
WALL = 1_700_000_000.0
LONG_AGO = micro_time(WALL - 1000)
NOW = micro_time(WALL)


def lease(
    holder: str | None = ME.name,
    incarnation: str = MINE,
    *,
    rv: str = "10",
    duration: int | None = 15,
    transitions: int | None = 3,
    renewed: str = LONG_AGO,
) -> Lease:
    return Lease(
        metadata=ObjectMeta(
            name=ME.name,
            namespace=ME.namespace,
            uid="u",
            resource_version=rv,
            labels={STATE_LABEL: "ready", "team": "a"},
            annotations={INCARNATION_ANNOTATION: incarnation, "note": "b"} if incarnation else {"note": "b"},
        ),
        spec=LeaseSpec(
            holder_identity=holder,
            lease_duration_seconds=duration,
            acquire_time=LONG_AGO,
            renew_time=renewed,
            lease_transitions=transitions,
        ),
    )


def machine(takeover: Takeover = Takeover.AT_ONCE) -> LeaseMachine:
    return LeaseMachine(ME, TIMING, lambda low, high: (low + high) / 2, takeover)


RETURNING = {RETURNING_ANNOTATION: "true"}


def versioned(lease: Lease, version: str) -> Lease:
    """As the server stored it."""
    return replace(lease, metadata=replace(lease.metadata, resource_version=version))


def held(at: float = 100.0) -> LeaseMachine:
    """A machine whose lease was created at `at`, answered at once."""
    m = machine()
    assert isinstance(m.next(at, WALL), Get)
    m.found(None, at)
    action = m.next(at, WALL)
    assert isinstance(action, Create)
    m.written(replace(action.lease, metadata=replace(action.lease.metadata, resource_version="10")), at)
    assert m.state is State.HELD
    return m


def test_an_absent_lease_is_created_with_ring_label_and_incarnation() -> None:
    m = machine()
    assert m.next(0.0, WALL) == Get(timeout=2.5)
    m.found(None, 0.0)
    action = m.next(0.0, WALL)
    assert isinstance(action, Create)
    assert action.lease == Lease(
        metadata=ObjectMeta(
            name="shard-0",
            namespace="ns",
            labels={RING_LABEL: "ring"},
            annotations={INCARNATION_ANNOTATION: MINE, RETURNING_ANNOTATION: "true"},
        ),
        spec=LeaseSpec(
            holder_identity="shard-0",
            lease_duration_seconds=15,
            acquire_time=NOW,
            renew_time=NOW,
            lease_transitions=0,
        ),
    )


TAKEN = "taken"
ACQUIRE_TABLE = [
    # holder, incarnation on the lease, takeover, seconds of waiting, acquire time kept, transitions after
    ("", "", Takeover.AT_ONCE, 0, False, 4),
    (None, "", Takeover.AT_ONCE, 0, False, 4),
    ("", RIVAL, Takeover.AT_ONCE, 0, False, 4),
    ("", "", Takeover.AFTER_RECORD, 0, False, 4),
    (SHARDER_IDENTITY, RIVAL, Takeover.AT_ONCE, 0, False, 4),
    (SHARDER_IDENTITY, RIVAL, Takeover.AFTER_RECORD, 15, False, 4),
    (ME.name, "", Takeover.AT_ONCE, 0, True, 3),
    (ME.name, "", Takeover.AFTER_RECORD, 0, True, 3),
    (ME.name, MINE, Takeover.AT_ONCE, 0, True, 3),
    (ME.name, PREDECESSOR, Takeover.AT_ONCE, 0, True, 3),
    (ME.name, RIVAL, Takeover.AT_ONCE, 30, True, 3),
    (ME.name, RIVAL, Takeover.AFTER_RECORD, 30, True, 3),
]


@pytest.mark.parametrize(("holder", "incarnation", "takeover", "wait", "kept", "transitions"), ACQUIRE_TABLE)
def test_a_lease_is_taken_when_nobody_else_can_act_under_the_name(
    holder: str | None, incarnation: str, takeover: Takeover, wait: float, kept: bool, transitions: int
) -> None:
    m = machine(takeover)
    record = lease(holder, incarnation)
    now = 50.0
    action = m.next(now, WALL)
    while not isinstance(action, Put):
        if isinstance(action, Get):
            m.found(record, now)
        else:
            assert isinstance(action, Wait)
            assert m.state is State.WAITING
            assert not m.holds
            now = action.until
        action = m.next(now, WALL)
    assert now == 50.0 + wait
    assert action.lease == Lease(
        metadata=replace(
            record.metadata,
            labels={STATE_LABEL: "ready", "team": "a", RING_LABEL: "ring"},
            annotations={"note": "b", INCARNATION_ANNOTATION: MINE}
            | ({} if holder == ME.name else {RETURNING_ANNOTATION: "true"}),
        ),
        spec=LeaseSpec(
            holder_identity=ME.name,
            lease_duration_seconds=15,
            acquire_time=LONG_AGO if kept else NOW,
            renew_time=NOW,
            lease_transitions=transitions,
        ),
    )


@pytest.mark.regression
def test_a_lease_that_was_given_up_says_so_until_its_objects_are_reclaimed() -> None:
    m = machine()
    m.next(0.0, WALL)
    m.found(None, 0.0)
    action = m.next(0.0, WALL)
    assert isinstance(action, Create)
    m.written(versioned(action.lease, "10"), 0.0)
    for reclaimed in (False, True):
        if reclaimed:
            m.reclaimed()
        action = m.next(m.next(0.0, WALL).until, WALL)
        assert isinstance(action, Put)
        assert (RETURNING_ANNOTATION in (action.lease.metadata.annotations or {})) is not reclaimed
        m.written(versioned(action.lease, "11"), 2.0)


@pytest.mark.regression
def test_who_succeeds_a_process_that_had_not_reclaimed_its_objects_has_to_do_it() -> None:
    m = machine()
    record = lease(ME.name, PREDECESSOR)
    record = replace(
        record, metadata=replace(record.metadata, annotations={**record.metadata.annotations, **RETURNING})
    )
    m.next(0.0, WALL)
    m.found(record, 0.0)
    action = m.next(0.0, WALL)
    assert isinstance(action, Put)
    m.written(versioned(action.lease, "11"), 0.0)
    assert m.returning


@pytest.mark.regression
def test_a_lease_that_a_sharder_took_is_left_to_it_for_the_records_time_unless_asked_otherwise() -> None:
    m = LeaseMachine(ME, TIMING, lambda low, high: low)
    m.next(0.0, WALL)
    m.found(lease(SHARDER_IDENTITY, RIVAL), 0.0)
    assert m.state is State.WAITING


def test_every_change_of_a_rivals_record_starts_the_waiting_anew() -> None:
    m = machine()
    record, now, changes = lease(ME.name, RIVAL), 0.0, 0
    for _ in range(100):
        action = m.next(now, WALL)
        if isinstance(action, Put):
            break
        if isinstance(action, Get):
            if now >= 20.0 * (changes + 1) and changes < 2:
                changes += 1
                record = lease(ME.name, RIVAL, rv=str(10 + changes), renewed=micro_time(WALL + changes))
                last_change = now
            m.found(record, now)
        elif isinstance(action, Wait):
            now = action.until
    assert changes == 2
    assert now == last_change + 30.0


def test_a_change_of_the_state_label_alone_does_not_prolong_the_waiting() -> None:
    m = machine()
    now, rv = 0.0, 10
    while not isinstance(action := m.next(now, WALL), Put):
        if isinstance(action, Get):
            rv += 1
            m.found(lease(ME.name, RIVAL, rv=str(rv)), now)
        elif isinstance(action, Wait):
            now = action.until
    assert now == 30.0


@pytest.mark.parametrize(("written", "waited"), [(2**31 - 1, 600.0), (1, 6.0), (None, 30.0)])
def test_a_forged_duration_cannot_stretch_or_spare_the_waiting(written: int | None, waited: float) -> None:
    m = machine()
    now = 0.0
    while not isinstance(action := m.next(now, WALL), Put):
        if isinstance(action, Get):
            m.found(lease(ME.name, RIVAL, duration=written), now)
        elif isinstance(action, Wait):
            now = action.until
    assert now == waited


@pytest.mark.parametrize("takeover", list(Takeover))
def test_a_lease_of_somebody_else_is_refused_with_his_name(takeover: Takeover) -> None:
    m = machine(takeover)
    m.next(0.0, WALL)
    m.found(lease("leader-election-of-another-team", ""), 0.0)
    assert m.state is State.REFUSED
    assert m.next(0.0, WALL) == Done()
    assert "ns/shard-0 is held by 'leader-election-of-another-team'" in m.reason


@pytest.mark.parametrize("step", ["get", "create"])
def test_acquiring_goes_on_after_failures_and_lost_races(step: str) -> None:
    m = machine()
    m.next(0.0, WALL)
    if step == "create":
        m.found(None, 0.0)
        assert isinstance(m.next(0.0, WALL), Create)
        m.rejected(0.0)
    else:
        m.failed("connection refused", 0.0)
        assert m.next(0.0, WALL) == Wait(0.75)
    assert isinstance(m.next(1.0, WALL), Get)
    m.found(lease(), 1.0)
    assert isinstance(m.next(1.0, WALL), Put)


def test_an_unanswered_create_that_took_effect_is_recognised_as_ours() -> None:
    m = machine()
    m.next(0.0, WALL)
    m.found(None, 0.0)
    assert isinstance(m.next(0.0, WALL), Create)
    m.failed("timeout", 2.5)
    assert isinstance(m.next(4.0, WALL), Get)
    m.found(lease(ME.name, MINE), 4.0)
    action = m.next(4.0, WALL)
    assert isinstance(action, Put)
    m.written(action.lease, 4.1)
    assert m.state is State.HELD
    assert m.deadline == 14.0


def test_the_deadline_counts_from_the_start_of_the_last_renewal_that_succeeded() -> None:
    m = held(at=100.0)
    assert m.deadline == 110.0
    assert m.next(101.0, WALL) == Wait(102.0)
    assert isinstance(m.next(102.0, WALL), Put)
    m.failed("timeout", 104.5)
    assert m.deadline == 110.0
    assert m.next(104.5, WALL) == Wait(105.25)
    action = m.next(105.25, WALL)
    assert isinstance(action, Put)
    m.written(action.lease, 107.0)
    assert m.deadline == 115.25


def test_renewals_keep_what_others_wrote_and_come_every_interval_with_jitter() -> None:
    m = LeaseMachine(ME, TIMING, lambda low, high: high)
    m.next(0.0, WALL)
    m.found(lease(), 0.0)
    action = m.next(0.0, WALL)
    assert isinstance(action, Put)
    m.written(action.lease, 0.1)
    assert m.next(0.1, WALL) == Wait(2.2)
    action = m.next(2.2, WALL + 2)
    assert isinstance(action, Put)
    assert action.lease.metadata.labels == {STATE_LABEL: "ready", "team": "a", RING_LABEL: "ring"}
    assert action.lease.spec.renew_time == micro_time(WALL + 2)
    assert action.lease.spec.acquire_time == LONG_AGO


def test_the_right_to_work_ends_for_good_before_the_deadline() -> None:
    m = held(at=100.0)
    now = 102.0
    while not isinstance(action := m.next(now, WALL), Done):
        if isinstance(action, Put):
            now += action.timeout
            m.failed("timeout", now)
        elif isinstance(action, Wait):
            now = action.until
    assert now == 109.0
    assert m.state is State.LOST
    assert m.reason == "not renewed for 9s: timeout"
    m.written(lease(rv="99"), 109.0)
    assert m.state is State.LOST
    assert m.deadline == 110.0
    m.found(lease(rv="99"), 109.0)
    assert m.state is State.LOST


def test_no_attempt_outlasts_the_right_it_serves() -> None:
    m = held(at=100.0)
    assert (m.begin_until, m.work_until) == (108.0, 109.0)
    action = m.next(107.5, WALL)
    assert isinstance(action, Put)
    assert action.timeout == 1.5


def test_an_answer_that_came_too_late_does_not_revive_the_right_to_work() -> None:
    m = held(at=100.0)
    action = m.next(102.0, WALL)
    assert isinstance(action, Put)
    m.written(action.lease, 120.0)
    assert m.next(120.0, WALL) == Done()
    assert m.state is State.LOST


def test_a_conflict_with_a_change_of_the_state_label_costs_one_read() -> None:
    m = held()
    assert isinstance(m.next(102.0, WALL), Put)
    m.rejected(102.1)
    assert m.state is State.CHECKING
    assert m.holds
    assert isinstance(m.next(102.1, WALL), Get)
    m.found(lease(rv="11"), 102.2)
    action = m.next(102.2, WALL)
    assert isinstance(action, Put)
    assert action.lease.metadata.resource_version == "11"
    m.written(action.lease, 102.3)
    assert m.deadline == 112.2


FOREIGN = [
    (lease(SHARDER_IDENTITY, MINE, rv="11"), "the lease is held by 'shardlease-controller'"),
    (lease("", MINE, rv="11"), "the lease is held by 'nobody'"),
    (lease(None, MINE, rv="11"), "the lease is held by 'nobody'"),
    (lease("somebody", MINE, rv="11"), "the lease is held by 'somebody'"),
    (lease(ME.name, RIVAL, rv="11"), f"another process ({RIVAL}) holds the lease under this shard's name"),
    (lease(ME.name, PREDECESSOR, rv="11"), f"another process ({PREDECESSOR}) holds the lease"),
]


@pytest.mark.parametrize(("theirs", "reason"), FOREIGN)
@pytest.mark.parametrize("how", ["conflict", "watch"])
def test_the_sight_of_a_foreign_holder_or_incarnation_ends_the_right_to_work_now(
    theirs: Lease, reason: str, how: str
) -> None:
    m = held()
    if how == "watch":
        m.observed(theirs, 101.0)
    else:
        assert isinstance(m.next(102.0, WALL), Put)
        m.rejected(102.0)
        assert isinstance(m.next(102.0, WALL), Get)
        m.found(theirs, 102.0)
    assert m.state is State.LOST
    assert m.reason.startswith(reason)
    assert m.next(102.0, WALL) == Done()


def test_an_incarnation_taken_off_by_hand_is_no_rival_and_is_written_again() -> None:
    m = held()
    m.observed(lease(ME.name, "", rv="11"), 101.0)
    assert m.state is State.HELD
    action = m.next(102.0, WALL)
    assert isinstance(action, Put)
    assert action.lease.metadata.annotation(INCARNATION_ANNOTATION) == MINE


def test_news_older_than_the_last_answer_is_ignored() -> None:
    m = held()
    m.observed(lease(SHARDER_IDENTITY, "", rv="9"), 101.0)
    assert m.state is State.HELD
    m.observed(lease(rv="9"), 101.0, deleted=True)
    assert m.next(101.0, WALL) == Wait(102.0)


def test_a_chain_of_conflicts_ends_the_right_to_work() -> None:
    m = held()
    rv = 10
    for _ in range(TIMING.max_conflicts):
        assert m.holds
        assert isinstance(m.next(102.0, WALL), Put)
        m.rejected(102.0)
        if m.holds:
            assert isinstance(m.next(102.0, WALL), Get)
            rv += 1
            m.found(lease(rv=str(rv)), 102.0)
    assert m.state is State.LOST
    assert m.reason == "5 renewals in a row were overtaken by somebody else's write"


@pytest.mark.parametrize("how", ["renewal", "watch"])
def test_a_deleted_lease_is_created_again_by_the_same_incarnation(how: str) -> None:
    m = held()
    if how == "watch":
        m.observed(lease(rv="12"), 101.0, deleted=True)
        now = 101.0
    else:
        assert isinstance(m.next(102.0, WALL), Put)
        m.found(None, 102.0)
        now = 102.0
    assert m.holds
    action = m.next(now, WALL)
    assert isinstance(action, Create)
    assert action.lease.metadata.annotation(INCARNATION_ANNOTATION) == MINE
    assert action.lease.metadata.resource_version == ""
    m.written(lease(rv="20"), now)
    assert m.state is State.HELD


def test_a_deleted_lease_that_a_sharder_created_first_ends_the_right_to_work() -> None:
    m = held()
    m.observed(lease(rv="12"), 101.0, deleted=True)
    assert isinstance(m.next(101.0, WALL), Create)
    m.rejected(101.0)
    assert isinstance(m.next(101.0, WALL), Get)
    m.found(lease(SHARDER_IDENTITY, "", rv="13"), 101.0)
    assert m.state is State.LOST


def test_an_unhealthy_process_does_not_renew_and_loses_its_right_with_the_cause() -> None:
    m = held(at=100.0)
    now, puts = 100.0, 0
    while not isinstance(action := m.next(now, WALL, "event loop blocked for 3.0s"), Done):
        assert isinstance(action, Wait)
        now = action.until
    assert puts == 0
    assert now == 109.0
    assert m.reason == "not renewed for 9s: event loop blocked for 3.0s"


def test_a_process_that_recovers_renews_at_once() -> None:
    m = held(at=100.0)
    assert m.next(102.0, WALL, "sick") == Wait(102.0 + UNHEALTHY_POLL)
    assert isinstance(m.next(102.2, WALL), Put)


def test_release_writes_the_empty_holder_and_leaves_the_transitions() -> None:
    m = held()
    m.observed(lease(rv="11", transitions=7), 101.0)
    m.release(101.0)
    assert not m.holds
    action = m.next(101.0, WALL)
    assert isinstance(action, Put)
    assert action.lease.spec == LeaseSpec(
        holder_identity="", lease_duration_seconds=1, acquire_time=NOW, renew_time=NOW, lease_transitions=7
    )
    assert action.lease.metadata.label(RING_LABEL) == "ring"
    assert action.lease.metadata.label(STATE_LABEL) == "ready"
    m.written(action.lease, 101.1)
    assert m.released
    assert m.next(101.1, WALL) == Done()


def _conflict_then_ours(m: LeaseMachine) -> None:
    m.rejected(101.0)
    assert isinstance(m.next(101.0, WALL), Get)
    m.found(lease(rv="12"), 101.0)
    action = m.next(101.0, WALL)
    assert isinstance(action, Put)
    assert action.lease.spec.holder_identity == ""
    m.written(action.lease, 101.0)


def _conflict_then_foreign(m: LeaseMachine) -> None:
    m.rejected(101.0)
    assert isinstance(m.next(101.0, WALL), Get)
    m.found(lease(SHARDER_IDENTITY, rv="12"), 101.0)


def _gone(m: LeaseMachine) -> None:
    m.found(None, 101.0)


def _unreachable(m: LeaseMachine) -> None:
    now = 101.0
    m.failed("unreachable", now)
    while not isinstance(action := m.next(now, WALL), Done):
        if isinstance(action, (Get, Put)):
            m.failed("unreachable", now)
        elif isinstance(action, Wait):
            now = action.until
    assert now == 110.0


@pytest.mark.parametrize(
    ("course", "released"),
    [
        (_conflict_then_ours, True),
        (_conflict_then_foreign, False),
        (_gone, False),
        (_unreachable, False),
    ],
)
def test_release_ends_whatever_the_server_says(
    course: Callable[[LeaseMachine], None], released: bool
) -> None:
    m = held()
    m.release(101.0)
    assert isinstance(m.next(101.0, WALL), Put)
    course(m)
    assert m.state is State.ENDED
    assert m.released is released


def test_a_renewal_answered_after_the_request_to_release_is_not_taken_for_the_release() -> None:
    m = held()
    action = m.next(102.0, WALL)
    assert isinstance(action, Put)
    m.release(102.1)
    m.written(action.lease, 102.2)
    assert not m.released
    action = m.next(102.2, WALL)
    assert isinstance(action, Put)
    assert action.lease.spec.holder_identity == ""


def test_stopping_before_the_lease_was_acquired_writes_nothing() -> None:
    m = machine()
    assert isinstance(m.next(0.0, WALL), Get)
    m.release(0.0)
    m.found(None, 0.1)
    assert m.next(0.1, WALL) == Done()
    assert m.state is State.ENDED
    assert not m.released


@pytest.mark.parametrize("answer", ["written", "timeout"])
def test_a_take_over_on_its_way_when_the_process_stops_is_undone(answer: str) -> None:
    m = machine()
    m.next(0.0, WALL)
    m.found(None, 0.0)
    action = m.next(0.0, WALL)
    assert isinstance(action, Create)
    m.release(0.1)
    if answer == "written":
        m.written(lease(rv="10"), 0.2)
        now = 0.2
    else:
        m.failed("timeout", 2.5)
        now = 4.0
        assert isinstance(m.next(now, WALL), Get)
        m.found(lease(rv="10"), now)
    action = m.next(now, WALL)
    assert isinstance(action, Put)
    assert action.lease.spec.holder_identity == ""
    m.written(action.lease, now)
    assert m.released
    assert m.state is State.ENDED


def test_an_abandoned_lease_is_not_written_again() -> None:
    m = held()
    m.abandon()
    assert m.next(103.0, WALL) == Done()
    assert not m.released


def test_nothing_revives_a_lost_lease() -> None:
    m = held()
    m.observed(lease(SHARDER_IDENTITY, rv="11"), 101.0)
    m.release(101.0)
    m.abandon()
    m.found(None, 101.0)
    m.rejected(101.0)
    m.failed("x", 101.0)
    m.observed(lease(rv="12"), 101.0)
    assert m.state is State.LOST
    assert m.next(101.0, WALL) == Done()
