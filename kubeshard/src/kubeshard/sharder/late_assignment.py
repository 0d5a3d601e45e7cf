"""Assigns an object that a watch or a list shows without an available shard: the webhook missed it, it has lost its
shard, or somebody has written the name of a shard that does not exist.

One that has just lost its shard waits (`DelayedAssignments`), in case the shard wants it back; any other is assigned as
soon as the caller's task group has capacity. Where only one shard is available, nothing waits: no other one can want
the object. Controlled objects may be assigned whatever their owners do (`ANY_OWNER`):
nobody works on them. If a shard cannot be proven dead, its objects are looked at again a moment later. Where the view
of the Leases may be out of date, a scan deals with the object, since it reads them first.
"""

from __future__ import annotations

from functools import partial

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import Kind, TypeMeta
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.sharder.moves import Job, Mover, MoveResult
from kubeshard.sharder.resource_sync import ANY_OWNER, ResourceSync
from kubeshard.sharder.tasks import BoundedTaskGroup
from kubeshard.sharding.planner import NOT_SELECTED, Action, plan
from kubeshard.sharding.scans import ScanScope

AGAIN = 5.0
"""Seconds until the objects of a shard are looked at again that may live."""


class LateAssignment:
    """`concurrent_moves`: patches in flight for delayed objects of one sync."""

    def __init__(self, mover: Mover, *, concurrent_moves: int) -> None:
        self._mover = mover
        self._concurrent_moves = concurrent_moves

    def job(self, sync: ResourceSync, kind: Kind, meta: ObjectMeta) -> Job | None:
        """The assignment, if the ring wants the object and it has no available shard."""
        ring, entry = sync.ring, sync.entry
        view = ring.view
        if view is not None:
            decision = plan(view, entry, TypeMeta(kind.api_version, kind.kind), meta)
            action = decision.action
            if decision.reason == NOT_SELECTED and not ring.knows_namespace(meta.namespace):
                sync.skipped_namespaces.add(meta.namespace)
            taken = action is Action.MOVE and decision.source not in view.available
            if taken or action is Action.ASSIGN or action is Action.LOOK_UP:
                return Job(sync.of, entry, kind, meta, decision, ANY_OWNER, None, view)
        if sync.delayed:
            sync.delayed.left(Key(meta.namespace, meta.name))
        return None

    def delays(self, sync: ResourceSync, job: Job) -> bool:
        """The object has just changed, or was found without a shard. Returns whether its shard may still want it back:
        then it is assigned later.
        """
        view, delayed = job.view, sync.delayed
        assert view is not None
        if not sync.entry.main:
            return False
        key = job.key
        if len(view.available) == 1 or not delayed.waits(key, job.meta):
            delayed.left(key)
            return False
        delayed.put(key, job)
        # Another sharder may be quicker, and choose another shard.
        sync.pending_drains.not_placed(job.decision.key)
        if not delayed.attended:
            delayed.attended = True
            sync.start(partial(self._assign_delayed, sync), "assignment of what was left")
        return True

    async def assign(self, sync: ResourceSync, kind: Kind, meta: ObjectMeta, tasks: BoundedTaskGroup) -> None:
        """Starts the assignment in `tasks`, if there is one."""
        if (job := self.job(sync, kind, meta)) is not None:
            await self.start(sync, job, tasks)

    async def start(self, sync: ResourceSync, job: Job, tasks: BoundedTaskGroup) -> None:
        """Starts the assignment in `tasks`."""
        await tasks.start(self._carry_out(sync, job))

    async def _assign_delayed(self, sync: ResourceSync) -> None:
        """Until cancelled."""
        async with BoundedTaskGroup(self._concurrent_moves) as tasks:
            while True:
                job, left = await sync.delayed.next_due()
                sync.handled.begins(job.key)
                await tasks.start(self._mover.check(job) if left else self._carry_out(sync, job))

    async def _carry_out(self, sync: ResourceSync, job: Job) -> None:
        if not sync.ring.fresh:
            sync.handled.ends(job.key, done=False)
            sync.missed()  # a scan reads the Leases first
            return
        if job.decision.action is Action.LOOK_UP:
            try:
                await sync.ring.look_up(sync.entry, job.meta)
            except ApiError:
                sync.request(ScanScope.MISPLACED, sync.ring.clock.monotonic() + AGAIN)
                return
            again = self.job(sync, job.kind, job.meta)
            if again is None or again.decision.action is Action.LOOK_UP:
                return
            job = again
        outcome = await self._mover.carry_out(job)
        if outcome is MoveResult.WAITING and job.decision.action is Action.MOVE:
            sync.request(ScanScope.MISPLACED, sync.ring.clock.monotonic() + AGAIN)
