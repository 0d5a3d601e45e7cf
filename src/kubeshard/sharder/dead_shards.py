"""Is this shard dead? Asked of the API server before objects are taken from it by force (reliability F6,
T10, 1.6).

Guaranteed: "dead" is answered only after a consistent read showed that no Lease of the shard is held by it,
at most 2 s ago; a deleted Lease counts as held until its tombstone was settled by the lease controller (a
re-create with which a living shard collides). Several questions at a time share one read. What the decision
rests on is logged.

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
    """Answers and remembers for 2 s."""

    def __init__(self, observer: LeaseObserver, clock: Clock = SYSTEM_CLOCK) -> None:
        self._observer = observer
        self._clock = clock
        self._answers: dict[tuple[str, str], tuple[float, asyncio.Task[bool]]] = {}

    async def confirmed(self, ring: str, shard: str) -> bool:
        """Whether objects may be taken from the shard. Raises ApiError if the server does not say."""
        now = self._clock.monotonic()
        asked = self._answers.get((ring, shard))
        if asked is None or now - asked[0] > CONFIRMED_FOR:
            self._answers = {k: v for k, v in self._answers.items() if now - v[0] <= CONFIRMED_FOR}
            task = asyncio.create_task(self._ask(ring, shard))
            asked = self._answers[ring, shard] = (now, task)
        return await asyncio.shield(asked[1])

    async def _ask(self, ring: str, shard: str) -> bool:
        leases = await self._observer.read_shard(ring, shard)
        now = self._clock.monotonic()
        known = [each for each in self._observer.book.shards(ring, now) if each.name == shard]
        dead = not any(each.state.available or each.deleted for each in known)
        _log.info(
            "shard is dead" if dead else "shard may be alive: its objects stay",
            ring=ring,
            shard=shard,
            leases="; ".join(map(_record, leases)) or "none",
        )
        return dead


def _record(lease: Lease) -> str:
    spec, meta = lease.spec, lease.metadata
    return (
        f"{lease.key} uid={meta.uid} rv={meta.resource_version}"
        f" holder={spec.holder_identity or ''} renewed={spec.renew_time or ''}"
    )
