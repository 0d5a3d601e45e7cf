"""From the rows of a run to values over time.

Percentiles are those of samples (`quantiles.of_samples`), not of buckets. A generation that was never ready has an
infinite latency, and so has a percentile that it decides; one that the load deleted before it was ready has none. A
window in which nothing was measured has the value NaN.

A process's counters begin at 0 again when it is restarted. What it used between its last line and its end is unknown
and counted as nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from kubeshard_lab.experiment.quantiles import of_samples
from kubeshard_lab.experiment.recording import Gauge, Generation, Usage

Values = list[float]

WIDTHS = (5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
SHORT = 50.0
"""Up to here windows of `SHORT_WIDTH`; otherwise longer ones than between two scrapes."""
SHORT_WIDTH = 2.0
MOST_WINDOWS = 90
"""With more of them lines become restless, and percentiles those of few samples."""


class Windows:
    """Equal parts of the time between `begin` and `end`. The last one may be shorter or longer by half."""

    def __init__(self, begin: float, end: float, width: float | None = None) -> None:
        """Without a width, one for which there are enough windows, but not too many."""
        seconds = end - begin if end > begin else 0.0  # of NaN as well
        if width is None:
            longer = next((float(w) for w in WIDTHS if seconds / w <= MOST_WINDOWS), seconds / MOST_WINDOWS)
            width = longer if seconds > SHORT else SHORT_WIDTH
        count = max(1, math.floor(seconds / width + 0.5)) if seconds > 0 else 0
        self.width = width
        self.begin = begin
        self.edges = [begin + width * number for number in range(count)] + ([end] if count else [])

    def __len__(self) -> int:
        return max(0, len(self.edges) - 1)

    @property
    def times(self) -> Values:
        """The middle of each window, in seconds since `begin`."""
        return [(start + end) / 2 - self.begin for start, end in pairwise(self.edges)]

    @property
    def lengths(self) -> Values:
        return [end - start for start, end in pairwise(self.edges)]

    def index(self, time: float) -> int | None:
        """The window in which this time is; None outside of all."""
        if not len(self) or not self.edges[0] <= time <= self.edges[-1]:
            return None
        return min(bisect_right(self.edges, time), len(self)) - 1

    def overlaps(self, start: float, end: float) -> Iterator[tuple[int, float]]:
        """The windows that this stretch of time touches, each with the seconds in it."""
        for number in range(max(0, bisect_right(self.edges, start) - 1), len(self)):
            if self.edges[number] >= end:
                break
            common = min(end, self.edges[number + 1]) - max(start, self.edges[number])
            if common > 0:
                yield number, common


class Sample(NamedTuple):
    time: float
    value: float


def latencies(generations: Iterable[Generation]) -> list[Sample]:
    """What users waited for, by the time at which the write was due."""
    return [
        Sample(row.due, math.inf if math.isnan(row.ready) else row.ready - row.due)
        for row in generations
        if not row.gone
    ]


def percentiles(samples: Iterable[Sample], windows: Windows, shares: Sequence[float]) -> list[Values]:
    within = _by_window(samples, windows)
    return [[of_samples(share, values) for values in within] for share in shares]


def rate(times: Iterable[float], windows: Windows) -> Values:
    within = _by_window((Sample(time, 1.0) for time in times), windows)
    return [len(found) / length for found, length in zip(within, windows.lengths, strict=True)]


def growth(times: Iterable[float], lost: Iterable[float], windows: Windows) -> Values:
    """How many there are at the end of each window, if one comes at each of `times` and one goes at each of `lost`."""
    came, went = sorted(times), sorted(lost)
    return [float(bisect_right(came, edge) - bisect_right(went, edge)) for edge in windows.edges[1:]]


def gauge(rows: Iterable[Gauge], name: str, windows: Windows) -> dict[str, Values]:
    subjects: dict[str, list[Sample]] = defaultdict(list)
    for row in rows:
        if row.name == name:
            subjects[row.subject].append(Sample(row.time, row.value))
    return {subject: mean(samples, windows) for subject, samples in subjects.items()}


def mean(samples: Iterable[Sample], windows: Windows) -> Values:
    return [
        math.fsum(values) / len(values) if values else math.nan for values in _by_window(samples, windows)
    ]


class Step(NamedTuple):
    """What a process used from one of its lines to the next."""

    start: float
    end: float
    cpu: float
    restarted: bool
    """The process was restarted in between: what is counted here began later than `start`."""


def by_process(usages: Iterable[Usage]) -> dict[str, list[Usage]]:
    found: dict[str, list[Usage]] = defaultdict(list)
    for row in usages:
        found[row.process].append(row)
    return dict(found)


def steps(rows: Sequence[Usage], *, fresh: bool = False) -> list[Step]:
    """Of one process. If any counter has fallen, it was restarted. `fresh`: it had used nothing before."""
    found = []
    if fresh:
        found.append(Step(rows[0].time, rows[0].time, rows[0].cpu, restarted=False))
    for before, after in pairwise(rows):
        restarted = any(now < then for now, then in zip(_counters(after), _counters(before), strict=True))
        cpu = after.cpu if restarted else after.cpu - before.cpu
        found.append(Step(before.time, after.time, cpu, restarted))
    return found


def cores(taken: Iterable[Step], windows: Windows) -> Values:
    """In each window, while the steps cover it. A step with a restart is left out: how long was it?"""
    amounts, covered = [0.0] * len(windows), [0.0] * len(windows)
    for step in taken:
        if step.restarted or step.end <= step.start:
            continue
        for number, seconds in windows.overlaps(step.start, step.end):
            amounts[number] += step.cpu * seconds / (step.end - step.start)
            covered[number] += seconds
    return [
        amount / seconds if seconds else math.nan for amount, seconds in zip(amounts, covered, strict=True)
    ]


def finite(values: Iterable[float]) -> Values:
    return [value for value in values if math.isfinite(value)]


def _by_window(samples: Iterable[Sample], windows: Windows) -> list[Values]:
    found: list[Values] = [[] for _ in range(len(windows))]
    for time, value in samples:
        if (number := windows.index(time)) is not None:
            found[number].append(value)
    return found


def _counters(row: Usage) -> tuple[float, ...]:
    return (row.cpu, row.voluntary, row.involuntary)
