"""How a pod appears to run although nothing runs. Pure.

The pod's annotation `kubeshard.dev/pretend` decides what happens to it:

| value | behavior |
|---|---|
| none | it runs and becomes ready; with `restartPolicy: Never` or `OnFailure` it then succeeds |
| `run` | it runs and becomes ready, and never ends |
| `never-ready` | it runs but never becomes ready |
| `crash` | its containers are in CrashLoopBackOff |
| `no-image` | it stays Pending: ImagePullBackOff |
| `succeed`, `fail` | it terminates with exit code 0 or 1 |

Changing the annotation takes effect at once, as if the cause had been fixed; a terminated pod stays terminated.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from kubeshard_apiserver.objects import Object

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


def stages_of(pod: Object) -> tuple[Stage, ...]:
    """Return the stages that follow STARTING, in order."""
    said = (pod["metadata"].get("annotations") or {}).get(ANNOTATION, "")
    if said in _PRETENDED:
        return _PRETENDED[said]
    ends = pod["spec"].get("restartPolicy", "Always") in ("Never", "OnFailure")
    return (Stage.READY, Stage.SUCCEEDED) if ends else (Stage.READY,)


def status_of(pod: Object, stage: Stage, ip: str, host_ip: str, now: str) -> Object:
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
