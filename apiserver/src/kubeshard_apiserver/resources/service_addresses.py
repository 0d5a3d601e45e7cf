"""The cluster IPs and node ports allocated to Services.

Guaranteed: no address and no port is allocated to two Services at the same time. Which ones a Service gets depends on
its uid. Not implemented: IPAddress objects, ranges other than the built-in one, IPv6.

Source: k8s.io/kubernetes `pkg/registry/core/service/storage`, `.../ipallocator`, `.../portallocator`.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import IPv4Network
from zlib import crc32

from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import Key
from kubeshard_apiserver.objects import JsonObject, Object, own_items
from kubeshard_apiserver.resources.addresses import family_of, parsed_address
from kubeshard_apiserver.resources.service_rules import (
    NONE,
    addresses_errors,
    needs_addresses,
    needs_health_port,
    needs_node_ports,
)
from kubeshard_apiserver.status import FieldError, internal, invalid, invalid_value

RANGE = IPv4Network("10.96.0.0/16")
PORTS = range(30000, 32768)
_FIRST = 257
"""The first offset for automatic allocation; lower addresses are left for explicit requests."""
_OTHER = {"IPv4": "IPv6", "IPv6": "IPv4"}
_SERVICE = GroupKind("", "Service")


class Taken:
    """The addresses and node ports of all Services, by the Service that has them."""

    def __init__(self) -> None:
        self._addresses: dict[str, Key] = {}
        self._ports: dict[int, Key] = {}

    def change(self, key: Key, old: Object | None, new: Object | None) -> None:
        """Takes what the new state of the Service has, and releases what only the old one had."""
        if old is not None:
            for address in _addresses_of(old):
                self._addresses.pop(address, None)
            for port in _ports_of(old):
                self._ports.pop(port, None)
        if new is not None:
            self._addresses |= dict.fromkeys(_addresses_of(new), key)
            self._ports |= dict.fromkeys(_ports_of(new), key)

    def has(self, address: str, mine: Key) -> bool:
        """Whether another Service than mine has the address."""
        return self._addresses.get(address, mine) != mine

    def ports(self, mine: Key) -> set[int]:
        """The ports of other Services than mine; no more than the range has."""
        return {port for port, key in self._ports.items() if key != mine}


def _addresses_of(service: Object) -> set[str]:
    return {service["spec"].get("clusterIP", "")} - {"", NONE}


def _ports_of(service: Object) -> set[int]:
    spec = service["spec"]
    return {
        *(port.get("nodePort", 0) for port in spec.get("ports") or ()),
        spec.get("healthCheckNodePort", 0),
    } - {0}


def fill_families(service: Object, before: JsonObject) -> None:
    """Decide which address families a Service has. `before` is its spec before the write. Raises Invalid."""
    spec = service["spec"]
    if not needs_addresses(spec):
        return
    headless = spec.get("clusterIP") == NONE
    anywhere = headless and not spec.get("selector")
    if "ipFamilyPolicy" not in spec:
        alone = "RequireDualStack" if anywhere else "SingleStack"
        spec["ipFamilyPolicy"] = before.get("ipFamilyPolicy", alone)
    _check(service, addresses_errors(spec, before))
    policy, at = spec["ipFamilyPolicy"], "spec.ipFamilyPolicy"
    families, addresses = [*(spec.get("ipFamilies") or ())], spec.get("clusterIPs") or []
    errors: list[FieldError] = []
    if policy == "SingleStack":
        for what, several in (("cluster IPs", addresses), ("IP families", families)):
            if len(several) == 2:
                problem = (
                    f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                )
                errors.append(invalid_value(at, policy, problem))
    for index, address in enumerate(() if headless else addresses):
        if index >= len(families):
            if (family := family_of(address)) == "IPv6":
                problem = f"{family} is not configured on this cluster"
                errors.append(invalid_value(f"spec.clusterIPs[{index}]", addresses, problem))
            else:
                families.append(family)
    _check(service, errors)
    if anywhere:
        families = families or ["IPv4"]
        if len(families) < 2 and policy != "SingleStack":
            families.append(_OTHER[families[0]])
    else:
        if policy == "RequireDualStack":
            errors.append(invalid_value(at, policy, "this cluster is not configured for dual-stack services"))
        errors += [
            invalid_value(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")
            for index, family in enumerate(families)
            if family != "IPv4"
        ]
        _check(service, errors)
    spec["ipFamilies"] = families or ["IPv4"]


def give_address(service: Object, taken: Taken) -> None:
    """Allocate an address. Raises Invalid if the requested one is unavailable, or an internal error if none is left."""
    spec = service["spec"]
    if not needs_addresses(spec) or spec.get("clusterIP") == NONE:
        return
    mine, wanted = _key(service), spec.get("clusterIP", "")
    if wanted:
        problem = _refusal(wanted, taken.has(wanted, mine))
        if problem:
            told = f"failed to allocate IP {wanted}: {problem}"
            _check(service, [invalid_value("spec.clusterIPs", spec["clusterIPs"], told)])
        return
    size = RANGE.num_addresses - 1 - _FIRST
    start = _drawn(service, "address")
    drawn = (str(RANGE[_FIRST + (start + step) % size]) for step in range(size))
    free = next((address for address in drawn if not taken.has(address, mine)), "")
    if not free:
        raise internal("failed to allocate a serviceIP: range is full")
    spec["clusterIP"] = free
    spec["clusterIPs"] = [spec["clusterIP"]]


def give_ports(service: Object, before: JsonObject, all_taken: Taken) -> None:
    """Allocate node ports. Raises Invalid if a requested one is not available, or an internal error if none is left."""
    spec = service["spec"]
    if spec.get("type") not in ("NodePort", "LoadBalancer"):
        return
    taken = all_taken.ports(_key(service))
    if before:
        _change_ports(service, before, taken)
    else:
        _first_ports(service, taken)
    if needs_health_port(spec) and not needs_health_port(before):
        wanted = spec.get("healthCheckNodePort")
        if not wanted:
            spec["healthCheckNodePort"] = _next_port(service, "health", taken)
        elif problem := _port_refusal(wanted, taken):
            told = f"failed to allocate requested HealthCheck NodePort {wanted}: {problem}"
            raise internal(f"Internal error occurred: {told}")


def _first_ports(service: Object, taken: set[int]) -> None:
    """Allocate the ports of a new Service and add them to `taken`. Ports differing only in protocol share one."""
    mine: dict[int, int] = {}
    ports = own_items(service["spec"], "ports")
    for index, port in enumerate(ports):
        number, own = port.get("port", 0), port.get("nodePort", 0)
        if not own and not needs_node_ports(service["spec"]):
            continue
        if number in mine:
            wanted = own if own not in (0, mine[number]) else 0
        else:
            asked = (one.get("nodePort", 0) for one in ports if one.get("port", 0) == number)
            wanted = next(filter(None, asked), 0)
        if wanted:
            _take(service, index, wanted, taken)
        port["nodePort"] = wanted or mine.get(number) or _next_port(service, f"port {index}", taken)
        taken.add(port["nodePort"])
        mine.setdefault(number, port["nodePort"])


def _change_ports(service: Object, before: JsonObject, taken: set[int]) -> None:
    had = {port.get("nodePort", 0) for port in before.get("ports") or ()} - {0}
    ports = own_items(service["spec"], "ports")
    for index, port in enumerate(ports):
        own = port.get("nodePort", 0)
        if own and own not in had:
            _take(service, index, own, taken)
            had.add(own)
        elif not own and needs_node_ports(service["spec"]):
            asked = {one.get("nodePort", 0) for one in ports}
            port["nodePort"] = _next_port(service, f"port {index}", taken | had | asked)
            had.add(port["nodePort"])
    taken |= had


def _take(service: Object, index: int, number: int, taken: set[int]) -> None:
    if problem := _port_refusal(number, taken):
        _check(service, [invalid_value(f"spec.ports[{index}].nodePort", number, problem)])
    taken.add(number)


def _refusal(wanted: str, is_taken: bool) -> str:
    address = parsed_address(wanted)
    if address not in RANGE or address in (RANGE[0], RANGE[-1]):
        return "the provided network does not match the current range"
    return "provided IP is already allocated" if is_taken else ""


def _port_refusal(wanted: int, taken: Collection[int]) -> str:
    if wanted not in PORTS:
        listed = f"{PORTS[0]}-{PORTS[-1]}"
        return f"provided port is not in the valid range. The range of valid ports is {listed}"
    return "provided port is already allocated" if wanted in taken else ""


def _next_port(service: JsonObject, what: str, taken: Collection[int]) -> int:
    number = _free(_drawn(service, what), len(PORTS), {port - PORTS[0] for port in taken})
    if number is None:
        raise internal("Internal error occurred: failed to allocate a nodePort: range is full")
    return PORTS[number]


def _free(start: int, size: int, taken: Collection[int]) -> int | None:
    for step in range(size):
        if (start + step) % size not in taken:
            return (start + step) % size
    return None


def _drawn(service: JsonObject, what: str) -> int:
    """Return a number that is always the same for the same Service."""
    drawn: int = crc32(f"{service['metadata'].get('uid', '')} {what}".encode())
    return drawn


def _key(service: JsonObject) -> Key:
    return Key(service["metadata"].get("namespace", ""), service["metadata"].get("name", ""))


def _check(service: JsonObject, errors: list[FieldError]) -> None:
    if errors:
        raise invalid(_SERVICE, service["metadata"].get("name", ""), errors)
