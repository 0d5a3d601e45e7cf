"""What the assignment of a ring by ranges says (`kubeshard.sharding.assignment`), beside what its shards report.

Guaranteed: who should have a bucket is decided by the coordinator's own code, from one state of the object and the
Leases that were read just before. If the object is gone, cannot be read, divides objects by something else than its
shards, or contradicts what they have seen, then `problem` says so, and the assignment is what would be written anew
from what they report.

RBAC: list on the ConfigMap `ranges-<ring>` (`resourceNames`), in the namespace of the shards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from kubeshard.client.client import Client
from kubeshard.core.builtin import ConfigMap, Lease
from kubeshard.core.hash_ranges import HashRanges
from kubeshard.core.objects import Key, ObjectMeta, field
from kubeshard.core.selectors import FieldSelector
from kubeshard.core.times import parse_time
from kubeshard.inspection.cluster import ClusterSnapshot
from kubeshard.inspection.errors import needing
from kubeshard.inspection.field_times import Written
from kubeshard.inspection.stats import Located
from kubeshard.sharder.owners import OwnerChains
from kubeshard.sharding.assignment import Assignment, Place, Unreadable, owns_some, takes_by_labels
from kubeshard.sharding.buckets import Buckets, runs_of
from kubeshard.sharding.members import (
    RingMember,
    claimed,
    contradiction,
    kinds_of,
    member_of,
    pins_of,
    unable_of,
    used_by,
    weights_of,
)
from kubeshard.sharding.names import OWNED_RANGES_ANNOTATION, RING_LABEL, assignment_name
from kubeshard.sharding.planner import NOT_ASSIGNABLE, Action, Decision, RingView, place
from kubeshard.sharding.ring_resources import RingEntry
from kubeshard.sharding.shares import due


class WrittenMap(Written, version="v1", kind="ConfigMap"):
    """The assignment, and when it was written."""

    data: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class SeenRanges:
    """See the module."""

    place: Key
    """Of the ConfigMap."""
    assignment: Assignment
    problem: str
    """Why the object cannot be used; "" if it can."""
    members: Mapping[str, RingMember]
    """The Leases next to it."""
    notes: tuple[tuple[str, str], ...] = ()
    """What is wrong with these: the shard, or "" for several, and a text."""
    present: frozenset[str] = frozenset()
    """The shards to whom something may be given."""
    weights: Mapping[str, Fraction] = field(default_factory=dict)
    """Of those of them that get something."""
    pins: Mapping[int, str] = field(default_factory=dict)
    """Which of them gets a bucket whatever its weight."""
    used: frozenset[int] = frozenset()
    """The buckets of the known clusters, in a ring by clusters."""
    unable: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """Which shards cannot work on a bucket, as they say."""
    selected: bool = True
    """Whether the API server selects hashes. If not, each shard receives all objects, and leaves others out."""
    waiting: Mapping[str, float] = field(default_factory=dict)
    """When those took their Leases that have not begun, as these say, in seconds since the epoch."""
    written: Mapping[str, float] = field(default_factory=dict)
    """When each group of buckets was written, or later, in seconds since the epoch, as far as that is known."""

    @property
    def buckets(self) -> Buckets:
        return self.assignment.buckets

    @cached_property
    def due(self) -> Sequence[str]:
        """Who should have each bucket."""
        return due(self.assignment, self.weights, self.pins, self.used, self.unable)

    def with_shards(self, shards: Iterable[str]) -> SeenRanges:
        """With these instead. New ones have the weight 1."""
        present = frozenset(shards)
        weights = {shard: self.weights.get(shard, Fraction(1)) for shard in present}
        silent = {shard for shard in present & self.present if shard not in self.weights}
        return replace(
            self,
            present=present,
            weights={shard: weight for shard, weight in weights.items() if shard not in silent},
            pins={bucket: shard for bucket, shard in self.pins.items() if shard in present},
        )

    def bucket_of(self, meta: ObjectMeta) -> int | None:
        """None if it cannot be known: an object that does not exist has no uid."""
        return None if self.buckets.by == "uid" and not meta.uid else self.buckets.of(meta)

    def place_of(self, meta: ObjectMeta) -> Place:
        bucket = self.bucket_of(meta)
        return Place() if bucket is None else self.assignment.places[bucket]

    def key(self, meta: ObjectMeta) -> tuple[str, str]:
        """What is hashed, and its hash in hexadecimal."""
        return self.buckets.key_of(meta), f"{self.point_of(meta):016x}"

    def point_of(self, meta: ObjectMeta) -> int:
        """The hash that says in which bucket the object is."""
        return self.buckets.hash_of(self.buckets.key_of(meta))

    def located(self, point: int) -> Located:
        """Where the objects with this hash are."""
        bucket = self.buckets.of_hash(point)
        now = self.assignment.places[bucket]
        return Located(now.owner, bool(now.target), self.due[bucket])

    def decide(self, meta: ObjectMeta | None) -> Decision:
        """What the coordinator would do with the bucket of the object. None: it follows nothing that is shared out."""
        if meta is None:
            return Decision(Action.NOTHING, reason=NOT_ASSIGNABLE)
        bucket = self.bucket_of(meta)
        return place("", "", self.present) if bucket is None else self.decide_bucket(bucket)

    @property
    def by_cluster(self) -> bool:
        """Whether whole clusters are shared out, whatever is in them."""
        return self.buckets.by == "cluster"

    @property
    def clusters(self) -> Mapping[str, int]:
        """The buckets of the known clusters, in a ring by clusters."""
        names = {name for member in self.members.values() if member.available for name in member.clusters}
        return {name: self.buckets.of_key(name) for name in sorted(names)}

    def has_cluster(self, name: str) -> bool:
        """Whether a shard's program may have a cluster of this name: shards do not say the names of very many."""
        bucket = self.buckets.of_key(name)
        unnamed = (each.used for each in self.members.values() if each.available and not each.clusters)
        return name in self.clusters or any(bucket in used for used in unnamed)

    def decide_bucket(self, bucket: int) -> Decision:
        """What the coordinator would do with the bucket."""
        now = self.assignment.places[bucket]
        asked = bool(now.target)
        return place(now.owner, self.due[bucket], self.present, asked=asked, key=f"bucket {bucket}")

    def since(self, bucket: int, now: float) -> float | None:
        """For how many seconds, at least, the bucket has been in its place; None if that is not known."""
        at = self.written.get(self.buckets.key(self.assignment.run_of(bucket)))
        return None if at is None else max(0.0, now - at)

    @cached_property
    def reported(self) -> Mapping[str, frozenset[int]]:
        """What each shard says that it works on. Nothing of one that is gone: what it has said last is over."""
        return {
            shard: frozenset(member.report.epochs)
            for shard, member in self.members.items()
            if member.report is not None and member.available
        }

    def unreported(self, shard: str) -> frozenset[int]:
        """What it owns, and does not say so: it has not seen it yet."""
        return self.assignment.owned_by(shard) - self.reported.get(shard, frozenset())

    def named(self, buckets: Iterable[int]) -> str:
        """As in the object: `0000-0341, 0683-1023`."""
        runs = [self.buckets.key(run) for run in runs_of(buckets)]
        return ", ".join(runs[:4]) + (", ..." if len(runs) > 4 else "")


def hashed(
    view: RingView, chains: OwnerChains, buckets: Buckets, entry: RingEntry, meta: ObjectMeta
) -> ObjectMeta | None:
    """The metadata that say in which bucket an object is: its own, or those of the main object to which it belongs, as
    far as they count. None: it belongs to nothing of the ring. Raises ControllerUnknown.
    """
    if entry.main or buckets.by != "uid":
        return meta
    uid = chains.main_uid(view, entry, meta)
    return ObjectMeta(name=meta.name, namespace=meta.namespace, uid=uid) if uid else None


async def read_ranges(client: Client, cluster: ClusterSnapshot, ring: str) -> SeenRanges | None:
    """None if the ring's shards take objects by labels. Raises MissingRight, ApiError."""
    leases = [lease for lease in cluster.leases if lease.metadata.label(RING_LABEL) == ring]
    if not (by_ranges := _by_ranges(leases, cluster.available(ring))):
        return None
    inside = cluster.inside.get(ring)
    stated = sorted(cluster.rings[ring].shard_namespaces or ()) if ring in cluster.rings else []
    if cluster.leads_inside(ring) or len(stated) != 1:
        stated = [(inside or by_ranges[0]).metadata.namespace]
    (namespace,) = stated
    where = Key(namespace, assignment_name(ring))
    with needing("list", ConfigMap.KIND.group_resource):
        listed = client.list(
            WrittenMap,
            namespace,
            field_selector=FieldSelector.equals("metadata.name", where.name),
            shard_selector=HashRanges.everything("uid"),
        )
        found = [each async for each in listed]
    beside = [lease for lease in leases if lease.metadata.namespace == namespace]
    seen = seen_ranges(where, found[0] if found else None, beside, cluster.available(ring))
    return replace(seen, selected=bool(listed.shard_info))


def _by_ranges(leases: Iterable[Lease], available: Collection[str]) -> list[Lease]:
    """The Leases of the shards by ranges, if the ring works by them: one owns something, or none is by labels."""
    found = [lease for lease in leases if not takes_by_labels(_said(lease))]
    there = [lease for lease in leases if lease.metadata.name in available]
    works = any(lease in there and owns_some(_said(lease)) for lease in found)
    return found if works or not any(lease not in found for lease in there) else []


def seen_ranges(
    where: Key, found: WrittenMap | None, leases: Iterable[Lease], available: Iterable[str]
) -> SeenRanges:
    """From what was read. `available`: those of the shards that hold their Leases, as the sharder sees it."""
    known, problem = None, f"the ConfigMap {where} does not exist"
    if found is not None:
        try:
            known = Assignment.parse(found.data)
        except Unreadable as error:
            problem = f"the ConfigMap {where} cannot be read: {error}"
    leases, available = list(leases), frozenset(available)
    stating = [lease for lease in leases if lease.metadata.name in available and _stated(lease)]
    stating = [lease for lease in stating if owns_some(_said(lease))] or stating
    reported = _most_stated(stating or leases)
    if known is not None and stating and known.buckets not in map(_stated, stating):
        divided = f"the ConfigMap {where} divides objects by {known.buckets}, and its shards by {reported}"
        known, problem = None, f"{divided}: it was edited, or their program was changed"
    buckets = reported if known is None else known.buckets
    each = [member_of(lease, buckets, available=lease.metadata.name in available) for lease in leases]
    members = {member.shard: member for member, _ in each}
    if known is not None:
        wrong = contradiction(known, members.values())
        problem = f"the ConfigMap {where} is not what the shards have seen: {wrong}" if wrong else ""
    assignment = known if known and not problem else claimed(buckets, members.values(), known)
    kinds = kinds_of(assignment, members.values())
    weights = weights_of(assignment, members.values(), kinds.strangers)
    return SeenRanges(
        place=where,
        assignment=assignment,
        problem=problem,
        members=members,
        notes=tuple(
            (shard, note)
            for shard, note in [("", kinds.problem), *((member.shard, note) for member, note in each)]
            if note
        ),
        present=frozenset(members) & available,
        weights=weights,
        pins=pins_of(members.values(), weights),
        used=used_by(members.values()),
        unable=unable_of(members.values(), weights),
        waiting={
            lease.metadata.name: parse_time(lease.spec.acquire_time) or 0.0
            for lease in leases
            if _said(lease) == f"{buckets}:"
        },
        written=dict(found.metadata.written("data")) if found is not None else {},
    )


def _said(lease: Lease) -> str:
    return lease.metadata.annotation(OWNED_RANGES_ANNOTATION)


def _stated(lease: Lease) -> Buckets | None:
    """How the shard says that it divides objects."""
    try:
        return Buckets.parse(_said(lease).rpartition(":")[0])
    except ValueError:
        return None


def _most_stated(leases: Iterable[Lease]) -> Buckets:
    """What most of these shards say."""
    stated = sorted(filter(None, map(_stated, leases)), key=str)
    return max(stated, key=stated.count, default=Buckets())
