"""Names and amounts of resources: requests and limits of containers, and the QoS class derived from them.

Source: k8s.io/kubernetes `pkg/apis/core/validation`, `.../core/helper`, `pkg/apis/core/v1/helper/qos`.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from kubeshard_apiserver.objects import JsonObject
from kubeshard_apiserver.schema.name_formats import not_found_value, qualified_name, wrong
from kubeshard_apiserver.schema.scalars import amount_of
from kubeshard_apiserver.status import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    required,
    unsupported,
)

_BY_HOST = ("cpu", "memory", "ephemeral-storage")
COUNTED = frozenset(
    (
        "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
        "persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
    )
)  # fmt: skip
"""Resources that only come in whole numbers."""
_SHARES = {f"{of}.{name}" for of in ("requests", "limits") for name in _BY_HOST}
QUOTA = COUNTED | _SHARES | {*_BY_HOST, "requests.storage"}
STANDARD = QUOTA | {"storage"}
"""Names that need no domain. Huge pages need none either."""
_HUGE_PAGES = "hugepages-"


def quantity_errors(path: str, name: str, quantity: Any) -> list[FieldError]:
    amount = amount_of(str(quantity))
    errors: list[FieldError] = []
    if amount < 0:
        errors.append(invalid_value(path, quantity, "must be greater than or equal to 0"))
    if name in COUNTED and amount != int(amount):
        errors.append(invalid_value(path, quantity, "must be an integer"))
    return errors


def positive_errors(path: str, quantity: Any) -> list[FieldError]:
    return [] if amount_of(quantity) > 0 else [invalid_value(path, quantity, "must be positive")]


def resource_name_errors(path: str, name: str) -> list[FieldError]:
    if errors := wrong(path, name, qualified_name):
        return errors
    if "/" in name or name in STANDARD or name.startswith(_HUGE_PAGES):
        return []
    return [invalid_value(path, name, "must be a standard resource type or fully qualified")]


def container_resource_name_errors(path: str, name: str) -> list[FieldError]:
    errors = resource_name_errors(path, name)
    if "/" in name or name in _BY_HOST or name.startswith(_HUGE_PAGES):
        return errors
    return [*errors, invalid_value(path, name, "must be a standard resource for containers")]


def quota_name_errors(path: str, name: str) -> list[FieldError]:
    errors = resource_name_errors(path, name)
    if "/" in name or name in QUOTA or name.startswith(("requests.hugepages-", _HUGE_PAGES)):
        return errors
    return [*errors, invalid_value(path, name, "must be a standard resource for quota")]


def is_overcommitted(name: str) -> bool:
    """Report whether the resource may be overcommitted."""
    native = "/" not in name or "kubernetes.io/" in name
    return native and not name.startswith(_HUGE_PAGES)


_CONTAINER = ("cpu", "memory", "ephemeral-storage")
_COMPUTE = ("cpu", "memory")
_STANDARD = frozenset(
    (
        *_CONTAINER,
        *(f"{of}.{name}" for of in ("requests", "limits") for name in _CONTAINER),
        "storage", "requests.storage", "pods", "resourcequotas", "services", "replicationcontrollers", "secrets",
        "configmaps", "persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
    )
)  # fmt: skip


def resource_errors(
    path: str, resources: JsonObject | None, claims: Iterable[str], *, of_pod: bool = False
) -> list[FieldError]:
    """Validate the resources of a container, or of a whole pod, which allows fewer kinds. `claims` are the names of
    the pod's claims.
    """
    if not resources:
        return []
    errors: list[FieldError] = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, quantity in limits.items():
        errors += _entry(f"{path}.limits[{name}]", name, quantity, of_pod)
    for name, quantity in requests.items():
        errors += _entry(f"{path}.requests[{name}]", name, quantity, of_pod)
        errors += _against_limit(path, name, quantity, limits)
    named = {*limits, *requests}
    if any(name.startswith(_HUGE_PAGES) for name in named) and not named & {*_COMPUTE}:
        errors.append(forbidden_field(path, "HugePages require cpu or memory"))
    return errors + _claim_errors(f"{path}.claims", resources.get("claims") or (), sorted(claims))


def positive_quantity(path: str, quantity: Any) -> list[FieldError]:
    if amount_of(quantity) > 0:
        return []
    return [invalid_value(path, quantity, "must be greater than zero")]


def _not_negative_quantity(path: str, name: str, quantity: Any) -> list[FieldError]:
    value = amount_of(quantity)
    errors = []
    if value < 0:
        errors.append(invalid_value(path, quantity, "must be greater than or equal to 0"))
    if "/" in name and not _is_native(name) and value != int(value):
        errors.append(invalid_value(path, quantity, "must be an integer"))
    return errors


def quality_of_service(spec: JsonObject) -> str:
    """Return BestEffort, Burstable or Guaranteed."""
    if whole := spec.get("resources"):
        given = [whole]
    else:
        containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        given = [container.get("resources") or {} for container in containers]
    requests = _sums(resources.get("requests") or {} for resources in given)
    limits = _sums(resources.get("limits") or {} for resources in given)
    if not requests and not limits:
        return "BestEffort"
    limited = all(_sums([resources.get("limits") or {}]).keys() == {*_COMPUTE} for resources in given)
    return "Guaranteed" if limited and requests == limits else "Burstable"


def _entry(path: str, name: str, quantity: Any, of_pod: bool) -> list[FieldError]:
    return _name_errors(path, name, of_pod) + _not_negative_quantity(path, name, quantity)


def _name_errors(path: str, name: str, of_pod: bool) -> list[FieldError]:
    if errors := wrong(path, name, qualified_name):
        return errors
    huge = name.startswith(_HUGE_PAGES)
    if "/" not in name and name not in _STANDARD and not huge:
        errors = [invalid_value(path, name, "must be a standard resource type or fully qualified")]
    if of_pod:
        if not errors and name not in _COMPUTE and not huge:
            errors = [unsupported(path, name, ("cpu", "hugepages-*", "memory"))]
    elif "/" not in name:
        if name not in _CONTAINER and not huge:
            errors.append(invalid_value(path, name, "must be a standard resource for containers"))
    elif not _is_native(name) and name.startswith("requests."):
        errors.append(invalid_value(path, name, "doesn't follow extended resource name standard"))
    return errors


def _against_limit(path: str, name: str, quantity: Any, limits: JsonObject) -> list[FieldError]:
    overcommits = _is_native(name) and not name.startswith(_HUGE_PAGES)
    if name not in limits:
        problem = "Limit must be set for non overcommitable resources"
        return [] if overcommits else [required(f"{path}.limits", problem)]
    asked, limit = amount_of(quantity), amount_of(limits[name])
    if asked != limit and not overcommits:
        problem = f"must be equal to {name} limit of {limits[name]}"
    elif asked > limit:
        problem = f"must be less than or equal to {name} limit of {limits[name]}"
    else:
        return []
    return [invalid_value(f"{path}.requests", quantity, problem)]


def _claim_errors(path: str, claims: Iterable[JsonObject], known: list[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, claim in enumerate(claims):
        at, name = f"{path}[{index}]", claim.get("name", "")
        key = (name, claim.get("request") or "")
        if not name:
            errors.append(required(at))
            continue
        if key in seen:
            errors.append(duplicate(at, "/".join(filter(None, key))))
        seen.add(key)
        if name not in known:
            listed = f": {', '.join(known)}" if known else " which is empty"
            errors.append(
                not_found_value(at, name, f"must be one of the names in pod.spec.resourceClaims{listed}")
            )
    return errors


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _sums(lists: Iterable[JsonObject]) -> dict[str, Decimal]:
    sums: dict[str, Decimal] = {}
    for resources in lists:
        for name in _COMPUTE:
            if name in resources and (value := amount_of(resources[name])) > 0:
                sums[name] = sums.get(name, Decimal(0)) + value
    return sums
