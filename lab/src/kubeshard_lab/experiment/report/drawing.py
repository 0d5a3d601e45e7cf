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
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from kubeshard_lab.experiment.report.charts import (
    Bars,
    Chart,
    Course,
    Growths,
    Limit,
    Line,
    Mark,
    Panel,
    Spreads,
)
from kubeshard_lab.experiment.report.colours import LIGHT
from kubeshard_lab.experiment.report.series import Values, finite, total
from kubeshard_lab.experiment.report.words import GIB, KIB, MIB, Unit, amount, clock, seconds

WIDTH = 9.6
"""Inches. At 72 units an inch, text of 9 units is as large as the text around it on a page of 62 rem."""
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
    "legend.facecolor": LIGHT["ground"],
    "legend.edgecolor": "none",
}
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
_KIND = "kind-"
"""Begins the ids of what is drawn. There may be several of a kind, so that they become classes."""
_LINE_OF_TEXT = 12.0
"""Points between the labels at the ends of lines."""
_BYTES = (Unit.BYTES, Unit.BYTES_PER_SECOND)
_LONGEST, _LONGEST_BESIDE = 20, 36
"""Characters of a name in a picture, at the end of a line and beside a bar."""


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
    columns = min(chart.columns, len(chart.panels))
    rows = math.ceil(len(chart.panels) / columns)
    heights = [
        max(_height(panel) for panel in chart.panels[row * columns : (row + 1) * columns])
        for row in range(rows)
    ]
    over_time = columns == 1 and all(isinstance(panel, Course) for panel in chart.panels)
    figure = Figure(figsize=(WIDTH, sum(heights)), layout=None if over_time else "constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(rows, columns, height_ratios=heights)
    if over_time:  # in the same place in every chart, so that one can look from one to the next
        titled = 0.32 if chart.panels[0].title else 0.2
        height = sum(heights)
        grid.update(
            left=0.72 / WIDTH,
            right=1 - 1.35 / WIDTH,
            top=1 - titled / height,
            bottom=0.28 / height,
            hspace=0.42,
        )
    drawn: list[Axes] = []
    for number, panel in enumerate(chart.panels):
        axes = figure.add_subplot(
            grid[divmod(number, columns)], sharey=drawn[0] if drawn and chart.same_scale else None
        )
        axes.set_title(panel.title, pad=14 if over_time else 6)
        axes.set_gid(f"{_KIND}panel")
        _draw(axes, panel, narrow=columns > 1)
        drawn.append(axes)
    _legend(figure, chart.panels)
    if chart.same_scale:
        for axes in drawn:
            axes.autoscale(axis="y")
            axes.set_ylim(bottom=0)
    return figure


def _legend(figure: Figure, panels: Sequence[Panel]) -> None:
    """One for all stacked areas, below them: within a panel there is no room that no area might need."""
    stacked = [panel for panel in panels if isinstance(panel, Course) and panel.stacked]
    named = dict.fromkeys((line.name, line.colour) for panel in stacked for line in panel.lines)
    if named:
        handles = [Patch(color=LIGHT[colour], label=_short(name)) for name, colour in sorted(named)]
        figure.legend(handles=handles, loc="outside lower left", ncols=8, fontsize=8, labelcolor=LIGHT["ink"])


def _height(panel: Panel) -> float:
    if isinstance(panel, Bars):
        return 0.7 + 0.36 * len(panel.bars)
    if isinstance(panel, Spreads):
        return 0.9 + 0.36 * len(panel.spreads)
    return 3.4 if isinstance(panel, Growths) else 2.3


def _draw(axes: Axes, panel: Panel, *, narrow: bool) -> None:
    if isinstance(panel, Course):
        _course(axes, panel, ticks=5 if narrow else 10)
    elif isinstance(panel, Bars):
        _bars(axes, panel)
    elif isinstance(panel, Spreads):
        _spreads(axes, panel)
    elif isinstance(panel, Growths):
        _growths(axes, panel)
    else:
        raise TypeError(f"nobody draws {panel}")


def _course(axes: Axes, panel: Course, ticks: int) -> None:
    if panel.stacked:
        areas = axes.stackplot(
            panel.times,
            [[0.0 if math.isnan(value) else value for value in line.values] for line in panel.lines],
            colors=[LIGHT[line.colour] for line in panel.lines],
            linewidth=0.5,
            edgecolor=LIGHT["ground"],
        )
        for area in areas:
            area.set_gid(f"{_KIND}area")
    for line in () if panel.stacked else panel.lines:
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
    _time_axis(axes, panel.until, ticks)
    _value_axis(axes, panel)
    for limit in panel.limits:
        _limit(axes, limit)
    _marks(axes, panel.marks)
    if not panel.stacked:
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


def _time_axis(axes: Axes, end: float, ticks: int) -> None:
    step = next((step for step in _STEPS if end / step <= ticks), 86400)
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
    if panel.stacked:
        values = finite(total(line.values for line in panel.lines))
    least = 1.0 if panel.unit == Unit.OBJECTS else 0.0
    highest = max([least, *values, *(limit.value for limit in panel.limits)]) or 1.0
    axes.set_ylim(0, highest * 1.08)
    _ticks(axes.yaxis, panel.unit, highest)


def _ticks(axis: Axis, unit: Unit, highest: float) -> None:
    """From 0 to the highest value: at round numbers of the unit in which they are named."""
    size_of_unit = next((each for each in (GIB, MIB, KIB) if highest >= each), 1) if unit in _BYTES else 1
    locator = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=unit == Unit.OBJECTS, min_n_ticks=1)
    axis.set_major_locator(
        FixedLocator([float(tick) * size_of_unit for tick in locator.tick_values(0, highest / size_of_unit)])
    )
    axis.set_major_formatter(FuncFormatter(lambda value, _: amount(unit, value)))


def _limit(axes: Axes, limit: Limit, *, vertical: bool = False) -> None:
    draw: Any = axes.axvline if vertical else axes.axhline
    draw(limit.value, color=LIGHT["bad"], linestyle=(0, (5, 3)), linewidth=1.1, gid=f"{_KIND}limit")
    place: dict[str, Any] = (
        {"xy": (limit.value, 1.0), "xycoords": axes.get_xaxis_transform()}
        if vertical
        else {"xy": (0.0, limit.value), "xycoords": axes.get_yaxis_transform()}
    )
    axes.annotate(
        limit.label,
        **place,
        xytext=(4, -3 if vertical else 2),
        textcoords="offset points",
        va="top" if vertical else "bottom",
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


def _short(name: str, longest: int = _LONGEST) -> str:
    return name if len(name) <= longest else f"{name[: longest // 2]}\u2026{name[1 - longest // 2 :]}"


def _bars(axes: Axes, panel: Bars) -> None:
    highest = max((math.fsum(part.value for part in bar.parts) for bar in panel.bars), default=1.0) or 1.0
    for number, bar in enumerate(panel.bars):
        left = 0.0
        for part in bar.parts:
            axes.barh(
                number,
                part.value,
                left=left,
                height=0.62,
                color=LIGHT[part.colour],
                edgecolor=LIGHT["ground"],
                linewidth=0.8,
                gid=f"{_KIND}bar",
            )
            if part.value > 0.09 * highest:
                axes.text(
                    left + part.value / 2,
                    number,
                    _short(part.name),
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    color=LIGHT["ground"],
                )
            left += part.value
        axes.annotate(
            bar.remark,
            xy=(left, number),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    axes.set_xlim(0, highest * 1.02)
    if math.isfinite(panel.reference):
        axes.axvline(
            panel.reference, color=LIGHT["faint"], linestyle=(0, (5, 3)), linewidth=1, gid=f"{_KIND}reference"
        )
    _one_below_another(axes, [bar.name for bar in panel.bars])
    _ticks(axes.xaxis, panel.unit, highest)


def _spreads(axes: Axes, panel: Spreads) -> None:
    finite_values = [
        value
        for value in [
            *(value for spread in panel.spreads for _, value in spread.points),
            *(limit.value for limit in panel.limits),
        ]
        if math.isfinite(value) and value > 0
    ]
    highest = max(finite_values, default=1.0) * 1.6
    axes.set_xscale("log")
    axes.set_xlim(min(finite_values, default=0.1) / 1.6, highest)
    for number, spread in enumerate(panel.spreads):
        points = [(name, min(value, highest)) for name, value in spread.points if not math.isnan(value)]
        colour = LIGHT[spread.colour]
        axes.plot(
            [value for _, value in points],
            [number] * len(points),
            color=colour,
            linewidth=2,
            marker="o",
            markersize=5,
            clip_on=False,
            gid=f"{_KIND}spread",
        )
        if points:
            axes.annotate(
                ", ".join(
                    f"{name} {seconds(value)}" for name, value in spread.points if name in ("p50", "p99")
                ),
                xy=(points[-1][1], number),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                bbox={"facecolor": LIGHT["ground"], "edgecolor": "none", "pad": 1},
            )
    for limit in panel.limits:
        _limit(axes, limit, vertical=True)
    _one_below_another(axes, [spread.name for spread in panel.spreads])
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: amount(panel.unit, value)))


def _one_below_another(axes: Axes, names: Sequence[str]) -> None:
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), [_short(name, _LONGEST_BESIDE) for name in names])
    axes.tick_params(axis="y", length=0, labelcolor=LIGHT["ink"])
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")


def _growths(axes: Axes, panel: Growths) -> None:
    counts = sorted({point[0] for line in panel.lines for point in line.points} | {0})
    highest = max(
        [
            *(value for line in panel.lines for _, value, _ in line.points),
            *(value for _, value in panel.ideal),
        ],
        default=1.0,
    )
    if panel.ideal:
        axes.plot(
            [instances for instances, _ in panel.ideal],
            [value for _, value in panel.ideal],
            color=LIGHT["faint"],
            linestyle=(0, (5, 3)),
            linewidth=1,
            gid=f"{_KIND}ideal",
        )
    for line in panel.lines:
        colour = LIGHT[line.colour]
        axes.plot(
            [instances for instances, _, _ in line.points],
            [value for _, value, _ in line.points],
            color=colour,
            gid=f"{_KIND}growth",
        )
        for instances, value, at_least in line.points:
            axes.plot(
                [instances],
                [value],
                marker="^" if at_least else "o",
                markersize=7 if at_least else 6,
                color=colour,
                markerfacecolor=LIGHT["ground"] if at_least else colour,
                linestyle="",
                gid=f"{_KIND}capacity",
            )
            axes.annotate(
                f"{'at least ' if at_least else ''}{amount(panel.unit, value)}",
                xy=(instances, value),
                xytext=(0, 7),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=colour,
                bbox={"facecolor": LIGHT["ground"], "edgecolor": "none", "pad": 0.5},
            )
    axes.set_xlim(0, counts[-1] + 0.6)
    axes.set_ylim(0, highest * 1.15 or 1.0)
    axes.set_xticks(counts)
    axes.set_xlabel("instances")
    _ticks(axes.yaxis, panel.unit, highest)
    handles: list[Line2D] = [
        Line2D([], [], color=LIGHT[line.colour], marker="o", label=line.name) for line in panel.lines
    ]
    if panel.ideal:
        handles.append(
            Line2D(
                [],
                [],
                color=LIGHT["faint"],
                linestyle=(0, (5, 3)),
                label="ideal: every instance as the first",
            )
        )
    axes.legend(handles=handles, loc="upper left", fontsize=8.5, labelcolor=LIGHT["ink"])
