"""One pass over a ring's objects: list, decide, carry out (protocol 4.2).

Guaranteed: objects are streamed page by page and never kept; every object is decided on with the ring as it
is at that moment; each resource is read once, an entry's main resource before what it controls, so that
drains are asked for before controlled objects are looked at, and those wait for their owner (`owners`,
14-A8). A resource that cannot be found or read is reported and retried alone (14-A19). Never from
resourceVersion 0 (reliability T12).

What it keeps: the keys of main objects whose drain is pending or was refused.

RBAC: list, and what `moves` needs, on every main and controlled resource.
"""

from __future__ import annotations

from kubeshard.client import Client, KindNotServed
from kubeshard.core.errors import ApiError, Forbidden, NotFound
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
from kubeshard.sharder.schedule import Outcome, Pass, Reach
from kubeshard.sharder.unknown_namespaces import UnknownNamespaces
from kubeshard.sharder.views import RingViews
from kubeshard.sharder.waiting import Waiting
from kubeshard.sharding import Action, RingEntry, RingView, TypeMeta, plan
from kubeshard.sharding.planner import NOT_SELECTED

MAX_SELECTOR = 4000
"""Characters; beyond it everything is listed instead of naming all shards in the URL."""

_CARRY_OUT = frozenset({Action.ASSIGN, Action.MOVE, Action.DRAIN})
_log = get_logger("kubeshard.sharder")


class Resync:
    """Does passes, and tells by metrics and reports what waits."""

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
        self._drains: dict[str, Waiting] = {}
        self._unassigned: dict[str, Waiting] = {}
        self._owners: dict[str, Owners] = {}

    async def run(self, ring: str, work: Pass) -> Outcome:
        """One pass. Never raises ApiErrors: resources that failed are in the outcome."""
        view = self._views.view(ring)
        if view is None:
            return Outcome()
        started = self._clock.monotonic()
        owners = self._owners.setdefault(ring, Owners(lambda: self._views.view(ring), strict=self._strict))
        complete = work.resources is None and work.reach is not Reach.MISPLACED
        drains = self._drains.setdefault(ring, Waiting())
        if complete:
            drains.begin()
        unassigned = self._unassigned.setdefault(ring, Waiting())
        all_unassigned = work.resources is None and work.reach is not Reach.CONTROLLED
        if all_unassigned:
            unassigned.begin()
        failed: set[GroupResource] = set()
        waiting = 0
        async with Crew(self._concurrent_moves) as crew:
            for entry, reach in _looks(view, work):
                try:
                    waiting += await self._look(ring, entry, reach, crew, owners, drains)
                except ApiError as error:
                    failed.add(entry.resource)
                    await self._could_not_read(ring, entry.resource, error)
                else:
                    self._reports.resolved(ring, entry.resource)
                    self._permissions.granted(ring, entry.resource, "list")
                    if reach is Reach.ALL:
                        await self._permissions.check(ring, entry.resource)
        if complete:
            self._report_drains(ring, drains)
        if all_unassigned:
            self._report_unassigned(ring, unassigned)
        now = self._clock.monotonic()
        self._metrics.resynced(ring, work.reach.name.lower(), now - started)
        return Outcome(waiting=waiting, failed=frozenset(failed))

    def forget(self, ring: str) -> None:
        self._drains.pop(ring, None)
        self._unassigned.pop(ring, None)
        self._owners.pop(ring, None)
        self._metrics.forget(ring)

    async def _look(
        self,
        ring: str,
        entry: RingEntry,
        reach: Reach,
        crew: Crew,
        owners: Owners,
        drains: Waiting,
    ) -> int:
        """Lists one resource and starts what has to be done. Returns how many objects wait. Raises
        ApiError.
        """
        kind = await self._kinds.kind(entry.resource)
        view = self._views.view(ring)
        if view is None or not view.hashring.shards:
            return 0
        type_ = TypeMeta(kind.api_version, kind.kind)
        waiting, draining = 0, owners.of(entry)
        if entry.main:
            owners.begin(entry.resource, complete=reach is Reach.ALL)
        objects = self._client.list(
            metadata_only(kind),
            label_selector=_selector(reach, entry, view),
            on_restart=lambda: None,  # deciding twice on an object is harmless
        )
        async for obj in objects:
            meta = obj.metadata
            current = self._views.view(ring)
            if current is None:
                return 0
            decision = plan(current, entry, type_, meta, draining=draining)
            if decision.reason == NOT_SELECTED and not self._views.knows_namespace(meta.namespace):
                self._unknown.passed_over((ring, entry), meta.namespace)
            if decision.action is Action.WAIT or decision.action is Action.DRAIN:
                waiting += 1
                if entry.main:
                    drains.pending(entry.resource, obj.key, self._clock.monotonic())
                    owners.draining(entry.resource, decision)
            if decision.action in _CARRY_OUT:
                job = Job(ring, entry, kind, meta, decision, draining, read=objects.read_at)
                await crew.start(self._carry_out(job, owners))
            elif decision.action is Action.REFUSED:
                _not_keyed(ring, entry, meta, decision.reason)
        if entry.main and reach is not Reach.MISPLACED:
            owners.end(entry.resource, view.hashring)
        return waiting

    async def _carry_out(self, job: Job, owners: Owners) -> None:
        outcome = await self._mover.carry_out(job)
        if outcome is Done.FAILED and job.entry.main:
            owners.refused(job.entry.resource, job.decision)
        if outcome in (Done.FAILED, Done.WAITING) and job.decision.source not in self._views.available(
            job.ring
        ):
            self._unassigned[job.ring].pending(job.entry.resource, job.key, self._clock.monotonic())

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

    def _report_unassigned(self, ring: str, unassigned: Waiting) -> None:
        unassigned.end()
        view = self._views.view(ring)
        for entry in view.resources.entries if view else ():
            self._metrics.unassigned(ring, entry.resource, unassigned.counts.get(entry.resource, 0))
        self._metrics.oldest_unassigned(ring, unassigned.oldest(self._clock.monotonic()))

    def _report_drains(self, ring: str, drains: Waiting) -> None:
        drains.end()
        now = self._clock.monotonic()
        view = self._views.view(ring)
        for entry in view.resources.entries if view else ():
            if entry.main:
                self._metrics.pending(ring, entry.resource, drains.counts.get(entry.resource, 0))
        self._metrics.oldest_drain(ring, drains.oldest(now))
        self._reports.drains(ring, drains.older_than(DRAIN_STUCK_AFTER, now))


def _looks(view: RingView, work: Pass) -> list[tuple[RingEntry, Reach]]:
    """What a pass looks at, in order. Where it is told to read controlled objects only, their owners are asked who
    is being drained.
    """
    wanted = work.resources
    if wanted is None:
        return [(entry, work.reach) for entry in view.resources.entries]
    owners = {owner for entry in view.resources.entries if entry.resource in wanted for owner in entry.owners}
    return [
        (entry, work.reach if entry.resource in wanted else Reach.CONTROLLED)
        for entry in view.resources.entries
        if entry.resource in wanted or entry.resource in owners
    ]


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
        "cannot assign object", ring=ring, resource=str(entry.resource), object=str(meta.name), problem=reason
    )
