"""What the leader does for all rings: it keeps every object on the shard that the hash ring names.

It follows the rings. Each resource of a ring by labels has a `DrivenResource`: one task of it does what its machine
says is due (`sharding.ring_machine`), scans included, another one watches the objects that are unassigned. Each ring
that says by annotation that it is shared out by ranges has a `range_coordinator`, as inside an operator, whose findings
are in the ring's conditions; nobody writes labels for it, nor does it have a webhook (`Ring.by_ranges`).

Isolation: a list that hangs, or a resource that cannot be read, blocks only its own machine, until its deadline.
Other rings, and other resources of the same ring, do not wait for it.

Limits on memory and requests: each priority of a machine has one page of one list at a time in memory, or of one list
for each of a few namespaces, and `concurrent_moves` patches in flight. At most `AT_ONCE` scans of a priority start
within `PATIENCE` seconds, and of one resource at most `OF_A_RESOURCE` within `PATIENCE_WITH_A_RESOURCE`; machines that
failed their last scan have `AT_ONCE_FAILING` separate slots, so that they do not block others. So a start with many
rings is paced: it uses a few connections for each resource, however slow the API server becomes.

Guaranteed: triggers that arrive during a scan lead to one scan afterwards, even if a shard left and
returned in between; after a restore of etcd that is visible in the Leases, all objects are scanned, because their
labels may be old; an exception ends only the work that raised it (`supervised`), and a scan is retried like after any
failure.

RBAC: get, list, watch on controllerrings and namespaces; list on leases; per ring list, watch, get, patch
on its resources; that of `range_coordinator`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import NamedTuple

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Added, Deleted, Delta, Updated
from kubeshard.client.client import Client
from kubeshard.controller.syncing import until_filled
from kubeshard.core.builtin import Namespace
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.runtime.logs import get_logger
from kubeshard.sharder.config import SharderControllerConfig
from kubeshard.sharder.kinds_and_rights import Permissions, ResourceKinds
from kubeshard.sharder.lease_observer import DeadShardProofs, LeaseObserver
from kubeshard.sharder.moves import Mover
from kubeshard.sharder.owners import OwnerChains
from kubeshard.sharder.range_coordinator import RangeAssignor
from kubeshard.sharder.rings import Inbox, Rings, reading
from kubeshard.sharder.scanner import Scanner
from kubeshard.sharder.tasks import (
    BoundedTaskGroup,
    Crashes,
    DrivenResource,
    StartLimit,
    carried_out,
    supervised,
)
from kubeshard.sharder.unassigned import UnassignedWatches
from kubeshard.sharding.api import SharedRanges
from kubeshard.sharding.buckets import BUCKETS
from kubeshard.sharding.object_job import Job
from kubeshard.sharding.ring import Namespaces, Ring
from kubeshard.sharding.ring_machine import Do, Places, RingMachine
from kubeshard.sharding.schedule import FAILED, RETRY_LAST, DueScan, ScanPriority, ScanResult, ScanScope
from kubeshard.sharding.waiting import REMEMBERED
from kubeshard.workqueue.limits import ItemExponential, Limiter, MaxOf, OverallRate

AT_ONCE, AT_ONCE_FAILING = 20, 5
PATIENCE = 0.5
OF_A_RESOURCE, PATIENCE_WITH_A_RESOURCE = 5, 2.0
LONGEST_RETRY, JITTER = 10.0, 0.2
FAILURES = 100.0
"""Retries that fail per second, over all rings: so more than ten times as many objects are retried less often each."""
AT_ONCE_OF_WAITING = 10
"""Retries, questions, dry runs, scans and looks into namespaces of a resource."""
RINGS_A_TURN = 50
"""Rings whose work ends together when this process does not lead any more."""

_log = get_logger("kubeshard.sharder")


class LabelAssignor:
    """How objects reach the shards of rings by labels: what each process reads for that, and what the leader runs.
    `objects`: a client for the cluster with the objects. Their Namespaces are in `cache`, or, if `cluster` names
    another one, in a cache of its own. `service`: rings have a webhook that assigns their objects, or are by ranges if
    they say so.
    """

    def __init__(
        self,
        objects: Client,
        cache: Cache,
        config: SharderControllerConfig,
        *,
        cluster: str = "",
        service: bool = False,
    ) -> None:
        self.kinds = ResourceKinds(objects)
        self.chains = OwnerChains(objects, self.kinds)
        self._apart = Cache(objects, cluster=cluster) if cluster else None
        self.cache = self._apart or cache
        self.namespaces = _CachedNamespaces(self.cache, all_known=service)
        self.config = config
        self.service = service

    @asynccontextmanager
    async def ready(self, rings: Rings) -> AsyncIterator[None]:
        """Enters when decisions are possible, and keeps them so."""
        rings.declare_namespaces(self.cache)
        async with self._apart.running() if self._apart else nullcontext(), asyncio.TaskGroup() as tasks:
            await until_filled([self.namespaces.informer])
            learning = tasks.create_task(self.kinds.keep_learning(rings), name="ring kinds")
            await self.kinds.tried()
            yield
            learning.cancel()

    async def lead(
        self, rings: Rings, observer: LeaseObserver, objects: Client, leases: Client, *, first: bool = False
    ) -> None:
        """For one term, until cancelled. The clients write only while this process leads; `leases` is the one for the
        cluster with the Leases.
        """
        await Assignments(self, rings, observer, objects, leases).run()


class _CachedNamespaces(Namespaces):
    """`all_known`: whether the cache has all of them."""

    def __init__(self, cache: Cache, *, all_known: bool) -> None:
        self.informer = cache.declare(Namespace)
        self._cache = cache
        self._all_known = all_known

    def get(self, name: str) -> Namespace | None:
        """The store is read for every object; for those that it lacks the cache, which raises until it has synced."""
        return self.informer.store.get(Key("", name)) or self._cache.get(Namespace, name)

    def all(self) -> Collection[Namespace] | None:
        return tuple(self.informer.store.objects()) if self._all_known and self.informer.has_synced else None


class _Coordinated(NamedTuple):
    """A ring by ranges, and the task that coordinates it."""

    ring: Ring
    ranges: SharedRanges
    task: asyncio.Task[None]


class Assignments:
    """The work of one term: the tasks of each `DrivenResource` and of each coordinator, which last as long as `run`."""

    def __init__(
        self, of: LabelAssignor, rings: Rings, observer: LeaseObserver, objects: Client, leases: Client
    ) -> None:
        self._cache, self._config, self._service, kinds = of.cache, of.config, of.service, of.kinds
        self._rings = rings
        self._observer = observer
        self._leases = leases
        self._clock, self._rng = clock, rng = objects.world.clock, objects.world.rng
        self._crashes = Crashes(rings.inputs.metrics.of(""), clock)
        at_once = of.config.concurrent_moves
        self._permissions = permissions = Permissions(objects, clock)
        self._proofs = DeadShardProofs(leases, observer, clock)
        self._mover = mover = Mover(objects, kinds, self._proofs, clock=clock, rng=rng)
        self._scanner = Scanner(objects, kinds, mover, permissions, concurrent_moves=at_once, clock=clock)
        self._unassigned = UnassignedWatches(objects, kinds, permissions, rings, clock=clock)
        self._failures = OverallRate(FAILURES, burst=round(FAILURES), clock=clock)
        self._machines: dict[str, RingMachine[DrivenResource]] = {}
        self._coordinated: dict[str, _Coordinated] = {}
        self._group: asyncio.TaskGroup | None = None
        self._gone_namespaces: dict[str, Mapping[str, str] | None] = {}
        """The labels of the namespaces that were deleted last: one of the same name may take their place."""
        self._starting = {priority: StartLimit(AT_ONCE, PATIENCE) for priority in ScanPriority}
        self._failing = {priority: StartLimit(AT_ONCE_FAILING, PATIENCE) for priority in ScanPriority}
        self._of_resource = defaultdict[tuple[ScanPriority, GroupResource], StartLimit](
            lambda: StartLimit(OF_A_RESOURCE, PATIENCE_WITH_A_RESOURCE)
        )
        self._relisting: asyncio.Task[bool] | None = None

    async def run(self) -> None:
        """Does all that is due, until cancelled. Starts with a scan of everything."""
        namespaces = self._cache.declare(Namespace).add_handler(self._namespace_changed)
        try:
            with reading(self._rings.changes) as changed, reading(self._rings.rewound) as rewound:
                for ring in self._rings:
                    changed.put(ring.name)
                async with asyncio.TaskGroup() as self._group:
                    self._group.create_task(self._request_all(rewound), name="scans everything")
                    try:
                        while True:
                            for name in await changed.take():
                                self._follow(name, changed)
                                await asyncio.sleep(0)  # each has several tasks, which now begin
                    finally:  # before the tasks have ended: a task started now would not be cancelled with them
                        self._group = self._relisting = None
                        for number, name in enumerate(tuple(self._machines), 1):
                            self._stop(name)
                            if number % RINGS_A_TURN == 0:
                                await asyncio.sleep(0)
        finally:
            namespaces.remove()

    # Events

    def _namespace_changed(self, delta: Delta[Namespace]) -> None:
        before, now = (delta.old, delta.new) if isinstance(delta, Updated) else (delta.object, delta.object)
        name, labels = now.metadata.name, (before.metadata.labels, now.metadata.labels)
        if isinstance(delta, Updated) and labels[0] == labels[1]:
            return
        if isinstance(delta, Deleted):
            if len(self._gone_namespaces) >= REMEMBERED:
                del self._gone_namespaces[next(iter(self._gone_namespaces))]
            self._gone_namespaces[name] = labels[1]
        elif isinstance(delta, Added) and name in self._gone_namespaces:
            # Its objects may have been seen before the end of the former one: then as the former's.
            labels = self._gone_namespaces.pop(name), labels[1]
        for ring in self._rings.perhaps_selecting(*labels):
            if (machine := self._machines.get(ring.name)) is not None:
                machine.namespace_changed(name, *map(ring.selects, labels))
        if isinstance(delta, Added):
            self._unassigned.namespace_appeared(name)

    async def _request_all(self, rewound: Inbox[Key]) -> None:
        """Scans everything whenever the labels of all objects may be old."""
        while await rewound.take():
            for machine in tuple(self._machines.values()):
                machine.request(ScanScope.ALL)
                await asyncio.sleep(0)  # each has several tasks, which now wake

    def _follow(self, name: str, changed: Inbox[str]) -> None:
        """The ring was added, deleted, or changed, of which its machine was told."""
        try:
            ring, of, coordinated = (
                self._rings.get(name),
                self._machines.get(name),
                self._coordinated.get(name),
            )
            if of is not None and (of.ring is not ring or ring.by_ranges):
                self._stop(name)
            if coordinated is not None and coordinated[:2] != (ring, _ranges(ring)):
                self._coordinated.pop(name).task.cancel()
            if ring is not None:
                self.follow(ring)
        except Exception as error:  # which costs this ring only
            self._crashes.tell("following", error, ring=name)
            asyncio.get_running_loop().call_later(RETRY_LAST, changed.put, name)

    # The tasks of each ring

    def follow(self, ring: Ring) -> None:
        """Starts the tasks of a new ring, and of each new resource of another one. All its objects are scanned."""
        if self._group is None:
            return
        if ring.by_ranges:
            self._begin_coordinating(ring, self._group)
            return
        if ring.view is None:
            return
        of = self._machines.get(ring.name)
        if of is None:
            of = self._machines[ring.name] = RingMachine(
                ring, self._backoff, at_once=self._config.concurrent_moves, probes=self._service
            )
        for entry in ring.resources.entries:
            if entry.resource in of.resources:
                continue
            machine = DrivenResource(of, entry, self._config.sync_period, self._group)
            machine.start(partial(self._attend, machine), "what is due")
            machine.start(partial(self._unassigned.keep_watching, machine), "watch")

    def _begin_coordinating(self, ring: Ring, group: asyncio.TaskGroup) -> None:
        ranges = _ranges(ring)
        if ranges is None or not self._service or ring.name in self._coordinated:
            return
        work = partial(self._coordinate, ring, ranges)
        crashes = Crashes(ring.metrics, self._clock, BUCKETS, ring=ring.name)
        task = group.create_task(supervised(work, "ranges", crashes), name=f"ranges of {ring}")
        self._coordinated[ring.name] = _Coordinated(ring, ranges, task)

    async def _coordinate(self, ring: Ring, ranges: SharedRanges) -> None:
        """The cache ends with it, as the ring may."""
        buckets, namespace = ranges
        cache, client = Cache(self._leases), self._leases
        assignor = RangeAssignor(ring.name, buckets, namespace, client, cache, self._config.sync_period)
        async with cache.running(), assignor.ready(self._rings):
            await assignor.lead(self._rings, self._observer, client, client, first=False)

    def _backoff(self) -> Limiter:
        own = ItemExponential(1.0, LONGEST_RETRY / (1 + JITTER), jitter=JITTER, rng=self._rng)
        return MaxOf(own, self._failures)

    async def _attend(self, machine: DrivenResource) -> None:
        """Does what is due. The machine limits how much that is at once."""
        machine.resume()
        async with BoundedTaskGroup(self._config.concurrent_moves + AT_ONCE_OF_WAITING) as tasks:
            while True:
                for what, about in machine.due():
                    match about:
                        case ScanPriority():
                            await tasks.start(
                                self._do_scan(machine, about), f"{about.value} scan of {machine}"
                            )
                        case _:
                            await tasks.start(self._do(machine, what, about))
                await machine.attended()

    async def _do(self, machine: DrivenResource, what: Do, about: Job | Places | None) -> None:
        """A crash costs only the object that it is about, not those that are looked at beside it. Who cancels it
        cancels all, and has the machine `resume`.
        """
        try:
            match about:
                case None:
                    await self._permissions.ask(machine)
                case Job():
                    await carried_out(machine.steps(what, about), self._mover.do)
                case _:
                    await self._scanner.look_into(machine, about)
        except Exception as error:
            machine.crashes.tell(what.name.lower().replace("_", " "), error)
            machine.missed()
        if what is Do.ASK:
            machine.asked_for_rights()
        elif what is Do.LOOK_INTO:
            machine.looked_into()

    async def _do_scan(self, machine: DrivenResource, priority: ScanPriority) -> None:
        failing = machine.schedule.failing(priority)
        of_resource = self._of_resource[priority, machine.entry.resource].slot()
        places = (self._failing if failing else self._starting)[priority]
        work, outcome = None, FAILED
        try:
            async with nullcontext() if failing else of_resource, places.slot():
                if (work := machine.begin(priority)) is not None:
                    outcome = await self._scan(machine, work)
        except Exception as error:
            machine.crashes.tell(f"{priority.value} scan", error)
        finally:
            machine.end(priority, work, outcome)

    def _stop(self, name: str) -> None:
        self._machines.pop(name).stop()
        self._proofs.forget(name)

    async def _scan(self, machine: DrivenResource, work: DueScan) -> ScanResult:
        started = self._clock.monotonic()
        if not await self._up_to_date():
            return FAILED
        outcome = await self._scanner.scan(machine, work.scope)
        say = _log.info if outcome.moved else _log.debug  # most scans find everything in its place
        say(
            "Scanned the objects of the ring",
            ring=machine.ring.name,
            resource=machine.entry.resource,
            moved=outcome.moved,
            waiting=outcome.waiting,
            failed=outcome.failed,
            scope=work.scope.name.lower(),
            reason=work.reason,
            seconds=self._clock.monotonic() - started,
        )
        return outcome

    async def _up_to_date(self) -> bool:
        """Whether the view of the shards' Leases is fresh: they are read if it may not be, once for all callers."""
        if self._observer.states.fresh(self._clock.monotonic()) or self._group is None:
            return True
        if self._relisting is None or self._relisting.done():
            self._relisting = self._group.create_task(self._relist(), name="relist")
        return await asyncio.shield(self._relisting)

    async def _relist(self) -> bool:
        try:
            await self._observer.relist()
        except Exception as error:  # the observer meets it too, and logs it once
            _log.debug("Cannot list shard Leases", error=error)
        return self._observer.states.fresh(self._clock.monotonic())


def _ranges(ring: Ring | None) -> SharedRanges | None:
    """How it is to be coordinated."""
    return None if ring is None or ring.releasing else ring.ranges
