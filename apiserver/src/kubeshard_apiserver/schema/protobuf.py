"""Objects as Go clients write them: protobuf in the envelope of Kubernetes.

Reading only: Go's typed clients send built-in kinds in this form without a fallback, but accept JSON answers.
Guaranteed: the object is what the same client would have written as JSON.

`field_numbers.json` (made by `make types`) has the fields of every struct by their numbers:
`name`, `*name` for a pointer (zero is written only where it was said) and `+type` for a struct whose fields are
promoted to those of the outer one. Types are those of `catalog`. Source: the wire format of protobuf 2, the
`generated.proto` of k8s.io/api, apimachinery's `runtime/serializer/protobuf`.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from kubeshard.core.times import micro_time, second_time
from kubeshard_apiserver.schema.catalog import said_of

MAGIC = b"k8s\0"
_MAP = "map[string]"
_SCHEMA = "apiextensions.v1.JSONSchemaProps"
_ZEROS = (0, "", False)

_VARINT, _FIXED, _BYTES, _BEGIN, _END = 0, 1, 2, 3, 4
"""Wire types; the last two are those of groups, which nobody has used for long."""
_VARINTS = ("bool", "int32", "int64")


class Envelope(NamedTuple):
    """What is sent, before it is known whether there is such a kind: names and the object's own bytes."""

    api_version: str
    kind: str
    raw: bytes


class NoObject(ValueError):
    """The envelope can be read, and what is in it cannot."""


def decode(data: bytes) -> dict[str, Any]:
    """Raises ValueError for what is not an object of a built-in kind."""
    return decode_object(open_envelope(data))


def open_envelope(data: bytes) -> Envelope:
    """Raises ValueError."""
    if not data.startswith(MAGIC):
        expected = f"[{' '.join(str(byte) for byte in MAGIC)}]"
        raise ValueError(
            f"provided data does not appear to be a protobuf message, expected prefix {expected}"
        )
    if data == MAGIC:
        raise ValueError("empty body")
    sent = _texts("Unknown", data[len(MAGIC) :], _ENVELOPE)
    names = _texts("TypeMeta", sent.get("TypeMeta", b""), _TYPE_META)
    return Envelope(_text(names.get("APIVersion", b"")), _text(names.get("Kind", b"")), sent.get("Raw", b""))


def decode_object(sent: Envelope) -> dict[str, Any]:
    """Raises NoObject."""
    try:
        known = _type(sent.api_version, sent.kind)
        return {"apiVersion": sent.api_version, "kind": sent.kind, **_object(known, sent.raw)}
    except KeyError:
        problem = f'no kind "{sent.kind}" is registered for version "{sent.api_version}"'
        raise NoObject(f'{problem} in scheme "pkg/runtime/scheme.go:111"') from None
    except (OverflowError, OSError) as error:
        raise NoObject(f"a field has no such value: {error}") from None
    except ValueError as error:
        raise NoObject(str(error)) from None


_ENVELOPE = {1: "TypeMeta", 2: "Raw", 3: "ContentEncoding", 4: "ContentType"}
_TYPE_META = {1: "APIVersion", 2: "Kind"}


def _texts(message: str, data: bytes, names: Mapping[int, str]) -> dict[str, bytes]:
    """Of a message that has nothing else; the last of each."""
    found: dict[str, bytes] = {}
    for number, wire_type, value in _fields(message, data):
        if name := names.get(number):
            found[name] = _of_wire_type(_BYTES, wire_type, value, name)
    return found


def _type(api_version: str, kind: str) -> str:
    if kind == "DeleteOptions":  # of every group
        return "meta.v1.DeleteOptions"
    group, _, version = api_version.rpartition("/")
    return f"{group.partition('.')[0] or 'core'}.{version}.{kind}"


def _fields(message: str, data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value of each; groups are passed over. Raises ValueError."""
    position, groups = 0, 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire_type = key >> 3 & 0x1FFFFFFF, key & 7
        if wire_type == _END and not groups:
            raise ValueError(f"proto: {message}: wiretype end group for non-group")
        if not number:
            raise ValueError(f"proto: {message}: illegal tag {number} (wire type {wire_type})")
        value: Any = None
        match wire_type:
            case 0:
                value, position = _varint(data, position)
            case 1:
                value, position = data[position : position + 8], position + 8
            case 2:
                length, position = _varint(data, position)
                if length >> 63:
                    raise ValueError("proto: negative length found during unmarshaling")
                value, position = data[position : position + length], position + length
            case 3:
                groups += 1
            case 4:
                groups -= 1
                continue
            case 5:
                value, position = data[position : position + 4], position + 4
            case _:
                raise ValueError(f"proto: illegal wireType {wire_type}")
        if position > len(data):
            raise ValueError("unexpected EOF")
        if groups <= (wire_type == _BEGIN):
            yield number, wire_type, value
    if groups:
        raise ValueError("unexpected EOF")


def _of_wire_type(expected: int, wire_type: int, value: Any, name: str) -> Any:
    if wire_type != expected:
        raise ValueError(f"proto: wrong wireType = {wire_type} for field {name}")
    return value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data):
            raise ValueError("unexpected EOF")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
        if shift > 63:
            raise ValueError("proto: integer overflow")


def _object(name: str, data: bytes) -> dict[str, Any]:
    obj: dict[str, Any] = {}
    _fill(obj, _known(name), name, data)
    return obj


def _fill(obj: dict[str, Any], fields: Mapping[str, Any], name: str, data: bytes) -> None:
    numbers = _numbers().get(name, {})
    for number, wire_type, raw in _fields(name.rpartition(".")[2], data):
        said = numbers.get(str(number), "")
        if said.startswith("+"):
            _fill(obj, fields, said[1:], _of_wire_type(_BYTES, wire_type, raw, said.rpartition(".")[2]))
            continue
        field = said.removeprefix("*")
        if field not in fields:
            continue  # of a newer client
        of = fields[field]["type"].removeprefix("*")
        if of.startswith("[]"):
            obj.setdefault(field, []).extend(_items(of[2:], wire_type, raw, field))
        elif of.startswith(_MAP):
            entry = _entry(_of_wire_type(_BYTES, wire_type, raw, _in_go(field)))
            value_type, value = entry.get(2, (_BYTES, b""))
            key = _value("string", *entry.get(1, (_BYTES, b"")), field)
            obj.setdefault(field, {})[key] = _value(of[len(_MAP) :], value_type, value, field)
        else:
            value = _value(of, wire_type, raw, field)
            if value is not None and (
                said.startswith("*") or value not in _ZEROS or fields[field].get("always")
            ):
                obj[field] = value


def _items(of: str, wire_type: int, raw: Any, field: str) -> Iterator[Any]:
    """One, or those that are packed into one field."""
    if of in _VARINTS and wire_type == _BYTES:
        position = 0
        while position < len(raw):
            number, position = _varint(raw, position)
            yield _value(of, _VARINT, number, field)
    else:
        yield _value(of, wire_type, raw, field)


def _entry(data: bytes) -> dict[int, tuple[int, Any]]:
    """The last of each number, with its wire type."""
    return {number: (wire_type, value) for number, wire_type, value in _fields("Entry", data)}


def _value(of: str, wire_type: int, raw: Any, field: str) -> Any:
    expected = _VARINT if of in _VARINTS else _FIXED if of == "float64" else _BYTES
    _of_wire_type(expected, wire_type, raw, _in_go(field))
    if read := _SCALARS.get(of):
        return read(raw)
    if of.startswith("[]"):  # a list with a name of its own is a message around its items
        return [_value(of[2:], *item[1:], field) for item in _fields("Items", raw)]
    return _object(of, raw)


def _in_go(field: str) -> str:
    return "ObjectMeta" if field == "metadata" else field[:1].upper() + field[1:]


def _text(raw: bytes) -> str:
    """Go keeps bytes that are not text, and writes them so when it writes JSON."""
    return raw.decode(errors="replace")


def _integer(raw: int) -> int:
    return raw - (1 << 64) if raw >> 63 else raw


def _parts(message: str, data: bytes, **names: tuple[int, int]) -> dict[str, Any]:
    """The named fields of a message, each by its number and wire type."""
    by_number = {number: (name, expected) for name, (number, expected) in names.items()}
    found = {}
    for number, wire_type, value in _fields(message, data):
        if number in by_number:
            name, expected = by_number[number]
            found[name] = _of_wire_type(expected, wire_type, value, name)
    return found


def _double(raw: bytes) -> float:
    if len(raw) != 8:
        raise ValueError("unexpected EOF")
    (number,) = struct.unpack("<d", raw)
    if not math.isfinite(number):
        raise ValueError(f"json: unsupported value: {number}")
    return int(number) if number.is_integer() else number


def _time(write: Callable[[float], str]) -> Callable[[bytes], str | None]:
    def read(raw: bytes) -> str | None:
        if not raw:
            return None
        said = _parts("Timestamp", raw, Seconds=(1, _VARINT), Nanos=(2, _VARINT))
        return write(_integer(said.get("Seconds", 0)) + _integer(said.get("Nanos", 0)) / 1e9)

    return read


def _quantity(raw: bytes) -> str:
    return _text(_parts("Quantity", raw, String=(1, _BYTES)).get("String", b"")) or "0"


def _int_or_string(raw: bytes) -> int | str:
    said = _parts("IntOrString", raw, Type=(1, _VARINT), IntVal=(2, _VARINT), StrVal=(3, _BYTES))
    return _text(said.get("StrVal", b"")) if said.get("Type") else _integer(said.get("IntVal", 0))


def _json(raw: bytes) -> Any:
    """What carries JSON as it is."""
    text = _parts("JSON", raw, Raw=(1, _BYTES)).get("Raw", b"")
    return msgspec.json.decode(text) if text else None


def _schema_or(
    read_other: Callable[[list[tuple[int, Any]]], Any], schema_number: int, *, others: int
) -> Callable[[bytes], Any]:
    """`others`: the wire type of what it may be instead."""

    def read(raw: bytes) -> Any:
        fields = [
            (number, _of_wire_type(_BYTES if number == schema_number else others, wire_type, value, "Schema"))
            for number, wire_type, value in _fields("JSONSchemaProps", raw)
            if number in (1, 2)
        ]
        schema = next((value for number, value in fields if number == schema_number), None)
        return read_other(fields) if schema is None else _object(_SCHEMA, schema)

    return read


_SCALARS: Mapping[str, Callable[[Any], Any]] = {
    "string": _text,
    "bool": bool,
    "int32": _integer,
    "int64": _integer,
    "float64": _double,
    "bytes": lambda raw: base64.b64encode(raw).decode(),
    "time": _time(second_time),
    "micro-time": _time(micro_time),
    "quantity": _quantity,
    "int-or-string": _int_or_string,
    "any": _json,
    "schema-or-bool": _schema_or(lambda fields: bool(dict(fields).get(1)), 2, others=_VARINT),
    "schema-or-array": _schema_or(
        lambda fields: [_object(_SCHEMA, value) for number, value in fields if number == 2], 1, others=_BYTES
    ),
    "schema-or-strings": _schema_or(
        lambda fields: [_text(value) for number, value in fields if number == 2], 1, others=_BYTES
    ),
}


@cache
def _known(name: str) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = said_of(name)["fields"]
    return fields


@cache
def _numbers() -> Mapping[str, Mapping[str, str]]:
    text = (files(__package__) / "field_numbers.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, str]])
