"""Validation of pod specs and pod templates. Source: k8s.io/kubernetes `pkg/apis/core/validation`.

Not covered: rules for Windows, the comparison of pod-level resources with those of the containers, and annotations
that fields have replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard_apiserver.resources import pod_names as names
from kubeshard_apiserver.resources.facts import fact_errors
from kubeshard_apiserver.resources.pod_containers import (
    Surroundings,
    container_list_errors,
    ephemeral_container_errors,
    image_errors,
    init_container_errors,
)
from kubeshard_apiserver.resources.pod_resources import resource_errors
from kubeshard_apiserver.resources.pod_security import pod_security_errors
from kubeshard_apiserver.resources.pod_selectors import affinity_errors, spread_errors
from kubeshard_apiserver.resources.pod_volumes import volume_errors
from kubeshard_apiserver.status import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    required,
)

Given = Mapping[str, Any]


def pod_errors(pod: Given) -> list[FieldError]:
    """Validate a pod, new or updated."""
    spec = pod.get("spec") or {}
    errors = pod_spec_errors("spec", spec, pod["metadata"].get("name") or "", is_pod=True)
    if not spec.get("serviceAccountName"):
        problem = "must not be specified when serviceAccountName is not set"
        errors += [
            forbidden_field(f"spec.volumes[{index}].projected.sources[{part}].serviceAccountToken", problem)
            for index, volume in enumerate(spec.get("volumes") or ())
            for part, source in enumerate((volume.get("projected") or {}).get("sources") or ())
            if source.get("serviceAccountToken") is not None
        ]
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            errors += image_errors(f"spec.{field}[{index}]", container)
    return errors


def new_pod_errors(pod: Given) -> list[FieldError]:
    spec, errors = pod.get("spec") or {}, pod_errors(pod)
    if spec.get("ephemeralContainers"):
        errors.append(forbidden_field("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        problem = "cannot be set until all schedulingGates have been cleared"
        errors.append(forbidden_field("spec.nodeName", problem))
    return errors


def template_errors(path: str, template: Given) -> list[FieldError]:
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    errors = names.labels(f"{path}.labels", meta.get("labels"))
    errors += names.annotation_keys(f"{path}.annotations", meta.get("annotations"))
    errors += pod_spec_errors(f"{path}.spec", spec)
    if spec.get("ephemeralContainers"):
        problem = "ephemeral containers not allowed in pod template"
        errors.append(forbidden_field(f"{path}.spec.ephemeralContainers", problem))
    return errors


def pod_spec_errors(path: str, spec: Given, pod: str = "", *, is_pod: bool = False) -> list[FieldError]:
    volumes, errors = volume_errors(f"{path}.volumes", spec.get("volumes") or (), pod)
    claims = spec.get("resourceClaims") or ()
    errors += fact_errors("core.v1.PodSpec#claims", path, spec)
    surroundings = Surroundings(
        volumes,
        frozenset(claim["name"] for claim in claims if claim.get("name")),
        spec.get("terminationGracePeriodSeconds"),
        spec.get("restartPolicy", ""),
        spec.get("os"),
    )
    containers, initial = spec.get("containers") or (), spec.get("initContainers") or ()
    errors += container_list_errors(f"{path}.containers", containers, surroundings)
    errors += init_container_errors(f"{path}.initContainers", initial, containers, surroundings)
    ephemeral = spec.get("ephemeralContainers") or ()
    errors += ephemeral_container_errors(
        f"{path}.ephemeralContainers", ephemeral, [*containers, *initial], surroundings
    )
    errors += resource_errors(f"{path}.resources", spec.get("resources"), (), of_pod=True)
    errors += _host_network_errors(f"{path}.containers", spec, is_pod=is_pod)
    errors += fact_errors("core.v1.PodSpec#policies", path, spec)
    errors += pod_security_errors(f"{path}.securityContext", spec.get("securityContext") or {})
    errors += affinity_errors(f"{path}.affinity", spec.get("affinity"))
    errors += _dns_errors(f"{path}.dnsConfig", spec)
    errors += _gate_errors(path, spec)
    spread = spec.get("topologySpreadConstraints") or ()
    errors += spread_errors(f"{path}.topologySpreadConstraints", spread)
    return errors + fact_errors("core.v1.PodSpec#names", path, spec)


def _host_network_errors(path: str, spec: Given, *, is_pod: bool) -> list[FieldError]:
    if not spec.get("hostNetwork"):
        return []
    problem = "must match `containerPort` when `hostNetwork` is true"
    return [
        invalid_value(f"{path}[{index}].ports[{position}].hostPort", port.get("hostPort", 0), problem)
        for index, container in enumerate(spec.get("containers") or ())
        for position, port in enumerate(container.get("ports") or ())
        if (is_pod or port.get("hostPort")) and port.get("hostPort", 0) != port.get("containerPort", 0)
    ]


def _dns_errors(path: str, spec: Given) -> list[FieldError]:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            return [required(path, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not config.get("nameservers"):
            problem = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{path}.nameservers", problem)]
    return fact_errors("core.v1.PodDNSConfig", path, config or {})


def _gate_errors(path: str, spec: Given) -> list[FieldError]:
    errors = fact_errors("core.v1.PodSpec#gates", path, spec)
    taken: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        at, name = f"{path}.schedulingGates[{index}]", gate.get("name", "")
        errors += names.wrong(at, name, names.qualified_name)
        if name in taken:
            errors.append(duplicate(at, name))
        taken.add(name)
    return errors
