"""Watches a kind without an informer: for programs that process events and keep no objects.

    async with aclosing(watcher(client, Website, ALL)) as events:
        async for event in events:
            match event:
                case Changed("DELETED", website): ...
                case Changed(_, website): ...
                case Vanished(key): ...
                case Complete(): ...  # all existing objects have been reported
                case Failed(_, error): ...
                case Interrupted(error): ...  # or raise it, to stop retrying

Controllers should use an informer: for its cache, its resync, and reads of their own writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from kubeshard.cache.snapshot import Snapshot
from kubeshard.client.client import Client
from kubeshard.client.watching import Changed, ChangeType, Failed
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.namespaces import AllNamespaces, namespaces_of
from kubeshard.core.objects import Form, Key, KubeObject, form_of
from kubeshard.core.selectors import FieldSelector, Selector
from kubeshard.listwatch.reflector import Interrupted, Reflector, Sink, Source
from kubeshard.listwatch.state_machine import Listed, SharedKnowledge

T = TypeVar("T", bound=KubeObject)

AHEAD = 100
"""The maximum number of events waiting for the iterator; then reading pauses."""


class Complete(NamedTuple):
    """All objects that exist at this version have been reported: for the first time, or again after a gap."""

    resource_version: str


class Vanished(NamedTuple):
    """The object was deleted, or stopped matching, during a gap in the watch; its last state is unknown."""

    key: Key
    uid: str


WatcherEvent = Changed[T] | Failed | Vanished | Complete | Interrupted


async def watcher(
    client: Client,
    target: type[T] | Form[T],
    namespace: str | AllNamespaces | None = None,
    *,
    label_selector: Selector | None = None,
    field_selector: FieldSelector | None = None,
) -> AsyncGenerator[WatcherEvent[T], None]:
    """Iterates over the changes of a kind's objects. RBAC: `list` and `watch`.

    Raises WrongNamespace.

    Starts with an ADDED for each existing object, then `Complete`, then changes. A watch that ends or breaks is
    reopened where it ended; if that is not possible any more (410 Gone), everything is listed again, and the
    differences are reported, then `Complete` again. Pauses between attempts grow to a minute, with jitter.

    Guaranteed:

    - at least once: the final state of every object is reported eventually, and so is its removal: by a DELETED with
      its last state, or by `Vanished` if it happened in a gap;
    - in order: changes of one object are reported in the order in which they happened; there is no ADDED for an object
      that exists, and no MODIFIED or DELETED for one that does not;
    - no repetition: an unchanged state is not reported again after a gap, unless the API server was restored from a
      backup;
    - no error ends the iteration: they are reported as `Interrupted`, and raising its error is up to you.

    Not guaranteed: every intermediate state, order between objects, that the process keeps up: if it takes minutes for
    an event, the server closes the watch, which is a gap like any other.

    Memory: the key, UID and version of each object; during a full list all objects, once. Close it with `aclosing` when
    you stop iterating, because it keeps a connection open.
    """
    form = form_of(target)
    place = namespaces_of(form.kind, namespace)
    feed: _Feed[T] = _Feed()
    source = Source(client, form, place, labels=label_selector, fields=field_selector)
    reflector = Reflector(source, feed, SharedKnowledge(), log={"kind": form})
    driver = asyncio.create_task(reflector.run(), name=f"watcher of {form}")
    driver.add_done_callback(feed.end)
    try:
        while (event := await feed.take()) is not None:
            yield event
        driver.result()  # raises only for a bug
    finally:
        driver.cancel()
        await asyncio.wait([driver])


class _Memory(Generic[T]):
    """The part of what was reported that is needed to detect changes."""

    def __init__(self) -> None:
        self._reported: dict[Key, tuple[str, str]] = {}
        """UID and version."""

    def listed(self, listed: Listed, entries: Snapshot[T]) -> Iterator[WatcherEvent[T]]:
        for key in [key for key in self._reported if key not in entries]:
            yield self._vanished(key)
        for entry in entries.values():
            yield from self.seen(entry, even_if_equal=listed.rewound)
        yield Complete(listed.resource_version)

    def gone(self, entry: T | UndecodableObject) -> Iterator[WatcherEvent[T]]:
        assert entry.key is not None
        if self._reported.pop(entry.key, None) is not None:
            yield _event("DELETED", entry)

    def seen(self, entry: T | UndecodableObject, *, even_if_equal: bool = True) -> Iterator[WatcherEvent[T]]:
        key, meta = entry.key, entry.metadata
        assert key is not None
        before, now = self._reported.get(key), (meta.uid, meta.resource_version)
        if before == now and not even_if_equal:
            return
        if before and before[0] != meta.uid:
            yield self._vanished(key)
            before = None
        self._reported[key] = now
        yield _event("MODIFIED" if before else "ADDED", entry)

    def _vanished(self, key: Key) -> Vanished:
        return Vanished(key, self._reported.pop(key)[0])


def _event(type_: ChangeType, entry: T | UndecodableObject) -> Changed[T] | Failed:
    return Failed(type_, entry) if isinstance(entry, UndecodableObject) else Changed(type_, entry)


class _Feed(Sink[T, Snapshot[T]]):
    """The sink of a watcher's list/watch: what has been reported, and what waits to be taken."""

    def __init__(self) -> None:
        self._memory: _Memory[T] = _Memory()
        self._events: asyncio.Queue[WatcherEvent[T] | None] = asyncio.Queue()
        self._taken = asyncio.Event()
        """Nothing waits."""

    async def take(self) -> WatcherEvent[T] | None:
        """The next event; None when there will be no more."""
        event = await self._events.get()
        if self._events.empty():
            self._taken.set()
        return event

    def end(self, _: asyncio.Task[None]) -> None:
        self._events.put_nowait(None)

    # Called by the driver.

    def begin(self, part: str, /) -> Snapshot[T]:
        return Snapshot()

    def put(self, entry: T | UndecodableObject, part: str, /) -> Awaitable[None] | None:
        return self._report(self._memory.seen(entry))

    def drop(self, entry: T | UndecodableObject, part: str, /) -> Awaitable[None] | None:
        return self._report(self._memory.gone(entry))

    async def listed(self, listed: Listed, entries: Snapshot[T], part: str, /) -> None:
        for event in self._memory.listed(listed, entries):
            if (room := self._report([event])) is not None:
                await room

    def interrupted(self, interruption: Interrupted, part: str, /, *, quiet: bool) -> Awaitable[None] | None:
        return self._report([interruption])

    def _report(self, events: Iterable[WatcherEvent[T]]) -> Awaitable[None] | None:
        for event in events:
            self._events.put_nowait(event)
        return self._room() if self._events.qsize() >= AHEAD else None

    async def _room(self) -> None:
        self._taken.clear()
        await self._taken.wait()
