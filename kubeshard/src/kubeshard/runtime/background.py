"""An event loop in a separate thread, for code without one.

Guaranteed: `in_background` returns after the context manager was entered; when the block exits, it exits the context
manager, ends its tasks and joins the thread; exceptions of either are raised here. Not guaranteed: that
the value may be used from the block's thread; that depends on the context manager.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def in_background(make: Callable[[], AbstractAsyncContextManager[T]], name: str) -> Iterator[T]:
    entered: list[T] = []
    failures: list[BaseException] = []
    ready = threading.Event()
    stop: list[Callable[[], object]] = []

    async def main() -> None:
        leaving = asyncio.Event()
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(leaving.set))
        async with make() as value:
            entered.append(value)
            ready.set()
            await leaving.wait()

    def body() -> None:
        try:
            with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                runner.run(main())
        except BaseException as error:
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    ready.wait()
    try:
        if entered:
            yield entered[0]
    finally:
        if entered:  # otherwise its loop ends, or has ended, without help
            stop[0]()
        thread.join()
    if failures:
        raise failures[0]
