"""Whether a worker may begin another reconcile at this moment.

Whoever holds a right that may end (a shard's Lease) closes the gate when the end is near and opens it again
when the right was renewed: two seconds before a shard's deadline nothing new begins, one second before it
what runs is cancelled (reliability 1.6, `fence`). For one event loop's thread: other threads go through
`loop.call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio


class Gate:
    """Open at first."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def passed(self) -> None:
        """Returns at once while open, else when it opens."""
        await self._open.wait()
