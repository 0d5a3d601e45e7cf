"""Rate limiters: how long a key waits before it is retried.

| limiter | rule | default |
|---|---|---|
| `ItemExponential` | `base * 2^failures`, at most `cap`; up to `jitter` times that on top | 0.2 s, 60 s, 1 |
| `OverallRate` | all keys together: `rate` per second after a burst | 10 per s, 100 |
| `FastSlow` | `fast` for the first `fast_tries` retries of a key, then `slow` | |
| `MaxOf` | the longest delay of several limiters | |
| `MaxWait` | another limiter's delay, at most `cap` | |

A controller's default is `ItemExponential` with these numbers: 0.2-0.4 s, 0.4-0.8 s, ... 60-120 s. client-go starts at
5 ms, too early for any API outside the cluster, and ends at 16 min, too late for people waiting for the result.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol

from kubeshard.runtime.clock import Clock
from kubeshard.runtime.rng import Rng
from kubeshard.runtime.token_bucket import TokenBucket
from kubeshard.workqueue.order import K


class Limiter(Protocol):
    """Decides delays and counts retries. One limiter belongs to one queue. Delays are seconds."""

    def when(self, key: Hashable) -> float:
        """How long the key must wait now. Counts as a retry of the key."""
        ...

    def forget(self, key: Hashable) -> None:
        """Resets the key: its next retry is the first one."""
        ...

    def retries(self, key: Hashable) -> int:
        """How often `when` was called for the key since it was last forgotten."""
        ...


class ItemExponential:
    """Each key's delay doubles with each of its own retries, up to `cap`. Jitter is added, so that keys that failed
    together are not retried together.
    """

    def __init__(self, base: float = 0.2, cap: float = 60.0, *, jitter: float = 1.0, rng: Rng) -> None:
        if not 0 < base <= cap:
            raise ValueError(f"base {base} s must be positive and at most the cap {cap} s")
        self._base = base
        self._cap = cap
        self._jitter = jitter
        self._rng = rng
        self._failures: dict[Hashable, int] = {}

    def when(self, key: Hashable) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # 2^64 times any sensible base is beyond any sensible cap, and larger powers overflow a float.
        delay = min(self._base * 2.0 ** min(failures, 64), self._cap)
        return delay * (1 + self._rng.uniform(0, self._jitter)) if self._jitter else delay

    def forget(self, key: Hashable) -> None:
        self._failures.pop(key, None)

    def retries(self, key: Hashable) -> int:
        return self._failures.get(key, 0)


class OverallRate:
    """Allows `burst` retries at once and `rate` per second from then on, for all keys together."""

    def __init__(self, rate: float = 10.0, burst: int = 100, *, clock: Clock) -> None:
        self._bucket = TokenBucket(rate, burst, clock=clock)

    def when(self, key: Hashable) -> float:
        return self._bucket.take()

    def forget(self, key: Hashable) -> None:
        """Does nothing: there is no state per key."""

    def retries(self, key: Hashable) -> int:
        return 0


class FastSlow:
    """A few quick retries, then slow ones."""

    def __init__(self, fast: float, slow: float, fast_tries: int) -> None:
        self._fast = fast
        self._slow = slow
        self._fast_tries = fast_tries
        self._tries: dict[Hashable, int] = {}

    def when(self, key: Hashable) -> float:
        self._tries[key] = self._tries.get(key, 0) + 1
        return self._fast if self._tries[key] <= self._fast_tries else self._slow

    def forget(self, key: Hashable) -> None:
        self._tries.pop(key, None)

    def retries(self, key: Hashable) -> int:
        return self._tries.get(key, 0)


class MaxOf:
    """The longest of several delays. Calls all limiters each time, so each counts every retry."""

    def __init__(self, *limiters: Limiter) -> None:
        self._limiters = limiters

    def when(self, key: Hashable) -> float:
        return max((limiter.when(key) for limiter in self._limiters), default=0.0)

    def forget(self, key: Hashable) -> None:
        for limiter in self._limiters:
            limiter.forget(key)

    def retries(self, key: Hashable) -> int:
        return max((limiter.retries(key) for limiter in self._limiters), default=0)


class MaxWait:
    """Another limiter's delay, but never longer than `cap`."""

    def __init__(self, limiter: Limiter, cap: float) -> None:
        self._limiter = limiter
        self._cap = cap

    def when(self, key: Hashable) -> float:
        return min(self._cap, self._limiter.when(key))

    def forget(self, key: Hashable) -> None:
        self._limiter.forget(key)

    def retries(self, key: Hashable) -> int:
        return self._limiter.retries(key)


class Retries(Generic[K]):
    """When failed keys are due again. A failure counts if the key's retry was due, or if it had none; an earlier one,
    of a run with another trigger, changes neither the count nor the time of that retry.
    """

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._due: dict[K, float] = {}
        """When the last retry of each key that was not forgotten is or was due."""

    def due(self, key: K, now: float) -> float:
        """When a key that fails now is retried."""
        due = self._due.get(key)
        if due is None or due <= now:
            due = self._due[key] = now + self._limiter.when(key)
        return due

    def forget(self, key: K) -> None:
        self._due.pop(key, None)
        self._limiter.forget(key)

    def count(self, key: K) -> int:
        return self._limiter.retries(key)

    def __len__(self) -> int:
        return len(self._due)
