"""What a queue shows of itself to people: a snapshot, for pages and dumps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from kubeshard.workqueue.levels import K
from kubeshard.workqueue.reasons import Cause, Reason


@dataclass(frozen=True, slots=True)
class WaitingKey(Generic[K]):
    """A key that wants processing, or is being processed."""

    key: K
    seconds: float
    """For how long: since it was added; of a run, since it began."""
    priority: int
    why: tuple[Cause, ...]


@dataclass(frozen=True, slots=True)
class DelayedKey(Generic[K]):
    """A key that will be added."""

    key: K
    seconds: float
    """How long it will take; not positive when it is due this moment."""
    reason: Reason
    debounced: bool = False
    """Whether it waits to be left alone, so that a further trigger may postpone it."""


@dataclass(frozen=True, slots=True)
class QueueView(Generic[K]):
    """Counts are of all keys; the tuples hold the first few."""

    name: str
    depth: int
    """Keys that want processing: the ready ones, and those that will be ready when their run is done."""
    ready: int
    depths: dict[int, int]
    """`depth` by priority."""
    running: tuple[WaitingKey[K], ...]
    """All that workers have, the longest running first."""
    waiting: tuple[WaitingKey[K], ...]
    """Those that have waited longest, the oldest first; not the order in which they are handed out."""
    delayed: int
    delays: tuple[DelayedKey[K], ...]
    """Those that are due first."""
    failing: int
    """Keys that were retried and not forgotten since."""

    @property
    def oldest(self) -> WaitingKey[K] | None:
        """The key that has wanted processing for longest."""
        return self.waiting[0] if self.waiting else None
