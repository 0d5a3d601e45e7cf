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
from collections.abc import Callable

from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import Timeout
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.sharder.deaths import STANDS_FOR, Read
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.ring import Ring

REMEMBERED = 1000
"""Names of shards: they are read from labels, which any user may write."""

ABSENT_FOR = 4.0
"""Seconds between the two reads of an unknown Lease: longer than a shard needs to notice at its next renewal that
its Lease was deleted, and to re-create it.
"""

_log = get_logger("kubeshard.sharder")


class DeadShards:
    """Reads shards' Leases on demand, and takes everything observed since into account."""

    def __init__(self, client: Client, observer: LeaseObserver, clock: Clock) -> None:
        self._client = client.impatient()
        self._observer = observer
        self._clock = clock

    async def proven(self, ring: Ring, shard: str, since: float) -> Callable[[], bool] | None:
        """A proof that objects read before `since` (monotonic) may be taken from the shard; None if it may live.
        Calling the proof returns whether it is still valid. Raises ApiError if the read fails: it does not
        wait or retry, so the caller has to back off from a server that throttles.
        """
        read = ring.proofs.reads.get(shard)
        if read is None or not read.answers(since, self._clock.monotonic()):
            read = self._begin(ring, shard, read)
        assert read.task is not None
        await asyncio.shield(read.task)

        def stands() -> bool:
            return self._clock.monotonic() - read.began <= STANDS_FOR and self._dead(ring, shard, read)

        return stands if self._dead(ring, shard, read) else None

    def _begin(self, ring: Ring, shard: str, before: Read | None) -> Read:
        now, proofs = self._clock.monotonic(), ring.proofs
        proofs.reads = {name: read for name, read in proofs.reads.items() if not read.over(now)}
        read = proofs.reads[shard] = Read()
        read.task = asyncio.create_task(self._read(ring, shard, read, before), name="reading a dead shard")
        read.task.add_done_callback(_heed)
        return read

    async def _read(self, ring: Ring, shard: str, read: Read, before: Read | None) -> None:
        if before is not None and before.task is not None:
            await asyncio.wait([before.task])  # one at a time: later callers wait for this one
        leases = await self._leases(ring, shard, read)
        absent, logged = ring.proofs.absent, ring.proofs.told
        if leases or self._observer.book.leases_of(ring.name, shard):
            absent.discard(shard)
        elif shard not in absent:
            read.began = math.inf
            await asyncio.sleep(ABSENT_FOR)
            leases = await self._leases(ring, shard, read)
            if not leases:
                if len(absent) >= REMEMBERED:
                    absent.clear()
                absent.add(shard)
        read.held = self._observer.book.held(ring.name, shard, leases)
        text = "Shard is dead" if self._dead(ring, shard, read) else "Shard may be alive: its objects stay"
        told = f"{text} {[lease.metadata.resource_version for lease in leases]}"
        if told != logged.get(shard):
            if len(logged) >= REMEMBERED:
                logged.clear()
            logged[shard] = told
            _log.info(text, ring=ring.name, shard=shard, leases="; ".join(map(_record, leases)) or "none")

    async def _leases(self, ring: Ring, shard: str, read: Read) -> list[Lease]:
        await self._client.turn()
        read.began = self._clock.monotonic()
        try:
            async with asyncio.timeout(STANDS_FOR):
                return await self._observer.read_shard(ring.name, shard, self._client)
        except TimeoutError:
            raise Timeout(f"the leases of shard {shard} could not be read within {STANDS_FOR:g}s") from None

    def _dead(self, ring: Ring, shard: str, read: Read) -> bool:
        """Also uses the read itself: a book with newer versions, from before a restore, ignores it."""
        return not read.held and not self._observer.book.may_live(ring.name, shard, self._clock.monotonic())


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
