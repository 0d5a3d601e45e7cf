"""An event loop beside a test, which may have one of its own or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import ExitStack, asynccontextmanager
from typing import Any, TypeVar

from kubeshard.runtime.background import in_background

T = TypeVar("T")


class BackgroundLoop:
    """Runs from its making until `stop`, in a thread called `name`; `stop` cancels what still runs there."""

    def __init__(self, name: str) -> None:
        self._stack = ExitStack()
        self._loop = self._stack.enter_context(in_background(_here, name))

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine to its end there; from any other thread. Raises what it raises."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C while it waits
            raise

    def stop(self) -> None:
        self._stack.close()


@asynccontextmanager
async def _here() -> AsyncIterator[asyncio.AbstractEventLoop]:
    yield asyncio.get_running_loop()
