"""The states of a shard: how certain it is that it is alive.

| holder is the shard itself | time | state | available |
|---|---|---|---|
| no | to_orphaned <= 0 | orphaned | no |
| no | else | dead | no |
| yes | to_uncertain <= 0 | uncertain | yes |
| yes | to_expired <= 0 | expired | yes |
| yes | else | ready | yes |

evaluated from top to bottom, boundaries inclusive. `unknown` is never computed; it is the state of an
unrecognised label.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

DEFAULT_DURATION = 15.0
"""The duration in seconds of a Lease without a duration or times."""

ORPHANED_AFTER = 60.0
"""Seconds after its expiration at which a Lease without a holder is garbage."""


class ShardState(IntEnum):
    """In ascending order of liveness. `str()` is the value of the state label and of the metrics."""

    UNKNOWN = 0
    ORPHANED = 1
    DEAD = 2
    UNCERTAIN = 3
    EXPIRED = 4
    READY = 5

    @property
    def available(self) -> bool:
        """Whether the shard is a member of the hash ring: expired and uncertain shards are, until the Lease
        is taken over.
        """
        return self >= ShardState.UNCERTAIN

    def __str__(self) -> str:
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> ShardState:
        """The state of a label's value; UNKNOWN for anything else."""
        return _BY_TEXT.get(text, cls.UNKNOWN)


_BY_TEXT = {str(state): state for state in ShardState}


class LeaseTimes(NamedTuple):
    """Seconds from now until each change of state, and the duration that they are computed from."""

    duration: float
    to_expired: float

    @property
    def to_uncertain(self) -> float:
        return self.to_expired + self.duration

    @property
    def to_orphaned(self) -> float:
        return self.to_expired + ORPHANED_AFTER


def state_of(self_held: bool, times: LeaseTimes) -> ShardState:
    """The state according to the table above."""
    if not self_held:
        return ShardState.ORPHANED if times.to_orphaned <= 0 else ShardState.DEAD
    if times.to_uncertain <= 0:
        return ShardState.UNCERTAIN
    if times.to_expired <= 0:
        return ShardState.EXPIRED
    return ShardState.READY
