"""Objects that wait for something, and for how long, as the last look at them showed: to be drained
(protocol 14-A9), or to get a shard (reliability L10).

Guaranteed: the count is exact as of that look. Bounded: the age of at most `REMEMBERED` objects is known, those
seen first.
"""

from __future__ import annotations

from kubeshard.core.objects import Key

REMEMBERED = 1000


class Waiting:
    """Of one resource of a ring, for one thing. `count`: how many."""

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
