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
from kubeshard.metrics.families import counter, gauge
from kubeshard.runtime.clock import Clock


class Series(NamedTuple):
    name: str
    count: Callable[[Informer[Any]], int]


COUNTERS = (
    Series("full_reads", lambda informer: informer.full_reads),
    Series("rewinds", lambda informer: informer.rewinds),
    Series("failures", lambda informer: informer.failures),
    Series("unexpected_answers", lambda informer: informer.unexpected_answers),
    Series("undecodable_objects", lambda informer: informer.undecodable),
    Series("stale_events", lambda informer: informer.stale_events),
    Series("foreign_objects", lambda informer: informer.foreign),
    Series("index_errors", lambda informer: informer.index_errors),
    Series("transform_errors", lambda informer: informer.transform_errors),
    Series("handler_errors", lambda informer: informer.handler_errors),
)


class CacheMetrics(Collector):
    """`caches` returns the current caches."""

    def __init__(self, caches: Callable[[], Iterable[Cache]], clock: Clock) -> None:
        self._caches = caches
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        informers = [informer for cache in self._caches() for informer in cache.informers]
        objects = gauge("kubeshard_cache_objects")
        yield _filled(objects, informers, lambda informer: len(informer.store))
        synced = gauge("kubeshard_cache_synced")
        yield _filled(synced, informers, lambda informer: int(informer.has_synced))
        yield self._silence(informers)
        for name, count in COUNTERS:
            yield _filled(counter(f"kubeshard_cache_{name}_total"), informers, count)
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
        family = gauge("kubeshard_cache_silence_seconds")
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
        for name, values in (("waiting", waiting), ("seconds", seconds)):
            family = gauge(f"kubeshard_cache_handler_{name}")
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family


def _errors(informers: Iterable[Informer[Any]]) -> Metric:
    sums: Counter[tuple[str, str]] = Counter()
    for informer in informers:
        for error, count in informer.errors.items():
            sums[str(informer), error] += count
    family = counter("kubeshard_cache_errors_total")
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
