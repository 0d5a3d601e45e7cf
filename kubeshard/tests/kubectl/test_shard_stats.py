"""Counts that are updated with each change equal those of a complete recount."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeshard.inspection.stats import MOST_NAMES, RECENT, LeaseView, RingSnapshot, RingStats
from kubeshard.sharding.hash_ring import HashRing, point_of

RESOURCES = {"secrets": True, "configmaps": False}
SHARDS = ("", "a", "b", "c", "ghost")


@dataclass(frozen=True)
class Thing:
    shard: str
    draining: bool

    def key(self, uid: str) -> str:
        return f"/Secret/team/{uid}"


things = st.builds(Thing, st.sampled_from(SHARDS), st.booleans())
uids = st.sampled_from([f"u{number}" for number in range(8)])
resources = st.sampled_from(list(RESOURCES))
steps = st.one_of(
    st.tuples(st.just("put"), resources, uids, things),
    st.tuples(st.just("drop"), resources, uids),
    st.tuples(st.just("read"), resources, st.dictionaries(uids, things, max_size=8)),
    st.tuples(st.just("broken read"), resources, st.dictionaries(uids, things, max_size=3)),
    st.tuples(st.just("shards"), st.dictionaries(st.sampled_from(["a", "b", "c"]), st.booleans())),
)


def counted(objects: dict[str, dict[str, Thing]], live: dict[str, bool]) -> RingSnapshot:
    """Returns what the stats should say, counted from scratch."""
    ring = HashRing([name for name, lives in live.items() if lives])
    unassigned = stranded = misplaced = 0
    for of in objects.values():
        for uid, thing in of.items():
            unassigned += not thing.shard
            stranded += bool(thing.shard) and not live.get(thing.shard, False)
            misplaced += live.get(thing.shard, False) and ring.owner(thing.key(uid)) != thing.shard
    every = [thing for of in objects.values() for thing in of.values()]
    draining = sum(thing.draining for thing in every)
    return RingSnapshot((), unassigned, stranded, misplaced, draining, len(every))


@settings(max_examples=max(100, settings.default.max_examples))
@given(st.lists(steps, max_size=30))
def test_counts_are_those_of_the_last_state_of_each_object(told: list[tuple]) -> None:  # type: ignore[type-arg]
    stats, now = RingStats(RESOURCES), 0.0
    objects: dict[str, dict[str, Thing]] = {resource: {} for resource in RESOURCES}
    live: dict[str, bool] = {}
    for step in told:
        now += 1
        match step:
            case ("put", resource, uid, thing):
                objects[resource][uid] = thing
                stats.put(resource, uid, point_of(thing.key(uid)), thing.shard, thing.draining, now)
            case ("drop", resource, uid):
                objects[resource].pop(uid, None)
                stats.drop(resource, uid, now)
            case ("read" | "broken read" as what, resource, found):
                stats.begin(resource)
                for uid, thing in found.items():
                    stats.put(resource, uid, point_of(thing.key(uid)), thing.shard, thing.draining, now)
                if what == "read":
                    objects[resource] = dict(found)
                    stats.end(resource, now)
                else:
                    objects[resource] |= found
            case ("shards", now_live):
                live = now_live
                stats.shards({name: LeaseView("ready", lives) for name, lives in live.items()})
        view, expected = stats.snapshot(now), counted(objects, live)
        for field in ("unassigned", "stranded", "misplaced", "draining", "total"):
            assert getattr(view, field) == getattr(expected, field), field
        for main, column in ((True, "objects"), (False, "followers")):
            by_shard = Counter(
                thing.shard
                for resource, of in objects.items()
                if RESOURCES[resource] is main
                for thing in of.values()
                if thing.shard
            )
            assert {row.shard: getattr(row, column) for row in view.rows if getattr(row, column)} == dict(
                by_shard
            )
        assert {row.shard for row in view.rows if row.live} == {name for name, lives in live.items() if lives}


def stats_of(*shards: str) -> RingStats:
    stats = RingStats(RESOURCES)
    stats.shards({name: LeaseView("ready", True) for name in shards})
    return stats


def test_a_movement_is_shown_at_both_ends_for_a_while() -> None:
    stats = stats_of("a", "b")
    stats.put("secrets", "u", point_of("k"), "a", False, 0.0)
    stats.put("secrets", "u", point_of("k"), "b", False, 1.0)
    rows = {row.shard: (row.arrived, row.left) for row in stats.snapshot(2.0).rows}
    assert rows == {"a": (0, 1), "b": (1, 0)}
    assert {(row.arrived, row.left) for row in stats.snapshot(1.0 + RECENT + 1).rows} == {(0, 0)}
    assert stats.moves == 1


def test_what_is_read_anew_has_not_moved() -> None:
    stats = stats_of("a", "b")
    stats.put("secrets", "u", point_of("k"), "a", False, 0.0)
    for _ in range(2):
        stats.begin("secrets")
        stats.put("secrets", "u", point_of("k"), "a", False, 1.0)
        stats.end("secrets", 1.0)
    assert (stats.moves, len(stats)) == (0, 1)


def test_a_drain_is_as_old_as_the_first_of_those_that_are_pending() -> None:
    stats = stats_of("a")
    stats.put("secrets", "u", point_of("k"), "a", True, 5.0)
    stats.put("secrets", "v", point_of("l"), "a", False, 6.0)
    stats.put("secrets", "v", point_of("l"), "a", True, 9.0)
    assert stats.snapshot(10.0).rows[0].draining_for == 5.0
    stats.put("secrets", "u", point_of("k"), "a", False, 11.0)
    assert stats.snapshot(12.0).rows[0].draining_for == 7.0
    stats.drop("secrets", "v", 13.0)
    assert stats.snapshot(14.0).rows[0].draining_for == 0.0
    assert stats.drains == 1


def test_names_that_anybody_writes_into_labels_are_bounded() -> None:
    stats = stats_of("a")
    for number in range(MOST_NAMES + 100):
        stats.put("secrets", f"u{number}", point_of(f"k{number}"), f"made-up-{number}", False, 0.0)
    view = stats.snapshot(1.0)
    assert len(view.rows) < MOST_NAMES + 2
    assert view.stranded == MOST_NAMES + 100
    assert "(others)" in {row.shard for row in view.rows}


@pytest.mark.parametrize("count", [10_000, 40_000])
def test_memory_for_each_object_is_that_of_a_number(count: int) -> None:
    """However long names and labels are, the data kept per object has the same size."""
    stats = stats_of("a", "b")
    for number in range(count):
        stats.put("secrets", f"uid-{number}", point_of(f"/Secret/team/{number}" * 50), "a", False, 0.0)
    kept = stats._objects["secrets"]
    size = sys.getsizeof(kept) + sum(sys.getsizeof(each) for pair in kept.items() for each in pair)
    assert len(stats) == count
    assert size < 180 * count
