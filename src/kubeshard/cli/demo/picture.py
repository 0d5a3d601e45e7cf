"""What a ring looks like from outside, computed from Leases and the metadata of sharded objects. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from kubeshard.core.builtin import Lease
from kubeshard.core.objects import ObjectMeta
from kubeshard.sharding.keys import KeyRefused, controlled_key, main_key
from kubeshard.sharding.names import STATE_LABEL, drain_label, shard_label
from kubeshard.sharding.ring import ring_of


class Sharded(NamedTuple):
    """A sharded object: `main` is (apiVersion, kind) of a main resource, None for an object that follows its
    owner.
    """

    meta: ObjectMeta
    main: tuple[str, str] | None


class ShardRow(NamedTuple):
    shard: str
    state: str
    """As the sharder labelled the Lease; `""` before it did."""
    live: bool
    """The shard holds its Lease."""
    objects: int
    followers: int
    draining: int


class Picture(NamedTuple):
    rows: tuple[ShardRow, ...]
    unassigned: int
    stranded: int
    """Objects labelled with a shard that does not hold its Lease."""
    misplaced: int
    """Objects on a live shard that is not where the hash ring puts them."""
    draining: int
    total: int

    @property
    def settled(self) -> bool:
        """Every object is owned by the live shard that the ring gives it."""
        return not (self.unassigned or self.stranded or self.misplaced or self.draining)


def picture(ring: str, leases: Iterable[Lease], objects: Iterable[Sharded]) -> Picture:
    """The ring as it is now."""
    known = {lease.metadata.name: lease for lease in leases}
    live = {name for name, lease in known.items() if lease.spec.holder_identity == name}
    placement = ring_of(tuple(sorted(live)))
    shard_key, drain_key = shard_label(ring), drain_label(ring)
    mains: Counter[str] = Counter()
    followers: Counter[str] = Counter()
    drains: Counter[str] = Counter()
    unassigned = stranded = misplaced = total = 0
    for obj in objects:
        key = _key(obj)
        if not key:
            continue
        total += 1
        shard = obj.meta.label(shard_key)
        if not shard:
            unassigned += 1
            continue
        (mains if obj.main else followers)[shard] += 1
        drains[shard] += obj.meta.has_label(drain_key)
        if shard not in live:
            stranded += 1
        elif placement.owner(key) != shard:
            misplaced += 1
    names = sorted(known | dict.fromkeys(mains) | dict.fromkeys(followers))
    rows = tuple(
        ShardRow(
            name,
            known[name].metadata.label(STATE_LABEL) if name in known else "gone",
            name in live,
            mains[name],
            followers[name],
            drains[name],
        )
        for name in names
    )
    return Picture(rows, unassigned, stranded, misplaced, drains.total(), total)


def _key(obj: Sharded) -> str:
    try:
        return main_key(*obj.main, obj.meta) if obj.main else controlled_key(obj.meta)
    except KeyRefused:
        return ""
