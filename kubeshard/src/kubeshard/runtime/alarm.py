"""Waiting for an event, or for a moment that a suspended machine does not put off.

The sleeps of an event loop do not count the time of a suspended machine, and deadlines do. With a timer of the kernel
on CLOCK_BOOTTIME that is a descriptor (timerfd_create(2)), a loop waits as long as it has to, and goes on as soon as a
machine resumes that was suspended past the moment. Without one it looks at the clock every `LONGEST_SLEEP` seconds.
"""

from __future__ import annotations

import asyncio
import os
from typing import Protocol

from kubeshard.runtime.clock import Clock
from kubeshard.runtime.kernel_timers import ABSOLUTE, CLOCK_BOOTTIME, TimerDescriptor, TimerSpec
from kubeshard.runtime.loop import set_within

LONGEST_SLEEP = 0.5

SHORTEST_SLEEP = 0.001
"""Timers are inexact: without it, waiting for a moment that is almost reached would spin."""


class Alarm(Protocol):
    """For one task of one loop."""

    async def set_before(self, event: asyncio.Event, moment: float) -> bool:
        """Waits until the event is set, or `Clock.boottime` has reached the moment, which may be infinite. Returns
        whether the event is set.
        """
        ...

    def close(self) -> None: ...


class SleepAlarm:
    """For systems without such timers, and for simulations."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def set_before(self, event: asyncio.Event, moment: float) -> bool:
        seconds = moment - self._clock.boottime()
        while not await set_within(event, min(max(seconds, SHORTEST_SLEEP), LONGEST_SLEEP)):
            if (seconds := moment - self._clock.boottime()) <= 0:
                return False
        return True

    def close(self) -> None: ...


class KernelAlarm:
    """Raises OSError or AttributeError if there are no such timers. 64-bit Linux only."""

    def __init__(self) -> None:
        self._timer = TimerDescriptor(CLOCK_BOOTTIME, os.O_NONBLOCK)

    async def set_before(self, event: asyncio.Event, moment: float) -> bool:
        loop = asyncio.get_running_loop()

        def reached() -> None:
            loop.remove_reader(self._timer.number)
            limit.reschedule(loop.time())

        try:
            async with asyncio.timeout(None) as limit:
                loop.add_reader(self._timer.number, reached)
                self._timer.set(TimerSpec.at(moment), ABSOLUTE)
                await event.wait()
        except TimeoutError:
            return event.is_set()  # it may have been set at the same moment
        finally:
            loop.remove_reader(self._timer.number)
        return True

    def close(self) -> None:
        self._timer.close()


def default_alarm(clock: Clock) -> Alarm:
    """The kernel's if there is one."""
    try:
        return KernelAlarm()
    except (OSError, AttributeError):
        return SleepAlarm(clock)
