"""A simulated kubelet: pods bound to a node appear to run there, and deleted pods stop at once.

Guaranteed: a bound pod is Running at once and Ready after a delay, unless its annotation says otherwise (see
`pretending`). A gracefully deleted pod is removed immediately. If the cluster has no Node, one named `pretended` is
created, and Nodes without a reported status become Ready. Not implemented: node Leases, probes, volumes, and the
duration of a graceful termination.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.controllers.cluster import Account, Cluster, node_user
from kubeshard_apiserver.controllers.conditions import condition_of, with_condition
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.ownership import Node
from kubeshard_apiserver.controllers.pods import NODES, PODS, has_ended, is_ready
from kubeshard_apiserver.controllers.pretending import Stage, stages_of, status_of
from kubeshard_apiserver.controllers.recording import Recorder
from kubeshard_apiserver.controllers.running import Report, ended_reports, reports
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object, is_deleting
from kubeshard_apiserver.resources.namespaces import NAMESPACES
from kubeshard_apiserver.schema.catalog import RELEASE
from kubeshard_apiserver.steps import Steps

PRETENDED = "pretended"
_HOST_IP = "10.0.0.1"
_NO_NODE = Node(NODES, Key("", ""))
_ROOM = {"cpu": "1000", "memory": "1Ti", "pods": "100000", "ephemeral-storage": "1Ti"}


class Kubelet(Controller[Node]):
    """Plays the kubelet of every node. Pods become ready after `ready_after` seconds; those that terminate do so after
    as many seconds again.
    """

    def __init__(self, cluster: Cluster, ready_after: float) -> None:
        super().__init__(cluster)
        self._ready_after = ready_after
        self._account = Account(cluster, node_user(PRETENDED), manager="kubelet")
        self._recorder = Recorder(cluster, self._account, "kubelet")
        # When each pod was first seen on a node, by uid. The timestamps in objects are too coarse.
        self._since: dict[str, float] = {}
        self._addresses = 0

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[Node]:
        if resource == PODS:
            self._note_address(event.new)
            return (Node(resource, event.key),)
        if resource == NODES:
            return (Node(resource, event.key) if event.new else _NO_NODE,)
        # Every cluster has namespaces from the start, so this triggers one check for a Node at startup.
        return (_NO_NODE,) if resource == NAMESPACES and event.old is None else ()

    def reconcile(self, key: Node) -> Steps[float | None]:
        if key.resource == NODES:
            yield from self._keep_nodes(key)
            return None
        pod = self.cluster.get(key)
        if pod is None:
            return None
        if is_deleting(pod):
            self._since.pop(pod["metadata"]["uid"], None)
            if pod["metadata"].get("deletionGracePeriodSeconds"):
                yield from self._tell(pod, ended_reports(pod))
                yield from self._account.delete(pod, PODS, grace=0)
            return None
        if not pod["spec"].get("nodeName"):
            return None
        if has_ended(pod):
            self._since.pop(pod["metadata"]["uid"], None)
            return None
        stage, again = self._stage(pod)
        status = status_of(pod, stage, self._address(pod), _HOST_IP, self.cluster.now())
        yield from self._account.set_status(key, status)
        yield from self._tell(pod, reports(pod, status))
        return again

    def _tell(self, pod: Object, told: Iterable[Report]) -> Steps[None]:
        host = pod["spec"].get("nodeName", "")
        for report in told:
            yield from self._recorder.tell(
                pod, report.reason, report.message, type_=report.type, host=host, field_path=report.part
            )

    def _stage(self, pod: Object) -> tuple[Stage, float | None]:
        """Return the stage of the pod, and the seconds until the next stage."""
        now = self.cluster.server.clock.monotonic()
        uid, stages = pod["metadata"]["uid"], stages_of(pod)
        if uid not in self._since:
            # A pod that is already ready was running before this process started.
            self._since[uid] = now - self._ready_after if is_ready(pod) else now
        if stages[0] is not Stage.READY:
            return stages[0], None
        elapsed = now - self._since[uid]
        if elapsed < self._ready_after:
            return Stage.STARTING, self._ready_after - elapsed
        if len(stages) == 1:
            return Stage.READY, None
        if not is_ready(pod):
            return Stage.READY, self._ready_after
        left = 2 * self._ready_after - elapsed
        return (Stage.READY, left) if left > 0 else (stages[1], None)

    def _address(self, pod: Object) -> str:
        known = (pod.get("status") or {}).get("podIP")
        if known:
            return str(known)
        if pod["spec"].get("hostNetwork"):
            return _HOST_IP
        self._addresses += 1
        high, low = divmod(self._addresses, 254)
        return f"10.{244 + high // 256 % 8}.{high % 256}.{low + 1}"

    def _note_address(self, pod: Object | None) -> None:
        """Avoid assigning addresses that were assigned before this process started."""
        parts = str(((pod or {}).get("status") or {}).get("podIP") or "").split(".")
        if len(parts) == 4 and all(part.isdecimal() for part in parts) and 244 <= int(parts[1]) < 252:
            number = ((int(parts[1]) - 244) * 256 + int(parts[2])) * 254 + int(parts[3]) - 1
            self._addresses = max(self._addresses, number)

    def _keep_nodes(self, key: Node) -> Steps[None]:
        if not self.cluster.server.store.objects(NODES):
            labels = {"kubernetes.io/hostname": PRETENDED, "kubernetes.io/os": "linux"}
            body: dict[str, Any] = {"metadata": {"name": PRETENDED, "labels": labels}, "spec": {}}
            yield from self._account.create(NODES, body)
        node = self.cluster.get(key)
        if node is None or is_deleting(node):
            return
        status = node.get("status") or {}
        conditions = status.get("conditions") or []
        if condition_of(conditions, "Ready") is None:
            ready = with_condition(
                conditions, "Ready", "True", "KubeletReady", "pretended", self.cluster.now()
            )
            yield from self._account.set_status(
                key, _node_status(key.key.name, {**status, "conditions": ready})
            )


def _node_status(name: str, status: Object) -> Object:
    """Return the node's status, keeping a capacity that someone else has set."""
    said = {key: value for key, value in status.items() if value and key != "nodeInfo"}
    return {
        "capacity": _ROOM,
        "allocatable": _ROOM,
        "addresses": [
            {"type": "InternalIP", "address": _HOST_IP},
            {"type": "Hostname", "address": name},
        ],
        "nodeInfo": {
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
            "kernelVersion": "pretended",
            "osImage": "pretended",
            "containerRuntimeVersion": "pretended://1",
            "kubeletVersion": RELEASE,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
        **said,
    }
