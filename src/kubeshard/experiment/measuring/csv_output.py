"""Answers as CSV, byte for byte as the Go project's tool writes them.

| | |
|---|---|
| header | `ts,value` and all label names in alphabetical order, without the metric's name |
| rows | series in the order of the answer, each in the order of its times |
| time | whole Unix seconds, rounded down |
| value | all of its digits, never with an exponent; `NaN`, `+Inf`, `-Inf` |
| field | quoted if it has a comma, a quote or a line break, begins with a space, or is `\\.` |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from kubeshard.experiment.measuring.answers import Series, number

_QUOTED = frozenset(',"\r\n')
_NO_SPACES = frozenset("\x1c\x1d\x1e\x1f")
"""Spaces for Python, but not for Go."""


def csv_lines(answer: Sequence[Series]) -> Iterator[str]:
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
