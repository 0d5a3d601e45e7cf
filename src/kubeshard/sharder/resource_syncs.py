"""Every resource of every ring has a `ResourceSync`, in which its objects are scanned on its `Schedule`.

Isolation: a list that hangs, or a resource that cannot be read, blocks only its own sync, until its deadline.
Other rings, and other resources of the same ring, do not wait for it. In a sync an urgent scan (a shard was lost)
does not wait for a running normal one, which may take minutes; they may run concurrently, because
every change is a compare-and-swap.

There is one ordering rule: a normal scan of a controlled resource follows one of the resources that control
it, so that drains are requested, and known, before decisions on the objects that wait for them. It waits for that
scan to end, not to succeed: after a failure drains are unknown, and `owners` blocks moves that depend on them.

Limits on memory and requests: each priority of a sync has one page of one list at a time in memory, or of one list for
each of a few namespaces, and `concurrent_moves` patches in flight. At most `AT_ONCE` scans of a priority start within
`PATIENCE` seconds, and of one resource at most `OF_A_RESOURCE` within `PATIENCE_WITH_A_RESOURCE`; syncs that failed
their last scan have `AT_ONCE_FAILING` separate slots, so that they do not block others. So a start with many rings
is paced: it uses a few connections for each resource, however slow the API server becomes.

Guaranteed: an exception ends only the work that raised it (`supervised`), and a scan is retried like after any failure.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import nullcontext
from functools import partial

from kubeshard.core.kinds import GroupResource
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.rng import Rng
from kubeshard.sharder.bounded_tasks import StartLimit
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.moves import Mover
from kubeshard.sharder.retries import Retries, failures
from kubeshard.sharder.ring import ResourceSync, Ring
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.scanner import Scanner
from kubeshard.sharder.schedule import DueScan, ScanPriority, ScanResult, ScanScope
from kubeshard.sharder.unassigned import UnassignedWatches

AT_ONCE, AT_ONCE_FAILING = 20, 5
PATIENCE = 0.5
OF_A_RESOURCE, PATIENCE_WITH_A_RESOURCE = 5, 2.0
SHORTEST_WAIT = 0.01
RINGS_A_TURN = 50
"""Rings whose work ends together when this process does not lead any more."""

_log = get_logger("kubeshard.sharder")


class ResourceSyncs:
    """The work in the syncs of all rings: scans, the watch on unassigned objects, and retries. It lasts as long as
    `run` does.
    """

    def __init__(
        self,
        rings: Rings,
        observer: LeaseObserver,
        resync: Scanner,
        unassigned: UnassignedWatches,
        mover: Mover,
        *,
        sync_period: float,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._rings = rings
        self._observer = observer
        self._resync = resync
        self._unassigned = unassigned
        self._mover = mover
        self._sync_period = sync_period
        self._clock = clock
        self._rng = rng
        self._group: asyncio.TaskGroup | None = None
        self._starting = {priority: StartLimit(AT_ONCE, PATIENCE) for priority in ScanPriority}
        self._failing = {priority: StartLimit(AT_ONCE_FAILING, PATIENCE) for priority in ScanPriority}
        self._failures = failures(clock)
        self._of_resource = defaultdict[tuple[ScanPriority, GroupResource], StartLimit](
            lambda: StartLimit(OF_A_RESOURCE, PATIENCE_WITH_A_RESOURCE)
        )
        self._relisting: asyncio.Task[bool] | None = None
        self._all_outdated = asyncio.Event()

    async def run(self) -> None:
        """Runs until cancelled. Starts with a scan of everything."""
        async with asyncio.TaskGroup() as self._group:
            self._group.create_task(self._request_all(), name="scans everything")
            try:
                for ring in self._rings:
                    self.follow(ring)
                    await asyncio.sleep(0)  # each has several tasks, which now begin
                await asyncio.get_running_loop().create_future()
            finally:  # before the tasks have ended: a task started now would not be cancelled with them
                self._group = self._relisting = None
                for number, ring in enumerate(self._rings, 1):
                    ring.stop()
                    if number % RINGS_A_TURN == 0:
                        await asyncio.sleep(0)

    def scan_everything(self) -> None:
        """The labels of all objects may be old."""
        self._all_outdated.set()

    async def _request_all(self) -> None:
        while True:
            await self._all_outdated.wait()
            self._all_outdated.clear()
            for ring in self._rings:
                ring.request(ScanScope.ALL)
                await asyncio.sleep(0)  # each has several tasks, which now wake

    def follow(self, ring: Ring) -> None:
        """Opens a sync for each new resource of the ring. All its objects are scanned."""
        if self._group is None or ring.view is None:
            return
        for entry in ring.resources.entries:
            if entry.resource in ring.syncs:
                continue
            sync = ring.syncs[entry.resource] = ResourceSync(ring, entry, self._sync_period, self._group)
            sync.retries = Retries(self._clock, self._rng, self._failures, sync.request)
            for priority in ScanPriority:
                sync.start(partial(self._keep_scanning, sync, priority), f"{priority.value} scan")
            sync.start(partial(self._unassigned.keep_watching, sync), "watch")
            sync.start(partial(sync.retries.run, self._mover), "retries")

    async def _keep_scanning(self, sync: ResourceSync, priority: ScanPriority) -> None:
        while True:
            now = self._clock.monotonic()
            sync.schedule.members(sync.ring.available, now)
            if sync.schedule.due(priority, now) is None:
                wait = max(sync.schedule.wait(priority, now), SHORTEST_WAIT)
                await sync.news(wait if wait < float("inf") else None)
                continue
            if priority is ScanPriority.NORMAL:
                await self._turn(sync)
            failing = sync.schedule.failing(priority)
            of_resource = self._of_resource[priority, sync.entry.resource].slot()
            places = (self._failing if failing else self._starting)[priority]
            async with nullcontext() if failing else of_resource, places.slot():
                now = self._clock.monotonic()
                if (work := sync.schedule.due(priority, now)) is not None:
                    await self._scan(sync, priority, work, now)

    async def _turn(self, sync: ResourceSync) -> None:
        """Waits for the scans that a normal one must follow: urgent work in the same sync, and its owners."""
        await sync.passed(ScanPriority.URGENT, self._clock)
        for owner in sorted(sync.entry.owners):
            other = sync.ring.syncs.get(owner)
            if other is not None and not other.schedule.failing(ScanPriority.NORMAL):
                now = self._clock.monotonic()
                view = sync.ring.view
                if view is not None and not other.pending.is_known(view.hashring):
                    other.request(
                        ScanScope.ALL, now
                    )  # otherwise this sync would wait for the next periodic scan there
                elif not other.due_soon(ScanPriority.NORMAL, now):
                    other.request(ScanScope.CONTROLLED, now)
                await other.passed(ScanPriority.NORMAL, self._clock)

    async def _scan(self, sync: ResourceSync, priority: ScanPriority, work: DueScan, started: float) -> None:
        outcome = ScanResult(failed=True)
        sync.begin(priority, started)
        try:
            if await self._up_to_date():
                outcome = await self._resync.scan(sync, work.scope)
        finally:
            ended = self._clock.monotonic()
            sync.schedule.done(priority, work, outcome, started, ended)
            sync.end(priority)
        _log.info(
            "Checked the objects of the ring",
            ring=sync.ring.name,
            resource=sync.entry.resource,
            scope=work.scope.name.lower(),
            reason=work.reason,
            waiting=outcome.waiting,
            failed=outcome.failed,
            seconds=ended - started,
        )

    async def _up_to_date(self) -> bool:
        """Whether the view of the shards' Leases is fresh: they are read if it may not be, once for all callers."""
        if self._observer.fresh() or self._group is None:
            return True
        if self._relisting is None or self._relisting.done():
            self._relisting = self._group.create_task(self._relist(), name="relist")
        return await asyncio.shield(self._relisting)

    async def _relist(self) -> bool:
        try:
            await self._observer.relist()
        except Exception as error:  # the observer meets it too, and logs it once for all syncs
            _log.debug("Cannot list shard Leases", error=error)
            return False
        return True
