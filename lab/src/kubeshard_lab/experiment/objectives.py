"""The service levels of an experiment: percentiles of histograms, and the limits that they should keep.

They are those of the evaluations that the Go project published. `levels` judges a recorded run by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

QUANTILE = 0.99
CONTROLLER = "website"

QUEUE = "workqueue_queue_duration_seconds"
RECONCILE = "experiment_website_reconciliation_duration_seconds"
REQUESTS = "apiserver_request_duration_seconds"

Labels = Mapping[str, str]
_STREAMS = ("log", "exec", "portforward", "attach", "proxy")


class Objective(NamedTuple):
    """The 99th percentile of a histogram over the whole run, for each group of labels, is at most the limit."""

    name: str
    title: str
    limit: float
    """Seconds; a boundary of the histogram's buckets, so that interpolation cannot move a figure across it."""
    role: str
    """Of the processes that expose the histogram."""
    histogram: str
    covers: Callable[[Labels], bool] = lambda labels: True
    """Whether a series of the histogram counts."""
    by: tuple[str, ...] = ()

    def group(self, labels: Labels) -> tuple[str, ...]:
        return tuple(labels.get(label, "") for label in self.by)


def objectives(controller: str = CONTROLLER) -> tuple[Objective, ...]:
    """The service levels of a run whose operator has a controller of that name."""
    return (
        Objective(
            "latency-queue", "queue p99", 1, "operator", QUEUE, lambda of: of.get("name") == controller
        ),
        Objective("latency-reconciliation", "reconcile p99", 5, "tool", RECONCILE),
        Objective(
            "latency-mutating", "API server: writes p99", 1, "server", REQUESTS, _writes, ("resource", "verb")
        ),
        _reads("latency-read-resource", "reads of one object p99", 1, ("resource",)),
        _reads("latency-read-namespace-cluster", "lists p99", 30, ("namespace", "cluster")),
    )


def _reads(name: str, title: str, limit: float, scopes: tuple[str, ...]) -> Objective:
    def covers(labels: Labels) -> bool:
        read = labels.get("verb") in ("GET", "LIST") and labels.get("scope") in scopes
        return read and labels.get("subresource") not in _STREAMS

    return Objective(name, f"API server: {title}", limit, "server", REQUESTS, covers, ("resource", "scope"))


def _writes(labels: Labels) -> bool:
    return labels.get("verb") not in ("GET", "LIST", "WATCH") and labels.get("subresource") not in _STREAMS
