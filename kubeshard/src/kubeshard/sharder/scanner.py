"""Lists of the objects of one resource of a ring, about which its machine decides (`sharding.scans`).

Guaranteed: objects are streamed page by page and never kept; every decision uses the ring as it is at that moment. A
scan ends after `STALLED` seconds without progress. A resource that cannot be found or read is reported, and does not
affect others: one that controls others blocks their objects, and nothing else. Never lists at resourceVersion 0.

A ring whose selector names few namespaces reads only these, and those of them that exist; a ring that selects few of
many namespaces, too. Then each namespace that it begins to know and selects is read as well, because objects in it were
not seen. A namespace that cannot be read does not affect the others, except that the scan counts as failed, so that it
is repeated. Nor does one whose list hangs: they are read at the same time, and `PATIENCE` seconds without progress in
one of several end its part of the scan.

A namespace is selected once it is known, or has other labels; its objects may have been seen before, and were skipped
then. So it is looked into. If that fails, a scan of the objects without an available shard is requested instead.

Kept in memory: a page of each list, and the keys of main objects whose drain is pending, or whose drain or move was
rejected.

RBAC: list, and what `moves` needs, on every main and controlled resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

from kubeshard.client.client import Client
from kubeshard.client.discovery import KindNotServed
from kubeshard.core.errors import ApiError, Forbidden, NotFound, Timeout
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import PartialObject, metadata_only
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.sharder.kinds_and_rights import Permissions, ResourceKinds
from kubeshard.sharder.moves import Mover
from kubeshard.sharder.tasks import BoundedTaskGroup, DrivenResource, StartLimit, carried_out
from kubeshard.sharding.object_job import Job, LookUp
from kubeshard.sharding.planner import Action
from kubeshard.sharding.ring_machine import Places
from kubeshard.sharding.scans import Reading, Scan
from kubeshard.sharding.schedule import ScanResult, ScanScope

STALLED = 120.0
"""Seconds without progress after which a scan is aborted: longer than a page of a list, or a patch, may take."""

PATIENCE = 10.0
"""The same for one of several namespaces: its part of the resource is smaller, and the others would wait for it."""

RINGS_AT_ONCE, RINGS_PATIENCE = 5, 0.5
"""How many look into a namespace that has appeared."""

_log = get_logger("kubeshard.sharder")


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
        self._looking = StartLimit(RINGS_AT_ONCE, RINGS_PATIENCE)

    async def scan(self, machine: DrivenResource, scope: ScanScope) -> ScanResult:
        """One scan. Does not raise ApiErrors: a failed read is reported, and sets `failed` in the outcome."""
        scan = Scan(machine, scope)
        error = await self._scanned(scan)
        gone = isinstance(error, KindNotServed)
        if problem := scan.ends(error, gone=gone):
            await self._could_not_read(machine, problem)
        else:
            machine.ring.report.resolved(machine.entry.resource)
            if scan.lists:
                self._permissions.granted(machine, "list")
            if scope is ScanScope.ALL:
                with suppress(TimeoutError):  # the next one asks again
                    async with asyncio.timeout(STALLED):
                        await self._permissions.check(machine)
        return scan.result(error, gone=gone)

    async def _scanned(self, scan: Scan) -> ApiError | None:
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

    async def _list(self, scan: Scan, tasks: BoundedTaskGroup, limit: asyncio.Timeout) -> None:
        """Lists the resource and starts the jobs. Raises ApiError."""
        resource = scan.of.entry.resource
        readings = scan.begin(await self._kinds.kind(resource))
        if [each.place for each in readings] == [ALL]:
            await self._read(scan, readings[0], tasks, limit)
        else:
            patience = PATIENCE if len(readings) > 1 else None
            async with asyncio.TaskGroup() as together:
                for reading in readings:
                    work = self._apart(scan, reading, tasks, limit, patience)
                    together.create_task(work, name=f"scan {resource} in {reading.place}")
        scan.read()

    async def _apart(
        self,
        scan: Scan,
        reading: Reading,
        tasks: BoundedTaskGroup,
        limit: asyncio.Timeout,
        patience: float | None,
    ) -> None:
        """Reads one of the namespaces; its errors are its own."""
        place = str(reading.place)
        try:
            await self._read(scan, reading, tasks, limit, patience)
        except ApiError as error:
            scan.could_not_read(place, error)
        except TimeoutError:
            scan.could_not_read(place, Timeout(f"namespace {place}: no progress for {PATIENCE:g} s"))

    async def _read(
        self,
        scan: Scan,
        reading: Reading,
        tasks: BoundedTaskGroup,
        limit: asyncio.Timeout,
        patience: float | None = None,
    ) -> None:
        """Carries out what is decided about the objects of one list. Raises ApiError and TimeoutError."""
        form, selector, restarted = metadata_only(reading.kind), reading.selector, reading.restarted
        objects = self._client.list(form, reading.place, label_selector=selector, on_restart=restarted)
        pages = objects.pages() if patience is None else _patient(objects.pages(), patience)
        async for page in pages:
            if tasks.full:  # what others write meanwhile is not written again
                await tasks.room()
            self._go_on(limit)
            for job in reading.decide(page, objects.read_at):
                if job.decision.action is Action.LOOK_UP:
                    await self._look_up(scan, job)
                    reading.waited()
                else:
                    await tasks.start(carried_out(scan.carry_out(job), self._mover.do))
                if tasks.full:
                    await tasks.room()
                    reading.waited()
                    self._go_on(limit)
            if reading.over:
                return
        reading.ended()

    async def _look_up(self, scan: Scan, job: Job) -> None:
        try:
            await self._mover.do(LookUp(job))
        except ApiError as error:
            scan.could_not_read(job.meta.namespace, error)

    def _go_on(self, limit: asyncio.Timeout) -> None:
        at, now = limit.when(), asyncio.get_running_loop().time()
        if at is None or at - now < 0.9 * STALLED:
            limit.reschedule(now + STALLED)

    async def look_into(self, machine: DrivenResource, places: Places) -> None:
        """Reads what the watch would have shown there."""
        try:
            kind = await self._kinds.kind(machine.entry.resource)
            for place in places if kind.namespaced else ():
                async with self._looking.slot():
                    async for obj in self._client.list(
                        metadata_only(kind),
                        place,
                        label_selector=machine.watched,
                        on_restart=lambda: None,  # deciding twice on an object is harmless
                    ):
                        machine.seen(kind, obj.metadata, changed=False)
        except ApiError as error:
            machine.missed()
            where = {"ring": machine.ring.name, "resource": machine.entry.resource}
            _log.debug("Cannot look into new namespaces", **where, error=error)

    async def _could_not_read(self, machine: DrivenResource, error: ApiError) -> None:
        ring, resource = machine.ring, machine.entry.resource
        if isinstance(error, Forbidden):
            await self._permissions.refused(machine, "list")
            told = machine.of.to_log(resource, "list", error) is not None
            (_log.warning if told else _log.debug)(f"error listing {resource}", ring=ring.name, error=error)
        else:
            _log.debug(
                f"error listing {resource}", ring=ring.name, error=error
            )  # reported as a finding of the ring
            if isinstance(error, NotFound):
                self._kinds.forget(resource)
            ring.report.resolved(resource, str(error))


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
