"""The service levels of an experiment: percentiles of histograms, and the limits that they should keep.

They are those of the evaluations that the Go project published. `levels` judges a recorded run by them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import msgspec

QUANTILE = 0.99
CONTROLLER = "website"

QUEUE = "workqueue_queue_duration_seconds"
RECONCILE = "experiment_website_reconciliation_duration_seconds"
REQUESTS = "apiserver_request_duration_seconds"


class Matcher(NamedTuple):
    """Compares a label with a value or, if the operator has a tilde, with a regular expression, as PromQL does."""

    label: str
    operator: str
    """`=`, `!=`, `=~` or `!~`."""
    value: str

    def accepts(self, labels: Mapping[str, str]) -> bool:
        found = labels.get(self.label, "")
        same = re.fullmatch(self.value, found) is not None if "~" in self.operator else found == self.value
        return same is not self.operator.startswith("!")


class Objective(msgspec.Struct, frozen=True, dict=True):
    """The 99th percentile of a histogram over the whole run, for each group of labels, is at most the limit."""

    name: str
    title: str
    limit: float
    """Seconds; a boundary of the histogram's buckets, so that interpolation cannot move a figure across it."""
    role: str
    """Of the processes that expose the histogram."""
    histogram: str
    matchers: tuple[Matcher, ...] = ()
    by: tuple[str, ...] = ()

    @cached_property
    def bucket(self) -> str:
        return f"{self.histogram}_bucket"

    def covers(self, labels: Mapping[str, str]) -> bool:
        return all(matcher.accepts(labels) for matcher in self.matchers)

    def group(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(labels.get(label, "") for label in self.by)


_NO_STREAM = Matcher("subresource", "!~", "log|exec|portforward|attach|proxy")
_READS = Matcher("verb", "=~", "GET|LIST")


def objectives(controller: str = CONTROLLER) -> tuple[Objective, ...]:
    """The service levels of a run whose operator has a controller of that name."""
    return (
        Objective("latency-queue", "queue p99", 1, "operator", QUEUE, (Matcher("name", "=", controller),)),
        Objective("latency-reconciliation", "reconcile p99", 5, "tool", RECONCILE),
        Objective(
            "latency-mutating",
            "API server: writes p99",
            1,
            "server",
            REQUESTS,
            (Matcher("verb", "!~", "GET|LIST|WATCH"), _NO_STREAM),
            ("resource", "verb"),
        ),
        Objective(
            "latency-read-resource",
            "API server: reads of one object p99",
            1,
            "server",
            REQUESTS,
            (_READS, Matcher("scope", "=", "resource"), _NO_STREAM),
            ("resource", "scope"),
        ),
        Objective(
            "latency-read-namespace-cluster",
            "API server: lists p99",
            30,
            "server",
            REQUESTS,
            (_READS, Matcher("scope", "=~", "namespace|cluster"), _NO_STREAM),
            ("resource", "scope"),
        ),
    )
