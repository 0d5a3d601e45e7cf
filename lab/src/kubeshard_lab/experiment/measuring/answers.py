"""What a Prometheus answers: series of points, and how they are written as CSV."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

_QUOTED = frozenset(',"\r\n')
_NO_SPACES = frozenset("\x1c\x1d\x1e\x1f")
"""Spaces for Python, but not for Go."""


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


def csv_lines(answer: Sequence[Series]) -> Iterator[str]:
    """CSV, byte for byte as the Go project's tool writes it.

    | | |
    |---|---|
    | header | `ts,value` and all label names in alphabetical order, without the metric's name |
    | rows | series in the order of the answer, each in the order of its times |
    | time | whole Unix seconds, rounded down |
    | value | all of its digits, never with an exponent; `NaN`, `+Inf`, `-Inf` |
    | field | quoted if it has a comma, a quote or a line break, begins with a space, or is `\\.` |
    """
    labels = sorted({label for series in answer for label in series.metric} - {"__name__"})
    yield _line(("ts", "value", *labels))
    for series in answer:
        of = [series.metric.get(label, "") for label in labels]
        for time, value in series.points:
            yield _line((str(math.floor(time)), number(value), *of))


def _line(fields: Iterable[str]) -> str:
    return ",".join(map(_field, fields)) + "\n"


def _field(text: str) -> str:
    begins_with_space = text[:1].isspace() and text[0] not in _NO_SPACES
    if _QUOTED.isdisjoint(text) and not begins_with_space and text != r"\.":
        return text
    return '"' + text.replace('"', '""') + '"'
