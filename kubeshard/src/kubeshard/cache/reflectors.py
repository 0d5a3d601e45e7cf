"""The list/watches of one informer: one for each namespace of its scope, or one for all; and its way to another scope.

The new scope is listed while the old one stays in force. Its list/watches fill a `Staging`. When each of them has
listed everything, the exchange is prepared while all list/watches wait; then the store is exchanged atomically, the old
list/watches are stopped, and handlers are called with the difference: objects that left are deleted (not final: most of
them still exist), objects that entered are added. Until then, the new list/watches wait.

Neither side is necessarily ahead of the other. Changes from the old list/watches win if they are newer than what the
new ones have listed, so no object goes back to an earlier state. If it is unknown whether the new scope includes such
an object, it is left out: the new list/watches will still report anything newer than their position.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from kubeshard.cache.scope import ALL_NAMESPACES, Scope
from kubeshard.cache.snapshot import Snapshot
from kubeshard.client.client import Client
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Form, Key, KubeObject
from kubeshard.core.versions import compare, newest
from kubeshard.listwatch.reflector import Interrupted, ListWatchStats, Reflector, Sink, Source
from kubeshard.listwatch.state_machine import Listed, SharedKnowledge

T = TypeVar("T", bound=KubeObject)
W = TypeVar("W")

CachingSink = Sink[T, Snapshot[T]]
"""Keeps what it receives, and takes full lists whole. The parts are namespaces, or ALL_NAMESPACES."""


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
        self._name = name
        self._form = form
        self._scope = scope
        self._sink = sink
        self._stats = stats
        self._client = client
        self._shared = shared
        self._arrive = arrive
        self._past_stale_events = 0
        """The counts of list/watches that have ended."""
        self._by_part = self._made(scope, scope.parts(form.kind), sink, stats)
        self._running: dict[str, asyncio.Task[NoReturn]] = {}
        """Those of the current scope, by part."""
        self._group: asyncio.TaskGroup | None = None

    @property
    def parts(self) -> Collection[str]:
        """The namespaces that are read separately, or ALL_NAMESPACES."""
        return self._by_part.keys()

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
        if self.staging is not None:
            raise RuntimeError(f"another scope of {self._name} is being read: wait for that, or cancel it")
        parts = scope.parts(self._form.kind)
        same = (scope.labels, scope.fields) == (self._scope.labels, self._scope.fields)
        kept = {part: self._by_part[part] for part in parts if same and part in self._by_part}
        fresh = [part for part in parts if part not in kept]
        staging = Staging(self._form.kind, scope, fresh, self._sink)
        stats = ListWatchStats(errors=self._stats.errors)
        reflectors = self._made(scope, fresh, staging, stats)
        new = NewScope(scope, staging, kept, reflectors, self._started(reflectors, group), stats, group)
        self.staging = staging
        try:
            await staging.completed(new.running.values())
            yield new
        finally:
            self.staging = None
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
        for part in [part for part in self._by_part if part not in new.kept]:
            self._past_stale_events += self._by_part[part].stale_events
            self._running.pop(part).cancel()
        self._running.update(new.running)
        self._by_part, self._scope = {**new.kept, **new.reflectors}, new.scope
        self._stats.add(new.stats)

    def opened(self, new: NewScope[T]) -> None:
        """Handlers have been called with the difference: the list/watches of the new scope go on."""
        for reflector in new.reflectors.values():
            reflector.redirect(self._sink, self._stats)
        new.staging.open()

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
        return next((r.last_error for r in self._by_part.values() if r.last_error is not None), None)

    def read_after(self, namespace: str, moment: float) -> bool:
        reflector = self._by_part.get(namespace) or self._by_part.get(ALL_NAMESPACES)
        return reflector is not None and reflector.read_since > moment

    @property
    def stale_events(self) -> int:
        return self._past_stale_events + sum(each.stale_events for each in self._by_part.values())

    def _made(
        self, scope: Scope, parts: Iterable[str], sink: CachingSink[T], stats: ListWatchStats
    ) -> dict[str, Reflector[T]]:
        made = {}
        for part in parts:
            namespace = ALL if part == ALL_NAMESPACES else part
            source = Source(self._client, self._form, namespace, labels=scope.labels, fields=scope.fields)
            made[part] = Reflector(
                source,
                sink,
                self._shared,
                part=part,
                stats=stats,
                arrive=self._arrive,
                log={"kind": self._form, **({"namespace": part} if part else {})},
            )
        return made

    def _started(
        self, reflectors: Mapping[str, Reflector[T]], group: asyncio.TaskGroup
    ) -> dict[str, asyncio.Task[NoReturn]]:
        return {
            part: group.create_task(reflector.keep_running(), name=f"reflector {self._form} {part}".rstrip())
            for part, reflector in reflectors.items()
        }


class NewScope(NamedTuple, Generic[T]):
    """Another scope, which has been listed."""

    scope: Scope
    staging: Staging[T]
    kept: Mapping[str, Reflector[T]]
    """List/watches that the current scope has, too."""
    reflectors: Mapping[str, Reflector[T]]
    """The others."""
    running: Mapping[str, asyncio.Task[NoReturn]]
    """Their tasks."""
    stats: ListWatchStats
    group: asyncio.TaskGroup


class _Heard(NamedTuple, Generic[T]):
    """A change from the old list/watches; `entry` None: the object left."""

    version: str
    entry: T | UndecodableObject | None


class Staging(CachingSink[T]):
    """Receives from the new list/watches, in place of `sink`, to which it passes errors."""

    def __init__(self, kind: Kind, scope: Scope, parts: Iterable[str], sink: CachingSink[T]) -> None:
        self._kind = kind
        self._scope = scope
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
        self._heard[entry.key] = _Heard(entry.metadata.resource_version, now)

    def heard_list(self, version: str, entries: Snapshot[T], gone: Iterable[Key]) -> None:
        """A full list, which no longer contained what is `gone`."""
        self._heard.update((key, _Heard(version, None)) for key in gone)
        for key, entry in entries.items():
            self._heard[key] = _Heard(entry.metadata.resource_version, entry)

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
        self._read[part] = newest(before, version), entries
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
        for key, (version, entry) in self._heard.items():
            known = versions.get(ALL_NAMESPACES) or versions.get(key.namespace)
            if not known or compare(version, known) <= 0:
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
