"""The sharder controller: keeps every object of every ring on the shard that the hash ring names (protocol
4.2, 4.3).

A reconcile of a ring takes a moment: it tells the ring's `lanes`, in which the objects are looked at, and the
watches on unassigned objects what the ring is like now. Beside these run the repairs of single objects. Only in
the leader.

Guaranteed: triggers that arrive during a look lead to one look afterwards, also when a shard left and came
back in between; after a restore of etcd that shards' Leases show, all objects are looked at, since their labels may be
old; one ring's trouble is no other's.

RBAC: get, list, watch on controllerrings and namespaces; list on leases; per ring list, watch, get, patch
on its resources.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Added, Delta, Updated
from kubeshard.controller.context import Context
from kubeshard.controller.controller import Controller
from kubeshard.controller.predicates import generation_changed
from kubeshard.controller.reconciler import Reconciler
from kubeshard.controller.request import Result
from kubeshard.controller.sources import Enqueue
from kubeshard.controller.watch import Watch
from kubeshard.core.builtin import Namespace
from kubeshard.core.objects import Key
from kubeshard.runtime.clock import SYSTEM_CLOCK, Clock
from kubeshard.sharder.lanes import Lanes
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.moves import Mover
from kubeshard.sharder.permissions import Permissions
from kubeshard.sharder.repairs import Repairs
from kubeshard.sharder.resync import Resync
from kubeshard.sharder.schedule import RETRY_FIRST, RETRY_LAST, Reach
from kubeshard.sharder.unassigned import UnassignedWatches
from kubeshard.sharder.views import RingViews
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.classification import RingEntry
from kubeshard.sharding.leases import Change
from kubeshard.workqueue.limits import ItemExponential

NAME = "sharder"


def assignment_controller(assignments: Assignments, sync_period: float) -> Controller[ControllerRing]:
    """The controller. Triggers: new or changed ControllerRings, shards gained or lost, Namespaces whose
    labels change a ring's selection, time.
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


class Assignments(Reconciler[ControllerRing]):
    """Reconciler and event source in one: what the source learns is told to the lanes."""

    def __init__(
        self,
        cache: Cache,
        observer: LeaseObserver,
        views: RingViews,
        lanes: Lanes,
        resync: Resync,
        mover: Mover,
        unassigned: UnassignedWatches,
        repairs: Repairs,
        permissions: Permissions,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._cache = cache
        self._observer = observer
        self._views = views
        self._lanes = lanes
        self._resync = resync
        self._mover = mover
        self._unassigned = unassigned
        self._repairs = repairs
        self._permissions = permissions
        self._clock = clock
        self._generations: dict[str, tuple[str, int]] = {}

    async def reconcile(self, ctx: Context, obj: ControllerRing, /) -> Result | None:
        ring = obj.name
        view = self._views.view(ring)
        if view is None:
            return await self.gone(ctx, ctx.key)
        self._follow(ring, view.resources.entries)
        seen = (obj.metadata.uid, obj.metadata.generation)
        if self._generations.setdefault(ring, seen) != seen:
            self._generations[ring] = seen
            self._lanes.request(ring, Reach.ALL)
        self._lanes.members_changed(ring)
        now = self._clock.monotonic()
        ends = self._observer.book.availability_ends(ring, now)
        return Result(requeue_after=max(ends - now, 0.01)) if ends < math.inf else None

    async def gone(self, ctx: Context, key: Key, /) -> Result | None:
        ring = key.name
        self._follow(ring, ())
        self._generations.pop(ring, None)
        self._repairs.forget(ring)
        self._resync.forget(ring)
        self._views.forget(ring)
        return None

    def _follow(self, ring: str, entries: Sequence[RingEntry]) -> None:
        self._unassigned.follow(ring, entries)
        self._lanes.follow(ring, entries)
        self._permissions.keep(ring, {entry.resource for entry in entries})

    async def run(self, enqueue: Enqueue) -> None:
        """Event source: see `assignment_controller`."""

        def shards_changed(change: Change) -> None:
            if change.rewound:
                for each in self._cache.list(ControllerRing):
                    self._lanes.request(each.name, Reach.ALL)
            if change.availability or change.presence or len(change.rings) > 1:
                for ring in sorted(change.rings):
                    self._lanes.members_changed(ring)
                    enqueue(Key("", ring), "shards changed")  # when its next shard is lost may have changed

        def namespace_changed(delta: Delta[Namespace]) -> None:
            if isinstance(delta, Added):
                self._unassigned.namespace_appeared(delta.object.metadata.name)
            elif isinstance(delta, Updated) and delta.old.metadata.labels != delta.new.metadata.labels:
                for ring in self._cache.list(ControllerRing):
                    before = self._views.selects(ring, delta.old.metadata.labels)
                    now = self._views.selects(ring, delta.new.metadata.labels)
                    if now != before:
                        self._lanes.request(ring.name, Reach.ALL)
                    if now > before:
                        self._unassigned.namespace_selected(ring.name, delta.new.metadata.name)

        def missed(ring: str) -> None:
            self._lanes.request(ring, Reach.MISPLACED)

        namespaces = self._cache.declare(Namespace).add_handler(namespace_changed)
        try:
            with self._observer.subscribed(shards_changed):
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._repairs.run(self._mover))
                    group.create_task(self._unassigned.run(missed))
                    group.create_task(self._lanes.run())
        finally:
            namespaces.remove()
