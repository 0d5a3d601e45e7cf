"""Formats of names in specs, with the server's messages. A rule returns the problems of a string, and `wrong` turns
them into field errors.

Source: k8s.io/apimachinery `util/validation`, `api/validate/content`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kubeshard_apiserver.status import FieldError, invalid_value

Rule = Callable[[str], list[str]]

T = TypeVar("T")

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SOUND_QUALIFIED = re.compile(
    r"(?:(?=[^/]{1,253}/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_DNS_1035 = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_WILDCARD = re.compile(r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_HEADER = re.compile(r"[-A-Za-z0-9]+")
_PERCENT = re.compile(r"[0-9]+%")
_LONGEST_NODE_ID = 256
_LONGEST_VALUE = 63


def wrong(path: str, text: str, rule: Rule) -> list[FieldError]:
    return [invalid_value(path, text, problem) for problem in rule(text)]


def dns_label(text: str) -> list[str]:
    problems = ["must be no more than 63 characters"] if len(text) > 63 else []
    if _LABEL.fullmatch(text):
        return problems
    if _SUBDOMAIN.fullmatch(text):
        return [*problems, "must not contain dots"]
    return [
        *problems,
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
        "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
    ]


def dns_subdomain(text: str) -> list[str]:
    problems = ["must be no more than 253 characters"] if len(text) > 253 else []
    if _SUBDOMAIN.fullmatch(text):
        return problems
    return [
        *problems,
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
        "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    ]


def wildcard_subdomain(text: str) -> list[str]:
    """Validate a subdomain, which may start with `*.`."""
    if "*" not in text:
        return dns_subdomain(text)
    problems = ["must be no more than 253 characters"] if len(text) > 253 else []
    if not _WILDCARD.fullmatch(text):
        problems.append(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist "
            "of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. "
            "'*.example.com', regex used for validation is "
            "'\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        )
    return problems


def qualified_name(text: str) -> list[str]:
    """Validate the name of a label, resource or condition: `name` or `domain/name`."""
    if _SOUND_QUALIFIED.fullmatch(text):
        return []
    pattern = (
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
        "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    )
    *prefixes, name = text.split("/")
    if len(prefixes) > 1:
        return [
            f"a valid label key {pattern} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    problems = []
    if prefixes:
        problems = [f"prefix part {problem}" for problem in dns_subdomain(prefixes[0])]
        if not prefixes[0]:
            problems = ["prefix part must be non-empty"]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part must be no more than 63 bytes")
    return problems if _QUALIFIED.fullmatch(name) else [*problems, f"name part {pattern}"]


def label_value(text: str) -> list[str]:
    problems = ["must be no more than 63 bytes"] if len(text) > 63 else []
    if _LABEL_VALUE.fullmatch(text):
        return problems
    return [
        *problems,
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
        "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
        "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    ]


def dns_1035_label(text: str) -> list[str]:
    problems = ["must be no more than 63 bytes"] if len(text) > 63 else []
    if _DNS_1035.fullmatch(text):
        return problems
    return [
        *problems,
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
        "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation "
        "is '[a-z]([-a-z0-9]*[a-z0-9])?')",
    ]


def definition_name(text: str) -> list[str]:
    """Validate the name of a resource or version in a definition."""
    problems = dns_1035_label(text)
    return [",".join(problems)] if problems else []


def definition_kind(text: str) -> list[str]:
    problems = dns_1035_label(text.lower())
    return [f"may have mixed case, but should otherwise match: {','.join(problems)}"] if problems else []


def driver_name(text: str) -> list[str]:
    """Validate the name of a storage driver. An empty name is reported as missing, not as malformed."""
    return dns_subdomain(text.lower()) if text else []


def caseless_subdomain(text: str) -> list[str]:
    """Validate a subdomain, which may have upper-case letters."""
    if not text or not dns_subdomain(text.lower()):
        return []
    return [
        "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an "
        "alphanumeric character (e.g. 'Example.com', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    ]


def condition_reason(text: str) -> list[str]:
    if _REASON.fullmatch(text):
        return []
    return [
        "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
        "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
        "'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
        "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
    ]


def port_name(text: str) -> list[str]:
    found = {
        "must be no more than 15 characters": len(text) > 15,
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)": not re.fullmatch(
            "[-a-z0-9]+", text
        ),
        "must contain at least one letter (a-z)": not re.search("[a-z]", text),
        "must not contain consecutive hyphens": "--" in text,
        "must not begin or end with a hyphen": text.startswith("-") or text.endswith("-"),
    }
    return [problem for problem, holds in found.items() if holds]


def env_name(text: str) -> list[str]:
    if not text:
        return ["environment variable name must be non-empty"]
    if all(" " <= character <= "~" and character != "=" for character in text):
        return []
    return [
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
    ]


def config_key(text: str) -> list[str]:
    problems = ["must be no more than 253 characters"] if len(text) > 253 else []
    if not _CONFIG_KEY.fullmatch(text):
        problems.append(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
            "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
        )
    if text in (".", ".."):
        problems.append(f"must not be '{text}'")
    elif text.startswith(".."):
        problems.append("must not start with '..'")
    return problems


def path_segment(text: str) -> list[str]:
    """Validate a name that is part of a URL."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in text]


def no_backsteps(text: str) -> list[str]:
    return ["must not contain '..'"] if ".." in text.split("/") else []


def relative_path(text: str) -> list[str]:
    return (["must be a relative path"] if text.startswith("/") else []) + no_backsteps(text)


def local_path(text: str) -> list[str]:
    """Validate the path of a file in a volume."""
    problems = relative_path(text)
    if text.startswith("..") and not text.startswith("../"):
        problems.append("must not start with '..'")
    return problems


def absolute_path(text: str) -> list[str]:
    return [] if text.startswith("/") else ["must be an absolute path"]


def node_id(text: str) -> list[str]:
    """Validate the ID that a storage driver assigns to a node."""
    return [f"must be {_LONGEST_NODE_ID} characters or less"] if len(text) > _LONGEST_NODE_ID else []


def header_name(text: str) -> list[str]:
    if _HEADER.fullmatch(text):
        return []
    return [
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for "
        "validation is '[-A-Za-z0-9]+')"
    ]


def percent(text: str) -> list[str]:
    if _PERCENT.fullmatch(text):
        return []
    return [
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used "
        "for validation is '[0-9]+%')"
    ]


def in_range(path: str, value: int, low: int, high: int) -> list[FieldError]:
    if low <= value <= high:
        return []
    return [invalid_value(path, value, f"must be between {low} and {high}, inclusive")]


def port_number(path: str, port: int) -> list[FieldError]:
    return in_range(path, port, 1, 65535)


def port_number_or_name(path: str, port: int | str) -> list[FieldError]:
    return port_number(path, port) if isinstance(port, int) else wrong(path, port, port_name)


def not_negative(path: str, value: int | None) -> list[FieldError]:
    if value is None or value >= 0:
        return []
    return [invalid_value(path, value, "must be greater than or equal to 0")]


def labels(path: str, given: Mapping[str, str] | None) -> list[FieldError]:
    errors: list[FieldError] = []
    for label in (given or {}).items():
        if label in _sound_labels:
            continue
        key, value = label
        if _SOUND_QUALIFIED.fullmatch(key) and len(value) <= _LONGEST_VALUE and _LABEL_VALUE.fullmatch(value):
            _remember(_sound_labels, label)
        else:
            errors += wrong(path, key, qualified_name) + wrong(path, value, label_value)
    return errors


_sound_labels: set[tuple[str, str]] = set()
"""Most labels are on several objects, and in selectors and templates."""
_MOST_SOUND = 8192


def annotation_keys(path: str, given: Mapping[str, str] | None) -> list[FieldError]:
    errors = []
    for key in given or {}:
        if key in _sound_keys:
            continue
        if _SOUND_QUALIFIED.fullmatch(key.lower()):
            _remember(_sound_keys, key)
            continue
        errors += [invalid_value(path, key, problem) for problem in qualified_name(key.lower())]
    return errors


_sound_keys: set[str] = set()


def _remember(sound: set[T], item: T) -> None:
    if len(sound) >= _MOST_SOUND:
        sound.clear()
    sound.add(item)


def not_found_value(path: str, value: Any, detail: str = "") -> FieldError:
    """Return the error for a name that refers to nothing."""
    return FieldError(path, "FieldValueNotFound", f'Not found: "{value}"' + (f": {detail}" if detail else ""))
