"""The page of metrics is rendered in short turns, and compressed for those who accept it."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, Summary, generate_latest
from prometheus_client.core import GaugeHistogramMetricFamily, GaugeMetricFamily, Metric, UnknownMetricFamily
from prometheus_client.registry import Collector

from kubeshard.manager.fast_metrics import SAMPLES, Counts, Durations, Levels, render
from kubeshard.manager.http import pages_app
from kubeshard.manager.metrics import Metrics


class _Unusual(Collector):
    """What the text format lacks."""

    def collect(self) -> Iterator[Metric]:
        sizes = GaugeHistogramMetricFamily("queue_sizes", "Of queues.", labels=["queue"])
        sizes.add_metric(["a"], [("1.0", 2), ("+Inf", 3)], 4.0)
        yield sizes
        dated = GaugeMetricFamily("dated", "With a time.", labels=["of", "in"])
        dated.add_metric(["first", "b"], 1.0)
        dated.add_metric(["a", "b"], -0.0, timestamp=1234.5)
        yield dated
        yield UnknownMetricFamily("unknown", "100 % (of something).", value=1e21)


def many(count: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    series = Gauge("many", 'Help with "quotes"\nand a second line.', ["name"], registry=registry)
    for number in range(count):
        series.labels(f"a\n{number}").set(number)
    Histogram("durations", "A histogram.", registry=registry).observe(1.0)
    Counter("things", "A counter.", ["of"], registry=registry)
    Summary("sizes", "A summary.", registry=registry).observe(2.0)
    Info("build", "An info.", registry=registry).info({"version": 'a "quoted" one'})
    registry.register(_Unusual())
    return registry


@pytest.mark.parametrize("count", [0, 1, SAMPLES, SAMPLES + 1, 3 * SAMPLES])
async def test_the_text_is_that_of_the_client_library(count: int) -> None:
    registry = many(count)
    expected = generate_latest(registry)
    assert await render(registry.collect()) == expected
    assert gzip.decompress(await render(registry.collect(), gzip=True)) == expected


async def test_so_is_that_of_numbers_which_are_written_from_memory() -> None:
    registry, labels = CollectorRegistry(), ("zone", "name")
    counts, levels = Counts("adds_total", 'Of "all".', labels), Levels("depth", "Now.", labels)
    took = Durations("work_seconds", "100 %.", labels, (0.1, 1.0))
    for family in (counts, levels, took):
        registry.register(family)
    pages = set()
    for change in (0.0, -0.0, 0.1, 2.5, 1e9):
        for name in ("a", 'a "quoted" %s', "two\nlines 0.0\n", "back\\slash"):
            counts.series("z", name).value += change
            levels.series(name, "z").value = change
            took.series("z", name).observe(change)
        page = await render(registry.collect())
        assert page == generate_latest(registry) == await render(registry.collect())
        pages.add(page)
    assert len(pages) == 5
    levels.show({("only", "this"): 1.0})
    assert b'depth{name="this",zone="only"} 1.0' in await render(levels.collect())
    assert (await render(levels.collect())).count(b"\n") == 3


async def test_other_tasks_run_while_a_large_page_is_rendered() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await render(many(20 * SAMPLES).collect(), gzip=True)
    task.cancel()
    assert turns >= 20


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [(None, False), ("gzip", True), ("deflate, GZIP;q=0.5", True), ("gzip;q=0", False), ("identity", False)],
)
async def test_metrics_are_compressed_for_clients_that_accept_it(
    accepted: str | None, compressed: bool
) -> None:
    sent: list[dict[str, object]] = []

    async def send(message: object) -> None:
        assert isinstance(message, dict)
        sent.append(message)

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    headers = [(b"accept-encoding", accepted.encode())] if accepted else []
    scope = {"type": "http", "method": "GET", "path": "/metrics", "headers": headers}
    await pages_app(Metrics().page)(scope, receive, send)
    start, body = sent
    fields = dict(start["headers"])  # type: ignore[call-overload]
    content = body["body"]
    assert isinstance(content, bytes)
    assert (fields.get(b"content-encoding") == b"gzip") is compressed
    assert fields[b"content-length"] == str(len(content)).encode()
    text = gzip.decompress(content) if compressed else content
    assert b"kubeshard_event_loop_blockages_total" in text
