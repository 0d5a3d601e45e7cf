"""Percentiles: of samples, and of the buckets of a histogram in the way of Prometheus; sans I/O.

Guaranteed: `of_buckets` gives the same figure as PromQL's `histogram_quantile` on the same buckets. Not guaranteed:
that `increase` is PromQL's, which extrapolates, and ignores what a counter had counted when it was first seen.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from prometheus_client.parser import text_string_to_metric_families

_TOLERANCE = 1e-12
"""Relative difference of neighbouring counts that is an error of rounding."""


def of_samples(quantile: float, samples: Sequence[float]) -> float:
    """The smallest sample that at least this share of the samples does not exceed; NaN without samples."""
    if not samples:
        return math.nan
    return sorted(samples)[max(0, math.ceil(quantile * len(samples)) - 1)]


def of_buckets(quantile: float, buckets: Mapping[float, float]) -> float:
    """Of cumulative counts by upper bound, interpolated; at most the highest finite bound. NaN without counts."""
    bounds = sorted(buckets)
    if len(bounds) < 2 or bounds[-1] != math.inf:
        return math.nan
    counts = _monotonic([buckets[bound] for bound in bounds])
    if counts[-1] == 0:
        return math.nan
    rank = quantile * counts[-1]
    found = bisect_left(counts, rank, hi=len(counts) - 1)
    if found == len(bounds) - 1:
        return bounds[-2]
    if found == 0 and bounds[0] <= 0:
        return bounds[0]
    begin, below = (bounds[found - 1], counts[found - 1]) if found else (0.0, 0.0)
    return begin + (bounds[found] - begin) * (rank - below) / (counts[found] - below)


def _monotonic(counts: list[float]) -> list[float]:
    """Counts that never fall. Those of buckets may, if they are sums over processes with different buckets."""

    def higher(highest: float, count: float) -> float:
        return highest if math.isclose(count, highest, rel_tol=_TOLERANCE) else max(highest, count)

    return list(accumulate(counts, higher))


def increase(times: Sequence[float], values: Sequence[float], begin: float, end: float) -> float:
    """A fall of the value is a restart from 0, and so is a first value later than `begin`."""
    first = bisect_right(times, begin)
    before = values[first - 1] if first else 0.0
    grown = 0.0
    for value in values[first : bisect_right(times, end)]:
        grown += value - before if value >= before else value
        before = value
    return grown


class Latencies:
    """Of one histogram of one controller, summed over all processes: of what came between two scrapes of each."""

    def __init__(self, family: str, label: tuple[str, str]) -> None:
        self._family = family
        self._label = label
        self._last: dict[str, Mapping[float, float]] = {}
        self._recent: dict[str, Mapping[float, float]] = {}

    def scraped(self, process: str, exposition: str) -> None:
        name, value = self._label
        lines = "\n".join(line for line in exposition.splitlines() if line.startswith(self._family))
        buckets: dict[float, float] = {}
        for family in text_string_to_metric_families(f"# TYPE {self._family} histogram\n{lines}\n"):
            for sample in family.samples:
                if sample.name.endswith("_bucket") and sample.labels.get(name) == value:
                    bound = float(sample.labels["le"])
                    buckets[bound] = buckets.get(bound, 0.0) + sample.value
        before = self._last.get(process, {})
        if any(count < before.get(bound, 0) for bound, count in buckets.items()):
            before = {}  # it was restarted
        self._recent[process] = {bound: count - before.get(bound, 0) for bound, count in buckets.items()}
        self._last[process] = buckets

    def quantile(self, part: float) -> float:
        """Of the last interval; NaN if nothing was observed in it."""
        total: dict[float, float] = {}
        for buckets in self._recent.values():
            for bound, count in buckets.items():
                total[bound] = total.get(bound, 0.0) + count
        return of_buckets(part, total)
