"""What a chart shows, without saying how it is drawn; its CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kubeshard_lab.experiment.report.series import Values
from kubeshard_lab.experiment.report.words import Unit


@dataclass(frozen=True)
class Line:
    name: str
    values: Values
    colour: str
    """A name of `colours.LIGHT`."""
    dashed: bool = False


@dataclass(frozen=True)
class Limit:
    """A line that values must stay below."""

    label: str
    value: float


@dataclass(frozen=True)
class Mark:
    """Something that happened, as a vertical line."""

    time: float
    """Seconds since the load began."""
    label: str
    bad: bool


@dataclass(frozen=True)
class Course:
    """Lines over time, which is in seconds since the load began."""

    title: str
    unit: Unit
    until: float
    """Where the axis of the time ends; it begins at 0."""
    times: Values
    lines: Sequence[Line]
    marks: Sequence[Mark] = ()
    limits: Sequence[Limit] = ()
    logarithmic: bool = False

    def rows(self) -> Iterator[tuple[str, str, float, float]]:
        for line in self.lines:
            for time, value in zip(self.times, line.values, strict=True):
                if not math.isnan(value):
                    yield self.title, line.name, time, value

    def empty(self) -> bool:
        return all(math.isnan(value) for line in self.lines for value in line.values)


@dataclass(frozen=True)
class Chart:
    name: str
    """Of its files, and unique on a page."""
    title: str
    says: str
    """What there is to see, for people who do not see it."""
    panels: Sequence[Course]
    note: str = ""
    """How to read it."""

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("panel", "line", "seconds", self.panels[0].unit.value))
        for panel in self.panels:
            for title, line, time, value in panel.rows():
                writer.writerow((title, line, round(time, 6), round(value, 6)))
        return text.getvalue()
