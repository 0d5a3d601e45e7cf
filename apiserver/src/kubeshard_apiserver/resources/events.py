"""Events: one resource served by two groups, with different names for the same fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard.core.kinds import GroupKind, GroupResource, Kind
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources.event_rules import common_errors, new_event_errors, unchanged_errors
from kubeshard_apiserver.resources.strategy import Stored
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.schema.decoding import Run
from kubeshard_apiserver.status import FieldError, invalid

EVENTS = (GroupResource("", "events"), GroupResource("events.k8s.io", "events"))
"""The resource under which all Events are stored, and its alias."""
_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "count": "deprecatedCount",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "reportingComponent": "reportingController",
}
"""Field names in the core group, mapped to those in `events.k8s.io`."""
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


class Events(Typed):
    """Events, stored in the group of the last write and converted when read."""

    def __init__(self, kind: Kind, stored: Stored) -> None:
        super().__init__(kind, stored)
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
        # Field names of the other group have no meaning here.
        left = [entry for entry in managed if entry.get("apiVersion") == self.kind.api_version]
        new["metadata"]["managedFields"] = left

    def validate(self, obj: Object) -> list[FieldError]:
        event = self._in_core(obj)
        if not self.kind.group:
            return common_errors(event, "reportingComponent")
        return _in_words_of_core(event, common_errors(event, "reportingController") + new_event_errors(event))

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        event = self._in_core(new)
        if not self.kind.group:
            return common_errors(event, "reportingComponent")
        errors = common_errors(event, "reportingController")
        return _in_words_of_core(event, errors + unchanged_errors(event, self._in_core(old)))

    def _in_core(self, obj: Object) -> Object:
        """Return the event with core group field names."""
        names = {own: other for other, own in self._renamed.items()} if self.kind.group else {}
        return {names.get(name, name): value for name, value in obj.items()}

    def fields_for_selection(self, obj: Object) -> dict[str, str]:
        own = obj if obj["apiVersion"] == self.kind.api_version else self.converted(obj)
        fields = super().fields_for_selection(own)
        if "source" in self.selectable:
            fields["source"] = own["source"].get("component") or own.get("reportingComponent") or ""
        return fields

    def selector_problem(self, path: str) -> str:
        return f"field label not supported: {path}"


def _in_words_of_core(event: Object, errors: list[FieldError]) -> list[FieldError]:
    """Raise Invalid if there are errors. In both groups the message is about an Event of the core group."""
    if errors:
        raise invalid(GroupKind("", "Event"), event["metadata"].get("name", ""), errors)
    return errors
