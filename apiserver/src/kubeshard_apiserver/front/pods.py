"""Subresources of pods (binding, eviction, logs), and `proxy`, which services and nodes have, too.

Not covered, because they need a kubelet: logs of a running pod, exec, attach and port-forward. There is no network
behind this server, so a proxy answers with the errors that occur before a connection is made. Source: k8s.io/kubernetes
`pkg/registry/core/pod/storage`, `pkg/registry/core/*/rest`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from kubeshard.core.errors import ApiError, NotFound
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.objects import Key
from kubeshard_apiserver.front.handler import HandlerContext
from kubeshard_apiserver.model import Answer, Target, WriteOptions
from kubeshard_apiserver.objects import Object, is_deleting, labels_of, with_metadata
from kubeshard_apiserver.resources.priority_and_disruption import with_disruption_allowed
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.resources.value_rules import selects
from kubeshard_apiserver.status import bad_request, forbidden, internal, method_not_allowed, not_found
from kubeshard_apiserver.steps import Steps
from kubeshard_apiserver.verbs.binding import BINDINGS, Bodies, bind, with_pod_condition
from kubeshard_apiserver.verbs.deleting import DeleteOptions, check_preconditions

_EVICTION = Kind("policy", "v1", "Eviction", "evictions")
_NODES = GroupResource("", "nodes")
_BUDGETS = GroupResource("policy", "poddisruptionbudgets")
_NOT_STARTED_OR_ENDED = ("Pending", "Succeeded", "Failed")
_VIOLATED = "Cannot evict pod as it would violate the pod's disruption budget."
_BUSY_SECONDS = 10
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_MANAGER = "kube-apiserver"
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def binding(context: HandlerContext) -> Steps[Answer]:
    """Assigns a node to the pod. Raises Conflict if it has one, is gated or is being deleted."""
    target, options, body = yield from _received(context, BINDINGS.kind)
    if not target.subresource:
        target = Target(_pods(context), target.namespace, body["metadata"].get("name", ""))
    bind(context.server.model, replace(target, subresource=""), body, dry_run=options.dry_run)
    return Answer(201, _SUCCESS)


def eviction(context: HandlerContext) -> Steps[Answer]:
    """Deletes the pod if its PodDisruptionBudget allows it. Raises TooManyRequests (429) otherwise."""
    target, options, body = yield from _received(context, _EVICTION)
    server, asked = context.server, body.get("deleteOptions") or {}
    pod = server.live(target)
    preconditions = asked.get("preconditions") or {}
    doomed = DeleteOptions(
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        propagation=asked.get("propagationPolicy"),
        grace=asked.get("gracePeriodSeconds"),
        dry_run=options.dry_run or bool(asked.get("dryRun")),
        user=context.user,
        rights=context.gate.rights,
        asks=False,
    )
    check_preconditions(target, pod, doomed)
    if pod["status"].get("phase") not in _NOT_STARTED_OR_ENDED and not is_deleting(pod):
        yield from _spend(context, pod, dry_run=doomed.dry_run)
    if not doomed.dry_run:
        pod = server.live(target)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        status = with_pod_condition(pod["status"], condition, server.now())
        server.store.put(target.group_resource, target.key, {**pod, "status": status})
    yield from server.deletions.deleting(
        replace(target, subresource=""), replace(doomed, resource_version=None)
    )
    return Answer(201, _SUCCESS)


def _received(context: HandlerContext, kind: Kind) -> Steps[tuple[Target, WriteOptions, Object]]:
    """Decodes the body and admits it: admission sees the body rather than the pod."""
    target, request = context.target, context.request
    if request.method != "POST":
        raise method_not_allowed()
    options = context.write_options("CreateOptions")
    asked = Target(_resource(kind), target.namespace, target.name, target.subresource)
    body, _ = context.server.writes.received(asked, request.decode(kind.kind, kind.api_version), options)
    name = body["metadata"].get("name", "")
    about = target if target.subresource else replace(target, name=name)
    context.server.writes.check_accepts_new(about, about.name)
    if about.name != name:
        raise bad_request(f"name in URL does not match name in {kind.kind} object")
    body = with_metadata(body, namespace=target.namespace)
    body = yield from context.server.admission.asking(about, body, options, asked.resource.strategy)
    return target, options, body


def _spend(context: HandlerContext, pod: Object, *, dry_run: bool) -> Steps[None]:
    """Takes one disruption from the budget of the pod, if it has one."""
    server, meta = context.server, pod["metadata"]
    budgets = [
        budget
        for key, budget in server.store.objects(_BUDGETS).items()
        if key.namespace == meta["namespace"] and selects(budget["spec"].get("selector"), labels_of(pod))
    ]
    if not budgets:
        return
    if len(budgets) > 1:
        problem = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise internal(problem)
    status, spec = budgets[0].get("status") or {}, budgets[0]["spec"]
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if not _is_ready(pod) and (
        spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow" or healthy >= desired > 0
    ):
        return
    _check_budget(budgets[0], status, healthy, desired)
    if dry_run:
        return
    resource = server.registry.find(_BUDGETS.group, "v1", _BUDGETS.resource)
    if resource is None:
        raise internal("poddisruptionbudgets are not served")
    target = Target(resource, meta["namespace"], budgets[0]["metadata"]["name"], "status")

    def change(live: Object) -> Object:
        left, now = live["status"], server.now()
        disrupted = {**(left.get("disruptedPods") or {}), meta["name"]: now}
        allowed = left["disruptionsAllowed"] - 1
        spent = {**left, "disruptionsAllowed": allowed, "disruptedPods": disrupted}
        if not allowed:
            spent = with_disruption_allowed(spent, "False", "InsufficientPods", "", now)
        return {**live, "status": spent}

    yield from server.writes.updating(target, change, WriteOptions(manager=_MANAGER))


def _check_budget(budget: Object, status: Mapping[str, Any], healthy: int, desired: int) -> None:
    meta = budget["metadata"]
    if status.get("observedGeneration", 0) < meta.get("generation", 0):
        problem = f"The disruption budget {meta['name']} is still being processed by the server."
        raise _refused(problem, seconds=_BUSY_SECONDS)
    if status.get("disruptionsAllowed", 0) < 0:
        problem = "pdb disruptions allowed is negative"
        raise forbidden(GroupResource("policy", "poddisruptionbudget"), meta["name"], problem)
    if status.get("disruptionsAllowed", 0) > 0:
        return
    name, condition = meta["name"], _disallowing(status.get("conditions") or ())
    told = condition.get("message", "")
    closed = f"The disruption budget {name} does not allow evicting pods currently"
    if told and condition.get("reason") == "SyncFailed":
        problem = f"{closed} because it failed sync: {told}"
    elif healthy <= desired:
        problem = f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    else:
        problem = f"{closed} ({condition['reason']}): {told}" if told else closed
    raise _refused(problem)


def _disallowing(conditions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    for condition in conditions:
        if condition.get("type") == "DisruptionAllowed" and condition.get("status") == "False":
            return condition
    return {}


def _refused(problem: str, *, seconds: int = 0) -> ApiError:
    details: dict[str, Any] = {"causes": [{"reason": "DisruptionBudget", "message": problem}]}
    if seconds:
        details["retryAfterSeconds"] = seconds
    return ApiError(_VIOLATED, code=429, reason="TooManyRequests", details=details)


def _is_ready(pod: Object) -> bool:
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in pod["status"].get("conditions") or ()
    )


def logs(context: HandlerContext) -> Steps[Answer]:
    """Returns nothing, because there is no agent to provide logs: an empty text where a container seems to run. Raises
    Invalid (400) if the container does not exist or is not specified, and NotFound if the node does not exist.
    """
    if context.request.method != "GET":
        raise method_not_allowed()
    pod, container = context.server.live(context.target), context.request.query.get("container", "")
    name, spec = pod["metadata"]["name"], pod["spec"]
    fields = ("initContainers", "containers", "ephemeralContainers")
    names = [one["name"] for field in fields for one in spec.get(field) or ()]
    if container and container not in names:
        raise bad_request(f"container {container} is not valid for pod {name}")
    default = (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
    if not container and len(spec["containers"]) > 1 and default not in names:
        raise bad_request(
            f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
        )
    yield from ()
    return Answer(200 if _has_agent(context, pod) else 204, {})


def attached(context: HandlerContext) -> Steps[Answer]:
    """Rejects exec, attach and port-forward, which need the agent on the node. Raises Invalid (400), NotFound, and
    ApiError (500) where a container seems to run.
    """
    if context.request.method not in ("GET", "POST"):
        raise method_not_allowed()
    pod = context.server.live(context.target)
    yield from ()
    if _has_agent(context, pod):
        raise internal("error dialing backend: this server's nodes are simulated, and run no containers")
    raise bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")


def _has_agent(context: HandlerContext, pod: Object) -> bool:
    """Whether the agent of the pod's node would be asked on a cluster. Raises NotFound if there is no such node."""
    node = pod["spec"].get("nodeName")
    if not node:
        return False
    found = context.server.store.get(_NODES, Key("", node))
    if found is None:
        raise not_found(GroupResource("", "pods"), node)
    return bool(found["status"].get("addresses"))


@cache
def _resource(kind: Kind) -> Resource:
    return Resource(Bodies(kind), kind.kind.lower())


def _pods(context: HandlerContext) -> Resource:
    resource = context.server.registry.find("", "v1", "pods")
    if resource is None:
        raise internal("pods are not served")
    return resource


_SCHEMES = ("", "http", "https")


_NO_ENDPOINTS = 'no endpoints available for service "{}"'


def proxied(context: HandlerContext) -> Steps[Answer]:
    """Always fails. Raises NotFound, Invalid (400) or ApiError (500, 503)."""
    target = context.target
    named = _named(target.name)
    if named is None:
        raise bad_request(f'invalid {target.resource.singular} request "{target.name}"')
    name, port = named
    try:
        live = context.server.live(replace(target, name=name))
    except NotFound:
        if target.resource.kind.kind == "Service":
            raise _unavailable(_NO_ENDPOINTS.format(name)) from None
        raise
    yield from ()
    match target.resource.kind.kind:
        case "Service":
            raise _of_service(live, name, port)
        case "Node" if not live["status"].get("addresses"):
            raise internal("no preferred addresses found; known addresses: []")
        case "Pod" if not live["status"].get("podIP"):
            raise bad_request("address not allowed")
    raise _unavailable("there is no network behind this server")


def _named(text: str) -> tuple[str, str] | None:
    """Parses `name`, `name:port` or `scheme:name:port` into name and port."""
    match text.split(":"):
        case [name]:
            return name, ""
        case [name, port]:
            return name, port
        case [scheme, name, port] if scheme in _SCHEMES:
            return name, port
    return None


def _of_service(service: Object, name: str, port: str) -> ApiError:
    ports = service["spec"].get("ports") or ()
    if port.isdecimal() and int(port) not in (one["port"] for one in ports):
        return _unavailable(f'no service port {port} found for service "{name}"')
    return _unavailable(_NO_ENDPOINTS.format(name))


def _unavailable(message: str) -> ApiError:
    return ApiError(message, code=503, reason="ServiceUnavailable")
