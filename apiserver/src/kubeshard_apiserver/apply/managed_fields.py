"""Who owns which fields: `metadata.managedFields`, read and written.

Guaranteed: entries are in the server's order; an applier has one entry per subresource whatever version it used, and
an updater has one per version. If one entry cannot be read, the whole list counts as absent, as on the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from kubeshard.core.times import parse_time
from kubeshard_apiserver.apply.fieldset import FieldSet, contains, from_fields_v1, to_fields_v1


class Manager(NamedTuple):
    """`operation` is `Apply` or `Update`; `api_version` is empty for an applier, because appliers are not distinguished
    by version.
    """

    name: str
    operation: str
    subresource: str = ""
    api_version: str = ""


@dataclass(frozen=True, eq=False)
class ManagedFieldsEntry:
    """The fields of one manager: as a set, in the server's FieldsV1 form (`wire`), or both.

    Most updates change nothing about who owns what. So questions are answered from `wire` where there is one, and the
    set is read from it only if it has to change.
    """

    known: FieldSet | None
    api_version: str
    time: str | None = None
    wire: dict[str, Any] | None = None

    @cached_property
    def fields(self) -> FieldSet:
        return from_fields_v1(self.wire) if self.known is None else self.known

    def has_any(self, paths: FieldSet) -> bool:
        if self.wire is None:
            return not self.fields.isdisjoint(paths)
        return any(contains(self.wire, path) for path in paths)

    def has_all(self, paths: FieldSet) -> bool:
        if self.wire is None:
            return paths <= self.fields
        return all(contains(self.wire, path) for path in paths)

    @property
    def is_empty(self) -> bool:
        return not (self.fields if self.wire is None else self.wire)


Managers = dict[Manager, ManagedFieldsEntry]


def read_managers(obj: Mapping[str, Any], *, stored: bool = False) -> Managers:
    """Returns the managers of the object; empty if it has no readable managedFields. `stored` means that the object
    comes from the store, so that its field sets are in the server's form, and readable.
    """
    managers: Managers = {}
    for entry in obj.get("metadata", {}).get("managedFields") or ():
        operation, version = entry.get("operation"), entry.get("apiVersion")
        if operation not in ("Apply", "Update") or not version or entry.get("fieldsType") != "FieldsV1":
            return {}
        manager = Manager(
            entry.get("manager", ""),
            operation,
            entry.get("subresource", ""),
            version if operation == "Update" else "",
        )
        wire = entry.get("fieldsV1")
        if stored and isinstance(wire, dict):
            managers[manager] = ManagedFieldsEntry(None, version, entry.get("time"), wire)
            continue
        try:
            fields = from_fields_v1(wire)
        except ValueError:
            return {}
        managers[manager] = ManagedFieldsEntry(fields, version, entry.get("time"))
    return managers


def written(managers: Managers) -> list[dict[str, Any]] | None:
    """Returns the wire form, or None if no field has an owner."""
    ordered = sorted(
        managers.items(),
        key=lambda item: (
            item[0].operation,
            int(parse_time(item[1].time) or 0),
            item[0].name,
            item[1].api_version,
            item[0].subresource,
        ),
    )
    return [_entry(manager, owned) for manager, owned in ordered] or None


def without(owned: ManagedFieldsEntry, fields: FieldSet) -> ManagedFieldsEntry:
    if not owned.has_any(fields):
        return owned
    return ManagedFieldsEntry(owned.fields - fields, owned.api_version, owned.time)


def shown(manager: Manager, owned: ManagedFieldsEntry) -> str:
    """The name of the manager in conflicts."""
    text = f'"{manager.name}"'
    if manager.subresource:
        text += f' with subresource "{manager.subresource}"'
    if manager.operation == "Update":
        text += f" using {owned.api_version}"
    return text


def _entry(manager: Manager, owned: ManagedFieldsEntry) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": owned.api_version,
    }
    if owned.time:
        entry["time"] = owned.time
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": owned.wire or to_fields_v1(owned.fields)}
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry
