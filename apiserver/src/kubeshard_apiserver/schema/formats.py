"""The string formats that the server checks, each as a predicate, and the patterns of schemas.

All other formats are ignored. Source: k8s.io/kube-openapi `pkg/validation/strfmt`. No library has the same set with the
same meanings: several formats are what Go's parsers accept rather than what an RFC defines.

With the extra `apiserver` patterns are evaluated by RE2 itself, as on the real server, in time linear in the length of
the text. Without it, Python's `re` is used: it accepts look-around and back-references, which the server rejects, and
its `$` also matches before a trailing newline.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache, lru_cache
from typing import Any
from urllib.parse import urlsplit

Search = Callable[[str], Any]

_GO_WORDS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "unexpected )": "unexpected )",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "trailing \\": "trailing backslash at end of expression",
}


@lru_cache(maxsize=4096)
def searching(pattern: str) -> Search:
    """Returns a function that searches for the pattern anywhere in a text. Raises ValueError with the server's
    message.
    """
    try:
        import re2  # type: ignore[import-not-found,import-untyped,unused-ignore] # untyped, or not installed
    except ImportError:
        try:
            return re.compile(pattern).search
        except re.error as error:
            raise ValueError(f"error parsing regexp: {error}: `{pattern}`") from None
    options = re2.Options()
    options.log_errors = False
    try:
        search: Search = re2.compile(pattern, options).search
    except re2.error as error:
        raise ValueError(_in_go(error, pattern)) from None
    return search


def _in_go(error: Exception, pattern: str) -> str:
    given = error.args[0] if error.args else ""
    text = given.decode(errors="replace") if isinstance(given, bytes) else str(given)
    kind, _, where = text.partition(": ")
    words = _GO_WORDS.get(kind, kind)
    if words.startswith("trailing"):
        return f"error parsing regexp: {words}: ``"
    return f"error parsing regexp: {words}: `{where or pattern}`"


Predicate = Callable[[str], bool]


def string_format(name: str) -> Predicate | None:
    """Returns the predicate of a format, or None if the server does not know it. Dashes in names are ignored."""
    return _FORMATS.get(name.replace("-", ""))


def _matching(pattern: str, flags: int = 0) -> Predicate:
    @cache
    def compiled() -> re.Pattern[str]:
        """Compiles the pattern on first use: compiling all of them would take a tenth of the server's startup time."""
        return re.compile(pattern, flags | re.ASCII)

    return lambda text: compiled().fullmatch(text) is not None


def _uuid(version: str, variant: str) -> Predicate:
    return _matching(
        f"[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{version}[0-9a-f]{{3}}-?{variant}[0-9a-f]{{3}}-?[0-9a-f]{{12}}", re.I
    )


_is_date_form = _matching(r"\d{4}-\d{2}-\d{2}")
_is_time = _matching(r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:.\d+)?(?:z|[+-]\d{2}:\d{2})")


def _is_date(text: str) -> bool:
    if not _is_date_form(text):
        return False
    try:
        # Go's calendar has a year 0, which is a leap year like 2000.
        date.fromisoformat("2000" + text[4:] if text.startswith("0000") else text)
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    parts = text.lower().split("t")
    return len(parts) > 1 and _is_date(parts[0]) and _is_time(parts[1])


_GO_DURATION = re.compile(r"[-+]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)", re.ASCII)
_LOOSE_DURATION = re.compile(r"\d+\s*([A-Za-zµ]+)", re.ASCII)
_PREFIXES = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")
_UNITS = frozenset(("ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"))


def _is_duration(text: str) -> bool:
    """Whether the text is a Go duration, or contains one such as "3 weeks"."""
    return _GO_DURATION.fullmatch(text) is not None or any(
        unit.lower() in _UNITS or unit.lower().startswith(_PREFIXES) for unit in _LOOSE_DURATION.findall(text)
    )


def _is_ipv4(text: str) -> bool:
    """Whether the text is an IPv4 address. Leading zeros are allowed, and so are IPv6 addresses that end in an IPv4
    address.
    """
    try:
        ipaddress.ip_address(_without_zeros(text))
    except ValueError:
        return False
    return "." in text and "%" not in text


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text


def _is_cidr(text: str) -> bool:
    address, slash, length = text.partition("/")
    if not slash or not length.isascii() or not length.isdecimal() or "%" in address:
        return False
    try:
        ip = ipaddress.ip_address(_without_zeros(address))
    except ValueError:
        return False
    return int(length[:9]) <= ip.max_prefixlen


def _without_zeros(text: str) -> str:
    return ".".join(part.lstrip("0") or "0" if part.isdecimal() else part for part in text.split("."))


_is_mac = _matching(
    r"(?:[0-9a-f]{2}(?::[0-9a-f]{2}){5}(?:(?::[0-9a-f]{2}){2}|(?::[0-9a-f]{2}){14})?"
    r"|[0-9a-f]{2}(?:-[0-9a-f]{2}){5}(?:(?:-[0-9a-f]{2}){2}|(?:-[0-9a-f]{2}){14})?"
    r"|[0-9a-f]{4}(?:\.[0-9a-f]{4}){2}(?:\.[0-9a-f]{4}|(?:\.[0-9a-f]{4}){7})?)",
    re.I,
)


def _is_uri(text: str) -> bool:
    """Whether the text is an absolute URI or an absolute path, as in the first line of an HTTP request."""
    if not text or any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        return False
    if text == "*":
        return True
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    scheme = text.partition(":")[0] if ":" in text.partition("/")[0] else ""
    if scheme and not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9+.-]*", scheme):
        return False
    if re.search(r"%(?![0-9a-fA-F]{2})", parts.path) or " " in parts.netloc:
        return False
    return bool(scheme) or text.startswith("/")


_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x80-\U0010ffff-]+"
_QUOTED = r'"(?:[^"\\\r\n]|\\[^\r\n])*"'
_LOCAL = rf"(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})"
_DOMAIN = rf"(?:{_ATOM}(?:\.{_ATOM})*|\[[^\[\]\s]+\])"
_EMAIL = re.compile(rf"\s*(?:{_LOCAL}@{_DOMAIN}|(?:(?:{_ATOM}|{_QUOTED}|\.|\s)*\s*)?<{_LOCAL}@{_DOMAIN}>)\s*")


def _is_email(text: str) -> bool:
    """Whether the text is an address as in a mail header, with or without a display name."""
    return _EMAIL.fullmatch(text) is not None


_LABEL_CHAR = r"(?:[^\W_]|[^\x00-\x7f])"
_HOSTNAME = re.compile(
    rf"(?:{_LABEL_CHAR}(?:-?{_LABEL_CHAR}{{0,62}})?"
    rf"|(?:{_LABEL_CHAR}(?:(?:{_LABEL_CHAR}|-){{0,61}}{_LABEL_CHAR})?\.)+[^\W\d_]{{2,63}})"
)


def _is_hostname(text: str) -> bool:
    return (
        _HOSTNAME.fullmatch(text) is not None
        and len(text.encode()) <= 255
        and all(len(label.encode()) <= 63 for label in text.split("."))
    )


_CARD = re.compile(
    r"(?:4\d{12}(?:\d{3})?|5[1-5]\d{14}|6(?:011|5\d\d)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
    r"|(?:2131|1800|35\d{3})\d{11})",
    re.ASCII,
)


def _is_credit_card(text: str) -> bool:
    digits = re.sub("[^0-9]", "", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = [sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2]]
    return (sum(doubled) + sum(map(int, digits[-1::-2]))) % 10 == 0


def _is_isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]", "", text)
    if not re.fullmatch("[0-9]{9}[0-9X]", digits):
        return False
    values = [10 if digit == "X" else int(digit) for digit in digits]
    return sum(place * value for place, value in enumerate(values, 1)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]", "", text)
    if not re.fullmatch("[0-9]{13}", digits):
        return False
    return sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(digits)) % 10 == 0


def _is_isbn(text: str) -> bool:
    return _is_isbn10(text) or _is_isbn13(text)


_BYTE = r"(?:0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])"
_SHORT = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_is_short_name = _matching(_SHORT)
_is_long_name = _matching(rf"{_SHORT}(?:\.{_SHORT})*")
_is_ssn = _matching(r"\d{3}[- ]?\d{2}[- ]?\d{4}")

_FORMATS: Mapping[str, Predicate] = {
    "bsonobjectid": _matching("[0-9a-f]{24}", re.I),
    "uri": _is_uri,
    "email": _is_email,
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "cidr": _is_cidr,
    "mac": _is_mac,
    "uuid": _uuid("[0-9a-f]", "[0-9a-f]"),
    "uuid3": _uuid("3", "[0-9a-f]"),
    "uuid4": _uuid("4", "[89ab]"),
    "uuid5": _uuid("5", "[89ab]"),
    "isbn": _is_isbn,
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "creditcard": _is_credit_card,
    "ssn": lambda text: len(text) == 11 and _is_ssn(text),
    "hexcolor": _matching("#?(?:[0-9a-f]{3}|[0-9a-f]{6})", re.I),
    "rgbcolor": _matching(rf"rgb\(\s*{_BYTE}\s*,\s*{_BYTE}\s*,\s*{_BYTE}\s*\)"),
    "byte": _matching(
        "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})",
    ),
    "password": lambda text: True,
    "date": _is_date,
    "duration": _is_duration,
    "datetime": _is_date_time,
    "k8sshortname": lambda text: len(text) <= 63 and _is_short_name(text),
    "k8slongname": lambda text: len(text) <= 253 and _is_long_name(text),
}
