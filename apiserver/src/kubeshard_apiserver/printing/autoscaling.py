"""Columns of HorizontalPodAutoscalers and Scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.printing.columns import AGE, NAME, Column, Printer, at, integer, text

_SOURCES = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
_SHOWN = 2


def _targets(obj: Object, _: float) -> str:
    specs = at(obj, "spec.metrics", ())
    statuses = at(obj, "status.currentMetrics", ())
    shown = [_target(spec, statuses[i] if i < len(statuses) else {}) for i, spec in enumerate(specs)]
    text = ", ".join(shown[:_SHOWN]) or "<none>"
    return f"{text} + {len(shown) - _SHOWN} more..." if len(shown) > _SHOWN else text


def _target(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """Return the current and the target value of a metric."""
    type_ = spec["type"]
    source = _SOURCES.get(type_)
    if source is None:
        return "<unknown type>"
    wanted, current = at(spec, f"{source}.target", {}), at(status, f"{source}.current", {})
    unknown = "<unknown>"
    if type_ == "Pods":
        return f"{current.get('averageValue', unknown)}/{wanted.get('averageValue', unknown)}"
    if type_ in ("External", "Object"):
        if "averageValue" in wanted:
            return f"{current.get('averageValue', unknown)}/{wanted['averageValue']} (avg)"
        return f"{current.get('value', unknown)}/{wanted.get('value', unknown)}"
    name = at(spec, f"{source}.name", "")
    if "averageValue" in wanted:
        return f"{name}: {current.get('averageValue', unknown)}/{wanted['averageValue']}"
    used = current.get("averageUtilization")
    goal = wanted.get("averageUtilization")
    return f"{name}: {unknown if used is None else f'{used}%'}/{'<auto>' if goal is None else f'{goal}%'}"


HORIZONTAL_POD_AUTOSCALERS = Printer(
    (
        NAME,
        Column(
            "Reference",
            lambda obj, _: (
                f"{at(obj, 'spec.scaleTargetRef.kind', '')}/{at(obj, 'spec.scaleTargetRef.name', '')}"
            ),
            "The object that it scales",
        ),
        Column("Targets", _targets, "Current values of the metrics, and their targets"),
        text("MinPods", "spec.minReplicas", "Minimum number of pods", "<unset>"),
        integer("MaxPods", "spec.maxReplicas", "Maximum number of pods", "string"),
        integer("Replicas", "status.currentReplicas", "Current number of pods", "string"),
        AGE,
    )
)
SCALES = Printer(
    (
        Column("Name", NAME.cell, NAME.description),
        integer("Desired", "spec.replicas", "Desired number of replicas"),
        integer("Available", "status.replicas", "Current number of replicas"),
        AGE,
    )
)
