"""The effect of a Binding: assigns a pod to a node. Source: k8s.io/kubernetes `pkg/registry/core/pod/storage`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard.core.kinds import GroupResource, Kind
from kubeshard_apiserver.model import Model, Target
from kubeshard_apiserver.objects import Object, is_deleting, with_metadata, with_status_condition
from kubeshard_apiserver.resources.strategy import Strategy
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.status import conflict, internal


class Bodies(Typed):
    """The kind of the body of a subresource, which is not itself a resource."""

    def __init__(self, kind: Kind) -> None:
        Strategy.__init__(self, kind, {})


BINDINGS = Bodies(Kind("", "v1", "Binding", "bindings"))


def bind(model: Model, target: Target, body: Object, *, dry_run: bool = False) -> None:
    """Assigns the pod to the node, without admission. No manager owns the fields it writes. Raises Conflict if the pod
    already has a node, is gated or is being deleted.
    """
    node, given = body.get("target") or {}, body["metadata"]
    if node.get("kind") not in (None, "", "Node"):
        known = '"Node", "<empty>"'
        raise internal(f'target.kind: Unsupported value: "{node["kind"]}": supported values: {known}')
    if not node.get("name"):
        raise internal("target.name: Required value")
    pod = model.live(target)
    if problem := _unbindable(pod):
        raise conflict(GroupResource("", "pods/binding"), target.name, f"pod {target.name} {problem}")
    status = {name: value for name, value in pod["status"].items() if name != "nominatedNodeName"}
    condition = {"type": "PodScheduled", "status": "True"}
    bound = {
        **pod,
        "spec": {**pod["spec"], "nodeName": node["name"]},
        "status": with_pod_condition(status, condition, model.now()),
    }
    for field in ("annotations", "labels"):
        if given.get(field):
            bound = with_metadata(bound, **{field: {**(pod["metadata"].get(field) or {}), **given[field]}})
    if not dry_run:
        model.store.put(target.group_resource, target.key, bound)


def with_pod_condition(status: Object, condition: Mapping[str, Any], now: str) -> Object:
    times = {"lastProbeTime": None, "lastTransitionTime": None}
    return with_status_condition(status, {**times, **condition}, now)


def _unbindable(pod: Object) -> str:
    if is_deleting(pod):
        return "is being deleted, cannot be assigned to a host"
    if node := pod["spec"].get("nodeName"):
        return f'is already assigned to node "{node}"'
    return "has non-empty .spec.schedulingGates" if pod["spec"].get("schedulingGates") else ""
