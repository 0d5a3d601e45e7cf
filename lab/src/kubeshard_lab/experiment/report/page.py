"""The page of one run: `report.html` in its folder, with its charts as files in `charts`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from kubeshard.core.errors import ConfigurationError
from kubeshard.version import how_to_install
from kubeshard_lab.experiment.recording import RunRecord
from kubeshard_lab.experiment.report.charts import Chart
from kubeshard_lab.experiment.report.figures import CONTROLLERS, Process, loads, processes, together, waiting
from kubeshard_lab.experiment.report.html import (
    Column,
    Markup,
    bullets,
    element,
    facts,
    figure,
    judged,
    page,
    paragraph,
    table,
)
from kubeshard_lab.experiment.report.recorded import Recorded
from kubeshard_lab.experiment.report.run_charts import charts, incidents
from kubeshard_lab.experiment.report.series import Windows
from kubeshard_lab.experiment.report.words import (
    clock,
    count,
    digits,
    join,
    percent,
    plural,
    seconds,
    size,
    what,
)

PAGE = "report.html"
CHARTS = "charts"
MOST_INCIDENTS = 100


def write(folder: Path, output: Path | None = None) -> Path:
    """The run's page, with charts in a folder beside it. Raises ConfigurationError for no run, or no extra `lab`."""
    recorded = Recorded.load(folder)
    windows = Windows(recorded.begin, recorded.end)
    shown = charts(recorded, windows)
    path = output or folder / PAGE
    beside = path.with_name(CHARTS if path.name == PAGE else f"{path.stem}-charts")
    drawn = _drawn(shown, beside)
    made = page(
        recorded.run.title,
        header=[paragraph(what(recorded.run)), judged(recorded.run, "p")],
        main=[
            *_generations(recorded),
            *_levels(recorded.run),
            *_requests(recorded),
            *_processes(recorded, windows),
            *(figure(chart, drawn[chart.name]) for chart in shown),
            *_incidents(recorded),
            *_notes(recorded.run),
        ],
        footer=[_footer(recorded, beside.name)],
    )
    path.write_text(made, encoding="utf-8")
    return path


def _drawn(shown: Iterable[Chart], folder: Path) -> dict[str, str]:
    """Writes each chart as CSV, SVG and PNG. Returns the drawings by the names of their charts."""
    try:
        from kubeshard_lab.experiment.report.drawing import png, svg
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"reports need the package {error.name}: {how_to_install('lab')}") from None
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for chart in shown:
        drawn[chart.name] = svg(chart)
        (folder / f"{chart.name}.csv").write_text(chart.csv(), encoding="utf-8")
        (folder / f"{chart.name}.svg").write_text(drawn[chart.name], encoding="utf-8")
        (folder / f"{chart.name}.png").write_bytes(png(chart))
    return drawn


def _generations(recorded: Recorded) -> Iterator[Markup]:
    found = waiting(recorded)
    yield element("h2", "What users waited for")
    if not found.written:
        yield paragraph("No generation was written.")
        return
    waited = found.ready + found.never
    p50, p90, p99, p999 = map(seconds, found.latency)
    yield paragraph(
        f"{plural(found.written, 'generation')} of objects' specs were written, and {count(found.ready)} became ready: "
        f"half of all within {p50}, 99 of 100 within {p99}. "
        + (f"{count(found.never)} never did." if found.never else "None was left behind.")
    )
    names = ("written", "ready", "never ready", "deleted before", "backfilled", "p50", "p90", "p99", "p99.9")
    numbers = (found.written, found.ready, found.never, found.gone, found.backfilled)
    yield table([Column(name) for name in names], [[*map(count, numbers), p50, p90, p99, p999]])
    shares = [
        f"{percent(number / waited)} within {seconds(limit)}"
        for limit, number in found.within.items()
        if waited
    ]
    yield paragraph(
        (f"Ready: {join(shares)}. " if shares else "")
        + "Counted from when a write was due until its status was seen; what was never ready counts as infinitely "
        "long. Deleted before: the load deleted the object before it was ready. Backfilled: a later generation of the "
        "object was the first that was seen to be ready.",
        "faint",
    )


def _levels(run: RunRecord) -> Iterator[Markup]:
    if not run.levels:
        return
    yield element("h2", "Service levels")
    yield table(
        [
            Column("level", number=False),
            *map(Column, ("limit", "worst")),
            *(Column(name, number=False) for name in ("of", "verdict")),
        ],
        [
            [
                level.name,
                seconds(level.limit),
                "nothing measured" if level.worst is None else seconds(level.worst),
                level.subject,
                element("b", "\u2713 kept", "good") if level.kept else element("b", "\u2717 missed", "bad"),
            ]
            for level in run.levels
        ],
    )


def _requests(recorded: Recorded) -> Iterator[Markup]:
    found = loads(recorded.requests)
    if not found:
        return
    yield element("h2", "Requests of the load")
    yield table(
        [
            Column("verb", number=False),
            *map(Column, ("requests", "per second", "sent late, p99", "answer p50", "p99")),
            Column("failed", number=False),
        ],
        [
            [
                load.verb,
                count(load.requests),
                digits(load.requests / recorded.seconds) if recorded.seconds else "-",
                seconds(load.late),
                seconds(load.answered[0]),
                seconds(load.answered[2]),
                ", ".join(f"{reason}: {count(number)}" for reason, number in load.failed.most_common())
                or "none",
            ]
            for load in found
        ],
        sums=len(found) > 1,
    )


def _processes(recorded: Recorded, windows: Windows) -> Iterator[Markup]:
    found = processes(recorded, windows)
    if not found:
        return
    yield element("h2", "What the processes used")
    names = ("CPU", "cores, mean", "at most", "memory, mean", "at most", "restarts")
    controllers = [each for each in found if each.role in CONTROLLERS]
    sums = [together(controllers, "operators and sharders")] if len(controllers) > 1 else []
    yield table(
        [Column("process", number=False), *map(Column, names)],
        [_process(each) for each in (*found, *sums)],
        sums=len(sums),
    )
    ready = waiting(recorded).ready
    if ready and controllers:
        used = math.fsum(each.cpu for each in controllers)
        yield paragraph(
            f"For each generation made ready the controllers used {seconds(used / ready)} of CPU.", "faint"
        )


def _process(each: Process) -> list[str]:
    cores, memory = (each.cores, each.cores_at_most), (each.memory, each.memory_at_most)
    return [each.name, seconds(each.cpu), *map(digits, cores), *map(size, memory), count(each.restarts)]


def _incidents(recorded: Recorded) -> Iterator[Markup]:
    found = incidents(recorded)
    if not found:
        return
    yield element("h2", "What happened")
    yield paragraph("The numbers are those at the vertical lines in the charts.", "faint")
    yield table(
        [Column("no."), Column("time"), *(Column(name, number=False) for name in ("event", "of", "detail"))],
        [
            [str(each.number), clock(each.time), each.event.kind, each.event.subject, each.event.detail]
            for each in found[:MOST_INCIDENTS]
        ],
    )
    if len(found) > MOST_INCIDENTS:
        yield paragraph(f"And {plural(len(found) - MOST_INCIDENTS, 'more event')}: see events.csv.")


def _notes(run: RunRecord) -> Iterator[Markup]:
    if run.notes:
        yield element("h2", "Notes")
        yield bullets(run.notes)
    if run.machine:
        yield element("h2", "The machine")
        yield facts(run.machine)


def _footer(recorded: Recorded, beside: str) -> Markup:
    run = recorded.run
    began = datetime.fromtimestamp(recorded.begin, UTC) if math.isfinite(recorded.begin) else None
    when = (
        f"The load began at {began:%Y-%m-%d %H:%M:%S} UTC and was on for {seconds(recorded.seconds)}. "
        if began
        else ""
    )
    return paragraph(
        f"Run {run.id}, seed {run.seed}. {when}Each chart is also in the folder {beside} beside this page, as SVG, PNG "
        "and CSV; times in them are seconds since the load began. Every sample is in the CSV files of the run."
    )
