"""The metrics that are plain numbers are exposed as prometheus_client would expose them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from kubeshard.manager.metrics import QUEUE_BUCKETS, RECONCILE_BUCKETS
from kubeshard.manager.series import Counts, Durations, Levels

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
