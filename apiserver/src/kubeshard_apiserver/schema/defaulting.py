"""Filling in the defaults of a structural schema.

Source: k8s.io/apiextensions-apiserver `pkg/apiserver/schema/defaulting`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any


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
