"""Code that blocks an event loop is named while it does."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

import pytest

from kubeshard.runtime import loop_watch
from kubeshard.runtime.loop import loop_factory
from kubeshard.runtime.loop_watch import LONGEST_PAUSE, LOOK, LOOKS, LoopWatchThread, waited_for_processor
from kubeshard.runtime.thread_alarm import ConditionAlarm

pytestmark = pytest.mark.regression


class Records(logging.Handler):
    """Lets the blocked thread see what the watching thread has logged."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: list[tuple[str, dict[str, Any]]] = []
        self.news = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.fields.append((record.msg, record.__dict__["fields"]))
        self.news.set()


@pytest.fixture
def records() -> Iterator[Records]:
    handler, logger = Records(), logging.getLogger("kubeshard.runtime")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


class Alarm(ConditionAlarm):
    """Notes for when it was set, and how often it went off. `then` is called as the loop begins to sleep."""

    def __init__(self, then: Callable[[], object]) -> None:
        super().__init__()
        self.then = then
        self.settings: list[float] = []
        self.rings = 0

    def set(self, seconds: float) -> None:
        super().set(seconds)
        self.settings.append(seconds)
        if seconds == LOOK:
            self.then()

    def wait(self) -> None:
        super().wait()
        self.rings += 1


class Watch(LoopWatchThread):
    def __init__(self, limit: float = 0.0, then: Callable[[], object] = lambda: None, **options: Any) -> None:
        self.blocking: list[str] = []
        options.setdefault("waited", lambda thread: 0.0)  # whatever else the machine does
        self.alarm = Alarm(then)
        super().__init__(self.blocking.append, alarm=lambda: self.alarm, **options)
        self.limit = limit


def compute(news: threading.Event) -> None:
    """Blocks the loop until the watch has logged something."""
    deadline = time.monotonic() + 10
    while not news.wait(0.001):
        assert time.monotonic() < deadline


async def author(records: Records) -> None:
    compute(records.news)
    records.news.clear()


def on_each_loop(test: Callable[[Records], Coroutine[Any, Any, None]]) -> Callable[[Records, Any], None]:
    @pytest.mark.parametrize("factory", [asyncio.new_event_loop, loop_factory()], ids=["asyncio", "uvloop"])
    def run(records: Records, factory: Any) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(test(records))

    return run


@on_each_loop
async def test_a_blockage_is_told_once_with_the_tasks_name_and_the_line_and_so_is_its_end(
    records: Records,
) -> None:
    with (watch := Watch(0.05)):
        await asyncio.create_task(author(records), name="websites worker 3")
        await asyncio.to_thread(records.news.wait, 10)
    (message, fields), (end, _) = records.fields
    assert message == "The event loop is blocked; nothing else runs meanwhile"
    assert fields["task"] == "websites worker 3"
    assert watch.blocking == ["websites worker 3"]
    assert "test_loop_watch.py" in fields["at"]
    assert " compute" in fields["at"]
    assert end == "The event loop is running again"
    assert watch.longest_lag() >= 0.05


@on_each_loop
async def test_so_is_what_blocks_a_loop_that_slept_until_then(records: Records) -> None:
    loop, start = asyncio.get_running_loop(), asyncio.Event()

    async def late() -> None:
        await start.wait()
        await author(records)

    with (watch := Watch(0.05, lambda: loop.call_soon_threadsafe(start.set))):
        await asyncio.create_task(late(), name="cron")
    assert watch.blocking == ["cron"]


@on_each_loop
async def test_what_wakes_a_loop_for_some_turns_wakes_no_thread(records: Records) -> None:
    loop, slept = asyncio.get_running_loop(), asyncio.Event()

    with (watch := Watch(then=lambda: loop.call_soon_threadsafe(slept.set))):
        for _ in range(3):
            await slept.wait()
            slept.clear()
            assert watch.alarm.settings[-2:] == [LOOK, LONGEST_PAUSE]
            for _ in range(3):
                await asyncio.sleep(0)
        assert watch.alarm.rings == 0
    assert "call_soon" not in vars(loop)
    assert watch.longest_lag() < 1


@on_each_loop
async def test_a_loop_at_work_looks_in_so_many_turns_and_then_puts_the_alarm_off_in_time_until_it_sleeps(
    records: Records,
) -> None:
    loop, slept, pause = asyncio.get_running_loop(), asyncio.Event(), 0.02
    alarm = Alarm(lambda: loop.call_soon_threadsafe(slept.set))
    looks = loop_watch._Looks(loop, alarm, pause, lambda lag: None)
    looks._until = math.inf  # no more than these
    looks._left = LOOKS
    looks.begin()
    for _ in range(LOOKS):
        assert alarm.settings == [pause]
        await asyncio.sleep(0)
    while len(alarm.settings) < 5:  # noqa: ASYNC110 - each turn is work
        await asyncio.sleep(0)
    assert {*alarm.settings} == {pause}
    await slept.wait()
    assert LOOK in alarm.settings
    looks.end()
    assert "call_soon" not in vars(loop)


@on_each_loop
async def test_a_turn_that_takes_long_is_a_lag_though_nothing_was_asked(records: Records) -> None:
    with (watch := Watch()):
        await asyncio.sleep(0)
        threading.Event().wait(0.002)  # a task that computes
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert watch.longest_lag() >= 0.002
        assert watch.alarm.rings == 0


@on_each_loop
async def test_a_loop_that_is_late_for_want_of_a_processor_is_no_tasks_fault(records: Records) -> None:
    waited = 0.0

    def waits(thread: int) -> float:
        assert thread == threading.main_thread().native_id
        nonlocal waited
        waited += 1000.0
        return waited

    with (watch := Watch(0.05, waited=waits)):
        await asyncio.create_task(author(records))
    (message, fields), *_ = records.fields
    assert message == "The event loop is late, because the process gets no processor"
    assert fields["waited"] == 1000.0
    assert watch.blocking == []


def test_for_how_long_a_thread_waited_for_a_processor_is_known_only_where_the_system_says() -> None:
    assert waited_for_processor(threading.get_native_id()) >= 0
    assert waited_for_processor(0) == 0


async def test_the_thread_ends_with_the_block_though_its_question_is_open(records: Records) -> None:
    with (watch := Watch(10.0)):
        assert compute_until(lambda: watch.lag() > 0)
    assert not watch._thread.is_alive()
    assert records.fields == []


def compute_until(met: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not met() and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    return met()


async def test_two_watches_of_one_loop_both_learn_that_it_runs_and_that_it_sleeps() -> None:
    loop, alarms = asyncio.get_running_loop(), [Alarm(lambda: None) for _ in range(2)]
    watches = [loop_watch._Looks(loop, alarm, 60.0, lambda lag: None) for alarm in alarms]
    for each in watches:
        each.begin()
    slept = loop.create_future()
    alarms[1].then = lambda: loop.call_soon_threadsafe(slept.set_result, None)
    await slept
    assert [alarm.settings for alarm in alarms] == [[60.0, LOOK, 60.0]] * 2
    for each in watches:
        each.end()
    assert "call_soon" not in vars(loop)


def test_a_loop_without_attributes_is_always_at_work() -> None:
    touched = list[bool]()
    loop_watch._Tripwire.lay(cast(asyncio.AbstractEventLoop, object()), lambda: touched.append(True))
    assert touched


async def test_the_longest_lag_is_that_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(loop_watch.time, "monotonic", lambda: now)  # type: ignore[attr-defined]
    watch = LoopWatchThread(lambda task: None)
    watch._over = True  # it has no loop
    assert watch.longest_lag() == watch.lag() == 0
    for late in 2.0, 5.0, 1.0:
        watch._asked_at = now
        now += late
        assert watch.lag() == late
        watch._answer()
    assert (watch.longest_lag(), watch.lag()) == (5.0, 0.0)
    now += 61
    assert watch.longest_lag() == 0
