"""A scheduler: binds pods to nodes.

It respects node selectors and waits for claims to be bound; among the nodes that fit it picks the one with the fewest
pods. Not implemented: resources, taints, affinity (except that of DaemonSet pods), topology, priorities, preemption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.controllers.cluster import SCHEDULER, Account, ClusterView
from kubeshard_apiserver.controllers.conditions import with_condition
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.events import Recorder
from kubeshard_apiserver.controllers.ownership import Node
from kubeshard_apiserver.controllers.pods import CLAIMS, NODES, PODS, has_ended
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object, is_deleting, labels_of
from kubeshard_apiserver.steps import Steps

_NAME = "default-scheduler"


class Scheduler(Controller[Key]):
    watched = (PODS, NODES, CLAIMS)

    def __init__(self, cluster: ClusterView) -> None:
        super().__init__(cluster)
        self._account = Account(cluster, SCHEDULER, manager="kube-scheduler")
        self._recorder = Recorder(cluster, self._account, _NAME)
        self._pods_on: Counter[str] = Counter()
        self._unplaced: dict[Key, None] = {}

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[Key]:
        if resource == PODS:
            self._count(event)
            return (event.key,) if event.new and not event.new["spec"].get("nodeName") else ()
        return tuple(self._unplaced)

    def reconcile(self, key: Key) -> Steps[float | None]:
        node = Node(PODS, key)
        pod = self.cluster.get(node)
        self._unplaced.pop(key, None)
        if pod is None or not _is_ours(pod):
            return None
        place, problem = self._place(pod)
        if place:
            yield from self._account.bind(pod, PODS, place)
            message = f"Successfully assigned {key.namespace}/{key.name} to {place}"
            yield from self._recorder.announce(pod, "Scheduled", message, "Binding")
            return None
        self._unplaced[key] = None
        status = pod.get("status") or {}
        conditions = with_condition(
            status.get("conditions") or [],
            "PodScheduled",
            "False",
            "Unschedulable",
            problem,
            self.cluster.now(),
        )
        conditions = [{"lastProbeTime": None, **each} for each in conditions]
        if conditions != status.get("conditions"):
            status = {**status, "phase": "Pending", "conditions": conditions}
            yield from self._account.set_status(node, status)
            yield from self._recorder.announce(
                pod, "FailedScheduling", problem, "Scheduling", type_="Warning"
            )
        return None

    def _count(self, event: Event) -> None:
        for obj, change in ((event.old, -1), (event.new, 1)):
            if obj and (name := obj["spec"].get("nodeName")):
                self._pods_on[name] += change

    def _place(self, pod: Object) -> tuple[str, str]:
        """Return the name of a node and an empty string, or an empty string and why no node fits."""
        namespace, nodes = pod["metadata"]["namespace"], self.cluster.server.store.objects(NODES)
        for volume in pod["spec"].get("volumes") or ():
            if not (name := (volume.get("persistentVolumeClaim") or {}).get("claimName")):
                continue
            claim = self.cluster.get(Node(CLAIMS, Key(namespace, name)))
            if claim is None:
                return "", f'0/{len(nodes)} nodes are available: persistentvolumeclaim "{name}" not found.'
            if (claim.get("status") or {}).get("phase") != "Bound":
                text = "pod has unbound immediate PersistentVolumeClaims. not found"
                return "", f"0/{len(nodes)} nodes are available: {text}"
        fitting = [key.name for key, node in sorted(nodes.items()) if _fits(pod, key.name, node)]
        if fitting:
            return min(fitting, key=lambda name: self._pods_on[name]), ""
        if not nodes:
            return "", "no nodes available to schedule pods"
        text = "didn't match Pod's node affinity/selector"
        return "", f"0/{len(nodes)} nodes are available: {len(nodes)} node(s) {text}."


def _is_ours(pod: Object) -> bool:
    spec = pod["spec"]
    if spec.get("nodeName") or spec.get("schedulingGates") or is_deleting(pod) or has_ended(pod):
        return False
    return bool(spec.get("schedulerName", _NAME) == _NAME)


def _fits(pod: Object, name: str, node: Object) -> bool:
    spec = pod["spec"]
    named = named_nodes(spec)
    if named is not None:
        return name in named
    if (node.get("spec") or {}).get("unschedulable") or is_deleting(node):
        return False
    return bool((spec.get("nodeSelector") or {}).items() <= labels_of(node).items())


def named_nodes(spec: Object) -> list[str] | None:
    """Return the nodes that a DaemonSet's pod is meant for."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    fields = [
        field for term in required.get("nodeSelectorTerms") or () for field in term.get("matchFields") or ()
    ]
    names = [field for field in fields if field["key"] == "metadata.name" and field["operator"] == "In"]
    return [str(value) for field in names for value in field["values"]] if names else None
