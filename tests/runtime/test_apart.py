"""Code that is called apart can neither end its caller nor keep it from ending."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from failing_groups import (
    FOREVER,
    await_what_was_cancelled,
    be_late_after_a_group_has_failed,
    fail_in_a_group,
    fail_in_a_group_when_cancelled,
)
from kubeshard.runtime.loop import CancelledWithin, apart, being_cancelled
from kubeshard.testing.virtual_time import virtual_time


@virtual_time
async def test_it_returns_and_raises_what_the_code_does_in_a_task_with_the_callers_name() -> None:
    async def half(number: int, *, of: str) -> str:
        task = asyncio.current_task()
        assert task is not None
        return f"{number // 2} {of} {task.get_name()}"

    task = asyncio.create_task(apart(half, 8, of="pears"), name="counting")
    assert await task == "4 pears counting"
    with pytest.raises(ExceptionGroup) as raised:
        await apart(fail_in_a_group)
    assert isinstance(raised.value.exceptions[0], OSError)


@virtual_time
async def test_what_it_awaits_and_was_cancelled_is_an_error_of_the_code() -> None:
    with pytest.raises(CancelledWithin, match="something that it awaited was cancelled"):
        await apart(await_what_was_cancelled)


@virtual_time
async def test_a_group_that_fails_there_leaves_the_callers_timeouts_alone() -> None:
    async def call() -> None:
        async with asyncio.timeout(1):
            with pytest.raises(ExceptionGroup):
                await apart(fail_in_a_group)
            assert not being_cancelled()
            await asyncio.sleep(FOREVER)

    with pytest.raises(TimeoutError):
        await call()


@virtual_time
async def test_a_timeout_around_it_raises_timeout_error_whatever_the_code_makes_of_it() -> None:
    async def call() -> None:
        async with asyncio.timeout(1):
            await apart(fail_in_a_group_when_cancelled)

    with pytest.raises(TimeoutError):
        await call()


async def return_when_cancelled() -> None:
    try:
        await asyncio.sleep(FOREVER)
    except asyncio.CancelledError:
        return


@pytest.mark.parametrize(
    "code",
    [
        return_when_cancelled,
        fail_in_a_group_when_cancelled,
        fail_in_a_group,
        await_what_was_cancelled,
        be_late_after_a_group_has_failed,
    ],
)
@pytest.mark.parametrize("turns", range(6))
def test_a_caller_that_is_cancelled_ends_whatever_happens_in_the_code_just_then(
    code: Callable[[], Awaitable[None]], turns: int
) -> None:
    @virtual_time
    async def scene() -> None:
        moment, again = asyncio.Event(), 0

        async def begin() -> None:
            await moment.wait()
            await code()

        async def call_again_and_again() -> None:
            nonlocal again
            while True:
                try:
                    await apart(begin)
                except Exception:
                    again += 1
                if again:
                    await asyncio.sleep(FOREVER)

        caller = asyncio.create_task(call_again_and_again())
        await asyncio.sleep(1)
        moment.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller], timeout=FOREVER / 10)
        assert caller.cancelled()

    scene()


@virtual_time
async def test_it_returns_only_when_the_code_has_ended() -> None:
    ended = []

    async def slow_to_end() -> None:
        try:
            await asyncio.sleep(FOREVER)
        finally:
            await asyncio.sleep(10)
            ended.append(True)

    caller = asyncio.create_task(apart(slow_to_end))
    await asyncio.sleep(1)
    caller.cancel()
    await asyncio.wait([caller])
    assert ended
