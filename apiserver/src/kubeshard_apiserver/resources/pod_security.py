"""Security contexts of pods and containers, on a server that allows privileged ones (`--allow-privileged`), as
nearly all do. Source: k8s.io/kubernetes `pkg/apis/core/validation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard_apiserver.resources.pod_names import LARGEST_INT32, in_range
from kubeshard_apiserver.status import (
    FieldError,
    invalid_value,
    required,
    unsupported,
)

Given = Mapping[str, Any]
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_GROUP_CHANGES = ("Always", "OnRootMismatch")
_GROUPS_POLICIES = ("Merge", "Strict")
_PROC_MOUNTS = ("Default", "Unmasked")


def pod_security_errors(path: str, security: Given) -> list[FieldError]:
    errors: list[FieldError] = []
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        errors += _id(f"{path}.{field}", security.get(field))
    for index, group in enumerate(security.get("supplementalGroups") or ()):
        errors += _id(f"{path}.supplementalGroups[{index}]", group)
    for index, setting in enumerate(security.get("sysctls") or ()):
        if not setting.get("name"):
            errors.append(required(f"{path}.sysctls[{index}].name"))
    for field, known in (
        ("fsGroupChangePolicy", _GROUP_CHANGES),
        ("supplementalGroupsPolicy", _GROUPS_POLICIES),
    ):
        if security.get(field) not in (None, *known):
            errors.append(unsupported(f"{path}.{field}", security[field], known))
    return errors + _profiles(path, security)


def container_security_errors(path: str, security: Given) -> list[FieldError]:
    errors: list[FieldError] = []
    privileged = bool(security.get("privileged"))
    for field in ("runAsUser", "runAsGroup"):
        errors += _id(f"{path}.{field}", security.get(field))
    if (mount := security.get("procMount")) not in (None, *_PROC_MOUNTS):
        errors.append(unsupported(f"{path}.procMount", mount, _PROC_MOUNTS))
    errors += _profiles(path, security)
    if security.get("allowPrivilegeEscalation") is False and privileged:
        problem = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        errors.append(invalid_value(path, security, problem))
    return errors


def _profiles(path: str, security: Given) -> list[FieldError]:
    errors: list[FieldError] = []
    for field, told in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        profile, at = security.get(field), f"{path}.{field}"
        if profile is None:
            continue
        kind, name = profile.get("type", ""), profile.get("localhostProfile")
        if not kind:
            errors.append(required(f"{at}.type", f"type is required when {field} is set"))
        elif kind not in _PROFILES:
            errors.append(unsupported(f"{at}.type", kind, _PROFILES))
        if kind == "Localhost" and not name:
            problem = f"must be set when {told} type is Localhost"
            errors.append(required(f"{at}.localhostProfile", problem))
        if kind != "Localhost" and name is not None:
            problem = f"can only be set when {told} type is Localhost"
            errors.append(invalid_value(f"{at}.localhostProfile", name, problem))
    return errors


def _id(path: str, number: int | None) -> list[FieldError]:
    return [] if number is None else in_range(path, number, 0, LARGEST_INT32)
