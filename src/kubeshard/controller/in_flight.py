"""How many reconciles of an object are running in this process, over all its controllers.

An object may be handed to another shard only when nobody here works on it any more. Each work queue knows
that for its own controller; two controllers of one kind need this common count (reliability F14b, T14;
protocol 14-A10).

Guaranteed: `idle` returns in a turn of the loop in which nobody runs, so what is done before the next await
is done while the object is idle. Not guaranteed: that it stays idle. Whoever waits must first have made sure
that no further run begins, and seals the object for as long as that matters; who begins runs asks `sealed`
first. For one event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from kubeshard.core import GroupKind, Key


class InFlight:
    """Counts of running reconciles by object."""

    def __init__(self) -> None:
        self._running: dict[tuple[GroupKind, Key], int] = {}
        """Never zero."""
        self._sealed: set[tuple[GroupKind, Key]] = set()
        self._waiters: dict[tuple[GroupKind, Key], list[asyncio.Future[None]]] = {}

    @contextmanager
    def running(self, kind: GroupKind, key: Key) -> Iterator[None]:
        """One more run until the block ends."""
        which = (kind, key)
        self._running[which] = self._running.get(which, 0) + 1
        try:
            yield
        finally:
            self._running[which] -= 1
            if not self._running[which]:
                del self._running[which]
                for waiter in self._waiters.pop(which, ()):
                    if not waiter.done():
                        waiter.set_result(None)

    @contextmanager
    def sealing(self, kind: GroupKind, key: Key) -> Iterator[None]:
        """No run may begin until the block ends. One block at a time."""
        self._sealed.add((kind, key))
        try:
            yield
        finally:
            self._sealed.discard((kind, key))

    def sealed(self, kind: GroupKind, key: Key) -> bool:
        return (kind, key) in self._sealed

    def count(self, kind: GroupKind, key: Key) -> int:
        return self._running.get((kind, key), 0)

    async def idle(self, kind: GroupKind, key: Key) -> None:
        """Returns as soon as nobody runs. A run must not wait for itself."""
        which = (kind, key)
        while which in self._running:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.setdefault(which, []).append(waiter)
            await waiter
