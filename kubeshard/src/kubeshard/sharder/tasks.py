"""How tasks run here: a bounded number of jobs of one producer, places for blocks that start, work that must not end,
and must not end others, commands of a machine, and all of this for one resource of a ring (`DrivenResource`), whose
rules `ring_machine` has.

    async with BoundedTaskGroup(100) as tasks:
        async for item in items:
            await tasks.start(work(item))     # waits while 100 run: back-pressure on the producer

Guaranteed of a group: leaving the block waits for all jobs; cancelling the block cancels them, so no producer is left
waiting for workers that are gone. An exception in the block cancels the jobs and
propagates unchanged; an exception in a job cancels the others and the block, and propagates in an exception group.

Guaranteed of supervised work: an exception costs nobody but the work that raised it, which starts again after 1, 2, 4,
8, 10, 10 ... s, and after 1 s if it had gone well for a minute. Each crash is counted; it is logged with its stack
trace when it is a new one (another exception, or another line), and then every ten minutes, with a count. Cancellation
ends the work. Not guaranteed: that the work continues where it was. It must find what it missed by itself. Expected
errors of the API server are the work's own concern: it knows what they mean, and says so in one line.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar

from kubeshard.core.kinds import GroupResource
from kubeshard.runtime.backoff import Backoff, BackoffPolicy
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import apart, set_within
from kubeshard.runtime.notices import Notices
from kubeshard.sharding.ring import NO_RESOURCE, Recorder
from kubeshard.sharding.ring_machine import ResourceMachine, RingMachine
from kubeshard.sharding.ring_resources import RingEntry

Command = TypeVar("Command")
Result = TypeVar("Result")


class BoundedTaskGroup:
    def __init__(self, size: int) -> None:
        self._free = size
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting = deque[asyncio.Future[None]]()
        """Producers that wait for room. Not a semaphore: it would be entered twice for each object of each scan."""

    async def __aenter__(self) -> BoundedTaskGroup:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self._cancel()
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            if group.exceptions != (error,):
                raise

    async def _cancel(self) -> None:
        """Cancels the jobs and waits for them. A task group that does this itself loses a cancellation that arrives
        meanwhile (before Python 3.13).
        """
        cancelled, failed = False, False
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            tasks = list(self._tasks)
            try:
                await asyncio.wait(tasks)
            except asyncio.CancelledError:
                cancelled = True
            failed |= any(task.done() and not task.cancelled() and task.exception() for task in tasks)
        if cancelled and not failed:  # a job that fails cancels this task
            raise asyncio.CancelledError

    @property
    def full(self) -> bool:
        """Whether `start` would wait."""
        return self._free <= 0

    async def room(self) -> None:
        """Waits until `start` would not."""
        try:
            while self._free <= 0:
                waiting = asyncio.get_running_loop().create_future()
                self._waiting.append(waiting)
                await waiting
        finally:
            self._wake()  # who is woken may be cancelled, or start nothing, and there may be room for more

    async def start(self, work: Coroutine[Any, Any, Any], name: str = "moves") -> None:
        """Starts the work as soon as there is capacity."""
        if self._free <= 0:
            try:
                await self.room()
            except BaseException:
                work.close()
                raise
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        self._free -= 1
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._free += 1
        self._wake()

    def _wake(self) -> None:
        """The next producer looks whether there is room."""
        while self._waiting and self._free > 0:
            waiting = self._waiting.popleft()
            if not waiting.done():  # else it was cancelled
                waiting.set_result(None)
                return


class StartLimit:
    """A limit on how many blocks start at a time, which blocks that hang cannot exhaust.

    Guaranteed: at most `size` blocks are inside that entered less than `patience` seconds ago. A block that stays
    longer returns its slot and goes on without one, so the wait for a slot is at most `patience` for each `size`
    earlier waiters. Not guaranteed: any limit on blocks that stay longer; that needs another mechanism.
    """

    def __init__(self, size: int, patience: float) -> None:
        self._free = asyncio.Semaphore(size)
        self._patience = patience

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        await self._free.acquire()
        timer = asyncio.get_running_loop().call_later(self._patience, self._free.release)
        due = timer.when()
        try:
            yield
        finally:
            if asyncio.get_running_loop().time() < due:
                timer.cancel()
                self._free.release()


RESTARTS = BackoffPolicy(initial=1.0, cap=10.0, jitter=0.0, reset_after=math.inf)
STEADY = 60.0
"""Seconds without a crash after which the next one counts as the first."""
LOGGED_EVERY = 600.0

_log = get_logger("kubeshard.sharder")


async def carried_out(
    steps: Generator[Command, Any, Result], do: Callable[[Command], Awaitable[object]]
) -> Result:
    """Does what the steps of a machine ask for, one command after the other. Each is told what became of it: what `do`
    returns or raises. Returns what they come to.
    """
    try:
        command = next(steps)
        while True:
            try:
                outcome = await do(command)
            except Exception as error:
                command = steps.throw(error)
            else:
                command = steps.send(outcome)
    except StopIteration as end:
        result: Result = end.value
        return result
    except BaseException:
        steps.close()
        raise


class Crashes:
    """Of parts of the sharder that go on: each is counted in the metrics of the ring, or of "", that they work for, as
    of the resource; and logged as the module says, with `fields`.
    """

    def __init__(
        self, metrics: Recorder, clock: Clock, counted_as: GroupResource = NO_RESOURCE, **fields: object
    ) -> None:
        self.clock = clock
        self._metrics = metrics
        self._counted_as = counted_as
        self._fields = fields
        self._notices = Notices(clock, every=LOGGED_EVERY)

    def tell(self, part: str, error: Exception, **more: object) -> None:
        self._metrics.add("crashes", self._counted_as, part)
        if (before := self._notices.held_back(part, _place(error))) is not None:
            more |= {"part": part, "crashes_before": before, **self._fields}
            _log.crash("A part of the sharder crashed; it starts again", error, **more)


async def supervised(work: Callable[[], Awaitable[None]], part: str, crashes: Crashes) -> None:
    """Runs `work` until it returns, see the module."""
    backoff, clock = Backoff(RESTARTS), crashes.clock
    while True:
        began = clock.monotonic()
        try:
            return await apart(work)
        except Exception as error:
            now = clock.monotonic()
            if now - began >= STEADY:
                backoff.reset()
            pause = backoff.failed(now)
            crashes.tell(part, error, again_in=pause)
        await asyncio.sleep(pause)


def _place(error: BaseException) -> str:
    """Which exception, raised where."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    trace, place = error.__traceback__, ""
    while trace is not None:
        place, trace = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}", trace.tb_next
    return f"{type(error).__name__} {place}"


SHORTEST_WAIT = 0.01


class DrivenResource(ResourceMachine):
    """One resource of a ring, while this process leads. Its tasks run in `group`."""

    def __init__(
        self,
        of: RingMachine[DrivenResource],
        entry: RingEntry,
        sync_period: float,
        group: asyncio.TaskGroup | None = None,
    ) -> None:
        self._group = group
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.news = asyncio.Event()
        """Set by the next `notify`."""
        self._attention = asyncio.Event()
        super().__init__(of, entry, sync_period)
        where, ring = entry.resource, self.ring
        self.crashes = Crashes(ring.metrics, ring.clock, where, ring=ring.name, resource=where)

    def start(self, work: Callable[[], Awaitable[None]], what: str) -> None:
        """Starts a task that ends with the machine. A crash costs only this work, which starts again (`supervised`)."""
        if not self.open or self._group is None:
            return
        task = self._group.create_task(supervised(work, what, self.crashes), name=f"{what} of {self}")
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))

    def close(self) -> None:
        super().close()
        for task in tuple(self._tasks):
            task.cancel()

    def notify(self) -> None:
        super().notify()
        self.news.set()
        self.news = asyncio.Event()

    def attend(self) -> None:
        self._attention.set()

    async def attended(self) -> None:
        """Waits until something is `due`, or has happened since that was asked last: a scan may have ended that another
        one waits for, while there was no room to begin what was due.
        """
        wait = self.wake_at - self.ring.clock.monotonic()
        await set_within(self._attention, max(wait, SHORTEST_WAIT))
        self._attention.clear()
