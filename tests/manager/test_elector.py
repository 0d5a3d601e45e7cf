"""The elector as tables: what is known of the Lease and since when, what it does, and the record after."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from kubeshard.core import ConfigurationError, Lease, LeaseSpec, ObjectMeta
from kubeshard.core.times import micro_time
from kubeshard.manager.elector import Create, ElectionTiming, Elector, Read, Replace, State, Stop, Wait

WALL = 1_800_000_000.0
NOW, EARLIER = micro_time(WALL), micro_time(WALL - 500)


class NoJitter:
    def uniform(self, low: float, high: float) -> float:
        return low

    def token(self) -> str:
        return "token"


def lease(
    holder: str | None, *, duration: int | None = 15, transitions: int | None = 3, rv: str = "7"
) -> Lease:
    return Lease(
        metadata=ObjectMeta(name="lock", namespace="ns", resource_version=rv),
        spec=LeaseSpec(
            holder_identity=holder,
            lease_duration_seconds=duration,
            acquire_time=EARLIER,
            renew_time=EARLIER,
            lease_transitions=transitions,
        ),
    )


def elector(timing: ElectionTiming | None = None) -> Elector:
    return Elector("lock", "ns", "me", timing or ElectionTiming(), NoJitter())


def leader(at: float = 100.0) -> Elector:
    """Took over at that time."""
    machine = elector()
    machine.observed(lease("", transitions=3), at)
    action = machine.next(at, WALL)
    assert isinstance(action, Replace)
    machine.written(with_version(action.lease, "8"), at)
    assert machine.state is State.LEADING
    return machine


def with_version(record: Lease, rv: str) -> Lease:
    return msgspec.structs.replace(
        record, metadata=msgspec.structs.replace(record.metadata, resource_version=rv)
    )


@dataclass
class Row:
    name: str
    record: Lease | None
    unchanged_for: float
    action: type[Create | Replace | Wait]
    holder: str = "me"
    transitions: int = 4
    acquired: str = NOW


SEEKING = [
    Row("no lease: create it", None, 0, Create, transitions=0),
    Row("released lease: take it at once", lease(""), 0, Replace),
    Row("lease without holder: take it at once", lease(None), 0, Replace),
    Row(
        "lease without anything in it: take it",
        lease(None, duration=None, transitions=None),
        0,
        Replace,
        transitions=1,
    ),
    Row(
        "own lease: keep acquire time and transitions",
        lease("me"),
        0,
        Replace,
        transitions=3,
        acquired=EARLIER,
    ),
    Row("foreign lease just seen: wait, whatever its renew time says", lease("other"), 0, Wait),
    Row("foreign lease almost expired: wait", lease("other"), 14.9, Wait),
    Row("foreign lease unchanged for its duration: take over", lease("other"), 15, Replace),
    Row("the duration of the record counts, not the own one", lease("other", duration=60), 30, Wait),
    Row("a shorter duration of the record counts as well", lease("other", duration=5), 5, Replace),
    Row("a record without duration has the own one", lease("other", duration=None), 14.9, Wait),
    Row("a record with duration 0 has the own one", lease("other", duration=0), 14.9, Wait),
]


@pytest.mark.parametrize("row", SEEKING, ids=lambda row: row.name)
def test_a_candidate_follows_the_table(row: Row) -> None:
    machine = elector()
    assert machine.next(100, WALL) == Read()
    machine.observed(row.record, 100)
    action = machine.next(100 + row.unchanged_for, WALL)
    assert type(action) is row.action
    if isinstance(action, Create | Replace):
        assert action.lease.spec == LeaseSpec(
            holder_identity=row.holder,
            lease_duration_seconds=15,
            acquire_time=row.acquired,
            renew_time=NOW,
            lease_transitions=row.transitions,
        )
        assert action.lease.metadata.resource_version == ("7" if row.record else "")
        assert (action.lease.metadata.namespace, action.lease.metadata.name) == ("ns", "lock")


def test_expiry_is_counted_from_the_last_change_seen_here() -> None:
    machine = elector()
    machine.observed(lease("other"), 100)
    machine.observed(
        msgspec.structs.replace(
            lease("other"), spec=msgspec.structs.replace(lease("other").spec, renew_time=NOW)
        ),
        110,
    )
    assert isinstance(machine.next(115, WALL), Wait)
    machine.observed(
        msgspec.structs.replace(
            lease("other"), spec=msgspec.structs.replace(lease("other").spec, renew_time=NOW)
        ),
        124,
    )
    assert isinstance(machine.next(125, WALL), Replace)


def test_a_change_of_metadata_alone_does_not_prolong_a_lease() -> None:
    machine = elector()
    machine.observed(lease("other", rv="7"), 100)
    machine.observed(lease("other", rv="8"), 114)
    assert isinstance(machine.next(115, WALL), Replace)


def test_fields_of_coordinated_election_are_kept() -> None:
    machine = elector()
    record = lease("")
    machine.observed(
        msgspec.structs.replace(
            record, spec=msgspec.structs.replace(record.spec, strategy="OldestEmulationVersion")
        ),
        100,
    )
    action = machine.next(100, WALL)
    assert isinstance(action, Replace)
    assert action.lease.spec.strategy == "OldestEmulationVersion"


def test_a_candidate_that_lost_the_race_looks_again() -> None:
    machine = elector()
    machine.observed(None, 100)
    assert isinstance(machine.next(100, WALL), Create)
    machine.refused(100)
    assert machine.next(100, WALL) == Wait(100.5)
    assert machine.next(100.5, WALL) == Read()


def test_a_candidate_without_an_answer_waits_a_retry_period() -> None:
    machine = elector()
    machine.failed(100)
    assert machine.next(100, WALL) == Wait(102)
    assert machine.next(102, WALL) == Read()


def test_the_deadline_counts_from_the_start_of_the_successful_renewal() -> None:
    machine = elector()
    machine.observed(lease(""), 100)
    action = machine.next(100, WALL)
    assert isinstance(action, Replace)
    machine.written(action.lease, started=100)  # the answer came at 102.4
    assert (machine.deadline, machine.stop_at, machine.abort_at) == (110, 108, 109)


def test_a_leader_renews_every_retry_period_without_reading() -> None:
    machine = leader(at=100)
    assert machine.next(100.1, WALL) == Wait(102)
    action = machine.next(102, WALL + 5)
    assert isinstance(action, Replace)
    assert not machine.slow
    assert action.lease.metadata.resource_version == "8"
    assert action.lease.spec == LeaseSpec(
        holder_identity="me",
        lease_duration_seconds=15,
        acquire_time=NOW,
        renew_time=micro_time(WALL + 5),
        lease_transitions=4,
    )
    machine.written(action.lease, 102)
    assert machine.deadline == 112


def test_a_leader_without_an_answer_tries_again_soon_and_keeps_its_old_deadline() -> None:
    machine = leader(at=100)
    machine.failed(104.5)
    assert machine.next(104.5, WALL) == Wait(105)
    assert isinstance(machine.next(105, WALL), Replace)
    assert machine.deadline == 110


def test_a_leader_whose_write_was_refused_reads_and_renews_at_once_if_the_lease_is_still_its_own() -> None:
    machine = leader(at=100)
    machine.refused(102)
    assert machine.next(102, WALL) == Read()
    assert machine.slow
    machine.observed(lease("me", rv="12"), 102.1)
    action = machine.next(102.1, WALL)
    assert isinstance(action, Replace)
    assert action.lease.metadata.resource_version == "12"


@pytest.mark.parametrize("holder", ["other", "", None])
def test_a_leader_is_lost_at_the_sight_of_any_other_holder(holder: str | None) -> None:
    machine = leader(at=100)
    machine.refused(102)
    machine.observed(lease(holder), 102.1)
    assert machine.state is State.LOST
    assert machine.next(102.1, WALL) == Stop()
    assert machine.reason


def test_a_leader_is_lost_one_second_before_its_deadline() -> None:
    machine = leader(at=100)
    assert machine.next(108.99, WALL) != Stop()
    assert machine.next(109, WALL) == Stop()
    assert machine.state is State.LOST


def test_a_leader_that_slept_through_its_deadline_does_not_renew() -> None:
    machine = leader(at=100)
    assert machine.next(500, WALL) == Stop()


def test_a_lost_leader_never_leads_again() -> None:
    machine = leader(at=100)
    machine.next(109, WALL)
    machine.observed(lease("me"), 110)
    assert machine.next(111, WALL) == Stop()
    machine.release()
    assert machine.next(111, WALL) == Stop()


def test_renewals_refused_over_and_over_end_the_leadership() -> None:
    machine = leader(at=100)
    for round_ in range(5):
        assert machine.state is State.LEADING
        machine.observed(lease("me", rv=str(round_)), 102)
        assert isinstance(machine.next(102, WALL), Replace)
        machine.refused(102)
    assert machine.state is State.LOST


def test_a_leader_whose_lease_was_deleted_creates_it_again_as_it_was() -> None:
    machine = leader(at=100)
    machine.refused(102)
    machine.observed(None, 102.1)
    action = machine.next(102.1, WALL + 9)
    assert isinstance(action, Create)
    assert (action.lease.spec.acquire_time, action.lease.spec.lease_transitions) == (NOW, 4)
    assert action.lease.metadata.resource_version == ""


def test_an_unfit_leader_does_not_renew() -> None:
    machine = leader(at=100)
    assert machine.next(103, WALL, fit=False) == Wait(103.5)
    assert machine.next(108.9, WALL, fit=False) == Wait(109)
    assert machine.next(109, WALL, fit=False) == Stop()


def test_release_empties_the_holder_for_anybody_to_take_at_once() -> None:
    machine = leader(at=100)
    machine.release()
    action = machine.next(101, WALL + 60)
    assert isinstance(action, Replace)
    assert action.lease.spec == LeaseSpec(
        holder_identity="",
        lease_duration_seconds=1,
        acquire_time=micro_time(WALL + 60),
        renew_time=micro_time(WALL + 60),
        lease_transitions=4,
    )
    machine.written(action.lease, 101)
    assert machine.next(101, WALL) == Stop()
    assert (machine.state, machine.leader) == (State.ENDED, "")


def test_release_after_a_conflict_touches_only_an_own_lease() -> None:
    machine = leader(at=100)
    machine.release()
    machine.refused(101)
    assert machine.next(101, WALL) == Read()
    machine.observed(lease("other"), 101)
    assert machine.next(101, WALL) == Stop()


def test_release_is_tried_until_the_deadline_and_not_after() -> None:
    machine = leader(at=100)
    machine.release()
    machine.failed(105)
    assert isinstance(machine.next(106, WALL), Replace)
    assert machine.next(110, WALL) == Stop()


def test_releasing_without_leading_does_nothing() -> None:
    machine = elector()
    machine.release()
    assert machine.next(0, WALL) == Stop()


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"lease_duration": 10.0}, "longer than the renew deadline"),
        ({"renew_deadline": 2.4}, "retry periods"),
        ({"renew_deadline": 4.0}, "no time for a renewal"),
        ({"lease_duration": 15.5}, "whole seconds"),
        ({"retry_period": 0.0}, "retry period"),
    ],
)
def test_numbers_that_cannot_work_are_refused(numbers: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ElectionTiming(**numbers)  # type: ignore[arg-type]
