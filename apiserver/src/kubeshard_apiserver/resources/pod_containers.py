"""Validation of the containers of a pod, with their probes, lifecycle hooks and security contexts.

Security contexts are those of a server that allows privileged containers (`--allow-privileged`), as nearly all do.
Source: k8s.io/kubernetes `pkg/apis/core/validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kubeshard_apiserver.objects import JsonObject
from kubeshard_apiserver.resources.field_rules import field_rule_errors, list_errors
from kubeshard_apiserver.resources.pod_resources import resource_errors
from kubeshard_apiserver.resources.pod_volumes import (
    device_errors,
    field_ref_errors,
    mount_errors,
    resource_ref_errors,
)
from kubeshard_apiserver.schema import name_formats as names
from kubeshard_apiserver.schema.name_formats import header_name, wrong
from kubeshard_apiserver.status import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    required,
    unsupported,
)

_PROFILES = (
    ("seccompProfile", "SeccompProfile", "seccomp"),
    ("appArmorProfile", "AppArmorProfile", "AppArmor"),
)


def pod_security_errors(path: str, security: JsonObject) -> list[FieldError]:
    return field_rule_errors("core.v1.PodSecurityContext", path, security) + _profiles(path, security)


def _container_security_errors(path: str, security: JsonObject) -> list[FieldError]:
    errors = field_rule_errors("core.v1.SecurityContext", path, security) + _profiles(path, security)
    if security.get("allowPrivilegeEscalation") is False and security.get("privileged"):
        problem = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        errors.append(invalid_value(path, security, problem))
    return errors


def _profiles(path: str, security: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    for field, type_, told in _PROFILES:
        profile, at = security.get(field), f"{path}.{field}"
        if profile is None:
            continue
        kind, name = profile.get("type", ""), profile.get("localhostProfile")
        errors += field_rule_errors(f"core.v1.{type_}", at, profile)
        if kind == "Localhost" and not name:
            problem = f"must be set when {told} type is Localhost"
            errors.append(required(f"{at}.localhostProfile", problem))
        if kind != "Localhost" and name is not None:
            problem = f"can only be set when {told} type is Localhost"
            errors.append(invalid_value(f"{at}.localhostProfile", name, problem))
    return errors


_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_SIGNALS_OF_WINDOWS = ("SIGKILL", "SIGTERM")


def _probe_errors(path: str, container: JsonObject, grace: int | None) -> list[FieldError]:
    """Validate all probes of a container."""
    errors: list[FieldError] = []
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is None:
            continue
        at = f"{path}.{name}"
        errors += _handler(at, probe, _PROBE_HANDLERS, grace)
        errors += field_rule_errors("core.v1.Probe", at, probe)
        if name == "readinessProbe":
            if (period := probe.get("terminationGracePeriodSeconds")) is not None:
                where = f"{at}.terminationGracePeriodSeconds"
                errors.append(invalid_value(where, period, "must not be set for readinessProbes"))
        elif probe.get("successThreshold") != 1:
            errors.append(invalid_value(f"{at}.successThreshold", probe.get("successThreshold"), "must be 1"))
    return errors


def _lifecycle_errors(
    path: str, lifecycle: JsonObject, grace: int | None, os: JsonObject | None
) -> list[FieldError]:
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


def _handler(path: str, handler: JsonObject, kinds: tuple[str, ...], grace: int | None) -> list[FieldError]:
    given = [kind for kind in kinds if handler.get(kind) is not None]
    if not given:
        return [required(path, "must specify a handler type")]
    first, *more = given
    errors = _HANDLERS[first](f"{path}.{first}", handler[first], grace)
    return errors + [
        forbidden_field(f"{path}.{kind}", "may not specify more than 1 handler type") for kind in more
    ]


def _http_get(path: str, action: JsonObject, _grace: int | None) -> list[FieldError]:
    errors = field_rule_errors("core.v1.HTTPGetAction", path, action)
    for header in action.get("httpHeaders") or ():
        errors += wrong(f"{path}.httpHeaders", header.get("name", ""), header_name)
    return errors


def _sleep(path: str, action: JsonObject, grace: int | None) -> list[FieldError]:
    seconds = action.get("seconds", 0)
    if grace is None or 0 <= seconds <= grace:
        return []
    problem = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
    return [invalid_value(path, seconds, problem)]


def _of_facts(type_: str) -> Callable[[str, JsonObject, int | None], list[FieldError]]:
    return lambda path, action, _grace: field_rule_errors(type_, path, action)


_HANDLERS = {
    "exec": _of_facts("core.v1.ExecAction"),
    "httpGet": _http_get,
    "tcpSocket": _of_facts("core.v1.TCPSocketAction"),
    "grpc": _of_facts("core.v1.GRPCAction"),
    "sleep": _sleep,
}


_RESIZE_POLICIES = ("NotRequired", "RestartContainer")
_RESIZED = ("cpu", "memory")
_ENV_FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
_ENV_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_NOT_OF_INIT = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
_NOT_OF_EPHEMERAL = (
    "ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy",
    "restartPolicy", "restartPolicyRules",
)  # fmt: skip


@dataclass(frozen=True)
class PodContext:
    """What the validation of a container needs to know about its pod."""

    volumes: JsonObject
    claims: frozenset[str]
    grace: int | None
    restart_policy: str
    os: JsonObject | None


def container_list_errors(path: str, containers: Sequence[JsonObject], pod: PodContext) -> list[FieldError]:
    if not containers:
        return [required(path)]
    errors: list[FieldError] = []
    taken: set[str] = set()
    for index, container in enumerate(containers):
        at, name = f"{path}[{index}]", container.get("name", "")
        errors += _common(at, container, pod)
        if name in taken:
            errors.append(duplicate(f"{at}.name", name))
        taken.add(name)
        errors += _lifecycle_and_probes(at, container, pod)
        errors += _restart_errors(at, container)
    return errors + _host_port_conflicts(path, containers)


def init_container_errors(
    path: str, containers: Sequence[JsonObject], regular: Iterable[JsonObject], pod: PodContext
) -> list[FieldError]:
    errors: list[FieldError] = []
    taken = {container.get("name", "") for container in regular}
    for index, container in enumerate(containers):
        at, name = f"{path}[{index}]", container.get("name", "")
        errors += _common(at, container, pod)
        errors += _restart_errors(at, container)
        if name in taken:
            errors.append(duplicate(f"{at}.name", name))
        elif name:
            taken.add(name)
        errors += _host_port_conflicts(path, [container])
        if container.get("restartPolicy") == "Always":
            errors += _lifecycle_and_probes(at, container, pod)
            continue
        problem = "may not be set for init containers without restartPolicy=Always"
        errors += [
            forbidden_field(f"{at}.{field}", problem)
            for field in _NOT_OF_INIT
            if container.get(field) is not None
        ]
    return errors


def ephemeral_container_errors(
    path: str, containers: Sequence[JsonObject], others: Iterable[JsonObject], pod: PodContext
) -> list[FieldError]:
    errors: list[FieldError] = []
    targets = {container.get("name", "") for container in others}
    taken = set(targets)
    for index, container in enumerate(containers):
        at, name = f"{path}[{index}]", container.get("name", "")
        errors += _common(at, container, pod) + image_errors(at, container)
        if name in taken:
            errors.append(duplicate(f"{at}.name", name))
        taken.add(name)
        target = container.get("targetContainerName")
        if target and target not in targets:
            errors.append(names.not_found_value(f"{at}.targetContainerName", target))
        problem = "cannot be set for an Ephemeral Container"
        errors += [
            forbidden_field(f"{at}.{field}", problem) for field in _NOT_OF_EPHEMERAL if container.get(field)
        ]
    return errors


def image_errors(path: str, container: JsonObject) -> list[FieldError]:
    """Validate the image. These rules do not apply to templates."""
    image = container.get("image", "")
    if image == image.strip():
        return []
    return [invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace")]


def _host_port_conflicts(path: str, containers: Sequence[JsonObject]) -> list[FieldError]:
    errors: list[FieldError] = []
    taken: set[str] = set()
    for index, container in enumerate(containers):
        for position, port in enumerate(container.get("ports") or ()):
            if host_port := port.get("hostPort"):
                used = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{host_port}"
                if used in taken:
                    errors.append(duplicate(f"{path}[{index}].ports[{position}].hostPort", used))
                taken.add(used)
    return errors


def _common(path: str, container: JsonObject, pod: PodContext) -> list[FieldError]:
    errors = field_rule_errors("core.v1.Container", path, container)
    mounts, devices = container.get("volumeMounts") or (), container.get("volumeDevices") or ()
    security = container.get("securityContext") or {}
    errors += _port_errors(f"{path}.ports", container.get("ports") or ())
    errors += _env_errors(f"{path}.env", container.get("env") or ())
    errors += _env_from_errors(f"{path}.envFrom", container.get("envFrom") or ())
    privileged = bool(security.get("privileged"))
    errors += mount_errors(f"{path}.volumeMounts", mounts, devices, pod.volumes, privileged=privileged)
    errors += device_errors(f"{path}.volumeDevices", devices, mounts, pod.volumes)
    errors += field_rule_errors("core.v1.Container#pulling", path, container)
    errors += resource_errors(f"{path}.resources", container.get("resources"), pod.claims)
    errors += _resize_errors(f"{path}.resizePolicy", container.get("resizePolicy") or (), pod)
    return errors + _container_security_errors(f"{path}.securityContext", security)


def _lifecycle_and_probes(path: str, container: JsonObject, pod: PodContext) -> list[FieldError]:
    lifecycle = container.get("lifecycle") or {}
    errors = _lifecycle_errors(f"{path}.lifecycle", lifecycle, pod.grace, pod.os)
    return errors + _probe_errors(path, container, pod.grace)


def _port_errors(path: str, ports: Sequence[JsonObject]) -> list[FieldError]:
    errors: list[FieldError] = []
    taken: set[str] = set()
    for index, port in enumerate(ports):
        at, name = f"{path}[{index}]", port.get("name")
        if name:
            wrong = names.wrong(f"{at}.name", name, names.port_name)
            if not wrong and name in taken:
                wrong = [duplicate(f"{at}.name", name)]
            taken.add(name)
            errors += wrong
        errors += field_rule_errors("core.v1.ContainerPort", at, port)
    return errors


def _env_errors(path: str, variables: Sequence[JsonObject]) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, variable in enumerate(variables):
        at = f"{path}[{index}]"
        errors += field_rule_errors("core.v1.EnvVar", at, variable)
        if (source := variable.get("valueFrom")) is not None:
            errors += _env_source_errors(f"{at}.valueFrom", source, variable.get("value", ""))
    return errors


def _env_source_errors(path: str, source: JsonObject, value: str) -> list[FieldError]:
    errors: list[FieldError] = []
    given = [kind for kind in _ENV_SOURCES if source.get(kind) is not None]
    for kind in given:
        at, ref = f"{path}.{kind}", source[kind]
        if kind == "fieldRef":
            errors += field_ref_errors(at, ref, _ENV_FIELDS)
        elif kind == "resourceFieldRef":
            errors += resource_ref_errors(at, ref, names_container=False)
        elif kind == "fileKeyRef":
            errors += field_rule_errors("core.v1.FileKeySelector", at, ref)
        else:
            errors += field_rule_errors("core.v1.ConfigMapKeySelector", at, ref)
    if not given:
        *all_but_last, last = (f"`{kind}`" for kind in _ENV_SOURCES)
        problem = f"must specify one of: {', '.join(all_but_last)} or {last}"
        errors.append(invalid_value(path, "", problem))
    elif value:
        errors.append(invalid_value(path, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        errors.append(invalid_value(path, "", "may not have more than one field specified at a time"))
    return errors


def _env_from_errors(path: str, sources: Sequence[JsonObject]) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, source in enumerate(sources):
        at = f"{path}[{index}]"
        errors += field_rule_errors("core.v1.EnvFromSource", at, source)
        given = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
        if not given:
            errors.append(invalid_value(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(given) > 1:
            errors.append(invalid_value(path, "", "may not have more than one field specified at a time"))
    return errors


def _restart_errors(path: str, container: JsonObject) -> list[FieldError]:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    errors = field_rule_errors("core.v1.Container#restarting", path, container)
    if policy is None and rules:
        problem = "must specify restartPolicy when restart rules are used"
        errors.append(required(f"{path}.restartPolicy", problem))
    return errors + list_errors("core.v1.ContainerRestartRule", f"{path}.restartPolicyRules", rules)


def _resize_errors(path: str, policies: Sequence[JsonObject], pod: PodContext) -> list[FieldError]:
    errors: list[FieldError] = []
    taken: set[str] = set()
    for index, policy in enumerate(policies):
        resource, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if resource in taken:
            errors.append(duplicate(f"{path}[{index}]", resource))
        taken.add(resource)
        for value, known in ((resource, _RESIZED), (restart, _RESIZE_POLICIES)):
            if value not in known:
                errors.append(unsupported(path, value, known) if value else required(path))
        if pod.restart_policy == "Never" and restart != "NotRequired":
            problem = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errors.append(invalid_value(path, restart, problem))
    return errors
