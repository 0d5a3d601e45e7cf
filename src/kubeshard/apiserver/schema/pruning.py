"""Dropping what a structural schema does not specify."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def prune(schema: Mapping[str, Any], value: Any, path: str = "") -> list[str]:
    """Removes unspecified fields from `value`, in place; returns their paths."""
    dropped: list[str] = []
    if isinstance(value, list):
        for index, item in enumerate(value):
            dropped += prune(schema.get("items") or {}, item, f"{path}[{index}]")
    if not isinstance(value, dict):
        return dropped
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    open_ended = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or additional is True
    embedded = ("apiVersion", "kind", "metadata") if schema.get("x-kubernetes-embedded-resource") else ()
    for name in list(value):
        here = f"{path}.{name}" if path else name
        if name in properties:
            dropped += prune(properties[name], value[name], here)
        elif isinstance(additional, Mapping):
            dropped += prune(additional, value[name], here)
        elif not open_ended and name not in embedded:
            del value[name]
            dropped.append(here)
    return dropped
