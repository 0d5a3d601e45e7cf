"""What is known of main objects, for those that they control: who has to wait (protocol 14-A8, reliability S3).

Guaranteed: a controlled object is not moved away from a live shard before its owner was asked to leave, and not
while the owner's drain is pending. So it waits while its owner's key is known to be drained or could not be
asked for; and while the owners' resource was not read completely, without an error, with the ring's shards as
they are now: then nobody knows.

With the strict parity switch nobody waits, as in the reference. Kept: the keys of main objects whose drain was
pending at the last look, or was refused.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from kubeshard.core.kinds import GroupResource
from kubeshard.sharding.classification import RingEntry
from kubeshard.sharding.planner import Action, Decision, RingView
from kubeshard.sharding.ring import HashRing


class UnknownOwners:
    """For decisions outside of a pass: any owner may be about to be drained."""

    def __contains__(self, key: object) -> bool:
        return True


class Owners:
    """Of one ring. `view` gives the ring as it is now. A look at a main resource begins, tells what it sees, and
    ends.
    """

    def __init__(self, view: Callable[[], RingView | None], *, strict: bool = False) -> None:
        self._view = view
        self._strict = strict
        self._looks: dict[GroupResource, _Look] = {}

    def begin(self, resource: GroupResource, *, complete: bool) -> None:
        """`complete`: all objects are looked at; else those with the drain label, which tells nothing of others."""
        self._look(resource).begin(complete)

    def draining(self, resource: GroupResource, decision: Decision) -> None:
        """The main object's drain is pending, or about to be asked for."""
        self._look(resource).draining(decision.key)

    def asked(self, resource: GroupResource, decision: Decision) -> None:
        """The main object's drain was asked for, by a look or by anybody else."""
        self._look(resource).asked(decision.key)

    def refused(self, resource: GroupResource, decision: Decision) -> None:
        """What had to be done with the main object was refused."""
        if decision.action is Action.DRAIN:
            self._look(resource).refused(decision.key)

    def end(self, resource: GroupResource, hashring: HashRing) -> None:
        """All of it was read, with the ring as it was when it began."""
        self._look(resource).end(hashring)

    def of(self, entry: RingEntry) -> Container[str]:
        """The keys of owners for which objects of this resource have to wait, now and whenever asked: the
        `draining` of `plan`.
        """
        return () if self._strict else _Waiting(self, entry)

    def waiting(self, entry: RingEntry, key: str) -> bool:
        view = self._view()
        return view is None or any(self._look(owner).unsure(key, view.hashring) for owner in entry.owners)

    def pending(self, entry: RingEntry) -> int:
        """How many owners of objects of this resource are known to be drained, or could not be asked for. Their shards
        may make further objects until they let go.
        """
        return 0 if self._strict else sum(self._look(owner).pending for owner in entry.owners)

    def _look(self, resource: GroupResource) -> _Look:
        return self._looks.setdefault(resource, _Look())


class _Waiting:
    def __init__(self, owners: Owners, entry: RingEntry) -> None:
        self._owners = owners
        self._entry = entry

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._owners.waiting(self._entry, key)


class _Look:
    """What the last looks at one main resource showed."""

    def __init__(self) -> None:
        self._pending: set[str] = set()
        self._seen: set[str] = set()
        """Pending, as far as the look under way has come."""
        self._refused: set[str] = set()
        self._refused_before: set[str] = set()
        """Before the look under way."""
        self._complete = False
        self._hashring: HashRing | None = None
        """With which the last complete look decided; None if it failed or is under way."""

    @property
    def pending(self) -> int:
        return len(self._pending | self._seen | self._refused | self._refused_before)

    def begin(self, complete: bool) -> None:
        self._complete = complete
        self._seen = set()
        if complete:
            self._hashring = None
            self._refused_before |= self._refused
            self._refused = set()

    def draining(self, key: str) -> None:
        self._seen.add(key)
        self._refused.discard(key)

    def asked(self, key: str) -> None:
        self._refused.discard(key)
        if key not in self._pending:
            self._seen.add(key)

    def refused(self, key: str) -> None:
        self._refused.add(key)

    def end(self, hashring: HashRing) -> None:
        # What came before counts until all was read, for jobs that are decided on in between.
        self._pending, self._seen = self._seen, set()
        if self._complete:
            self._hashring = hashring
            self._refused_before = set()

    def unsure(self, key: str, hashring: HashRing) -> bool:
        waiting = (self._pending, self._seen, self._refused, self._refused_before)
        return self._hashring is not hashring or any(key in keys for keys in waiting)
