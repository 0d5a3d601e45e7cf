"""Switches an informer between two scopes: the new one is listed while the old one stays in force.

The list/watches of the new scope fill a `Staging`. When each of them has listed everything, the exchange is prepared
while all list/watches wait; then the store is exchanged atomically, the old list/watches are stopped, and handlers are
called with the difference: objects that left are deleted (not final: most of them still exist), objects that entered
are added. Until then, the new list/watches wait.

Neither side is necessarily ahead of the other. Changes from the old list/watches win if they are newer than what the
new ones have listed, so no object goes back to an earlier state. If it is unknown whether the new scope includes such
an object, it is left out: the new list/watches will still report anything newer than their position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from kubeshard.cache.scope import ALL_NAMESPACES, Scope
from kubeshard.cache.snapshot import Advance, Apply, Receiver, Remove, Replace, Snapshot
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import Key, KubeObject
from kubeshard.core.versions import compare, newest
from kubeshard.listwatch.reflector import Interrupted

T = TypeVar("T", bound=KubeObject)


class _Heard(NamedTuple, Generic[T]):
    """A change from the old list/watches; `entry` None: the object left."""

    version: str
    entry: T | UndecodableObject | None


class Staging(Generic[T]):
    """Receives from the new list/watches, in place of `receiver`, to which it passes errors."""

    def __init__(self, kind: Kind, scope: Scope, parts: Iterable[str], receiver: Receiver[T]) -> None:
        self._kind = kind
        self._scope = scope
        self._receiver = receiver
        self._read: dict[str, tuple[str, Snapshot[T]]] = {}
        """The version and the objects of each part that has been fully listed."""
        self._unread = set(parts)
        self._heard: dict[Key, _Heard[T]] = {}
        self._closed = False
        self._told = asyncio.Event()
        self._complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Set when all parts have been listed."""
        if not self._unread:
            self._complete.set_result(None)

    async def completed(self, drivers: Iterable[asyncio.Task[NoReturn]]) -> None:
        """Waits until all parts have been listed, or a driver ends, which happens only if the informer ends."""
        either: list[asyncio.Future[Any]] = [self._complete, *drivers]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)

    # Called by the old list/watches

    def old(self, change: Replace[T] | Apply[T] | Remove[T] | Advance, gone: Iterable[Key] = ()) -> None:
        """A change while the new ones are listing. `gone`: what a full list no longer contained."""
        match change:
            case Apply(entry) | Remove(entry):
                assert entry.key is not None
                left = isinstance(change, Remove)
                self._heard[entry.key] = _Heard(entry.metadata.resource_version, None if left else entry)
            case Replace(entries, version):
                self._heard.update((key, _Heard(version, None)) for key in gone)
                for key, entry in entries.items():
                    self._heard[key] = _Heard(entry.metadata.resource_version, entry)

    # Called by the new list/watches

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
        await self._receiver.interrupted(interruption, part, again=again)

    def unreadable(self, error: UndecodableObject) -> None:
        self._receiver.unreadable(error)

    async def _later(self, change: Replace[T] | Apply[T] | Remove[T] | Advance, part: str) -> None:
        await self._told.wait()
        if isinstance(change, Replace):
            await self._receiver.replace(change, part)
        elif (room := self._receiver.apply(change, part)) is not None:
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
                found.drop(key)
        return found, versions

    def open(self) -> None:
        """Called when the difference has been reported: passes waiting changes to the receiver."""
        self._told.set()

    def _has(self, entry: T | UndecodableObject, *, known_before: bool) -> bool:
        certain = known_before or self._scope.judged_by_metadata
        return certain and self._scope.may_select(self._kind, entry.metadata)
