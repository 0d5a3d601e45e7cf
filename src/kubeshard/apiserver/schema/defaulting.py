"""Filling in the defaults of a structural schema."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any


def fill(schema: Mapping[str, Any], value: Any) -> None:
    """Sets missing fields that have a default, in place. A null where null is not allowed counts as missing."""
    if isinstance(value, list):
        for item in value:
            fill(schema.get("items") or {}, item)
    if not isinstance(value, dict):
        return
    properties = schema.get("properties") or {}
    for name, inner in properties.items():
        if value.get(name) is None and not (name in value and inner.get("nullable")):
            value.pop(name, None)
            if "default" in inner:
                value[name] = deepcopy(inner["default"])
        if name in value:
            fill(inner, value[name])
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        for name in value.keys() - properties.keys():
            fill(additional, value[name])
