"""The delivery of whole clusters: each shard works in some of the manager's other clusters, on all that is there.

| part | module |
|---|---|
| connections, caches and controllers in this shard's clusters, and in no others | `cluster_engagement` |
| each write needs the cluster, and proves that nobody has written the object since | here |
| in which bucket a cluster is | `kubeshard.sharding.buckets` |
| who owns which bucket, and what this shard does about it | as for objects: `range_delivery` |

A cluster is handed over like any bucket: no run begins there any more, those that go on end or are cancelled, one write
acknowledges that, and then everything of the cluster is closed here. It goes by its name: all programs of a ring call
it the same. Leases and assignment are in the home cluster, which is not shared out: controllers that work there need
leadership.

Guaranteed: what runs in a cluster, or writes there with a client that a run was given, does so while this shard owns
the cluster; it is refused with `NotOurs` from then on, also if it is marked `unfenced` or `raw`, and also when the
cluster has come back since. The cluster is handed over when the outcome of each such write is known, also of those that
runs in other clusters have sent; these begin none there while it waits for that. A cluster that does not respond holds
up no other, whether it comes, stays or goes. Not guaranteed: anything about clients that the program has made itself.

RBAC: that of `range_driver`, at home.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kubeshard.cache.cache import Cache
from kubeshard.cache.scope import Scope
from kubeshard.client.client import Client
from kubeshard.client.version_fence import VersionFence
from kubeshard.controller.controller import Controller
from kubeshard.core.clusters import OTHER_CLUSTERS, overlap
from kubeshard.core.errors import ConfigurationError, NotOurs
from kubeshard.core.kinds import GroupKind, GroupResource
from kubeshard.manager.membership import SharedClusters
from kubeshard.shard.cluster_engagement import ClusterEngagement
from kubeshard.shard.delivery import RingMember
from kubeshard.shard.range_delivery import BucketShare, RangeDelivery
from kubeshard.shard.range_driver import TakeOver
from kubeshard.shard.settings import DeclaredRing
from kubeshard.shard.shard_lease import HeldShardLease
from kubeshard.sharding.ring_resources import RingResources


class ClusterDelivery(RangeDelivery):
    """The `Delivery`."""

    clusters = OTHER_CLUSTERS
    shares_clusters = True

    def declared(self, ring: DeclaredRing, says: Mapping[str, str]) -> DeclaredRing:
        """It names no resources, and neither does a ControllerRing: whatever is there is shared out."""
        if self._objects_in or ring.resources is not None:
            raise ConfigurationError(
                "a ring by clusters shares out everything in the manager's other clusters: leave out objects_in and "
                "resources"
            )
        return replace(super().declared(ring, says), resources=())

    def concerned(self, controllers: Sequence[Controller[Any]]) -> Sequence[Controller[Any]]:
        for controller in controllers:
            check_shareable(controller)
        concerned = [each for each in controllers if overlap(each.clusters, self.clusters)]
        if controllers and not concerned:
            raise ConfigurationError(
                "a ring by clusters, and no controller works in other clusters than the home cluster: say "
                "clusters=OTHER_CLUSTERS in the controllers"
            )
        return concerned

    def shares(self, resource: GroupResource, resources: RingResources) -> bool:
        return True

    def begin(self, member: RingMember, controllers: Sequence[Controller[Any]]) -> ClusterShare:
        return ClusterShare(member, self._ranges, self._worked_on(member, controllers))


class ClusterShare(BucketShare):
    """The `Share` of clusters."""

    def scopes(self) -> Mapping[GroupKind, Scope]:
        """Of a cluster, a shard has everything or nothing."""
        return {}

    def client(self, client: Client, cluster: str) -> Client:
        """Of another shard's cluster nothing is written, not even what is marked `unfenced`."""
        fence = self._fence(cluster)
        writes = self._runs.writes_in(cluster, self._ownership.buckets.of_key(cluster))
        return client.fenced(fence).checked(fence.check).entered_in(writes)

    def _fence(self, cluster: str) -> VersionFence:
        bucket = self._ownership.buckets.of_key(cluster)

        def check() -> None:
            if not self._ownership.may_write(bucket):
                raise NotOurs(f"cluster {cluster} is another shard's by now: not written")
            self._member.check()

        return VersionFence(lambda kind: True, lambda kind, meta: True, check)

    def wrap(self, controller: Controller[Any], cluster: str) -> Controller[Any]:
        bucket = self._ownership.buckets.of_key(cluster)
        return controller.guarded(partial(self._runs.bound, lambda run, obj: bucket, self._fence(cluster)))

    def taking_over(
        self, held: HeldShardLease, caches: Mapping[str, Cache], clusters: SharedClusters
    ) -> TakeOver:
        return ClusterEngagement(self._member.shard.ring, clusters, self._ownership, held).take_over


def check_shareable(controller: Controller[Any]) -> None:
    """Raises ConfigurationError for a controller that cannot be right where a shard sees its own clusters only."""
    if any(watch.sharded for watch in controller.all_watches):
        raise ConfigurationError(
            f"controller {controller.name}: in a ring by clusters, a shard has everything in a cluster: leave out "
            "sharded=True"
        )
    for watch in controller.crossing_watches:
        if overlap(watch.clusters or (), OTHER_CLUSTERS):
            raise ConfigurationError(
                f"controller {controller.name}: its watch of {watch.form} in other clusters would see those of one "
                "shard only: let a controller work there, and write at home what this one needs"
            )
