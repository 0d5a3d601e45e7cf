"""The right to act for a shard, while it lasts.

Guaranteed: once the right is over it never comes back to this object, whatever the keeper still says; `check`
knows of the end at its very moment, also while the main loop has not heard of it yet. The loss stops new work and
cancels the present one before connections are reset, so a reset that fails or hangs holds up neither.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress

from kubeshard.controller.gate import Gate
from kubeshard.core.errors import NotOurs
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger

_log = get_logger("kubeshard.shard")


class ShardTenure:
    """The right to act for the shard (`kubeshard.manager.membership.Tenure`). The keeper's thread writes it,
    everybody reads.
    """

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop, abort: Callable[[], None]) -> None:
        self._clock = clock
        self._loop = loop
        self._abort = abort
        self._gate = Gate()
        self._closing = loop.call_later(0, self._gate.close)
        self._acquired = asyncio.Event()
        self._lost: asyncio.Future[str] = loop.create_future()
        self._stopped = False
        self._over = False
        """Never taken back, whatever the keeper still says."""
        self._work_until = -math.inf
        self._returning = False
        self._reclaimed = False

    @property
    def returning(self) -> bool:
        """Whether the name had been given up before, as far as others can know: then `reclaim` its objects, and say
        so, before any work begins.
        """
        return self._returning and not self._reclaimed

    @property
    def reclaimed(self) -> bool:
        return self._reclaimed

    def objects_reclaimed(self) -> None:
        """Nobody who was told before that we are dead can take an object from us any more."""
        self._reclaimed = True

    @property
    def gate(self) -> Gate:
        """Closed while the Lease is so near its end that nothing new may begin."""
        return self._gate

    async def acquired(self) -> None:
        """Returns when the Lease has become ours for the first time."""
        await self._acquired.wait()

    async def lost(self) -> str:
        """Returns, with the reason, when all work has to stop now; for ever silent otherwise."""
        return await asyncio.shield(self._lost)

    def check(self) -> None:
        """Raises NotOurs when no write of this process may begin any more. From any thread."""
        if self._over or self._clock.boottime() >= self._work_until:
            raise NotOurs("the lease of this shard has run out, is lost or was given back")

    def stopped_cleanly(self) -> None:
        """All work is proven to have ended: nothing of this process will write to a sharded object again."""
        self._stopped = self._over = True

    @property
    def stopped(self) -> bool:
        return self._stopped

    # From the keeper's thread (`lease_keeper.Listener`)

    def on_held(self, returning: bool) -> None:
        self._returning = returning

    def on_renewed(self, begin_until: float, work_until: float) -> None:
        self._work_until = work_until
        self._in_main_loop(self._open, begin_until)

    def on_lost(self, reason: str) -> None:
        self._over = True
        self._in_main_loop(self._lose, reason)
        try:
            self._abort()
        except Exception as error:
            _log.crash("connections could not be reset", error)

    def _open(self, until: float) -> None:
        self._acquired.set()
        self._closing.cancel()
        if not self._lost.done():
            self._gate.open()
            self._closing = self._loop.call_later(until - self._clock.boottime(), self._gate.close)

    def _lose(self, reason: str) -> None:
        self._closing.cancel()
        self._gate.close()
        if not self._lost.done():
            self._lost.set_result(reason)

    def _in_main_loop(self, callback: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # the main loop is closed: nobody works any more
            self._loop.call_soon_threadsafe(callback, *args)
