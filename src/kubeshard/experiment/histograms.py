"""Percentiles from the histograms that processes expose, for the screen; sans I/O.

They are of what came between two scrapes of each process.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from kubeshard.experiment.quantiles import of_buckets


class Latencies:
    """Of one histogram of one controller, summed over all processes."""

    def __init__(self, family: str, label: tuple[str, str]) -> None:
        self._family = family
        self._label = label
        self._last: dict[str, Mapping[float, float]] = {}
        self._recent: dict[str, Mapping[float, float]] = {}

    def scraped(self, process: str, exposition: str) -> None:
        name, value = self._label
        lines = "\n".join(line for line in exposition.splitlines() if line.startswith(self._family))
        buckets: dict[float, float] = {}
        for family in text_string_to_metric_families(f"# TYPE {self._family} histogram\n{lines}\n"):
            for sample in family.samples:
                if sample.name.endswith("_bucket") and sample.labels.get(name) == value:
                    bound = float(sample.labels["le"])
                    buckets[bound] = buckets.get(bound, 0.0) + sample.value
        before = self._last.get(process, {})
        if any(count < before.get(bound, 0) for bound, count in buckets.items()):
            before = {}  # it was restarted
        self._recent[process] = {bound: count - before.get(bound, 0) for bound, count in buckets.items()}
        self._last[process] = buckets

    def quantile(self, part: float) -> float:
        """Of the last interval; NaN if nothing was observed in it."""
        total: dict[float, float] = {}
        for buckets in self._recent.values():
            for bound, count in buckets.items():
                total[bound] = total.get(bound, 0.0) + count
        return of_buckets(part, total)
