"""Kubernetes' own functions: on lists, strings, URLs, quantities, semantic versions, IP addresses, networks, formats.

Types that Kubernetes adds (Quantity, URL, IP, CIDR, Semver, Format) are maps with one marked entry, because the
implementation of the language does not support custom types. They compare equal as on the real server, but `type()`
returns `map` for them. Equal quantities compare equal however they are written.

The functions that compare items fail for lists whose items cannot be compared. Patterns use Python's syntax here and
RE2's on the real server; whatever both support has the same meaning. As on the server, zones and IPv4-mapped IPv6
addresses are not allowed. Source: k8s.io/apiserver `pkg/cel/library`; k8s.io/apimachinery `pkg/api/resource`;
semver.org 2.0.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_interface, ip_network
from itertools import pairwise
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from kubeshard_apiserver.cel import authorization
from kubeshard_apiserver.schema import name_formats
from kubeshard_apiserver.schema.formats import string_format

_LATEST = ("sets", "lists", "optional", "two-var-comprehensions")
EXTENSIONS = ({"name": "strings", "version": 2}, *({"name": name} for name in _LATEST))
_QUANTITY, _VERSION, _URL, _IP, _CIDR = "$quantity", "$semver", "$url", "$ip", "$cidr"
_FORMAT, OPTIONAL_MARK = "$format", "$optional"


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
        ("isSorted", "BOOL", ("LIST",), _is_sorted),
        ("sum", "DYN", ("LIST",), _sum),
        ("min", "DYN", ("LIST",), lambda items: _extreme(items, min, "min")),
        ("max", "DYN", ("LIST",), lambda items: _extreme(items, max, "max")),
        ("find", "STRING", ("STRING", "STRING"), _find),
        ("findAll", "LIST", ("STRING", "STRING"), _find_all),
        ("findAll", "LIST", ("STRING", "STRING", "INT"), _find_all),
        ("getScheme", "STRING", ("MAP",), lambda url: _parts_of_url(url).scheme),
        ("getHost", "STRING", ("MAP",), _host),
        ("getHostname", "STRING", ("MAP",), _host_name),
        ("getPort", "STRING", ("MAP",), _port),
        ("getEscapedPath", "STRING", ("MAP",), lambda url: _parts_of_url(url).path),
        ("getQuery", "MAP", ("MAP",), lambda url: parse_qs(_parts_of_url(url).query, keep_blank_values=True)),
        ("isInteger", "BOOL", ("MAP",), _is_integer),
        ("asInteger", "INT", ("MAP",), _as_integer),
        ("asApproximateFloat", "DOUBLE", ("MAP",), lambda quantity: float(_number(quantity))),
        ("add", "MAP", ("MAP", "MAP"), lambda one, other: _quantity_of(_number(one) + _number(other))),
        ("add", "MAP", ("MAP", "INT"), lambda one, other: _quantity_of(_number(one) + _number(other))),
        ("sub", "MAP", ("MAP", "MAP"), lambda one, other: _quantity_of(_number(one) - _number(other))),
        ("sub", "MAP", ("MAP", "INT"), lambda one, other: _quantity_of(_number(one) - _number(other))),
        ("compareTo", "INT", ("MAP", "MAP"), _compare),
        ("isGreaterThan", "BOOL", ("MAP", "MAP"), lambda one, other: _compare(one, other) > 0),
        ("isLessThan", "BOOL", ("MAP", "MAP"), lambda one, other: _compare(one, other) < 0),
        ("major", "INT", ("MAP",), lambda version: int(_parts_of_version(version)[0])),
        ("minor", "INT", ("MAP",), lambda version: int(_parts_of_version(version)[1])),
        ("patch", "INT", ("MAP",), lambda version: int(_parts_of_version(version)[2])),
        ("family", "INT", ("MAP",), lambda ip: _address(ip).version),
        ("isUnspecified", "BOOL", ("MAP",), lambda ip: _address(ip).is_unspecified),
        ("isLoopback", "BOOL", ("MAP",), lambda ip: _address(ip).is_loopback),
        ("isLinkLocalMulticast", "BOOL", ("MAP",), _is_link_local_multicast),
        ("isLinkLocalUnicast", "BOOL", ("MAP",), lambda ip: _address(ip).is_link_local),
        ("isGlobalUnicast", "BOOL", ("MAP",), _is_global_unicast),
        ("containsIP", "BOOL", ("MAP", "STRING"), _contains_ip),
        ("containsIP", "BOOL", ("MAP", "MAP"), _contains_ip),
        ("containsCIDR", "BOOL", ("MAP", "STRING"), _contains_cidr),
        ("containsCIDR", "BOOL", ("MAP", "MAP"), _contains_cidr),
        ("ip", "MAP", ("MAP",), lambda cidr: {_IP: str(ip_interface(_tagged(cidr, _CIDR)).ip)}),
        ("masked", "MAP", ("MAP",), lambda cidr: {_CIDR: str(_network(cidr))}),
        ("prefixLength", "INT", ("MAP",), lambda cidr: _network(cidr).prefixlen),
        ("validate", "MAP", ("MAP", "STRING"), _validate),
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
        ("url", "MAP", ("STRING",), _url),
        ("isURL", "BOOL", ("STRING",), lambda text: _succeeds(_url, text)),
        ("quantity", "MAP", ("STRING",), _quantity),
        ("isQuantity", "BOOL", ("STRING",), lambda text: _succeeds(_quantity, text)),
        ("sign", "INT", ("MAP",), _sign),
        ("semver", "MAP", ("STRING",), _semver),
        ("semver", "MAP", ("STRING", "BOOL"), _semver),
        ("isSemver", "BOOL", ("STRING",), lambda text: _succeeds(_semver, text)),
        ("isSemver", "BOOL", ("STRING", "BOOL"), lambda *given: _succeeds(_semver, *given)),
        ("ip", "MAP", ("STRING",), _ip),
        ("isIP", "BOOL", ("STRING",), lambda text: _succeeds(_ip, text)),
        ("ip.isCanonical", "BOOL", ("STRING",), lambda text: str(_parsed_address(text)) == text),
        ("cidr", "MAP", ("STRING",), _cidr),
        ("isCIDR", "BOOL", ("STRING",), lambda text: _succeeds(_cidr, text)),
        *((f"format.{name}", "MAP", (), lambda name=name: {_FORMAT: name}) for name in _FORMATS),
        ("format.named", "MAP", ("STRING",), _named_format),
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


def _tagged(value: dict[str, Any], mark: str) -> str:
    if mark not in value:
        raise ValueError("no such overload")
    text: str = value[mark]
    return text


def _is_sorted(items: list[Any]) -> bool:
    try:
        return all(one <= other for one, other in pairwise(items))
    except TypeError:
        raise ValueError("no such overload") from None


def _sum(items: list[Any]) -> Any:
    if not all(isinstance(item, int | float | timedelta) and not isinstance(item, bool) for item in items):
        raise ValueError("no such overload")
    return sum(items[1:], items[0]) if items else 0


def _extreme(items: list[Any], choose: Any, name: str) -> Any:
    if not items:
        raise ValueError(f"{name} called on empty list")
    try:
        return choose(items)
    except TypeError:
        raise ValueError("no such overload") from None


def _find(text: str, pattern: str) -> str:
    found = _pattern(pattern).search(text)
    return found.group(0) if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [match.group(0) for match in _pattern(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


def _pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"Illegal regex: {error}") from None


def _url(text: str) -> dict[str, Any]:
    parts = urlsplit(text)
    if not (parts.scheme or text.startswith("/")) or " " in text:
        raise ValueError(
            f'URL parse error during conversion from string: parse "{text}": invalid URI for request'
        )
    _ = parts.port  # raises if it is not a port
    return {_URL: text}


def _host_name(value: dict[str, Any]) -> str:
    host = _host(value)
    return host[1 : host.index("]")] if host.startswith("[") else host.partition(":")[0]


def _host(value: dict[str, Any]) -> str:
    return _parts_of_url(value).netloc.rpartition("@")[2]


def _port(value: dict[str, Any]) -> str:
    number = _parts_of_url(value).port
    return "" if number is None else str(number)


def _parts_of_url(value: dict[str, Any]) -> SplitResult:
    return urlsplit(_tagged(value, _URL))


_QUANTITY_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([numkMGTPE]|[KMGTPE]i)?|[eE]([+-]?\d+))")
_DECIMAL = dict(zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True))
_SMALLEST = 10**9
_PART = "(0|[1-9][0-9]*)"
_PRE = r"(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_VERSION_FORM = re.compile(
    rf"{_PART}\.{_PART}\.{_PART}(?:-({_PRE}(?:\.{_PRE})*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?"
)
_LOOSE = re.compile(r"v?0*(\d+)(?:\.0*(\d+))?(?:\.0*(\d+))?(.*)")


def _quantity(text: str) -> dict[str, Any]:
    """Parses a quantity, rounding it up to the nearest nano as the server does."""
    found = _QUANTITY_FORM.fullmatch(text)
    if found is None:
        raise ValueError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    number, suffix, exponent = found.groups()
    value = Fraction(number)
    if exponent:
        value *= Fraction(10) ** int(exponent)
    elif suffix and suffix.endswith("i"):
        value *= 1024 ** ("KMGTPE".index(suffix[0]) + 1)
    elif suffix:
        value *= Fraction(10) ** _DECIMAL[suffix]
    nanos = abs(value) * _SMALLEST
    rounded = Fraction(-(-nanos.numerator // nanos.denominator), _SMALLEST)
    return _quantity_of(rounded if value >= 0 else -rounded)


def _number(value: dict[str, Any] | int) -> Fraction:
    return Fraction(value if isinstance(value, int) else _tagged(value, _QUANTITY))


def _is_integer(value: dict[str, Any]) -> bool:
    exact = _number(value)
    return exact.denominator == 1 and -(2**63) <= exact < 2**63


def _as_integer(value: dict[str, Any]) -> int:
    if not _is_integer(value):
        raise ValueError("cannot convert value to integer")
    return int(_number(value))


def _sign(value: dict[str, Any]) -> int:
    exact = _number(value)
    return (exact > 0) - (exact < 0)


def _quantity_of(value: Fraction) -> dict[str, Any]:
    return {_QUANTITY: str(value)}


def _semver(text: str, normalize: bool = False) -> dict[str, Any]:
    if normalize and (loose := _LOOSE.fullmatch(text.strip())):
        major, minor, patch, rest = loose.groups()
        text = f"{major}.{minor or 0}.{patch or 0}{rest}"
    if not _VERSION_FORM.fullmatch(text):
        raise ValueError(f"semver parse error: {text}")
    return {_VERSION: text}


def _compare(one: dict[str, Any], other: dict[str, Any]) -> int:
    """Compares two versions or two quantities. Returns -1, 0 or 1."""
    before, after = (
        (_number(one), _number(other)) if _QUANTITY in one else (_precedence(one), _precedence(other))
    )
    return (before > after) - (before < after)


def _precedence(version: dict[str, Any]) -> Any:
    major, minor, patch, pre, _ = _parts_of_version(version)
    identifiers = [
        (not item.isdecimal(), int(item) if item.isdecimal() else item) for item in (pre or "").split(".")
    ]
    return int(major), int(minor), int(patch), not pre, identifiers


def _parts_of_version(version: dict[str, Any]) -> tuple[Any, ...]:
    found = _VERSION_FORM.fullmatch(version.get(_VERSION, ""))
    if found is None:
        raise ValueError("no such overload")
    return found.groups()


def _ip(text: str) -> dict[str, Any]:
    return {_IP: str(_parsed_address(text))}


def _cidr(text: str) -> dict[str, Any]:
    address, slash, length = text.partition("/")
    _parsed_address(address)
    if not slash or not length.isdecimal():
        raise ValueError(f"CIDR address parse error: {text}")
    return {_CIDR: str(ip_interface(text))}


def _is_link_local_multicast(value: dict[str, Any]) -> bool:
    address = _address(value)
    network = "224.0.0.0/24" if address.version == 4 else "ff02::/16"
    return address in ip_network(network)


def _is_global_unicast(value: dict[str, Any]) -> bool:
    """Whether the address is global unicast as defined by Go, which includes private addresses."""
    address = _address(value)
    other = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not other and str(address) != "255.255.255.255"


def _contains_ip(value: dict[str, Any], given: dict[str, Any] | str) -> bool:
    address = _parsed_address(given) if isinstance(given, str) else _address(given)
    return address in _network(value)


def _contains_cidr(value: dict[str, Any], given: dict[str, Any] | str) -> bool:
    outer, inner = _network(value), _network(_cidr(given) if isinstance(given, str) else given)
    return (
        outer.version == inner.version
        and outer.prefixlen <= inner.prefixlen
        and inner.network_address in outer
    )


def _parsed_address(text: str) -> IPv4Address | IPv6Address:
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


def _uri(text: str) -> list[str]:
    is_uri = string_format("uri")
    if is_uri is not None and is_uri(text):
        return []
    return [f'parse "{text}": ' + ("invalid URI for request" if text else "empty url")]


def _of_strings(name: str, problem: str) -> name_formats.Rule:
    holds = string_format(name)
    return lambda text: [] if holds is None or holds(text) else [problem]


def _prefix(rule: name_formats.Rule) -> name_formats.Rule:
    """The rule for the beginning of a name, to which more is added: it may end with a dash."""
    return lambda text: rule(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


_FORMATS: Mapping[str, name_formats.Rule] = {
    "dns1123Label": name_formats.dns_label,
    "dns1123Subdomain": name_formats.dns_subdomain,
    "dns1035Label": name_formats.dns_1035_label,
    "qualifiedName": name_formats.qualified_name,
    "dns1123LabelPrefix": _prefix(name_formats.dns_label),
    "dns1123SubdomainPrefix": _prefix(name_formats.dns_subdomain),
    "dns1035LabelPrefix": _prefix(name_formats.dns_1035_label),
    "labelValue": name_formats.label_value,
    "uri": _uri,
    "uuid": _of_strings("uuid", "does not match the UUID format"),
    "byte": _of_strings("byte", "invalid base64"),
    "date": _of_strings("date", "invalid date"),
    "datetime": _of_strings("datetime", "invalid datetime"),
}


def _named_format(name: str) -> dict[str, Any]:
    return {OPTIONAL_MARK: {_FORMAT: name}} if name in _FORMATS else {}


def _validate(value: dict[str, Any], text: str) -> dict[str, Any]:
    problems = _FORMATS[_tagged(value, _FORMAT)](text)
    return {OPTIONAL_MARK: problems} if problems else {}


_LITERAL = r"""[rR]?(?:\"\"\"(?s:.*?)\"\"\"|'''(?s:.*?)'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
_TOKEN = re.compile(rf"{_LITERAL}|//[^\n]*|(?P<opens>\.validate\s*\(|\bformat\s*\.\s*named\s*\()|[()]")


def with_optionals(expression: str) -> str:
    """Returns the expression with the results of functions that return an optional value made such values: functions
    of our own can only return a map with one entry, or none, and selecting it as `[?"name"]` does the rest.
    """
    if "validate" not in expression and "named" not in expression:
        return expression
    pieces, open_calls, at = [], [], 0
    for token in _TOKEN.finditer(expression):
        pieces.append(expression[at : token.end()])
        at = token.end()
        if token["opens"] or token[0] == "(":
            open_calls.append(bool(token["opens"]))
        elif token[0] == ")" and open_calls and open_calls.pop():
            pieces.append(f'[?"{OPTIONAL_MARK}"]')
    return "".join((*pieces, expression[at:]))
