"""An alarm that wakes a thread, and that another one sets anew again and again without waking it."""

from __future__ import annotations

import math
import os
import threading
import time
from functools import lru_cache
from typing import Protocol

from kubeshard.runtime.kernel_timers import CLOCK_MONOTONIC, TimerDescriptor, TimerSpec


class ThreadAlarm(Protocol):
    """Not set at first."""

    def set(self, seconds: float) -> None:
        """Goes off after so many seconds from now, once, and not when it was set to before. From any thread."""
        ...

    def wait(self) -> None:
        """Returns when it has gone off. For one thread."""
        ...

    def close(self) -> None:
        """Nobody waits any more, nor sets it."""
        ...


class KernelThreadAlarm:
    """A timer of the kernel, which costs a system call to set. Raises OSError or AttributeError if there is none.
    64-bit Linux only.
    """

    def __init__(self) -> None:
        self._timer = TimerDescriptor(CLOCK_MONOTONIC)

    def set(self, seconds: float) -> None:
        self._timer.set(_spec(seconds))

    def wait(self) -> None:
        os.read(self._timer.number, 8)  # the count of times

    def close(self) -> None:
        self._timer.close()


_spec = lru_cache(maxsize=16)(TimerSpec.at)


class ConditionAlarm:
    """For systems without such timers: a thread that waits is woken to wait for less time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._at = math.inf

    def set(self, seconds: float) -> None:
        with self._changed:
            at, before = time.monotonic() + seconds, self._at
            self._at = at
            if at < before:
                self._changed.notify()

    def wait(self) -> None:
        with self._changed:
            while (left := self._at - time.monotonic()) > 0:
                self._changed.wait(None if left == math.inf else left)
            self._at = math.inf

    def close(self) -> None: ...


def thread_alarm() -> ThreadAlarm:
    """The kernel's if there is one."""
    try:
        return KernelThreadAlarm()
    except (OSError, AttributeError):
        return ConditionAlarm()
