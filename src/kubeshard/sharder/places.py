"""A bound on how many begin at a time, that nobody who hangs can use up.

    async with places.taken():
        ...

Guaranteed: at most `size` blocks are inside that entered less than `patience` seconds ago. One that stays longer
gives its place back and goes on without, so who waits for a place waits at most `patience` for each `size` who
came before. Not guaranteed: any bound on those who stay long; it has to come from elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Places:
    def __init__(self, size: int, patience: float) -> None:
        self._free = asyncio.Semaphore(size)
        self._patience = patience

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        await self._free.acquire()
        timer = asyncio.get_running_loop().call_later(self._patience, self._free.release)
        due = timer.when()
        try:
            yield
        finally:
            if asyncio.get_running_loop().time() < due:
                timer.cancel()
                self._free.release()
