"""Columns of namespaces, nodes, events, configuration, classes and leases."""

from __future__ import annotations

from typing import Any

from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.printing.columns import (
    AGE,
    NAME,
    Column,
    Printer,
    at,
    boolean,
    condition,
    integer,
    name_of,
    since,
    text,
)

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE = "kubernetes.io/role"

NAMESPACES = Printer((NAME, text("Status", "status.phase", "Active or Terminating"), AGE))
CONFIG_MAPS = Printer(
    (
        NAME,
        Column(
            "Data",
            lambda obj, _: len(obj.get("data") or ()) + len(obj.get("binaryData") or ()),
            "Number of entries",
        ),
        AGE,
    )
)
SECRETS = Printer(
    (
        NAME,
        text("Type", "type", "Intended use of the secret"),
        Column("Data", lambda obj, _: len(obj.get("data") or ()), "Number of entries"),
        AGE,
    )
)
PLAIN = Printer((NAME, AGE))
LEASES = Printer((NAME, text("Holder", "spec.holderIdentity", "Current holder of the lease"), AGE))


def _node_status(node: Object, _: float) -> str:
    ready = condition(node, "Ready")
    status = ("Ready" if ready.get("status") == "True" else "NotReady") if ready else "Unknown"
    return f"{status},SchedulingDisabled" if at(node, "spec.unschedulable") else status


def _roles(node: Object, _: float) -> str:
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    return ",".join(sorted((roles | {labels.get(_ROLE, "")}) - {""})) or "<none>"


def _kernel(node: Object, _: float) -> str:
    architecture = at(node, "status.nodeInfo.architecture")
    kernel = at(node, "status.nodeInfo.kernelVersion") or "<unknown>"
    return f"{kernel} ({architecture})" if architecture else str(kernel)


def _address(name: str, type_: str) -> Column:
    def cell(node: Object, _: float) -> str:
        found = (one["address"] for one in at(node, "status.addresses", ()) if one.get("type") == type_)
        return next(found, "<none>")

    return Column(name, cell, "An address of the node", wide=True)


NODES = Printer(
    (
        NAME,
        Column("Status", _node_status, "Whether it accepts pods"),
        Column("Roles", _roles, "Roles of the node"),
        AGE,
        text("Version", "status.nodeInfo.kubeletVersion", "Version of its kubelet"),
        _address("Internal-IP", "InternalIP"),
        _address("External-IP", "ExternalIP"),
        text("OS-Image", "status.nodeInfo.osImage", "Its operating system", "<unknown>", wide=True),
        Column("Kernel-Version", _kernel, "Its kernel", wide=True),
        text(
            "Container-Runtime",
            "status.nodeInfo.containerRuntimeVersion",
            "Its container runtime",
            "<unknown>",
            wide=True,
        ),
    )
)


def _told(event: Object, path: str, as_of_events: str, default: Any = "") -> Any:
    """Return a field of an event. The group events.k8s.io uses other names for most fields of the same events."""
    return at(event, path) or at(event, as_of_events) or default


def _first_seen(event: Object, now: float) -> str:
    return since(_told(event, "firstTimestamp", "deprecatedFirstTimestamp") or event.get("eventTime"), now)


def _last_seen(event: Object, now: float) -> str:
    if event.get("series"):
        return since(event["series"].get("lastObservedTime"), now)
    last = _told(event, "lastTimestamp", "deprecatedLastTimestamp")
    return since(last, now) if last else _first_seen(event, now)


def _times(event: Object, _: float) -> int:
    if event.get("series"):
        return int(event["series"].get("count", 0))
    return int(_told(event, "count", "deprecatedCount", 1))


def _about(event: Object, _: float) -> str:
    kind = _told(event, "involvedObject.kind", "regarding.kind").lower()
    name = _told(event, "involvedObject.name", "regarding.name")
    return f"{kind}/{name}" if name else kind


def _source(event: Object, _: float) -> str:
    component = _told(event, "source.component", "deprecatedSource.component") or _told(
        event, "reportingComponent", "reportingController"
    )
    instance = _told(event, "source.host", "deprecatedSource.host") or event.get("reportingInstance")
    return f"{component}, {instance}" if instance else component


EVENTS = Printer(
    (
        Column("Last Seen", _last_seen, "Time since it last happened"),
        text("Type", "type", "Normal or Warning"),
        text("Reason", "reason", "Short reason, in one word"),
        Column("Object", _about, "Object that the event is about"),
        Column(
            "Subobject",
            lambda obj, _: _told(obj, "involvedObject.fieldPath", "regarding.fieldPath"),
            "Part of the object that the event is about",
            wide=True,
        ),
        Column("Source", _source, "Component that reported the event", wide=True),
        Column("Message", lambda obj, _: _told(obj, "message", "note").strip(), "What happened"),
        Column("First Seen", _first_seen, "Time since it first happened", wide=True),
        Column("Count", _times, "How often it happened", wide=True),
        Column("Name", name_of, NAME.description, format="name", wide=True),
    )
)


def _quota(limits: bool) -> Column:
    def cell(obj: Object, _: float) -> str:
        hard, used = at(obj, "status.hard", {}), at(obj, "status.used", {})
        return ", ".join(
            f"{name}: {used.get(name, 0)}/{hard[name]}"
            for name in sorted(hard)
            if name.startswith("limits.") == limits
        )

    return Column("Limit" if limits else "Request", cell, "Usage and limit")


RESOURCE_QUOTAS = Printer((NAME, _quota(False), _quota(True), AGE))
PRIORITY_CLASSES = Printer(
    (
        NAME,
        integer("Value", "value", "The priority"),
        boolean("Global-Default", "globalDefault", "Whether it applies to pods without a class"),
        AGE,
        text("PreemptionPolicy", "preemptionPolicy", "Whether its pods preempt others"),
    )
)
RUNTIME_CLASSES = Printer((NAME, text("Handler", "handler", "Runtime that runs its containers"), AGE))


def _component(name: str, cell_of: str) -> Column:
    def cell(obj: Object, _: float) -> str:
        healthy = next((one for one in obj.get("conditions") or () if one.get("type") == "Healthy"), None)
        if cell_of == "status":
            return "Unknown" if healthy is None else "Healthy" if healthy["status"] == "True" else "Unhealthy"
        return str((healthy or {}).get(cell_of, ""))

    return Column(name, cell, "From the condition Healthy")


COMPONENT_STATUSES = Printer(
    (NAME, _component("Status", "status"), _component("Message", "message"), _component("Error", "error"))
)
