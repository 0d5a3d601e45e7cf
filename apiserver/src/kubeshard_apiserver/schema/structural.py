"""Structural schemas: missing fields get their defaults and unspecified fields are dropped, both in place; and lists
that are sets or maps have no two items that are equal or have the same keys.

Source: k8s.io/apiextensions-apiserver `pkg/apiserver/schema/defaulting`, `.../pruning`, `.../listtype`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

import msgspec

from kubeshard_apiserver.status import FieldError, duplicate, invalid_value

_META = ("apiVersion", "kind", "metadata")
_NOTHING: Mapping[str, Any] = {}


def fill(schema: Mapping[str, Any], value: Any) -> None:
    """Sets missing fields that have a default, in place. A null where null is not allowed counts as missing."""
    if isinstance(value, list):
        items = schema.get("items") or _NOTHING
        for index, item in enumerate(value):
            if _lacks(items, item):
                value[index] = item = deepcopy(items.get("default"))
            fill(items, item)
    if not isinstance(value, dict):
        return
    properties = schema.get("properties") or _NOTHING
    for name, inner in properties.items():
        member = value.get(name)
        if member is None and inner.get("default") is not None and (name not in value or _lacks(inner, None)):
            value[name] = member = deepcopy(inner["default"])
        if type(member) is dict or type(member) is list:
            fill(inner, member)
    additional = schema.get("additionalProperties")
    if additional is not None and isinstance(additional, Mapping):
        for name in value.keys() - properties.keys():
            if _lacks(additional, value[name]):
                value[name] = deepcopy(additional.get("default"))
            fill(additional, value[name])


def _lacks(schema: Mapping[str, Any], value: Any) -> bool:
    return value is None and not schema.get("nullable")


def drop_nulls(schema: Mapping[str, Any], value: Any) -> None:
    """Removes fields that are null where null is not allowed and there is no default, in place. Items of lists stay."""
    if isinstance(value, list):
        for item in value:
            drop_nulls(schema.get("items") or _NOTHING, item)
    if not isinstance(value, dict):
        return
    properties = schema.get("properties") or _NOTHING
    additional = schema.get("additionalProperties")
    for name, member in list(value.items()):
        if not (member is None or type(member) is dict or type(member) is list):
            continue
        inner = properties.get(name, additional)
        if not isinstance(inner, Mapping):
            continue
        if member is not None:
            drop_nulls(inner, member)
        elif _lacks(inner, None) and inner.get("default") is None:
            del value[name]


def is_settled(schema: Mapping[str, Any], value: dict[str, Any]) -> bool:
    """Whether an object is one that `prune`, `drop_nulls`, `fill` and the conversions of numbers leave as it is. May be
    False of one that they do; most are of few fields with plain values.
    """
    properties = schema.get("properties") or _NOTHING
    for name, inner in properties.items():
        member: Any = value.get(name)
        kind: type = type(member)
        if kind is str or kind is bool:
            continue
        if kind is dict:
            if not is_settled(inner, member):
                return False
        elif kind is int:
            if not -_WIDE < member < _WIDE:
                return False
        elif name in value or inner.get("default") is not None:
            return False
    return value.keys() <= properties.keys()


_WIDE = 1 << 63


def prune(schema: Mapping[str, Any], value: Any, path: str = "") -> list[str]:
    """Removes unspecified fields from `value`, in place; returns their paths."""
    dropped: list[str] = []
    _prune(schema, value, path, dropped)
    return dropped


def _prune(schema: Mapping[str, Any], value: Any, path: str, dropped: list[str], kept: bool = False) -> None:
    """`kept` means that the value is in a list whose unknown fields are preserved."""
    if isinstance(value, dict):
        _prune_fields(schema, value, path, dropped, kept)
    elif isinstance(value, list):
        kept = kept or bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        for index, item in enumerate(value):
            _prune(schema.get("items") or _NOTHING, item, f"{path}[{index}]", dropped, kept)


def _prune_fields(
    schema: Mapping[str, Any], value: dict[str, Any], path: str, dropped: list[str], kept: bool
) -> None:
    properties = schema.get("properties") or _NOTHING
    # `true` is a schema without any fields, so everything below is pruned.
    additional = schema.get("additionalProperties") or None
    others = additional if additional is not None and isinstance(additional, Mapping) else _NOTHING
    open_ended = kept or schema.get("x-kubernetes-preserve-unknown-fields")
    embedded = schema.get("x-kubernetes-embedded-resource")
    for name in list(value):
        if embedded and name in _META:
            continue
        member = value[name]
        if name in properties:
            if type(member) is dict or type(member) is list:
                _prune(properties[name], member, f"{path}.{name}" if path else name, dropped)
        elif additional is not None:
            if type(member) is dict or type(member) is list:
                _prune(others, member, f"{path}.{name}" if path else name, dropped)
        elif not open_ended:
            del value[name]
            dropped.append(f"{path}.{name}" if path else name)


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


def by_key(items: Sequence[Any], keys: Collection[str]) -> dict[bytes, Any]:
    """The items of a list of type map by their keys; of those that share keys, the first."""
    return {key_of(item, keys): item for item in reversed(items)}


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


def unchanged(schema: Mapping[str, Any], value: Any, old: Any) -> bool:
    """Whether a value is as it was; the order of a list of type map does not count."""
    if same(value, old):
        return True
    if isinstance(value, list) and isinstance(old, list) and len(value) == len(old):
        if schema.get("x-kubernetes-list-type") != "map":
            return False
        keys, items = schema.get("x-kubernetes-list-map-keys") or (), schema.get("items") or {}
        before = by_key(old, keys)
        return all(unchanged(items, item, before.get(key_of(item, keys), NOTHING)) for item in value)
    if isinstance(value, dict) and isinstance(old, dict) and value.keys() == old.keys():
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        others = additional if isinstance(additional, Mapping) else {}
        return all(
            unchanged(properties.get(name, others), member, old[name]) for name, member in value.items()
        )
    return False


def same(one: Any, other: Any) -> bool:
    """Whether the values are equal as JSON documents, where `true` differs from `1`."""
    return bool(one == other) and _encode(one) == _encode(other)
