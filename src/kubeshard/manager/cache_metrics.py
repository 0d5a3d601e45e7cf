"""What the informers of a process have met, computed when it is scraped.

Every series has the label `kind`; informers of one kind in several scopes are added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeshard.cache.informer import Informer


class Series(NamedTuple):
    name: str
    what: str
    count: Callable[[Informer[Any]], int]


COUNTERS = (
    Series(
        "full_reads",
        "How often everything was read, the first time included.",
        lambda informer: informer.full_reads,
    ),
    Series(
        "rewinds",
        "Full reads that showed a rewritten history: the API server was restored from a backup.",
        lambda informer: informer.rewinds,
    ),
    Series("failures", "Lists and watches that failed.", lambda informer: informer.failures),
    Series(
        "unexpected_answers",
        "Lists and watches that failed because of an answer that no API server gives.",
        lambda informer: informer.unexpected_answers,
    ),
    Series(
        "undecodable_objects",
        "Objects that did not fit their class, counted each time they came.",
        lambda informer: informer.undecodable,
    ),
    Series(
        "stale_events",
        "Events of the past that came again and were dropped.",
        lambda informer: informer.stale_events,
    ),
    Series("index_errors", "Calls of index functions that raised.", lambda informer: informer.index_errors),
    Series(
        "transform_errors",
        "Objects that nobody can read because their transform failed.",
        lambda informer: informer.transform_errors,
    ),
    Series("handler_errors", "Calls of handlers that raised.", lambda informer: informer.handler_errors),
)


class CacheMetrics(Collector):
    """`informers` gives those there are now."""

    def __init__(self, informers: Callable[[], Iterable[Informer[Any]]]) -> None:
        self._informers = informers

    def collect(self) -> Iterator[Metric]:
        informers = list(self._informers())
        objects = GaugeMetricFamily("kubeshard_cache_objects", "Objects in memory.", labels=("kind",))
        yield _filled(objects, informers, lambda informer: len(informer.store))
        for name, what, count in COUNTERS:
            family = CounterMetricFamily(f"kubeshard_cache_{name}", what, labels=("kind",))
            yield _filled(family, informers, count)


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
