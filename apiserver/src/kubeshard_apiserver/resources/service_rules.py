"""Validation of Services. Source: k8s.io/kubernetes `pkg/apis/core/validation`; KEP-1880, KEP-5311."""

from __future__ import annotations

from collections.abc import Sequence

from kubeshard_apiserver.objects import JsonObject
from kubeshard_apiserver.resources.addresses import (
    address_errors,
    block_errors,
    endpoint_errors,
    family_of,
    parsed_address,
)
from kubeshard_apiserver.resources.field_rules import field_rule_errors
from kubeshard_apiserver.schema.name_formats import (
    dns_label,
    dns_subdomain,
    in_range,
    qualified_name,
    wrong,
)
from kubeshard_apiserver.status import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    required,
    unsupported,
)

NONE = "None"
"""The cluster IP of a headless Service."""
_FAMILIES = ("IPv4", "IPv6")
_TRAFFIC_POLICIES = ("Cluster", "Local")
_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_BALANCED = "may only be used when `type` is 'LoadBalancer'"
_SET_ONCE = "may not change once set"


def needs_addresses(spec: JsonObject) -> bool:
    return spec.get("type") != "ExternalName"


def needs_node_ports(spec: JsonObject) -> bool:
    kind = spec.get("type")
    return kind == "NodePort" or (
        kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False
    )


def needs_health_port(spec: JsonObject) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def is_headless(spec: JsonObject) -> bool:
    return spec.get("clusterIPs") == [NONE]


def is_reached_from_outside(spec: JsonObject) -> bool:
    kind = spec.get("type")
    return kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def service_errors(service: JsonObject, old: JsonObject | None) -> list[FieldError]:
    spec, kind = service["spec"], service["spec"].get("type", "")
    before = {} if old is None else old["spec"]
    ports = spec.get("ports") or ()
    errors: list[FieldError] = []
    if not ports and not is_headless(spec) and kind != "ExternalName":
        errors.append(required("spec.ports"))
    if kind in ("LoadBalancer", "NodePort") and is_headless(spec):
        problem = f"may not be set to 'None' for {kind} services"
        errors.append(invalid_value("spec.clusterIPs[0]", NONE, problem))
    if kind == "ExternalName":
        errors += _external_name(spec)
    names: set[str] = set()
    for index, port in enumerate(ports):
        errors += _port(f"spec.ports[{index}]", port, names, is_named=len(ports) > 1)
    errors += field_rule_errors("core.v1.ServiceSpec#selector", "spec", spec)
    if spec.get("sessionAffinity") == "ClientIP":
        config = spec["sessionAffinityConfig"]["clientIP"]
        errors += field_rule_errors("core.v1.ClientIPConfig", "spec.sessionAffinityConfig.clientIP", config)
    errors += addresses_errors(spec, before)
    for index, address in enumerate(spec.get("externalIPs") or ()):
        at = f"spec.externalIPs[{index}]"
        found = address_errors(at, address, before.get("externalIPs") or ())
        errors += found or endpoint_errors(at, address)
    errors += field_rule_errors("core.v1.ServiceSpec#type", "spec", spec)
    errors += _port_numbers(kind, ports)
    errors += _source_ranges(service, old)
    errors += _balancer(spec) + _traffic(spec)
    return errors + field_rule_errors("core.v1.ServiceSpec", "spec", spec)


def service_update_errors(new: JsonObject, old: JsonObject) -> list[FieldError]:
    spec, before = new["spec"], old["spec"]
    errors: list[FieldError] = []
    if needs_addresses(spec) and needs_addresses(before):
        if not (is_headless(spec) and is_headless(before)):
            errors += _kept_addresses(spec, before)
        if not is_headless(spec) and not is_headless(before):
            errors += _kept_families(spec, before)
    balancer = spec.get("loadBalancerClass")
    if spec["type"] == before["type"] == "LoadBalancer" and balancer != before.get("loadBalancerClass"):
        errors.append(invalid_value("spec.loadBalancerClass", balancer, _SET_ONCE))
    port = spec.get("healthCheckNodePort")
    if needs_health_port(spec) and needs_health_port(before) and port != before.get("healthCheckNodePort"):
        errors.append(forbidden_field("spec.healthCheckNodePort", "field is immutable"))
    return errors + service_errors(new, old)


def addresses_errors(spec: JsonObject, before: JsonObject) -> list[FieldError]:
    """Check that addresses and families match."""
    if not needs_addresses(spec):
        return []
    first, addresses = spec.get("clusterIP", ""), spec.get("clusterIPs") or []
    families = spec.get("ipFamilies") or []
    errors: list[FieldError] = []
    at = "spec.clusterIPs"
    if first and not addresses:
        errors.append(required(at))
    elif first and addresses[0] != first:
        errors.append(invalid_value(at, addresses, "first value must match `clusterIP`"))
    elif addresses and not first:
        errors.append(invalid_value(at, addresses, "must be empty when `clusterIP` is not specified"))
    errors += field_rule_errors("core.v1.ServiceSpec#families", "spec", spec)
    wrong_ones: list[FieldError] = []
    for index, address in enumerate(addresses):
        if index or address != NONE:
            wrong_ones += address_errors(f"{at}[{index}]", address, before.get("clusterIPs") or ())
        elif len(addresses) > 1:
            wrong_ones.append(invalid_value(at, addresses, "'None' must be the first and only value"))
    errors += wrong_ones
    if len(addresses) > 2:
        errors.append(invalid_value(at, addresses, "may only hold up to 2 values"))
    if wrong_ones:
        return errors
    if len(addresses) > 1 and len({family_of(address) for address in addresses}) < 2:
        problem = "may specify no more than one IP for each IP family"
        errors.append(invalid_value(at, addresses, problem))
    if not is_headless(spec):
        for index, (address, family) in enumerate(zip(addresses, families, strict=False)):
            if family in _FAMILIES and family_of(address) != family:
                problem = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
                errors.append(invalid_value(f"{at}[{index}]", address, problem))
    return errors


def balancer_status_errors(service: JsonObject, old: JsonObject) -> list[FieldError]:
    at = "status.loadBalancer.ingress"
    points = service["status"]["loadBalancer"].get("ingress") or ()
    if points and service["spec"].get("type") != "LoadBalancer":
        return [forbidden_field(at, "may only be used when `spec.type` is 'LoadBalancer'")]
    before = [point.get("ip", "") for point in old["status"]["loadBalancer"].get("ingress") or ()]
    errors: list[FieldError] = []
    for index, point in enumerate(points):
        errors += entry_point_errors(f"{at}[{index}]", point, before)
        mode = point.get("ipMode")
        if mode is None and point.get("ip"):
            errors.append(required(f"{at}[{index}].ipMode", "must be specified when `ip` is set"))
        elif mode is not None and not point.get("ip"):
            errors.append(
                forbidden_field(f"{at}[{index}].ipMode", "may not be specified when `ip` is not set")
            )
        elif mode not in (None, "Proxy", "VIP"):
            errors.append(unsupported(f"{at}[{index}].ipMode", mode, ("Proxy", "VIP")))
    return errors


def entry_point_errors(path: str, point: JsonObject, before: Sequence[str]) -> list[FieldError]:
    """Validate an entry in a load balancer's status, of a Service or an Ingress."""
    address, host = point.get("ip", ""), point.get("hostname", "")
    errors = address_errors(f"{path}.ip", address, before) if address else []
    if host:
        errors += wrong(f"{path}.hostname", host, dns_subdomain)
        if parsed_address(host):
            problem = "must be a DNS name, not an IP address"
            errors.append(invalid_value(f"{path}.hostname", host, problem))
    return errors


def _external_name(spec: JsonObject) -> list[FieldError]:
    problem = "may not be set for ExternalName services"
    errors = [
        forbidden_field(f"spec.{field}", problem) for field in ("clusterIPs", "ipFamilies") if spec.get(field)
    ]
    if spec.get("ipFamilyPolicy") is not None:
        errors.append(forbidden_field("spec.ipFamilyPolicy", problem))
    name = spec.get("externalName", "").removesuffix(".")
    return errors + (
        wrong("spec.externalName", name, dns_subdomain) if name else [required("spec.externalName")]
    )


def _port(path: str, port: JsonObject, names: set[str], *, is_named: bool) -> list[FieldError]:
    """Validate a port. `names` are the names of the preceding ports."""
    errors: list[FieldError] = []
    name = port.get("name", "")
    if name:
        errors += wrong(f"{path}.name", name, dns_label)
        if name in names:
            errors.append(duplicate(f"{path}.name", name))
        names.add(name)
    elif is_named:
        errors.append(required(f"{path}.name"))
    return errors + field_rule_errors("core.v1.ServicePort", path, port)


def _port_numbers(kind: str, ports: Sequence[JsonObject]) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[tuple[str, str, int]] = set()
    for index, port in enumerate(ports):
        number, protocol = port.get("nodePort", 0), port.get("protocol", "")
        at = f"spec.ports[{index}].nodePort"
        if number and kind == "ClusterIP":
            errors.append(forbidden_field(at, "may not be used when `type` is 'ClusterIP'"))
        if number and ("node", protocol, number) in seen:
            errors.append(duplicate(at, number))
        seen.add(("node", protocol, number))
    for index, port in enumerate(ports):
        number, protocol = port.get("port", 0), port.get("protocol", "")
        if ("", protocol, number) in seen:
            # The message shows the port with which the server searched for duplicates: only these fields are set.
            wanted = {
                "Name": "", "Protocol": protocol, "AppProtocol": None, "Port": number, "TargetPort": 0, "NodePort": 0,
            }  # fmt: skip
            errors.append(duplicate(f"spec.ports[{index}]", wanted))
        seen.add(("", protocol, number))
    return errors


def _source_ranges(service: JsonObject, old: JsonObject | None) -> list[FieldError]:
    spec, at = service["spec"], "spec.LoadBalancerSourceRanges"
    balanced = spec.get("type") == "LoadBalancer"
    if ranges := spec.get("loadBalancerSourceRanges"):
        errors = [] if balanced else [forbidden_field(at, _BALANCED)]
        before = (
            [] if old is None else [one.strip() for one in old["spec"].get("loadBalancerSourceRanges") or ()]
        )
        for index, block in enumerate(ranges):
            errors += block_errors(f"{at}[{index}]", block.strip(), before)
        return errors
    text = (service["metadata"].get("annotations") or {}).get(_RANGES)
    if text is None:
        return []
    at = f"metadata.annotations[{_RANGES}]"
    errors = [] if balanced else [forbidden_field(at, _BALANCED)]
    kept = old is not None and (old["metadata"].get("annotations") or {}).get(_RANGES) == text
    for block in text.split(",") if text.strip() and not kept else ():
        errors += block_errors(at, block.strip())
    return errors


def _balancer(spec: JsonObject) -> list[FieldError]:
    name = spec.get("loadBalancerClass")
    if spec.get("type") == "LoadBalancer":
        return wrong("spec.loadBalancerClass", name, qualified_name) if name is not None else []
    fields = ("allocateLoadBalancerNodePorts", "loadBalancerClass")
    return [forbidden_field(f"spec.{field}", _BALANCED) for field in fields if spec.get(field) is not None]


def _traffic(spec: JsonObject) -> list[FieldError]:
    outside = spec.get("externalTrafficPolicy", "")
    errors: list[FieldError] = []
    if not is_reached_from_outside(spec):
        if outside:
            problem = "may only be set for externally-accessible services"
            errors.append(invalid_value("spec.externalTrafficPolicy", outside, problem))
    elif outside not in _TRAFFIC_POLICIES:
        errors.append(unsupported("spec.externalTrafficPolicy", outside, _TRAFFIC_POLICIES))
    port, at = spec.get("healthCheckNodePort", 0), "spec.healthCheckNodePort"
    if needs_health_port(spec):
        errors += in_range(at, port, 1, 65535) if port else [required(at)]
    elif port:
        problem = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        errors.append(invalid_value(at, port, problem))
    return errors


def _kept_addresses(spec: JsonObject, before: JsonObject) -> list[FieldError]:
    had, has = before.get("clusterIPs") or [], spec.get("clusterIPs") or []
    if len(had) == len(has):
        return [
            invalid_value(f"spec.clusterIPs[{index}]", has, _SET_ONCE)
            for index, address in enumerate(had)
            if address != has[index]
        ]
    if not has:
        return [invalid_value("spec.clusterIPs[0]", None, "primary clusterIP can not be unset")]
    if had and had[0] != has[0]:
        return [invalid_value("spec.clusterIPs[0]", has, _SET_ONCE)]
    return []


def _kept_families(spec: JsonObject, before: JsonObject) -> list[FieldError]:
    had, has = before.get("ipFamilies") or [], spec.get("ipFamilies") or []
    if len(had) == len(has) and had != has:
        return [invalid_value("spec.ipFamilies[0]", has, _SET_ONCE)]
    return []
