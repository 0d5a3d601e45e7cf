"""Quantities as the API server writes them: `1000m` is `1`, `1024Mi` is `1Gi`, `0.5` is `500m`.

Source: k8s.io/apimachinery `pkg/api/resource`.
"""

from __future__ import annotations

import re
from decimal import ROUND_UP, Decimal, localcontext
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


def canonical(text: str, finest: int = NANO) -> str:
    """Returns the canonical form, rounded up to the power of ten `finest`. Raises ValueError, with the server's
    message, if the text is not a quantity.
    """
    return (_canonical if len(text) <= _LONGEST_KEPT else _canonical.__wrapped__)(text, finest)


_LONGEST_KEPT = 64


@lru_cache(4096)
def _canonical(text: str, finest: int) -> str:
    number, suffix = _split(text)
    with localcontext() as context:
        context.prec = 60
        amount = number * _factor(suffix)
        size = min(abs(amount).quantize(Decimal(1).scaleb(finest), ROUND_UP), Decimal(_LARGEST))
    if size == 0:
        return "0"
    sign = "-" if amount < 0 else ""
    if suffix in _BINARY and size >= 1024 and size == int(size):
        return sign + _binary(int(size))
    return sign + _scaled(size, suffix[0] if _EXPONENT.fullmatch(suffix) else "")


def amount_of(text: str) -> Decimal:
    """Returns the number that a quantity represents. Raises ValueError like `canonical`."""
    number, suffix = _split(text)
    return number * _factor(suffix)


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
