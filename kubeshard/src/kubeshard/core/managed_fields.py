"""`metadata.managedFields`: what a field manager applied, and the upgrade from update to server-side apply.

Server-side apply removes the fields that a manager applied before and leaves out now. That excludes fields that the
same manager set by a create, a replace or a merge patch: they have a separate entry with the operation
`Update`, and stay forever. So before its first apply a program changes that entry to the operation `Apply`.
Source: k8s.io/client-go/util/csaupgrade.

For the same reason, to change one field and keep the others, a manager must send all of its fields again
(`owned_fields`).

Guaranteed: applying the result of `owned_fields`, unchanged, as the same manager does not change values or take fields
from others. Not guaranteed: that it does not own more afterwards: for a map below the status that was applied empty it
is unknown whether its members belong to the manager, so they are included. Managers that wrote by updates
and patches are not supported: their ownership is recorded differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kubeshard.core.objects import ObjectMeta, Struct

Entry = Mapping[str, Any]


class FieldManager(Struct):
    """Who wrote an object, and when last."""

    manager: str = ""
    time: str | None = None


class ManagedMeta(ObjectMeta):
    """`metadata` with the names of those who wrote the object, for a kind of which that is asked."""

    managed_fields: tuple[FieldManager, ...] = ()

    def writers(self, *without: str) -> list[FieldManager]:
        """All but these, the last one first."""
        others = [each for each in self.managed_fields if each.manager not in without]
        return sorted(others, key=lambda each: each.time or "", reverse=True)


def as_applied(entries: Sequence[Entry], manager: str) -> list[Entry] | None:
    """With everything that the manager set marked as applied, but for subresources; None if nothing changes."""
    updates = [entry for entry in entries if _is(entry, manager, "Update")]
    if not updates:
        return None
    base = next((entry for entry in entries if _is(entry, manager, "Apply")), None) or max(
        updates, key=lambda entry: str(entry.get("time", ""))
    )
    fields: Any = base.get("fieldsV1", {})
    for entry in updates:
        if entry.get("apiVersion") == base.get("apiVersion"):
            fields = united(fields, entry.get("fieldsV1", {}))
    others = [entry for entry in entries if entry is not base and not _is(entry, manager, "Update")]
    return [*others, {**base, "operation": "Apply", "fieldsV1": fields}]


def united(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """The union of both sets of fields: a tree with empty maps as leaves. It may share branches with them."""
    return {**a, **{name: united(a[name], below) if name in a else below for name, below in b.items()}}


def _is(entry: Entry, manager: str, operation: str) -> bool:
    return (
        entry.get("manager") == manager
        and entry.get("operation") == operation
        and not entry.get("subresource")
    )


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
        # In the order of the list: an apply of it in another order would be a change.
        return [
            part for item in value for path, below in fields.items() for part in _items([item], path, below)
        ]
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


def everyones(document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that any manager owns; empty if the object has none."""
    fields: dict[str, Any] = {}
    for entry in (document.get("metadata") or {}).get("managedFields") or ():
        fields = united(fields, entry.get("fieldsV1") or {})
    return fields


def keeping_unowned(had: Any, new: Any, said: Any, fields: Mapping[str, Any] | None) -> Any:
    """`new`, with those members of maps and items of lists in `had` that nobody owns: they were added after the fields
    had been attributed, by admission. What `said` sets to null is not kept. `fields`: who owns what in `had`; None:
    nobody owns any of it.
    """
    if fields is not None and not fields:  # owned as a whole
        return new
    match had, new:
        case Mapping(), Mapping():
            told = said if isinstance(said, Mapping) else {}
            below = fields or {}
            kept = {
                name: value
                for name, value in had.items()
                if name not in new and name not in told and f"f:{name}" not in below
            }
            return {
                name: keeping_unowned(had[name], value, told.get(name), below.get(f"f:{name}"))
                if name in had
                else value
                for name, value in new.items()
            } | kept
        case list(), list() if fields is not None:
            return _with_unowned_items(had, new, said, fields)
        case _:
            return new


def _with_unowned_items(had: list[Any], new: list[Any], said: Any, fields: Mapping[str, Any]) -> list[Any]:
    """Items keep their places: the desired ones take those of their predecessors, in the desired order."""
    keys = {name: msgspec.json.decode(name[2:]) for name in fields if name.startswith("k:")}
    values = [msgspec.json.decode(name[2:]) for name in fields if name.startswith("v:")]
    if keys and not all(isinstance(item, Mapping) for item in (*had, *new)):
        return new
    names = {name for key in keys.values() for name in key}

    def owner(item: Any) -> str | None:
        if not keys:
            return "v:" if item in values else None
        return next((name for name, key in keys.items() if _has(item, key)), None)

    def is_same(item: Any, live: Any) -> bool:
        if not keys:
            return bool(item == live)
        return all(item.get(name, live.get(name)) == live.get(name) for name in names)

    free = dict(enumerate(had))
    told = said if isinstance(said, list | tuple) and len(said) == len(new) else [None] * len(new)
    desired, taken = [], set()
    for item, says in zip(new, told, strict=True):
        place = next((place for place, live in free.items() if is_same(item, live)), None)
        if place is None:
            desired.append(item)
            continue
        live = free.pop(place)
        taken.add(place)
        if isinstance(item, Mapping):  # what an item leaves out is kept, as in `overlay`
            unsaid = says if isinstance(says, Mapping) else item
            kept = {name: value for name, value in live.items() if name not in item and name not in unsaid}
            item = {**kept, **item}
        who = owner(live)
        desired.append(keeping_unowned(live, item, says, fields[who] if who is not None and keys else None))
    left = iter(desired)
    items = [
        next(left) if place in taken else item
        for place, item in enumerate(had)
        if place in taken or owner(item) is None
    ]
    return [*items, *left]


def fields_of_item(item: Any, fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What somebody owns of an item of a list with keys; None for nothing."""
    for name, below in fields.items():
        if name.startswith("k:") and isinstance(item, Mapping) and _has(item, msgspec.json.decode(name[2:])):
            found: Mapping[str, Any] = below
            return found
    return None


def _has(item: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
    return all(item.get(name) == value for name, value in key.items())
