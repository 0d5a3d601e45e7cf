"""When to retry a request, and when to retry a read-modify-write.

A request is retried only if the server said that it did nothing, and when to retry: 429 or 503 with `Retry-After`.
A write is never retried because a connection broke: it may have taken effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from kubeshard.client.status import retry_after_of
from kubeshard.core.errors import Conflict, NotOurs
from kubeshard.runtime.rng import Rng

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """At most `tries` attempts. If a server asks for a wait of more than `longest` seconds, that is raised at once."""

    tries: int = 10
    longest: float = 60.0

    def delay(self, attempt: int, status: int, headers: Mapping[str, str], rng: Rng) -> float | None:
        """Seconds until the next attempt, or None if the response is final. `attempt` counts from 1. Has a tenth of
        jitter, also after `Retry-After: 0`: clients that were turned away together do not return together.
        """
        return self.pause(attempt, retry_after_of(headers) if status in (429, 503) else None, rng)

    def pause(self, attempt: int, wanted: float | None, rng: Rng) -> float | None:
        """Like `delay`, for callers that have the error: `wanted` is its `retry_after`."""
        if wanted is None or wanted > self.longest or attempt >= self.tries:
            return None
        return wanted + rng.uniform(0.0, max(wanted, 1.0) * 0.1)


async def retry_on_conflict(
    attempt: Callable[[], Awaitable[R]], rng: Rng, *, tries: int = 5, delay: float = 0.01
) -> R:
    """Runs `attempt` (get, change, write: the get must be inside) until it raises no Conflict; raises the last
    one.

    NotOurs is final: reading again does not make the object ours. Waits `delay` seconds plus a tenth of jitter,
    drawn from `rng` (that of the client's world), in between.
    """
    for _ in range(tries - 1):
        try:
            return await attempt()
        except NotOurs:
            raise
        except Conflict:
            await asyncio.sleep(delay * rng.uniform(1.0, 1.1))
    return await attempt()
