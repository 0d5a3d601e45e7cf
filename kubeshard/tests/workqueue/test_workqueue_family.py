"""The whole family against a model: priorities, delays, debounce, retries, shutdown, drain, and workers that come,
wait, get keys, finish and are cancelled at any moment.

Steps follow each other without letting the loop run, except `settle`, `advance` and the setting of a timer.
Cancellations can therefore hit workers that were woken and have not run yet.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kubeshard.workqueue import LOW, NORMAL, Debounce, FastSlow, RoundRobin, ShutDown, WorkQueue
from kubeshard.workqueue.order import SHARE
from kubeshard.workqueue.reasons import MAX_REASONS
from kubeshard_lab.virtual_time import VirtualClock, VirtualTimeLoop

KEYS = st.integers(0, 3)
PRIORITIES = st.sampled_from([LOW, NORMAL, 5])
REASONS = st.sampled_from(["", *(f"reason {number}" for number in range(MAX_REASONS + 2))])
QUIET, LONGEST = 2, 5
SHUTDOWN_AFTER = 25
"""The number of steps: the behavior of a queue that is shut down is soon covered."""


class Known:
    """What is known of a key that needs processing."""

    def __init__(self, priority: int = LOW) -> None:
        self.priority = priority
        self.causes: list[tuple[str, float]] = []

    def note(self, reason: str, at: float) -> None:
        if reason and reason not in dict(self.causes) and len(self.causes) < MAX_REASONS:
            self.causes.append((reason, at))


class Model:
    """The guarantees, in the simplest form. `fifo`: first in, first out among equals."""

    def __init__(self, fifo: bool) -> None:
        self.fifo = fifo
        self.pending: dict[int, Known] = {}
        self.held: dict[int, Known] = {}
        self.places: dict[tuple[int, int], int] = {}
        """(priority, key): the place of a key that is ready, or that was raised from there."""
        self.served: dict[int, int] = {}
        self.delayed: dict[int, tuple[float, int, str, int]] = {}
        self.only_retries: set[int] = set()
        self.bursts: dict[int, tuple[float, int, float, Known]] = {}
        self.retry_due: dict[int, float] = {}
        self.failures: dict[int, int] = {}
        self.closed = False
        self._counter = 0

    def next(self) -> int:
        self._counter += 1
        return self._counter

    @property
    def ready(self) -> set[int]:
        return self.pending.keys() - self.held.keys()

    def add(self, key: int, priority: int, reason: str, now: float) -> None:
        if self.closed:
            return
        known = self.pending.get(key)
        if known is None:
            known = self.pending[key] = Known(priority)
            self.queue(key)
        elif priority > known.priority:
            former, known.priority = known.priority, priority
            self.queue(key)
            if not any(self.pending[other].priority == former for other in self.ready):
                self.forget_those_that_rose(former)
        known.note(reason, now)

    def queue(self, key: int) -> None:
        if key not in self.held:
            self.places.setdefault((self.pending[key].priority, key), self.next())

    def touch(self, key: int, priority: int, reason: str, now: float) -> None:
        if self.closed:
            return
        first, number, _, known = self.bursts.get(key, (now, self.next(), 0, Known()))
        known.priority = max(known.priority, priority)
        known.note(reason, now)
        self.bursts[key] = (first, number, min(now + QUIET, first + LONGEST), known)

    def schedule(self, key: int, due: float, priority: int, reason: str, *, retry: bool = False) -> None:
        if self.closed:
            return
        waiting = self.delayed.get(key)
        if not retry:
            self.only_retries.discard(key)
        elif waiting is None:
            self.only_retries.add(key)
        if waiting is not None and waiting[0] <= due:
            self.delayed[key] = (*waiting[:3], max(priority, waiting[3]))
        else:
            priority = max(priority, waiting[3]) if waiting else priority
            self.delayed[key] = (due, self.next(), reason, priority)

    def reset_backoff(self, key: int) -> None:
        self.failures.pop(key, None)
        self.retry_due.pop(key, None)

    def priority(self, key: int) -> int:
        known = self.held.get(key) or self.pending.get(key)
        return known.priority if known else NORMAL

    def fall_due(self, now: float) -> None:
        due = sorted((at, number, key) for key, (at, number, _, _) in self.delayed.items() if at <= now)
        for _, _, key in due:
            _, _, reason, priority = self.delayed.pop(key)
            self.only_retries.discard(key)
            self.add(key, priority, reason, now)
        self.settle_bursts(now, now)

    def settle_bursts(self, until: float, now: float) -> None:
        settled = sorted(
            (due, number, key) for key, (_, number, due, _) in self.bursts.items() if due <= until
        )
        for _, _, key in settled:
            known = self.bursts.pop(key)[3]
            self.add(key, known.priority, "", now)
            for reason, at in known.causes:
                self.pending[key].note(reason, at)

    def take(self, key: int) -> None:
        assert key not in self.held, "a key is with two workers"
        assert key in self.pending, "handed out without an add"
        priority = self.turn()
        known = self.pending[key]
        assert known.priority == priority, "a key of another priority was next"
        place = self.places.pop((priority, key))
        equals = {other for other in self.ready if self.pending[other].priority == priority} - {key}
        if self.fifo:
            assert all(place < self.places[priority, other] for other in equals), "another key came first"
        del self.pending[key]
        self.held[key] = known
        for level, other in list(self.places):  # those that were raised, and whose turn has passed
            rose = other not in equals and level == priority
            if rose and (not equals or (self.fifo and self.places[level, other] < place)):
                del self.places[level, other]
        if key in self.bursts:
            for reason, at in self.bursts.pop(key)[3].causes:
                known.note(reason, at)

    def forget_those_that_rose(self, level: int) -> None:
        for place in [place for place in self.places if place[0] == level]:
            del self.places[place]

    def turn(self) -> int:
        """Every SHARE-th key is one of a lower priority."""
        *higher, lowest = sorted({self.pending[key].priority for key in self.ready}, reverse=True)
        for priority in higher:
            self.served[priority] = self.served.get(priority, 0) + 1
            if self.served[priority] % SHARE:
                return priority
        return lowest

    def done(self, key: int) -> None:
        del self.held[key]
        if key in self.pending:
            self.queue(key)

    def close(self, now: float) -> None:
        if not self.closed:
            self.settle_bursts(float("inf"), now)
            self.delayed.clear()
            self.only_retries.clear()
        self.closed = True


class Worker:
    def __init__(self) -> None:
        self.key: int | None = None
        self.finish = asyncio.Event()
        self.task: asyncio.Task[None]


class Family(RuleBasedStateMachine):
    fifo = True
    steps = 0
    """The number of steps in all examples."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.queue: WorkQueue[int] = WorkQueue(
            "model",
            clock=VirtualClock(self.loop),
            limiter=FastSlow(1, 4, fast_tries=2),
            order=deque if self.fifo else lambda: RoundRobin(lambda key: key % 2),
            debounce=Debounce(QUIET, LONGEST),
        )
        self.model = Model(self.fifo)
        self.workers: list[Worker] = []
        self.drains: list[asyncio.Task[None]] = []
        self.errors: list[BaseException] = []
        self.count = 0

    def teardown(self) -> None:
        """Nothing is lost: in the end every key that needed processing has been returned."""
        try:
            self.settle()
            for _ in range(40):
                for worker in self.workers:
                    worker.finish.set()
                if len(self.workers) < 5:
                    self.start_worker()
                self.advance(1)
            assert not self.model.pending
            assert not self.model.delayed
            assert not self.model.bursts
        finally:
            for worker in self.workers:
                worker.task.cancel()
            for drain in self.drains:
                drain.cancel()
            self.loop.run_until_complete(self.loop.settle())
            self.loop.close()
        assert not self.errors

    @invariant()
    def counted(self) -> None:
        type(self).steps += 1
        self.count += 1

    # Adding keys

    @rule(key=KEYS, priority=PRIORITIES, reason=REASONS)
    def add(self, key: int, priority: int, reason: str) -> None:
        self.queue.add(key, reason, priority=priority)
        self.model.add(key, priority, reason, self.now)

    @rule(key=KEYS, priority=PRIORITIES, reason=REASONS)
    def add_debounced(self, key: int, priority: int, reason: str) -> None:
        def step() -> None:
            self.queue.add_debounced(key, reason, priority=priority)
            self.model.touch(key, priority, reason, self.now)

        self.in_loop(step)

    @rule(key=KEYS, delay=st.integers(0, 5), priority=st.none() | PRIORITIES, reason=REASONS)
    def add_after(self, key: int, delay: int, priority: int | None, reason: str) -> None:
        def step() -> None:
            urgency = self.model.priority(key) if priority is None else priority
            self.queue.add_after(key, delay, reason, priority=priority)
            if delay:
                self.model.schedule(key, self.now + delay, urgency, reason)
            else:
                self.model.add(key, urgency, reason, self.now)

        self.in_loop(step)

    @rule(key=KEYS, reason=REASONS)
    def add_rate_limited(self, key: int, reason: str) -> None:
        def step() -> None:
            model = self.model
            self.queue.add_rate_limited(key, reason)
            if model.retry_due.get(key, self.now) <= self.now:
                model.failures[key] = model.failures.get(key, 0) + 1
                model.retry_due[key] = self.now + (1 if model.failures[key] <= 2 else 4)
            model.schedule(key, model.retry_due[key], model.priority(key), reason, retry=True)
            assert self.queue.retries(key) == model.failures[key]

        self.in_loop(step)

    @rule(key=KEYS)
    def forget(self, key: int) -> None:
        self.queue.forget(key)
        self.model.reset_backoff(key)
        if key in self.model.only_retries:
            self.model.only_retries.discard(key)
            del self.model.delayed[key]
        assert self.queue.retries(key) == 0

    @rule(key=KEYS)
    def reset_backoff(self, key: int) -> None:
        self.queue.reset_backoff(key)
        self.model.reset_backoff(key)
        assert self.queue.retries(key) == 0

    # Workers

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
    @rule(data=st.data(), key=KEYS, cancel_first=st.booleans())
    def cancel_a_waiting_worker_around_an_add(
        self, data: st.DataObject, key: int, cancel_first: bool
    ) -> None:
        worker = data.draw(st.sampled_from([worker for worker in self.workers if worker.key is None]))
        if cancel_first:
            worker.task.cancel()
        self.add(key, NORMAL, "")
        worker.task.cancel()

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def finish_worker(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.workers)).finish.set()

    # The end

    @precondition(lambda self: self.count >= SHUTDOWN_AFTER)
    @rule(discard=st.booleans())
    def shut_down(self, discard: bool) -> None:
        self.queue.shut_down(discard=discard)
        self.model.close(self.now)
        if discard:
            self.model.pending.clear()
            self.model.places.clear()
        self.settle()
        assert all(drain.done() for drain in self.drains), "a drain waits although it was told not to"

    @precondition(lambda self: self.count >= SHUTDOWN_AFTER)
    @rule()
    def drain(self) -> None:
        self.drains.append(self.loop.create_task(self.queue.shut_down_with_drain()))
        self.loop.call_soon(self.model.close, self.now)
        self.settle()

    @precondition(lambda self: self.drains)
    @rule(data=st.data())
    def cancel_drain(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.drains)).cancel()

    # Time

    @rule()
    def settle(self) -> None:
        self.loop.run_until_complete(self.loop.settle())
        self.workers = [worker for worker in self.workers if not worker.task.done()]
        self.check()

    @rule(seconds=st.integers(1, 4))
    def advance(self, seconds: int) -> None:
        self.settle()
        for _ in range(seconds):
            # Keys that become due need processing before workers may see them: they are returned at that very second.
            self.model.fall_due(self.now + 1)
            self.loop.run_until_complete(asyncio.sleep(1))
            self.settle()

    def check(self) -> None:
        assert not self.errors, self.errors
        model, queue = self.model, self.queue
        assert queue.delayed == len(model.delayed) + len(model.bursts)
        assert len(queue) == len(model.ready), "a key was lost"
        depths = {priority: keys for priority, keys in queue.depths().items() if keys}
        expected: dict[int, int] = {}
        for known in model.pending.values():
            expected[known.priority] = expected.get(known.priority, 0) + 1
        assert depths == expected
        if len(model.held) < len(self.workers):
            assert not model.ready, "a worker waits although a key is ready"
            assert not model.closed, "a worker waits although nothing will come"
        if not model.held and not model.ready:
            assert all(drain.done() for drain in self.drains), "a drain waits for nothing"
        view = queue.view()
        assert (view.depth, view.ready) == (len(model.pending), len(model.ready))
        assert {running.key for running in view.running} == model.held.keys()
        assert {waiting.key for waiting in view.waiting} == model.pending.keys()
        assert {delay.key for delay in view.delays} == model.delayed.keys() | model.bursts.keys()

    # Helpers of the steps

    @property
    def now(self) -> float:
        return self.loop.time()

    async def work(self, worker: Worker) -> None:
        try:
            async with self.queue.get() as key:
                self.model.take(key)
                worker.key = key
                assert [(str(cause), cause.since) for cause in self.queue.why(key)] == self.model.held[
                    key
                ].causes
                assert self.queue.priority(key) == self.model.held[key].priority
                try:
                    await worker.finish.wait()
                finally:
                    worker.key = None
                    self.model.done(key)
        except ShutDown:
            if not self.model.closed or self.model.ready:
                self.errors.append(AssertionError("told to end although there is work"))
        except AssertionError as error:
            self.errors.append(error)

    def in_loop(self, step: Callable[[], None]) -> None:
        """The queue may set a timer."""

        async def inside() -> None:
            step()

        self.loop.run_until_complete(inside())


class Turns(Family):
    """Uses an order that is not first in, first out."""

    fifo = False


@pytest.mark.parametrize("family", [Family, Turns])
def test_the_queue_does_what_the_model_says(family: type[Family]) -> None:
    before = family.steps
    run_state_machine_as_test(family, settings=settings(stateful_step_count=60))
    if settings.default is not None and settings.default.max_examples >= 300:  # as in CI
        assert family.steps - before >= 10_000
