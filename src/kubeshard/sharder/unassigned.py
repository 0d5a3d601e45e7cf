"""The watch on unassigned objects: assigns objects that the webhook and scans missed when they appear.

Metadata only, and nothing is stored: events go directly to the planner and the mover. A watch is a connection, so
rings share them:

| rings with the resource | watches | each change of the resource costs the sharder |
|---|---|---|
| up to `APART` | one per ring, with the selector "has no shard label" | nothing, unless the object is unassigned |
| more | one for all, without a selector, since none can express "lacks one of these labels" | decoding its metadata, \
and a decision for each ring that selects its namespace |

So the number of connections is at most `APART` times the number of resources, whatever the number of rings. A
resource with a shared watch keeps it until no ring has the resource.

A ring whose selector names few namespaces counts as so many rings: instead of one for all namespaces, it has a watch
for each of these that exists. If it may not watch all namespaces, it keeps them instead of sharing one.

A watch that breaks continues where it was, as an informer does. When one restarts after a gap, a watch of one ring
requests a scan of the objects without an available shard instead of listing them itself; a shared one lists the
resource once for all rings. Objects in a namespace that is not known yet are read again, by a list of that namespace's
unassigned objects, as soon as the namespace appears.

Guaranteed: an unassigned object that a ring wants is assigned as soon as the watch shows it and its namespace
is known, in either order, without the webhook; a watch that fails, or ends immediately, is restarted with
back-off, like an informer's; moves of one ring that hang do not delay the shared watch of others. Not guaranteed:
anything without permission to watch; then the ring relies on periodic scans and reports that in a condition.
RBAC: list, watch on every main and controlled resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from kubeshard.client.client import Client
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import ApiError, Forbidden, NotFound
from kubeshard.core.kinds import GroupResource, Kind, TypeMeta
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import Form, Key, ObjectMeta, PartialObject, metadata_only
from kubeshard.core.selectors import Selector
from kubeshard.listwatch.machine import ONCE_A_MINUTE, Listed
from kubeshard.listwatch.reflector import Interrupted, Reflector, Sink, Source
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.rng import Rng
from kubeshard.sharder.bounded_tasks import BoundedTaskGroup, StartLimit
from kubeshard.sharder.kinds import ResourceKinds
from kubeshard.sharder.moves import Job, Mover
from kubeshard.sharder.permissions import Permissions
from kubeshard.sharder.resource_sync import AnyOwner, ResourceSync
from kubeshard.sharder.ring import Ring
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.schedule import ScanPriority, ScanScope
from kubeshard.sharder.supervised import supervised, tell_crash
from kubeshard.sharder.waiting import SkippedNamespaces
from kubeshard.sharding.names import shard_label
from kubeshard.sharding.planner import NOT_SELECTED, Action, plan

APART = 8
"""Rings that each watch the same resource on their own; more share a watch."""
TOGETHER = 0.2
"""Seconds for which new namespaces are collected before they are scanned."""
NAMESPACES_AT_ONCE = 10
"""If more have appeared together, one list of all namespaces is cheaper."""
AT_ONCE, PATIENCE = 5, 0.5
"""Rings that scan new namespaces at the same time; see `StartLimit`."""
SYNCS_A_TURN = 100
"""Rings that one event, or several events together, may concern before other tasks get their turn."""
REMEMBERED = 100_000
"""The total of rings per namespace that are remembered for a shared watch."""

_log = get_logger("kubeshard.sharder")


class UnassignedWatches:
    """Watches for one sync, or for all syncs of a resource, as long as these are open."""

    def __init__(
        self,
        client: Client,
        kinds: ResourceKinds,
        mover: Mover,
        permissions: Permissions,
        rings: Rings,
        *,
        concurrent_moves: int,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._client = client
        self._kinds = kinds
        self._mover = mover
        self._permissions = permissions
        self._rings = rings
        self._concurrent_moves = concurrent_moves
        self._clock = clock
        self._rng = rng
        self._resources: dict[GroupResource, _Resource] = {}
        self._scanning = StartLimit(AT_ONCE, PATIENCE)

    async def keep_watching(self, sync: ResourceSync) -> None:
        """Watches until cancelled."""
        resource = self._resources.setdefault(sync.entry.resource, _Resource(sync.entry.resource))
        resource.join(sync)
        try:
            await asyncio.sleep(0)  # the others that start now join too
            while True:
                named = bool(sync.ring.named)
                if not resource.crowded:
                    async with _until_told(resource.apart):
                        await self._keep_apart(sync)
                    self._missed(sync)
                elif named and not await self._permissions.everywhere(sync, "watch"):
                    await self._keep_apart(sync)
                else:
                    async with _until_told(resource.refused if named else []):
                        await self._share(resource, sync)
                    self._missed(sync)
        finally:
            resource.leave(sync)
            if not resource.syncs:
                self._resources.pop(sync.entry.resource, None)

    async def _keep_apart(self, sync: ResourceSync) -> None:
        """Keeps the sync's own watches until cancelled: one for each namespace that the ring names, or one for all."""
        watching: dict[str | AllNamespaces, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                places: Iterable[str | AllNamespaces] = (ALL,)
                if sync.ring.named and (await self._kinds.eventually(sync.entry.resource)).namespaced:
                    places = sync.ring.named_and_selected()
                for place in watching.keys() - places:
                    watching.pop(place).cancel()
                for place in places:
                    if place not in watching:
                        watch = _Watch(sync.entry.resource, {sync: None}, _unassigned(sync), place)
                        watching[place] = group.create_task(self._keep(watch), name=f"watch of {sync}")
                await sync.changed()

    async def _share(self, resource: _Resource, sync: ResourceSync) -> None:
        """Takes part in the shared watch until cancelled."""
        resource.share(sync)
        try:
            if resource.shared is None:
                resource.shared = asyncio.create_task(
                    self._keep_shared(resource), name=f"watch of {sync.entry.resource}"
                )
            await asyncio.wait([resource.shared])
            resource.shared.result()
        finally:
            resource.unshare(sync)
            if not resource.watch.syncs and (shared := resource.shared) is not None:
                resource.shared = None
                shared.cancel()
                await asyncio.wait([shared])

    async def _keep_shared(self, resource: _Resource) -> None:
        await supervised(
            partial(self._keep, resource.watch, resource.refuse),
            "watch",
            crashed=partial(self._rings.inputs.metrics.crashed, "watch"),
            clock=self._clock,
            resource=resource.watch.resource,
        )

    async def _keep(self, watch: _Watch, refused: Callable[[], None] = lambda: None) -> None:
        """Watches until cancelled. `refused` is called if that is not allowed."""

        async def form() -> Form[PartialObject]:
            watch.kind = await self._kinds.kind(watch.resource)
            return metadata_only(watch.kind)

        async with BoundedTaskGroup(self._concurrent_moves) as tasks:
            sink = _Received(self, watch, tasks, refused)
            source = Source(self._client, form, watch.place, labels=watch.selector)
            await Reflector(
                source, sink, clock=self._clock, rng=self._rng, forbidden=ONCE_A_MINUTE, log=watch.log_of
            ).run()

    def _begin(self, watch: _Watch) -> bool:
        """Before a watch: deals with what may have been missed. Returns whether all objects have to be listed."""
        watch.late = [sync for sync in watch.syncs if not self._will_be_read(sync)]
        watch.listing = True
        return len(watch.late) > APART

    def _begun(self, watch: _Watch) -> None:
        """It is known where to watch from."""
        watch.listing = False
        if len(watch.late) <= APART:
            for sync in watch.late:
                sync.request(ScanScope.MISPLACED, self._clock.monotonic())

    def _opened(self, watch: _Watch) -> None:
        if watch.place is ALL:  # what is missing elsewhere is asked for
            for sync in tuple(watch.syncs):
                self._permissions.granted(sync, "watch")

    async def _failed(self, watch: _Watch, error: ApiError, refused: Callable[[], None]) -> None:
        if isinstance(error, Forbidden):
            await self._forbidden(watch, error)
            refused()
            return
        if isinstance(error, NotFound):
            self._kinds.forget(watch.resource)
        _log.debug("Watch of unassigned objects failed", **watch.log_of, error=error)

    async def _forbidden(self, watch: _Watch, error: Forbidden) -> None:
        told = False
        for sync in tuple(watch.syncs):
            await self._permissions.refused(sync, "watch")
            told |= sync.of.to_log(watch.resource, "watch", error) is not None
        (_log.warning if told else _log.debug)("Cannot watch unassigned objects", **watch.log_of, error=error)

    def namespace_appeared(self, namespace: str) -> None:
        """A namespace has become known: looks for objects in it that were skipped."""
        for resource in self._resources.values():
            skipped = resource.skipped_namespaces.take(namespace)
            for sync in self._perhaps_selecting(resource.name, resource.syncs, namespace):
                view = sync.ring.view if skipped or sync.narrow else None
                if view is not None and view.selects(namespace):
                    self.scan_namespace(sync, namespace)

    def scan_namespace(self, sync: ResourceSync, namespace: str) -> None:
        """The ring now selects this namespace."""
        sync.appeared.add(namespace)
        if not sync.scanning_namespaces:
            sync.scanning_namespaces = True
            sync.start(partial(self._scan, sync), "scan new namespaces")

    def _missed(self, sync: ResourceSync) -> None:
        if not self._will_be_read(sync):
            sync.request(ScanScope.MISPLACED, self._clock.monotonic())

    def _will_be_read(self, sync: ResourceSync) -> bool:
        """Whether a scan of all objects of a main resource is about to start. Those of controlled ones may have to wait
        for their owners'.
        """
        due = sync.schedule.due(ScanPriority.NORMAL, self._clock.monotonic())
        return (
            sync.entry.main
            and due is not None
            and due.scope is ScanScope.ALL
            and ScanPriority.NORMAL not in sync.began
        )

    async def _dispatch(self, watch: _Watch, meta: ObjectMeta, tasks: BoundedTaskGroup) -> None:
        """Considers an object for every sync of the watch."""
        kind, heard = watch.kind, not watch.listing  # heard: it has just changed
        assert kind is not None
        if watch.selector is not None:
            for sync in watch.syncs:
                if not (heard and self._is_left(sync, kind, meta)):
                    await self._consider(sync, kind, meta, tasks)
            return
        for sync in self._selecting(watch, meta.namespace):
            watch.worked += 1
            if watch.worked >= SYNCS_A_TURN:
                watch.worked = 0
                await asyncio.sleep(0)
            if not sync.open:
                continue
            if heard and self._is_left(sync, kind, meta):
                continue
            if tasks.full or self._will_be_read(sync):
                # Its scans have task groups of their own. The watch must not wait for the moves of one ring.
                if sync.ring.view is not None and not meta.label(shard_label(sync.ring.name)):
                    self._missed(sync)
            else:
                try:
                    await self._consider(sync, kind, meta, tasks)
                except Exception as error:  # of this ring; the others depend on the watch too
                    self._crashed(sync, error)

    def _crashed(self, sync: ResourceSync, error: Exception) -> None:
        ring, resource = sync.ring, sync.entry.resource
        ring.metrics.crashed(resource, "watch")
        if sync.of.to_log(resource, "watch", error) is not None:
            tell_crash(error, "watch", ring=ring.name, resource=resource)
        self._missed(sync)

    def _selecting(self, watch: _Watch, namespace: str) -> Sequence[ResourceSync]:
        """The syncs whose ring selects the namespace."""
        if watch.selections != self._rings.selections or watch.remembered > REMEMBERED:
            watch.forget(self._rings.selections)
        labels = self._labels_of(namespace)
        if namespace and labels is None:
            for sync in watch.syncs:
                sync.skipped_namespaces.add(namespace)
                break  # all syncs have the same
            return ()
        known = watch.by_namespace.get(namespace)
        if known is None or known[0] != labels:
            syncs = self._perhaps_selecting(watch.resource, watch.syncs, namespace)
            views = ((sync, sync.ring.view) for sync in syncs)
            selecting = tuple(sync for sync, view in views if view is not None and view.selects(namespace))
            watch.worked += len(syncs) // 10
            known = watch.remember(namespace, labels, selecting)
        return known[1]

    def _labels_of(self, namespace: str) -> Mapping[str, str] | None:
        """Those of a known namespace; None for another one, and for ""."""
        known = self._rings.inputs.namespace(namespace) if namespace else None
        return None if known is None else known.metadata.labels or {}

    def _perhaps_selecting(
        self, resource: GroupResource, syncs: Container[ResourceSync], namespace: str
    ) -> Sequence[ResourceSync]:
        """Those of the syncs whose ring may select the namespace."""
        rings = self._rings.perhaps_selecting(self._labels_of(namespace)) if namespace else self._rings
        by_ring = self._resources[resource].by_ring
        found = (by_ring.get(ring) for ring in rings)
        return [sync for sync in found if sync is not None and sync in syncs]

    def _is_left(self, sync: ResourceSync, kind: Kind, meta: ObjectMeta) -> bool:
        """Whether the object's shard may still want it back: then it waits (`DelayedAssignments`)."""
        key = Key(meta.namespace, meta.name)
        job = self._job(sync, kind, meta) if sync.entry.main else None
        if job is None or not sync.delayed.waits(key, meta):
            sync.delayed.drop(key)
            return False
        sync.delayed.put(key, job)
        if not sync.delayed.attended:
            sync.delayed.attended = True
            sync.start(partial(self._assign_left, sync), "assignment of what was left")
        return True

    async def _assign_left(self, sync: ResourceSync) -> None:
        """Until cancelled."""
        async with BoundedTaskGroup(self._concurrent_moves) as tasks:
            while True:
                await tasks.start(self._mover.carry_out(await sync.delayed.next_due()))

    async def _consider(
        self, sync: ResourceSync, kind: Kind, meta: ObjectMeta, tasks: BoundedTaskGroup
    ) -> None:
        if (job := self._job(sync, kind, meta)) is not None:
            await tasks.start(self._mover.carry_out(job))

    def _job(self, sync: ResourceSync, kind: Kind, meta: ObjectMeta) -> Job | None:
        ring, entry = sync.ring, sync.entry
        view = ring.view
        if view is None:
            return None
        decision = plan(view, entry, TypeMeta(kind.api_version, kind.kind), meta)
        if decision.reason == NOT_SELECTED and not ring.knows_namespace(meta.namespace):
            sync.skipped_namespaces.add(meta.namespace)
        if decision.action is not Action.ASSIGN:
            return None
        return Job(sync.of, entry, kind, meta, decision, AnyOwner())

    async def _scan(self, sync: ResourceSync) -> None:
        """Scans the namespaces that have appeared, and those that appear meanwhile, until none is left."""
        await asyncio.sleep(TOGETHER)
        while sync.appeared:
            namespaces, sync.appeared = sync.appeared, set()
            try:
                kind = await self._kinds.kind(sync.entry.resource)
                if kind.namespaced:
                    some: Iterable[str | AllNamespaces] = sorted(namespaces)
                    for namespace in some if len(namespaces) <= NAMESPACES_AT_ONCE else [ALL]:
                        async with self._scanning.slot():
                            await self._scan_namespace(sync, kind, namespace)
            except Exception as error:
                self._missed(sync)
                if not isinstance(error, ApiError):
                    raise
                _log.debug(
                    "Cannot scan new namespaces",
                    ring=sync.ring.name,
                    resource=sync.entry.resource,
                    error=error,
                )
            await asyncio.sleep(TOGETHER)
        sync.scanning_namespaces = False

    async def _scan_namespace(self, sync: ResourceSync, kind: Kind, namespace: str | AllNamespaces) -> None:
        objects = self._client.list(
            metadata_only(kind),
            namespace,
            label_selector=_unassigned(sync),
            on_restart=lambda: None,  # deciding twice on an object is harmless
        )
        async with BoundedTaskGroup(self._concurrent_moves) as tasks:
            async for obj in objects:
                await self._consider(sync, kind, obj.metadata, tasks)


class _Watch:
    """One watch, and whom it is for. `selector`: None if it is for several syncs."""

    def __init__(
        self,
        resource: GroupResource,
        syncs: Mapping[ResourceSync, None],
        selector: Selector | None,
        place: str | AllNamespaces = ALL,
    ) -> None:
        self.resource = resource
        self.syncs = syncs
        self.selector = selector
        self.place = place
        self.kind: Kind | None = None
        """The resource's, as of the last request."""
        self.late: Sequence[ResourceSync] = ()
        """For which nothing else reads what the watch may have missed."""
        self.listing = False
        """Whether what is received existed before, as opposed to having changed."""
        self.worked = 0
        """How many syncs were considered since other tasks had their turn."""
        self.by_namespace: dict[str, tuple[Mapping[str, str] | None, Sequence[ResourceSync]]] = {}
        """The syncs whose ring selects a namespace with these labels, for a shared watch."""
        self.remembered = 0
        """The number of these syncs, in total."""
        self.selections = -1
        """The value of `Rings.selections` that this is based on."""

    @property
    def log_of(self) -> dict[str, object]:
        if self.selector is None:
            return {"rings": len(self.syncs), "resource": self.resource}
        where = {} if self.place is ALL else {"namespace": self.place}
        return {"ring": next(iter(self.syncs)).ring.name, "resource": self.resource, **where}

    def forget(self, selections: int = -1) -> None:
        self.by_namespace.clear()
        self.remembered, self.selections = 0, selections

    def remember(
        self, namespace: str, labels: Mapping[str, str] | None, syncs: Sequence[ResourceSync]
    ) -> tuple[Mapping[str, str] | None, Sequence[ResourceSync]]:
        self.by_namespace[namespace] = known = labels, syncs
        self.remembered += len(syncs) + 1
        return known


class _Received(Sink[PartialObject]):
    """Passes on what a watch shows."""

    def __init__(
        self, watches: UnassignedWatches, watch: _Watch, tasks: BoundedTaskGroup, refused: Callable[[], None]
    ) -> None:
        self._watches = watches
        self._watch = watch
        self._tasks = tasks
        self._refused = refused

    def begin(self) -> bool:
        return self._watches._begin(self._watch)

    def listed(self, listed: Listed, /) -> None:
        self._watches._begun(self._watch)

    def opened(self) -> None:
        self._watches._opened(self._watch)

    async def put(self, entry: PartialObject | UndecodableObject, /) -> None:
        if not isinstance(entry, UndecodableObject):
            await self._watches._dispatch(self._watch, entry.metadata, self._tasks)

    def drop(self, entry: PartialObject | UndecodableObject, /) -> None:
        if self._watch.selector is not None and entry.key is not None:
            for sync in self._watch.syncs:
                sync.delayed.drop(entry.key)

    async def interrupted(self, interruption: Interrupted, /, *, again: bool) -> None:
        await self._watches._failed(self._watch, interruption.error, self._refused)


class _Resource:
    """The syncs of one resource, and how they watch."""

    def __init__(self, resource: GroupResource) -> None:
        self.name = resource
        self.syncs: dict[ResourceSync, None] = {}
        self.by_ring: dict[Ring, ResourceSync] = {}
        self.skipped_namespaces = SkippedNamespaces()
        self.crowded = False
        """Whether there have been too many syncs for a watch each. Remains true."""
        self.shared: asyncio.Task[None] | None = None
        """Keeps the shared watch. Not a task of one sync, because its moves are those of all."""
        self.apart: list[asyncio.Timeout] = []
        """To be told when there are too many."""
        self.refused: list[asyncio.Timeout] = []
        """To be told when the shared watch is not allowed."""
        self._sharing: dict[ResourceSync, None] = {}
        self.watch = _Watch(resource, self._sharing, None)

    def join(self, sync: ResourceSync) -> None:
        sync.skipped_namespaces = self.skipped_namespaces
        self.syncs[sync] = None
        self.by_ring[sync.ring] = sync
        if not self.crowded and sum(len(each.ring.named) or 1 for each in self.syncs) > APART:
            self.crowded = True
            _tell(self.apart)

    def leave(self, sync: ResourceSync) -> None:
        del self.syncs[sync]
        if self.by_ring[sync.ring] is sync:  # else another one has begun already
            del self.by_ring[sync.ring]

    def share(self, sync: ResourceSync) -> None:
        self._sharing[sync] = None
        self.watch.forget()

    def unshare(self, sync: ResourceSync) -> None:
        del self._sharing[sync]
        self.watch.forget()

    def refuse(self) -> None:
        """The shared watch is not allowed."""
        _tell(self.refused)


@asynccontextmanager
async def _until_told(listeners: list[asyncio.Timeout]) -> AsyncIterator[None]:
    """Cancels the block when these listeners are told, and goes on after it."""
    try:
        async with asyncio.timeout(None) as limit:
            listeners.append(limit)
            try:
                yield
            finally:
                listeners.remove(limit)
    except TimeoutError:
        if not limit.expired():
            raise


def _tell(listeners: Iterable[asyncio.Timeout]) -> None:
    for each in listeners:
        each.reschedule(asyncio.get_running_loop().time())


def _unassigned(sync: ResourceSync) -> Selector:
    return Selector.absent(shard_label(sync.ring.name))
