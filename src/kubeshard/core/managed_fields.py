"""`metadata.managedFields`: the upgrade from update to server-side apply.

Server-side apply removes the fields that a manager applied before and leaves out now. That excludes fields that the
same manager set by a create, a replace or a merge patch: they have a separate entry with the operation
`Update`, and stay forever. So before its first apply a program changes that entry to the operation `Apply`.
Source: k8s.io/client-go/util/csaupgrade.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Entry = Mapping[str, Any]


def as_applied(entries: Sequence[Entry], manager: str) -> list[Entry] | None:
    """The entries with everything that the manager set marked as applied; None if there is nothing to change.

    Subresources are not changed. If the manager wrote several versions of the kind, that of its `Apply` entry
    is used, else the latest; the fields of the others have no owner then.
    """
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
    """The union of both sets of fields: a tree with empty maps as leaves."""
    return {**a, **{name: united(a.get(name, {}), below) for name, below in b.items()}}


def _is(entry: Entry, manager: str, operation: str) -> bool:
    return (
        entry.get("manager") == manager
        and entry.get("operation") == operation
        and not entry.get("subresource")
    )
