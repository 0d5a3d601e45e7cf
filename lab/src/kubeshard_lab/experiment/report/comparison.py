"""Runs in relation to each other: to the singleton, and with the number of instances.

Only runs of one scenario at the same scale, for the same time and on the same kind of server are compared; where the
load grows until the instances are too few, the scale is how fast it grows, and may differ. A run is compared with the
singleton of its own program or, if there is none, with another singleton.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from kubeshard_lab.experiment.objectives import QUANTILE, QUEUE, RECONCILE
from kubeshard_lab.experiment.recording import RunRecord
from kubeshard_lab.experiment.report.figures import (
    CONTROLLERS,
    Process,
    Waiting,
    processes,
    together,
    waiting,
)
from kubeshard_lab.experiment.report.recorded import Recorded
from kubeshard_lab.experiment.report.series import (
    Windows,
    cumulative_percentile,
    growth,
    latencies,
    rate,
)
from kubeshard_lab.experiment.report.words import setup

SINGLETON = "singleton"
SCALE_OUT = "scale-out"


@dataclass(frozen=True)
class Compared:
    name: str
    """Unique among those that it is compared with."""
    recorded: Recorded

    @property
    def run(self) -> RunRecord:
        return self.recorded.run

    @cached_property
    def windows(self) -> Windows:
        return Windows(self.recorded.begin, self.recorded.end)

    @cached_property
    def waiting(self) -> Waiting:
        return waiting(self.recorded)

    @cached_property
    def controllers(self) -> list[Process]:
        return [each for each in processes(self.recorded, self.windows) if each.role in CONTROLLERS]

    @cached_property
    def sum(self) -> Process:
        return together(self.controllers, self.name)

    @property
    def operators(self) -> list[Process]:
        return [each for each in self.controllers if each.role == "operator"]

    @property
    def per_generation(self) -> float:
        """Seconds of CPU of all controllers for each generation that became ready."""
        return self.sum.cpu / self.waiting.ready if self.waiting.ready else math.nan


@dataclass(frozen=True)
class Group:
    scenario: str
    duration: float
    server: str
    runs: list[Compared]

    @property
    def scales(self) -> list[float]:
        """In their order; one, unless the load grows until the instances are too few."""
        return sorted({each.run.scale for each in self.runs})

    def baseline(self, of: Compared) -> Compared | None:
        """The singleton that a run is compared with."""
        singletons = [each for each in self.runs if each.run.setup == SINGLETON]
        own = [each for each in singletons if each.run.program == of.run.program]
        return next(iter(own or singletons), None)

    def relative(self, of: Compared, figure: Callable[[Compared], float]) -> float:
        """NaN without a singleton."""
        baseline = self.baseline(of)
        return figure(of) / figure(baseline) if baseline and figure(baseline) else math.nan


@dataclass(frozen=True)
class Capacity:
    """The load at which a run still kept its levels."""

    run: Compared
    held: float
    """Seconds of load."""
    changes: float
    """Requests per second that were answered with success."""
    objects: float
    missed: str
    """The level that was missed first. Empty if none was: the capacity is at least that."""


def groups(runs: Iterable[Recorded]) -> list[Group]:
    found: dict[tuple[str, float, float, str, str], list[Recorded]] = defaultdict(list)
    for each in runs:
        run = each.run
        scale = math.inf if run.scenario == SCALE_OUT else run.scale
        found[
            run.scenario, scale, run.duration, run.server, run.costs and f"{run.latency} {run.costs}"
        ].append(each)
    return [
        Group(scenario, duration, server, _named(members))
        for (scenario, _, duration, server, _), members in found.items()
    ]


def _named(runs: Sequence[Recorded]) -> list[Compared]:
    """By what is different between them."""
    programs = {each.run.program for each in runs}
    names = [
        f"{each.run.program} {setup(each.run)}" if len(programs) > 1 else setup(each.run) for each in runs
    ]
    times, seen = Counter(names), Counter[str]()
    for number, name in enumerate(names):
        seen[name] += 1
        if times[name] > 1:
            names[number] = f"{name} ({seen[name]})"
    return [Compared(name, each) for name, each in zip(names, runs, strict=True)]


def scaled_out(group: Group) -> list[list[Compared]]:
    """Runs that differ only in the number of instances, in its order; without those that have no other beside them."""
    alike: dict[tuple[str, str, int], list[Compared]] = defaultdict(list)
    for each in group.runs:
        alike[each.run.program, each.run.setup, each.run.workers].append(each)
    return [
        sorted(runs, key=lambda each: each.run.instances)
        for runs in alike.values()
        if len({each.run.instances for each in runs}) > 1
    ]


def capacity(of: Compared) -> Capacity:
    """In the last window before a 99th percentile since the beginning exceeded the queue's or users' limit."""
    recorded, windows = of.recorded, of.windows
    held, missed = recorded.end, ""
    for objective in recorded.measured.objectives:
        if objective.histogram == RECONCILE:
            values = cumulative_percentile(latencies(recorded.generations), windows, QUANTILE)
            points = list(zip(windows.edges[1:], values, strict=True))
        elif objective.histogram == QUEUE:
            points = [*recorded.measured.over_time(objective, math.inf, windows.width)]
        else:
            continue
        exceeded = next((time for time, value in points if value > objective.limit), math.inf)
        if exceeded <= held:
            held, missed = exceeded, objective.title
    kept = [number for number, edge in enumerate(windows.edges[1:]) if not missed or edge < held]
    done = [row for row in recorded.requests if row.outcome == "ok"]
    changes = rate((row.answered for row in done), windows)
    objects = growth(
        [row.answered for row in done if row.verb == "create"],
        [row.answered for row in done if row.verb == "delete"],
        windows,
    )
    return Capacity(
        run=of,
        held=windows.edges[kept[-1] + 1] - windows.begin if kept else 0.0,
        changes=changes[kept[-1]] if kept else 0.0,
        objects=objects[kept[-1]] if kept else 0.0,
        missed=missed,
    )
