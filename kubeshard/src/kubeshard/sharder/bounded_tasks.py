"""Limits on what runs at the same time: a bounded number of concurrent jobs, started by one producer and cancelled
together with it; and places for blocks that start.

    async with BoundedTaskGroup(100) as tasks:
        async for item in items:
            await tasks.start(work(item))     # waits while 100 run: back-pressure on the producer

Guaranteed: leaving the block waits for all jobs; cancelling the block cancels them, so no producer is left
waiting for workers that are gone (A20 in docs/defects.md). An exception in the block cancels the jobs and
propagates unchanged; an exception in a job cancels the others and the block, and propagates in an exception group.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any


class BoundedTaskGroup:
    def __init__(self, size: int) -> None:
        self._free = asyncio.Semaphore(size)
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[Any]] = set()

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
        return self._free.locked()

    async def room(self) -> None:
        """Waits until `start` would not."""
        await self._free.acquire()
        self._free.release()

    async def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Starts the work as soon as there is capacity."""
        try:
            await self._free.acquire()
        except BaseException:
            work.close()
            raise
        task = self._group.create_task(work, name="moves")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._free.release()


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
