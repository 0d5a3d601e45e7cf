"""Encodes objects to the wire format and decodes them.

Guaranteed: what is encoded has `apiVersion` and `kind`; decoding reads only the fields that the class
declares, and null as the field's default, as Go does; an object that does not match its class raises
`UndecodableObject` with the metadata, and no other exception, whatever the bytes are and whatever the class's own
code raises, so that one bad object never hides the others. Not guaranteed: that a decoded object encodes
to the same bytes (undeclared fields are dropped; see `KubeObject`).

Go writes a nil slice or map without `omitempty` as null (`rules: null` of a ClusterRole) and reads null as the
zero value. So a null member of an object means the default of the field, or an empty list or map if the field is
required, unless the field's type includes None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

import msgspec

from kubeshard.core.errors import KubeshardError
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import Form, Key, KubeObject, ObjectMeta, PartialObject, Struct, metadata_only

T = TypeVar("T", bound=KubeObject)
Encoded = bytes | bytearray | memoryview | msgspec.Raw

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of a decoder for bytes that are not JSON, not of the type, not UTF-8, or nested too deep."""


class UndecodableObject(KubeshardError):
    """An object that does not match its class. `partial` identifies the object; None if its metadata
    is invalid too.
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


class _Name(Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Named(Struct):
    metadata: _Name


@cache
def decoder(type_: type[Any]) -> msgspec.json.Decoder[Any]:
    """The decoder of a type; building one costs far more than using it."""
    return msgspec.json.Decoder(type_)


def decode(form: Form[T], data: Encoded) -> T:
    """One object. Raises UndecodableObject."""
    try:
        decoded: T = decoder(form.type).decode(data)
    except Exception:  # including those from the class's own code
        # Nulls are handled only after a failed decode: well-formed objects have no extra cost.
        try:
            decoded = decoder(form.type).decode(without_nulls(form.type, data))
        except Exception as error:
            problem = str(error) if isinstance(error, UNREADABLE) else f"{type(error).__name__}: {error}"
            raise UndecodableObject(form, problem, partial(form.kind, data)) from error
    return decoded


def read(type_: Any, data: Encoded) -> Any:
    """Converts to the type, with null handled as by `decode`. Raises msgspec.DecodeError."""
    try:
        return decoder(type_).decode(data)
    except msgspec.ValidationError:
        return decoder(type_).decode(without_nulls(type_, data))


def partial(kind: Kind, data: Encoded) -> PartialObject | None:
    """The object's metadata, or as much of it as identifies the object; None if even its name is invalid.
    Slow: for objects that do not decode otherwise.
    """
    type_ = metadata_only(kind).type
    with suppress(*UNREADABLE):
        return _named(decoder(type_).decode(without_nulls(type_, data)))
    with suppress(*UNREADABLE):
        found: _Named = decoder(_Named).decode(data)
        return _named(type_(metadata=ObjectMeta(**msgspec.structs.asdict(found.metadata))))
    return None


def _named(obj: PartialObject) -> PartialObject | None:
    return obj if obj.metadata.name else None


def encode(obj: KubeObject) -> bytes:
    """JSON with `apiVersion` and `kind`. Raises TypeError, which names the field, for a value that JSON cannot
    have.
    """
    try:
        return _type_meta(type(obj)) + msgspec.json.encode(obj)[1:]
    except TypeError as error:
        raise _named_field(obj, error) from None


def to_dict(obj: KubeObject) -> dict[str, Any]:
    """JSON-able dict with `apiVersion` and `kind`. Raises like `encode`."""
    return {"apiVersion": obj.KIND.api_version, "kind": obj.KIND.kind, **to_plain(obj)}


def to_plain(obj: msgspec.Struct) -> dict[str, Any]:
    """JSON-able dict. Raises like `encode`."""
    try:
        plain: dict[str, Any] = msgspec.to_builtins(obj)
    except TypeError as error:
        raise _named_field(obj, error) from None
    return plain


def _named_field(obj: object, error: TypeError) -> TypeError:
    found = next(_not_encodable(obj, type(obj).__name__), None)
    if found is None:
        return error
    path, value = found
    return TypeError(
        f"{path} has a value that cannot be sent: {value!r:.200} is of type {type(value).__name__}, and JSON has only "
        "strings, numbers, booleans, None, lists and mappings with strings as keys (and Structs of these)"
    )


def _not_encodable(value: object, path: str) -> Iterator[tuple[str, object]]:
    """The innermost values that cannot be encoded, with their paths."""
    try:
        msgspec.to_builtins(value)
    except TypeError:
        inner: Iterable[tuple[str, object]] = ()
        if isinstance(value, msgspec.Struct):
            inner = ((f"{path}.{name}", getattr(value, name)) for name in value.__struct_fields__)
        elif isinstance(value, Mapping):
            inner = ((f"{path}[{key!r}]", each) for key, each in value.items())
        elif isinstance(value, Sequence | Set) and not isinstance(value, str | bytes):
            inner = ((f"{path}[{number}]", each) for number, each in enumerate(value))
        found = False
        for where, each in inner:
            for deeper in _not_encodable(each, where):
                found = True
                yield deeper
        if not found:
            yield path, value


@cache
def _type_meta(type_: type[KubeObject]) -> bytes:
    # Every object encodes `metadata`, so the body's first member always follows this comma.
    head = msgspec.json.encode({"apiVersion": type_.KIND.api_version, "kind": type_.KIND.kind})
    return head[:-1] + b","


def without_nulls(type_: type[Any], data: bytes | bytearray | memoryview | msgspec.Raw) -> bytes:
    """The declared members of the JSON without nulls for fields that have a default and a type without None, and with
    empty lists and maps for required ones; nulls in fields of any type, in lists and in maps stay. Raises DecodeError
    if that is not possible.

    Slow (it looks at every member in Python): only for objects that failed to decode.
    """
    # Imported late: few processes ever receive such an object.
    from msgspec.inspect import type_info

    try:
        return msgspec.json.encode(_pruned(msgspec.json.decode(data), type_info(type_)))
    except (RecursionError, OverflowError) as error:
        raise msgspec.DecodeError(str(error)) from error


def _pruned(value: Any, type_: Any) -> Any:
    from msgspec import inspect

    match type_:
        case inspect.UnionType():
            for member in type_.types:
                value = _pruned(value, member)
        case inspect.StructType() if isinstance(value, dict):
            return {
                field.encode_name: _pruned(_unless_null(value[field.encode_name], field), field.type)
                for field in type_.fields
                if field.encode_name in value
                and (value[field.encode_name] is not None or field.required or _knows_null(field.type))
            }
        case inspect.DictType() if isinstance(value, dict):
            return {key: _pruned(member, type_.value_type) for key, member in value.items()}
        case inspect.CollectionType() if isinstance(value, list):
            return [_pruned(item, type_.item_type) for item in value]
    return value


def _unless_null(value: Any, field: Any) -> Any:
    """The value, or what null means in a required list or map."""
    from msgspec import inspect

    if value is None and field.required:
        match field.type:
            case inspect.CollectionType():
                return []
            case inspect.DictType():
                return {}
    return value


def _knows_null(type_: Any) -> bool:
    from msgspec import inspect

    members = type_.types if isinstance(type_, inspect.UnionType) else (type_,)
    return any(isinstance(member, inspect.NoneType | inspect.AnyType | inspect.RawType) for member in members)
