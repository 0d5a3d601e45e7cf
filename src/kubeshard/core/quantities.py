"""Quantities (`500m`, `1Gi`), compared by amount: the API server stores `1000m` as `1`."""

from __future__ import annotations

import re
from typing import Any

FIELDS = frozenset({"limits", "requests", "capacity", "hard", "overhead", "sizeLimit", "size_limit"})
"""Fields that are quantities everywhere in the Kubernetes API."""

_QUANTITY = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d{1,3}))?", re.ASCII
)
_LONGEST = 64
_BINARY = {suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def same_quantity(a: Any, b: Any) -> bool:
    """Whether both are quantities (text, or numbers as YAML has them) of the same amount."""
    amount = _amount(a)
    return amount is not None and amount == _amount(b)


def _amount(value: Any) -> Any:
    # Imported late: rarely needed, because quantities rarely differ.
    from fractions import Fraction

    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    number, binary, decimal, exponent = match.groups()
    if binary:
        return Fraction(number) * _BINARY[binary]
    return Fraction(number) * Fraction(10) ** (_DECIMAL[decimal] if decimal else int(exponent or 0))
