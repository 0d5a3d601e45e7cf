"""Validation of resource names and amounts.

Source: k8s.io/kubernetes `pkg/apis/core/validation`, `.../core/helper`.
"""

from __future__ import annotations

from typing import Any

from kubeshard_apiserver.resources.pod_names import qualified_name, wrong
from kubeshard_apiserver.schema.quantities import amount_of
from kubeshard_apiserver.status import FieldError, invalid_value

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
