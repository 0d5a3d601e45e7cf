"""ControllerRing, the only custom resource of the protocol (docs/shard-in-any-language.md).

The class is complete: it declares every field, so status is written with PUT. `kubeshard.sharding.crd`
renders the schema. RBAC of a reader: get, list, watch on `controllerrings`; of the sharder also update on
`controllerrings/status`.
"""

from __future__ import annotations

from typing import NamedTuple

from kubeshard.core.conditions import Condition
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import KubeObject, Struct, field
from kubeshard.core.selectors import LabelSelector
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.names import DELIVERY_ANNOTATION, SHARD_NAMESPACES_ANNOTATION

GROUP = "sharding.timebertt.dev"
VERSION = "v1alpha1"

READY = "Ready"
"""The condition that the Go sharder also writes, with the same meaning, whatever the other conditions are."""


class RingGroupResource(Struct):
    """A resource of a ring. Both fields are required by the schema; the core group is `""`."""

    group: str = ""
    resource: str = ""

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.resource)


class RingResource(RingGroupResource):
    """A main resource: the objects that the controller reconciles, and what it creates for them."""

    controlled_resources: tuple[RingGroupResource, ...] = ()


class ControllerRingSpec(Struct):
    resources: tuple[RingResource, ...] = ()
    namespace_selector: LabelSelector | None = None
    """Replaces the sharder's default selector entirely; `{}` selects every namespace, except for system
    namespaces that `SYSTEM_NAMESPACES_ANNOTATION` does not confirm.
    """


class ControllerRingStatus(Struct):
    """The status. Zeros are encoded, because the schema requires both numbers."""

    observed_generation: int = 0
    shards: int = 0
    available_shards: int = 0
    conditions: tuple[Condition, ...] = ()


class SharedRanges(NamedTuple):
    """How a ring is shared out by ranges: into these buckets, by an assignment in this namespace."""

    buckets: Buckets
    namespace: str


class ControllerRing(
    KubeObject, group=GROUP, version=VERSION, plural="controllerrings", namespaced=False, complete=True
):
    """A set of controller instances, and the resources that are sharded across them."""

    spec: ControllerRingSpec = field(default_factory=ControllerRingSpec)
    status: ControllerRingStatus | None = None

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def by_ranges(self) -> bool:
        """Whether its objects are not to be labelled."""
        return bool(self.metadata.annotation(DELIVERY_ANNOTATION))

    @property
    def ranges(self) -> SharedRanges | None:
        """None: by labels. Raises ValueError for what cannot be."""
        delivery, _, divided = self.metadata.annotation(DELIVERY_ANNOTATION).strip().partition(" ")
        if not delivery:
            return None
        if delivery != "Ranges":
            raise ValueError(
                f"{DELIVERY_ANNOTATION}: {delivery!r}: write Ranges, or leave it out in a ring by labels"
            )
        namespaces = self.shard_namespaces or frozenset()
        if len(namespaces) != 1:
            raise ValueError(
                f"{DELIVERY_ANNOTATION}: say in the annotation {SHARD_NAMESPACES_ANNOTATION} in which one namespace "
                "the shards are: the assignment is kept next to their Leases"
            )
        try:
            buckets = Buckets.parse(divided.strip()) if divided else Buckets()
        except ValueError as error:
            raise ValueError(f"{DELIVERY_ANNOTATION}: {error}, as in Ranges namespace/512") from None
        if buckets.by == "cluster":
            raise ValueError(
                f"{DELIVERY_ANNOTATION}: a ring by clusters has no ControllerRing: it shares out whatever is in them"
            )
        return SharedRanges(buckets, min(namespaces))

    @property
    def shard_namespaces(self) -> frozenset[str] | None:
        """Where the Leases of shards have to be; None: anywhere."""
        stated = self.metadata.annotation(SHARD_NAMESPACES_ANNOTATION)
        return frozenset(filter(None, (name.strip() for name in stated.split(",")))) or None
