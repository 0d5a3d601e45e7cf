"""What the leader knows of the objects of a ring, and what is to be done: events go in, commands come out.

    RingMachine        one ring: passes on what concerns several of its resources, and carries out decisions
    ResourceMachine    one resource of it: schedule, objects that are seen, and objects that wait
    Scan, Reading      one scan of it: what to read, and what to do about each object

This is the life of an object. What to do with one is always decided anew, from it as it was read and the ring as it is
(`planner`), and done by a compare-and-swap patch (`carry_out`). When it is looked at again, say the tables of `scans`
and `waiting`; whatever is missed, by the full scan every `sync_period`:

| what happens to it | who sees it, and what that leads to | what it waits for, and who may stop it |
|---|---|---|
| it is created, or its shard releases it | the webhook labels it; what that missed, the watch on unassigned objects \
(`seen`) or a scan (`decide`) finds | a fresh view of the Leases; one second, if it is not new: its former shard may \
want it back (`_delayed`) |
| its shard is lost | `lease_changed`: an urgent scan moves it | the take-over of the Lease (`lease_machine`), which \
many failures at once hold up; a proof that the shard is dead; a confirmation, with strict hand-over |
| somebody removes or changes its label | the webhook, or its shard, puts it back; one that names a shard that does \
not exist is that of a lost one | |
| the hash ring names another shard | `members_changed`: a scan of all sets the drain label; the shard removes both \
labels; then as in the first row | a run that does not end: for ever, unless the ring evicts shards (`drainTimeout`) |
| the key of its owner belongs to another shard | a scan of the controlled moves it, without a drain | the end of its \
owner's drain (`draining_owners`); a read of its owner, which has to be there already (`AskOwner`) |
| the ring is cleaned up: it has the finalizer and is deleted | a scan of all takes the labels away | a shard that \
lives: the drain comes first |
| the ring selects it no more | nobody moves it: it keeps its labels | |
| the ring selects its namespace, or etcd is restored | the driver asks for a scan of all | |
| a write meets another one | it is read and decided about again, `TRIES` times | others who write it; another ring's \
lock (`moves`) |
| a write is refused, or gets no answer | `failed`: it is read and tried again (`waiting`); if that lasts, the ring's \
conditions say why (docs/alerts.md) | that the refusal ends |

| in | |
|---|---|
| a Lease has changed, the ring or a namespace has | `lease_changed`, `ring_changed`, `namespace_changed` |
| an object is seen without an available shard | `seen` |
| a page of a list | `Reading.decide` |
| what has become of a step | sent to the `Steps` |
| a scan has ended | `Scan.ends`, `end` |

| out | |
|---|---|
| what is due, and when the next of it is | `due`, `wake_at` |
| which scan it is, once there is room for it, and the lists to read | `begin`, `Scan` |
| what to do about one object: read, ask, prove, write | `steps`, `place`, `Scan.carry_out` |
| what people are told | the ring's report and metrics (`tell_waiting`) |

A command is data, with what it is valid for: a `Job` has the view that it was decided with, and when its object was
read; a `Write` says just before it is sent whether it is still right. Whoever drives a machine knows no rule: it sleeps
until `wake_at`, does what is due, one step after the other, and tells what became of it. It is woken by `notify` and
`attend`, which its subclass of ResourceMachine overrides.

Guaranteed of writes: when one is sent, a new decision would be the same, with the current ring, its entry for the
resource, its shards and its namespaces; every further attempt begins with a new decision; a patch only takes effect on
the object as it was read for that decision. So a shard that returned keeps its objects, resources that left the ring
are not touched, and a label value that is written names an available shard. Objects are taken from a dead shard only
with a proof of its death that was started after the object was read. `docs/design/taking-from-the-dead.md` explains why
such a patch cannot take an object from a shard that works again. One that is under way when the shard returns is
stopped by the shard: before it works, it gives each object with its name a new version (`RETURNING`), and takes `TAKEN`
away. A controlled object leaves a live shard only if its owner, as it was read after the decision, is where the object
goes, or is gone. A movement is counted only when the response names the target; a failure of one object (deleted,
changed, rejected) does not affect others.

Guaranteed of what is controlled: an object is not moved away from a live shard before the drain of its owner was
requested, and not while that drain is pending. So it waits while its owner is known to be drained, or the drain could
not be requested, or the owner could not be given to a shard, because such a move may take effect late; and until the
owner's resource was read completely, without an error, with the ring's current shards: until then drains are unknown.

There are two rules for the order of scans (`_before`). A normal scan of a controlled resource follows one of the
resources that control it, so that drains are requested, and known, before decisions on the objects that wait for them.
It waits for that scan to end, not to succeed: after a failure drains are unknown. An urgent scan of a main resource
follows those of the resources that it controls, for `CONTROLLED_FIRST` seconds at most: nobody works on the objects of
a dead shard, and their next shard finds what they control on its first run. Otherwise it would try again and again to
write what is still labelled with the dead shard.

Kept in memory: what `waiting` says. No event loop is needed, and no time passes here but that of the ring's clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Any, Generic, NamedTuple, Self, TypeVar

from kubeshard.core.errors import (
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    NotOurs,
    Throttled,
    Unauthorized,
)
from kubeshard.core.kinds import GroupResource, Kind, TypeMeta
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import Key, ObjectMeta, PartialObject
from kubeshard.core.owners import controller_of, group_kind_of
from kubeshard.core.patches import JsonPatch, MergePatch, add, pointer, remove, test
from kubeshard.core.selectors import Selector
from kubeshard.core.versions import compare
from kubeshard.runtime.notices import Notices
from kubeshard.sharding.conditions import ASSIGNMENT_STUCK_AFTER, DRAIN_STUCK_AFTER
from kubeshard.sharding.hash_ring import kind_of_key
from kubeshard.sharding.names import DRAIN_VALUE, RETURNING, TAKEN, shard_label
from kubeshard.sharding.planner import (
    NOT_SELECTED,
    NOT_SHARDED,
    Action,
    Decision,
    RingView,
    not_sharded,
    plan,
)
from kubeshard.sharding.proofs import Proof
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.ring_resources import FEW_NAMESPACES, RingEntry
from kubeshard.sharding.scans import (
    FAILED,
    FOLLOW,
    FOLLOW_MAIN,
    DueScan,
    ScanPriority,
    ScanResult,
    ScanScope,
    Schedule,
)
from kubeshard.sharding.shard_states import ShardChange
from kubeshard.sharding.waiting import (
    Asked,
    Backoff,
    Delays,
    HandledObjects,
    PendingDrains,
    Refusals,
    Retries,
    SkippedNamespaces,
    WaitingObjects,
    WebhookSeries,
    grouped,
)

LOGGED_EVERY, UNTIL_EXPLAINED = 600.0, 60.0
CONTROLLED_FIRST = 3.0
TOLD_TOGETHER = 1.0
"""Seconds for which news of refusals are collected."""
LOOKED_AT_AGAIN = 5.0

TRIES, TRIES_BY_VERSION = 6, 3
"""Of an object that changes again and again."""
BACK_OFFS = 10

MANY_NAMESPACES = 50
"""If a ring selects few of many namespaces, it lists each of these: where each of many rings has a namespace of its
own, none reads the objects of all.
"""

S = TypeVar("S", bound="ResourceMachine")
"""What drives a resource."""


class Known(NamedTuple):
    """A state of an object, and when (monotonic) it was read at the latest."""

    meta: ObjectMeta
    read: float

    def newer_than(self, meta: ObjectMeta) -> bool:
        return compare(self.meta.resource_version, meta.resource_version) > 0


class Job(NamedTuple):
    """A decision about one object, with the ring's entry as it was when the object was read. `draining` (see `plan`) is
    always what is known now. When it is carried out, the decision is checked just before each write.
    """

    sync: RingMachine[Any]
    entry: RingEntry
    kind: Kind
    meta: ObjectMeta
    decision: Decision
    draining: Container[str] = ()
    read: float | None = None
    """When (monotonic) the object was read; None: just now."""
    view: RingView | None = None
    """The view that it was decided with; None if unknown."""

    @property
    def key(self) -> Key:
        return Key(self.meta.namespace, self.meta.name)

    @property
    def place(self) -> tuple[GroupResource, str, str]:
        return self.entry.resource, self.meta.namespace, self.meta.name

    @property
    def who(self) -> tuple[str, type]:
        """What distinguishes it from other jobs for the object."""
        return self.sync.ring.name, type(self.draining)

    def of(self, known: Known) -> Job | None:
        """The job for this state of the object and the current ring, with its view; None if the ring no longer has its
        resource.
        """
        view, resource = self.sync.ring.view, self.entry.resource
        if view is None or resource not in view.resources:
            return None
        entry, draining = view.resources.entry(resource), self.draining
        if entry != self.entry:
            draining = ANY_OWNER  # its new owners have not been scanned
        type_ = TypeMeta(self.kind.api_version, self.kind.kind)
        decision = plan(view, entry, type_, known.meta, draining=draining)
        return self._replace(
            entry=entry, meta=known.meta, decision=decision, draining=draining, read=known.read, view=view
        )

    def now(self) -> Job | None:
        """The job for the current ring. The inputs of the decision about a main object are the view, and the namespace,
        whose labels may have changed before the ring was notified.
        """
        view = self.sync.ring.view
        if view is not None and view is self.view and self.entry.main and view.selects(self.meta.namespace):
            return self
        return self.of(self.known)

    @property
    def known(self) -> Known:
        assert self.read is not None
        return Known(self.meta, self.read)


class MoveResult(Enum):
    """What has become of a job."""

    MOVED = auto()
    DRAINED = auto()
    NOTHING = auto()
    """Nothing left to do: the object is gone, or on the right shard."""
    WAITING = auto()
    """Something else must happen first."""
    FAILED = auto()
    """Rejected, or always a conflict; the ring has recorded it."""


class Read(NamedTuple):
    """Read the object: `Known`."""

    job: Job


class LookUp(NamedTuple):
    """Read what controls the object's controller (`Ring.look_up`)."""

    job: Job


class ProveDead(NamedTuple):
    """Prove that the object's shard has died since the object was read: the `Proof`, or None if it may live. Ask before
    the turn of the write that follows has come.
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
    """Patch the object: the answer, or `Changed`. None if another job of the ring waits for the object, which goes on
    from what this one has read.
    """

    job: Job
    patch: Callable[[Job], MergePatch | JsonPatch]
    proof: Proof | None = None
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


class Do(Enum):
    """What is due."""

    PLACE = auto()
    """Give the object to a shard."""
    LOOK = auto()
    """See whether somebody else has given it to one."""
    TRY_AGAIN = auto()
    """Write what was refused."""
    PROBE = auto()
    """Find out by the object whether the webhook is called."""
    ASK = auto()
    """Ask whether single objects may be read and written, because that was refused."""
    SCAN = auto()
    """Do the scan of this priority: `begin`, `end`."""


Command = tuple[Do, Job | ScanPriority | None]
"""What to do, and about what."""


class RingMachine(Generic[S]):
    """See the module. `backoff`: for each resource, how long refused writes wait. `at_once`: patches in flight for
    objects of one resource whose delay is over. `probes`: whether a webhook has to assign the ring's objects.
    """

    def __init__(self, ring: Ring, backoff: Callable[[], Backoff], *, at_once: int, probes: bool) -> None:
        self.ring = ring
        self.backoff = backoff
        self.at_once = at_once
        self.resources: dict[GroupResource, S] = {}
        self.available_until = -math.inf
        """When the ring loses a shard without an event."""
        self.webhook: WebhookSeries[Job] | None = WebhookSeries() if probes else None
        self._failures = Notices(ring.clock, every=LOGGED_EVERY)
        ring.led_by(self)

    def ring_changed(self) -> None:
        """The ring has another spec: syncs of resources that it no longer lists end."""
        if self.ring.by_ranges:
            self.stop()
            return
        self.request(ScanScope.ALL)
        for sync in list(self.resources.values()):
            if sync.entry not in self.ring.resources.entries:
                sync.close()
        self.tell_waiting()  # without what has left: there may be no other scan

    def namespace_changed(self, name: str) -> None:
        """The namespace appeared, was deleted, or has other labels."""
        if name in self.ring.named:
            self.notify()

    def lease_changed(self, change: ShardChange) -> None:
        """A Lease of the ring has changed. This is told immediately, even if a shard returns soon: a running scan may
        have seen the ring without it.
        """
        if change.news:
            self.members_changed()
        if (change.availability or change.presence) and (change.after is None or not change.after.available):
            # A shard that was not available any more, but might have lived, may be dead now.
            self.request(ScanScope.MISPLACED)

    def members_changed(self) -> None:
        """The shards to which objects are assigned may have changed."""
        now, shards = self.ring.clock.monotonic(), self.ring.shards
        self.available_until = shards.until
        for sync in self.resources.values():
            sync.schedule.members(shards.labelled, now)
            sync.notify()

    def notify(self) -> None:
        """Something has changed for which scans of several resources may wait."""
        for sync in self.resources.values():
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
            if sync.schedule.follow(now):
                sync.notify()

    def released(self, resource: GroupResource) -> None:
        """Drains of main objects have ended: the objects that they control may follow them."""
        for sync in self.resources.values():
            if resource in sync.entry.owners:
                sync.request(ScanScope.CONTROLLED, self.ring.clock.monotonic())

    def refused(self, resource: GroupResource, decision: Decision) -> None:
        """The object was not written: rejected, unproven, or it is not known whether the write takes effect."""
        if (sync := self.resources.get(resource)) is None or not sync.entry.main:
            return
        if decision.action is Action.DRAIN:
            sync.pending_drains.refused(decision.key)
        else:
            sync.pending_drains.not_placed(decision.key)

    def carry_out(self, job: Job, *, again: bool = False) -> Steps:
        """One compare-and-swap patch, or none. After a conflict (also: a failed test of a JSON patch) it decides again,
        from what was read then, at most `TRIES` times; after `TRIES_BY_VERSION` of them, an object that is written all
        the time is first marked (`TAKEN`), and then patched with a test of the shard label instead of the
        resourceVersion. What goes wrong, even unexpectedly, fails for this object
        only, and is left to the retries. A process that lost leadership leaves the job to the new leader. `again`: the
        object is read first.
        """
        handled, key, clock = self.handled(job.entry.resource), job.key, self.ring.clock
        error: ApiError | None = None
        tries, conflicts, throttled, renewed, done = 0, 0, 0, False, False
        handled.begins(key)
        if job.read is None:
            job = job._replace(read=clock.monotonic())
        try:
            now: Job | None = job  # a write checks whether that stands; a move may ask others before
            if again:
                now = yield from self.read(job)
            elif job.view is None or (
                job.decision.action not in (Action.ASSIGN, Action.DRAIN)
                and not (job.entry.main and job.view is self.ring.view)
            ):
                now = job.now()
            while now is not None and tries < TRIES + BACK_OFFS and conflicts < TRIES:
                job, tries = now, tries + 1
                try:
                    result = yield from self._tried(job, by_version=conflicts < TRIES_BY_VERSION)
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
                        done = result is not MoveResult.WAITING
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
            done = True
            return MoveResult.NOTHING
        except NotOurs:
            return MoveResult.WAITING
        except NotFound:
            done = True
            return MoveResult.NOTHING
        except Exception as failure:
            return (yield from self._refused(job, failure))
        finally:
            handled.ends(key, clock.monotonic(), done=done)

    def _tried(self, job: Job, *, by_version: bool) -> Generator[Step, Any, MoveResult | Known | Changed]:
        """What the decision leads to now, or the state of the object to decide about again."""
        (action, target, source, _, key), resource, view = job.decision, job.entry.resource, job.view
        assert view is not None
        if action is Action.WAIT:
            return MoveResult.WAITING
        if action is not Action.ASSIGN and action is not Action.MOVE and action is not Action.DRAIN:
            if target:
                self.placed(resource, job.decision)
            return MoveResult.NOTHING
        proof: Proof | None = None
        asked = False
        if action is Action.MOVE and source and source not in view.available:
            asked, proof = True, (yield ProveDead(job)) if self.ring.has_ended(source) else None
            if proof is None:
                self.refused(resource, job.decision)
                return MoveResult.WAITING
        elif action is Action.MOVE and source and key:  # without a key it has no owner to follow
            asked = True
            if not follows(job, (yield AskOwner(job))):
                return MoveResult.WAITING
        patch = drain_by_version if by_version else drain_by_label
        if action is not Action.DRAIN:
            patch = move_by_version if by_version else move_by_label
            if proof is not None and not by_version and job.meta.label(view.drain_label) != TAKEN:
                patch = mark_as_taken
        match (yield Write(job, patch, proof, asked)):
            case None:
                return MoveResult.NOTHING
            case Changed() as change:
                return change
            case answer:
                pass
        if patch is mark_as_taken:
            return Known(answer, self.ring.clock.monotonic())
        if action is Action.DRAIN:
            self.ring.metrics.add("drains", resource)
            self.drained(resource, job.decision)
            return MoveResult.DRAINED
        if (shard := answer.label(view.shard_label)) != target:
            raise ApiError(f"the API server stored shard {shard!r} instead of {target!r}")
        if target:  # else the ring is being deleted
            self.ring.metrics.add("movements", resource)
            self.placed(resource, job.decision)
            if action is Action.ASSIGN:
                self.assigned_late(job)
        return MoveResult.MOVED

    def read(self, job: Job) -> Generator[Step, Any, Job | None]:
        """The job for the current object; None if the ring no longer has its resource."""
        if job.read is None:
            job = job._replace(read=self.ring.clock.monotonic())
        if job.now() is None:
            return None
        known: Known = yield Read(job)
        return job.of(known)

    def _refused(self, job: Job, error: Exception) -> Steps:
        """Of the last decision, which may differ from the first one."""
        resource = job.entry.resource
        yield Tell(job, error, self.to_log(resource, "patch", error))
        self.ring.metrics.add("move_failures", resource, type(error).__name__)
        self.failed(job, error)
        return MoveResult.FAILED

    def failed(self, job: Job, error: Exception) -> None:
        """A write of an object was rejected, for this reason; it is tried again."""
        self.refused(job.entry.resource, job.decision)
        if (sync := self.resources.get(job.entry.resource)) is not None:
            sync.failed(job, error)

    def assigned_late(self, job: Job) -> None:
        """An unassigned object got its first shard by a patch."""
        resource = job.entry.resource
        self.ring.metrics.add("late_assignments", resource)
        if (
            self.webhook is not None
            and self.webhook.about is None
            and (sync := self.resources.get(resource)) is not None
            and self.ring.has_webhook_in(job.meta.namespace)
            and not _is_looked_up(job)
        ):
            self.webhook.late(job, self.ring.clock.monotonic())
            sync.attend()

    def tell_webhook(self) -> None:
        """Tells whether the webhook is called."""
        if self.webhook is not None:
            self.ring.report.webhook_unreached = self.webhook.unreached
            self.ring.metrics.set("webhook_unreached", float(self.webhook.unreached))

    def placed(self, resource: GroupResource, decision: Decision) -> None:
        """An object is on the shard that it was to be given to."""
        if (sync := self.resources.get(resource)) is not None:
            sync.pending_drains.placed(decision.key)

    def handled(self, resource: GroupResource) -> HandledObjects:
        """Which of the objects jobs deal with."""
        sync = self.resources.get(resource)
        return HandledObjects() if sync is None else sync.handled

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
        ring.metrics.set("oldest_drain_seconds", max((each.drains.oldest for each in syncs), default=0.0))
        ring.metrics.set(
            "oldest_unassigned_seconds", max((each.unassigned.oldest for each in syncs), default=0.0)
        )
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
        ring.metrics.set("objects_unconfirmed", len(unconfirmed))
        refused = grouped((why, name) for name, why in undrained.items())
        ring.report.waiting(grouped(drains), unassigned, grouped(unconfirmed), refused)
        ring.evictions.overdue(
            ((sync.entry.resource, each.uid), each.whom, sync.drains.read_at)
            for sync in syncs
            for each in sync.drains.older_than(ring.evictions.timeout)
        )

    def stop(self) -> None:
        """The ring was deleted, is sharded by ranges now, or this process lost leadership."""
        self.ring.let_go(self)
        for sync in list(self.resources.values()):
            sync.close()


class ResourceMachine:
    """One resource of a ring, while this process leads: the schedule of scans of its objects, and their in-memory
    state.
    """

    def __init__(self, of: RingMachine[Any], entry: RingEntry, sync_period: float) -> None:
        self.of = of
        self.ring = of.ring
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
        self.delays: Delays[Job] = Delays()
        """Objects that have just lost their shard."""
        self.retries: Retries[Job] = Retries(of.backoff())
        """Objects whose writes were refused."""
        self.placing = 0
        """How many of the delayed objects are being assigned."""
        self._doubted = False
        """Whether it has to be asked if objects may be read and written."""
        self._tell_at = math.inf
        """When news of refusals are told."""
        self.handled = HandledObjects()
        self._not_sharded: Mapping[str | AllNamespaces, Mapping[str, int]] = {}
        """How many objects the ring does not shard, by the namespaces that were listed, and why."""
        self.narrow = False
        """Whether a scan did not see objects in namespaces that were not known."""
        self.scanning: set[ScanPriority] = set()
        """The priorities whose scan was `due`, and has not ended."""
        self.began: dict[ScanPriority, float] = {}
        """When the scan of each priority began that is under way."""
        self._ahead: dict[ScanPriority, tuple[Iterator[float], float]] = {}
        """What a scan waits for that is to be done (`_before`), and until when at most."""
        self._ended = dict.fromkeys(ScanPriority, 0)
        of.resources[entry.resource] = self

    def __str__(self) -> str:
        return f"{self.entry.resource} of {self.ring}"

    def has_kind_of(self, key: str) -> bool:
        """Whether an object with this key is known to be one of its objects."""
        return self.kind is not None and self.kind.group_kind == kind_of_key(key)

    def spoken(self, key: Key) -> str:
        """An object of it in a text."""
        return f"{self.entry.resource.resource} {key}"

    def close(self) -> None:
        """The ring no longer has the resource, or this process does not lead any more."""
        self.open = False
        self.of.resources.pop(self.entry.resource, None)
        # The ring may have it in another role now, and be unable to read it.
        self.ring.metrics.set("drains_pending", 0, self.entry.resource)
        self.ring.metrics.set("objects_unassigned", 0, self.entry.resource)
        self.tell_not_sharded({}, ())
        if self.of.webhook is not None and self._is_probed:
            self.of.webhook.end()
            self.of.tell_webhook()
        self.of.notify()

    def tell_counts(self) -> None:
        """Tells which objects wait."""
        self.ring.metrics.set("drains_pending", self.drains.count, self.entry.resource)
        self.ring.metrics.set("objects_unassigned", self.unassigned.count, self.entry.resource)
        self.of.tell_waiting()

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
        for why in NOT_SHARDED:
            self.ring.metrics.set("objects_not_sharded", total[why], self.entry.resource, why)

    def request(self, scope: ScanScope, now: float) -> None:
        """Requests a scan."""
        self.schedule.request(scope, now)
        self.notify()

    def missed(self) -> None:
        """Objects without an available shard may have been missed: requests a scan of them, if none is about to."""
        if not self.scans_all_soon:
            self.request(ScanScope.MISPLACED, self.ring.clock.monotonic())

    # What waits

    @property
    def watched(self) -> Selector:
        """The objects without an available shard, as far as a selector can tell: what to watch."""
        view = self.ring.view
        if view is None or not view.available or view.releasing:
            return Selector.absent(shard_label(self.ring.name))
        return view.unplaced or Selector.absent(view.shard_label)

    def seen(self, kind: Kind, meta: ObjectMeta, *, changed: bool) -> Job | None:
        """A watch, or a list of unassigned objects, shows an object. Returns how it is to be assigned now (`place`);
        None if that is not necessary, or comes later. `changed`: it has just changed, so its shard may want it back.
        """
        job = self._unplaced(kind, meta)
        return None if job is not None and changed and self._delayed(job) else job

    def _unplaced(self, kind: Kind, meta: ObjectMeta) -> Job | None:
        """The assignment of an object that a watch or a list shows, if the ring wants it and it has no available shard:
        the webhook missed it, it has lost its shard, or somebody has written the name of a shard that does not exist.
        Controlled objects are assigned whatever their owners do, as nobody works on them; a new decision about one that
        has a shard by then makes it wait (`ANY_OWNER`).
        """
        ring, entry = self.ring, self.entry
        view = ring.view
        if view is not None:
            decision = plan(view, entry, TypeMeta(kind.api_version, kind.kind), meta)
            action = decision.action
            if decision.reason == NOT_SELECTED and not ring.knows_namespace(meta.namespace):
                self.skipped_namespaces.add(meta.namespace)
            taken = action is Action.MOVE and decision.source not in view.available
            if taken or action is Action.ASSIGN or action is Action.LOOK_UP:
                return Job(self.of, entry, kind, meta, decision, ANY_OWNER, None, view)
        if self.delays:
            self.delays.left(Key(meta.namespace, meta.name))
        return None

    def _delayed(self, job: Job) -> bool:
        """The object has just changed, or was found without a shard. Returns whether its shard may still want it back:
        then it is assigned later. Where only one shard is available, nothing waits: no other one can want the object.
        """
        view, delays, clock = job.view, self.delays, self.ring.clock
        assert view is not None
        if not self.entry.main:
            return False
        key = job.key
        if len(view.available) == 1 or not delays.waits(key, job.meta, clock.wall()):
            delays.left(key)
            return False
        first = delays.put(key, job, clock.monotonic())
        # Another sharder may be quicker, and choose another shard.
        self.pending_drains.not_placed(job.decision.key)
        if first:  # else an earlier one is waited for
            self.attend()
        return True

    def steps(self, what: Do, job: Job) -> Steps:
        """Does what is due."""
        match what:
            case Do.PLACE:
                return self.place(job, delayed=True)
            case Do.LOOK:
                return self._look(job)
            case Do.PROBE:
                return self._probe(job)
            case _:
                return self._try_again(job)

    def place(self, job: Job, *, delayed: bool = False) -> Steps:
        """Assigns an object that was seen without an available shard. Where the view of the Leases may be out of date,
        a scan does, since it reads them first. If a shard cannot be proven dead, its objects are looked at again a
        moment later. `delayed`: it was `due`.
        """
        try:
            if not self.ring.fresh:
                self.handled.ends(job.key, self.ring.clock.monotonic(), done=False)
                self.missed()
                return MoveResult.WAITING
            if job.decision.action is Action.LOOK_UP:
                try:
                    yield LookUp(job)
                except ApiError:
                    self.request(ScanScope.MISPLACED, self.ring.clock.monotonic() + LOOKED_AT_AGAIN)
                    return MoveResult.WAITING
                again = self._unplaced(job.kind, job.meta)
                if again is None or again.decision.action is Action.LOOK_UP:
                    return MoveResult.NOTHING
                job = again
            result = yield from self.of.carry_out(job)
            if result is MoveResult.WAITING and job.decision.action is Action.MOVE:
                self.request(ScanScope.MISPLACED, self.ring.clock.monotonic() + LOOKED_AT_AGAIN)
            return result
        finally:
            if delayed:
                self._placed()

    def _look(self, job: Job) -> Steps:
        """Notes it if somebody else has put the object on its shard. Anything else is left to the next scan."""
        now: Job | None = None
        done = False
        try:
            now = yield from self.of.read(job)
            done = now is not None and now.decision.action is Action.NOTHING
        except (ApiError, TimeoutError):
            return MoveResult.WAITING
        finally:
            self.handled.ends(job.key, self.ring.clock.monotonic(), done=done)
            self._placed()
        if now is not None and done and now.decision.target:
            self.of.placed(job.entry.resource, now.decision)
        return MoveResult.NOTHING

    def _try_again(self, job: Job) -> Steps:
        result: MoveResult | None = None
        try:
            return (result := (yield from self.of.carry_out(job, again=True)))
        finally:
            self.tried(job, result)

    def _probe(self, job: Job) -> Steps:
        """A dry run shows whether the webhook is called for the object, or nobody can know."""
        called, view = True, self.ring.view
        try:
            if view is not None and view.available:
                unlabelled = MergePatch({"metadata": {"labels": {view.shard_label: None}}})
                answer: ObjectMeta = yield DryRun(job, unlabelled)
                # The webhook is not called in a namespace that the ring does not select any more, say.
                wanted = plan(view, job.entry, TypeMeta(job.kind.api_version, job.kind.kind), answer)
                called = wanted.action is not Action.ASSIGN or self.ring.view is not view
        except ApiError:
            pass
        finally:
            self.probed(called=called)
        return MoveResult.NOTHING

    def failed(self, job: Job, error: Exception) -> None:
        """A write of an object was rejected; it is tried again."""
        now, retry_after = (
            self.ring.clock.monotonic(),
            error.retry_after if isinstance(error, ApiError) else None,
        )
        if self.refusals.refused(job.meta, error, now, drain=job.decision.action is Action.DRAIN):
            self._tell_at = min(self._tell_at, now + TOLD_TOGETHER)
        self._doubted |= isinstance(error, Forbidden)
        if not self.retries.failed(job.key, job, now, retry_after or 0.0):
            lives = job.decision.source in self.ring.available
            self._ask_for(self.retries.more(ScanScope.ALL if lives else ScanScope.MISPLACED, now))
        self.attend()

    def tried(self, job: Job, result: MoveResult | None) -> None:
        """A refused write was tried again; None: that crashed. A failure was told before (`failed`)."""
        now, done = self.ring.clock.monotonic(), result is not None and result is not MoveResult.FAILED
        self.retries.ended(job.key, now, done=done)
        if done and self.refusals.ended(job.key):
            self._tell_at = min(self._tell_at, now + TOLD_TOGETHER)
        if done and job.decision.action is Action.DRAIN:
            # What seemed to fail may have taken effect late: the drain is followed until a scan finds it gone. Else
            # what waits for its end would wait for the next scan of everything.
            self.of.drained(self.entry.resource, job.decision)
        if result is MoveResult.MOVED or result is MoveResult.DRAINED:
            self._ask_for(self.retries.succeeded(now))
        elif result is MoveResult.WAITING:  # for a proof, or for its owner: only scans see that
            lives = job.decision.source in self.ring.available
            self.request(ScanScope.CONTROLLED if lives else ScanScope.MISPLACED, now + LOOKED_AT_AGAIN)
        self.attend()

    def resume(self) -> None:
        """Nobody does what was `due` before: whoever did crashed, or begins."""
        now = self.ring.clock.monotonic()
        self.scanning.clear()
        self.retries.resume(now)
        if self.of.webhook is not None and self._is_probed:
            self.of.webhook.resume(now)
        if self.placing:  # jobs that never began, of which nobody tells the end
            self.placing, self.handled = 0, HandledObjects()
            self.missed()

    def _placed(self) -> None:
        """The assignment of a delayed object has ended."""
        if self.placing == self.of.at_once:  # the next one waits for this
            self.attend()
        self.placing -= 1

    def probed(self, *, called: bool) -> None:
        """The end of a dry run. `called`: the webhook was called, or nobody can know."""
        if self.of.webhook is not None and self.open:
            self.of.webhook.answered(self.ring.clock.monotonic(), called=called)
            self.of.tell_webhook()
            self.attend()

    def due(self) -> list[Command]:
        """What is to be done now."""
        now, webhook = self.ring.clock.monotonic(), self.of.webhook
        if self._tell_at <= now:  # before anything is taken: what this raises loses nothing
            self._tell_at = math.inf
            self.of.tell_waiting()
        taken = self.delays.take(now, self.of.at_once - self.placing)
        self.placing += len(taken)
        for key, _, _ in taken:
            self.handled.begins(key)
        commands: list[Command] = [(Do.LOOK if left else Do.PLACE, job) for _, job, left in taken]
        commands += [(Do.TRY_AGAIN, job) for job in self.retries.take(now)]
        if self._doubted:
            self._doubted = False
            commands.append((Do.ASK, None))
        if webhook is not None and self._is_probed and (about := webhook.take(now)) is not None:
            commands.append((Do.PROBE, about))
        self.schedule.members(self.ring.shards.labelled, now)
        if now >= self.of.available_until:
            self.of.available_until = self.ring.shards.until
        scans = [priority for priority in ScanPriority if self._may_scan(priority, now)]
        self.scanning.update(scans)
        return [*commands, *((Do.SCAN, priority) for priority in scans)]

    @property
    def wake_at(self) -> float:
        """When something is `due`; infinite if that needs an event."""
        if self._doubted:
            return -math.inf
        delays = self.delays.wake_at if self.placing < self.of.at_once else math.inf
        dry_run = self.of.webhook.wake_at if self.of.webhook is not None and self._is_probed else math.inf
        scans = map(self._scan_at, ScanPriority)
        return min(delays, self.retries.wake_at, dry_run, self._tell_at, self.of.available_until, *scans)

    def notify(self) -> None:
        """The ring has changed, or a scan may be due. Whoever drives it overrides this."""
        self.attend()

    def attend(self) -> None:
        """`wake_at` may be earlier now. Whoever drives it overrides this."""

    @property
    def _is_probed(self) -> bool:
        """Whether an object of it is the one of the dry runs."""
        about = self.of.webhook.about if self.of.webhook is not None else None
        return about is not None and about.entry.resource == self.entry.resource

    def _ask_for(self, scans: Iterable[Asked]) -> None:
        for scope, at in scans:
            self.request(scope, at)

    # Scans

    def _may_scan(self, priority: ScanPriority, now: float) -> bool:
        """Whether a scan is to be done, and those that it waits for have ended."""
        known = self._ahead.pop(priority, None)
        if priority in self.scanning or self.schedule.due(priority, now) is None:
            return False
        ahead = self._before(priority) if known is None else known[0]
        for until in ahead:
            self._ahead[priority] = ahead, until
            return False
        return True

    def _scan_at(self, priority: ScanPriority) -> float:
        """When one may be due of which is not known yet that it is."""
        if priority in self.scanning:
            return math.inf
        if priority in self._ahead:
            return self._ahead[priority][1]
        now = self.ring.clock.monotonic()
        return now + self.schedule.wait(priority, now)

    def begin(self, priority: ScanPriority) -> DueScan | None:
        """There is room for a scan that was `due`. Returns what to scan; None if that is needed no more."""
        now = self.ring.clock.monotonic()
        if (work := self.schedule.due(priority, now)) is not None:
            self.began[priority] = now
        return work

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

    def end(self, priority: ScanPriority, work: DueScan | None = None, result: ScanResult = FAILED) -> None:
        """The scan of this priority has ended; `work` is what `begin` has returned."""
        self.scanning.discard(priority)
        if (began := self.began.pop(priority, None)) is not None:
            self._ended[priority] += 1
            if work is not None:
                self.schedule.done(priority, work, result, began, self.ring.clock.monotonic())
        self.of.notify()

    def due_soon(self, priority: ScanPriority, now: float) -> bool:
        """Whether a scan of the priority is running, or about to start."""
        return self.open and (priority in self.began or self.schedule.due(priority, now) is not None)

    def _before(self, priority: ScanPriority) -> Iterator[float]:
        """Yields as long as a scan that is due has to wait for others: until when, if nothing changes."""
        now, clock = self.ring.clock.monotonic(), self.ring.clock
        if priority is ScanPriority.NORMAL:
            yield from self._end_of_scan(ScanPriority.URGENT)
            for owner in self.owners:
                if not owner.schedule.failing(ScanPriority.NORMAL):
                    now, view = clock.monotonic(), self.ring.view
                    if view is not None and not owner.pending_drains.is_known(view.hashring):
                        owner.request(
                            ScanScope.ALL, now
                        )  # else this would wait for the next periodic scan there
                    elif not owner.due_soon(ScanPriority.NORMAL, now):
                        owner.request(ScanScope.CONTROLLED, now)
                    yield from owner._end_of_scan(ScanPriority.NORMAL)
        elif self.entry.main:
            for controlled in self.controlled:
                yield from controlled._end_of_scan(ScanPriority.URGENT, now + CONTROLLED_FIRST)

    def _end_of_scan(self, priority: ScanPriority, until: float = math.inf) -> Iterator[float]:
        """Until a scan has ended that is running or about to start, if any."""
        ended = self._ended[priority]
        while self._ended[priority] == ended:
            now = self.ring.clock.monotonic()
            if now >= until or not self.due_soon(priority, now):
                break
            yield until

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
    def owners(self) -> list[Self]:
        """The main resources that list this one as controlled."""
        return [self.of.resources[each] for each in sorted(self.entry.owners) if each in self.of.resources]

    @property
    def controlled(self) -> list[Self]:
        """The resources that this one, a main resource, lists as controlled."""
        return [each for each in self.of.resources.values() if self.entry.resource in each.entry.owners]


class Scan:
    """One scan of a resource: what to read, what to do about each object, and what it has found so far.

    An object is not written again that a job deals with, or has dealt with since the scan began. Who has just lost its
    shard waits as if the watch had shown it.
    """

    def __init__(self, of: ResourceMachine, scope: ScanScope) -> None:
        self.of = of
        self.ring = of.ring
        self.scope = scope
        self.began = now = of.ring.clock.monotonic()
        self.tells_drains = of.entry.main and scope is not ScanScope.MISPLACED
        """Whether it lists all objects that are being drained."""
        self.drains, self.unassigned = of.drains.snapshot(now), of.unassigned.snapshot(now)
        self.waiting = self.moved = 0
        self.unread: dict[str, ApiError] = {}
        """Namespaces that could not be read."""
        self.not_sharded: dict[str | AllNamespaces, Counter[str]] = {}
        """How many objects of each complete list the ring does not shard, by why."""
        self.kept = False
        """Whether a drain was seen that may end with the object where it is (`RETURNING`)."""
        self.leaves_some = False
        """Whether an urgent scan was left some of the objects without an available shard."""
        self.clean_up = of.ring.clean_up if scope is not ScanScope.MISPLACED else None
        self.holders: Counter[str] | None = None if self.clean_up is None else Counter()
        """In a ring that is being cleaned up: how many objects have the label of each shard."""
        self._view: RingView | None = None
        """The ring as it was when the reads began."""
        of.handled.scans_since(min(of.began.values(), default=now))

    def begin(self, kind: Kind) -> list[Reading]:
        """The lists to read, all at the same time. `kind`: that of the resource."""
        of, ring, view = self.of, self.ring, self.ring.view
        of.kind = kind
        if view is None or not (view.hashring.shards or view.releasing):
            return []
        self._view = view
        if self.tells_drains:
            of.pending_drains.begin(complete=self.scope is ScanScope.ALL)
        names, selector = self._namespaces(kind), self._selector(view)
        of.narrow = names is not None
        if names == () and not ring.named:  # asks whether the resource can be read
            names, selector = None, Selector.exists(view.shard_label) & Selector.absent(view.shard_label)
        draining = of.draining_owners
        places: Iterable[str | AllNamespaces] = (ALL,) if names is None else names
        return [Reading(self, place, kind, selector, draining) for place in places]

    def read(self) -> None:
        """All lists were read that `begin` has returned, or have failed on their own."""
        view, pending = self._view, self.of.pending_drains
        if view is not None and self.tells_drains and pending.end(view.hashring, frozenset(self.unread)):
            self.of.of.released(self.of.entry.resource)

    def could_not_read(self, namespace: str, error: ApiError) -> None:
        """All of one of the namespaces, or an object in it."""
        self.unread[namespace] = error

    def carry_out(self, job: Job) -> Steps:
        """What was decided, and what has become of it."""
        result = yield from self.of.of.carry_out(job)
        self.moved += result is MoveResult.MOVED or result is MoveResult.DRAINED
        if result is MoveResult.WAITING and not job.entry.main:
            self.waiting += 1  # its owner is not there yet
        if (
            result in (MoveResult.FAILED, MoveResult.WAITING)
            and job.decision.source not in self.ring.available
        ):
            self.lost(job.meta, job.decision)
        return result

    def lost(self, meta: ObjectMeta, decision: Decision) -> None:
        """The object has no available shard, and waits for one."""
        self.unassigned.add(meta, self.ring.clock.monotonic(), decision.source)

    def drains_seen(self, meta: ObjectMeta, decision: Decision, view: RingView) -> None:
        """The object is being drained, or waits for its owner's drain."""
        self.waiting += 1
        if not self.of.entry.main:
            return
        asked = decision.action is Action.DRAIN  # it was not, or that was undone
        self.drains.add(meta, self.ring.clock.monotonic(), decision.source, anew=asked)
        pending = self.of.pending_drains
        pending.draining(decision.key)
        if not asked and meta.labels and meta.labels.get(view.drain_label) == RETURNING:
            self.kept = True
            pending.refused(decision.key)

    def leaves_to_urgent(self, read: float | None) -> bool:
        """Whether an urgent scan that reads later than this one places the objects without an available shard: else
        both would write them. One that is under way, and read earlier, may never see them.
        """
        if self.scope is ScanScope.MISPLACED:
            return False
        now, began = self.ring.clock.monotonic(), self.of.began.get(ScanPriority.URGENT)
        if began is None:
            return self.of.due_soon(ScanPriority.URGENT, now)
        return read is not None and began >= read

    def ends(self, error: ApiError | None, *, gone: bool) -> ApiError | None:
        """Nothing is read any more. `error`: what has ended it before all was read. `gone`: because the resource is not
        served; then nothing is left. Returns why not everything was read.
        """
        ring, now = self.ring, self.ring.clock.monotonic()
        problem = error or next(iter(self.unread.values()), None)
        if self.clean_up is not None and self.clean_up is ring.clean_up and (gone or not problem):
            self.clean_up.found(self.of.entry.resource, self.holders or {}, self.began, now)
            ring.report.labels_left = self.clean_up.left(ring.listed)
        ring.metrics.scanned(self.scope.name.lower(), now - self.began)
        return problem

    def result(self, error: ApiError | None, *, gone: bool) -> ScanResult:
        """After `ends`. What it has found counts now."""
        of = self.of
        if gone:  # no object is left, so none waits
            of.tell_not_sharded({}, ())
            of.pending_drains.uninstalled()
        elif error is None and self.scope is ScanScope.ALL and (self.not_sharded or self.unread):
            of.tell_not_sharded(self.not_sharded, self.unread)
        if gone or (error is None and self.tells_drains):
            self.drains.commit()
        if gone or (error is None and self.scope is not ScanScope.CONTROLLED and not self.leaves_some):
            self.unassigned.commit()
        if gone or error is None:
            of.tell_counts()
        if error is not None:
            return ScanResult(failed=True, moved=self.moved)
        waiting = self.waiting or of.owner_drains or int(self.clean_up is not None)
        return ScanResult(waiting, failed=bool(self.unread) or self.kept, moved=self.moved)

    def _selector(self, view: RingView) -> Selector | None:
        """None lists everything."""
        if view.releasing:
            labelled = Selector.exists(view.shard_label)
            if self.scope is not ScanScope.MISPLACED or not view.hashring.shards:
                return labelled
            return labelled & view.unplaced if view.unplaced else labelled
        if self.scope is ScanScope.CONTROLLED and self.of.entry.main:
            return Selector.exists(view.drain_label)
        return view.unplaced if self.scope is ScanScope.MISPLACED else None

    def _namespaces(self, kind: Kind) -> tuple[str, ...] | None:
        """The namespaces that the ring names or selects, if these are few. One that is being cleaned up may have
        selected others before.
        """
        ring = self.ring
        if not kind.namespaced or (ring.releasing and not ring.named):
            return None
        return ring.named_and_selected() if ring.named else ring.selected(FEW_NAMESPACES, MANY_NAMESPACES)


class Reading:
    """One list of a scan."""

    def __init__(
        self,
        of: Scan,
        place: str | AllNamespaces,
        kind: Kind,
        selector: Selector | None,
        draining: Container[str],
    ) -> None:
        self.place = place
        self.kind = kind
        self.selector = selector
        self.over = False
        """Whether nothing is to be done about further pages: the ring has ended, say."""
        self._of = of
        self._draining = draining
        self._read: float | None = None
        """When the first objects had arrived: the others are not newer, unless the list restarts."""
        self._left_out = Counter[str]()
        self._waited = True

    def restarted(self) -> None:
        """The list begins anew: deciding twice on an object is harmless."""
        self._read = None
        self._left_out.clear()

    def waited(self) -> None:
        """Others had their turn, so that the ring may have changed."""
        self._waited = True

    def ended(self) -> None:
        """It was read to its end."""
        self._of.not_sharded[self.place] = self._left_out

    def decide(self, page: Iterable[PartialObject], read_at: float) -> Iterator[Job]:
        """The jobs to carry out now for objects that were read then. One with `LOOK_UP` asks for what it names."""
        scan, ring, kind, draining = self._of, self._of.ring, self.kind, self._draining
        of, entry, began, holders, left_out = scan.of, scan.of.entry, scan.began, scan.holders, self._left_out
        delays, handled, type_ = of.delays, of.handled, TypeMeta(kind.api_version, kind.kind)
        if self._read is None:
            self._read = read_at
        view: RingView | None = None
        namespace, selected, urgent, self._waited = "", None, False, True
        for obj in page:
            if self._waited:
                view, namespace, selected, self._waited = ring.view, "", None, False
                urgent = scan.leaves_to_urgent(self._read)
            if view is None:
                self.over = True
                return
            meta = obj.metadata
            if holders is not None:
                holders[meta.label(view.shard_label)] += 1
            if meta.namespace != namespace:
                namespace = meta.namespace
                selected = view.of_selected if namespace and view.selects(namespace) else None
            decision = plan(selected or view, entry, type_, meta, draining=draining)
            if view.controllers:
                ring.controls_others(meta)
            if decision.action is Action.LOOK_UP:
                yield Job(of.of, entry, kind, meta, decision, draining, read_at, view)
                decision = plan(view, entry, type_, meta, draining=draining)
            action = decision.action
            if not decision.key and (why := not_sharded(decision, meta)):
                left_out[why] += 1
            if action is Action.NOTHING or action is Action.LOOK_UP or action is Action.REFUSED:
                if decision.reason == NOT_SELECTED and not ring.knows_namespace(meta.namespace):
                    of.skipped_namespaces.add(meta.namespace)
                continue
            if action is Action.WAIT or action is Action.DRAIN:
                scan.drains_seen(meta, decision, view)
                if action is Action.WAIT:
                    continue
            if urgent and decision.source not in view.available:
                scan.leaves_some = True
                continue
            job = Job(of.of, entry, kind, meta, decision, draining, read_at, view)
            key = job.key
            ended = handled.since(key, began)
            if ended is not None and ended < math.inf:
                continue
            if ended or (action is Action.ASSIGN and ((delays and key in delays) or of._delayed(job))):
                if decision.source not in view.available:
                    scan.lost(meta, decision)
                continue
            yield job


class _AnyOwner:
    def __contains__(self, key: object) -> bool:
        return True


ANY_OWNER = _AnyOwner()
"""The draining owners for decisions outside of a scan: any owner may be about to be drained."""


class _DrainingOwners:
    def __init__(self, sync: ResourceMachine) -> None:
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


def _is_looked_up(job: Job) -> bool:
    """Whether the webhook leaves such an object to the sharder, which has to look for its owner."""
    controller, kinds = controller_of(job.meta), job.view and job.view.owner_kinds.get(job.entry.resource)
    owner = kinds.get(group_kind_of(controller)) if controller is not None and kinds else None
    return owner is not None and not owner.main


def follows(job: Job, shard: str | None) -> bool:
    """Whether a controlled object may leave its live shard: its owner is where the object goes, or is gone. Another
    sharder, which knows better which shards live, may have given the owner to a third one.
    """
    return shard is None or shard == job.decision.target


# The patches


def move_by_version(job: Job) -> MergePatch:
    meta, view = job.meta, job.view
    assert view is not None
    labels = {view.shard_label: job.decision.target or None, view.drain_label: None}
    return MergePatch(
        {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, "labels": labels}}
    )


def move_by_label(job: Job) -> JsonPatch:
    view, labels, target = job.view, job.meta.labels, job.decision.target
    assert view is not None
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
    view, version = job.view, job.meta.resource_version
    assert view is not None
    return MergePatch({"metadata": {"resourceVersion": version, "labels": {view.drain_label: DRAIN_VALUE}}})


def drain_by_label(job: Job) -> JsonPatch:
    return _marked(job, DRAIN_VALUE)


def mark_as_taken(job: Job) -> JsonPatch:
    """The first of two steps for a patch without a resourceVersion: the shard named by the label stops working
    on the object after it, and the second step fails without this exact mark.
    """
    return _marked(job, TAKEN)


def _marked(job: Job, value: str) -> JsonPatch:
    view = job.view
    assert view is not None
    shard_is = test(_label(view.shard_label), job.decision.source)
    return JsonPatch([_same_object(job), shard_is, add(_label(view.drain_label), value)])


def _same_object(job: Job) -> dict[str, Any]:
    return test(pointer("metadata", "uid"), job.meta.uid)


def _label(key: str) -> str:
    return pointer("metadata", "labels", key)
