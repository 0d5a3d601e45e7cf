"""Timestamps on the wire.

`metav1.Time` has second precision, `metav1.MicroTime` (Leases) exactly six fractional digits; both are UTC
with `Z`. Times in objects stay strings until the number is needed: seconds since the epoch as float.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from math import floor


def micro_time(epoch: float) -> str:
    """`2026-01-02T03:04:05.678901Z`, the only form in which the API server accepts Lease times."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def second_time(epoch: float) -> str:
    """`2026-01-02T03:04:05Z`."""
    return _second(floor(epoch))


@lru_cache(16)
def _second(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str | None) -> float | None:
    """Seconds since the epoch, or None for an absent or malformed time."""
    if not text or len(text) > _LONGEST:
        return None
    return _parsed(text)


_LONGEST = 64


@lru_cache(4096)
def _parsed(text: str) -> float | None:
    try:
        parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return parsed.replace(tzinfo=parsed.tzinfo or UTC).timestamp()
