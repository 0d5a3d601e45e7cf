"""Endpoints and EndpointSlices. Source: k8s.io/kubernetes `pkg/apis/core/validation`, `pkg/apis/discovery`,
`pkg/registry/discovery/endpointslice`.

Not covered: the topology of `v1beta1`, which `v1` cannot express.
"""

from __future__ import annotations

from kubeshard_apiserver.objects import JsonObject, Object, own_items
from kubeshard_apiserver.resources.addresses import (
    address_errors,
    canonical_address_errors,
    endpoint_errors,
    family_of,
)
from kubeshard_apiserver.resources.field_rules import changed_errors, field_rule_errors
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.schema.name_formats import (
    dns_label,
    dns_subdomain,
    wrong,
)
from kubeshard_apiserver.status import (
    FieldError,
    invalid_value,
    required,
)


class Endpoints(Typed):
    def set_defaults(self, obj: Object) -> None:
        for subset in own_items(obj, "subsets"):
            for port in own_items(subset, "ports"):
                port.setdefault("protocol", "TCP")

    def validate(self, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        for index, subset in enumerate(obj.get("subsets") or ()):
            errors += _subset(f"subsets[{index}]", subset)
        return errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        return [] if new.get("subsets") == old.get("subsets") else self.validate(new)


class EndpointSlices(Typed):
    """EndpointSlices. A change of the labels also increases the generation."""

    def set_defaults(self, obj: Object) -> None:
        for port in own_items(obj, "ports"):
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        _drop_topology(obj)

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        super().prepare_update(new, old, subresource)
        if new["metadata"].get("labels") != old["metadata"].get("labels"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        _drop_topology(new)

    def validate(self, obj: Object) -> list[FieldError]:
        return field_rule_errors("discovery.v1.EndpointSlice", "", obj) + _endpoints(obj)

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        errors = field_rule_errors("discovery.v1.EndpointSlice", "", new)
        if new.get("endpoints") != old.get("endpoints"):
            errors += _endpoints(new)
        return errors + changed_errors("", ("addressType",), new, old, declared=True)


def _drop_topology(obj: Object) -> None:
    for endpoint in own_items(obj, "endpoints"):
        endpoint.pop("deprecatedTopology", None)


def _subset(path: str, subset: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
    errors += field_rule_errors("core.v1.EndpointSubset", path, subset)
    ports = subset.get("ports") or ()
    for index, port in enumerate(ports):
        errors += _port(f"{path}.ports[{index}]", port, is_named=len(ports) > 1)
    return errors


def _port(path: str, port: JsonObject, *, is_named: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    if name := port.get("name"):
        errors += wrong(f"{path}.name", name, dns_label)
    elif is_named:
        errors.append(required(f"{path}.name"))
    return errors + field_rule_errors("core.v1.EndpointPort", path, port)


def _endpoints(obj: JsonObject) -> list[FieldError]:
    kind = obj["addressType"]
    if errors := field_rule_errors("discovery.v1.EndpointSlice#endpoints", "", obj):
        return errors
    for index, endpoint in enumerate(obj.get("endpoints") or ()):
        at = f"endpoints[{index}]"
        errors += field_rule_errors("discovery.v1.Endpoint#addresses", at, endpoint)
        for position, address in enumerate(endpoint.get("addresses") or ()):
            errors += _slice_address(f"{at}.addresses", position, address, kind)
        errors += field_rule_errors("discovery.v1.Endpoint", at, endpoint)
    return errors


def _slice_address(path: str, index: int, address: str, kind: str) -> list[FieldError]:
    at = f"{path}[{index}]"
    if kind == "FQDN":
        return _domain_errors(at, address)
    if kind not in ("IPv4", "IPv6"):
        return []
    errors = address_errors(at, address) if kind == "IPv4" else canonical_address_errors(at, address)
    if errors:
        return errors
    if family_of(address) != kind:
        errors.append(invalid_value(path, address, f"must be an {kind} address"))
    return errors + endpoint_errors(at, address)


def _domain_errors(path: str, name: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    name = name.removesuffix(".")
    if errors := wrong(path, name, dns_subdomain):
        return errors
    if "." not in name:
        problem = "should be a domain with at least two segments separated by dots"
        return [invalid_value(path, name, problem)]
    return [error for label in name.split(".") for error in wrong(path, label, dns_label)]
