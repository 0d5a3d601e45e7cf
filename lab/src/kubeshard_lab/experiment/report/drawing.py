"""Charts as SVG and PNG, by matplotlib. Text stays text; everything has the light colours of `colours`."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from kubeshard_lab.experiment.report.charts import Chart, Course, Limit, Line, Mark
from kubeshard_lab.experiment.report.colours import LIGHT
from kubeshard_lab.experiment.report.series import Values, finite
from kubeshard_lab.experiment.report.words import GIB, KIB, MIB, Unit, amount, clock

WIDTH, HEIGHT = 9.6, 2.3
"""Inches, of each panel. At 72 units an inch, text of 9 units is as large as the text around it on a page of 62 rem."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # names are no formulas
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "text.color": LIGHT["ink"],
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": LIGHT["faint"],
    "axes.labelcolor": LIGHT["faint"],
    "axes.titlecolor": LIGHT["ink"],
    "axes.titlesize": 9.0,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LIGHT["rule"],
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.5,
    "lines.solid_capstyle": "round",
    "xtick.color": LIGHT["faint"],
    "ytick.color": LIGHT["faint"],
}
_TICKS = 10
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
_KIND = "kind-"
"""Begins the ids of what is drawn. There may be several of a kind, so that they become classes."""
_LINE_OF_TEXT = 12.0
"""Points between the labels at the ends of lines."""
_LONGEST = 20
"""Characters of a name at the end of a line."""


def svg(chart: Chart) -> str:
    text = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with _style(chart.name):
        _figure(chart).savefig(text, format="svg", metadata=nothing)
    return re.sub(f'id="{_KIND}(\\w+)"', r'class="\1"', text.getvalue())


def png(chart: Chart) -> bytes:
    data = io.BytesIO()
    with _style(chart.name):
        _figure(chart).savefig(data, format="png", dpi=150, facecolor=LIGHT["ground"])
    return data.getvalue()


@contextmanager
def _style(name: str) -> Iterator[None]:
    """Its name makes what is defined in a drawing unique on a page, and the same each time it is drawn."""
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # names may have any character
        yield


def _figure(chart: Chart) -> Figure:
    """The axes are in the same place in every chart, so that one can look from one to the next."""
    height = HEIGHT * len(chart.panels)
    figure = Figure(figsize=(WIDTH, height))
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(
        len(chart.panels),
        left=0.72 / WIDTH,
        right=1 - 1.35 / WIDTH,
        top=1 - (0.32 if chart.panels[0].title else 0.2) / height,
        bottom=0.28 / height,
        hspace=0.42,
    )
    for number, panel in enumerate(chart.panels):
        axes = figure.add_subplot(grid[number])
        axes.set_title(panel.title, pad=14)
        axes.set_gid(f"{_KIND}panel")
        _course(axes, panel)
    return figure


def _course(axes: Axes, panel: Course) -> None:
    for line in panel.lines:
        alone = _alone(line.values)
        axes.plot(
            panel.times,
            [value if math.isfinite(value) else math.nan for value in line.values],
            color=LIGHT[line.colour],
            linestyle=(0, (4, 2)) if line.dashed else "-",
            marker="o" if alone else "",
            markevery=alone or None,
            markersize=3,
            gid=f"{_KIND}line",
        )
        _never(axes, panel.times, line.values, LIGHT[line.colour])
    _time_axis(axes, panel.until)
    _value_axis(axes, panel)
    for limit in panel.limits:
        _limit(axes, limit)
    _marks(axes, panel.marks)
    _name_lines(axes, panel)


def _alone(values: Values) -> list[int]:
    """Values with nothing on either side: a line has no place for them."""
    known = [False, *(math.isfinite(value) for value in values), False]
    return [
        number
        for number in range(len(values))
        if known[number + 1] and not known[number] and not known[number + 2]
    ]


def _never(axes: Axes, times: Values, values: Values, colour: str) -> None:
    """Triangles at the upper edge where the value is infinite."""
    infinite = [time for time, value in zip(times, values, strict=True) if math.isinf(value)]
    if infinite:
        axes.plot(
            infinite,
            [1.0] * len(infinite),
            transform=axes.get_xaxis_transform(),
            linestyle="",
            marker="^",
            markersize=5,
            color=colour,
            clip_on=False,
            gid=f"{_KIND}never",
        )


def _time_axis(axes: Axes, end: float) -> None:
    step = next((step for step in _STEPS if end / step <= _TICKS), 86400)
    axes.set_xlim(0, end)
    axes.xaxis.set_major_locator(FixedLocator([float(tick) for tick in range(0, math.ceil(end) + 1, step)]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: clock(value)))


def _value_axis(axes: Axes, panel: Course) -> None:
    values = finite(value for line in panel.lines for value in line.values)
    if panel.logarithmic:
        positive = [value for value in [*values, *(limit.value for limit in panel.limits)] if value > 0]
        axes.set_yscale("log")
        axes.set_ylim(min(positive, default=0.1) / 1.5, max(positive, default=1.0) * 1.8)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0,)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: amount(panel.unit, value)))
        return
    least = 1.0 if panel.unit == Unit.OBJECTS else 0.0
    highest = max([least, *values, *(limit.value for limit in panel.limits)]) or 1.0
    axes.set_ylim(0, highest * 1.08)
    _ticks(axes.yaxis, panel.unit, highest)


def _ticks(axis: Axis, unit: Unit, highest: float) -> None:
    """From 0 to the highest value: at round numbers of the unit in which they are named."""
    size_of_unit = next((each for each in (GIB, MIB, KIB) if highest >= each), 1) if unit == Unit.BYTES else 1
    locator = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=unit == Unit.OBJECTS, min_n_ticks=1)
    axis.set_major_locator(
        FixedLocator([float(tick) * size_of_unit for tick in locator.tick_values(0, highest / size_of_unit)])
    )
    axis.set_major_formatter(FuncFormatter(lambda value, _: amount(unit, value)))


def _limit(axes: Axes, limit: Limit) -> None:
    axes.axhline(limit.value, color=LIGHT["bad"], linestyle=(0, (5, 3)), linewidth=1.1, gid=f"{_KIND}limit")
    axes.annotate(
        limit.label,
        xy=(0.0, limit.value),
        xycoords=axes.get_yaxis_transform(),
        xytext=(4, 2),
        textcoords="offset points",
        va="bottom",
        fontsize=8,
        color=LIGHT["bad"],
    )


def _marks(axes: Axes, marks: Sequence[Mark]) -> None:
    """Marks that are too close for labels of their own share one: 3-5."""
    low, high = axes.get_xlim()
    groups: list[list[Mark]] = []
    for mark in marks:
        colour = LIGHT["bad" if mark.bad else "faint"]
        style: Any = "-" if mark.bad else (0, (1, 1.5))
        axes.axvline(mark.time, color=colour, linewidth=0.9, linestyle=style, alpha=0.8, gid=f"{_KIND}event")
        if groups and mark.time - groups[-1][0].time < (high - low) * 0.03:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    for group in groups:
        axes.annotate(
            group[0].label if len(group) == 1 else f"{group[0].label}\u2013{group[-1].label}",
            xy=(group[0].time, 1.0),
            xycoords=axes.get_xaxis_transform(),
            xytext=(0, 1),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8,
            color=LIGHT["bad" if any(mark.bad for mark in group) else "faint"],
        )


def _name_lines(axes: Axes, panel: Course) -> None:
    """The names of lines at their right ends, moved apart so that each can be read."""
    place_of = axes.transData + axes.transAxes.inverted()
    height = axes.get_window_extent().height / axes.figure.dpi * 72
    ends: list[tuple[float, str, str]] = []
    for line in panel.lines:
        known = finite(line.values)
        if known:
            _, place = place_of.transform((0, known[-1]))
            ends.append((place * height, _named(line, panel), line.colour))
    ends.sort()
    for (_, name, colour), wanted in zip(ends, _apart([end[0] for end in ends], height), strict=True):
        axes.annotate(
            name,
            xy=(1.0, 0.0),
            xycoords="axes fraction",
            xytext=(6, wanted),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=LIGHT[colour],
            gid=f"{_KIND}name",
        )


def _named(line: Line, panel: Course) -> str:
    """With the time of its end, if this is not that of the chart."""
    last = max(time for time, value in zip(panel.times, line.values, strict=True) if math.isfinite(value))
    early = last < panel.until * 0.95 and last < panel.times[-1]
    return f"{_short(line.name)}, to {clock(last)}" if early else _short(line.name)


def _apart(places: Sequence[float], height: float) -> list[float]:
    """The places, in ascending order, with a line of text between any two and, if there is room, within the height."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + _LINE_OF_TEXT) if found else max(place, 0.0))
    ceiling = height
    for number in reversed(range(len(found))):
        found[number] = min(found[number], ceiling)
        ceiling = found[number] - _LINE_OF_TEXT
    return found


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}\u2026{name[1 - _LONGEST // 2 :]}"
