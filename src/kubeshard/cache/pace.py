"""Lets other tasks run during long work on the event loop.

Decoding or dispatching tens of thousands of objects is seconds of work in which nothing awaits for real.
"""

from __future__ import annotations

import asyncio

from kubeshard.runtime.clock import Clock

SLICE = 0.01
"""Seconds of work after which others get a turn."""

STEPS = 256
"""Steps after which others get a turn even if the clock stands still."""


class Pace:
    """One long piece of work: call `step` after each small part."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._steps = 0

    async def step(self) -> None:
        self._steps += 1
        if self._steps < STEPS and self._clock.monotonic() - self._since < SLICE:
            return
        await asyncio.sleep(0)
        self._since = self._clock.monotonic()
        self._steps = 0
