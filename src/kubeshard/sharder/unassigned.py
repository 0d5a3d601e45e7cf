"""The watch on unassigned objects: assigns objects that the webhook and looks missed when they appear.

One metadata watch per lane, with the selector "has no shard label": its cost depends on the rate
of misses, not on the number of objects. It stores nothing: events go directly to the planner and the mover.
When a watch restarts after a gap, it requests a look at the objects without an available shard instead
of listing them itself. Objects in a namespace that is not known yet are read again, by a list of that
namespace's unassigned objects, as soon as the namespace appears.

Guaranteed: an unassigned object that a ring wants is assigned as soon as the watch shows it and its namespace
is known, in either order, without the webhook; a watch that fails, or ends immediately, is restarted with
back-off, like an informer's. Not guaranteed: anything without permission to watch; then the ring
relies on periodic looks and reports that in a condition. RBAC: list, watch on every main and controlled resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from kubeshard.cache.backoff import Backoff, BackoffPolicy
from kubeshard.client.client import Client
from kubeshard.client.watching import Bookmark, Changed
from kubeshard.core.errors import ApiError, Forbidden, NotFound
from kubeshard.core.kinds import Kind, TypeMeta
from kubeshard.core.namespaces import ALL, All
from kubeshard.core.objects import ObjectMeta, metadata_only
from kubeshard.core.selectors import Selector
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.rng import Rng
from kubeshard.sharder.crew import Crew
from kubeshard.sharder.kinds import ResourceKinds
from kubeshard.sharder.moves import Job, Mover
from kubeshard.sharder.owners import UnknownOwners
from kubeshard.sharder.permissions import Permissions
from kubeshard.sharder.ring import Lane
from kubeshard.sharder.schedule import Reach
from kubeshard.sharding.names import shard_label
from kubeshard.sharding.planner import NOT_SELECTED, Action, plan

SHORT_WATCH = 1.0
"""Seconds: a watch that ends sooner, without any event, counts as failed."""
FORBIDDEN_PAUSE = 60.0
LONGEST_RETRY_AFTER = 60.0
TOGETHER = 0.2
"""Seconds for which new namespaces are collected before they are looked at."""
NAMESPACES_AT_ONCE = 10
"""If more have appeared together, one list of all namespaces is cheaper."""

_log = get_logger("kubeshard.sharder")


class UnassignedWatches:
    """Watches one lane for as long as the lane is open."""

    def __init__(
        self,
        client: Client,
        kinds: ResourceKinds,
        mover: Mover,
        permissions: Permissions,
        *,
        concurrent_moves: int,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._client = client
        self._kinds = kinds
        self._mover = mover
        self._permissions = permissions
        self._concurrent_moves = concurrent_moves
        self._clock = clock
        self._rng = rng

    async def keep_watching(self, lane: Lane) -> None:
        """Watches until cancelled."""
        resource, log_of = lane.entry.resource, {"ring": lane.ring.name, "resource": lane.entry.resource}
        version, backoff = "", Backoff(BackoffPolicy(), self._rng)
        while True:
            pause = 0.0
            try:
                kind = await self._kinds.kind(resource)
                if not version:
                    version = await self._position(kind, _unassigned(lane))
                    self._missed(lane)
                opened = self._clock.monotonic()
                last = await self._watch(lane, kind, version)
                self._permissions.granted(lane, "watch")
                if last or self._clock.monotonic() - opened >= SHORT_WATCH:
                    version = last or version
                    continue
                _log.debug("Watch of unassigned objects ended immediately", **log_of)
            except Forbidden as error:
                await self._permissions.refused(lane, "watch")
                told = lane.ring.refusals.line(resource, "watch", error) is not None
                (_log.warning if told else _log.debug)(
                    "Cannot watch unassigned objects", **log_of, error=error
                )
                pause = FORBIDDEN_PAUSE
            except ApiError as error:
                if isinstance(error, NotFound):
                    self._kinds.forget(resource)
                _log.debug("Watch of unassigned objects failed", **log_of, error=error)
                pause = min(error.retry_after or 0.0, LONGEST_RETRY_AFTER)
            version = ""
            await asyncio.sleep(max(pause, backoff.failed(self._clock.monotonic())))

    def namespace_appeared(self, lane: Lane, namespace: str) -> None:
        """A namespace has become known: looks for objects in it that were skipped."""
        if lane.passed_over.take(namespace):
            self.look_for(lane, namespace)

    def look_for(self, lane: Lane, namespace: str) -> None:
        """The ring now selects this namespace."""
        lane.appeared.add(namespace)
        if not lane.looking_for:
            lane.looking_for = True
            lane.start(partial(self._look, lane), "look at new namespaces")

    def _missed(self, lane: Lane) -> None:
        lane.request(Reach.MISPLACED, self._clock.monotonic())

    async def _position(self, kind: Kind, selector: Selector) -> str:
        """Where to watch from: the version of a list that is empty because its selector contradicts
        itself.
        """
        nothing = selector & Selector.exists(selector.requirements[0].key)
        stream = self._client.list(metadata_only(kind), ALL, label_selector=nothing)
        async for _ in stream:
            pass
        return stream.resource_version

    async def _watch(self, lane: Lane, kind: Kind, version: str) -> str:
        """One watch, until it ends; returns the resourceVersion to continue from, "" without any event. Raises
        ApiError.
        """
        last = ""
        async with (
            Crew(self._concurrent_moves) as crew,
            self._client.watch(
                metadata_only(kind), ALL, label_selector=_unassigned(lane), resource_version=version
            ) as events,
        ):
            async for event in events:
                match event:
                    case Bookmark(version):
                        last = version
                    case Changed(change, obj):
                        last = obj.metadata.resource_version
                        if change != "DELETED":
                            await self._consider(lane, kind, obj.metadata, crew)
        return last

    async def _consider(self, lane: Lane, kind: Kind, meta: ObjectMeta, crew: Crew) -> None:
        ring, entry = lane.ring, lane.entry
        view = ring.view
        if view is None:
            return
        decision = plan(view, entry, TypeMeta(kind.api_version, kind.kind), meta)
        if decision.reason == NOT_SELECTED and not ring.knows_namespace(meta.namespace):
            lane.passed_over.add(meta.namespace)
        if decision.action is Action.ASSIGN:
            await crew.start(self._mover.carry_out(Job(ring, entry, kind, meta, decision, UnknownOwners())))

    async def _look(self, lane: Lane) -> None:
        """Looks at the namespaces that have appeared, and at those that appear meanwhile, until none is left."""
        await asyncio.sleep(TOGETHER)
        while lane.appeared:
            namespaces, lane.appeared = lane.appeared, set()
            try:
                kind = await self._kinds.kind(lane.entry.resource)
                if kind.namespaced:
                    some: Iterable[str | All] = sorted(namespaces)
                    for namespace in some if len(namespaces) <= NAMESPACES_AT_ONCE else [ALL]:
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

    async def _look_at(self, lane: Lane, kind: Kind, namespace: str | All) -> None:
        objects = self._client.list(
            metadata_only(kind),
            namespace,
            label_selector=_unassigned(lane),
            on_restart=lambda: None,  # deciding twice on an object is harmless
        )
        async with Crew(self._concurrent_moves) as crew:
            async for obj in objects:
                await self._consider(lane, kind, obj.metadata, crew)


def _unassigned(lane: Lane) -> Selector:
    return Selector.absent(shard_label(lane.ring.name))
