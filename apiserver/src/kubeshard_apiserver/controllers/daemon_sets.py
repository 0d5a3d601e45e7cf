"""DaemonSets: one pod on each node that the template fits.

A new template replaces `maxUnavailable` pods at a time. Not implemented: `maxSurge`, taints. Source:
pkg/controller/daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.controllers.cluster import ClusterView
from kubeshard_apiserver.controllers.events import PodControl
from kubeshard_apiserver.controllers.pods import (
    NODES,
    PODS,
    from_template,
    has_ended,
    is_ready,
    number_of,
    split_available,
    without_zeros,
)
from kubeshard_apiserver.controllers.revisions import RevisionController, RolloutState
from kubeshard_apiserver.controllers.scheduler import named_nodes
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object, is_deleting, labels_of
from kubeshard_apiserver.steps import Steps

DAEMON_SETS = GroupResource("apps", "daemonsets")
REVISION = "controller-revision-hash"
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


class DaemonSetController(RevisionController):
    resource, kind, hash_label = DAEMON_SETS, "DaemonSet", REVISION
    account_name, component = "daemon-set-controller", "daemonset-controller"

    def __init__(self, cluster: ClusterView) -> None:
        super().__init__(cluster)
        self.watched = (DAEMON_SETS, PODS, NODES)
        self._pods = PodControl(self._account, self._recorder)

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[Key]:
        if resource == NODES:
            return tuple(self.cluster.server.store.objects(DAEMON_SETS))
        return super().concerned(resource, event)

    def work(
        self, found: Object, newest: Object, known: Sequence[Object]
    ) -> Steps[Callable[[Object], RolloutState]]:
        hash_ = labels_of(newest)[REVISION]
        places = self._places(found)
        for pod in self._misplaced(found, places):
            yield from self._pods.delete(found, pod)
        pods = self._by_node(found)
        for place in places:
            if place not in pods:
                yield from self._pods.create(found, _pod(found, place, hash_))
        yield from self._update(found, self._by_node(found), places, hash_)
        return lambda live: (*self._status(live, places, hash_), [newest["metadata"]["name"]])

    def _places(self, daemon_set: Object) -> list[str]:
        wanted = (daemon_set["spec"]["template"].get("spec") or {}).get("nodeSelector") or {}
        nodes = sorted(self.cluster.server.store.objects(NODES).items())
        return [key.name for key, node in nodes if wanted.items() <= labels_of(node).items()]

    def _by_node(self, daemon_set: Object) -> dict[str, Object]:
        return {_place(pod): pod for pod in self.cluster.controlled(daemon_set, PODS)}

    def _misplaced(self, daemon_set: Object, places: list[str]) -> list[Object]:
        """Return pods on nodes that should not have one, finished pods, and all but the first on each node."""
        seen: set[str] = set()
        found = []
        for pod in self.cluster.controlled(daemon_set, PODS):
            place = _place(pod)
            if not is_deleting(pod) and (place not in places or has_ended(pod) or place in seen):
                found.append(pod)
            seen.add(place)
        return found

    def _update(
        self, daemon_set: Object, pods: Mapping[str, Object], places: list[str], hash_: str
    ) -> Steps[None]:
        strategy = daemon_set["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        allowed = number_of(
            (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1), len(places), up=True
        )
        old = [pod for pod in pods.values() if labels_of(pod).get(REVISION) != hash_ and not is_deleting(pod)]
        missing = sum(place not in pods or not self.is_available(daemon_set, pods[place]) for place in places)
        # Replacing unavailable pods first reduces availability no further.
        old.sort(key=lambda pod: self.is_available(daemon_set, pod))
        for pod in old:
            if self.is_available(daemon_set, pod):
                if missing >= allowed:
                    return
                missing += 1
            yield from self._pods.delete(daemon_set, pod)

    def _status(self, daemon_set: Object, places: list[str], hash_: str) -> tuple[Object, float | None]:
        pods = [pod for pod in self.cluster.controlled(daemon_set, PODS) if not is_deleting(pod)]
        placed = [pod for pod in pods if _place(pod) in places]
        min_ready = daemon_set["spec"].get("minReadySeconds", 0)
        available, again = split_available(placed, min_ready, self.cluster.wall())
        status: dict[str, Any] = {
            "currentNumberScheduled": len(placed),
            "desiredNumberScheduled": len(places),
            "numberMisscheduled": len(pods) - len(placed),
            "numberReady": sum(map(is_ready, placed)),
            "updatedNumberScheduled": sum(labels_of(pod).get(REVISION) == hash_ for pod in placed),
            "numberAvailable": len(available),
            "numberUnavailable": len(places) - len(available),
            "observedGeneration": daemon_set["metadata"].get("generation", 0),
        }
        return without_zeros(status, *list(status)[:4]), again


def _place(pod: Object) -> str:
    """Return the node that the pod is on or is meant for."""
    return str(pod["spec"].get("nodeName") or "".join(named_nodes(pod["spec"]) or ()))


def _pod(daemon_set: Object, place: str, hash_: str) -> Object:
    template = daemon_set["spec"]["template"]
    body = from_template(daemon_set, template, labels={REVISION: hash_})
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [place]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    affinity = dict(body["spec"].get("affinity") or {})
    affinity["nodeAffinity"] = {**(affinity.get("nodeAffinity") or {}), **required}
    tolerations = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
    body["spec"] |= {
        "affinity": affinity,
        "tolerations": [*(body["spec"].get("tolerations") or ()), *tolerations],
    }
    return body
