"""In which bucket each object of a ring is that is sharded by ranges.

| by | object | bucket | what shows it |
|---|---|---|---|
| namespace | any | that of its namespace | its namespace |
| uid | of a main resource | that of its uid | its uid |
| uid | a controlled one whose controller, cluster-scoped or not, is an object of a main resource that lists it | that \
of the controller's uid | the label `bucket_label` |
| uid | a controlled one that has such an owner elsewhere: the controller of its controller, and so on, or the object \
that an annotation names | that of this owner's uid | the label |
| uid | any other of a controlled resource | none | it has no label |

The label is written with the object, by the shard that works on the owner (`kubeshard.client.version_fence`). It says
nothing about shards, so it stays as it is when the bucket changes hands; it changes with the owner only. What is not
labelled like that is found by the coordinator (`kubeshard.sharder.bucket_labels`). Until then no shard's cache shows
it, and the shard of the owner reads and writes it as what it takes over.

To whom an object belongs that has its owner elsewhere, its metadata do not say: whoever reconciles the owner may write
it.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeshard.core.hash_ranges import HashRanges, LabelledHash
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.owners import controller_of, group_kind_of
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.names import bucket_label
from kubeshard.sharding.ring_resources import Belongs, RingResources, belongs, owner_kinds


class RingBuckets:
    """Of one ring. `kinds` are those of its resources, as far as they are known."""

    def __init__(self, buckets: Buckets, ring: str, resources: RingResources, kinds: Iterable[Kind]) -> None:
        self.buckets = buckets
        self.label = bucket_label(ring)
        self._labelled = LabelledHash(self.label, buckets.count)
        self._resources = resources
        self._owners = owner_kinds(resources, {kind.group_resource: kind for kind in kinds})
        self._labels: dict[Kind, bool] = {}
        """The answers of `by_label`, which each event and each write asks for."""
        self._covered: dict[Kind, bool] = {}
        """Those of `covers`."""

    def covers(self, kind: Kind) -> bool:
        """Whether objects of the kind are shared out."""
        covered = self._covered.get(kind)
        if covered is None:
            covered = self._covered[kind] = kind.group_resource in self._resources
        return covered

    def by_label(self, kind: Kind) -> bool:
        """Whether objects of the kind have the label."""
        labelled = self._labels.get(kind)
        if labelled is None:
            main = self._resources.entry(kind.group_resource).main
            labelled = self._labels[kind] = self.buckets.by == "uid" and not main
        return labelled

    def ranges(self, kind: Kind, buckets: Iterable[int]) -> HashRanges:
        """What selects the objects of the kind in these buckets."""
        return self.buckets.ranges(buckets, label=self.label if self.by_label(kind) else "")

    def of(self, kind: Kind, meta: ObjectMeta) -> int | None:
        """The bucket that the object shows, which is the one that caches go by. None if it shows none."""
        return self._labelled.part_of(meta) if self.by_label(kind) else self.buckets.of(meta)

    def of_missing(self, kind: Kind, key: Key) -> int | None:
        """The bucket of an object that the cache does not have. None if its key does not show it."""
        if self.buckets.by == "uid":
            return None
        return self.of(kind, ObjectMeta(name=key.name, namespace=key.namespace))

    def due(self, kind: Kind, meta: ObjectMeta, elsewhere: str = "") -> str | None:
        """What the label of the object should be; "" for none, None if the kind has no such label. `elsewhere`: what it
        is for an object whose owner is elsewhere.
        """
        if not self.by_label(kind):
            return None
        match self._belongs(kind, meta):
            case Belongs.NOBODY:
                return ""
            case Belongs.FAR:
                return elsewhere
            case _:
                return str(self._of_controller(meta))

    def of_owner(self, kind: Kind, meta: ObjectMeta) -> int | None:
        """The bucket whose shard may write the object. None if its metadata do not tell."""
        if self.by_label(kind):
            near = self._belongs(kind, meta) is Belongs.OWNER
            return self._of_controller(meta) if near else None
        return None if self.buckets.by == "uid" and not meta.uid else self.buckets.of(meta)

    def _of_controller(self, meta: ObjectMeta) -> int:
        reference = controller_of(meta)
        assert reference is not None, "it belongs to its controller"
        return self.buckets.of(ObjectMeta(uid=reference.uid))

    def _belongs(self, kind: Kind, meta: ObjectMeta) -> Belongs:
        """As for labels of shards, but what a cluster-scoped object controls is not far from it: its uid is enough."""
        owners, reference = self._owners.get(kind.group_resource), controller_of(meta)
        found = belongs(self._resources.entry(kind.group_resource), owners, meta)
        if found is Belongs.FAR and owners and reference and owners[group_kind_of(reference)].main:
            return Belongs.OWNER
        return found
