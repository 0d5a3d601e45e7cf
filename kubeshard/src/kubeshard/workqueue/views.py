"""A human-readable snapshot of a queue, for debug pages and dumps."""

from __future__ import annotations

from typing import Generic

import msgspec

from kubeshard.workqueue.order import K
from kubeshard.workqueue.reasons import Cause, Reason


class WaitingKey(msgspec.Struct, Generic[K], frozen=True):
    """A key that is queued or being processed."""

    key: K
    seconds: float
    """For how long: since it was added, or since its run started."""
    priority: int
    why: tuple[Cause, ...]


class DelayedKey(msgspec.Struct, Generic[K], frozen=True):
    key: K
    seconds: float
    """How long until it is added; not positive if it is due now."""
    reason: Reason
    debounced: bool = False
    """Whether it is debounced, so that another trigger may postpone it."""


class QueueView(msgspec.Struct, Generic[K], frozen=True):
    """Counts are for all keys; the tuples contain the first few."""

    name: str
    depth: int
    """Queued keys: the ready ones, and those that will be ready when their run is done."""
    ready: int
    depths: dict[int, int]
    """`depth` by priority."""
    running: tuple[WaitingKey[K], ...]
    """The keys that workers have, the longest running first."""
    waiting: tuple[WaitingKey[K], ...]
    """The keys that have waited longest, the oldest first; not the order in which they are handed out."""
    delayed: int
    delays: tuple[DelayedKey[K], ...]
    """The keys that are due first."""
    failing: int
    """Keys that were retried and not forgotten since."""

    @property
    def oldest(self) -> WaitingKey[K] | None:
        """The key that has been queued for longest."""
        return self.waiting[0] if self.waiting else None
