"""Validation of pod specs and pod templates, with affinities and topology spread constraints.

Not covered: rules for Windows, the comparison of pod-level resources with those of the containers, and annotations
that fields have replaced. Source: k8s.io/kubernetes `pkg/apis/core/validation`; k8s.io/apimachinery
`apis/meta/v1/validation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from kubeshard_apiserver.objects import JsonObject
from kubeshard_apiserver.resources.addresses import address_errors
from kubeshard_apiserver.resources.field_rules import field_rule_errors
from kubeshard_apiserver.resources.pod_containers import (
    PodContext,
    container_list_errors,
    ephemeral_container_errors,
    image_errors,
    init_container_errors,
    pod_security_errors,
)
from kubeshard_apiserver.resources.pod_resources import resource_errors
from kubeshard_apiserver.resources.pod_volumes import volume_errors
from kubeshard_apiserver.resources.value_rules import label_selector_errors, operand_errors
from kubeshard_apiserver.schema import name_formats as names
from kubeshard_apiserver.schema.name_formats import (
    dns_label,
    dns_subdomain,
    label_value,
    qualified_name,
    wrong,
)
from kubeshard_apiserver.status import FieldError, duplicate, forbidden_field, invalid_value, required

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHTED = "core.v1.WeightedPodAffinityTerm"


def _affinity_errors(path: str, affinity: JsonObject | None) -> list[FieldError]:
    affinity = affinity or {}
    errors = _node_affinity(f"{path}.nodeAffinity", affinity.get("nodeAffinity") or {})
    for name in ("podAffinity", "podAntiAffinity"):
        given, at = affinity.get(name) or {}, f"{path}.{name}"
        for index, term in enumerate(given.get(_REQUIRED) or ()):
            errors += _pod_term(f"{at}.{_REQUIRED}[{index}]", term)
        for index, weighted in enumerate(given.get(_PREFERRED) or ()):
            where, term = f"{at}.{_PREFERRED}[{index}]", weighted.get("podAffinityTerm") or {}
            errors += field_rule_errors(_WEIGHTED, where, weighted) + _pod_term(
                f"{where}.podAffinityTerm", term
            )
    return errors


def node_selector_errors(path: str, selector: JsonObject) -> list[FieldError]:
    at = f"{path}.nodeSelectorTerms"
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        return [required(at, "must have at least one node selector term")]
    return [
        error
        for index, term in enumerate(terms)
        for error in _node_term(f"{at}[{index}]", term, check_values=True)
    ]


def _spread_errors(path: str, constraints: Sequence[JsonObject]) -> list[FieldError]:
    errors: list[FieldError] = []
    kinds = [(one.get("topologyKey", ""), one.get("whenUnsatisfiable", "")) for one in constraints]
    for index, (constraint, kind) in enumerate(zip(constraints, kinds, strict=True)):
        at, (key, action) = f"{path}[{index}]", kind
        errors += field_rule_errors("core.v1.TopologySpreadConstraint", at, constraint)
        if kind in kinds[index + 1 :]:
            errors.append(duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        errors += field_rule_errors("core.v1.TopologySpreadConstraint#domains", at, constraint)
        domains = constraint.get("minDomains")
        if domains is not None and action != "DoNotSchedule":
            problem = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            errors.append(invalid_value(f"{at}.minDomains", domains, problem))
        errors += field_rule_errors("core.v1.TopologySpreadConstraint#policies", at, constraint)
        errors += _label_keys(f"{at}.matchLabelKeys", constraint.get("matchLabelKeys") or (), constraint)
        errors += label_selector_errors(f"{at}.labelSelector", constraint.get("labelSelector"))
    return errors


def _node_affinity(path: str, affinity: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    if (selector := affinity.get(_REQUIRED)) is not None:
        errors += node_selector_errors(f"{path}.{_REQUIRED}", selector)
    for index, preferred in enumerate(affinity.get(_PREFERRED) or ()):
        at = f"{path}.{_PREFERRED}[{index}]"
        errors += field_rule_errors(_WEIGHTED, at, preferred)
        errors += _node_term(f"{at}.preference", preferred.get("preference") or {}, check_values=False)
    return errors


def _node_term(path: str, term: JsonObject, *, check_values: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        at, operator = f"{path}.matchExpressions[{index}]", expression.get("operator", "")
        values = expression.get("values") or ()
        if operator in ("Gt", "Lt"):
            if len(values) != 1:
                problem = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                errors.append(required(f"{at}.values", problem))
        else:
            errors += operand_errors(at, operator, values)
        errors += wrong(f"{at}.key", expression.get("key", ""), qualified_name)
        for position, value in enumerate(values if check_values else ()):
            errors += wrong(f"{at}.values[{position}]", value, label_value)
    for index, expression in enumerate(term.get("matchFields") or ()):
        errors += _node_field(f"{path}.matchFields[{index}]", expression)
    return errors


def _node_field(path: str, expression: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    operator, values = expression.get("operator", ""), expression.get("values") or ()
    if operator not in ("In", "NotIn"):
        errors.append(invalid_value(f"{path}.operator", operator, "not a valid selector operator"))
    elif len(values) != 1:
        problem = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.append(required(f"{path}.values", problem))
    if expression.get("key") != "metadata.name":
        problem = "not a valid field selector key"
        return [*errors, invalid_value(f"{path}.key", expression.get("key", ""), problem)]
    for index, value in enumerate(values):
        errors += wrong(f"{path}.values[{index}]", value, dns_subdomain)
    return errors


def _pod_term(path: str, term: JsonObject) -> list[FieldError]:
    errors = field_rule_errors("core.v1.PodAffinityTerm", path, term)
    for name in term.get("namespaces") or ():
        errors += wrong(f"{path}.namespace", name, dns_label)
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        errors += _label_keys(f"{path}.{field}", term.get(field) or (), term)
    return errors + field_rule_errors("core.v1.PodAffinityTerm#topology", path, term)


def _label_keys(path: str, keys: Sequence[str], constraint: JsonObject) -> list[FieldError]:
    if keys and constraint.get("labelSelector") is None:
        return [forbidden_field(path, "must not be specified when labelSelector is not set")]
    return [
        error for index, key in enumerate(keys) for error in wrong(f"{path}[{index}]", key, qualified_name)
    ]


def pod_errors(pod: JsonObject) -> list[FieldError]:
    """Validate a pod, new or updated."""
    spec = pod.get("spec") or {}
    errors = _pod_spec_errors("spec", spec, pod["metadata"].get("name") or "", is_pod=True)
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


def new_pod_errors(pod: JsonObject) -> list[FieldError]:
    spec, errors = pod.get("spec") or {}, pod_errors(pod)
    if spec.get("ephemeralContainers"):
        errors.append(forbidden_field("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        problem = "cannot be set until all schedulingGates have been cleared"
        errors.append(forbidden_field("spec.nodeName", problem))
    return errors


def template_errors(path: str, template: JsonObject) -> list[FieldError]:
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    errors = names.labels(f"{path}.labels", meta.get("labels"))
    errors += names.annotation_keys(f"{path}.annotations", meta.get("annotations"))
    errors += _template_spec_errors(f"{path}.spec", spec)
    if spec.get("ephemeralContainers"):
        problem = "ephemeral containers not allowed in pod template"
        errors.append(forbidden_field(f"{path}.spec.ephemeralContainers", problem))
    return errors


_sound: dict[bytes, None] = {}
"""The digests of specs without errors: most templates are written again and again, and each by two kinds."""
_MOST_SOUND = 16 * 1024


def _template_spec_errors(path: str, spec: JsonObject) -> list[FieldError]:
    digest = blake2b(msgspec.json.encode(spec), digest_size=16).digest()
    if digest in _sound:
        return []
    errors = _pod_spec_errors(path, spec)
    if not errors:
        if len(_sound) >= _MOST_SOUND:
            del _sound[next(iter(_sound))]
        _sound[digest] = None
    return errors


def _pod_spec_errors(path: str, spec: JsonObject, pod: str = "", *, is_pod: bool = False) -> list[FieldError]:
    volumes, errors = volume_errors(f"{path}.volumes", spec.get("volumes") or (), pod)
    claims = spec.get("resourceClaims") or ()
    errors += field_rule_errors("core.v1.PodSpec#claims", path, spec)
    context = PodContext(
        volumes,
        frozenset(claim["name"] for claim in claims if claim.get("name")),
        spec.get("terminationGracePeriodSeconds"),
        spec.get("restartPolicy", ""),
        spec.get("os"),
    )
    containers, initial = spec.get("containers") or (), spec.get("initContainers") or ()
    errors += container_list_errors(f"{path}.containers", containers, context)
    errors += init_container_errors(f"{path}.initContainers", initial, containers, context)
    ephemeral = spec.get("ephemeralContainers") or ()
    errors += ephemeral_container_errors(
        f"{path}.ephemeralContainers", ephemeral, [*containers, *initial], context
    )
    errors += resource_errors(f"{path}.resources", spec.get("resources"), (), of_pod=True)
    errors += _host_network_errors(f"{path}.containers", spec, is_pod=is_pod)
    errors += field_rule_errors("core.v1.PodSpec#policies", path, spec)
    errors += pod_security_errors(f"{path}.securityContext", spec.get("securityContext") or {})
    errors += _affinity_errors(f"{path}.affinity", spec.get("affinity"))
    errors += _dns_errors(f"{path}.dnsConfig", spec)
    errors += _host_errors(f"{path}.hostAliases", spec.get("hostAliases") or ())
    errors += _gate_errors(path, spec)
    spread = spec.get("topologySpreadConstraints") or ()
    errors += _spread_errors(f"{path}.topologySpreadConstraints", spread)
    return errors + field_rule_errors("core.v1.PodSpec#names", path, spec)


def _host_network_errors(path: str, spec: JsonObject, *, is_pod: bool) -> list[FieldError]:
    if not spec.get("hostNetwork"):
        return []
    problem = "must match `containerPort` when `hostNetwork` is true"
    return [
        invalid_value(f"{path}[{index}].ports[{position}].hostPort", port.get("hostPort", 0), problem)
        for index, container in enumerate(spec.get("containers") or ())
        for position, port in enumerate(container.get("ports") or ())
        if (is_pod or port.get("hostPort")) and port.get("hostPort", 0) != port.get("containerPort", 0)
    ]


def _host_errors(path: str, aliases: Sequence[JsonObject]) -> list[FieldError]:
    return [
        problem
        for index, alias in enumerate(aliases)
        for problem in address_errors(f"{path}[{index}].ip", alias.get("ip") or "")
    ]


def _dns_errors(path: str, spec: JsonObject) -> list[FieldError]:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            return [required(path, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not config.get("nameservers"):
            problem = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{path}.nameservers", problem)]
    return field_rule_errors("core.v1.PodDNSConfig", path, config or {})


def _gate_errors(path: str, spec: JsonObject) -> list[FieldError]:
    errors = field_rule_errors("core.v1.PodSpec#gates", path, spec)
    taken: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        at, name = f"{path}.schedulingGates[{index}]", gate.get("name", "")
        errors += names.wrong(at, name, names.qualified_name)
        if name in taken:
            errors.append(duplicate(at, name))
        taken.add(name)
    return errors
