"""The delivery by hash ranges: each shard owns some of the buckets into which a ring divides its objects.

| part | module |
|---|---|
| caches of the objects in this shard's buckets, which the API server selects if it can | here, `range_caches` |
| each write proves that nobody has written since | `kubeshard.client.version_fence` |
| in which bucket an object is | `kubeshard.sharding.ring_resources` |
| who owns which bucket | `kubeshard.sharding.assignment`, in one ConfigMap for each ring |
| what this shard does about a bucket | `range_ownership`, `range_driver` |
| runs by buckets | `range_runs` |

Nothing on an object shows its shard, and nothing is written to it because of sharding, except the label of a controlled
object, once, when it is created. Creating, changing and deleting objects needs no coordinator. A first run after a
hand-over needs no live reads, because its caches have been listed since.

Not guaranteed: that two shards divide objects alike if their programs state different `Ranges`: what the assignment
says counts, and a shard that divides differently works on nothing.

RBAC: that of `range_driver`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from kubeshard.cache.cache import Cache
from kubeshard.cache.scope import Scope
from kubeshard.client.client import Client
from kubeshard.client.version_fence import VersionFence
from kubeshard.controller.controller import Controller
from kubeshard.controller.run import Run
from kubeshard.controller.syncing import until_readable
from kubeshard.core.builtin import ConfigMap
from kubeshard.core.clusters import HOME_CLUSTER
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.grants import Grant
from kubeshard.core.kinds import GroupKind, GroupResource, Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import KubeObject, ObjectMeta
from kubeshard.leases.held_lease import Gate
from kubeshard.manager.membership import SharedClusters
from kubeshard.shard.delivery import ObjectDelivery, Places, RingMember, Share
from kubeshard.shard.range_caches import NOTHING, RangeCaches
from kubeshard.shard.range_driver import RangeDriver, TakeOver, until_able
from kubeshard.shard.range_ownership import RangeOwnership
from kubeshard.shard.range_runs import BucketRuns
from kubeshard.shard.settings import DeclaredRing, Ranges
from kubeshard.shard.shard_lease import HeldShardLease
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.buckets import BUCKETS
from kubeshard.sharding.names import KINDS_ANNOTATION, PINNED_ANNOTATION, assignment_name
from kubeshard.sharding.ring_resources import RingBuckets


class RangeDelivery(ObjectDelivery):
    """The `Delivery`."""

    def __init__(self, ranges: Ranges, objects_in: str = HOME_CLUSTER) -> None:
        super().__init__(objects_in)
        self._ranges = ranges
        self.divided = ranges.divided

    def declared(self, ring: DeclaredRing, says: Mapping[str, str]) -> DeclaredRing:
        if ring.namespace_selector is not None:
            raise ConfigurationError(
                "namespace_selector: a hash range has objects of all namespaces: leave it out, and let the manager "
                "watch certain namespaces, or reconcile what a predicate selects"
            )
        if wrong := self.divided.pinned(says.get(PINNED_ANNOTATION, ""))[1]:
            raise ConfigurationError(f'{wrong}: name uids, or write delivery=Ranges(by="namespace")')
        return ring

    def grants(
        self, ring: str, namespace: str, resources: Sequence[RingResource], read: Places, *, shares_out: bool
    ) -> Iterator[Grant]:
        place, name = namespace or None, assignment_name(ring)
        yield Grant.on(ConfigMap, "get", "list", "watch", "patch", namespace=place, name=name)
        if shares_out:
            yield Grant.on(ConfigMap, "create", namespace=place)
            for main in resources if self._ranges.by == "uid" else ():
                for owned in main.controlled_resources:
                    for there in read.get(owned.group_resource, (ALL,)):
                        yield Grant.on(owned.group_resource, "get", "list", "patch", namespace=there)
                    for there in read.get(main.group_resource, (ALL,)):
                        yield Grant.on(main.group_resource, "get", namespace=there)

    def begin(self, member: RingMember, controllers: Sequence[Controller[Any]]) -> Share:
        wide = [str(kind) for kind in member.kinds.values() if not kind.namespaced]
        if self._ranges.by == "namespace" and wide:
            raise ConfigurationError(
                f"ranges by namespace: {', '.join(wide)} is in no namespace, so one shard would have all of it: write "
                'delivery=Ranges(by="uid"), from kubeshard.shard'
            )
        return RangeShare(member, self._ranges, self._worked_on(member, controllers))

    def _worked_on(
        self, member: RingMember, controllers: Iterable[Controller[Any]]
    ) -> Iterator[GroupResource]:
        """The resources that tell a program of the ring from a stranger."""
        own = (each.primary_watch.form.kind.group_resource for each in controllers)
        return (each for each in own if self.shares(each, member.resources))


class BucketShare:
    """What each `Share` of buckets has, whatever is in them."""

    def __init__(self, member: RingMember, ranges: Ranges, works_on: Iterable[GroupResource]) -> None:
        self.says = {KINDS_ANNOTATION: ",".join(sorted(map(str, set(works_on))))}
        self._member = member
        member.metrics.of_resource(BUCKETS)
        self._ownership = member.metrics.ranges = RangeOwnership(member.shard.name, ranges.divided)
        self._runs = BucketRuns(self._ownership)
        self._drain_timeout = ranges.drain_timeout
        self.unready = "it has not read the assignment of the ring yet"

    def gate(self, kinds: Iterable[GroupKind]) -> Gate | None:
        """Nothing has to wait: the caches are empty before."""
        return None

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        def unable(why: str) -> None:
            self.unready = why

        member = self._member
        home = member.home.with_timeout(member.request_bound)
        able = until_able(member.shard, home, self._ownership.buckets, unable)
        self._able = asyncio.create_task(able, name="ranges: able")
        try:
            yield
        finally:
            self._able.cancel()
            await asyncio.wait([self._able])

    async def report(self) -> str:
        return f"{self._ownership.buckets}:"

    def taking_over(
        self, held: HeldShardLease, caches: Mapping[str, Cache], clusters: SharedClusters
    ) -> TakeOver:
        raise NotImplementedError

    async def readable(self, caches: Mapping[str, Cache]) -> None:
        """Returns when this process could begin with what it is given. Before that, nothing is."""

    @asynccontextmanager
    async def working(
        self, held: HeldShardLease, caches: Mapping[str, Cache], clusters: SharedClusters
    ) -> AsyncIterator[None]:
        member = self._member
        driver = RangeDriver(
            member.shard,
            member.home,
            member.home.with_timeout(member.request_bound).checked(member.check),
            self._ownership,
            self._runs,
            self.taking_over(held, caches, clusters),
            self._drain_timeout,
            partial(member.metrics.acknowledged, BUCKETS),
        )

        async def run() -> None:
            await self._able
            await self.readable(caches)
            await driver.run(held)

        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(run(), name="range delivery")
            yield
            task.cancel()


class RangeShare(BucketShare):
    """The `Share` of objects."""

    def __init__(self, member: RingMember, ranges: Ranges, works_on: Iterable[GroupResource]) -> None:
        super().__init__(member, ranges, works_on)
        self._where = where = RingBuckets(
            ranges.divided, member.shard.ring, member.resources, member.kinds.values()
        )
        self._fence = VersionFence(where.covers, self._owns, member.check, where.label, where.due)

    def scopes(self) -> Mapping[GroupKind, Scope]:
        """Nothing, until the shard knows what it owns. The API server is asked for it nevertheless: what a shard may
        not read, or not yet, shows before anything is given to it.
        """
        return dict.fromkeys(self._member.kinds, Scope(fields=NOTHING))

    def client(self, client: Client, cluster: str) -> Client:
        return client.fenced(self._fence)

    def wrap(self, controller: Controller[Any], cluster: str) -> Controller[Any]:
        own = controller.primary_watch
        # What has the object has been listed; another form or scope of its kind has an informer of its own.
        others = (w for w in controller.all_watches if (w.form, w.scope) != (own.form, own.scope))
        reads = frozenset(watch.form.kind.group_kind for watch in others) & self._member.kinds.keys()
        return controller.guarded(lambda inner: self._runs.bound(self._bucket_of, self._fence, inner, reads))

    async def readable(self, caches: Mapping[str, Cache]) -> None:
        cache = caches[self._member.objects_in]
        await until_readable(
            [each for kind in self._member.kinds.values() for each in cache.informers_of(kind)]
        )

    def taking_over(
        self, held: HeldShardLease, caches: Mapping[str, Cache], clusters: SharedClusters
    ) -> TakeOver:
        objects = caches[self._member.objects_in]
        return RangeCaches(self._member, self._where, self._ownership, objects).read

    def _bucket_of(self, run: Run, obj: KubeObject | None) -> int | None:
        if obj is not None:
            return self._where.of(run.form.kind, obj.metadata)
        return self._where.of_missing(run.form.kind, run.key)

    def _owns(self, kind: Kind, meta: ObjectMeta) -> bool | None:
        bucket = self._where.of_owner(kind, meta)
        return None if bucket is None else self._ownership.may_write(bucket)
