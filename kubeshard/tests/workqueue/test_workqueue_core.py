"""The four guarantees of the queue's state machine, each by example, and all of them against a model."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kubeshard.workqueue.order import LOW, NORMAL
from kubeshard.workqueue.state_machine import QueueCore

IDLE, QUEUED, RUNNING, DIRTY = "IDLE", "QUEUED", "RUNNING", "RUNNING_DIRTY"


def state_of(queue: QueueCore[Any], key: Any) -> str:
    """The state of the table in which the key is."""
    if key in queue.taken:
        return DIRTY if key in queue.wanted else RUNNING
    return QUEUED if key in queue.wanted else IDLE


def queue_in(state: str) -> QueueCore[str]:
    """Returns a queue whose key "k" is in that state, with another key waiting behind it."""
    queue: QueueCore[str] = QueueCore(int)
    if state is not IDLE:
        queue.add("k")
    if state in (RUNNING, DIRTY):
        queue.take()
    queue.add("other")
    if state is DIRTY:
        queue.add("k")
    assert state_of(queue, "k") is state
    return queue


@pytest.mark.parametrize(
    ("before", "after"), [(IDLE, QUEUED), (QUEUED, QUEUED), (RUNNING, DIRTY), (DIRTY, DIRTY)]
)
def test_add_follows_the_table(before: str, after: str) -> None:
    queue = queue_in(before)
    assert queue.add("k") is (before is not after)
    assert state_of(queue, "k") is after


@pytest.mark.parametrize(("before", "after"), [(RUNNING, IDLE), (DIRTY, QUEUED)])
def test_done_follows_the_table(before: str, after: str) -> None:
    queue = queue_in(before)
    assert queue.done("k") is (after is QUEUED)
    assert state_of(queue, "k") is after


@pytest.mark.parametrize("state", [IDLE, QUEUED])
def test_done_with_a_key_that_is_not_running_is_an_error(state: str) -> None:
    with pytest.raises(KeyError):
        queue_in(state).done("k")


def test_fair_keys_are_handed_out_in_the_order_of_their_first_add() -> None:
    queue: QueueCore[str] = QueueCore(int)
    for key in "abcab":
        queue.add(key)
    assert [queue.take() for _ in range(3)] == ["a", "b", "c"]


class ShortestFirst(list[str]):
    """An order that is not first in, first out."""

    def popleft(self) -> str:
        self.sort(key=len)
        return self.pop(0)


def test_another_order_decides_what_is_next_and_nothing_else() -> None:
    queue = QueueCore[str](int, ShortestFirst)
    for key in ("ccc", "a", "bb", "a"):
        queue.add(key)
    assert queue.take() == "a"
    queue.add("a")  # while a worker is processing it
    assert [queue.take(), queue.ready] == ["bb", 1]
    queue.done("a")
    assert [queue.take(), queue.take(), queue.ready] == ["a", "ccc", 0]


def test_of_two_priorities_the_higher_is_handed_out_first_and_within_one_the_first() -> None:
    queue = QueueCore[str](int)
    for key, priority in (("low", LOW), ("one", NORMAL), ("two", NORMAL), ("high", 10)):
        queue.add(key, priority)
    assert queue.depths() == {LOW: 1, NORMAL: 2, 10: 1}
    assert [queue.take() for _ in range(4)] == ["high", "one", "two", "low"]


def test_the_priority_of_a_key_that_waits_rises_and_puts_it_last_of_its_new_one() -> None:
    queue = QueueCore[str](int)
    queue.add("a", LOW)
    queue.add("b", LOW)
    queue.add("c", NORMAL)
    queue.add("a", NORMAL)
    assert queue.depths() == {LOW: 1, NORMAL: 2}
    assert [queue.take() for _ in range(3)] == ["c", "a", "b"]
    assert queue.ready == 0


def test_the_priority_of_a_key_that_waits_never_sinks() -> None:
    queue = QueueCore[str](int)
    queue.add("a", NORMAL)
    queue.add("b", NORMAL)
    queue.add("a", LOW)
    assert [queue.take(), queue.take()] == ["a", "b"]


def test_the_priority_of_an_add_during_processing_is_that_of_the_next_run() -> None:
    queue = QueueCore[str](int)
    queue.add("a", LOW)
    queue.take()
    queue.add("b", LOW)
    queue.add("a", LOW)
    queue.add("a", NORMAL)
    assert (queue.taken["a"].priority, queue.wanted["a"].priority) == (LOW, NORMAL)
    assert queue.depths() == {LOW: 1, NORMAL: 1}
    queue.done("a")
    assert [queue.take(), queue.take()] == ["a", "b"]


def test_an_order_that_raises_loses_no_key() -> None:
    """The add fails, and the next add is not deduplicated against it."""

    class Full(deque[str]):
        def append(self, key: str, /) -> None:
            if not working:
                raise RuntimeError("full")
            super().append(key)

    working = False
    queue = QueueCore[str](int, Full)
    with pytest.raises(RuntimeError):
        queue.add("a")
    assert state_of(queue, "a") is IDLE
    working = True
    queue.add("a")
    assert queue.take() == "a"


def test_stingy_a_key_added_many_times_is_handed_out_once() -> None:
    queue: QueueCore[str] = QueueCore(int)
    for _ in range(100):
        queue.add("a")
    assert queue.take() == "a"
    with pytest.raises(IndexError):
        queue.take()


def test_exclusive_a_key_is_not_handed_out_while_a_worker_has_it() -> None:
    queue: QueueCore[str] = QueueCore(int)
    queue.add("a")
    queue.take()
    queue.add("a")
    assert queue.ready == 0


def test_nothing_is_lost_an_add_during_processing_is_handed_out_after_done() -> None:
    queue: QueueCore[str] = QueueCore(int)
    queue.add("a")
    queue.take()
    queue.add("a")
    queue.add("b")
    queue.done("a")
    assert [queue.take(), queue.take()] == ["b", "a"]


def test_after_close_adds_are_ignored_and_what_was_added_is_handed_out() -> None:
    queue = queue_in(DIRTY)
    queue.close()
    assert queue.add("late") is False
    assert queue.take() == "other"
    assert queue.done("k") is True
    assert queue.take() == "k"
    assert queue.ready == 0


def test_discard_forgets_what_waits_and_keeps_what_runs() -> None:
    queue = queue_in(DIRTY)
    assert sorted(queue.discard()) == ["k", "other"]
    assert (queue.ready, state_of(queue, "k")) == (0, RUNNING)
    assert queue.done("k") is False


class AgainstModel(RuleBasedStateMachine):
    """Compares the queue with the simplest model of it: a list of waiting keys, a set of running ones, and a set of
    those to repeat.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queue: QueueCore[int] = QueueCore(int)
        self.waiting: list[int] = []
        self.running: set[int] = set()
        self.again: set[int] = set()
        self.closed = False

    @rule(key=st.integers(0, 4))
    def add(self, key: int) -> None:
        self.queue.add(key)
        if self.closed:
            return
        if key in self.running:
            self.again.add(key)
        elif key not in self.waiting:
            self.waiting.append(key)

    @precondition(lambda self: self.waiting)
    @rule()
    def take(self) -> None:
        key = self.queue.take()
        assert key not in self.running, "handed to two workers"
        assert key == self.waiting.pop(0)
        self.running.add(key)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        self.running.remove(key)
        if key in self.again:
            self.again.remove(key)
            self.waiting.append(key)
        self.queue.done(key)

    @rule()
    def close(self) -> None:
        self.closed = True
        self.queue.close()

    @rule()
    def discard(self) -> None:
        self.queue.discard()
        self.waiting.clear()
        self.again.clear()

    @invariant()
    def counts_agree(self) -> None:
        assert self.queue.ready == len(self.waiting)
        assert self.queue.running == len(self.running)
        assert self.queue.depth == len(self.waiting) + len(self.again)

    @invariant()
    def states_agree(self) -> None:
        for key in range(5):
            dirty = key in self.waiting or key in self.again
            expected = (DIRTY if dirty else RUNNING) if key in self.running else (QUEUED if dirty else IDLE)
            assert state_of(self.queue, key) is expected


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = settings(stateful_step_count=40)
