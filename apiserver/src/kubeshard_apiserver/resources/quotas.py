"""ResourceQuotas and LimitRanges. Source: k8s.io/kubernetes `pkg/apis/core/validation`, `pkg/apis/core/v1`.

The admission plugin ResourceQuota is not implemented, and LimitRanger is in `limit_ranges`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources.pod_names import qualified_name, wrong
from kubeshard_apiserver.resources.quantity_rules import (
    QUOTA,
    container_resource_name_errors,
    is_overcommitted,
    quantity_errors,
    quota_name_errors,
    resource_name_errors,
)
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.schema.quantities import amount_of
from kubeshard_apiserver.status import (
    FieldError,
    duplicate,
    forbidden_field,
    immutable,
    invalid_value,
    required,
)

Given = Mapping[str, Any]
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
        for limit in obj["spec"].get("limits") or ():
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


def _amounts(path: str, amounts: Given) -> list[FieldError]:
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


def _scope_selector(path: str, spec: Given, selector: Given) -> list[FieldError]:
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


def _limit(path: str, limit: Given, kind: str) -> list[FieldError]:
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


def _bounds(path: str, name: str, given: Given) -> list[FieldError]:
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
