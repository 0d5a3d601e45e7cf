"""Columns of the kinds that create pods, and of those that protect and scale them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kubeshard.core.times import parse_time
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.printing.columns import (
    AGE,
    NAME,
    TEMPLATE,
    Column,
    Printer,
    at,
    condition,
    containers,
    count,
    human_duration,
    integer,
    label_selector,
    labels,
    selector,
    since,
    text,
)

_SELECTOR = selector("spec.selector")
_JOB_ENDS = (("Complete", "Complete"), ("Failed", "Failed"))
_JOB_STATES = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def _ready(obj: Object, _: float) -> str:
    return f"{at(obj, 'status.readyReplicas', 0)}/{at(obj, 'spec.replicas', 0)}"


_READY = Column("Ready", _ready, "Ready and desired pods")

DEPLOYMENTS = Printer(
    (
        NAME,
        _READY,
        integer("Up-to-date", "status.updatedReplicas", "Pods with the current template", "string"),
        integer(
            "Available", "status.availableReplicas", "Pods that have been ready for long enough", "string"
        ),
        AGE,
        *TEMPLATE,
        Column(
            "Selector",
            lambda obj, _: label_selector(at(obj, "spec.selector")),
            "Label selector of its pods",
            wide=True,
        ),
    )
)
STATEFUL_SETS = Printer((NAME, _READY, AGE, *TEMPLATE))
_REPLICAS = (
    NAME,
    integer("Desired", "spec.replicas", "Desired number of pods"),
    integer("Current", "status.replicas", "Current number of pods"),
    integer("Ready", "status.readyReplicas", "Pods that are ready"),
    AGE,
    *TEMPLATE,
)
REPLICA_SETS = Printer((*_REPLICAS, _SELECTOR))
REPLICATION_CONTROLLERS = Printer(
    (
        *_REPLICAS,
        Column(
            "Selector",
            lambda obj, _: labels(at(obj, "spec.selector")),
            "Label selector of its pods",
            wide=True,
        ),
    )
)
DAEMON_SETS = Printer(
    (
        NAME,
        integer("Desired", "status.desiredNumberScheduled", "Nodes that should run its pod"),
        integer("Current", "status.currentNumberScheduled", "Nodes that should run its pod and do"),
        integer("Ready", "status.numberReady", "Pods that are ready"),
        integer("Up-to-date", "status.updatedNumberScheduled", "Pods with the current template"),
        integer("Available", "status.numberAvailable", "Pods that have been ready for long enough"),
        Column(
            "Node Selector",
            lambda obj, _: labels(at(obj, "spec.template.spec.nodeSelector")),
            "Labels of the nodes on which it runs",
        ),
        AGE,
        *TEMPLATE,
        _SELECTOR,
    )
)


def _job_status(job: Object, _: float) -> str:
    def holds(type_: str) -> bool:
        return condition(job, type_).get("status") == "True"

    for type_, said in _JOB_ENDS:
        if holds(type_):
            return said
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((type_ for type_ in _JOB_STATES if holds(type_)), "Running")


def _completions(job: Object, _: float) -> str:
    succeeded = at(job, "status.succeeded", 0)
    if (wanted := at(job, "spec.completions")) is not None:
        return f"{succeeded}/{wanted}"
    parallelism = at(job, "spec.parallelism", 0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _duration(job: Object, now: float) -> str:
    started = parse_time(at(job, "status.startTime"))
    if started is None:
        return ""
    return human_duration((parse_time(at(job, "status.completionTime")) or now) - started)


JOBS = Printer(
    (
        NAME,
        Column("Status", _job_status, "State of the job"),
        Column("Completions", _completions, "Succeeded and desired pods"),
        Column("Duration", _duration, "How long it took, or has been running"),
        AGE,
        *TEMPLATE,
        _SELECTOR,
    )
)


def _last_schedule(obj: Object, now: float) -> str:
    last = at(obj, "status.lastScheduleTime")
    return since(last, now) if last else "<none>"


def _suspend(obj: Object, _: float) -> str:
    return {True: "True", False: "False"}.get(at(obj, "spec.suspend"), "<unset>")


CRON_JOBS = Printer(
    (
        NAME,
        text("Schedule", "spec.schedule", "When jobs are created, in cron format"),
        text("Timezone", "spec.timeZone", "Time zone of the schedule", "<none>"),
        Column("Suspend", _suspend, "Whether it is suspended", "boolean"),
        count("Active", "status.active", "Number of running jobs"),
        Column("Last Schedule", _last_schedule, "Time since the last job was created"),
        AGE,
        *containers("spec.jobTemplate.spec.template.spec"),
        selector("spec.jobTemplate.spec.selector"),
    )
)


def _controller(obj: Object, _: float) -> str:
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            group = owner["apiVersion"].rpartition("/")[0]
            kind = f"{owner['kind']}.{group}" if group else owner["kind"]
            return f"{kind.lower()}/{owner['name']}"
    return "<none>"


CONTROLLER_REVISIONS = Printer(
    (
        NAME,
        Column("Controller", _controller, "Owner of the revision"),
        integer("Revision", "revision", "Number of the revision; the newest has the highest", "string"),
        AGE,
    )
)
POD_TEMPLATES = Printer(
    (
        NAME,
        *(Column(column.name, column.cell, column.description) for column in containers("template.spec")),
        Column(
            "Pod Labels", lambda obj, _: labels(at(obj, "template.metadata.labels")), "Labels of its pods"
        ),
    )
)
POD_DISRUPTION_BUDGETS = Printer(
    (
        NAME,
        text("Min Available", "spec.minAvailable", "Pods that must remain available", "N/A"),
        text("Max Unavailable", "spec.maxUnavailable", "Pods that may be unavailable", "N/A"),
        integer("Allowed Disruptions", "status.disruptionsAllowed", "Pods that may be evicted now"),
        AGE,
    )
)


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
CUSTOM_SCALES = Printer((NAME, *SCALES.columns[1:-1], replace(AGE, type="date")))
