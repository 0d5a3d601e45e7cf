"""The work queue for asyncio: `QueueCore` with waiting workers, delays, retries, reasons and metrics around
it.

Guaranteed, in addition to `state_machine`: a ready key never waits while a worker is idle (no lost wake-ups), and
cancelling a worker loses no key: a waiting worker passes its turn on, and one that has a key returns it by leaving its
block.

Not guaranteed: that a cancelled worker's key is processed again. It counts as done; whoever cancels decides whether to
add it.

No locks: all methods must be called in one event loop's thread, and there is no await between a check and the change
that depends on it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import Generic, Protocol

from kubeshard.runtime.clock import Clock
from kubeshard.workqueue.delays import Debounce, Delays
from kubeshard.workqueue.limits import Limiter, Retries
from kubeshard.workqueue.order import NORMAL, K, Order
from kubeshard.workqueue.reasons import Cause, Causes, Reason, Wanted, as_reason
from kubeshard.workqueue.state_machine import QueueCore
from kubeshard.workqueue.views import DelayedKey, QueueView, WaitingKey

Hold = Callable[[], Awaitable[object] | None]
"""What a worker must wait for before it takes a key; None if nothing."""


class QueueMetrics(Protocol):
    """Observations of one queue. Durations in seconds. Called inline: must not block or raise.

    The manager turns them into the metrics that every Kubernetes dashboard knows: `workqueue_adds_total`, ... What a
    queue knows anyway is read from it on each scrape, without a timer or a cost per key: `workqueue_depth`,
    `workqueue_unfinished_work_seconds`, `workqueue_longest_running_processor_seconds`, and the reasons of runs.
    """

    def added(self) -> None:
        """A key was queued. Adds that were collapsed do not count."""

    def waited(self, seconds: float) -> None:
        """A key was handed out this long after it was queued."""

    def worked(self, seconds: float) -> None:
        """A key's processing took this long."""

    def retried(self) -> None:
        """A key was added with a delay, for any reason."""


class _NoMetrics:
    def added(self) -> None: ...
    def waited(self, seconds: float) -> None: ...
    def worked(self, seconds: float) -> None: ...
    def retried(self) -> None: ...


class ShutDown(Exception):
    """Raised by `get`: the queue is shut down and has nothing left to hand out."""


class WorkQueue(Generic[K]):
    """Keys waiting to be processed, each by one worker at a time.

    Guaranteed: a key is never handed out while a worker has it, a key added meanwhile is handed out again afterwards,
    and a key added several times before that is handed out once. Keys of a higher `priority` are handed out first
    (`order`); a key's priority can only rise while it waits. Methods that are not async never wait. `reason` is purely
    informational: a phrase or a `Reason`.

    `limiter` returns the delays of `add_rate_limited`; it must not be shared. `order` creates the order of the ready
    keys of one priority; default: first in, first out. `debounce` is the rule of `add_debounced`, which is the same
    as `add` without it.
    """

    def __init__(
        self,
        name: str = "",
        *,
        clock: Clock,
        limiter: Limiter,
        order: Callable[[], Order[K]] = deque,
        debounce: Debounce | None = None,
        metrics: QueueMetrics | None = None,
    ) -> None:
        self.name = name
        self._clock = clock
        self._metrics: QueueMetrics = metrics or _NoMetrics()
        self._core: QueueCore[K] = QueueCore(clock.monotonic, order)
        self._delays: Delays[K] = Delays()
        self._settling: Delays[K] = Delays()
        """Debounced keys."""
        self._debounce = debounce
        self._retries: Retries[K] = Retries(limiter)
        self._causes = Causes()
        self._waiters: deque[asyncio.Future[None]] = deque()
        """Waiting workers. For every ready key one of them is woken and removed from here."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: float | None = None
        """The time of the timer: no later than the end of the earliest delay; None while there is no timer."""
        self._drained = asyncio.Event()
        """Set when a drain has nothing to wait for, or must not wait any longer."""

    def add(self, key: K, reason: Reason | str = "", *, priority: int = NORMAL) -> None:
        """Processes the key as soon as a worker is free. Ignored after a shutdown, like all adds."""
        if self._core.add(key, priority, reason):
            self._metrics.added()
            self._wake()

    def add_debounced(self, key: K, reason: Reason | str = "", *, priority: int = NORMAL) -> None:
        """Adds the key when it has not been triggered for a while (`Debounce`), unless it runs before that for another
        reason, which then covers this add. A shutdown adds it at once.
        """
        if self._debounce is None:
            self.add(key, reason, priority=priority)
        elif not self._core.closed:
            self._settling.touch(key, self._clock.monotonic(), self._debounce, reason, priority)
            self._set_timer()

    def add_after(
        self, key: K, delay: float, reason: Reason | str = "", *, priority: int | None = None
    ) -> None:
        """Adds the key in `delay` seconds; at once if not positive. A waiting key can only be moved earlier. A key that
        has a priority keeps it, unless another is given.
        """
        if delay > 0:
            self._add_at(key, self._clock.monotonic() + delay, reason, priority)
        else:
            self.add(key, reason, priority=self.priority(key) if priority is None else priority)

    def add_rate_limited(self, key: K, reason: Reason | str = "", *, priority: int | None = None) -> None:
        """Adds the key after the limiter's delay, and counts a retry. A key that failed again before its retry was due
        keeps that retry: a trigger meanwhile does not make it wait longer.
        """
        now = self._clock.monotonic()
        due = self._retries.due(key, now)
        if due > now:
            self._add_at(key, due, reason, priority, retry=True)
        else:
            self.add_after(key, 0, reason, priority=priority)

    def forget(self, key: K) -> None:
        """The key needs no retry any more: resets its retries, and drops the one that is pending, unless something else
        has asked for a delayed run as well. Does not remove the key from the queue.
        """
        self._retries.forget(key)
        self._delays.drop_retry(key)

    def drop_delay(self, key: K) -> None:
        """The key has nothing to do any more: drops its delayed run. Does not remove it from the queue."""
        self._delays.drop(key)

    def reset_backoff(self, key: K) -> None:
        """The next failure of the key counts as the first one. A retry that is pending still comes."""
        self._retries.forget(key)

    def retries(self, key: K) -> int:
        """Rate-limited adds since the key was last forgotten."""
        return self._retries.count(key)

    def priority(self, key: K) -> int:
        """The priority of the key's current run, or of its next one if no worker has it; NORMAL if it is not queued."""
        known = self.wanted(key)
        return NORMAL if known is None else known.priority

    def wanted(self, key: K) -> Wanted | None:
        """What is known about the key's current run, or about its next one if no worker has it."""
        return self._core.taken.get(key) or self._core.wanted.get(key)

    def why(self, key: K) -> tuple[Cause, ...]:
        """A few of the causes of the key's current run, or of its next one if no worker has it."""
        known = self.wanted(key)
        return () if known is None else known.causes

    def reasons(self, key: K) -> tuple[str, ...]:
        return tuple(str(cause) for cause in self.why(key))

    def get(self, hold: Hold | None = None) -> Turn[K]:
        """`async with queue.get() as key`: waits for a key, which is this worker's until the block ends. `hold` is
        called before a key is taken, which stays in the queue until what it returns is done.

        Raises ShutDown when the queue is shut down and nothing is left. Cancelling a waiting worker loses no key.
        """
        return Turn(self, hold)

    def shut_down(self, *, discard: bool = False) -> None:
        """Ignores later adds and drops delayed keys; workers get the ready keys (unless `discard`), then ShutDown."""
        self._close()
        if discard:
            self._core.discard()
        self._drained.set()

    async def shut_down_with_drain(self) -> None:
        """`shut_down`, and waits until the workers have processed what was ready. `shut_down` ends the wait early."""
        self._close()
        if self._core.ready or self._core.running:
            self._drained.clear()
            await self._drained.wait()

    def __len__(self) -> int:
        """Keys that a worker could take now."""
        return self._core.levels.ready

    @property
    def delayed(self) -> int:
        """Keys that wait for a delay or a debounce."""
        return len(self._delays) + len(self._settling)

    def depths(self) -> dict[int, int]:
        """Queued keys, by priority (`workqueue_depth`)."""
        return self._core.depths()

    def caused(self) -> Mapping[tuple[str, str], int]:
        """The number of runs by reason: (what happened, to which kind)."""
        return self._causes.counts

    def unfinished_work(self) -> float:
        """Seconds of processing in progress, over all workers (`workqueue_unfinished_work_seconds`)."""
        now = self._clock.monotonic()
        return sum(now - run.started for run in self._core.taken.values())

    def longest_running(self) -> float:
        """Seconds of the longest processing in progress (`workqueue_longest_running_processor_seconds`)."""
        now = self._clock.monotonic()
        return max((now - run.started for run in self._core.taken.values()), default=0.0)

    def view(self, limit: int = 100) -> QueueView[K]:
        """The waiting, running and delayed keys, at most `limit` of each. Takes time for every key: for debug pages."""
        now = self._clock.monotonic()
        core = self._core
        delays = [
            DelayedKey(key, due - now, as_reason(reason), debounced=waiting is self._settling)
            for waiting in (self._delays, self._settling)
            for due, key, reason in waiting.earliest(limit)
        ]
        delays.sort(key=lambda delayed: delayed.seconds)
        return QueueView(
            name=self.name,
            depth=core.depth,
            ready=core.ready,
            depths=core.depths(),
            running=tuple(
                WaitingKey(key, now - run.started, run.priority, run.causes)
                for key, run in core.taken.items()
            ),
            waiting=tuple(
                WaitingKey(key, now - wanted.since, wanted.priority, wanted.causes)
                for key, wanted in islice(core.wanted.items(), limit)
            ),
            delayed=self.delayed,
            delays=tuple(delays[:limit]),
            failing=len(self._retries),
        )

    def _add_at(
        self, key: K, due: float, reason: Reason | str, priority: int | None, *, retry: bool = False
    ) -> None:
        if self._core.closed:
            return
        self._metrics.retried()
        if priority is None:
            priority = self.priority(key)
        self._delays.schedule(key, due, reason, priority, retry=retry)
        self._set_timer()

    async def _take(self, turn: Turn[K]) -> K:
        core, hold = self._core, turn.hold
        if not core.levels.ready:
            await self._until_ready()
        while hold is not None and (held := hold()) is not None:
            try:
                await held
            except BaseException:
                self._wake()  # for the key that another worker may take
                raise
            await self._until_ready()
        key = turn.key = core.take()
        run = core.taken[key]
        if self._debounce is not None and (settled := self._settling.drop(key)) is not None:
            run.take_over(settled)
        self._metrics.waited(run.started - run.since)
        if run.given:
            self._causes.count(run)
        return key

    async def _until_ready(self) -> None:
        core = self._core
        while not core.levels.ready:
            if core.closed:
                raise ShutDown(f"work queue {self.name!r} is shut down")
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.cancelled():
                    with suppress(ValueError):
                        self._waiters.remove(waiter)
                else:
                    # Woken and cancelled in the same iteration of the loop: leave the key to another worker.
                    self._wake()
                raise

    def _done(self, key: K) -> None:
        core = self._core
        self._metrics.worked(self._clock.monotonic() - core.taken[key].started)
        if core.done(key):
            self._wake()
        elif core.closed and not core.ready and not core.taken:
            self._drained.set()

    def _wake(self) -> None:
        """Wakes one waiting worker, for one ready key."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _set_timer(self) -> None:
        """Sets the timer to the earliest delay, or leaves it at an earlier time."""
        due = self._delays.next_due()
        if self._debounce is not None and (settled := self._settling.next_due()) is not None:
            due = settled if due is None else min(due, settled)
        if due is not None and self._timer_due is not None and self._timer_due <= due:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            wait = max(0.0, due - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self._add_due)
        self._timer_due = due

    def _add_due(self) -> None:
        self._timer = self._timer_due = None
        now = self._clock.monotonic()
        for key, waited in (*self._delays.pop_due(now), *self._settling.pop_due(now)):
            self._add_waited(key, waited)
        self._set_timer()

    def _add_waited(self, key: K, waited: Wanted) -> None:
        self.add(key, priority=waited.priority)
        self._core.wanted[key].take_over(waited)

    def _close(self) -> None:
        if not self._core.closed:
            for key, waited in self._settling.pop_due(math.inf):
                self._add_waited(key, waited)
        self._core.close()
        self._delays.clear()
        self._set_timer()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()


class Turn(Generic[K]):
    """A worker's block with one key: entered when it gets the key; leaving it marks the key as done."""

    __slots__ = ("_queue", "hold", "key")

    def __init__(self, queue: WorkQueue[K], hold: Hold | None) -> None:
        self._queue = queue
        self.hold = hold
        self.key: K

    def __aenter__(self) -> Awaitable[K]:
        return self._queue._take(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue._done(self.key)
