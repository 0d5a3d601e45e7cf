"""What the leader keeps for a ring: its resources, each with a schedule of scans, and what the last scans found.

    RingSync        one ring: passes on what concerns several of its resources
    ResourceSync    one resource of it: schedule, objects that wait, and the tasks that work on it

Guaranteed: a controlled object is not moved away from a live shard before the drain of its owner was requested, and
not while that drain is pending. So it waits while its owner is known to be drained, or the drain could not
be requested, or the owner could not be given to a shard, because such a move may take effect late; and until the
owner's resource was read completely, without an error, with the ring's current shards: until then drains are unknown.

A crash costs only the task that it is in, which starts again (`supervised`). Kept in memory: what
`waiting_objects` says.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Any

from kubeshard.core.errors import Forbidden
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.namespaces import AllNamespaces
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.runtime.loop import set_within
from kubeshard.runtime.notices import Notices
from kubeshard.sharder.rings import Ring
from kubeshard.sharder.tasks import supervised
from kubeshard.sharder.waiting_objects import (
    DelayedAssignments,
    HandledObjects,
    PendingDrains,
    SkippedNamespaces,
    WaitingObjects,
)
from kubeshard.sharding.conditions import ASSIGNMENT_STUCK_AFTER, DRAIN_STUCK_AFTER
from kubeshard.sharding.keys import kind_of_key
from kubeshard.sharding.planner import Action, Decision
from kubeshard.sharding.refusals import Refusals, grouped
from kubeshard.sharding.ring_resources import RingEntry
from kubeshard.sharding.scans import FOLLOW, FOLLOW_MAIN, ScanPriority, ScanScope, Schedule

LOGGED_EVERY, UNTIL_EXPLAINED = 600.0, 60.0
TOLD_TOGETHER = 1.0
"""Seconds for which news of refusals are collected."""


class RingSync:
    """See the module."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.resources: dict[GroupResource, ResourceSync] = {}
        self._failures = Notices(ring.clock, every=LOGGED_EVERY)
        self._telling = False
        """Whether `tell_waiting` will be called in a moment."""

    def ring_changed(self) -> None:
        """The ring has another spec: syncs of resources that it no longer lists end."""
        self.request(ScanScope.ALL)
        for sync in list(self.resources.values()):
            if sync.entry not in self.ring.resources.entries:
                sync.close()
        self.tell_waiting()  # without what has left: there may be no other scan

    def namespace_changed(self, name: str) -> None:
        """The namespace appeared, was deleted, or has other labels."""
        if name in self.ring.named:
            for sync in self.resources.values():
                sync.notify()

    def members_changed(self) -> None:
        """The available shards may have changed. Call it immediately, even if a shard returns soon: a running
        scan may have seen the ring without it.
        """
        now, available = self.ring.clock.monotonic(), self.ring.available
        for sync in self.resources.values():
            sync.schedule.members(available, now)
            sync.notify()

    def request(self, scope: ScanScope) -> None:
        """Something asks for a scan of all resources."""
        for sync in self.resources.values():
            sync.request(scope, self.ring.clock.monotonic())

    def drained(self, resource: GroupResource, decision: Decision) -> None:
        """The drain of a main object was requested: schedules scans for it and for the objects that it may control."""
        now = self.ring.clock.monotonic()
        for sync in self.resources.values():
            if sync.entry.resource == resource:
                sync.pending_drains.draining(decision.key)
            elif resource not in sync.entry.owners:
                continue
            sync.schedule.follow(now)
            sync.notify()

    def released(self, resource: GroupResource) -> None:
        """Drains of main objects have ended: the objects that they control may follow them."""
        for sync in self.resources.values():
            if resource in sync.entry.owners:
                sync.request(ScanScope.CONTROLLED, self.ring.clock.monotonic())

    def refused(self, resource: GroupResource, decision: Decision) -> None:
        """A write was rejected, or it is not known whether it takes effect."""
        if (sync := self.resources.get(resource)) is None or not sync.entry.main:
            return
        if decision.action is Action.DRAIN:
            sync.pending_drains.refused(decision.key)
        else:
            sync.pending_drains.not_placed(decision.key)

    def failed(self, resource: GroupResource, meta: ObjectMeta, decision: Decision, error: Exception) -> None:
        """A write of an object was rejected, for this reason; it is tried again."""
        self.refused(resource, decision)
        if (sync := self.resources.get(resource)) is not None:
            drain, now = decision.action is Action.DRAIN, self.ring.clock.monotonic()
            if sync.refusals.refused(meta, error, now, drain=drain):
                self._tell_soon(sync)

    def ended(self, resource: GroupResource, key: Key) -> None:
        """Nothing is left to try again for an object."""
        if (sync := self.resources.get(resource)) is not None and sync.refusals.ended(key):
            self._tell_soon(sync)

    def _tell_soon(self, sync: ResourceSync) -> None:
        """There may be news of many objects: they are told together."""

        async def tell() -> None:
            try:
                await asyncio.sleep(TOLD_TOGETHER)
                self.tell_waiting()
            finally:
                self._telling = False

        if not self._telling:
            self._telling = True
            sync.start(tell, "report of refusals")

    def placed(self, resource: GroupResource, decision: Decision) -> None:
        """An object is on the shard that it was to be given to."""
        if (sync := self.resources.get(resource)) is not None:
            sync.pending_drains.placed(decision.key)

    def handled(self, resource: GroupResource) -> HandledObjects:
        """Which of the objects jobs deal with."""
        sync = self.resources.get(resource)
        return HandledObjects(self.ring.clock) if sync is None else sync.handled

    def to_log(self, resource: GroupResource, verb: str, error: Exception) -> int | None:
        """Whether a failed request should be logged: None if not, else the number of failures that were not logged
        since the last one. These last until someone fixes the cause, so each kind of failure is logged at once and
        then every ten minutes. A request without permission for the resource is not: the ring's report says which rule
        to grant. Another forbidden one, for example by a policy, is logged after a minute, unless the report shows it
        by then.
        """
        if self.ring.report.missing_verbs.get(resource):
            return None
        after = UNTIL_EXPLAINED if isinstance(error, Forbidden) else 0.0
        return self._failures.held_back((resource, verb, type(error).__name__), after=after)

    def tell_waiting(self) -> None:
        """Tells which objects wait, as of the last scan of each resource and the API server's last answers, for how
        long, and why.
        """
        ring, syncs = self.ring, self.resources.values()
        ring.metrics.oldest_drain(max((each.drains.oldest for each in syncs), default=0.0))
        ring.metrics.oldest_unassigned(max((each.unassigned.oldest for each in syncs), default=0.0))
        lost = {each.whom for sync in syncs for each in sync.unassigned} - {""}
        # Once for each shard: it looks at all Leases.
        awaited = {shard for shard in sorted(lost) if not ring.has_ended(shard)}
        unconfirmed = [
            (each.whom, sync.spoken(each.key))
            for sync in syncs
            for each in sync.unassigned
            if each.whom in awaited
        ]
        waiting = {name for _, name in unconfirmed}
        stuck = {
            sync.spoken(each.key): sync.refusals.why(each.key)
            for sync in syncs
            for each in sync.unassigned.older_than(ASSIGNMENT_STUCK_AFTER)
        }
        undrained: dict[str, str] = {}
        for sync in syncs:
            if ring.report.missing_verbs.get(sync.entry.resource, {}).keys() & {"get", "patch"}:
                continue  # which the report explains
            for key, refusal in sync.refusals.lasting():
                (undrained if refusal.drain else stuck)[sync.spoken(key)] = refusal.reason
        unassigned = grouped((why, name) for name, why in stuck.items() if name not in waiting)
        drains = [
            (each.whom, sync.spoken(each.key))
            for sync in syncs
            for each in sync.drains.older_than(DRAIN_STUCK_AFTER)
        ]
        ring.metrics.unconfirmed(len(unconfirmed))
        refused = grouped((why, name) for name, why in undrained.items())
        ring.report.waiting(grouped(drains), unassigned, grouped(unconfirmed), refused)
        ring.evictions.overdue(
            ((sync.entry.resource, each.uid), each.whom, sync.drains.read_at)
            for sync in syncs
            for each in sync.drains.older_than(ring.evictions.timeout)
        )

    def stop(self) -> None:
        """The ring was deleted, or this process lost leadership."""
        for sync in list(self.resources.values()):
            sync.close()


class ResourceSync:
    """One resource of a ring, while this process leads: the schedule of scans of its objects, and their in-memory
    state. Its tasks run in `group`.
    """

    def __init__(
        self, of: RingSync, entry: RingEntry, sync_period: float, group: asyncio.TaskGroup | None = None
    ) -> None:
        self.of = of
        self.ring = ring = of.ring
        self.entry = entry
        self.schedule = Schedule(sync_period, FOLLOW_MAIN if entry.main else FOLLOW)
        self.open = True
        """Whether the ring still has the resource."""
        self.kind: Kind | None = None
        """The kind of its objects, as of the last scan; None if none has found it."""
        self.pending_drains = PendingDrains()
        """Drains of a main resource, for the objects that it controls."""
        self.drains = WaitingObjects()
        """Objects that are being drained."""
        self.refusals = Refusals()
        self.unassigned = WaitingObjects()
        """Objects without an available shard."""
        self.asked: dict[str, float] = {}
        """When the server was asked whether a verb is allowed."""
        self.skipped_namespaces = SkippedNamespaces()
        """Namespaces of objects seen before the namespace itself: it was unknown whether the ring selects them."""
        self.delayed: DelayedAssignments[Any] = DelayedAssignments(ring.clock)
        self.handled = HandledObjects(ring.clock)
        self._not_sharded: Mapping[str | AllNamespaces, Mapping[str, int]] = {}
        """How many objects the ring does not shard, by the namespaces that were listed, and why."""
        self.narrow = False
        """Whether a scan did not see objects in namespaces that were not known."""
        self._group = group
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.began: dict[ScanPriority, float] = {}
        """When the scan of each priority began that is under way."""
        self._ended = dict.fromkeys(ScanPriority, 0)
        self._changed = asyncio.Event()
        of.resources[entry.resource] = self

    def __str__(self) -> str:
        return f"{self.entry.resource} of {self.ring}"

    def has_kind_of(self, key: str) -> bool:
        """Whether an object with this key is known to be one of its objects."""
        return self.kind is not None and self.kind.group_kind == kind_of_key(key)

    def spoken(self, key: Key) -> str:
        """An object of it in a text."""
        return f"{self.entry.resource.resource} {key}"

    def start(self, work: Callable[[], Awaitable[None]], what: str) -> None:
        """Starts a task that ends with the sync. A crash costs only this work, which starts again (`supervised`)."""
        if not self.open or self._group is None:
            return
        ring, resource = self.ring, self.entry.resource
        going = supervised(
            work,
            what,
            crashed=lambda: ring.metrics.crashed(resource, what),
            clock=ring.clock,
            ring=ring.name,
            resource=resource,
        )
        task = self._group.create_task(going, name=f"{what} of {self}")
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))

    def close(self) -> None:
        """The ring no longer has the resource, or this process does not lead any more."""
        self.open = False
        self.of.resources.pop(self.entry.resource, None)
        # The ring may have it in another role now, and be unable to read it.
        self.ring.metrics.pending(self.entry.resource, 0)
        self.ring.metrics.unassigned(self.entry.resource, 0)
        self.tell_not_sharded({}, ())
        self.notify()
        for task in tuple(self._tasks):
            task.cancel()

    def tell_not_sharded(
        self, listed: Mapping[str | AllNamespaces, Mapping[str, int]], unread: Container[str | AllNamespaces]
    ) -> None:
        """How many objects the ring does not shard, in the namespaces that were listed; those that could not be read
        have as many as before.
        """
        before = {place: counts for place, counts in self._not_sharded.items() if place in unread}
        self._not_sharded = {**before, **listed}
        total = Counter[str]()
        for counts in self._not_sharded.values():
            total.update(counts)
        self.ring.metrics.not_sharded(self.entry.resource, total)

    def request(self, scope: ScanScope, now: float) -> None:
        """Requests a scan."""
        self.schedule.request(scope, now)
        self.notify()

    def missed(self) -> None:
        """Objects without an available shard may have been missed: requests a scan of them, if none is about to."""
        if not self.scans_all_soon:
            self.request(ScanScope.MISPLACED, self.ring.clock.monotonic())

    @property
    def scans_all_soon(self) -> bool:
        """Whether a scan of all objects of a main resource is about to start. Those of controlled ones may have to wait
        for their owners'.
        """
        due = self.schedule.due(ScanPriority.NORMAL, self.ring.clock.monotonic())
        return (
            self.entry.main
            and due is not None
            and due.scope is ScanScope.ALL
            and ScanPriority.NORMAL not in self.began
        )

    def notify(self) -> None:
        """Something has changed: wakes tasks that wait for this sync."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self, within: float | None = None) -> None:
        """Waits for `notify`, so many seconds at most."""
        await set_within(self._changed, within)

    def end(self, priority: ScanPriority) -> None:
        """The scan of this priority that was under way has ended."""
        self.began.pop(priority, None)
        self._ended[priority] += 1
        self.notify()

    def due_soon(self, priority: ScanPriority, now: float) -> bool:
        """Whether a scan of the priority is running, or about to start."""
        return self.open and (priority in self.began or self.schedule.due(priority, now) is not None)

    async def scan_ended(self, priority: ScanPriority) -> None:
        """Waits for the end of a scan that is running or about to start, if any."""
        ended = self._ended[priority]
        while self._ended[priority] == ended and self.due_soon(priority, self.ring.clock.monotonic()):
            await self.changed()

    @property
    def draining_owners(self) -> Container[str]:
        """The keys of owners that objects of this resource have to wait for, always current: the `draining` of
        `plan`.
        """
        return _DrainingOwners(self)

    @property
    def owner_drains(self) -> int:
        """How many owners of objects of this resource are being drained, or could not be drained. Their shards
        may create more objects until they release them.
        """
        return sum(len(owner.pending_drains) for owner in self.owners)

    @property
    def owners(self) -> list[ResourceSync]:
        """The main resources that list this one as controlled."""
        return [self.of.resources[each] for each in sorted(self.entry.owners) if each in self.of.resources]

    @property
    def controlled(self) -> list[ResourceSync]:
        """The resources that this one, a main resource, lists as controlled."""
        return [each for each in self.of.resources.values() if self.entry.resource in each.entry.owners]


class _AnyOwner:
    def __contains__(self, key: object) -> bool:
        return True


ANY_OWNER = _AnyOwner()
"""The draining owners for decisions outside of a scan: any owner may be about to be drained."""


class _DrainingOwners:
    def __init__(self, sync: ResourceSync) -> None:
        self._sync = sync

    def __contains__(self, key: object) -> bool:
        view, syncs, owner_key = self._sync.ring.view, self._sync.of.resources, str(key)
        if view is None:
            return True
        owners = [syncs.get(owner) for owner in self._sync.entry.owners]
        # The others, which it may not be possible to read, do not have the object. Without any it may be one of theirs.
        its = [owner for owner in owners if owner is not None and owner.has_kind_of(owner_key)]
        return any(
            owner is None or owner.pending_drains.unsure(owner_key, view.hashring) for owner in its or owners
        )
