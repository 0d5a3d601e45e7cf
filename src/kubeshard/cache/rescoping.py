"""Between two scopes of one informer: the new one is read beside the old one, which stays in force meanwhile.

The list/watches of the new scope fill a `Staging`. When each of them has read everything, the exchange is prepared,
while all list/watches wait; then the store is exchanged at one stroke, the old list/watches are stopped, and handlers
are told the difference: what left as deleted (not final: most of it still exists), what came as added. Until they have
been told, the new list/watches wait.

Neither side is ahead of the other for certain. What the old list/watches told meanwhile counts where it is newer than
what the new ones have read, so no object goes back to an earlier state. Where it cannot be said whether the new scope
has such an object it is left out: what is newer than their position, the new list/watches have still to tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from kubeshard.cache.listwatch import Advance, Apply, Remove, Replace
from kubeshard.cache.reflector import Interrupted, Sink
from kubeshard.cache.scope import ALL_NAMESPACES, Scope
from kubeshard.cache.snapshot import Snapshot
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import Key, KubeObject
from kubeshard.core.versions import compare, newest

T = TypeVar("T", bound=KubeObject)


class _Heard(NamedTuple, Generic[T]):
    """From the old list/watches; `entry` None: it left."""

    version: str
    entry: T | UndecodableObject | None


class Staging(Generic[T]):
    """The sink of the new list/watches, in the place of `sink`, which it hands what goes wrong."""

    def __init__(self, kind: Kind, scope: Scope, parts: Iterable[str], sink: Sink[T]) -> None:
        self._kind = kind
        self._scope = scope
        self._sink = sink
        self._read: dict[str, tuple[str, Snapshot[T]]] = {}
        """The version and the objects of each part that has been read in full."""
        self._unread = set(parts)
        self._heard: dict[Key, _Heard[T]] = {}
        self._closed = False
        self._told = asyncio.Event()
        self._complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """All parts have been read."""
        if not self._unread:
            self._complete.set_result(None)

    async def completed(self, drivers: Iterable[asyncio.Task[NoReturn]]) -> None:
        """Waits until all parts have been read, or a driver ends: of which there is no other reason than that the
        informer does.
        """
        either: list[asyncio.Future[Any]] = [self._complete, *drivers]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)

    # From the old list/watches

    def old(self, change: Replace[T] | Apply[T] | Remove[T] | Advance, gone: Iterable[Key] = ()) -> None:
        """What they tell while the new ones read. `gone`: what a full read did not find any more."""
        match change:
            case Apply(entry) | Remove(entry):
                assert entry.key is not None
                left = isinstance(change, Remove)
                self._heard[entry.key] = _Heard(entry.metadata.resource_version, None if left else entry)
            case Replace(entries, version):
                self._heard.update((key, _Heard(version, None)) for key in gone)
                for key, entry in entries.items():
                    self._heard[key] = _Heard(entry.metadata.resource_version, entry)

    # From the new list/watches

    def apply(self, change: Apply[T] | Remove[T] | Advance, part: str) -> Awaitable[None] | None:
        if self._closed:
            return self._later(change, part)
        version, entries = self._read[part]
        if isinstance(change, Advance):
            self._read[part] = newest(version, change.resource_version), entries
            return None
        key = change.entry.key
        assert key is not None
        self._read[part] = newest(version, change.entry.metadata.resource_version), entries
        if isinstance(change, Apply):
            entries.put(change.entry)
        else:
            entries.drop(key)
        return None

    async def replace(self, change: Replace[T], part: str) -> None:
        if self._closed:
            await self._later(change, part)
            return
        entries = change.entries
        read = entries if isinstance(entries, Snapshot) else Snapshot(entries.values())
        self._read[part] = change.resource_version, read
        self._unread.discard(part)
        if not self._unread and not self._complete.done():
            self._complete.set_result(None)

    async def interrupted(self, interruption: Interrupted, part: str, *, again: bool) -> None:
        await self._sink.interrupted(interruption, part, again=again)

    def unreadable(self, error: UndecodableObject) -> None:
        self._sink.unreadable(error)

    async def _later(self, change: Replace[T] | Apply[T] | Remove[T] | Advance, part: str) -> None:
        await self._told.wait()
        if isinstance(change, Replace):
            await self._sink.replace(change, part)
        elif (room := self._sink.apply(change, part)) is not None:
            await room

    # The exchange

    def close(self) -> tuple[Snapshot[T], dict[str, str]]:
        """What the new parts hold, and up to which version. What comes from now on waits for `open`."""
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
                found.drop(key)
        return found, versions

    def open(self) -> None:
        """The difference has been told: what waits goes to the sink."""
        self._told.set()

    def _has(self, entry: T | UndecodableObject, *, known_before: bool) -> bool:
        certain = known_before or self._scope.judged_by_metadata
        return certain and self._scope.may_select(self._kind, entry.metadata)
