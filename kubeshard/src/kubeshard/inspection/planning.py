"""What would move with a different set of shards, according to the sharder's own planner.

Guaranteed: once the ring has those shards and has settled, the objects that existed when the plan was made are placed
as planned, and no others have moved; every object is read once, and none is kept. Not guaranteed: anything about
objects that are created or changed in the meantime, or about guessed names of shards.

RBAC: list on every main and controlled resource of the ring.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from kubeshard.client.client import Client
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.kinds import GroupResource
from kubeshard.core.names import is_label_value
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Key, ObjectMeta, metadata_only
from kubeshard.inspection.counts import Some, is_leaving
from kubeshard.inspection.errors import needing, unknown
from kubeshard.inspection.ring import SeenRing
from kubeshard.sharding.planner import Action
from kubeshard.sharding.ring_resources import RingEntry


class ShardSetChange(NamedTuple):
    """The shards now and then. `guessed`: the cluster may choose other names or remove other shards."""

    now: tuple[str, ...]
    then: tuple[str, ...]
    guessed: bool

    @property
    def added(self) -> list[str]:
        return sorted(set(self.then) - set(self.now))

    @property
    def removed(self) -> list[str]:
        return sorted(set(self.now) - set(self.then))


class Move(NamedTuple):
    """An object that will move away from the shard `source` ("" is none). `anyway`: even if nothing changes."""

    resource: GroupResource
    key: Key
    source: str
    target: str
    anyway: bool


class Flow(msgspec.Struct, frozen=True):
    """The number of objects of a resource that move from one shard ("" is none) to another."""

    resource: str
    source: str
    target: str
    objects: int


class Strays(msgspec.Struct, frozen=True):
    """Controlled objects that are elsewhere although their owner is on the right shard; the first names."""

    resource: str
    objects: int
    names: list[str]


class MovePlan(msgspec.Struct, rename="camel", frozen=True):
    """`objects` is how many objects the ring shards, by resource; `moving` is how many of them move; `anyway` is how
    many of these move even if nothing changes.
    """

    ring: str
    now: list[str]
    then: list[str]
    guessed: bool
    objects: dict[str, int]
    moving: dict[str, int]
    anyway: int
    flows: list[Flow]
    strays: list[Strays]
    buckets: tuple[int, int] | None = None


def with_shards(ring: SeenRing, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> ShardSetChange:
    """The ring with the shards `add` and without the shards `remove`. Raises ConfigurationError, Unanswerable."""
    now = tuple(sorted(ring.available))
    added, removed = set(add), set(remove)
    for name in sorted(added):
        if not is_label_value(name):
            raise ConfigurationError(f"{name!r} is not a shard name: it has to be a valid label value")
        if name in now:
            raise ConfigurationError(f"{name} is already a shard of {ring.name}")
    for name in sorted(removed - set(now)):
        raise unknown("available shard", name, now)
    return ShardSetChange(now, tuple(sorted((set(now) | added) - removed)), guessed=False)


def resized(ring: SeenRing, count: int) -> ShardSetChange:
    """The ring with this many shards. If it runs in a StatefulSet, names are added and removed as that does. Otherwise
    new shards get placeholder names, and the youngest ones are removed.
    """
    now = tuple(sorted(ring.available))
    if (prefix := _stateful(now)) is not None:
        ordered = sorted(now, key=lambda name: int(name.removeprefix(prefix)))
        more = [f"{prefix}{number}" for number in range(len(now), count)]
        return ShardSetChange(now, tuple(sorted([*ordered[:count], *more])), guessed=False)
    born = {
        lease.metadata.name: lease.metadata.creation_timestamp or ""
        for lease in ring.cluster.leases
        if lease.metadata.name in ring.available
    }
    ordered = sorted(now, key=lambda name: (born.get(name, ""), name))
    more = [f"{ring.name[:50]}-new-{number}" for number in range(1, count - len(now) + 1)]
    return ShardSetChange(now, tuple(sorted([*ordered[:count], *more])), guessed=count != len(now))


@dataclass(slots=True)
class Seen:
    """Findings about all objects of the ring, including those that stay."""

    objects: Counter[GroupResource] = field(default_factory=Counter)
    strays: dict[GroupResource, Some] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    """Keys of main objects that have not left their shard yet."""


async def moves(client: Client, ring: SeenRing, change: ShardSetChange, seen: Seen) -> AsyncIterator[Move]:
    """Yields every object that will move; other findings are added to `seen`. Raises MissingRight and ApiError. Gone
    means that a list took so long that its snapshot expired, and the plan has to be made again.
    """
    then = ring.with_shards(change.then)
    for entry, kind in ring.entries:
        with needing("list", entry.resource):
            async for obj in client.list(metadata_only(kind), ALL):
                if (move := await _move(ring, entry, obj.metadata, then, seen)) is not None:
                    yield move


async def planned(client: Client, ring: SeenRing, change: ShardSetChange) -> MovePlan:
    """Summarizes all moves. Raises like `moves`."""
    seen, flows = Seen(), Counter[tuple[str, str, str]]()
    anyway = 0
    async for move in moves(client, ring, change, seen):
        flows[str(move.resource), move.source, move.target] += 1
        anyway += move.anyway
    moving: Counter[str] = Counter()
    for (resource, _, _), count in flows.items():
        moving[resource] += count
    resources = [entry.resource for entry, _ in ring.entries]
    return MovePlan(
        ring=ring.name,
        now=list(change.now),
        then=list(change.then),
        guessed=change.guessed,
        objects={str(resource): seen.objects[resource] for resource in resources},
        moving={str(resource): moving[str(resource)] for resource in resources},
        anyway=anyway,
        flows=[Flow(*flow, count) for flow, count in sorted(flows.items())],
        strays=[Strays(str(resource), some.count, some.names) for resource, some in seen.strays.items()],
        buckets=_buckets(ring, change),
    )


def _buckets(ring: SeenRing, change: ShardSetChange) -> tuple[int, int] | None:
    if ring.ranges is None:
        return None
    places = ring.ranges.assignment.places
    later = ring.ranges.with_shards(change.then).due
    moving = sum(now.owner != shard != "" for now, shard in zip(places, later, strict=True))
    return len(places), moving


async def _move(
    ring: SeenRing, entry: RingEntry, meta: ObjectMeta, then: SeenRing, seen: Seen
) -> Move | None:
    now, later = await ring.decide(entry, meta, leaving=seen.leaving), await then.decide(entry, meta)
    if not later.key:
        return None
    seen.objects[entry.resource] += 1
    source = now.source
    if entry.main and is_leaving(now):
        seen.leaving.add(now.key)
    if not entry.main and now.action is Action.MOVE and source in ring.available:
        seen.strays.setdefault(entry.resource, Some()).add(meta)
    if not later.target or source == later.target:
        return None
    return Move(entry.resource, Key(meta.namespace, meta.name), source, later.target, source != now.target)


def _stateful(names: Sequence[str]) -> str | None:
    """The common prefix of the names of a StatefulSet's pods; None if they are not from one."""
    matches = [_ORDINAL.fullmatch(name) for name in names]
    if not names or not all(matches):
        return None
    prefixes = {match[1] for match in matches if match}
    ordinals = sorted(int(match[2]) for match in matches if match)
    return prefixes.pop() if len(prefixes) == 1 and ordinals == list(range(len(names))) else None


_ORDINAL = re.compile(r"(.+-)(0|[1-9]\d{0,5})")
