"""Writes single objects for `object_job`, which decides: one compare-and-swap patch per object.

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
from kubeshard.sharding.object_job import (
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
from kubeshard.sharding.planner import Action
from kubeshard.sharding.proofs import DeathProof


class ObjectLocks:
    """The locks at all objects that are being written."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self.known: dict[Hashable, Known] = {}
        """The newest state of each locked object. Set it after each write and each read under the lock: after a restore
        it may be older.
        """

    def awaited(self, place: Hashable) -> bool:
        """Whether another job waits for the lock."""
        return bool(self._waiting[place])

    async def enter(self, place: Hashable, known: Known) -> None:
        """Takes the lock when those before have left. `known`: the state that the job has read."""
        if (waiting := self._waiting.get(place)) is None:
            self._waiting[place], self.known[place] = deque(), known
            return
        if known.newer_than(self.known[place].meta):
            self.known[place] = known
        future = asyncio.get_running_loop().create_future()
        waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():  # it held the lock
                self.leave(place)
            raise

    def leave(self, place: Hashable) -> None:
        """Gives the lock to the next one."""
        waiting = self._waiting[place]
        while waiting:
            future = waiting.popleft()
            if not future.done():  # else it was cancelled
                future.set_result(None)
                return
        del self._waiting[place], self.known[place]


PATCH_TIMEOUT = 5.0
"""Timeout of one patch in seconds, in the client and in the server."""

THROTTLING = RetryPolicy(tries=BACK_OFFS, longest=10.0)
"""Back-off from a throttling server while other jobs wait for a slot; after it `RefusedWrites` has the object."""

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
                return job.ring.look_up(job.entry, job.meta)
            case DryRun(job, patch):
                return self._dry_run(job, patch)
            case BackOff(times, error):
                return self._back_off(times, error)
            case Tell():
                return _tell(step)

    async def _prove(self, job: Job) -> DeathProof | None:
        await self._writes.turn()
        return await self._proofs.proven(job.ring, job.decision.source, job.read)

    async def _ask_owner(self, job: Job) -> str | None:
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

    async def _write(self, write: Write) -> ObjectMeta | Changed:
        """Sends the patch while the object is locked, for the newest state if that leads to the same decision."""
        job, locks = write.job, self._locks
        place = job.entry.resource, job.meta.namespace, job.meta.name
        if not write.at_once:
            await self._writes.turn()
        await locks.enter(place, Known(job.meta, job.read))
        try:
            if (known := locks.known[place]).meta is not job.meta and known.newer_than(job.meta):
                if (newer := write.of(known)) is None:
                    return Changed(known)
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
                known = locks.known[place] = await self._read(job)
                return Changed(known, conflict)
            if locks.awaited(place):
                locks.known[place] = Known(answer.metadata, self._clock.monotonic())
            return answer.metadata
        finally:
            locks.leave(place)


async def _tell(refusal: Tell) -> None:
    job, error, before = refusal
    resource = job.entry.resource
    fields = {"ring": job.ring.name, **({"failures_before": before} if before else {})}
    if before is not None and not isinstance(error, ApiError):
        where = {"resource": resource, "object": str(job.key)}
        _log.crash("Moving an object crashed; it is tried again", error, **where, **fields)
    else:
        verb = "draining" if job.decision.action is Action.DRAIN else "moving"
        tell = _log.debug if before is None else _log.warning
        tell(f'error {verb} {resource} "{job.key}"', error=error, **fields)
