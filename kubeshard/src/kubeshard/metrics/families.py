"""The families of one scrape, with the name, meaning and labels that are declared. Unknown names raise KeyError."""

from __future__ import annotations

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from kubeshard.metrics.declared import declared


def counter(name: str) -> CounterMetricFamily:
    """A counter for one scrape; its name ends in `_total`."""
    name, about, labels = declared(name)
    return CounterMetricFamily(name, about, labels=labels)


def gauge(name: str) -> GaugeMetricFamily:
    """A gauge for one scrape."""
    name, about, labels = declared(name)
    return GaugeMetricFamily(name, about, labels=labels)


def histogram(name: str) -> HistogramMetricFamily:
    """A histogram for one scrape."""
    name, about, labels = declared(name)
    return HistogramMetricFamily(name, about, labels=labels)
