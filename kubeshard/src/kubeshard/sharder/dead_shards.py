"""Checks with the API server whether a shard is dead, before objects are taken from it by force.

Guaranteed: a proof is given only after a consistent read, started after the time that the caller passes, showed
that the shard holds none of its Leases; it is valid for at most 5 s from the start of that read, and only
until something contradicts it. A deleted Lease counts as held until the lease controller settled its
tombstone (by re-creating it, which makes a live shard fail to); if this process never saw one, two reads some
seconds apart must show none, because a live shard re-creates a deleted Lease. Concurrent questions
share one read; the evidence for the decision is logged.

Not guaranteed: that the shard stays dead. `docs/design/taking-from-the-dead.md` explains why that is safe.

RBAC: list on leases.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import Timeout
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.rings import Rings

SHARED_FOR = 2.0
"""Seconds from its start for which a read is shared with further callers."""

STANDS_FOR = 5.0
"""Seconds from its start for which a read is a valid proof; also its deadline."""

REMEMBERED = 1000
"""Names of shards: they are read from labels, which any user may write."""

ABSENT_FOR = 4.0
"""Seconds between the two reads of an unknown Lease: longer than a shard needs to notice at its next renewal that
its Lease was deleted, and to re-create it.
"""

Still = Callable[[], bool]
"""Whether a proof is still valid."""

_log = get_logger("kubeshard.sharder")


class DeadShardProofs:
    """Reads shards' Leases on demand, and takes everything observed since into account."""

    def __init__(self, client: Client, observer: LeaseObserver, rings: Rings, clock: Clock) -> None:
        self._client = client.impatient()
        self._observer = observer
        self._clock = clock
        self._rings = rings
        self._reads = defaultdict[str, _Reads](_Reads)

    async def proven(self, ring: str, shard: str, since: float) -> Still | None:
        """A proof that objects read before `since` (monotonic) may be taken from the shard; None if it may live.
        Calling the proof returns whether it is still valid. Raises ApiError if the read fails: it does not
        wait or retry, so the caller has to back off from a server that throttles.
        """
        reads = self._reads[ring]
        read = reads.by_shard.get(shard)
        if read is None or not read.answers(since, self._clock.monotonic()):
            read = self._begin(ring, shard, read, reads)
        assert read.task is not None
        await asyncio.shield(read.task)

        def stands() -> bool:
            return self._clock.monotonic() - read.began <= STANDS_FOR and self._dead(ring, shard, read)

        return stands if self._dead(ring, shard, read) else None

    def forget(self, ring: str) -> None:
        """The ring was deleted, or this process lost leadership."""
        if (reads := self._reads.pop(ring, None)) is not None:
            reads.end()

    def _begin(self, ring: str, shard: str, before: _Read | None, reads: _Reads) -> _Read:
        now = self._clock.monotonic()
        reads.by_shard = {name: read for name, read in reads.by_shard.items() if not read.over(now)}
        read = reads.by_shard[shard] = _Read()
        read.task = asyncio.create_task(
            self._read(ring, shard, read, before, reads), name="reading a dead shard"
        )
        read.task.add_done_callback(_heed)
        return read

    async def _read(self, ring: str, shard: str, read: _Read, before: _Read | None, reads: _Reads) -> None:
        if before is not None and before.task is not None:
            await asyncio.wait([before.task])  # one at a time: later callers wait for this one
        leases = await self._leases(ring, shard, read)
        absent = reads.absent
        if leases or self._observer.states.leases_of(ring, shard):
            absent.discard(shard)
        elif shard not in absent:
            read.began = math.inf
            await asyncio.sleep(ABSENT_FOR)
            leases = await self._leases(ring, shard, read)
            if not leases:
                if len(absent) >= REMEMBERED:
                    absent.clear()
                absent.add(shard)
        read.held = self._observer.states.held(ring, shard, leases)
        text = "Shard is dead" if self._dead(ring, shard, read) else "Shard may be alive: its objects stay"
        if reads.notices.due(shard, (text, *(lease.metadata.resource_version for lease in leases))):
            _log.info(text, ring=ring, shard=shard, leases="; ".join(map(_record, leases)) or "none")

    async def _leases(self, ring: str, shard: str, read: _Read) -> list[Lease]:
        await self._client.turn()
        read.began = self._clock.monotonic()
        try:
            async with asyncio.timeout(STANDS_FOR):
                return await self._observer.read_shard(ring, shard, self._client)
        except TimeoutError:
            raise Timeout(f"the leases of shard {shard} could not be read within {STANDS_FOR:g}s") from None

    def _dead(self, ring: str, shard: str, read: _Read) -> bool:
        """Also uses the read itself: states with newer versions, from before a restore, ignore it."""
        may_live = self._observer.states.may_live(ring, shard, self._clock.monotonic())
        return not read.held and not may_live and self._rings.has_ended(ring, shard)


@dataclass(slots=True)
class _Reads:
    """The recent reads of one ring's Leases."""

    by_shard: dict[str, _Read] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    """Shards that are known to have no Lease."""
    notices: Notices = field(default_factory=lambda: Notices(most=REMEMBERED))
    """Of shards; logged again only after a change."""

    def end(self) -> None:
        """Ends reads that are under way."""
        for read in self.by_shard.values():
            if read.task is not None:
                read.task.cancel()


@dataclass(slots=True, eq=False)
class _Read:
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


def _heed(task: asyncio.Task[None]) -> None:
    """Retrieves the exception, which would not be retrieved if the caller was cancelled."""
    if not task.cancelled():
        task.exception()


def _record(lease: Lease) -> str:
    spec, meta = lease.spec, lease.metadata
    return (
        f"{lease.key} uid={meta.uid} rv={meta.resource_version}"
        f" holder={spec.holder_identity or ''} renewed={spec.renew_time or ''}"
    )
