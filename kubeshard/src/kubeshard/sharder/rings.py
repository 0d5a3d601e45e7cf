"""The existing rings, and what is heard of them. This is the only place that turns a name into a ring.

    with reading(rings.changes) as inbox:
        for name in await inbox.take(): ...

A ring is told of each event before anybody else, and tells the machine that leads it (`sharding.ring`). All others read
an inbox when they have their turn: nobody is called from within what another one does. An inbox has each thing once,
however often it was told, so it has no limit of its own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Deleted, Delta, Updated
from kubeshard.core.builtin import Namespace
from kubeshard.core.objects import Key
from kubeshard.runtime.alarm import SHORTEST_SLEEP
from kubeshard.runtime.loop import set_within
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.ring import Ring, RingInputs
from kubeshard.sharding.shard_states import ShardChange

T = TypeVar("T", bound=Hashable)


class Inbox(Generic[T]):
    """What one reader has not heard yet."""

    def __init__(self) -> None:
        self._told: dict[T, None] = {}
        self._news = asyncio.Event()

    def put(self, what: T) -> None:
        self._told[what] = None
        self._news.set()

    def wake(self) -> None:
        """The reader does not wait any longer, even if nothing was told."""
        self._news.set()

    async def take(self, within: float = math.inf) -> Collection[T]:
        """All that was told since the last time, in the order in which it was told first. Waits for something, so many
        seconds at most; if these are none, others have their turn nevertheless.
        """
        if within > 0:
            await set_within(
                self._news, max(within, SHORTEST_SLEEP)
            )  # another clock may tell when it is over
        else:
            await asyncio.sleep(0)
        self._news.clear()
        told, self._told = self._told, {}
        return told


class Topic(Generic[T]):
    """Something of which several read, or nobody."""

    def __init__(self) -> None:
        self.inboxes = list[Inbox[T]]()

    def tell(self, what: T) -> None:
        for inbox in self.inboxes:
            inbox.put(what)


@contextmanager
def reading(*topics: Topic[Any], inbox: Inbox[Any] | None = None) -> Iterator[Inbox[Any]]:
    """The inbox, by default a new one, has what is told of the topics while the block runs."""
    inbox = Inbox[Any]() if inbox is None else inbox
    for topic in topics:
        topic.inboxes.append(inbox)
    try:
        yield inbox
    finally:
        for topic in topics:
            topic.inboxes.remove(inbox)


class Rings:
    """The existing rings, as the cache shows them."""

    def __init__(self, inputs: RingInputs) -> None:
        self.inputs = inputs
        self.changes = Topic[str]()
        """The name of each ring that was added, deleted, or got a new spec or confirms other system namespaces."""
        self.news = Topic[str]()
        """Each ring whose status may be out of date."""
        self.leases = Topic[ShardChange]()
        """Each change of a shard's Lease."""
        self.rewound = Topic[Key]()
        """Each Lease that reverted to an earlier version: the labels of all objects may be old."""
        self._rings: dict[str, Ring] = {}
        self.get: Callable[[str], Ring | None] = self._rings.get  # called for each Lease and object
        self._by_label: dict[tuple[str, str] | None, dict[str, Ring]] = {}
        """The same, by the labels of which a namespace must have one to be selected; None: it may have any."""
        self.selections = 0
        """Increases whenever a ring was added or ended, or selects namespaces with other labels."""

    def declare(self, cache: Cache) -> None:
        """Call it before the cache runs, and before other handlers are added: they rely on the rings being updated."""
        cache.declare(ControllerRing).add_handler(self.apply)
        self.declare_namespaces(cache)

    def declare_namespaces(self, cache: Cache) -> None:
        """`declare` only for namespaces, for a caller that calls `apply` itself."""
        cache.declare(Namespace).add_handler(self._namespace_changed)

    def __iter__(self) -> Iterator[Ring]:
        return iter(tuple(self._rings.values()))

    def perhaps_selecting(self, *labels: Mapping[str, str] | None) -> list[Ring]:
        """The rings that may select a namespace with these labels, or with these. Rings with a label for each namespace
        are found by it, so that what concerns one namespace costs the same however many there are.
        """
        places = {pair: None for each in labels for pair in (each or {}).items()}
        found = dict(self._by_label.get(None, {}))
        for place in places:
            found.update(self._by_label.get(place, {}))
        return list(found.values())

    def apply(self, delta: Delta[ControllerRing]) -> None:
        """Adds, updates or ends a ring, and tells it."""
        resource = delta.new if isinstance(delta, Updated) else delta.object
        known = self._rings.get(resource.name)
        same = known is not None and known.resource.metadata.uid == resource.metadata.uid
        if isinstance(delta, Deleted):
            if not same:
                return
            self._end(resource.name)
            if self.inputs.leases is not None:
                self.inputs.leases.leave(resource.name)
        elif known is not None and same:
            if known.resource.shard_namespaces != resource.shard_namespaces:
                self._follow(resource)
            self._file(known, remove=True)
            changed = known.update(resource)
            self.selections += changed
            self._file(known)
            if not changed:
                return
        else:
            self._end(resource.name)
            self._rings[resource.name] = ring = Ring(resource, self.inputs, self.news)
            self._file(ring)
            self._follow(resource)
            self.selections += 1
        self.changes.tell(resource.name)
        if resource.name in self._rings:
            self.news.tell(resource.name)

    def shard_changed(self, change: ShardChange) -> None:
        """Tells the rings of a changed Lease, in each process: one that leads later must not take it for long ago that
        a Lease was missed.
        """
        for name in sorted(change.rings):
            if (ring := self._rings.get(name)) is not None:
                ring.shard_changed(change)
        self.leases.tell(change)
        if change.rewound:
            self.rewound.tell(change.key)

    def _follow(self, resource: ControllerRing) -> None:
        if self.inputs.leases is not None:
            self.inputs.leases.follow(resource.name, resource.shard_namespaces)

    def _end(self, name: str) -> None:
        if (ring := self._rings.pop(name, None)) is not None:
            self._file(ring, remove=True)
            self.selections += 1
            ring.end()

    def _file(self, ring: Ring, *, remove: bool = False) -> None:
        """Adds the ring to `_by_label`, or removes it before its selector changes."""
        for label in ring.required_labels:
            if not remove:
                self._by_label.setdefault(label, {})[ring.name] = ring
            elif filed := self._by_label.get(label):
                filed.pop(ring.name, None)
                if not filed:
                    del self._by_label[label]

    def _namespace_changed(self, delta: Delta[Namespace]) -> None:
        seen = (delta.old, delta.new) if isinstance(delta, Updated) else (delta.object,)
        labels = [namespace.metadata.labels for namespace in seen]
        if len(labels) == 1 or labels[0] != labels[1]:
            for ring in self.perhaps_selecting(*labels):
                ring.namespaces_changed()
