"""What the workload controllers need to know about pods, and how they create them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor
from typing import Any
from zlib import crc32

import msgspec

from kubeshard.core.kinds import GroupResource
from kubeshard.core.times import parse_time
from kubeshard_apiserver.objects import Object, is_deleting

PODS = GroupResource("", "pods")
REPLICA_SETS = GroupResource("apps", "replicasets")
NODES = GroupResource("", "nodes")
CLAIMS = GroupResource("", "persistentvolumeclaims")

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def number_of(value: Any, of: int, *, up: bool) -> int:
    """Return a number of pods; a percentage is rounded up or down."""
    if isinstance(value, str) and value.endswith("%"):
        return (ceil if up else floor)(int(value[:-1]) * of / 100)
    return int(value)


def phase_of(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def has_ended(pod: Object) -> bool:
    return phase_of(pod) in ("Succeeded", "Failed")


def is_active(pod: Object) -> bool:
    """Report whether the pod counts towards the desired number of pods."""
    return not has_ended(pod) and not is_deleting(pod)


def ready_since(pod: Object) -> float | None:
    """Return when the pod became ready, in seconds since the epoch, or None if it is not ready."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "True":
            return parse_time(condition.get("lastTransitionTime")) or 0.0
    return None


def is_ready(pod: Object) -> bool:
    return ready_since(pod) is not None


def split_available(
    pods: Sequence[Object], min_ready: float, wall: float
) -> tuple[list[Object], float | None]:
    """Return the pods that have been ready for `min_ready` seconds, and the seconds until there may be more."""
    available, waits = [], []
    for pod in pods:
        since = ready_since(pod)
        if since is None:
            continue
        left = since + min_ready - wall
        if left <= 0 or not min_ready:
            available.append(pod)
        else:
            waits.append(left)
    return available, min(waits, default=None)


def hashed(*values: Any) -> str:
    """Return a short hash of the values. It uses the alphabet of the real hashes but yields different ones."""
    number = crc32(msgspec.json.encode(values, order="sorted"))
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(number))


def controller_reference(owner: Object) -> dict[str, Any]:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def from_template(
    owner: Object, template: Object, *, name: str = "", labels: Mapping[str, str] | None = None
) -> Object:
    """Return a pod of the owner. Without a name, the server generates one from the owner's name."""
    given = template.get("metadata") or {}
    meta: dict[str, Any] = {
        "namespace": owner["metadata"]["namespace"],
        "generateName": f"{owner['metadata']['name']}-",
        "labels": {**(given.get("labels") or {}), **(labels or {})},
        "annotations": dict(given.get("annotations") or {}),
        "finalizers": list(given.get("finalizers") or ()),
        "ownerReferences": [controller_reference(owner)],
    }
    if name:
        meta["name"] = name
    return {"metadata": meta, "spec": dict(template.get("spec") or {})}


def without_zeros(status: Mapping[str, Any], *kept: str) -> Object:
    """Leave out zero values as Go's encoder does, except for the named fields."""
    return {name: value for name, value in status.items() if value or name in kept}


def dispensable(pod: Object) -> tuple[Any, ...]:
    """Sort key for the pods to delete first when there are too many: unbound, not running, not ready, then the
    youngest.
    """
    since = ready_since(pod)
    deletion_cost = (pod["metadata"].get("annotations") or {}).get(
        "controller.kubernetes.io/pod-deletion-cost", "0"
    )
    return (
        bool(pod.get("spec", {}).get("nodeName")),
        {"Pending": 0, "Unknown": 1}.get(phase_of(pod), 2),
        since is not None,
        int(deletion_cost),
        -(since or 0.0),
        -int(pod["metadata"]["resourceVersion"]),
    )
