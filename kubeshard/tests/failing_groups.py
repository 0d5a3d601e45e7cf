"""What code may do with task groups and timeouts, at no cost to whoever calls it."""

from __future__ import annotations

import asyncio

FOREVER = 1e6


async def fail() -> None:
    raise OSError("nobody answers")


async def fail_in_a_group() -> None:
    """Before Python 3.13 the group leaves a request to cancel the calling task behind."""
    async with asyncio.TaskGroup() as group:
        group.create_task(fail())


async def be_late_after_a_group_has_failed() -> None:
    """Raises TimeoutError; before Python 3.13 CancelledError, which is not for the caller."""
    async with asyncio.timeout(1):
        try:
            await fail_in_a_group()
        except* OSError:
            pass
        await asyncio.sleep(FOREVER)


async def await_what_was_cancelled() -> None:
    """Raises CancelledError, although nobody cancels the calling task."""
    other = asyncio.create_task(asyncio.sleep(FOREVER))
    other.cancel()
    await other


async def fail_in_a_group_when_cancelled() -> None:
    """Raises an exception group in place of CancelledError; before Python 3.13 nothing else tells that it was
    cancelled.
    """

    async def talk() -> None:
        try:
            await asyncio.sleep(FOREVER)
        finally:
            raise ConnectionResetError("the connection cannot be closed")

    async with asyncio.TaskGroup() as group:
        group.create_task(talk())
