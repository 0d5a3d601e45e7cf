"""Ready keys by priority: which goes first, which never starves, and what is not kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import pytest

from kubeshard.workqueue.order import KEPT, LOW, NORMAL, SHARE, Levels


def levels_of(*keys: tuple[str, int]) -> Levels[str]:
    levels: Levels[str] = Levels(deque)
    for key, priority in keys:
        levels.append(key, priority)
    return levels


def taken(levels: Levels[str]) -> Iterable[str]:
    while levels.ready:
        yield levels.popleft()


def test_a_key_that_triggers_itself_without_end_starves_no_lower_one() -> None:
    """One object that changes in every reconcile, one worker, and the objects that existed at the start."""
    levels = levels_of(("hot", NORMAL), *((f"listed {number}", LOW) for number in range(3)))
    seen = []
    for _ in range(3 * SHARE):
        seen.append(levels.popleft())
        if seen[-1] == "hot":
            levels.append("hot", NORMAL)
    assert [key for key in seen if key != "hot"] == ["listed 0", "listed 1", "listed 2"]


def test_every_one_of_many_priorities_is_served_in_the_end() -> None:
    levels = levels_of(("hot", 2), ("middle", 1), ("low", 0))
    seen = set()
    for _ in range(SHARE**2 + SHARE):
        key = levels.popleft()
        seen.add(key)
        levels.append(key, {"hot": 2, "middle": 1, "low": 0}[key])
    assert seen == {"hot", "middle", "low"}


def test_lower_keys_get_no_turn_that_nobody_has_to_wait_for() -> None:
    """Turns are counted only while a key of lower priority waits."""
    levels = levels_of(*((f"high {number}", NORMAL) for number in range(SHARE - 1)))
    for _ in range(SHARE - 1):
        levels.popleft()
    levels.append("low", LOW)
    levels.append("high", NORMAL)
    assert list(taken(levels)) == ["high", "low"]


def test_a_key_that_rose_is_handed_out_once() -> None:
    levels = levels_of(("a", LOW), ("b", LOW))
    levels.rise("a", LOW, NORMAL)
    levels.rise("a", NORMAL, 7)
    assert (levels.ready, levels.depths()) == (2, {NORMAL: 0, LOW: 1, 7: 1})
    assert list(taken(levels)) == ["a", "b"]


def test_a_key_that_rose_and_comes_back_to_its_old_priority_is_handed_out_once() -> None:
    levels = levels_of(("a", LOW), ("b", LOW))
    levels.rise("a", LOW, NORMAL)
    assert levels.popleft() == "a"
    levels.append("a", LOW)
    assert sorted(taken(levels)) == ["a", "b"]


def test_keys_that_rise_for_ever_are_not_kept_twice() -> None:
    held: list[int] = []

    class Counting(deque[str]):
        def append(self, key: str, /) -> None:
            super().append(key)
            held.append(len(self))

    levels: Levels[str] = Levels(Counting)
    levels.append("stays", LOW)
    for _ in range(1000):
        levels.append("a", LOW)
        levels.rise("a", LOW, NORMAL)
        while levels.popleft() != "a":
            levels.append("stays", LOW)
    assert max(held) <= 2


def test_a_thousand_priorities_leave_a_few_levels() -> None:
    levels = levels_of(*((f"key {priority}", priority) for priority in range(1000)))
    assert len(list(taken(levels))) == 1000
    assert len(levels.depths()) <= KEPT + 1


def test_nothing_is_handed_out_when_nothing_waits() -> None:
    levels = levels_of(("a", LOW))
    levels.clear()
    assert levels.ready == 0
    with pytest.raises(IndexError):
        levels.popleft()
