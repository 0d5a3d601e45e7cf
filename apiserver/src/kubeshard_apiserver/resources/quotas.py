"""ResourceQuotas and LimitRanges, and the effects of LimitRanges on new pods and claims: default requests and limits
for containers, and bounds.

Not covered: limits of type Pod, and the admission plugin ResourceQuota. Source: k8s.io/kubernetes
`pkg/apis/core/validation`, `pkg/apis/core/v1`, `plugin/pkg/admission/limitranger`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.objects import JsonObject, Object, own_items, with_metadata
from kubeshard_apiserver.resources.pod_resources import (
    QUOTA,
    container_resource_name_errors,
    is_overcommitted,
    quantity_errors,
    quota_name_errors,
    resource_name_errors,
)
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.schema.name_formats import qualified_name, wrong
from kubeshard_apiserver.schema.scalars import amount_of
from kubeshard_apiserver.status import (
    FieldError,
    duplicate,
    forbidden,
    forbidden_field,
    immutable,
    invalid_value,
    required,
)

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


def _limits(obj: Object, ranges: Mapping[Key, Object], kind: str) -> Iterator[JsonObject]:
    namespace = obj["metadata"].get("namespace", "")
    for key, found in ranges.items():
        if key.namespace == namespace:
            yield from (limit for limit in found["spec"].get("limits") or () if limit.get("type") == kind)


def _filled(container: Object, limit: JsonObject, whose: str) -> Iterator[str]:
    resources = dict(container.get("resources") or {})
    for field, default, what in (("requests", "defaultRequest", "request"), ("limits", "default", "limit")):
        given = resources.get(field) or {}
        missing = {name: value for name, value in (limit.get(default) or {}).items() if name not in given}
        if missing:
            resources[field] = {**given, **missing}
            yield f"{', '.join(sorted(missing))} {what} for {whose}"
    container["resources"] = resources


def _problems(limit: JsonObject, resources: JsonObject) -> Iterator[str]:
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


def _too_little(told: str, name: str, least: str, requests: JsonObject, limits: JsonObject) -> Iterator[str]:
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


_PODS = frozenset(("pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"))
_CLAIMS = frozenset(("persistentvolumeclaims", "requests.storage"))
_SCOPES = {
    "Terminating": _PODS,
    "NotTerminating": _PODS,
    "BestEffort": frozenset(("pods",)),
    "NotBestEffort": _PODS,
    "PriorityClass": _PODS,
    "VolumeAttributesClass": _CLAIMS,
    "CrossNamespacePodAffinity": _PODS,
}
"""The resources that each scope can count."""
_EXISTING = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity")
_CONFLICTS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_TYPES = ("Pod", "Container", "PersistentVolumeClaim")


class Quotas(Typed):
    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        hard = spec.get("hard") or {}
        errors = _amounts("spec.hard", hard)
        scopes = spec.get("scopes") or []
        for scope in scopes:
            if scope not in _SCOPES:
                errors.append(invalid_value("spec.scopes", scopes, "unsupported scope"))
            if not _applies(scope, hard):
                problem = "unsupported scope applied to resource"
                errors.append(invalid_value("spec.scopes", scopes, problem))
        if any(pair <= {*scopes} for pair in _CONFLICTS):
            errors.append(invalid_value("spec.scopes", scopes, "conflicting scopes"))
        if (selector := spec.get("scopeSelector")) is not None:
            errors += _scope_selector("spec.scopeSelector.matchExpressions", spec, selector)
        return errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        if subresource == "status":
            status = new["status"]
            return [
                error
                for field in ("hard", "used")
                for error in _amounts(f"status.{field}", status.get(field) or {})
            ]
        scopes = new["spec"].get("scopes") or []
        changed = {*scopes} != {*(old["spec"].get("scopes") or [])}
        return self.validate(new) + ([immutable("spec.scopes", scopes or None)] if changed else [])


class LimitRanges(Typed):
    def set_defaults(self, obj: Object) -> None:
        for limit in own_items(obj["spec"], "limits"):
            if limit.get("type") != "Container":
                continue
            whole = {**(limit.get("max") or {}), **(limit.get("default") or {})}
            requests = {**(limit.get("min") or {}), **whole, **(limit.get("defaultRequest") or {})}
            for field, amounts in (("default", whole), ("defaultRequest", requests)):
                if amounts:
                    limit[field] = amounts

    def validate(self, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        limits = obj["spec"].get("limits") or ()
        kinds = [limit.get("type", "") for limit in limits]
        for index, (limit, kind) in enumerate(zip(limits, kinds, strict=True)):
            at = f"spec.limits[{index}]"
            found = wrong(f"{at}.type", kind, qualified_name)
            if not found and "/" not in kind and kind not in _TYPES:
                problem = "must be a standard limit type or fully qualified"
                found = [invalid_value(f"{at}.type", kind, problem)]
            errors += found
            if kind in kinds[:index]:
                errors.append(duplicate(f"{at}.type", kind))
            errors += _limit(at, limit, kind)
        return errors


def _amounts(path: str, amounts: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    for name, amount in amounts.items():
        errors += quota_name_errors(f"{path}[{name}]", name) + quantity_errors(
            f"{path}[{name}]", name, amount
        )
    return errors


def _applies(scope: str, hard: Iterable[str]) -> bool:
    """Report whether the scope covers the resources. An unknown scope covers everything."""
    counted = _SCOPES.get(scope, QUOTA)
    return all(name in counted for name in hard if name in QUOTA)


def _scope_selector(path: str, spec: JsonObject, selector: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    expressions = selector.get("matchExpressions") or ()
    for given in expressions:
        scope, operator, values = (
            given.get("scopeName", ""),
            given.get("operator", ""),
            given.get("values") or [],
        )
        if scope not in _SCOPES:
            errors.append(invalid_value(f"{path}.scopeName", scope, "unsupported scope"))
        if not _applies(scope, spec.get("hard") or {}):
            shown = {
                "MatchExpressions": [
                    {
                        "ScopeName": one.get("scopeName", ""),
                        "Operator": one.get("operator", ""),
                        "Values": one.get("values"),
                    }
                    for one in expressions
                ]
            }
            errors.append(invalid_value(path, shown, "unsupported scope applied to resource"))
        if scope in _EXISTING and operator != "Exists":
            listed = (
                "ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
                "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            problem = f"must be 'Exists' when scope is any of {listed}"
            errors.append(invalid_value(f"{path}.operator", operator, problem))
        if operator in ("In", "NotIn"):
            problem = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            errors += [] if values else [required(f"{path}.values", problem)]
        elif operator in ("Exists", "DoesNotExist"):
            problem = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            errors += [invalid_value(f"{path}.values", values, problem)] if values else []
        else:
            errors.append(invalid_value(f"{path}.operator", operator, "not a valid selector operator"))
    if any(pair <= {given.get("scopeName") for given in expressions} for pair in _CONFLICTS):
        errors.append(invalid_value(path, spec.get("scopes"), "conflicting scopes"))
    return errors


def _limit(path: str, limit: JsonObject, kind: str) -> list[FieldError]:
    errors: list[FieldError] = []
    name_errors = container_resource_name_errors if kind in ("Pod", "Container") else resource_name_errors
    fields = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
    if kind == "Pod":
        for field in ("default", "defaultRequest"):
            fields.remove(field)
            if limit.get(field):
                errors.append(forbidden_field(f"{path}.{field}", "may not be specified when `type` is 'Pod'"))
    given = {field: limit.get(field) or {} for field in fields}
    for field, amounts in given.items():
        for name in amounts:
            errors += name_errors(f"{path}.{field}[{name}]", name)
    if kind == "PersistentVolumeClaim" and not ("storage" in given["min"] or "storage" in given["max"]):
        problem = "either minimum or maximum storage value is required, but neither was provided"
        errors.append(required(f"{path}.limits", problem))
    for name in sorted({name for amounts in given.values() for name in amounts}):
        errors += _bounds(
            path, name, {field: amounts[name] for field, amounts in given.items() if name in amounts}
        )
    return errors


_ORDERED = (
    ("min", "max", "min", "min value {} is greater than max value {}"),
    ("min", "defaultRequest", "defaultRequest", "min value {} is greater than default request value {}"),
    ("defaultRequest", "max", "defaultRequest", "default request value {} is greater than max value {}"),
    (
        "defaultRequest",
        "default",
        "defaultRequest",
        "default request value {} is greater than default limit value {}",
    ),
    ("min", "default", "default", "min value {} is greater than default value {}"),
    ("default", "max", "default", "default value {} is greater than max value {}"),
)
"""Pairs in which the first value must not exceed the second, the field that the error is about, and the message."""
_SHOWN = {
    "min value {} is greater than default value {}": "min",
    "default value {} is greater than max value {}": "max",
}
"""Messages that show a value other than that of their field."""


def _bounds(path: str, name: str, given: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    amounts = {field: amount_of(str(quantity)) for field, quantity in given.items()}
    for low, high, where, problem in _ORDERED:
        if low in given and high in given and amounts[low] > amounts[high]:
            shown = given[_SHOWN.get(problem, where)]
            told = problem.format(given[low], given[high])
            errors.append(invalid_value(f"{path}.{where}[{name}]", shown, told))
    if "maxLimitRequestRatio" in given:
        at, ratio = f"{path}.maxLimitRequestRatio[{name}]", given["maxLimitRequestRatio"]
        if amounts["maxLimitRequestRatio"] < 1:
            errors.append(invalid_value(at, ratio, f"ratio {ratio} is less than 1"))
        if "min" in given and "max" in given and amounts["min"]:
            most = amounts["max"] / amounts["min"]
            if amounts["maxLimitRequestRatio"] > most:
                problem = f"ratio {ratio} is greater than max/min = {float(most):f}"
                errors.append(invalid_value(at, ratio, problem))
    if not is_overcommitted(name) and "default" in given and "defaultRequest" in given:
        whole, request = given["default"], given["defaultRequest"]
        if amounts["default"] != amounts["defaultRequest"]:
            problem = f"default value {whole} must equal to defaultRequest value {request} in {name}"
            errors.append(invalid_value(f"{path}.defaultRequest[{name}]", request, problem))
    return errors
