"""Which shards are evicted, on a virtual clock."""

from __future__ import annotations

from kubeshard.core.kinds import GroupResource
from kubeshard.sharding.take_overs import RECENT, REMEMBERED, Evictions, Place

THINGS = GroupResource("sim.example", "things")


def due(evictions: Evictions, shard: str, others: int, now: float) -> bool:
    """Whether the shard, whose process has long had the Lease, is due."""
    evictions.is_due(shard, "process", others, -1000.0)
    return evictions.is_due(shard, "process", others, now)


def place(name: str) -> Place:
    return THINGS, f"uid of {name}"


def test_a_shard_with_an_overdue_object_is_evicted_if_another_one_is_available() -> None:
    evictions = Evictions(90.0)
    assert not due(evictions, "a", 1, 0.0)
    evictions.overdue([(place("x"), "a", 0.0), (place("y"), "a", 0.0)])
    assert evictions.number("a") == 2
    assert due(evictions, "a", 1, 0.0)
    assert not due(evictions, "a", 0, 0.0)
    assert not due(evictions, "b", 1, 0.0)
    evictions.overdue([])
    assert not due(evictions, "a", 1, 0.0)


def test_without_a_timeout_nothing_is_ever_overdue() -> None:
    assert Evictions(0.0).timeout == float("inf")


def test_shards_are_evicted_one_after_the_other() -> None:
    evictions = Evictions(90.0)
    evictions.overdue([(place("x"), "a", 89.0), (place("y"), "b", 89.0)])
    evictions.evicted("a", 0.0)
    assert not due(evictions, "b", 1, 89.0)
    assert due(evictions, "b", 1, 90.0)


def test_an_object_costs_one_shard_and_another_object_another_one() -> None:
    evictions = Evictions(90.0)
    evictions.overdue([(place("x"), "a", 1000.0)])
    evictions.evicted("a", 0.0)
    evictions.overdue([(place("x"), "b", 1000.0)])
    assert not due(evictions, "b", 1, 1000.0)
    evictions.overdue([(place("x"), "b", 1000.0), (place("y"), "b", 1000.0)])
    assert due(evictions, "b", 1, 1000.0)


def test_only_so_many_objects_are_remembered() -> None:
    evictions = Evictions(90.0)
    names = [f"x{number}" for number in range(REMEMBERED + 1)]
    evictions.overdue([(place(name), "a", 1000.0) for name in names])
    evictions.evicted("a", 0.0)
    evictions.overdue([(place(names[-1]), "b", 1000.0)])
    assert not due(evictions, "b", 1, 1000.0)
    evictions.overdue([(place(names[0]), "b", 1000.0)])
    assert due(evictions, "b", 1, 1000.0)


def test_a_process_is_not_blamed_for_what_its_predecessor_did() -> None:
    evictions = Evictions(90.0)
    evictions.overdue([(place("x"), "a", 80.0)])
    assert not evictions.is_due("a", "first", 1, 0.0)
    assert not evictions.is_due("a", "first", 1, 89.0)
    assert not evictions.is_due("a", "second", 1, 90.0)
    evictions.overdue([(place("x"), "a", 170.0)])
    assert not evictions.is_due("a", "second", 1, 179.0)
    assert evictions.is_due("a", "second", 1, 180.0)


def test_of_shards_that_have_left_nothing_is_remembered() -> None:
    """With each rollout all have other names."""
    evictions = Evictions(90.0)
    assert not evictions.is_due("a", "process", 1, 0.0)
    evictions.keep({"b"})
    evictions.overdue([(place("x"), "a", 100.0)])
    assert not evictions.is_due("a", "process", 1, 100.0)
    evictions.keep({"a", "b"})
    assert not evictions.is_due("a", "process", 1, 110.0)
    assert evictions.number("a") == 1


def test_nothing_is_overdue_that_no_recent_scan_has_seen() -> None:
    evictions = Evictions(90.0)
    evictions.overdue([(place("x"), "a", 0.0)])
    assert due(evictions, "a", 1, RECENT - 1)
    assert not due(evictions, "a", 1, RECENT)
