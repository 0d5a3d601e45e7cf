"""What the timers of 64-bit Linux have in common: a clock that counts suspended time, and how a moment is written."""

from __future__ import annotations

import ctypes
import math
from typing import Self

CLOCK_BOOTTIME = 7
ABSOLUTE = 1


class _TimeSpec(ctypes.Structure):
    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


class TimerSpec(ctypes.Structure):
    """`struct itimerspec`. All zero: never, and the timer is disarmed."""

    _fields_ = [("it_interval", _TimeSpec), ("it_value", _TimeSpec)]

    @classmethod
    def at(cls, moment: float) -> Self:
        """Once, at that boot-time second, or never if that is infinite."""
        if moment == math.inf:
            return cls()
        nanoseconds = max(1, int(moment * 1e9))
        return cls(it_value=_TimeSpec(*divmod(nanoseconds, 10**9)))
