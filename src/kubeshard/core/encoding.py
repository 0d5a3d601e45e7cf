"""Objects to and from the wire.

Guaranteed: what is encoded has `apiVersion` and `kind`; decoding reads only the fields that the class
declares, and null as the field's default, as Go does; an object that does not fit its class raises
`UndecodableObject` with the metadata, so that one bad object never hides its neighbours. Not guaranteed: that
a decoded object encodes to what was read (undeclared fields are gone; see `KubeObject`).
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec

from kubeshard.core.errors import KubeshardError
from kubeshard.core.kinds import Kind
from kubeshard.core.nulls import without_nulls
from kubeshard.core.objects import Form, Key, KubeObject, ObjectMeta, PartialObject, metadata_only

T = TypeVar("T", bound=KubeObject)
Encoded = bytes | bytearray | memoryview | msgspec.Raw


class UndecodableObject(KubeshardError):
    """An object that does not fit its class. `partial` holds what identifies it, or None if even the metadata
    is broken.
    """

    def __init__(self, form: Form[Any], problem: str, partial: PartialObject | None) -> None:
        name = f" {partial.key}" if partial else ""
        super().__init__(f"{form.kind}{name} does not fit {form.type.__name__}: {problem}")
        self.kind = form.kind
        self.partial = partial

    @property
    def key(self) -> Key | None:
        return self.partial.key if self.partial else None

    @property
    def metadata(self) -> ObjectMeta:
        return self.partial.metadata if self.partial else ObjectMeta()


@cache
def decoder(type_: type[Any]) -> msgspec.json.Decoder[Any]:
    """The decoder of a type; building one costs far more than using it."""
    return msgspec.json.Decoder(type_)


def decode(form: Form[T], data: Encoded) -> T:
    """One object. Raises UndecodableObject."""
    try:
        decoded: T = decoder(form.type).decode(data)
    except msgspec.DecodeError:
        # Nulls are looked for only in what does not decode as it is: well-formed objects pay nothing.
        try:
            decoded = decoder(form.type).decode(without_nulls(form.type, data))
        except msgspec.DecodeError as error:
            raise UndecodableObject(form, str(error), partial(form.kind, data)) from error
    return decoded


def partial(kind: Kind, data: Encoded) -> PartialObject | None:
    """The object's metadata, or None where even that is broken. Slow: for what does not decode otherwise."""
    type_ = metadata_only(kind).type
    try:
        metadata: PartialObject = decoder(type_).decode(without_nulls(type_, data))
    except msgspec.DecodeError:
        return None
    return metadata


def encode(obj: KubeObject) -> bytes:
    """JSON with `apiVersion` and `kind`."""
    return _type_meta(type(obj)) + msgspec.json.encode(obj)[1:]


def to_dict(obj: KubeObject) -> dict[str, Any]:
    """JSON-able dict with `apiVersion` and `kind`."""
    return {"apiVersion": obj.KIND.api_version, "kind": obj.KIND.kind, **msgspec.to_builtins(obj)}


@cache
def _type_meta(type_: type[KubeObject]) -> bytes:
    # Every object encodes `metadata`, so the body's first member always follows this comma.
    head = msgspec.json.encode({"apiVersion": type_.KIND.api_version, "kind": type_.KIND.kind})
    return head[:-1] + b","
