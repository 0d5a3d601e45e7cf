"""The page that compares runs, with its charts as files in a folder beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kubeshard_lab.experiment.objectives import RECONCILE
from kubeshard_lab.experiment.report.charts import (
    Bar,
    Bars,
    Chart,
    Course,
    Growth,
    Growths,
    Limit,
    Line,
    Part,
    Spread,
    Spreads,
)
from kubeshard_lab.experiment.report.colours import of_line
from kubeshard_lab.experiment.report.comparison import Capacity, Group, capacity, groups, scaled_out
from kubeshard_lab.experiment.report.figures import SHARES, Process
from kubeshard_lab.experiment.report.files import save
from kubeshard_lab.experiment.report.html import (
    Column,
    Markup,
    element,
    figure,
    judged,
    page,
    paragraph,
    table,
)
from kubeshard_lab.experiment.report.recorded import Recorded
from kubeshard_lab.experiment.report.series import by_process, steps, usage_rate
from kubeshard_lab.experiment.report.words import (
    SERVERS,
    Unit,
    amount,
    costs,
    count,
    digits,
    join,
    percent,
    plural,
    seconds,
    size,
)

COLUMNS = 3


SHARDER = "grey"


def compare(folders: Sequence[Path], output: Path) -> Path:
    """Returns the page, `output`, with charts in a folder beside it. Raises ConfigurationError."""
    found = groups(Recorded.load(folder) for folder in folders)
    beside = output.with_name(f"{output.stem}-charts")
    output.parent.mkdir(parents=True, exist_ok=True)
    main: list[Markup] = []
    for number, group in enumerate(found, start=1):
        main += _group(group, f"group-{number}", beside)
    scenarios = ", ".join(dict.fromkeys(group.scenario for group in found))
    output.write_text(
        page(
            f"{plural(len(folders), 'run')} compared: {scenarios}",
            header=[paragraph(_about(found))],
            main=main,
            footer=[
                paragraph(
                    f"Each chart is also in the folder {beside.name} beside this page, as SVG, PNG and CSV. Every run "
                    "has a page of its own in its folder."
                )
            ],
        ),
        encoding="utf-8",
    )
    return output


def _about(found: Sequence[Group]) -> str:
    several = (
        f" They are of {len(found)} kinds, with different scenarios, scales, durations or servers, and only runs of "
        "one kind are compared with each other."
        if len(found) > 1
        else ""
    )
    return (
        "Runs are named by their set-up: 3 x 15 are 3 instances with 15 workers each. Users wait from when a write was "
        "due until it is ready, and percentiles are those of all samples. What operators and sharders use is counted, "
        f"and not what the API server and the load itself do.{several}"
    )


def _group(group: Group, name: str, beside: Path) -> Iterator[Markup]:
    capacities = [[capacity(each) for each in runs] for runs in scaled_out(group)]
    shown = charts(group, capacities, name)
    drawn = save(shown, beside)
    yield element(
        "h2",
        f"{group.scenario} at {' to '.join(map(digits, group.scales))} of its rates, {seconds(group.duration)}, on "
        f"{SERVERS.get(group.server, group.server)}{costs(group.runs[0].recorded.run)}",
        "group",
    )
    yield from _runs(group)
    yield from _costs(group)
    for chart in shown:
        yield figure(chart, drawn[chart.name])
        if chart.name.endswith("-capacity"):
            yield from _capacities(capacities)


def _runs(group: Group) -> Iterator[Markup]:
    names = ("generations", "ready", "never", "p50", "p90", "p99")
    yield table(
        [Column("run", number=False), *map(Column, names), Column("verdict", number=False)],
        [
            [
                each.name,
                count(each.waiting.written),
                count(each.waiting.ready),
                count(each.waiting.never),
                *map(seconds, each.waiting.latency[:3]),
                judged(each.run),
            ]
            for each in group.runs
        ],
    )


def _costs(group: Group) -> Iterator[Markup]:
    yield element("h3", "What operators and sharders used")
    names = (
        "cores", "vs. singleton", "each operator", "CPU per generation", "memory", "vs. singleton", "each operator",
    )  # fmt: skip
    rows = []
    for each in group.runs:
        baseline = group.baseline(each)
        single = baseline.sum if baseline else None
        rows.append(
            [
                each.name,
                digits(each.sum.cores),
                percent(group.relative(each, lambda other: other.sum.cores)),
                _range(
                    [operator.cores / single.cores for operator in each.operators if single and single.cores]
                ),
                seconds(each.per_generation),
                size(each.sum.memory),
                percent(group.relative(each, lambda other: other.sum.memory)),
                _range(
                    [
                        operator.memory / single.memory
                        for operator in each.operators
                        if single and single.memory
                    ]
                ),
            ]
        )
    yield table([Column("run", number=False), *map(Column, names)], rows)
    yield paragraph(
        "Means over the load, all processes together; each operator is relative to the singleton as well."
        if any(map(group.baseline, group.runs))
        else "There is no singleton among these runs, so nothing is relative to one.",
        "faint",
    )


def _range(shares: Sequence[float]) -> str:
    """Of several operators the lowest and the highest."""
    known = [share for share in shares if math.isfinite(share)]
    if not known:
        return "-"
    low, high = percent(min(known)), percent(max(known))
    return low if low == high else f"{low.removesuffix(' %')}\u2013{high}"


def _capacities(lines: Sequence[Sequence[Capacity]]) -> Iterator[Markup]:
    rows = []
    for capacities in lines:
        first = capacities[0]
        for each in capacities:
            run = each.run.run
            relative = each.changes / first.changes if first.changes else math.nan
            rows.append(
                [
                    each.run.name,
                    f"{'' if each.missed else 'at least '}{digits(each.changes)}",
                    f"{digits(relative)}x" if math.isfinite(relative) else "-",
                    f"{digits(run.instances / first.run.run.instances)}x",
                    count(each.objects),
                    seconds(each.held),
                    each.missed or "none",
                ]
            )
    names = ("changes a second", "to the first", "ideal", "objects", "held for")
    yield table(
        [Column("run", number=False), *map(Column, names), Column("missed first", number=False)], rows
    )


def charts(group: Group, capacities: Sequence[Sequence[Capacity]], name: str) -> list[Chart]:
    """Those of one group, in the order of a page. Their names begin with `name`."""
    wanted = (sums(group), latency(group), cores(group), *([scaling(capacities)] if capacities else []))
    found = []
    for chart in wanted:
        panels = [panel for panel in chart.panels if not panel.empty()]
        if panels:
            found.append(replace(chart, name=f"{name}-{chart.name}", panels=panels))
    return found


def sums(group: Group) -> Chart:
    wanted = [
        _sums(group, "CPU, mean of the load", Unit.CORES, lambda each: each.cores),
        _sums(group, "Memory, mean of the load", Unit.BYTES, lambda each: each.memory_of_load),
        _sums(group, "Network, sent and received in all", Unit.BYTES, lambda each: each.received + each.sent),
    ]
    panels = [panel for panel in wanted if any(bar.parts for bar in panel.bars)] or wanted[:1]
    relative = "In brackets: relative to the singleton." if any(map(group.baseline, group.runs)) else ""
    dashed = " The dashed line is the singleton." if math.isfinite(panels[0].reference) else ""
    return Chart(
        name="sums",
        title="What a set-up costs",
        says="The sum over all operators and sharders of each run. "
        + " ".join(
            f"{panel.title}: {join([f'{bar.name} {bar.remark}' for bar in panel.bars])}." for panel in panels
        ),
        panels=panels,
        note="The sum over all operators and sharders, each of which is a part of the bar: operators in colours, "
        f"sharders in grey. {relative}{dashed}",
    )


def latency(group: Group) -> Chart:
    spreads = [
        Spread(
            each.name,
            of_line(number),
            [(f"p{share * 100:g}", value) for share, value in zip(SHARES, each.waiting.latency, strict=True)],
        )
        for number, each in enumerate(group.runs)
    ]
    limits = {
        Limit(f"limit {seconds(objective.limit)}", objective.limit)
        for each in group.runs
        for objective in each.recorded.measured.objectives
        if objective.histogram == RECONCILE
    }
    listed = join([f"{each.name} {seconds(each.points[2][1])}" for each in spreads])
    return Chart(
        name="latency",
        title="How long users waited",
        says=f"Percentiles from p50 to p99.9 of the time from when a write was due until it was ready. p99: {listed}.",
        panels=[Spreads("", Unit.SECONDS, spreads, limits=sorted(limits, key=lambda limit: limit.value))],
        note="From when a write was due until its generation was ready: the dots are p50, p90, p99 and p99.9. The "
        "axis is logarithmic, and farther left is better; what was never ready is infinitely long, at the right edge.",
    )


def cores(group: Group) -> Chart:
    panels = []
    for each in group.runs:
        processes = by_process(each.recorded.usages)
        ordered = sorted(each.controllers, key=lambda process: process.role != "sharder")
        lines = [
            Line(
                process.name,
                usage_rate(steps(processes[process.name]), lambda step: step.cpu, each.windows),
                colour,
            )
            for process, colour in zip(ordered, _colours(ordered), strict=True)
        ]
        panels.append(
            Course(each.name, Unit.CORES, each.recorded.seconds, each.windows.times, lines, stacked=True)
        )
    return Chart(
        name="cpu",
        title="CPU over time",
        says="Cores that operators and sharders used, on top of each other, one panel for each run. On average, all: "
        + join([f"{each.name} {digits(each.sum.cores)}" for each in group.runs])
        + ".",
        panels=panels,
        columns=COLUMNS,
        same_scale=True,
        note="Cores, on top of each other: the upper edge is the sum. All panels have the same scale.",
    )


def scaling(lines: Sequence[Sequence[Capacity]]) -> Chart:
    """With the line that runs through the smallest number of instances and the origin."""
    growths = [
        Growth(
            _line_name(capacities, lines),
            of_line(number),
            [(each.run.run.instances, each.changes, not each.missed) for each in capacities],
        )
        for number, capacities in enumerate(lines)
    ]
    most = max(instances for growth in growths for instances, _, _ in growth.points)
    first, value, _ = growths[0].points[0]
    rates = [
        f"{growth.name}: " + join([f"{value:.0f} with {instances}" for instances, value, _ in growth.points])
        for growth in growths
    ]
    return Chart(
        name="capacity",
        title="Capacity by the number of instances",
        says=f"Changes per second until a service level was missed. {'; '.join(rates)}. Ideal for {most}: "
        f"{value / first * most:.0f}.",
        panels=[
            Growths(
                "Changes a second",
                Unit.PER_SECOND,
                growths,
                ideal=[(0, 0.0), (most, value / first * most)],
            )
        ],
        note="The load in the last moment before the 99th percentile of all since the load began exceeded its limit: "
        "that of the queue, or that of what users waited for. A hollow triangle: no limit was exceeded, so the "
        "capacity is at least that.",
    )


def _sums(group: Group, title: str, unit: Unit, figure: Callable[[Process], float]) -> Bars:
    bars = []
    for each in group.runs:
        relative = group.relative(each, lambda other: figure(other.sum))
        whole = amount(unit, figure(each.sum))
        bars.append(
            Bar(
                each.name,
                [
                    Part(process.name, value, colour)
                    for process, colour in zip(each.controllers, _colours(each.controllers), strict=True)
                    if math.isfinite(value := figure(process))
                ],
                f"{whole} ({percent(relative)})" if math.isfinite(relative) else whole,
            )
        )
    baselines = {baseline.name: baseline for each in group.runs if (baseline := group.baseline(each))}
    reference = figure(next(iter(baselines.values())).sum) if len(baselines) == 1 else math.nan
    return Bars(title, unit, bars, reference)


def _colours(processes: Sequence[Process]) -> list[str]:
    """Operators have the colours of lines, sharders another."""
    found, operators = [], 0
    for each in processes:
        found.append(of_line(operators) if each.role == "operator" else SHARDER)
        operators += each.role == "operator"
    return found


def _line_name(capacities: Sequence[Capacity], lines: Sequence[Sequence[Capacity]]) -> str:
    run = capacities[0].run.run
    name = f"{run.program}, {run.setup}"
    alike = [
        each for each in lines if (each[0].run.run.program, each[0].run.run.setup) == (run.program, run.setup)
    ]
    return f"{name}, {run.workers} workers" if len(alike) > 1 else name
