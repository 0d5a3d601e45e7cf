"""The work queue for asyncio: `QueueCore` with waiting workers, delays, retries, reasons and metrics around
it.

Guaranteed, beside what `core` promises: a key that is ready is never left lying while a worker waits (no lost
wake-up), and cancelling a worker loses no key: one that waits passes its turn on, one that has a key gives it
back by leaving its block.

Not guaranteed: that a cancelled worker's key is processed again. It is done; whoever cancels decides whether
to add it.

No locks: all methods belong to one event loop's thread, and no await stands between a check and the change
that rests on it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Generic

from kubeshard.runtime.clock import Clock
from kubeshard.workqueue.core import K, KeyState, Order, QueueCore
from kubeshard.workqueue.delays import Delays
from kubeshard.workqueue.limits import Limiter
from kubeshard.workqueue.metrics import NoMetrics, QueueMetrics, Stopwatch
from kubeshard.workqueue.reasons import Reasons


class ShutDown(Exception):
    """Raised by `get`: the queue is shut down and has nothing left to hand out."""


class WorkQueue(Generic[K]):
    """Keys waiting to be processed, each by one worker at a time.

    Guaranteed: a key is never handed out while a worker has it, a key added meanwhile is handed out again afterwards,
    and a key added several times before that is handed out once. Methods that are not async never wait. `reason` is
    for logs only.

    `limiter` gives the delays of `add_rate_limited`, `order` says which ready key is next (default: first in, first
    out); both belong to this queue alone.
    """

    def __init__(
        self,
        name: str = "",
        *,
        clock: Clock,
        limiter: Limiter,
        order: Order[K] | None = None,
        metrics: QueueMetrics | None = None,
    ) -> None:
        self.name = name
        self._clock = clock
        self._limiter = limiter
        self._metrics: QueueMetrics = metrics or NoMetrics()
        self._core: QueueCore[K] = QueueCore(order)
        self._delays: Delays[K] = Delays()
        self._reasons: Reasons[K] = Reasons()
        self._stopwatch: Stopwatch[K] = Stopwatch(self._metrics, clock)
        self._waiters: deque[asyncio.Future[None]] = deque()
        """Workers that wait. For every ready key one of them is woken, and thereby removed from here."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: float | None = None
        """When the earliest delay is over, which is what the timer is set to; None while there is none."""
        self._drained = asyncio.Event()
        """Set when a drain has nothing to wait for, or must wait no longer."""

    def add(self, key: K, reason: str = "") -> None:
        """Processes the key as soon as a worker is free. Ignored after a shutdown, like all adds."""
        if reason and not self._core.closed:
            self._reasons.add(key, reason)
        if self._core.add(key):
            self._stopwatch.added(key)
            self._metrics.depth(self._core.depth)
            self._wake()

    def add_after(self, key: K, delay: float, reason: str = "") -> None:
        """Adds the key in `delay` seconds; at once when not positive. A key that waits is only moved earlier."""
        if self._core.closed:
            return
        if delay <= 0:
            self.add(key, reason)
            return
        self._metrics.retried()
        self._delays.schedule(key, self._clock.monotonic() + delay, reason)
        self._set_timer()

    def add_rate_limited(self, key: K, reason: str = "") -> None:
        """Adds the key after the delay that its limiter gives, and counts a retry."""
        self.add_after(key, self._limiter.when(key), reason)

    def forget(self, key: K) -> None:
        """The key's next rate-limited add is its first one. Removes nothing from the queue."""
        self._limiter.forget(key)

    def retries(self, key: K) -> int:
        """Rate-limited adds since the key was last forgotten."""
        return self._limiter.retries(key)

    def reasons(self, key: K) -> tuple[str, ...]:
        """A few of the reasons for the key's present run, or for its next one when no worker has it."""
        return self._reasons.of(key)

    def get(self) -> Turn[K]:
        """`async with queue.get() as key`: waits for a key, which is this worker's until the block ends.

        Raises ShutDown when the queue is shut down and nothing is left. Cancelling a waiting worker loses no key.
        """
        return Turn(self)

    def is_busy(self, key: K) -> bool:
        """Whether a worker has the key."""
        return self._core.state(key) in (KeyState.RUNNING, KeyState.RUNNING_DIRTY)

    def shut_down(self, *, discard: bool = False) -> None:
        """Ignores adds from now on and drops what is delayed; workers get what is ready (unless `discard`), then
        ShutDown.
        """
        self._close()
        if discard:
            for key in self._core.discard():
                self._stopwatch.discard(key)
                self._reasons.discard(key)
            self._metrics.depth(0)
        self._drained.set()

    async def shut_down_with_drain(self) -> None:
        """`shut_down`, and waits until the workers have processed what was ready. `shut_down` ends the wait early."""
        self._close()
        if self._core.ready or self._core.running:
            self._drained.clear()
            await self._drained.wait()

    def __len__(self) -> int:
        """Keys that a worker could take now."""
        return self._core.ready

    @property
    def delayed(self) -> int:
        """Keys that wait for a delay to end."""
        return len(self._delays)

    def unfinished_work(self) -> float:
        """Seconds of processing in progress, over all workers (`workqueue_unfinished_work_seconds`)."""
        return self._stopwatch.unfinished()

    def longest_running(self) -> float:
        """Seconds of the longest processing in progress (`workqueue_longest_running_processor_seconds`)."""
        return self._stopwatch.longest()

    async def _take(self) -> K:
        while not self._core.ready:
            if self._core.closed:
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
                    # Woken and cancelled in the same turn of the loop: the key is there for somebody else.
                    self._wake()
                raise
        key = self._core.take()
        self._stopwatch.started(key)
        self._reasons.start(key)
        self._metrics.depth(self._core.depth)
        return key

    def _done(self, key: K) -> None:
        queued_again = self._core.done(key)
        self._stopwatch.finished(key)
        self._reasons.finish(key)
        if queued_again:
            self._wake()
        elif self._core.closed and not self._core.ready and not self._core.running:
            self._drained.set()

    def _wake(self) -> None:
        """Wakes one waiting worker, for one ready key."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _set_timer(self) -> None:
        """Sets the timer to the earliest delay."""
        due = self._delays.next_due()
        if due == self._timer_due:
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
        for key, reason in self._delays.pop_due(self._clock.monotonic()):
            self.add(key, reason)
        self._set_timer()

    def _close(self) -> None:
        self._core.close()
        self._delays.clear()
        self._set_timer()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()


class Turn(Generic[K]):
    """One worker's turn with one key: entered when it gets the key, done with it when it leaves."""

    __slots__ = ("_key", "_queue")

    def __init__(self, queue: WorkQueue[K]) -> None:
        self._queue = queue

    async def __aenter__(self) -> K:
        self._key = await self._queue._take()
        return self._key

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue._done(self._key)
