"""What a Prometheus answers: series of points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple


class Point(NamedTuple):
    time: float
    value: float


class Series(NamedTuple):
    metric: Mapping[str, str]
    """Its labels; the metric's name is `__name__`."""
    points: Sequence[Point]

    def __str__(self) -> str:
        labels = ", ".join(f'{label}="{value}"' for label, value in sorted(self.metric.items()))
        return f"{{{labels}}}"


class Answer(NamedTuple):
    series: Sequence[Series]
    warnings: Sequence[str]


def number(value: float) -> str:
    """The shortest decimal digits, without an exponent, that are read as the same number; as Go writes them."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    digits = format(Decimal(repr(value)), "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits
