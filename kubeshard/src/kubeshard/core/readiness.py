"""Whether an object has reached its desired state, by the common rules of the ecosystem (kstatus).

| state | means |
|---|---|
| `Current` | the desired state is reached |
| `InProgress` | a controller is working on it, or has not observed its newest generation |
| `Failed` | it will not become current without a change |
| `Terminating` | it is being deleted |
| `NotFound` | the object does not exist |

Checked in this order: a deletion; a `status.observedGeneration` that is not the object's; the conditions `Reconciling`
(in progress) and `Stalled` (failed); the rules of the kind, if it has any; the condition
`Ready`; and without any of these the object is current.

Two differences from kstatus: a failed pod is `Failed`, and one that cannot be scheduled stays `InProgress`, because
a node may be added and nothing here reads a clock. As in kstatus, a Job is current as soon as it has started: to wait
for its completion, wait for its condition `Complete`.

Each rule of a built-in kind lists the fields that it reads. It gets a document that is not being deleted and has its
newest generation observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from kubeshard.core.documents import Path, at, document_of, require_declared
from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import KubeObject

Document = Mapping[str, Any]
Verdict = tuple[Literal["Current", "InProgress", "Failed"], str]


State = Literal["Current", "InProgress", "Failed", "Terminating", "NotFound"]

_CONDITIONS: Sequence[Path] = (("status", "conditions", "type"), ("status", "conditions", "status"))


class Readiness(NamedTuple):
    """The result of `is_ready`; true in a boolean context if the state is `Current`. `message` is for people."""

    state: State
    message: str = ""

    def __bool__(self) -> bool:
        return self.state == "Current"


def is_ready(obj: KubeObject | Mapping[str, Any] | None) -> Readiness:
    """The state of an object or a manifest; `NotFound` for None. Raises TypeError for a class that does not declare
    what the rules of its kind read: at least `status.conditions`.
    """
    if obj is None:
        return Readiness("NotFound", "there is no such object")
    kind = _kind_of(obj)
    rule = RULES.get(kind)
    document = document_of(obj, _CONDITIONS if rule is None else rule.reads)
    generic = _generic(document)
    if generic is not None:
        return generic
    found = rule.judge(document) if rule is not None else _by_ready_condition(document)
    return Readiness(*found)


def can_be_judged(type_: type[KubeObject]) -> None:
    """Raises TypeError if `is_ready` would for every object of the class."""
    rule = RULES.get(type_.KIND.group_kind)
    require_declared(type_, _CONDITIONS if rule is None else rule.reads)


def _kind_of(obj: KubeObject | Mapping[str, Any]) -> GroupKind:
    if isinstance(obj, Mapping):
        return GroupKind(str(obj.get("apiVersion", "")).rpartition("/")[0], str(obj.get("kind", "")))
    return obj.KIND.group_kind


def generation_of(said: Any) -> int | None:
    """Which generation a status or a condition is about, if it says so. Some kinds say it as text (Argo's Rollout)."""
    observed = at(said, "observedGeneration")
    if isinstance(observed, str):
        return int(observed) if observed.isascii() and observed.isdecimal() else None
    return observed if isinstance(observed, int) else None


def _generic(document: Mapping[str, Any]) -> Readiness | None:
    """The rules for all kinds; None if they do not decide."""
    if at(document, "metadata", "deletionTimestamp"):
        return Readiness("Terminating", "it is being deleted")
    generation, observed = at(document, "metadata", "generation"), generation_of(at(document, "status"))
    if generation and observed is not None and observed != generation:
        return Readiness("InProgress", f"generation {generation} has not been observed yet, {observed} has")
    for condition in _true(document, ("Reconciling", "Stalled")):
        state: State = "InProgress" if condition.get("type") == "Reconciling" else "Failed"
        return Readiness(state, _words_of(condition))
    return None


def _by_ready_condition(document: Mapping[str, Any]) -> Verdict:
    for condition in _conditions(document):
        if condition.get("type") != "Ready":
            continue
        generation, observed = at(document, "metadata", "generation"), generation_of(condition)
        if generation and observed and observed < generation:
            return "InProgress", f"its condition Ready is about generation {observed}, not {generation}"
        return "Current" if condition.get("status") == "True" else "InProgress", _words_of(condition)
    return "Current", "nothing says that it is not"


def _true(document: Mapping[str, Any], types: Sequence[str]) -> Iterable[Mapping[str, Any]]:
    return (
        condition
        for condition in _conditions(document)
        if condition.get("type") in types and condition.get("status") == "True"
    )


def _conditions(document: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    found = at(document, "status", "conditions", default=())
    return (item for item in found if isinstance(item, Mapping)) if isinstance(found, list | tuple) else ()


def _words_of(condition: Mapping[str, Any]) -> str:
    reason, message = condition.get("reason") or "", condition.get("message") or ""
    return f"{reason}: {message}" if reason and message else reason or message


class Rule(NamedTuple):
    judge: Callable[[Document], Verdict]
    reads: Sequence[Path]


def _of_spec(*names: str) -> list[Path]:
    return [("spec", *name.split(".")) for name in names]


def _of_status(*names: str) -> list[Path]:
    return [("status", *name.split(".")) for name in names]


def _deployment(document: Document) -> Verdict:
    conditions = _by_type(document)
    progressing = conditions.get("Progressing", {})
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return "Failed", "its progress deadline is exceeded"
    wanted = at(document, "spec", "replicas", default=1)
    count, updated, ready, available = _counts(
        document, "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"
    )
    behind = (
        _less("replicas", count, wanted)
        or _less("updated", updated, wanted)
        or _extra(count, wanted)
        or _less("available", available, updated)
        or _less("ready", ready, wanted)
    )
    if behind:
        return behind
    # Without a deadline the controller does not set the condition.
    has_deadline = at(document, "spec", "progressDeadlineSeconds", default=_NO_DEADLINE) != _NO_DEADLINE
    done = progressing.get("status") == "True" and progressing.get("reason") == "NewReplicaSetAvailable"
    if has_deadline and not done:
        return "InProgress", "its new ReplicaSet is not available"
    if conditions.get("Available", {}).get("status") != "True":
        return "InProgress", "it is not available"
    return "Current", f"available, with {count} replicas"


_NO_DEADLINE = 2**31 - 1


def _stateful_set(document: Document) -> Verdict:
    if at(document, "spec", "updateStrategy", "type") == "OnDelete":
        return "Current", "its pods are replaced by hand (OnDelete)"
    wanted = at(document, "spec", "replicas", default=1)
    count, ready, current, updated = _counts(
        document, "replicas", "readyReplicas", "currentReplicas", "updatedReplicas"
    )
    behind = _less("replicas", count, wanted) or _less("ready", ready, wanted) or _extra(count, wanted)
    if behind:
        return behind
    partition = at(document, "spec", "updateStrategy", "rollingUpdate", "partition")
    if partition is not None:
        rolled = _less("updated", updated, wanted - partition)
        return rolled or ("Current", f"rolled out to its partition: {updated} updated")
    if lagging := _less("current", current, wanted):
        return lagging
    status = at(document, "status", default={})
    if status.get("currentRevision") != status.get("updateRevision"):
        return "InProgress", "not all of its pods have the newest revision"
    return "Current", f"all {count} replicas are up to date and ready"


def _replica_set(document: Document) -> Verdict:
    if _by_type(document).get("ReplicaFailure", {}).get("status") == "True":
        return "InProgress", "pods cannot be created or deleted"
    wanted = at(document, "spec", "replicas", default=1)
    count, labelled, available, ready = _counts(
        document, "replicas", "fullyLabeledReplicas", "availableReplicas", "readyReplicas"
    )
    behind = (
        _less("labelled", labelled, wanted)
        or _less("available", available, wanted)
        or _less("ready", ready, wanted)
        or _extra(count, wanted)
    )
    return behind or ("Current", f"available, with {count} replicas")


def _daemon_set(document: Document) -> Verdict:
    if at(document, "status", "observedGeneration") is None:
        return "InProgress", "no controller has observed it yet"
    wanted = at(document, "status", "desiredNumberScheduled")
    if wanted is None:
        return "InProgress", "the number of nodes that it should run on is not known yet"
    for what, name in (
        ("current", "currentNumberScheduled"),
        ("updated", "updatedNumberScheduled"),
        ("available", "numberAvailable"),
        ("ready", "numberReady"),
    ):
        if behind := _less(what, at(document, "status", name, default=0), wanted):
            return behind
    return "Current", f"all {wanted} pods are up to date and available"


def _job(document: Document) -> Verdict:
    conditions = _by_type(document)
    succeeded, active, failed = _counts(document, "succeeded", "active", "failed")
    if conditions.get("Complete", {}).get("status") == "True":
        return "Current", f"complete: {succeeded} succeeded"
    if conditions.get("Failed", {}).get("status") == "True":
        return (
            "Failed",
            f"{failed} failed pod{'' if failed == 1 else 's'}: {conditions['Failed'].get('message') or 'see its pods'}",
        )
    suspended = conditions.get("Suspended", {}).get("status") == "True"
    if suspended and at(document, "spec", "suspend", default=False):
        return "Current", "it is suspended"
    if not at(document, "status", "startTime"):
        return "InProgress", "it has not started"
    return "Current", f"it is running: {succeeded} succeeded, {active} active, {failed} failed"


def _pod(document: Document) -> Verdict:
    match at(document, "status", "phase", default=""):
        case "Succeeded":
            return "Current", "it has succeeded"
        case "Failed":
            return "Failed", at(document, "status", "message", default="it has failed")
        case "Running":
            if _by_type(document).get("Ready", {}).get("status") == "True":
                return "Current", "it is ready"
            looping = [
                str(at(container, "name"))
                for container in at(document, "status", "containerStatuses", default=())
                if at(container, "state", "waiting", "reason") == "CrashLoopBackOff"
            ]
            if looping:
                return "Failed", f"these containers keep crashing: {', '.join(looping)}"
            return "InProgress", "it is running, but not ready"
        case "Pending":
            scheduled = _by_type(document).get("PodScheduled", {})
            if scheduled.get("status") == "False":
                return "InProgress", f"it is not scheduled: {scheduled.get('message') or 'no node fits'}"
            return "InProgress", "it is pending"
        case phase:
            return (
                "InProgress",
                f"its phase is {phase}" if phase else "no kubelet or scheduler has handled it yet",
            )


def _claim(document: Document) -> Verdict:
    phase = at(document, "status", "phase", default="unknown")
    return ("Current", "it is bound") if phase == "Bound" else ("InProgress", f"it is not bound: {phase}")


def _service(document: Document) -> Verdict:
    balanced = at(document, "spec", "type", default="ClusterIP") == "LoadBalancer"
    if balanced and not at(document, "spec", "clusterIP", default=""):
        return "InProgress", "its load balancer has no cluster IP yet"
    return "Current", "it can be reached"


def _definition(document: Document) -> Verdict:
    conditions = _by_type(document)
    names, established = conditions.get("NamesAccepted", {}), conditions.get("Established", {})
    if names.get("status") == "False":
        return "Failed", names.get("message") or "its names are not accepted"
    if established.get("status") == "True":
        return "Current", "it is established"
    if established.get("status") == "False" and established.get("reason") != "Installing":
        return "Failed", established.get("message") or "it cannot be established"
    return "InProgress", "it is being established"


def _always(_: Document) -> Verdict:
    return "Current", "objects of this kind have no desired state to reach"


def _by_type(document: Document) -> dict[str, Document]:
    found = at(document, "status", "conditions", default=())
    return {str(item.get("type")): item for item in found if isinstance(item, Mapping)}


def _counts(document: Document, *names: str) -> tuple[int, ...]:
    return tuple(at(document, "status", name, default=0) for name in names)


def _less(what: str, have: int, wanted: int) -> Verdict | None:
    return ("InProgress", f"{what}: {have} of {wanted}") if have < wanted else None


def _extra(have: int, wanted: int) -> Verdict | None:
    return ("InProgress", f"{have - wanted} pods have not terminated yet") if have > wanted else None


_OBSERVED = ("observedGeneration", "conditions.type", "conditions.status", "conditions.reason")

RULES: Mapping[GroupKind, Rule] = {
    GroupKind("apps", "Deployment"): Rule(
        _deployment,
        [
            *_of_spec("replicas", "progressDeadlineSeconds"),
            *_of_status(*_OBSERVED, "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"),
        ],
    ),
    GroupKind("apps", "StatefulSet"): Rule(
        _stateful_set,
        [
            *_of_spec("replicas", "updateStrategy.type", "updateStrategy.rollingUpdate.partition"),
            *_of_status("observedGeneration", "replicas", "readyReplicas", "currentReplicas"),
            *_of_status("updatedReplicas", "currentRevision", "updateRevision"),
        ],
    ),
    GroupKind("apps", "ReplicaSet"): Rule(
        _replica_set,
        [
            *_of_spec("replicas"),
            *_of_status("observedGeneration", "conditions.type", "conditions.status", "replicas"),
            *_of_status("fullyLabeledReplicas", "availableReplicas", "readyReplicas"),
        ],
    ),
    GroupKind("apps", "DaemonSet"): Rule(
        _daemon_set,
        _of_status(
            "observedGeneration",
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberReady",
        ),
    ),
    GroupKind("batch", "Job"): Rule(
        _job,
        [*_of_spec("suspend"), *_of_status("conditions.type", "conditions.status", "startTime")],
    ),
    GroupKind("", "Pod"): Rule(
        _pod,
        _of_status(
            "phase",
            "conditions.type",
            "conditions.status",
            "containerStatuses.name",
            "containerStatuses.state.waiting.reason",
        ),
    ),
    GroupKind("", "PersistentVolumeClaim"): Rule(_claim, _of_status("phase")),
    GroupKind("", "Service"): Rule(_service, _of_spec("type", "clusterIP")),
    GroupKind("apiextensions.k8s.io", "CustomResourceDefinition"): Rule(
        _definition, _of_status("conditions.type", "conditions.status", "conditions.reason")
    ),
    **{
        GroupKind(group, kind): Rule(_always, ())
        for group, kinds in {
            "": "ConfigMap Endpoints Event LimitRange PersistentVolume PodTemplate ResourceQuota Secret ServiceAccount",
            "admissionregistration.k8s.io": "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding "
            "MutatingWebhookConfiguration ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration",
            "apps": "ControllerRevision",
            "batch": "CronJob",
            "certificates.k8s.io": "ClusterTrustBundle",
            "coordination.k8s.io": "Lease",
            "discovery.k8s.io": "EndpointSlice",
            "events.k8s.io": "Event",
            "networking.k8s.io": "IPAddress Ingress IngressClass NetworkPolicy",
            "node.k8s.io": "RuntimeClass",
            "policy": "PodDisruptionBudget",
            "rbac.authorization.k8s.io": "ClusterRole ClusterRoleBinding Role RoleBinding",
            "resource.k8s.io": "DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice",
            "scheduling.k8s.io": "PriorityClass",
            "storage.k8s.io": "CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment "
            "VolumeAttributesClass",
        }.items()
        for kind in kinds.split()
    },
}
