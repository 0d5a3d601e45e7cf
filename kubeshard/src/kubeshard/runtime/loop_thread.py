"""An event loop in a separate operating system thread, for work that a blocked main loop must not delay.

Guaranteed: `run` ends only when the coroutine in the thread has ended, and cancelling `run` cancels the
coroutine first, so the thread is a child of the task that waits for it, like any other task. The thread is a
daemon: it ends with the interpreter. Not guaranteed: progress while another thread
holds the interpreter lock in C code, or while the whole process is stopped; use
`kubeshard.runtime.watchdog` for that.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class LoopRunner(Protocol):
    """Runs a coroutine. Call `run` once per runner."""

    async def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs `main()` to its end, returns its result or raises its exception."""
        ...

    def post(self, callback: Callable[..., None], *args: object) -> None:
        """`callback(*args)` soon in the coroutine's loop, from any thread; nothing once that has ended."""
        ...


class SameLoop:
    """The coroutine runs in the caller's loop: if a blocked loop may delay it, and in simulations."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._loop = asyncio.get_running_loop()
        return await main()

    def post(self, callback: Callable[..., None], *args: object) -> None:
        if self._loop is not None:
            self._loop.call_soon(callback, *args)


class LoopThread:
    """The coroutine runs in a thread named `name`, in a plain asyncio loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._lock = threading.Lock()
        """Guards the three attributes above: they are written in the thread and read by the caller."""

    async def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        caller = asyncio.get_running_loop()
        ended = asyncio.Event()
        outcome: list[T] = []
        failure: list[BaseException] = []

        def body() -> None:
            try:
                with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                    try:
                        outcome.append(runner.run(self._main(main)))
                    finally:
                        with self._lock:
                            self._loop = None
            except BaseException as error:
                failure.append(error)
            finally:
                with suppress(RuntimeError):  # the caller's loop is closed: nothing waits any more
                    caller.call_soon_threadsafe(ended.set)

        thread = threading.Thread(target=body, name=self._name, daemon=True)
        thread.start()
        cancelled = False
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                cancelled = True
                self._cancel()
        thread.join()
        if failure and not isinstance(failure[0], asyncio.CancelledError):
            raise failure[0]
        if cancelled or failure:
            raise asyncio.CancelledError
        return outcome[0]

    def post(self, callback: Callable[..., None], *args: object) -> None:
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(callback, *args)

    async def _main(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with self._lock:
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.current_task()
            if self._cancelled:
                raise asyncio.CancelledError
        return await main()

    def _cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._loop is not None and self._task is not None:
                self._loop.call_soon_threadsafe(self._task.cancel)
