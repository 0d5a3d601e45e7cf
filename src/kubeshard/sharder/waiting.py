"""What waits in one resource of a ring, as the last looks showed it.

Bounded: the age of at most `REMEMBERED` objects that wait is known, those seen first, though their count is exact; so
many names of namespaces are remembered, and where there are more, any that appears may be meant.
"""

from __future__ import annotations

from kubeshard.core.objects import Key
from kubeshard.sharding.ring import HashRing

REMEMBERED = 1000


class Waiting:
    """Objects that wait for something, and for how long, as the last look at them showed. `count`: how many."""

    def __init__(self) -> None:
        self._since: dict[Key, float] = {}
        self.count = 0

    def look(self) -> Sight:
        """A look begins; it counts once it says that it is complete."""
        return Sight(self)

    def oldest(self, now: float) -> float:
        """Age in seconds of the oldest; 0 without any."""
        return now - min(self._since.values(), default=now)

    def older_than(self, age: float, now: float) -> int:
        return sum(now - since > age for since in self._since.values())


class Sight:
    """What one look at the objects sees."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._seen: dict[Key, float] = {}
        self._count = 0

    def pending(self, key: Key, now: float) -> None:
        known = self._waiting._since
        self._count += 1
        if key in known or len(self._seen) < REMEMBERED:
            self._seen[key] = known.get(key, now)

    def complete(self) -> None:
        self._waiting._since, self._waiting.count = self._seen, self._count


class Namespaces:
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
        """Whether the name may have been added. It is forgotten."""
        found = name in self._names
        self._names.discard(name)
        return found or self._many


class Pending:
    """Pending drains of one main resource, by key. A look begins, reports what it sees, and ends."""

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
        """`complete`: all objects are looked at; else only those with the drain label, which says nothing about
        others.
        """
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

    def is_known(self, hashring: HashRing) -> bool:
        """Whether the last complete look decided with these very shards, and did not fail."""
        return self._hashring is hashring

    def unsure(self, key: str, hashring: HashRing) -> bool:
        """Whether what the key's object controls has to stay where it is."""
        waiting = (self._pending, self._seen, self._refused, self._refused_before)
        return not self.is_known(hashring) or any(key in keys for keys in waiting)
