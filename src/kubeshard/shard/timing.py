"""The numbers of a shard's Lease, in one table.

| number | default | source |
|---|---|---|
| `lease_duration` | 15 s | protocol 3.4; what the Lease says, and the unit in which a sharder counts |
| `renew_deadline` | 10 s | reliability F1: the right to work, from the start of the last good renewal |
| `renew_interval` | 2 s ± 10 % | reliability 1.6 |
| `attempt_timeout` | 2.5 s, `?timeout=2s` | reliability 1.6: one dead connection must not eat the deadline |
| `retry_min`, `retry_max` | 0.5 s, 1 s | reliability 1.6, after an attempt without an answer |
| `stop_margin` | 2 s | reliability F1: before the deadline, no new work |
| `cancel_margin` | 1 s | reliability F1: before the deadline, work is cancelled and its sockets are reset |
| `request_bound` | 5 s | reliability F3: after that a write of a controller is over, one way or the other |
| `max_conflicts` | 5 | reliability F4: so many renewals in a row lost to other writers end the tenure |

Why a sharder cannot take over while this shard still writes: it waits `2 * lease_duration` after the last
renewal it saw, and the last write is over `LeaseTiming.last_write` after the last renewal. The process is dead at
`renew_deadline`, the kernel may deliver what it sent just before for `UNDELIVERED` seconds more, and the server may
work on that for the `?timeout=` of the request: 10 + 4 + 5 = 19 s against 30 s. That bears clocks whose rates differ
by a half, and any difference of their absolute times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.transport import UNDELIVERED

SHORTEST_LEASE = 3.0
LONGEST_LEASE = 300.0
"""Bounds of a held Lease's duration, also used to clamp what somebody else wrote (reliability F13)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """All in seconds. Raises ConfigurationError for numbers that do not keep the promise above."""

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    renew_interval: float = 2.0
    renew_jitter: float = 0.1
    attempt_timeout: float = 2.5
    server_timeout: int = 2
    retry_min: float = 0.5
    retry_max: float = 1.0
    stop_margin: float = 2.0
    cancel_margin: float = 1.0
    request_bound: float = 5.0
    max_conflicts: int = 5

    def __post_init__(self) -> None:
        def require(condition: bool, message: str) -> None:
            if not condition:
                raise ConfigurationError(f"shard lease: {message}")

        duration, deadline, interval = self.lease_duration, self.renew_deadline, self.renew_interval
        require(duration == int(duration), f"lease duration {duration:g}s: a Lease counts whole seconds")
        require(
            SHORTEST_LEASE <= duration <= LONGEST_LEASE,
            f"lease duration {duration:g}s is not within {SHORTEST_LEASE:g}s and {LONGEST_LEASE:g}s",
        )
        require(interval > 0, "the renew interval must be positive")
        require(
            duration >= 3 * interval,
            f"lease duration {duration:g}s is shorter than three renew intervals of {interval:g}s",
        )
        require(
            deadline < duration,
            f"renew deadline {deadline:g}s must be shorter than the lease duration {duration:g}s",
        )
        require(
            0 < self.cancel_margin < self.stop_margin < deadline - interval,
            f"renew deadline {deadline:g}s leaves no time for a second attempt before work has to stop",
        )
        require(
            self.last_write < 2 * duration,
            f"lease duration {duration:g}s: a write may end {self.last_write:g}s after the last renewal, "
            f"and a sharder takes over after {2 * duration:g}s",
        )

    @property
    def last_write(self) -> float:
        """Seconds after the start of the last good renewal at which no write of the controllers can take effect
        any more.
        """
        server = max(1, math.ceil(self.request_bound))  # the server is told whole seconds
        return self.renew_deadline + UNDELIVERED + server


def scaled(lease_duration: float) -> LeaseTiming:
    """The table for another lease duration, in the proportions of the default one. Raises ConfigurationError for
    less than 4 s: what the kernel may deliver late does not scale. So the shorter the Lease, the smaller the reserve
    for clocks at different rates; below 10 s it is less than a third. Such Leases are for tests and demonstrations.
    """
    factor = lease_duration / 15.0
    return LeaseTiming(
        lease_duration=lease_duration,
        renew_deadline=10.0 * factor,
        renew_interval=2.0 * factor,
        attempt_timeout=2.5 * factor,
        server_timeout=max(1, int(2.0 * factor)),
        retry_min=0.5 * factor,
        retry_max=1.0 * factor,
        stop_margin=2.0 * factor,
        cancel_margin=1.0 * factor,
        request_bound=max(1.0, math.floor(5.0 * factor)),
    )
