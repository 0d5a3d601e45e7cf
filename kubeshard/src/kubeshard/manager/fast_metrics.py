"""Metrics that cost little: to update several times per reconcile, and to render.

Families for a `CollectorRegistry` whose series are plain numbers. prometheus_client takes a lock per observation, and
searches the buckets of a histogram linearly; here an observation is an addition, and the rest is done on a scrape.
Series may only be used in the event loop's thread. The samples of a family are made when they are read, so that many of
them need not be made in one turn.

`render` writes the page in short turns of the event loop. A process with many series (a sharder of a thousand rings has
25 000) would else block its loop for a quarter of a second with every scrape. So the samples of a family are read one
by one. Guaranteed: the text is that of `prometheus_client.generate_latest`; other tasks run after each `SAMPLES` lines.
Not guaranteed: that all samples are of the same instant, and short turns if a collector takes long to return one
family.
"""

from __future__ import annotations

import asyncio
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString


class Number:
    """One series; the caller changes its value."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


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

    def remove(self, *labels: str) -> None:
        """The series with these label values is not exposed any more."""
        self._series.pop(labels, None)

    def _new(self) -> S:
        raise NotImplementedError


class _Samples:
    """The samples of a family."""

    def __init__(self, made: Callable[[], Iterator[Sample]]) -> None:
        self._made = made

    def __iter__(self) -> Iterator[Sample]:
        return self._made()


F = TypeVar("F", bound=Metric)


def with_samples(family: F, made: Callable[[], Iterator[Sample]]) -> F:
    """The family with samples that are made anew whenever they are read, one by one."""
    samples: Any = _Samples(made)
    family.samples = samples
    return family


class _Numbers(_Family[Number]):
    def _new(self) -> Number:
        return Number()

    def _samples(self) -> Iterator[Sample]:
        for labels, series in tuple(self._series.items()):  # it may change while they are read
            yield Sample(self._name, dict(zip(self._labels, labels, strict=True)), series.value)


class Levels(_Numbers):
    """A gauge."""

    def collect(self) -> Iterator[Metric]:
        yield with_samples(GaugeMetricFamily(self._name, self._about, labels=self._labels), self._samples)


class Counts(_Numbers):
    """A counter; its name ends with `_total`."""

    def collect(self) -> Iterator[Metric]:
        yield with_samples(CounterMetricFamily(self._name, self._about, labels=self._labels), self._samples)


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


SAMPLES = 200
LEVEL = 1
"""Of compression: a page becomes about twenty times smaller, for a few milliseconds."""
_HEADER = 2
"""Lines of a family before its samples."""
_GZIP = 16 + zlib.MAX_WBITS


async def render(families: Iterable[Metric], *, gzip: bool = False) -> bytes:
    """The page of these families; `gzip`: compressed."""
    compressor = zlib.compressobj(LEVEL, wbits=_GZIP) if gzip else None
    parts: list[bytes] = []
    lines = 0
    for family in families:
        samples, header = iter(family.samples), True
        while (piece := list(islice(samples, SAMPLES))) or header:
            family.samples = piece
            text = generate_latest(_Single(family))
            part = text if header else text.split(b"\n", _HEADER)[_HEADER]
            header = False
            parts.append(compressor.compress(part) if compressor else part)
            lines += len(piece) + 1
            if lines >= SAMPLES:
                lines = 0
                await asyncio.sleep(0)
    if compressor:
        parts.append(compressor.flush())
    return b"".join(parts)


class _Single:
    """A registry of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family
