"""The watch on unassigned objects (reliability F9): what webhook and resync missed is assigned as it
appears.

One metadata watch per ring and resource, with the selector "has no shard label": its cost follows the rate
of misses, not the number of objects. It stores nothing: events go straight to the planner and the mover.
When a watch opens anew after a gap, it asks for a pass over the objects without an available shard instead
of reading them itself. An object whose namespace is not known yet is looked for again, by a list of that
namespace's unassigned objects, as soon as the namespace appears.

Guaranteed: an unassigned object that a ring wants is assigned as soon as the watch shows it and its namespace
is known, whichever comes first, without the webhook; a watch that fails, or ends at once, is opened again as an
informer's is, after growing pauses. Not guaranteed: anything where the right to watch is missing; then the ring
is left to periodic passes and says so in a condition. RBAC: list, watch on every main and controlled resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from kubeshard.cache.backoff import Backoff, BackoffPolicy
from kubeshard.client.client import Client
from kubeshard.client.watching import Bookmark, Changed
from kubeshard.core.errors import ApiError, Forbidden, NotFound
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import ObjectMeta, metadata_only
from kubeshard.core.selectors import Selector
from kubeshard.runtime.clock import SYSTEM_CLOCK, Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.rng import SYSTEM_RNG, Rng
from kubeshard.sharder.crew import Crew
from kubeshard.sharder.kinds import ResourceKinds
from kubeshard.sharder.moves import Job, Mover
from kubeshard.sharder.owners import UnknownOwners
from kubeshard.sharder.permissions import Permissions
from kubeshard.sharder.unknown_namespaces import Place, UnknownNamespaces
from kubeshard.sharder.views import RingViews
from kubeshard.sharding.classification import RingEntry
from kubeshard.sharding.names import shard_label
from kubeshard.sharding.planner import NOT_SELECTED, Action, TypeMeta, plan

SHORT_WATCH = 1.0
"""Seconds: a watch that ends sooner, without having said anything, counts as failed."""
FORBIDDEN_PAUSE = 60.0
LONGEST_RETRY_AFTER = 60.0
TOGETHER = 0.2
"""Seconds for which namespaces that appear are collected before they are looked at."""
NAMESPACES_AT_ONCE = 10
"""Where more have appeared together, one list of all namespaces is cheaper."""

_log = get_logger("kubeshard.sharder")


class UnassignedWatches:
    """The watches of all rings. `run` is the scope in which they live, `follow` says which there should
    be.
    """

    def __init__(
        self,
        client: Client,
        views: RingViews,
        kinds: ResourceKinds,
        mover: Mover,
        permissions: Permissions,
        unknown: UnknownNamespaces,
        *,
        concurrent_moves: int = 100,
        clock: Clock = SYSTEM_CLOCK,
        rng: Rng = SYSTEM_RNG,
    ) -> None:
        self._client = client
        self._views = views
        self._kinds = kinds
        self._mover = mover
        self._permissions = permissions
        self._unknown = unknown
        self._concurrent_moves = concurrent_moves
        self._clock = clock
        self._rng = rng
        self._group: asyncio.TaskGroup | None = None
        self._missed: Callable[[str], None] = lambda ring: None
        self._wanted: tuple[Place, ...] = ()
        self._watches: dict[Place, asyncio.Task[None]] = {}
        self._appeared: dict[Place, set[str]] = {}
        """Namespaces to be looked at."""
        self._looks: dict[Place, asyncio.Task[None]] = {}

    async def run(self, missed: Callable[[str], None]) -> None:
        """Until cancelled. `missed` is called with a ring of which objects may have been missed."""
        self._missed = missed
        try:
            async with asyncio.TaskGroup() as self._group:
                self._adjust()
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = None
            for memory in (self._watches, self._looks, self._appeared):
                memory.clear()

    def follow(self, ring: str, entries: Iterable[RingEntry]) -> None:
        """From now on the ring's watches are those of these entries."""
        others = (place for place in self._wanted if place[0] != ring)
        self._wanted = (*others, *((ring, entry) for entry in entries))
        self._adjust()

    def namespace_appeared(self, namespace: str) -> None:
        """A namespace is known from now on: what was passed over in it is looked for."""
        for place in self._unknown.appeared(namespace):
            self._look_for(place, namespace)

    def namespace_selected(self, ring: str, namespace: str) -> None:
        """The ring selects a namespace from now on that it did not select before."""
        for place in self._wanted:
            if place[0] == ring:
                self._look_for(place, namespace)

    def _adjust(self) -> None:
        if self._group is None:
            return
        for place in [place for place in self._watches if place not in self._wanted]:
            self._watches.pop(place).cancel()
            if look := self._looks.pop(place, None):
                look.cancel()
            self._appeared.pop(place, None)
            self._unknown.forget(place)
        for place in self._wanted:
            if place not in self._watches:
                self._watches[place] = self._group.create_task(
                    self._keep_watching(*place), name=f"unassigned {place[1].resource} of {place[0]}"
                )

    # Watching

    async def _keep_watching(self, ring: str, entry: RingEntry) -> None:
        version, backoff, forbidden = "", Backoff(BackoffPolicy(), self._rng), False
        while True:
            pause = 0.0
            try:
                kind = await self._kinds.kind(entry.resource)
                if not version:
                    version = await self._position(kind, _unassigned(ring))
                    self._missed(ring)
                opened = self._clock.monotonic()
                last = await self._watch(ring, entry, kind, version)
                forbidden = False
                self._permissions.granted(ring, entry.resource, "watch")
                if last or self._clock.monotonic() - opened >= SHORT_WATCH:
                    version = last or version
                    continue
                _log.debug("Watch of unassigned objects ended at once", ring=ring, resource=entry.resource)
            except Forbidden as error:
                log, forbidden = _log.debug if forbidden else _log.warning, True  # once; the condition stays
                log("cannot watch unassigned objects", ring=ring, resource=entry.resource, error=error)
                await self._permissions.refused(ring, entry.resource, "watch")
                pause = FORBIDDEN_PAUSE
            except ApiError as error:
                if isinstance(error, NotFound):
                    self._kinds.forget(entry.resource)
                _log.debug(
                    "Watch of unassigned objects failed", ring=ring, resource=entry.resource, error=error
                )
                pause = min(error.retry_after or 0.0, LONGEST_RETRY_AFTER)
            version = ""
            await asyncio.sleep(max(pause, backoff.failed(self._clock.monotonic())))

    async def _position(self, kind: Kind, selector: Selector) -> str:
        """Where to watch from: the version of a list that is empty because its selector contradicts
        itself.
        """
        nothing = selector & Selector.exists(selector.requirements[0].key)
        stream = self._client.list(metadata_only(kind), label_selector=nothing)
        async for _ in stream:
            pass
        return stream.resource_version

    async def _watch(self, ring: str, entry: RingEntry, kind: Kind, version: str) -> str:
        """One watch, until it ends by itself; returns where to go on, "" where it said nothing. Raises
        ApiError.
        """
        last = ""
        async with (
            Crew(self._concurrent_moves) as crew,
            self._client.watch(
                metadata_only(kind), label_selector=_unassigned(ring), resource_version=version
            ) as events,
        ):
            async for event in events:
                match event:
                    case Bookmark(version):
                        last = version
                    case Changed(change, obj):
                        last = obj.metadata.resource_version
                        if change != "DELETED":
                            await self._consider(ring, entry, kind, obj.metadata, crew)
        return last

    async def _consider(self, ring: str, entry: RingEntry, kind: Kind, meta: ObjectMeta, crew: Crew) -> None:
        view = self._views.view(ring)
        if view is None:
            return
        decision = plan(view, entry, TypeMeta(kind.api_version, kind.kind), meta)
        if decision.reason == NOT_SELECTED and not self._views.knows_namespace(meta.namespace):
            self._unknown.passed_over((ring, entry), meta.namespace)
        if decision.action is Action.ASSIGN:
            job = Job(ring, entry, kind, meta, decision, UnknownOwners())
            await crew.start(self._mover.carry_out(job))

    # Namespaces that are new to a ring

    def _look_for(self, place: Place, namespace: str) -> None:
        if self._group is None or place not in self._watches:
            return
        self._appeared.setdefault(place, set()).add(namespace)
        if place not in self._looks:
            self._looks[place] = self._group.create_task(self._look(place))

    async def _look(self, place: Place) -> None:
        """Looks at what has appeared, until nothing is left. Whoever comes meanwhile is looked at next."""
        ring, entry = place
        await asyncio.sleep(TOGETHER)
        while namespaces := self._appeared.pop(place, None):
            try:
                kind = await self._kinds.kind(entry.resource)
                if kind.namespaced:
                    some = sorted(namespaces) if len(namespaces) <= NAMESPACES_AT_ONCE else [None]
                    for namespace in some:
                        await self._look_at(ring, entry, kind, namespace)
            except ApiError as error:
                _log.debug("Cannot read Namespaces", ring=ring, resource=entry.resource, error=error)
                self._missed(ring)
            await asyncio.sleep(TOGETHER)
        del self._looks[place]

    async def _look_at(self, ring: str, entry: RingEntry, kind: Kind, namespace: str | None) -> None:
        objects = self._client.list(
            metadata_only(kind),
            namespace,
            label_selector=_unassigned(ring),
            on_restart=lambda: None,  # deciding twice on an object is harmless
        )
        async with Crew(self._concurrent_moves) as crew:
            async for obj in objects:
                await self._consider(ring, entry, kind, obj.metadata, crew)


def _unassigned(ring: str) -> Selector:
    return Selector.absent(shard_label(ring))
