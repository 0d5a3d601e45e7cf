"""Validation of IP addresses and CIDRs in fields, with the server's messages.

Source: k8s.io/apimachinery `util/validation`, with StrictIPCIDRValidation; k8s.io/kubernetes
`pkg/apis/core/validation`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from kubeshard_apiserver.status import FieldError, invalid_value

Address = IPv4Address | IPv6Address
Block = IPv4Network | IPv6Network
_LEADING_ZEROS = re.compile(r"(?<![0-9a-fA-F:.])0+(?=[0-9])|(?<=\.)0+(?=[0-9])")
_PREFIX = re.compile(r"[0-9]+")


def parsed_address(text: str) -> Address | None:
    """Parse an address, or return None if it is malformed. Leading zeros are accepted."""
    try:
        return None if "%" in text else ip_address(_LEADING_ZEROS.sub("", text))
    except ValueError:
        return None


def is_standard(text: str) -> bool:
    """Report whether an address has no leading zeros and is not an IPv4-mapped IPv6 address."""
    found = parsed_address(text)
    return not _LEADING_ZEROS.search(text) and not (isinstance(found, IPv6Address) and found.ipv4_mapped)


def parsed_block(text: str) -> Block | None:
    address, slash, prefix = text.partition("/")
    found = parsed_address(address)
    if not slash or found is None or not _PREFIX.fullmatch(prefix) or int(prefix) > found.max_prefixlen:
        return None
    return ip_network(f"{found}/{int(prefix)}", strict=False)


def address_errors(path: str, text: str, before: Collection[str] = ()) -> list[FieldError]:
    """Validate an address. Those in `before` were already there and are not checked again."""
    if text in before:
        return []
    found = parsed_address(text)
    if found is None:
        return [invalid_value(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")]
    if _LEADING_ZEROS.search(text):
        return [invalid_value(path, text, "must not have leading 0s")]
    if isinstance(found, IPv6Address) and found.ipv4_mapped:
        return [invalid_value(path, text, "must not be an IPv4-mapped IPv6 address")]
    return []


def canonical_address_errors(path: str, text: str) -> list[FieldError]:
    errors, found = address_errors(path, text), parsed_address(text)
    if not errors and str(found) != text:
        errors = [invalid_value(path, text, f'must be in canonical form ("{found}")')]
    return errors


def block_errors(path: str, text: str, before: Collection[str] = ()) -> list[FieldError]:
    if text in before:
        return []
    found = parsed_block(text)
    if found is None:
        problem = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        return [invalid_value(path, text, problem)]
    address, _, prefix = text.partition("/")
    if _LEADING_ZEROS.search(address) or str(int(prefix)) != prefix:
        return [invalid_value(path, text, "must not have leading 0s in IP or prefix length")]
    given = parsed_address(address)
    if isinstance(given, IPv6Address) and given.ipv4_mapped:
        return [invalid_value(path, text, "must not have an IPv4-mapped IPv6 address")]
    if given != found.network_address:
        return [invalid_value(path, text, "must not have bits set beyond the prefix length")]
    return []


def endpoint_errors(path: str, text: str) -> list[FieldError]:
    """Reject addresses that cannot receive traffic."""
    found = parsed_address(text)
    if found is None:
        return [invalid_value(path, text, "must be a valid IP address")]
    multicast = ip_network("224.0.0.0/24") if found.version == 4 else ip_network("ff02::/16")
    checks = {
        f"may not be unspecified ({text})": found.is_unspecified,
        "may not be in the loopback range (127.0.0.0/8, ::1/128)": found.is_loopback,
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)": found.is_link_local,
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)": found in multicast,
    }
    return [invalid_value(path, text, problem) for problem, holds in checks.items() if holds]


def family_of(text: str) -> str:
    found = parsed_address(text)
    return "IPv6" if found is not None and found.version == 6 else "IPv4"
