"""Whether others can use an object, by the rules of `kubeshard.core.readiness` and three stricter ones.

| kind | besides |
|---|---|
| Job | it is complete; one that runs or is suspended is not usable yet |
| Service of type LoadBalancer | it has an address |
| a kind without rules of its own | its condition `Ready` is true; one that nobody has set yet is not enough |

The last rule is why this is not `is_ready`: an object whose controller has not seen it yet looks like one that
has nothing to report.
"""

from __future__ import annotations

from typing import Any

from kubeshard.core.documents import Path, at, document_of
from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import KubeObject
from kubeshard.core.readiness import RULES, Readiness, is_ready

_TYPE: Path = ("status", "conditions", "type")
_STATUS: Path = ("status", "conditions", "status")
_JOB, _SERVICE = GroupKind("batch", "Job"), GroupKind("", "Service")

_ADDRESSES: Path = ("status", "loadBalancer", "ingress")
"""Only Services of one type need an address, so only these need the field."""


def is_usable(obj: KubeObject) -> Readiness:
    """The state of an object for those that depend on it: true if they can use it.

    Raises TypeError if the object's class does not declare the fields that `is_ready` reads, or if a Service of type
    LoadBalancer does not declare `status.loadBalancer.ingress`.
    """
    found = is_ready(obj)
    if not found:
        return found
    kind = obj.KIND.group_kind
    if kind == _JOB and _condition(obj, "Complete") != "True":
        return Readiness("InProgress", "it is not complete")
    if kind == _SERVICE and not _has_address(obj):
        return Readiness("InProgress", "its load balancer has no address yet")
    if kind not in RULES and not _condition(obj, "Ready"):
        return Readiness("InProgress", "it has no condition Ready")
    return found


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
