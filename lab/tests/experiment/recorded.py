"""A run's folder for tests: what is recorded in it is said in one line each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from kubeshard_lab.experiment.levels import Measured, judge
from kubeshard_lab.experiment.objectives import QUEUE, RECONCILE, REQUESTS
from kubeshard_lab.experiment.recording import (
    Event,
    Gauge,
    Generation,
    Level,
    Recorder,
    Request,
    RunRecord,
    Usage,
    save,
)

Buckets = Mapping[float, float]
"""Cumulative counts by upper bound. The bound infinity is that of the highest."""

BEGAN = 1_700_000_000.0

RUN = RunRecord(
    id="one",
    scenario="basic",
    setup="external",
    program="kubeshard",
    server="embedded",
    instances=3,
    workers=15,
    scale=0.1,
    seed=7,
    duration=120.0,
)
"""Of 3 instances, before it began."""


class Recorded:
    """Times are seconds since the load began, unless they are in rows."""

    def __init__(self, folder: Path, *, began: float = BEGAN, ended: float = BEGAN + 120) -> None:
        self.folder, self.began = folder, began
        self.added: list[Generation] = []
        self._recorder = Recorder(folder)
        self._scrapes = ""
        save(folder, replace(RUN, instances=2, scale=1.0, seed=1, began=began, ended=ended))

    def add(self, row: Request | Generation | Event | Usage | Gauge) -> None:
        self._recorder.add(row)
        if isinstance(row, Generation):
            self.added.append(row)

    def generations(self, *waits: float, due: float = 0) -> None:
        """Each written at the same time and ready after so many seconds."""
        for wait in waits:
            number, at = len(self.added), BEGAN + due
            self.add(Generation("ns", f"site-{number}", f"{number}", 1, at, at, at, at + wait, False, False))

    def scrape(
        self,
        time: float,
        process: str,
        role: str = "operator",
        *,
        queue: Buckets | None = None,
        reconcile: Buckets | None = None,
        requests: Mapping[tuple[str, str, str, str], Buckets] | None = None,
    ) -> None:
        """`requests`: by resource, verb, scope and subresource."""
        families = []
        if queue is not None:
            families.append(_histogram(QUEUE, ("name", "controller"), {("website", "website"): queue}))
        if reconcile is not None:
            families.append(_histogram(RECONCILE, (), {(): reconcile}))
        if requests is not None:
            families.append(_histogram(REQUESTS, ("resource", "verb", "scope", "subresource"), requests))
        self.page(time, process, role, _text(families))

    def page(self, time: float, process: str, role: str, text: str) -> None:
        self._scrapes += f"# scrape {BEGAN + time} {process} {role}\n{text}"

    def close(self) -> None:
        """Everything is on disk."""
        self._recorder.flush()
        (self.folder / "scrapes.txt").write_text(self._scrapes)

    def judged(self) -> list[Level]:
        self.close()
        return judge(self.folder)

    def measured(self) -> Measured:
        self.close()
        return Measured.read(self.folder)


def _histogram(
    name: str, labels: tuple[str, ...], series: Mapping[tuple[str, ...], Buckets]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, f"About {name}.", labels=labels)
    for values, counts in series.items():
        highest = max(counts.values())
        buckets = [(floatToGoString(bound), count) for bound, count in {**counts, math.inf: highest}.items()]
        family.add_metric(values, buckets, float(highest))
    return family


def _text(families: list[HistogramMetricFamily]) -> str:
    class Page(Collector):
        def collect(self) -> list[Metric]:
            return list(families)

    registry = CollectorRegistry()
    registry.register(Page())
    return generate_latest(registry).decode()
