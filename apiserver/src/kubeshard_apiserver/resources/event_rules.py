"""Validation of Events, which is stricter for `events.k8s.io` than for the core group. Fields have their core group
names here. Source: k8s.io/kubernetes `pkg/apis/core/validation`; KEP-383.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard_apiserver.resources.pod_names import qualified_name, wrong
from kubeshard_apiserver.status import FieldError, immutable, invalid_value, required

Given = Mapping[str, Any]
_LIMITS = {"reportingInstance": 128, "action": 128, "reason": 128}
_LONGEST_MESSAGE = 1024
_TEXTS = ("reason", "message", "firstTimestamp", "lastTimestamp", "count", "type", "eventTime", "action")
_REFERENCE = {
    "Kind": "kind",
    "Namespace": "namespace",
    "Name": "name",
    "UID": "uid",
    "APIVersion": "apiVersion",
    "ResourceVersion": "resourceVersion",
    "FieldPath": "fieldPath",
}
_SOURCE = {"Component": "component", "Host": "host"}


def common_errors(event: Given, reporter: str) -> list[FieldError]:
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


def new_event_errors(event: Given) -> list[FieldError]:
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


def unchanged_errors(event: Given, old: Given) -> list[FieldError]:
    """Validate an update in `events.k8s.io`: only the series may change."""
    errors = _series(event) if event.get("series") != old.get("series") else []
    for field, names in (("involvedObject", _REFERENCE), ("related", _REFERENCE), ("source", _SOURCE)):
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


def _series(event: Given) -> list[FieldError]:
    series = event.get("series")
    if series is None:
        return []
    errors: list[FieldError] = []
    if series.get("count", 0) < 2:
        errors.append(invalid_value("series.count", "", "should be at least 2"))
    return errors if series.get("lastObservedTime") else [*errors, required("series.lastObservedTime")]


def _too_long(field: str, limit: int) -> FieldError:
    return invalid_value(field, "", f"can have at most {limit} characters")
