"""Responses in protobuf, for clients that accept nothing else.

Objects of built-in kinds, their lists, metadata, discovery documents and Statuses can be written. Guaranteed: Go's
decoders read the same object from it as from the JSON response. Not guaranteed: the bytes of the real server, which
writes zero values, too.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from kubeshard.core.times import parse_time
from kubeshard_apiserver.schema.protobuf import MAGIC, field_numbers, known_fields, type_of

_MAP = "map[string]"
_SCHEMA = "apiextensions.v1.JSONSchemaProps"
Written = bytes | int | float
"""The content of a field: its Python type determines the wire type."""


def encode(obj: Mapping[str, Any]) -> bytes:
    """Encodes a document with its kind. Raises KeyError if the kind has no protobuf form."""
    api_version, kind = obj.get("apiVersion", ""), obj["kind"]
    names = written(1, api_version.encode()) + written(2, kind.encode())
    return MAGIC + written(1, names) + written(2, _content(api_version, kind, obj))


def encode_event(type_: str, obj: Mapping[str, Any]) -> bytes:
    """Encodes an event of a watch, after its length."""
    event = written(1, type_.encode()) + written(2, written(1, encode(obj)))
    return struct.pack(">I", len(event)) + event


def written(number: int, value: Written) -> bytes:
    """Encodes one field."""
    if isinstance(value, bytes):
        return _varint(number << 3 | 2) + _varint(len(value)) + value
    if isinstance(value, float):
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    return _varint(number << 3) + _varint(value & 0xFFFFFFFFFFFFFFFF)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _content(api_version: str, kind: str, obj: Mapping[str, Any]) -> bytes:
    if kind in _PLAIN:
        return _plain(kind, obj)
    if "items" in obj and isinstance(obj.get("metadata"), Mapping) and kind.endswith("List"):
        item = _type(api_version, kind.removesuffix("List"))
        items = b"".join(written(2, _message(item, each)) for each in obj["items"] or ())
        return written(1, _plain("ListMeta", obj["metadata"])) + items
    return _message(_type(api_version, kind), obj)


def _type(api_version: str, kind: str) -> str:
    """Returns the name of a kind in the catalog. Raises KeyError if the kind has no protobuf form."""
    name = type_of(api_version, kind)
    if name not in field_numbers():
        raise KeyError(name)
    return name


@cache
def _numbers(name: str) -> tuple[tuple[int, str], ...]:
    """Returns the fields of a struct in order: number and name, which begins with `+` for a promoted struct."""
    said = field_numbers().get(name, {})
    return tuple(sorted((int(number), field.removeprefix("*")) for number, field in said.items()))


def _message(name: str, obj: Mapping[str, Any]) -> bytes:
    return _of_fields(name, known_fields(name), obj)


def _of_fields(name: str, fields: Mapping[str, Any], obj: Mapping[str, Any]) -> bytes:
    parts: list[bytes] = []
    for number, field in _numbers(name):
        if field.startswith("+"):
            parts.append(written(number, _of_fields(field[1:], fields, obj)))
        elif (value := obj.get(field)) is not None and field in fields:
            parts += _field(number, fields[field]["type"].removeprefix("*"), value)
    return b"".join(parts)


def _field(number: int, of: str, value: Any) -> Iterable[bytes]:
    if of.startswith("[]"):
        return [written(number, _value(of[2:], item)) for item in value]
    if of.startswith(_MAP):
        inner = of[len(_MAP) :]
        return [
            written(number, written(1, key.encode()) + written(2, _value(inner, item)))
            for key, item in value.items()
        ]
    return [written(number, _value(of, value))]


def _value(of: str, value: Any) -> Written:
    if write := _SCALARS.get(of):
        return write(value)
    if of.startswith("[]"):  # a list type with its own name is a message that wraps the items
        return b"".join(written(1, _value(of[2:], item)) for item in value)
    return _message(of, value)


def _plain(name: str, obj: Mapping[str, Any]) -> bytes:
    """Encodes a struct that is not in the catalog."""
    parts: list[bytes] = []
    for number, (field, of) in enumerate(_PLAIN[name].items(), 1):
        value = obj.get(field)
        if of and value is not None:
            values = value if of.startswith("[]") else [value]
            parts += [written(number, _plain_value(of.removeprefix("[]"), each)) for each in values]
    return b"".join(parts)


def _plain_value(of: str, value: Any) -> Written:
    return _plain(of, value) if of in _PLAIN else _value(of, value)


_META = {"metadata": "meta.v1.ObjectMeta"}
_PLAIN: Mapping[str, Mapping[str, str]] = {
    "ListMeta": {
        "selfLink": "string",
        "resourceVersion": "string",
        "continue": "string",
        "remainingItemCount": "int64",
        "shardInfo": "ShardInfo",
    },
    "ShardInfo": {"selector": "string"},
    "Status": {
        "metadata": "ListMeta",
        "status": "string",
        "message": "string",
        "reason": "string",
        "details": "StatusDetails",
        "code": "int32",
    },
    "StatusDetails": {
        "name": "string",
        "group": "string",
        "kind": "string",
        "causes": "[]StatusCause",
        "retryAfterSeconds": "int32",
        "uid": "string",
    },
    "StatusCause": {"reason": "string", "message": "string", "field": "string"},
    "PartialObjectMetadata": _META,
    "PartialObjectMetadataList": {"metadata": "ListMeta", "items": "[]PartialObjectMetadata"},
    "APIVersions": {"versions": "[]string", "serverAddressByClientCIDRs": ""},
    "APIGroupList": {"groups": "[]APIGroup"},
    "APIGroup": {"name": "string", "versions": "[]GroupVersion", "preferredVersion": "GroupVersion"},
    "GroupVersion": {"groupVersion": "string", "version": "string"},
    "APIResourceList": {"groupVersion": "string", "resources": "[]APIResource"},
    "APIResource": {
        "name": "string",
        "namespaced": "bool",
        "kind": "string",
        "verbs": "strings",
        "shortNames": "[]string",
        "singularName": "string",
        "categories": "[]string",
        "group": "string",
        "version": "string",
        "storageVersionHash": "string",
    },
}
"""Structs with the types of their fields, in the order of their numbers."""


def _time(text: str) -> bytes:
    seconds = parse_time(text) or 0.0
    whole = int(seconds // 1)
    nanos = round((seconds - whole) * 1e6) * 1000
    return written(1, whole) + (written(2, nanos) if nanos else b"")


def _int_or_string(value: int | str) -> bytes:
    if isinstance(value, str):
        return written(1, 1) + written(3, value.encode())
    return written(1, 0) + written(2, value)


def _json(value: Any) -> bytes:
    """Encodes a message that wraps raw JSON."""
    return written(1, msgspec.json.encode(value))


def _schema_or_bool(value: Any) -> bytes:
    return (
        written(1, int(value))
        if isinstance(value, bool)
        else written(1, 1) + written(2, _message(_SCHEMA, value))
    )


def _schema_or_array(value: Any) -> bytes:
    if isinstance(value, list):
        return b"".join(written(2, _message(_SCHEMA, each)) for each in value)
    return written(1, _message(_SCHEMA, value))


def _schema_or_strings(value: Any) -> bytes:
    if isinstance(value, list):
        return b"".join(written(2, each.encode()) for each in value)
    return written(1, _message(_SCHEMA, value))


_SCALARS: Mapping[str, Callable[[Any], Written]] = {
    "string": lambda value: str(value).encode(errors="replace"),
    "strings": lambda value: b"".join(written(1, each.encode()) for each in value),
    "bool": int,
    "int32": int,
    "int64": int,
    "float64": float,
    "bytes": base64.b64decode,
    "time": _time,
    "micro-time": _time,
    "quantity": lambda value: written(1, str(value).encode()),
    "int-or-string": _int_or_string,
    "any": _json,
    "schema-or-bool": _schema_or_bool,
    "schema-or-array": _schema_or_array,
    "schema-or-strings": _schema_or_strings,
}
