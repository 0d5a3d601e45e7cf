"""Carrying out decisions: one compare-and-swap patch per object (protocol 4.2 step 3, 14-A17, A19;
reliability F8, F17).

Guaranteed: a patch only takes effect on the object as it was read when the decision was made; a job that had to
wait is decided on anew, so a shard that came back meanwhile keeps its objects (T10); a label value that is
written names a shard that was available then; a movement is counted only when the answer names the
target; what happens to one object (gone, changed, refused) happens to no other. A conflict means: read
again, decide again, at most 5 times, from the 4th on guarded by a test of the shard label instead of the
resourceVersion (an object written all the time). Objects are taken from a dead shard only after
`DeadShards` confirmed it.

With the strict parity switch a move is the reference's patch of two nulls, which the webhook answers by a
label; if the label is not there, a second patch sets it.

RBAC: get, patch on every main and controlled resource of the ring.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

from kubeshard.client import Client
from kubeshard.core.errors import ApiError, Conflict, NotFound, NotOurs, PatchTestFailed
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import Key, ObjectMeta, metadata_only
from kubeshard.core.patches import JsonPatch, MergePatch, add, pointer, remove, test
from kubeshard.runtime.logs import get_logger
from kubeshard.sharder.metrics import SharderMetrics
from kubeshard.sharding import Action, Decision, RingEntry, RingView, TypeMeta, plan
from kubeshard.sharding.names import DRAIN_VALUE

TRIES = 6
TRIES_BY_VERSION = 3
WEBHOOK_CALLS = 20
"""How many patches that the API server shows to the webhook are under way at once. It keeps 25 idle
connections to a webhook; what goes beyond costs it and us a TLS handshake per call.
"""

_log = get_logger("kubeshard.sharder")


class Job(NamedTuple):
    """A decision about one object as it was read. `draining` as of `plan`."""

    ring: str
    entry: RingEntry
    kind: Kind
    meta: ObjectMeta
    decision: Decision
    draining: Container[str] = ()

    @property
    def key(self) -> Key:
        return Key(self.meta.namespace, self.meta.name)


class Outcome(Enum):
    MOVED = auto()
    DRAINED = auto()
    NOTHING = auto()
    """There is nothing to do (any more): the object is gone, or is where it belongs."""
    WAITING = auto()
    """Something else must happen first."""
    FAILED = auto()
    """Refused, or never without conflict; reported to `failed`."""


class Mover:
    """Carries out jobs. `view` gives a ring as it is now, `dead` confirms that a shard's objects may be
    taken, `failed` hears of jobs that failed together with the error.
    """

    def __init__(
        self,
        client: Client,
        *,
        view: Callable[[str], RingView | None],
        dead: Callable[[str, str], Awaitable[bool]],
        failed: Callable[[Job, ApiError], None],
        metrics: SharderMetrics,
        strict: bool = False,
    ) -> None:
        self._client = client
        self._view = view
        self._dead = dead
        self._failed = failed
        self._metrics = metrics
        self._strict = strict
        self._webhook_calls = asyncio.Semaphore(WEBHOOK_CALLS)

    async def carry_out(self, job: Job) -> Outcome:
        """Never raises ApiErrors. A process that may not write any more (it leads no longer) leaves the job to
        others.
        """
        error: ApiError = Conflict("the object changes all the time", code=409, reason="Conflict")
        now: Job | None = self._decided(job, job.meta)
        try:
            for attempt in range(TRIES):
                if now is None:
                    return Outcome.NOTHING
                job = now
                try:
                    return await self._attempt(job, by_version=attempt < TRIES_BY_VERSION)
                except NotOurs:
                    return Outcome.WAITING
                except (Conflict, PatchTestFailed) as conflict:
                    error = conflict
                now = await self.decided_again(job)
        except NotFound:
            return Outcome.NOTHING
        except ApiError as refusal:
            error = refusal
        verb = "draining" if job.decision.action is Action.DRAIN else "moving"
        _log.warning(f'error {verb} {job.entry.resource} "{job.key}"', ring=job.ring, error=error)
        self._metrics.failed(job.ring, job.entry.resource, type(error).__name__)
        self._failed(job, error)
        return Outcome.FAILED

    async def decided_again(self, job: Job) -> Job | None:
        """The job for the object as it is now; None without a ring. Raises ApiError (NotFound)."""
        obj = await self._client.get(metadata_only(job.kind), job.meta.name, job.meta.namespace)
        return self._decided(job, obj.metadata)

    def _decided(self, job: Job, meta: ObjectMeta) -> Job | None:
        """The job for this state of the object and the ring as it is now; None without a ring."""
        view = self._view(job.ring)
        if view is None:
            return None
        type_ = TypeMeta(job.kind.api_version, job.kind.kind)
        decision = plan(view, job.entry, type_, meta, draining=job.draining)
        return job._replace(meta=meta, decision=decision)

    async def _attempt(self, job: Job, *, by_version: bool) -> Outcome:
        match job.decision.action:
            case Action.DRAIN:
                return await self._drain(job, by_version=by_version)
            case Action.MOVE if not self._strict:
                return await self._move(job, by_version=by_version)
            case Action.ASSIGN | Action.MOVE:
                async with self._webhook_calls:
                    return await self._move(job, by_version=by_version)
            case Action.WAIT:
                return Outcome.WAITING
            case _:
                return Outcome.NOTHING

    async def _drain(self, job: Job, *, by_version: bool) -> Outcome:
        view = self._view(job.ring)
        if view is None:
            return Outcome.NOTHING
        if by_version:
            labels = {view.drain_label: DRAIN_VALUE}
            metadata = {"resourceVersion": job.meta.resource_version, "labels": labels}
            patch: MergePatch | JsonPatch = MergePatch({"metadata": metadata})
        else:
            shard_is = test(_label(view.shard_label), job.decision.source)
            patch = JsonPatch([*_same_object(job.meta), shard_is, add(_label(view.drain_label), DRAIN_VALUE)])
        await self._patch(job, patch)
        self._metrics.drained(job.ring, job.entry.resource)
        return Outcome.DRAINED

    async def _move(self, job: Job, *, by_version: bool) -> Outcome:
        view, source = self._view(job.ring), job.decision.source
        if view is None:
            return Outcome.NOTHING
        # A controlled object may be moved from a live shard; only what is taken by force needs a death certificate.
        if source and source not in view.available and not await self._dead(job.ring, source):
            return Outcome.WAITING
        if self._strict:
            shard = await self._move_as_the_reference(job, view)
        else:
            patch = _move_by_version(job, view) if by_version else _move_by_label(job, view)
            shard = (await self._patch(job, patch)).label(view.shard_label)
        if shard != job.decision.target and not (self._strict and shard):
            raise ApiError(f"the API server stored shard {shard!r} instead of {job.decision.target!r}")
        self._metrics.moved(job.ring, job.entry.resource)
        return Outcome.MOVED

    async def _move_as_the_reference(self, job: Job, view: RingView) -> str:
        labels: Mapping[str, Any] = {view.shard_label: None, view.drain_label: None}
        answer = await self._patch(job, _labels(job.meta.resource_version, labels))
        if shard := answer.label(view.shard_label):
            return shard
        labels = {view.shard_label: job.decision.target}
        return (await self._patch(job, _labels(answer.resource_version, labels))).label(view.shard_label)

    async def _patch(self, job: Job, patch: MergePatch | JsonPatch) -> ObjectMeta:
        answer = await self._client.patch(metadata_only(job.kind), job.meta.name, job.meta.namespace, patch)
        return answer.metadata


def _move_by_version(job: Job, view: RingView) -> MergePatch:
    return MergePatch(
        {
            "metadata": {
                "uid": job.meta.uid,
                "resourceVersion": job.meta.resource_version,
                "labels": {view.shard_label: job.decision.target, view.drain_label: None},
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
        add(_label(view.shard_label), target),
    ]
    if view.drain_label in labels:
        operations.append(remove(_label(view.drain_label)))
    return JsonPatch(operations)


def _same_object(meta: ObjectMeta) -> list[dict[str, Any]]:
    return [test(pointer("metadata", "uid"), meta.uid)]


def _labels(resource_version: str, labels: Mapping[str, Any]) -> MergePatch:
    return MergePatch({"metadata": {"resourceVersion": resource_version, "labels": labels}})


def _label(key: str) -> str:
    return pointer("metadata", "labels", key)
