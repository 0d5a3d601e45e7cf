"""Security contexts of pods and containers, as on a server that allows privileged containers (`--allow-privileged`),
which nearly all do. Source: k8s.io/kubernetes `pkg/apis/core/validation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard_apiserver.resources.facts import fact_errors
from kubeshard_apiserver.status import FieldError, invalid_value, required

Given = Mapping[str, Any]
_PROFILES = (
    ("seccompProfile", "SeccompProfile", "seccomp"),
    ("appArmorProfile", "AppArmorProfile", "AppArmor"),
)


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
    for field, type_, told in _PROFILES:
        profile, at = security.get(field), f"{path}.{field}"
        if profile is None:
            continue
        kind, name = profile.get("type", ""), profile.get("localhostProfile")
        errors += fact_errors(f"core.v1.{type_}", at, profile)
        if kind == "Localhost" and not name:
            problem = f"must be set when {told} type is Localhost"
            errors.append(required(f"{at}.localhostProfile", problem))
        if kind != "Localhost" and name is not None:
            problem = f"can only be set when {told} type is Localhost"
            errors.append(invalid_value(f"{at}.localhostProfile", name, problem))
    return errors
