"""Splits the bytes of a list response into objects before all of it has arrived.

Guaranteed: the same objects in the same order however the bytes are cut into chunks; at most a batch of them is
buffered, whatever the length of the list; one object that does not fit its class does not fail the others.

How: the JSON parser itself finds the boundaries, at its own speed. If the bytes so far end at an object of
`items`, appending `]` gives a valid JSON array; anywhere else (inside a string, or deeper) it does not. So a batch
is decoded up to the last place that looks like a boundary, and if that was not one, up to the place before.
Objects in the server's usual compact form all start with the same member, which makes a wrong guess rare. Not
guaranteed: bounded memory for a response with blanks between objects, which no API server sends by default; it
is then decoded as a whole at its end.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from kubeshard.core.encoding import UNREADABLE, UndecodableObject, decode, decoder
from kubeshard.core.errors import UnexpectedResponse
from kubeshard.core.objects import Form, KubeObject, Struct

T = TypeVar("T", bound=KubeObject)
Item = TypeVar("Item")

BATCH_BYTES = 256 * 1024
"""How much is decoded at once: a millisecond or two of the loop's time."""

_GUESSES = 8
_ITEMS = b'"items":['
_HEAD_LIMIT = 64 * 1024


class ListMeta(Struct):
    """metav1.ListMeta. `continue_` is the token for the next page, empty on the last."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class _Envelope(Struct, Generic[Item]):
    items: list[Item] | None
    api_version: str = ""
    kind: str = ""
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)


class ListSplitter(Generic[T]):
    """Bytes in, objects out. After `finish`, `metadata` is that of the list."""

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
        """Bytes waiting to become objects."""
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
