"""Is this shard dead? Asked of the API server before objects are taken from it by force (reliability F6,
T10, 1.6).

Guaranteed: "dead" is answered only after a consistent read showed that no Lease of the shard is held by it,
at most 2 s ago, and nothing else was seen since; a deleted Lease counts as held until its tombstone was
settled by the lease controller (a re-create with which a living shard collides). Several questions at a time
share one read. What the decision rests on is logged.

RBAC: list on leases.
"""

from __future__ import annotations

import asyncio

from kubeshard.core.builtin import Lease
from kubeshard.runtime.clock import SYSTEM_CLOCK, Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.sharder.lease_observer import LeaseObserver

CONFIRMED_FOR = 2.0

_log = get_logger("kubeshard.sharder")


class DeadShards:
    """Reads once in 2 s, and judges by everything seen since."""

    def __init__(self, observer: LeaseObserver, clock: Clock = SYSTEM_CLOCK) -> None:
        self._observer = observer
        self._clock = clock
        self._reads: dict[tuple[str, str], tuple[float, asyncio.Task[None]]] = {}

    async def confirmed(self, ring: str, shard: str) -> bool:
        """Whether objects may be taken from the shard. Raises ApiError if the server does not say."""
        now = self._clock.monotonic()
        read = self._reads.get((ring, shard))
        if read is None or now - read[0] > CONFIRMED_FOR:
            self._reads = {k: v for k, v in self._reads.items() if now - v[0] <= CONFIRMED_FOR}
            task = asyncio.create_task(self._read(ring, shard))
            task.add_done_callback(_heed)
            read = self._reads[ring, shard] = (now, task)
        await asyncio.shield(read[1])
        return self._dead(ring, shard)

    async def _read(self, ring: str, shard: str) -> None:
        leases = await self._observer.read_shard(ring, shard)
        _log.info(
            "shard is dead" if self._dead(ring, shard) else "shard may be alive: its objects stay",
            ring=ring,
            shard=shard,
            leases="; ".join(map(_record, leases)) or "none",
        )

    def _dead(self, ring: str, shard: str) -> bool:
        return not self._observer.book.may_live(ring, shard, self._clock.monotonic())


def _heed(task: asyncio.Task[None]) -> None:
    """Whoever asked may have been cancelled: then nobody else looks at the exception."""
    if not task.cancelled():
        task.exception()


def _record(lease: Lease) -> str:
    spec, meta = lease.spec, lease.metadata
    return (
        f"{lease.key} uid={meta.uid} rv={meta.resource_version}"
        f" holder={spec.holder_identity or ''} renewed={spec.renew_time or ''}"
    )
