"""Indexes of one informer on their way to be complete.

A few objects are filed at once. Many are filed in steps that let others run, while the informer runs; until then reads
by the index are refused (`CacheBehind`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from kubeshard.cache.pace import STEPS, Pace
from kubeshard.runtime.clock import Clock


class Filings:
    """`of` names the informer."""

    def __init__(self, of: str, clock: Clock) -> None:
        self._of = of
        self._clock = clock
        self._left: list[Iterator[None]] = []
        self._done = asyncio.Event()
        self._done.set()
        self._group: asyncio.TaskGroup | None = None

    def begin(self, steps: Iterator[None], objects: int) -> None:
        """Each step files one of so many objects."""
        if self._group is None or objects <= STEPS:
            for _ in steps:
                pass
            return
        self._left.append(steps)
        self._done.clear()
        self._start(steps, self._group)

    async def done(self) -> None:
        """Waits until nothing is left."""
        await self._done.wait()

    def run_in(self, group: asyncio.TaskGroup | None) -> None:
        """The tasks run in the group from now on; None: in none."""
        self._group = group
        if group is not None:
            for steps in self._left:
                self._start(steps, group)

    def _start(self, steps: Iterator[None], group: asyncio.TaskGroup) -> None:
        group.create_task(self._file(steps), name=f"index of {self._of}")

    async def _file(self, steps: Iterator[None]) -> None:
        pace = Pace(self._clock)
        for _ in steps:
            await pace.step()
        self._left.remove(steps)
        if not self._left:
            self._done.set()
