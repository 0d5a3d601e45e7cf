"""The work of a manager: parts that start and end together, and whether they ended by themselves.

A Lease may only be released if all work ended by itself: a reconcile that had to be cancelled may still have a write in
flight, and another instance that takes over at once would overlap with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from kubeshard.core.errors import ConfigurationError, Unprepared
from kubeshard.leases.held_lease import Gate
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import apart, only_cancelled


@dataclass(frozen=True, slots=True)
class Runnable:
    """Anything that runs alongside the controllers until it is cancelled. It may return; an exception stops the process
    gracefully. It is cancelled when all controllers have ended; until then it can use the caches. `needs_leadership`:
    runs in one process at a time.
    """

    name: str
    run: Callable[[], Awaitable[None]]
    needs_leadership: bool = False


class Work(Protocol):
    """A part of a work group. `ControllerRunner` is one."""

    @property
    def name(self) -> str: ...

    async def run(self, gates: Sequence[Gate] = ()) -> None:
        """Works until cancelled, which ends it at once."""
        ...

    async def drain(self) -> None:
        """Starts nothing new, and returns when nothing is in progress any more."""
        ...

    def under_way(self) -> Sequence[str]:
        """A human-readable list of what `drain` waits for."""
        ...


class RunnableWork:
    """A Runnable as Work: it has nothing to drain, and ends when cancelled."""

    def __init__(self, runnable: Runnable) -> None:
        self.name = runnable.name
        self._run = runnable.run

    async def run(self, gates: Sequence[Gate] = ()) -> None:
        await self._run()

    async def drain(self) -> None:
        return None

    def under_way(self) -> Sequence[str]:
        return ()


_log = get_logger("kubeshard.manager")

CLOSING = 10.0
"""Seconds beyond the grace period for caches, pages, Leases and connections to end."""


def report_failure(name: str, error: Exception) -> None:
    """Logs that a part of the program failed. The program's last line says what a person has to mend."""
    reported_later = isinstance(error, ConfigurationError | Unprepared)
    _log.error("Failed; stopping", name=name, error=type(error).__name__ if reported_later else error)


@asynccontextmanager
async def beside(
    name: str, work: Coroutine[Any, Any, None], failed: Callable[[Exception], None]
) -> AsyncIterator[None]:
    """Runs `work` alongside the block, and cancels it at the block's end. Passes its failure to `failed`."""
    started = asyncio.Event()

    async def begin() -> None:
        started.set()
        await work

    async def guarded() -> None:
        try:
            await apart(begin)
        except asyncio.CancelledError as cancelled:
            if isinstance(cancelled.__cause__, Exception):
                failed(cancelled.__cause__)
            raise
        except Exception as error:
            report_failure(name, error)
            failed(error)

    task = asyncio.create_task(guarded(), name=name)
    task.add_done_callback(lambda _: started.set())
    try:
        await started.wait()
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        work.close()  # it may never have begun


class Stop:
    """The request to stop. `grace` is how many seconds work gets to end by itself, counted from the request; 0 means
    none, a negative value means unlimited. `ending` is called with the maximum duration of the shutdown, for a caller
    that enforces it; None means that there is no bound.
    """

    def __init__(self, grace: float, ending: Callable[[float | None], None] = lambda _: None) -> None:
        self.grace = grace
        self.ending = ending
        self.error: BaseException | None = None
        """The error that caused it; None if the user requested it."""
        self._requested = asyncio.Event()
        self._requested_at = 0.0
        self._deadline: float | None = None

    @property
    def requested(self) -> bool:
        return self._requested.is_set()

    def request(self, error: BaseException | None = None) -> None:
        if self.requested:
            return
        self.error = error
        self._requested_at = asyncio.get_running_loop().time()
        if self.grace >= 0:
            self._deadline = self._requested_at + self.grace
        self.ending(self.grace + CLOSING if self.grace >= 0 else None)
        self._requested.set()

    async def wait(self) -> None:
        await self._requested.wait()

    async def lasted(self, seconds: float) -> None:
        """Returns so many seconds after the request, or at the end of the grace period."""
        until = min(seconds, self.grace) if self.grace >= 0 else seconds
        await asyncio.sleep(self._requested_at + until - asyncio.get_running_loop().time())

    def grace_period(self) -> asyncio.Timeout:
        """A timeout that raises TimeoutError at the end of the grace period."""
        return asyncio.timeout_at(self._deadline)


class WorkGroup:
    """Works that start together, including works that are added and removed later. Run it once."""

    def __init__(self, name: str, stop: Stop, works: Iterable[Work] = ()) -> None:
        self._name = name
        self._stop = stop
        self._works: list[Work] = []
        self._tasks: dict[Work, asyncio.Task[None]] = {}
        self._drains: dict[Work, asyncio.Task[None]] = {}
        """Set once the stop was requested."""
        self._group: asyncio.TaskGroup | None = None
        self._gates: Sequence[Gate] = ()
        self._needed = asyncio.Event()
        self._failed = False
        self.started = False
        for work in works:
            self.add(work)

    async def needed(self) -> None:
        """Returns as soon as there is any work."""
        await self._needed.wait()

    def add(self, work: Work) -> None:
        """The work starts with the group, or now if the group is running; never if a stop was requested."""
        self._works.append(work)
        self._needed.set()
        if self._group is not None and not self._stop.requested:
            self._begin(work, self._group)

    async def remove(self, work: Work) -> None:
        """Lets the work end by itself, however long that takes, and returns when it has. If this is cancelled, or a
        stop's grace period is over, the work is cancelled.
        """
        task = self._tasks.get(work)
        if task is not None:
            try:
                await work.drain()
            finally:
                task.cancel()
                await asyncio.wait([task])
                self._tasks.pop(work, None)
        if work in self._works:
            self._works.remove(work)

    async def run(self, gates: Sequence[Gate] = ()) -> bool:
        """Works until the stop, drains, and cancels the rest. Returns whether everything ended by itself.

        A work that fails requests the stop, so that the others end gracefully. Cancellation cancels all works at once.
        """
        self.started = True
        try:
            async with asyncio.TaskGroup() as self._group:
                self._gates = gates
                for work in self._works:
                    self._begin(work, self._group)
                await self._stop.wait()
                drained = await self._drained()
                for task in self._tasks.values():
                    task.cancel()
        finally:
            self._group = None
        return drained and not self._failed

    def lasting(self) -> Iterator[str]:
        """A human-readable list of what has not ended although a stop was requested."""
        draining = [work for work, drain in self._drains.items() if not drain.done()]
        for work in draining:
            yield f"{work.name}: {', '.join(work.under_way()) or 'has not ended'}"
        if self._drains and not draining:
            yield from (
                f"{work.name}: cancelled, but still running"
                for work, task in self._tasks.items()
                if not task.done()
            )

    def _begin(self, work: Work, group: asyncio.TaskGroup) -> None:
        self._tasks[work] = group.create_task(self._run(work, self._gates), name=work.name)

    async def _run(self, work: Work, gates: Sequence[Gate]) -> None:
        try:
            await apart(work.run, gates)
        except asyncio.CancelledError as cancelled:
            self._failed = self._failed or isinstance(cancelled.__cause__, Exception)
            raise
        except Exception as error:
            if self._stop.requested and only_cancelled(error):
                return  # an author may stop what the work waits for
            report_failure(work.name, error)
            self._failed = True
            self._stop.request(error)

    async def _drained(self) -> bool:
        try:
            async with self._stop.grace_period():
                self._drains = {
                    work: asyncio.create_task(work.drain(), name=f"drain {work.name}") for work in self._works
                }
                await asyncio.gather(*self._drains.values())
        except TimeoutError:
            _log.error("Work did not end within the grace period; cancelling it", group=self._name)
            return False
        return True
