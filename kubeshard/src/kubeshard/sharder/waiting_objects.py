"""The objects of one resource of a ring that wait, as of the last scans.

Bounded: the ages of at most `REMEMBERED` waiting objects are known, those seen first, though the count is exact. The
same number of namespace names is kept; beyond that, every new namespace counts as one of them. Of drains that are
pending at the same time `MOST_DRAINS` are known; while there are more, any object may be drained.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterator
from typing import Generic, NamedTuple, TypeVar

from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.times import parse_time
from kubeshard.runtime.clock import Clock
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.keys import namespace_of_key

REMEMBERED = 1000

MOST_DRAINS = 100_000
"""Keys, about 150 bytes each."""

ASSIGNMENT_DELAY = 1.0
"""Seconds without a shard before an object gets another one."""
NEW = 3.0
"""Younger objects (seconds) count as ones that have had no shard. Creation times are rounded down to seconds."""
MANY = 5000
"""Objects of a resource whose assignment is delayed at the same time."""

J = TypeVar("J")


class Waiting(NamedTuple):
    """An object that waits. One that is made anew under the name is another one, and begins to wait."""

    key: Key
    uid: str
    whom: str
    """For whom."""


class WaitingObjects:
    """Objects that wait for something, and for how long, as of the last scan: what has become of them since is not
    known, so they do not age between scans. `count` is their number.
    """

    def __init__(self) -> None:
        self._since: dict[Waiting, float] = {}
        self.count = 0
        self.read_at = float("-inf")
        """When the last scan that counts started (monotonic seconds)."""

    def snapshot(self, now: float) -> WaitingSnapshot:
        """A scan starts; what it finds counts once it is committed."""
        return WaitingSnapshot(self, now)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._since)

    @property
    def oldest(self) -> float:
        """Age in seconds of the oldest; 0 if there is none."""
        return max(0.0, self.read_at - min(self._since.values(), default=math.inf))

    def older_than(self, age: float) -> Iterator[Waiting]:
        """Those that had waited for longer."""
        return (each for each, since in self._since.items() if self.read_at - since > age)


class WaitingSnapshot:
    """The objects that wait as one scan sees them."""

    def __init__(self, waiting: WaitingObjects, started: float) -> None:
        self._waiting = waiting
        self._started = started
        self._seen: dict[Waiting, float] = {}
        self._count = 0

    def add(self, meta: ObjectMeta, now: float, whom: str = "", *, anew: bool = False) -> None:
        """`anew`: what it waited for before is over, and it begins to wait now."""
        waiting, known = Waiting(Key(meta.namespace, meta.name), meta.uid, whom), self._waiting._since
        self._count += 1
        if waiting in known or len(self._seen) < REMEMBERED:
            self._seen[waiting] = now if anew else known.get(waiting, now)

    def commit(self) -> None:
        """Not if a scan that began later has told more: one of all may take long, and urgent ones begin meanwhile."""
        if self._started < self._waiting.read_at:
            return
        self._waiting._since, self._waiting.count = self._seen, self._count
        self._waiting.read_at = self._started


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
    """Pending drains of one main resource, by key. A scan starts, reports what it sees, and ends.

    Objects that could not be given to a shard count as well: a move of theirs that seemed to fail may take effect late,
    and the shard that it names may be another one than the next move would.
    """

    def __init__(self) -> None:
        self._pending: set[str] = set()
        self._seen: set[str] = set()
        """Drains that the running scan has seen pending, or that were requested since the last one."""
        self._refused: set[str] = set()
        self._refused_before: set[str] = set()
        """Pending drains as of before the running scan."""
        self._unplaced: set[str] = set()
        """Objects that could not be given to a shard since the last complete scan started."""
        self._lost = False
        """Whether there were drains of a kind that was uninstalled, which may have ended."""
        self._complete = False
        self._many = False
        """Whether some could not be remembered since the last complete scan began."""
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
            self._hashring, self._many = None, False
            self._refused_before |= self._refused
            self._refused = set()
            self._unplaced = set()

    def draining(self, key: str) -> None:
        """The drain is pending, was requested, or is about to be."""
        if self._refused:
            self._refused.discard(key)
        if self._unplaced:
            self._unplaced.discard(key)
        if len(self._seen) < MOST_DRAINS:  # as `_remember`, for each object of each scan
            self._seen.add(key)
        else:
            self._many = True

    def refused(self, key: str) -> None:
        """The drain could not be requested."""
        self._remember(key, self._refused)
        self._unplaced.discard(key)

    def not_placed(self, key: str) -> None:
        """The object could not be given to a shard."""
        self._remember(key, self._unplaced)

    def _remember(self, key: str, keys: set[str]) -> None:
        if len(keys) < MOST_DRAINS:
            keys.add(key)
        else:
            self._many = True

    def placed(self, key: str) -> None:
        """The object is on its shard."""
        self._unplaced.discard(key)

    def end(self, hashring: HashRing, unread: Collection[str] = ()) -> bool:
        """Everything but these namespaces was read, with the ring as it was when the scan started. Returns whether a
        drain has ended.
        """
        if unread:
            self._seen |= {key for key in self._pending if namespace_of_key(key) in unread}
        self._unread = unread if self._complete else {*self._unread, *unread}
        ended = self._lost or not self._pending <= self._seen
        self._lost = False
        # Earlier drains count until everything was read, for decisions made in between.
        self._pending, self._seen = self._seen, set()
        if self._complete:
            self._hashring = hashring
            self._refused_before = set()
        return ended

    def uninstalled(self) -> None:
        """There are no objects of the kind any more. If it is there again, nothing is known of them: nor by a scan that
        is running, which has seen some of them before.
        """
        self._lost = self._lost or bool(len(self))
        for keys in (self._pending, self._seen, self._refused, self._refused_before, self._unplaced):
            keys.clear()
        self._hashring, self._complete = None, False

    def is_known(self, hashring: HashRing) -> bool:
        """Whether the last scan was complete, used exactly these shards, and all that it saw is remembered."""
        return self._hashring is hashring and not self._many

    def unsure(self, key: str, hashring: HashRing) -> bool:
        """Whether objects controlled by the key's object have to keep their shard."""
        waiting = (self._pending, self._seen, self._refused, self._refused_before, self._unplaced)
        if not self.is_known(hashring) or any(key in keys for keys in waiting):
            return True
        return bool(self._unread) and namespace_of_key(key) in self._unread


class HandledObjects:
    """Objects that a job deals with, or has dealt with while a scan was under way.

    A list shows each object as it was when its first page was read, and the scan gets to it later. Without this it
    would write again what another scan, the watch or a retry has written meanwhile: the slower the server, the more.

    Not guaranteed: of more than `MANY` the first ones are forgotten, which costs a refused write for each.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ended: dict[Key, float] = {}
        """When, in this order; infinite for those that are under way."""

    def begins(self, key: Key) -> None:
        self._ended[key] = math.inf
        if len(self._ended) > MANY:
            del self._ended[next(iter(self._ended))]

    def ends(self, key: Key, *, done: bool) -> None:
        """`done`: nothing is left to do about the object as any list has shown it until now."""
        self._ended.pop(key, None)
        if done:
            self._ended[key] = self._clock.monotonic()

    def since(self, key: Key, began: float) -> float | None:
        """When the job ended, if it runs (infinite), or ended after a scan began that shows the object."""
        ended = self._ended.get(key)
        return ended if ended is not None and ended > began else None

    def scans_since(self, began: float) -> None:
        """No scan is under way that began earlier."""
        self._ended = {key: ended for key, ended in self._ended.items() if ended > began}


class DelayedAssignments(Generic[J]):
    """Objects that lost their shard a moment ago, and what to do with each when it is due.

    The object does not show whether its shard released it or a user removed the label while the shard works on it. In
    the second case the shard takes it back (`kubeshard.shard.label_restorer`), which takes it a fraction of a second.
    So an object that is not new is assigned only after a pause.

    Not guaranteed: the pause for objects beyond `MANY`, which the caller assigns at once; for new ones that lose their
    first shard; and, if this machine's clock is behind the API server's, for those hardly older than the difference.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: dict[Key, tuple[float, J, bool]] = {}
        """When each is due, the earliest first."""
        self._news = asyncio.Event()
        self.attended = False
        """Whether somebody calls `next_due`."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, key: Key) -> bool:
        """Whether the object waits without a shard."""
        return key in self._jobs and not self._jobs[key][2]

    def waits(self, key: Key, meta: ObjectMeta) -> bool:
        """Whether an unassigned object has to wait."""
        created = parse_time(meta.creation_timestamp)
        new = created is None or self._clock.wall() - created < NEW
        return not new and (key in self._jobs or len(self._jobs) < MANY)

    def put(self, key: Key, job: J) -> None:
        """Later states of an object do not make it wait longer."""
        known = self._jobs.get(key)
        due = self._clock.monotonic() + ASSIGNMENT_DELAY if known is None else known[0]
        self._jobs[key] = due, job, False
        self._news.set()

    def left(self, key: Key) -> None:
        """The object has a shard again, or is gone: somebody has to look which."""
        if key in self._jobs:
            due, job, _ = self._jobs[key]
            self._jobs[key] = due, job, True

    async def next_due(self) -> tuple[J, bool]:
        """Removes a job when it is due. Returns it, and whether to read its object first (`left`)."""
        while True:
            while not self._jobs:
                self._news.clear()
                await self._news.wait()
            key, (due, job, left) = next(iter(self._jobs.items()))
            wait = due - self._clock.monotonic()
            if wait <= 0:
                del self._jobs[key]
                return job, left
            await asyncio.sleep(wait)
