"""Probes and lifecycle hooks of containers. Source: k8s.io/kubernetes `pkg/apis/core/validation`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard_apiserver.resources.pod_names import (
    header_name,
    not_negative,
    port_number,
    port_number_or_name,
    wrong,
)
from kubeshard_apiserver.status import FieldError, forbidden_field, invalid_value, required, unsupported

Given = Mapping[str, Any]
_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_SIGNALS_OF_WINDOWS = ("SIGKILL", "SIGTERM")


def probe_errors(path: str, container: Given, grace: int | None) -> list[FieldError]:
    """All probes of a container."""
    errors: list[FieldError] = []
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is None:
            continue
        at = f"{path}.{name}"
        errors += _handler(at, probe, _PROBE_HANDLERS, grace)
        for field in _COUNTS:
            errors += not_negative(f"{at}.{field}", probe.get(field))
        period = probe.get("terminationGracePeriodSeconds")
        where = f"{at}.terminationGracePeriodSeconds"
        if period is not None and period <= 0:
            errors.append(invalid_value(where, period, "must be greater than 0"))
        if name == "readinessProbe":
            if period is not None:
                errors.append(invalid_value(where, period, "must not be set for readinessProbes"))
        elif probe.get("successThreshold") != 1:
            errors.append(invalid_value(f"{at}.successThreshold", probe.get("successThreshold"), "must be 1"))
    return errors


def lifecycle_errors(path: str, lifecycle: Given, grace: int | None, os: Given | None) -> list[FieldError]:
    errors: list[FieldError] = []
    for hook in ("postStart", "preStop"):
        if (handler := lifecycle.get(hook)) is not None:
            errors += _handler(f"{path}.{hook}", handler, _HOOK_HANDLERS, grace)
    if signal := lifecycle.get("stopSignal"):
        at = f"{path}.stopSignal"
        if os is None:
            errors.append(forbidden_field(at, "may not be set for containers with empty `spec.os.name`"))
        elif os.get("name") == "windows" and signal not in _SIGNALS_OF_WINDOWS:
            errors.append(unsupported(at, signal, _SIGNALS_OF_WINDOWS))
    return errors


def _handler(path: str, handler: Given, kinds: tuple[str, ...], grace: int | None) -> list[FieldError]:
    given = [kind for kind in kinds if handler.get(kind) is not None]
    if not given:
        return [required(path, "must specify a handler type")]
    first, *more = given
    errors = _HANDLERS[first](f"{path}.{first}", handler[first], grace)
    return errors + [
        forbidden_field(f"{path}.{kind}", "may not specify more than 1 handler type") for kind in more
    ]


def _exec(path: str, action: Given, _grace: int | None) -> list[FieldError]:
    return [] if action.get("command") else [required(f"{path}.command")]


def _http_get(path: str, action: Given, _grace: int | None) -> list[FieldError]:
    errors = port_number_or_name(f"{path}.port", action.get("port", 0))
    if action.get("scheme") not in ("HTTP", "HTTPS"):
        errors.append(unsupported(f"{path}.scheme", action.get("scheme"), ("HTTP", "HTTPS")))
    for header in action.get("httpHeaders") or ():
        errors += wrong(f"{path}.httpHeaders", header.get("name", ""), header_name)
    return errors


def _tcp_socket(path: str, action: Given, _grace: int | None) -> list[FieldError]:
    return port_number_or_name(f"{path}.port", action.get("port", 0))


def _grpc(path: str, action: Given, _grace: int | None) -> list[FieldError]:
    return port_number(f"{path}.port", action.get("port", 0))


def _sleep(path: str, action: Given, grace: int | None) -> list[FieldError]:
    seconds = action.get("seconds", 0)
    if grace is None or 0 <= seconds <= grace:
        return []
    problem = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
    return [invalid_value(path, seconds, problem)]


_HANDLERS = {"exec": _exec, "httpGet": _http_get, "tcpSocket": _tcp_socket, "grpc": _grpc, "sleep": _sleep}
