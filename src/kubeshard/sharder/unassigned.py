"""The watch on unassigned objects: assigns objects that the webhook and looks missed when they appear.

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

When a watch restarts after a gap, a watch of one ring requests a look at the objects without an available shard
instead of listing them itself; a shared one lists the resource once for all rings. Objects in a namespace that is not
known yet are read again, by a list of that namespace's unassigned objects, as soon as the namespace appears.

Guaranteed: an unassigned object that a ring wants is assigned as soon as the watch shows it and its namespace
is known, in either order, without the webhook; a watch that fails, or ends immediately, is restarted with
back-off, like an informer's; moves of one ring that hang do not delay the shared watch of others. Not guaranteed:
anything without permission to watch; then the ring relies on periodic looks and reports that in a condition.
RBAC: list, watch on every main and controlled resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from kubeshard.cache.backoff import Backoff, BackoffPolicy
from kubeshard.client.client import Client
from kubeshard.client.watching import Bookmark, Changed
from kubeshard.core.errors import ApiError, Forbidden, NotFound
from kubeshard.core.kinds import GroupResource, Kind, TypeMeta
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import Key, ObjectMeta, metadata_only
from kubeshard.core.selectors import Selector
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.rng import Rng
from kubeshard.sharder.crew import Crew, Places
from kubeshard.sharder.kinds import ResourceKinds
from kubeshard.sharder.moves import Job, Mover
from kubeshard.sharder.owners import UnknownOwners
from kubeshard.sharder.permissions import Permissions
from kubeshard.sharder.ring import Lane
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.schedule import Reach, Track
from kubeshard.sharder.supervised import supervised, tell_crash
from kubeshard.sharder.waiting import Namespaces
from kubeshard.sharding.names import shard_label
from kubeshard.sharding.planner import NOT_SELECTED, Action, plan

APART = 8
"""Rings that each watch the same resource on their own; more share a watch."""
SHORT_WATCH = 1.0
"""Seconds: a watch that ends sooner, without any event, counts as failed."""
FORBIDDEN_PAUSE = 60.0
LONGEST_RETRY_AFTER = 60.0
TOGETHER = 0.2
"""Seconds for which new namespaces are collected before they are looked at."""
NAMESPACES_AT_ONCE = 10
"""If more have appeared together, one list of all namespaces is cheaper."""
AT_ONCE, PATIENCE = 5, 0.5
"""Rings that look at new namespaces at the same time; see `Places`."""
LANES_A_TURN = 100
"""Rings that one event, or several events together, may concern before other tasks get their turn."""
REMEMBERED = 100_000
"""The total of rings per namespace that are remembered for a shared watch."""

_log = get_logger("kubeshard.sharder")


class UnassignedWatches:
    """Watches for one lane, or for all lanes of a resource, as long as these are open."""

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
        self._looking = Places(AT_ONCE, PATIENCE)

    async def keep_watching(self, lane: Lane) -> None:
        """Watches until cancelled."""
        resource = self._resources.setdefault(lane.entry.resource, _Resource(lane.entry.resource))
        resource.join(lane)
        try:
            await asyncio.sleep(0)  # the others that start now join too
            while True:
                named = bool(lane.ring.named)
                if not resource.crowded:
                    async with _until_told(resource.apart):
                        await self._keep_apart(lane)
                    self._missed(lane)
                elif named and not await self._permissions.everywhere(lane, "watch"):
                    await self._keep_apart(lane)
                else:
                    async with _until_told(resource.refused if named else []):
                        await self._share(resource, lane)
                    self._missed(lane)
        finally:
            resource.leave(lane)
            if not resource.lanes:
                self._resources.pop(lane.entry.resource, None)

    async def _keep_apart(self, lane: Lane) -> None:
        """Keeps the lane's own watches until cancelled: one for each namespace that the ring names, or one for all."""
        watching: dict[str | AllNamespaces, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                places: Iterable[str | AllNamespaces] = (ALL,)
                if lane.ring.named and (await self._kinds.eventually(lane.entry.resource)).namespaced:
                    places = lane.ring.named_and_selected()
                for place in watching.keys() - places:
                    watching.pop(place).cancel()
                for place in places:
                    if place not in watching:
                        watch = _Watch(lane.entry.resource, {lane: None}, _unassigned(lane), place)
                        watching[place] = group.create_task(self._keep(watch), name=f"watch of {lane}")
                await lane.news()

    async def _share(self, resource: _Resource, lane: Lane) -> None:
        """Takes part in the shared watch until cancelled."""
        resource.share(lane)
        try:
            if resource.shared is None:
                resource.shared = asyncio.create_task(
                    self._keep_shared(resource), name=f"watch of {lane.entry.resource}"
                )
            await asyncio.wait([resource.shared])
            resource.shared.result()
        finally:
            resource.unshare(lane)
            if not resource.watch.lanes and (shared := resource.shared) is not None:
                resource.shared = None
                shared.cancel()
                await asyncio.wait([shared])

    async def _keep_shared(self, resource: _Resource) -> None:
        await supervised(
            partial(self._keep, resource.watch, resource.refuse),
            "watch",
            crashed=partial(self._rings.surroundings.metrics.crashed, "watch"),
            clock=self._clock,
            resource=resource.watch.resource,
        )

    async def _keep(self, watch: _Watch, refused: Callable[[], None] = lambda: None) -> None:
        """Watches until cancelled. `refused` is called if that is not allowed."""
        version, backoff = "", Backoff(BackoffPolicy(), self._rng)
        while True:
            pause = 0.0
            try:
                kind = await self._kinds.kind(watch.resource)
                if not version:
                    version = await self._begin(watch, kind)
                opened = self._clock.monotonic()
                last = await self._watch(watch, kind, version)
                if watch.place is ALL:  # what is missing elsewhere is asked for
                    for lane in tuple(watch.lanes):
                        self._permissions.granted(lane, "watch")
                if last or self._clock.monotonic() - opened >= SHORT_WATCH:
                    version = last or version
                    continue
                _log.debug("Watch of unassigned objects ended immediately", **watch.log_of)
            except Forbidden as error:
                await self._forbidden(watch, error)
                refused()
                pause = FORBIDDEN_PAUSE
            except ApiError as error:
                if isinstance(error, NotFound):
                    self._kinds.forget(watch.resource)
                _log.debug("Watch of unassigned objects failed", **watch.log_of, error=error)
                pause = min(error.retry_after or 0.0, LONGEST_RETRY_AFTER)
            version = ""
            await asyncio.sleep(max(pause, backoff.failed(self._clock.monotonic())))

    async def _forbidden(self, watch: _Watch, error: Forbidden) -> None:
        told = False
        for lane in tuple(watch.lanes):
            await self._permissions.refused(lane, "watch")
            told |= lane.ring.refusals.line(watch.resource, "watch", error) is not None
        (_log.warning if told else _log.debug)("Cannot watch unassigned objects", **watch.log_of, error=error)

    def namespace_appeared(self, namespace: str) -> None:
        """A namespace has become known: looks for objects in it that were skipped."""
        for resource in self._resources.values():
            skipped = resource.passed_over.take(namespace)
            for lane in self._perhaps_selecting(resource.name, resource.lanes, namespace):
                view = lane.ring.view if skipped or lane.narrow else None
                if view is not None and view.selects(namespace):
                    self.look_for(lane, namespace)

    def look_for(self, lane: Lane, namespace: str) -> None:
        """The ring now selects this namespace."""
        lane.appeared.add(namespace)
        if not lane.looking_for:
            lane.looking_for = True
            lane.start(partial(self._look, lane), "look at new namespaces")

    def _missed(self, lane: Lane) -> None:
        if not self._will_be_read(lane):
            lane.request(Reach.MISPLACED, self._clock.monotonic())

    def _will_be_read(self, lane: Lane) -> bool:
        """Whether a look at all objects of a main resource is about to start. Those of controlled ones may have to wait
        for their owners'.
        """
        due = lane.schedule.due(Track.THOROUGH, self._clock.monotonic())
        return (
            lane.entry.main
            and due is not None
            and due.reach is Reach.ALL
            and Track.THOROUGH not in lane.began
        )

    async def _begin(self, watch: _Watch, kind: Kind) -> str:
        """Where to watch from. Deals with what may have been missed before."""
        late = [lane for lane in watch.lanes if not self._will_be_read(lane)]
        if len(late) > APART:
            stream = self._client.list(metadata_only(kind), ALL, on_restart=lambda: None)
            async with Crew(self._concurrent_moves) as crew:
                async for obj in stream:
                    await self._dispatch(watch, kind, obj.metadata, crew)
        else:
            # The version of a list that is empty because its selector contradicts itself.
            label = shard_label(next(iter(watch.lanes)).ring.name)
            nothing = Selector.exists(label) & Selector.absent(label)
            stream = self._client.list(metadata_only(kind), watch.place, label_selector=nothing)
            async for _ in stream:
                pass
            for lane in late:
                lane.request(Reach.MISPLACED, self._clock.monotonic())
        return stream.resource_version

    async def _watch(self, watch: _Watch, kind: Kind, version: str) -> str:
        """One watch, until it ends; returns the resourceVersion to continue from, "" without any event. Raises
        ApiError.
        """
        last = ""
        async with (
            Crew(self._concurrent_moves) as crew,
            self._client.watch(
                metadata_only(kind), watch.place, label_selector=watch.selector, resource_version=version
            ) as events,
        ):
            async for event in events:
                match event:
                    case Bookmark(version):
                        last = version
                    case Changed(change, obj):
                        last = obj.metadata.resource_version
                        if change != "DELETED":
                            await self._dispatch(watch, kind, obj.metadata, crew, heard=True)
                        elif watch.selector is not None:
                            for lane in watch.lanes:
                                lane.left.drop(obj.key)
        return last

    async def _dispatch(
        self, watch: _Watch, kind: Kind, meta: ObjectMeta, crew: Crew, *, heard: bool = False
    ) -> None:
        """Considers an object for every lane of the watch. `heard`: it has just changed."""
        if watch.selector is not None:
            for lane in watch.lanes:
                if not (heard and self._is_left(lane, kind, meta)):
                    await self._consider(lane, kind, meta, crew)
            return
        for lane in self._selecting(watch, meta.namespace):
            watch.worked += 1
            if watch.worked >= LANES_A_TURN:
                watch.worked = 0
                await asyncio.sleep(0)
            if not lane.open:
                continue
            if heard and self._is_left(lane, kind, meta):
                continue
            if crew.full or self._will_be_read(lane):
                # Its looks have crews of their own. The watch must not wait for the moves of one ring.
                if lane.ring.view is not None and not meta.label(shard_label(lane.ring.name)):
                    self._missed(lane)
            else:
                try:
                    await self._consider(lane, kind, meta, crew)
                except Exception as error:  # of this ring; the others depend on the watch too
                    self._crashed(lane, error)

    def _crashed(self, lane: Lane, error: Exception) -> None:
        ring, resource = lane.ring, lane.entry.resource
        ring.metrics.crashed(resource, "watch")
        if ring.refusals.line(resource, "watch", error) is not None:
            tell_crash(error, "watch", ring=ring.name, resource=resource)
        self._missed(lane)

    def _selecting(self, watch: _Watch, namespace: str) -> Sequence[Lane]:
        """The lanes whose ring selects the namespace."""
        if watch.selections != self._rings.selections or watch.remembered > REMEMBERED:
            watch.forget(self._rings.selections)
        labels = self._labels_of(namespace)
        if namespace and labels is None:
            for lane in watch.lanes:
                lane.passed_over.add(namespace)
                break  # all lanes have the same
            return ()
        known = watch.by_namespace.get(namespace)
        if known is None or known[0] != labels:
            lanes = self._perhaps_selecting(watch.resource, watch.lanes, namespace)
            views = ((lane, lane.ring.view) for lane in lanes)
            selecting = tuple(lane for lane, view in views if view is not None and view.selects(namespace))
            watch.worked += len(lanes) // 10
            known = watch.remember(namespace, labels, selecting)
        return known[1]

    def _labels_of(self, namespace: str) -> Mapping[str, str] | None:
        """Those of a known namespace; None for another one, and for ""."""
        known = self._rings.surroundings.namespace(namespace) if namespace else None
        return None if known is None else known.metadata.labels or {}

    def _perhaps_selecting(
        self, resource: GroupResource, lanes: Container[Lane], namespace: str
    ) -> Sequence[Lane]:
        """Those of the lanes whose ring may select the namespace."""
        rings = self._rings.perhaps_selecting(self._labels_of(namespace)) if namespace else self._rings
        found = (ring.lanes.get(resource) for ring in rings)
        return [lane for lane in found if lane is not None and lane in lanes]

    def _is_left(self, lane: Lane, kind: Kind, meta: ObjectMeta) -> bool:
        """Whether the object's shard may still want it back: then it is assigned a moment later (`left`)."""
        key = Key(meta.namespace, meta.name)
        job = self._job(lane, kind, meta) if lane.entry.main else None
        if job is None or not lane.left.waits(key, meta):
            lane.left.drop(key)
            return False
        lane.left.put(key, job)
        if not lane.left.attended:
            lane.left.attended = True
            lane.start(partial(self._assign_left, lane), "assignment of what was left")
        return True

    async def _assign_left(self, lane: Lane) -> None:
        """Until cancelled."""
        async with Crew(self._concurrent_moves) as crew:
            while True:
                await crew.start(self._mover.carry_out(await lane.left.next_due()))

    async def _consider(self, lane: Lane, kind: Kind, meta: ObjectMeta, crew: Crew) -> None:
        if (job := self._job(lane, kind, meta)) is not None:
            await crew.start(self._mover.carry_out(job))

    def _job(self, lane: Lane, kind: Kind, meta: ObjectMeta) -> Job | None:
        ring, entry = lane.ring, lane.entry
        view = ring.view
        if view is None:
            return None
        decision = plan(view, entry, TypeMeta(kind.api_version, kind.kind), meta)
        if decision.reason == NOT_SELECTED and not ring.knows_namespace(meta.namespace):
            lane.passed_over.add(meta.namespace)
        if decision.action is not Action.ASSIGN:
            return None
        return Job(ring, entry, kind, meta, decision, UnknownOwners())

    async def _look(self, lane: Lane) -> None:
        """Looks at the namespaces that have appeared, and at those that appear meanwhile, until none is left."""
        await asyncio.sleep(TOGETHER)
        while lane.appeared:
            namespaces, lane.appeared = lane.appeared, set()
            try:
                kind = await self._kinds.kind(lane.entry.resource)
                if kind.namespaced:
                    some: Iterable[str | AllNamespaces] = sorted(namespaces)
                    for namespace in some if len(namespaces) <= NAMESPACES_AT_ONCE else [ALL]:
                        async with self._looking.taken():
                            await self._look_at(lane, kind, namespace)
            except Exception as error:
                self._missed(lane)
                if not isinstance(error, ApiError):
                    raise
                _log.debug(
                    "Cannot look at new namespaces",
                    ring=lane.ring.name,
                    resource=lane.entry.resource,
                    error=error,
                )
            await asyncio.sleep(TOGETHER)
        lane.looking_for = False

    async def _look_at(self, lane: Lane, kind: Kind, namespace: str | AllNamespaces) -> None:
        objects = self._client.list(
            metadata_only(kind),
            namespace,
            label_selector=_unassigned(lane),
            on_restart=lambda: None,  # deciding twice on an object is harmless
        )
        async with Crew(self._concurrent_moves) as crew:
            async for obj in objects:
                await self._consider(lane, kind, obj.metadata, crew)


class _Watch:
    """One watch, and whom it is for. `selector`: None if it is for several lanes."""

    def __init__(
        self,
        resource: GroupResource,
        lanes: Mapping[Lane, None],
        selector: Selector | None,
        place: str | AllNamespaces = ALL,
    ) -> None:
        self.resource = resource
        self.lanes = lanes
        self.selector = selector
        self.place = place
        self.worked = 0
        """How many lanes were considered since other tasks had their turn."""
        self.by_namespace: dict[str, tuple[Mapping[str, str] | None, Sequence[Lane]]] = {}
        """The lanes whose ring selects a namespace with these labels, for a shared watch."""
        self.remembered = 0
        """The number of these lanes, in total."""
        self.selections = -1
        """The value of `Rings.selections` that this is based on."""

    @property
    def log_of(self) -> dict[str, object]:
        if self.selector is None:
            return {"rings": len(self.lanes), "resource": self.resource}
        where = {} if self.place is ALL else {"namespace": self.place}
        return {"ring": next(iter(self.lanes)).ring.name, "resource": self.resource, **where}

    def forget(self, selections: int = -1) -> None:
        self.by_namespace.clear()
        self.remembered, self.selections = 0, selections

    def remember(
        self, namespace: str, labels: Mapping[str, str] | None, lanes: Sequence[Lane]
    ) -> tuple[Mapping[str, str] | None, Sequence[Lane]]:
        self.by_namespace[namespace] = known = labels, lanes
        self.remembered += len(lanes) + 1
        return known


class _Resource:
    """The lanes of one resource, and how they watch."""

    def __init__(self, resource: GroupResource) -> None:
        self.name = resource
        self.lanes: dict[Lane, None] = {}
        self.passed_over = Namespaces()
        self.crowded = False
        """Whether there have been too many lanes for a watch each. Remains true."""
        self.shared: asyncio.Task[None] | None = None
        """Keeps the shared watch. Not a task of one lane, because its moves are those of all."""
        self.apart: list[asyncio.Timeout] = []
        """To be told when there are too many."""
        self.refused: list[asyncio.Timeout] = []
        """To be told when the shared watch is not allowed."""
        self._sharing: dict[Lane, None] = {}
        self.watch = _Watch(resource, self._sharing, None)

    def join(self, lane: Lane) -> None:
        lane.passed_over = self.passed_over
        self.lanes[lane] = None
        if not self.crowded and sum(len(each.ring.named) or 1 for each in self.lanes) > APART:
            self.crowded = True
            _tell(self.apart)

    def leave(self, lane: Lane) -> None:
        del self.lanes[lane]

    def share(self, lane: Lane) -> None:
        self._sharing[lane] = None
        self.watch.forget()

    def unshare(self, lane: Lane) -> None:
        del self._sharing[lane]
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


def _unassigned(lane: Lane) -> Selector:
    return Selector.absent(shard_label(lane.ring.name))
