"""The metrics of work queues, under the names of client-go and controller-runtime.

What a queue already knows (its depth, the reasons of runs, the two gauges that grow while nothing happens) is read from
it on each scrape.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kubeshard.manager.series import Counts, Durations
from kubeshard.metrics.declared import declared
from kubeshard.metrics.families import counter, gauge
from kubeshard.workqueue.queue import WorkQueue

QUEUE_BUCKETS = tuple(10.0**exponent for exponent in range(-8, 4))
"""10 ns to 1000 s, as in client-go."""

MAX_PRIORITIES = 25
OTHER_PRIORITIES = "exceeded_cardinality_limit"
"""The number of a queue's priorities with their own series, and the label of the others; as in controller-runtime."""


class QueueObserver:
    """`kubeshard.workqueue.QueueMetrics` of one controller's queue."""

    def __init__(self, queues: Queues, controller: str) -> None:
        labels = (controller, controller)
        self._adds = queues.adds.series(*labels)
        self._retries = queues.retries.series(*labels)
        self.waited = queues.waits.series(*labels).observe
        self.worked = queues.work.series(*labels).observe

    def added(self) -> None:
        self._adds.value += 1

    def retried(self) -> None:
        self._retries.value += 1


class Queues(Collector):
    """The queues of a process: what they report, and what they know when they are scraped."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.computed: dict[str, WorkQueue[Any]] = {}
        self._priorities: dict[str, set[int]] = {}
        """The priorities of each queue that have a series."""
        self.adds = Counts(*declared("workqueue_adds_total"))
        self.retries = Counts(*declared("workqueue_retries_total"))
        self.waits = Durations(*declared("workqueue_queue_duration_seconds"), QUEUE_BUCKETS)
        self.work = Durations(*declared("workqueue_work_duration_seconds"), QUEUE_BUCKETS)
        for metric in (self.adds, self.retries, self.waits, self.work):
            registry.register(metric)
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        unfinished = gauge("workqueue_unfinished_work_seconds")
        longest = gauge("workqueue_longest_running_processor_seconds")
        depth = gauge("workqueue_depth")
        causes = counter("kubeshard_controller_reconcile_causes_total")
        for name, queue in self.computed.items():
            for priority, keys in self._depths(name, queue).items():
                depth.add_metric((name, name, priority), keys)
            for (what, kind), runs in queue.caused().items():
                causes.add_metric((name, what, kind), runs)
            unfinished.add_metric((name, name), queue.unfinished_work())
            longest.add_metric((name, name), queue.longest_running())
        yield depth
        yield causes
        yield unfinished
        yield longest

    def _depths(self, name: str, queue: WorkQueue[Any]) -> dict[str, int]:
        """The depths by label. A priority that had a series keeps it, so that its gauge does not stay at its last
        value.
        """
        depths = queue.depths()
        known = self._priorities.setdefault(name, set())
        known.update(sorted(depths.keys() - known, key=abs)[: MAX_PRIORITIES - len(known)])
        labelled = {str(priority): depths.get(priority, 0) for priority in sorted(known)}
        if others := depths.keys() - known:
            labelled[OTHER_PRIORITIES] = sum(depths[priority] for priority in others)
        return labelled
