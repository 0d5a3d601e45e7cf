"""The page that compares runs, with its charts as files in a folder beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from kubeshard.experiment.report.comparison import Capacity, Group, capacity, groups, scaled_out
from kubeshard.experiment.report.comparison_charts import charts
from kubeshard.experiment.report.files import save
from kubeshard.experiment.report.html import Column, Markup, element, figure, judged, page, paragraph, table
from kubeshard.experiment.report.recorded import Recorded
from kubeshard.experiment.report.words import (
    SERVERS,
    count,
    digits,
    percent,
    plural,
    seconds,
    size,
)


def compare(folders: Sequence[Path], output: Path) -> Path:
    """Makes a page about the runs in these folders. Returns its path, which is `output`.

    Its charts are also written as files, into a folder beside it whose name ends with `-charts`. Raises
    ConfigurationError if a folder holds no run, or if the extra `experiment` is not installed.
    """
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
        f"{group.scenario} at {digits(group.scale)} of its rates, {seconds(group.duration)}, on "
        f"{SERVERS.get(group.server, group.server)}",
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
