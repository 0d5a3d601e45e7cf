"""Work that starts again after a crash."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client import CollectorRegistry

from failing_groups import await_what_was_cancelled, fail_in_a_group, fail_in_a_group_when_cancelled
from kubeshard.sharder.metrics import SharderMetrics
from kubeshard.sharder.tasks import BoundedTaskGroup, Crashes, supervised
from kubeshard_lab.virtual_time import VirtualClock, virtual_time

METRICS = SharderMetrics(CollectorRegistry())


class Work:
    """Runs for `lasts` seconds, then raises `error`."""

    def __init__(self, error: Exception | None, *, lasts: float = 0.0) -> None:
        self.error = error
        self.lasts = lasts
        self.clock = VirtualClock()
        self.began: list[float] = []
        self._before = METRICS.counts["crashes"].series("r", "", "", "work").value
        self._start = self.clock.monotonic()
        self.task = asyncio.create_task(
            supervised(self._run, "work", Crashes(METRICS.of("r"), self.clock, ring="r"))
        )

    async def _run(self) -> None:
        self.began.append(self.clock.monotonic() - self._start)
        await asyncio.sleep(self.lasts)
        if self.error is not None:
            raise self.error

    @property
    def crashes(self) -> float:
        return METRICS.counts["crashes"].series("r", "", "", "work").value - self._before


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if "crashed; it starts again" in record.message]


@virtual_time
async def test_work_that_crashes_starts_again_ever_later_up_to_ten_seconds_and_each_crash_counts() -> None:
    work = Work(RuntimeError("a bug"))
    await asyncio.sleep(36.0)
    assert [round(at) for at in work.began] == [0, 1, 3, 7, 15, 25, 35]
    assert work.crashes == 7
    work.task.cancel()


@virtual_time
async def test_after_a_minute_without_a_crash_the_next_one_is_the_first() -> None:
    work = Work(RuntimeError("a bug"))
    await asyncio.sleep(26.0)
    work.lasts, began = 61.0, len(work.began)
    await asyncio.sleep(80.0)
    assert [round(at) for at in work.began[began:]] == [35, 97]
    work.task.cancel()


@virtual_time
async def test_a_crash_is_logged_once_until_it_is_another_one_or_ten_minutes_old(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work = Work(RuntimeError("a bug"))
    await asyncio.sleep(300.0)
    assert len(lines(caplog)) == 1
    assert lines(caplog)[0].exc_info
    work.error = ExceptionGroup("of several jobs", [KeyError("another bug")])
    await asyncio.sleep(300.0)
    assert len(lines(caplog)) == 2
    await asyncio.sleep(610.0)
    assert len(lines(caplog)) == 3
    work.task.cancel()


@virtual_time
async def test_work_that_returns_or_is_cancelled_has_ended() -> None:
    work = Work(None)
    await work.task
    assert (len(work.began), work.crashes) == (1, 0)
    work = Work(None, lasts=1e9)
    await asyncio.sleep(1.0)
    work.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work.task
    assert (len(work.began), work.crashes) == (1, 0)


@virtual_time
async def test_timeouts_still_work_after_tasks_of_the_work_have_crashed() -> None:
    """Before Python 3.11.3, a timeout ends a task that was once asked to end, as a failing task group does."""
    requests, expired = list[int](), 0

    async def crash() -> None:
        await asyncio.sleep(1)
        raise RuntimeError("a bug")

    async def work() -> None:
        nonlocal expired
        task = asyncio.current_task()
        assert task is not None
        requests.append(task.cancelling())
        if len(requests) == 1:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(crash())
                tasks.create_task(asyncio.sleep(5))
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(5)
        except TimeoutError:
            expired += 1

    await supervised(work, "work", Crashes(METRICS.of(""), VirtualClock()))
    assert (requests, expired) == ([0, 0], 1)


async def fail_later() -> None:
    await asyncio.sleep(5)
    raise RuntimeError("a bug")


async def fail_in_a_job() -> None:
    async with BoundedTaskGroup(5) as jobs:
        await jobs.start(fail_later())
        await asyncio.sleep(1000)


async def fail_in_a_watch() -> None:
    async with asyncio.TaskGroup() as watches:
        watches.create_task(fail_later())


@pytest.mark.parametrize(
    ("work", "turns"),
    [
        (fail_in_a_group_when_cancelled, 0),
        *((work, turns) for work in (fail_in_a_job, fail_in_a_watch) for turns in range(6)),
    ],
)
@virtual_time
async def test_work_whose_task_fails_as_it_is_cancelled_does_not_start_again(
    work: Callable[[], Awaitable[None]], turns: int
) -> None:
    task = asyncio.create_task(supervised(work, "work", Crashes(METRICS.of(""), VirtualClock())))
    await asyncio.sleep(5)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=60)
    assert task.cancelled()


@virtual_time
async def test_work_that_awaits_what_was_cancelled_starts_again() -> None:
    starts, failing = 0, [await_what_was_cancelled, fail_in_a_group]

    async def work() -> None:
        nonlocal starts
        starts += 1
        if failing:
            await failing.pop()()

    await supervised(work, "work", Crashes(METRICS.of(""), VirtualClock()))
    assert starts == 3
