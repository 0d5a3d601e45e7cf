"""Assigns an object that a watch or a list shows without an available shard: the webhook missed it, it has lost its
shard, or somebody has written the name of a shard that does not exist.

One that has just lost its shard waits (`DelayedAssignments`), in case the shard wants it back; any other is assigned as
soon as the caller's task group has capacity. Controlled objects may be assigned whatever their owners do (`AnyOwner`):
nobody works on them. If a shard cannot be proven dead, its objects are looked at again a moment later. Where the view
of the Leases may be out of date, a scan deals with the object, since it reads them first.
"""

from __future__ import annotations

from functools import partial

from kubeshard.core.kinds import Kind, TypeMeta
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.sharder.bounded_tasks import BoundedTaskGroup
from kubeshard.sharder.moves import Job, Mover, MoveResult
from kubeshard.sharder.resource_sync import AnyOwner, ResourceSync
from kubeshard.sharder.schedule import ScanScope
from kubeshard.sharding.planner import NOT_SELECTED, Action, plan

AGAIN = 5.0
"""Seconds until the objects of a shard are looked at again that may live."""


class LateAssignment:
    """`concurrent_moves`: patches in flight for delayed objects of one sync."""

    def __init__(self, mover: Mover, *, concurrent_moves: int) -> None:
        self._mover = mover
        self._concurrent_moves = concurrent_moves

    async def assign(self, sync: ResourceSync, kind: Kind, meta: ObjectMeta, tasks: BoundedTaskGroup) -> None:
        """Starts the assignment in `tasks`, if the ring wants the object and it has no available shard."""
        if (job := _job(sync, kind, meta)) is not None:
            await tasks.start(self._carry_out(sync, job))

    def delays(self, sync: ResourceSync, kind: Kind, meta: ObjectMeta) -> bool:
        """The object has just changed, or was found without a shard. Returns whether its shard may still want it back:
        then it is assigned later.
        """
        key = Key(meta.namespace, meta.name)
        job = _job(sync, kind, meta) if sync.entry.main else None
        if job is None or not sync.delayed.waits(key, meta):
            sync.delayed.left(key)
            return False
        sync.delayed.put(key, job)
        sync.pending_drains.not_placed(
            job.decision.key
        )  # another sharder may be quicker, and choose another shard
        if not sync.delayed.attended:
            sync.delayed.attended = True
            sync.start(partial(self._assign_delayed, sync), "assignment of what was left")
        return True

    async def _assign_delayed(self, sync: ResourceSync) -> None:
        """Until cancelled."""
        async with BoundedTaskGroup(self._concurrent_moves) as tasks:
            while True:
                job, left = await sync.delayed.next_due()
                await tasks.start(self._mover.check(job) if left else self._carry_out(sync, job))

    async def _carry_out(self, sync: ResourceSync, job: Job) -> None:
        if not sync.ring.fresh:
            sync.missed()  # a scan reads the Leases first
            return
        outcome = await self._mover.carry_out(job)
        if outcome is MoveResult.WAITING and job.decision.action is Action.MOVE:
            sync.request(ScanScope.MISPLACED, sync.ring.clock.monotonic() + AGAIN)


def _job(sync: ResourceSync, kind: Kind, meta: ObjectMeta) -> Job | None:
    ring, entry = sync.ring, sync.entry
    view = ring.view
    if view is None:
        return None
    decision = plan(view, entry, TypeMeta(kind.api_version, kind.kind), meta)
    if decision.reason == NOT_SELECTED and not ring.knows_namespace(meta.namespace):
        sync.skipped_namespaces.add(meta.namespace)
    taken = decision.action is Action.MOVE and decision.source not in view.available
    if decision.action is not Action.ASSIGN and not taken:
        return None
    return Job(sync.of, entry, kind, meta, decision, AnyOwner())
