"""Pods and PodTemplates.

Source: k8s.io/kubernetes `pkg/registry/core/pod`, `pkg/registry/core/podtemplate`; the admission plugins in
`pod_defaults`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.apply.shape import Path
from kubeshard_apiserver.objects import Object, with_metadata
from kubeshard_apiserver.resources.limit_ranges import LIMIT_RANGES, check_pod_limits, fill_limits
from kubeshard_apiserver.resources.pod_defaults import (
    SYSTEM_PRIORITIES,
    admit_pod,
    default_pod,
    default_template,
)
from kubeshard_apiserver.resources.pod_resources import quality_of_service
from kubeshard_apiserver.resources.pod_rules import new_pod_errors, pod_errors, template_errors
from kubeshard_apiserver.resources.pod_updates import pod_status_errors, pod_update_errors
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.status import FieldError, forbidden, forbidden_field, invalid_value

Given = Mapping[str, Any]
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

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        spec = obj["spec"]
        fill_limits(obj, self.stored(LIMIT_RANGES))
        _prioritize(obj, self.stored(PRIORITY_CLASSES).values())
        admit_pod(spec)
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
        else:
            admit_pod(new["spec"], old["spec"])
        super().prepare_update(new, old, subresource)

    def resets(self, subresource: str, path: Path) -> bool:
        if subresource == "status" and path[:2] == ("f:metadata", "f:ownerReferences"):
            return True
        return super().resets(subresource, path)

    def validate(self, obj: Object) -> list[FieldError]:
        errors = new_pod_errors(obj)
        if not errors:
            check_pod_limits(obj, self.stored(LIMIT_RANGES))
        return errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        if subresource == "status":
            return pod_status_errors(new, old)
        if subresource == "ephemeralcontainers":
            return pod_errors(new) + _removed_errors(new, old)
        if subresource == "resize":
            return pod_errors(new) + _quality_errors(new)
        return pod_errors(new) + pod_update_errors(new, old)

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

    def selector_problem(self, path: str) -> str:
        return f"field label not supported: {path}"


class PodTemplates(Typed):
    def set_defaults(self, obj: Object) -> None:
        default_template(obj["template"])

    def validate(self, obj: Object) -> list[FieldError]:
        return template_errors("template", obj["template"])


def _prioritize(pod: Object, classes: Iterable[Object]) -> None:
    """Set the priority from the pod's class or the default class. Raises Forbidden if the class is missing, or if the
    pod's own priority differs from that of the class.
    """
    spec, name = pod["spec"], pod["metadata"].get("name", "")
    wanted = spec.get("priorityClassName", "")
    found: Given = {}
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


def _resized(new: Given, old: Given) -> Object:
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


def _quality_errors(pod: Given) -> list[FieldError]:
    quality = pod["status"].get("qosClass", "")
    if quality_of_service(pod["spec"]) == quality:
        return []
    problem = "Pod QOS Class may not change as a result of resizing"
    return [invalid_value("spec", quality, problem)]


def _removed_errors(new: Given, old: Given) -> list[FieldError]:
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
