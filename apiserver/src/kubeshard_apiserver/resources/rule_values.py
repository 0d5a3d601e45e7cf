"""Values as validation rules see them: typed by their schema, with escaped names.

Source: k8s.io/apiserver `pkg/cel/common/valuesunstructured.go`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from kubeshard_apiserver.cel.schema_types import duration, members, names_in_expressions, timestamp
from kubeshard_apiserver.schema.lists import key_of, same

Schema = Mapping[str, Any]
Conversion = Callable[[Any], Any]
"""Converts a value. Raises ValueError if the schema does not allow it."""


def conversion(schema: Schema, *, is_root: bool = False) -> Conversion:
    convert = _conversion(schema, is_root=is_root)
    nullable = bool(schema.get("nullable"))

    def checked(value: Any) -> Any:
        if value is None:
            if nullable:
                return None
            raise ValueError("invalid data, got null for schema with nullable=false")
        return convert(value)

    return checked


def _conversion(schema: Schema, *, is_root: bool) -> Conversion:
    if schema.get("x-kubernetes-int-or-string"):
        return _as_it_is
    match schema.get("type"):
        case "object":
            return _object(schema, is_root=is_root)
        case "array":
            items = schema.get("items")
            convert = conversion(items) if isinstance(items, Mapping) else _as_it_is
            return _of_type(list, lambda value: [convert(item) for item in value])
        case "number":
            return _of_type((int, float), float)
        case "integer":
            return _of_type((int, float), int)
        case "string":
            return _of_type(str, _FORMATTED.get(schema.get("format") or "", _as_it_is))
    return _as_it_is


def _object(schema: Schema, *, is_root: bool) -> Conversion:
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        convert = conversion(additional)
        return _of_type(dict, lambda value: {name: convert(member) for name, member in value.items()})
    # Fields that are not in the schema cannot be used in expressions, but they count when objects are compared.
    fields = {
        name: (names_in_expressions(name) or (name,), conversion(inner))
        for name, inner in members(schema, is_root=is_root).items()
    }

    def convert_fields(value: dict[str, Any]) -> dict[str, Any]:
        converted = {}
        for name, member in value.items():
            known = fields.get(name)
            if known is not None:
                names, convert = known
                converted.update(dict.fromkeys(names, convert(member)))
            else:
                converted[name] = member
        return converted

    return _of_type(dict, convert_fields)


def _of_type(kinds: type | tuple[type, ...], convert: Conversion) -> Conversion:
    def checked(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise ValueError(f"invalid data, got {type(value).__name__}")
        return convert(value)

    return checked


def _as_it_is(value: Any) -> Any:
    return value


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"Invalid byte formatted string {text}") from None


def _time(text: str) -> Any:
    try:
        then = datetime.fromisoformat(text.upper().replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"Invalid date-time formatted string {text}") from None
    since = (then if then.tzinfo else then.replace(tzinfo=UTC)) - _EPOCH
    return timestamp(since.days * 86400 + since.seconds, since.microseconds * 1000)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PART = re.compile(r"(\d+\.?\d*|\.\d+)\s*([A-Za-zµμ]+)")
_NANOSECONDS = (
    *(("ns", 1), ("nano", 1), ("us", 10**3), ("µs", 10**3), ("μs", 10**3), ("micro", 10**3)),
    *(("ms", 10**6), ("milli", 10**6), ("s", 10**9), ("min", 60 * 10**9), ("m", 60 * 10**9)),
    *(("h", 3600 * 10**9), ("d", 86400 * 10**9), ("w", 604800 * 10**9)),
)
_LONGEST = (1 << 63) - 1


def _duration(text: str) -> Any:
    total = 0
    for number, unit in _PART.findall(text):
        factor = next((length for name, length in _NANOSECONDS if unit.lower().startswith(name)), 0)
        total += int(Decimal(number) * factor)
    if total > _LONGEST:
        raise ValueError(f"Invalid duration {text}: unable to parse {text} as duration")
    seconds, nanos = divmod(total, 10**9)
    return duration(-seconds, -nanos) if text.startswith("-") else duration(seconds, nanos)


_FORMATTED: Mapping[str, Conversion] = {
    "byte": _bytes,
    "date": _time,
    "date-time": _time,
    "duration": _duration,
}


def aligned(schema: Schema, new: Any, old: Any) -> Any:
    """Return the old value with its sets and maps in the order of the new ones, if they have the same items. Rules
    ignore their order in comparisons.
    """
    if isinstance(new, dict) and isinstance(old, dict):
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        return {
            name: aligned(inner, new[name], was)
            if name in new and isinstance(inner := properties.get(name, additional), Mapping)
            else was
            for name, was in old.items()
        }
    if isinstance(new, list) and isinstance(old, list) and isinstance(items := schema.get("items"), Mapping):
        match schema.get("x-kubernetes-list-type"):
            case "map":
                keys = schema.get("x-kubernetes-list-map-keys") or ()
                return _in_order(new, old, lambda item: key_of(item, keys), items)
            case "set":
                return _in_order(new, old, lambda item: key_of({"item": item}, ("item",)), items)
        if same(len(new), len(old)):
            return [aligned(items, item, was) for item, was in zip(new, old, strict=True)]
    return old


def _in_order(new: list[Any], old: list[Any], key: Callable[[Any], bytes], items: Schema) -> list[Any]:
    before = {key(item): item for item in old}
    if len(before) != len(old) or len(new) != len(old) or any(key(item) not in before for item in new):
        return old
    return [aligned(items, item, before[key(item)]) for item in new]
