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

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import cache
from math import isfinite
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
    """An object that does not match its class. `partial` identifies it; None if its metadata is invalid too."""

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
    """JSON with `apiVersion` and `kind`. Raises like `to_json`."""
    return _type_meta(type(obj)) + to_json(obj, type(obj).__name__)[1:]


def to_json(value: object, name: str, *, in_order: bool = False) -> bytes:
    """The JSON of a value that is to be sent. `name`: of the value, in errors. `in_order`: equal for equal values.

    Raises TypeError for a value that JSON cannot have, and ValueError for one that the API server cannot: a number
    beyond 64 bits, NaN, a text that is not Unicode. Both name the field.
    """
    try:
        body = msgspec.json.encode(value, order="deterministic" if in_order else None)
    except _UNSENDABLE as error:
        raise _named_field(value, name, error) from None
    # A number that JSON does not have became null. The text is made in C, unlike a look at each value. So many digits
    # are looked for before a number of so many, which takes eight times as long.
    many = _MANY_DIGITS in body.translate(_ANY_DIGIT)
    if (many and _LONG_NUMBER.search(body)) or (
        b"null" in body and ("nan" in (text := f"{value!r}") or "inf" in text)
    ):
        for path, problem, unfit in _unsendable(value, name):
            raise _refusal(path, problem, unfit)
    return body


def to_dict(obj: KubeObject) -> dict[str, Any]:
    """JSON-able dict with `apiVersion` and `kind`. Raises TypeError like `encode`."""
    return {"apiVersion": obj.KIND.api_version, "kind": obj.KIND.kind, **to_plain(obj)}


def to_plain(obj: msgspec.Struct) -> dict[str, Any]:
    """JSON-able dict. Raises TypeError like `encode`."""
    try:
        plain: dict[str, Any] = msgspec.to_builtins(obj)
    except (TypeError, RecursionError) as error:
        raise _named_field(obj, type(obj).__name__, error) from None
    return plain


_UNSENDABLE = (TypeError, ValueError, OverflowError, RecursionError)

_LONG_NUMBER = re.compile(rb"[:,[]-?[0-9]{19}")
"""In JSON: it may be beyond 64 bits."""
_MANY_DIGITS, _ANY_DIGIT = b"0" * 19, bytes.maketrans(b"123456789", b"0" * 9)


_SMALLEST, _BEYOND = -(2**63), 2**63


def _named_field(value: object, name: str, error: Exception) -> Exception:
    found = next(_unsendable(value, name), None)
    return error if found is None else _refusal(*found)


def _refusal(path: str, problem: str, value: object) -> Exception:
    told = f"{path} has a value that cannot be sent: {_excerpt(value)} {problem}"
    return TypeError(told) if problem.startswith("is of type") else ValueError(told)


def _excerpt(value: object) -> str:
    try:
        return f"{value!r:.200}"
    except Exception:
        return "it"


def _unsendable(value: object, path: str, within: tuple[int, ...] = ()) -> Iterator[tuple[str, str, object]]:
    """The innermost values that cannot be sent: path, problem, value."""
    inner: Iterable[tuple[str, object]] = ()
    match value:
        case None | bool() | bytes():
            return
        case str():
            if not is_sendable(value):
                yield (
                    path,
                    "is not valid Unicode: decode it with errors='replace', or encode it as base64",
                    value,
                )
            return
        case int():
            if not _SMALLEST <= value < _BEYOND:
                yield path, "is beyond 64 bits: send it as text", value
            return
        case float():
            if not isfinite(value):
                yield path, "is not a number in JSON: leave the field out", value
            return
        case msgspec.Struct():
            inner = ((f"{path}.{name}", getattr(value, name)) for name in value.__struct_fields__)
        case Mapping():
            inner = ((f"{path}[{key!r}]", each) for key, each in value.items())
            for key in value:
                if isinstance(key, str) and not is_sendable(key):
                    yield path, "has a key that is not valid Unicode", key
        case Sequence() | Set():
            inner = ((f"{path}[{number}]", each) for number, each in enumerate(value))
    if id(value) in within:
        yield path, "contains itself", value
        return
    found = False
    for where, each in inner:
        try:
            for problem in _unsendable(each, where, (*within, id(value))):
                found = True
                yield problem
        except RecursionError:
            if within:
                raise
            found = True  # of the outermost: the path of the innermost is as long as it is deep
            yield where, "is nested too deeply", each
    if not found:
        try:
            msgspec.json.encode(value)
        except _UNSENDABLE:
            yield path, _NOT_JSON.format(type(value).__name__), value


_NOT_JSON = (
    "is of type {}, and JSON has only strings, numbers, booleans, None, lists and mappings with strings as keys (and "
    "Structs of these)"
)


def is_sendable(text: str) -> bool:
    """Whether it is valid Unicode, without the halves of characters that `surrogateescape` makes of odd bytes."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
