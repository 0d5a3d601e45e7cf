"""The metrics of a webhook server, with controller-runtime's names; declared in `kubeshard.metrics.declared`.

`webhook` is the path prefix; empty for paths outside of all.

A collector over plain numbers: the hot path only adds, and the scrape creates the samples. Only one event loop writes;
a scrape from another thread may see a half-counted request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kubeshard.metrics.families import counter, gauge, histogram

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class RouteMetrics:
    __slots__ = ("buckets", "codes", "in_flight", "seconds")

    def __init__(self) -> None:
        self.in_flight = 0
        self.codes: dict[int, int] = {200: 0}
        self.buckets = [0] * (len(_BOUNDS) + 1)
        self.seconds = 0.0

    def observe(self, code: int, seconds: float) -> None:
        self.codes[code] = self.codes.get(code, 0) + 1
        self.buckets[bisect_left(_BOUNDS, seconds)] += 1
        self.seconds += seconds


class WebhookMetrics(Collector):
    """The numbers of one server. Without a registry, they are counted but not exported."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.panics = 0
        self._routes: dict[str, RouteMetrics] = {}
        if registry is not None:
            registry.register(self)

    def route(self, webhook: str) -> RouteMetrics:
        return self._routes.setdefault(webhook, RouteMetrics())

    def describe(self) -> Iterator[Metric]:
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        requests = counter("controller_runtime_webhook_requests_total")
        latency = histogram("controller_runtime_webhook_latency_seconds")
        in_flight = gauge("controller_runtime_webhook_requests_in_flight")
        for webhook, numbers in self._routes.items():
            for code, count in numbers.codes.items():
                requests.add_metric([webhook, str(code)], count)
            latency.add_metric([webhook], _cumulative(numbers.buckets), numbers.seconds)
            in_flight.add_metric([webhook], numbers.in_flight)
        panics = counter("controller_runtime_webhook_panics_total")
        panics.add_metric([], self.panics)
        yield from (requests, latency, in_flight, panics)


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    total = 0
    samples: list[tuple[str, float]] = []
    for bound, count in zip((*_BOUNDS, float("inf")), buckets, strict=True):
        total += count
        samples.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
    return samples
