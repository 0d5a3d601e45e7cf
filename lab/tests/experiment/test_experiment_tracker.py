"""What a user waited for is counted once for each generation, whatever the order in which the news arrive."""

from __future__ import annotations

import math

import pytest

from kubeshard_lab.experiment.recording import Generation
from kubeshard_lab.experiment.tracker import Tracker, Written

NAN = math.nan
W1, W2, W3, W4 = (
    ("wrote", 1, 10.0),
    ("wrote", 2, 20.0),
    ("wrote", 3, 30.0),
    ("wrote", 4, 40.0),
)


@pytest.mark.parametrize(
    ("news", "decided"),
    [
        ([W1, ("saw", 1, 11.0)], [(1, 11.0, "")]),
        ([("saw", 1, 11.0), W1], [(1, 11.0, "")]),
        ([W1, ("saw", 0, 10.5), ("saw", 1, 11.0), ("saw", 1, 12.0)], [(1, 11.0, "")]),
        ([W1, W2, ("saw", 2, 21.0)], [(1, 21.0, "backfilled"), (2, 21.0, "")]),
        ([W1, ("saw", 2, 21.0), W2], [(1, 21.0, "backfilled"), (2, 21.0, "")]),
        ([W1, ("saw", 1, 11.0), ("saw", 2, 21.0), W2], [(1, 11.0, ""), (2, 21.0, "")]),
        ([("saw", 1, 11.0), ("saw", 2, 21.0), W1, W2], [(1, 11.0, ""), (2, 21.0, "")]),
        ([("saw", 2, 21.0), W1, W2], [(1, 21.0, "backfilled"), (2, 21.0, "")]),
        ([W1, W2, W3, ("saw", 2, 21.0), ("saw", 3, 31.0)],
         [(1, 21.0, "backfilled"), (2, 21.0, ""), (3, 31.0, "")]),
        ([W1, W1, ("saw", 1, 11.0)], [(1, 11.0, "")]),
        ([W1, ("saw", 1, 11.0), W2, ("removed",)], [(1, 11.0, ""), (2, NAN, "gone")]),
        ([W1, ("removed",), ("removed",), ("saw", 1, 11.0)], [(1, NAN, "gone")]),
        ([W1, ("saw", 1, 11.0), W4], [(1, 11.0, ""), (4, NAN, "never")]),
    ],
)  # fmt: skip
def test_each_generation_is_decided_once(
    news: list[tuple[object, ...]], decided: list[tuple[int, float, str]]
) -> None:
    found: list[Generation] = []
    tracker = Tracker(found.append)
    for each in news:
        match each:
            case ("wrote", int(generation), float(time)):
                tracker.wrote(Written("ns", "name", "uid", generation, time, time, time))
            case ("saw", int(generation), float(time)):
                tracker.saw("uid", generation, "shard", time)
            case _:
                tracker.removed("uid")
    tracker.end()
    told = [
        (g.generation, g.ready, "backfilled" if g.backfilled else "gone" if g.gone else "") for g in found
    ]
    wanted = [(number, time, how.replace("never", "")) for number, time, how in decided]
    assert repr(told) == repr(wanted)
    assert tracker.never == sum(how == "never" for *_, how in decided)


def test_objects_are_counted_by_shard_and_moves_only_from_one_to_another() -> None:
    tracker = Tracker(lambda _: None)
    for uid, shard in (("a", ""), ("b", "one"), ("a", "one"), ("b", "two"), ("c", "two")):
        tracker.saw(uid, 0, shard, 1.0)
    assert (tracker.shards["one"], tracker.shards["two"], tracker.shards[""], tracker.moves) == (1, 2, 0, 1)
    tracker.removed("c")
    assert tracker.shards["two"] == 1
    assert len(tracker) == 2


def test_what_users_waited_for_counts_from_when_the_write_was_due() -> None:
    tracker = Tracker(lambda _: None)
    tracker.wrote(Written("ns", "name", "uid", 1, due=10.0, sent=14.0, answered=15.0))
    tracker.saw("uid", 1, "", 16.0)
    assert tracker.waited(16.0) == [6.0]
    assert tracker.waited(100.0) == []
