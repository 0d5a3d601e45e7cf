"""Quantities and semantic versions, and the comparison functions that they share.

Quantities are exact numbers with a suffix; equal quantities compare equal however they are written. Source:
k8s.io/apimachinery `pkg/api/resource`; semver.org 2.0.0.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

_MARK = "$quantity"
_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([numkMGTPE]|[KMGTPE]i)?|[eE]([+-]?\d+))")
_DECIMAL = dict(zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True))
_SMALLEST = 10**9
_VERSION = "$semver"
_PART = "(0|[1-9][0-9]*)"
_PRE = r"(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_VERSION_FORM = re.compile(
    rf"{_PART}\.{_PART}\.{_PART}(?:-({_PRE}(?:\.{_PRE})*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?"
)
_LOOSE = re.compile(r"v?0*(\d+)(?:\.0*(\d+))?(?:\.0*(\d+))?(.*)")


def quantity(text: str) -> dict[str, Any]:
    """Parses a quantity, rounding it up to the nearest nano as the server does."""
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


def semver(text: str, normalize: bool = False) -> dict[str, Any]:
    if normalize and (loose := _LOOSE.fullmatch(text.strip())):
        major, minor, patch, rest = loose.groups()
        text = f"{major}.{minor or 0}.{patch or 0}{rest}"
    if not _VERSION_FORM.fullmatch(text):
        raise ValueError(f"semver parse error: {text}")
    return {_VERSION: text}


def part(version: dict[str, Any], index: int) -> int:
    return int(_groups(version)[index])


def compare(one: dict[str, Any], other: dict[str, Any]) -> int:
    """Compares two versions or two quantities. Returns -1, 0 or 1."""
    before, after = (number(one), number(other)) if is_quantity(one) else (_order(one), _order(other))
    return (before > after) - (before < after)


def _order(version: dict[str, Any]) -> Any:
    major, minor, patch, pre, _ = _groups(version)
    identifiers = [
        (not item.isdecimal(), int(item) if item.isdecimal() else item) for item in (pre or "").split(".")
    ]
    return int(major), int(minor), int(patch), not pre, identifiers


def _groups(version: dict[str, Any]) -> tuple[Any, ...]:
    found = _VERSION_FORM.fullmatch(version.get(_VERSION, ""))
    if found is None:
        raise ValueError("no such overload")
    return found.groups()
