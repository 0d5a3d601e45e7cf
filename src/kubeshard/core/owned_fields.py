"""What one field manager applied: the part of an object that is its own.

Server-side apply removes what a manager applied before and leaves out now. So whoever wants to change one field and
keep the others must send all of its own again; `metadata.managedFields` says which these are.

Guaranteed: applying what `owned_fields` returns, unchanged, as the same manager changes no value, and takes nothing
from others. Not guaranteed: that it owns no more afterwards: of a map below the status that was applied empty it cannot
be told whether its members are the manager's, so they are taken along. Nor anything of managers that wrote by updates
and patches: those own fields in another way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


def owned_fields(document: Mapping[str, Any], manager: str, subresource: str = "") -> dict[str, Any]:
    """The fields that the manager applied (through the subresource), with their values. Without those that identify
    the object, and empty where the manager applied nothing. `document`: as on the wire, with its `managedFields`.
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
    """The part of the value that a set of fields names; all of it where that names none below."""
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
    """The items of a list that one part of a path names: by keys, or by their value."""
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
