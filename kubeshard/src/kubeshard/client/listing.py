"""Lists, object by object.

Guaranteed: all objects are from one snapshot, that of `resource_version` after the end; memory is bounded by a page
(`page_size`), or by a batch if one response of any length is requested (`page_size=None`); a response that is not a
list of the kind is an error, never an empty list; an object that does not fit its class is put into `undecodable`,
and the others are returned. With a `shard_selector`, only objects with these hashes are returned, even if the server
ignores it.

A page is read completely before its first object is returned: a page is small, and a slow consumer keeps no
connection open and does not run into the server's request timeout. Without pages objects are returned as the bytes
arrive.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from functools import cache
from typing import Any, Generic, TypeVar, cast

import msgspec

from kubeshard.client.connection import Connection, broken
from kubeshard.client.requests import query, selectors
from kubeshard.core.encoding import UNREADABLE, UndecodableObject, decode, decoder
from kubeshard.core.errors import Gone, UnexpectedResponse
from kubeshard.core.hash_ranges import HashRanges
from kubeshard.core.objects import Form, KubeObject, Struct
from kubeshard.core.selectors import FieldSelector, Selector
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.transport import HttpRequest, TransportError

log = get_logger("kubeshard.client")

T = TypeVar("T", bound=KubeObject)


class ListStream(Generic[T]):
    """An asynchronous iterator over the objects of a list; iterate once.

    If the snapshot expires between two pages (they took longer than the compaction interval), the objects so far
    are invalid: `on_restart`, if given, is called and everything is listed again as one response; without it
    iteration raises Gone.
    """

    def __init__(
        self,
        connection: Connection,
        form: Form[T],
        path: str,
        headers: Mapping[str, str],
        *,
        label_selector: Selector | None,
        field_selector: FieldSelector | None,
        shard_selector: HashRanges | None,
        page_size: int | None,
        resource_version: str,
        timeout: float,
        on_restart: Callable[[], object] | None,
    ) -> None:
        self._connection = connection
        self._form = form
        self._path = path
        self._headers = headers
        self._selectors = selectors(label_selector, field_selector, shard_selector)
        self._hashes = shard_selector
        self._page_size = page_size
        self._from_version = resource_version
        self._timeout = timeout
        self._on_restart = on_restart
        self.resource_version = ""
        """The version of the snapshot, known after the end: where a watch continues."""
        self.read_at = 0.0
        """When (monotonic) the objects currently returned had arrived."""
        self.undecodable: list[UndecodableObject] = []
        """Objects that did not fit the class, with their metadata only."""
        self.shard_info = ""
        """The `shard_selector` that the server says it has applied, known after the end. Only some lists say so."""
        self.foreign = 0
        """How many objects came that were not asked for: the server ignored the `shard_selector`."""

    async def __aiter__(self) -> AsyncIterator[T]:
        async with aclosing(self.pages()) as pages:
            async for page in pages:
                for obj in page:
                    yield obj

    async def pages(self) -> AsyncGenerator[list[T], None]:
        """The objects page by page, or as they arrive together: for many, of which little is wanted of each."""
        token = ""
        while True:
            splitter = ListSplitter(self._form)
            try:
                body = await self._connection.send(self._request(token)) if self._page_size else None
            except Gone:
                if not token or self._on_restart is None:
                    raise
                log.info("The snapshot of a paged list expired: reading it as one response", kind=self._form)
                self._on_restart()
                self.undecodable.clear()
                self._page_size, self._from_version, token = None, "", ""
                continue
            self.read_at = self._connection.clock.monotonic()
            if body is None:
                async with aclosing(self._streamed(splitter)) as together:
                    async for objects in together:
                        yield objects
            else:
                yield self._sound([*splitter.feed(body), *splitter.finish()])
            token = splitter.metadata.continue_
            if not token:
                self.resource_version = splitter.metadata.resource_version
                if splitter.metadata.shard_info is not None:
                    self.shard_info = splitter.metadata.shard_info.selector
                return

    async def first_page(self) -> str:
        """Reads one page, and returns only the version of the snapshot. Use it instead of iterating."""
        splitter = ListSplitter(self._form)
        splitter.feed(await self._connection.send(self._request("")))
        splitter.finish()
        return splitter.metadata.resource_version

    async def _streamed(self, splitter: ListSplitter[T]) -> AsyncGenerator[list[T], None]:
        request = self._request("")
        async with self._connection.stream(request) as stream:
            try:
                async for chunk in stream.chunks():
                    self.read_at = self._connection.clock.monotonic()
                    if objects := splitter.feed(chunk):
                        yield self._sound(objects)
            except TransportError as error:
                raise broken(request, error) from error
        yield self._sound(splitter.finish())

    def _sound(self, objects: list[T | UndecodableObject]) -> list[T]:
        if self._hashes is not None:
            objects = [obj for obj in objects if self._selected(obj, self._hashes)]
        if UndecodableObject not in map(type, objects):
            return cast(list[T], objects)
        self.undecodable.extend(obj for obj in objects if isinstance(obj, UndecodableObject))
        return [obj for obj in objects if not isinstance(obj, UndecodableObject)]

    def _selected(self, obj: T | UndecodableObject, hashes: HashRanges) -> bool:
        selected = hashes.may_select(obj.metadata)
        if not selected:
            self.foreign += not hashes.asked.may_select(obj.metadata)
        return selected

    def _request(self, token: str) -> HttpRequest:
        # A continue token includes the snapshot: a version in addition to it is refused.
        position = {"continue": token} if token else {"resourceVersion": self._from_version}
        target = self._path + query({**self._selectors, "limit": self._page_size, **position})
        return HttpRequest("GET", target, self._headers, None, self._timeout, self._timeout)


Item = TypeVar("Item")

BATCH_BYTES = 256 * 1024
"""How much is decoded at once: a millisecond or two of the loop's time."""

_GUESSES = 8
_ITEMS = b'"items":['
_HEAD_LIMIT = 64 * 1024


class ShardInfo(Struct):
    selector: str = ""


class ListMeta(Struct):
    """metav1.ListMeta. `continue_` is the token for the next page, empty on the last."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    shard_info: ShardInfo | None = None


class _Envelope(Struct, Generic[Item]):
    items: list[Item] | None
    api_version: str = ""
    kind: str = ""
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)


class ListSplitter(Generic[T]):
    """Splits the bytes of a list response into objects before all of it has arrived. After `finish`, `metadata` is that
    of the list.

    Guaranteed: the same objects in the same order however the bytes are cut into chunks; at most a batch of them is
    buffered, whatever the length of the list; one object that does not fit its class does not fail the others.

    How: the JSON parser itself finds the boundaries, at its own speed. If the bytes so far end at an object of
    `items`, appending `]` gives a valid JSON array; anywhere else (inside a string, or deeper) it does not. So a batch
    is decoded up to the last place that looks like a boundary, and if that was not one, up to the place before.
    Objects in the server's usual compact form all start with the same member, which makes a wrong guess rare. Not
    guaranteed: bounded memory for a response with blanks between objects, which no API server sends by default; it
    is then decoded as a whole at its end.
    """

    def __init__(self, form: Form[T], *, batch_bytes: int = BATCH_BYTES) -> None:
        self._form = form
        self._batch_bytes = batch_bytes
        self._many: msgspec.json.Decoder[list[T]] = _many(form.type)
        self._chunks: list[bytes] = []
        self._size = 0
        self._threshold = batch_bytes
        self._head: bytes | None = None
        """What precedes the first object, once `items` has been found; objects are cut off after it."""
        self._separator = b""
        self.metadata = ListMeta()

    @property
    def held(self) -> int:
        return self._size

    def feed(self, chunk: bytes) -> list[T | UndecodableObject]:
        """The objects that are now complete and were not returned before."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size < self._threshold:
            return []
        rest = self._joined()
        if self._head is None:
            rest = self._behind_head(rest)
        objects: list[T | UndecodableObject] = []
        if self._head is not None:
            objects, rest = self._cut(rest)
        self._chunks, self._size = [rest], len(rest)
        # What could not be split is tried again only when it has doubled: the work stays linear.
        self._threshold = max(self._batch_bytes, 2 * len(rest))
        return objects

    def finish(self) -> list[T | UndecodableObject]:
        """The remaining objects. Raises UnexpectedResponse for what is not a list of the kind."""
        body = (self._head or b"") + self._joined()
        objects: list[T | UndecodableObject]
        try:
            envelope = _envelope(self._form.type).decode(body)
            objects = envelope.items or []
        except Exception:  # also what the class's own code raises
            try:
                envelope = _envelope(msgspec.Raw).decode(body)
            except UNREADABLE as error:
                raise UnexpectedResponse(
                    f"this is not a complete list of {self._form.kind}: {error}"
                ) from error
            objects = [_one(self._form, raw) for raw in envelope.items or ()]
        expected = {self._form.kind.api_version} | ({"meta.k8s.io/v1"} if self._form.metadata_only else set())
        if envelope.api_version not in expected or not envelope.kind.endswith("List"):
            got = f"{envelope.kind or 'no kind'} of {envelope.api_version or 'no apiVersion'}"
            raise UnexpectedResponse(f"asked for a list of {self._form.kind}, got {got}")
        self.metadata = envelope.metadata
        return objects

    def _joined(self) -> bytes:
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    def _behind_head(self, body: bytes) -> bytes:
        at = body.find(_ITEMS, 0, _HEAD_LIMIT)
        while at >= 0:
            head = body[: at + len(_ITEMS)]
            if _is_json(head + b"]}"):
                self._head = head
                rest = body[len(head) :]
                # `{"metadata":` or `{"apiVersion":`: all objects start like the first one.
                self._separator = b"}," + rest[: rest.find(b":", 0, 64) + 1]
                return rest
            at = body.find(_ITEMS, at + 1, _HEAD_LIMIT)
        return body

    def _cut(self, body: bytes) -> tuple[list[T | UndecodableObject], bytes]:
        end = len(body)
        for _ in range(_GUESSES):
            end = body.rfind(self._separator, 0, end)
            if end < 0:
                break
            batch = b"[%b}]" % body[:end]
            try:
                return self._many.decode(batch), body[end + 2 :]  # type: ignore[return-value] # list is invariant
            except Exception as error:  # also what the class's own code raises
                if type(error) is msgspec.DecodeError:
                    continue  # invalid JSON: not a boundary
                try:
                    raws = decoder(list[msgspec.Raw]).decode(batch)
                except UNREADABLE:
                    continue
                return [_one(self._form, raw) for raw in raws], body[end + 2 :]
        return [], body


def _one(form: Form[T], raw: msgspec.Raw) -> T | UndecodableObject:
    try:
        return decode(form, raw)
    except UndecodableObject as error:
        return error


def _is_json(text: bytes) -> bool:
    try:
        decoder(msgspec.Raw).decode(text)
    except UNREADABLE:
        return False
    return True


@cache
def _many(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(list[type_])


@cache
def _envelope(type_: Any) -> msgspec.json.Decoder[_Envelope[Any]]:
    return msgspec.json.Decoder(_Envelope[type_])
