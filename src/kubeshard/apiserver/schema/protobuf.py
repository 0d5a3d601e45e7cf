"""Objects as Go clients write them: protobuf in the envelope of Kubernetes.

Only reading. Go's typed clients send what is built in so and have no second form to fall back to; what they are
answered they take as JSON, too. Guaranteed: the object is what the same client would have written as JSON.

`field_numbers.json` (made by `kubeshard.testing.field_numbers`) has the fields of every struct by their numbers:
`name`, `*name` for a pointer (zero is written only where it was said) and `+type` for a struct whose fields are
promoted to those of the outer one. Types are those of `catalog`. Source: the wire format of protobuf 2, the
`generated.proto` of k8s.io/api, apimachinery's `runtime/serializer/protobuf`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from kubeshard.apiserver.schema.catalog import said_of
from kubeshard.core.times import micro_time, second_time

MAGIC = b"k8s\0"
_MAP = "map[string]"
_SCHEMA = "apiextensions.v1.JSONSchemaProps"
_ZEROS = (0, "", False)


def decode(data: bytes) -> dict[str, Any]:
    """Raises ValueError for what is no object of a built-in kind."""
    if not data.startswith(MAGIC):
        expected = f"[{' '.join(str(byte) for byte in MAGIC)}]"
        raise ValueError(
            f"provided data does not appear to be a protobuf message, expected prefix {expected}"
        )
    if data == MAGIC:
        raise ValueError("empty body")
    envelope = dict(_fields(data[len(MAGIC) :]))
    type_meta = dict(_fields(envelope.get(1, b"")))
    api_version, kind = _text(type_meta.get(1, b"")), _text(type_meta.get(2, b""))
    try:
        return {
            "apiVersion": api_version,
            "kind": kind,
            **_object(_type(api_version, kind), envelope.get(2, b"")),
        }
    except KeyError:
        raise ValueError(f'no kind "{kind}" is registered for version "{api_version}"') from None
    except (TypeError, AttributeError, struct.error) as error:
        raise ValueError(f"a field is not of its wire type: {error}") from None
    except (OverflowError, OSError, msgspec.DecodeError) as error:
        raise ValueError(f"a field has no such value: {error}") from None


def _type(api_version: str, kind: str) -> str:
    if kind == "DeleteOptions":  # of every group
        return "meta.v1.DeleteOptions"
    group, _, version = api_version.rpartition("/")
    return f"{group.partition('.')[0] or 'core'}.{version}.{kind}"


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        value: Any
        match key & 7:
            case 0:
                value, position = _varint(data, position)
            case 1:
                value, position = data[position : position + 8], position + 8
            case 2:
                length, position = _varint(data, position)
                value, position = data[position : position + length], position + length
            case 5:
                value, position = data[position : position + 4], position + 4
            case wire_type:
                raise ValueError(f"proto: illegal wireType {wire_type}")
        if position > len(data):
            raise ValueError("unexpected EOF")
        yield key >> 3, value


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
    for number, raw in _fields(data):
        said = numbers.get(str(number), "")
        if said.startswith("+"):
            _fill(obj, fields, said[1:], raw)
            continue
        field = said.removeprefix("*")
        if field not in fields:
            continue  # of a newer client
        of = fields[field]["type"].removeprefix("*")
        if of.startswith("[]"):
            obj.setdefault(field, []).append(_value(of[2:], raw))
        elif of.startswith(_MAP):
            entry = dict(_fields(raw))
            obj.setdefault(field, {})[_text(entry.get(1, b""))] = _value(of[len(_MAP) :], entry.get(2, b""))
        else:
            value = _value(of, raw)
            if value is not None and (
                said.startswith("*") or value not in _ZEROS or fields[field].get("always")
            ):
                obj[field] = value


def _value(of: str, raw: Any) -> Any:
    if read := _SCALARS.get(of):
        return read(raw)
    if of.startswith("[]"):  # a list with a name of its own is a message around its items
        return [_value(of[2:], item) for _, item in _fields(raw)]
    return _object(of, raw)


def _text(raw: bytes) -> str:
    return raw.decode()


def _integer(raw: int) -> int:
    return raw - (1 << 64) if raw >> 63 else raw


def _double(raw: bytes) -> float:
    (number,) = struct.unpack("<d", raw)
    return int(number) if number.is_integer() else number


def _time(write: Callable[[float], str]) -> Callable[[bytes], str | None]:
    def read(raw: bytes) -> str | None:
        if not raw:
            return None
        said = dict(_fields(raw))
        return write(_integer(said.get(1, 0)) + said.get(2, 0) / 1e9)

    return read


def _quantity(raw: bytes) -> str:
    return _text(dict(_fields(raw)).get(1, b"")) or "0"


def _int_or_string(raw: bytes) -> int | str:
    said = dict(_fields(raw))
    return _text(said.get(3, b"")) if said.get(1) else _integer(said.get(2, 0))


def _json(raw: bytes) -> Any:
    """What carries JSON as it is."""
    text = dict(_fields(raw)).get(1, b"")
    return msgspec.json.decode(text) if text else None


def _schema_or(
    read_other: Callable[[list[tuple[int, Any]]], Any], schema_number: int
) -> Callable[[bytes], Any]:
    def read(raw: bytes) -> Any:
        fields = list(_fields(raw))
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
    "schema-or-bool": _schema_or(lambda fields: bool(dict(fields).get(1)), 2),
    "schema-or-array": _schema_or(
        lambda fields: [_object(_SCHEMA, value) for number, value in fields if number == 2], 1
    ),
    "schema-or-strings": _schema_or(
        lambda fields: [_text(value) for number, value in fields if number == 2], 1
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
