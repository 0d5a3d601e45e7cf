"""The timing of a Lease.

| number | default | |
|---|---|---|
| `lease_duration` | 15 s | written to the Lease, in whole seconds: how long others wait after an observed renewal |
| `renew_deadline` | 10 s | the right to act, from the start of the last successful renewal |
| `retry_period` | 2 s | between renewals, and between two reads of another holder's Lease |
| `jitter` | 1.2 | a candidate waits up to this many retry periods more |
| `attempt_timeout` | 2 s | of the first attempt: a dead connection must not use up the deadline (`state_machine`) |
| `failure_pause` | 0.5 s | a holder's pause, up to twice as long, from one attempt without success to the next |
| `stop_margin` | 2 s | before the deadline: start nothing new |
| `cancel_margin` | 1 s | before the deadline: the right is over, running work is cancelled |

The *rates* of two clocks may differ by as much as `lease_duration` and `renew_deadline` do; their absolute times do not
matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kubeshard.core.errors import ConfigurationError

RENEW_JITTER = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """All in seconds, except `jitter`. Raises ConfigurationError for values that cannot work."""

    what: ClassVar[str] = "lease"
    """The subject of error messages."""

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    jitter: float = 1.2
    attempt_timeout: float = 2.0
    failure_pause: float = 0.5
    stop_margin: float = 2.0
    cancel_margin: float = 1.0

    def __post_init__(self) -> None:
        duration, deadline, period = self.lease_duration, self.renew_deadline, self.retry_period
        self.require(period > 0, "the retry period must be positive")
        self.require(duration >= 1, "the lease duration must be at least 1s")
        self.require(duration == int(duration), f"lease duration {duration:g}s: a Lease counts whole seconds")
        self.require(
            deadline < duration,
            f"renew deadline {deadline:g}s must be shorter than the lease duration {duration:g}s",
        )
        self.require(
            deadline > period * self.jitter,
            f"renew deadline {deadline:g}s must be longer than {self.jitter:g} retry periods of {period:g}s",
        )
        self.require(
            0 < self.cancel_margin < self.stop_margin < deadline - period,
            f"renew deadline {deadline:g}s leaves no time for a second attempt before work must stop",
        )

    def require(self, condition: bool, message: str) -> None:
        if not condition:
            raise ConfigurationError(f"{self.what}: {message}")
