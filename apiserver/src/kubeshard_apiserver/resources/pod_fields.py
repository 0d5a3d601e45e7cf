"""The downward API: references to fields and resources of pods.

Source: k8s.io/kubernetes `pkg/apis/core/pods`, `pkg/apis/core/validation`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kubeshard_apiserver.resources.pod_names import qualified_name, wrong
from kubeshard_apiserver.status import FieldError, invalid_value, required, unsupported

Given = Mapping[str, Any]
_SUBSCRIPTED = re.compile(r"(.+?)\['(.+)'\]")
_KNOWN = (
    "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
    "spec.restartPolicy", "spec.serviceAccountName", "spec.schedulerName", "status.phase", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
_RESOURCES = tuple(
    f"{of}.{name}" for of in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE_PAGES = ("requests.hugepages-", "limits.hugepages-")
_BYTES = ("1", *(f"1{p}" for p in "kMGTPE"), *(f"1{p}i" for p in "KMGTPE"))
_DIVISORS = {
    "cpu": (("1m", "1"), "only divisor's values 1m and 1 are supported with the cpu resource"),
    **{
        name: (_BYTES, f"only divisor's values {', '.join(_BYTES)} are supported with the {told} resource")
        for name, told in (("memory", "memory"), ("ephemeral-storage", "local ephemeral storage"))
    },
}


def field_ref_errors(path: str, ref: Given, supported: Sequence[str]) -> list[FieldError]:
    field = ref.get("fieldPath", "")
    if not ref.get("apiVersion"):
        return [required(f"{path}.apiVersion")]
    if not field:
        return [required(f"{path}.fieldPath")]
    problem = ""
    subscripted = _SUBSCRIPTED.fullmatch(field)
    if ref["apiVersion"] != "v1":
        problem = f"unsupported pod version: {ref['apiVersion']}"
    elif subscripted and subscripted[1] not in ("metadata.annotations", "metadata.labels"):
        problem = f"field label does not support subscript: {field}"
    elif not subscripted and field != "spec.host" and field not in _KNOWN:
        problem = f"field label not supported: {field}"
    if problem:
        return [invalid_value(f"{path}.fieldPath", field, f"error converting fieldPath: {problem}")]
    if subscripted:
        key = subscripted[2]
        return wrong(path, key.lower() if subscripted[1] == "metadata.annotations" else key, qualified_name)
    field = "spec.nodeName" if field == "spec.host" else field
    return [] if field in supported else [unsupported(f"{path}.fieldPath", field, supported)]


def resource_ref_errors(path: str, ref: Given, *, names_container: bool) -> list[FieldError]:
    """Validate a resource reference. With `names_container` it must name a container, because it is not inside one."""
    resource, divisor = ref.get("resource", ""), str(ref.get("divisor", "0"))
    errors = []
    if names_container and not ref.get("containerName"):
        errors.append(required(f"{path}.containerName"))
    elif not resource:
        errors.append(required(f"{path}.resource"))
    elif resource not in _RESOURCES and not resource.startswith(_HUGE_PAGES):
        errors.append(unsupported(f"{path}.resource", resource, _RESOURCES))
    rule = _DIVISORS.get(resource.partition(".")[2])
    if rule and divisor != "0" and divisor not in rule[0]:
        errors.append(invalid_value(f"{path}.divisor", resource, rule[1]))
    return errors
