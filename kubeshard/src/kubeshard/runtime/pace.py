"""Lets other tasks run during long work on the event loop.

Decoding or dispatching tens of thousands of objects is seconds of work in which nothing awaits for real.
"""

from __future__ import annotations

import asyncio

from kubeshard.runtime.clock import Clock

SLICE = 0.01
"""Seconds of work after which other tasks get a turn."""

STEPS = 256
"""Steps after which other tasks get a turn even if the clock stands still."""


class Pace:
    """Call `step` after each small part. Several at the same time share a slice with this many `sharers`."""

    def __init__(self, clock: Clock, sharers: int = 1) -> None:
        self._clock = clock
        self._slice = SLICE / sharers
        self._most = max(1, STEPS // sharers)
        self._since = clock.monotonic()
        self._steps = 0

    async def step(self) -> None:
        self._steps += 1
        if self._steps < self._most and self._clock.monotonic() - self._since < self._slice:
            return
        await asyncio.sleep(0)
        self._since = self._clock.monotonic()
        self._steps = 0
