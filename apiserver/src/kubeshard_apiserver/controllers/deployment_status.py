"""The status and conditions of a Deployment's rollout, worded like those of the real controller. Pure.

`Available` reports whether enough pods are available, `Progressing` how the rollout is going. The reasons of
`Progressing` are `NewReplicaSetCreated`, `ReplicaSetUpdated`, `NewReplicaSetAvailable` (done) and
`ProgressDeadlineExceeded`. Source: pkg/controller/deployment/{sync,progress}.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeshard.core.times import parse_time
from kubeshard_apiserver.controllers.conditions import (
    Condition,
    condition_of,
    with_condition,
    without_condition,
)
from kubeshard_apiserver.controllers.pods import without_zeros
from kubeshard_apiserver.objects import Object

REVISION = "deployment.kubernetes.io/revision"
_UPDATED = ("lastUpdateTime",)
_NEVER = 2**31 - 1
_TIMED_OUT = "ProgressDeadlineExceeded"
_DONE = "NewReplicaSetAvailable"


def wanted(obj: Object) -> int:
    """Return `spec.replicas`."""
    return int(obj["spec"].get("replicas", 1))


def revision_of(obj: Object) -> int:
    return int((obj["metadata"].get("annotations") or {}).get(REVISION) or 0)


def status_of(
    deployment: Object,
    sets: Sequence[Object],
    new: Object | None,
    min_available: int,
    now: str,
    created: str,
) -> Object:
    """Return the Deployment's status. `created` is the name of a ReplicaSet that was created in this reconcile."""
    former = deployment.get("status") or {}
    said = [each.get("status") or {} for each in sets]
    available = sum(each.get("availableReplicas", 0) for each in said)
    status = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": sum(each.get("replicas", 0) for each in said),
        "updatedReplicas": (new.get("status") or {}).get("replicas", 0) if new else 0,
        "readyReplicas": sum(each.get("readyReplicas", 0) for each in said),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(map(wanted, sets)) - available),
        "terminatingReplicas": sum(each.get("terminatingReplicas", 0) for each in said),
        "collisionCount": former.get("collisionCount"),
    }
    conditions = _available(former.get("conditions") or [], available >= min_available, now)
    conditions = _progressing(deployment, status, conditions, new, now, created)
    failure = condition_of((new.get("status") or {}).get("conditions") or [] if new else [], "ReplicaFailure")
    if failure is None:
        conditions = without_condition(conditions, "ReplicaFailure")
    else:
        conditions = with_condition(
            conditions, "ReplicaFailure", "True", failure["reason"], failure["message"], now, times=_UPDATED
        )
    return without_zeros({**status, "conditions": conditions}, "terminatingReplicas")


def seconds_until_deadline(deployment: Object, status: Object, wall: float) -> float | None:
    """Return the seconds until a stalled rollout is reported as such."""
    deadline = _deadline(deployment)
    progressing = condition_of(status.get("conditions", ()), "Progressing")
    if deadline >= _NEVER or progressing is None or progressing["reason"] in (_DONE, _TIMED_OUT):
        return None
    if deployment["spec"].get("paused"):
        return None
    return max(0.0, (parse_time(progressing["lastUpdateTime"]) or 0.0) + deadline - wall) + 1


def _available(conditions: Sequence[Condition], holds: bool, now: str) -> list[Condition]:
    return with_condition(
        conditions,
        "Available",
        "True" if holds else "False",
        "MinimumReplicasAvailable" if holds else "MinimumReplicasUnavailable",
        f"Deployment {'has' if holds else 'does not have'} minimum availability.",
        now,
        times=_UPDATED,
    )


def _progressing(
    deployment: Object,
    status: Object,
    conditions: list[Condition],
    new: Object | None,
    now: str,
    created: str,
) -> list[Condition]:
    spec, former = deployment["spec"], condition_of(conditions, "Progressing")
    if _deadline(deployment) >= _NEVER:
        return without_condition(conditions, "Progressing")
    reason = former["reason"] if former else ""
    if spec.get("paused"):
        if reason == _TIMED_OUT:
            return conditions
        return _said(conditions, "Unknown", "DeploymentPaused", "Deployment is paused", now)
    if reason == "DeploymentPaused":
        conditions = _said(conditions, "Unknown", "DeploymentResumed", "Deployment is resumed", now)
    name = new["metadata"]["name"] if new else deployment["metadata"]["name"]
    who = f'ReplicaSet "{name}"' if new else f'Deployment "{name}"'
    if created:
        text = f'Created new replica set "{created}"'
        return _said(conditions, "True", "NewReplicaSetCreated", text, now)
    before = deployment.get("status") or {}
    if _complete(deployment, status):
        return _said(conditions, "True", _DONE, f"{who} has successfully progressed.", now)
    if _moves(status, before):
        # Every step counts as progress: the timestamp is renewed even if the message stays the same.
        rest = without_condition(conditions, "Progressing")
        renewed = _said(rest, "True", "ReplicaSetUpdated", f"{who} is progressing.", now)
        if former is not None and former["status"] == "True":
            renewed[-1]["lastTransitionTime"] = former["lastTransitionTime"]
        return renewed
    if reason and reason != _DONE and reason != _TIMED_OUT and _is_late(deployment, conditions, now):
        return _said(conditions, "False", _TIMED_OUT, f"{who} has timed out progressing.", now)
    return conditions


def _said(
    conditions: Sequence[Condition], status: str, reason: str, message: str, now: str
) -> list[Condition]:
    return with_condition(conditions, "Progressing", status, reason, message, now, times=_UPDATED)


def _complete(deployment: Object, status: Object) -> bool:
    size = wanted(deployment)
    return all(status[name] == size for name in ("updatedReplicas", "replicas", "availableReplicas"))


def _moves(status: Object, before: Mapping[str, Any]) -> bool:
    """Report whether there are more new pods, fewer old ones, or more that are ready or available."""

    more = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return _old(status) < _old(before) or any(status[name] > before.get(name, 0) for name in more)


def _old(status: Mapping[str, Any]) -> int:
    return int(status.get("replicas", 0)) - int(status.get("updatedReplicas", 0))


def _deadline(deployment: Object) -> int:
    return int(deployment["spec"].get("progressDeadlineSeconds", 600))


def _is_late(deployment: Object, conditions: Sequence[Condition], now: str) -> bool:
    progressing = condition_of(conditions, "Progressing")
    if progressing is None:
        return False
    since = parse_time(progressing["lastUpdateTime"]) or 0.0
    return (parse_time(now) or 0.0) - since > _deadline(deployment)
