"""What an update may change in the spec and status of a pod.

Messages about a changed spec consist of the first line only; the server appends a diff of its internal types.
Source: k8s.io/kubernetes `pkg/apis/core/validation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeshard_apiserver.resources.pod_containers import image_errors
from kubeshard_apiserver.resources.pod_names import dns_subdomain, qualified_name, wrong
from kubeshard_apiserver.status import (
    FieldError,
    forbidden_field,
    immutable,
    invalid_value,
    required,
)

Given = Mapping[str, Any]
_FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_CONTAINERS = ("containers", "initContainers")


def pod_update_errors(new: Given, old: Given) -> list[FieldError]:
    after, before = new["spec"], old["spec"]
    errors: list[FieldError] = []
    for field in _CONTAINERS:
        given = after.get(field) or ()
        if len(given) != len(before.get(field) or ()):
            return [
                *errors,
                forbidden_field(f"spec.{field}", "pod updates may not add or remove containers"),
            ]
        for index, container in enumerate(given):
            errors += image_errors(f"spec.{field}[{index}]", container)
            if not container.get("image"):
                errors.append(required(f"spec.{field}[{index}].image"))
    deadline, had = after.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if had is not None and deadline is not None and deadline > had:
        problem = "must be less than or equal to previous value"
        return [*errors, invalid_value("spec.activeDeadlineSeconds", deadline, problem)]
    if had is not None and deadline is None:
        problem = "must not update from a positive integer to nil value"
        errors.append(invalid_value("spec.activeDeadlineSeconds", None, problem))
    errors += _toleration_errors(after.get("tolerations") or (), before.get("tolerations") or ())
    errors += _gate_errors(after.get("schedulingGates") or (), before.get("schedulingGates") or ())
    gated = bool(before.get("schedulingGates"))
    if _fixed(after, gated=gated) != _fixed(before, gated=gated):
        errors.append(forbidden_field("spec", _FIXED))
    elif gated:
        errors += _selector_errors(after.get("nodeSelector") or {}, before.get("nodeSelector") or {})
    return errors


def pod_status_errors(new: Given, old: Given) -> list[FieldError]:
    after, before = new["status"], old["status"]
    errors: list[FieldError] = []
    for index, condition in enumerate(after.get("conditions") or ()):
        kind = condition.get("type", "")
        if kind not in _SYSTEM_CONDITIONS:
            errors += wrong(f"status.conditions[{index}].Type", kind, qualified_name)
    nominated = after.get("nominatedNodeName", "")
    if nominated and nominated != before.get("nominatedNodeName"):
        errors += wrong("status.nominatedNodeName", nominated, dns_subdomain)
        if old["spec"].get("nodeName"):
            problem = "may not be set on pods that are already bound to a node"
            errors.append(forbidden_field("status.nominatedNodeName", problem))
    if after.get("qosClass") != before.get("qosClass"):
        errors.append(immutable("status.qosClass", after.get("qosClass", "")))
    for field, of in (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")):
        errors += _transition_errors(
            f"status.{field}", after.get(field) or (), before.get(field) or (), old, of
        )
    return errors + _host_errors(after)


def _transition_errors(
    path: str, after: Sequence[Given], before: Sequence[Given], pod: Given, field: str
) -> list[FieldError]:
    """Reject restarting a terminated container unless its restart policy allows it."""
    errors: list[FieldError] = []
    now = {status.get("name"): status for status in after}
    containers = {one.get("name"): one for one in pod["spec"].get(field) or ()}
    for index, status in enumerate(before):
        name = status.get("name")
        ended = (status.get("state") or {}).get("terminated")
        if ended is None or name not in now or (now[name].get("state") or {}).get("terminated") is not None:
            continue
        policy = containers.get(name, {}).get("restartPolicy") or pod["spec"].get("restartPolicy")
        if policy == "Always" or (policy == "OnFailure" and ended.get("exitCode")):
            continue
        problem = "may not be transitioned to non-terminated state"
        errors.append(forbidden_field(f"{path}[{index}].state", problem))
    return errors


def _host_errors(status: Given) -> list[FieldError]:
    addresses = status.get("hostIPs") or ()
    if not addresses or addresses[0].get("ip", "") == status.get("hostIP", ""):
        return []
    return [invalid_value("status.hostIPs[0].ip", addresses[0].get("ip", ""), "must be equal to `hostIP`")]


def _fixed(spec: Given, *, gated: bool) -> Given:
    """Return the spec without the mutable fields. For a gated pod these include the scheduling fields."""
    left_out = {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
    if gated:
        left_out |= {"nodeSelector", "affinity"}
    fixed = {name: value for name, value in spec.items() if name not in left_out}
    for field in _CONTAINERS:
        if field in fixed:
            fixed[field] = [
                {name: value for name, value in one.items() if name != "image"} for one in fixed[field] or ()
            ]
    return fixed


def _toleration_errors(after: Sequence[Given], before: Sequence[Given]) -> list[FieldError]:
    kept = [_without_seconds(one) for one in after]
    if all(_without_seconds(one) in kept for one in before):
        return []
    problem = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden_field("spec.tolerations", problem)]


def _without_seconds(toleration: Given) -> Given:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _gate_errors(after: Sequence[Given], before: Sequence[Given]) -> list[FieldError]:
    known = {gate.get("name") for gate in before}
    return [
        forbidden_field(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'",
        )
        for index, gate in enumerate(after)
        if gate.get("name") not in known
    ]


def _selector_errors(after: Given, before: Given) -> list[FieldError]:
    if all(after.get(key) == value for key, value in before.items()):
        return []
    problem = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
    return [invalid_value("spec.nodeSelector", after, problem)]
