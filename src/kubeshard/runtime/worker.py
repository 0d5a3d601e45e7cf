"""A thread for calls that block: files that must reach the disk, libraries that know no event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """One thread called `name`: calls are made one after the other, in the order they were asked for."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def call(self, function: Callable[..., T], *args: object) -> T:
        """Raises what the function raises. Cancelling does not end a call that has begun."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    def close(self) -> None:
        """Waits for the calls under way."""
        self._executor.shutdown()
