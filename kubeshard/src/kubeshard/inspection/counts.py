"""Counts the objects of a ring: each is read once, and none is kept.

RBAC: list on every main and controlled resource of the ring; resources that cannot be listed are reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError, Forbidden
from kubeshard.core.finalizers import deletion_age, is_kubernetes_own
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import ObjectMeta, metadata_only
from kubeshard.inspection.cluster import server_error
from kubeshard.inspection.ring import SeenRing
from kubeshard.sharding.planner import Action, Decision, not_sharded
from kubeshard.sharding.ring_resources import RingEntry

NOBODY: Mapping[str, str] = MappingProxyType({})

HELD_AFTER = 300.0
"""Seconds after which an object is not being deleted any more, but held."""

REMEMBERED = 10
"""The largest number of names reported for one group of objects."""


@dataclass(slots=True)
class Some:
    """The number of some objects, and the names of the first ones."""

    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, meta: ObjectMeta) -> None:
        self.count += 1
        if len(self.names) < REMEMBERED:
            self.names.append(named(meta))


@dataclass(slots=True)
class Counts:
    """Of one resource. An object that is not on an available shard only counts in `unassigned` or `stranded`."""

    resource: GroupResource
    main: bool
    shards: Counter[str] = field(default_factory=Counter)
    draining: Counter[str] = field(default_factory=Counter)
    """The number of these that have the drain label."""
    marked: Counter[str] = field(default_factory=Counter)
    """The number of these whose drain label is the mark of a shard that is back: nobody has asked for a drain."""
    unassigned: Some = field(default_factory=Some)
    stranded: Some = field(default_factory=Some)
    """Objects on a shard that is not available."""
    misplaced: Some = field(default_factory=Some)
    """On another available shard than is due, or than their owner, and not asked for."""
    refused: Some = field(default_factory=Some)
    """Objects for which no hash key can be computed."""
    beyond: int = 0
    """Objects that the ring does not shard: in another namespace, or without an owner in the ring."""
    foreign: Some = field(default_factory=Some)
    """Those of them that something else controls."""
    held: Some = field(default_factory=Some)
    """Objects that the ring does not shard, and that a finalizer keeps from being deleted."""
    finalizer: str = ""
    """That of the first of them."""
    error: str = ""
    """Why the objects, or some of them, could not be read."""
    forbidden: bool = False
    """Whether that is because the user may not list them."""

    @property
    def total(self) -> int:
        return self.shards.total() + self.unassigned.count

    def add(
        self,
        decision: Decision,
        meta: ObjectMeta,
        ring: SeenRing,
        leaving: Mapping[str, str] = NOBODY,
        *,
        draining: bool,
    ) -> None:
        """Adds one object with the sharder's decision. `leaving`: the keys of main objects that have not left their
        shards yet, and these. `draining`: whether it is one of them.
        """
        if why := not_sharded(decision, meta):
            if why == "key":
                self.refused.add(meta)
            else:
                self.beyond += 1
            if why == "foreign_controller":
                self.foreign.add(meta)
            return
        if not decision.source:
            self.unassigned.add(meta)
            return
        self.shards[decision.source] += 1
        self.draining[decision.source] += draining
        self.marked[decision.source] += ring.marked(meta)
        if decision.source not in ring.available:
            self.stranded.add(meta)
        elif self.main or ring.ranges is not None:
            if decision.action is Action.DRAIN:
                self.misplaced.add(meta)
        elif decision.target and decision.source != leaving.get(decision.key, decision.target):
            self.misplaced.add(meta)


async def count(client: Client, ring: SeenRing) -> AsyncIterator[Counts]:
    """Resource by resource, in the order of a resync. Read errors are reported in `error`; no ApiError is raised."""
    leaving = dict[str, str]()
    for entry in ring.view.resources.entries:
        kind = ring.kinds.get(entry.resource)
        if kind is None:
            yield Counts(entry.resource, entry.main, error=ring.unresolved[entry.resource])
        else:
            yield await _count(client, ring, entry, kind, leaving)


async def _count(
    client: Client, ring: SeenRing, entry: RingEntry, kind: Kind, leaving: dict[str, str]
) -> Counts:
    counts = Counts(entry.resource, entry.main)

    def restart() -> None:
        nonlocal counts
        counts = Counts(entry.resource, entry.main)

    try:
        async for obj in client.list(metadata_only(kind), ALL, on_restart=restart):
            decision = await ring.decide(entry, obj.metadata, leaving=leaving)
            if entry.main and is_leaving(decision):
                leaving[decision.key] = decision.source
            draining = ring.draining(await ring.hashed(entry, obj.metadata))
            counts.add(decision, obj.metadata, ring, leaving, draining=draining)
            long = deletion_age(obj.metadata, ring.cluster.now) > HELD_AFTER
            if long and not_sharded(decision, obj.metadata) and (keys := held_by(obj.metadata)):
                counts.held.add(obj.metadata)
                counts.finalizer = counts.finalizer or keys[0]
    except ApiError as error:
        counts.error = server_error(entry.resource, error)
        counts.forbidden = isinstance(error, Forbidden)
    return counts


def is_leaving(decision: Decision) -> bool:
    """Whether a main object is on the wrong available shard."""
    return decision.action in (Action.DRAIN, Action.WAIT)


def held_by(meta: ObjectMeta) -> list[str]:
    """The finalizers that an object waits for before it is deleted, without those of Kubernetes itself."""
    return [key for key in meta.finalizers if not is_kubernetes_own(key)] if meta.deleting else []


def named(meta: ObjectMeta) -> str:
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
