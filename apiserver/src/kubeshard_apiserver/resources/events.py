"""Events: one resource served by two groups, with different names for the same fields.

Validation is stricter for `events.k8s.io` than for the core group; its rules use the core group's names of fields.
Source: k8s.io/kubernetes `pkg/apis/core/validation`; KEP-383.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard.core.kinds import GroupKind, GroupResource, Kind
from kubeshard_apiserver.objects import JsonObject, Object
from kubeshard_apiserver.resources.strategy import Stored
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.schema.decoding import DecodeState
from kubeshard_apiserver.schema.name_formats import qualified_name, wrong
from kubeshard_apiserver.status import FieldError, immutable, invalid, invalid_value, required

_LIMITS = {"reportingInstance": 128, "action": 128, "reason": 128}
_LONGEST_MESSAGE = 1024
_TEXTS = ("reason", "message", "firstTimestamp", "lastTimestamp", "count", "type", "eventTime", "action")
_REFERENCE_FIELDS = {
    "Kind": "kind",
    "Namespace": "namespace",
    "Name": "name",
    "UID": "uid",
    "APIVersion": "apiVersion",
    "ResourceVersion": "resourceVersion",
    "FieldPath": "fieldPath",
}
_SOURCE = {"Component": "component", "Host": "host"}


def _common_errors(event: JsonObject, reporter: str) -> list[FieldError]:
    """Validate an Event. `reporter` is what the group calls the field with the reporting controller."""
    namespace, about = event["metadata"]["namespace"], event["involvedObject"].get("namespace", "")
    timed = bool(event.get("eventTime"))
    homeless = ("default", "kube-system") if timed else ("default",)
    errors: list[FieldError] = []
    if (not about and namespace not in homeless) or (about and about != namespace and not timed):
        problem = "does not match event.namespace"
        errors.append(invalid_value("involvedObject.namespace", about, problem))
    if not timed:
        return errors
    name = event.get("reportingComponent", "")
    errors += [] if name else [required(reporter)]
    errors += wrong(reporter, name, qualified_name)
    for field, limit in _LIMITS.items():
        text = event.get(field, "")
        if not text:
            errors.append(required(field))
        elif len(text.encode()) > limit:
            errors.append(_too_long(field, limit))
    if len(event.get("message", "").encode()) > _LONGEST_MESSAGE:
        errors.append(_too_long("message", _LONGEST_MESSAGE))
    return errors


def _new_event_errors(event: JsonObject) -> list[FieldError]:
    """Validate a new Event in `events.k8s.io`."""
    errors, kind = _series(event), event.get("type", "")
    if not event.get("eventTime"):
        errors.append(required("eventTime"))
    if kind not in ("Normal", "Warning"):
        errors.append(invalid_value("type", "", f"has invalid value: {kind}"))
    return errors + [
        invalid_value(field, "", "needs to be unset")
        for field in ("firstTimestamp", "lastTimestamp", "count", "source")
        if event.get(field)
    ]


def _unchanged_errors(event: JsonObject, old: JsonObject) -> list[FieldError]:
    """Validate an update in `events.k8s.io`: only the series may change."""
    errors = _series(event) if event.get("series") != old.get("series") else []
    for field, names in (
        ("involvedObject", _REFERENCE_FIELDS),
        ("related", _REFERENCE_FIELDS),
        ("source", _SOURCE),
    ):
        given = event.get(field)
        if given != old.get(field):
            shown = given and {go: given.get(name, "") for go, name in names.items()}
            errors.append(immutable(field, shown))
    errors += [immutable(field, event.get(field)) for field in _TEXTS if event.get(field) != old.get(field)]
    for field, told in (
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ):
        if event.get(field) != old.get(field):
            errors.append(immutable(told, event.get(field, "")))
    return errors


def _series(event: JsonObject) -> list[FieldError]:
    series = event.get("series")
    if series is None:
        return []
    errors: list[FieldError] = []
    if series.get("count", 0) < 2:
        errors.append(invalid_value("series.count", "", "should be at least 2"))
    return errors if series.get("lastObservedTime") else [*errors, required("series.lastObservedTime")]


def _too_long(field: str, limit: int) -> FieldError:
    return invalid_value(field, "", f"can have at most {limit} characters")


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
        decoded: dict[str, Any] = self.type.decode(
            renamed, None, DecodeState(self.kind.kind, self.kind.version)
        )
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
            return _common_errors(event, "reportingComponent")
        return _in_words_of_core(
            event, _common_errors(event, "reportingController") + _new_event_errors(event)
        )

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        event = self._in_core(new)
        if not self.kind.group:
            return _common_errors(event, "reportingComponent")
        errors = _common_errors(event, "reportingController")
        return _in_words_of_core(event, errors + _unchanged_errors(event, self._in_core(old)))

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
