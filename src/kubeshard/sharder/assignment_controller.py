"""The sharder controller: keeps every object of every ring on the shard that the hash ring names (protocol
4.2, 4.3).

A reconcile of a ring asks its `Schedule` what is due, has `Resync` do it, and sleeps until something else
is. Beside it run the watch on unassigned objects and the repairs of single objects. Only in the leader.

Guaranteed: triggers that arrive during a pass lead to one pass afterwards, also when a shard left and came
back in between; one ring's trouble is no other's.

RBAC: get, list, watch on controllerrings and namespaces; list on leases; per ring list, watch, get, patch
on its resources.
"""

from __future__ import annotations

import asyncio

from kubeshard.cache import Cache
from kubeshard.cache.deltas import Added, Delta, Updated
from kubeshard.controller import Context, Controller, Enqueue, Reconciler, Result, Watch
from kubeshard.controller.predicates import generation_changed
from kubeshard.core.builtin import Namespace
from kubeshard.core.objects import Key
from kubeshard.runtime.clock import SYSTEM_CLOCK, Clock
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.moves import Mover
from kubeshard.sharder.repairs import Repairs
from kubeshard.sharder.resync import Resync
from kubeshard.sharder.schedule import Reach, Schedule
from kubeshard.sharder.unassigned import UnassignedWatches
from kubeshard.sharder.views import RingViews
from kubeshard.sharding import Change, ControllerRing
from kubeshard.workqueue import ItemExponential

NAME = "sharder"
PASS_TIMEOUT = 6 * 3600.0


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
        limiter=ItemExponential(min(5.0, sync_period), sync_period, jitter=0.0),
        reconcile_timeout=PASS_TIMEOUT,
    )


class Assignments(Reconciler[ControllerRing]):
    """Reconciler and event source in one: what the source learns is noted in the schedules that the
    reconciler asks.
    """

    def __init__(
        self,
        cache: Cache,
        observer: LeaseObserver,
        views: RingViews,
        resync: Resync,
        mover: Mover,
        unassigned: UnassignedWatches,
        repairs: Repairs,
        *,
        sync_period: float,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._cache = cache
        self._observer = observer
        self._views = views
        self._resync = resync
        self._mover = mover
        self._unassigned = unassigned
        self._repairs = repairs
        self._sync_period = sync_period
        self._clock = clock
        self._schedules: dict[str, Schedule] = {}
        self._generations: dict[str, tuple[str, int]] = {}

    async def reconcile(self, ctx: Context, obj: ControllerRing, /) -> Result | None:
        ring = obj.name
        schedule = self._schedule(ring)
        self._note_generation(obj, schedule)
        view = self._views.view(ring)
        if view is None:
            return await self.gone(ctx, ctx.key)
        self._unassigned.follow(ring, view.resources.entries)
        while True:
            if not self._views.fresh():
                await self._observer.relist()
            now = self._clock.monotonic()
            schedule.members(self._views.available(ring), now)
            work = schedule.due(now)
            if work is None:
                ends = self._observer.book.availability_ends(ring, now)
                return Result(requeue_after=max(min(schedule.wait(now), ends - now), 0.01))
            ctx.log.debug("looking at the objects of the ring", reach=work.reach.name, reason=work.reason)
            outcome = await self._resync.run(ring, work)
            done = self._clock.monotonic()
            schedule.done(work, outcome, now, done)
            ctx.log.info(
                "looked at the objects of the ring",
                reach=work.reach.name.lower(),
                reason=work.reason,
                waiting=outcome.waiting,
                seconds=done - now,
            )

    async def gone(self, ctx: Context, key: Key, /) -> Result | None:
        ring = key.name
        self._schedules.pop(ring, None)
        self._generations.pop(ring, None)
        self._unassigned.follow(ring, ())
        self._repairs.forget(ring)
        self._resync.forget(ring)
        self._views.forget(ring)
        return None

    async def run(self, enqueue: Enqueue) -> None:
        """Event source: see `assignment_controller`. A new leader begins with a complete look at
        everything.
        """
        self._schedules.clear()

        def shards_changed(change: Change) -> None:
            if change.availability or change.presence or len(change.rings) > 1:
                for ring in change.rings:
                    # Now, for a shard that goes and is back before the pass under way ends.
                    if (schedule := self._schedules.get(ring)) is not None:
                        schedule.members(self._views.available(ring), self._clock.monotonic())
                    enqueue(Key("", ring), "shards changed")

        def namespace_changed(delta: Delta[Namespace]) -> None:
            if isinstance(delta, Added):
                self._unassigned.namespace_appeared(delta.object.metadata.name)
            elif isinstance(delta, Updated) and delta.old.metadata.labels != delta.new.metadata.labels:
                for ring in self._cache.list(ControllerRing):
                    before = self._views.selects(ring, delta.old.metadata.labels)
                    now = self._views.selects(ring, delta.new.metadata.labels)
                    if now != before:
                        ask(ring.name, Reach.ALL, "namespaces changed")
                    if now > before:
                        self._unassigned.namespace_selected(ring.name, delta.new.metadata.name)

        def ask(ring: str, reach: Reach, reason: str) -> None:
            self._schedule(ring).request(reach, self._clock.monotonic())
            enqueue(Key("", ring), reason)

        namespaces = self._cache.declare(Namespace).add_handler(namespace_changed)
        try:
            with self._observer.subscribed(shards_changed):
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._repairs.run(self._mover))
                    group.create_task(
                        self._unassigned.run(lambda ring: ask(ring, Reach.MISPLACED, "watch opened"))
                    )
        finally:
            namespaces.remove()

    def _schedule(self, ring: str) -> Schedule:
        return self._schedules.setdefault(ring, Schedule(self._sync_period))

    def _note_generation(self, ring: ControllerRing, schedule: Schedule) -> None:
        seen = (ring.metadata.uid, ring.metadata.generation)
        if self._generations.get(ring.name, seen) != seen:
            schedule.request(Reach.ALL, self._clock.monotonic())
        self._generations[ring.name] = seen
