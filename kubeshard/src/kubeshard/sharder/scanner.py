"""Lists of the objects of one resource of a ring: list, decide, carry out. A scan is about the whole resource, or about
namespaces that a ring begins to select.

Guaranteed: objects are streamed page by page and never kept; every decision uses the ring as it
is at that moment; a controlled object that would leave a live shard waits while its owner's drain is pending, or
unknown, so a main resource that cannot be read blocks the objects that it controls, and nothing else.
While a drain is pending, the resources that its object may control are scanned again even if nothing waits: the
shard may create a child until it releases the object. A scan ends after `STALLED` seconds without progress. A resource
that cannot be found or read is reported, and does not affect others. Never lists at resourceVersion 0.

A ring whose selector names few namespaces reads only these, and those of them that exist; a ring that selects few of
many namespaces, too. Then each namespace that it begins to know and selects is read as well, because objects in it were
not seen. A namespace that cannot be read does not affect the others, except that the scan counts as failed, so that it
is repeated. Nor does one whose list hangs: they are read at the same time, and `PATIENCE` seconds without progress in
one of several end its part of the scan.

A namespace is selected once it is known, or has other labels; its objects may have been seen before, and were skipped
then. Namespaces that appear within `TOGETHER` seconds are scanned together, for objects without a shard: each by a list
of its own, or, if there are more than `NAMESPACES_AT_ONCE`, by one list of all namespaces. If a list fails, a scan of
the objects without an available shard is requested instead.

Kept in memory: a page of each list, and the keys of main objects whose drain is pending, or whose drain or move was
rejected.

RBAC: list, and what `moves` needs, on every main and controlled resource.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncGenerator, Container, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakKeyDictionary

from kubeshard.client.client import Client
from kubeshard.client.discovery import KindNotServed
from kubeshard.core.errors import ApiError, Forbidden, NotFound, Timeout
from kubeshard.core.kinds import Kind, TypeMeta
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import ObjectMeta, PartialObject, metadata_only
from kubeshard.core.selectors import Selector
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.sharder.kinds_and_rights import Permissions, ResourceKinds
from kubeshard.sharder.moves import Mover
from kubeshard.sharder.tasks import BoundedTaskGroup, ResourceSync, StartLimit
from kubeshard.sharding.names import RETURNING, shard_label
from kubeshard.sharding.planner import NOT_SELECTED, Action, Decision, RingView, not_sharded, plan
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.ring_machine import Job, MoveResult
from kubeshard.sharding.ring_resources import FEW_NAMESPACES, RingEntry
from kubeshard.sharding.scans import ScanPriority, ScanResult, ScanScope
from kubeshard.sharding.waiting import CleanUp, WaitingSnapshot

MANY_NAMESPACES = 50
"""If a ring selects few of many namespaces, it lists each of these: where each of many rings has a namespace of its
own, none reads the objects of all.
"""

STALLED = 120.0
"""Seconds without progress after which a scan is aborted: longer than a page of a list, or a patch, may take."""

PATIENCE = 10.0
"""The same for one of several namespaces: its part of the resource is smaller, and the others would wait for it."""

_log = get_logger("kubeshard.sharder")


@dataclass(slots=True)
class _Reading:
    """One list of a scan."""

    place: str | AllNamespaces
    kind: Kind
    selector: Selector | None
    draining: Container[str]
    patience: float | None = None
    read: float | None = None
    """When the first objects had arrived: the others are not newer, unless the list restarts."""


@dataclass(slots=True)
class _Scan:
    """One scan and what it has found so far."""

    sync: ResourceSync
    scope: ScanScope
    began: float
    tells_drains: bool
    """Whether it lists all objects that are being drained."""
    drains: WaitingSnapshot
    unassigned: WaitingSnapshot
    waiting: int = 0
    moved: int = 0
    progressed: float = 0.0
    unread: dict[str, ApiError] = field(default_factory=dict)
    """Namespaces that could not be read."""
    not_sharded: dict[str | AllNamespaces, Counter[str]] = field(default_factory=dict)
    """How many objects of each complete list the ring does not shard, by why."""
    kept: bool = False
    """Whether a drain was seen that may end with the object where it is (`RETURNING`): it may have to be drained."""
    leaves_some: bool = False
    """Whether an urgent scan was left some of the objects without an available shard."""
    holders: Counter[str] | None = None
    """In a ring that is being cleaned up: how many objects have the label of each shard."""


class Scanner:
    """Scans objects, and updates metrics and reports of those that wait. `concurrent_moves`: concurrent patches per
    scan.
    """

    def __init__(
        self,
        client: Client,
        kinds: ResourceKinds,
        mover: Mover,
        permissions: Permissions,
        *,
        concurrent_moves: int,
        clock: Clock,
    ) -> None:
        self._client = client
        self._kinds = kinds
        self._mover = mover
        self._permissions = permissions
        self._concurrent_moves = concurrent_moves
        self._clock = clock

    async def scan(self, sync: ResourceSync, scope: ScanScope) -> ScanResult:
        """One scan. Does not raise ApiErrors: a failed read is reported, and sets `failed` in the outcome."""
        started, ring = self._clock.monotonic(), sync.ring
        tells_drains = sync.entry.main and scope is not ScanScope.MISPLACED
        drains, unassigned = sync.drains.snapshot(started), sync.unassigned.snapshot(started)
        scan = _Scan(sync, scope, started, tells_drains, drains, unassigned)
        sync.handled.scans_since(min(sync.began.values(), default=started))
        clean_up = ring.clean_up if scope is not ScanScope.MISPLACED else None
        if clean_up is not None:
            scan.holders = Counter()
        error = await self._scanned(scan)
        if clean_up is not None and clean_up is ring.clean_up:
            self._tell_clean_up(scan, clean_up, error, started)
        ring.metrics.scanned(scope.name.lower(), self._clock.monotonic() - started)
        if problem := error or next(iter(scan.unread.values()), None):
            await self._could_not_read(sync, problem)
        else:
            ring.report.resolved(sync.entry.resource)
            self._permissions.granted(sync, "list")
            if scope is ScanScope.ALL:
                await self._permissions.check(sync)
        if error is not None:
            if isinstance(error, KindNotServed):  # no object is left, so none waits
                scan.drains.commit()
                scan.unassigned.commit()
                sync.tell_not_sharded({}, ())
                sync.pending_drains.uninstalled()
                self._tell(sync)
            return ScanResult(failed=True, moved=scan.moved)
        if scan.tells_drains:
            scan.drains.commit()
        if scope is ScanScope.ALL and (scan.not_sharded or scan.unread):
            sync.tell_not_sharded(scan.not_sharded, scan.unread)
        if scope is not ScanScope.CONTROLLED and not scan.leaves_some:
            scan.unassigned.commit()
        self._tell(sync)
        waiting = scan.waiting or sync.owner_drains or int(clean_up is not None)
        return ScanResult(waiting, failed=bool(scan.unread) or scan.kept, moved=scan.moved)

    async def _scanned(self, scan: _Scan) -> ApiError | None:
        """Performs the scan. Returns the error that ended it, if any."""
        error: ApiError | None = None
        try:
            async with asyncio.timeout(STALLED) as limit, BoundedTaskGroup(self._concurrent_moves) as tasks:
                try:
                    await self._list(scan, tasks, limit)
                except ApiError as failure:  # the decisions made before it are carried out nevertheless
                    error = failure
        except TimeoutError:
            return Timeout(f"no progress for {STALLED:g} s")
        return error

    async def _list(self, scan: _Scan, tasks: BoundedTaskGroup, limit: asyncio.Timeout) -> None:
        """Lists the resource and starts the jobs. Raises ApiError."""
        sync, ring, entry = scan.sync, scan.sync.ring, scan.sync.entry

        def reading(place: str | AllNamespaces, patience: float | None = None) -> Coroutine[None, None, None]:
            return self._read(scan, _Reading(place, kind, selector, draining, patience), tasks, limit)

        sync.kind = kind = await self._kinds.kind(entry.resource)
        view = ring.view
        if view is None or not (view.hashring.shards or view.releasing):
            return
        draining = sync.draining_owners
        if scan.tells_drains:
            sync.pending_drains.begin(complete=scan.scope is ScanScope.ALL)
        names, selector = _namespaces(ring, kind), _selector(scan.scope, entry, view)
        sync.narrow = names is not None
        if names == () and not ring.named:  # asks whether the resource can be read
            label = shard_label(ring.name)
            names, selector = None, Selector.exists(label) & Selector.absent(label)
        if names is None:
            await reading(ALL)
        else:
            async with asyncio.TaskGroup() as together:
                for name in names:
                    patience = PATIENCE if len(names) > 1 else None
                    one = self._apart(scan, name, reading(name, patience))
                    together.create_task(one, name=f"scan {entry.resource} in {name}")
        if scan.tells_drains and sync.pending_drains.end(view.hashring, frozenset(scan.unread)):
            sync.of.released(entry.resource)

    async def _apart(self, scan: _Scan, namespace: str, reading: Coroutine[None, None, None]) -> None:
        """Reads one of the namespaces; its errors are its own."""
        try:
            await reading
        except ApiError as error:
            scan.unread[namespace] = error
        except TimeoutError:
            scan.unread[namespace] = Timeout(f"namespace {namespace}: no progress for {PATIENCE:g} s")

    async def _read(
        self, scan: _Scan, reading: _Reading, tasks: BoundedTaskGroup, limit: asyncio.Timeout
    ) -> None:
        """Decides about the objects of one list. Raises ApiError and TimeoutError."""
        sync, ring, entry = scan.sync, scan.sync.ring, scan.sync.entry
        kind, draining, delayed, handled = reading.kind, reading.draining, sync.delays, sync.handled
        type_ = TypeMeta(kind.api_version, kind.kind)

        left_out = Counter[str]()

        def restarted() -> None:  # deciding twice on an object is harmless
            reading.read = None
            left_out.clear()

        objects = self._client.list(
            metadata_only(kind), reading.place, label_selector=reading.selector, on_restart=restarted
        )
        pages = objects.pages() if reading.patience is None else _patient(objects.pages(), reading.patience)
        view: RingView | None = None
        namespace, selected, urgent = "", None, False
        async for page in pages:
            read_at, others_ran = objects.read_at, True
            if reading.read is None:
                reading.read = read_at
            for obj in page:
                if others_ran:
                    view, namespace, selected, others_ran = ring.view, "", None, False
                    urgent = self._is_urgent(scan, reading)
                    self._go_on(scan, limit)
                if view is None:
                    return
                meta = obj.metadata
                if scan.holders is not None:
                    scan.holders[meta.label(view.shard_label)] += 1
                if meta.namespace != namespace:
                    namespace = meta.namespace
                    selected = view.of_selected if namespace and view.selects(namespace) else None
                decision = plan(selected or view, entry, type_, meta, draining=draining)
                action = decision.action
                if view.controllers:
                    ring.controls_others(meta)
                if action is Action.LOOK_UP:
                    try:
                        await ring.look_up(entry, meta)
                    except ApiError as error:
                        scan.unread[meta.namespace] = error
                        left_out["owner_unknown"] += 1
                        continue
                    others_ran = True
                    decision = plan(view, entry, type_, meta, draining=draining)
                    action = decision.action
                if not decision.key and (why := not_sharded(decision, meta)):
                    left_out[why] += 1
                if action is Action.NOTHING or action is Action.LOOK_UP:
                    if decision.reason == NOT_SELECTED and not ring.knows_namespace(meta.namespace):
                        sync.skipped_namespaces.add(meta.namespace)
                    continue
                if action is Action.REFUSED:
                    _not_keyed(ring, entry, meta, decision.reason)
                    continue
                if action is Action.WAIT or action is Action.DRAIN:
                    self._drains(scan, meta, decision, view)
                    if action is Action.WAIT:
                        continue
                if urgent and decision.source not in view.available:
                    scan.leaves_some = True
                    continue
                job = Job(sync.of, entry, kind, meta, decision, draining, read_at, view)
                if tasks.full:
                    await tasks.room()
                    others_ran = True
                key = job.key
                ended = handled.since(key, scan.began)
                if ended is not None and ended < math.inf:
                    continue
                if ended or (action is Action.ASSIGN and ((delayed and key in delayed) or sync.delayed(job))):
                    if decision.source not in view.available:
                        scan.unassigned.add(meta, self._clock.monotonic(), decision.source)
                    continue
                await tasks.start(self._carry_out(job, scan))
        scan.not_sharded[reading.place] = left_out

    def _drains(self, scan: _Scan, meta: ObjectMeta, decision: Decision, view: RingView) -> None:
        """The object is being drained, or waits for its owner's drain."""
        scan.waiting += 1
        if not scan.sync.entry.main:
            return
        asked = decision.action is Action.DRAIN  # it was not, or that was undone
        scan.drains.add(meta, self._clock.monotonic(), decision.source, anew=asked)
        pending = scan.sync.pending_drains
        pending.draining(decision.key)
        if not asked and meta.labels and meta.labels.get(view.drain_label) == RETURNING:
            scan.kept = True
            pending.refused(decision.key)

    def _is_urgent(self, scan: _Scan, reading: _Reading) -> bool:
        """Whether an urgent scan that reads later than this one places the objects without an available shard: else
        both would write them. One that is under way, and read earlier, may never see them.
        """
        if scan.scope is ScanScope.MISPLACED:
            return False
        now, began = self._clock.monotonic(), scan.sync.began.get(ScanPriority.URGENT)
        if began is None:
            return scan.sync.due_soon(ScanPriority.URGENT, now)
        return reading.read is not None and began >= reading.read

    def _go_on(self, scan: _Scan, limit: asyncio.Timeout) -> None:
        now = asyncio.get_running_loop().time()
        if now - scan.progressed > STALLED / 10:
            scan.progressed = now
            limit.reschedule(now + STALLED)

    async def _carry_out(self, job: Job, scan: _Scan) -> None:
        outcome = await self._mover.carry_out(job)
        scan.moved += outcome in (MoveResult.MOVED, MoveResult.DRAINED)
        if outcome is MoveResult.WAITING and not job.entry.main:
            scan.waiting += 1  # its owner is not there yet
        if (
            outcome in (MoveResult.FAILED, MoveResult.WAITING)
            and job.decision.source not in job.sync.ring.available
        ):
            scan.unassigned.add(job.meta, self._clock.monotonic(), job.decision.source)

    def _tell_clean_up(self, scan: _Scan, clean_up: CleanUp, error: ApiError | None, started: float) -> None:
        """Of a resource that is not served any more, nothing is left."""
        ring, resource, gone = scan.sync.ring, scan.sync.entry.resource, isinstance(error, KindNotServed)
        if gone or not (error or scan.unread):
            clean_up.found(resource, scan.holders or Counter(), started, self._clock.monotonic())
            ring.report.labels_left = clean_up.left(ring.listed)

    async def _could_not_read(self, sync: ResourceSync, error: ApiError) -> None:
        ring, resource = sync.ring, sync.entry.resource
        if isinstance(error, Forbidden):
            await self._permissions.refused(sync, "list")
            told = sync.of.to_log(resource, "list", error) is not None
            (_log.warning if told else _log.debug)(f"error listing {resource}", ring=ring.name, error=error)
        else:
            _log.debug(
                f"error listing {resource}", ring=ring.name, error=error
            )  # reported as a finding of the ring
            if isinstance(error, NotFound):
                self._kinds.forget(resource)
            ring.report.resolved(resource, str(error))

    def _tell(self, sync: ResourceSync) -> None:
        metrics, resource = sync.ring.metrics, sync.entry.resource
        metrics.set("drains_pending", sync.drains.count, resource)
        metrics.set("objects_unassigned", sync.unassigned.count, resource)
        sync.of.tell_waiting()


async def _patient(
    pages: AsyncGenerator[list[PartialObject], None], patience: float
) -> AsyncGenerator[list[PartialObject], None]:
    """Yields the pages. Raises TimeoutError after so many seconds without one."""
    while True:
        async with asyncio.timeout(patience):
            page = await anext(pages, None)
        if page is None:
            return
        yield page


def _selector(scope: ScanScope, entry: RingEntry, view: RingView) -> Selector | None:
    """The label selector of a scan; None lists everything."""
    if view.releasing:
        labelled = Selector.exists(view.shard_label)
        if scope is not ScanScope.MISPLACED or not view.hashring.shards:
            return labelled
        return labelled & view.unplaced if view.unplaced else labelled
    if scope is ScanScope.CONTROLLED and entry.main:
        return Selector.exists(view.drain_label)
    return view.unplaced if scope is ScanScope.MISPLACED else None


def _namespaces(ring: Ring, kind: Kind) -> tuple[str, ...] | None:
    """The namespaces that the ring names or selects, if these are few. One that is being cleaned up may have selected
    others before.
    """
    if not kind.namespaced or (ring.releasing and not ring.named):
        return None
    return ring.named_and_selected() if ring.named else ring.selected(FEW_NAMESPACES, MANY_NAMESPACES)


def _not_keyed(ring: Ring, entry: RingEntry, meta: ObjectMeta, reason: str) -> None:
    _log.debug(
        "Cannot assign object", ring=ring, resource=str(entry.resource), object=str(meta.name), problem=reason
    )


TOGETHER = 0.2
NAMESPACES_AT_ONCE = 10
RINGS_AT_ONCE, RINGS_PATIENCE = 5, 0.5


class NamespaceScans:
    """See the module."""

    def __init__(self, client: Client, kinds: ResourceKinds, mover: Mover, *, concurrent_moves: int) -> None:
        self._client = client
        self._kinds = kinds
        self._mover = mover
        self._concurrent_moves = concurrent_moves
        self._starting = StartLimit(RINGS_AT_ONCE, RINGS_PATIENCE)
        self._new = WeakKeyDictionary[ResourceSync, set[str]]()
        """The namespaces that are left to scan, while a task does that."""

    def scan(self, sync: ResourceSync, namespace: str) -> None:
        """The ring selects this namespace now."""
        if sync in self._new:
            self._new[sync].add(namespace)
        else:
            self._new[sync] = {namespace}
            sync.start(partial(self._scan, sync), "scan new namespaces")

    async def _scan(self, sync: ResourceSync) -> None:
        """Scans what has appeared, and what appears meanwhile, until nothing is left."""
        await asyncio.sleep(TOGETHER)
        while namespaces := self._new[sync]:
            self._new[sync] = set()
            await self._scan_together(sync, namespaces)
            await asyncio.sleep(TOGETHER)
        del self._new[sync]

    async def _scan_together(self, sync: ResourceSync, namespaces: set[str]) -> None:
        try:
            kind = await self._kinds.kind(sync.entry.resource)
            if not kind.namespaced:
                return
            some: Iterable[str | AllNamespaces] = sorted(namespaces)
            for namespace in some if len(namespaces) <= NAMESPACES_AT_ONCE else [ALL]:
                async with self._starting.slot():
                    await self._scan_namespace(sync, kind, namespace)
        except Exception as error:
            sync.missed()
            if not isinstance(error, ApiError):
                raise
            where = {"ring": sync.ring.name, "resource": sync.entry.resource}
            _log.debug("Cannot scan new namespaces", **where, error=error)

    async def _scan_namespace(self, sync: ResourceSync, kind: Kind, namespace: str | AllNamespaces) -> None:
        objects = self._client.list(
            metadata_only(kind),
            namespace,
            label_selector=Selector.absent(shard_label(sync.ring.name)),
            on_restart=lambda: None,  # deciding twice on an object is harmless
        )
        async with BoundedTaskGroup(self._concurrent_moves) as tasks:
            async for obj in objects:
                if (job := sync.unplaced(kind, obj.metadata)) is not None:
                    await tasks.start(self._mover.place(sync, job))
