"""The metrics that are plain numbers are exposed as prometheus_client would expose them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from kubeshard.manager import Manager
from kubeshard.manager.fast_metrics import Counts, Durations, Levels
from kubeshard.manager.metrics import QUEUE_BUCKETS, RECONCILE_BUCKETS, Metrics

LABELS = ("name", "controller")
seconds = st.floats(0, 1e5) | st.sampled_from([*QUEUE_BUCKETS, *RECONCILE_BUCKETS])


def page(registry: CollectorRegistry) -> list[str]:
    """Returns the page without series that we do not expose (`_created`)."""
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


@given(st.sampled_from([QUEUE_BUCKETS, RECONCILE_BUCKETS]), st.lists(seconds, max_size=30))
def test_durations_are_exposed_as_a_histogram(buckets: tuple[float, ...], observed: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    durations = Durations("work_seconds", 'How "long".', LABELS, buckets)
    ours.register(durations)
    histogram = Histogram("work_seconds", 'How "long".', LABELS, buckets=buckets, registry=theirs)
    for labels in (("a", "a"), ("b\n", "c")):
        mine, other = durations.series(*labels), histogram.labels(*labels)
        for each in observed:
            mine.observe(each)
            other.observe(each)
    assert page(ours) == page(theirs)


@given(st.lists(st.integers(0, 9), max_size=9))
def test_counts_and_levels_are_exposed_as_a_counter_and_a_gauge(changes: list[int]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counts, levels = Counts("adds_total", "Adds.", LABELS), Levels("depth", "Depth.", LABELS)
    ours.register(counts)
    ours.register(levels)
    counter = Counter("adds_total", "Adds.", LABELS, registry=theirs)
    gauge = Gauge("depth", "Depth.", LABELS, registry=theirs)
    for each in changes:
        counts.series("a", "b").value += each
        counter.labels("a", "b").inc(each)
        levels.series("a", "b").value = each
        gauge.labels("a", "b").set(each)
    assert page(ours) == page(theirs)


def test_a_series_is_made_once() -> None:
    counts = Counts("adds_total", "Adds.", LABELS)
    assert counts.series("a", "b") is counts.series("a", "b")
    assert counts.series("a", "b") is not counts.series("b", "a")


def scraped(metrics: Metrics) -> list[str]:
    registry: Any = SimpleNamespace(collect=metrics.families)
    return generate_latest(registry).decode().splitlines()


def test_the_page_shows_the_programs_own_metrics_beside_the_managers_and_each_series_once() -> None:
    """The program's are in prometheus_client's default registry, which also has collectors of the process."""
    mine = Counter("my_pages_total", "Mine.")
    try:
        mine.inc()
        lines = scraped(Metrics())
    finally:
        REGISTRY.unregister(mine)
    assert "my_pages_total 1.0" in lines
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert {each.partition("{")[0] for each in series} > {"process_cpu_seconds_total", "python_info"}
    types = [line for line in lines if line.startswith("# TYPE")]
    assert len(series) == len(set(series))
    assert len(types) == len(set(types))


@pytest.mark.parametrize("registry", [CollectorRegistry(), REGISTRY])
def test_with_a_given_registry_the_page_shows_no_other_and_nothing_twice(registry: CollectorRegistry) -> None:
    mine = Counter("my_pages_total", "Mine.")
    before = list(REGISTRY._collector_to_names)
    try:
        lines = scraped(Metrics(registry))
    finally:
        for collector in [c for c in REGISTRY._collector_to_names if c is mine or c not in before]:
            REGISTRY.unregister(collector)
    assert ("my_pages_total 0.0" in lines) is (registry is REGISTRY)
    assert len([line for line in lines if line.startswith("# TYPE process_cpu_seconds_total")]) == 1


def test_a_manager_can_be_given_the_default_registry() -> None:
    before = list(REGISTRY._collector_to_names)
    try:
        lines = scraped(Manager(registry=REGISTRY, status_pages=None).metrics)
    finally:
        for collector in [c for c in REGISTRY._collector_to_names if c not in before]:
            REGISTRY.unregister(collector)
    types = [line for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


def test_servers_that_count_the_same_are_shown_together_and_the_managers_own_metrics_win() -> None:
    first, second = CollectorRegistry(), CollectorRegistry()
    for registry, route in ((first, "/a"), (second, "/b")):
        Counter("webhook_requests_total", "Requests.", ["webhook"], registry=registry).labels(route).inc()
    Gauge("rest_client_requests_total", "Of another type.", registry=second).set(7)
    lines = scraped(Metrics(beside=lambda: [first, second, first]))
    assert [line for line in lines if line.startswith("webhook_requests_total")] == [
        'webhook_requests_total{webhook="/a"} 1.0',
        'webhook_requests_total{webhook="/b"} 1.0',
    ]
    assert [line for line in lines if line.startswith("# TYPE rest_client_requests_total")] == [
        "# TYPE rest_client_requests_total counter"
    ]
