"""Bursts are combined into one run: first the times alone, then the queue, on virtual time."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workqueue_bench import new_queue, take

from kubeshard.workqueue import Debounce, ShutDown
from kubeshard.workqueue.delays import Delays
from kubeshard.workqueue.order import LOW, NORMAL
from kubeshard_lab.virtual_time import VirtualClock, virtual_time

BURST = Debounce(quiet=2, longest=5)


@pytest.mark.parametrize(
    ("quiet", "longest"), [(0, 1), (-1, 1), (2, 1), (1, float("inf")), (float("nan"), 1)]
)
def test_a_rule_that_cannot_work_is_refused(quiet: float, longest: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        Debounce(quiet, longest)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=30))
def test_a_key_is_due_when_it_was_quiet_or_has_waited_longest(gaps: list[int]) -> None:
    settling: Delays[str] = Delays()
    now = 0
    touches: list[int] = []
    for gap in gaps:
        settling.touch("k", now, BURST)
        touches.append(now)
        expected = min(touches[-1] + 2, touches[0] + 5)
        assert settling.next_due() == expected
        now += gap
        due = settling.pop_due(now)
        assert bool(due) is (expected <= now)
        if due:
            touches.clear()


def test_keys_that_are_dropped_and_touched_for_ever_are_not_kept() -> None:
    settling: Delays[str] = Delays()
    for _ in range(10_000):
        settling.touch("k", 0, BURST)
        settling.drop("k")
    assert len(settling._heap) < 100
    assert settling.next_due() is None


@virtual_time
async def test_a_burst_makes_one_run_when_it_has_been_quiet() -> None:
    queue, clock = new_queue(debounce=BURST), VirtualClock()
    for _ in range(3):
        queue.add_debounced("a")
        await asyncio.sleep(1)
    assert (len(queue), queue.delayed) == (0, 1)
    assert await take(queue) == "a"
    assert clock.monotonic() == 4
    await asyncio.sleep(60)
    assert (len(queue), queue.delayed) == (0, 0)


@virtual_time
async def test_a_burst_without_end_makes_a_run_whenever_the_longest_wait_is_over() -> None:
    queue, clock = new_queue(debounce=BURST), VirtualClock()
    runs = []

    async def work() -> None:
        while True:
            async with queue.get():
                runs.append(clock.monotonic())

    worker = asyncio.create_task(work())
    for _ in range(18):
        queue.add_debounced("a")
        await asyncio.sleep(1)
    worker.cancel()
    assert runs == [5, 10, 15]


@virtual_time
async def test_each_key_has_a_burst_of_its_own() -> None:
    queue, clock = new_queue(debounce=BURST), VirtualClock()
    queue.add_debounced("a")
    await asyncio.sleep(1)
    queue.add_debounced("b")
    queue.add_debounced("a")
    queue.add_debounced("c")
    assert [await take(queue) for _ in "abc"] == ["a", "b", "c"]
    assert clock.monotonic() == 3


@virtual_time
async def test_a_run_that_comes_for_another_reason_is_the_run_of_the_burst_too() -> None:
    queue = new_queue(debounce=BURST)
    queue.add_debounced("a", "changed")
    await asyncio.sleep(1)
    queue.add("a", "asked for")
    async with queue.get() as key:
        assert queue.reasons(key) == ("asked for", "changed")
        assert [cause.since for cause in queue.why(key)] == [1, 0]
    await asyncio.sleep(60)
    assert (len(queue), queue.delayed) == (0, 0)


@virtual_time
async def test_a_trigger_during_the_run_makes_another() -> None:
    queue, clock = new_queue(debounce=BURST), VirtualClock()
    queue.add("a")
    async with queue.get():
        queue.add_debounced("a", "changed")
        await asyncio.sleep(10)
        assert len(queue) == 0
    async with queue.get() as key:
        assert (clock.monotonic(), queue.reasons(key)) == (10, ("changed",))


@virtual_time
async def test_the_reasons_and_the_priority_of_a_burst_are_kept() -> None:
    queue = new_queue(debounce=BURST)
    queue.add_debounced("a", "listed", priority=LOW)
    await asyncio.sleep(1)
    queue.add_debounced("a", "changed", priority=NORMAL)
    queue.add_debounced("a", "listed", priority=LOW)
    async with queue.get() as key:
        assert queue.priority(key) == NORMAL
        assert [(str(cause), cause.since) for cause in queue.why(key)] == [("listed", 0), ("changed", 1)]


@virtual_time
async def test_retries_and_delays_are_not_debounced() -> None:
    queue, clock = new_queue(debounce=BURST), VirtualClock()
    queue.add_after("a", 1)
    assert await take(queue) == "a"
    assert clock.monotonic() == 1


@virtual_time
async def test_without_debounce_a_trigger_is_an_add() -> None:
    queue = new_queue()
    queue.add_debounced("a", "changed")
    assert (len(queue), queue.reasons("a")) == (1, ("changed",))


@virtual_time
async def test_a_shutdown_hands_out_what_was_triggered_before_it() -> None:
    queue = new_queue(debounce=BURST)
    queue.add_debounced("a", "changed")
    queue.shut_down()
    queue.add_debounced("late")
    async with queue.get() as key:
        assert (key, queue.reasons(key)) == ("a", ("changed",))
    with pytest.raises(ShutDown):
        await take(queue)
    queue.shut_down()


@virtual_time
async def test_a_drain_waits_for_what_was_triggered_before_it() -> None:
    queue = new_queue(debounce=BURST)
    queue.add_debounced("a")
    drain = asyncio.create_task(queue.shut_down_with_drain())
    assert await take(queue) == "a"
    await drain


@virtual_time
async def test_a_shutdown_that_discards_drops_what_was_triggered() -> None:
    queue = new_queue(debounce=BURST)
    queue.add_debounced("a")
    queue.shut_down(discard=True)
    with pytest.raises(ShutDown):
        await take(queue)
