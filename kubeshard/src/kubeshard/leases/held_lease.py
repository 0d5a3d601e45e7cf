"""The right to act, while it lasts.

Guaranteed: once the right is over it never returns to this object, whatever the renewer reports; `check` raises from
exactly that moment, even if the workers' loop has not been notified yet. The loss stops new work and cancels current
work before connections are reset, so a reset that fails or hangs delays neither.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from kubeshard.core.errors import NotOurs
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger

_log = get_logger("kubeshard.leases")


class Renewal(NamedTuple):
    """What a holder has last written to its Lease, whether or not that was answered."""

    namespace: str
    name: str
    time: str
    """The Lease's renewTime, which no other write has."""
    sent: float
    """Boot-time seconds."""
    rewinds: int
    """How often the Lease had been seen to revert to an earlier version."""


class Renews(Protocol):
    """Who holds a Lease, or will: a `HeldLease`, say."""

    @property
    def renewal(self) -> Renewal | None:
        """The last one."""
        ...


class Gate:
    """Whether a worker may start another reconcile at this moment. Initially open.

    Closed shortly before a right ends, opened again when the right is renewed. For one event loop's thread: others use
    `loop.call_soon_threadsafe`.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._open = asyncio.Event()
        self._open.set()

    def close(self) -> None:
        self.is_open = False
        self._open.clear()

    def open(self) -> None:
        self.is_open = True
        self._open.set()

    async def passed(self) -> None:
        """Returns at once if open, otherwise when it opens."""
        await self._open.wait()


class HeldLease:
    """Created in the workers' loop. The renewer writes it, from its own thread if it has one; everybody reads it.

    `over` is the error message of `check` when the right has ended. `abort` resets the workers' connections, from the
    renewer's thread.
    """

    def __init__(self, clock: Clock, over: str, abort: Callable[[], None]) -> None:
        self._clock = clock
        self._message = over
        self._abort = abort
        self._loop = asyncio.get_running_loop()
        self._gate = Gate()
        self._gate.close()
        self._closing: asyncio.TimerHandle | None = None
        self._acquired = asyncio.Event()
        self._lost: asyncio.Future[str] = self._loop.create_future()
        self._stopped = False
        self._over = False
        """Whether the right is over. Final, whatever the renewer reports."""
        self._begin_until = self._work_until = -math.inf
        self._renew_soon: Callable[[], None] = lambda: None
        self.renewal: Renewal | None = None
        """Written by the renewer."""
        self.sent = self.answered = 0
        """How often the Lease was written here, and how often it had been when that was answered last. Written by the
        renewer.
        """

    @property
    def gate(self) -> Gate:
        """Closed while the Lease is too close to its end to start anything new."""
        return self._gate

    async def acquired(self) -> None:
        """Returns when the Lease is ours for the first time."""
        await self._acquired.wait()

    async def lost(self) -> str:
        """Returns the reason when all work must stop; otherwise waits forever."""
        return await asyncio.shield(self._lost)

    def holds(self) -> bool:
        """Whether writes may start now, by the clock: correct even right after the loop was blocked. Thread-safe."""
        return not self._over and self._clock.boottime() < self._work_until

    def check(self) -> None:
        """Raises NotOurs if this process may no longer start a write. Thread-safe."""
        if self._over or self._clock.boottime() >= self._work_until:
            raise NotOurs(self._message)

    def margin(self) -> float:
        """Seconds for which work may continue without a renewal; 0 once the right is over. Thread-safe."""
        left = self._work_until - self._clock.boottime()
        return 0.0 if self._over else max(0.0, left)

    def stopped_cleanly(self) -> None:
        """Called when all work has verifiably ended and nothing is in flight: leaving releases the Lease."""
        self._stopped = self._over = True
        self._close()

    @property
    def stopped(self) -> bool:
        return self._stopped

    def leave(self) -> None:
        """The workers have left; anything that still runs must not write."""
        self._over = True
        self._close()

    def renew_soon(self) -> None:
        """Has the claim write what has changed there, without waiting until a renewal is due."""
        self._renew_soon()

    # Called by the renewer

    def driven_by(self, renew_soon: Callable[[], None]) -> None:
        self._renew_soon = renew_soon

    def renewed(self, begin_until: float, work_until: float) -> None:
        """The Lease is ours: new work may start, and work may continue, until these boot-time seconds. This does not
        wake the loop if the gate is open: it learns of it when it is asked before the next renewal, or would close.
        """
        self.answered = self.sent
        self._begin_until, self._work_until = begin_until, work_until
        if not self._gate.is_open:  # read after the other is written, and `while_it_may` does the reverse
            self._in_loop(self._open)

    def lose(self, reason: str) -> None:
        """Work is over, now."""
        self._over = True
        self._in_loop(self._lose, reason)
        try:
            self._abort()
        except Exception as error:
            _log.crash("Connections could not be reset", error)

    def _open(self) -> None:
        self._acquired.set()
        self.while_it_may()

    def while_it_may(self) -> None:
        """Has the gate open until new work may no longer start. In the workers' loop."""
        self._close()
        left = self._begin_until - self._clock.boottime()
        if left > 0 and not self._over:
            self._gate.open()
            self._closing = self._loop.call_later(left, self.while_it_may)

    def _lose(self, reason: str) -> None:
        self._close()
        if not self._lost.done():
            self._lost.set_result(reason)

    def _close(self) -> None:
        self._gate.close()
        if self._closing is not None:
            self._closing.cancel()

    def _in_loop(self, callback: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: there is no work any more
            self._loop.call_soon_threadsafe(callback, *args)
