"""An event that is set at a moment, by every kind of alarm."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing

import pytest

from kubeshard.runtime.alarm import Alarm, KernelAlarm, SleepAlarm, default_alarm
from kubeshard.runtime.clock import SystemClock

CLOCK = SystemClock()
KERNEL = pytest.mark.skipif(sys.platform != "linux", reason="timers of Linux")


@pytest.fixture
def event() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture(
    params=[pytest.param(KernelAlarm, marks=KERNEL), lambda event: SleepAlarm(CLOCK, event)],
    ids=["kernel", "sleep"],
)
async def alarm(request: pytest.FixtureRequest, event: asyncio.Event) -> AsyncIterator[Alarm]:
    make: Callable[[asyncio.Event], Alarm] = request.param
    with closing(make(event)) as made:
        yield made


@pytest.mark.system
async def test_the_event_is_set_when_the_moment_has_come_and_not_before(
    alarm: Alarm, event: asyncio.Event
) -> None:
    moment = CLOCK.boottime() + 0.02
    alarm.set(moment)
    await event.wait()
    assert CLOCK.boottime() >= moment


async def test_it_can_be_set_again_and_only_the_last_moment_counts(
    alarm: Alarm, event: asyncio.Event
) -> None:
    alarm.set(CLOCK.boottime() - 1)
    alarm.set(math.inf)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await event.wait()
    for _ in range(2):
        alarm.set(CLOCK.boottime() - 1)
        await event.wait()
        event.clear()


@KERNEL
async def test_a_moment_that_was_reached_as_another_one_was_named_does_not_count(
    event: asyncio.Event,
) -> None:
    with closing(KernelAlarm(event)) as alarm:
        asyncio.get_running_loop().call_soon(
            alarm.set, math.inf
        )  # after the descriptor has shown it, before it is read
        alarm.set(CLOCK.boottime() - 1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not event.is_set()


async def test_one_that_is_closed_sets_nothing(event: asyncio.Event) -> None:
    for alarm in default_alarm(CLOCK, event), SleepAlarm(CLOCK, event):
        with closing(alarm):
            alarm.set(CLOCK.boottime() - 1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await event.wait()


@KERNEL
@pytest.mark.system
async def test_the_loop_sleeps_until_the_moment(event: asyncio.Event) -> None:
    """Suspended time counts without a look at the clock meanwhile."""
    loop, turns = asyncio.get_running_loop(), 0
    select = loop._selector.select  # type: ignore[attr-defined]

    def counted(timeout: float | None) -> object:
        nonlocal turns
        turns += 1
        return select(timeout)

    with closing(default_alarm(CLOCK, event)) as alarm:
        loop._selector.select = counted  # type: ignore[attr-defined]
        try:
            alarm.set(CLOCK.boottime() + 0.6)
            await event.wait()
        finally:
            loop._selector.select = select  # type: ignore[attr-defined]
    assert turns <= 3
