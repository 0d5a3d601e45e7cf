"""A client-side limit of the request rate.

Off by default: API Priority and Fairness at the server knows the load, a client does not. For servers without
it, or to reduce load.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from kubeshard.runtime.clock import Clock
from kubeshard.runtime.token_bucket import TokenBucket


class Limiter(Protocol):
    async def acquire(self) -> None:
        """Waits until the next request may be sent. First come, first served."""
        ...


class TokenBucketLimiter:
    """At most `qps` requests a second on average, and `burst` at once after a pause. Opening a watch is one request."""

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        """Raises ValueError unless both are positive."""
        self._bucket = TokenBucket(qps, burst, clock=clock)

    async def acquire(self) -> None:
        wait = self._bucket.take()
        if wait > 0:
            try:
                await asyncio.sleep(wait)
            except asyncio.CancelledError:
                self._bucket.give_back()  # a request that is not sent must not delay others
                raise
