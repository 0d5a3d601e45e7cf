"""What a shard writes into its Lease, and when it acquires it. Its lifecycle is in kubeshard/tests/leases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.times import micro_time
from kubeshard.leases.state_machine import (
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
from kubeshard.shard.identity import Incarnation, ShardIdentity
from kubeshard.shard.shard_lease import RETURNING_ANNOTATION, ShardClaim, Takeover
from kubeshard.shard.timing import LeaseTiming
from kubeshard.sharding.names import (
    CONFIRMED_ANNOTATION,
    EVICTED_ANNOTATION,
    INCARNATION_ANNOTATION,
    LEAVING_ANNOTATION,
    OWNED_RANGES_ANNOTATION,
    PROOFS_ANNOTATION,
    RING_LABEL,
    SHARDER_IDENTITY,
    STATE_LABEL,
    UNREACHABLE_ANNOTATION,
    UNRELEASED_ANNOTATION,
    WATCHDOG_ANNOTATION,
)

ME = ShardIdentity("ring", "shard-0", "ns", Incarnation("pod-1", "boot", "x"))
MINE = str(ME.incarnation)
RIVAL = "pod-2/boot/y"
PREDECESSOR = "pod-1/boot/w"
WALL = 1_700_000_000.0
LONG_AGO = micro_time(WALL - 1000)
NOW = micro_time(WALL)


def lease(
    holder: str | None = ME.name,
    incarnation: str = MINE,
    *,
    rv: str = "10",
    duration: int | None = 15,
    returning: bool = False,
    armed: str = "",
) -> Lease:
    annotations = {"note": "b"}
    if incarnation:
        annotations[INCARNATION_ANNOTATION] = incarnation
    if returning:
        annotations[RETURNING_ANNOTATION] = "true"
    if armed:
        annotations[WATCHDOG_ANNOTATION] = armed
    return Lease(
        metadata=ObjectMeta(
            name=ME.name,
            namespace=ME.namespace,
            uid="u",
            resource_version=rv,
            labels={STATE_LABEL: "ready", "team": "a"},
            annotations=annotations,
        ),
        spec=LeaseSpec(
            holder_identity=holder,
            lease_duration_seconds=duration,
            acquire_time=LONG_AGO,
            renew_time=LONG_AGO,
            lease_transitions=3,
        ),
    )


class Shard:
    """A lease state machine with a shard's claim."""

    def __init__(self, takeover: Takeover = Takeover.AT_ONCE, **host: Any) -> None:
        self.claim = ShardClaim(ME, LeaseTiming(), takeover, **host)
        self.machine = LeaseStateMachine(self.claim, lambda low, high: (low + high) / 2)

    def next(self, now: float, wall: float) -> Action:
        """Of a process that is fit."""
        if isinstance(action := self.machine.next(now, wall), Ask):
            self.machine.told(None, now)
            action = self.machine.next(now, wall)
        return action

    def write(self, now: float, record: Callable[[float], Lease | None]) -> tuple[float, Create | Replace]:
        """Returns the next write and its time; every read returns the record of that time."""
        while not isinstance(action := self.next(now, WALL), Create | Replace):
            if isinstance(action, Get):
                self.machine.found(record(now), now)
            else:
                assert isinstance(action, Wait)
                now = action.until
        return now, action

    def holds(self, record: Lease | None) -> Create | Replace:
        """Acquires that Lease; returns the write with which it did."""
        now, action = self.write(0.0, lambda _: record)
        self.stored(action, "11", now)
        return action

    def stored(self, action: Create | Replace, version: str, now: float) -> None:
        written = action.lease
        self.machine.written(
            replace(written, metadata=replace(written.metadata, resource_version=version)), now
        )


def test_an_absent_lease_is_created_with_ring_label_and_incarnation() -> None:
    action = Shard().holds(None)
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


ACQUIRE_TABLE = [
    # holder, incarnation on the lease, takeover, seconds of waiting, acquire time kept, transitions after
    ("", "", Takeover.AT_ONCE, 0, False, 4),
    (None, "", Takeover.AT_ONCE, 0, False, 4),
    ("", RIVAL, Takeover.AT_ONCE, 0, False, 4),
    ("", "", Takeover.AFTER_RECORD, 0, False, 4),
    (SHARDER_IDENTITY, RIVAL, Takeover.AT_ONCE, 0, False, 4),
    (SHARDER_IDENTITY, RIVAL, Takeover.AFTER_RECORD, 15, False, 4),
    (SHARDER_IDENTITY, RIVAL, Takeover.WITH_PROOF, 15, False, 4),
    (ME.name, "", Takeover.AT_ONCE, 0, True, 3),
    (ME.name, "", Takeover.AFTER_RECORD, 0, True, 3),
    (ME.name, MINE, Takeover.AT_ONCE, 0, True, 3),
    (ME.name, PREDECESSOR, Takeover.AT_ONCE, 9, True, 3),
    (ME.name, RIVAL, Takeover.AT_ONCE, 30, True, 3),
    (ME.name, RIVAL, Takeover.AFTER_RECORD, 30, True, 3),
]


@pytest.mark.parametrize(("holder", "incarnation", "takeover", "wait", "kept", "transitions"), ACQUIRE_TABLE)
def test_a_lease_is_taken_when_nobody_else_can_act_under_the_name(
    holder: str | None, incarnation: str, takeover: Takeover, wait: float, kept: bool, transitions: int
) -> None:
    record = lease(holder, incarnation)
    now, action = Shard(takeover).write(50.0, lambda _: record)
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


STRICT_TABLE = [
    # holder, incarnation on the lease, who confirmed, seconds of waiting (None: until somebody confirms)
    ("", RIVAL, "", 0),
    (ME.name, MINE, "", 0),
    (ME.name, "", "", 0),
    (ME.name, PREDECESSOR, "", 9),
    (ME.name, RIVAL, "", None),
    (ME.name, RIVAL, "3/operator", None),
    (SHARDER_IDENTITY, RIVAL, "", None),
    (SHARDER_IDENTITY, "", "", None),
    (SHARDER_IDENTITY, RIVAL, "2/operator", None),
    (SHARDER_IDENTITY, RIVAL, "3/operator", 0),
    (SHARDER_IDENTITY, RIVAL, "3/kubelet", 0),
    (SHARDER_IDENTITY, PREDECESSOR, "", 0),
]


@pytest.mark.parametrize(("holder", "incarnation", "confirmed", "wait"), STRICT_TABLE)
def test_with_strict_handover_a_process_that_may_act_is_waited_for_until_somebody_confirms_its_end(
    holder: str, incarnation: str, confirmed: str, wait: float | None
) -> None:
    shard, record = Shard(strict_handover=True), lease(holder, incarnation)
    if confirmed:
        record = confirmed_by(record, confirmed)
    if wait is not None:
        assert shard.write(50.0, lambda _: record)[0] == 50.0 + wait
        return
    a_day_later = 86_400.0
    taken = confirmed_by(lease(SHARDER_IDENTITY, incarnation), "3/operator")
    now, _ = shard.write(50.0, lambda now: record if now < a_day_later else taken)
    assert a_day_later <= now < a_day_later + 5
    assert CONFIRMED_ANNOTATION not in (shard.claim.renewed_lease(taken, WALL).metadata.annotations or {})


def test_with_strict_handover_a_deletion_of_the_lease_confirms_nothing() -> None:
    shard, a_day_later = Shard(strict_handover=True), 86_400.0
    confirmed = confirmed_by(lease(SHARDER_IDENTITY, ""), "3/operator")

    def record(now: float) -> Lease | None:
        if now < 60:
            return lease(ME.name, RIVAL)
        return None if now < a_day_later else confirmed

    now, action = shard.write(50.0, record)
    assert isinstance(action, Replace)
    assert a_day_later <= now < a_day_later + 5


def confirmed_by(record: Lease, said: str) -> Lease:
    annotations = {**(record.metadata.annotations or {}), CONFIRMED_ANNOTATION: said}
    return replace(record, metadata=replace(record.metadata, annotations=annotations))


@pytest.mark.parametrize(
    ("found", "fate"),
    [
        (
            lease(ME.name, PREDECESSOR, armed="10"),
            "its watchdog did 10 s after the last renewal: exit code 137",
        ),
        (lease(ME.name, PREDECESSOR), "unknown: it had no watchdog"),
        (lease(SHARDER_IDENTITY, RIVAL, armed="20"), "its watchdog did 20 s after"),
        (lease("", RIVAL, armed="20"), None),
        (lease(None, ""), None),
        (None, None),
    ],
)
def test_a_shard_knows_what_became_of_a_process_that_did_not_release_the_lease(
    found: Lease | None, fate: str | None
) -> None:
    shard = Shard()
    shard.write(50.0, lambda _: found)
    left = shard.claim.left_behind
    assert (left is None) if fate is None else (left is not None and fate in shard.claim.fate(left))


def test_the_lease_says_that_a_watchdog_is_armed_while_it_is_held() -> None:
    claim = ShardClaim(ME, LeaseTiming(), Takeover.AT_ONCE, armed=True)
    held = claim.renewed_lease(lease(), WALL)
    assert held.metadata.annotation(WATCHDOG_ANNOTATION) == "10"
    assert claim.released(held, WALL).metadata.annotation(WATCHDOG_ANNOTATION) == ""


def test_what_the_shard_cannot_release_is_on_its_lease_while_it_holds_it() -> None:
    claim = Shard().claim
    claim.unreleased = "thing a: refused"
    lasting = claim.renewed_lease(lease(), WALL)
    assert lasting.metadata.annotation(UNRELEASED_ANNOTATION) == "thing a: refused"
    assert not claim.released(lasting, WALL).metadata.annotation(UNRELEASED_ANNOTATION)
    claim.unreleased = ""
    assert not claim.renewed_lease(lasting, WALL).metadata.annotation(UNRELEASED_ANNOTATION)


@pytest.mark.parametrize("what", [LEAVING_ANNOTATION, UNREACHABLE_ANNOTATION])
def test_what_is_true_of_one_process_only_is_not_on_the_lease_of_its_successor(what: str) -> None:
    former, successor = Shard().claim, Shard().claim
    former.says = {what: "true"}
    left = former.renewed_lease(lease(), WALL)
    assert left.metadata.annotation(what) == "true"
    for found in left, former.released(left, WALL):
        assert not successor.renewed_lease(found, WALL).metadata.annotation(what)


def test_what_the_shard_works_on_is_on_its_lease_until_a_successor_says_otherwise() -> None:
    claim = Shard().claim
    claim.report = "0-3@1/1"
    lasting = claim.renewed_lease(lease(), WALL)
    assert lasting.metadata.annotation(OWNED_RANGES_ANNOTATION) == "0-3@1/1"
    released = claim.released(lasting, WALL)
    assert released.metadata.annotation(OWNED_RANGES_ANNOTATION) == "0-3@1/1"
    claim.report = ""
    assert not claim.renewed_lease(released, WALL).metadata.annotation(OWNED_RANGES_ANNOTATION)


@pytest.mark.parametrize(("written", "waited"), [(2**31 - 1, 120.0), (1, 6.0), (0, 30.0), (None, 30.0)])
def test_a_forged_duration_cannot_stretch_or_spare_the_waiting(written: int | None, waited: float) -> None:
    assert Shard().write(0.0, lambda _: lease(ME.name, RIVAL, duration=written))[0] == waited


@pytest.mark.parametrize("takeover", list(Takeover))
def test_a_lease_of_somebody_else_is_refused_with_his_name(takeover: Takeover) -> None:
    m = Shard(takeover).machine
    m.next(0.0, WALL)
    m.found(lease("leader-election-of-another-team", ""), 0.0)
    assert m.state is State.REFUSED
    assert m.next(0.0, WALL) == Done()
    assert "ns/shard-0 is held by 'leader-election-of-another-team'" in m.reason


@pytest.mark.regression
def test_a_lease_that_was_given_up_says_so_until_its_objects_are_reclaimed() -> None:
    shard = Shard()
    shard.holds(None)
    for reclaimed in (False, True):
        shard.claim.reclaimed = reclaimed
        now, action = shard.write(0.0, lambda _: None)
        assert (RETURNING_ANNOTATION in (action.lease.metadata.annotations or {})) is not reclaimed
        shard.stored(action, "12", now)


@pytest.mark.regression
@pytest.mark.parametrize("before", [False, True])
def test_who_succeeds_a_process_that_had_not_reclaimed_its_objects_has_to_do_it(before: bool) -> None:
    shard = Shard()
    shard.holds(lease(ME.name, PREDECESSOR, returning=before))
    assert shard.claim.returning is before


@pytest.mark.regression
def test_a_take_over_whose_answer_was_lost_is_still_one_after_which_objects_are_reclaimed() -> None:
    shard = Shard()
    _, action = shard.write(0.0, lambda _: lease(""))
    shard.machine.failed("timeout", 2.5)
    now, _ = shard.write(2.5, lambda _: action.lease)
    assert now > 2.5
    assert shard.claim.returning


RIVALS = [
    (RIVAL, f"another process ({RIVAL}) holds the Lease under this shard's name"),
    (PREDECESSOR, f"another process ({PREDECESSOR}) holds the Lease under this shard's name"),
]


@pytest.mark.parametrize(("rival", "reason"), RIVALS)
@pytest.mark.parametrize("how", ["conflict", "watch"])
def test_the_sight_of_another_incarnation_ends_the_right_to_work_now(
    rival: str, reason: str, how: str
) -> None:
    shard = Shard()
    shard.holds(None)
    m = shard.machine
    if how == "watch":
        m.observed(lease(ME.name, rival, rv="12"), 1.0, deleted=False)
    else:
        assert isinstance(shard.next(2.0, WALL), Replace)
        m.rejected(2.0)
        assert isinstance(shard.next(2.0, WALL), Get)
        m.found(lease(ME.name, rival, rv="12"), 2.0)
    assert m.state is State.LOST
    assert m.reason == reason


def test_an_incarnation_taken_off_by_hand_is_no_rival_and_is_written_again() -> None:
    shard = Shard()
    shard.holds(None)
    shard.machine.observed(lease(ME.name, "", rv="12"), 1.0, deleted=False)
    assert shard.machine.holds
    action = shard.next(2.0, WALL)
    assert isinstance(action, Replace)
    assert action.lease.metadata.annotation(INCARNATION_ANNOTATION) == MINE


def test_a_deleted_lease_is_created_again_by_the_same_incarnation() -> None:
    shard = Shard()
    shard.holds(None)
    shard.machine.observed(lease(rv="12"), 1.0, deleted=True)
    action = shard.next(1.0, WALL)
    assert isinstance(action, Create)
    assert action.lease.metadata.annotation(INCARNATION_ANNOTATION) == MINE
    assert action.lease.metadata.labels == {RING_LABEL: "ring"}


def test_a_released_lease_keeps_its_labels_and_promises_nothing_of_its_objects_or_successor() -> None:
    """Shards in Go keep the annotations that they find. Outside a pod, one with the name of a shard of this library
    could not acknowledge a drain if the Lease still said that the shard signs its acknowledgements.
    """
    shard = Shard()
    shard.holds(lease(""))
    shard.machine.release(1.0)
    action = shard.next(1.0, WALL)
    assert isinstance(action, Replace)
    assert action.lease.spec.holder_identity == ""
    assert action.lease.metadata.labels == {STATE_LABEL: "ready", "team": "a", RING_LABEL: "ring"}
    assert action.lease.metadata.annotations == {"note": "b"}


def test_only_a_container_of_the_same_pod_is_known_to_have_ended() -> None:
    me = Incarnation("pod-1", "boot", "x")
    assert me.outlived("pod-1/boot/w")
    assert not me.outlived("pod-2/boot/w")
    assert not Incarnation("", "boot", "x").outlived("/boot/w")


@pytest.mark.parametrize(
    ("me", "other", "process"),
    [
        (Incarnation("", "boot", "x", "1-2-3-4"), "/boot/w/1-2-7-9", "1-2-7-9"),
        (Incarnation("pod-1", "boot", "x"), "pod-2/boot/w/1-2-7-9", "1-2-7-9"),
        (Incarnation("", "boot", "x", "1-2-3-4"), "/boot before/w/1-2-7-9", ""),
        (Incarnation("", "", "x", "1-2-3-4"), "//w/1-2-7-9", ""),
        (Incarnation("", "boot", "x", "1-2-3-4"), "/boot/w", ""),
        (Incarnation("", "boot", "x", "1-2-3-4"), "", ""),
    ],
)
def test_only_processes_of_the_same_machine_and_boot_can_be_looked_up(
    me: Incarnation, other: str, process: str
) -> None:
    assert me.neighbour(other) == process


@pytest.mark.parametrize(
    ("incarnation", "armed", "age", "wait"),
    [
        ("pod-1/boot/y", "10", 1000.0, 0.0),
        ("pod-1/boot/y", "10", 29.0, 9.0),
        ("pod-2/boot/y/gone", "10", 1000.0, 0.0),
        ("pod-2/boot/y/gone", "10", 29.0, 9.0),
        ("pod-2/boot/y/gone", "", 1000.0, 9.0),
        ("pod-2/boot/y/alive", "10", 1000.0, 30.0),
        ("pod-2/another boot/y/gone", "10", 1000.0, 30.0),
        ("pod-2/boot/y", "10", 1000.0, 30.0),
    ],
)
def test_a_predecessor_that_has_ended_is_waited_for_until_nothing_it_sent_can_land(
    incarnation: str, armed: str, age: float, wait: float
) -> None:
    shard = Shard(ended=lambda process: process == "gone", wall=lambda: WALL - 1000 + age)
    waited, action = shard.write(0.0, lambda _: lease(incarnation=incarnation, armed=armed))
    assert waited == wait
    assert action.lease.metadata.annotation(INCARNATION_ANNOTATION) == MINE


@pytest.mark.parametrize(
    ("takeover", "proofs", "wait"),
    [
        (Takeover.WITH_PROOF, "3", 0.0),
        (Takeover.WITH_PROOF, "2", 15.0),
        (Takeover.WITH_PROOF, "", 15.0),
        (Takeover.WITH_PROOF, "3/reported", 9.0),
        (Takeover.WITH_PROOF, "2/reported", 15.0),
        (Takeover.AT_ONCE, "3/reported", 9.0),
        (Takeover.AFTER_RECORD, "3/reported", 15.0),
        (Takeover.AFTER_RECORD, "3", 15.0),
    ],
)
def test_a_lease_that_was_taken_with_proofs_is_taken_back_at_once_and_another_is_not(
    takeover: Takeover, proofs: str, wait: float
) -> None:
    """A Go sharder that took it since has left the annotation, and changed the number of transitions."""
    taken = lease(SHARDER_IDENTITY, RIVAL)
    annotations = {**(taken.metadata.annotations or {}), PROOFS_ANNOTATION: proofs}
    taken = replace(taken, metadata=replace(taken.metadata, annotations=annotations))
    shard = Shard(takeover)
    waited, action = shard.write(0.0, lambda _: taken)
    assert waited == wait
    assert PROOFS_ANNOTATION not in (action.lease.metadata.annotations or {})
    assert shard.claim.returning


@pytest.mark.parametrize("takeover", list(Takeover))
def test_a_lease_that_was_taken_from_a_live_process_is_never_taken_back_at_once(takeover: Takeover) -> None:
    taken = lease(SHARDER_IDENTITY, RIVAL)
    annotations = {**(taken.metadata.annotations or {}), EVICTED_ANNOTATION: "3", PROOFS_ANNOTATION: "3"}
    taken = replace(taken, metadata=replace(taken.metadata, annotations=annotations))
    shard = Shard(takeover)
    waited, action = shard.write(0.0, lambda _: taken)
    assert waited == 15.0
    assert EVICTED_ANNOTATION not in (action.lease.metadata.annotations or {})
    assert shard.claim.returning
