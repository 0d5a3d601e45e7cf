"""Waiting for an event or a moment, on every kind of alarm."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from kubeshard.runtime.alarm import Alarm, KernelAlarm, SleepAlarm, default_alarm
from kubeshard.runtime.clock import SystemClock

CLOCK = SystemClock()
KERNEL = pytest.mark.skipif(sys.platform != "linux", reason="timers of Linux")


@pytest.fixture(params=[pytest.param(KernelAlarm, marks=KERNEL), lambda: SleepAlarm(CLOCK)])
def alarm(request: pytest.FixtureRequest) -> Iterator[Alarm]:
    make: Callable[[], Alarm] = request.param
    with closing(make()) as made:
        yield made


@pytest.mark.system
async def test_it_ends_when_the_moment_has_come_and_not_before(alarm: Alarm) -> None:
    moment = CLOCK.boottime() + 0.02
    assert not await alarm.set_before(asyncio.Event(), moment)
    assert CLOCK.boottime() >= moment


async def test_it_ends_with_the_event_and_can_be_used_again(alarm: Alarm) -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_soon(event.set)
    assert await alarm.set_before(event, math.inf)
    assert not await alarm.set_before(asyncio.Event(), CLOCK.boottime() - 1)
    assert await alarm.set_before(event, math.inf)


async def test_who_is_cancelled_while_it_waits_is_cancelled(alarm: Alarm) -> None:
    waiting = asyncio.create_task(alarm.set_before(asyncio.Event(), CLOCK.boottime() + 60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@KERNEL
@pytest.mark.system
async def test_the_loop_sleeps_until_the_moment() -> None:
    """Suspended time counts without a look at the clock meanwhile."""
    loop, turns = asyncio.get_running_loop(), 0
    select = loop._selector.select  # type: ignore[attr-defined]

    def counted(timeout: float | None) -> object:
        nonlocal turns
        turns += 1
        return select(timeout)

    with closing(default_alarm(CLOCK)) as alarm:
        loop._selector.select = counted  # type: ignore[attr-defined]
        try:
            await alarm.set_before(asyncio.Event(), CLOCK.boottime() + 0.6)
        finally:
            loop._selector.select = select  # type: ignore[attr-defined]
    assert turns <= 3
