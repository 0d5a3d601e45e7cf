"""Watches: streams of events.

    async with client.watch(Website, ALL) as events:
        async for event in events:
            match event:
                case Changed("DELETED", website): ...
                case Changed(_, website): ...
                case Bookmark(version): ...
                case Failed(_, error): ...

Guaranteed: events in the server's order; objects of any size that an API server can store; an object that does not
fit its class, or is of another kind, is a `Failed` event, and does not end the watch; with a `shard_selector`, only
events of objects with these hashes, even if the server ignores it, and a DELETED of what has lost them; an ERROR event
is raised as the error by cause (`Gone`: list again); silence longer than `idle_timeout` raises `Timeout`, a broken
connection `Unavailable`. A normal end, after the watch's `timeoutSeconds`, ends the iteration. Nothing is retried: the
reflector continues where a watch ended.

Any other line (invalid JSON or UTF-8, an unknown type, a bookmark without a version, an ERROR without a Status,
longer than `LONGEST_LINE`) raises `UnexpectedResponse`, an ApiError, which every consumer of a watch handles
anyway. Nothing that a server sends raises anything else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import cache
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

import msgspec

from kubeshard.client.connection import Connection, broken
from kubeshard.client.status import Status, from_status
from kubeshard.core.encoding import UNREADABLE, UndecodableObject, decode, decoder, partial
from kubeshard.core.errors import ApiError, UnexpectedResponse
from kubeshard.core.hash_ranges import HashRanges
from kubeshard.core.kinds import TypeMeta
from kubeshard.core.objects import Form, KubeObject, PartialObject, Struct
from kubeshard.runtime.transport import HttpRequest, HttpStream, TransportError

T = TypeVar("T", bound=KubeObject)

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
LONGEST_LINE = 64 * 1024 * 1024
"""Bytes. etcd accepts objects of 1.5 MB by default; what is this much longer is not an event."""

_KIND_WITHIN = 160
"""The kind is among the first members of an event; further inside, the same bytes may mean something else."""


ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


class Changed(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object was added, changed or removed. DELETED also means that the selector no longer matches it; its `object`
    is the last state.
    """

    type: ChangeType
    object: T


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """All events up to the version have been sent. `ends_initial_events`: these are all initial objects, in a watch
    with `send_initial_events`.
    """

    resource_version: str
    ends_initial_events: bool = False


class Failed(msgspec.Struct, frozen=True):
    """A change of an object that does not fit its class; `error` has its metadata, if that can be decoded."""

    type: ChangeType
    error: UndecodableObject


WatchEvent = Changed[T] | Bookmark | Failed


class _Event(Struct):
    type: str
    object: msgspec.Raw


class WatchStream(Generic[T]):
    """An asynchronous iterator over events, opened by `async with client.watch(...)`; iterate once."""

    def __init__(
        self,
        connection: Connection,
        form: Form[T],
        request: HttpRequest,
        shard_selector: HashRanges | None = None,
    ) -> None:
        self.foreign = 0
        """How many events came of objects that were not asked for: the server ignored the `shard_selector`."""
        self._connection = connection
        self._request = request
        self._hashes = shard_selector
        self._lines = EventDecoder(form)
        self._opened: AbstractAsyncContextManager[HttpStream] | None = None
        self._stream: HttpStream | None = None

    async def __aenter__(self) -> WatchStream[T]:
        self._opened = self._connection.stream(self._request)
        self._stream = await self._opened.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)

    async def __aiter__(self) -> AsyncIterator[WatchEvent[T]]:
        if self._stream is None:
            raise RuntimeError("open the watch first: async with client.watch(...) as events")
        try:
            async for chunk in self._stream.chunks():
                for event in self._lines.feed(chunk):
                    if self._hashes is None:
                        yield event
                    elif (selected := self._selected(event, self._hashes)) is not None:
                        yield selected
        except TransportError as error:
            raise broken(self._request, error) from error
        self._lines.finish()

    def _selected(self, event: WatchEvent[T], hashes: HashRanges) -> WatchEvent[T] | None:
        if isinstance(event, Bookmark):
            return event
        metadata = (event.object if isinstance(event, Changed) else event.error).metadata
        if hashes.may_select(metadata):
            return event
        self.foreign += not hashes.asked.may_select(metadata)
        return left(event) if hashes.moves else None


def left(event: Changed[T] | Failed) -> Changed[T] | Failed:
    """The event of an object that the selector has ceased to match."""
    return Changed("DELETED", event.object) if isinstance(event, Changed) else Failed("DELETED", event.error)


class EventDecoder(Generic[T]):
    """Bytes in, events out; sans I/O."""

    def __init__(self, form: Form[T]) -> None:
        self._form = form
        self._typed = _events_of(form.type)
        kind = "PartialObjectMetadata" if form.metadata_only else form.kind.kind
        self._kind = f'"kind":"{kind}"'.encode()
        self._partial: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> Iterable[WatchEvent[T]]:
        """Complete events. Raises ApiError (ERROR), UnexpectedResponse; unusable afterwards."""
        if not self._held and chunk.startswith(b"{") and chunk.find(b"\n") == len(chunk) - 1:
            return (self._event(chunk),)  # as nearly all arrive that are not part of a list
        return self._completed(chunk)

    def _completed(self, chunk: bytes) -> Iterator[WatchEvent[T]]:
        first, *more = chunk.split(b"\n")
        self._partial.append(first)
        self._held += len(first)
        if self._held > LONGEST_LINE:
            self._partial.clear()
            raise UnexpectedResponse(
                f"the watch of {self._form} sent a line of more than {LONGEST_LINE} bytes"
            )
        if not more:
            return
        lines = [b"".join(self._partial), *more]
        self._partial = [lines.pop()]
        self._held = len(self._partial[0])
        for line in lines:
            if line and not line.isspace():
                yield self._event(line)

    def finish(self) -> None:
        """Raises UnexpectedResponse where the stream ended within an event."""
        if b"".join(self._partial).strip():
            raise UnexpectedResponse(f"the watch of {self._form} ended within an event")

    def _event(self, line: bytes) -> WatchEvent[T]:
        if line.find(self._kind, 0, _KIND_WITHIN) >= 0:
            try:
                event: Changed[T] = self._typed.decode(line)
            except Exception:  # also what the class's own code raises; the slow path reports the details
                return self._unusual(line)
            if event.object.metadata.name:
                return event
        return self._unusual(line)

    def _unusual(self, line: bytes) -> WatchEvent[T]:
        try:
            event: _Event = decoder(_Event).decode(line)
        except UNREADABLE as error:
            raise UnexpectedResponse(f"the watch of {self._form} sent no event: {error}") from error
        match event.type:
            case "ERROR":
                raise self._error(event.object)
            case "BOOKMARK":
                return self._bookmark(event.object)
            case "ADDED" | "MODIFIED" | "DELETED" as type_:
                return self._change(type_, event.object)
            case unknown:
                raise UnexpectedResponse(
                    f"the watch of {self._form} sent an event of unknown type {unknown!r}"
                )

    def _error(self, raw: msgspec.Raw) -> ApiError:
        """The error of an ERROR event. It always has a code; 500 if the Status has none."""
        where = f"watch of {self._form}"
        try:
            status: Status = decoder(Status).decode(raw)
        except UNREADABLE as error:
            return UnexpectedResponse(f"{where}: an ERROR event without a Status: {error}", code=500)
        return from_status(where, status, status.code if status.code > 0 else 500)

    def _bookmark(self, raw: msgspec.Raw) -> Bookmark:
        try:
            metadata = decoder(PartialObject).decode(raw).metadata
        except UNREADABLE as error:
            raise UnexpectedResponse(
                f"the watch of {self._form} sent a BOOKMARK that is not an object: {error}"
            ) from error
        if metadata.resource_version in ("", "0"):
            raise UnexpectedResponse(f"the watch of {self._form} sent a BOOKMARK without a resourceVersion")
        return Bookmark(metadata.resource_version, metadata.annotation(INITIAL_EVENTS_END) == "true")

    def _change(self, type_: ChangeType, raw: msgspec.Raw) -> Changed[T] | Failed:
        try:
            return Changed(type_, self._object(raw))
        except UndecodableObject as error:
            return Failed(type_, error)

    def _object(self, raw: msgspec.Raw) -> T:
        """Raises UndecodableObject."""
        obj = decode(self._form, raw)
        try:
            kind = decoder(TypeMeta).decode(raw).kind
        except UNREADABLE as error:
            raise UndecodableObject(self._form, str(error), partial(self._form.kind, raw)) from error
        if not obj.metadata.name:
            raise UndecodableObject(self._form, "it has no name", None)
        if kind == self._form.kind.kind or (self._form.metadata_only and kind == "PartialObjectMetadata"):
            return obj
        raise UndecodableObject(self._form, f"its kind is {kind!r}", partial(self._form.kind, raw))


@cache
def _events_of(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(Changed[type_])
