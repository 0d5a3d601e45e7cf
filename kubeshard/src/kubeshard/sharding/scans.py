"""Scans of the objects of one resource of a ring: what one reads, and what is to be done about each object (`Scan`,
`Reading`). When there is one says `schedule`. Sans-IO.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import Kind, TypeMeta
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import ObjectMeta, PartialObject
from kubeshard.core.selectors import Selector
from kubeshard.sharding.names import RETURNING
from kubeshard.sharding.object_job import Job, MoveResult, Steps
from kubeshard.sharding.planner import NOT_SELECTED, Action, Decision, RingView, not_sharded, plan
from kubeshard.sharding.ring_machine import ResourceMachine
from kubeshard.sharding.ring_resources import FEW_NAMESPACES
from kubeshard.sharding.schedule import ScanPriority, ScanResult, ScanScope
from kubeshard.sharding.waiting import ASSIGNMENT_DELAY

MANY_NAMESPACES = 50
"""If a ring selects few of many namespaces, it lists each of these: where each of many rings has a namespace of its
own, none reads the objects of all.
"""


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
        self.lists = False
        """Whether anything is read: not without shards, say."""
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
        readings = [Reading(self, place, kind, selector, draining) for place in places]
        self.lists = bool(readings)
        return readings

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
