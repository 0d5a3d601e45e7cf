"""The queue with waiting workers, on virtual time: one test per guarantee, then all against a model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from kubeshard.testing.virtual_time import VirtualClock, VirtualTimeLoop, settle, virtual_time
from kubeshard.testing.virtual_world import SeededRng
from kubeshard.workqueue import FastSlow, ItemExponential, ShutDown, WorkQueue


def new_queue(**options: object) -> WorkQueue[str]:
    options.setdefault("limiter", ItemExponential(rng=SeededRng(1)))
    return WorkQueue("test", clock=VirtualClock(), **options)  # type: ignore[arg-type]


async def take(queue: WorkQueue[str]) -> str:
    async with queue.get() as key:
        return key


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
async def test_an_add_during_processing_is_processed_again_after_done() -> None:
    queue = new_queue()
    queue.add("a")
    async with queue.get() as key:
        queue.add("a")
        assert (key, len(queue)) == ("a", 0)
    assert await take(queue) == "a"


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
        async with asyncio.timeout(1), queue.get():
            assert queue.is_busy("a")
            await asyncio.sleep(10)
    assert not queue.is_busy("a")
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
        self.depths: list[int] = []
        self.adds = 0
        self.retries = 0
        self.waits: list[float] = []
        self.works: list[float] = []

    def depth(self, keys: int) -> None:
        self.depths.append(keys)

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
    assert metrics.depths == [1, 2, 1, 2]
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


class Worker:
    def __init__(self) -> None:
        self.key: int | None = None
        self.finish = asyncio.Event()
        self.task: asyncio.Task[None]


class AgainstModel(RuleBasedStateMachine):
    """Workers come, wait, get keys, finish and are cancelled at any moment, while keys are added now and
    later.

    Steps follow each other without letting the loop run, except `settle`, `advance` and the setting of a
    timer: so cancellations meet workers that are woken and have not run yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.queue: WorkQueue[int] = WorkQueue(
            "model", clock=VirtualClock(self.loop), limiter=ItemExponential(rng=SeededRng(1))
        )
        self.pending: set[int] = set()
        """Keys added since they were last handed out."""
        self.delayed: dict[int, float] = {}
        self.workers: list[Worker] = []
        self.errors: list[BaseException] = []

    def teardown(self) -> None:
        for worker in self.workers:
            worker.task.cancel()
        self.loop.run_until_complete(self.loop.settle())
        self.loop.close()
        assert not self.errors

    @rule(key=st.integers(0, 3))
    def add(self, key: int) -> None:
        self.queue.add(key)
        self.pending.add(key)

    @rule(key=st.integers(0, 3), delay=st.integers(1, 5))
    def add_after(self, key: int, delay: int) -> None:
        self.run(self.queue.add_after, key, delay)
        due = self.loop.time() + delay
        self.delayed[key] = min(due, self.delayed.get(key, due))

    @precondition(lambda self: len(self.workers) < 5)
    @rule()
    def start_worker(self) -> None:
        worker = Worker()
        worker.task = self.loop.create_task(self.work(worker))
        self.workers.append(worker)

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def cancel_worker(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.workers)).task.cancel()

    @precondition(lambda self: any(worker.key is None for worker in self.workers))
    @rule(data=st.data(), key=st.integers(0, 3), cancel_first=st.booleans())
    def cancel_a_waiting_worker_around_an_add(
        self, data: st.DataObject, key: int, cancel_first: bool
    ) -> None:
        worker = data.draw(st.sampled_from([worker for worker in self.workers if worker.key is None]))
        if cancel_first:
            worker.task.cancel()
        self.add(key)
        worker.task.cancel()

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def finish_worker(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.workers)).finish.set()

    @rule()
    def settle(self) -> None:
        self.loop.run_until_complete(self.loop.settle())
        self.workers = [worker for worker in self.workers if not worker.task.done()]
        self.check()

    @rule(seconds=st.integers(1, 4))
    def advance(self, seconds: int) -> None:
        self.settle()
        for _ in range(seconds):
            # Due keys become pending before workers may see them: they are handed out in this very second.
            now = self.loop.time() + 1
            for key in [key for key, due in self.delayed.items() if due <= now]:
                del self.delayed[key]
                self.pending.add(key)
            self.loop.run_until_complete(asyncio.sleep(1))
            self.settle()

    def check(self) -> None:
        assert not self.errors, self.errors
        held = [worker.key for worker in self.workers if worker.key is not None]
        assert len(held) == len(set(held)), "a key is with two workers"
        assert self.queue.delayed == len(self.delayed)
        available = self.pending - set(held)
        assert len(self.queue) == len(available), "a key was lost"
        if len(held) < len(self.workers):
            assert not available, "a worker waits although a key is ready"

    async def work(self, worker: Worker) -> None:
        try:
            async with self.queue.get() as key:
                assert key in self.pending, "handed out without an add"
                self.pending.remove(key)
                worker.key = key
                try:
                    await worker.finish.wait()
                finally:
                    worker.key = None
        except AssertionError as error:
            self.errors.append(error)

    def run(self, function: object, *args: object) -> None:
        async def call() -> None:
            function(*args)  # type: ignore[operator]

        self.loop.run_until_complete(call())


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = settings(stateful_step_count=40)


@pytest.fixture(autouse=True)
def no_event_loop_left() -> Iterator[None]:
    yield
    asyncio.set_event_loop(None)
