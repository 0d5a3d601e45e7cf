"""The delivery by labels: each object carries the name of its shard, which a sharder writes.

| part | module |
|---|---|
| caches of the objects with this shard's label | here |
| each write proves the label | `shard_lease.ShardFence` |
| drains are acknowledged, first runs read live | `handover` |
| objects of a name that had been given up are reclaimed | `reclaiming` |
| labels that others take away are put back | `label_restorer` |

A ring may have worked by hash ranges until now, and its labels are as they were before that. So a shard begins when a
list shows its Lease, which those by ranges see that begin later, and that none of these holds one. Until then its Lease
says that it waits, so that it keeps none of these from beginning again after a crash. It says so from the first write
on if there was one of them just before, because what a sharder gives it meanwhile has to wait, too. Shards by ranges
wait in the same way (`members.doubts`), and both take no deleted Lease for such an end (`ring_leases`). Not guaranteed:
this without the right to list Leases, which labels alone do not need.

RBAC: `get`, `list`, `watch`, `patch` on the ring's main kinds; `list`, `watch`, `patch` on those that they control;
`list` on leases in the namespace of the shards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from types import MappingProxyType
from typing import Any

from kubeshard.cache.cache import Cache
from kubeshard.cache.scope import Scope
from kubeshard.client.client import Client
from kubeshard.controller.controller import Controller
from kubeshard.core.builtin import Lease, Namespace
from kubeshard.core.errors import ApiError, ConfigurationError, Forbidden
from kubeshard.core.grants import READ, Grant
from kubeshard.core.kinds import GroupKind
from kubeshard.core.namespaces import ALL
from kubeshard.core.selectors import Selector
from kubeshard.leases.held_lease import Gate
from kubeshard.manager.membership import SharedClusters
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.shard.delivery import ObjectDelivery, Places, RingMember
from kubeshard.shard.handover import Handovers, shard_predicate
from kubeshard.shard.label_restorer import LabelRestorer
from kubeshard.shard.reclaiming import Reclaiming, clear
from kubeshard.shard.ring_leases import RingLeases
from kubeshard.shard.settings import DeclaredRing
from kubeshard.shard.shard_lease import HeldShardLease, ShardFence
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.assignment import BY_LABELS, takes_by_labels
from kubeshard.sharding.members import said_by

RETRY = 1.0
"""Seconds between looks at who works by ranges."""

_log = get_logger("kubeshard.shard")


class Labels(ObjectDelivery):
    """The `Delivery`."""

    divided = None

    def declared(self, ring: DeclaredRing, says: Mapping[str, str]) -> DeclaredRing:
        if says:
            raise ConfigurationError('weight and pinned: shares are those of rings by delivery="ranges"')
        return ring

    def grants(
        self, ring: str, namespace: str, resources: Sequence[RingResource], read: Places, *, shares_out: bool
    ) -> Iterator[Grant]:
        for resource in (
            each.group_resource for main in resources for each in (main, *main.controlled_resources)
        ):
            for place in (ALL,) if shares_out else read.get(resource, (ALL,)):
                yield Grant.on(resource, "get", "list", "watch", "patch", namespace=place)
        if shares_out:
            yield Grant.on(Namespace, *READ)

    def begin(self, member: RingMember, controllers: Sequence[Controller[Any]]) -> LabelledShare:
        """Warns about main resources without a controller: their objects are assigned to us, but no drain would be
        acknowledged.
        """
        reconciled = {controller.primary_watch.form.kind.group_resource for controller in controllers}
        for entry in member.resources.entries:
            if entry.main and entry.resource not in reconciled:
                _log.warning(
                    "No controller here reconciles a main resource of the ring; its objects will never be drained",
                    ring=member.shard.ring,
                    resource=str(entry.resource),
                )
        return LabelledShare(member)


def _until_begun(by_ranges: Collection[str]) -> str:
    """What a shard reports beside these."""
    return BY_LABELS if by_ranges else ""  # the labels say it


class LabelledShare:
    """The `Share`."""

    def __init__(self, member: RingMember) -> None:
        for entry in member.resources.entries:
            if entry.main:
                member.metrics.of_resource(entry.resource)
        self._member = member
        shard, resources, clock = member.shard, member.resources, member.home.world.clock
        self._handovers = Handovers(
            shard.label,
            shard.drain,
            shard.name,
            lambda kind: kind.group_resource in resources,
            clock,
            member.metrics.acknowledged,
        )
        self._leases = RingLeases(
            shard, member.home.with_timeout(member.request_bound), lambda said: not takes_by_labels(said)
        )
        self._reclaiming = Reclaiming()
        self._label_restorer = LabelRestorer(shard, resources, self._handovers.losses, clock)

    says: Mapping[str, str] = MappingProxyType({})
    unready = ""

    def scopes(self) -> Mapping[GroupKind, Scope]:
        shard = self._member.shard
        return dict.fromkeys(self._member.kinds, Scope(labels=Selector.equals(shard.label, shard.name)))

    def client(self, client: Client, cluster: str) -> Client:
        return client.fenced(self.fence(cluster))

    def fence(self, cluster: str) -> ShardFence:
        member = self._member
        return ShardFence(member.shard, member.resources, member.kinds.values(), member.check)

    def wrap(self, controller: Controller[Any], cluster: str) -> Controller[Any]:
        """Adds predicate and wrapper to a controller of a main kind, and the wrapper to one of a controlled kind, whose
        objects are moved but never drained.
        """
        primary, shard = controller.primary_watch, self._member.shard
        if self._member.resources.entry(primary.form.kind.group_resource).main:
            controller = controller.filtered(shard_predicate(shard.ring, shard.name, primary.when))
        return controller.guarded(self._handovers.sharded, undecodable=self._handovers.draining)

    def gate(self, kinds: Iterable[GroupKind]) -> Gate:
        """Closed until the objects of the kinds have been reclaimed."""
        return self._reclaiming.gate(kinds)

    def asking(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def report(self) -> str:
        try:
            return _until_begun(self._by_ranges(await self._leases.read()))
        except ApiError:  # it is not known, which is no reason to have a sharder move what this shard had
            return ""

    @asynccontextmanager
    async def working(
        self, held: HeldShardLease, caches: Mapping[str, Cache], clusters: SharedClusters
    ) -> AsyncIterator[None]:
        """Waits for the end of shards by ranges, and reclaims all objects with the shard's name if necessary; meanwhile
        the gates of controllers are closed.
        """
        self._handovers.cannot_release = held.cannot_release
        async with asyncio.TaskGroup() as tasks:
            working = self._work(held, caches[self._member.objects_in])
            task = tasks.create_task(working, name="label delivery")
            yield
            task.cancel()

    async def _work(self, held: HeldShardLease, cache: Cache) -> None:
        await self._after_ranges(held)
        if held.returning:
            await self._reclaim(held, cache)
        else:
            self._reclaiming.reclaimed(self._member.kinds.keys())
            await self._take_back(cache)

    async def _after_ranges(self, held: HeldShardLease) -> None:
        """Returns when no shard of the ring works by ranges, and one that begins sees that this one does not wait."""
        shard, notices = self._member.shard, Notices()
        while True:
            try:
                leases = await self._leases.read()
            except Forbidden:
                return
            except ApiError as error:
                _log.debug("Cannot list the Leases of the ring", ring=shard.ring, error=error)
            else:
                by_ranges = self._by_ranges(leases)
                if not by_ranges and said_by(leases).get(shard.name) == "":
                    return
                held.works_on(_until_begun(by_ranges))
                if by_ranges and notices.due("waits"):
                    _log.warning(
                        "This shard takes objects by labels, and waits until those that work by ranges have ended",
                        ring=shard.ring,
                        shards=", ".join(by_ranges),
                    )
            await asyncio.sleep(RETRY)

    def _by_ranges(self, leases: Iterable[Lease]) -> list[str]:
        """The shards that this one waits for: a former process of its name has ended once it holds the Lease."""
        said, name = said_by(leases), self._member.shard.name
        return sorted(each for each, text in said.items() if each != name and not takes_by_labels(text))

    async def _take_back(self, cache: Cache) -> None:
        member = self._member
        for kind in member.kinds.values():
            for informer in cache.informers_of(kind):
                self._handovers.losses.follow(informer, member.objects_in)
        home = member.home if member.looks_for_ring else None
        await self._label_restorer.run(home, member.client, cache)

    async def _reclaim(self, held: HeldShardLease, cache: Cache) -> None:
        """Runs if the name had been given up. Until it is done, what leaves may have been taken with good reason."""
        member = self._member
        client = member.objects.with_timeout(member.request_bound).fenced(self.fence(member.objects_in))
        places = member.places(cache)
        self._reclaiming.reclaimed(member.kinds.keys() - {kind.group_kind for kind, _ in places})
        waited_for = await self._reclaiming.reclaim(client, member.shard, places)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._take_back(cache), name="taking back")
            await clear(client, member.shard, waited_for)
            held.objects_reclaimed()
