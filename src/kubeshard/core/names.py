"""Which strings the API server accepts as names, labels and label values.

The rules of `k8s.io/apimachinery/pkg/util/validation`, so that a mistake is reported before a request is
made.
"""

from __future__ import annotations

import re

_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


def is_dns_label(text: str) -> bool:
    """RFC 1123 label, as names of namespaces are: at most 63 of lower case letters, digits and `-`."""
    return _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """RFC 1123 subdomain, as most object names are: at most 253 characters, parts joined by dots."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """`name` or `prefix/name`; also the rule for annotation keys and finalizers."""
    prefix, slash, name = text.rpartition("/")
    return _QUALIFIED.fullmatch(name) is not None and (not slash or is_dns_subdomain(prefix))


def is_label_value(text: str) -> bool:
    """Empty, or at most 63 of letters, digits, `-`, `_`, `.` that begin and end with a letter or digit."""
    return not text or _QUALIFIED.fullmatch(text) is not None
