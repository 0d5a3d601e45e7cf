"""The timing of a shard's Lease: that of every Lease (`kubeshard.leases.timing`), and one more setting.

| number | default | |
|---|---|---|
| `request_bound` | 5 s | the maximum duration of a controller's write |

Why a sharder cannot take over while this shard still writes: it waits `2 * lease_duration` after the last renewal it
saw, and the last write ends `LeaseTiming.last_write` after the last renewal. The process is dead at `renew_deadline`
(`runtime.watchdog` ends it even if its event loop is blocked), the kernel may deliver what it sent just before for
`UNDELIVERED` seconds more, and the server may process that for the `?timeout=` of the request: 10 + 4 + 5 = 19 s,
compared with 30 s. That tolerates clocks whose rates differ by a half, and any difference in absolute time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from kubeshard.leases.timing import Timing
from kubeshard.runtime.transport import UNDELIVERED
from kubeshard.sharding.shard_states import MAX_DURATION, MIN_DURATION

SHORTEST_LEASE, LONGEST_LEASE = MIN_DURATION, MAX_DURATION
"""Bounds of a held Lease's duration, also used to clamp what somebody else wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming(Timing):
    """The last write must end before a sharder takes over: `last_write`, which is `renew_deadline + UNDELIVERED` and
    `request_bound` in whole seconds, is less than `2 * lease_duration`. And `lease_duration` is within `SHORTEST_LEASE`
    and `LONGEST_LEASE`, and at least three retry periods. Raises ConfigurationError for values that violate this, or
    what `Timing` requires. `scaled` makes a valid one from a lease duration.
    """

    what: ClassVar[str] = "shard lease"

    request_bound: float = 5.0

    def __post_init__(self) -> None:
        duration = self.lease_duration
        self.require(
            SHORTEST_LEASE <= duration <= LONGEST_LEASE,
            f"lease duration {duration:g}s is not within {SHORTEST_LEASE:g}s and {LONGEST_LEASE:g}s",
        )
        Timing.__post_init__(self)
        self.require(
            duration >= 3 * self.retry_period,
            f"lease duration {duration:g}s is shorter than three retry periods of {self.retry_period:g}s",
        )
        self.require(
            self.last_write < 2 * duration,
            f"lease duration {duration:g}s: a write may end {self.last_write:g}s after the last renewal, "
            f"and a sharder takes over after {2 * duration:g}s",
        )

    @property
    def last_write(self) -> float:
        """Seconds after the start of the last successful renewal after which no write of the controllers can take
        effect any more.
        """
        server = max(1, math.ceil(self.request_bound))  # the server gets whole seconds
        return self.renew_deadline + UNDELIVERED + server


def scaled(lease_duration: float) -> LeaseTiming:
    """The timing for another lease duration, in proportion to the default. Raises ConfigurationError for less than 4 s,
    because the kernel's late delivery does not scale. So the shorter the Lease, the smaller the tolerance for clock
    rates; below 10 s it is less than a third. Such Leases are for tests and demonstrations.
    """
    default = LeaseTiming()
    factor = lease_duration / default.lease_duration
    return LeaseTiming(
        lease_duration=lease_duration,
        renew_deadline=default.renew_deadline * factor,
        retry_period=default.retry_period * factor,
        attempt_timeout=default.attempt_timeout * factor,
        failure_pause=default.failure_pause * factor,
        stop_margin=default.stop_margin * factor,
        cancel_margin=default.cancel_margin * factor,
        request_bound=max(1.0, math.floor(default.request_bound * factor)),
    )
