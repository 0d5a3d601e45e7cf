"""What a chart shows, without saying how it is drawn. Every panel knows its rows for the CSV beside the picture."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kubeshard_lab.experiment.report.series import Values
from kubeshard_lab.experiment.report.words import Unit

Cell = str | float


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


class Panel(Protocol):
    @property
    def title(self) -> str: ...
    @property
    def unit(self) -> Unit: ...
    def header(self) -> Sequence[str]: ...
    def rows(self) -> Iterator[Sequence[Cell]]: ...
    def empty(self) -> bool: ...


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
    stacked: bool = False
    """Areas on top of each other, so that the upper edge is the sum."""

    def header(self) -> Sequence[str]:
        return ("panel", "line", "seconds", self.unit.value)

    def rows(self) -> Iterator[Sequence[Cell]]:
        for line in self.lines:
            for time, value in zip(self.times, line.values, strict=True):
                if not math.isnan(value):
                    yield self.title, line.name, time, value

    def empty(self) -> bool:
        return all(math.isnan(value) for line in self.lines for value in line.values)


@dataclass(frozen=True)
class Part:
    name: str
    value: float
    colour: str


@dataclass(frozen=True)
class Bar:
    name: str
    parts: Sequence[Part]
    remark: str = ""
    """Stands at the end of the bar."""


@dataclass(frozen=True)
class Bars:
    title: str
    unit: Unit
    bars: Sequence[Bar]
    reference: float = math.nan
    """Where a dashed line is."""

    def header(self) -> Sequence[str]:
        return ("panel", "bar", "part", self.unit.value)

    def rows(self) -> Iterator[Sequence[Cell]]:
        for bar in self.bars:
            for part in bar.parts:
                yield self.title, bar.name, part.name, part.value

    def empty(self) -> bool:
        return not any(part.value > 0 for bar in self.bars for part in bar.parts)


@dataclass(frozen=True)
class Spread:
    name: str
    colour: str
    points: Sequence[tuple[str, float]]
    """Such as (p99, 0.25), in ascending order."""


@dataclass(frozen=True)
class Spreads:
    """Percentiles beside each other, on a logarithmic axis."""

    title: str
    unit: Unit
    spreads: Sequence[Spread]
    limits: Sequence[Limit] = ()

    def header(self) -> Sequence[str]:
        return ("panel", "run", "percentile", self.unit.value)

    def rows(self) -> Iterator[Sequence[Cell]]:
        for spread in self.spreads:
            for name, value in spread.points:
                yield self.title, spread.name, name, value

    def empty(self) -> bool:
        return not any(math.isfinite(value) for spread in self.spreads for _, value in spread.points)


@dataclass(frozen=True)
class Growth:
    name: str
    colour: str
    points: Sequence[tuple[int, float, bool]]
    """(instances, value, whether it is only known to be at least that)"""


@dataclass(frozen=True)
class Growths:
    title: str
    unit: Unit
    lines: Sequence[Growth]
    ideal: Sequence[tuple[int, float]] = ()
    """What it would be if every instance brought as much as the first one."""

    def header(self) -> Sequence[str]:
        return ("panel", "line", "instances", self.unit.value, "at_least")

    def rows(self) -> Iterator[Sequence[Cell]]:
        for line in self.lines:
            for instances, value, at_least in line.points:
                yield self.title, line.name, instances, value, str(at_least).lower()
        for instances, value in self.ideal:
            yield self.title, "ideal", instances, value, "false"

    def empty(self) -> bool:
        return not any(math.isfinite(value) for line in self.lines for _, value, _ in line.points)


@dataclass(frozen=True)
class Chart:
    name: str
    """Of its files, and unique on a page."""
    title: str
    says: str
    """What there is to see, for people who do not see it."""
    panels: Sequence[Panel]
    columns: int = 1
    same_scale: bool = False
    """The panels' values are on the same scale, so that they can be compared."""
    note: str = field(default="")
    """How to read it."""

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.panels[0].header())
        for panel in self.panels:
            for row in panel.rows():
                writer.writerow([round(cell, 6) if isinstance(cell, float) else cell for cell in row])
        return text.getvalue()
