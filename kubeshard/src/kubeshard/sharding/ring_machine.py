"""What the leader knows of the objects of a ring, and what is to be done: events go in, commands come out.

    RingMachine        one ring: passes on what concerns several of its resources
    ResourceMachine    one resource of it: schedule, and objects that wait

This is the life of an object. What to do with one is always decided anew, from it as it was read and the ring as it is
(`planner`), and done by one compare-and-swap patch:

| what happens to it | who sees it, and what that leads to | what it waits for, and who may stop it |
|---|---|---|
| it is created, or its shard releases it | the webhook labels it; what that missed, the watch on unassigned objects \
or a scan finds (`unplaced`) | a fresh view of the Leases; one second, if it is not new: its former shard may want it \
back (`delayed`) |
| its shard is lost | `lease_changed`: an urgent scan moves it | the take-over of the Lease (`lease_machine`), which \
many failures at once hold up; a proof that the shard is dead; a confirmation, with strict hand-over |
| the hash ring names another shard | `members_changed`: a scan of all sets the drain label; the shard removes both \
labels; then as in the first row | a run that does not end, until the ring evicts the shard |
| its owner is on another shard | a scan of the controlled moves it, without a drain | the end of its owner's drain \
(`draining_owners`); reads of what controls it |
| the ring is being deleted | a scan of all takes the labels away | a shard that lives: the drain comes first |
| the ring selects it no more | nobody moves it: it keeps its labels | |
| a write is refused | `failed`: it is tried again (`waiting`), and the ring's status says why | others who write it; \
another ring's lock (`moves`) |

| in | |
|---|---|
| a Lease has changed, the ring or a namespace has | `lease_changed`, `ring_changed`, `namespace_changed` |
| an object is seen without an available shard | `unplaced`, `delayed` |
| what has become of a write | `drained`, `placed`, `failed`, `refused`, `assigned_late`, `tried` |
| what a scan has found | `end`, `PendingDrains`, `WaitingObjects`, `released` |
| what a dry run has shown | `probed` |

| out | |
|---|---|
| what is due, and when the next of it is | `due`, `wake_at` |
| which scan it is, once there is room for it | `begin` |
| what people are told | the ring's report and metrics (`tell_waiting`) |

A command is data, with what it is valid for: a `Job` has the view that it was decided with, and when its object was
read. Whoever drives a machine knows no rule: it sleeps until `wake_at`, does what is due, and tells what became of it.
It is woken by `notify` and `attend`, which its subclass of ResourceMachine overrides.

Guaranteed: a controlled object is not moved away from a live shard before the drain of its owner was requested, and
not while that drain is pending. So it waits while its owner is known to be drained, or the drain could not
be requested, or the owner could not be given to a shard, because such a move may take effect late; and until the
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
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Any, Generic, NamedTuple, Self, TypeVar

from kubeshard.core.errors import ApiError, Forbidden
from kubeshard.core.kinds import GroupResource, Kind, TypeMeta
from kubeshard.core.namespaces import AllNamespaces
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.owners import controller_of, group_kind_of
from kubeshard.runtime.notices import Notices
from kubeshard.sharding.conditions import ASSIGNMENT_STUCK_AFTER, DRAIN_STUCK_AFTER
from kubeshard.sharding.hash_ring import kind_of_key
from kubeshard.sharding.planner import NOT_SELECTED, NOT_SHARDED, Action, Decision, RingView, plan
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.ring_resources import RingEntry
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
LOOKED_AT_AGAIN = 5.0
"""Seconds for which news of refusals are collected."""


S = TypeVar("S", bound="ResourceMachine")
"""What drives a resource."""


class Job(NamedTuple):
    """A decision about one object, with the ring's entry and its owners' drains (`draining` of `plan`), all as they
    were when the object was read. Carrying it out starts with a new decision.
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
        """A write was rejected, or it is not known whether it takes effect."""
        if (sync := self.resources.get(resource)) is None or not sync.entry.main:
            return
        if decision.action is Action.DRAIN:
            sync.pending_drains.refused(decision.key)
        else:
            sync.pending_drains.not_placed(decision.key)

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

    def unplaced(self, kind: Kind, meta: ObjectMeta) -> Job | None:
        """The assignment of an object that a watch or a list shows, if the ring wants it and it has no available shard:
        the webhook missed it, it has lost its shard, or somebody has written the name of a shard that does not exist.
        Controlled objects may be assigned whatever their owners do (`ANY_OWNER`): nobody works on them.
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

    def delayed(self, job: Job) -> bool:
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

    def placed(self) -> None:
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
