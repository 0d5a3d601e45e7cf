"""A token bucket: used for all rate limits.

Guaranteed: after a pause at most `burst` tokens at once, and on average at most `rate` per second. Not thread-safe.
"""

from __future__ import annotations

from kubeshard.runtime.clock import Clock


class TokenBucket:
    """Lets `burst` through at once and `rate` per second from then on. Raises ValueError unless both are positive."""

    def __init__(self, rate: float, burst: int, *, clock: Clock) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError(
                f"a rate limit needs a positive rate and a burst of at least 1, not {rate} and {burst}"
            )
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        self._tokens = self._burst
        """At the time `_filled`; negative by the number of tokens reserved already."""
        self._filled = clock.monotonic()

    def take(self) -> float:
        """A token, perhaps a future one: returns the seconds until it is available, in order of calls."""
        self._fill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    def give_back(self) -> None:
        """Returns an unused token, so that it does not delay others."""
        self._tokens += 1

    def try_take(self) -> bool:
        """Takes a token if there is one now."""
        self._fill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
