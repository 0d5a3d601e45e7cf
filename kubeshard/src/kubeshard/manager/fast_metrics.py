"""Metrics that cost little: to update several times per reconcile, and to render.

Families for a `CollectorRegistry` whose series are plain numbers. prometheus_client takes a lock per observation, and
searches the buckets of a histogram linearly; here an observation is an addition, and the rest is done on a scrape.
A series may only be changed by one thread. The samples of a family are made when they are read, so that many of
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
from functools import lru_cache
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

    def forget(self, label: str, value: str) -> None:
        """No series is exposed any more that has this value of the label, if the family has the label."""
        if label in self._labels:
            place = self._labels.index(label)
            for labels in [each for each in self._series if each[place] == value]:
                del self._series[labels]

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
                buckets.append((_number(bound), below))
            family.add_metric(labels, buckets, series.sum)
        yield family


def _number(value: float) -> str:
    return _text_of(value, value == 0 and repr(value))


@lru_cache(maxsize=4096)
def _text_of(value: float, zero: object) -> str:
    """By the library. Cached: most values are those of the page before. `zero`: which of both, as they are equal."""
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return text


SAMPLES = 200
LEVEL = 1
"""Of compression: a page becomes about twenty times smaller, for a few milliseconds."""
_HEADER = 2
"""Lines of a family before its samples."""
_APART = ("_created", "_gsum", "_gcount")
"""Samples that the library writes behind all others, as families of their own."""
_GZIP = 16 + zlib.MAX_WBITS


async def render(families: Iterable[Metric], *, gzip: bool = False) -> bytes:
    """The page of these families; `gzip`: compressed."""
    compressor = zlib.compressobj(LEVEL, wbits=_GZIP) if gzip else None
    parts: list[bytes] = []
    lines = 0
    for family in families:
        samples, header = iter(family.samples), True
        while (piece := list(islice(samples, SAMPLES))) or header:
            text = _text(family, piece, header=header).encode()
            header = False
            parts.append(compressor.compress(text) if compressor else text)
            lines += len(piece) + 1
            if lines >= SAMPLES:
                lines = 0
                await asyncio.sleep(0)
    if compressor:
        parts.append(compressor.flush())
    return b"".join(parts)


def _text(family: Metric, piece: Sequence[Sample], *, header: bool) -> str:
    """The library takes six microseconds for each line, and there may be many. So it is asked once how the lines of a
    name look, and all lines are written like that. It writes what differs from the others itself.
    """
    lines = [_head(family.name, family.documentation, family.type)] if header else []
    for sample in piece:
        labels = sample.labels
        if (form := _form(family.name, sample.name, tuple(labels))) is None or sample.timestamp is not None:
            break
        line = form % labels
        if line.count('"') != 2 * len(labels) or "\\" in line or "\n" in line:
            break  # to be escaped
        lines += line, _number(sample.value), "\n"
    else:
        return "".join(lines)
    text = _written(family.name, family.documentation, family.type, piece)
    return text if header else text.split("\n", _HEADER)[_HEADER]


@lru_cache(maxsize=1024)
def _head(name: str, about: str, type_: str) -> str:
    return _written(name, about, type_, ())


@lru_cache(maxsize=4096)
def _form(family: str, name: str, labels: tuple[str, ...]) -> str | None:
    """How a line begins, for `%` with its labels. None: not all such lines are the same, or they do not follow their
    family's head.
    """
    if not all(each.isidentifier() for each in (name.replace(":", "_"), *labels)) or name in (
        f"{family}{suffix}" for suffix in _APART
    ):
        return None
    sample = Sample(name, {label: f"%({label})s" for label in labels}, 0.0)
    return _written(family, "", "gauge", (sample,)).split("\n", _HEADER)[_HEADER].removesuffix("0.0\n")


def _written(name: str, about: str, type_: str, samples: Iterable[Sample]) -> str:
    """By the library."""
    family = Metric(name, about, type_)
    family.samples = list(samples)
    return generate_latest(_Single(family)).decode()


class _Single:
    """A registry of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family
