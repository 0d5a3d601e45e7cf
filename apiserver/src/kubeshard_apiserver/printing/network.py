"""Columns of Services, endpoints, Ingresses and network policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.printing.columns import (
    AGE,
    NAME,
    Column,
    Printer,
    at,
    label_selector,
    labels,
    name_of,
    some,
    text,
)

_SHOWN = 3


def _balancers(obj: Object) -> list[str]:
    """Return the addresses and host names of the load balancer, sorted and without duplicates."""
    ingress = at(obj, "status.loadBalancer.ingress", ())
    return sorted({one.get("ip") or one.get("hostname") for one in ingress} - {None, ""})


def _cluster_ip(service: Object, _: float) -> str:
    return str((at(service, "spec.clusterIPs") or ["<none>"])[0])


def _external_ip(service: Object, _: float) -> str:
    external = at(service, "spec.externalIPs", [])
    match at(service, "spec.type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external) or "<none>"
        case "LoadBalancer":
            return ",".join([*_balancers(service), *external]) or "<pending>"
        case "ExternalName":
            return str(at(service, "spec.externalName", ""))
    return "<unknown>"


def _ports(service: Object, _: float) -> str:
    return ",".join(_port(port) for port in at(service, "spec.ports", ())) or "<none>"


def _port(port: dict[str, Any]) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node}/{port.get('protocol', '')}"


SERVICES = Printer(
    (
        NAME,
        text("Type", "spec.type", "How the service is exposed"),
        Column("Cluster-IP", _cluster_ip, "Its address in the cluster"),
        Column("External-IP", _external_ip, "Addresses outside the cluster"),
        Column("Port(s)", _ports, "Ports, node ports and protocols"),
        AGE,
        Column("Selector", lambda obj, _: labels(at(obj, "spec.selector")), "Labels of its pods", wide=True),
    )
)


def _endpoints(obj: Object, _: float) -> str:
    found = list(_addresses(obj))
    return some(found, _SHOWN, "") if at(obj, "subsets") else "<none>"


def _addresses(obj: Object) -> Iterator[str]:
    for subset in at(obj, "subsets", ()):
        addresses = [address["ip"] for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        for port in ports:
            yield from (_joined(address, port["port"]) for address in addresses)
        if not ports:
            yield from addresses


def _joined(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


ENDPOINTS = Printer((NAME, Column("Endpoints", _endpoints, "Addresses and ports behind the service"), AGE))


def _slice_ports(obj: Object, _: float) -> str:
    ports = obj.get("ports") or ()
    named = [str(port["port"]) if port.get("port") is not None else port.get("name", "*") for port in ports]
    return some(named, _SHOWN, "<unset>")


def _slice_endpoints(obj: Object, _: float) -> str:
    addresses = [
        address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()
    ]
    return some(addresses, _SHOWN, "<unset>")


ENDPOINT_SLICES = Printer(
    (
        NAME,
        text("AddressType", "addressType", "Type of its addresses"),
        Column("Ports", _slice_ports, "Ports of every endpoint"),
        Column("Endpoints", _slice_endpoints, "Addresses"),
        AGE,
    )
)


def _hosts(ingress: Object, _: float) -> str:
    rules = at(ingress, "spec.rules", ())
    hosts: list[str] = []
    for rule in rules:
        if len(hosts) == _SHOWN:
            return f"{','.join(hosts)} + {len(rules) - _SHOWN} more..."
        if host := rule.get("host"):
            hosts.append(host)
    return ",".join(hosts) or "*"


INGRESSES = Printer(
    (
        NAME,
        text("Class", "spec.ingressClassName", "Which controller it is for", "<none>"),
        Column("Hosts", _hosts, "Host names that it routes"),
        Column("Address", lambda obj, _: ",".join(_balancers(obj)), "Address at which it can be reached"),
        Column("Ports", lambda obj, _: "80, 443" if at(obj, "spec.tls") else "80", "Ports that are open"),
        AGE,
    )
)


def _class_name(obj: Object, _: float) -> str:
    marks = obj["metadata"].get("annotations") or {}
    default = marks.get("ingressclass.kubernetes.io/is-default-class") == "true"
    return name_of(obj) + (" (default)" if default else "")


def _parameters(obj: Object, _: float) -> str:
    parameters = at(obj, "spec.parameters")
    if parameters is None:
        return "<none>"
    group = parameters.get("apiGroup")
    kind = parameters["kind"] if group is None else f"{parameters['kind']}.{group}"
    return f"{kind}/{parameters['name']}"


INGRESS_CLASSES = Printer(
    (
        Column("Name", _class_name, NAME.description, format="name"),
        text("Controller", "spec.controller", "Controller that implements it"),
        Column("Parameters", _parameters, "Object with additional parameters"),
        AGE,
    )
)
NETWORK_POLICIES = Printer(
    (
        NAME,
        Column(
            "Pod-Selector",
            lambda obj, _: label_selector(at(obj, "spec.podSelector")) or "<none>",
            "Label selector of its pods",
        ),
        AGE,
    )
)
SERVICE_CIDRS = Printer(
    (NAME, Column("CIDRs", lambda obj, _: ",".join(at(obj, "spec.cidrs", ())), "Ranges of addresses"), AGE)
)


def _parent(obj: Object, _: float) -> str:
    parent = at(obj, "spec.parentRef")
    if parent is None:
        return "<none>"
    resource = ".".join(filter(None, (parent.get("resource", ""), parent.get("group", "")))).lower()
    return "/".join(filter(None, (resource, parent.get("namespace", ""), parent.get("name", ""))))


IP_ADDRESSES = Printer(
    (NAME, Column("ParentRef", _parent, "Object to which the address belongs")), surplus=(AGE,)
)
