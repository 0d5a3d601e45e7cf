"""Observations of a work queue.

`QueueMetrics` receives observations; the manager turns them into the metrics that every Kubernetes dashboard
knows: `workqueue_adds_total`, `workqueue_queue_duration_seconds`, `workqueue_work_duration_seconds`,
`workqueue_retries_total`. What a queue knows anyway is read on each scrape, without a timer or a cost per key:
`workqueue_depth`, `workqueue_unfinished_work_seconds`, `workqueue_longest_running_processor_seconds`, and the
reasons of runs (`Causes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kubeshard.workqueue.reasons import Wanted, as_reason

MAX_CLASSES = 64
"""Pairs of reason and kind that are counted separately; the rest is counted as `other`."""


class QueueMetrics(Protocol):
    """Observations of one queue. Durations in seconds. Called inline: must not block or raise."""

    def added(self) -> None:
        """A key was queued. Adds that were collapsed do not count."""
        ...

    def waited(self, seconds: float) -> None:
        """A key was handed out this long after it was queued."""
        ...

    def worked(self, seconds: float) -> None:
        """A key's processing took this long."""
        ...

    def retried(self) -> None:
        """A key was added with a delay, for any reason."""
        ...


class NoMetrics:
    def added(self) -> None: ...

    def waited(self, seconds: float) -> None: ...

    def worked(self, seconds: float) -> None: ...

    def retried(self) -> None: ...


class Causes:
    """Counts runs by reason: a run with several reasons counts for each of them."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def count(self, run: Wanted) -> None:
        counts = self._counts
        for given, _ in run.given:
            reason = as_reason(given)
            cause = (reason.what, reason.kind)
            known = counts.get(cause)
            if known is None and len(counts) >= MAX_CLASSES:
                cause = ("other", "")
                known = counts.get(cause)
            counts[cause] = (known or 0) + 1

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """Runs by (what happened, to which kind). Never shrinks."""
        return self._counts
