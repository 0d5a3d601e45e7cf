"""The timers of 64-bit Linux: a clock that counts suspended time, how a moment is written, and a timer to wait for."""

from __future__ import annotations

import ctypes
import errno
import math
import os
import sys
from typing import Self

CLOCK_MONOTONIC = 1
CLOCK_BOOTTIME = 7
ABSOLUTE = 1

HERE = sys.platform == "linux" and sys.maxsize > 2**32
"""Whether this is 64-bit Linux. A sandbox may refuse them all the same."""


class _TimeSpec(ctypes.Structure):
    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


class TimerSpec(ctypes.Structure):
    """`struct itimerspec`. All zero: never, and the timer is disarmed. It is a time of the timer's clock, or, unless
    `ABSOLUTE` is given with it, from now.
    """

    _fields_ = [("it_interval", _TimeSpec), ("it_value", _TimeSpec)]

    @classmethod
    def at(cls, moment: float) -> Self:
        """Once, at that second, or never if that is infinite."""
        if moment == math.inf:
            return cls()
        nanoseconds = max(1, int(moment * 1e9))
        return cls(it_value=_TimeSpec(*divmod(nanoseconds, 10**9)))


class TimerDescriptor:
    """A descriptor that can be read when the timer has gone off (timerfd_create(2)). Setting it forgets that it has.
    Raises OSError or AttributeError if there are none.
    """

    def __init__(self, clock: int, flags: int = 0) -> None:
        if not HERE:
            raise OSError(errno.ENOSYS, "kernel timer: not 64-bit Linux")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.number = self._checked(
            self._libc.timerfd_create(clock, flags | os.O_CLOEXEC)
        )  # its own name for it

    def set(self, spec: TimerSpec, flags: int = 0) -> None:
        """A moment that has passed is reached at once (timerfd_settime(2))."""
        self._checked(self._libc.timerfd_settime(self.number, flags, ctypes.byref(spec), None))

    def close(self) -> None:
        os.close(self.number)

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"kernel timer: {os.strerror(number)}")
        return result
