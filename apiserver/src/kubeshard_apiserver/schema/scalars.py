"""Quantities and times as the API server writes them.

Quantities: `1000m` is `1`, `1024Mi` is `1Gi`, `0.5` is `500m`. Times are read as by Go, with the messages of its
parser. Source: k8s.io/apimachinery `pkg/api/resource`; Go's `time.Parse`, RFC 3339.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_UP, Decimal, Overflow, localcontext
from functools import lru_cache

_FORM = re.compile(r"([+-]?[0-9]*(?:\.[0-9]*)?)([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT = re.compile(r"[eE][+-]?[0-9]+")
_NO_FORM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_SUFFIXES = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
NANO = -9
MILLI = -3
_LARGEST = 2**63 - 1


def canonical_quantity(text: str, finest: int = NANO) -> str:
    """Returns the canonical form, rounded up to the power of ten `finest`. Raises ValueError, with the server's
    message, if the text is not a quantity.
    """
    return (_canonical_quantity if len(text) <= _LONGEST_KEPT else _canonical_quantity.__wrapped__)(
        text, finest
    )


_LONGEST_KEPT = 64


@lru_cache(4096)
def _canonical_quantity(text: str, finest: int) -> str:
    number, suffix = _split(text)
    with localcontext() as context:
        context.prec = 60
        amount = _amount(number, suffix)
        size = min(abs(amount), Decimal(_LARGEST)).quantize(Decimal(1).scaleb(finest), ROUND_UP)
    if size == 0:
        return "0"
    sign = "-" if amount < 0 else ""
    if suffix in _BINARY and size >= 1024 and size == int(size):
        return sign + _binary(int(size))
    return sign + _scaled(size, suffix[0] if _EXPONENT.fullmatch(suffix) else "")


def amount_of(text: str) -> Decimal:
    """Returns the number that a quantity represents. Raises ValueError like `canonical`."""
    return _amount(*_split(text))


def _amount(number: Decimal, suffix: str) -> Decimal:
    """Infinite if its exponent is out of range."""
    with localcontext() as context:
        context.traps[Overflow] = False
        factor = _factor(suffix)
        return number * factor if number else number


def _split(text: str) -> tuple[Decimal, str]:
    found = _FORM.fullmatch(text)
    if found is None or not text:
        raise ValueError(_NO_FORM)
    digits = found[1].lstrip("+-").rstrip(".")
    number = Decimal(f"0{digits}")
    return (-number if found[1].startswith("-") else number), found[2]


def _factor(suffix: str) -> Decimal:
    if suffix in _DECIMAL:
        return Decimal(10) ** _DECIMAL[suffix]
    if suffix in _BINARY:
        return Decimal(1024) ** _BINARY[suffix]
    if _EXPONENT.fullmatch(suffix):
        return Decimal(10) ** int(suffix[1:])
    raise ValueError("unable to parse quantity's suffix")


def _binary(size: int) -> str:
    steps = 0
    while size % 1024 == 0 and steps < len(_BINARY):
        size //= 1024
        steps += 1
    return str(size) + ("", *_BINARY)[steps]


def _scaled(size: Decimal, exponent_letter: str) -> str:
    """Formats the number with the suffix of the largest power of a thousand that leaves an integer."""
    mantissa, exponent = int(size.scaleb(9)), -9
    while mantissa % 1000 == 0 and exponent < 18:
        mantissa //= 1000
        exponent += 3
    if exponent == 0 or not exponent_letter:
        return f"{mantissa}{_SUFFIXES[exponent]}"
    return f"{mantissa}{exponent_letter}{exponent}"


SECONDS = "2006-01-02T15:04:05Z07:00"
MICROSECONDS = "2006-01-02T15:04:05.000000Z07:00"
_PARTS = (
    ("2006", r"\d{4}", "year", 0, 9999), ("-", "-", "", 0, 0), ("01", r"\d\d", "month", 1, 12), ("-", "-", "", 0, 0),
    ("02", r"\d\d", "day", 0, 99), ("T", "T", "", 0, 0), ("15", r"\d\d?", "hour", 0, 23), (":", ":", "", 0, 0),
    ("04", r"\d\d", "minute", 0, 59), (":", ":", "", 0, 0), ("05", r"\d\d", "second", 0, 59),
)  # fmt: skip
"""For each part: its name in the layout, its pattern, its name in messages and its range. Days are checked last,
against the calendar.
"""
_ZERO = "0001-01-01T00:00:00Z"


def canonical_time(text: str, layout: str = SECONDS) -> str | None:
    """Returns the time in UTC, with six fractional digits or none, depending on the layout; None for Go's zero time.
    Raises ValueError with Go's message.
    """
    return (_canonical_time if len(text) <= _LONGEST_KEPT else _canonical_time.__wrapped__)(text, layout)


@lru_cache(4096)
def _canonical_time(text: str, layout: str) -> str | None:
    rest, numbers = text, []
    for part, pattern, name, least, most in _PARTS:
        found = re.match(pattern, rest, re.ASCII)
        if found is None:
            raise _unparsed(text, layout, rest, part)
        rest = rest[found.end() :]
        if name:
            numbers.append(int(found[0]))
            if not least <= numbers[-1] <= most:
                raise _out_of_range(text, name)
    fraction = re.match(r"\.\d{6}" if layout == MICROSECONDS else r"[.,]\d+|", rest, re.ASCII)
    if fraction is None:
        raise _unparsed(text, layout, rest, ".000000")
    rest = rest[fraction.end() :]
    zone = re.match(r"Z|[+-]\d\d:\d\d", rest, re.ASCII)
    if zone is None:
        raise _unparsed(text, layout, rest, "Z07:00")
    if rest[zone.end() :]:
        raise ValueError(f'parsing time "{text}": extra text: "{rest[zone.end() :]}"')
    try:
        moment = datetime(*numbers, tzinfo=_zone(zone[0])).astimezone(UTC)  # type: ignore[arg-type, misc] # six numbers
    except (ValueError, OverflowError):
        raise _out_of_range(text, "day") from None
    written = moment.isoformat()[:19]
    if layout == MICROSECONDS:
        return f"{written}{fraction[0]}Z"
    return None if written + "Z" == _ZERO else written + "Z"


def _zone(text: str) -> timezone:
    if text == "Z":
        return UTC
    offset = timedelta(hours=int(text[1:3]), minutes=int(text[4:]))
    return timezone(-offset if text[0] == "-" else offset)


def _out_of_range(text: str, name: str) -> ValueError:
    return ValueError(f'parsing time "{text}": {name} out of range')


def _unparsed(text: str, layout: str, rest: str, wanted: str) -> ValueError:
    return ValueError(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{wanted}"')
