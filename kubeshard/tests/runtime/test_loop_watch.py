"""Code that blocks an event loop is named while it does."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from typing import Any

import pytest

from kubeshard.runtime.loop import LoopWatch, waited_for_processor

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
def records() -> Any:
    handler, logger = Records(), logging.getLogger("kubeshard.runtime")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def compute(news: threading.Event) -> None:
    """Blocks the loop until the watch has logged something."""
    deadline = time.monotonic() + 10
    while not news.wait(0.001):
        assert time.monotonic() < deadline


async def test_a_blockage_is_told_once_with_the_tasks_name_and_the_line_and_so_is_its_end(
    records: Records,
) -> None:
    beat = time.monotonic()

    async def turn() -> None:
        nonlocal beat
        while True:
            beat = time.monotonic()
            await asyncio.sleep(0.001)

    async def author() -> None:
        compute(records.news)
        records.news.clear()

    beating = asyncio.create_task(turn())
    blocked: list[str] = []
    with LoopWatch(lambda: time.monotonic() - beat, 0.05, blocked.append):
        await asyncio.create_task(author(), name="websites worker 3")
        await asyncio.to_thread(records.news.wait, 10)
    beating.cancel()
    (message, fields), (end, _) = records.fields
    assert message == "The event loop is blocked; nothing else runs meanwhile"
    assert fields["task"] == "websites worker 3"
    assert blocked == ["websites worker 3"]
    assert "test_loop_watch.py" in fields["at"]
    assert " compute" in fields["at"]
    assert end == "The event loop is running again"


async def test_a_loop_that_is_late_for_want_of_a_processor_is_no_tasks_fault(records: Records) -> None:
    beat, waited, blocked = time.monotonic(), 0.0, list[str]()

    def waits(thread: int) -> float:
        assert thread == threading.main_thread().native_id
        return waited

    with LoopWatch(lambda: time.monotonic() - beat, 0.05, blocked.append, waited=waits):
        waited = 1000.0
        compute(records.news)
        beat = math.inf
    (message, fields), *_ = records.fields
    assert message == "The event loop is late, because the process gets no processor"
    assert fields["waited"] == 1000.0
    assert blocked == []


def test_for_how_long_a_thread_waited_for_a_processor_is_known_only_where_the_system_says() -> None:
    assert waited_for_processor(threading.get_native_id()) >= 0
    assert waited_for_processor(0) == 0


async def test_a_loop_that_turns_is_not_mentioned_and_the_thread_ends_with_the_block(
    records: Records,
) -> None:
    asked = threading.Event()

    def lag() -> float:
        asked.set()
        return 0.0

    with LoopWatch(lag, limit=0.004) as watch:
        await asyncio.to_thread(asked.wait, 10)
    assert not watch._thread.is_alive()
    assert records.fields == []


def test_a_limit_is_positive() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        LoopWatch(lambda: 0.0, 0)
