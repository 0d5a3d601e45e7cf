"""The checker finds in a history what must not happen, and nothing else; a timeline tells what led to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, TransportError
from kubeshard_lab.simulation.checker import check
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.faults.injection import Conditions, Rule
from kubeshard_lab.simulation.history import (
    Answered,
    Began,
    Calm,
    Changed,
    Died,
    Ended,
    Entry,
    Finished,
    Hit,
    Inflicted,
    LeaseChanged,
    Recorder,
    Restored,
    Sent,
    Started,
    Switched,
)
from kubeshard_lab.simulation.oracles import Violation
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.simulation.timeline import timeline
from kubeshard_lab.virtual_time import virtual_time

pytestmark = [pytest.mark.regression, pytest.mark.quick]

STARTED: tuple[Entry, ...] = (
    Started(0.0, "x0~1"),
    Started(0.0, "a~1"),
    Started(0.0, "b~1"),
)


def sent(at: float, number: int, process: str, *, sharder: bool = False, kind: str = "main") -> Sent:
    name = "t1" if kind == "main" else "c-t1"
    return Sent(at, number, process, sharder, "PATCH", kind, name, 5.0, f"{kind} {name}")


def changed(at: float, number: int, before: str, after: str, **other: Any) -> Changed:
    fields: dict[str, Any] = {
        "kind": "main",
        "name": "t1",
        "uid": "1",
        "existed": True,
        "exists": True,
        "draining": (False, False),
        "labels_only": False,
        "main_owner": after,
        "main_uid": "1",
    }
    return Changed(at, number, owner=(before, after), **{**fields, **other})


def child(at: float, number: int, main_owner: str, **other: Any) -> Changed:
    fields: dict[str, Any] = {"kind": "child", "main_owner": main_owner, "belongs_to": "1"}
    return changed(at, number, "a", "a", **{**fields, **other})


def leases(at: float, *names: str) -> tuple[Entry, ...]:
    """All of them are renewed by their shards."""
    held: list[Entry] = []
    for name in names:
        number = len(held) + int(1000 * at)
        held += [sent(at, number, f"{name}~1", kind="lease"), LeaseChanged(at, number, name, name, "1")]
    return tuple(held)


def released(at: float, *names: str) -> tuple[Entry, ...]:
    """All of them are released by their shards."""
    return tuple(
        msgspec.structs.replace(each, holder="") if isinstance(each, LeaseChanged) else each
        for each in leases(at, *names)
    )


def always(process: Process, request: HttpRequest) -> bool:
    return True


CREATED = changed(1.0, 0, "", "a", existed=False)
MOVED = (sent(9.0, 90, "x0~1", sharder=True), changed(9.0, 90, "a", "b"))
BY_A_SHARD = (sent(95.0, 90, "b~1", sharder=True), changed(95.0, 90, "a", "b"))
MOVED_LATE = (sent(120.0, 90, "x0~1", sharder=True), changed(120.0, 90, "a", "b"))

RIGHT: dict[str, Sequence[Entry]] = {
    "a shard writes its own object": (CREATED, sent(2.0, 1, "a~1"), changed(2.1, 1, "a", "a")),
    "a shard releases its object": (CREATED, sent(2.0, 1, "a~1"), changed(2.1, 1, "a", "", labels_only=True)),
    "a shard takes back what a user took": (
        CREATED,
        changed(2.0, 0, "a", "b"),
        sent(2.1, 1, "a~1"),
        changed(2.2, 1, "b", "a", labels_only=True),
    ),
    "one works after the other": (
        CREATED,
        Began(2.0, "a~1", "t1", "1"),
        Ended(3.0, "a~1", "t1", "1"),
        Began(3.0, "b~1", "t1", "1"),
    ),
    "another object of the same name is worked on while a reconcile of the former one goes on": (
        CREATED,
        Began(2.0, "a~1", "t1", "1"),
        changed(3.0, 0, "a", "", exists=False),
        changed(4.0, 0, "", "b", uid="2", existed=False),
        Began(5.0, "b~1", "t1", "2"),
        Ended(6.0, "a~1", "t1", "1"),
        Ended(7.0, "b~1", "t1", "2"),
    ),
    "the dead do not work": (
        CREATED,
        Began(2.0, "a~1", "t1", "1"),
        Died(3.0, "a~1", "killed"),
        Began(4.0, "b~1", "t1", "1"),
    ),
    "two controllers of one process work at once": (
        Began(2.0, "a~1", "t1", "1"),
        Began(2.0, "a~1", "t1", "1"),
    ),
    "a write is stale after a restore": (
        CREATED,
        Restored(5.0, {"t1": ("b", False)}),
        sent(6.0, 1, "a~1"),
        changed(6.1, 1, "b", "b"),
    ),
    "a reconcile goes on that began before a restore gave its object to another shard": (
        CREATED,
        Began(2.0, "a~1", "t1", "1"),
        Restored(5.0, {"t1": ("b", False)}),
        Began(70.0, "b~1", "t1", "1"),
        Ended(71.0, "b~1", "t1", "1"),
        Ended(72.0, "a~1", "t1", "1"),
    ),
    "a child of a deleted object is written": (CREATED, sent(2.0, 1, "a~1"), child(2.1, 1, "", main_uid="")),
    "a child is written by a request that was on its way for longer than one may be": (
        CREATED,
        *MOVED,
        sent(2.0, 1, "a~1", kind="child"),
        child(17.0, 1, "b"),
    ),
    "a process takes over from a dead one of its name": (
        sent(2.0, 1, "a~1", kind="lease"),
        LeaseChanged(2.0, 1, "a", "a", "1"),
        Died(3.0, "a~1", "killed"),
        Started(4.0, "a~2"),
        sent(5.0, 2, "a~2", kind="lease"),
        LeaseChanged(5.0, 2, "a", "a", "2"),
    ),
    "a sharder labels a Lease": (
        sent(2.0, 1, "a~1", kind="lease"),
        LeaseChanged(2.0, 1, "a", "a", "1"),
        sent(3.0, 2, "x0~1", sharder=True, kind="lease"),
        LeaseChanged(3.0, 2, "a", "a", "1"),
        sent(4.0, 3, "a~1", kind="lease"),
        LeaseChanged(4.0, 3, "a", "a", "1"),
    ),
    "all have owners in the end": (CREATED, Calm(10.0), Finished(30.0)),
    "most shards fail, and an object of theirs waits": (
        *leases(1.0, "a", "b", "c", "d", "e"),
        CREATED,
        Died(10.0, "a~1", "killed"),
        Calm(11.0),
        *leases(20.0, "d", "e"),
        *leases(80.0, "d", "e"),
        *MOVED_LATE,
        Finished(150.0),
    ),
    "most shards fail, the ring has changed its delivery, and an object waits that is nobody's": (
        *leases(1.0, "a", "b", "c", "d", "e"),
        CREATED,
        changed(2.0, 0, "a", ""),
        Switched(3.0, False),
        Calm(11.0),
        *leases(20.0, "d", "e"),
        *leases(80.0, "d", "e"),
        changed(120.0, 0, "", "b"),
        Finished(150.0),
    ),
    "shards share out, none acts, and an object waits until one is a shard again and gives it away": (
        CREATED,
        *(Died(10.0, process, "killed") for process in ("x0~1", "a~1")),
        Calm(11.0),
        *leases(44.0, "b"),
        *BY_A_SHARD,
        Finished(100.0),
    ),
    "a restore brings back Leases that had been released, another shard stops, and an object of theirs waits": (
        *leases(1.0, "a", "b", "c", "d", "e"),
        CREATED,
        *released(5.0, "a", "b"),
        Restored(6.0, {"t1": ("a", False)}, ("a", "b", "c", "d", "e")),
        *released(7.0, "c"),
        Died(8.0, "a~1", "stopped"),
        Calm(11.0),
        *(each for at in range(12, 90, 8) for each in leases(at, "d", "e")),
        *MOVED_LATE,
        Finished(150.0),
    ),
}

WRONG: dict[str, tuple[str, Sequence[Entry]]] = {
    "a shard writes another one's object": (
        "stale write",
        (CREATED, *MOVED, sent(8.0, 1, "a~1"), changed(10.0, 1, "b", "b")),
    ),
    "a shard gives itself another one's object, and changes it": (
        "stale write",
        (CREATED, *MOVED, sent(8.0, 1, "a~1"), changed(10.0, 1, "b", "a")),
    ),
    "a shard writes the child of another one's object": (
        "stale write",
        (CREATED, *MOVED, sent(8.0, 1, "a~1", kind="child"), child(10.0, 1, "b")),
    ),
    "two work at once": ("overlap", (CREATED, Began(2.0, "a~1", "t1", "1"), Began(3.0, "b~1", "t1", "1"))),
    "two work at once on an object, and one of them on the former one of its name, too": (
        "overlap",
        (
            Began(2.0, "a~1", "t1", "1"),
            Began(3.0, "a~1", "t1", "2"),
            Ended(4.0, "a~1", "t1", "1"),
            Began(5.0, "b~1", "t1", "2"),
        ),
    ),
    "two work at once, and one of them with two controllers": (
        "overlap",
        (
            Began(2.0, "a~1", "t1", "1"),
            Began(2.0, "a~1", "t1", "1"),
            Ended(2.5, "a~1", "t1", "1"),
            Began(3.0, "b~1", "t1", "1"),
        ),
    ),
    "a reconcile that began after a restore goes on while another shard works on its object": (
        "overlap",
        (
            CREATED,
            Began(2.0, "a~1", "t1", "1"),
            Restored(5.0, {"t1": ("b", False)}),
            Ended(6.0, "a~1", "t1", "1"),
            Began(7.0, "a~1", "t1", "1"),
            Began(70.0, "b~1", "t1", "1"),
        ),
    ),
    "a reconcile goes on that a restore left to its shard, and another one begins": (
        "overlap",
        (
            CREATED,
            Began(2.0, "a~1", "t1", "1"),
            Restored(5.0, {"t1": ("a", False)}),
            *(msgspec.structs.replace(each, at=69.0) for each in MOVED),
            Began(70.0, "b~1", "t1", "1"),
        ),
    ),
    "a process takes the Lease of a live one of its name": (
        "identity",
        (
            sent(2.0, 1, "a~1", kind="lease"),
            LeaseChanged(2.0, 1, "a", "a", "1"),
            Started(4.0, "a~2"),
            sent(5.0, 2, "a~2", kind="lease"),
            LeaseChanged(5.0, 2, "a", "a", "2"),
        ),
    ),
    "an object is nobody's in the end": (
        "ownership",
        (CREATED, changed(2.0, 0, "a", ""), Calm(10.0), Finished(75.0)),
    ),
    "most shards fail, and an object of theirs waits for too long": (
        "ownership",
        (
            *leases(1.0, "a", "b", "c", "d", "e"),
            CREATED,
            Died(10.0, "a~1", "killed"),
            Calm(11.0),
            *leases(20.0, "d", "e"),
            *leases(157.0, "d", "e"),
            Finished(160.0),
        ),
    ),
    "most shards fail, and an object waits that is nobody's": (
        "ownership",
        (
            *leases(1.0, "a", "b", "c", "d", "e"),
            CREATED,
            changed(2.0, 0, "a", ""),
            Calm(11.0),
            *leases(20.0, "d", "e"),
            *leases(80.0, "d", "e"),
            changed(120.0, 0, "", "b"),
            Finished(150.0),
        ),
    ),
    "most shards fail, the ring has changed its delivery, and an object waits for too long that is nobody's": (
        "ownership",
        (
            *leases(1.0, "a", "b", "c", "d", "e"),
            CREATED,
            changed(2.0, 0, "a", ""),
            Switched(3.0, False),
            Calm(11.0),
            *leases(20.0, "d", "e"),
            *leases(157.0, "d", "e"),
            Finished(160.0),
        ),
    ),
    "three shards of seven fail, and an object of theirs waits as if most did": (
        "ownership",
        (
            *leases(1.0, "a", "b", "c", "d", "e", "f", "g"),
            CREATED,
            Died(10.0, "a~1", "killed"),
            Calm(11.0),
            *(each for at in range(12, 81, 8) for each in leases(at, "d", "e", "f", "g")),
            *MOVED_LATE,
            Finished(150.0),
        ),
    ),
    "a restore brings back few Leases that had been released, and an object of theirs waits as if most failed": (
        "ownership",
        (
            *leases(1.0, "a", "b", "c", "d", "e"),
            CREATED,
            *released(5.0, "a", "b"),
            Restored(6.0, {"t1": ("a", False)}, ("a", "b", "c", "d", "e")),
            Died(8.0, "a~1", "stopped"),
            Calm(11.0),
            *(each for at in range(12, 90, 8) for each in leases(at, "c", "d", "e")),
            *MOVED_LATE,
            Finished(150.0),
        ),
    ),
    "shards stop long after a restore, and an object of theirs waits as if they had failed": (
        "ownership",
        (
            *leases(1.0, "a", "b", "c", "d", "e"),
            CREATED,
            Restored(6.0, {"t1": ("a", False)}, ("a", "b", "c", "d", "e")),
            *(each for at in range(12, 70, 8) for each in leases(at, "a", "b", "c", "d", "e")),
            *released(70.0, "a", "b", "c"),
            Died(71.0, "a~1", "stopped"),
            Calm(72.0),
            *(each for at in range(73, 170, 8) for each in leases(at, "d", "e")),
            *(msgspec.structs.replace(each, at=140.0) for each in MOVED),
            Finished(170.0),
        ),
    ),
    "shards share out, one of them acts, and an object of another one waits as if none did": (
        "ownership",
        (
            CREATED,
            *(Died(10.0, process, "killed") for process in ("x0~1", "a~1")),
            Calm(11.0),
            *(each for at in range(12, 44, 8) for each in leases(at, "b")),
            *BY_A_SHARD,
            Finished(100.0),
        ),
    ),
    "few shards fail, and an object of theirs waits as if most did": (
        "ownership",
        (
            *leases(1.0, "a", "b", "c", "d", "e"),
            CREATED,
            Died(10.0, "a~1", "killed"),
            Calm(11.0),
            *(each for at in range(12, 81, 8) for each in leases(at, "c", "d", "e")),
            *MOVED_LATE,
            Finished(150.0),
        ),
    ),
    "an object is a dead shard's in the end": (
        "ownership",
        (CREATED, Died(2.0, "a~1", "killed"), Calm(10.0), Finished(30.0)),
    ),
    "an object is being drained in the end": (
        "ownership",
        (CREATED, changed(2.0, 0, "a", "a", draining=(False, True)), Calm(10.0), Finished(30.0)),
    ),
}


@pytest.mark.parametrize("history", RIGHT.values(), ids=RIGHT)
def test_nothing_is_found_where_nothing_is_wrong(history: Sequence[Entry]) -> None:
    assert check([*STARTED, *history]) == []


@pytest.mark.parametrize(("rule", "history"), WRONG.values(), ids=WRONG)
def test_a_violation_is_found(rule: str, history: Sequence[Entry]) -> None:
    assert [finding.rule for finding in check([*STARTED, *history])] == [rule]


def test_by_ranges_no_restore_excuses_that_two_work_on_an_object() -> None:
    history = (*STARTED, CREATED, Restored(2.0, {"t1": ("a", False)}), Began(3.0, "a~1", "t1", "1"))
    history += (Began(4.0, "b~1", "t1", "1"),)
    assert [finding.rule for finding in check(history, by_version=True)] == ["overlap"]
    assert check(history) == []


BEGAN, UNAWARE = (Began(3.0, "a~1", "t1", "1", unaware) for unaware in (False, True))
ENDED = Ended(3.5, "a~1", "t1", "1")


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ((), (UNAWARE,), []),
        ((), (BEGAN,), ["overlap"]),
        ((BEGAN,), (), []),
        ((BEGAN, BEGAN, ENDED), (), []),
        ((BEGAN, ENDED), (BEGAN,), ["overlap"]),
        ((BEGAN,), (BEGAN,), ["overlap"]),
        ((), (UNAWARE, ENDED, BEGAN), ["overlap"]),
        ((Started(0.0, "c~1"), Began(3.0, "c~1", "t1", "1")), (), ["overlap"]),
    ],
    ids=[
        "begins, and has not been told",
        "begins, and has been told",
        "goes on with what it began before",
        "goes on with one of two",
        "ends, and begins again",
        "goes on, and begins again",
        "ends what it began without being told, and begins again",
        "another one",
    ],
)
def test_by_ranges_an_edit_excuses_its_former_owner_until_that_is_told_and_has_ended(
    before: Sequence[Entry], after: Sequence[Entry], found: list[str]
) -> None:
    edit = changed(3.2, 0, "a", "b")
    history = (*STARTED, CREATED, *before, edit, *after, Began(400.0, "b~1", "t1", "1"))
    assert [finding.rule for finding in check(history, by_version=True)] == found


@pytest.mark.parametrize(("until", "found"), [(math.inf, []), (5.0, []), (4.0, ["stale write"])])
def test_by_ranges_an_edit_excuses_writes_that_were_sent_before_its_former_owner_was_told(
    until: float, found: list[str]
) -> None:
    theirs = sent(4.0, 1, "b~1"), changed(4.1, 1, "b", "b")
    late = sent(5.0, 2, "a~1"), changed(9.0, 2, "b", "b", unaware_until=until)
    history = (*STARTED, CREATED, changed(3.0, 0, "a", "b"), *theirs, *late)
    assert [finding.rule for finding in check(history, by_version=True)] == found


@pytest.mark.parametrize("was_sent", [2.0, 4.0])
@pytest.mark.parametrize("others_wrote", [True, False])
def test_a_write_that_was_sent_by_ranges_is_stale_by_what_others_wrote_also_if_it_comes_later(
    was_sent: float, others_wrote: bool
) -> None:
    """No label names its shard, as by labels, where the shards of the ring have been replaced meanwhile."""
    theirs = (sent(5.0, 1, "b~1"), changed(5.1, 1, "b", "b")) if others_wrote else ()
    late = sent(was_sent, 2, "a~1"), changed(9.0, 2, "b", "b")
    history = (*STARTED, CREATED, Switched(3.0, False), changed(3.0, -1, "a", "b"), *theirs, *late)
    stale = others_wrote or was_sent > 3
    assert [finding.rule for finding in check(history, by_version=True)] == ["stale write"] * stale


@pytest.mark.parametrize(("kept", "found"), [(7, ["stale write"]), (6, [])], ids=["kept", "undone"])
def test_by_ranges_what_a_restore_undid_was_not_written_by_the_present_shard(
    kept: int, found: list[str]
) -> None:
    theirs = sent(4.0, 1, "b~1"), changed(4.1, 1, "b", "b", revision=7)
    late = sent(2.0, 2, "a~1"), changed(9.0, 2, "b", "b", revision=8)
    history = (
        *STARTED,
        CREATED,
        *MOVED,
        *theirs,
        Restored(5.0, {"t1": ("b", False)}, (), {"t1": kept}),
        *late,
    )
    assert [finding.rule for finding in check(history, by_version=True)] == found


FAILURE: Sequence[Entry] = (
    *STARTED,
    sent(0.5, 1, "a~1", kind="lease"),
    LeaseChanged(0.5, 1, "a", "a", "1"),
    CREATED,
    Inflicted(5.0, 0, "pause"),
    Hit(5.0, 0, "a~1"),
    Began(6.0, "a~1", "t1", "1"),
    *MOVED,
    Began(10.0, "b~1", "t1", "1"),
    sent(11.0, 2, "a~1"),
    Answered(11.1, 2, 422),
    Inflicted(12.0, 0, "pause", over=True),
)


def test_a_timeline_tells_of_owners_work_leases_writes_and_faults() -> None:
    assert timeline(FAILURE, 10.0, "t1", "overlap: b~1 and a~1").splitlines() == [
        "overlap: b~1 and a~1",
        "     0.00  x0~1 starts",
        "     0.00  a~1 starts",
        "     0.00  b~1 starts",
        "     0.50  the Lease of a is held by a~1",
        "     1.00  a user creates t1",
        "     5.00  fault: pause",
        "     5.00  pause hits a~1",
        "     6.00  a~1 begins to work on t1",
        "     9.00  x0~1's sharder gives t1 of a to b",
        "    10.00  b~1 begins to work on t1",
        "    10.00  >>> overlap: b~1 and a~1",
        "    11.10  a~1 is refused: PATCH main t1, 422",
        "    12.00  fault over: pause a~1",
    ]


def test_a_timeline_of_what_was_noticed_long_after_it_tells_the_last_that_happened_to_the_object() -> None:
    told = timeline([*FAILURE, Calm(70.0)], 330.0, "t1", "eventually: t1 has two children").splitlines()
    assert told[-2:] == [
        "    12.00  fault over: pause a~1",
        "   330.00  >>> eventually: t1 has two children",
    ]


@pytest.mark.parametrize(
    ("befalls", "method", "says"),
    [
        (None, "PATCH", "is refused: PATCH things t1, 404"),
        (None, "GET", ""),
        (Rule("failing", always), "PATCH", "fails: PATCH things t1, 500"),
        (Rule("failing", always), "GET", "fails: GET things t1, 500"),
        (Rule("forbidden", always, code=403), "PATCH", "is refused: PATCH things t1, 403"),
        (
            Rule("refused", always, refuses_connections=True),
            "PATCH",
            "fails: PATCH things t1, connection refused",
        ),
        (
            Rule("slow", always, delay=9.0),
            "PATCH",
            "fails: PATCH things t1, no answer in time, sent 5.0 s before",
        ),
    ],
    ids=["gone", "not there", "500", "a read", "403", "refused", "timeout"],
)
@virtual_time
async def test_a_timeline_tells_what_failed_for_its_object_whether_or_not_the_server_has_seen_it(
    befalls: Rule | None, method: str, says: str
) -> None:
    async with SimulatedCluster() as world:
        await world.install()
        conditions, recorder = Conditions(world, seed=1), Recorder(world, world.ring)
        conditions.rules += [befalls] if befalls else []
        transport = Process(world, "s0~1").inside.connect("http://sim", Tls())
        path = "/apis/sim.example/v1/namespaces/team/things/t1"
        headers = {"User-Agent": "s0", "Content-Type": "application/merge-patch+json"}
        with suppress(TransportError):
            await transport.request(HttpRequest(method, path, headers, b"{}", timeout=5.0))
        told = timeline(recorder.entries, 10.0, "t1", "a violation")
        assert [line[11:] for line in told.splitlines()[1:]] == [
            *([f"s0~1 {says}"] if says else []),
            ">>> a violation",
        ]


def test_a_timeline_marks_the_other_violations_that_were_noticed_meanwhile() -> None:
    noticed = [(5.5, "overlap"), (9.9, "stale read"), (10.1, "stale read"), (14.0, "expired")]
    others = [Violation(at, oracle, "of t1") for at, oracle in noticed]
    told = timeline(FAILURE, 10.0, "t1", "always: one_child: t1 has two", others=others)
    assert [line for line in told.splitlines() if ">>>" in line] == [
        "     5.50  >>> overlap: of t1",
        "     9.90  >>> stale read: of t1",
        "    10.00  >>> always: one_child: t1 has two",
        "    10.10  >>> stale read: of t1",
    ]


def test_a_text_is_as_short_as_it_should_be_and_shows_what_is_next_to_the_violation() -> None:
    assert timeline(FAILURE, 10.0, "t1", "overlap", most=2).splitlines() == [
        "overlap",
        "     9.00  x0~1's sharder gives t1 of a to b",
        "    10.00  b~1 begins to work on t1",
        "    10.00  >>> overlap",
    ]
    longer = timeline(FAILURE, 10.0, "t1", "overlap", most=4).splitlines()
    assert longer[-1].endswith("  a~1 is refused: PATCH main t1, 422")


@virtual_time
async def test_no_write_is_taken_for_another_one_after_a_request_was_sent_again() -> None:
    """A throttled request is sent again as it is, so the writes after it must not get its number."""
    async with SimulatedCluster() as world:
        recorder = Recorder(world, world.ring)
        throttled, next_one = (
            HttpRequest("PATCH", f"/apis/sim.example/v1/namespaces/team/things/{name}", {})
            for name in ("t1", "t2")
        )
        for process, request in (("s0~1", throttled), ("s0~1", throttled), ("s1~1", next_one)):
            for heard in world.leaving:
                heard(world.processes.get(process) or Process(world, process), request)
        writes = [(entry.request, entry.process) for entry in recorder.entries if isinstance(entry, Sent)]
        assert writes == [(1, "s0~1"), (2, "s0~1"), (3, "s1~1")]
