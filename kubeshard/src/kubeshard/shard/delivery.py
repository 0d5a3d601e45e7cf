"""How the objects of a ring reach its shards: what differs between labels on objects and hash ranges.

A membership (`sharding`) has an identity, a Lease and an election whatever the delivery is. A `Delivery` says which
objects this process reads, which it may write, when a run of one may start, and what it does for that while it holds
its Lease.

Guaranteed by each delivery: no two shards of a ring work on one object at the same time, as far as their Leases can
tell. Another one has to provide what `Delivery` and `Share` have; nothing else of a membership knows what is shared
out, and how.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from kubeshard.cache.cache import Cache
from kubeshard.cache.scope import Scope
from kubeshard.client.client import Client
from kubeshard.controller.controller import Controller
from kubeshard.core.clusters import HOME_CLUSTER
from kubeshard.core.grants import Grant
from kubeshard.core.kinds import GroupKind, GroupResource, Kind
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.leases.held_lease import Gate
from kubeshard.manager.membership import SharedClusters
from kubeshard.shard.identity import ShardIdentity
from kubeshard.shard.metrics import ShardMetrics
from kubeshard.shard.settings import DeclaredRing
from kubeshard.shard.shard_lease import HeldShardLease
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.ring_resources import RingResources

Places = Mapping[GroupResource, Iterable[str | AllNamespaces]]
"""The namespaces in which a process reads each resource of its ring."""


@dataclass(frozen=True, slots=True)
class RingMember:
    """What a shard's process knows about its ring and itself once it has read the ring."""

    shard: ShardIdentity
    resources: RingResources
    kinds: Mapping[GroupKind, Kind]
    home: Client
    objects: Client
    """The client of the cluster with the ring's objects."""
    objects_in: str
    """The name of that cluster."""
    looks_for_ring: bool
    """Whether a ControllerRing counts."""
    request_bound: float
    """The maximum duration of a write."""
    check: Callable[[], None]
    """Raises NotOurs when no write may start, because the Lease is not held."""
    metrics: ShardMetrics

    @property
    def client(self) -> Client:
        """A client of the cluster with the ring's objects, whose writes need the Lease only."""
        return self.objects.with_timeout(self.request_bound).checked(self.check)

    def places(self, cache: Cache) -> list[tuple[Kind, str | AllNamespaces]]:
        """The kinds and namespaces in which this process sees objects of the ring."""
        return [
            (kind, namespace or ALL)
            for kind in self.kinds.values()
            for namespace in {part for i in cache.informers_of(kind) for part in i.scope.parts(kind)}
        ]


class Share(Protocol):
    """What is delivered to one process. Methods are called in this order."""

    @property
    def says(self) -> Mapping[str, str]:
        """What else is on its Lease, as annotations."""
        ...

    @property
    def unready(self) -> str:
        """Why this process could not work on what it would be given; "" once it could."""
        ...

    def scopes(self) -> Mapping[GroupKind, Scope]:
        """The kinds of which this process only caches its own share."""
        ...

    def client(self, client: Client, cluster: str) -> Client:
        """`client`, of the cluster, with proof in each write that the object is this shard's."""
        ...

    def wrap(self, controller: Controller[Any], cluster: str) -> Controller[Any]:
        """A controller of the ring as a shard runs it in the cluster."""
        ...

    def gate(self, kinds: Iterable[GroupKind]) -> Gate | None:
        """Closed while a controller that reads these kinds of the ring has to wait."""
        ...

    def asking(self) -> AbstractAsyncContextManager[None]:
        """Entered before anything is waited for, and left at the end: finds out why it is `unready`."""
        ...

    async def report(self) -> str:
        """What the shard's Lease says first that it works on, if others need to know it. Asked for just before."""
        ...

    def working(
        self, held: HeldShardLease, caches: Mapping[str, Cache], clusters: SharedClusters
    ) -> AbstractAsyncContextManager[None]:
        """Entered when the Lease is held, and left when it has to be given up or is lost."""
        ...


class Delivery(Protocol):
    """What is shared out in which way, as the program declares it."""

    @property
    def clusters(self) -> Container[str]:
        """The clusters in which anything is shared out."""
        ...

    @property
    def shares_clusters(self) -> bool:
        """Whether these are shared out as a whole: see `kubeshard.manager.membership.Membership`."""
        ...

    @property
    def divided(self) -> Buckets | None:
        """How the ring's sharder divides what is shared out; None: it labels each object."""
        ...

    def declared(self, ring: DeclaredRing, says: Mapping[str, str]) -> DeclaredRing:
        """What the program declares of its ring, as it counts here. `says`: the annotations that it wants on its Lease.
        Raises ConfigurationError for what cannot be.
        """
        ...

    def concerned(self, controllers: Sequence[Controller[Any]]) -> Sequence[Controller[Any]]:
        """Those that work in `clusters`. Raises ConfigurationError for controllers that cannot be right."""
        ...

    def shares(self, resource: GroupResource, resources: RingResources) -> bool:
        """Whether a controller of this resource is the ring's, in `clusters`. `resources`: what the ring names."""
        ...

    def grants(
        self, ring: str, namespace: str, resources: Sequence[RingResource], read: Places, *, shares_out: bool
    ) -> Iterator[Grant]:
        """The RBAC rules of a process, beyond those of its Leases and its controllers. `namespace`: that of the Leases;
        "": that of the process. `read`: where it reads objects of the ring as a shard. `shares_out`: it may be the
        ring's sharder.
        """
        ...

    def begin(self, member: RingMember, controllers: Sequence[Controller[Any]]) -> Share:
        """For a shard, with the controllers that are `concerned`. Raises ConfigurationError for a ring that cannot be
        shared out like that.
        """
        ...


class ObjectDelivery:
    """What each `Delivery` of objects has: those of some resources, in one cluster."""

    shares_clusters = False

    def __init__(self, objects_in: str = HOME_CLUSTER) -> None:
        self._objects_in = objects_in

    @property
    def clusters(self) -> Container[str]:
        return (self._objects_in,)

    def concerned(self, controllers: Sequence[Controller[Any]]) -> Sequence[Controller[Any]]:
        return [each for each in controllers if self._objects_in in each.clusters]

    def shares(self, resource: GroupResource, resources: RingResources) -> bool:
        return resource in resources
