"""Probes and lifecycle hooks of containers. Source: k8s.io/kubernetes `pkg/apis/core/validation`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubeshard_apiserver.resources.facts import fact_errors
from kubeshard_apiserver.resources.pod_names import header_name, wrong
from kubeshard_apiserver.status import FieldError, forbidden_field, invalid_value, required, unsupported

Given = Mapping[str, Any]
_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_SIGNALS_OF_WINDOWS = ("SIGKILL", "SIGTERM")


def probe_errors(path: str, container: Given, grace: int | None) -> list[FieldError]:
    """Validate all probes of a container."""
    errors: list[FieldError] = []
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is None:
            continue
        at = f"{path}.{name}"
        errors += _handler(at, probe, _PROBE_HANDLERS, grace)
        errors += fact_errors("core.v1.Probe", at, probe)
        if name == "readinessProbe":
            if (period := probe.get("terminationGracePeriodSeconds")) is not None:
                where = f"{at}.terminationGracePeriodSeconds"
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


def _http_get(path: str, action: Given, _grace: int | None) -> list[FieldError]:
    errors = fact_errors("core.v1.HTTPGetAction", path, action)
    for header in action.get("httpHeaders") or ():
        errors += wrong(f"{path}.httpHeaders", header.get("name", ""), header_name)
    return errors


def _sleep(path: str, action: Given, grace: int | None) -> list[FieldError]:
    seconds = action.get("seconds", 0)
    if grace is None or 0 <= seconds <= grace:
        return []
    problem = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
    return [invalid_value(path, seconds, problem)]


def _of_facts(type_: str) -> Callable[[str, Given, int | None], list[FieldError]]:
    return lambda path, action, _grace: fact_errors(type_, path, action)


_HANDLERS = {
    "exec": _of_facts("core.v1.ExecAction"),
    "httpGet": _http_get,
    "tcpSocket": _of_facts("core.v1.TCPSocketAction"),
    "grpc": _of_facts("core.v1.GRPCAction"),
    "sleep": _sleep,
}
