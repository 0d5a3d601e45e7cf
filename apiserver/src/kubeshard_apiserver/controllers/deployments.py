"""Deployments: one ReplicaSet per template; the newest grows while the others shrink.

Guaranteed: there are never more pods than `maxSurge` allows, and never fewer available ones than `maxUnavailable`
allows. `Recreate` waits until the old pods are gone. The status, conditions and reasons are those that
`kubectl rollout status` and `kubectl rollout undo` read: `Available` reports whether enough pods are available,
`Progressing` how the rollout is going, with the reasons `NewReplicaSetCreated`, `ReplicaSetUpdated`,
`NewReplicaSetAvailable` (done) and `ProgressDeadlineExceeded`. A change of `replicas` during a rollout, and one of
`maxSurge` while it is paused, are shared out among the ReplicaSets in proportion to their sizes. At 0 replicas,
`Progressing` becomes `NewReplicaSetAvailable` at once; the real controller writes `NewReplicaSetCreated` before. The
hash in the names differs from the real one. Source: pkg/controller/deployment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import floor
from typing import Any

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.core.times import parse_time
from kubeshard_apiserver.controllers.cluster import Account, ClusterView, service_account
from kubeshard_apiserver.controllers.conditions import (
    Condition,
    condition_of,
    with_condition,
    without_condition,
)
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.controller_refs import claim_dependents, claimants
from kubeshard_apiserver.controllers.events import Recorder
from kubeshard_apiserver.controllers.ownership import Node, controller_of, owners_key
from kubeshard_apiserver.controllers.pods import (
    PODS,
    REPLICA_SETS,
    controller_reference,
    hashed,
    number_of,
    without_zeros,
)
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object, is_deleting, key_of, with_metadata
from kubeshard_apiserver.steps import Steps

REVISION = "deployment.kubernetes.io/revision"
_UPDATED = ("lastUpdateTime",)
_NEVER = 2**31 - 1
_TIMED_OUT = "ProgressDeadlineExceeded"
_DONE = "NewReplicaSetAvailable"


def wanted(obj: Object) -> int:
    """Return `spec.replicas`."""
    return int(obj["spec"].get("replicas", 1))


def _revision_of(obj: Object) -> int:
    return int((obj["metadata"].get("annotations") or {}).get(REVISION) or 0)


def _status_of(
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
    conditions = _availability(former.get("conditions") or [], available >= min_available, now)
    conditions = _progressing(deployment, status, conditions, new, now, created)
    failure = condition_of((new.get("status") or {}).get("conditions") or [] if new else [], "ReplicaFailure")
    if failure is None:
        conditions = without_condition(conditions, "ReplicaFailure")
    else:
        conditions = with_condition(
            conditions, "ReplicaFailure", "True", failure["reason"], failure["message"], now, times=_UPDATED
        )
    return without_zeros({**status, "conditions": conditions}, "terminatingReplicas")


def _seconds_until_deadline(deployment: Object, status: Object, wall: float) -> float | None:
    """Return the seconds until a stalled rollout is reported as such."""
    deadline = _deadline(deployment)
    progressing = condition_of(status.get("conditions", ()), "Progressing")
    if deadline >= _NEVER or progressing is None or progressing["reason"] in (_DONE, _TIMED_OUT):
        return None
    if deployment["spec"].get("paused"):
        return None
    return max(0.0, (parse_time(progressing["lastUpdateTime"]) or 0.0) + deadline - wall) + 1


def _availability(conditions: Sequence[Condition], holds: bool, now: str) -> list[Condition]:
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
    before = deployment.get("status") or {}
    if _complete(deployment, status):
        return _said(conditions, "True", _DONE, f"{who} has successfully progressed.", now)
    if created:
        text = f'Created new replica set "{created}"'
        return _said(conditions, "True", "NewReplicaSetCreated", text, now)
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


DEPLOYMENTS = GroupResource("apps", "deployments")
HASH = "pod-template-hash"
_PREFIX = "deployment.kubernetes.io/"
_DESIRED, _MAX, _HISTORY = (
    f"{_PREFIX}desired-replicas",
    f"{_PREFIX}max-replicas",
    f"{_PREFIX}revision-history",
)
_NOT_COPIED = ("kubectl.kubernetes.io/last-applied-configuration", REVISION, _DESIRED, _MAX, _HISTORY)


class DeploymentController(Controller[Key]):
    watched = (DEPLOYMENTS, REPLICA_SETS, PODS)

    def __init__(self, cluster: ClusterView) -> None:
        super().__init__(cluster)
        self._account = Account(cluster, service_account("deployment-controller"))
        self._recorder = Recorder(cluster, self._account, "deployment-controller")

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[Key]:
        if resource == DEPLOYMENTS:
            return (event.key,)
        if resource == REPLICA_SETS:
            if event.old and event.new and _seen_of(event.old) == _seen_of(event.new):
                return ()
            return (*owners_key(event, "Deployment"), *claimants(self.cluster, DEPLOYMENTS, event))
        return self._waiting_for(event) if resource == PODS and event.new is None else ()

    def repeats(self, resource: GroupResource, event: Event) -> bool:
        """What was scaled may leave room for others, and what a webhook has made an orphan is adopted; the status tells
        of everything else.
        """
        if resource != REPLICA_SETS or event.new is None:
            return False
        return event.old is not None or controller_of(event.new) is None

    def reconcile(self, key: Key) -> Steps[float | None]:
        node = Node(DEPLOYMENTS, key)
        deployment = self.cluster.get(node)
        if deployment is None:
            return None
        created = ""
        if not is_deleting(deployment):
            created = yield from self._roll(deployment)
        live = self.cluster.get(node)
        if live is None:
            return None
        sets = self.cluster.controlled(live, REPLICA_SETS)
        new = _of_template(live, sets)
        limits = _limits(live)
        status = _status_of(live, sets, new, limits.min_available, self.cluster.now(), created)
        if new is not None and (revision := _revision_of(new)) != _revision_of(live):
            # Write it through the status: changing annotations through the main resource would bump the generation.
            yield from self._account.update(
                node, lambda obj: _annotated({**obj, "status": status}, {REVISION: str(revision)}), "status"
            )
        else:
            yield from self._account.set_status(node, status)
        return _seconds_until_deadline(live, status, self.cluster.wall())

    def _waiting_for(self, event: Event) -> Iterable[Key]:
        """Yield the Deployment of a pod: `Recreate` waits even for pods that no ReplicaSet counts any longer."""
        for key in owners_key(event, "ReplicaSet"):
            owner = self.cluster.get(Node(REPLICA_SETS, key))
            if owner is not None:
                yield from owners_key(Event(event.revision, key, owner, None), "Deployment")

    def _roll(self, deployment: Object) -> Steps[str]:
        """Take the next step of the rollout. Return the name of the ReplicaSet that was created, if any."""
        yield from claim_dependents(self.cluster, self._account, deployment, REPLICA_SETS)
        sets = self.cluster.controlled(deployment, REPLICA_SETS)
        new = _of_template(deployment, sets)
        old = [each for each in sets if each is not new]
        recreate = _strategy(deployment) == "Recreate"
        paused = deployment["spec"].get("paused")
        if paused or (not recreate and _was_scaled(deployment, sets)):
            if new is not None:
                yield from self._renew(deployment, new, old)
            for each, size in _resized(deployment, new, old):
                yield from self._scale(deployment, each, size)
            if paused:
                yield from self._forget_history(deployment, old)
            return ""
        if recreate:
            for each in old:
                yield from self._scale(deployment, each, 0)
            if any(self._has_pods(each) for each in old):
                return ""
        created = ""
        if new is None:
            new = yield from self._create(deployment, sets)
            created = new["metadata"]["name"]
        else:
            yield from self._renew(deployment, new, old)
        if recreate:
            yield from self._scale(deployment, new, wanted(deployment))
        else:
            yield from self._grow(deployment, new, old)
            yield from self._shrink(deployment, key_of(new), old)
        yield from self._forget_history(deployment, old)
        return created

    def _has_pods(self, replica_set: Object) -> bool:
        """Report whether any pod is left. A pod that is being deleted is still running."""
        return bool(self.cluster.controlled(replica_set, PODS))

    def _create(self, deployment: Object, sets: Sequence[Object]) -> Steps[Object]:
        spec, meta = deployment["spec"], deployment["metadata"]
        template = spec["template"]
        hash_ = self._free_hash(deployment)
        labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH: hash_}
        selector = dict(spec.get("selector") or {})
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH: hash_}
        body: dict[str, Any] = {
            "metadata": {
                "name": f"{meta['name']}-{hash_}",
                "namespace": meta["namespace"],
                "labels": labels,
                "annotations": {
                    **_copied(deployment),
                    REVISION: str(_newest(sets) + 1),
                    **_sizes(deployment),
                },
                "ownerReferences": [controller_reference(deployment)],
            },
            "spec": {
                "replicas": _room(deployment, 0, sets),
                "minReadySeconds": spec.get("minReadySeconds", 0),
                "selector": selector,
                "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
            },
        }
        try:
            known = {"metadata": {}, "spec": {"template": template}}
            created = yield from self._account.create(REPLICA_SETS, body, known)
        except ApiError as error:
            problem = f'Failed to create new replica set "{body["metadata"]["name"]}": {error.message}'
            yield from self._recorder.warn(deployment, "ReplicaSetCreateError", problem)
            raise
        if size := wanted(created):
            message = f"Scaled up replica set {created['metadata']['name']} from 0 to {size}"
            yield from self._recorder.tell(deployment, "ScalingReplicaSet", message)
        return created

    def _free_hash(self, deployment: Object) -> str:
        meta, template = deployment["metadata"], deployment["spec"]["template"]
        collisions = (deployment.get("status") or {}).get("collisionCount", 0)
        while True:
            hash_ = hashed(template, collisions)
            if (
                self.cluster.get(Node(REPLICA_SETS, Key(meta["namespace"], f"{meta['name']}-{hash_}")))
                is None
            ):
                return hash_
            collisions += 1

    def _renew(self, deployment: Object, new: Object, old: Sequence[Object]) -> Steps[None]:
        """Copy annotations to the newest ReplicaSet. One that becomes the newest again gets a new revision."""
        annotations = _copied(deployment)
        former = _revision_of(new)
        if (newest := _newest(old)) >= former:
            history = (new["metadata"].get("annotations") or {}).get(_HISTORY, "")
            annotations |= {REVISION: str(newest + 1), _HISTORY: f"{history},{former}".lstrip(",")}
        min_ready = deployment["spec"].get("minReadySeconds", 0)
        had = new["metadata"].get("annotations") or {}
        if annotations.items() <= had.items() and new["spec"].get("minReadySeconds", 0) == min_ready:
            return

        def change(live: Object) -> Object:
            spec = {**live["spec"], "minReadySeconds": min_ready}
            return _annotated({**live, "spec": spec} if min_ready else live, annotations)

        yield from self._account.update(Node(REPLICA_SETS, key_of(new)), change)

    def _grow(self, deployment: Object, new: Object, old: Sequence[Object]) -> Steps[None]:
        size = wanted(new)
        if size > wanted(deployment):
            size = wanted(deployment)
        else:
            size += _room(deployment, size, [new, *old])
        yield from self._scale(deployment, new, size)

    def _shrink(self, deployment: Object, new_key: Key, old: Sequence[Object]) -> Steps[None]:
        """Remove unhealthy pods of old ReplicaSets first, which costs no availability, then as many as allowed."""
        new = self.cluster.get(Node(REPLICA_SETS, new_key))
        running = [each for each in old if wanted(each)]
        if new is None or not running:
            return
        least = _limits(deployment).min_available
        missing_new = wanted(new) - _available(new)
        spare = sum(map(wanted, running)) + wanted(new) - least - missing_new
        sizes = {key_of(each): wanted(each) for each in running}
        for each in running:
            unhealthy = min(max(0, spare), wanted(each) - _available(each))
            sizes[key_of(each)] -= unhealthy
            spare -= unhealthy
        spare = sum(map(_available, [*running, new])) - least
        for each in running:
            fewer = min(max(0, spare), sizes[key_of(each)])
            sizes[key_of(each)] -= fewer
            spare -= fewer
        for each in running:
            yield from self._scale(deployment, each, sizes[key_of(each)])

    def _scale(self, deployment: Object, replica_set: Object, size: int) -> Steps[None]:
        """Also records the sizes that it is part of, by which a later change of them is seen."""

        def change(live: Object) -> Object:
            spec = {**live["spec"], "replicas": size}
            return _annotated({**live, "spec": spec}, _sizes(deployment))

        former, name = wanted(replica_set), replica_set["metadata"]["name"]
        had = replica_set["metadata"].get("annotations") or {}
        if former != size or (size and not _sizes(deployment).items() <= had.items()):
            yield from self._account.update(Node(REPLICA_SETS, key_of(replica_set)), change)
        if former != size:
            message = f"Scaled {'up' if size > former else 'down'} replica set {name} from {former} to {size}"
            yield from self._recorder.tell(deployment, "ScalingReplicaSet", message)

    def _forget_history(self, deployment: Object, old: Sequence[Object]) -> Steps[None]:
        limit = deployment["spec"].get("revisionHistoryLimit", 10)
        if len(old) <= limit:
            return
        empty = [
            each for each in old if not wanted(each) and not self._has_pods(each) and not is_deleting(each)
        ]
        for each in sorted(empty, key=_revision_of)[: max(0, len(empty) - limit)]:
            yield from self._account.delete(each, REPLICA_SETS)


def _seen_of(replica_set: Object) -> tuple[Any, ...]:
    """Return what a Deployment depends on."""
    meta, status = replica_set["metadata"], replica_set.get("status") or {}
    said = {name: value for name, value in status.items() if value and name != "observedGeneration"}
    whose = (meta.get("labels"), meta.get("ownerReferences"), meta.get("deletionTimestamp"))
    return said, meta.get("annotations"), whose, replica_set["spec"]


class _Limits:
    """`max_surge` and `max_unavailable` as numbers of pods; percentages are rounded up and down respectively."""

    def __init__(self, size: int, strategy: Object) -> None:
        rolling = strategy.get("rollingUpdate") or {}
        self.max_surge = number_of(rolling.get("maxSurge", "25%"), size, up=True)
        self.max_unavailable = min(size, number_of(rolling.get("maxUnavailable", "25%"), size, up=False))
        if strategy.get("type") == "Recreate":
            self.max_surge, self.max_unavailable = 0, size
        elif not self.max_surge and not self.max_unavailable:
            self.max_unavailable = min(1, size)
        self.min_available = size - self.max_unavailable


def _limits(deployment: Object) -> _Limits:
    return _Limits(wanted(deployment), deployment["spec"].get("strategy") or {})


def _strategy(deployment: Object) -> str:
    return str((deployment["spec"].get("strategy") or {}).get("type") or "RollingUpdate")


def _room(deployment: Object, size: int, sets: Sequence[Object]) -> int:
    """Return how many pods a new ReplicaSet of this size may add."""
    if _strategy(deployment) == "Recreate":
        return wanted(deployment) - size
    most = wanted(deployment) + _limits(deployment).max_surge
    return max(0, min(most - sum(map(wanted, sets)), wanted(deployment) - size))


def _was_scaled(deployment: Object, sets: Sequence[Object]) -> bool:
    """Report whether the Deployment's size has changed since its ReplicaSets got theirs."""
    sizes = [_recorded(each, _DESIRED) for each in sets if wanted(each)]
    return any(size not in (None, wanted(deployment)) for size in sizes)


def _recorded(replica_set: Object, name: str) -> int | None:
    """Return a size in the annotations; None if somebody has made it something else."""
    text = (replica_set["metadata"].get("annotations") or {}).get(name, "")
    return int(text) if text.isdecimal() else None


def _resized(deployment: Object, new: Object | None, old: Sequence[Object]) -> Iterable[tuple[Object, int]]:
    """Return the sizes that the ReplicaSets get while nothing is rolled out: in proportion to those they have."""
    by_age = sorted(old, key=_age) + ([new] if new else [])
    active, size = [each for each in by_age if wanted(each)], wanted(deployment)
    if len(active) < 2:
        return [(each, size) for each in active or by_age[-1:]]
    if new is not None and wanted(new) == _recorded(new, _DESIRED) == _available(new) == size:
        return [(each, 0) for each in active if each is not new]
    if _strategy(deployment) == "Recreate":
        return []
    most = size + _limits(deployment).max_surge if size else 0
    rest = most - sum(map(wanted, active))
    # The largest comes first; of equal ones, the newest grows first and the oldest shrinks first.
    active = sorted(sorted(active, key=_age, reverse=rest > 0), key=wanted, reverse=True)
    sizes = []
    for each in active:
        part = _part_of(each, deployment, most)
        part = min(max(part, min(0, rest)), max(0, rest))
        sizes.append(wanted(each) + part)
        rest -= part
    sizes[0] = max(0, sizes[0] + rest)
    return zip(active, sizes, strict=True)


def _part_of(replica_set: Object, deployment: Object, most: int) -> int:
    """Return how many pods more, or fewer, make the same part of `most` as it has of the present ones."""
    before = _recorded(replica_set, _MAX) or (deployment.get("status") or {}).get("replicas", 0)
    if not most or not before:
        return -wanted(replica_set) if not most else 0
    return floor(wanted(replica_set) * most / before + 0.5) - wanted(replica_set)


def _age(replica_set: Object) -> tuple[str, str]:
    return replica_set["metadata"]["creationTimestamp"], replica_set["metadata"]["name"]


def _available(replica_set: Object) -> int:
    return int((replica_set.get("status") or {}).get("availableReplicas", 0))


def _of_template(deployment: Object, sets: Sequence[Object]) -> Object | None:
    """Return the oldest ReplicaSet with the Deployment's template."""
    template = _bare(deployment["spec"]["template"])
    same = [each for each in sets if _bare(each["spec"]["template"]) == template and not is_deleting(each)]
    return min(same, key=lambda each: each["metadata"]["creationTimestamp"], default=None)


def _bare(template: Object) -> tuple[Any, ...]:
    meta = template.get("metadata") or {}
    labels = {**(meta.get("labels") or {}), HASH: None}
    return (
        labels,
        {name: value for name, value in meta.items() if value and name != "labels"},
        template.get("spec"),
    )


def _newest(sets: Sequence[Object]) -> int:
    return max(map(_revision_of, sets), default=0)


def _copied(deployment: Object) -> dict[str, str]:
    annotations = deployment["metadata"].get("annotations") or {}
    return {name: value for name, value in annotations.items() if name not in _NOT_COPIED}


def _sizes(deployment: Object) -> dict[str, str]:
    size = wanted(deployment)
    return {_DESIRED: str(size), _MAX: str(size + _limits(deployment).max_surge)}


def _annotated(obj: Object, annotations: dict[str, str]) -> Object:
    return with_metadata(obj, annotations={**(obj["metadata"].get("annotations") or {}), **annotations})
