"""Events: two kinds of two groups that are one resource, with other names for the same fields.

Not covered: the rules of `events.k8s.io/v1` about what has to be said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard.apiserver.objects import Object
from kubeshard.apiserver.resources.typed import Typed
from kubeshard.apiserver.schema.decoding import Run
from kubeshard.core.kinds import GroupResource, Kind

EVENTS = (GroupResource("", "events"), GroupResource("events.k8s.io", "events"))
"""The resource where both are kept, and the other one."""
_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "count": "deprecatedCount",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "reportingComponent": "reportingController",
}
"""In the core group, and in `events.k8s.io`."""
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


class Events(Typed):
    """Stored as they were written last, shown as they are asked for."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        pairs = [(theirs, ours) if kind.group else (ours, theirs) for ours, theirs in _NAMES.items()]
        self._renamed: Mapping[str, str] = {other: own for own, other in pairs}
        reference = self._renamed.get("involvedObject", "involvedObject")
        reporter = self._renamed.get("reportingComponent", "reportingComponent")
        fields = (*(f"{reference}.{field}" for field in _REFERENCE), "reason", "type", reporter)
        self.selectable = (*Typed.selectable, *fields, *(() if kind.group else ("source",)))

    def converted(self, obj: Object) -> Object:
        renamed = {self._renamed.get(name, name): value for name, value in obj.items()}
        decoded: dict[str, Any] = self.type.decode(renamed, None, Run(self.kind.kind, self.kind.version))
        return {
            **decoded,
            "kind": self.kind.kind,
            "apiVersion": self.kind.api_version,
            "metadata": obj["metadata"],
        }

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        super().prepare_update(new, old, subresource)
        managed = new["metadata"].get("managedFields") or ()
        # Names of fields in another group mean nothing here.
        left = [entry for entry in managed if entry.get("apiVersion") == self.kind.api_version]
        new["metadata"]["managedFields"] = left

    def fields_for_selection(self, obj: Object) -> dict[str, str]:
        own = obj if obj["apiVersion"] == self.kind.api_version else self.converted(obj)
        fields = super().fields_for_selection(own)
        if "source" in self.selectable:
            fields["source"] = own["source"].get("component") or own.get("reportingComponent") or ""
        return fields

    def selector_problem(self, path: str) -> str:
        return f"field label not supported: {path}"
