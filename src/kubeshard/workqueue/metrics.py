"""What a work queue tells about itself.

`QueueMetrics` receives observations as they happen; the manager turns them into the metrics that every
Kubernetes dashboard knows: `workqueue_depth`, `workqueue_adds_total`,
`workqueue_queue_duration_seconds`, `workqueue_work_duration_seconds`, `workqueue_retries_total`. The two that
grow while nothing happens, `workqueue_unfinished_work_seconds` and
`workqueue_longest_running_processor_seconds`, are asked from the queue when they are scraped, so no timer
refreshes them.
"""

from __future__ import annotations

from typing import Generic, Protocol

from kubeshard.runtime.clock import Clock
from kubeshard.workqueue.core import K


class QueueMetrics(Protocol):
    """Observations of one queue. Durations in seconds. Called inline: must neither block nor raise."""

    def depth(self, keys: int) -> None:
        """So many keys want processing."""
        ...

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
    def depth(self, keys: int) -> None: ...

    def added(self) -> None: ...

    def waited(self, seconds: float) -> None: ...

    def worked(self, seconds: float) -> None: ...

    def retried(self) -> None: ...


class Stopwatch(Generic[K]):
    """Times how long keys wait and how long their processing takes."""

    def __init__(self, metrics: QueueMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._added: dict[K, float] = {}
        """Since when each key wants processing."""
        self._started: dict[K, float] = {}
        """Since when each running key is processed."""

    def added(self, key: K) -> None:
        self._added[key] = self._clock.monotonic()
        self._metrics.added()

    def started(self, key: K) -> None:
        now = self._clock.monotonic()
        self._started[key] = now
        self._metrics.waited(now - self._added.pop(key))

    def finished(self, key: K) -> None:
        self._metrics.worked(self._clock.monotonic() - self._started.pop(key))

    def discard(self, key: K) -> None:
        self._added.pop(key, None)

    def unfinished(self) -> float:
        """Seconds of work in progress that no `worked` has reported yet, over all running keys."""
        now = self._clock.monotonic()
        return sum(now - start for start in self._started.values())

    def longest(self) -> float:
        """Seconds for which the longest running key has been processed."""
        return max((self._clock.monotonic() - start for start in self._started.values()), default=0.0)
