"""Services. Source: k8s.io/kubernetes `pkg/apis/core/v1`, `pkg/registry/core/service`, `pkg/api/service`."""

from __future__ import annotations

from functools import cached_property
from ipaddress import IPv6Address

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.objects import JsonObject, Object, own, own_items
from kubeshard_apiserver.resources.addresses import is_standard, parsed_address
from kubeshard_apiserver.resources.metadata import label_name
from kubeshard_apiserver.resources.service_addresses import Taken, fill_families, give_address, give_ports
from kubeshard_apiserver.resources.service_rules import (
    balancer_status_errors,
    is_headless,
    is_reached_from_outside,
    needs_addresses,
    needs_health_port,
    needs_node_ports,
    service_errors,
    service_update_errors,
)
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.status import FieldError

SERVICES = GroupResource("", "services")
_THREE_HOURS = 10800
_HINTS = "service.kubernetes.io/topology-aware-hints"
_MODE = "service.kubernetes.io/topology-mode"


class Services(Typed):
    """Services. A replace that omits allocated fields keeps them. Fields that a changed type does not use are
    released.
    """

    name_rule = staticmethod(label_name)
    selectable = ("metadata.name", "metadata.namespace", "spec.clusterIP", "spec.type")
    indexes = True

    def set_defaults(self, obj: Object) -> None:
        spec = obj["spec"]
        affinity = spec.setdefault("sessionAffinity", "None")
        if affinity == "None":
            spec.pop("sessionAffinityConfig", None)
        elif affinity == "ClientIP":
            given = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
            seconds = _THREE_HOURS if given is None else given
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": seconds}}
        kind = spec.setdefault("type", "ClusterIP")
        for port in own_items(spec, "ports"):
            port.setdefault("protocol", "TCP")
            port["targetPort"] = port.get("targetPort") or port.get("port", 0)
        if is_reached_from_outside(spec):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if kind in ("ClusterIP", "NodePort", "LoadBalancer"):
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if kind == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)
            for point in own_items(own(obj, "status", "loadBalancer"), "ingress"):
                if point.get("ip"):
                    point.setdefault("ipMode", "VIP")

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        spec = obj["spec"]
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        fill_families(obj, {})
        give_address(obj, self._taken)
        give_ports(obj, {}, self._taken)
        if not needs_addresses(spec):
            spec.pop("internalTrafficPolicy", None)

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        super().prepare_update(new, old, subresource)
        if subresource:
            return
        spec, before = new["spec"], old["spec"]
        _keep_given(spec, before)
        _match_addresses(spec, before)
        fill_families(new, before)
        if needs_addresses(spec) and not needs_addresses(before):
            give_address(new, self._taken)
        give_ports(new, before, self._taken)
        _drop_useless(spec, before)
        if not needs_addresses(spec):
            spec.pop("internalTrafficPolicy", None)
        if spec["type"] != "LoadBalancer":
            new["status"] = {**new["status"], "loadBalancer": {}}

    def validate(self, obj: Object) -> list[FieldError]:
        return service_errors(obj, None)

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        if subresource == "status":
            return balancer_status_errors(new, old)
        return service_update_errors(new, old)

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        return service_warnings(new)

    @cached_property
    def _taken(self) -> Taken:
        """Made from what is stored when the first Service is written."""
        taken = Taken()
        for key, service in self.stored(SERVICES).items():
            taken.change(key, None, service)
        return taken

    def noticed(self, key: Key, old: Object | None, new: Object | None) -> None:
        self._taken.change(key, old, new)


def _keep_given(spec: Object, before: JsonObject) -> None:
    """Keep allocated values that the request omits."""
    if needs_addresses(spec) and needs_addresses(before):
        for field in ("clusterIP", "clusterIPs"):
            if not spec.get(field) and before.get(field):
                spec[field] = before[field]
    if needs_node_ports(spec) and needs_node_ports(before):
        had = {port.get("name", ""): port.get("nodePort") for port in before.get("ports") or ()}
        used = {*had.values()} & {port.get("nodePort") for port in spec.get("ports") or ()} - {None}
        for port in own_items(spec, "ports"):
            number = had.get(port.get("name", ""))
            if not port.get("nodePort") and number and number not in used:
                port["nodePort"] = number
    if needs_health_port(spec) and needs_health_port(before):
        spec.setdefault("healthCheckNodePort", before.get("healthCheckNodePort"))


def _match_addresses(spec: Object, before: JsonObject) -> None:
    """Apply a change of `clusterIP` to `clusterIPs`."""
    had, has = before.get("clusterIP", ""), spec.get("clusterIP", "")
    if had == has or (spec.get("clusterIPs") or []) != (before.get("clusterIPs") or []):
        return
    if had and not has:
        spec.pop("clusterIPs", None)
    else:
        spec["clusterIPs"] = [has]


def _drop_useless(spec: Object, before: JsonObject) -> None:
    def drop(*fields: str) -> None:
        for field in fields:
            if spec.get(field) == before.get(field):
                spec.pop(field, None)

    if needs_addresses(before) and not needs_addresses(spec):
        if spec.get("clusterIP") == before.get("clusterIP") and spec.get("clusterIPs") == before.get(
            "clusterIPs"
        ):
            drop("clusterIP", "clusterIPs")
        drop("ipFamilies", "ipFamilyPolicy")
    balanced, was_balanced = spec["type"] == "LoadBalancer", before["type"] == "LoadBalancer"
    if before["type"] in ("NodePort", "LoadBalancer") and spec["type"] not in ("NodePort", "LoadBalancer"):
        had = {port.get("nodePort") for port in before.get("ports") or ()}
        ports = spec.get("ports") or ()
        if {port["nodePort"] for port in ports if port.get("nodePort")} <= had:
            for port in own_items(spec, "ports"):
                port.pop("nodePort", None)
    if needs_health_port(before) and not needs_health_port(spec):
        drop("healthCheckNodePort")
    if was_balanced and not balanced:
        drop("allocateLoadBalancerNodePorts", "loadBalancerClass")
    if is_reached_from_outside(before) and not is_reached_from_outside(spec):
        drop("externalTrafficPolicy")


def service_warnings(service: Object) -> list[str]:
    spec = service["spec"]
    headless, external = is_headless(spec), spec.get("type") == "ExternalName"
    outside = spec.get("externalIPs") or ()
    found: list[str] = []
    if _HINTS in (service["metadata"].get("annotations") or {}):
        found.append(f"annotation {_HINTS} is deprecated, please use {_MODE} instead")
    if headless:
        ignored = {
            "loadBalancerIP": bool(spec.get("loadBalancerIP")),
            "externalIPs": bool(outside),
            "SessionAffinity": spec.get("sessionAffinity") != "None",
        }
        found += [
            f"spec.{field} is ignored for headless services" for field, holds in ignored.items() if holds
        ]
    for index, address in enumerate(outside):
        found += _address_warnings(f"spec.externalIPs[{index}]", address)
    if outside and not headless and not external:
        found.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    if outside and external:
        found.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if spec.get("externalName") and not external:
        found.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        found.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    return found


def _address_warnings(path: str, text: str) -> list[str]:
    address = parsed_address(text)
    if address is None:
        return []
    if not is_standard(text):
        return [f'{path}: non-standard IP address "{text}" is invalid: use "{address}"']
    if isinstance(address, IPv6Address) and str(address) != text:
        told = f'should be in RFC 5952 canonical format ("{address}")'
        return [f'{path}: IPv6 address "{text}" {told}']
    return []
