"""Code that is called apart can neither end its caller nor keep it from ending."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from failing_groups import (
    FOREVER,
    await_what_was_cancelled,
    be_late_after_a_group_has_failed,
    fail_in_a_group,
    fail_in_a_group_when_cancelled,
)
from kubeshard.runtime.loop import CancelledWithin, apart, awaited_apart
from kubeshard_lab.virtual_time import virtual_time


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
            task = asyncio.current_task()
            assert task is not None
            assert not task.cancelling()
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


@virtual_time
async def test_a_request_that_came_before_the_call_cancels_the_caller() -> None:
    async def call() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await apart(asyncio.sleep, 1)

    caller = asyncio.create_task(call())
    await asyncio.wait([caller])
    assert caller.cancelled()


@virtual_time
async def test_what_fails_as_it_is_cancelled_is_logged_once_and_is_the_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    causes = []

    async def call() -> None:
        try:
            await apart(apart, fail_in_a_group_when_cancelled)
        except asyncio.CancelledError as error:
            causes.append(error.__cause__)
            raise

    caller = asyncio.create_task(call(), name="the caller")
    await asyncio.sleep(1)
    caller.cancel()
    await asyncio.wait([caller])
    assert isinstance(causes[0], ExceptionGroup)
    (line,) = [record for record in caplog.records if record.message.startswith("Failed while")]
    assert "the caller" in line.message
    assert "the connection cannot be closed" in line.message


@virtual_time
async def test_that_something_else_was_cancelled_too_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def code() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(apart(await_what_was_cancelled_then))

    other = asyncio.create_task(asyncio.sleep(FOREVER))

    async def await_what_was_cancelled_then() -> None:
        await other

    caller = asyncio.create_task(apart(code))
    await asyncio.sleep(1)
    other.cancel()
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    assert not caplog.records


class Big:
    pass


@virtual_time
async def test_a_failure_and_its_locals_live_no_longer_than_whoever_looks_at_it() -> None:
    alive = []

    async def fail_with_something_big() -> None:
        big = Big()
        alive.append(weakref.ref(big))
        raise RuntimeError("a bug")

    async def hold_something_big() -> None:
        big = Big()
        alive.append(weakref.ref(big))
        await asyncio.sleep(FOREVER)

    gc.disable()
    try:
        with suppress(RuntimeError):
            await apart(fail_with_something_big)
        caller = asyncio.create_task(apart(hold_something_big))
        await asyncio.sleep(1)
        caller.cancel()
        await asyncio.wait([caller])
        del caller
        assert [ref() for ref in alive] == [None, None]
    finally:
        gc.enable()


@virtual_time
async def test_code_that_was_called_and_never_began_is_closed(recwarn: pytest.WarningsRecorder) -> None:
    async def code() -> None:
        raise AssertionError("it never begins")

    caller = asyncio.create_task(awaited_apart(code()))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    gc.collect()
    assert not recwarn.list
