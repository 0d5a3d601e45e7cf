"""A ring's recent reads that prove deaths of shards (`dead_shards`)."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

SHARED_FOR = 2.0
"""Seconds from its start for which a read is shared with further callers."""

STANDS_FOR = 5.0
"""Seconds from its start for which a read is a valid proof; also its deadline."""


@dataclass(slots=True)
class DeadShardProofs:
    """The known deaths in one ring."""

    reads: dict[str, Read] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    """Shards that are known to have no Lease."""
    told: dict[str, str] = field(default_factory=dict)
    """What was logged last of a shard; logged again only after a change."""

    def end(self) -> None:
        """Stops answering: the ring has ended."""
        for read in self.reads.values():
            if read.task is not None:
                read.task.cancel()
        self.reads.clear()
        self.absent.clear()
        self.told.clear()


@dataclass(slots=True, eq=False)
class Read:
    """One read of a shard's Leases. `began` is infinite until its request is sent."""

    began: float = math.inf
    task: asyncio.Task[None] | None = None
    held: bool = False
    """Whether it showed a Lease held by the shard."""

    def answers(self, since: float, now: float) -> bool:
        return self.began >= since and now - self.began <= SHARED_FOR and not self._failed()

    def over(self, now: float) -> bool:
        return now - self.began > STANDS_FOR or self._failed()

    def _failed(self) -> bool:
        task = self.task
        return task is not None and task.done() and (task.cancelled() or task.exception() is not None)
