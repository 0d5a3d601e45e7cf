"""Observations of a work queue.

`QueueMetrics` receives observations; the manager turns them into the metrics that every Kubernetes dashboard
knows: `workqueue_adds_total`, `workqueue_queue_duration_seconds`, `workqueue_work_duration_seconds`,
`workqueue_retries_total`. What a queue knows anyway is read on each scrape, without a timer or a cost per key:
`workqueue_depth`, `workqueue_unfinished_work_seconds`, `workqueue_longest_running_processor_seconds`, and the
reasons of runs (`reasons.Causes`).
"""

from __future__ import annotations

from typing import Protocol


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
