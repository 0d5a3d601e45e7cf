"""Applies a structural schema to a value in place: missing fields get their defaults, and unspecified fields are
dropped.

Source: k8s.io/apiextensions-apiserver `pkg/apiserver/schema/defaulting`, `.../pruning`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

_META = ("apiVersion", "kind", "metadata")
_NOTHING: Mapping[str, Any] = {}


def fill(schema: Mapping[str, Any], value: Any) -> None:
    """Sets missing fields that have a default, in place. A null where null is not allowed counts as missing."""
    if isinstance(value, list):
        items = schema.get("items") or {}
        for index, item in enumerate(value):
            if item is None and "default" in items and not items.get("nullable"):
                value[index] = item = deepcopy(items["default"])
            fill(items, item)
    if not isinstance(value, dict):
        return
    properties = schema.get("properties") or {}
    for name, inner in properties.items():
        if value.get(name) is None and not (name in value and inner.get("nullable")):
            value.pop(name, None)
            if inner.get("default") is not None:
                value[name] = deepcopy(inner["default"])
        if name in value:
            fill(inner, value[name])
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        for name in value.keys() - properties.keys():
            if value[name] is None and not additional.get("nullable"):
                del value[name]
            else:
                fill(additional, value[name])


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
    others = additional if isinstance(additional, Mapping) else _NOTHING
    open_ended = kept or schema.get("x-kubernetes-preserve-unknown-fields")
    embedded = schema.get("x-kubernetes-embedded-resource")
    for name in list(value):
        if embedded and name in _META:
            continue
        member = value[name]
        if name in properties:
            if isinstance(member, dict | list):
                _prune(properties[name], member, f"{path}.{name}" if path else name, dropped)
        elif additional is not None:
            if isinstance(member, dict | list):
                _prune(others, member, f"{path}.{name}" if path else name, dropped)
        elif not open_ended:
            del value[name]
            dropped.append(f"{path}.{name}" if path else name)
