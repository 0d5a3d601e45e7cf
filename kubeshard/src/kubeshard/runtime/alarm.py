"""Setting an event at a moment that a suspended machine does not put off.

The sleeps of an event loop do not count the time of a suspended machine, and deadlines do. With a timer of the kernel
on CLOCK_BOOTTIME that is a descriptor (timerfd_create(2)), a loop waits as long as it has to, and goes on as soon as a
machine resumes that was suspended past the moment. Without one it looks at the clock every `LONGEST_SLEEP` seconds.
"""

from __future__ import annotations

import asyncio
import math
import os
from typing import Protocol

from kubeshard.runtime.clock import Clock
from kubeshard.runtime.kernel_timers import ABSOLUTE, CLOCK_BOOTTIME, TimerDescriptor, TimerSpec

LONGEST_SLEEP = 0.5

SHORTEST_SLEEP = 0.001
"""Timers are inexact: without it, waiting for a moment that is almost reached would spin."""


class Alarm(Protocol):
    """For one event of the running loop. Not set at first."""

    def set(self, moment: float) -> None:
        """Sets the event as soon as `Clock.boottime` has reached the moment, which may be infinite, and not at any that
        was named before.
        """
        ...

    def close(self) -> None: ...


class SleepAlarm:
    """For systems without such timers, and for simulations."""

    def __init__(self, clock: Clock, event: asyncio.Event) -> None:
        self._clock = clock
        self._event = event
        self._moment = math.inf
        self._sleep: asyncio.TimerHandle | None = None

    def set(self, moment: float) -> None:
        self.close()
        self._moment = moment
        self._go_on()

    def _go_on(self) -> None:
        seconds = min(max(self._moment - self._clock.boottime(), SHORTEST_SLEEP), LONGEST_SLEEP)
        self._sleep = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        if self._clock.boottime() < self._moment:
            self._go_on()
        else:
            self._event.set()

    def close(self) -> None:
        if self._sleep is not None:
            self._sleep.cancel()


class KernelAlarm:
    """Raises OSError or AttributeError if there are no such timers. 64-bit Linux only."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event
        self._timer = TimerDescriptor(CLOCK_BOOTTIME, os.O_NONBLOCK)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._timer.number, self._reached)

    def set(self, moment: float) -> None:
        self._timer.set(TimerSpec.at(moment), ABSOLUTE)

    def _reached(self) -> None:
        try:
            os.read(self._timer.number, 8)
        except BlockingIOError:  # it was set anew meanwhile
            return
        self._event.set()

    def close(self) -> None:
        self._loop.remove_reader(self._timer.number)
        self._timer.close()


def default_alarm(clock: Clock, event: asyncio.Event) -> Alarm:
    """The kernel's if there is one."""
    try:
        return KernelAlarm(event)
    except (OSError, AttributeError):
        return SleepAlarm(clock, event)
