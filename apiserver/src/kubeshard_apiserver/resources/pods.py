"""Pods and PodTemplates, and what an update may change in the spec and status of a pod.

Messages about a changed spec consist of the first line only; the server appends a diff of its internal types.
Source: k8s.io/kubernetes `pkg/registry/core/pod`, `pkg/registry/core/podtemplate`, `pkg/apis/core/validation`; the
admission plugins in `pod_defaults`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.apply.shape import Path
from kubeshard_apiserver.objects import JsonObject, Object, own, with_metadata
from kubeshard_apiserver.resources.pod_accounts import ACCOUNTS, give_account
from kubeshard_apiserver.resources.pod_containers import image_errors
from kubeshard_apiserver.resources.pod_defaults import (
    SYSTEM_PRIORITIES,
    default_pod,
    default_template,
    tolerate_outages,
)
from kubeshard_apiserver.resources.pod_resources import quality_of_service
from kubeshard_apiserver.resources.pod_rules import new_pod_errors, pod_errors, template_errors
from kubeshard_apiserver.resources.quotas import LIMIT_RANGES, check_pod_limits, fill_limits
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.schema.name_formats import dns_subdomain, qualified_name, wrong
from kubeshard_apiserver.status import (
    FieldError,
    forbidden,
    forbidden_field,
    immutable,
    invalid_value,
    required,
)

_FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_CONTAINERS = ("containers", "initContainers")


def _pod_update_errors(new: JsonObject, old: JsonObject) -> list[FieldError]:
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


def _pod_status_errors(new: JsonObject, old: JsonObject) -> list[FieldError]:
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
    path: str, after: Sequence[JsonObject], before: Sequence[JsonObject], pod: JsonObject, field: str
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


def _host_errors(status: JsonObject) -> list[FieldError]:
    addresses = status.get("hostIPs") or ()
    if not addresses or addresses[0].get("ip", "") == status.get("hostIP", ""):
        return []
    return [invalid_value("status.hostIPs[0].ip", addresses[0].get("ip", ""), "must be equal to `hostIP`")]


def _fixed(spec: JsonObject, *, gated: bool) -> JsonObject:
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


def _toleration_errors(after: Sequence[JsonObject], before: Sequence[JsonObject]) -> list[FieldError]:
    kept = [_without_seconds(one) for one in after]
    if all(_without_seconds(one) in kept for one in before):
        return []
    problem = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden_field("spec.tolerations", problem)]


def _without_seconds(toleration: JsonObject) -> JsonObject:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _gate_errors(after: Sequence[JsonObject], before: Sequence[JsonObject]) -> list[FieldError]:
    known = {gate.get("name") for gate in before}
    return [
        forbidden_field(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'",
        )
        for index, gate in enumerate(after)
        if gate.get("name") not in known
    ]


def _selector_errors(after: JsonObject, before: JsonObject) -> list[FieldError]:
    if all(after.get(key) == value for key, value in before.items()):
        return []
    problem = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
    return [invalid_value("spec.nodeSelector", after, problem)]


PODS = GroupResource("", "pods")
PRIORITY_CLASSES = GroupResource("scheduling.k8s.io", "priorityclasses")
_ENDED = ("Succeeded", "Failed")
_RESIZED = ("resources", "resizePolicy")


class Pods(Typed):
    """Pods. A pod on a node is deleted gracefully: it remains, with a deletion timestamp, until the kubelet deletes it
    for good.
    """

    is_graceful = True
    selectable = (
        "metadata.name", "metadata.namespace", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
        "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs",
        "status.nominatedNodeName", "spec.host",
    )  # fmt: skip

    def set_defaults(self, obj: Object) -> None:
        default_pod(obj)

    def admit(self, new: Object, old: Object | None, token: Callable[[], str]) -> None:
        meta, spec = new["metadata"], new["spec"]
        name = meta.get("name") or meta.get("generateName") or "Unknown"
        if old is None:
            if "LimitRanger" in self.plugins:
                fill_limits(new, self.stored(LIMIT_RANGES))
            if "ServiceAccount" in self.plugins:
                give_account(new, name, self.stored(ACCOUNTS), token)
            if "Priority" in self.plugins:
                _prioritize(spec, name, self.stored(PRIORITY_CLASSES).values())
        elif "Priority" in self.plugins:
            for field in ("priority", "preemptionPolicy"):
                if field in old["spec"]:
                    spec.setdefault(field, old["spec"][field])
        if "DefaultTolerationSeconds" in self.plugins:
            tolerate_outages(spec)

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        spec = obj["spec"]
        obj["status"] = {"phase": "Pending", "qosClass": quality_of_service(spec)}
        if spec.get("schedulingGates"):
            obj["status"]["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": obj["metadata"]["creationTimestamp"],
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }
            ]

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        if subresource == "status":
            owners = old["metadata"].get("ownerReferences")
            new |= with_metadata(new, ownerReferences=owners)
            quality = old["status"].get("qosClass")
            if quality and not new["status"].get("qosClass"):
                new["status"] = {**new["status"], "qosClass": quality}
        elif subresource == "ephemeralcontainers":
            added = new["spec"].get("ephemeralContainers") or []
            new["spec"] = {**old["spec"], "ephemeralContainers": added}
            if not added:
                del new["spec"]["ephemeralContainers"]
        elif subresource == "resize":
            new["spec"] = _resized(new["spec"], old["spec"])
        super().prepare_update(new, old, subresource)

    def resets(self, subresource: str, path: Path) -> bool:
        if subresource == "status" and path[:2] == ("f:metadata", "f:ownerReferences"):
            return True
        return super().resets(subresource, path)

    def validate(self, obj: Object) -> list[FieldError]:
        errors = new_pod_errors(obj)
        if not errors and "LimitRanger" in self.plugins:
            check_pod_limits(obj, self.stored(LIMIT_RANGES))
        return errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        if subresource == "status":
            return _pod_status_errors(new, old)
        if subresource == "ephemeralcontainers":
            return pod_errors(new) + _removed_errors(new, old)
        if subresource == "resize":
            return pod_errors(new) + _quality_errors(new)
        return pod_errors(new) + _pod_update_errors(new, old)

    def is_held(self, obj: Object) -> bool:
        return super().is_held(obj) or bool(obj["metadata"].get("deletionGracePeriodSeconds"))

    def grace_period(self, obj: Object, asked: int | None) -> int:
        spec = obj["spec"]
        if not spec.get("nodeName") or obj["status"].get("phase") in _ENDED:
            return 0
        period = spec.get("terminationGracePeriodSeconds", 0) if asked is None else asked
        return int(period) if period >= 0 else 1

    def fields_for_selection(self, obj: Object) -> dict[str, str]:
        fields = super().fields_for_selection(obj)
        addresses = obj["status"].get("podIPs") or [{}]
        return {
            **fields,
            "spec.host": fields["spec.nodeName"],
            "spec.hostNetwork": fields["spec.hostNetwork"] or "false",
            "status.podIP": addresses[0].get("ip", ""),
            "status.podIPs": "",
        }


class PodTemplates(Typed):
    def set_defaults(self, obj: Object) -> None:
        default_template(own(obj, "template"))

    def validate(self, obj: Object) -> list[FieldError]:
        return template_errors("template", obj["template"])


def _prioritize(spec: Object, name: str, classes: Iterable[Object]) -> None:
    """Set the priority from the pod's class or the default class. Raises Forbidden if the class is missing, or if the
    pod's own priority differs from that of the class.
    """
    wanted = spec.get("priorityClassName", "")
    found: JsonObject = {}
    if not wanted:
        general = [one for one in classes if one.get("globalDefault")]
        if general:
            found = min(general, key=lambda one: one.get("value", 0))
            spec["priorityClassName"] = found["metadata"]["name"]
    elif wanted in SYSTEM_PRIORITIES:
        found = {"value": SYSTEM_PRIORITIES[wanted]}
    else:
        named = [one for one in classes if one["metadata"]["name"] == wanted]
        if not named:
            raise forbidden(PODS, name, f"no PriorityClass with name {wanted} was found")
        found = named[0]
    for field, told, computed in (
        ("priority", "the integer value of priority", found.get("value", 0)),
        (
            "preemptionPolicy",
            "the string value of PreemptionPolicy",
            found.get("preemptionPolicy", "PreemptLowerPriority"),
        ),
    ):
        given = spec.setdefault(field, computed)
        if given != computed:
            problem = (
                f"{told} ({given}) must not be provided in pod spec; priority admission controller computed "
            )
            raise forbidden(PODS, name, f"{problem}{computed} from the given PriorityClass name")


def _resized(new: JsonObject, old: JsonObject) -> Object:
    """Return the old spec with those changes of the new one that are resizes."""
    resized = dict(old)
    for field in ("containers", "initContainers"):
        before, after = old.get(field) or (), new.get(field) or ()
        if [one.get("name") for one in before] == [one.get("name") for one in after] and before:
            resized[field] = [
                {
                    **{name: value for name, value in old_one.items() if name not in _RESIZED},
                    **{name: new_one[name] for name in _RESIZED if name in new_one},
                }
                for old_one, new_one in zip(before, after, strict=True)
            ]
    return resized


def _quality_errors(pod: JsonObject) -> list[FieldError]:
    quality = pod["status"].get("qosClass", "")
    if quality_of_service(pod["spec"]) == quality:
        return []
    problem = "Pod QOS Class may not change as a result of resizing"
    return [invalid_value("spec", quality, problem)]


def _removed_errors(new: JsonObject, old: JsonObject) -> list[FieldError]:
    at = "spec.ephemeralContainers"
    present = {one.get("name"): one for one in new["spec"].get("ephemeralContainers") or ()}
    errors = []
    for container in old["spec"].get("ephemeralContainers") or ():
        name = container["name"]
        if name not in present:
            problem = f'existing ephemeral containers "{name}" may not be removed\n'
            errors.append(forbidden_field(at, problem))
        elif present[name] != container:
            problem = f'existing ephemeral containers "{name}" may not be changed\n'
            errors.append(forbidden_field(at, problem))
    return errors
