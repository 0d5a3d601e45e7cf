"""Ingresses, IngressClasses and NetworkPolicies. Source: k8s.io/kubernetes `pkg/apis/networking`,
`pkg/registry/networking`; the admission plugin DefaultIngressClass.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.objects import JsonObject, Object, own, own_items
from kubeshard_apiserver.resources.addresses import block_errors, parsed_address, parsed_block
from kubeshard_apiserver.resources.field_rules import changed_errors, field_rule_errors
from kubeshard_apiserver.resources.service_rules import entry_point_errors
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.schema.name_formats import (
    dns_label,
    port_name,
    port_number,
    wildcard_subdomain,
    wrong,
)
from kubeshard_apiserver.status import (
    FieldError,
    forbidden_field,
    invalid_value,
    required,
    unsupported,
)

INGRESS_CLASSES = GroupResource("networking.k8s.io", "ingressclasses")
_CLASS = "kubernetes.io/ingress.class"
_GENERAL = "ingressclass.kubernetes.io/is-default-class"
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")


class Ingresses(Typed):
    """Ingresses. A new Ingress without a class gets the default class."""

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        annotations = obj["metadata"].get("annotations") or {}
        if obj["spec"].get("ingressClassName") is None and _CLASS not in annotations:
            general = [
                (one["metadata"]["creationTimestamp"], one["metadata"]["name"])
                for one in self.stored(INGRESS_CLASSES).values()
                if (one["metadata"].get("annotations") or {}).get(_GENERAL) == "true"
            ]
            if general:
                newest = max(created for created, _ in general)
                obj["spec"]["ingressClassName"] = min(name for created, name in general if created == newest)

    def validate(self, obj: Object) -> list[FieldError]:
        errors = _ingress_errors(obj["spec"])
        named = obj["spec"].get("ingressClassName")
        annotated = (obj["metadata"].get("annotations") or {}).get(_CLASS)
        if named is not None and annotated is not None and annotated != named:
            problem = "must match `ingressClassName` when both are specified"
            errors.append(invalid_value(f"annotations.{_CLASS}", annotated, problem))
        return errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        if subresource != "status":
            return _ingress_errors(new["spec"])
        before = [point.get("ip", "") for point in old["status"]["loadBalancer"].get("ingress") or ()]
        errors: list[FieldError] = []
        for index, point in enumerate(new["status"]["loadBalancer"].get("ingress") or ()):
            errors += entry_point_errors(f"status.loadBalancer.ingress[{index}]", point, before)
        return errors

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        annotated = _CLASS in (new["metadata"].get("annotations") or {})
        if old is not None or not annotated or new["spec"].get("ingressClassName") is not None:
            return []
        return [f"annotation \"{_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"]


class IngressClasses(Typed):
    def set_defaults(self, obj: Object) -> None:
        if parameters := own(obj["spec"], "parameters"):
            parameters.setdefault("scope", "Cluster")

    def validate(self, obj: Object) -> list[FieldError]:
        errors = field_rule_errors("networking.v1.IngressClassSpec", "spec", obj["spec"])
        return errors + _parameters("spec.parameters", obj["spec"].get("parameters"))

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        errors = changed_errors("spec", ("controller",), new["spec"], old["spec"], absent="")
        return errors + self.validate(new)


class NetworkPolicies(Typed):
    def set_defaults(self, obj: Object) -> None:
        spec = obj["spec"]
        for rule in (*own_items(spec, "ingress"), *own_items(spec, "egress")):
            for port in own_items(rule, "ports"):
                port.setdefault("protocol", "TCP")
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]

    def validate(self, obj: Object) -> list[FieldError]:
        return _policy_errors(obj["spec"], ())

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        return _policy_errors(new["spec"], tuple(_blocks(old["spec"])))


def _ingress_errors(spec: JsonObject) -> list[FieldError]:
    rules, backend = spec.get("rules") or (), spec.get("defaultBackend")
    errors: list[FieldError] = []
    if not rules and backend is None:
        errors.append(invalid_value("spec", None, "either `defaultBackend` or `rules` must be specified"))
    if backend is not None:
        errors += _backend("spec.defaultBackend", backend)
    for index, rule in enumerate(rules):
        errors += _rule(f"spec.rules[{index}]", rule)
    return errors + field_rule_errors("networking.v1.IngressSpec", "spec", spec)


def _rule(path: str, rule: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    if host := rule.get("host"):
        if parsed_address(host):
            problem = "must be a DNS name, not an IP address"
            errors.append(invalid_value(f"{path}.host", host, problem))
        errors += wrong(f"{path}.host", host, wildcard_subdomain)
    if (http := rule.get("http")) is not None:
        errors += field_rule_errors("networking.v1.HTTPIngressRuleValue", f"{path}.http", http)
        for index, given in enumerate(http.get("paths") or ()):
            errors += _path(f"{path}.http.paths[{index}]", given)
    return errors


def _path(path: str, given: JsonObject) -> list[FieldError]:
    kind, text = given.get("pathType"), given.get("path", "")
    if not kind:
        return [required(f"{path}.pathType", "pathType must be specified")]
    problems: list[str] = []
    if kind in ("Exact", "Prefix"):
        problems += [] if text.startswith("/") else ["must be an absolute path"]
        problems += [
            f"must not contain '{part}'" for part in ("//", "/./", "/../", "%2f", "%2F") if part in text
        ]
        problems += [f"cannot end with '{part}'" for part in ("/..", "/.") if text.endswith(part)]
    elif kind == "ImplementationSpecific" and text and not text.startswith("/"):
        problems.append("must be an absolute path")
    errors = [invalid_value(f"{path}.path", text, problem) for problem in problems]
    if kind not in _PATH_TYPES:
        errors.append(unsupported(f"{path}.pathType", kind, _PATH_TYPES))
    return errors + _backend(f"{path}.backend", given["backend"])


def _backend(path: str, backend: JsonObject) -> list[FieldError]:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        return [invalid_value(path, "", "cannot set both resource and service backends")]
    if resource is not None:
        return field_rule_errors("core.v1.TypedLocalObjectReference", f"{path}.resource", resource)
    if service is None:
        return [invalid_value(path, "", "resource or service backend is required")]
    at, port = f"{path}.service", service.get("port") or {}
    errors = field_rule_errors("networking.v1.IngressServiceBackend", at, service)
    if port.get("name") and port.get("number"):
        errors.append(invalid_value(path, "", "cannot set both port name & port number"))
    elif port.get("name"):
        errors += wrong(f"{at}.port.name", port["name"], port_name)
    elif port.get("number"):
        errors += port_number(f"{at}.port.number", port["number"])
    else:
        errors.append(required(path, "port name or number is required"))
    return errors


def _parameters(path: str, parameters: JsonObject | None) -> list[FieldError]:
    if parameters is None:
        return []
    errors: list[FieldError] = []
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope == "Cluster" and namespace is not None:
        errors.append(forbidden_field(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'"))
    elif scope == "Namespace" and namespace is None:
        errors.append(required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'"))
    elif scope == "Namespace":
        errors += wrong(f"{path}.namespace", namespace or "", dns_label)
    return errors


def _policy_errors(spec: JsonObject, before: tuple[str, ...]) -> list[FieldError]:
    """Validate a spec. The CIDRs in `before` were already there."""
    errors = field_rule_errors("networking.v1.NetworkPolicySpec#pods", "spec", spec)
    for field, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(field) or ()):
            at = f"spec.{field}[{index}]"
            for position, port in enumerate(rule.get("ports") or ()):
                errors += _policy_port(f"{at}.ports[{position}]", port)
            for position, peer in enumerate(rule.get(peers) or ()):
                errors += _peer(f"{at}.{peers}[{position}]", peer, before)
    return errors + field_rule_errors("networking.v1.NetworkPolicySpec", "spec", spec)


def _policy_port(path: str, port: JsonObject) -> list[FieldError]:
    number, last = port.get("port"), port.get("endPort")
    errors = field_rule_errors("networking.v1.NetworkPolicyPort", path, port)
    if isinstance(number, int):
        errors += port_number(f"{path}.port", number)
        if last is not None and last < number:
            problem = "must be greater than or equal to `port`"
            errors.append(invalid_value(f"{path}.endPort", last, problem))
        return errors + ([] if last is None else port_number(f"{path}.endPort", last))
    if last is not None:
        state = "not specified" if number is None else "non-numeric"
        problem = f"may not be specified when `port` is {state}"
        errors.append(invalid_value(f"{path}.endPort", last, problem))
    return errors + ([] if number is None else wrong(f"{path}.port", number, port_name))


def _peer(path: str, peer: JsonObject, before: tuple[str, ...]) -> list[FieldError]:
    selectors = [field for field in ("podSelector", "namespaceSelector") if peer.get(field) is not None]
    errors = field_rule_errors("networking.v1.NetworkPolicyPeer", path, peer)
    block = peer.get("ipBlock")
    if block is not None:
        errors += _block(f"{path}.ipBlock", block, before)
        if selectors:
            errors.append(forbidden_field(path, "may not specify both ipBlock and another peer"))
    elif not selectors:
        errors.append(required(path, "must specify a peer"))
    return errors


def _block(path: str, block: JsonObject, before: tuple[str, ...]) -> list[FieldError]:
    text = block.get("cidr", "")
    if not text:
        return [required(f"{path}.cidr")]
    errors, whole = block_errors(f"{path}.cidr", text, before), parsed_block(text)
    if whole is None:
        return errors
    for index, left_out in enumerate(block.get("except") or ()):
        at = f"{path}.except[{index}]"
        errors += block_errors(at, left_out, before)
        part = parsed_block(left_out)
        if part is not None and not (
            part.version == whole.version
            and part.network_address in whole
            and part.prefixlen > whole.prefixlen
        ):
            errors.append(invalid_value(at, left_out, "must be a strict subset of `cidr`"))
    return errors


def _blocks(spec: JsonObject) -> Iterator[str]:
    for field, peers in (("ingress", "from"), ("egress", "to")):
        for rule in spec.get(field) or ():
            for peer in rule.get(peers) or ():
                if block := peer.get("ipBlock"):
                    yield block.get("cidr", "")
                    yield from block.get("except") or ()
