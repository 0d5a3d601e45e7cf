"""HorizontalPodAutoscalers in v1 and v2. Annotations keep what v1 cannot express.

Unlike on the real server, these annotations contain v2 fields.
"""

from __future__ import annotations

import json
from typing import Any

from kubeshard_apiserver.objects import Object, with_metadata
from kubeshard_apiserver.resources.autoscaler_rules import autoscaler_errors, default_autoscaler
from kubeshard_apiserver.resources.facts import fact_errors
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.schema.decoding import Run
from kubeshard_apiserver.status import FieldError

_USUAL_SHARE = 80
_PREFIX = "autoscaling.alpha.kubernetes.io/"
_KEPT = {"metrics": "spec", "behavior": "spec", "conditions": "status", "current-metrics": "status"}
"""The annotations that preserve v2 fields, each with the part of the object that contains its field."""


class Autoscalers(Typed):
    """HorizontalPodAutoscalers, stored in the version of the last write and converted when read."""

    def set_defaults(self, obj: Object) -> None:
        if self.kind.version == "v2":
            default_autoscaler(obj["spec"])
            return
        obj["spec"].setdefault("minReplicas", 1)
        given = obj["spec"].get("targetCPUUtilizationPercentage") is not None
        if not given and _PREFIX + "metrics" not in _annotations(obj):
            obj["spec"]["targetCPUUtilizationPercentage"] = _USUAL_SHARE

    def validate(self, obj: Object) -> list[FieldError]:
        return autoscaler_errors(self._in_v2(obj)["spec"], None)

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        if subresource != "status":
            return autoscaler_errors(self._in_v2(new)["spec"], self._in_v2(old)["spec"])
        return fact_errors("autoscaling.v2.HorizontalPodAutoscalerStatus", "status", new["status"])

    def _in_v2(self, obj: Object) -> Object:
        return _to_v2(obj) if self.kind.version == "v1" else obj

    def converted(self, obj: Object) -> Object:
        moved = _to_v1(obj) if self.kind.version == "v1" else _to_v2(obj)
        decoded = self.type.decode(moved, None, Run(self.kind.kind, self.kind.version))
        return {**decoded, "apiVersion": self.kind.api_version, "metadata": moved["metadata"]}


def _to_v1(obj: Object) -> Object:
    spec, status = dict(obj["spec"]), dict(obj["status"])
    if cpu := _cpu(spec.get("metrics"), "target"):
        spec["targetCPUUtilizationPercentage"] = cpu["resource"]["target"]["averageUtilization"]
        spec["metrics"] = [metric for metric in spec["metrics"] if metric is not cpu]
    if cpu := _cpu(status.get("currentMetrics"), "current"):
        status["currentCPUUtilizationPercentage"] = cpu["resource"]["current"]["averageUtilization"]
    status.setdefault("currentReplicas", 0)
    parts = {"spec": spec, "status": status}
    kept = {
        _PREFIX + name: json.dumps(value, separators=(",", ":"))
        for name, part in _KEPT.items()
        if (value := parts[part].pop(_field(name), None))
    }
    return _annotated(obj, parts, {**_annotations(obj), **kept})


def _to_v2(obj: Object) -> Object:
    parts = {"spec": dict(obj["spec"]), "status": dict(obj["status"])}
    annotations = dict(_annotations(obj))
    for name, part in _KEPT.items():
        if text := annotations.pop(_PREFIX + name, None):
            parts[part][_field(name)] = json.loads(text)
    target = parts["spec"].pop("targetCPUUtilizationPercentage", None)
    if target is not None:
        goal = {"type": "Utilization", "averageUtilization": target}
        cpu = {"type": "Resource", "resource": {"name": "cpu", "target": goal}}
        parts["spec"]["metrics"] = [*(parts["spec"].get("metrics") or ()), cpu]
    parts["status"].pop("currentCPUUtilizationPercentage", None)
    return _annotated(obj, parts, annotations)


def _cpu(metrics: list[Any] | None, what: str) -> dict[str, Any] | None:
    """Return the CPU metric, the only one that v1 knows."""
    for metric in metrics or ():
        resource = metric.get("resource") or {}
        if resource.get("name") == "cpu" and (resource.get(what) or {}).get("averageUtilization") is not None:
            found: dict[str, Any] = metric
            return found
    return None


def _field(annotation: str) -> str:
    return "currentMetrics" if annotation == "current-metrics" else annotation


def _annotations(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def _annotated(obj: Object, parts: Object, annotations: dict[str, str]) -> Object:
    return with_metadata({**obj, **parts}, annotations=annotations or None)
