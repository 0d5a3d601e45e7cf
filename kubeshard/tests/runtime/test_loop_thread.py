"""An event loop in its own thread is a child of the task that waits for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from kubeshard.runtime.loop_thread import LoopRunner, LoopThread, SameLoop


@pytest.mark.parametrize("runner", [LoopThread("t"), SameLoop()])
async def test_the_result_comes_back(runner: LoopRunner) -> None:
    async def main() -> int:
        await asyncio.sleep(0)
        return 42

    assert await runner.run(main) == 42


@pytest.mark.parametrize("runner", [LoopThread("t"), SameLoop()])
async def test_the_exception_comes_back(runner: LoopRunner) -> None:
    async def main() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await runner.run(main)


async def test_the_thread_has_its_name_and_a_loop_of_its_own() -> None:
    async def main() -> tuple[str, int]:
        return threading.current_thread().name, id(asyncio.get_running_loop())

    name, loop = await LoopThread("shard-lease").run(main)
    assert name == "shard-lease"
    assert loop != id(asyncio.get_running_loop())


async def test_cancelling_waits_until_the_coroutine_in_the_thread_has_cleaned_up() -> None:
    started, cleaned = threading.Event(), threading.Event()

    async def main() -> None:
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.05)
            cleaned.set()

    task = asyncio.create_task(LoopThread("t").run(main))
    await asyncio.to_thread(started.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()


async def test_cancelling_at_once_never_leaves_a_thread_behind() -> None:
    async def main() -> None:
        await asyncio.sleep(3600)

    task = asyncio.create_task(LoopThread("never-left-behind").run(main))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "never-left-behind" not in {thread.name for thread in threading.enumerate() if thread.is_alive()}


async def test_the_thread_goes_on_while_the_callers_loop_is_blocked() -> None:
    beats: list[float] = []
    started = threading.Event()

    async def main() -> None:
        started.set()
        while True:
            beats.append(time.monotonic())
            await asyncio.sleep(0.01)

    task = asyncio.create_task(LoopThread("t").run(main))
    await asyncio.to_thread(started.wait, 5)
    before = len(beats)
    time.sleep(0.2)  # noqa: ASYNC251 - the blocked loop is the point
    assert len(beats) > before + 5
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("runner", [LoopThread("t"), SameLoop()])
async def test_posted_calls_run_in_the_coroutines_loop(runner: LoopRunner) -> None:
    ready, where = threading.Event(), []
    inside: list[Callable[[], None]] = []

    async def main() -> None:
        posted = asyncio.Event()
        loop = asyncio.get_running_loop()

        def callback() -> None:
            where.append(asyncio.get_running_loop() is loop)
            posted.set()

        inside.append(callback)
        ready.set()
        await posted.wait()

    task = asyncio.create_task(runner.run(main))
    await asyncio.to_thread(ready.wait, 5)
    runner.post(inside[0])
    await asyncio.wait_for(task, 5)
    assert where == [True]
    runner.post(where.append, False)
