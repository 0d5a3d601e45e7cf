"""The effects of LimitRanges on new pods and claims: default requests and limits for containers, and bounds.

Not covered: limits of type Pod. Source: k8s.io/kubernetes `plugin/pkg/admission/limitranger`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.objects import Object, with_metadata
from kubeshard_apiserver.schema.quantities import amount_of
from kubeshard_apiserver.status import forbidden

Given = Mapping[str, Any]
LIMIT_RANGES = GroupResource("", "limitranges")
_TOLD = "kubernetes.io/limit-ranger"
_CONTAINERS = (("containers", "container"), ("initContainers", "init container"))


def fill_limits(pod: Object, ranges: Mapping[Key, Object]) -> None:
    """Fill in default requests and limits in place. An annotation lists what was added."""
    told: list[str] = []
    for limit in _limits(pod, ranges, "Container"):
        for field, kind in _CONTAINERS:
            for container in pod["spec"].get(field) or ():
                told += _filled(container, limit, f"{kind} {container.get('name', '')}")
    if told:
        annotations = pod["metadata"].get("annotations") or {}
        text = f"LimitRanger plugin set: {'; '.join(told)}"
        pod |= with_metadata(pod, annotations={**annotations, _TOLD: text})


def check_pod_limits(pod: Object, ranges: Mapping[Key, Object]) -> None:
    """Raises Forbidden if a container violates a limit."""
    for limit in _limits(pod, ranges, "Container"):
        problems: list[str] = []
        for field, _ in _CONTAINERS:
            for container in pod["spec"].get(field) or ():
                problems += _problems(limit, container.get("resources") or {})
        _refuse(GroupResource("", "pods"), pod, problems)


def check_claim_limits(claim: Object, ranges: Mapping[Key, Object]) -> None:
    """Raises Forbidden if the claim violates a limit."""
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    for limit in _limits(claim, ranges, "PersistentVolumeClaim"):
        problems: list[str] = []
        for name, least in (limit.get("min") or {}).items():
            problems += _too_little(
                f"minimum {name} usage per {limit['type']} is {least}", name, least, requests, {}
            )
        for name, most in (limit.get("max") or {}).items():
            told, request = f"maximum {name} usage per {limit['type']} is {most}", requests.get(name)
            if request is None:
                problems.append(f"{told}.  No request is specified")
            elif amount_of(request) > amount_of(most):
                problems.append(f"{told}, but request is {request}")
        _refuse(GroupResource("", "persistentvolumeclaims"), claim, problems)


def _limits(obj: Object, ranges: Mapping[Key, Object], kind: str) -> Iterator[Given]:
    namespace = obj["metadata"].get("namespace", "")
    for key, found in ranges.items():
        if key.namespace == namespace:
            yield from (limit for limit in found["spec"].get("limits") or () if limit.get("type") == kind)


def _filled(container: Object, limit: Given, whose: str) -> Iterator[str]:
    resources = dict(container.get("resources") or {})
    for field, default, what in (("requests", "defaultRequest", "request"), ("limits", "default", "limit")):
        given = resources.get(field) or {}
        missing = {name: value for name, value in (limit.get(default) or {}).items() if name not in given}
        if missing:
            resources[field] = {**given, **missing}
            yield f"{', '.join(sorted(missing))} {what} for {whose}"
    container["resources"] = resources


def _problems(limit: Given, resources: Given) -> Iterator[str]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    kind = limit["type"]
    for name, least in sorted((limit.get("min") or {}).items()):
        yield from _too_little(f"minimum {name} usage per {kind} is {least}", name, least, requests, limits)
    for name, most in sorted((limit.get("max") or {}).items()):
        told = f"maximum {name} usage per {kind} is {most}"
        if name not in limits:
            yield f"{told}.  No limit is specified"
        elif amount_of(limits[name]) > amount_of(most):
            yield f"{told}, but limit is {limits[name]}"
        elif name in requests and amount_of(requests[name]) > amount_of(most):
            yield f"{told}, but request is {requests[name]}"
    for name, ratio in sorted((limit.get("maxLimitRequestRatio") or {}).items()):
        told = f"{name} max limit to request ratio per {kind} is {ratio}, but"
        request, most = amount_of(requests.get(name, "0")), amount_of(limits.get(name, "0"))
        if not request:
            yield f"{told} no request is specified or request is 0"
        elif not most:
            yield f"{told} no limit is specified or limit is 0"
        elif most / request > amount_of(ratio):
            yield f"{told} provided ratio is {float(most / request):f}"


def _too_little(told: str, name: str, least: str, requests: Given, limits: Given) -> Iterator[str]:
    if name not in requests:
        yield f"{told}.  No request is specified"
    elif amount_of(requests[name]) < amount_of(least):
        yield f"{told}, but request is {requests[name]}"
    elif name in limits and amount_of(limits[name]) < amount_of(least):
        yield f"{told}, but limit is {limits[name]}"


def _refuse(resource: GroupResource, obj: Object, problems: list[str]) -> None:
    problems = list(dict.fromkeys(problems))
    if problems:
        told = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise forbidden(resource, obj["metadata"].get("name", ""), told)
