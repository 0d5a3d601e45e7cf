"""The event loop of a program - uvloop if it is installed (the extra `speed`), else asyncio's; cancellation that cannot
be mistaken; and waiting with a limit.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from kubeshard.runtime.logs import get_logger

P = ParamSpec("P")
T = TypeVar("T")

_log = get_logger("kubeshard.runtime")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop factory for `asyncio.Runner`; None means asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def forget_cancellations() -> None:
    """Takes back all requests to cancel the running task.

    A task group that fails while it waits for its tasks leaves one behind (before Python 3.13), which is not meant for
    its caller: the task would look cancelled, and a timeout in the task would raise CancelledError - one that was
    entered before, or any (before 3.11.3). Only where nothing else would end the task: its own cancellation cannot be
    told from such a request. `apart` needs no such knowledge.
    """
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


class CancelledWithin(RuntimeError):
    """Code ended because something that it awaited was cancelled, while nobody cancelled the code itself."""

    def __init__(self) -> None:
        super().__init__("something that it awaited was cancelled")


async def apart(function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls code that may do anything - an author's, or a whole part of a program - in a task of its own, and returns
    or raises what it does.

    So CancelledError always means that the caller is being cancelled; and if it is, CancelledError is raised, whatever
    the code made of it. Without `apart`, code that awaits something that was cancelled looks as if its caller were
    cancelled, a failure in the same moment replaces a cancellation, and a task group leaves a request to cancel behind
    (see `forget_cancellations`). Code that ends because something else was cancelled raises CancelledWithin here. What
    fails as it is cancelled is logged, and is the cause of the CancelledError.

    Returns when the code has ended, however long it ignores a cancellation. Context variables that it sets end with it.
    """
    caller = asyncio.current_task()
    assert caller is not None, "a coroutine runs in a task"
    requests, begun = caller.cancelling(), False

    async def call() -> T:
        nonlocal begun
        begun = True
        return await function(*args, **kwargs)

    task = asyncio.create_task(call(), name=caller.get_name())
    cancelled: BaseException | None = None
    try:
        return await task
    except asyncio.CancelledError as error:
        # A task that never began was cancelled by a request that the caller had when it came here.
        if caller.cancelling() == requests and (begun or not requests):
            raise CancelledWithin from error
        cancelled = error.__cause__
        raise
    finally:
        try:
            # Nothing but a request to cancel the caller can have come to its task: the code has run in another one.
            if caller.cancelling() > requests:
                raise asyncio.CancelledError from cancelled or _failure(task)
        finally:
            # Otherwise a failure would keep itself alive, since its traceback leads here.
            del caller, task, cancelled


async def awaited_apart(begun: Awaitable[T]) -> T:
    """`apart` for code that has been called already."""
    try:
        return await apart(lambda: begun)
    finally:
        if isinstance(begun, Coroutine):
            begun.close()  # it never began if the caller was cancelled at once


def _failure(task: asyncio.Task[Any]) -> BaseException | None:
    """What failed in the task although that was cancelled. Logs it."""
    error = task.exception() if task.done() and not task.cancelled() else None
    if error is None or only_cancelled(error):
        return None
    if isinstance(error, Exception):
        _log.error("Failed while it was being cancelled", name=task.get_name(), error=error)
    return error


def only_cancelled(error: BaseException) -> bool:
    """Whether nothing else is the matter than that something which was awaited was cancelled."""
    if isinstance(error, BaseExceptionGroup):
        return all(only_cancelled(each) for each in error.exceptions)
    return isinstance(error, CancelledWithin)


async def set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """So many seconds at most (None or infinity: without a limit). Returns whether it is set."""
    try:
        async with asyncio.timeout(None if seconds == math.inf else seconds):
            await event.wait()
    except TimeoutError:
        return event.is_set()  # it may have been set at the same moment
    return True
