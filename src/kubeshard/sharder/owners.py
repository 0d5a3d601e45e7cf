"""What is known about the drains of main objects: which of the objects that they control have to wait.

Guaranteed: a controlled object is not moved away from a live shard before the drain of its owner was requested, and
not while that drain is pending. So it waits while its owner is known to be drained, or the drain could not
be requested; and until the owners' resource was read completely, without an error, with the ring's current
shards: until then drains are unknown.

With the strict parity switch nothing waits, as in the reference. Kept in memory: the keys of main objects with a drain
that was pending at the last scan, or was rejected.
"""

from __future__ import annotations

from collections.abc import Container

from kubeshard.sharder.ring import Ring
from kubeshard.sharding.classification import RingEntry


class UnknownOwners:
    """For decisions outside of a scan: any owner may be about to be drained."""

    def __contains__(self, key: object) -> bool:
        return True


def waiting_for_owners(ring: Ring, entry: RingEntry) -> Container[str]:
    """The keys of owners that objects of this resource have to wait for, always current: the `draining` of
    `plan`.
    """
    return () if ring.strict else _Waiting(ring, entry)


def pending_owners(ring: Ring, entry: RingEntry) -> int:
    """How many owners of objects of this resource are being drained, or could not be drained. Their shards
    may create more objects until they release them.
    """
    if ring.strict:
        return 0
    return sum(len(ring.syncs[owner].pending) for owner in entry.owners if owner in ring.syncs)


class _Waiting:
    def __init__(self, ring: Ring, entry: RingEntry) -> None:
        self._ring = ring
        self._entry = entry

    def __contains__(self, key: object) -> bool:
        view, syncs = self._ring.view, self._ring.syncs
        return view is None or any(
            owner not in syncs or syncs[owner].pending.unsure(str(key), view.hashring)
            for owner in self._entry.owners
        )
