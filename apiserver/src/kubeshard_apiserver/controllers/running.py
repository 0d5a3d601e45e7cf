"""The Events that a node reports when the containers of a pod start, fail and stop. Pure.

Source: pkg/kubelet/kuberuntime, pkg/kubelet/images.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kubeshard_apiserver.objects import Object

_FIELDS = (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses"))


class Report(NamedTuple):
    """An Event to report. `part` is the path of the part of the pod that it is about."""

    reason: str
    message: str
    part: str
    type: str = "Normal"


def reports(pod: Object, status: Object) -> Iterator[Report]:
    """Yield the Events to report when this becomes the pod's status."""
    for field, statuses in _FIELDS:
        former = {each["name"]: each for each in (pod.get("status") or {}).get(statuses) or ()}
        for now in status.get(statuses) or ():
            yield from _of_container(
                pod, f"spec.{field}{{{now['name']}}}", former.get(now["name"]) or {}, now
            )


def ended_reports(pod: Object) -> Iterator[Report]:
    """Yield the Events to report when the pod is stopped."""
    for field, statuses in _FIELDS:
        for each in (pod.get("status") or {}).get(statuses) or ():
            if "running" in (each.get("state") or {}):
                message = f"Stopping container {each['name']}"
                yield Report("Killing", message, f"spec.{field}{{{each['name']}}}")


def _of_container(pod: Object, part: str, former: Object, now: Object) -> Iterator[Report]:
    image, waits = now["image"], _waiting(now)
    if now.get("containerID") and not former.get("containerID"):
        yield Report("Pulled", f'Container image "{image}" already present on machine', part)
        yield Report("Created", "Container created", part)
        yield Report("Started", "Container started", part)
    if waits == _waiting(former):
        return
    if waits == "ImagePullBackOff":
        yield Report("Pulling", f'Pulling image "{image}"', part)
        yield Report("Failed", f'Failed to pull image "{image}": pretended', part, "Warning")
        yield Report("Failed", "Error: ErrImagePull", part, "Warning")
        yield Report("BackOff", f'Back-off pulling image "{image}"', part)
        yield Report("Failed", "Error: ImagePullBackOff", part, "Warning")
    elif waits == "CrashLoopBackOff":
        meta = pod["metadata"]
        name = f"{meta['name']}_{meta['namespace']}({meta['uid']})"
        message = f"Back-off restarting failed container {now['name']} in pod {name}"
        yield Report("BackOff", message, part, "Warning")


def _waiting(status: Object) -> str:
    return str(((status.get("state") or {}).get("waiting") or {}).get("reason", ""))
