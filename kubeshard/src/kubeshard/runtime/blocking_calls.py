"""Blocking calls in threads that can be waited for.

A thread cannot be cancelled: a task that waits for one may end long before it does. To know what is still
running, use the thread's own future.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

Call = Future
"""A call in a thread: done when the thread has ended. `asyncio.wrap_future` waits for one in a loop."""

_LOOKUPS = (socket.getaddrinfo, socket.getnameinfo)
"""Calls that event loops themselves make in their default executor. They have no side effects."""


class CallRunner(Protocol):
    async def begin(self, function: Callable[[], T]) -> Call[T]:
        """Waits for its turn, starts the call, and returns a future that is done when the call has ended."""
        ...

    def give_up(self, call: Call[Any]) -> None:
        """Lets another call have the turn of one that may never end."""
        ...


def in_daemon(function: Callable[[], T], name: str) -> Call[T]:
    """Calls the function in a new thread. A call that never ends does not keep the process from exiting."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def body() -> None:
        try:
            result = function()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    try:
        threading.Thread(target=body, name=name, daemon=True).start()
    except BaseException as error:
        future.set_exception(error)
    return future


class Threads:
    """At most `size` at once, besides those given up, each in a new daemon thread called `name`."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._free = asyncio.Semaphore(size)
        self._given_up: set[Call[Any]] = set()

    async def begin(self, function: Callable[[], T]) -> Call[T]:
        """Waits for its turn, starts the call, and returns a future that is done when the thread has ended."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()

        def ended(call: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                loop.call_soon_threadsafe(self._return, call)

        future = in_daemon(function, self._name)
        future.add_done_callback(ended)
        return future

    def give_up(self, call: Call[Any]) -> None:
        """Lets another call have the turn of one that may never end."""
        if not call.done() and call not in self._given_up:
            self._given_up.add(call)
            self._free.release()

    def _return(self, call: Call[Any]) -> None:
        if call in self._given_up:
            self._given_up.remove(call)
        else:
            self._free.release()


class FollowedExecutor(ThreadPoolExecutor):
    """An executor that reports each call to `follow` when it is submitted, in the submitting task. Set as an event
    loop's default executor, it runs `asyncio.to_thread` and `run_in_executor(None, ...)`.
    """

    def __init__(self, follow: Callable[[Call[Any]], None]) -> None:
        super().__init__(thread_name_prefix="blocking")
        self._follow = follow

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future = super().submit(function, *args, **kwargs)
        if function not in _LOOKUPS:
            self._follow(future)
        return future


def wait_in_thread(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Blocks the calling thread until the loop of another thread has done `work`. Raises its exceptions, and
    RuntimeError in a thread with a running loop, which must not be blocked.
    """
    if _has_loop():
        work.close()
        raise RuntimeError("this is an event loop's thread: await the coroutine instead")
    try:
        return asyncio.run_coroutine_threadsafe(work, loop).result()
    except CancelledError:
        raise asyncio.CancelledError from None


def call_in_loop(callback: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
    """Calls it now in the loop's thread, soon from other threads; not at all after the loop is closed."""
    if _has_loop():
        callback()
    else:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(callback)


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Worker:
    """One thread called `name`: calls are made one after the other, in the order of submission."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def call(self, function: Callable[..., T], *args: object) -> T:
        """Raises the function's exceptions. Cancelling does not end a call that has started."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    def close(self) -> None:
        self._executor.shutdown()
