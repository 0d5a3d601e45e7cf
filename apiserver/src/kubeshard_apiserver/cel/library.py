"""The declarations of Kubernetes' own functions.

Types that Kubernetes adds (Quantity, URL, IP, CIDR, Semver) are maps with one marked entry, because the implementation
of the language does not support custom types. They compare equal as on the real server, but `type()` returns `map` for
them. Source: k8s.io/apiserver `pkg/cel/library`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from kubeshard_apiserver.cel import addresses, authorization, comparables, lists_and_texts, urls

_LATEST = ("sets", "lists", "optional", "two-var-comprehensions")
EXTENSIONS = ({"name": "strings", "version": 2}, *({"name": name} for name in _LATEST))


@dataclass(frozen=True)
class Overload:
    returns: str
    parameters: tuple[str, ...]
    is_member: bool
    function: Callable[..., Any]


Functions = tuple[Overload, ...]
Entry = tuple[str, str, tuple[str, ...], Callable[..., Any]]


@cache
def functions() -> dict[str, Functions]:
    """Returns the functions by name. The type `MAP` represents all of Kubernetes' own types."""
    members: list[Entry] = [
        ("isSorted", "BOOL", ("LIST",), lists_and_texts.is_sorted),
        ("sum", "DYN", ("LIST",), lists_and_texts.total),
        ("min", "DYN", ("LIST",), lists_and_texts.smallest),
        ("max", "DYN", ("LIST",), lists_and_texts.largest),
        ("find", "STRING", ("STRING", "STRING"), lists_and_texts.find),
        ("findAll", "LIST", ("STRING", "STRING"), lists_and_texts.find_all),
        ("findAll", "LIST", ("STRING", "STRING", "INT"), lists_and_texts.find_all),
        ("getScheme", "STRING", ("MAP",), urls.scheme),
        ("getHost", "STRING", ("MAP",), urls.host),
        ("getHostname", "STRING", ("MAP",), urls.host_name),
        ("getPort", "STRING", ("MAP",), urls.port),
        ("getEscapedPath", "STRING", ("MAP",), urls.escaped_path),
        ("getQuery", "MAP", ("MAP",), urls.query),
        ("isInteger", "BOOL", ("MAP",), comparables.is_integer),
        ("asInteger", "INT", ("MAP",), comparables.as_integer),
        ("asApproximateFloat", "DOUBLE", ("MAP",), comparables.as_float),
        ("sign", "INT", ("MAP",), comparables.sign),
        ("add", "MAP", ("MAP", "MAP"), comparables.add),
        ("add", "MAP", ("MAP", "INT"), comparables.add),
        ("sub", "MAP", ("MAP", "MAP"), comparables.sub),
        ("sub", "MAP", ("MAP", "INT"), comparables.sub),
        ("compareTo", "INT", ("MAP", "MAP"), comparables.compare),
        ("isGreaterThan", "BOOL", ("MAP", "MAP"), lambda one, other: comparables.compare(one, other) > 0),
        ("isLessThan", "BOOL", ("MAP", "MAP"), lambda one, other: comparables.compare(one, other) < 0),
        ("major", "INT", ("MAP",), lambda version: comparables.part(version, 0)),
        ("minor", "INT", ("MAP",), lambda version: comparables.part(version, 1)),
        ("patch", "INT", ("MAP",), lambda version: comparables.part(version, 2)),
        ("family", "INT", ("MAP",), addresses.family),
        ("isUnspecified", "BOOL", ("MAP",), addresses.is_unspecified),
        ("isLoopback", "BOOL", ("MAP",), addresses.is_loopback),
        ("isLinkLocalMulticast", "BOOL", ("MAP",), addresses.is_link_local_multicast),
        ("isLinkLocalUnicast", "BOOL", ("MAP",), addresses.is_link_local_unicast),
        ("isGlobalUnicast", "BOOL", ("MAP",), addresses.is_global_unicast),
        ("containsIP", "BOOL", ("MAP", "STRING"), addresses.contains_ip),
        ("containsIP", "BOOL", ("MAP", "MAP"), addresses.contains_ip),
        ("containsCIDR", "BOOL", ("MAP", "STRING"), addresses.contains_cidr),
        ("containsCIDR", "BOOL", ("MAP", "MAP"), addresses.contains_cidr),
        ("ip", "MAP", ("MAP",), addresses.ip_of),
        ("masked", "MAP", ("MAP",), addresses.masked),
        ("prefixLength", "INT", ("MAP",), addresses.prefix_length),
        *(
            (field, "MAP", ("MAP", "STRING"), authorization.step(field))
            for field in ("path", "group", "resource", "subresource", "namespace", "name")
        ),
        ("serviceAccount", "MAP", ("MAP", "STRING", "STRING"), authorization.service_account),
        ("check", "MAP", ("MAP", "STRING"), authorization.check),
        ("allowed", "BOOL", ("MAP",), authorization.allowed),
        ("reason", "STRING", ("MAP",), authorization.reason),
        ("errored", "BOOL", ("MAP",), authorization.errored),
        ("error", "STRING", ("MAP",), authorization.error),
    ]
    plain: list[Entry] = [
        ("url", "MAP", ("STRING",), urls.url),
        ("isURL", "BOOL", ("STRING",), lambda text: _succeeds(urls.url, text)),
        ("quantity", "MAP", ("STRING",), comparables.quantity),
        ("isQuantity", "BOOL", ("STRING",), lambda text: _succeeds(comparables.quantity, text)),
        ("semver", "MAP", ("STRING",), comparables.semver),
        ("semver", "MAP", ("STRING", "BOOL"), comparables.semver),
        ("isSemver", "BOOL", ("STRING",), lambda text: _succeeds(comparables.semver, text)),
        ("isSemver", "BOOL", ("STRING", "BOOL"), lambda *given: _succeeds(comparables.semver, *given)),
        ("ip", "MAP", ("STRING",), addresses.ip),
        ("isIP", "BOOL", ("STRING",), lambda text: _succeeds(addresses.ip, text)),
        ("ip.isCanonical", "BOOL", ("STRING",), addresses.is_canonical),
        ("cidr", "MAP", ("STRING",), addresses.cidr),
        ("isCIDR", "BOOL", ("STRING",), lambda text: _succeeds(addresses.cidr, text)),
    ]
    found: dict[str, Functions] = {}
    for is_member, table in ((True, members), (False, plain)):
        for name, returns, parameters, function in table:
            overload = Overload(returns, parameters, is_member, function)
            found[name] = (*found.get(name, ()), overload)
    return found


def _succeeds(function: Callable[..., Any], *arguments: Any) -> bool:
    try:
        function(*arguments)
    except ValueError:
        return False
    return True
