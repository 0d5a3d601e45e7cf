"""Security contexts of pods and containers, on a server that allows privileged ones (`--allow-privileged`), as
nearly all do. Source: k8s.io/kubernetes `pkg/apis/core/validation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard_apiserver.resources.facts import fact_errors
from kubeshard_apiserver.status import (
    FieldError,
    invalid_value,
    required,
    unsupported,
)

Given = Mapping[str, Any]
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")


def pod_security_errors(path: str, security: Given) -> list[FieldError]:
    return fact_errors("core.v1.PodSecurityContext", path, security) + _profiles(path, security)


def container_security_errors(path: str, security: Given) -> list[FieldError]:
    errors = fact_errors("core.v1.SecurityContext", path, security) + _profiles(path, security)
    if security.get("allowPrivilegeEscalation") is False and security.get("privileged"):
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
