"""Whether others can use an object, by the rules of `kubeshard.core.readiness` and some of its own.

| kind | rule |
|---|---|
| Job | besides, it is complete; one that runs or is suspended is not usable yet |
| Service of type LoadBalancer | besides, it has an address |
| other built-in kinds without rules | it exists |
| custom resources | besides, the condition `Ready` is there |

The last rule is why this is not `is_ready`: an object whose controller has not seen it yet looks like one that
has nothing to report.
"""

from __future__ import annotations

from typing import Any

from kubeshard.core.documents import Path, at, document_of
from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import KubeObject
from kubeshard.core.readiness import RULES, Readiness, can_be_judged, is_ready

_TYPE: Path = ("status", "conditions", "type")
_STATUS: Path = ("status", "conditions", "status")
_JOB, _SERVICE = GroupKind("batch", "Job"), GroupKind("", "Service")

_BUILT_IN = frozenset(
    (
        *("", "apps", "autoscaling", "batch", "policy"),
        *("admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"),
        *("authentication.k8s.io", "authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io"),
        *("discovery.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io", "networking.k8s.io"),
        *("node.k8s.io", "rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io"),
        *("storage.k8s.io", "storagemigration.k8s.io"),
    )
)
"""The API groups of kube-apiserver."""
_ADDRESSES: Path = ("status", "loadBalancer", "ingress")
"""Only Services of one type need an address, so only these need the field."""


def is_usable(obj: KubeObject) -> Readiness:
    """True if others can use it. Raises TypeError for a class without the fields that the rules read."""
    kind = obj.KIND.group_kind
    if _only_exists(kind):
        return Readiness("Terminating" if obj.metadata.deleting else "Current", "it exists")
    found = is_ready(obj)
    if not found:
        return found
    if kind == _JOB and _condition(obj, "Complete") != "True":
        return Readiness("InProgress", "it is not complete")
    if kind == _SERVICE and not _has_address(obj):
        return Readiness("InProgress", "its load balancer has no address yet")
    if kind not in RULES and not _condition(obj, "Ready"):
        return Readiness("InProgress", "it has no condition Ready")
    return found


def usability_can_be_judged(type_: type[KubeObject]) -> None:
    """Raises TypeError if `is_usable` would for every object of the class."""
    if not _only_exists(type_.KIND.group_kind):
        can_be_judged(type_)


def _only_exists(kind: GroupKind) -> bool:
    return kind.group in _BUILT_IN and kind not in RULES


def _condition(obj: KubeObject, type: str) -> str:
    """The status of a condition, or an empty string."""
    conditions: Any = at(document_of(obj, (_TYPE, _STATUS)), "status", "conditions", default=())
    return next((item.get("status", "") for item in conditions if item.get("type") == type), "")


def _has_address(service: KubeObject) -> bool:
    """Whether it has the address of a load balancer, if it has one."""
    spec = document_of(service, RULES[_SERVICE].reads)
    if at(spec, "spec", "type", default="ClusterIP") != "LoadBalancer":
        return True
    return bool(at(document_of(service, (_ADDRESSES,)), *_ADDRESSES))
