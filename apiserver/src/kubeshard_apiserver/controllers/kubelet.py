"""A simulated kubelet: pods bound to a node appear to run there, and deleted pods stop at once.

Guaranteed: a bound pod is Running at once and Ready after a delay, unless its annotation `kubeshard.dev/pretend` says
otherwise:

| value | behavior |
|---|---|
| none | it runs and becomes ready; with `restartPolicy: Never` or `OnFailure` it then succeeds |
| `run` | it runs and becomes ready, and never ends |
| `never-ready` | it runs but never becomes ready |
| `crash` | its containers are in CrashLoopBackOff |
| `no-image` | it stays Pending: ImagePullBackOff |
| `succeed`, `fail` | it terminates with exit code 0 or 1 |

Changing the annotation takes effect at once, as if the cause had been fixed; a terminated pod stays terminated. When
containers start, fail and stop, the node reports the Events of a real one. A gracefully deleted pod ends immediately,
and is removed once its status says so: it is not ready, and Succeeded if it ran until it was stopped, or else Failed.
If the cluster has no Node, one named `pretended` is created, and Nodes without a reported status become Ready. Not
implemented: node Leases, probes, volumes, and the duration of a graceful termination. Source of the Events:
pkg/kubelet/kuberuntime, pkg/kubelet/images; of the end: `canBeDeleted` in pkg/kubelet/status.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.controllers.cluster import Account, ClusterView, node_user
from kubeshard_apiserver.controllers.conditions import condition_of, with_condition
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.events import Recorder
from kubeshard_apiserver.controllers.ownership import Node
from kubeshard_apiserver.controllers.pods import NODES, PODS, has_ended, is_ready
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object, is_deleting
from kubeshard_apiserver.resources.namespaces import NAMESPACES
from kubeshard_apiserver.schema.catalog import RELEASE
from kubeshard_apiserver.steps import Steps

ANNOTATION = "kubeshard.dev/pretend"


class Stage(Enum):
    STARTING = "runs, not ready"
    READY = "runs, ready"
    CRASHING = "CrashLoopBackOff"
    PULLING = "ImagePullBackOff"
    SUCCEEDED = "ended with 0"
    FAILED = "ended with 1"


_PRETENDED = {
    "run": (Stage.READY,),
    "never-ready": (Stage.STARTING,),
    "crash": (Stage.CRASHING,),
    "no-image": (Stage.PULLING,),
    "succeed": (Stage.READY, Stage.SUCCEEDED),
    "fail": (Stage.READY, Stage.FAILED),
}

_ENDLESS = ((Stage.STARTING,), (Stage.READY,))
"""What runs until it is stopped, and then ends in order."""


def _stages_of(pod: Object) -> tuple[Stage, ...]:
    """Return the stages that follow STARTING, in order."""
    said = (pod["metadata"].get("annotations") or {}).get(ANNOTATION, "")
    if said in _PRETENDED:
        return _PRETENDED[said]
    ends = pod["spec"].get("restartPolicy", "Always") in ("Never", "OnFailure")
    return (Stage.READY, Stage.SUCCEEDED) if ends else (Stage.READY,)


def _status_of(pod: Object, stage: Stage, ip: str, host_ip: str, now: str) -> Object:
    """Return the pod's status in this stage. Timestamps of unchanged parts are kept."""
    former = pod.get("status") or {}
    ended = stage in (Stage.SUCCEEDED, Stage.FAILED)
    phase = {Stage.PULLING: "Pending", Stage.SUCCEEDED: "Succeeded", Stage.FAILED: "Failed"}.get(
        stage, "Running"
    )
    status = {
        **former,
        "phase": phase,
        "startTime": former.get("startTime", now),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": _conditions(pod, stage, now),
        "containerStatuses": _containers(pod, "containers", "containerStatuses", stage, now),
    }
    if pod["spec"].get("initContainers"):
        status["initContainerStatuses"] = _containers(
            pod, "initContainers", "initContainerStatuses", Stage.SUCCEEDED, now
        )
    if ended:
        status.pop("reason", None)
    return status


def _conditions(pod: Object, stage: Stage, now: str) -> list[Object]:
    ready = stage is Stage.READY
    reason = {Stage.SUCCEEDED: "PodCompleted", Stage.FAILED: "PodFailed"}.get(stage, "ContainersNotReady")
    names = " ".join(str(container["name"]) for container in pod["spec"]["containers"])
    unready: dict[str, Any] = {"status": "False", "reason": reason}
    if reason == "ContainersNotReady":
        unready["message"] = f"containers with unready status: [{names}]"
    completed = {"reason": "PodCompleted"} if stage is Stage.SUCCEEDED else {}
    ended = stage in (Stage.SUCCEEDED, Stage.FAILED)
    wanted: Sequence[tuple[str, dict[str, Any]]] = (
        ("PodReadyToStartContainers", {"status": "False" if ended else "True"}),
        ("Initialized", {"status": "True", **completed}),
        ("Ready", {"status": "True"} if ready else unready),
        ("ContainersReady", {"status": "True"} if ready else unready),
        ("PodScheduled", {"status": "True"}),
    )
    former = {condition["type"]: condition for condition in (pod.get("status") or {}).get("conditions") or ()}
    conditions = []
    for type_, said in wanted:
        before = former.pop(type_, {})
        same = before.get("status") == said["status"]
        since = before.get("lastTransitionTime") if same else now
        conditions.append({"type": type_, "lastProbeTime": None, "lastTransitionTime": since or now, **said})
    # Conditions set by others, such as readiness gates, are left alone.
    return [*conditions, *former.values()]


def _containers(pod: Object, field: str, statuses: str, stage: Stage, now: str) -> list[Object]:
    former = {each["name"]: each for each in (pod.get("status") or {}).get(statuses) or ()}
    return [
        _container(pod, container, former.get(container["name"], {}), stage, now)
        for container in pod["spec"].get(field) or ()
    ]


def _container(pod: Object, container: Object, former: Object, stage: Stage, now: str) -> Object:
    state = _state(former.get("state") or {}, stage, now)
    image = container.get("image", "")
    id_ = f"pretended://{pod['metadata']['uid']}-{container['name']}"
    pulled = stage is not Stage.PULLING
    return {
        "name": container["name"],
        "image": image,
        "imageID": f"pretended://{image}" if pulled else "",
        **({"containerID": id_} if pulled else {}),
        "ready": stage is Stage.READY or (stage is Stage.SUCCEEDED and container in _initial(pod)),
        "started": "running" in state,
        "restartCount": 1 if stage is Stage.CRASHING else former.get("restartCount", 0),
        "state": state,
        "lastState": {"terminated": _terminated(1, former, now)} if stage is Stage.CRASHING else {},
    }


def _initial(pod: Object) -> Sequence[Object]:
    return pod["spec"].get("initContainers") or ()


def _state(former: Object, stage: Stage, now: str) -> Object:
    match stage:
        case Stage.STARTING | Stage.READY:
            return former if "running" in former else {"running": {"startedAt": now}}
        case Stage.SUCCEEDED | Stage.FAILED:
            if "terminated" in former:
                return former
            return {"terminated": _terminated(int(stage is Stage.FAILED), {"state": former}, now)}
    reason = stage.value
    message = (
        "the annotation makes the container crash"
        if stage is Stage.CRASHING
        else "the annotation makes the image unavailable"
    )
    return {"waiting": {"reason": reason, "message": f"pretended: {message}"}}


def _terminated(exit_code: int, former: Object, now: str) -> Object:
    last = (former.get("lastState") or {}).get("terminated")
    if last:
        return dict(last)
    started = ((former.get("state") or {}).get("running") or {}).get("startedAt", now)
    return {
        "exitCode": exit_code,
        "reason": "Error" if exit_code else "Completed",
        "startedAt": started,
        "finishedAt": now,
    }


_FIELDS = (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses"))


class PodEvent(NamedTuple):
    """An Event to report. `part` is the path of the part of the pod that it is about."""

    reason: str
    message: str
    part: str
    type: str = "Normal"


def reports(pod: Object, status: Object) -> Iterator[PodEvent]:
    """Yield the Events to report when this becomes the pod's status."""
    for field, statuses in _FIELDS:
        former = {each["name"]: each for each in (pod.get("status") or {}).get(statuses) or ()}
        for now in status.get(statuses) or ():
            yield from _of_container(
                pod, f"spec.{field}{{{now['name']}}}", former.get(now["name"]) or {}, now
            )


def _ended_reports(pod: Object) -> Iterator[PodEvent]:
    """Yield the Events to report when the pod is stopped."""
    for field, statuses in _FIELDS:
        for each in (pod.get("status") or {}).get(statuses) or ():
            if "running" in (each.get("state") or {}):
                message = f"Stopping container {each['name']}"
                yield PodEvent("Killing", message, f"spec.{field}{{{each['name']}}}")


def _of_container(pod: Object, part: str, former: Object, now: Object) -> Iterator[PodEvent]:
    image, waits = now["image"], _waiting(now)
    if now.get("containerID") and not former.get("containerID"):
        yield PodEvent("Pulled", f'Container image "{image}" already present on machine', part)
        yield PodEvent("Created", "Container created", part)
        yield PodEvent("Started", "Container started", part)
    if waits == _waiting(former):
        return
    if waits == "ImagePullBackOff":
        yield PodEvent("Pulling", f'Pulling image "{image}"', part)
        yield PodEvent("Failed", f'Failed to pull image "{image}": pretended', part, "Warning")
        yield PodEvent("Failed", "Error: ErrImagePull", part, "Warning")
        yield PodEvent("BackOff", f'Back-off pulling image "{image}"', part)
        yield PodEvent("Failed", "Error: ImagePullBackOff", part, "Warning")
    elif waits == "CrashLoopBackOff":
        meta = pod["metadata"]
        name = f"{meta['name']}_{meta['namespace']}({meta['uid']})"
        message = f"Back-off restarting failed container {now['name']} in pod {name}"
        yield PodEvent("BackOff", message, part, "Warning")


def _waiting(status: Object) -> str:
    return str(((status.get("state") or {}).get("waiting") or {}).get("reason", ""))


PRETENDED = "pretended"
_HOST_IP = "10.0.0.1"
_NO_NODE = Node(NODES, Key("", ""))
_ROOM = {"cpu": "1k", "memory": "1Ti", "pods": "100k", "ephemeral-storage": "1Ti"}


class Kubelet(Controller[Node]):
    """Plays the kubelet of every node. Pods become ready after `ready_after` seconds; those that terminate do so after
    as many seconds again.
    """

    watched = (PODS, NODES, NAMESPACES)

    def __init__(self, cluster: ClusterView, ready_after: float) -> None:
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
        return (_NO_NODE,) if event.old is None else ()

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
                yield from self._end(key, pod)
            return None
        if not pod["spec"].get("nodeName"):
            return None
        if has_ended(pod):
            self._since.pop(pod["metadata"]["uid"], None)
            return None
        stage, again = self._stage(pod)
        status = _status_of(pod, stage, self._address(pod), _HOST_IP, self.cluster.now())
        yield from self._account.set_status(key, status)
        yield from self._tell(pod, reports(pod, status))
        return again

    def _end(self, key: Node, pod: Object) -> Steps[None]:
        yield from self._tell(pod, _ended_reports(pod))
        if pod["spec"].get("nodeName") and not has_ended(pod):
            stage = Stage.SUCCEEDED if _stages_of(pod) in _ENDLESS else Stage.FAILED
            status = _status_of(pod, stage, self._address(pod), _HOST_IP, self.cluster.now())
            yield from self._account.set_status(key, status)
        yield from self._account.delete(pod, PODS, grace=0)

    def _tell(self, pod: Object, told: Iterable[PodEvent]) -> Steps[None]:
        host = pod["spec"].get("nodeName", "")
        for report in told:
            yield from self._recorder.tell(
                pod, report.reason, report.message, type_=report.type, host=host, field_path=report.part
            )

    def _stage(self, pod: Object) -> tuple[Stage, float | None]:
        """Return the stage of the pod, and the seconds until the next stage."""
        now = self.cluster.server.clock.monotonic()
        uid, stages = pod["metadata"]["uid"], _stages_of(pod)
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
            now = self.cluster.now()
            ready = with_condition(
                conditions, "Ready", "True", "KubeletReady", "pretended", now, times=("lastHeartbeatTime",)
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
