"""Three clocks for three purposes."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds as float. One waits with asyncio (`sleep`, `timeout`): a simulator provides a loop."""

    def monotonic(self) -> float:
        """For durations within this process: how long something took, or since when it waits. Has no meaning outside
        of it, so do not store it in an object. Stops while the machine is suspended.
        """
        ...

    def boottime(self) -> float:
        """For mutual exclusion: includes the time while the machine is suspended (CLOCK_BOOTTIME)."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch: for display, and for the age of what has a time in an object, as in
        `clock.wall() - created.timestamp()` with `created = obj.metadata.created`. May jump, and is not the API
        server's clock: an age is approximate, and mutual exclusion must not depend on it.
        """
        ...


class SystemClock:
    """The machine's clocks. Without CLOCK_BOOTTIME (not Linux) `boottime` is `monotonic`."""

    monotonic = staticmethod(time.monotonic)  # asked for every object and every request

    def boottime(self) -> float:
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    def wall(self) -> float:
        return time.time()
