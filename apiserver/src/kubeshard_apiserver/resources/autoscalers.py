"""HorizontalPodAutoscalers in v1 and v2. Annotations keep what v1 cannot express.

Unlike on the real server, these annotations contain v2 fields. Source: k8s.io/kubernetes `pkg/apis/autoscaling`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from kubeshard_apiserver.objects import JsonObject, Object, own, with_metadata
from kubeshard_apiserver.resources.field_rules import field_rule_errors
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.schema.decoding import DecodeState
from kubeshard_apiserver.status import FieldError, forbidden_field, invalid_value, required

_SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
"""The field with the metric, by type."""
_IN_ORDER = ("object", "external", "pods", "resource", "containerResource")
_MEASURED = "autoscaling.v2.PodsMetricSource"
_PERCENT = {"type": "Percent", "value": 100, "periodSeconds": 15}
_UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, _PERCENT],
}
_DOWN = {"selectPolicy": "Max", "policies": [_PERCENT]}
_USUAL = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}


def _default_autoscaler(spec: Object) -> None:
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        spec["metrics"] = [_USUAL]
    if (behavior := own(spec, "behavior")) is not None:
        for field, usual in (("scaleUp", _UP), ("scaleDown", _DOWN)):
            behavior[field] = {**usual, **(behavior.get(field) or {})}


def _autoscaler_errors(spec: JsonObject, old: JsonObject | None) -> list[FieldError]:
    """Validate a spec. `old` is the spec before an update."""
    fewest, most, target = spec.get("minReplicas"), spec.get("maxReplicas", 0), spec["scaleTargetRef"]
    errors: list[FieldError] = []
    if fewest is not None and fewest < 0:
        errors.append(invalid_value("spec.minReplicas", fewest, "must be greater than or equal to 0"))
    errors += field_rule_errors("autoscaling.v2.HorizontalPodAutoscalerSpec", "spec", spec)
    if fewest is not None and most < fewest:
        problem = "must be greater than or equal to `minReplicas`"
        errors.append(invalid_value("spec.maxReplicas", most, problem))
    before = {} if old is None else old["scaleTargetRef"]
    kept = all(target.get(field, "") == before.get(field) for field in ("apiVersion", "kind"))
    in_core = target.get("kind") == "ReplicationController"
    errors += _reference("spec.scaleTargetRef", target, checks=not kept, needs_group=not in_core)
    metrics = spec.get("metrics") or ()
    for index, metric in enumerate(metrics):
        errors += _metric(f"spec.metrics[{index}]", metric)
    if fewest == 0 and not {metric.get("type") for metric in metrics} & {"Object", "External"}:
        problem = "must specify at least one Object or External metric to support scaling to zero replicas"
        errors.append(forbidden_field("spec.metrics", problem))
    return errors + field_rule_errors("autoscaling.v2.HorizontalPodAutoscalerSpec#behavior", "spec", spec)


def _reference(path: str, reference: JsonObject, *, checks: bool, needs_group: bool) -> list[FieldError]:
    errors = field_rule_errors("autoscaling.v2.CrossVersionObjectReference", path, reference)
    version = reference.get("apiVersion", "")
    problem = ""
    if version.count("/") > 1:
        problem = f"unexpected GroupVersion string: {version}"
    elif needs_group and not version.rpartition("/")[0]:
        problem = "apiVersion must specify API group"
    if checks and problem:
        errors.append(invalid_value(f"{path}.apiVersion", version, problem))
    return errors


def _metric(path: str, metric: JsonObject) -> list[FieldError]:
    kind = metric.get("type", "")
    errors = field_rule_errors("autoscaling.v2.MetricSpec", path, metric)
    given = [field for field in _IN_ORDER if metric.get(field) is not None]
    for field in given[:1]:
        errors += _RULES[field](f"{path}.{field}", metric[field])
    expected = _SOURCES.get(kind)
    if expected and expected not in given:
        problem = "must populate information for the given metric source"
        errors.append(required(f"{path}.{expected}", problem))
    if len(given) > 1:
        problem = "must populate the given metric source only"
        errors += [forbidden_field(f"{path}.{field}", problem) for field in given if field != expected]
    return errors


def _object(path: str, source: JsonObject) -> list[FieldError]:
    errors = _reference(f"{path}.describedObject", source["describedObject"], checks=True, needs_group=False)
    errors += field_rule_errors(_MEASURED, path, source)
    problem = "must set either a target value or averageValue"
    return errors + _one_of(path, source["target"], ("value", "averageValue"), "averageValue", problem)


def _external(path: str, source: JsonObject) -> list[FieldError]:
    target, fields = source["target"], ("value", "averageValue")
    errors = field_rule_errors(_MEASURED, path, source)
    problem = "must set either a target value for metric or a per-pod target"
    errors += _one_of(path, target, fields, "averageValue", problem)
    if all(target.get(field) is not None for field in fields):
        problem = "may not set both a target value for metric and a per-pod target"
        errors.append(forbidden_field(f"{path}.target.value", problem))
    return errors


def _pods(path: str, source: JsonObject) -> list[FieldError]:
    errors = field_rule_errors(_MEASURED, path, source)
    problem = "must specify a positive target averageValue"
    return errors + _one_of(path, source["target"], ("averageValue",), "averageValue", problem)


def _resource(path: str, source: JsonObject) -> list[FieldError]:
    errors = field_rule_errors("autoscaling.v2.ResourceMetricSource", path, source)
    return errors + _usage(path, source["target"])


def _container(path: str, source: JsonObject) -> list[FieldError]:
    errors = field_rule_errors("autoscaling.v2.ContainerResourceMetricSource", path, source)
    return errors + _usage(path, source["target"])


def _usage(path: str, target: JsonObject) -> list[FieldError]:
    fields = ("averageUtilization", "averageValue")
    problem = "must set either a target raw value or a target utilization"
    errors = _one_of(path, target, fields, "averageUtilization", problem)
    if all(target.get(field) is not None for field in fields):
        problem = "may not set both a target raw value and a target utilization"
        errors.append(forbidden_field(f"{path}.target.averageValue", problem))
    return errors


def _one_of(
    path: str, target: JsonObject, fields: tuple[str, ...], where: str, problem: str
) -> list[FieldError]:
    if any(target.get(field) is not None for field in fields):
        return []
    return [required(f"{path}.target.{where}", problem)]


_RULES: Mapping[str, Callable[[str, JsonObject], list[FieldError]]] = {
    "object": _object,
    "external": _external,
    "pods": _pods,
    "resource": _resource,
    "containerResource": _container,
}


_USUAL_SHARE = 80
_PREFIX = "autoscaling.alpha.kubernetes.io/"
_KEPT = {"metrics": "spec", "behavior": "spec", "conditions": "status", "current-metrics": "status"}
"""The annotations that preserve v2 fields, each with the part of the object that contains its field."""


class Autoscalers(Typed):
    """HorizontalPodAutoscalers, stored in the version of the last write and converted when read."""

    def set_defaults(self, obj: Object) -> None:
        if self.kind.version == "v2":
            _default_autoscaler(obj["spec"])
            return
        obj["spec"].setdefault("minReplicas", 1)
        given = obj["spec"].get("targetCPUUtilizationPercentage") is not None
        if not given and _PREFIX + "metrics" not in _annotations(obj):
            obj["spec"]["targetCPUUtilizationPercentage"] = _USUAL_SHARE

    def decode(self, obj: Object, former: Object | None = None) -> list[str]:
        given = obj.get("spec")
        dropped = super().decode(obj, former)
        if self.kind.version == "v2":
            for field, rules in ((given or {}).get("behavior") or {}).items():
                if rules and rules.get("policies") == []:  # only policies that are missing are the usual ones
                    own(obj, "spec", "behavior", field).pop("policies")
        return dropped

    def validate(self, obj: Object) -> list[FieldError]:
        return _autoscaler_errors(self._in_v2(obj)["spec"], None)

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        if subresource != "status":
            return _autoscaler_errors(self._in_v2(new)["spec"], self._in_v2(old)["spec"])
        return field_rule_errors("autoscaling.v2.HorizontalPodAutoscalerStatus", "status", new["status"])

    def _in_v2(self, obj: Object) -> Object:
        return _to_v2(obj) if self.kind.version == "v1" else obj

    def converted(self, obj: Object) -> Object:
        moved = _to_v1(obj) if self.kind.version == "v1" else _to_v2(obj)
        decoded = self.type.decode(moved, None, DecodeState(self.kind.kind, self.kind.version))
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
