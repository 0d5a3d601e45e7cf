"""The charts of one run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from kubeshard_lab.experiment.objectives import QUEUE
from kubeshard_lab.experiment.recording import Event, Level, Usage
from kubeshard_lab.experiment.report.charts import Chart, Course, Limit, Line, Mark
from kubeshard_lab.experiment.report.colours import of_line
from kubeshard_lab.experiment.report.figures import CONTROLLERS, natural
from kubeshard_lab.experiment.report.recorded import Recorded
from kubeshard_lab.experiment.report.series import (
    Sample,
    Values,
    Windows,
    by_process,
    cores,
    finite,
    gauge,
    growth,
    latencies,
    mean,
    percentiles,
    rate,
    steps,
)
from kubeshard_lab.experiment.report.words import (
    Unit,
    against,
    clock,
    count,
    digits,
    join,
    plural,
    seconds,
    size,
)

PERCENTILES = {"p50": (0.5, "blue"), "p90": (0.9, "green"), "p99": (0.99, "vermilion")}
BAD = {"killed", "crashed", "ended", "server-lost"}
MEMBERSHIP = {*BAD, "started", "stopped", "restarted", "rolled", "joined", "left"}
SHORTEST_OF_SCRAPES = 10.0
"""Seconds of a window over which histograms that are read every few seconds say something."""


@dataclass(frozen=True)
class Incident:
    """An event that charts mark, with the number under which the page lists it."""

    number: int
    time: float
    """Seconds since the load began."""
    event: Event


def incidents(recorded: Recorded) -> list[Incident]:
    during = [
        event
        for event in recorded.events
        if event.kind in MEMBERSHIP and recorded.begin <= event.time <= recorded.end
    ]
    return [
        Incident(number, event.time - recorded.begin, event) for number, event in enumerate(during, start=1)
    ]


def charts(recorded: Recorded, windows: Windows) -> list[Chart]:
    """Those for which something was recorded, in the order of a page."""
    marks = [Mark(each.time, str(each.number), each.event.kind in BAD) for each in incidents(recorded)]
    measured = any(row.resident for row in recorded.usages)  # not in a simulation
    wanted = (
        latency(recorded, windows),
        queue(recorded, windows),
        rates(recorded, windows),
        objects(recorded, windows),
        cpu(recorded, windows),
        *([memory(recorded, windows)] if measured else []),
    )
    found = []
    for chart in wanted:
        panels = [replace(panel, marks=marks) for panel in chart.panels if not panel.empty()]
        if panels:
            found.append(replace(chart, panels=panels))
    return found


def latency(recorded: Recorded, windows: Windows) -> Chart:
    shares = [share for share, _ in PERCENTILES.values()]
    found = percentiles(latencies(recorded.generations), windows, shares)
    lines = [
        Line(name, values, colour)
        for (name, (_, colour)), values in zip(PERCENTILES.items(), found, strict=True)
    ]
    limits = _limits(recorded.run.levels, "reconcile p99")
    never = sum(math.isinf(value) for value in found[-1])
    return Chart(
        name="latency",
        title="How long users waited",
        says=(
            f"Percentiles of the time from when a write was due until its generation was ready, in windows of "
            f"{seconds(windows.width)}. {_extremes(windows.times, lines[-1], seconds)}"
            + (f" In {plural(never, 'window')} more than 1 % were never ready." if never else "")
        ),
        panels=[
            Course("", Unit.SECONDS, recorded.seconds, windows.times, lines, limits=limits, logarithmic=True)
        ],
        note=f"From when a write was due until its generation was seen ready, by when it was due, in windows of "
        f"{seconds(windows.width)}. "
        + ("The service level reconcile p99 limits this time." if limits else "")
        + (
            " A triangle at the upper edge: so many were never ready that this percentile has no value."
            if never
            else ""
        ),
    )


def queue(recorded: Recorded, windows: Windows) -> Chart:
    objective = next(each for each in recorded.measured.objectives if each.histogram == QUEUE)
    window = max(windows.width, SHORTEST_OF_SCRAPES)
    points = recorded.measured.over_time(objective, window)
    line = Line("p99", [point.seconds for point in points], PERCENTILES["p99"][1])
    times = [point.time - recorded.begin - window / 2 for point in points]
    return Chart(
        name="queue",
        title="Time in the queue",
        says=f"The 99th percentile of how long keys waited in the operators' queues. {_extremes(times, line, seconds)}",
        panels=[
            Course(
                "",
                Unit.SECONDS,
                recorded.seconds,
                times,
                [line],
                limits=_limits(recorded.run.levels, objective.title),
                logarithmic=True,
            )
        ],
        note=f"In windows of {seconds(window)}, from the operators' histograms: an estimate between a bucket's bounds.",
    )


def rates(recorded: Recorded, windows: Windows) -> Chart:
    """What was wanted comes from the scenario where it was recorded, otherwise from when requests were due."""
    requests = recorded.requests
    wanted = gauge(recorded.gauges, "rate-wanted", windows).get("") or rate(
        (row.due for row in requests), windows
    )
    reached = rate((row.answered for row in requests if row.outcome == "ok"), windows)
    failed = [
        row.answered if math.isfinite(row.answered) else row.sent for row in requests if row.outcome != "ok"
    ]
    lines = [Line("wanted", wanted, "amber", dashed=True), Line("reached", reached, "blue")]
    if failed:
        lines.append(Line("failed", rate(failed, windows), "vermilion"))
    waiting = [
        Line("unready", values, "purple") for values in gauge(recorded.gauges, "unready", windows).values()
    ]
    late = [max(0.0, row.sent - row.due) for row in requests]
    return Chart(
        name="rate",
        title="Load: rate wanted and reached",
        says=(
            f"Requests per second that the scenario wanted, and those that were answered. "
            f"{_extremes(windows.times, lines[1], digits)}"
            + (f" {plural(len(failed), 'request')} failed." if failed else " No request failed.")
        ),
        panels=[
            Course(
                "Requests a second",
                Unit.PER_SECOND,
                recorded.seconds,
                windows.times,
                lines if requests else [],
            ),
            Course("Generations not ready yet", Unit.OBJECTS, recorded.seconds, windows.times, waiting),
        ],
        note="Where the lines part, the generator or the API server fell behind; on average a "
        f"request was sent {seconds(math.fsum(late) / len(late) if late else math.nan)} after it was due.",
    )


def objects(recorded: Recorded, windows: Windows) -> Chart:
    shards = gauge(recorded.gauges, "objects-of-shard", windows)
    without = shards.pop("", [])
    lines = [
        Line(name, shards[name], of_line(number)) for number, name in enumerate(sorted(shards, key=natural))
    ]
    if any(value > 0 for value in without):
        lines.append(Line("no shard", without, "bad"))
    created = [row.answered for row in recorded.requests if (row.verb, row.outcome) == ("create", "ok")]
    deleted = [row.answered for row in recorded.requests if (row.verb, row.outcome) == ("delete", "ok")]
    if len(lines) != 1 and created:
        lines.append(Line("all", growth(created, deleted, windows), "faint", dashed=True))
    last = [(line.name, known[-1]) for line in lines if (known := finite(line.values))]
    return Chart(
        name="objects",
        title="Objects per shard",
        says="Number of objects that each shard is responsible for. At the end: "
        + join([f"{name} {count(value)}" for name, value in last])
        + ".",
        panels=[Course("", Unit.OBJECTS, recorded.seconds, windows.times, lines)],
    )


def cpu(recorded: Recorded, windows: Windows) -> Chart:
    panels = _by_role(recorded, windows, Unit.CORES, lambda rows: cores(steps(rows), windows))
    return Chart(
        name="cpu",
        title="CPU",
        says=f"Cores that each process used. {_busiest(panels, lambda value: f'{digits(value)} cores')}",
        panels=panels,
        note=f"Cores, in windows of {seconds(windows.width)}.",
    )


def memory(recorded: Recorded, windows: Windows) -> Chart:
    panels = _by_role(
        recorded,
        windows,
        Unit.BYTES,
        lambda rows: mean((Sample(row.time, float(row.resident)) for row in rows), windows),
    )
    return Chart(
        name="memory",
        title="Memory",
        says=f"Resident memory of each process. {_busiest(panels, size)}",
        panels=panels,
        note="Resident memory.",
    )


def _by_role(
    recorded: Recorded, windows: Windows, unit: Unit, used: Callable[[Sequence[Usage]], Values]
) -> list[Course]:
    """A panel for the controllers, and one for what is around them and uses much more."""
    inside: list[Line] = []
    outside: list[Line] = []
    processes = by_process(recorded.usages)
    for name in sorted(processes, key=lambda name: (processes[name][0].role, natural(name))):
        rows = processes[name]
        role = rows[0].role
        lines = inside if role in CONTROLLERS else outside
        lines.append(Line(name, used(rows), of_line(len(lines)), dashed=role in ("sharder", "tool")))
    panels = (("Operators and sharders", inside), ("API server and experiment", outside))
    return [Course(title, unit, recorded.seconds, windows.times, lines) for title, lines in panels if lines]


def _limits(levels: Iterable[Level], name: str) -> list[Limit]:
    return [
        Limit(f"{level.name}: {'kept' if level.kept else 'missed'} ({against(level)})", level.limit)
        for level in levels
        if level.name == name
    ]


def _extremes(times: Values, line: Line, spoken: Callable[[float], str]) -> str:
    known = [(value, time) for time, value in zip(times, line.values, strict=True) if math.isfinite(value)]
    if not known:
        return "Nothing was measured."
    (low, _), (high, when) = min(known), max(known)
    return f"{line.name} between {spoken(low)} and {spoken(high)}, the highest at {clock(when)}."


def _busiest(panels: Iterable[Course], spoken: Callable[[float], str]) -> str:
    highest = [
        f"{line.name} {spoken(max(known))}"
        for panel in panels
        for line in panel.lines
        if (known := finite(line.values))
    ]
    return f"At most: {join(highest)}." if highest else "Nothing was measured."
