"""One look at the objects of one resource of a ring: list, decide, carry out (protocol 4.2).

Guaranteed: objects are streamed page by page and never kept; every object is decided on with the ring as it
is at that moment; a controlled object that would leave a live shard waits while its owner's drain is pending, and
while nobody knows (`owners`), so a main resource that cannot be read holds back what it controls, and nothing else.
While a drain is pending, what its object may control is looked at again even if nothing waits: the shard may make
a child until it lets go. A look ends: it is given up when nothing has gone on for `STALLED` seconds. A resource
that cannot be found or read is reported, and touches no other. Never from resourceVersion 0.

What it keeps: the keys of main objects whose drain is pending or was refused.

RBAC: list, and what `moves` needs, on every main and controlled resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from kubeshard.client.client import Client
from kubeshard.client.discovery import KindNotServed
from kubeshard.core.errors import ApiError, Forbidden, NotFound, Timeout
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import ObjectMeta, metadata_only
from kubeshard.core.selectors import Selector
from kubeshard.runtime.clock import SYSTEM_CLOCK, Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.sharder.crew import Crew
from kubeshard.sharder.kinds import ResourceKinds
from kubeshard.sharder.metrics import SharderMetrics
from kubeshard.sharder.moves import Job, Mover
from kubeshard.sharder.moves import Outcome as Done
from kubeshard.sharder.owners import Owners
from kubeshard.sharder.permissions import Permissions
from kubeshard.sharder.reports import DRAIN_STUCK_AFTER, RingReports
from kubeshard.sharder.schedule import Outcome, Reach
from kubeshard.sharder.unknown_namespaces import UnknownNamespaces
from kubeshard.sharder.views import RingViews
from kubeshard.sharder.waiting import Sight, Waiting
from kubeshard.sharding.classification import RingEntry
from kubeshard.sharding.planner import NOT_SELECTED, Action, RingView, TypeMeta, plan

MAX_SELECTOR = 4000
"""Characters; beyond it everything is listed instead of naming all shards in the URL."""

STALLED = 120.0
"""Seconds without progress after which a look is given up: more than a page of a list, or a patch, may take."""

_CARRY_OUT = frozenset({Action.ASSIGN, Action.MOVE, Action.DRAIN})
_log = get_logger("kubeshard.sharder")


@dataclass(slots=True)
class _Memory:
    """What is remembered of one ring between looks."""

    owners: Owners
    drains: dict[GroupResource, Waiting] = field(default_factory=dict)
    """Of main resources."""
    unassigned: dict[GroupResource, Waiting] = field(default_factory=dict)


@dataclass(slots=True)
class _Look:
    """One look, and what it has seen so far."""

    ring: str
    entry: RingEntry
    reach: Reach
    owners: Owners
    drains: Sight
    unassigned: Sight
    waiting: int = 0
    progressed: float = 0.0


class Resync:
    """Looks, and tells by metrics and reports what waits. `concurrent_moves`: patches at a time, per look."""

    def __init__(
        self,
        client: Client,
        views: RingViews,
        kinds: ResourceKinds,
        mover: Mover,
        reports: RingReports,
        permissions: Permissions,
        metrics: SharderMetrics,
        unknown: UnknownNamespaces,
        *,
        concurrent_moves: int = 100,
        strict: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._views = views
        self._kinds = kinds
        self._mover = mover
        self._reports = reports
        self._permissions = permissions
        self._metrics = metrics
        self._unknown = unknown
        self._concurrent_moves = concurrent_moves
        self._strict = strict
        self._clock = clock
        self._memories: dict[str, _Memory] = {}

    async def look(self, ring: str, entry: RingEntry, reach: Reach) -> Outcome:
        """One look. Raises no ApiErrors: what could not be read is reported, and `failed` in the outcome."""
        started = self._clock.monotonic()
        memory = self._memory(ring)
        look = _Look(
            ring,
            entry,
            reach,
            memory.owners,
            memory.drains.setdefault(entry.resource, Waiting()).look(),
            memory.unassigned.setdefault(entry.resource, Waiting()).look(),
        )
        error = await self._looked(look)
        self._metrics.resynced(ring, reach.name.lower(), self._clock.monotonic() - started)
        if error is not None:
            await self._could_not_read(ring, entry.resource, error)
            return Outcome(failed=True)
        self._reports.resolved(ring, entry.resource)
        self._permissions.granted(ring, entry.resource, "list")
        if reach is Reach.ALL:
            await self._permissions.check(ring, entry.resource)
        if entry.main and reach is not Reach.MISPLACED:
            look.drains.complete()
        if reach is not Reach.CONTROLLED:
            look.unassigned.complete()
        if memory is self._memories.get(ring):
            self._tell(ring, entry, memory)
        return Outcome(waiting=look.waiting or memory.owners.pending(entry))

    def drained(self, job: Job) -> None:
        """A drain was asked for, by a look or by anybody else."""
        self._memory(job.ring).owners.asked(job.entry.resource, job.decision)

    def keep(self, ring: str, entries: Iterable[RingEntry]) -> None:
        """The ring has these resources only: what is remembered of others is forgotten."""
        if (memory := self._memories.get(ring)) is None:
            return
        kept = {entry.resource for entry in entries}
        for resource in memory.unassigned.keys() - kept:
            del memory.unassigned[resource]
            memory.drains.pop(resource, None)
            self._metrics.forget_resource(ring, resource)

    def forget(self, ring: str) -> None:
        self._memories.pop(ring, None)
        self._metrics.forget(ring)

    def _memory(self, ring: str) -> _Memory:
        if (memory := self._memories.get(ring)) is None:
            owners = Owners(lambda: self._views.view(ring), strict=self._strict)
            memory = self._memories[ring] = _Memory(owners)
        return memory

    async def _looked(self, look: _Look) -> ApiError | None:
        """What became of it."""
        error: ApiError | None = None
        try:
            async with asyncio.timeout(STALLED) as limit, Crew(self._concurrent_moves) as crew:
                try:
                    await self._list(look, crew, limit)
                except ApiError as failure:  # what was decided by then is carried out all the same
                    error = failure
        except TimeoutError:
            return Timeout(f"nothing has gone on for {STALLED:g} s")
        return error

    async def _list(self, look: _Look, crew: Crew, limit: asyncio.Timeout) -> None:
        """Lists the resource and starts what has to be done. Raises ApiError."""
        ring, entry, reach, owners = look.ring, look.entry, look.reach, look.owners
        kind = await self._kinds.kind(entry.resource)
        view = self._views.view(ring)
        if view is None or not view.hashring.shards:
            return
        type_, draining = TypeMeta(kind.api_version, kind.kind), owners.of(entry)
        tells_drains = entry.main and reach is not Reach.MISPLACED
        if tells_drains:
            owners.begin(entry.resource, complete=reach is Reach.ALL)
        objects = self._client.list(
            metadata_only(kind),
            label_selector=_selector(reach, entry, view),
            on_restart=lambda: None,  # deciding twice on an object is harmless
        )
        async for obj in objects:
            meta = obj.metadata
            self._go_on(look, limit)
            current = self._views.view(ring)
            if current is None:
                return
            decision = plan(current, entry, type_, meta, draining=draining)
            if decision.reason == NOT_SELECTED and not self._views.knows_namespace(meta.namespace):
                self._unknown.passed_over((ring, entry), meta.namespace)
            if decision.action is Action.WAIT or decision.action is Action.DRAIN:
                look.waiting += 1
                if entry.main:
                    look.drains.pending(obj.key, self._clock.monotonic())
                    owners.draining(entry.resource, decision)
            if decision.action in _CARRY_OUT:
                job = Job(ring, entry, kind, meta, decision, draining, objects.read_at, current)
                await crew.start(self._carry_out(job, look))
            elif decision.action is Action.REFUSED:
                _not_keyed(ring, entry, meta, decision.reason)
        if tells_drains:
            owners.end(entry.resource, view.hashring)

    def _go_on(self, look: _Look, limit: asyncio.Timeout) -> None:
        now = asyncio.get_running_loop().time()
        if now - look.progressed > STALLED / 10:
            look.progressed = now
            limit.reschedule(now + STALLED)

    async def _carry_out(self, job: Job, look: _Look) -> None:
        outcome = await self._mover.carry_out(job)
        if outcome is Done.FAILED and job.entry.main:
            look.owners.refused(job.entry.resource, job.decision)
        if outcome in (Done.FAILED, Done.WAITING) and job.decision.source not in self._views.available(
            job.ring
        ):
            look.unassigned.pending(job.key, self._clock.monotonic())

    async def _could_not_read(self, ring: str, resource: GroupResource, error: ApiError) -> None:
        if isinstance(error, KindNotServed):
            _log.warning(f'no kinds found for resource "{resource}"', ring=ring)
        else:
            _log.warning(f"error listing {resource}", ring=ring, error=error)
        if isinstance(error, Forbidden):
            await self._permissions.refused(ring, resource, "list")
        else:
            if isinstance(error, NotFound):
                self._kinds.forget(resource)
            self._reports.resolved(ring, resource, str(error))

    def _tell(self, ring: str, entry: RingEntry, memory: _Memory) -> None:
        now, resource = self._clock.monotonic(), entry.resource
        if entry.main:
            self._metrics.pending(ring, resource, memory.drains[resource].count)
        self._metrics.unassigned(ring, resource, memory.unassigned[resource].count)
        drains, unassigned = memory.drains.values(), memory.unassigned.values()
        self._metrics.oldest_drain(ring, max((each.oldest(now) for each in drains), default=0.0))
        self._metrics.oldest_unassigned(ring, max((each.oldest(now) for each in unassigned), default=0.0))
        self._reports.drains(ring, sum(each.older_than(DRAIN_STUCK_AFTER, now) for each in drains))


def _selector(reach: Reach, entry: RingEntry, view: RingView) -> Selector | None:
    """What a pass has to read of a resource."""
    if reach is Reach.CONTROLLED and entry.main:
        return Selector.exists(view.drain_label)
    if reach is Reach.MISPLACED:
        selector = Selector.not_in(view.shard_label, view.hashring.shards)
        return selector if len(str(selector)) <= MAX_SELECTOR else None
    return None


def _not_keyed(ring: str, entry: RingEntry, meta: ObjectMeta, reason: str) -> None:
    _log.debug(
        "Cannot assign object", ring=ring, resource=str(entry.resource), object=str(meta.name), problem=reason
    )
