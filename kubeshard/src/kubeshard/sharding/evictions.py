"""Which shards of one ring are evicted, because they hold their Leases and do not release objects. Sans-IO.

A shard is evicted if

* a scan saw the drain of one of its objects pending for longer than `timeout`, less than `RECENT` seconds ago, and no
  shard was evicted because of this object before: an object on which every shard hangs costs one of them, and not one
  after the other;
* its process has held the Lease for at least as long, as seen here: it is not blamed for what its predecessor did;
* another shard is available, which can take its objects; and
* no other shard was evicted within the last `timeout` seconds: what others do without it may be enough.

An object counts as pending until the last scan that saw it, and not any longer: it may have been released or deleted
since. The caller reports, again and again, which objects are overdue. Kept in memory: the last `REMEMBERED` objects
because of which a shard was evicted. So a new leader may evict one more shard for each.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Container, Iterable

from kubeshard.core.kinds import GroupResource

REMEMBERED = 1000
RECENT = 30.0
"""Seconds from the start of a scan for which what it saw counts: the next ones may fail."""

Place = tuple[GroupResource, str]
"""An object of a ring, by its uid: one that is made anew under the name is another one."""


class Evictions:
    """See the module. `timeout` in seconds; 0: no shard is ever evicted."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout or math.inf
        self._overdue: dict[str, dict[Place, float]] = {}
        """Those of each shard, and when they were seen."""
        self._causes: OrderedDict[Place, None] = OrderedDict()
        self._terms: dict[str, tuple[str, float]] = {}
        """Which process has the name of each shard, and since when."""
        self._next = -math.inf

    def overdue(self, drains: Iterable[tuple[Place, str, float]]) -> None:
        """All objects whose drain has been pending for longer than the timeout, with their shards, and when the scan
        started that saw it.
        """
        found = defaultdict[str, dict[Place, float]](dict)
        for place, shard, seen in drains:
            found[shard][place] = seen
        self._overdue = dict(found)

    def is_due(self, shard: str, term: str, others: int, now: float) -> bool:
        """Whether the shard is to be evicted. Call it again and again for each shard that holds its Lease. `term`
        changes with its process; `others`: how many other shards are available.
        """
        before, since = self._terms.get(shard, ("", now))
        if before != term or shard not in self._terms:
            self._terms[shard] = term, now
            return False
        if now - since < self.timeout or now < self._next or not others:
            return False
        places = self._overdue.get(shard, {}).items()
        return any(now - seen < RECENT and place not in self._causes for place, seen in places)

    def keep(self, shards: Container[str]) -> None:
        """These are the available shards. Most names never come back."""
        self._terms = {shard: term for shard, term in self._terms.items() if shard in shards}

    def evicted(self, shard: str, now: float) -> None:
        """The shard was evicted."""
        self._next = now + self.timeout
        self._terms.pop(shard, None)
        for place in self._overdue.pop(shard, ()):
            self._causes[place] = None
            self._causes.move_to_end(place)
        while len(self._causes) > REMEMBERED:
            self._causes.popitem(last=False)

    def number(self, shard: str) -> int:
        """How many of its objects are overdue."""
        return len(self._overdue.get(shard, ()))
