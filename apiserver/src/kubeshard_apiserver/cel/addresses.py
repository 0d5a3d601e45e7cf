"""IP addresses and networks. As on the server, zones and IPv4-mapped IPv6 addresses are not allowed."""

from __future__ import annotations

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from typing import Any

_IP, _CIDR = "$ip", "$cidr"


def ip(text: str) -> dict[str, Any]:
    return {_IP: str(_parsed(text))}


def is_canonical(text: str) -> bool:
    return str(_parsed(text)) == text


def cidr(text: str) -> dict[str, Any]:
    address, slash, length = text.partition("/")
    _parsed(address)
    if not slash or not length.isdecimal():
        raise ValueError(f"CIDR address parse error: {text}")
    return {_CIDR: str(ip_interface(text))}


def family(value: dict[str, Any]) -> int:
    return _address(value).version


def is_unspecified(value: dict[str, Any]) -> bool:
    return _address(value).is_unspecified


def is_loopback(value: dict[str, Any]) -> bool:
    return _address(value).is_loopback


def is_link_local_multicast(value: dict[str, Any]) -> bool:
    address = _address(value)
    network = "224.0.0.0/24" if address.version == 4 else "ff02::/16"
    return address in ip_network(network)


def is_link_local_unicast(value: dict[str, Any]) -> bool:
    return _address(value).is_link_local


def is_global_unicast(value: dict[str, Any]) -> bool:
    """Whether the address is global unicast as defined by Go, which includes private addresses."""
    address = _address(value)
    other = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not other and str(address) != "255.255.255.255"


def contains_ip(value: dict[str, Any], given: dict[str, Any] | str) -> bool:
    address = _parsed(given) if isinstance(given, str) else _address(given)
    return address in _network(value)


def contains_cidr(value: dict[str, Any], given: dict[str, Any] | str) -> bool:
    outer, inner = _network(value), _network(cidr(given) if isinstance(given, str) else given)
    return (
        outer.version == inner.version
        and outer.prefixlen <= inner.prefixlen
        and inner.network_address in outer
    )


def ip_of(value: dict[str, Any]) -> dict[str, Any]:
    return {_IP: str(ip_interface(_tagged(value, _CIDR)).ip)}


def masked(value: dict[str, Any]) -> dict[str, Any]:
    return {_CIDR: str(_network(value))}


def prefix_length(value: dict[str, Any]) -> int:
    return _network(value).prefixlen


def _parsed(text: str) -> IPv4Address | IPv6Address:
    try:
        address = ip_address(text)
    except ValueError:
        raise ValueError(f'IP Address "{text}" parse error during conversion from string') from None
    if isinstance(address, IPv6Address) and (address.scope_id or address.ipv4_mapped):
        raise ValueError(f'IP Address "{text}": zones and IPv4-mapped IPv6 addresses are not allowed')
    return address


def _address(value: dict[str, Any]) -> IPv4Address | IPv6Address:
    return ip_address(_tagged(value, _IP))


def _network(value: dict[str, Any]) -> IPv4Network | IPv6Network:
    return ip_interface(_tagged(value, _CIDR)).network


def _tagged(value: dict[str, Any], mark: str) -> str:
    if mark not in value:
        raise ValueError("no such overload")
    text: str = value[mark]
    return text
