"""Metrics of the informers of a process, computed on each scrape.

Every series has the label `kind`; informers of one kind in several scopes are summed, and of times the longest one
counts. Series about handlers only cover async handlers, by name, because nothing waits for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import add
from typing import Any, NamedTuple

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kubeshard.cache.cache import Cache
from kubeshard.cache.handlers import Queued
from kubeshard.cache.informer import Informer
from kubeshard.manager.fast_metrics import Counts, Levels
from kubeshard.metrics.declared import declared, defined
from kubeshard.runtime.clock import Clock

Values = Iterable[tuple[tuple[str, ...], float]]
"""Values of one informer, by the labels beside `kind`."""


def _one(value: Callable[[Informer[Any]], float]) -> Callable[[Informer[Any], float], Values]:
    return lambda informer, _: [((), value(informer))]


def _silence(informer: Informer[Any], now: float) -> Values:
    """Informers that never received anything do not count."""
    return [] if informer.last_heard is None else [((), now - informer.last_heard)]


def _errors(informer: Informer[Any], _: float) -> Values:
    return [((error,), count) for error, count in informer.errors.items()]


def _handlers(informer: Informer[Any]) -> Iterator[Queued[Any]]:
    return (each for each in informer.handlers if isinstance(each, Queued))


def _waiting(informer: Informer[Any], _: float) -> Values:
    return [((each.name,), each.waiting) for each in _handlers(informer)]


def _busy(informer: Informer[Any], now: float) -> Values:
    return [
        ((each.name,), 0.0 if each.busy_since is None else now - each.busy_since)
        for each in _handlers(informer)
    ]


class Series(NamedTuple):
    """`values`: of an informer, now. `combined`: those of several informers."""

    name: str
    values: Callable[[Informer[Any], float], Values]
    combined: Callable[[float, float], float] = add


SERIES = (
    Series("kubeshard_cache_objects", _one(lambda informer: len(informer.store))),
    Series("kubeshard_cache_synced", _one(lambda informer: informer.has_synced)),
    Series("kubeshard_cache_silence_seconds", _silence, max),
    Series("kubeshard_cache_full_reads_total", _one(lambda informer: informer.full_reads)),
    Series("kubeshard_cache_rewinds_total", _one(lambda informer: informer.rewinds)),
    Series("kubeshard_cache_failures_total", _one(lambda informer: informer.failures)),
    Series("kubeshard_cache_unexpected_answers_total", _one(lambda informer: informer.unexpected_answers)),
    Series("kubeshard_cache_undecodable_objects_total", _one(lambda informer: informer.undecodable)),
    Series("kubeshard_cache_stale_events_total", _one(lambda informer: informer.stale_events)),
    Series("kubeshard_cache_foreign_objects_total", _one(lambda informer: informer.foreign)),
    Series("kubeshard_cache_index_errors_total", _one(lambda informer: informer.index_errors)),
    Series("kubeshard_cache_transform_errors_total", _one(lambda informer: informer.transform_errors)),
    Series("kubeshard_cache_handler_errors_total", _one(lambda informer: informer.handler_errors)),
    Series("kubeshard_cache_errors_total", _errors),
    Series("kubeshard_cache_handler_waiting", _waiting),
    Series("kubeshard_cache_handler_seconds", _busy, max),
    Series("kubeshard_informer_undecodable_objects", _one(lambda informer: len(informer.store.undecodable))),
)


class CacheMetrics(Collector):
    """`caches` returns the current caches."""

    def __init__(self, caches: Callable[[], Iterable[Cache]], clock: Clock) -> None:
        self._caches = caches
        self._clock = clock
        self._families = {
            each.name: (Counts if defined(each.name).type == "counter" else Levels)(*declared(each.name))
            for each in SERIES
        }

    def collect(self) -> Iterator[Metric]:
        informers = [(str(each), each) for cache in self._caches() for each in cache.informers]
        now = self._clock.monotonic()
        for name, values, combined in SERIES:
            found: dict[tuple[str, ...], float] = {}
            for kind, informer in informers:
                for labels, value in values(informer, now):
                    place = (kind, *labels)
                    found[place] = combined(found[place], value) if place in found else value
            yield self._families[name].show(found)
