"""The watch on unassigned objects (reliability F9): what webhook and resync missed is assigned as it
appears.

One metadata watch per ring and resource, with the selector "has no shard label": its cost follows the rate
of misses, not the number of objects. It stores nothing: events go straight to the planner and the mover.
When a watch opens anew after a gap, it asks for a pass over the objects without an available shard instead
of reading them itself.

Guaranteed: an unassigned object that a ring wants is assigned as soon as the watch shows it, without the
webhook. Not guaranteed: anything where the right to watch is missing; then the ring is left to periodic
passes and says so in a condition. RBAC: list, watch on every main and controlled resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from kubeshard.client import Client
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import ApiError, Forbidden, NotFound
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import metadata_only
from kubeshard.core.selectors import Selector
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.rng import SYSTEM_RNG, Rng
from kubeshard.sharder.crew import Crew
from kubeshard.sharder.kinds import ResourceKinds
from kubeshard.sharder.moves import Job, Mover
from kubeshard.sharder.owners import UnknownOwners
from kubeshard.sharder.permissions import Permissions
from kubeshard.sharder.views import RingViews
from kubeshard.sharding import Action, RingEntry, TypeMeta, plan, shard_label

BACKOFF_FIRST, BACKOFF_LAST = 1.0, 60.0

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
        *,
        concurrent_moves: int = 100,
        rng: Rng = SYSTEM_RNG,
    ) -> None:
        self._client = client
        self._views = views
        self._kinds = kinds
        self._mover = mover
        self._permissions = permissions
        self._concurrent_moves = concurrent_moves
        self._rng = rng
        self._group: asyncio.TaskGroup | None = None
        self._missed: Callable[[str], None] = lambda ring: None
        self._wanted: set[tuple[str, RingEntry]] = set()
        self._watches: dict[tuple[str, RingEntry], asyncio.Task[None]] = {}

    async def run(self, missed: Callable[[str], None]) -> None:
        """Until cancelled. `missed` is called with a ring of which objects may have been missed."""
        self._missed = missed
        try:
            async with asyncio.TaskGroup() as self._group:
                self._adjust()
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = None
            self._watches.clear()

    def follow(self, ring: str, entries: Iterable[RingEntry]) -> None:
        """From now on the ring's watches are those of these entries."""
        others = {place for place in self._wanted if place[0] != ring}
        self._wanted = others | {(ring, entry) for entry in entries}
        self._adjust()

    def _adjust(self) -> None:
        if self._group is None:
            return
        for place in self._watches.keys() - self._wanted:
            self._watches.pop(place).cancel()
        for place in self._wanted - self._watches.keys():
            self._watches[place] = self._group.create_task(
                self._keep_watching(*place), name=f"unassigned {place[1].resource} of {place[0]}"
            )

    async def _keep_watching(self, ring: str, entry: RingEntry) -> None:
        version, backoff = "", BACKOFF_FIRST
        while True:
            try:
                kind = await self._kinds.kind(entry.resource)
                if not version:
                    version = await self._position(kind, _unassigned(ring))
                    self._missed(ring)
                version = await self._watch(ring, entry, kind, version)
                self._permissions.granted(ring, entry.resource, "watch")
                backoff = BACKOFF_FIRST
                continue
            except Forbidden as error:
                _log.warning(
                    "cannot watch unassigned objects", ring=ring, resource=entry.resource, error=error
                )
                await self._permissions.refused(ring, entry.resource, "watch")
                backoff = BACKOFF_LAST
            except ApiError as error:
                if isinstance(error, NotFound):
                    self._kinds.forget(entry.resource)
                _log.debug(
                    "watch on unassigned objects ended", ring=ring, resource=entry.resource, error=error
                )
            version = ""
            await asyncio.sleep(backoff * self._rng.uniform(1.0, 1.5))
            backoff = min(2 * backoff, BACKOFF_LAST)

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
        """One watch, until it ends by itself; returns where to go on. Raises ApiError."""
        form = metadata_only(kind)
        type_ = TypeMeta(kind.api_version, kind.kind)
        async with (
            Crew(self._concurrent_moves) as crew,
            self._client.watch(form, label_selector=_unassigned(ring), resource_version=version) as events,
        ):
            async for event in events:
                if isinstance(event.object, UndecodableObject):
                    continue
                meta = event.object.metadata
                version = meta.resource_version
                if event.type not in ("ADDED", "MODIFIED"):
                    continue
                view = self._views.view(ring)
                if view is None:
                    continue
                decision = plan(view, entry, type_, meta)
                if decision.action is Action.ASSIGN:
                    job = Job(ring, entry, kind, meta, decision, UnknownOwners())
                    await crew.start(self._mover.carry_out(job))
        return version


def _unassigned(ring: str) -> Selector:
    return Selector.absent(shard_label(ring))
