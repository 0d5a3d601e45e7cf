"""A live view of a ring: its shards, their objects, and movements. It continues when the ring is edited.

Guaranteed: `snapshot` includes all events received so far; memory grows by one integer for each object (`stats`). Not
guaranteed: that every movement is seen. If an object moves several times while a watch is down, only the last movement
is seen.

RBAC: list and watch on leases, namespaces and controllerrings, and on every main and controlled resource of the ring;
to see edits also the rights that `cluster` and `ring` need. In a ring by ranges also on its ConfigMap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, NoReturn, TypeVar

from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease, Namespace
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import ApiError, Forbidden, Gone
from kubeshard.core.kinds import Kind
from kubeshard.core.names import is_label_value
from kubeshard.core.namespaces import ALL, NAMESPACE_NAME_LABEL, AllNamespaces
from kubeshard.core.objects import (
    Form,
    Key,
    KubeObject,
    ObjectMeta,
    PartialObject,
    form_of,
    metadata_only,
)
from kubeshard.core.selectors import FieldSelector, Selector
from kubeshard.inspection.cluster import default_selector, read_cluster
from kubeshard.inspection.history import History
from kubeshard.inspection.ranges import SeenRanges, WrittenMap, hashed, seen_ranges
from kubeshard.inspection.ring import SeenRing, see, type_of
from kubeshard.inspection.stats import LeaseView, RingSnapshot, RingStats
from kubeshard.listwatch.reflector import Entries, Interrupted, Reflector, Sink, Source
from kubeshard.listwatch.state_machine import ONCE_A_MINUTE, Listed
from kubeshard.sharder.kinds_and_rights import ResourceKinds
from kubeshard.sharder.owners import OwnerChains
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.hash_ring import KeyRefused, point_of
from kubeshard.sharding.names import RING_LABEL, STATE_LABEL
from kubeshard.sharding.planner import RingView, hash_key
from kubeshard.sharding.ring_resources import ControllerUnknown, RingEntry
from kubeshard.sharding.shard_states import ShardState, written_state
from kubeshard.sharding.waiting import SkippedNamespaces

TOGETHER = 5.0
"""Seconds for which changes to the selected namespaces are collected before everything is read again."""

Resources = Sequence[tuple[RingEntry, Kind]]


_LEASES, _NAMESPACES = "leases.coordination.k8s.io", "namespaces"


class LiveRing:
    """See the module. `view` says what belongs to the ring, except for its namespaces: these are the ones that
    `selector` currently selects; None selects all. `wall` returns seconds since the epoch by the cluster's clock.
    """

    def __init__(
        self,
        client: Client,
        view: RingView,
        resources: Resources,
        *,
        selector: Selector | None,
        chains: OwnerChains | None = None,
        ranges: SeenRanges | None = None,
        wall: Callable[[], float],
    ) -> None:
        self._client = client
        self._resources = resources
        self._clock = client.world.clock
        self._wall = wall
        self._selection = _Selection(self, selector) if selector else None
        self.view = view
        self.chains = chains or OwnerChains(client, ResourceKinds(client))
        if self._selection is not None:
            self.view = replace(view, namespaces=self._selection, by_labels=self._selection)
        self.stats = RingStats({str(entry.resource): entry.main for entry, _ in resources})
        self._leases = _Kept[Lease](self, _LEASES)
        self.ranges = ranges
        self._written = _Kept[WrittenMap](self, ranges.place.name if ranges else "")
        """The ConfigMap of a ring by ranges."""
        self._moved = True
        """Whether that, or a Lease, has changed."""
        self._changed = asyncio.Event()
        self._unread = {_LEASES, *(str(entry.resource) for entry, _ in resources)}
        if ranges is not None:
            self._unread.add(ranges.place.name)
            self.stats.assigned(ranges.located, self.now())
        self.stats.unread.update(dict.fromkeys(self._unread, "being read"))
        self._read = asyncio.Event()

    async def run(self) -> NoReturn:
        """Follows the ring until cancelled."""
        labels = Selector.equals(RING_LABEL, self.view.name)
        async with asyncio.TaskGroup() as group:
            leases = _follow(self._client, form_of(Lease), self._leases, labels=labels)
            group.create_task(leases, name=f"follows {_LEASES}")
            if self.ranges is not None:
                place = self.ranges.place
                named = FieldSelector.equals("metadata.name", place.name)
                written = _follow(
                    self._client, form_of(WrittenMap), self._written, namespace=place.namespace, fields=named
                )
                group.create_task(written, name=f"follows {place.name}")
            if self._selection is not None:
                namespaces = _follow(self._client, metadata_only(Namespace), self._selection)
                group.create_task(namespaces, name=f"follows {_NAMESPACES}")
                await self._selection.known.wait()
            while True:
                await self._follow_objects()
        raise AssertionError("unreachable")

    async def read(self) -> None:
        """Returns once everything has been read, the picture says why not, or another live ring is in its place."""
        await self._read.wait()

    def replaced(self) -> None:
        self._read.set()

    async def changed(self) -> None:
        """Returns after an event since the last call returned."""
        await self._changed.wait()
        self._changed.clear()

    def snapshot(self) -> RingSnapshot:
        self.stats.shards(self._lease_views())
        if self.ranges is not None:
            self._see_ranges(self.ranges)
        return self.stats.snapshot(self._clock.monotonic())

    def _see_ranges(self, before: SeenRanges) -> None:
        name = before.place.name
        if not self._moved or self._unread & {_LEASES, name}:
            return
        self._moved = False
        beside = [
            lease
            for lease in self._leases.objects.values()
            if lease.metadata.namespace == before.place.namespace
        ]
        live = [each for each, view in self._lease_views().items() if view.live]
        self.ranges = seen_ranges(before.place, self._written.objects.get(before.place), beside, live)
        if (self.ranges.assignment, self.ranges.due) != (before.assignment, before.due):
            self.stats.assigned(self.ranges.located, self.now())
        if self.ranges.problem:
            self.stats.unread[name] = self.ranges.problem
        else:
            self.stats.unread.pop(name, None)

    def now(self) -> float:
        return self._clock.monotonic()

    # What followers report

    def notify(self) -> None:
        self._changed.set()

    def kept(self) -> None:
        """A Lease or the ConfigMap has changed."""
        self._moved = True
        self.notify()

    def heard(self, what: str, error: ApiError | None) -> None:
        """Records whether something can currently be read."""
        if error is None:
            self.stats.unread.pop(what, None)
        elif isinstance(error, Forbidden):
            self.stats.unread[what] = "you may not list and watch them"
        else:
            self.stats.unread[what] = str(error)
        self._unread.discard(what)
        if not self._unread or (what == _NAMESPACES and error is not None):  # which everything else waits for
            self._read.set()
        self.notify()

    async def _follow_objects(self) -> None:
        """Runs until the ring selects other namespaces."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    _follow(self._client, metadata_only(kind), _Objects(self, entry, kind)),
                    name=f"follows {entry.resource}",
                )
                for entry, kind in self._resources
            ]
            if self._selection is None:
                await asyncio.wait(tasks)
                return
            await self._selection.changed.wait()
            await asyncio.sleep(TOGETHER)
            self._selection.changed.clear()
            for task in tasks:
                task.cancel()

    def _lease_views(self) -> Mapping[str, LeaseView]:
        wall, found = self._wall(), dict[str, LeaseView]()
        for lease in self._leases.objects.values():
            name = lease.metadata.name
            live = lease.spec.holder_identity == name and is_label_value(name)
            if name not in found or live:
                found[name] = LeaseView(_shown_state(lease, wall), live)
        return found


T = TypeVar("T", bound=KubeObject)


async def _follow(
    client: Client,
    form: Form[T],
    follower: _Follower[T],
    *,
    namespace: str | AllNamespaces = ALL,
    labels: Selector | None = None,
    fields: FieldSelector | None = None,
) -> NoReturn:
    """Follows a kind until cancelled. Lists are read page by page and nothing is kept, so memory does
    not grow with the number of objects. Without the right to watch, everything is listed again once a minute.
    """
    source = Source(client, form, namespace, labels=labels, fields=fields)
    await Reflector(source, follower, forbidden=ONCE_A_MINUTE, log={"kind": form}).run()


class _Follower(Sink[T, Entries[T]], Generic[T]):
    """Leaves out objects that do not fit their class."""

    def begin(self, part: str, /) -> Entries[T]:
        return self

    def put(self, entry: T | UndecodableObject, part: str, /) -> Awaitable[None] | None:
        if not isinstance(entry, UndecodableObject):
            self.seen(entry)
        return None

    def drop(self, entry: T | UndecodableObject, part: str, /) -> None:
        if not isinstance(entry, UndecodableObject):
            self.gone(entry)

    def opened(self, part: str, /) -> None:
        self.failed(None)

    def interrupted(self, interruption: Interrupted, part: str, /, *, quiet: bool) -> None:
        if not isinstance(interruption.error, Gone):  # everything is listed again
            self.failed(interruption.error)

    def seen(self, obj: T, /) -> None:
        """The object exists, or has changed."""

    def gone(self, obj: T, /) -> None:
        """The object was deleted, or does not match the selector any more."""

    def failed(self, error: ApiError | None) -> None:
        """There are no events until the next attempt; None means that it works again."""


class _Kept(_Follower[T]):
    """The present objects of a kind of which there are few; while they are listed again, those that were there."""

    def __init__(self, ring: LiveRing, name: str) -> None:
        self._ring = ring
        self._name = name
        self.objects: dict[Key, T] = {}

    def begin(self, part: str, /) -> Entries[T]:
        return _Kept[T](self._ring, self._name)

    def listed(self, listed: Listed, entries: Entries[T], part: str, /) -> None:
        if isinstance(entries, _Kept):
            self.objects = entries.objects
        self._ring.kept()

    def seen(self, obj: T, /) -> None:
        self.objects[obj.key] = obj
        self._ring.kept()

    def gone(self, obj: T, /) -> None:
        self.objects.pop(obj.key, None)
        self._ring.kept()

    def failed(self, error: ApiError | None) -> None:
        self._ring.heard(self._name, error)


class _Objects(_Follower[PartialObject]):
    def __init__(self, ring: LiveRing, entry: RingEntry, kind: Kind) -> None:
        self._ring = ring
        self._entry = entry
        self._kind = kind.group_kind
        self._type = type_of(kind)
        self._name = str(entry.resource)

    def begin(self, part: str, /) -> Entries[PartialObject]:
        self._ring.stats.begin(self._name)
        return self

    def put(self, entry: PartialObject | UndecodableObject, part: str, /) -> Awaitable[None] | None:
        if not isinstance(entry, UndecodableObject):
            try:
                self.seen(entry)
            except ControllerUnknown:
                return self._look_up(entry)
        return None

    async def _look_up(self, obj: PartialObject) -> None:
        with suppress(ApiError):
            await self._ring.chains.look_up(self._ring.view, self._entry, obj.metadata)
        with suppress(ControllerUnknown):
            self.seen(obj)

    def seen(self, obj: PartialObject, /) -> None:
        """Raises ControllerUnknown."""
        ring, meta = self._ring, obj.metadata
        view = ring.view
        if (ranges := ring.ranges) is not None:
            if self._entry.main:
                ring.chains.note_main(self._kind, meta)
            if (placed := hashed(view, ring.chains, ranges.buckets, self._entry, meta)) is None:
                return self.gone(obj)
            at = ranges.located(point := ranges.point_of(placed))
            ring.stats.put(self._name, meta.uid, point, at.shard, at.draining, ring.now())
            return ring.notify()
        key = ""
        if view.selects_object(self._entry.resource, meta):
            with suppress(KeyRefused):
                key = hash_key(view, self._entry, self._type, meta)
        if not key:
            return self.gone(obj)
        shard, draining = meta.label(view.shard_label), meta.has_label(view.drain_label)
        ring.stats.put(self._name, meta.uid, point_of(key), shard, draining, ring.now())
        return ring.notify()

    def gone(self, obj: PartialObject, /) -> None:
        self._ring.stats.drop(self._name, obj.metadata.uid, self._ring.now())
        self._ring.notify()

    def listed(self, listed: Listed, entries: object, part: str, /) -> None:
        self._ring.stats.end(self._name, self._ring.now())

    def failed(self, error: ApiError | None) -> None:
        self._ring.heard(self._name, error)


class _Selection(_Follower[PartialObject]):
    """The namespaces that the ring currently selects; all if namespaces cannot be read."""

    def __init__(self, ring: LiveRing, selector: Selector) -> None:
        self._ring = ring
        self._selector = selector
        self._selected: dict[str, bool] = {}
        self._passed_over = SkippedNamespaces()
        self.known = asyncio.Event()
        self.changed = asyncio.Event()
        """Set when an object was classified by an outdated selection."""
        self._hidden = False

    def __contains__(self, name: object) -> bool:
        selected = self._selected.get(str(name))
        if selected is None and not self._hidden:
            self._passed_over.add(str(name))
        return self._hidden if selected is None else selected

    def selects(self, namespace: ObjectMeta) -> bool:
        """Whether the ring selects a Namespace object."""
        return self._selector.matches(namespace.labels)

    def seen(self, namespace: PartialObject, /) -> None:
        name = namespace.metadata.name
        before, now = self._selected.get(name), self.selects(namespace.metadata)
        self._selected[name] = now
        late = before is None and self._passed_over.take(name)
        if (late and now) or (before is not None and before != now):
            self.changed.set()

    def gone(self, namespace: PartialObject, /) -> None:
        self._selected.pop(namespace.metadata.name, None)

    def listed(self, listed: Listed, entries: object, part: str, /) -> None:
        self.known.set()

    def failed(self, error: ApiError | None) -> None:
        self._hidden = isinstance(error, Forbidden) and not self.known.is_set()
        if self._hidden:
            self.known.set()
        self._ring.heard(_NAMESPACES, error)


def _shown_state(lease: Lease, wall: float) -> str:
    """The sharder's state label, or "", unless the Lease itself is in a worse state because no sharder runs."""
    labelled = lease.metadata.label(STATE_LABEL)
    return str(min(ShardState.parse(labelled), written_state(lease, wall))) if labelled else ""


LOOK_AGAIN = 60.0
"""Seconds between checks for resources that were not served, and for what an operator declares."""
REMEMBERED_EVERY = 1.0
"""Seconds between two pictures that are compared for the history."""
PAUSE = 2.0
"""Seconds after which a request to a cluster that does not answer is repeated."""


def live_ring(client: Client, ring: SeenRing) -> LiveRing:
    """A live view that starts from this state of the ring."""
    spec, clock = ring.resource.spec, client.world.clock
    given = default_selector(ring.webhook) if spec.namespace_selector is None else spec.namespace_selector
    selector = Selector.from_label_selector(given)
    if selector and ring.left_out:
        selector &= Selector.not_in(NAMESPACE_NAME_LABEL, ring.left_out)
    ahead = ring.cluster.now - clock.wall()
    live = LiveRing(
        client,
        ring.view,
        ring.entries,
        selector=selector if ring.ranges is None else None,
        chains=ring.chains,
        ranges=ring.ranges,
        wall=lambda: clock.wall() + ahead,
    )
    live.stats.unread.update({str(resource): why for resource, why in ring.unresolved.items()})
    return live


class RingWatcher:
    """The live rings of one name. `live` is the current one; each starts with new counts. `history`: what has happened
    since it runs.
    """

    def __init__(self, client: Client, ring: SeenRing) -> None:
        self._client = client
        self._ring = ring
        self.live = live_ring(client, ring)
        self.history = History()

    @property
    def name(self) -> str:
        return self._ring.name

    def snapshot(self) -> RingSnapshot:
        return self.live.snapshot()

    async def read(self) -> None:
        """Returns once everything of the current ring has been read, or the picture says why not."""
        live = None
        while live is not self.live:
            live = self.live
            await live.read()

    async def run(self) -> NoReturn:
        """Runs until cancelled. Raises Unanswerable once the ring is gone."""
        while True:
            await self._follow_until_edited()
            self._ring = await self._seen_again()
            before, self.live = self.live, live_ring(self._client, self._ring)
            before.replaced()

    async def _remember(self) -> NoReturn:
        while True:
            self.history.see(self.snapshot(), self.wall())
            await asyncio.sleep(REMEMBERED_EVERY)

    def wall(self) -> float:
        """Seconds since the epoch, as in the history."""
        return self._client.world.clock.wall()

    async def _follow_until_edited(self) -> None:
        """Follows one version of the ring until it is edited."""
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(self.live.run(), name=f"follows {self.name}"),
            asyncio.create_task(self._remember(), name=f"remembers {self.name}"),
        ]
        if self._ring.cluster.is_declared(self.name):
            tasks.append(asyncio.create_task(self._declared_anew(), name=f"edit of {self.name}"))
        else:
            edits = _Edits(self._ring.resource)
            edited = _follow(self._client, form_of(ControllerRing), edits)
            tasks.append(asyncio.create_task(edited, name=f"edits of {self.name}"))
            tasks.append(asyncio.create_task(edits.edited.wait(), name=f"edit of {self.name}"))
        if self._ring.unresolved:
            tasks.append(asyncio.create_task(self._served(), name=f"looks for resources of {self.name}"))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(
                *tasks, return_exceptions=True
            )  # and nobody asks for the errors of the others

    async def _served(self) -> None:
        """Returns once other resources are served: restarts for less would never let a large ring be read."""
        unserved = self._ring.unresolved.keys()
        while unserved == self._ring.unresolved.keys():
            await asyncio.sleep(LOOK_AGAIN)
            unserved = (await self._seen_again()).unresolved.keys()

    async def _declared_anew(self) -> None:
        """Waits until the operator declares something else, or there is a ControllerRing."""

        def said(ring: SeenRing) -> object:
            return ring.resource.metadata.uid, ring.resource.spec, ring.ranges is None

        seen = now = said(self._ring)
        while seen == now:
            await asyncio.sleep(LOOK_AGAIN)
            now = said(await self._seen_again())

    async def _seen_again(self) -> SeenRing:
        while True:
            with suppress(ApiError):
                return await see(self._client, await read_cluster(self._client), self.name)
            await asyncio.sleep(PAUSE)


class _Edits(_Follower[ControllerRing]):
    """Notices when a ring is edited."""

    def __init__(self, ring: ControllerRing) -> None:
        self._ring = ring
        self._there = False
        self.edited = asyncio.Event()

    def begin(self, part: str, /) -> Entries[ControllerRing]:
        self._there = False
        return self

    def seen(self, ring: ControllerRing, /) -> None:
        if ring.name != self._ring.name:
            return
        self._there = True
        before, now = self._ring, ring
        if (before.metadata.uid, before.spec) != (now.metadata.uid, now.spec):
            self.edited.set()

    def gone(self, ring: ControllerRing, /) -> None:
        if ring.name == self._ring.name:
            self.edited.set()

    def listed(self, listed: Listed, entries: object, part: str, /) -> None:
        if not self._there:
            self.edited.set()
