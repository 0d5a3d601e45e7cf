"""What a work queue tells about itself as it happens.

`QueueMetrics` receives observations; the manager turns them into the metrics that every Kubernetes dashboard
knows: `workqueue_adds_total`, `workqueue_queue_duration_seconds`, `workqueue_work_duration_seconds`,
`workqueue_retries_total`. What a queue knows anyway is asked from it when it is scraped, so no timer refreshes
it and no key pays for it: `workqueue_depth`, `workqueue_unfinished_work_seconds`,
`workqueue_longest_running_processor_seconds`, and by what runs were caused (`Causes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kubeshard.workqueue.reasons import Wanted, as_reason

MAX_CLASSES = 64
"""Pairs of what happened and a kind that are counted apart; the rest is counted as `other`."""


class QueueMetrics(Protocol):
    """Observations of one queue. Durations in seconds. Called inline: must neither block nor raise."""

    def added(self) -> None:
        """A key came to want processing. Adds that were collapsed do not count."""
        ...

    def waited(self, seconds: float) -> None:
        """A key was handed out this long after it came to want processing."""
        ...

    def worked(self, seconds: float) -> None:
        """A key's processing took this long."""
        ...

    def retried(self) -> None:
        """A key was added with a delay, for whatever reason."""
        ...


class NoMetrics:
    def added(self) -> None: ...

    def waited(self, seconds: float) -> None: ...

    def worked(self, seconds: float) -> None: ...

    def retried(self) -> None: ...


class Causes:
    """Counts runs by what caused them: a run with several causes counts for each of them."""

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
        """Runs by (what happened, the kind that it happened to). Only ever grows."""
        return self._counts
