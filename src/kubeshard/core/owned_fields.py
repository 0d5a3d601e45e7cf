"""The fields of an object that one field manager applied.

Server-side apply removes fields that a manager applied before and leaves out now. So to change one field and
keep the others, a manager must send all of its fields again; `metadata.managedFields` lists them.

Guaranteed: applying the result of `owned_fields`, unchanged, as the same manager does not change values or take fields
from others. Not guaranteed: that it does not own more afterwards: for a map below the status that was applied empty it
is unknown whether its members belong to the manager, so they are included. Managers that wrote by updates
and patches are not supported: their ownership is recorded differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


def owned_fields(document: Mapping[str, Any], manager: str, subresource: str = "") -> dict[str, Any]:
    """The fields that the manager applied (through the subresource), with their values. Without those that identify
    the object, and empty if the manager applied nothing. `document`: as on the wire, with its `managedFields`.
    """
    for entry in (document.get("metadata") or {}).get("managedFields") or ():
        who = (entry.get("manager"), entry.get("operation"), entry.get("subresource", ""))
        if who == (manager, "Apply", subresource):
            fields = entry.get("fieldsV1") or {}
            return {
                name: _part(document[name], below) if below else {}
                for path, below in fields.items()
                if (name := path[2:]) in document
            }
    return {}


def _part(value: Any, fields: Mapping[str, Any]) -> Any:
    """The part of the value in a set of fields; all of it if the set has no fields below it."""
    if not any(name != "." for name in fields):
        return value
    if isinstance(value, Mapping):
        return {
            name: _part(value[name], below)
            for path, below in fields.items()
            if path.startswith("f:") and (name := path[2:]) in value
        }
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [part for path, below in fields.items() for part in _items(value, path, below)]
    return value


def _items(items: Sequence[Any], path: str, fields: Mapping[str, Any]) -> list[Any]:
    """The items of a list that match one part of a path: by keys, or by value."""
    kind, _, text = path.partition(":")
    if kind == "v":
        value = msgspec.json.decode(text)
        return [item for item in items if item == value]
    if kind == "k":
        keys = msgspec.json.decode(text)
        return [
            {**keys, **_part(item, fields)}
            for item in items
            if isinstance(item, Mapping) and all(item.get(key) == value for key, value in keys.items())
        ]
    return []
