"""What a shard does around every reconcile of a main object.

| the copy in the cache | what happens |
|---|---|
| none | passed on: the object is gone, or belongs to another shard |
| older than a hand-over seen in this process | nothing (`stale_guard.StaleGuard`), unless everything was listed since |
| another shard's label, or none | nothing: a backed-off key ran after the object left |
| drain label | wait until no controller of the process works on the object, then remove both labels |
| ours | passed on; after an arrival with live reads, until a run succeeds and the children are ours too (`FirstRuns`) |

All of this only needs the object's metadata, so an object that does not fit the controller's class is handed over
like any other. It is never reconciled.

The two labels are removed by a patch of the version that was read. If others write the object so often that this
keeps conflicting, the object is read again, and from the 4th attempt on the patch is guarded by tests of the UID
and of both labels instead.

Guaranteed: when the API server receives the drain acknowledgement, no reconcile of the object runs in this process,
in any controller (with two, one might acknowledge while the other still works), and none starts before a new
assignment is seen: while the patch is in flight, runs of the object are postponed. No write of an earlier run can take
effect any more, even if its outcome is unknown, and no thread of a run is left (`kubeshard.controller.in_flight`);
writes of a task that a run left behind are refused once the object is drained. Not guaranteed: anything about processes
that a reconcile left behind, and about writes that are delayed on the network for longer than the request's own bound.

RBAC: `get` (first read after an assignment, and after a conflict) and `patch` on the main kind.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from kubeshard.cache.deltas import Delta, Updated
from kubeshard.controller.reconciler import Result, RunFn, no_run
from kubeshard.controller.run import Run
from kubeshard.controller.when import Predicate, always
from kubeshard.core.conditions import for_people
from kubeshard.core.errors import ApiError, Conflict, NotFound, NotOurs, PatchTestFailed
from kubeshard.core.kinds import GroupKind, GroupResource, Kind
from kubeshard.core.objects import Key, KubeObject, ObjectMeta, metadata_only
from kubeshard.core.patches import JsonPatch, MergePatch, pointer, remove, test
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.shard.label_restorer import Losses
from kubeshard.shard.stale_guard import FirstRuns, StaleGuard
from kubeshard.sharding.names import RETURNING, drain_label, shard_label
from kubeshard.sharding.waiting import Refusals, by_answer, grouped

_log = get_logger("kubeshard.shard")

IDLE_PATIENCE = 5.0
"""Seconds that a worker waits for other controllers' runs before it requeues the object."""

COME_BACK = 1.0

PUT_BACK = (
    "error draining object: its labels were put back, so the sharder does not take this client for the shard; "
    "see the ring's shard users and the pod's name"
)

TOLD_AFTER = 20.0
"""Seconds for which an object cannot be released before that is told: by the usual back-off it is tried again then
within half a minute.
"""
LONGEST_ANSWER = 500
"""Characters that are told: a sharder keeps little more of a Lease's annotation."""

TRIES = 6
TRIES_BY_VERSION = 3


class Handovers:
    """What all sharded controllers of a process share about one ring: one per process and ring.

    `sharded_kind` returns whether the cache contains only this shard's part of a kind (main or controlled).
    `acknowledged` is called for each released object, with the seconds since it was drained.
    """

    def __init__(
        self,
        label: str,
        drain: str,
        shard: str,
        sharded_kind: Callable[[Kind], bool],
        clock: Clock,
        acknowledged: Callable[[GroupResource, float], None] = lambda resource, seconds: None,
    ) -> None:
        self.stale_guard = StaleGuard(clock)
        self.losses = Losses(clock)
        self._clock = clock
        self._acknowledged = acknowledged
        self.asked: dict[tuple[GroupKind, Key], float] = {}
        """When the drain of each object that has not been released yet was first seen. To be read only."""
        self._refusals: dict[GroupResource, Refusals] = {}
        """Of these, those that the API server did not let us release."""
        self.cannot_release: Callable[[str], None] = lambda why: None
        """Told why objects cannot be released; "": they can."""
        self._label = label
        self._drain = drain
        self.shard = shard
        self.sharded_kind = sharded_kind

    def sharded(self, inner: RunFn) -> RunFn:
        """One controller's reconcile as a shard runs it: for `Controller.guarded`, called once per controller."""
        return _Sharded(self, inner)

    def asked_for(self, kind: Kind, run: Run) -> None:
        """Called when a run sees the drain label."""
        since = min((cause.since for cause in run.why), default=self._clock.monotonic())
        self.asked.setdefault((kind.group_kind, run.key), since)

    def not_asked_for(self, kind: Kind, key: Key) -> float | None:
        """Returns since when it was."""
        if (refusals := self._refusals.get(kind.group_resource)) is not None and refusals.ended(key):
            self._tell()
        return self.asked.pop((kind.group_kind, key), None)

    def let_go(self, kind: Kind, key: Key) -> None:
        if (since := self.not_asked_for(kind, key)) is not None:
            self._acknowledged(kind.group_resource, self._clock.monotonic() - since)

    def refused(self, kind: Kind, metadata: ObjectMeta, error: BaseException) -> None:
        """The object could not be released; it is tried again."""
        refusals = self._refusals.setdefault(kind.group_resource, Refusals(TOLD_AFTER))
        if refusals.refused(metadata, error, self._clock.monotonic()):
            self._tell()

    def _tell(self) -> None:
        found = grouped(
            (refusal.reason, f"{resource.resource} {key}")
            for resource, refusals in self._refusals.items()
            for key, refusal in refusals.lasting()
        )
        self.cannot_release(for_people(by_answer(found), LONGEST_ANSWER))

    def ours(self, metadata: ObjectMeta) -> bool:
        return metadata.label(self._label) == self.shard

    def draining(self, metadata: ObjectMeta) -> bool:
        return metadata.has_label(self._drain)

    def returning(self, metadata: ObjectMeta) -> bool:
        """Whether the drain label is the mark of `reclaim`, which is there for a moment only: a lagging cache may still
        show it. One that a process left behind is a drain like any other.
        """
        return metadata.label(self._drain) == RETURNING

    def acknowledgement(self, metadata: ObjectMeta) -> MergePatch:
        """Removes both labels from exactly the version that has the drain label."""
        labels = {self._label: None, self._drain: None}
        return MergePatch({"metadata": {"resourceVersion": metadata.resource_version, "labels": labels}})

    def acknowledgement_of_any_version(self, metadata: ObjectMeta) -> JsonPatch:
        """Removes both labels from the same object if it is still ours and still drained."""
        ours, asked = (pointer("metadata", "labels", key) for key in (self._label, self._drain))
        return JsonPatch(
            [
                test(pointer("metadata", "uid"), metadata.uid),
                test(ours, self.shard),
                test(asked, metadata.label(self._drain)),
                remove(ours),
                remove(asked),
            ]
        )


class _Sharded:
    """One controller's reconcile function."""

    def __init__(self, handovers: Handovers, inner: RunFn) -> None:
        self._handovers = handovers
        self._inner = inner
        self._first_runs = FirstRuns()
        self._following = False

    def __call__(self, run: Run, obj: KubeObject | None) -> Awaitable[Result | None]:
        if not self._following:
            self._follow(run)
        handovers, kind = self._handovers, run.form.kind.group_kind
        ours = obj is not None and handovers.ours(obj.metadata)
        draining = ours and obj is not None and handovers.draining(obj.metadata)
        if handovers.asked and not draining:
            handovers.not_asked_for(run.form.kind, run.key)
        if obj is None:
            return self._work(run, None)
        guard, proven = handovers.stale_guard, True
        if guard.required and not guard.admits(kind, run.key, version := obj.metadata.resource_version):
            if self._undone(run):
                guard.forget(kind, run.key)
            elif guard.may_admit(kind, run.key, version) and (draining or self._first_runs.pending(run.key)):
                proven = False  # both ask the API server before they do anything
            else:
                return no_run(None)
        if not ours:
            return no_run(None)
        if run.activities.in_flight.sealed(kind, run.key):
            return no_run(Result(requeue_after=COME_BACK))
        if draining:
            return self._released(run, obj)
        if proven:
            handovers.losses.kept(kind, run.key)
        return self._work(run, obj)

    def _undone(self, run: Run) -> bool:
        """Whether a copy that is older than the floor is valid nevertheless: everything was listed since."""
        lifted = self._handovers.stale_guard.required_since(run.form.kind.group_kind, run.key)
        informers = run.cache.informers_of(run.form.kind)
        return lifted is not None and all(i.read_after(run.key.namespace, lifted) for i in informers)

    async def _work(self, run: Run, obj: KubeObject | None) -> Result | None:
        kind, key, stale_guard = run.form.kind.group_kind, run.key, self._handovers.stale_guard
        began = stale_guard.required_since(kind, key) if stale_guard.required else None
        working = run.activities.working()
        try:
            arrival = self._first_runs.pending(key)
            if arrival is None or obj is None or run.undecodable is not None:
                return await self._inner(run, obj)
            return await self._first(run, arrival)
        finally:
            run.activities.left(
                lambda: (
                    None if stale_guard.required_since(kind, key) == began else "it has been drained since"
                )
            )
            working.end()

    async def _first(self, run: Run, arrival: str) -> Result | None:
        """A run with live reads. If the object turns out to be gone, reassigned or drained, the cache will show that
        soon, which triggers the next run.
        """
        try:
            live = await run.client.get(run.form, run.key.name, run.key.namespace)
        except NotFound:
            return None
        except ApiError as error:
            raise _explained("error retrieving object for determining responsibility", error) from error
        if not self._handovers.ours(live.metadata) or self._handovers.draining(live.metadata):
            return None
        guard, kind = self._handovers.stale_guard, run.form.kind.group_kind
        if guard.required and not guard.admits(kind, run.key, live.metadata.resource_version):
            guard.forget(kind, run.key)  # nobody can tell which is newer, but it is ours now
            self._handovers.losses.kept(kind, run.key)
        self._first_runs.show(run.key, arrival)
        reading = run.reading_live(self._handovers.sharded_kind)
        result = await self._inner(reading, live)
        if not reading.cache_lacks(live):  # children follow later: until then, only live reads show them
            self._first_runs.settle(run.key, arrival)
        return result

    async def _released(self, run: Run, obj: KubeObject) -> Result | None:
        try:
            return await self._acknowledge(run, obj)
        except ApiError as error:
            self._handovers.refused(run.form.kind, obj.metadata, error.__cause__ or error)
            raise

    async def _acknowledge(self, run: Run, obj: KubeObject) -> Result | None:
        handovers, kind, key = self._handovers, run.form.kind, run.key
        form = metadata_only(kind)
        conflict: ApiError | None = None
        handovers.asked_for(kind, run)
        for attempt in range(TRIES):
            try:
                if conflict is not None or (attempt == 0 and handovers.returning(obj.metadata)):
                    live = await run.client.get(form, key.name, key.namespace)
                    if not handovers.ours(live.metadata) or not handovers.draining(live.metadata):
                        return None  # the cache will show it soon
                    obj = live
                handovers.stale_guard.require(kind.group_kind, key, obj.metadata.resource_version)
                async with asyncio.timeout(IDLE_PATIENCE):
                    await run.activities.in_flight.idle(kind.group_kind, key)
                if run.activities.in_flight.sealed(kind.group_kind, key):
                    return Result(requeue_after=COME_BACK)  # another controller of the kind was faster
                handovers.losses.released(kind.group_kind, key)
                with run.activities.sealing():
                    after = await self._give_away(run, obj, by_version=attempt < TRIES_BY_VERSION)
            except TimeoutError:
                return Result(requeue_after=COME_BACK)
            except NotFound:
                return None
            except (Conflict, NotOurs, PatchTestFailed) as error:
                conflict = error
            except ApiError as error:
                raise _explained("error draining object", error) from error
            else:
                if handovers.ours(after) and handovers.draining(after):
                    raise ApiError(PUT_BACK)
                handovers.stale_guard.require(kind.group_kind, key, after.resource_version)
                handovers.let_go(kind, key)
                _log.info("Acknowledged drain", object=str(key), kind=str(kind.group_kind))
                return None
        assert conflict is not None
        raise _explained("error draining object", conflict) from conflict

    async def _give_away(self, run: Run, obj: KubeObject, *, by_version: bool) -> ObjectMeta:
        """Releases the object and returns its metadata. Raises Conflict if a guard of the patch fails; with a fenced
        client also NotOurs.
        """
        handovers, kind, key = self._handovers, run.form.kind, run.key
        patch: MergePatch | JsonPatch
        if by_version:
            patch = handovers.acknowledgement(obj.metadata)
        else:
            patch = handovers.acknowledgement_of_any_version(obj.metadata)
        client, form = run.client, metadata_only(kind)
        # The webhook knows an acknowledgement by the shard's name.
        after = await client.patch(
            form, key.name, key.namespace, patch, base=obj, field_manager=handovers.shard
        )
        return after.metadata

    def _follow(self, run: Run) -> None:
        self._following = True
        for informer in run.cache.informers_of(run.form.kind):
            if informer.form == run.form:
                self._handovers.losses.follow(informer, run.key.cluster, self._first_runs)


def _explained(what: str, error: ApiError) -> ApiError:
    """The same error by cause, in the protocol's words."""
    explained = copy.copy(error)
    explained.message = f"{what}: {error.message}"
    explained.args = (explained.message,)
    return explained


T = TypeVar("T", bound=KubeObject)


def shard_predicate(ring: str, shard: str, when: Predicate[T] = always) -> Predicate[T]:
    """Passes all objects with the drain label, whatever its value and whichever shard they belong to. It also passes
    objects of this shard for which `when` is true, or on which this shard may work only from now on: a run that saw the
    drain label did nothing, and `when` may not pass its removal. For the watch of a main kind only.
    """
    own, drain, passes = shard_label(ring), drain_label(ring), when.test

    def assigned(labels: Mapping[str, str] | None) -> bool:
        return labels is not None and labels.get(own) == shard and drain not in labels

    def test(delta: Delta[T]) -> bool:  # one function, and no combination of several: each event comes here
        if isinstance(delta, Updated):
            labels, before = delta.new.metadata.labels, delta.old.metadata.labels
        else:
            labels = before = delta.object.metadata.labels
        if not assigned(labels):
            return labels is not None and drain in labels
        return (before is not labels and not assigned(before)) or passes(delta)

    return Predicate(test, f"shard_predicate({when})")
