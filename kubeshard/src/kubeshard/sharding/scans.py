"""Scans of the objects of one resource of a ring: when there is one (`Schedule`), what it reads, and what is to be done
about each object (`Scan`, `Reading`). Sans-IO.

There are two priorities, with one scan each at a time. An *urgent* scan reassigns objects without a live shard, and
reads few. A *normal* one may read everything and take long; the urgent one does not wait for it.

| why | priority | which objects | when |
|---|---|---|---|
| first scan, changed spec or namespaces | normal | all | at once |
| sync period | normal | all | `sync_period` after the last full scan |
| shard gained | normal | all (some must be drained) | at once, settle scans after 10, 30 s, an urgent one after 3 s |
| shard lost | urgent | those without an available shard | at once, settle scans after 3, 10, 30 s |
| watch on unassigned objects (re)opened | urgent | those without an available shard | at once |
| controlled objects, or their owners' drains, waited | normal | controlled | after 1, 2, 4 ... 30 s while any waits |
| drains of main objects waited | normal | being drained | after 8, 10, 10 ... s while any waits |
| a drain has ended | normal | controlled | at once |
| a drain was requested | normal | being drained, controlled | after 8 s, 1 s |
| the resource could not be read | its own | as before | after 5, 10, 10 ... s, or `sync_period` |
| more failed than are remembered | theirs | without an available shard; all | when one succeeds; and 30 s later |

The settle scans repair decisions that another process made with an older view. After a shard was gained the first one
reads only objects without an available shard: the rest is reconciled, if not yet by the right shard. An object that a
shard creates in its last reconcile before it acknowledges a drain is labelled with its name; it joins its owner at
most ten seconds later, because scans follow a drain until the first one that finds it gone. A released main object is
assigned by the webhook or, if that missed it, by the watch on unassigned ones. So scans that follow drains of a main
resource are for the metrics and for the controlled objects, which request them, and are scanned when one finds that a
drain has ended. Several reasons of one priority that are due together make one scan.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupResource, Kind, TypeMeta
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import ObjectMeta, PartialObject
from kubeshard.core.selectors import Selector
from kubeshard.sharding.hash_ring import kind_of_key
from kubeshard.sharding.names import RETURNING
from kubeshard.sharding.object_job import Job, MoveResult, Steps
from kubeshard.sharding.planner import (
    NOT_SELECTED,
    NOT_SHARDED,
    Action,
    Decision,
    RingView,
    not_sharded,
    plan,
)
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.ring_resources import FEW_NAMESPACES, RingEntry
from kubeshard.sharding.waiting import (
    ASSIGNMENT_DELAY,
    HandledObjects,
    Jobs,
    PendingDrains,
    SkippedNamespaces,
    WaitingObjects,
)

SETTLE = (3.0, 10.0, 30.0)
FOLLOW = (1.0, 30.0)
FOLLOW_MAIN = (8.0, 10.0)
"""The first and the longest delay of scans that follow drains. A main resource is listed by the drain label."""
RETRY_FIRST, RETRY_LAST = 5.0, 10.0
PUT_OFF = 5.0
CONTROLLED_FIRST = 3.0
"""Seconds."""
MANY_NAMESPACES = 50
"""If a ring selects few of many namespaces, it lists each of these: where each of many rings has a namespace of its
own, none reads the objects of all.
"""


class ScanScope(IntEnum):
    """Which objects a scan is about; of one priority a larger scope includes the smaller ones."""

    CONTROLLED = 1
    """What drains are about: main objects that are being drained, controlled objects that may wait for one."""
    MISPLACED = 2
    """Objects without a shard, or labelled with one that is not available."""
    ALL = 3


class ScanPriority(Enum):
    URGENT = "urgent"
    NORMAL = "normal"


class DueScan(NamedTuple):
    """The scan to do now."""

    scope: ScanScope
    reason: str = ""


class ScanResult(NamedTuple):
    """What a scan found. `waiting`: drains requested or pending, and controlled objects that wait. `failed`: not
    everything could be read. `moved`: objects that got a shard, or were asked to leave theirs.
    """

    waiting: int = 0
    failed: bool = False
    moved: int = 0


FAILED = ScanResult(failed=True)


@dataclass(slots=True)
class Schedule:
    """Call `due`, scan, call `done`; `wait` returns when to call `due` again. Times are monotonic seconds."""

    sync_period: float
    follow_delays: tuple[float, float] = FOLLOW
    _known: tuple[str, ...] | None = None
    _all_at: float = float("-inf")
    _requests: list[tuple[float, ScanScope]] = field(default_factory=list)
    _follow: tuple[float, float] | None = None  # due, delay
    _failed: dict[ScanPriority, tuple[float, float]] = field(default_factory=dict)  # due, delay

    def request(self, scope: ScanScope, at: float, now: float) -> None:
        """Requests a scan at that time, for a reason other than membership. Of those that come earlier none is put off
        that is due or the next one, and others by `PUT_OFF` at most, however often there are requests.
        """
        times = sorted(time for time, asked in self._requests if asked is scope and time <= at)
        following = bisect_right(times, now)
        kept = [
            *times[max(0, following - 1) : following + 1],
            at,
        ]  # the last that is due stands for those before it
        kept += [time for time in times[following + 1 :] if time <= at - PUT_OFF]
        others = [(time, asked) for time, asked in self._requests if asked is not scope or time > at]
        self._requests = [*others, *((time, scope) for time in kept)]

    def follow(self, now: float) -> bool:
        """A drain was requested. One scan follows some seconds later for all of them. Returns whether it was asked for
        just now.
        """
        asked = [at for at, scope in self._requests if scope is ScanScope.CONTROLLED]
        if asked and max(asked) > now:
            return False
        # A scan that is due may be running already, and past the object. One scan after the last request is enough.
        others = [(at, scope) for at, scope in self._requests if scope is not ScanScope.CONTROLLED]
        again = [(at, ScanScope.CONTROLLED) for at in (*sorted(asked)[:1], now + self.follow_delays[0])]
        self._requests = others + again
        return True

    def members(self, available: tuple[str, ...], now: float) -> None:
        """The ring's current available shards."""
        known, self._known = self._known, available
        if known is None or known == available:
            return
        for changed, scope, settles in (
            (set(known) - set(available), ScanScope.MISPLACED, (ScanScope.MISPLACED,) * 3),
            (set(available) - set(known), ScanScope.ALL, (ScanScope.MISPLACED, ScanScope.ALL, ScanScope.ALL)),
        ):
            if changed:
                self._requests.append((now, scope))
                self._requests += [(now + delay, each) for delay, each in zip(SETTLE, settles, strict=True)]

    def due(self, priority: ScanPriority, now: float) -> DueScan | None:
        """The scan to do now, all due reasons in one; None if there is none."""
        urgent = priority is ScanPriority.URGENT
        due = [r for at, r in self._requests if at <= now and (r is ScanScope.MISPLACED) is urgent]
        scope = max(due) if due else None
        failed = priority in self._failed and self._failed[priority][0] <= now
        if urgent:
            return (
                DueScan(ScanScope.MISPLACED, "membership" if scope else "retry") if scope or failed else None
            )
        if now - self._all_at >= self.sync_period:
            return DueScan(ScanScope.ALL, "periodic" if self._all_at > float("-inf") else "start")
        if scope is ScanScope.ALL:
            return DueScan(ScanScope.ALL, "membership")
        if failed:
            return DueScan(ScanScope.ALL, "retry")
        if scope or (self._follow is not None and self._follow[0] <= now):
            return DueScan(ScanScope.CONTROLLED, "drains pending")
        return None

    def failing(self, priority: ScanPriority) -> bool:
        """Whether the priority's last scan failed."""
        return priority in self._failed

    def done(
        self, priority: ScanPriority, work: DueScan, outcome: ScanResult, started: float, now: float
    ) -> None:
        """The scan ended. Reasons that became due while it ran stay due: it may have missed the cause."""
        scope, urgent = work.scope, priority is ScanPriority.URGENT
        # A full scan leaves objects to an urgent one that is about to begin: it does not answer the other priority's.
        self._requests = [
            (at, asked)
            for at, asked in self._requests
            if at > started or asked > scope or (asked is ScanScope.MISPLACED) is not urgent
        ]
        if scope is ScanScope.ALL:
            self._all_at = started
        if outcome.failed:
            _, delay = self._failed.get(priority, (0.0, RETRY_FIRST / 2))
            delay = min(2 * delay, RETRY_LAST, self.sync_period)
            self._failed[priority] = (now + delay, delay)
        else:
            self._failed.pop(priority, None)
        if outcome.waiting:
            again = self._follow is not None and scope is ScanScope.CONTROLLED
            first, last = self.follow_delays
            delay = min(2 * self._follow[1], last) if again and self._follow else first
            self._follow = (now + delay, delay)
        elif priority is ScanPriority.NORMAL:
            self._follow = None

    def wait(self, priority: ScanPriority, now: float) -> float:
        """Seconds until `due` may return a scan; 0 if it does now; infinite if that needs a new event."""
        urgent = priority is ScanPriority.URGENT
        times = [at for at, scope in self._requests if (scope is ScanScope.MISPLACED) is urgent]
        if priority in self._failed:
            times.append(self._failed[priority][0])
        if not urgent:
            times.append(self._all_at + self.sync_period)
            times += [self._follow[0]] if self._follow else []
        return max(0.0, min(times, default=float("inf")) - now)


class ScannedRing(Protocol):
    """The ring of a resource: the `RingMachine`."""

    ring: Ring
    scans_ended: int

    @property
    def resources(self) -> Mapping[GroupResource, ScannedResource]: ...
    def notify(self) -> None: ...


class ScannedResource(ABC):
    """A resource of a ring as its scans see it: which one may begin, and what they have found.

    There are two rules for the order of scans (`_follows`). A normal scan of a controlled resource follows one of the
    resources that control it: what it finds being drained, or not readable, needs no read for each object that it
    controls (`waiting.PendingDrains`). It waits for that scan to end, not to succeed. An urgent scan of a main resource
    follows those of the resources that it controls, for `CONTROLLED_FIRST` seconds at most: nobody works on the objects
    of a dead shard, and their next shard finds what they control on its first run. Otherwise it would try again and
    again to write what is still labelled with the dead shard.
    """

    def __init__(self, of: ScannedRing, entry: RingEntry, sync_period: float, found: Jobs[Job]) -> None:
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
        self.found = found
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

    def __str__(self) -> str:
        return f"{self.entry.resource} of {self.ring}"

    @abstractmethod
    def carry_out(self, job: Job) -> Steps:
        """The job, and what follows from what becomes of it."""

    @abstractmethod
    def may_be_wanted(self, job: Job) -> bool:
        """Whether the object, which is found without a shard, may be wanted back by that."""

    @abstractmethod
    def notify(self) -> None:
        """A scan may be due."""

    @abstractmethod
    def tell_counts(self) -> None:
        """Tells which objects wait."""

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
    def owners(self) -> list[ScannedResource]:
        """The main resources that list this one as controlled."""
        return [self.of.resources[each] for each in sorted(self.entry.owners) if each in self.of.resources]

    @property
    def controlled(self) -> list[ScannedResource]:
        """The resources that this one, a main resource, lists as controlled."""
        return [each for each in self.of.resources.values() if self.entry.resource in each.entry.owners]


class _DrainingOwners:
    def __init__(self, owners: list[ScannedResource]) -> None:
        self._owners = owners

    def __contains__(self, key: object) -> bool:
        owner_key = str(key)
        kind = kind_of_key(owner_key)
        # The others, which it may not be possible to read, do not have the object. Without any it may be one of theirs.
        its = [each for each in self._owners if each.kind is not None and each.kind.group_kind == kind]
        return any(owner_key in owner.pending_drains for owner in its or self._owners)


class Scan:
    """One scan of a resource: what to read, what to do about each object, and what it has found so far.

    An object is not written again that a job deals with, or has dealt with since the scan began. Who has just lost its
    shard waits as if the watch had shown it.
    """

    def __init__(self, of: ScannedResource, scope: ScanScope) -> None:
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
            of.pending_drains.begin()
        names, selector = self._namespaces(kind), self._selector(view)
        of.narrow = names is not None
        if names == () and not ring.named:  # asks whether the resource can be read
            names, selector = None, Selector.exists(view.shard_label) & Selector.absent(view.shard_label)
        draining = of.draining_owners
        places: Iterable[str | AllNamespaces] = (ALL,) if names is None else names
        return [Reading(self, place, kind, selector, draining) for place in places]

    def read(self) -> None:
        """All lists were read that `begin` has returned, or have failed on their own."""
        if self._view is not None and self.tells_drains and self.of.pending_drains.end(self.unread.keys()):
            self.of.drains_ended()

    def could_not_read(self, namespace: str, error: ApiError) -> None:
        """All of one of the namespaces, or an object in it."""
        self.unread[namespace] = error

    def carry_out(self, job: Job) -> Steps:
        """What was decided, and what has become of it."""
        result = yield from self.of.carry_out(job)
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
        self.of.pending_drains.add(decision.key)
        if not asked and meta.labels and meta.labels.get(view.drain_label) == RETURNING:
            self.kept = True

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
        if error is not None and self.tells_drains:
            self.of.pending_drains.failed()
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
            of.pending_drains.clear()
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
        self._began = of.began
        """When the list began that is read now."""
        self._read: float | None = None
        """When the first objects had arrived: the others are not newer, unless the list restarts."""
        self._left_out = Counter[str]()
        self._waited = True

    def restarted(self) -> None:
        """The list begins anew: deciding twice on an object is harmless."""
        self._began, self._read = self._of.ring.clock.monotonic(), None
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
        of, entry, began, holders, left_out = (
            scan.of,
            scan.of.entry,
            self._began,
            scan.holders,
            self._left_out,
        )
        found, handled, type_ = of.found, of.handled, TypeMeta(kind.api_version, kind.kind)
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
                yield Job(ring, entry, kind, meta, decision, read_at, view)
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
            job = Job(ring, entry, kind, meta, decision, read_at, view)
            key = job.key
            ended = handled.since(key, began)
            if ended is not None and ended < math.inf:
                continue
            waits = bool(ended)
            if action is Action.ASSIGN and not waits:
                waits = key in found or (
                    of.may_be_wanted(job) and found.put(key, job, ring.clock.monotonic() + ASSIGNMENT_DELAY)
                )
            if not waits:
                yield job
            elif decision.source not in view.available:
                scan.lost(meta, decision)
