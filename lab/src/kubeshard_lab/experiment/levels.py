"""Whether a run kept its service levels, from what it recorded; no Prometheus is needed.

| level | measured by |
|---|---|
| queue | the operators' histogram; left out on a cluster, where it is not read |
| reconcile | the tracker's samples, and the histogram where one was recorded |
| API server, writes | the server's histogram, or the load's own requests where the server's metrics were not recorded |
| API server, reads | the server's histogram; otherwise left out, with a note |

Guaranteed: a percentile of a histogram is that of PromQL's `histogram_quantile` over the same time, within a bucket;
what should have been measured and was not is a level that was not kept. A generation that was never ready has waited
until the end of the load, at least. What is counted before the load began, or after it ended, does not count.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
from prometheus_client import Metric

from kubeshard_lab.experiment.objectives import CONTROLLER, QUANTILE, RECONCILE, Objective, objectives
from kubeshard_lab.experiment.quantiles import increase, of_buckets, of_samples
from kubeshard_lab.experiment.recording import Generation, Level, Request, RunRecord, read, read_run, save
from kubeshard_lab.experiment.scrapes import Scrape, read_scrapes


def judge(folder: Path, controller: str = CONTROLLER) -> list[Level]:
    """Judges a run and saves the levels in its `run.json`. Raises FileNotFoundError, ValueError."""
    measured = Measured.read(folder, controller)
    run, levels = measured.run, measured.levels()
    notes = [*run.notes, *(note for note in measured.notes() if note not in run.notes)]
    save(folder, msgspec.structs.replace(run, levels=levels, notes=notes))
    return levels


class Point(NamedTuple):
    time: float
    """The end of the window."""
    seconds: float


class Measured:
    def __init__(
        self,
        run: RunRecord,
        scrapes: Iterable[Scrape],
        generations: Iterable[Generation],
        requests: Iterable[Request],
        controller: str = CONTROLLER,
    ) -> None:
        self.run = run
        self.objectives = objectives(controller)
        self._buckets = _Buckets(self.objectives)
        for scrape in scrapes:
            self._buckets.take(scrape)
        self._end = math.inf if math.isnan(run.ended) else run.ended
        self._generations = [each for each in generations if self._during_load(each.due)]
        self._requests = [each for each in requests if self._during_load(each.due)]

    @classmethod
    def read(cls, folder: Path, controller: str = CONTROLLER) -> Self:
        """Raises FileNotFoundError, ValueError."""
        return cls(
            read_run(folder),
            read_scrapes(folder),
            read(folder, Generation),
            read(folder, Request),
            controller,
        )

    def levels(self) -> list[Level]:
        return [level for objective in self.objectives for level in self._levels(objective)]

    def notes(self) -> list[str]:
        """Sentences about levels that are left out."""
        if self.run.server == "cluster":
            return []  # the run says so itself
        return [
            f"{objective.title}: not measured, as the recorded metrics of the API server have no such requests."
            for objective in self.objectives
            if objective.role == "server" and not self._levels(objective)
        ]

    def over_time(self, objective: Objective, window: float) -> list[Point]:
        """The worst group in each window since the load began, without empty windows."""
        begin, last = self.run.began, min(self._end, self._buckets.last)  # NaN if it did not begin
        found = []
        while (end := begin + window) <= last:
            worst = _worst(self._buckets.quantiles(objective, begin, end))
            if worst is not None:
                found.append(Point(end, worst[0]))
            begin = end
        return found

    def _during_load(self, time: float) -> bool:
        return self.run.began <= time <= self._end

    def _levels(self, objective: Objective) -> Sequence[Level]:
        worst = _worst(self._buckets.quantiles(objective, self.run.began, self._end))
        if objective.histogram == RECONCILE:
            exact = _level(objective, _worst({(): of_samples(QUANTILE, self._waits())}))
            return (exact, _level(objective, worst, " (buckets)")) if worst is not None else (exact,)
        if objective.name == "latency-mutating" and worst is None:
            return (_level(objective, _worst(self._answers()), " of the load"),)
        if worst is None and (objective.role == "server" or self.run.server == "cluster"):
            return ()
        return (_level(objective, worst),)

    def _waits(self) -> list[float]:
        seen = max((each.due for each in self._generations), default=-math.inf)
        end = self._end if self._end < math.inf else max(self._buckets.last, seen)
        return [
            max(end - each.due, 0.0) if math.isnan(each.ready) else each.ready - each.due
            for each in self._generations
            if not each.gone
        ]

    def _answers(self) -> Mapping[tuple[str, ...], float]:
        """By verb, of those that were answered."""
        seconds = defaultdict[tuple[str, ...], list[float]](list)
        for each in self._requests:
            if not math.isnan(each.answered):
                seconds[(each.verb,)].append(each.answered - each.sent)
        return {verb: of_samples(QUANTILE, samples) for verb, samples in seconds.items()}


class _Series(NamedTuple):
    group: tuple[str, ...]
    bound: float
    """The upper one of the bucket."""
    times: list[float]
    values: list[float]


class _Buckets:
    def __init__(self, objectives: Sequence[Objective]) -> None:
        self._objectives = objectives
        self._series: dict[str, dict[tuple[object, ...], _Series]] = {each.name: {} for each in objectives}
        self.last = -math.inf

    def take(self, scrape: Scrape) -> None:
        self.last = max(self.last, scrape.time)
        wanted = {each.histogram for each in self._objectives if each.role == scrape.role}
        for name, part in scrape.parts().items():
            if name in wanted:
                for family in scrape.parsed(part):
                    self._take(scrape, family)

    def _take(self, scrape: Scrape, family: Metric) -> None:
        bucket = f"{family.name}_bucket"
        for objective in self._objectives:
            if (objective.role, objective.histogram) == (scrape.role, family.name):
                for sample in family.samples:
                    if sample.name == bucket and objective.covers(sample.labels):
                        series = self._found(objective, scrape.process, sample.labels)
                        series.times.append(scrape.time)
                        series.values.append(sample.value)

    def _found(self, objective: Objective, process: str, labels: Mapping[str, str]) -> _Series:
        known, key = self._series[objective.name], (process, *sorted(labels.items()))
        if key not in known:
            known[key] = _Series(objective.group(labels), float(labels["le"]), [], [])
        return known[key]

    def quantiles(self, objective: Objective, begin: float, end: float) -> dict[tuple[str, ...], float]:
        """By group. NaN for groups in which nothing was counted."""
        groups = defaultdict[tuple[str, ...], dict[float, float]](lambda: defaultdict(float))
        for group, bound, times, values in self._series[objective.name].values():
            groups[group][bound] += increase(times, values, begin, end)
        return {group: of_buckets(QUANTILE, buckets) for group, buckets in groups.items()}


def _worst(figures: Mapping[tuple[str, ...], float]) -> tuple[float, str] | None:
    """The highest figure and its group; None without any."""
    known: Iterator[tuple[float, tuple[str, ...]]] = (
        (figure, group) for group, figure in figures.items() if not math.isnan(figure)
    )
    highest = max(known, default=None)
    return highest and (highest[0], " ".join(highest[1]))


def _level(objective: Objective, worst: tuple[float, str] | None, more: str = "") -> Level:
    figure, subject = worst or (None, "")
    return Level(
        name=objective.title + more,
        limit=objective.limit,
        worst=figure,
        kept=figure is not None and figure <= objective.limit,
        subject=subject,
    )
