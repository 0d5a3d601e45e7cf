"""`metadata.managedFields`: from writing an object to applying it.

Server-side apply removes the fields that a manager applied before and leaves out now. Fields that the same manager
set by a create, a replace or a merge patch are not among them: they have an entry of their own, of the operation
`Update`, and stay forever. So before its first apply a program turns that entry into one of the operation `Apply`.
Source: k8s.io/client-go/util/csaupgrade.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Entry = Mapping[str, Any]


def as_applied(entries: Sequence[Entry], manager: str) -> list[Entry] | None:
    """The entries in which what the manager set counts as applied by it; None if there is nothing to change.

    Subresources are left alone. Where the manager wrote in several versions of the kind, that of its `Apply` entry
    counts, else the latest; the fields of the others then belong to nobody.
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
            fields = _united(fields, entry.get("fieldsV1", {}))
    others = [entry for entry in entries if entry is not base and not _is(entry, manager, "Update")]
    return [*others, {**base, "operation": "Apply", "fieldsV1": fields}]


def _is(entry: Entry, manager: str, operation: str) -> bool:
    return (
        entry.get("manager") == manager
        and entry.get("operation") == operation
        and not entry.get("subresource")
    )


def _united(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Both sets of fields: a tree whose leaves are empty maps."""
    return {**a, **{name: _united(a.get(name, {}), below) for name, below in b.items()}}
