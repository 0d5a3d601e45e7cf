"""Metrics of the informers of a process, computed on each scrape.

Every series has the label `kind`; informers of one kind in several scopes are summed. Series about handlers only cover
async handlers, by name, because nothing waits for the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeshard.cache.cache import Cache
from kubeshard.cache.handlers import Queued
from kubeshard.cache.informer import Informer
from kubeshard.runtime.clock import Clock


class Series(NamedTuple):
    name: str
    what: str
    count: Callable[[Informer[Any]], int]


COUNTERS = (
    Series(
        "full_reads",
        "Full lists, including the first one.",
        lambda informer: informer.full_reads,
    ),
    Series(
        "rewinds",
        "Full lists that showed a rewritten history: the API server was restored from a backup.",
        lambda informer: informer.rewinds,
    ),
    Series("failures", "Lists and watches that failed.", lambda informer: informer.failures),
    Series(
        "unexpected_answers",
        "Lists and watches that failed because of an invalid response.",
        lambda informer: informer.unexpected_answers,
    ),
    Series(
        "undecodable_objects",
        "Objects that did not fit their class, counted each time they were received.",
        lambda informer: informer.undecodable,
    ),
    Series(
        "stale_events",
        "Old events that were received again and dropped.",
        lambda informer: informer.stale_events,
    ),
    Series("index_errors", "Calls of index functions that raised.", lambda informer: informer.index_errors),
    Series(
        "transform_errors",
        "Objects that cannot be read because their transform failed.",
        lambda informer: informer.transform_errors,
    ),
    Series("handler_errors", "Calls of handlers that raised.", lambda informer: informer.handler_errors),
)


class CacheMetrics(Collector):
    """`caches` returns the current caches."""

    def __init__(self, caches: Callable[[], Iterable[Cache]], clock: Clock) -> None:
        self._caches = caches
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        informers = [informer for cache in self._caches() for informer in cache.informers]
        objects = GaugeMetricFamily("kubeshard_cache_objects", "Objects in memory.", labels=("kind",))
        yield _filled(objects, informers, lambda informer: len(informer.store))
        synced = GaugeMetricFamily(
            "kubeshard_cache_synced", "Informers that have read everything at least once.", labels=("kind",)
        )
        yield _filled(synced, informers, lambda informer: int(informer.has_synced))
        yield self._silence(informers)
        for name, what, count in COUNTERS:
            family = CounterMetricFamily(f"kubeshard_cache_{name}", what, labels=("kind",))
            yield _filled(family, informers, count)
        yield _errors(informers)
        yield from self._handlers(informers)

    def _silence(self, informers: Iterable[Informer[Any]]) -> Metric:
        """For each kind, the silence of its most silent informer. Informers that never received anything do
        not count.
        """
        now = self._clock.monotonic()
        silence: dict[str, float] = {}
        for informer in informers:
            if (heard := informer.last_heard) is not None:
                silence[str(informer)] = max(now - heard, silence.get(str(informer), 0.0))
        family = GaugeMetricFamily(
            "kubeshard_cache_silence_seconds",
            "How long the API server has sent nothing about the kind, not even a bookmark.",
            labels=("kind",),
        )
        for kind, seconds in silence.items():
            family.add_metric((kind,), seconds)
        return family

    def _handlers(self, informers: Iterable[Informer[Any]]) -> Iterator[Metric]:
        now = self._clock.monotonic()
        waiting: Counter[tuple[str, str]] = Counter()
        seconds: dict[tuple[str, str], float] = {}
        for informer in informers:
            for each in informer.handlers:
                if isinstance(each, Queued):
                    place = str(informer), each.name
                    since = now if each.busy_since is None else each.busy_since
                    waiting[place] += each.waiting
                    seconds[place] = max(now - since, seconds.get(place, 0.0))
        for name, what, values in (
            ("waiting", "Objects that an async handler has yet to process.", waiting),
            ("seconds", "How long the current call of an async handler has been running.", seconds),
        ):
            family = GaugeMetricFamily(f"kubeshard_cache_handler_{name}", what, labels=("kind", "handler"))
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family


def _errors(informers: Iterable[Informer[Any]]) -> Metric:
    sums: Counter[tuple[str, str]] = Counter()
    for informer in informers:
        for error, count in informer.errors.items():
            sums[str(informer), error] += count
    family = CounterMetricFamily(
        "kubeshard_cache_errors",
        "Lists and watches that failed, by the class of the error.",
        labels=("kind", "error"),
    )
    for labels, number in sums.items():
        family.add_metric(labels, number)
    return family


def _filled(
    family: CounterMetricFamily | GaugeMetricFamily,
    informers: Iterable[Informer[Any]],
    count: Callable[[Informer[Any]], int],
) -> Metric:
    sums: Counter[str] = Counter()
    for informer in informers:
        sums[str(informer)] += count(informer)
    for kind, number in sums.items():
        family.add_metric((kind,), number)
    return family
