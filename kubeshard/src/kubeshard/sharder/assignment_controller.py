"""The sharder controller: keeps every object of every ring on the shard that the hash ring names.

A reconcile of a ring is short: it starts a `ResourceSync` for each new resource of the ring. One task of it does what
its machine says is due (`sharding.ring_machine`), scans included, another one watches the objects that are unassigned.
Runs only in the leader.

Isolation: a list that hangs, or a resource that cannot be read, blocks only its own sync, until its deadline.
Other rings, and other resources of the same ring, do not wait for it.

Limits on memory and requests: each priority of a sync has one page of one list at a time in memory, or of one list for
each of a few namespaces, and `concurrent_moves` patches in flight. At most `AT_ONCE` scans of a priority start within
`PATIENCE` seconds, and of one resource at most `OF_A_RESOURCE` within `PATIENCE_WITH_A_RESOURCE`; syncs that failed
their last scan have `AT_ONCE_FAILING` separate slots, so that they do not block others. So a start with many rings
is paced: it uses a few connections for each resource, however slow the API server becomes.

Guaranteed: triggers that arrive during a scan lead to one scan afterwards, even if a shard left and
returned in between; after a restore of etcd that is visible in the Leases, all objects are scanned, because their
labels may be old; an exception ends only the work that raised it (`supervised`), and a scan is retried like after any
failure.

RBAC: get, list, watch on controllerrings and namespaces; list on leases; per ring list, watch, get, patch
on its resources.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Added, Delta, Updated
from kubeshard.client.client import Client
from kubeshard.controller.context import Context
from kubeshard.controller.controller import Controller
from kubeshard.controller.reconciler import Reconciler, Result
from kubeshard.controller.sources import Enqueue
from kubeshard.controller.syncing import until_filled
from kubeshard.controller.watch import Watch
from kubeshard.controller.when import generation_changed
from kubeshard.core.builtin import Namespace
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.runtime.logs import get_logger
from kubeshard.sharder.config import SharderControllerConfig
from kubeshard.sharder.kinds_and_rights import Permissions, ResourceKinds
from kubeshard.sharder.lease_observer import DeadShardProofs, LeaseObserver
from kubeshard.sharder.moves import Mover
from kubeshard.sharder.owners import OwnerChains
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.scanner import NamespaceScans, Scanner
from kubeshard.sharder.tasks import BoundedTaskGroup, ResourceSync, StartLimit
from kubeshard.sharder.unassigned import UnassignedWatches
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.ring_machine import Do, Job, RingMachine
from kubeshard.sharding.scans import (
    FAILED,
    RETRY_FIRST,
    RETRY_LAST,
    DueScan,
    ScanPriority,
    ScanResult,
    ScanScope,
)
from kubeshard.sharding.shard_states import ShardChange
from kubeshard.workqueue.limits import ItemExponential, Limiter, MaxOf, OverallRate

NAME = "sharder"

AT_ONCE, AT_ONCE_FAILING = 20, 5
PATIENCE = 0.5
OF_A_RESOURCE, PATIENCE_WITH_A_RESOURCE = 5, 2.0
LONGEST_RETRY, JITTER = 10.0, 0.2
FAILURES = 100.0
"""Retries that fail per second, over all rings: so more than ten times as many objects are retried less often each."""
AT_ONCE_OF_WAITING = 10
"""Retries, questions and dry runs of a resource."""
RINGS_A_TURN = 50
"""Rings whose work ends together when this process does not lead any more."""

_log = get_logger("kubeshard.sharder")


def assignment_controller(assignments: Assignments, sync_period: float) -> Controller[ControllerRing]:
    """The controller. Triggers: new or changed ControllerRings. Machines are told all else (`Assignments.run`)."""
    return Controller(
        name=NAME,
        reconciler=assignments,
        primary=Watch(ControllerRing, when=generation_changed),
        sources=[assignments],
        workers=5,
        limiter=lambda world: ItemExponential(
            min(RETRY_FIRST, sync_period), min(RETRY_LAST, sync_period), jitter=0.2, rng=world.rng
        ),
    )


class LabelDelivery:
    """How objects reach the shards of rings by labels: what each process reads for that, and what the leader runs.
    `objects`: a client for the cluster with the objects. Their Namespaces are in `cache`, or, if `cluster` names
    another one, in a cache of its own. `webhook`: whether rings have a webhook that assigns their objects.
    """

    def __init__(
        self,
        objects: Client,
        cache: Cache,
        config: SharderControllerConfig,
        *,
        cluster: str = "",
        webhook: bool = False,
    ) -> None:
        self.kinds = ResourceKinds(objects)
        self.chains = OwnerChains(objects, self.kinds)
        self._apart = Cache(objects, cluster=cluster) if cluster else None
        self._cache = self._apart or cache
        self._namespaces = self._cache.declare(Namespace)
        self._config = config
        self._webhook = webhook

    def namespace(self, name: str) -> Namespace | None:
        """The store is read for every object; for those that it lacks the cache, which raises until it has synced."""
        return self._namespaces.store.get(Key("", name)) or self._cache.get(Namespace, name)

    @asynccontextmanager
    async def ready(self, rings: Rings) -> AsyncIterator[None]:
        """Enters when decisions are possible, and keeps them so."""
        rings.declare_namespaces(self._cache)
        async with self._apart.running() if self._apart else nullcontext(), asyncio.TaskGroup() as tasks:
            await until_filled([self._namespaces])
            learning = tasks.create_task(self.kinds.keep_learning(rings), name="ring kinds")
            await self.kinds.tried()
            yield
            learning.cancel()

    def assigning(
        self, rings: Rings, observer: LeaseObserver, objects: Client, leases: Client, *, first: bool = False
    ) -> Assignments:
        """What a leader runs for one term. The clients write only while this process leads; `leases` is the one for the
        cluster with the Leases.
        """
        return Assignments(
            rings, observer, self.kinds, objects, leases, self._cache, self._config, probes=self._webhook
        )


class Assignments(Reconciler[ControllerRing]):
    """What a leader does for all rings, for one term: the reconciler, the event source, and the tasks of each
    `ResourceSync`, which last as long as `run` does.
    """

    def __init__(
        self,
        rings: Rings,
        observer: LeaseObserver,
        kinds: ResourceKinds,
        objects: Client,
        leases: Client,
        cache: Cache,
        config: SharderControllerConfig,
        *,
        probes: bool,
    ) -> None:
        self._rings = rings
        self._observer = observer
        self._cache = cache
        self._config = config
        self._probes = probes
        self._clock, self._rng = clock, rng = objects.world.clock, objects.world.rng
        at_once = config.concurrent_moves
        self._permissions = permissions = Permissions(objects, clock)
        self._proofs = DeadShardProofs(leases, observer, clock)
        self._mover = mover = Mover(objects, kinds, self._proofs, clock=clock, rng=rng)
        self._scanner = Scanner(objects, kinds, mover, permissions, concurrent_moves=at_once, clock=clock)
        self._namespaces = namespaces = NamespaceScans(objects, kinds, mover, concurrent_moves=at_once)
        self._unassigned = UnassignedWatches(
            objects, kinds, mover, namespaces, permissions, rings, concurrent_moves=at_once, clock=clock
        )
        self._failures = OverallRate(FAILURES, burst=round(FAILURES), clock=clock)
        self._syncs: dict[str, RingMachine[ResourceSync]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._starting = {priority: StartLimit(AT_ONCE, PATIENCE) for priority in ScanPriority}
        self._failing = {priority: StartLimit(AT_ONCE_FAILING, PATIENCE) for priority in ScanPriority}
        self._of_resource = defaultdict[tuple[ScanPriority, GroupResource], StartLimit](
            lambda: StartLimit(OF_A_RESOURCE, PATIENCE_WITH_A_RESOURCE)
        )
        self._relisting: asyncio.Task[bool] | None = None
        self._all_outdated = asyncio.Event()

    async def reconcile(self, ctx: Context, obj: ControllerRing, /) -> Result | None:
        if (ring := self._rings.get(obj.name)) is None:
            return None  # not known yet, or deleted
        self.follow(ring)
        await asyncio.sleep(0)  # nothing else here waits, and there may be a thousand rings to reconcile
        return None

    async def run(self, enqueue: Enqueue | None = None) -> None:
        """Does all that is due, until cancelled. Starts with a scan of everything. A source that triggers nothing."""
        namespaces = self._cache.declare(Namespace).add_handler(self._namespace_changed)
        try:
            with self._observer.subscribed(self._lease_changed), self._rings.subscribed(self._ring_changed):
                async with asyncio.TaskGroup() as self._group:
                    self._group.create_task(self._request_all(), name="scans everything")
                    try:
                        for ring in self._rings:
                            self.follow(ring)
                            await asyncio.sleep(0)  # each has several tasks, which now begin
                        await asyncio.get_running_loop().create_future()
                    finally:  # before the tasks have ended: a task started now would not be cancelled with them
                        self._group = self._relisting = None
                        for number, name in enumerate(tuple(self._syncs), 1):
                            self._stop(name)
                            if number % RINGS_A_TURN == 0:
                                await asyncio.sleep(0)
        finally:
            namespaces.remove()

    # Events

    def _lease_changed(self, change: ShardChange) -> None:
        if change.rewound:
            self._all_outdated.set()

    def _ring_changed(self, name: str) -> None:
        """The ring was added, deleted, or changed, of which its machine was told."""
        sync, ring = self._syncs.get(name), self._rings.get(name)
        if sync is not None and (sync.ring is not ring or ring.by_ranges):
            self._stop(name)
        elif sync is None and ring is not None:  # perhaps no longer by ranges
            self.follow(ring)

    def _namespace_changed(self, delta: Delta[Namespace]) -> None:
        before, now = (delta.old, delta.new) if isinstance(delta, Updated) else (delta.object, delta.object)
        name, labels = now.metadata.name, (before.metadata.labels, now.metadata.labels)
        if isinstance(delta, Updated) and labels[0] == labels[1]:
            return
        for ring in self._rings.perhaps_selecting(*labels):
            if (sync := self._syncs.get(ring.name)) is None:
                continue
            sync.namespace_changed(name)
            if isinstance(delta, Updated):
                selected, selects = (ring.selects(each) for each in labels)
                if selects != selected:
                    sync.request(ScanScope.ALL)
                if selects > selected:
                    for each in sync.resources.values():
                        self._namespaces.scan(each, name)
        if isinstance(delta, Added):
            self._unassigned.namespace_appeared(name)

    async def _request_all(self) -> None:
        """Scans everything whenever the labels of all objects may be old."""
        while True:
            await self._all_outdated.wait()
            self._all_outdated.clear()
            for sync in tuple(self._syncs.values()):
                sync.request(ScanScope.ALL)
                await asyncio.sleep(0)  # each has several tasks, which now wake

    # The tasks of each resource

    def follow(self, ring: Ring) -> None:
        """Starts the tasks of each new resource of the ring. All its objects are scanned. What has changed otherwise is
        told by events.
        """
        if self._group is None or ring.view is None or ring.by_ranges:
            return
        of = self._syncs.get(ring.name)
        if of is None:
            of = self._syncs[ring.name] = RingMachine(
                ring, self._backoff, at_once=self._config.concurrent_moves, probes=self._probes
            )
        for entry in ring.resources.entries:
            if entry.resource in of.resources:
                continue
            sync = ResourceSync(of, entry, self._config.sync_period, self._group)
            sync.start(partial(self._attend, sync), "what is due")
            sync.start(partial(self._unassigned.keep_watching, sync), "watch")

    def _backoff(self) -> Limiter:
        own = ItemExponential(1.0, LONGEST_RETRY / (1 + JITTER), jitter=JITTER, rng=self._rng)
        return MaxOf(own, self._failures)

    async def _attend(self, sync: ResourceSync) -> None:
        """Does what is due. The sync limits how much that is at once."""
        sync.resume()
        async with BoundedTaskGroup(self._config.concurrent_moves + AT_ONCE_OF_WAITING) as tasks:
            while True:
                for what, about in sync.due():
                    match about:
                        case ScanPriority():
                            await tasks.start(self._do_scan(sync, about), f"{about.value} scan of {sync}")
                        case _:
                            await tasks.start(self._do(sync, what, about))
                await sync.attended()

    async def _do(self, sync: ResourceSync, what: Do, job: Job | None) -> None:
        """A crash costs only the object that it is about, not those that are looked at beside it."""
        try:
            if job is None:
                await self._permissions.one_refused(sync)
            else:
                await self._mover.do(sync, what, job)
        except Exception as error:
            sync.crashes.tell(what.name.lower().replace("_", " "), error)
            sync.missed()

    async def _do_scan(self, sync: ResourceSync, priority: ScanPriority) -> None:
        failing = sync.schedule.failing(priority)
        of_resource = self._of_resource[priority, sync.entry.resource].slot()
        places = (self._failing if failing else self._starting)[priority]
        work, outcome = None, FAILED
        try:
            async with nullcontext() if failing else of_resource, places.slot():
                if (work := sync.begin(priority)) is not None:
                    outcome = await self._scan(sync, work)
        except Exception as error:
            sync.crashes.tell(f"{priority.value} scan", error)
        finally:
            sync.end(priority, work, outcome)

    def _stop(self, name: str) -> None:
        self._syncs.pop(name).stop()
        self._proofs.forget(name)

    async def _scan(self, sync: ResourceSync, work: DueScan) -> ScanResult:
        started = self._clock.monotonic()
        if not await self._up_to_date():
            return FAILED
        outcome = await self._scanner.scan(sync, work.scope)
        say = _log.info if outcome.moved else _log.debug  # most scans find everything in its place
        say(
            "Scanned the objects of the ring",
            ring=sync.ring.name,
            resource=sync.entry.resource,
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
