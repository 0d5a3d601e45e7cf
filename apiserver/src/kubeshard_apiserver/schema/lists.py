"""Lists that are sets or maps, in which no two items may be equal or have the same keys; and the comparison of values.

Source: k8s.io/apiextensions-apiserver `pkg/apiserver/schema/listtype`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from kubeshard_apiserver.status import FieldError, duplicate, invalid_value

Check = Callable[[Any, str], Iterator[FieldError]]
_encode = msgspec.json.Encoder(order="sorted").encode


def list_check(schema: Mapping[str, Any]) -> Check | None:
    """Returns a check, or None if the schema contains no set and no map."""
    of_items = list_check(schema["items"]) if isinstance(schema.get("items"), Mapping) else None
    properties = {
        name: found
        for name, inner in (schema.get("properties") or {}).items()
        if (found := list_check(inner)) is not None
    }
    given = schema.get("additionalProperties")
    additional = list_check(given) if isinstance(given, Mapping) else None
    list_type = schema.get("x-kubernetes-list-type")
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    if not (of_items or properties or additional or list_type in ("set", "map")):
        return None

    def check(value: Any, path: str) -> Iterator[FieldError]:
        if isinstance(value, list):
            if list_type == "set":
                yield from _repeated(((item, item) for item in value), path)
            elif list_type == "map":
                yield from _repeated_keys(value, keys, path)
            if of_items is not None:
                for index, item in enumerate(value):
                    yield from of_items(item, f"{path}[{index}]")
        elif isinstance(value, dict):
            for name, member in value.items():
                if name in properties:
                    yield from properties[name](member, f"{path}.{name}" if path else name)
                elif additional is not None:
                    yield from additional(member, f"{path}[{name}]")

    return check


def key_of(item: Any, keys: Iterable[str]) -> bytes:
    """Returns the identity of an item of a list of type map, which is stable across changes."""
    return _encode(_keys(item, keys))


def _keys(item: Any, keys: Iterable[str]) -> dict[str, Any]:
    return {key: item[key] for key in keys if key in item} if isinstance(item, dict) else {}


def _repeated_keys(value: list[Any], keys: tuple[str, ...], path: str) -> Iterator[FieldError]:
    for index, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            yield invalid_value(f"{path}[{index}]", item, "must be an object for an array of list-type map")
            return
    yield from _repeated(((found := _keys(item, keys), found) for item in value), path)


def _repeated(items: Iterable[tuple[Any, Any]], path: str) -> Iterator[FieldError]:
    """Reports each duplicate once, however often it occurs."""
    seen: dict[bytes, int] = {}
    for index, (key, shown) in enumerate(items):
        encoded = _encode(key)
        seen[encoded] = seen.get(encoded, 0) + 1
        if seen[encoded] == 2:
            yield duplicate(f"{path}[{index}]", msgspec.json.decode(_encode(shown)))


class _Nothing:
    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = _Nothing()
"""There was no old value, or none that corresponds to the new one."""

_encode = msgspec.json.Encoder(order="sorted").encode


def same(one: Any, other: Any) -> bool:
    """Whether the values are equal as JSON documents, where `true` differs from `1`."""
    return bool(one == other) and _encode(one) == _encode(other)
