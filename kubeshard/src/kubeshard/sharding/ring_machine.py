"""What the leader keeps of a ring, and what is to be done: events go in, commands come out.

    RingMachine        one ring: passes on what concerns several of its resources
    ResourceMachine    one resource of it: when it is scanned (`schedule`), and the objects that wait

What becomes of one object is decided in its job (`object_job`), whose table says when it is looked at again. Here it is
decided which objects are looked at, and when:

| in | |
|---|---|
| a Lease has changed, the ring or a namespace has | `lease_changed`, `ring_changed`, `namespace_changed` |
| an object is seen without an available shard | `seen` |
| objects were passed over in a namespace that the ring selects now | `appeared` |
| a page of a list | `Reading.decide` |
| what has become of a step | sent to the `Steps` |
| a scan has ended | `Scan.ends`, `end` |

| out | |
|---|---|
| what is due, and when the next of it is | `due`, `wake_at` |
| which scan it is, once there is room for it, and the lists to read | `begin`, `scans.Scan` |
| what to do about one object | `steps`, `Scan.carry_out` |
| what people are told | the ring's report and metrics (`tell_waiting`) |

Whoever drives a machine knows no rule: it sleeps until `wake_at`, does what is due, one step after the other, and tells
what became of it. It is woken by `notify` and `attend`, which its subclass of ResourceMachine overrides.

A movement is counted only when the response names the target; a failure of one object (deleted, changed, rejected) does
not affect others. Kept in memory: what `waiting` says. No event loop is needed, and no time passes here but that of the
ring's clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from kubeshard.core.errors import ApiError, Forbidden
from kubeshard.core.kinds import GroupResource, Kind, TypeMeta
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.owners import controller_of, group_kind_of
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import Selector
from kubeshard.runtime.notices import Notices
from kubeshard.sharding.conditions import ASSIGNMENT_STUCK_AFTER, DRAIN_STUCK_AFTER
from kubeshard.sharding.hash_ring import kind_of_key
from kubeshard.sharding.names import shard_label
from kubeshard.sharding.object_job import DryRun, Job, LookUp, MoveResult, Steps, Tell, carry_out
from kubeshard.sharding.planner import NOT_SELECTED, NOT_SHARDED, Action, plan
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.ring_resources import RingEntry
from kubeshard.sharding.schedule import (
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
    ASSIGNMENT_DELAY,
    MANY,
    HandledObjects,
    Jobs,
    PendingDrains,
    Refusals,
    RefusedWrites,
    RetryDelays,
    SkippedNamespaces,
    WaitingObjects,
    WebhookSeries,
    grouped,
    may_be_wanted,
)

LOGGED_EVERY, UNTIL_EXPLAINED = 600.0, 60.0
TOLD_TOGETHER = 1.0
"""Seconds for which news of refusals are collected."""
LOOKED_AT_AGAIN = 5.0
CONTROLLED_FIRST = 3.0
"""Seconds."""
TOGETHER, NAMESPACES_AT_ONCE = 0.2, 10
"""Seconds in which namespaces are collected that appear; if more do, all are read by one list."""

S = TypeVar("S", bound="ResourceMachine")
"""What drives a resource."""


class Do(Enum):
    """What is due."""

    ASSIGN = auto()
    """Give the object to a shard."""
    TRY_AGAIN = auto()
    """Write what was refused."""
    PROBE = auto()
    """Find out by the object whether the webhook is called."""
    ASK = auto()
    """Ask whether single objects may be read and written, because that was refused, and for missing rights:
    `asked_for_rights`.
    """
    LOOK_INTO = auto()
    """List what is `watched` in these namespaces, where objects were passed over: `seen`, `looked_into`."""
    SCAN = auto()
    """Do the scan of this priority: `begin`, `end`."""


Places = Collection[str | AllNamespaces]

Command = tuple[Do, Job | ScanPriority | Places | None]
"""What to do, and about what."""


class RingMachine(Generic[S]):
    """See the module. `backoff`: for each resource, how long refused writes wait. `at_once`: delayed assignments of a
    resource that are under way. `probes`: whether a webhook has to assign the ring's objects.
    """

    def __init__(self, ring: Ring, backoff: Callable[[], RetryDelays], *, at_once: int, probes: bool) -> None:
        self.ring = ring
        self.backoff = backoff
        self.at_once = at_once
        self.resources: dict[GroupResource, S] = {}
        self.available_until = -math.inf
        """When the ring loses a shard without an event."""
        self.scans_ended = 0
        self.webhook: WebhookSeries[Job] | None = WebhookSeries() if probes else None
        self._failures = Notices(ring.clock, every=LOGGED_EVERY)
        ring.led_by(self)

    def ring_changed(self) -> None:
        """The ring has another spec: machines of resources that it no longer lists end."""
        if self.ring.by_ranges:
            self.stop()
            return
        self.request(ScanScope.ALL)
        for machine in list(self.resources.values()):
            if machine.entry not in self.ring.resources.entries:
                machine.close()
        self.tell_waiting()  # without what has left: there may be no other scan

    def namespace_changed(self, name: str, selected: bool, selects: bool) -> None:
        """The namespace appeared, was deleted, or has other labels; whether the ring selected it, and does now."""
        if name in self.ring.named:
            self.notify()
        if selects != selected:
            self.request(ScanScope.ALL)
        if selects > selected:
            for machine in self.resources.values():
                machine.appeared(name)

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
        for machine in self.resources.values():
            machine.schedule.members(shards.labelled, now)
            machine.notify()

    def notify(self) -> None:
        """Something has changed for which scans of several resources may wait."""
        for machine in self.resources.values():
            machine.notify()

    def request(self, scope: ScanScope) -> None:
        """Something asks for a scan of all resources."""
        for machine in self.resources.values():
            machine.request(scope, self.ring.clock.monotonic())

    def drain_requested(self, resource: GroupResource, key: str) -> None:
        """A main object is to leave its shard: schedules scans for it and for the objects that it may control."""
        now = self.ring.clock.monotonic()
        for machine in self.resources.values():
            if machine.entry.resource == resource:
                machine.pending_drains.add(key)
            elif resource not in machine.entry.owners:
                continue
            if machine.schedule.follow(now):
                machine.notify()

    def tell_webhook(self) -> None:
        """Tells whether the webhook is called."""
        if self.webhook is not None:
            self.ring.report.webhook_unreached = self.webhook.unreached
            self.ring.metrics.set("webhook_unreached", float(self.webhook.unreached))

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
        ring, machines = self.ring, self.resources.values()
        ring.metrics.set("oldest_drain_seconds", max((each.drains.oldest for each in machines), default=0.0))
        ring.metrics.set(
            "oldest_unassigned_seconds", max((each.unassigned.oldest for each in machines), default=0.0)
        )
        lost = {each.whom for machine in machines for each in machine.unassigned} - {""}
        # Once for each shard: it looks at all Leases.
        awaited = {shard for shard in sorted(lost) if not ring.has_ended(shard)}
        unconfirmed = [
            (each.whom, machine.spoken(each.key))
            for machine in machines
            for each in machine.unassigned
            if each.whom in awaited
        ]
        waiting = {name for _, name in unconfirmed}
        stuck = {
            machine.spoken(each.key): machine.refusals.why(each.key)
            for machine in machines
            for each in machine.unassigned.older_than(ASSIGNMENT_STUCK_AFTER)
        }
        undrained: dict[str, str] = {}
        for machine in machines:
            if ring.report.missing_verbs.get(machine.entry.resource, {}).keys() & {"get", "patch"}:
                continue  # which the report explains
            for key, refusal in machine.refusals.lasting():
                (undrained if refusal.drain else stuck)[machine.spoken(key)] = refusal.reason
        unassigned = grouped((why, name) for name, why in stuck.items() if name not in waiting)
        drains = [
            (each.whom, machine.spoken(each.key))
            for machine in machines
            for each in machine.drains.older_than(DRAIN_STUCK_AFTER)
        ]
        ring.metrics.set("objects_unconfirmed", len(unconfirmed))
        refused = grouped((why, name) for name, why in undrained.items())
        ring.report.waiting(grouped(drains), unassigned, grouped(unconfirmed), refused)
        ring.evictions.overdue(
            ((machine.entry.resource, each.uid), each.whom, machine.drains.read_at)
            for machine in machines
            for each in machine.drains.older_than(ring.evictions.timeout)
        )

    def stop(self) -> None:
        """The ring was deleted, is sharded by ranges now, or this process lost leadership."""
        self.ring.let_go(self)
        for machine in list(self.resources.values()):
            machine.close()


class ResourceMachine:
    """One resource of a ring, while this process leads: what is to be done about its objects.

    There are two rules for the order of scans (`_follows`). A normal scan of a controlled resource follows one of the
    resources that control it: what it finds being drained, or not readable, needs no read for each object that it
    controls (`waiting.PendingDrains`). It waits for that scan to end, not to succeed. An urgent scan of a main resource
    follows those of the resources that it controls, for `CONTROLLED_FIRST` seconds at most: nobody works on the objects
    of a dead shard, and their next shard finds what they control on its first run. Otherwise it would try again and
    again to write what is still labelled with the dead shard.
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
        self.unassigned = WaitingObjects()
        """Objects without an available shard."""
        self.skipped_namespaces = SkippedNamespaces()
        """Namespaces of objects seen before the namespace itself: it was unknown whether the ring selects them."""
        self.found: Jobs[Job] = Jobs(of.at_once, MANY, self)
        """Objects without an available shard that a watch or a list has shown."""
        self.handled = HandledObjects()
        self._not_sharded: Mapping[str | AllNamespaces, Mapping[str, int]] = {}
        """How many objects the ring does not shard, by the namespaces that were listed, and why."""
        self.narrow = False
        """Whether a scan did not see objects in namespaces that were not known."""
        self.scanning: set[ScanPriority] = set()
        """The priorities whose scan was due, and has not ended."""
        self.began: dict[ScanPriority, float] = {}
        """When the scan of each priority began that is under way."""
        self._ended = dict.fromkeys(ScanPriority, 0)
        """By `scans_ended` of the ring, when the last scan of each priority ended."""
        self._held: dict[ScanPriority, tuple[int, float]] = {}
        """Scans that wait for others: since when, by `scans_ended` and by the clock."""
        self.refusals = Refusals()
        self.asked: dict[str, float] = {}
        """When the server was asked whether a verb is allowed."""
        self.retries: RefusedWrites[Job, ScanScope] = RefusedWrites(of.backoff())
        """Objects whose writes were refused."""
        self._ask_at = math.inf
        """When it is asked whether objects may be read and written, and for the rights that were missing."""
        self._asking = False
        """Whether that is under way: it may take long, and the next time waits for its end."""
        self._tell_at = math.inf
        """When news of refusals are told."""
        self._appeared: set[str] | None = None
        """Namespaces to look into; None: there are none, and it is not looked into any."""
        self._look_at = math.inf
        of.resources[entry.resource] = self

    def __str__(self) -> str:
        return f"{self.entry.resource} of {self.ring}"

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

    def appeared(self, namespace: str) -> None:
        """The ring selects the namespace now; it may have objects that were passed over. Those that appear within
        `TOGETHER` seconds, or while others are looked into, are looked into together.
        """
        if self._appeared is None:
            self._appeared = set()
            self._look_at = self.ring.clock.monotonic() + TOGETHER
            self.attend()
        self._appeared.add(namespace)

    def ask_again(self, seconds: float) -> None:
        """A right is missing: asks for it, so many seconds from now at the latest."""
        self._ask_at = min(self._ask_at, self.ring.clock.monotonic() + seconds)
        self.attend()

    def looked_into(self) -> None:
        """The end of that. What failed is `missed`."""
        if self._appeared:
            self._look_at = self.ring.clock.monotonic() + TOGETHER
            self.attend()
        else:
            self._appeared = None

    def asked_for_rights(self) -> None:
        """The end of `Do.ASK`."""
        self._asking = False
        self.attend()

    # Scans

    def request(self, scope: ScanScope, at: float) -> None:
        """Requests a scan at that time (monotonic)."""
        self.schedule.request(scope, at, self.ring.clock.monotonic())
        self.notify()

    def missed(self) -> None:
        """Objects without an available shard may have been missed: requests a scan of them, if none is about to."""
        if not self.scans_all_soon:
            self.request(ScanScope.MISPLACED, self.ring.clock.monotonic())

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

    def may_scan(self, priority: ScanPriority, now: float) -> bool:
        """Whether a scan is to be done, and those that it follows have ended."""
        if priority in self.scanning or self.schedule.due(priority, now) is None:
            self._held.pop(priority, None)
            return False
        since, began = self._held.setdefault(priority, (self.of.scans_ended, now))
        if self._follows(priority, since, now - began):
            return False
        del self._held[priority]
        self.scanning.add(priority)
        return True

    def scan_at(self, priority: ScanPriority) -> float:
        """When one may be due of which is not known yet that it is."""
        if priority in self.scanning:
            return math.inf
        if priority in self._held:
            return math.inf if priority is ScanPriority.NORMAL else self._held[priority][1] + CONTROLLED_FIRST
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
            self.of.scans_ended += 1
            self._ended[priority] = self.of.scans_ended
            if work is not None:
                self.schedule.done(priority, work, result, began, self.ring.clock.monotonic())
        self.of.notify()

    def due_soon(self, priority: ScanPriority, now: float) -> bool:
        """Whether a scan of the priority is running, or about to start."""
        return self.open and (priority in self.began or self.schedule.due(priority, now) is not None)

    def _follows(self, priority: ScanPriority, since: int, held: float) -> bool:
        """Whether a scan that is due, and `held` since then, has to wait for another one to end."""
        now = self.ring.clock.monotonic()
        if priority is ScanPriority.URGENT:
            waits = self.entry.main and held < CONTROLLED_FIRST
            return waits and any(each._comes(priority, since, now) for each in self.controlled)
        for owner in self.owners:
            if not owner.schedule.failing(priority) and owner._ended[priority] <= since:
                if not owner.due_soon(priority, now):
                    owner.request(ScanScope.CONTROLLED, now)
                return True
        return self._comes(ScanPriority.URGENT, since, now)

    def _comes(self, priority: ScanPriority, since: int, now: float) -> bool:
        """Whether a scan is running or about to start, and none has ended since then."""
        return self._ended[priority] <= since and self.due_soon(priority, now)

    def drains_ended(self) -> None:
        """What its objects control may follow them."""
        for each in self.controlled:
            each.request(ScanScope.CONTROLLED, self.ring.clock.monotonic())

    @property
    def draining_owners(self) -> Container[str]:
        """The keys of owners that objects of this resource have to wait for, always current: the `draining` of
        `plan`.
        """
        return _DrainingOwners(self.owners)

    @property
    def owner_drains(self) -> int:
        """How many owners of objects of this resource are being drained. Their shards may create more objects until
        they release them.
        """
        return sum(len(owner.pending_drains) for owner in self.owners)

    @property
    def owners(self) -> list[ResourceMachine]:
        """The main resources that list this one as controlled."""
        return [self.of.resources[each] for each in sorted(self.entry.owners) if each in self.of.resources]

    @property
    def controlled(self) -> list[ResourceMachine]:
        """The resources that this one, a main resource, lists as controlled."""
        return [each for each in self.of.resources.values() if self.entry.resource in each.entry.owners]

    # What waits

    @property
    def watched(self) -> Selector:
        """The objects without an available shard, as far as a selector can tell: what to watch."""
        view = self.ring.view
        if view is None or not view.available or view.releasing:
            return Selector.absent(shard_label(self.ring.name))
        return view.unplaced or Selector.absent(view.shard_label)

    def seen(self, kind: Kind, meta: ObjectMeta, *, changed: bool) -> None:
        """A watch, or a list of unassigned objects, shows an object: it is assigned when that is due, or by a scan if
        too many are. `changed`: it has just changed, so its shard may want it back.
        """
        key, job = Key(meta.namespace, meta.name), self._unassigned(kind, meta)
        if job is None:
            self.found.forget(key)
            return
        wait = ASSIGNMENT_DELAY if changed and self.may_be_wanted(job) else 0.0
        if not self.found.put(key, job, self.ring.clock.monotonic() + wait):
            self.missed()

    def _unassigned(self, kind: Kind, meta: ObjectMeta) -> Job | None:
        """The assignment of an object that a watch or a list shows, if the ring wants it and it has no available shard:
        the webhook missed it, it has lost its shard, or somebody has written the name of a shard that does not exist.
        Controlled objects are assigned whatever their owners do, as nobody works on them.
        """
        ring, entry = self.ring, self.entry
        if (view := ring.view) is None:
            return None
        decision = plan(view, entry, TypeMeta(kind.api_version, kind.kind), meta)
        action = decision.action
        if decision.reason == NOT_SELECTED and not ring.knows_namespace(meta.namespace):
            self.skipped_namespaces.add(meta.namespace)
        lost = action is Action.MOVE and decision.source not in view.available
        if lost or action is Action.ASSIGN or action is Action.LOOK_UP:
            return Job(ring, entry, kind, meta, decision, ring.clock.monotonic(), view)
        return None

    def may_be_wanted(self, job: Job) -> bool:
        """Whether the object, which is found without a shard, may be wanted back by that. Where only one shard is
        available, no other one can want it.
        """
        several = self.entry.main and len(job.view.available) > 1
        return several and may_be_wanted(job.meta, self.ring.clock.wall())

    def steps(self, what: Do, job: Job) -> Steps:
        """Does what is due."""
        match what:
            case Do.ASSIGN:
                return self._assign(job)
            case Do.PROBE:
                return self._probe(job)
            case _:
                return self._try_again(job)

    def carry_out(self, job: Job, *, again: bool = False) -> Steps:
        """The job, and what follows from what becomes of it. `again`: the object is read first."""
        key, clock, done = job.key, self.ring.clock, False
        self.handled.begins(key)
        try:
            result, job, error, left = yield from carry_out(job, again=again)
            done = result is not MoveResult.WAITING and result is not MoveResult.FAILED
        finally:
            self.handled.ends(key, clock.monotonic(), done=done)
        if left is not None and (late := self.found.get(key)) is not None and left.newer_than(late.meta):
            self.found.forget(key)  # it was shown as it had been before
        resource, metrics = self.entry.resource, self.ring.metrics
        if error is not None:
            yield Tell(job, error, self.of.to_log(resource, "patch", error))
            metrics.add("move_failures", resource, type(error).__name__)
            self.failed(job, error)
        elif result is MoveResult.DRAINED:
            metrics.add("drains", resource)
            self.of.drain_requested(resource, job.decision.key)
        elif result is MoveResult.MOVED and job.decision.target:  # else the ring is being deleted
            metrics.add("movements", resource)
            if job.decision.action is Action.ASSIGN:
                self._assigned_late(job)
        return result

    def _assign(self, job: Job) -> Steps:
        """Assigns an object that was seen without an available shard. Where the view of the Leases may be out of date,
        a scan does, since it reads them first. If a shard cannot be proven dead, its objects are looked at again a
        moment later.
        """
        key, clock, closed = job.key, self.ring.clock, False
        try:
            if not self.ring.fresh:
                self.handled.ends(key, clock.monotonic(), done=False)
                self.missed()
                return MoveResult.WAITING
            if job.decision.action is Action.LOOK_UP:
                self.handled.ends(key, clock.monotonic(), done=False)
                try:
                    yield LookUp(job)
                except ApiError:
                    self.request(ScanScope.MISPLACED, clock.monotonic() + LOOKED_AT_AGAIN)
                    return MoveResult.WAITING
                again = self._unassigned(job.kind, job.meta)
                if again is None or again.decision.action is Action.LOOK_UP:
                    return MoveResult.NOTHING
                job = again
            result = yield from self.carry_out(job)
            if result is MoveResult.WAITING and job.decision.action is Action.MOVE:
                self.request(ScanScope.MISPLACED, clock.monotonic() + LOOKED_AT_AGAIN)
            return result
        except GeneratorExit:
            closed = True  # it has not ended: `resume` puts it back
            raise
        finally:
            if not closed:
                self.found.ended(key)

    def _assigned_late(self, job: Job) -> None:
        """An unassigned object got its first shard by a patch."""
        self.ring.metrics.add("late_assignments", self.entry.resource)
        webhook = self.of.webhook
        if (
            webhook is not None
            and webhook.about is None
            and self.open
            and self.ring.has_webhook_in(job.meta.namespace)
            and not _is_looked_up(job)
        ):
            webhook.late(job, self.ring.clock.monotonic())
            self.attend()

    def _try_again(self, job: Job) -> Steps:
        result: MoveResult | None = None
        try:
            return (result := (yield from self.carry_out(job, again=True)))
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
        if isinstance(error, Forbidden):
            self._ask_at = -math.inf
        if not self.retries.failed(job.key, job, now, retry_after or 0.0):
            lives = (
                job.decision.source in self.ring.available
            )  # a scan of all is too expensive to be tried in vain
            scope = ScanScope.ALL if lives else ScanScope.MISPLACED
            self._ask_for(self.retries.more(scope, now, cheap=not lives))
        self.attend()

    def tried(self, job: Job, result: MoveResult | None) -> None:
        """A refused write was tried again; None: that crashed. A failure was told before (`failed`)."""
        now, done = self.ring.clock.monotonic(), result is not None and result is not MoveResult.FAILED
        self.retries.tried(job.key, now, done=done)
        if done and self.refusals.ended(job.key):
            self._tell_at = min(self._tell_at, now + TOLD_TOGETHER)
        if done and job.decision.action is Action.DRAIN:
            # What seemed to fail may have taken effect late: the drain is followed until a scan finds it gone. Else
            # what waits for its end would wait for the next scan of everything.
            self.of.drain_requested(self.entry.resource, job.decision.key)
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
        self.handled = HandledObjects()  # nobody tells the end of a job that never began
        self.found.resume(now)
        self.retries.resume(now)
        if self._appeared is not None and self._look_at == math.inf:
            self.missed()
            self.looked_into()
        self._asking = False
        if self.entry.resource in self.ring.report.missing_verbs:
            self.ask_again(0.0)
        if self.of.webhook is not None and self._is_probed:
            self.of.webhook.resume(now)

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
        assigned = self.found.take(now)
        for job in assigned:
            self.handled.begins(job.key)
        commands: list[Command] = [(Do.ASSIGN, job) for job in assigned]
        commands += [(Do.TRY_AGAIN, job) for job in self.retries.take(now)]
        if self._look_at <= now and self._appeared is not None:
            few = len(self._appeared) <= NAMESPACES_AT_ONCE
            commands.append((Do.LOOK_INTO, sorted(self._appeared) if few else [ALL]))
            self._appeared, self._look_at = set(), math.inf
        if self._ask_at <= now and not self._asking:
            self._ask_at, self._asking = math.inf, True
            commands.append((Do.ASK, None))
        if webhook is not None and self._is_probed and (about := webhook.take(now)) is not None:
            commands.append((Do.PROBE, about))
        self.schedule.members(self.ring.shards.labelled, now)
        if now >= self.of.available_until:
            self.of.available_until = self.ring.shards.until
        scans = [priority for priority in ScanPriority if self.may_scan(priority, now)]
        return [*commands, *((Do.SCAN, priority) for priority in scans)]

    @property
    def wake_at(self) -> float:
        """When something is `due`; infinite if that needs an event."""
        dry_run = self.of.webhook.wake_at if self.of.webhook is not None and self._is_probed else math.inf
        scans = map(self.scan_at, ScanPriority)
        return min(
            self.found.wake_at,
            self.retries.wake_at,
            dry_run,
            self._tell_at,
            math.inf if self._asking else self._ask_at,
            self._look_at,
            self.of.available_until,
            *scans,
        )

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

    def _ask_for(self, scans: Iterable[tuple[ScanScope, float]]) -> None:
        for scope, at in scans:
            self.request(scope, at)


class _DrainingOwners:
    def __init__(self, owners: list[ResourceMachine]) -> None:
        self._owners = owners

    def __contains__(self, key: object) -> bool:
        owner_key = str(key)
        kind = kind_of_key(owner_key)
        # The others, which it may not be possible to read, do not have the object. Without any it may be one of theirs.
        its = [each for each in self._owners if each.kind is not None and each.kind.group_kind == kind]
        return any(owner_key in owner.pending_drains for owner in its or self._owners)


def _is_looked_up(job: Job) -> bool:
    """Whether the webhook leaves such an object to the sharder, which has to look for its owner."""
    controller, kinds = controller_of(job.meta), job.view.owner_kinds.get(job.entry.resource)
    owner = kinds.get(group_kind_of(controller)) if controller is not None and kinds else None
    return owner is not None and not owner.main
