"""The checker finds in a history what must not happen, and nothing else; a picture shows what led to it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, TransportError
from kubeshard_lab.simulation.checker import check
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.faults.injection import Conditions, Rule, summary
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
)
from kubeshard_lab.simulation.oracles import Violation
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.simulation.timeline import WIDTH, as_svg, as_text, timeline_of
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


def test_a_picture_shows_owners_work_leases_writes_and_faults() -> None:
    timeline = timeline_of(FAILURE, 10.0, "t1", "overlap: <b~1> and a~1")
    lanes = {lane.title: [(bar.begin, bar.end, bar.text) for bar in lane.bars] for lane in timeline.lanes}
    assert lanes == {
        "t1 belongs to": [(1.0, 9.0, "a"), (9.0, 13.0, "b")],
        "a~1 works": [(6.0, 13.0, "")],
        "b~1 works": [(10.0, 13.0, "")],
        "Lease a": [(0.5, 13.0, "a~1")],
        "fault": [(5.0, 12.0, "pause a~1")],
    }
    text = as_text(timeline)
    assert "x0~1's sharder gives t1 of a to b" in text
    assert text.index("b~1 begins to work on t1") < text.index(">>> overlap") < text.index("a~1 is refused")
    svg = as_svg(timeline)
    assert "overlap: &lt;b~1&gt; and a~1" in svg
    drawn = ElementTree.fromstring(svg)
    tips = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert "11.10 s: a~1 is refused: PATCH main t1, 422" in tips


def test_a_picture_of_what_was_noticed_long_after_it_shows_the_last_that_happened_to_the_object() -> None:
    timeline = timeline_of([*FAILURE, Calm(70.0)], 330.0, "t1", "eventually: t1 has two children")
    assert timeline.end == 13.0
    assert as_text(timeline).splitlines()[-1] == "   330.00  >>> eventually: t1 has two children"
    assert ">later: violation at 330.00 s</text>" in as_svg(timeline)


def test_marks_of_a_picture_that_would_cover_each_other_are_one_with_their_number() -> None:
    refused = [(10.0, 1), (10.05, 2), (10.1, 3), (12.0, 4)]
    history: list[Entry] = [
        *(
            each
            for at, request in refused
            for each in (
                sent(at, request, "a~1"),
                Answered(at, request, 422),
            )
        )
    ]
    drawn = ElementTree.fromstring(as_svg(timeline_of(history, 10.0, "t1", "refused")))
    space = "{http://www.w3.org/2000/svg}"
    tips = [group.findtext(f"{space}title") or "" for group in drawn.iter(f"{space}g")]
    assert [len(tip.splitlines()) for tip in tips] == [3, 1]
    assert [text.text for text in drawn.iter(f"{space}text")].count("3") == 1


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
async def test_a_picture_shows_what_failed_for_its_object_whether_or_not_the_server_has_seen_it(
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
        timeline = timeline_of(recorder.entries, 10.0, "t1", "a violation")
        assert [text for _, text in timeline.lines] == [
            *([f"s0~1 {says}"] if says else []),
            ">>> a violation",
        ]
        assert ("Cross: a request that failed" in as_svg(timeline)) is bool(says)


def test_what_took_no_time_can_be_seen_in_a_picture_and_explained_by_the_mouse() -> None:
    history = (
        *(Inflicted(9.0, 0, "kill"), Inflicted(9.0, 0, "kill", over=True)),
        *(Began(9.5, "a~1", "t1", "1"), Ended(9.51, "a~1", "t1", "1")),
        child(9.8, 0, "a"),
        *(sent(10.0, 1, "a~1"), Answered(10.0, 1, 409)),
    )
    drawn = ElementTree.fromstring(as_svg(timeline_of(history, 10.0, "t1", "overlap")))
    space, wide = "{http://www.w3.org/2000/svg}", {}
    for group in drawn.iter(f"{space}g"):
        (area,) = group.iter(f"{space}rect")
        wide[group.findtext(f"{space}title")] = float(area.attrib["width"])
    assert wide.keys() == {
        "kill, at 9.00 s",
        "from 9.50 to 9.51 s",
        "9.80 s: a user writes the child of t1 of a",
        "10.00 s: a~1 is refused: PATCH main t1, 409",
    }
    assert min(wide.values()) >= 7


def test_a_picture_marks_the_other_violations_that_were_noticed_while_it_lasts() -> None:
    noticed = [(5.5, "overlap"), (9.9, "stale read"), (10.1, "stale read"), (14.0, "expired")]
    others = [Violation(at, oracle, "of t1") for at, oracle in noticed]
    timeline = timeline_of(FAILURE, 10.0, "t1", "always: one_child: t1 has two", others=others)
    assert [line for line in as_text(timeline).splitlines() if ">>>" in line] == [
        "     5.50  >>> overlap: of t1",
        "     9.90  >>> stale read: of t1",
        "    10.00  >>> always: one_child: t1 has two",
        "    10.10  >>> stale read: of t1",
    ]
    drawn = ElementTree.fromstring(as_svg(timeline))
    tips = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert {"5.50 s: of t1", "9.90 s: of t1\n10.10 s: of t1"} < {*tips}
    texts = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text in ("overlap", "stale read", "expired")] == [
        "overlap",
        "stale read",
    ]


def test_a_text_is_as_short_as_it_should_be_and_shows_what_is_next_to_the_violation() -> None:
    timeline = timeline_of(FAILURE, 10.0, "t1", "overlap")
    assert as_text(timeline, 2).splitlines() == [
        "overlap",
        "     9.00  x0~1's sharder gives t1 of a to b",
        "    10.00  b~1 begins to work on t1",
        "    10.00  >>> overlap",
    ]
    assert as_text(timeline, 4).splitlines()[-1].endswith("  a~1 is refused: PATCH main t1, 422")


def caption(history: Sequence[Entry], at: float) -> str:
    drawn = ElementTree.fromstring(as_svg(timeline_of(history, at, "t1", "overlap")))
    texts = [text.text or "" for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    return " ".join(texts[[text.startswith("violation at") for text in texts].index(True) :])


@pytest.mark.parametrize(
    ("history", "says"),
    [
        ((Began(9.0, "s0~1", "t1", "1"),), ["A colour is an instance."]),
        ((Inflicted(9.0, 0, "kill"),), ["Pale: a fault."]),
        ((Died(9.0, "s0~1", "killed"),), ["Cross: "]),
        ((Died(9.0, "s0~1", "killed"), Died(9.1, "s0~2", "killed")), ["Cross: ", "A number: "]),
        (FAILURE, ["A colour is an instance.", "Pale: a fault.", "Triangle: ", "Cross: "]),
        (
            (
                CREATED,
                changed(3.0, 0, "a", "a", draining=(False, True)),
                sent(5.0, 2, "x0~1", sharder=True, kind="lease"),
                LeaseChanged(5.0, 2, "a", "x0", "1"),
                Inflicted(9.0, 0, "kill"),
            ),
            [
                "A colour is an instance.",
                "Pale: a fault, an object that is being drained, or a Lease that a sharder holds.",
                "Triangle: ",
            ],
        ),
    ],
)
def test_a_picture_explains_only_the_colours_and_marks_that_it_has(
    history: Sequence[Entry], says: list[str]
) -> None:
    explained = ("A colour is an instance.", "Pale: ", "Triangle: ", "Cross: ", "A number: ")
    said = caption(history, 10.0)
    for each in explained:
        assert (each in said) is any(one.startswith(each) for one in says), each
    assert all(each in said for each in says)


def test_a_picture_says_what_its_faults_are() -> None:
    history: list[Entry] = [
        Inflicted(1.0, 0, "kill"),  # over before the picture begins
        Inflicted(2.0, 0, "kill", over=True),
        Inflicted(55.0, 1, "flapping"),
        Began(60.0, "s0~1", "t1", "1"),
    ]
    said = as_svg(timeline_of(history, 60.0, "t1", "overlap"))
    assert f"flapping: {summary('flapping')}" in said
    assert summary("kill") not in said


def test_no_label_of_a_picture_covers_another_one_or_leaves_it() -> None:
    """However long names and titles are, and however many faults there are at once."""
    name = "a-desk-with-quite-a-long-name-0"
    history: list[Entry] = [
        *(Inflicted(5.0 + number / 10, number, "leases_unreadable") for number in range(6)),
        *(Inflicted(9.0, number, "leases_unreadable", over=True) for number in range(6)),
        Began(9.9, "s0~1", name, "1"),
        *(Inflicted(10.5 + number, 10 + number, "rolling_update") for number in range(3)),
    ]
    drawn = ElementTree.fromstring(
        as_svg(timeline_of(history, 10.0, name, "overlap: " + "who did what " * 30))
    )
    texts = [(element, element.text or "") for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    places = []
    for element, text in texts:
        wide = len(text) * (8.4 if element.get("font-weight") else 6.6)
        x, y = float(element.attrib["x"]), float(element.attrib["y"])
        anchor = element.get("text-anchor")
        begin = x - wide if anchor == "end" else x - wide / 2 if anchor == "middle" else x
        assert begin >= 0, text
        assert begin + wide <= WIDTH, text
        places.append((y, begin, begin + wide, text))
    places.sort()
    for (y, _, end, text), (below, begin, _, other) in pairwise(places):
        assert below - y >= 10 or begin >= end, f"{text} covers {other}"


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
