"""The recording of a run as OpenMetrics text, `metrics.txt`, which a Prometheus imports:

    promtool tsdb create-blocks-from openmetrics metrics.txt data/

It has what the processes said in their metrics, with their times, as a Prometheus in a cluster would have scraped it:
`instance` is the process, `job` the name of its program. What the experiment itself recorded is there as well, under
the names that its metrics have in a cluster:

| family | from |
|---|---|
| `experiment_website_reconciliation_duration_seconds` | generations, when they were ready |
| `experiment_website_backfilled_generations_total` | likewise |
| `controller_runtime_reconcile_total` | requests; `controller` is `website-generator`, `-mutator` or `-deleter` |
| `experiment_process_*` | CPU, memory and network of each process |
| `experiment_*` | gauges, such as `experiment_objects_of_shard`; what it is of is `subject` |

Guaranteed: each series is in the order of its times. Left out: what OpenMetrics cannot say, which is histograms without
the bucket of infinity, and families that processes give different types.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from kubeshard_lab.experiment.objectives import JOBS, RECONCILE
from kubeshard_lab.experiment.recording import METRICS, Gauge, Generation, Request, Usage, read
from kubeshard_lab.experiment.scrapes import Scrape, read_scrapes

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Of the histogram of reconciles, as the Go project's experiment has them."""
INTERVAL = 5.0
"""Seconds between the samples of what the experiment itself recorded."""
CONTROLLERS = {"create": "website-generator", "patch": "website-mutator", "delete": "website-deleter"}
TOOL = "experiment"
_END = b"# EOF\n"


def write(folder: Path) -> Path:
    """Writes the run's `metrics.txt`, and replaces it if there is one. Raises FileNotFoundError, ValueError."""
    scraped = defaultdict[str, list[tuple[Scrape, str]]](list)
    for scrape in read_scrapes(folder):
        for name, part in scrape.parts().items():
            scraped[name].append((scrape, part))
    own = {_name(family): (family, target) for family, target in _own(folder)}
    path, fresh = folder / METRICS, folder / f".{METRICS}"
    with fresh.open("wb") as file:
        for name in dict.fromkeys((*scraped, *own)):
            families = _Families()
            for scrape, part in scraped.get(name, ()):
                for family in scrape.parsed(part):
                    families.add(family, {"instance": scrape.process, "job": _job(scrape.role)}, scrape.time)
            if name in own and not any(scrape.role == "tool" for scrape, _ in scraped.get(name, ())):
                families.add(*own[name])
            file.write(families.text())
        file.write(_END)
    os.replace(fresh, path)
    return path


def _own(folder: Path) -> Iterator[tuple[Metric, Mapping[str, str]]]:
    """What the experiment recorded, and the labels of its target."""
    tool = {"instance": TOOL, "job": _job("tool")}
    for families in (
        _reconciles(read(folder, Generation)),
        _requests(read(folder, Request)),
        _gauges(read(folder, Gauge)),
    ):
        yield from ((family, tool) for family in families)
    yield from ((family, {}) for family in _usage(read(folder, Usage)))


def _name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _job(role: str) -> str:
    return JOBS.get(role, role)


class _Families(Collector):
    """Families whose samples are grouped by what they are of, in the order of their times, as the format wants."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._groups: dict[str, dict[tuple[Any, ...], list[Any]]] = defaultdict(lambda: defaultdict(list))

    def add(self, family: Metric, target: Mapping[str, str], time: float | None = None) -> None:
        """`time` is for samples that have none."""
        if family.type == "gauge" and family.name.endswith("_created"):
            return  # of a counter or histogram, as the text format has it
        known = self._metrics.setdefault(family.name, Metric(family.name, family.documentation, family.type))
        if known.type != family.type:
            return
        groups = defaultdict[tuple[Any, ...], list[Any]](list)
        for sample in family.samples:
            labels = {_label(name, target): _value(name, value) for name, value in sample.labels.items()}
            labels |= target
            at: Any = sample.timestamp if time is None else time
            of = tuple(
                sorted((name, value) for name, value in labels.items() if name not in ("le", "quantile"))
            )
            groups[of].append(sample._replace(labels=labels, timestamp=round(float(at), 3), exemplar=None))
        for of, samples in groups.items():
            if family.type != "histogram" or any(sample.labels.get("le") == "+Inf" for sample in samples):
                self._groups[family.name][of] += samples

    def text(self) -> bytes:
        return bytes(generate_latest(self)).removesuffix(_END)  # type: ignore[no-untyped-call]

    def collect(self) -> Iterator[Metric]:
        for name, metric in self._metrics.items():
            metric.samples = [
                sample
                for group in self._groups[name].values()
                for sample in sorted(group, key=lambda sample: sample.timestamp)
            ]
            if metric.samples:
                yield metric


def _label(name: str, target: Mapping[str, str]) -> str:
    """As a Prometheus names a label that the target has too."""
    return f"exported_{name}" if name in target else name


def _value(name: str, value: str) -> str:
    """Bounds and quantiles have one spelling in OpenMetrics."""
    return floatToGoString(value) if name in ("le", "quantile") else value  # type: ignore[no-untyped-call]


def _reconciles(generations: Iterable[Generation]) -> Iterator[Metric]:
    ready = sorted((each for each in generations if not math.isnan(each.ready)), key=lambda each: each.ready)
    duration = HistogramMetricFamily(RECONCILE, "How long users waited until a generation was ready.")
    backfilled = CounterMetricFamily(
        "experiment_website_backfilled_generations",
        "Generations of which only a later one was seen to be ready.",
    )
    counts, total, late = [0] * (len(BOUNDS) + 1), 0.0, 0
    for time, passed in _ticks(ready, [each.ready for each in ready]):
        for each in passed:
            seconds = each.ready - each.due
            counts[bisect_left(BOUNDS, seconds)] += 1
            total += seconds
            late += each.backfilled
        buckets = [
            (floatToGoString(bound), float(sum(counts[: number + 1])))  # type: ignore[no-untyped-call]
            for number, bound in enumerate((*BOUNDS, math.inf))
        ]
        duration.add_metric([], buckets, total, timestamp=time)
        backfilled.add_metric([], late, timestamp=time)
    yield from (duration, backfilled)


def _requests(requests: Iterable[Request]) -> Iterator[Metric]:
    answered = sorted(
        (each for each in requests if not math.isnan(each.answered)), key=lambda each: each.answered
    )
    reconciles = CounterMetricFamily(
        "controller_runtime_reconcile", "Requests of the load.", labels=["controller", "result"]
    )
    counts = Counter({(controller, "success"): 0 for controller in CONTROLLERS.values()})
    for time, passed in _ticks(answered, [each.answered for each in answered]):
        for each in passed:
            result = "success" if each.outcome == "ok" else "error"
            counts[CONTROLLERS.get(each.verb, each.verb), result] += 1
        for labels, count in counts.items():
            reconciles.add_metric(labels, count, timestamp=time)
    yield reconciles


def _ticks(rows: Sequence[Any], times: Sequence[float]) -> Iterator[tuple[float, Sequence[Any]]]:
    """The rows, sorted by their times, that came in each interval; at first none, which is what counters begin with."""
    if not rows:
        return
    tick, begun = times[0], 0
    while begun < len(rows) or tick == times[0]:
        ended = bisect_left(times, tick)
        yield tick, rows[begun:ended]
        begun, tick = ended, tick + INTERVAL


def _gauges(rows: Iterable[Gauge]) -> Iterator[Metric]:
    families: dict[str, GaugeMetricFamily] = {}
    for row in rows:
        name = f"experiment_{row.name.replace('-', '_')}"
        if name not in families:
            families[name] = GaugeMetricFamily(name, f"{row.name}, by what it is of.", labels=["subject"])
        families[name].add_metric([row.subject], row.value, timestamp=row.time)
    yield from families.values()


def _usage(rows: Iterable[Usage]) -> Iterator[Metric]:
    labels = ["instance", "job"]
    cpu = CounterMetricFamily("experiment_process_cpu_seconds", "CPU seconds of a process.", labels=labels)
    resident = GaugeMetricFamily(
        "experiment_process_resident_memory_bytes", "Resident memory of a process.", labels=labels
    )
    received = CounterMetricFamily(
        "experiment_process_receive_bytes", "Bytes that a process received over TCP.", labels=labels
    )
    sent = CounterMetricFamily(
        "experiment_process_transmit_bytes", "Bytes that a process sent.", labels=labels
    )
    for row in rows:
        of = [row.process, _job(row.role)]
        cpu.add_metric(of, row.cpu, timestamp=row.time)
        resident.add_metric(of, row.resident, timestamp=row.time)
        received.add_metric(of, row.received, timestamp=row.time)
        sent.add_metric(of, row.sent, timestamp=row.time)
    yield from (cpu, resident, received, sent)
