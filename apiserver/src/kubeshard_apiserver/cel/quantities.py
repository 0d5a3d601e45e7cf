"""Resource quantities: exact numbers with a suffix. Equal quantities are equal however they were written.

Source: k8s.io/apimachinery `pkg/api/resource`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

_MARK = "$quantity"
_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([numkMGTPE]|[KMGTPE]i)?|[eE]([+-]?\d+))")
_DECIMAL = dict(zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True))
_SMALLEST = 10**9


def quantity(text: str) -> dict[str, Any]:
    """Rounded up to the nano, as the server does."""
    found = _FORM.fullmatch(text)
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
    return _of(rounded if value >= 0 else -rounded)


def is_quantity(value: dict[str, Any]) -> bool:
    return _MARK in value


def number(value: dict[str, Any] | int) -> Fraction:
    if isinstance(value, int):
        return Fraction(value)
    if _MARK not in value:
        raise ValueError("no such overload")
    return Fraction(value[_MARK])


def is_integer(value: dict[str, Any]) -> bool:
    exact = number(value)
    return exact.denominator == 1 and -(2**63) <= exact < 2**63


def as_integer(value: dict[str, Any]) -> int:
    if not is_integer(value):
        raise ValueError("cannot convert value to integer")
    return int(number(value))


def as_float(value: dict[str, Any]) -> float:
    return float(number(value))


def sign(value: dict[str, Any]) -> int:
    exact = number(value)
    return (exact > 0) - (exact < 0)


def add(one: dict[str, Any], other: dict[str, Any] | int) -> dict[str, Any]:
    return _of(number(one) + number(other))


def sub(one: dict[str, Any], other: dict[str, Any] | int) -> dict[str, Any]:
    return _of(number(one) - number(other))


def _of(value: Fraction) -> dict[str, Any]:
    return {_MARK: str(value)}
