"""Carries out decisions: one compare-and-swap patch per object.

Guaranteed: when a request is sent, a new decision would be the same, with the current ring, its entry for the resource,
its shards and its namespaces; every further attempt begins with a new decision; a patch only takes effect on the object
as it was read for that decision. So a shard that returned keeps its objects, resources that left the ring are not
touched, and a label value that is written names an available shard. There is no wait between the decision
and the patch: this module backs off from a server that throttles, and then decides again.

Objects are taken from a dead shard only with a proof of its death that was started after the object was read.
`docs/design/taking-from-the-dead.md` explains why such a patch cannot take an object from a shard that works again.
A controlled object leaves a live shard only if its owner, as it was read after the decision, is where the object goes:
another sharder, which knows better which shards live, may have given the owner to a third one (`sharder.owners`).

A movement is counted only when the response names the target; a failure of one object (deleted, changed, rejected)
does not affect others. After a conflict: read again, decide again, at most 5 times, from the 4th on guarded by a
test of the shard label instead of the resourceVersion (an object written all the time).

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
from collections.abc import Callable, Coroutine, Hashable, Mapping
from typing import Any, NamedTuple

from kubeshard.client.client import Client
from kubeshard.client.retry import RetryPolicy
from kubeshard.core.errors import (
    ApiError,
    Conflict,
    NotFound,
    NotOurs,
    PatchTestFailed,
    Throttled,
    Unauthorized,
)
from kubeshard.core.kinds import TypeMeta
from kubeshard.core.objects import ObjectMeta, metadata_only
from kubeshard.core.patches import JsonPatch, MergePatch, add, pointer, remove, test
from kubeshard.core.versions import compare
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.rng import Rng
from kubeshard.sharder.kinds_and_rights import ResourceKinds
from kubeshard.sharder.lease_observer import DeadShardProofs
from kubeshard.sharder.owners import OwnerReads, read_metadata
from kubeshard.sharder.tasks import ResourceSync
from kubeshard.sharding.names import DRAIN_VALUE, TAKEN
from kubeshard.sharding.planner import Action, RingView, plan
from kubeshard.sharding.proofs import Proof
from kubeshard.sharding.ring_machine import ANY_OWNER, Do, Job, MoveResult
from kubeshard.sharding.scans import ScanScope


class Known(NamedTuple):
    """A state of an object, and when (monotonic) it was read at the latest."""

    meta: ObjectMeta
    read: float

    def newer_than(self, meta: ObjectMeta) -> bool:
        return compare(self.meta.resource_version, meta.resource_version) > 0


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


TRIES = 6
TRIES_BY_VERSION = 3

PATCH_TIMEOUT = 5.0
"""Timeout of one patch in seconds, in the client and in the server."""

THROTTLING = RetryPolicy(tries=10, longest=10.0)
"""Back-off from a throttling server while other jobs wait for a slot; after it the object is left to `Retries`."""

AGAIN = 5.0
"""Seconds until the objects of a shard are looked at again that may live."""

DRY_RUNS = 4
"""At the same time: a webhook that does not respond keeps each of them waiting for its timeout."""

_log = get_logger("kubeshard.sharder")


class Mover:
    """Carries out jobs and tells their rings the results."""

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

    def do(self, sync: ResourceSync, what: Do, job: Job) -> Coroutine[None, None, None]:
        """Does what is due."""
        match what:
            case Do.PLACE:
                return self.place(sync, job, delayed=True)
            case Do.LOOK:
                return self._look(sync, job)
            case Do.PROBE:
                return self._probe(sync, job)
            case _:
                return self._try_again(sync, job)

    async def place(self, sync: ResourceSync, job: Job, *, delayed: bool = False) -> None:
        """Assigns an object that was seen without an available shard. Where the view of the Leases may be out of date,
        a scan does, since it reads them first. If a shard cannot be proven dead, its objects are looked at again a
        moment later. `delayed`: it was `due`.
        """
        try:
            if not sync.ring.fresh:
                sync.handled.ends(job.key, self._clock.monotonic(), done=False)
                sync.missed()
                return
            if job.decision.action is Action.LOOK_UP:
                try:
                    await sync.ring.look_up(sync.entry, job.meta)
                except ApiError:
                    sync.request(ScanScope.MISPLACED, self._clock.monotonic() + AGAIN)
                    return
                again = sync.unplaced(job.kind, job.meta)
                if again is None or again.decision.action is Action.LOOK_UP:
                    return
                job = again
            result = await self.carry_out(job)
            if result is MoveResult.WAITING and job.decision.action is Action.MOVE:
                sync.request(ScanScope.MISPLACED, self._clock.monotonic() + AGAIN)
        finally:
            if delayed:
                sync.placed()

    async def _try_again(self, sync: ResourceSync, job: Job) -> None:
        result: MoveResult | None = None
        try:
            result = await self.carry_out(job, again=True)
        finally:
            sync.tried(job, result)

    async def _probe(self, sync: ResourceSync, job: Job) -> None:
        called = True
        try:
            called = await self._webhook_is_called(job)
        finally:
            sync.probed(called=called)

    async def carry_out(self, job: Job, *, again: bool = False) -> MoveResult:
        """Never raises: what goes wrong, even unexpectedly, fails for this object only, and is left to the retries. A
        process that lost leadership leaves the job to the new leader. `again`: the object is read first.
        """
        handled, key = job.sync.handled(job.entry.resource), job.key
        handled.begins(key)
        done = False
        try:
            now = await self._decided_again(job) if again else job
            result = MoveResult.NOTHING if now is None else await self._carry_out(now)
            done = result is not MoveResult.WAITING
            return result
        except NotOurs:
            return MoveResult.WAITING
        except NotFound:
            done = True
            return MoveResult.NOTHING
        except _Failed as failure:
            return self._failed(failure.job, failure.error)
        except Exception as error:
            return self._failed(job, error)
        finally:
            handled.ends(key, self._clock.monotonic(), done=done)

    async def _look(self, sync: ResourceSync, job: Job) -> None:
        """Notes it if somebody else has put the object on its shard. Anything else is left to the next scan."""
        now, done = None, False
        try:
            now = await self._decided_again(job)
            done = now is not None and now.decision.action is Action.NOTHING
        except (ApiError, TimeoutError):
            return
        finally:
            sync.handled.ends(job.key, self._clock.monotonic(), done=done)
            sync.placed()
        if now is not None and done and now.decision.target:
            job.sync.placed(job.entry.resource, now.decision)

    def _failed(self, job: Job, error: Exception) -> MoveResult:
        verb = "draining" if job.decision.action is Action.DRAIN else "moving"
        silent = job.sync.to_log(job.entry.resource, "patch", error)
        fields = {"ring": job.sync.ring.name, **({"failures_before": silent} if silent else {})}
        if silent is not None and not isinstance(error, ApiError):
            where = {"resource": job.entry.resource, "object": str(job.key)}
            _log.crash("Moving an object crashed; it is tried again", error, **where, **fields)
        else:
            tell = _log.debug if silent is None else _log.warning
            tell(f'error {verb} {job.entry.resource} "{job.key}"', error=error, **fields)
        job.sync.ring.metrics.add("move_failures", job.entry.resource, type(error).__name__)
        job.sync.failed(job, error)
        return MoveResult.FAILED

    async def _decided_again(self, job: Job) -> Job | None:
        """The job for the current object; None if the ring no longer has its resource. Raises
        ApiError (NotFound).
        """
        if self._decided(job, job.meta) is None:
            return None
        known = await self._read(job)
        return self._decided(job._replace(read=known.read), known.meta)

    async def _read(self, job: Job) -> Known:
        return Known(await read_metadata(self._client, job.kind, job.key), self._clock.monotonic())

    def _decided(self, job: Job, meta: ObjectMeta) -> Job | None:
        """The job for this state of the object and the current ring, with its view; None if the ring no longer has its
        resource.
        """
        view, resource = job.sync.ring.view, job.entry.resource
        if meta is job.meta and _as_decided(job, view):
            return job
        if view is None or resource not in view.resources:
            return None
        entry, draining = view.resources.entry(resource), job.draining
        if entry != job.entry:
            draining = ANY_OWNER  # its new owners have not been scanned
        type_ = TypeMeta(job.kind.api_version, job.kind.kind)
        decision = plan(view, entry, type_, meta, draining=draining)
        return job._replace(entry=entry, meta=meta, decision=decision, draining=draining, view=view)

    async def _carry_out(self, job: Job) -> MoveResult:
        error: ApiError | None = None
        tries, conflicts, throttled, renewed = 0, 0, 0, False
        if job.read is None:
            job = job._replace(read=self._clock.monotonic())
        if (
            self._locks.contended
            and (lock := self._locks.contended.get(job.place)) is not None
            and lock.waits(job.who)
        ):
            lock.learn(_known(job))
            return MoveResult.NOTHING  # left for that job to do
        now: Job | None = job  # a patch checks whether that stands; a move may ask others before
        if job.view is None or (
            job.decision.action is not Action.ASSIGN and job.decision.action is not Action.DRAIN
        ):
            now = self._decided(job, job.meta)
        try:
            while tries < TRIES + THROTTLING.tries and conflicts < TRIES:
                if now is None:
                    return MoveResult.NOTHING
                job, tries = now, tries + 1
                try:
                    action, by_version = job.decision.action, conflicts < TRIES_BY_VERSION
                    if action is Action.DRAIN:
                        return await self._drain(job, by_version=by_version)
                    if action is Action.WAIT:
                        return MoveResult.WAITING
                    if action is not Action.ASSIGN and action is not Action.MOVE:
                        if job.decision.target:
                            job.sync.placed(job.entry.resource, job.decision)
                        return MoveResult.NOTHING
                    result = await self._move(job, by_version=by_version)
                    if isinstance(result, MoveResult):
                        return result
                    now = self._decided(job._replace(read=self._clock.monotonic()), result)
                    continue
                except NotOurs:
                    raise
                except _Outdated:
                    error = ApiError("the decision keeps changing")
                except _Changed as change:
                    now = self._decided(job._replace(read=change.known.read), change.known.meta)
                    if change.conflict is None:
                        tries -= 1  # another job of this process has succeeded meanwhile
                    else:
                        error, conflicts = change.conflict, conflicts + 1
                    continue
                except Throttled as refusal:
                    throttled += 1
                    pause = THROTTLING.pause(throttled, refusal.retry_after, self._rng)
                    if pause is None:
                        raise
                    await asyncio.sleep(pause)
                except Unauthorized:  # the credentials have been renewed
                    if renewed:
                        raise
                    renewed = True
                except (Conflict, PatchTestFailed) as conflict:
                    error, conflicts = conflict, conflicts + 1
                    now = await self._decided_again(job)
                    continue
                now = self._decided(job, job.meta)
            raise error or Conflict("the object keeps changing", code=409, reason="Conflict")
        except (NotOurs, NotFound):
            raise
        except ApiError as failure:
            raise _Failed(job, failure) from failure

    async def _drain(self, job: Job, *, by_version: bool) -> MoveResult:
        view = job.view
        assert view is not None
        await self._writes.turn()
        if by_version:
            labels: Mapping[str, Any] = {view.drain_label: DRAIN_VALUE}
            await self._patch(job, lambda job: _labels(job.meta.resource_version, labels))
        else:
            await self._patch(job, lambda job: _drain_by_label(job, view))
        job.sync.ring.metrics.add("drains", job.entry.resource)
        job.sync.drained(job.entry.resource, job.decision)
        return MoveResult.DRAINED

    async def _move(self, job: Job, *, by_version: bool) -> MoveResult | ObjectMeta:
        """The outcome, or, after a first step, the object to decide about again."""
        view, source = job.view, job.decision.source
        assert view is not None
        if source and source not in view.available and not job.sync.ring.has_ended(source):
            job.sync.refused(job.entry.resource, job.decision)
            return MoveResult.WAITING
        await self._writes.turn()
        proof: Proof | None = None
        if source and source not in view.available:
            assert job.read is not None
            proof = await self._proofs.proven(job.sync.ring, source, job.read)
            if proof is None:
                job.sync.refused(job.entry.resource, job.decision)
                return MoveResult.WAITING
        elif source and not await self._follows(job, view):
            return MoveResult.WAITING
        if by_version:
            answer = await self._patch(job, lambda job: _move_by_version(job, view), proof)
            shard = answer.label(view.shard_label)
        elif proof and job.meta.label(view.drain_label) != TAKEN:
            return await self._patch(job, lambda job: _mark_as_taken(job, view), proof)
        else:
            answer = await self._patch(job, lambda job: _move_by_label(job, view), proof)
            shard = answer.label(view.shard_label)
        if shard != job.decision.target:
            raise ApiError(f"the API server stored shard {shard!r} instead of {job.decision.target!r}")
        if not job.decision.target:
            return MoveResult.MOVED  # the ring is being deleted
        job.sync.ring.metrics.add("movements", job.entry.resource)
        job.sync.placed(job.entry.resource, job.decision)
        if job.decision.action is Action.ASSIGN:
            job.sync.assigned_late(job)
        return MoveResult.MOVED

    async def _webhook_is_called(self, job: Job) -> bool:
        """Whether a dry run shows that the webhook is called for the object, or nobody can know."""
        ring = job.sync.ring
        view = ring.view
        if view is None or not view.available:
            return True
        unlabelled = MergePatch({"metadata": {"labels": {view.shard_label: None}}})
        async with self._dry_runs:
            try:
                form, (namespace, name) = metadata_only(job.kind), job.key
                answer = await self._client.patch(form, name, namespace, unlabelled, dry_run=True)
            except ApiError:
                return True
        # The webhook is not called in a namespace that the ring does not select any more, say.
        wanted = plan(view, job.entry, TypeMeta(job.kind.api_version, job.kind.kind), answer.metadata)
        return wanted.action is not Action.ASSIGN or ring.view is not view

    async def _follows(self, job: Job, view: RingView) -> bool:
        """Whether a controlled object may leave its live shard: its owner is where the object goes, or is gone. One
        without a key, in a ring that is being cleaned up, has no owner to follow.
        """
        if not job.decision.key:
            return True
        shard = await self._owners.shard(job.entry.owners, job.meta, job.decision.key, view.shard_label)
        return shard is None or shard == job.decision.target

    async def _patch(
        self, job: Job, patch: Callable[[Job], MergePatch | JsonPatch], proof: Proof | None = None
    ) -> ObjectMeta:
        """Sends the patch while the object is locked, for the newest state if that leads to the same decision. Raises
        _Changed if it does not, if the proof is of before, and after a conflict.
        """

        def check() -> None:
            """Called just before the request is sent: whether the decision is still valid."""
            again = self._decided(now, now.meta)
            if again is not now and (again is None or again.decision != now.decision):
                raise _Outdated
            if proof is not None and not proof.stands():
                raise _Outdated

        now, locks, place = job, self._locks, job.place
        assert job.read is not None
        if not locks.take(place, job.meta, job.read):
            lock = await locks.wait(place, job.who, _known(job))
        else:
            lock = None
        try:
            if lock is not None and lock.known.newer_than(job.meta):
                again = self._decided(job._replace(read=lock.known.read), lock.known.meta)
                if proof is not None or again is None or again.decision != job.decision:
                    raise _Changed(lock.known)
                now = again
            form, name, namespace = metadata_only(now.kind), now.meta.name, now.meta.namespace
            try:
                answer = await self._writes.checked(check).patch(form, name, namespace, patch(now))
            except NotOurs:
                raise
            except (Conflict, PatchTestFailed) as conflict:
                known = await self._read(now)
                if (lock := locks.contended.get(place)) is not None:
                    lock.known = known
                raise _Changed(known, conflict) from conflict
            if (lock := locks.contended.get(place)) is not None and lock.awaited:
                lock.known = Known(answer.metadata, self._clock.monotonic())
            return answer.metadata
        finally:
            locks.leave(place)


class _Failed(Exception):
    """The last decision, which may differ from the first one, and why it failed."""

    def __init__(self, job: Job, error: ApiError) -> None:
        self.job = job
        self.error = error


class _Changed(Exception):
    """The object has changed, and is `known` now: by a conflicting write, or by another job."""

    def __init__(self, known: Known, conflict: ApiError | None = None) -> None:
        self.known = known
        self.conflict = conflict


class _Outdated(Exception):
    """The decision, or the proof that it is based on, is no longer valid."""


def _known(job: Job) -> Known:
    assert job.read is not None
    return Known(job.meta, job.read)


def _as_decided(job: Job, view: RingView | None) -> bool:
    """Whether the inputs of the decision are unchanged. For a main object these are the view, and the namespace,
    where labels may have changed before the ring was notified.
    """
    return job.entry.main and view is not None and view is job.view and view.selects(job.meta.namespace)


def _move_by_version(job: Job, view: RingView) -> MergePatch:
    return MergePatch(
        {
            "metadata": {
                "uid": job.meta.uid,
                "resourceVersion": job.meta.resource_version,
                "labels": {view.shard_label: job.decision.target or None, view.drain_label: None},
            }
        }
    )


def _move_by_label(job: Job, view: RingView) -> JsonPatch:
    labels, target = job.meta.labels, job.decision.target
    if not labels:
        absent = test(pointer("metadata", "labels"), None)
        return JsonPatch(
            [*_same_object(job.meta), absent, add(pointer("metadata", "labels"), {view.shard_label: target})]
        )
    operations = [
        *_same_object(job.meta),
        test(_label(view.shard_label), labels.get(view.shard_label)),
        add(_label(view.shard_label), target) if target else remove(_label(view.shard_label)),
    ]
    if drain := labels.get(view.drain_label):
        if drain == TAKEN:
            operations.append(test(_label(view.drain_label), TAKEN))
        operations.append(remove(_label(view.drain_label)))
    return JsonPatch(operations)


def _drain_by_label(job: Job, view: RingView) -> JsonPatch:
    shard_is = test(_label(view.shard_label), job.decision.source)
    return JsonPatch([*_same_object(job.meta), shard_is, add(_label(view.drain_label), DRAIN_VALUE)])


def _mark_as_taken(job: Job, view: RingView) -> JsonPatch:
    """The first of two steps for a patch without a resourceVersion: the shard named by the label stops working
    on the object after it, and the second step fails without this exact mark.
    """
    shard_is = test(_label(view.shard_label), job.decision.source)
    return JsonPatch([*_same_object(job.meta), shard_is, add(_label(view.drain_label), TAKEN)])


def _same_object(meta: ObjectMeta) -> list[dict[str, Any]]:
    return [test(pointer("metadata", "uid"), meta.uid)]


def _labels(resource_version: str, labels: Mapping[str, Any]) -> MergePatch:
    return MergePatch({"metadata": {"resourceVersion": resource_version, "labels": labels}})


def _label(key: str) -> str:
    return pointer("metadata", "labels", key)
