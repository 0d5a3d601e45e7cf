"""Computes how long to wait before the next attempt of anything that is repeated until it succeeds.

The wait grows, is jittered, and is reset after a quiet time. Retries of many keys have limiters (`workqueue.limits`).
"""

from __future__ import annotations

from typing import NamedTuple

from kubeshard.runtime.rng import Rng


class BackoffPolicy(NamedTuple):
    """In seconds. A wait is the base plus up to `jitter` times it: at most `cap * (1 + jitter)`."""

    initial: float = 0.8
    factor: float = 2.0
    cap: float = 30.0
    jitter: float = 1.0
    reset_after: float = 120.0


class Backoff:
    """Counts failures of one thing. Not a timer: it only says how long to wait. Without jitter it needs no `rng`."""

    def __init__(self, policy: BackoffPolicy, rng: Rng | None = None) -> None:
        if rng is None and policy.jitter:
            raise ValueError(f"a jitter of {policy.jitter} needs randomness")
        self._policy = policy
        self._rng = rng
        self._base = policy.initial
        self._last = float("-inf")

    def failed(self, now: float) -> float:
        """The wait after a failure at `now` (monotonic seconds)."""
        policy = self._policy
        if now - self._last > policy.reset_after:
            self._base = policy.initial
        self._last = now
        base = self._base
        self._base = min(base * policy.factor, policy.cap)
        return base + (self._rng.uniform(0.0, base * policy.jitter) if self._rng else 0.0)

    def reset(self) -> None:
        self._base = self._policy.initial
