"""The sharder controller: keeps every object of every ring on the shard that the hash ring names.

A reconcile of a ring is short: it opens `syncs` for new resources of the ring, in which objects are listed,
watched and retried. Runs only in the leader.

Guaranteed: triggers that arrive during a scan lead to one scan afterwards, even if a shard left and
returned in between; after a restore of etcd that is visible in the Leases, all objects are scanned, because their
labels may be old; failures of one ring do not affect another.

RBAC: get, list, watch on controllerrings and namespaces; list on leases; per ring list, watch, get, patch
on its resources.
"""

from __future__ import annotations

import asyncio
import math

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Added, Delta, Updated
from kubeshard.client.client import Client
from kubeshard.controller.context import Context
from kubeshard.controller.controller import Controller
from kubeshard.controller.reconciler import Reconciler, Result
from kubeshard.controller.sources import Enqueue
from kubeshard.controller.watch import Watch
from kubeshard.controller.when import generation_changed
from kubeshard.core.builtin import Namespace
from kubeshard.core.objects import Key
from kubeshard.runtime.clock import Clock
from kubeshard.sharder.config import SharderControllerConfig
from kubeshard.sharder.dead_shards import DeadShards
from kubeshard.sharder.kinds import ResourceKinds
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.moves import Mover
from kubeshard.sharder.permissions import Permissions
from kubeshard.sharder.resource_syncs import ResourceSyncs
from kubeshard.sharder.ring import Ring
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.scanner import Scanner
from kubeshard.sharder.schedule import RETRY_FIRST, RETRY_LAST, ScanScope
from kubeshard.sharder.unassigned import UnassignedWatches
from kubeshard.sharder.webhook_probe import WebhookProbe
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.leases import ShardChange
from kubeshard.workqueue.limits import ItemExponential

NAME = "sharder"


def assignment_controller(assignments: Assignments, sync_period: float) -> Controller[ControllerRing]:
    """The controller. Triggers: new or changed ControllerRings, shards gained or lost, Namespaces with
    changed labels that affect a ring's selection, time.
    """
    return Controller(
        name=NAME,
        reconciler=assignments,
        primary=Watch(ControllerRing, when=generation_changed),
        sources=[assignments],
        workers=5,
        limiter=lambda world: ItemExponential(
            min(RETRY_FIRST, sync_period), min(RETRY_LAST, sync_period), jitter=0.2, rng=world.rng
        ),
    )


def assignments(
    rings: Rings,
    observer: LeaseObserver,
    kinds: ResourceKinds,
    client: Client,
    cache: Cache,
    config: SharderControllerConfig,
    leases: Client | None = None,
    *,
    webhook: bool = False,
) -> Assignments:
    """What a leader needs for one term. `client` writes only while this process leads, and `cache` has the Namespaces:
    both for the cluster with the objects. `leases`: for the cluster with the Leases, if it is another one. `webhook`:
    whether rings have a webhook that assigns their objects.
    """
    clock, rng, moves = client.world.clock, client.world.rng, config.concurrent_moves
    permissions = Permissions(client, clock)
    mover = Mover(
        client,
        dead=DeadShards(leases or client, observer, clock).proven,
        late=WebhookProbe(client).late if webhook else None,
        clock=clock,
        rng=rng,
    )
    resync = Scanner(client, kinds, mover, permissions, concurrent_moves=moves, clock=clock)
    unassigned = UnassignedWatches(
        client, kinds, mover, permissions, rings, concurrent_moves=moves, clock=clock, rng=rng
    )
    period = config.sync_period
    syncs = ResourceSyncs(
        rings, observer, resync, unassigned, mover, sync_period=period, clock=clock, rng=rng
    )
    return Assignments(rings, observer, syncs, unassigned, cache, clock)


class Assignments(Reconciler[ControllerRing]):
    """Both the reconciler and the event source, which passes events on to the syncs."""

    def __init__(
        self,
        rings: Rings,
        observer: LeaseObserver,
        syncs: ResourceSyncs,
        unassigned: UnassignedWatches,
        cache: Cache,
        clock: Clock,
    ) -> None:
        self._rings = rings
        self._observer = observer
        self._syncs = syncs
        self._unassigned = unassigned
        self._cache = cache
        self._clock = clock

    async def reconcile(self, ctx: Context, obj: ControllerRing, /) -> Result | None:
        if (ring := self._rings.get(obj.name)) is None:
            return None  # not known yet, or deleted
        wait = self.tend(ring)
        await asyncio.sleep(0)  # nothing else here waits, and there may be a thousand rings to reconcile
        return Result(requeue_after=wait) if wait < math.inf else None

    def tend(self, ring: Ring) -> float:
        """Applies the current state of the ring. Returns the seconds until it may lose its next shard without an
        event; infinite if there is none to lose.
        """
        self._syncs.follow(ring)
        ring.members_changed()
        now = self._clock.monotonic()
        return max(self._observer.book.availability_ends(ring.name, now) - now, 0.01)

    async def run(self, enqueue: Enqueue) -> None:
        """The event source: see `assignment_controller`."""

        def shards_changed(change: ShardChange) -> None:
            if change.rewound:
                self._syncs.scan_everything()
            if change.availability or change.presence or len(change.rings) > 1:
                for name in sorted(change.rings):
                    if (known := self._rings.get(name)) is not None:
                        known.members_changed()
                        if change.after is None or not change.after.available:
                            # A shard that was not available any more, but might have lived, may be dead now.
                            known.request(ScanScope.MISPLACED)
                        enqueue(
                            Key("", name), "shards changed"
                        )  # when its next shard is lost may have changed

        def namespace_changed(delta: Delta[Namespace]) -> None:
            if isinstance(delta, Added):
                self._unassigned.namespace_appeared(delta.object.metadata.name)
            elif isinstance(delta, Updated) and delta.old.metadata.labels != delta.new.metadata.labels:
                for ring in self._rings.perhaps_selecting(
                    delta.old.metadata.labels, delta.new.metadata.labels
                ):
                    before, now = (ring.selects(seen.metadata.labels) for seen in (delta.old, delta.new))
                    if now != before:
                        ring.request(ScanScope.ALL)
                    if now > before:
                        for sync in ring.syncs.values():
                            self._unassigned.scan_namespace(sync, delta.new.metadata.name)

        namespaces = self._cache.declare(Namespace).add_handler(namespace_changed)
        try:
            with self._observer.subscribed(shards_changed):
                await self._syncs.run()
        finally:
            namespaces.remove()
