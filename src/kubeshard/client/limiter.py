"""A client-side limit of the request rate.

Off by default: API Priority and Fairness at the server knows the load, a client does not. For servers without
it, or to be kind.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from kubeshard.runtime.clock import Clock


class Limiter(Protocol):
    async def acquire(self) -> None:
        """Waits until the next request may be sent. Requests are let through in the order in which they
        asked.
        """
        ...


class TokenBucketLimiter:
    """On average at most `qps` requests a second, after a pause up to `burst` at once. Opening a watch counts
    as one.
    """

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"a limiter needs qps > 0 and burst >= 1, not {qps} and {burst}")
        self._interval = 1.0 / qps
        self._credit = self._interval * (burst - 1)
        self._clock = clock
        self._next = clock.monotonic() - self._credit
        """When the next request may go, had none of the burst been saved up."""

    async def acquire(self) -> None:
        now = self._clock.monotonic()
        self._next = max(self._next, now - self._credit)
        wait = self._next - now
        self._next += self._interval
        if wait > 0:
            try:
                await asyncio.sleep(wait)
            except asyncio.CancelledError:
                self._next -= self._interval  # a request that is not sent delays nobody
                raise
