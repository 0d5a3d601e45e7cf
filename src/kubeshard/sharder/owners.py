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
from typing import TYPE_CHECKING

from kubeshard.sharding.classification import RingEntry
from kubeshard.sharding.ring import HashRing

if TYPE_CHECKING:
    from kubeshard.sharder.ring import Ring


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


class Pending:
    """Of one main resource, by key. A look begins, tells what it sees, and ends."""

    def __init__(self) -> None:
        self._pending: set[str] = set()
        self._seen: set[str] = set()
        """Pending, as far as the look under way has come, or asked for since the last one."""
        self._refused: set[str] = set()
        self._refused_before: set[str] = set()
        """Before the look under way."""
        self._complete = False
        self._hashring: HashRing | None = None
        """With which the last complete look decided; None if it failed or is under way."""

    def __len__(self) -> int:
        return len(self._pending | self._seen | self._refused | self._refused_before)

    def begin(self, *, complete: bool) -> None:
        """`complete`: all objects are looked at; else those with the drain label, which tells nothing of others."""
        self._complete = complete
        # Seen by a look that failed, or asked for since the last one: it counts until all was read.
        self._pending |= self._seen
        self._seen = set()
        if complete:
            self._hashring = None
            self._refused_before |= self._refused
            self._refused = set()

    def draining(self, key: str) -> None:
        """The drain is pending, or about to be asked for."""
        self._seen.add(key)
        self._refused.discard(key)

    def asked(self, key: str) -> None:
        """The drain was asked for, by a look or by anybody else."""
        self._refused.discard(key)
        self._seen.add(key)

    def refused(self, key: str) -> None:
        """The drain could not be asked for."""
        self._refused.add(key)

    def end(self, hashring: HashRing) -> None:
        """All was read, with the ring as it was when the look began."""
        # What came before counts until all was read, for jobs that are decided on in between.
        self._pending, self._seen = self._seen, set()
        if self._complete:
            self._hashring = hashring
            self._refused_before = set()

    def unsure(self, key: str, hashring: HashRing) -> bool:
        """Whether what the key's object controls has to stay where it is."""
        waiting = (self._pending, self._seen, self._refused, self._refused_before)
        return self._hashring is not hashring or any(key in keys for keys in waiting)
