from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubeshard.workqueue.delays import Delays
from kubeshard.workqueue.order import LOW, NORMAL


def popped(delays: Delays[Any], now: float) -> list[tuple[Any, str, int]]:
    return [
        (key, str(next((cause for cause in wanted.causes), "")), wanted.priority)
        for key, wanted in delays.pop_due(now)
    ]


def test_a_key_is_due_at_its_time_and_not_before() -> None:
    delays: Delays[str] = Delays()
    delays.schedule("a", 5)
    assert popped(delays, 4.9) == []
    assert popped(delays, 5) == [("a", "", NORMAL)]
    assert len(delays) == 0


def test_a_second_delay_moves_a_key_earlier() -> None:
    delays: Delays[str] = Delays()
    delays.schedule("a", 5, "late")
    delays.schedule("a", 2, "early")
    assert delays.next_due() == 2
    assert popped(delays, 10) == [("a", "early", NORMAL)]


def test_a_second_delay_never_moves_a_key_later() -> None:
    delays: Delays[str] = Delays()
    delays.schedule("a", 2)
    delays.schedule("a", 5)
    assert popped(delays, 2) == [("a", "", NORMAL)]
    assert popped(delays, 10) == []


def test_a_key_that_waits_has_the_highest_priority_that_it_was_given() -> None:
    delays: Delays[str] = Delays()
    delays.schedule("a", 5, "first", LOW)
    delays.schedule("a", 9, "later", NORMAL)
    delays.schedule("a", 2, "earliest", LOW)
    assert popped(delays, 9) == [("a", "earliest", NORMAL)]


def test_a_key_that_was_due_can_wait_again() -> None:
    delays: Delays[str] = Delays()
    delays.schedule("a", 2)
    delays.pop_due(2)
    delays.schedule("a", 9)
    assert delays.next_due() == 9


def test_keys_moved_earlier_over_and_over_take_no_room() -> None:
    delays: Delays[str] = Delays()
    for due in range(10_000, 0, -1):
        delays.schedule("a", due)
    assert len(delays._heap) < 100


def test_a_key_that_was_dropped_is_never_due_and_takes_no_room() -> None:
    delays: Delays[int] = Delays()
    for key in range(1000):
        delays.schedule(key, 100 + key)
    for key in range(1, 1000):
        delays.drop(key)
    delays.drop(5000)
    assert len(delays) == 1
    assert len(delays._heap) < 100
    assert popped(delays, 10_000) == [(0, "", NORMAL)]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100)), max_size=40))
def test_every_key_is_due_once_at_the_earliest_of_its_times(calls: list[tuple[int, float]]) -> None:
    delays: Delays[int] = Delays()
    earliest: dict[int, float] = {}
    for key, due in calls:
        delays.schedule(key, due)
        earliest[key] = min(due, earliest.get(key, due))
    assert len(delays) == len(earliest)
    found: list[tuple[float, int]] = []
    while (due_at := delays.next_due()) is not None:
        found += [(due_at, key) for key, _ in delays.pop_due(due_at)]
    assert sorted(found) == sorted((due, key) for key, due in earliest.items())
    assert [due for due, _ in found] == sorted(due for due, _ in found)


def test_a_retry_that_was_dropped_does_not_lend_its_place_to_the_next_one():
    delays: Delays[str] = Delays()
    delays.schedule("a", 1, retry=True)
    delays.schedule("b", 1, retry=True)
    delays.drop_retry("a")
    delays.schedule("a", 1, retry=True)
    assert [key for key, _ in delays.pop_due(1)] == ["b", "a"]
