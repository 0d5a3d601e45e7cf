"""Metrics that cost little: to update several times per reconcile, and to render.

Families for a `CollectorRegistry` whose series are plain numbers. prometheus_client takes a lock per observation, and
searches the buckets of a histogram linearly; here an observation is an addition, and the rest is done on a scrape.
A series may only be changed by one thread. The samples of a family are made when they are read, so that many of
them need not be made in one turn.

`render` writes the page in short turns of the event loop. A process with many series (a sharder of a thousand rings has
25 000) would else block its loop for a quarter of a second with every scrape. So the samples of a family are read one
by one. And a series here remembers how its lines begin, which never changes: only its numbers are written anew, and of
a histogram nothing if it has observed nothing. Guaranteed: the text is that of `prometheus_client.generate_latest`;
other tasks run after each `SAMPLES` lines. Not guaranteed: that all samples are of the same instant, and short turns if
a collector takes long to return one family.
"""

from __future__ import annotations

import asyncio
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any, Generic, TypeVar

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString


class Number:
    """One series; the caller changes its value."""

    __slots__ = ("line", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.line = ""
        """How it is written, up to the value; "" before it was."""


class Histogram:
    """One series of durations."""

    __slots__ = ("_bounds", "counts", "form", "said", "sum", "text")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """The count of each bucket alone, not cumulative."""
        self.sum = 0.0
        self.form = ""
        """How it is written, for `%` with its numbers; "" before it was."""
        self.said: tuple[float, ...] = ()
        """Its numbers,"""
        self.text = ""
        """and what was written of them."""

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds

    def numbers(self) -> tuple[float, ...]:
        """How many were observed up to each bound, and in all, and their sum."""
        below = tuple(accumulate(self.counts))
        return (*below, below[-1], self.sum)


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
    """The samples of a family. `written`: their lines, some at a time, if that costs less."""

    def __init__(
        self, made: Callable[[], Iterator[Sample]], written: Callable[[], Iterator[str]] | None = None
    ) -> None:
        self._made = made
        self.written = written

    def __iter__(self) -> Iterator[Sample]:
        return self._made()


F = TypeVar("F", bound=Metric)


def with_samples(
    family: F, made: Callable[[], Iterator[Sample]], written: Callable[[], Iterator[str]] | None = None
) -> F:
    """The family with samples that are made anew whenever they are read, one by one. `written`: see `_Samples`."""
    samples: Any = _Samples(made, written)
    family.samples = samples
    return family


class _Numbers(_Family[Number]):
    _made: type[GaugeMetricFamily | CounterMetricFamily]

    def _new(self) -> Number:
        return Number()

    def _samples(self) -> Iterator[Sample]:
        for labels, series in tuple(self._series.items()):  # it may change while they are read
            yield self._sample(labels, series.value)

    def _sample(self, labels: tuple[str, ...], value: float) -> Sample:
        return Sample(self._name, dict(zip(self._labels, labels, strict=True)), value)

    def _written(self) -> Iterator[str]:
        for labels, series in tuple(self._series.items()):
            if not series.line:
                series.line = _lines(self._name, (self._sample(labels, 0.0),)).removesuffix(_ZERO)
            yield f"{series.line}{_number(series.value)}\n"

    def show(self, values: Mapping[tuple[str, ...], float]) -> Metric:
        """The family of exactly these series: for what is computed on each scrape."""
        known, self._series = self._series, {}
        for labels, value in values.items():
            series = self._series[labels] = known.get(labels) or Number()
            series.value = value
        return self._family()

    def collect(self) -> Iterator[Metric]:
        yield self._family()

    def _family(self) -> Metric:
        return with_samples(
            self._made(self._name, self._about, labels=self._labels), self._samples, self._written
        )


class Levels(_Numbers):
    """A gauge."""

    _made = GaugeMetricFamily


class Counts(_Numbers):
    """A counter; its name ends with `_total`."""

    _made = CounterMetricFamily


class Durations(_Family[Histogram]):
    """A histogram with these upper bounds, ascending, and one without a bound."""

    def __init__(self, name: str, about: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        super().__init__(name, about, labels)
        self._bounds = tuple(bounds)
        self._upto = tuple(map(_number, (*self._bounds, float("inf"))))

    def _new(self) -> Histogram:
        return Histogram(self._bounds)

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._about, labels=self._labels)
        yield with_samples(family, self._samples, self._written)

    def _samples(self) -> Iterator[Sample]:
        for labels, series in tuple(self._series.items()):
            yield from self._of(labels, series)

    def _of(self, labels: tuple[str, ...], series: Histogram) -> Iterator[Sample]:
        of, (*numbers, count, total) = dict(zip(self._labels, labels, strict=True)), series.numbers()
        for bound, below in zip(self._upto, numbers, strict=True):
            yield Sample(f"{self._name}_bucket", {**of, "le": bound}, below)
        yield Sample(f"{self._name}_count", of, count)
        yield Sample(f"{self._name}_sum", of, total)

    def _written(self) -> Iterator[str]:
        for labels, series in tuple(self._series.items()):
            if not series.form:
                lines = _lines(self._name, self._of(labels, Histogram(self._bounds))).replace("%", "%%")
                series.form = lines.replace(f" {_ZERO}", " %s\n")
            if series.said != (numbers := series.numbers()):
                series.said, series.text = numbers, series.form % tuple(map(_number, numbers))
            yield series.text


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
_ZERO = "0.0\n"
_HEADER = 2
"""Lines of a family before its samples."""
_APART = ("_created", "_gsum", "_gcount")
"""Samples that the library writes behind all others, as families of their own."""
_GZIP = 16 + zlib.MAX_WBITS


async def render(families: Iterable[Metric], *, gzip: bool = False) -> bytes:
    """The page of these families; `gzip`: compressed."""
    compressor = zlib.compressobj(LEVEL, wbits=_GZIP) if gzip else None
    parts: list[bytes] = []
    texts, lines = list[str](), 0

    def end_piece() -> None:
        piece = "".join(texts).encode()
        texts.clear()
        parts.append(compressor.compress(piece) if compressor else piece)

    for family in families:
        for text in _texts(family):
            texts.append(text)
            lines += text.count("\n")
            if lines >= SAMPLES:
                lines = 0
                end_piece()
                await asyncio.sleep(0)
    end_piece()
    if compressor:
        parts.append(compressor.flush())
    return b"".join(parts)


def _texts(family: Metric) -> Iterator[str]:
    """Some lines each, not many more than `SAMPLES`."""
    samples: Any = family.samples
    if isinstance(samples, _Samples) and samples.written is not None:
        yield _head(family.name, family.documentation, family.type)
        yield from samples.written()
        return
    left, header = iter(samples), True
    while (piece := list(islice(left, SAMPLES))) or header:
        yield _text(family, piece, header=header)
        header = False


def _text(family: Metric, piece: Sequence[Sample], *, header: bool) -> str:
    """The library takes six microseconds for each line, and there may be many. So it is asked once how the lines of a
    name look, and all lines are written like that. It writes what differs from the others itself.
    """
    lines: list[str] = []
    name, form, values = "", "", 0
    names: Set[str] = frozenset()
    for sample in piece:
        labels = sample.labels
        if sample.name != name or labels.keys() != names:
            if (found := _form(family.name, sample.name, tuple(labels))) is None:
                break
            name, names, form = sample.name, labels.keys(), found
        if sample.timestamp is not None:
            break
        lines.append(f"{form % labels}{_number(sample.value)}\n")
        values += len(labels)
    else:
        text = "".join(lines)
        if text.count('"') == 2 * values and "\\" not in text and text.count("\n") == len(lines):
            return _head(family.name, family.documentation, family.type) + text if header else text
    text = _written(family.name, family.documentation, family.type, piece)  # something has to be escaped
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
    return _lines(family, (sample,)).removesuffix(_ZERO)


def _lines(family: str, samples: Iterable[Sample]) -> str:
    """By the library, without the family's head."""
    return _written(family, "", "gauge", samples).split("\n", _HEADER)[_HEADER]


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
