"""Writes single objects for `ring_machine`, which decides: one compare-and-swap patch per object.

Guaranteed: a write is checked just before each request, and there is no wait between the two: this module waits for
its turn, and backs off from a server that throttles, before it asks for a proof or an owner, and the machine decides
again.

Rings that share a resource write the same objects. Each write of one ring makes outdated what the jobs of the others
have read; if all wrote at once, all but one would be refused, read again, and meet again: requests would grow with the
square of the rings. So in this process one write of an object is under way at a time, in the order of the jobs
(`ObjectLocks`). Who holds the lock sees the newest state that any waiting job has read, or a write has returned. It is
held for one request, and for another one to read the object if it had changed: not for a whole job, which may wait for
a throttling server or for a proof. Memory: only objects that are written right now. Not guaranteed: anything about
other processes; every write is a compare-and-swap.

RBAC: patch, and get or list, on every main and controlled resource of the ring.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Hashable

from kubeshard.client.client import Client
from kubeshard.client.retry import RetryPolicy
from kubeshard.core.errors import ApiError, Conflict, NotOurs, PatchTestFailed, Throttled
from kubeshard.core.objects import ObjectMeta, metadata_only
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.rng import Rng
from kubeshard.sharder.kinds_and_rights import ResourceKinds
from kubeshard.sharder.lease_observer import DeadShardProofs
from kubeshard.sharder.owners import OwnerReads, read_metadata
from kubeshard.sharding.planner import Action
from kubeshard.sharding.proofs import Proof
from kubeshard.sharding.ring_machine import (
    BACK_OFFS,
    AskOwner,
    BackOff,
    Changed,
    DryRun,
    Job,
    Known,
    LookUp,
    Outdated,
    ProveDead,
    Read,
    Step,
    Tell,
    Write,
)


class ObjectLock:
    """The lock of one object."""

    __slots__ = ("_queue", "_waiting", "known")

    def __init__(self, known: Known) -> None:
        self.known = known
        """The newest state. Set it after each write and each read under the lock: after a restore it may be older."""
        self._queue: deque[tuple[Hashable, asyncio.Future[None]]] | None = None  # most objects never have one
        self._waiting: set[Hashable] | None = None

    @property
    def awaited(self) -> bool:
        """Whether another job waits for it."""
        return bool(self._queue)

    def waits(self, who: Hashable) -> bool:
        """Whether such a job waits for it. It will go on from what is `known` then: another one is needless."""
        return self._waiting is not None and who in self._waiting

    def learn(self, known: Known) -> None:
        """A job has read this state."""
        if known.newer_than(self.known.meta):
            self.known = known

    def _enter(self, who: Hashable) -> asyncio.Future[None]:
        """The future is done when the lock is held."""
        if self._queue is None or self._waiting is None:
            self._queue, self._waiting = deque(), set()
        future = asyncio.get_running_loop().create_future()
        self._queue.append((who, future))
        self._waiting.add(who)
        return future

    def _pass_on(self) -> bool:
        """Whether there is a next one, which holds the lock now."""
        while self._queue and self._waiting is not None:
            who, future = self._queue.popleft()
            self._waiting.discard(who)
            if not future.done():  # else it was cancelled
                future.set_result(None)
                return True
        return False


class ObjectLocks:
    """The locks at all objects. `place` is an object, `who` a ring and what else distinguishes its jobs.

    Most objects are written by one job at a time. For that one there is no `ObjectLock`, only what it has read; the
    next one that comes makes the lock.
    """

    def __init__(self) -> None:
        self._alone: dict[Hashable, tuple[ObjectMeta, float]] = {}
        self.contended: dict[Hashable, ObjectLock] = {}
        """The locks of objects that are being written, and for which another job has come."""

    def take(self, place: Hashable, meta: ObjectMeta, read: float) -> bool:
        """Takes the lock, if nobody has it; returns whether it did. The job has read this state then."""
        if place in self._alone or place in self.contended:
            return False
        self._alone[place] = meta, read
        return True

    async def wait(self, place: Hashable, who: Hashable, known: Known) -> ObjectLock:
        """Takes the lock when those before have left. `known`: the state that the job has read."""
        lock = self.contended.get(place)
        if lock is None:
            alone = self._alone.pop(place, None)
            lock = self.contended[place] = ObjectLock(Known(*alone) if alone is not None else known)
            if alone is None:
                return lock
        lock.learn(known)
        future = lock._enter(who)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():  # it held the lock
                self.leave(place)
            raise
        return lock

    def leave(self, place: Hashable) -> None:
        """Gives the lock to the next one."""
        if self._alone.pop(place, None) is None and not self.contended[place]._pass_on():
            del self.contended[place]


PATCH_TIMEOUT = 5.0
"""Timeout of one patch in seconds, in the client and in the server."""

THROTTLING = RetryPolicy(tries=BACK_OFFS, longest=10.0)
"""Back-off from a throttling server while other jobs wait for a slot; after it the object is left to `Retries`."""

DRY_RUNS = 4
"""At the same time: a webhook that does not respond keeps each of them waiting for its timeout."""

_log = get_logger("kubeshard.sharder")


class Mover:
    """Carries out what machines ask for about single objects."""

    def __init__(
        self, client: Client, kinds: ResourceKinds, proofs: DeadShardProofs, *, clock: Clock, rng: Rng
    ) -> None:
        self._client = client
        self._writes = client.impatient().with_timeout(PATCH_TIMEOUT)
        self._proofs = proofs
        self._owners = OwnerReads(client, kinds)
        self._clock = clock
        self._rng = rng
        self._locks = ObjectLocks()
        self._dry_runs = asyncio.Semaphore(DRY_RUNS)

    def do(self, step: Step) -> Awaitable[object]:
        """One step of `carried_out`, with its outcome."""
        match step:
            case Write():
                return self._write(step)
            case ProveDead(job):
                return self._prove(job)
            case AskOwner(job):
                return self._ask_owner(job)
            case Read(job):
                return self._read(job)
            case LookUp(job):
                return job.sync.ring.look_up(job.entry, job.meta)
            case DryRun(job, patch):
                return self._dry_run(job, patch)
            case BackOff(times, error):
                return self._back_off(times, error)
            case Tell():
                return _tell(step)

    async def _prove(self, job: Job) -> Proof | None:
        assert job.read is not None
        await self._writes.turn()
        return await self._proofs.proven(job.sync.ring, job.decision.source, job.read)

    async def _ask_owner(self, job: Job) -> str | None:
        assert job.view is not None
        await self._writes.turn()
        label = job.view.shard_label
        return await self._owners.shard(job.entry.owners, job.meta, job.decision.key, label)

    async def _dry_run(self, job: Job, patch: MergePatch) -> ObjectMeta:
        form, (namespace, name) = metadata_only(job.kind), job.key
        async with self._dry_runs:
            return (await self._client.patch(form, name, namespace, patch, dry_run=True)).metadata

    async def _back_off(self, times: int, error: Throttled) -> bool:
        if (pause := THROTTLING.pause(times, error.retry_after, self._rng)) is not None:
            await asyncio.sleep(pause)
        return pause is not None

    async def _read(self, job: Job) -> Known:
        return Known(await read_metadata(self._client, job.kind, job.key), self._clock.monotonic())

    async def _write(self, write: Write) -> ObjectMeta | Changed | None:
        """Sends the patch while the object is locked, for the newest state if that leads to the same decision."""
        job, locks = write.job, self._locks
        place = job.place
        if locks.contended and (lock := locks.contended.get(place)) is not None and lock.waits(job.who):
            lock.learn(job.known)
            return None
        if not write.at_once:
            await self._writes.turn()
        assert job.read is not None
        if locks.take(place, job.meta, job.read):
            lock = None
        else:
            lock = await locks.wait(place, job.who, job.known)
        try:
            if lock is not None and lock.known.newer_than(job.meta):
                if (newer := write.of(lock.known)) is None:
                    return Changed(lock.known)
                write, job = newer, newer.job
            form, name, namespace = metadata_only(job.kind), job.meta.name, job.meta.namespace
            patch = write.patch(job)
            try:
                answer = await self._writes.checked(write.check).patch(form, name, namespace, patch)
            except Outdated:
                return Changed()
            except NotOurs:
                raise
            except (Conflict, PatchTestFailed) as conflict:
                known = await self._read(job)
                if (lock := locks.contended.get(place)) is not None:
                    lock.known = known
                return Changed(known, conflict)
            if (lock := locks.contended.get(place)) is not None and lock.awaited:
                lock.known = Known(answer.metadata, self._clock.monotonic())
            return answer.metadata
        finally:
            locks.leave(place)


async def _tell(refusal: Tell) -> None:
    job, error, before = refusal
    resource = job.entry.resource
    fields = {"ring": job.sync.ring.name, **({"failures_before": before} if before else {})}
    if before is not None and not isinstance(error, ApiError):
        where = {"resource": resource, "object": str(job.key)}
        _log.crash("Moving an object crashed; it is tried again", error, **where, **fields)
    else:
        verb = "draining" if job.decision.action is Action.DRAIN else "moving"
        tell = _log.debug if before is None else _log.warning
        tell(f'error {verb} {resource} "{job.key}"', error=error, **fields)
