"""Metrics that are updated several times per reconcile.

Families for a `CollectorRegistry` whose series are plain numbers. prometheus_client takes a lock per observation, and
searches the buckets of a histogram linearly; here an observation is an addition, and the rest is done on a scrape.
Series may only be used in the event loop's thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Number:
    """One series; the caller changes its value."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """One series of durations."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """The count of each bucket alone, not cumulative."""
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds


S = TypeVar("S", Number, Histogram)


class _Family(Collector, Generic[S]):
    def __init__(self, name: str, about: str, labels: Sequence[str]) -> None:
        self._name = name
        self._about = about
        self._labels = labels
        self._series: dict[tuple[str, ...], S] = {}

    def series(self, *labels: str) -> S:
        """The series with these label values, created on first use."""
        if labels not in self._series:
            self._series[labels] = self._new()
        return self._series[labels]

    def _new(self) -> S:
        raise NotImplementedError


class Levels(_Family[Number]):
    """A gauge."""

    def _new(self) -> Number:
        return Number()

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(self._name, self._about, labels=self._labels)
        for labels, series in self._series.items():
            family.add_metric(labels, series.value)
        yield family


class Counts(_Family[Number]):
    """A counter; its name ends with `_total`."""

    def _new(self) -> Number:
        return Number()

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._about, labels=self._labels)
        for labels, series in self._series.items():
            family.add_metric(labels, series.value)
        yield family


class Durations(_Family[Histogram]):
    """A histogram with these upper bounds, ascending, and one without a bound."""

    def __init__(self, name: str, about: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        super().__init__(name, about, labels)
        self._bounds = tuple(bounds)

    def _new(self) -> Histogram:
        return Histogram(self._bounds)

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._about, labels=self._labels)
        for labels, series in self._series.items():
            buckets, below = [], 0
            for bound, count in zip((*self._bounds, float("inf")), series.counts, strict=True):
                below += count
                buckets.append((_text(bound), below))
            family.add_metric(labels, buckets, series.sum)
        yield family


def _text(bound: float) -> str:
    text: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
    return text
