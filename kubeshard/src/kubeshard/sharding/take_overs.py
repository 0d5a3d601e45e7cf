"""Which Leases are not taken over although they are due, and which are taken although they are not.

**The circuit breaker** holds back take-overs when many shards of a ring seem to die at once: the cause is then rarely
the shards.

An API server that serves nobody for a minute, a network that is cut, or a webhook that refuses all renewals looks like
the death of every shard. All are restarted, and are back as soon as the cause is gone. If their Leases were taken over
meanwhile, all objects would change hands, some several times, and the first shards to return would get everything.

A shard *fails* if it has not renewed its Lease for the Lease's duration, or if its Lease was taken over less than twice
this duration ago. *Many* fail if they are at least three, and more than half of the shards.

| state | input | next | Leases that are due |
|---|---|---|---|
| CLOSED | not many fail | CLOSED | are taken |
| CLOSED | many fail | WAITING | are left |
| WAITING | the view of the Leases is stale; the first shard is live again | WAITING, from the beginning | are left |
| WAITING | none fails any more; `grace` seconds are over, and not many fail | CLOSED | are taken |
| WAITING | `grace` seconds are over, and many fail | RELEASING | are left |
| RELEASING | the view of the Leases is stale | WAITING | are left |
| RELEASING | it begins, or `EVERY` seconds are over | RELEASING | a fifth of those that fail are taken |
| RELEASING | not many fail | CLOSED | are taken |

That most are back does not end the wait for the others: they are probably on their way.

Guaranteed: shards that really died together are given up, the last one `grace + 4 * EVERY` seconds after it would have
been without the breaker, counted anew if the view is stale, and once if all were dead and one returns. Leases that do
not belong to a member of the ring are never left.

**An eviction** takes the Lease of a shard that holds it and does not release objects: if

* a scan saw the drain of one of its objects pending for longer than `timeout`, less than `RECENT` seconds ago, and no
  shard was evicted because of this object before: an object on which every shard hangs costs one of them, and not one
  after the other. In a ring that is sharded by ranges, a bucket counts like an object;
* its process has held the Lease for at least as long, as seen here: it is not blamed for what its predecessor did;
* another shard is available, which can take its objects; and
* no other shard was evicted within the last `timeout` seconds: what others do without it may be enough.

An object counts as pending until the last scan that saw it, and not any longer: it may have been released or deleted
since. The caller reports, again and again, which objects are overdue. Kept in memory: the last `REMEMBERED` objects
because of which a shard was evicted. So a new leader may evict one more shard for each.

Sans-IO: whoever takes Leases over asks about each, just before.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Container, Iterable
from enum import Enum, auto

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.sharding.shard_states import Shard, ShardState

AT_LEAST = 3
"""Two shards that fail together are not unusual: they may have been on one node."""
EVERY = 10.0
NAMED = 10
"""Shards that are named in a text."""
PARTS = 5
"""Batches in which shards are given up after the grace period, one every `EVERY` seconds."""


class BreakerState(Enum):
    CLOSED = auto()
    """Leases are taken over when they are due."""
    WAITING = auto()
    """None is: the shards may be back soon."""
    RELEASING = auto()
    """Some are: the shards have not come back."""


class CircuitBreaker:
    """Of one ring. `grace` in seconds; 0: it is never open."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self.state = BreakerState.CLOSED
        self.failing: tuple[str, ...] = ()
        """The names of the shards that failed when it opened, ascending."""
        self._since = 0.0
        """When the grace period, or the last batch, began."""
        self._live = False
        """Whether any shard was live since it opened."""
        self._size = 0
        """How many Leases a batch has."""
        self._left = 0
        """How many more may be taken of this batch."""
        self._granted: set[Key] = set()
        """The Leases that may be taken."""
        self._taken: dict[Key, float] = {}
        """Until when Leases that were taken count as failing."""

    @property
    def is_open(self) -> bool:
        return self.state is not BreakerState.CLOSED

    @property
    def explained(self) -> str:
        """What is held back, until when; "" if nothing is. Changes with the state only."""
        names = ", ".join(self.failing[:NAMED]) + (", ..." if len(self.failing) > NAMED else "")
        match self.state:
            case BreakerState.CLOSED:
                return ""
            case BreakerState.WAITING:
                return (
                    f"most shards failed at about the same time ({names}): their Leases are not taken over, and their "
                    f"objects stay, for {self._grace:g} s from when the Leases can be read, and from the first return"
                )
            case BreakerState.RELEASING:
                return (
                    f"most shards failed at about the same time ({names}): those that have not returned are given up, "
                    f"{self._size} every {EVERY:g} s"
                )

    def update(self, shards: Iterable[Shard], now: float, *, fresh: bool, dead: Container[Key] = ()) -> None:
        """Judges all shards of the ring, tombstones included. `fresh`: whether the view of their Leases is. `dead`:
        those that are known to have died, although their Leases have not expired.
        """
        members = [shard for shard in shards if shard.valid and shard.allowed is not False]
        live = {s.key for s in members if s.state is ShardState.READY and s.key not in dead}
        self._taken = {key: until for key, until in self._taken.items() if until > now and key not in live}
        failing = {s.key for s in members if s.key in dead or _fails(s)} | self._taken.keys()
        self._granted &= failing
        many = len(failing) >= AT_LEAST and len(failing) > len(live)
        over = now - self._since >= (self._grace if self.state is BreakerState.WAITING else 0.0)
        if not failing or (over and not many) or not self._grace:
            self.state = BreakerState.CLOSED
        elif self.state is BreakerState.CLOSED:
            self.failing = tuple(sorted({key.name for key in failing}))
            self._live = bool(live)
            self._wait(now)
        elif not fresh or (live and not self._live):
            self._live = self._live or bool(live)
            self._wait(now)
        elif self.state is BreakerState.WAITING and over:
            self.state = BreakerState.RELEASING
            self._size = math.ceil(len(failing) / PARTS)
            self._since, self._left = now, self._size
        elif self.state is BreakerState.RELEASING and now - self._since >= EVERY:
            self._since, self._left = now, self._size

    def may_take(self, shard: Shard, now: float) -> bool:
        """Whether the Lease, or the tombstone of one, may be taken over. Call `update` before. One that was held back
        counts as taken from now on: a watch may show that before `taken` is called.
        """
        if shard.valid and shard.allowed is not False and self.is_open and shard.key not in self._granted:
            if self.state is BreakerState.WAITING or not self._left:
                return False
            self._left -= 1
            self._granted.add(shard.key)
            self.taken(shard, now)
        return True

    def taken(self, shard: Shard, now: float) -> None:
        """The Lease was taken over."""
        self._taken[shard.key] = now + 2 * shard.times.duration

    def _wait(self, now: float) -> None:
        self.state = BreakerState.WAITING
        self._since, self._left = now, 0
        self._granted.clear()


def _fails(shard: Shard) -> bool:
    """Whether nobody renews the Lease, or the tombstone is not settled."""
    if shard.state in (ShardState.EXPIRED, ShardState.UNCERTAIN):
        return True
    return shard.deleted and shard.state is not ShardState.READY


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
