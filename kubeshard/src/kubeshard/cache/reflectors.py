"""The list/watches of one informer: one for each part of its scope; and its way to another scope.

The new scope is listed while the old one stays in force. Its list/watches fill a `Staging`. When each of them has
listed everything, the exchange is prepared while all list/watches wait; then the store is exchanged atomically, the old
list/watches are stopped, and handlers are called with the difference: objects that left are deleted (not final: most of
them still exist), objects that entered are added. Until then, the new list/watches wait.

Neither side is necessarily ahead of the other. Changes from the old list/watches win if they are newer than what the
new ones have listed, so no object goes back to an earlier state. If it is unknown whether the new scope includes such
an object, it is left out: the new list/watches will still report anything newer than their position.

What both scopes have is neither listed again nor interrupted: the list/watch of a namespace stays, and so does that of
some hashes, for those of them that are in both. It goes on asking for the others until it asks anew, and leaves out
what the server sends of them. Hashes that are only in the new scope have a list/watch of their own, whose list is
requested after the call, even if the server still sends changes of them to another one.

List/watches of the same namespace are joined when one of them is about to open a watch anew, which all of them do after
some minutes, and at once if there are more than MOST_PARTS. One watch then continues all of them from the oldest of
their positions; of hashes that had got further, it leaves out what is known, so nothing is repeated, and nothing that
was deleted comes back.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import reduce
from operator import or_
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from kubeshard.cache.scope import ALL_NAMESPACES, Part, Parts, Scope, whole
from kubeshard.cache.snapshot import Snapshot
from kubeshard.client.client import Client
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import ApiError
from kubeshard.core.hash_ranges import HashRanges
from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Form, Key, KubeObject, ObjectMeta
from kubeshard.core.versions import at_least, newest, oldest, precedes
from kubeshard.listwatch.reflector import Interrupted, ListWatchStats, Position, Reflector, Sink, Source
from kubeshard.listwatch.state_machine import Listed, SharedKnowledge

T = TypeVar("T", bound=KubeObject)
W = TypeVar("W")

CachingSink = Sink[T, Snapshot[T]]
"""Keeps what it receives, and takes full lists whole."""

_OF_HASHES = "#"
"""Between the namespace and the number in the name of a part that has some of the hashes; in no namespace's name."""


MOST_PARTS = 3
"""Of one namespace, as far as their list/watches follow the server."""


def namespace_of_part(name: str) -> str:
    """The namespace of the part with this name, or ALL_NAMESPACES."""
    return name.partition(_OF_HASHES)[0]


class Reflectors(Generic[T]):
    """`sink`, called `name`, gets what they read. They run in a task group while they have one."""

    def __init__(
        self,
        name: str,
        form: Form[T],
        scope: Scope,
        sink: CachingSink[T],
        stats: ListWatchStats,
        client: Client,
        *,
        shared: SharedKnowledge,
        arrive: Callable[[T], T | UndecodableObject | None] | None,
    ) -> None:
        self.staging: Staging[T] | None = None
        """Set while another scope is being listed."""
        self._listing: Mapping[str, Reflector[T]] = {}
        self._name = name
        self._form = form
        self._scope = scope
        self._sink = sink
        self._stats = stats
        self._client = client
        self._shared = shared
        self._arrive = arrive
        self._past_stale_events = 0
        self._numbers = itertools.count(1)
        self.parts: Parts = self._lacking(scope, {})
        self._by_part = self._made(scope, self.parts, sink, stats)
        self._running: dict[str, asyncio.Task[NoReturn]] = {}
        """Those of the current scope, by part."""
        self._group: asyncio.TaskGroup | None = None

    def run_in(self, group: asyncio.TaskGroup | None) -> None:
        """Runs them in the group from now on; None: they have been cancelled."""
        self._group = group
        self._running = {} if group is None else self._started(self._by_part, group)

    @asynccontextmanager
    async def reading(self, scope: Scope) -> AsyncIterator[NewScope[T]]:
        """Lists another scope. The block may `exchange` the current one for it; else the new list/watches end."""
        group = self._group
        if group is None:
            raise RuntimeError(
                f"{self._name} does not run, so no other scope can be read: run the cache first"
            )
        assert self.staging is None
        kept = self._common(scope)
        fresh = self._lacking(scope, kept)
        staging = Staging(self._form.kind, scope, fresh, self._sink)
        stats = ListWatchStats(errors=self._stats.errors)
        reflectors = self._made(scope, fresh, staging, stats)
        running = self._started(reflectors, group)
        new = NewScope(scope, staging, kept, {**kept, **fresh}, reflectors, running, stats, group)
        self.staging, self._listing = staging, reflectors
        try:
            await staging.completed(new.running.values())
            yield new
        finally:
            self.staging, self._listing = None, {}
            if self._scope is not scope:
                for task in new.running.values():
                    task.cancel()

    def exchange(self, new: NewScope[T], exchanging: Callable[[], None]) -> None:
        """The new scope is the current one from here on. `exchanging` is called just before. If it raises, or these do
        not run any more, which is a RuntimeError, the old scope stays.
        """
        if self._group is not new.group:
            raise RuntimeError(f"{self._name} was stopped while another scope was read")
        exchanging()
        self._end([name for name in self._by_part if name not in new.kept])
        self._running.update(new.running)
        for name, part in new.kept.items():
            self._by_part[name].select(part.hashes)
        self._by_part.update(new.reflectors)
        self._scope, self.parts = new.scope, new.parts
        self._stats.add(new.stats)

    def opened(self, new: NewScope[T]) -> None:
        """Handlers have been called with the difference: the list/watches of the new scope go on."""
        for reflector in new.reflectors.values():
            reflector.redirect(self._sink, self._stats)
        new.staging.open()

    def following(self, place: str) -> Mapping[str, HashRanges]:
        """The hashes of the namespace's list/watches that follow the server; nothing if it has none with hashes."""
        return {
            name: part.hashes
            for name, part in self.parts.items()
            if part.namespace == place and part.hashes is not None and self._by_part[name].following
        }

    def join(self, place: str, versions: Mapping[str, str]) -> Mapping[str, str]:
        """Makes one list/watch of those of the namespace that follow the server, and cancels them. `versions`: up to
        which they have passed everything on. Returns the new part, with its version; nothing if there are no two.
        """
        hashes = self.following(place)
        if self._group is None or self.staging is not None or len(hashes) < 2:
            return {}
        version = oldest(versions[name] for name in hashes)
        known = tuple((hashes[name], versions[name]) for name in hashes if versions[name] != version)
        made = {self._new_name(place): Part(place, reduce(or_, hashes.values()))}
        reflectors = self._made(self._scope, made, self._sink, self._stats)
        for reflector in reflectors.values():
            reflector.resume(Position(version, known), [self._by_part[name] for name in hashes])
        self._end(hashes)
        self.parts = {name: part for name, part in self.parts.items() if name not in hashes} | made
        self._by_part.update(reflectors)
        self._running.update(self._started(reflectors, self._group))
        return dict.fromkeys(made, version)

    # Health

    @property
    def last_heard(self) -> float | None:
        """See `Informer`."""
        heard = [reflector.last_heard for reflector in self._by_part.values()]
        return None if None in heard else min((time for time in heard if time is not None), default=None)

    @property
    def last_answered(self) -> float | None:
        answered = [reflector.last_answered for reflector in self._by_part.values()]
        return max((time for time in answered if time is not None), default=None)

    @property
    def last_error(self) -> ApiError | None:
        return _error_of(self._by_part.values())

    @property
    def listing_error(self) -> ApiError | None:
        """See `Informer`."""
        return _error_of(self._listing.values())

    def read_after(self, namespace: str, moment: float, uid: str) -> bool:
        reflector = self._by_part.get(namespace) or self._by_part.get(ALL_NAMESPACES)
        if reflector is not None:
            return reflector.read_since > moment
        for each in self._by_part.values():
            if each.read_since > moment:
                break
        else:
            return False  # as nearly always: whatever part would have it
        found = False
        for name, part in self.parts.items():
            if part.may_have(namespace, uid):
                if self._by_part[name].read_since <= moment:
                    return False
                found = True
        return found

    def doubt(self, namespace: str, uid: str, since: float) -> None:
        """See `Informer`."""
        for name, part in self.parts.items():
            if part.may_have(namespace, uid):
                self._by_part[name].doubt(since)

    def narrowed(self, part: str) -> bool:
        """Whether the server still sends objects that have left the part."""
        return self._by_part[part].narrowed

    @property
    def stale_events(self) -> int:
        return self._past_stale_events + sum(each.stale_events for each in self._by_part.values())

    def _made(
        self, scope: Scope, parts: Parts, sink: CachingSink[T], stats: ListWatchStats
    ) -> dict[str, Reflector[T]]:
        made = {}
        for name, (namespace, hashes) in parts.items():
            source = Source(
                self._client,
                self._form,
                ALL if namespace == ALL_NAMESPACES else namespace,
                labels=scope.labels,
                fields=scope.fields,
                hashes=hashes,
            )
            made[name] = Reflector(
                source,
                sink,
                self._shared,
                part=name,
                stats=stats,
                arrive=self._arrive,
                log={"kind": self._form, **({"namespace": namespace} if namespace else {})},
            )
        return made

    def _common(self, scope: Scope) -> Parts:
        """What the parts of the current scope have in common with another scope."""
        if (scope.labels, scope.fields) != (self._scope.labels, self._scope.fields):
            return {}
        kept: dict[str, Part] = {}
        places = scope.parts(self._form.kind)
        for name, (namespace, hashes) in self.parts.items():
            if namespace not in places:
                continue
            if hashes is None or scope.hashes is None:
                if hashes is scope.hashes:
                    kept[name] = Part(namespace)
            elif hashes.field == scope.hashes.field and (common := hashes & scope.hashes):
                kept[name] = Part(namespace, common)
        return kept

    def _lacking(self, scope: Scope, kept: Parts) -> Parts:
        """What is in the scope and in none of the parts."""
        places = scope.parts(self._form.kind)
        if scope.hashes is None:
            return whole(place for place in places if place not in kept)
        lacking: dict[str, Part] = {}
        for place in places:
            hashes = scope.hashes
            for part in kept.values():
                if part.namespace == place and part.hashes is not None:
                    hashes -= part.hashes
            if hashes:
                lacking[self._new_name(place)] = Part(place, hashes)
        return lacking

    def _new_name(self, place: str) -> str:
        return f"{place}{_OF_HASHES}{next(self._numbers)}"

    def _end(self, names: Iterable[str]) -> None:
        for name in names:
            self._past_stale_events += self._by_part.pop(name).stale_events
            self._running.pop(name).cancel()

    def _started(
        self, reflectors: Mapping[str, Reflector[T]], group: asyncio.TaskGroup
    ) -> dict[str, asyncio.Task[NoReturn]]:
        return {
            part: group.create_task(reflector.keep_running(), name=f"reflector {self._form} {part}".rstrip())
            for part, reflector in reflectors.items()
        }


def _error_of(reflectors: Iterable[Reflector[Any]]) -> ApiError | None:
    return next((each.last_error for each in reflectors if each.last_error is not None), None)


class NewScope(NamedTuple, Generic[T]):
    """Another scope, which has been listed."""

    scope: Scope
    staging: Staging[T]
    kept: Parts
    """What list/watches of the current scope go on with."""
    parts: Parts
    """These, and those of the new list/watches."""
    reflectors: Mapping[str, Reflector[T]]
    running: Mapping[str, asyncio.Task[NoReturn]]
    stats: ListWatchStats
    group: asyncio.TaskGroup


class _Heard(NamedTuple, Generic[T]):
    """A change from the old list/watches; `entry` None: the object left."""

    version: str
    metadata: ObjectMeta
    entry: T | UndecodableObject | None


class Staging(CachingSink[T]):
    """Receives from the new list/watches, in place of `sink`, to which it passes errors."""

    def __init__(self, kind: Kind, scope: Scope, parts: Parts, sink: CachingSink[T]) -> None:
        self._kind = kind
        self._scope = scope
        self._parts = parts
        self._sink = sink
        self._read: dict[str, tuple[str, Snapshot[T]]] = {}
        """The version and the objects of each part that has been fully listed."""
        self._unread = set(parts)
        self._heard: dict[Key, _Heard[T]] = {}
        self._closed = False
        self._opened = asyncio.Event()
        self._complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Set when all parts have been listed."""
        if not self._unread:
            self._complete.set_result(None)

    async def completed(self, drivers: Iterable[asyncio.Task[NoReturn]]) -> None:
        """Waits until all parts have been listed, or a driver ends, which happens only if the informer ends."""
        either: list[asyncio.Future[Any]] = [self._complete, *drivers]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)

    # Called by the old list/watches

    def heard(self, entry: T | UndecodableObject, now: T | UndecodableObject | None) -> None:
        """A change while the new ones are listing. `now` None: it left."""
        assert entry.key is not None
        self._heard[entry.key] = _Heard(entry.metadata.resource_version, entry.metadata, now)

    def heard_list(self, version: str, entries: Snapshot[T], gone: Iterable[T]) -> None:
        """A full list, which no longer contained what is `gone`."""
        self._heard.update((obj.key, _Heard(version, obj.metadata, None)) for obj in gone)
        for key, entry in entries.items():
            self._heard[key] = _Heard(entry.metadata.resource_version, entry.metadata, entry)

    # Called by the new list/watches

    def begin(self, part: str, /) -> Snapshot[T]:
        return Snapshot()

    def put(self, entry: T | UndecodableObject, part: str, /) -> Awaitable[None] | None:
        if self._closed:
            return self._later(self._sink.put, entry, part)
        self._read_up_to(entry.metadata.resource_version, part).put(entry)
        return None

    def drop(self, entry: T | UndecodableObject, part: str, /) -> Awaitable[None] | None:
        if self._closed:
            return self._later(self._sink.drop, entry, part)
        self._read_up_to(entry.metadata.resource_version, part).drop(entry)
        return None

    def advance(self, version: str, part: str, /) -> Awaitable[None] | None:
        if self._closed:
            return self._later(self._sink.advance, version, part)
        self._read_up_to(version, part)
        return None

    async def listed(self, listed: Listed, entries: Snapshot[T], part: str, /) -> None:
        if self._closed:
            await self._opened.wait()
            if (room := self._sink.listed(listed, entries, part)) is not None:
                await room
            return
        self._read[part] = listed.resource_version, entries
        self._unread.discard(part)
        if not self._unread and not self._complete.done():
            self._complete.set_result(None)

    def interrupted(self, interruption: Interrupted, part: str, /, *, quiet: bool) -> Awaitable[None] | None:
        return self._sink.interrupted(interruption, part, quiet=quiet)

    def unreadable(self, error: UndecodableObject, /) -> None:
        self._sink.unreadable(error)

    def _read_up_to(self, version: str, part: str) -> Snapshot[T]:
        """The objects of the part, which has been read up to this version."""
        before, entries = self._read[part]
        self._read[part] = newest(version, before), entries
        return entries

    async def _later(self, step: Callable[[W, str], Awaitable[None] | None], what: W, part: str) -> None:
        await self._opened.wait()
        if (room := step(what, part)) is not None:
            await room

    # The exchange

    def close(self) -> tuple[Snapshot[T], dict[str, str]]:
        """The objects of the new parts, and their versions. Later changes wait for `open`."""
        self._closed = True
        versions = {part: version for part, (version, _) in self._read.items()}
        found: Snapshot[T] = Snapshot()
        for _, entries in self._read.values():
            found.take(entries)
        for key, (version, metadata, entry) in self._heard.items():
            part = next((name for name, part in self._parts.items() if part.may_contain(metadata)), None)
            if part is None:
                if key in found and precedes(found[key].metadata.resource_version, version):
                    found.discard(key)  # it has moved, and its list/watch is behind
                continue
            if at_least(versions[part], version):
                continue
            if entry is not None and self._has(entry, known_before=key in found):
                found.put(entry)
            else:
                found.discard(key)
        return found, versions

    def open(self) -> None:
        """Called when the difference has been reported: passes waiting changes to the sink."""
        self._opened.set()

    def _has(self, entry: T | UndecodableObject, *, known_before: bool) -> bool:
        certain = known_before or self._scope.judged_by_metadata
        return certain and self._scope.may_select(self._kind, entry.metadata)
