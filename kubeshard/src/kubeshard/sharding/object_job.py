"""The life of one object in a ring: what is decided about it, and done step by step.

The problem: each object is to be on the shard that the hash ring names, and never on two at once, while shards die and
come back, others write the object, and what was read of it is old. The naive idea is to list the objects, and to write
the right shard into each label. That fails in four ways. The object may have changed since it was read, and the ring
since it was decided. Its shard may be working on it. A shard that seems dead may only be slow. And what the object
controls would be parted from it.

So nothing is moved by what was known once. A decision (`planner`) is made anew from the object as it was read last and
the ring as it is, and done by one compare-and-swap patch of that state, before which it is checked again:

    no shard              -> ASSIGN  ---------------------------------------> on its shard
    its shard is lost     -> MOVE    -> ProveDead: is that so?  ------------> on its shard
    another shard's       -> DRAIN   -> its shard removes both labels ------> no shard
    its owner has moved   -> MOVE    -> AskOwner: is it there already? -----> on its shard
    the ring is deleted   -> as above, without a target --------------------> no label

    each patch: done | changed: decide again, TRIES times | refused: read and tried again later | gone: done

What is waited for never waits here. An object that cannot be written now is `WAITING` or `FAILED`, its job ends, and it
is looked at again:

| who | waits for | is looked at again | by |
|---|---|---|---|
| an object whose write was refused | the end of the refusal | after 1, 2, 4, 8, 10, 10 ... s, or Retry-After; when \
another one of its resource succeeds | `waiting.RefusedWrites` |
| more of them than are remembered | the same | when one succeeds; without a shard, after 30 s | a scan |
| an object that lost its shard a moment ago | its shard, which may take it back | after 1 s | `ResourceMachine.found` |
| an object that is being drained | its shard: for ever, unless the ring evicts shards (`drainTimeout`) | when the \
watch shows it without a shard; after 8, 10 ... s | a scan |
| a controlled object | its owner, which has to be where it goes | after 1, 2, 4 ... 30 s; when a drain has ended | a \
scan |
| an object whose shard is not known to be dead | a proof; the take-over of the Lease (`lease_machine`), which many \
failures at once hold up; with strict hand-over a confirmation | after 3, 10, 30 s; when the Lease changes; 5 s after \
the watch has shown it | a scan |
| an object in a namespace that is not known | the namespace (`waiting.SkippedNamespaces`) | when it appears | a list \
of it |
| a resource that cannot be read | | after 5, 10, 10 ... s | a scan |
| anything that was missed | | every `sync_period` | a scan |

Whoever removes or changes a label: the webhook or the object's shard puts it back. An object that the ring selects no
more keeps its labels. One that changes all the time is marked (`TAKEN`) after `TRIES_BY_VERSION` conflicts, and then
patched with a test of its shard label instead of its version.

Guaranteed of writes: when one is sent, a new decision would be the same, with the current ring, its entry for the
resource, its shards and its namespaces; every further attempt begins with a new decision; a patch only takes effect on
the object as it was read for that decision. So a shard that returned keeps its objects, resources that left the ring
are not touched, and a label value that is written names an available shard. Objects are taken from a dead shard only
with a proof of its death that was started after the object was read. `docs/design/taking-from-the-dead.md` explains why
such a patch cannot take an object from a shard that works again. One that is under way when the shard returns is
stopped by the shard: before it works, it gives each object with its name a new version (`RETURNING`), and takes `TAKEN`
away. A controlled object leaves a live shard only if its owner, as it was read after the decision, is where the object
goes, or is gone.

No event loop is needed: each step is data, for whoever carries it out and sends what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum, auto
from typing import Any, NamedTuple

from kubeshard.core.errors import ApiError, Conflict, NotFound, NotOurs, Throttled, Unauthorized
from kubeshard.core.kinds import Kind, TypeMeta
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.patches import JsonPatch, MergePatch, add, pointer, remove, test
from kubeshard.core.versions import compare
from kubeshard.sharding.names import DRAIN_VALUE, TAKEN
from kubeshard.sharding.planner import Action, Decision, RingView, plan
from kubeshard.sharding.proofs import DeathProof
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.ring_resources import RingEntry

TRIES, TRIES_BY_VERSION = 6, 3
"""Of an object that changes again and again."""
BACK_OFFS = 10


class Known(NamedTuple):
    """A state of an object, and when (monotonic) it was read at the latest."""

    meta: ObjectMeta
    read: float

    def newer_than(self, meta: ObjectMeta) -> bool:
        return compare(self.meta.resource_version, meta.resource_version) > 0


class Job(NamedTuple):
    """A decision about one object, and what it was decided from: the object as it was `read` then (monotonic), the
    ring's `entry` for its resource, and its `view`.
    """

    ring: Ring
    entry: RingEntry
    kind: Kind
    meta: ObjectMeta
    decision: Decision
    read: float
    view: RingView

    @property
    def key(self) -> Key:
        return Key(self.meta.namespace, self.meta.name)

    def of(self, known: Known) -> Job | None:
        """The job for this state of the object and the current ring; None if the ring no longer has its resource."""
        view, resource = self.ring.view, self.entry.resource
        if view is None or resource not in view.resources:
            return None
        entry, type_ = view.resources.entry(resource), TypeMeta(self.kind.api_version, self.kind.kind)
        decision = plan(view, entry, type_, known.meta)
        return self._replace(entry=entry, meta=known.meta, decision=decision, read=known.read, view=view)

    def now(self) -> Job | None:
        """The job for the current ring. The inputs of the decision about a main object are the view, and the namespace,
        whose labels may have changed before the ring was notified.
        """
        view = self.ring.view
        if view is not None and view is self.view and self.entry.main and view.selects(self.meta.namespace):
            return self
        return self.of(Known(self.meta, self.read))


class MoveResult(Enum):
    """What has become of a job."""

    MOVED = auto()
    DRAINED = auto()
    """Its shard was asked to release it."""
    NOTHING = auto()
    """Nothing left to do: the object is gone, or on the right shard."""
    WAITING = auto()
    """Something else must happen first."""
    FAILED = auto()
    """Rejected, or always a conflict."""


class Outcome(NamedTuple):
    """`job`: with the last decision, which may differ from the first one. `error`: why it has failed. `left`: the
    object as it was moved.
    """

    result: MoveResult
    job: Job
    error: Exception | None = None
    left: Known | None = None


class Read(NamedTuple):
    """Read the object: `Known`."""

    job: Job


class LookUp(NamedTuple):
    """Read what controls the object's controller (`Ring.look_up`)."""

    job: Job


class ProveDead(NamedTuple):
    """Prove that the object's shard has died since the object was read: the `DeathProof`, or None if it may live. Ask
    before the turn of the write that follows has come.
    """

    job: Job


class AskOwner(NamedTuple):
    """Read where the object's owner is: its shard, or None if it is gone. Ask as in `ProveDead`."""

    job: Job


class Changed(NamedTuple):
    """A write was not sent, or refused, because the object is `known` now: by a conflicting write, or by another job of
    this process. Without a state it is the decision that changed, or the proof that it is based on.
    """

    known: Known | None = None
    conflict: ApiError | None = None


class Outdated(Exception):
    """The decision, or the proof that it is based on, is not valid any more."""


class Write(NamedTuple):
    """Patch the object: the answer, or `Changed`."""

    job: Job
    patch: Callable[[Job], MergePatch | JsonPatch]
    proof: DeathProof | None = None
    """That the object's shard is dead, if it has to be."""
    at_once: bool = False
    """Whether the turn of this write has come."""

    def check(self) -> None:
        """It is called just before the request is sent. Raises Outdated."""
        again = self.job.now()
        if again is not self.job and (again is None or again.decision != self.job.decision):
            raise Outdated
        if self.proof is not None and not self.proof.stands():
            raise Outdated

    def of(self, known: Known) -> Write | None:
        """The same for this state of the object; None if it leads to another decision, or to a new proof."""
        again = self.job.of(known)
        if self.proof is not None or again is None or again.decision != self.job.decision:
            return None
        return self._replace(job=again)


class DryRun(NamedTuple):
    """Patch the object without an effect: the answer."""

    job: Job
    patch: MergePatch


class BackOff(NamedTuple):
    """Wait as the API server has asked for: whether it was not too often, or too long."""

    times: int
    error: Throttled


class Tell(NamedTuple):
    """Log why a write was refused. `before`: the number of failures of its kind that were not logged; None: nor is this
    one.
    """

    job: Job
    error: Exception
    before: int | None


Step = Read | LookUp | ProveDead | AskOwner | Write | DryRun | BackOff | Tell
Steps = Generator[Step, Any, MoveResult]
"""Whoever carries them out sends the outcome of each, or throws its error, and closes them if it ends before."""


def carry_out(job: Job, *, again: bool = False) -> Generator[Step, Any, Outcome]:
    """One compare-and-swap patch, or none. What goes wrong, even unexpectedly, fails for this object only. A process
    that lost leadership leaves the job to the new leader. `again`: the object is read first.
    """
    error: ApiError | None = None
    tries, conflicts, throttled, renewed = 0, 0, 0, False
    try:
        now: Job | None = job  # a write checks whether that stands
        if again:
            now = yield from read(job)
        elif job.decision.action is Action.MOVE and not job.entry.main:  # else its owner is asked for in vain
            now = job.now()
        while now is not None and tries < TRIES + BACK_OFFS and conflicts < TRIES:
            job, tries = now, tries + 1
            try:
                result = yield from _tried(job, by_version=conflicts < TRIES_BY_VERSION)
            except Throttled as refusal:
                throttled += 1
                if not (yield BackOff(throttled, refusal)):
                    raise
                now = job.now()
                continue
            except Unauthorized:  # the credentials have been renewed
                if renewed:
                    raise
                renewed, now = True, job.now()
                continue
            match result:
                case MoveResult():
                    return Outcome(result, job)
                case Outcome():
                    return result
                case Known():  # after a first step
                    now = job.of(result)
                case Changed(known, conflict):
                    now = job.now() if known is None else job.of(known)
                    if conflict is not None:
                        error, conflicts = conflict, conflicts + 1
                    elif known is None:
                        error = ApiError("the decision keeps changing")
                    else:
                        tries -= 1  # another job of this process has succeeded meanwhile
        if now is not None:
            raise error or Conflict("the object keeps changing", code=409, reason="Conflict")
        return Outcome(MoveResult.NOTHING, job)
    except NotOurs:
        return Outcome(MoveResult.WAITING, job)
    except NotFound:
        return Outcome(MoveResult.NOTHING, job)
    except Exception as failure:
        return Outcome(MoveResult.FAILED, job, failure)


def read(job: Job) -> Generator[Step, Any, Job | None]:
    """The job for the current object; None if the ring no longer has its resource."""
    if job.now() is None:
        return None
    known: Known = yield Read(job)
    return job.of(known)


def _tried(job: Job, *, by_version: bool) -> Generator[Step, Any, MoveResult | Outcome | Known | Changed]:
    """What the decision leads to now, or the state of the object to decide about again."""
    (action, target, source, _, key), view = job.decision, job.view
    if action is Action.WAIT:
        return MoveResult.WAITING
    if action is not Action.ASSIGN and action is not Action.MOVE and action is not Action.DRAIN:
        return MoveResult.NOTHING
    proof: DeathProof | None = None
    asked = False
    if action is Action.MOVE and source and source not in view.available:
        asked, proof = True, (yield ProveDead(job)) if job.ring.has_ended(source) else None
        if proof is None:
            return MoveResult.WAITING
    elif action is Action.MOVE and source and key:  # without a key it has no owner to follow
        asked = True
        try:
            if not follows(job, (yield AskOwner(job))):
                return MoveResult.WAITING
        except NotFound:  # not the owner, but its kind
            return MoveResult.WAITING
    patch = drain_by_version if by_version else drain_by_label
    if action is not Action.DRAIN:
        patch = move_by_version if by_version else move_by_label
        if proof is not None and not by_version and job.meta.label(view.drain_label) != TAKEN:
            patch = mark_as_taken
    match (yield Write(job, patch, proof, asked)):
        case Changed() as change:
            return change
        case answer:
            pass
    if patch is mark_as_taken:
        return Known(answer, job.ring.clock.monotonic())
    if action is Action.DRAIN:
        return MoveResult.DRAINED
    if (shard := answer.label(view.shard_label)) != target:
        raise ApiError(f"the API server stored shard {shard!r} instead of {target!r}")
    return Outcome(MoveResult.MOVED, job, left=Known(answer, job.ring.clock.monotonic()))


def follows(job: Job, shard: str | None) -> bool:
    """Whether a controlled object may leave its live shard: its owner is where the object goes, or is gone. Another
    sharder, which knows better which shards live, may have given the owner to a third one.
    """
    return shard is None or shard == job.decision.target


# The patches


def move_by_version(job: Job) -> MergePatch:
    meta, view = job.meta, job.view
    labels = {view.shard_label: job.decision.target or None, view.drain_label: None}
    return MergePatch(
        {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, "labels": labels}}
    )


def move_by_label(job: Job) -> JsonPatch:
    view, labels, target = job.view, job.meta.labels, job.decision.target
    if not labels:
        all_of_them = pointer("metadata", "labels")
        return JsonPatch(
            [_same_object(job), test(all_of_them, None), add(all_of_them, {view.shard_label: target})]
        )
    operations = [
        _same_object(job),
        test(_label(view.shard_label), labels.get(view.shard_label)),
        add(_label(view.shard_label), target) if target else remove(_label(view.shard_label)),
    ]
    if drain := labels.get(view.drain_label):
        if drain == TAKEN:
            operations.append(test(_label(view.drain_label), TAKEN))
        operations.append(remove(_label(view.drain_label)))
    return JsonPatch(operations)


def drain_by_version(job: Job) -> MergePatch:
    version, labels = job.meta.resource_version, {job.view.drain_label: DRAIN_VALUE}
    return MergePatch({"metadata": {"resourceVersion": version, "labels": labels}})


def drain_by_label(job: Job) -> JsonPatch:
    return _marked(job, DRAIN_VALUE)


def mark_as_taken(job: Job) -> JsonPatch:
    """The first of two steps for a patch without a resourceVersion: the shard named by the label stops working
    on the object after it, and the second step fails without this exact mark.
    """
    return _marked(job, TAKEN)


def _marked(job: Job, value: str) -> JsonPatch:
    shard_is = test(_label(job.view.shard_label), job.decision.source)
    return JsonPatch([_same_object(job), shard_is, add(_label(job.view.drain_label), value)])


def _same_object(job: Job) -> dict[str, Any]:
    return test(pointer("metadata", "uid"), job.meta.uid)


def _label(key: str) -> str:
    return pointer("metadata", "labels", key)
