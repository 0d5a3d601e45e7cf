"""Percentiles: of samples, and of the buckets of a histogram in the way of Prometheus.

Guaranteed: `of_buckets` gives the same figure as PromQL's `histogram_quantile` on the same buckets. Not guaranteed:
that `increase` is PromQL's, which extrapolates, and ignores what a counter had counted when it was first seen.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

_TOLERANCE = 1e-12
"""Relative difference of neighbouring counts that is an error of rounding."""


def of_samples(quantile: float, samples: Sequence[float]) -> float:
    """The smallest sample that at least this share of the samples does not exceed; NaN without samples."""
    if not samples:
        return math.nan
    return sorted(samples)[max(0, math.ceil(quantile * len(samples)) - 1)]


def of_buckets(quantile: float, buckets: Mapping[float, float]) -> float:
    """The quantile, between 0 and 1, of cumulative counts by upper bound.

    Interpolates linearly within a bucket; the lowest begins at 0. A quantile beyond the highest finite bound is that
    bound. NaN if nothing was counted, or without the bound infinity or any other.
    """
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
    highest = counts[0]
    found = []
    for count in counts:
        if count > highest and not math.isclose(count, highest, rel_tol=_TOLERANCE):
            highest = count
        found.append(highest)
    return found


def increase(times: Sequence[float], values: Sequence[float], begin: float, end: float) -> float:
    """How much a counter grew between two times. A fall of its value is a restart from 0, and so is its first value if
    that is later than `begin`.
    """
    first = bisect_right(times, begin)
    before = values[first - 1] if first else 0.0
    grown = 0.0
    for value in values[first : bisect_right(times, end)]:
        grown += value - before if value >= before else value
        before = value
    return grown
