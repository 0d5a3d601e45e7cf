"""A token bucket: the one way in which a rate is limited here, whatever waits for the tokens.

Guaranteed: after a pause at most `burst` tokens at once, and on average at most `rate` a second. Not for threads.
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
        """At the time `_filled`; below zero by the tokens that are promised already."""
        self._filled = clock.monotonic()

    def take(self) -> float:
        """Takes a token, from the future if need be, and returns the seconds until it is there. Whoever takes first
        gets the earlier one.
        """
        self._fill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    def give_back(self) -> None:
        """A taken token was not used, so it delays nobody."""
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
