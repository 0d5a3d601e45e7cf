"""The queue with waiting workers, on virtual time: one test per guarantee. `test_workqueue_family` covers all of them
at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator
from contextlib import suppress

import pytest
from workqueue_bench import new_queue, take

from kubeshard.core import Key
from kubeshard.workqueue import LOW, NORMAL, Debounce, FastSlow, ItemExponential, Reason, ShutDown, WorkQueue
from kubeshard_lab.virtual_time import VirtualClock, settle, virtual_time
from kubeshard_lab.virtual_world import SeededRng


@virtual_time
async def test_a_key_is_never_handed_to_two_workers() -> None:
    queue = new_queue()
    running: set[str] = set()
    runs = 0

    async def worker() -> None:
        nonlocal runs
        while True:
            async with queue.get() as key:
                assert key not in running
                running.add(key)
                runs += 1
                await asyncio.sleep(1)
                running.remove(key)

    async def producer() -> None:
        for step in range(50):
            queue.add("ab"[step % 2])
            await asyncio.sleep(0.3)

    workers = [asyncio.create_task(worker()) for _ in range(5)]
    await producer()
    await asyncio.sleep(10)
    assert runs > 20
    assert len(queue) == 0
    for task in workers:
        task.cancel()


@virtual_time
async def test_a_key_that_is_held_back_waits_for_whoever_may_take_it_first() -> None:
    queue, free = new_queue(), asyncio.Event()

    async def work() -> str:
        async with queue.get(lambda: None if free.is_set() else free.wait()) as key:
            return key

    woken, other = asyncio.create_task(work()), asyncio.create_task(work())
    await settle()
    queue.add("a", "first", priority=LOW)
    await asyncio.sleep(5)
    queue.add("b")
    woken.cancel()  # another worker is woken for its key
    await settle()
    assert (len(queue), queue.longest_running()) == (2, 0)
    free.set()
    assert await other == "b"
    async with queue.get() as key:
        assert (key, queue.reasons(key), queue.priority(key)) == ("a", ("first",), LOW)


@virtual_time
async def test_a_worker_that_is_held_back_ends_with_the_queue() -> None:
    queue, free = new_queue(), asyncio.Event()

    async def work() -> None:
        async with queue.get(lambda: None if free.is_set() else free.wait()):
            raise AssertionError("nothing is left")

    queue.add("a")
    worker = asyncio.create_task(work())
    await settle()
    queue.shut_down(discard=True)
    free.set()
    with pytest.raises(ShutDown):
        await worker


@virtual_time
async def test_an_add_during_processing_is_processed_again_after_done() -> None:
    queue = new_queue()
    queue.add("a")
    async with queue.get() as key:
        queue.add("a")
        assert (key, len(queue)) == ("a", 0)
    assert await take(queue) == "a"


@virtual_time
async def test_a_key_may_be_whatever_can_be_hashed() -> None:
    queue: WorkQueue[object] = WorkQueue(clock=VirtualClock(), limiter=ItemExponential(rng=SeededRng(0)))
    there = Key("ns", "a")
    for key in (("east", there), ("west", there), there, 7, ("east", Key("ns", "a"))):
        queue.add(key)
    queue.add_after(frozenset({"late"}), 5)
    taken = []
    while len(queue):
        async with queue.get() as key:
            taken.append(key)
    async with queue.get() as key:
        taken.append(key)
    assert taken == [("east", there), ("west", there), there, 7, frozenset({"late"})]
    with pytest.raises(TypeError):
        queue.add(["a", "list"])


@virtual_time
async def test_a_waiting_worker_is_woken_by_an_add() -> None:
    queue = new_queue()
    getter = asyncio.create_task(take(queue))
    await settle()
    queue.add("a")
    assert await getter == "a"


@virtual_time
async def test_as_many_workers_wake_as_there_are_keys() -> None:
    queue = new_queue()
    getters = [asyncio.create_task(take(queue)) for _ in range(3)]
    await settle()
    for key in "abc":
        queue.add(key)
    assert sorted(await asyncio.gather(*getters)) == ["a", "b", "c"]


@virtual_time
async def test_cancelling_a_worker_that_was_just_woken_loses_no_key() -> None:
    queue = new_queue()
    first, second = asyncio.create_task(take(queue)), asyncio.create_task(take(queue))
    await settle()
    queue.add("a")
    first.cancel()
    assert await second == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


@virtual_time
async def test_cancelling_a_waiting_worker_does_not_swallow_the_next_add() -> None:
    queue = new_queue()
    first, second = asyncio.create_task(take(queue)), asyncio.create_task(take(queue))
    await settle()
    first.cancel()
    queue.add("a")
    assert await second == "a"


@virtual_time
async def test_a_worker_that_fails_or_is_cancelled_is_done_with_its_key() -> None:
    queue = new_queue()
    queue.add("a")
    with suppress(ZeroDivisionError):
        async with queue.get():
            queue.add("a")
            raise ZeroDivisionError
    with suppress(TimeoutError):
        async with asyncio.timeout(1), queue.get() as key:
            assert key == "a"
            await asyncio.sleep(10)
    queue.add("a")
    assert await take(queue) == "a"


@virtual_time
async def test_a_delayed_key_is_added_when_its_delay_is_over() -> None:
    queue, clock = new_queue(), VirtualClock()
    queue.add_after("a", 30)
    assert (len(queue), queue.delayed) == (0, 1)
    assert await take(queue) == "a"
    assert clock.monotonic() == 30


@pytest.mark.parametrize("delay", [0.0, -1.0])
def test_a_delay_that_is_not_positive_adds_at_once(delay: float) -> None:
    @virtual_time
    async def check() -> None:
        queue = new_queue()
        queue.add_after("a", delay)
        assert len(queue) == 1

    check()


@virtual_time
async def test_delays_only_move_earlier() -> None:
    queue, clock = new_queue(), VirtualClock()
    queue.add_after("a", 30)
    queue.add_after("a", 10)
    queue.add_after("a", 20)
    assert await take(queue) == "a"
    assert clock.monotonic() == 10
    await asyncio.sleep(60)
    assert (len(queue), queue.delayed) == (0, 0)


@virtual_time
async def test_a_plain_add_does_not_remove_the_delayed_one() -> None:
    queue, clock = new_queue(), VirtualClock()
    queue.add_after("a", 10)
    queue.add("a")
    assert await take(queue) == "a"
    assert clock.monotonic() == 0
    assert await take(queue) == "a"
    assert clock.monotonic() == 10


@virtual_time
async def test_rate_limited_adds_wait_as_the_limiter_says_until_forgotten() -> None:
    queue, clock = new_queue(limiter=FastSlow(1, 100, fast_tries=1)), VirtualClock()
    queue.add_rate_limited("a")
    await take(queue)
    assert clock.monotonic() == 1
    queue.add_rate_limited("a")
    await take(queue)
    assert clock.monotonic() == 101
    assert queue.retries("a") == 2
    queue.forget("a")
    assert queue.retries("a") == 0
    queue.add_rate_limited("a")
    await take(queue)
    assert clock.monotonic() == 102


@virtual_time
async def test_the_limiter_is_told_of_each_success() -> None:
    """As in client-go: one of an author's own may count successes, and have seen failures elsewhere."""
    told: list[Hashable] = []

    class Own(FastSlow):
        def forget(self, key: Hashable) -> None:
            told.append(key)

    new_queue(limiter=Own(5, 100, fast_tries=2)).forget("a")
    assert told == ["a"]


@virtual_time
async def test_a_retry_does_not_outlive_the_success_of_its_key() -> None:
    queue, clock = new_queue(limiter=FastSlow(5, 100, fast_tries=2)), VirtualClock()
    queue.add_rate_limited("a", Reason("retry"))
    queue.add_rate_limited("a", Reason("retry"))
    queue.add("a", "changed")
    assert await take(queue) == "a"
    queue.forget("a")
    assert queue.delayed == 0
    await asyncio.sleep(10)
    assert len(queue) == 0
    queue.add_rate_limited("a", Reason("retry"))
    assert (await take(queue), clock.monotonic()) == ("a", 15)


@virtual_time
@pytest.mark.parametrize("first", ["retry", "source"])
@pytest.mark.parametrize("after", [3, 8])
async def test_a_delay_that_something_else_has_asked_for_outlives_the_success(first: str, after: int) -> None:
    queue, clock = new_queue(limiter=FastSlow(5, 100, fast_tries=1)), VirtualClock()
    if first == "retry":
        queue.add_rate_limited("a")
        queue.add_after("a", after, "source")
    else:
        queue.add_after("a", after, "source")
        queue.add_rate_limited("a")
    queue.forget("a")
    assert (await take(queue), clock.monotonic()) == ("a", min(after, 5))


@virtual_time
async def test_a_retry_that_is_pending_when_the_backoff_is_reset_still_comes() -> None:
    queue, clock = new_queue(limiter=FastSlow(5, 100, fast_tries=1)), VirtualClock()
    queue.add_rate_limited("a")
    queue.reset_backoff("a")
    assert queue.retries("a") == 0
    assert (await take(queue), clock.monotonic()) == ("a", 5)


@virtual_time
async def test_what_triggers_a_key_that_backs_off_does_not_make_it_wait_longer() -> None:
    """Ten triggers that fail within one backoff count as one failure, and the retry comes when it was due."""
    queue, clock = new_queue(limiter=ItemExponential(1, 1000, jitter=0, rng=SeededRng(1))), VirtualClock()
    queue.add_rate_limited("a")
    await take(queue)
    queue.add_rate_limited("a")  # due at 3
    for _ in range(10):
        await asyncio.sleep(0.1)
        queue.add("a", "status changed")
        await take(queue)
        queue.add_rate_limited("a")
    assert queue.retries("a") == 2
    await take(queue)
    assert clock.monotonic() == 3
    queue.add_rate_limited("a")
    await take(queue)
    assert (clock.monotonic(), queue.retries("a")) == (7, 3)


@virtual_time
async def test_a_retry_whose_delay_was_overtaken_is_not_lost() -> None:
    """The retry takes the place of an earlier delay, which fires first."""
    queue, clock = new_queue(limiter=FastSlow(10, 10, fast_tries=1)), VirtualClock()
    queue.add_rate_limited("a")
    queue.add_after("a", 5)
    await take(queue)
    assert clock.monotonic() == 5
    queue.add_rate_limited("a")
    await take(queue)
    assert (clock.monotonic(), queue.retries("a")) == (10, 1)


@virtual_time
async def test_retries_keep_the_priority_of_the_run_that_failed() -> None:
    queue = new_queue(limiter=FastSlow(1, 1, fast_tries=1))
    queue.add("a", priority=LOW)
    async with queue.get() as key:
        queue.add_rate_limited(key)
    await asyncio.sleep(1)
    assert queue.priority("a") == LOW
    queue.add("a")
    assert queue.priority("a") == NORMAL


@virtual_time
async def test_a_fresh_change_goes_before_ten_thousand_objects_of_the_initial_list() -> None:
    queue = new_queue()
    for number in range(10_000):
        queue.add(f"listed {number}", "listed", priority=LOW)
    queue.add("listed 7000", "changed")
    queue.add("new", "added")
    assert [await take(queue) for _ in range(3)] == ["listed 7000", "new", "listed 0"]


@virtual_time
async def test_the_view_shows_what_waits_runs_and_is_delayed_and_why() -> None:
    queue = new_queue(debounce=Debounce(2, 5))
    queue.add("runs", Reason("changed", "Deployment", Key("shop", "web")))
    await asyncio.sleep(1)
    queue.add("listed", Reason("listed", "Site"), priority=LOW)
    await asyncio.sleep(3)
    queue.add("fresh", "asked for")
    queue.add_after("later", 7, Reason("requeue_after"))
    queue.add_rate_limited("failed", Reason("retry"))
    queue.add_debounced("busy", Reason("changed", "Site"))
    async with queue.get():
        await asyncio.sleep(0.1)
        view = queue.view()
        assert (view.depth, view.ready, view.delayed, view.failing) == (2, 2, 3, 1)
        assert view.depths == {NORMAL: 1, LOW: 1}
        assert [(seen.key, seen.priority, *map(str, seen.why)) for seen in view.running + view.waiting] == [
            ("runs", NORMAL, "Deployment shop/web changed"),
            ("listed", LOW, "Site listed"),
            ("fresh", NORMAL, "asked for"),
        ]
        assert view.oldest is not None
        assert (view.oldest.key, round(view.oldest.seconds, 1)) == ("listed", 3.1)
        assert [round(seen.seconds, 1) for seen in view.running] == [0.1]
        assert [(seen.key, str(seen.reason), seen.debounced) for seen in view.delays] == [
            ("failed", "retry", False),
            ("busy", "Site changed", True),
            ("later", "requeue_after", False),
        ]
        assert round(view.delays[-1].seconds, 1) == 6.9
        short = queue.view(limit=1)
        assert (len(short.waiting), len(short.delays), short.depth, short.delayed) == (1, 1, 2, 3)


@virtual_time
async def test_runs_are_counted_by_what_caused_them_and_classes_are_bounded() -> None:
    queue = new_queue()
    for number in range(1000):
        queue.add("a", Reason(f"{number}"))
        await take(queue)
    assert len(queue.caused()) == 65
    assert queue.caused()["other", ""] == 1000 - 64
    queue.add("a", "one phrase")
    queue.add("a", "and another")
    queue.add("a", Reason("1"))
    await take(queue)
    assert queue.caused()["1", ""] == 2


@virtual_time
async def test_shut_down_hands_out_what_is_ready_then_ends_the_workers() -> None:
    queue = new_queue()
    queue.add("a")
    queue.add_after("delayed", 5)
    queue.shut_down()
    queue.add("late")
    queue.add_after("late", 5)
    assert await take(queue) == "a"
    with pytest.raises(ShutDown):
        await take(queue)
    assert queue.delayed == 0


@virtual_time
async def test_a_shut_down_drops_the_delays_that_are_not_over() -> None:
    queue = new_queue()
    queue.add_after("delayed", 5)
    queue.add_rate_limited("retried")
    queue.shut_down()
    await asyncio.sleep(1000)
    assert (queue.delayed, len(queue)) == (0, 0)
    with pytest.raises(ShutDown):
        await take(queue)


@virtual_time
async def test_shut_down_ends_workers_that_wait() -> None:
    queue = new_queue()
    getters = [asyncio.create_task(take(queue)) for _ in range(3)]
    await settle()
    queue.shut_down()
    assert all(
        isinstance(result, ShutDown) for result in await asyncio.gather(*getters, return_exceptions=True)
    )


@virtual_time
async def test_shut_down_with_discard_hands_out_nothing_more() -> None:
    queue = new_queue()
    for key in "ab":
        queue.add(key)
    async with queue.get():
        queue.add("a")
        queue.shut_down(discard=True)
    with pytest.raises(ShutDown):
        await take(queue)


@virtual_time
async def test_a_drain_waits_until_all_that_was_added_is_processed() -> None:
    queue, clock = new_queue(), VirtualClock()
    processed: list[str] = []

    async def worker() -> None:
        with suppress(ShutDown):
            while True:
                async with queue.get() as key:
                    await asyncio.sleep(1)
                    processed.append(key)

    for key in "abc":
        queue.add(key)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker())
        await queue.shut_down_with_drain()
        assert (processed, clock.monotonic()) == (["a", "b", "c"], 3)


@virtual_time
async def test_a_drain_of_an_empty_queue_returns_at_once() -> None:
    await new_queue().shut_down_with_drain()


@virtual_time
async def test_a_plain_shut_down_ends_a_drain_that_waits() -> None:
    queue = new_queue()
    queue.add("a")
    drain = asyncio.create_task(queue.shut_down_with_drain())
    await settle()
    assert not drain.done()
    queue.shut_down()
    await drain


@virtual_time
async def test_reasons_of_a_run_are_those_given_before_it_and_the_others_are_kept_for_the_next() -> None:
    queue = new_queue()
    queue.add("a", "created")
    queue.add("a", "owned Deployment changed")
    queue.add("a", "created")
    async with queue.get() as key:
        assert queue.reasons(key) == ("created", "owned Deployment changed")
        queue.add_after(key, 5, "requeue after")
        queue.add(key, "updated")
        assert queue.reasons(key) == ("created", "owned Deployment changed")
    async with queue.get() as key:
        assert queue.reasons(key) == ("updated",)
    async with queue.get() as key:
        assert queue.reasons(key) == ("requeue after",)
    assert queue.reasons("a") == ()


@virtual_time
async def test_reasons_are_bounded() -> None:
    queue = new_queue()
    for number in range(100):
        queue.add("a", f"reason {number}")
    assert len(queue.reasons("a")) == 8


class Recorder:
    def __init__(self) -> None:
        self.adds = 0
        self.retries = 0
        self.waits: list[float] = []
        self.works: list[float] = []

    def added(self) -> None:
        self.adds += 1

    def waited(self, seconds: float) -> None:
        self.waits.append(seconds)

    def worked(self, seconds: float) -> None:
        self.works.append(seconds)

    def retried(self) -> None:
        self.retries += 1


@virtual_time
async def test_metrics_tell_depth_adds_waiting_work_and_retries() -> None:
    metrics = Recorder()
    queue = new_queue(metrics=metrics)
    queue.add("a")
    queue.add("a")
    queue.add("b")
    await asyncio.sleep(2)
    async with queue.get():
        queue.add("a")
        await asyncio.sleep(3)
        assert (queue.unfinished_work(), queue.longest_running()) == (3, 3)
    queue.add_after("c", 1)
    assert metrics.adds == 3
    assert queue.depths() == {0: 2}
    assert (metrics.waits, metrics.works, metrics.retries) == ([2], [3], 1)
    assert (queue.unfinished_work(), queue.longest_running()) == (0, 0)


@virtual_time
async def test_unfinished_work_adds_up_over_workers_and_the_longest_counts_alone() -> None:
    queue = new_queue()
    queue.add("a")
    queue.add("b")
    async with queue.get():
        await asyncio.sleep(5)
        async with queue.get():
            await asyncio.sleep(1)
            assert (queue.unfinished_work(), queue.longest_running()) == (7, 6)


@pytest.fixture(autouse=True)
def no_event_loop_left() -> Iterator[None]:
    yield
    asyncio.set_event_loop(None)
