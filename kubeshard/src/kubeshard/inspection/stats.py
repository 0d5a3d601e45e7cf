"""Keeps the counts of a ring up to date as its objects change; sans I/O.

For each object, one integer is kept under the hash of its UID: the hash that decides where it should be, its shard, and
whether it is being drained. This suffices to know where it came from when it moves, and which objects are misplaced
when the shards change; in a ring by ranges also where it is (`assigned`). Memory grows by about 130 bytes per object,
whatever the object's size.

Guaranteed: the counts reflect the last reported state of each object. Not guaranteed: that two UIDs never have the same
hash (for a million objects, the chance is one in 30 million). Shard names beyond `MOST_NAMES` are counted as one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from kubeshard.sharding.hash_ring import HashRing, ring_of

LOOSE = ("expired", "uncertain")
"""States of a Lease that was not renewed in time and has not been taken over."""


class ShardRow(msgspec.Struct, frozen=True, rename="camel"):
    """One shard, or a name in labels without a Lease (state `gone`)."""

    shard: str
    state: str
    """The state of its Lease: the sharder's label, or `""` before there is one."""
    live: bool
    objects: int
    """The number of its objects of main resources."""
    followers: int
    """The number of objects that these control."""
    draining: int
    draining_for: float = 0.0
    """How many seconds there have been drains on it."""
    arrived: int = 0
    left: int = 0
    """The number of objects that recently moved from and to other shards (`RingStats.RECENT`)."""


class RingSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    rows: tuple[ShardRow, ...]
    unassigned: int = 0
    stranded: int = 0
    """Objects labelled with a shard that does not hold its Lease."""
    misplaced: int = 0
    """Objects on a live shard other than the one that is due."""
    draining: int = 0
    total: int = 0
    moves: int = 0
    """Observed movements of objects from one shard to another."""
    drains: int = 0
    unread: tuple[str, ...] = ()
    """What is missing from the numbers, and why."""

    @property
    def settled(self) -> bool:
        """Whether every object is on the live shard that is due."""
        return not (self.unassigned or self.stranded or self.misplaced or self.draining or self.unread)

    @property
    def well(self) -> bool:
        """Whether it is settled, and by shards that renew their Leases."""
        return self.settled and any(row.live for row in self.rows) and not self.silent

    @property
    def silent(self) -> list[str]:
        """Shards that hold their Leases, but do not renew them."""
        return [row.shard for row in self.rows if row.live and row.state in LOOSE]

    @property
    def verdict(self) -> str:
        """The ring in one sentence."""
        if self.unread:
            return f"the picture is incomplete: {'; '.join(self.unread)}"
        live = any(row.live for row in self.rows)
        if self.settled and live:
            silent = ", ".join(self.silent[:3]) + (", ..." if len(self.silent) > 3 else "")
            but = f", but not renewed: the Lease of {silent}" if silent else ""
            return f"every object is where it belongs{but}"
        troubles = {
            "unassigned": self.unassigned,
            "on dead shards": self.stranded,
            "to be moved": self.misplaced,
            "draining": self.draining,
        }
        counted = [f"{count} {what}" for what, count in troubles.items() if count]
        return ", ".join([*counted, *(() if live else ("no shard is available",))])


def scale(view: RingSnapshot) -> int:
    """The number that a full bar stands for: a round number that no shard exceeds."""
    most = max((row.objects + row.followers for row in view.rows), default=0)
    size = 1
    while size < most:
        for factor in (2, 5, 10):
            if size * factor >= most:
                return size * factor
        size *= 10
    return size


RECENT = 10.0
"""Seconds for which a movement is shown."""

MOST_NAMES = 4096
"""The limit of distinct shard names in labels, which anybody may write."""


class LeaseView(NamedTuple):
    """A shard's Lease. `state` is the one to show; `live` is whether the shard holds it."""

    state: str
    live: bool


class Located(NamedTuple):
    """Where the objects with a hash are in a ring by ranges, and should be."""

    shard: str
    draining: bool
    due: str


@dataclass(slots=True)
class _Sums:
    """The sums of one resource, by shard ("" is none)."""

    objects: Counter[str] = field(default_factory=Counter)
    draining: Counter[str] = field(default_factory=Counter)


class _Second(NamedTuple):
    """The movements within one second."""

    began: float
    arrived: Counter[str]
    left: Counter[str]


class RingStats:
    """`mains` says for each resource whether its objects are main objects. Times are monotonic seconds."""

    def __init__(self, mains: Mapping[str, bool]) -> None:
        self._mains = dict(mains)
        self._objects: dict[str, dict[int, int]] = {resource: {} for resource in mains}
        self._former: dict[str, dict[int, int]] = {resource: {} for resource in mains}
        """While a resource is being listed again, the objects that have not been seen yet."""
        self._sums = {resource: _Sums() for resource in mains}
        self._names: list[str] = ["", _OTHERS]
        self._numbers: dict[str, int] = {"": 0}
        self._shards: dict[str, LeaseView] = {}
        self._hashring: HashRing = ring_of(())
        self._by_ranges: Callable[[int], Located] | None = None
        self._misplaced = 0
        self._recent: deque[_Second] = deque()
        self._drained_since: dict[str, float] = {}
        self.unread: dict[str, str] = {}
        """Resources that cannot be read, and why."""
        self.moves = 0
        self.drains = 0

    def __len__(self) -> int:
        return sum(map(len, (*self._objects.values(), *self._former.values())))

    # Input

    def shards(self, shards: Mapping[str, LeaseView]) -> None:
        before, self._shards = self._hashring, dict(shards)
        self._hashring = ring_of(tuple(sorted(name for name, shard in shards.items() if shard.live)))
        if self._hashring is not before:
            self._count_misplaced()

    def assigned(self, where: Callable[[int], Located], now: float) -> None:
        """In a ring by ranges: where objects with these hashes are from now on. All are looked through."""
        self._by_ranges = where
        for objects in (self._objects, self._former):
            for resource, known in objects.items():
                for id_, old in known.items():
                    point = old >> _NAME_BITS + 1
                    at = where(point)
                    if (new := self._value(point, at.shard, at.draining)) != old:
                        known[id_] = new
                        self._take(resource, old, now)
                        self._moved(old, new, now)
                        self._give(resource, new, now)
        self._count_misplaced()

    def _count_misplaced(self) -> None:
        every = (*self._objects.values(), *self._former.values())
        self._misplaced = sum(self._is_misplaced(value) for known in every for value in known.values())

    def begin(self, resource: str) -> None:
        """Marks the start of a list of all objects of a resource."""
        self._former[resource] |= self._objects[resource]
        self._objects[resource] = {}

    def end(self, resource: str, now: float) -> None:
        """Marks the end of that list; objects that were not reported again are dropped."""
        former, self._former[resource] = self._former[resource], {}
        for value in former.values():
            self._take(resource, value, now)

    def put(self, resource: str, uid: str, point: int, shard: str, draining: bool, now: float) -> None:
        """Reports the current state of an object. `point` is its hash, of 64 bits."""
        known, id_ = self._objects[resource], hash(uid)
        old = known.get(id_)
        if old is None:
            old = self._former[resource].pop(id_, None)
        known[id_] = new = self._value(point, shard, draining)
        if old == new:
            return
        if old is not None:
            self._take(resource, old, now)
            self._moved(old, new, now)
        self._give(resource, new, now)

    def drop(self, resource: str, uid: str, now: float) -> None:
        """Reports that an object is gone or no longer belongs to the ring."""
        id_ = hash(uid)
        old = self._objects[resource].pop(id_, None)
        if old is None:
            old = self._former[resource].pop(id_, None)
        if old is not None:
            self._take(resource, old, now)

    # Output

    def snapshot(self, now: float) -> RingSnapshot:
        while self._recent and self._recent[0].began < now - RECENT:
            self._recent.popleft()
        arrived, left = Counter[str](), Counter[str]()
        for second in self._recent:
            arrived.update(second.arrived)
            left.update(second.left)
        mains, followers, draining = self._by_role(main=True), self._by_role(main=False), Counter[str]()
        for sums in self._sums.values():
            draining.update(sums.draining)
        unassigned = mains.pop("", 0) + followers.pop("", 0)
        names = sorted({*self._shards, *(+mains), *(+followers)})
        rows = tuple(
            ShardRow(
                name,
                self._shards[name].state if name in self._shards else "gone",
                name in self._hashring.shards,
                mains[name],
                followers[name],
                draining[name],
                now - self._drained_since[name] if name in self._drained_since else 0.0,
                arrived[name],
                left[name],
            )
            for name in names
        )
        return RingSnapshot(
            rows,
            unassigned,
            sum(row.objects + row.followers for row in rows if not row.live),
            self._misplaced,
            draining.total(),
            len(self),
            self.moves,
            self.drains,
            tuple(f"{resource}: {why}" for resource, why in sorted(self.unread.items())),
        )

    def _by_role(self, *, main: bool) -> Counter[str]:
        found = Counter[str]()
        for resource, sums in self._sums.items():
            if self._mains[resource] is main:
                found.update(sums.objects)
        return found

    # Bookkeeping

    def _give(self, resource: str, value: int, now: float) -> None:
        self._count(resource, value, 1, now)

    def _take(self, resource: str, value: int, now: float) -> None:
        self._count(resource, value, -1, now)

    def _count(self, resource: str, value: int, by: int, now: float) -> None:
        shard, sums = self._shard_of(value), self._sums[resource]
        sums.objects[shard] += by
        self._misplaced += by * self._is_misplaced(value)
        if value & 1:
            sums.draining[shard] += by
            if not any(each.draining[shard] for each in self._sums.values()):
                self._drained_since.pop(shard, None)
            elif by > 0:
                self._drained_since.setdefault(shard, now)

    def _moved(self, old: int, new: int, now: float) -> None:
        source, target = self._shard_of(old), self._shard_of(new)
        self.drains += new & ~old & 1
        if source == target:
            return
        self.moves += bool(source)
        if not self._recent or now - self._recent[-1].began >= 1:
            self._recent.append(_Second(now, Counter(), Counter()))
        if source:
            self._recent[-1].left[source] += 1
        if target:
            self._recent[-1].arrived[target] += 1

    def _is_misplaced(self, value: int) -> bool:
        shard = self._shard_of(value)
        if not shard or shard not in self._shards or not self._shards[shard].live:
            return False
        point = value >> _NAME_BITS + 1
        if self._by_ranges is not None:
            return self._by_ranges(point).due != shard
        return self._hashring.owner_at(point) != shard

    def _value(self, point: int, shard: str, draining: bool) -> int:
        return (point << _NAME_BITS | self._number(shard)) << 1 | draining

    def _shard_of(self, value: int) -> str:
        return self._names[value >> 1 & _NAME_MASK]

    def _number(self, shard: str) -> int:
        number = self._numbers.get(shard)
        if number is None:
            if len(self._names) >= MOST_NAMES:
                return self._names.index(_OTHERS)
            number = self._numbers[shard] = len(self._names)
            self._names.append(shard)
        return number


_NAME_BITS = 13
_NAME_MASK = (1 << _NAME_BITS) - 1
_OTHERS = "(others)"
