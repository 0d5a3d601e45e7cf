"""Time, as three clocks with three purposes."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds as float. Waiting is asyncio's own business (`asyncio.sleep`, `asyncio.timeout`): a simulator
    brings a loop.
    """

    def monotonic(self) -> float:
        """For durations within this process; stops while the machine is suspended."""
        ...

    def boottime(self) -> float:
        """For deadlines on which mutual exclusion rests: goes on while the machine is suspended
        (CLOCK_BOOTTIME).
        """
        ...

    def wall(self) -> float:
        """Seconds since the epoch: to be written for people. No decision may rest on it alone."""
        ...


class SystemClock:
    """The machine's clocks. Where there is no CLOCK_BOOTTIME (not Linux) `boottime` is `monotonic`."""

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    def wall(self) -> float:
        return time.time()
