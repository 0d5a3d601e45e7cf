"""Who owns which fields: `metadata.managedFields`, read and written.

Guaranteed: entries are in the server's order; an applier has one entry per subresource whatever version it used, and
an updater has one per version. If one entry cannot be read, the whole list counts as absent, as on the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kubeshard.core.times import parse_time
from kubeshard_apiserver.apply.fieldset import FieldSet, difference, from_fields_v1


class Manager(NamedTuple):
    """`operation` is `Apply` or `Update`; `api_version` is empty for an applier, because appliers are not distinguished
    by version.
    """

    name: str
    operation: str
    subresource: str = ""
    api_version: str = ""


class ManagedFieldsEntry(NamedTuple):
    """The fields of one manager."""

    fields: FieldSet
    api_version: str
    time: str | None = None


Managers = dict[Manager, ManagedFieldsEntry]


def read_managers(obj: Mapping[str, Any], *, stored: bool = False) -> Managers:
    """Returns the managers of the object; empty if it has no readable managedFields. `stored` means that the object
    comes from the store, so that its field sets are in the server's form.
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
        fields = entry.get("fieldsV1")
        if not (stored and isinstance(fields, dict)):
            try:
                fields = from_fields_v1(fields)
            except ValueError:
                return {}
        managers[manager] = ManagedFieldsEntry(fields, version, entry.get("time"))
    return managers


def written(managers: Managers) -> list[dict[str, Any]] | None:
    """Returns the wire form, or None if no field has an owner."""
    ordered = sorted(managers.items(), key=_place) if len(managers) > 1 else managers.items()
    return [_entry(manager, owned) for manager, owned in ordered] or None


def _place(item: tuple[Manager, ManagedFieldsEntry]) -> tuple[str, int, str, str, str]:
    manager, owned = item
    time = int(parse_time(owned.time) or 0)
    return manager.operation, time, manager.name, owned.api_version, manager.subresource


def without(owned: ManagedFieldsEntry, fields: FieldSet) -> ManagedFieldsEntry:
    left = difference(owned.fields, fields)
    return owned if left is owned.fields else owned._replace(fields=left)


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
    entry["fieldsType"], entry["fieldsV1"] = "FieldsV1", owned.fields
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry
