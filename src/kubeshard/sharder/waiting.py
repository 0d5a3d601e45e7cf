"""The objects of one resource of a ring that wait, as of the last scans.

Bounded: the ages of at most `REMEMBERED` waiting objects are known, those seen first, though the count is exact. The
same number of namespace names is kept; beyond that, every new namespace counts as one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from kubeshard.core.objects import Key
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.keys import namespace_of_key

REMEMBERED = 1000


class WaitingObjects:
    """Objects that wait for something, and for how long, as of the last scan. `count` is their number."""

    def __init__(self) -> None:
        self._since: dict[Key, tuple[float, str]] = {}
        """Since when, and for whom."""
        self.count = 0

    def scan(self) -> WaitingSnapshot:
        """A scan starts; its results are used once it is complete."""
        return WaitingSnapshot(self)

    def oldest(self, now: float) -> float:
        """Age in seconds of the oldest; 0 if there is none."""
        return now - min((since for since, _ in self._since.values()), default=now)

    def older_than(self, age: float, now: float) -> Mapping[str, int]:
        """The number of those that wait for longer, by whom they wait for."""
        return Counter(whom for since, whom in self._since.values() if now - since > age)


class WaitingSnapshot:
    """What one scan of the objects sees."""

    def __init__(self, waiting: WaitingObjects) -> None:
        self._waiting = waiting
        self._seen: dict[Key, tuple[float, str]] = {}
        self._count = 0

    def pending(self, key: Key, now: float, whom: str = "") -> None:
        known = self._waiting._since
        self._count += 1
        if key in known or len(self._seen) < REMEMBERED:
            self._seen[key] = known.get(key, (now, ""))[0], whom

    def complete(self) -> None:
        self._waiting._since, self._waiting.count = self._seen, self._count


class SkippedNamespaces:
    """Names of namespaces, or the knowledge that there are too many to remember."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._many = False

    def add(self, name: str) -> None:
        if name not in self._names and len(self._names) >= REMEMBERED:
            self._many = True
        else:
            self._names.add(name)

    def take(self, name: str) -> bool:
        """Removes the name. Returns whether it may have been added."""
        found = name in self._names
        self._names.discard(name)
        return found or self._many


class PendingDrains:
    """Pending drains of one main resource, by key. A scan starts, reports what it sees, and ends."""

    def __init__(self) -> None:
        self._pending: set[str] = set()
        self._seen: set[str] = set()
        """Drains that the running scan has seen pending, or that were requested since the last one."""
        self._refused: set[str] = set()
        self._refused_before: set[str] = set()
        """Pending drains as of before the running scan."""
        self._complete = False
        self._hashring: HashRing | None = None
        """The view of the last complete scan; None if it failed or is running."""
        self._unread: Collection[str] = ()
        """Namespaces that this scan could not read."""

    def __len__(self) -> int:
        return len(self._pending | self._seen | self._refused | self._refused_before)

    def begin(self, *, complete: bool) -> None:
        """`complete`: all objects are listed; otherwise only those with the drain label, so others stay
        unknown.
        """
        self._complete = complete
        # Seen by a failed scan, or requested since the last one: it counts until a scan is complete.
        self._pending |= self._seen
        self._seen = set()
        if complete:
            self._hashring = None
            self._refused_before |= self._refused
            self._refused = set()

    def draining(self, key: str) -> None:
        """The drain is pending, or about to be requested."""
        self._seen.add(key)
        self._refused.discard(key)

    def asked(self, key: str) -> None:
        """The drain was requested, by a scan or by any other job."""
        self._refused.discard(key)
        self._seen.add(key)

    def refused(self, key: str) -> None:
        """The drain could not be requested."""
        self._refused.add(key)

    def end(self, hashring: HashRing, unread: Collection[str] = ()) -> bool:
        """Everything but these namespaces was read, with the ring as it was when the scan started. Returns whether a
        drain has ended.
        """
        if unread:
            self._seen |= {key for key in self._pending if namespace_of_key(key) in unread}
        self._unread = unread if self._complete else {*self._unread, *unread}
        ended = not self._pending <= self._seen
        # Earlier drains count until everything was read, for decisions made in between.
        self._pending, self._seen = self._seen, set()
        if self._complete:
            self._hashring = hashring
            self._refused_before = set()
        return ended

    def is_known(self, hashring: HashRing) -> bool:
        """Whether the last scan was complete and used exactly these shards."""
        return self._hashring is hashring

    def unsure(self, key: str, hashring: HashRing) -> bool:
        """Whether objects controlled by the key's object have to keep their shard."""
        waiting = (self._pending, self._seen, self._refused, self._refused_before)
        if not self.is_known(hashring) or any(key in keys for keys in waiting):
            return True
        return bool(self._unread) and namespace_of_key(key) in self._unread
