"""Objects that wait for something, and for how long, as the last look at a ring's objects showed: to be drained
(protocol 14-A9), or to get a shard (reliability L10).

Guaranteed: the count is exact as of that look. Bounded: the age of at most `REMEMBERED` objects per ring is
known, those seen first.
"""

from __future__ import annotations

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key

REMEMBERED = 1000


class Waiting:
    """Of one ring, for one thing. A look begins, tells what it sees, and ends."""

    def __init__(self) -> None:
        self._since: dict[tuple[GroupResource, Key], float] = {}
        self._seen: dict[tuple[GroupResource, Key], float] = {}
        self.counts: dict[GroupResource, int] = {}

    def begin(self) -> None:
        self._seen = {}
        self.counts = {}

    def pending(self, resource: GroupResource, key: Key, now: float) -> None:
        self.counts[resource] = self.counts.get(resource, 0) + 1
        place = (resource, key)
        if place in self._since or len(self._seen) < REMEMBERED:
            self._seen[place] = self._since.get(place, now)

    def end(self) -> None:
        self._since = self._seen

    def oldest(self, now: float) -> float:
        """Age in seconds of the oldest; 0 without any."""
        return now - min(self._since.values(), default=now)

    def older_than(self, age: float, now: float) -> int:
        return sum(now - since > age for since in self._since.values())
