"""Validation of names, labels and label values as in the API server, and generation of valid names.

The rules are those of `k8s.io/apimachinery/pkg/util/validation`, so that a mistake is reported before a request is
sent.
"""

from __future__ import annotations

import hashlib
import re

_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


def is_dns_label(text: str) -> bool:
    """RFC 1123 label, like names of namespaces: at most 63 of lower case letters, digits and `-`."""
    return _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """RFC 1123 subdomain, like most object names: at most 253 characters, parts joined by dots."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """`name` or `prefix/name`; also the rule for annotation keys and finalizers."""
    prefix, slash, name = text.rpartition("/")
    return _QUALIFIED.fullmatch(name) is not None and (not slash or is_dns_subdomain(prefix))


def is_label_value(text: str) -> bool:
    """Empty, or at most 63 of letters, digits, `-`, `_`, `.`, starting and ending with a letter or digit."""
    return not text or _QUALIFIED.fullmatch(text) is not None


LONGEST_NAME = 63
"""Maximum length of a name that every kind accepts, and that is a valid label value."""

LONGEST_DOTTED = 253

_HASH_DIGITS = 8
_NOT_IN_LABELS, _NOT_IN_SUBDOMAINS = re.compile(r"[^a-z0-9]+"), re.compile(r"[^a-z0-9.]+")
_AROUND_DOTS = re.compile(r"-*\.[-.]*")


def safe_name(*parts: str, limit: int | None = None, dots: bool = False) -> str:
    """A name made of parts that every kind accepts: `safe_name("web", "config")` is `web-config`.

    If the parts joined by dashes are such a name (a DNS label of at most `limit` characters that begins with a letter,
    as the name of a Service must before Kubernetes 1.36), that is the name. Otherwise it is as much of them as fits,
    with dashes for invalid characters, and 8 digits of a hash of all parts. `limit` is at most 63, the default.

    With `dots`, the name may have dots, begin with a digit, and be up to 253 characters long: a DNS subdomain, which
    most kinds accept, but not Services, Namespaces and labels.

    Guaranteed: the same parts give the same name, in every process and version, whatever the parts contain. Not
    guaranteed: that different parts give different names. `("a-b", "c")` and `("a", "b-c")` are the same joined; and
    two hashes of 32 bits collide with a probability of one in four billion.

    Raises ValueError for no parts, for parts that are all empty, and for a limit below 10 or above the longest.
    """
    longest = LONGEST_DOTTED if dots else LONGEST_NAME
    limit = longest if limit is None else limit
    if not 10 <= limit <= longest:
        raise ValueError(f"limit {limit}: between 10 and {longest}")
    joined = "-".join(part for part in parts if part)
    if not joined:
        raise ValueError("a name needs at least one part that is not empty")
    fits = is_dns_subdomain(joined) if dots else is_dns_label(joined) and joined[0].isalpha()
    if len(joined) <= limit and fits:
        return joined
    # Each part is prefixed with its length, so that different lists of parts have different bytes.
    encoded = (part.encode(errors="surrogatepass") for part in parts)
    whole = b"".join(b"%d:%s" % (len(data), data) for data in encoded)
    digest = hashlib.sha256(whole).hexdigest()[:_HASH_DIGITS]
    readable = (_NOT_IN_SUBDOMAINS if dots else _NOT_IN_LABELS).sub("-", joined.lower())
    readable = _AROUND_DOTS.sub(".", readable).strip("-.")
    if not dots and not readable[:1].isalpha():
        readable = f"n-{readable}".rstrip("-")
    readable = readable[: limit - _HASH_DIGITS - 1].rstrip("-.")
    return f"{readable}-{digest}" if readable else digest
