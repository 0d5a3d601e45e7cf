"""Pods: their columns, and the one-word status of a pod.

Source: the pod printer of kube-apiserver, whose order of precedence this follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kubeshard.core.times import parse_time
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.printing.columns import (
    AGE,
    NAME,
    Column,
    Printer,
    at,
    condition,
    human_duration,
    text,
)

_ENDED = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}
Status = Mapping[str, Any]


class Restarts(NamedTuple):
    """The number of restarts, and the time of the last one (seconds since the epoch; 0 if unknown)."""

    times: int = 0
    last: float = 0.0

    def plus(self, container: Status) -> Restarts:
        finished = parse_time(at(container, "lastState.terminated.finishedAt")) or 0.0
        return Restarts(self.times + container.get("restartCount", 0), max(self.last, finished))


class Summary(NamedTuple):
    ready: int
    containers: int
    status: str
    restarts: Restarts


def summary(pod: Object) -> Summary:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {
        container["name"]
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    total = len(spec.get("containers") or ()) + len(sidecars)
    reason = status.get("reason") or status.get("phase", "")
    if condition(pod, "PodScheduled").get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    initial = _initial(spec, status, sidecars)
    ready, restarts = initial.ready, initial.restarts
    if initial.reason:
        reason = initial.reason
    if not initial.reason or condition(pod, "Initialized").get("status") == "True":
        reason, now_ready, restarts = _running(pod, reason, initial.sidecar_restarts)
        ready += now_ready
    return Summary(ready, total, _deleted(pod) or reason, restarts)


class _Initial(NamedTuple):
    """The state of the init containers. `reason` is empty once they have completed."""

    reason: str
    ready: int
    restarts: Restarts
    sidecar_restarts: Restarts


def _initial(spec: Status, status: Status, sidecars: set[str]) -> _Initial:
    ready, restarts, sidecar_restarts = 0, Restarts(), Restarts()
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        is_sidecar = container.get("name") in sidecars
        restarts = restarts.plus(container)
        if is_sidecar:
            sidecar_restarts = sidecar_restarts.plus(container)
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), at(state, "waiting.reason", "")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if is_sidecar and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        if terminated is not None:
            reason = f"Init:{_end(terminated)}"
        elif waiting and waiting != "PodInitializing":
            reason = f"Init:{waiting}"
        else:
            reason = f"Init:{index}/{len(spec.get('initContainers') or ())}"
        return _Initial(reason, ready, restarts, sidecar_restarts)
    return _Initial("", ready, restarts, sidecar_restarts)


def _running(pod: Object, reason: str, restarts: Restarts) -> tuple[str, int, Restarts]:
    ready, failure = 0, ""
    for container in reversed(at(pod, "status.containerStatuses", ())):
        restarts = restarts.plus(container)
        state = container.get("state") or {}
        terminated = state.get("terminated")
        if waiting := at(state, "waiting.reason", ""):
            reason = waiting
        elif terminated is not None:
            reason = _end(terminated)
            failure = reason if terminated.get("exitCode") else failure
        elif container.get("ready") and state.get("running") is not None:
            ready += 1
    if reason == "Completed":
        if ready and condition(pod, "Ready").get("status") == "True":
            reason = "Running"
        elif failure:
            reason = failure
        elif ready:
            reason = "NotReady"
    return reason, ready, restarts


def _end(terminated: Status) -> str:
    if reason := terminated.get("reason"):
        return str(reason)
    if signal := terminated.get("signal"):
        return f"Signal:{signal}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _deleted(pod: Object) -> str:
    if not pod["metadata"].get("deletionTimestamp"):
        return ""
    if at(pod, "status.reason") == "NodeLost":
        return "Unknown"
    return "" if at(pod, "status.phase") in _ENDED else "Terminating"


def _ready(pod: Object, _: float) -> str:
    found = summary(pod)
    return f"{found.ready}/{found.containers}"


def _restarts(pod: Object, now: float) -> str:
    restarts = summary(pod).restarts
    if restarts.times and restarts.last:
        return f"{restarts.times} ({human_duration(now - restarts.last)} ago)"
    return str(restarts.times)


def _address(pod: Object, _: float) -> str:
    addresses = at(pod, "status.podIPs", ())
    return (addresses[0].get("ip") if addresses else "") or "<none>"


def _gates(pod: Object, _: float) -> str:
    gates = [gate["conditionType"] for gate in at(pod, "spec.readinessGates", ())]
    passed = sum(condition(pod, gate).get("status") == "True" for gate in gates)
    return f"{passed}/{len(gates)}" if gates else "<none>"


def _ended(pod: Object) -> list[dict[str, str]]:
    phase = at(pod, "status.phase", "")
    if phase not in _ENDED:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": _ENDED[phase]}]


PODS = Printer(
    (
        NAME,
        Column("Ready", _ready, "Number of its containers that are ready"),
        Column(
            "Status",
            lambda pod, _: summary(pod).status,
            "Status of the pod, derived from the states of its containers",
        ),
        Column("Restarts", _restarts, "Number of restarts of its containers, and time since the last one"),
        AGE,
        Column("IP", _address, "Its primary IP address", wide=True),
        text("Node", "spec.nodeName", "Node that it runs on", "<none>", wide=True),
        text(
            "Nominated Node",
            "status.nominatedNodeName",
            "Node on which other pods are preempted for it",
            "<none>",
            wide=True,
        ),
        Column("Readiness Gates", _gates, "Satisfied readiness gates", wide=True),
    ),
    _ended,
)
