"""What is known of main objects, for those that they control: who has to wait.

Guaranteed: a controlled object is not moved away from a live shard before its owner was asked to leave, and not
while the owner's drain is pending. So it waits while its owner's key is known to be drained or could not be
asked for; and while the owners' resource was not read completely, without an error, with the ring's shards as
they are now: then nobody knows.

With the strict parity switch nobody waits, as in the reference. Kept: the keys of main objects whose drain was
pending at the last look, or was refused.
"""

from __future__ import annotations

from collections.abc import Container

from kubeshard.sharder.ring import Ring
from kubeshard.sharding.classification import RingEntry


class UnknownOwners:
    """For decisions outside of a look: any owner may be about to be drained."""

    def __contains__(self, key: object) -> bool:
        return True


def waiting_for_owners(ring: Ring, entry: RingEntry) -> Container[str]:
    """The keys of owners for which objects of this resource have to wait, now and whenever asked: the `draining` of
    `plan`.
    """
    return () if ring.strict else _Waiting(ring, entry)


def pending_owners(ring: Ring, entry: RingEntry) -> int:
    """How many owners of objects of this resource are known to be drained, or could not be asked for. Their shards
    may make further objects until they let go.
    """
    if ring.strict:
        return 0
    return sum(len(ring.lanes[owner].pending) for owner in entry.owners if owner in ring.lanes)


class _Waiting:
    def __init__(self, ring: Ring, entry: RingEntry) -> None:
        self._ring = ring
        self._entry = entry

    def __contains__(self, key: object) -> bool:
        view, lanes = self._ring.view, self._ring.lanes
        return view is None or any(
            owner not in lanes or lanes[owner].pending.unsure(str(key), view.hashring)
            for owner in self._entry.owners
        )
