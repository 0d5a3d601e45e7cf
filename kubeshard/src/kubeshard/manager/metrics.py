"""The metrics of a process, under the names that existing dashboards use.

One registry per manager. The page also shows what the servers of the manager count, and, unless the program has given
the manager a registry, what is in the default registry of prometheus_client: the program's own metrics. A series that
is in several registries is shown once.

`Metrics` creates the observers that queues, controllers, clients and elections report to. What a queue already
knows (its depth, the reasons of runs, the two gauges that grow while nothing happens) is read from it on each scrape.

`_created` series are not exposed: they are of no use, and double the number of series.
"""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from kubeshard.controller.events import EventRecorder
from kubeshard.controller.outcomes import Ending, Outcome, TriggerStep
from kubeshard.leases.renewer import RENEWAL_FAILURES, RenewalFailure
from kubeshard.manager.fast_metrics import Counts, Durations, Histogram, Levels, Number, render
from kubeshard.manager.http import Page, Request
from kubeshard.metrics.declared import declared, defined
from kubeshard.metrics.families import counter, gauge
from kubeshard.version import __version__
from kubeshard.workqueue.queue import WorkQueue

RECONCILE_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
)
"""The buckets of controller-runtime."""

REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""The buckets of Kubernetes' own components."""

QUEUE_BUCKETS = tuple(10.0**exponent for exponent in range(-8, 4))
"""10 ns to 1000 s, as in client-go."""

MAX_PRIORITIES = 25
OTHER_PRIORITIES = "exceeded_cardinality_limit"
"""The number of a queue's priorities with their own series, and the label of the others; as in controller-runtime."""

MAX_TASKS = 20
OTHER_TASKS = "other"
"""The number of tasks that blocked the event loop with their own series, and the label of the others."""

RESULTS = ("success", "error", "requeue", "requeue_after")


NUMBERS = (
    "controller_runtime_reconcile_total",
    "controller_runtime_reconcile_errors_total",
    "controller_runtime_terminal_reconcile_errors_total",
    "controller_runtime_reconcile_panics_total",
    "controller_runtime_reconcile_timeouts_total",
    "controller_runtime_max_concurrent_reconciles",
    "controller_runtime_active_workers",
    "kubeshard_controller_trigger_errors_total",
    "kubeshard_controller_overdue_reconciles",
    "workqueue_adds_total",
    "workqueue_retries_total",
    "rest_client_requests_total",
    "leader_election_master_status",
    "leader_election_slowpath_total",
    "kubeshard_leader_election_renewals_total",
    "kubeshard_leader_election_renewal_failures_total",
    "kubeshard_event_loop_blockages_total",
    "kubeshard_build_info",
)
"""Counters and gauges that are reported; the others are computed on each scrape."""

DURATIONS = {
    "controller_runtime_reconcile_time_seconds": RECONCILE_BUCKETS,
    "workqueue_queue_duration_seconds": QUEUE_BUCKETS,
    "workqueue_work_duration_seconds": QUEUE_BUCKETS,
    "rest_client_request_duration_seconds": REQUEST_BUCKETS,
}


class Metrics(Collector):
    """`registry` may be shared with the program's own metrics; without it, the default registry is shown too. `beside`:
    further registries to show, at the time of a scrape. Each series is changed by one thread only.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        beside: Callable[[], Iterable[CollectorRegistry]] = tuple,
    ) -> None:
        self.registry = registry or CollectorRegistry()
        self._beside = beside
        self._default = () if registry else (REGISTRY,)
        if self.registry is not REGISTRY:  # which has them
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
            GCCollector(registry=self.registry)
        self._numbers: dict[str, Counts | Levels] = {
            name: (Counts if defined(name).type == "counter" else Levels)(*declared(name)) for name in NUMBERS
        }
        self._durations = {name: Durations(*declared(name), bounds) for name, bounds in DURATIONS.items()}
        self._answers: dict[tuple[str, str, int], tuple[Number, Histogram]] = {}
        """The series of requests, by method, host and status code."""
        self._blocking_tasks: set[str] = set()
        self._queues: dict[str, WorkQueue[Any]] = {}
        self._priorities: dict[str, set[int]] = {}
        """The priorities of each queue that have a series."""
        self._recorder: EventRecorder | None = None
        self._longest_lag: Callable[[], float] = float
        for family in (*self._numbers.values(), *self._durations.values(), self):
            self.registry.register(family)
        self.number("kubeshard_build_info", __version__, platform.python_version()).value = 1

    def number(self, name: str, *labels: str) -> Number:
        """A series of one of NUMBERS, created on first use."""
        return self._numbers[name].series(*labels)

    def durations(self, name: str, *labels: str) -> Histogram:
        """The same for DURATIONS."""
        return self._durations[name].series(*labels)

    def queue(self, controller: str) -> QueueObserver:
        return QueueObserver(self, controller)

    def controller(self, name: str, workers: int) -> ControllerObserver:
        return ControllerObserver(self, name, workers)

    def watch_queue(self, queue: WorkQueue[Any]) -> None:
        """Exposes the metrics that are computed from the queue."""
        self._queues[queue.name] = queue

    def forget(self, name: str) -> None:
        """The controller has left, or its cluster, or could not be added: its series, if any, are removed."""
        self._queues.pop(name, None)
        self._priorities.pop(name, None)
        for family in (*self._numbers.values(), *self._durations.values()):
            family.forget("controller", name)

    def watch_loop(self, longest_lag: Callable[[], float]) -> None:
        self._longest_lag = longest_lag

    def blocked(self, task: str) -> None:
        """Counts that a task blocked the event loop. May be called from another thread."""
        if task not in self._blocking_tasks and len(self._blocking_tasks) >= MAX_TASKS:
            task = OTHER_TASKS
        self._blocking_tasks.add(task)
        self.number("kubeshard_event_loop_blockages_total", task).value += 1

    def watched(self, events: EventRecorder) -> EventRecorder:
        """Returns the same recorder, and exposes how many of its events could not be sent."""
        self._recorder = events
        return events

    def request(self, method: str, host: str, code: int, seconds: float) -> None:
        """A client observer."""
        if (series := self._answers.get((method, host, code))) is None:
            series = self._answers[method, host, code] = (
                self.number("rest_client_requests_total", str(code or "<error>"), method, host),
                self.durations("rest_client_request_duration_seconds", method, host),
            )
        count, durations = series
        count.value += 1
        durations.observe(seconds)

    # LeaseMetrics of the leader election, from the renewer's thread

    def holding(self, name: str, holds: bool) -> None:
        self.number("leader_election_master_status", name).value = holds
        for why in RENEWAL_FAILURES:  # a counter that starts with a failure hides that failure from `rate`
            self.number("kubeshard_leader_election_renewal_failures_total", name, why)

    def slow_path(self, name: str) -> None:
        self.number("leader_election_slowpath_total", name).value += 1

    def renewed(self, name: str) -> None:
        self.number("kubeshard_leader_election_renewals_total", name).value += 1

    def not_renewed(self, name: str, why: RenewalFailure) -> None:
        self.number("kubeshard_leader_election_renewal_failures_total", name, why).value += 1

    # The page

    def page(self, request: Request) -> Awaitable[Page] | None:
        """`/metrics` in the text format."""
        return self._page(request) if request.path == "/metrics" else None

    async def _page(self, request: Request) -> Page:
        body = await render(self.families(), gzip=request.gzip)
        return Page(200, body, CONTENT_TYPE_LATEST, "gzip" if request.gzip else "")

    def families(self) -> Iterator[Metric]:
        """What the page shows."""
        return _shown([self.registry, *self._beside(), *self._default])

    def collect(self) -> Iterator[Metric]:
        """What is computed."""
        yield from self._of_queues()
        lost, recorder = counter("kubeshard_events_lost_total"), self._recorder
        lost.add_metric(("too_many",), recorder.dropped if recorder else 0)
        lost.add_metric(("refused",), recorder.failed if recorder else 0)
        yield lost
        lag = gauge("kubeshard_event_loop_lag_seconds")
        lag.add_metric((), self._longest_lag())
        yield lag

    def _of_queues(self) -> Iterator[Metric]:
        unfinished = gauge("workqueue_unfinished_work_seconds")
        longest = gauge("workqueue_longest_running_processor_seconds")
        depth = gauge("workqueue_depth")
        causes = counter("kubeshard_controller_reconcile_causes_total")
        for name, queue in self._queues.items():
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


class ControllerObserver:
    """`kubeshard.controller.outcomes.ControllerMetrics` of one controller."""

    def __init__(self, metrics: Metrics, name: str, workers: int) -> None:
        def number(what: str, *more: str) -> Number:
            return metrics.number(f"controller_runtime_{what}", name, *more)

        self._metrics = metrics
        self._name = name
        self._results = {result: number("reconcile_total", result) for result in RESULTS}
        self._errors = number("reconcile_errors_total")
        self._special = {
            Ending.TERMINAL: number("terminal_reconcile_errors_total"),
            Ending.GAVE_UP: number("terminal_reconcile_errors_total"),
            Ending.CRASHED: number("reconcile_panics_total"),
            Ending.TIMED_OUT: number("reconcile_timeouts_total"),
        }
        self._time = metrics.durations("controller_runtime_reconcile_time_seconds", name)
        self._active = number("active_workers")
        self._overdue = metrics.number("kubeshard_controller_overdue_reconciles", name)
        number("max_concurrent_reconciles").value = workers

    def started(self) -> None:
        self._active.value += 1

    def finished(self, outcome: Outcome | None, seconds: float) -> None:
        self._active.value -= 1
        if outcome is None:
            return
        self._time.observe(seconds)
        self._results[outcome.label].value += 1
        if outcome.failed:
            self._errors.value += 1
            if special := self._special.get(outcome.ending):
                special.value += 1

    def overdue(self, change: int) -> None:
        self._overdue.value += change

    def trigger_failed(self, source: str, step: TriggerStep) -> None:
        self._metrics.number("kubeshard_controller_trigger_errors_total", self._name, source, step).value += 1


class QueueObserver:
    """`kubeshard.workqueue.QueueMetrics` of one controller's queue."""

    def __init__(self, metrics: Metrics, controller: str) -> None:
        labels = (controller, controller)
        self._adds = metrics.number("workqueue_adds_total", *labels)
        self._retries = metrics.number("workqueue_retries_total", *labels)
        self.waited = metrics.durations("workqueue_queue_duration_seconds", *labels).observe
        self.worked = metrics.durations("workqueue_work_duration_seconds", *labels).observe

    def added(self) -> None:
        self._adds.value += 1

    def retried(self) -> None:
        self._retries.value += 1


def _shown(registries: Iterable[CollectorRegistry]) -> Iterator[Metric]:
    """Several registries as a scrape sees them. The first one is the largest, and is never in memory as a whole."""
    first, *further = {id(registry): registry for registry in registries}.values()
    others: dict[str, Metric] = {}
    for registry in further:
        for metric in _without_created(registry):
            _add(others.setdefault(_exposed(metric), metric), metric)
    for metric in _without_created(first):
        if more := others.pop(_exposed(metric), None):
            _add(metric, more)
        yield metric
    yield from others.values()


def _without_created(registry: CollectorRegistry) -> Iterator[Metric]:
    for metric in registry.collect():
        if isinstance(metric.samples, list):  # others are our own
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
        yield metric


def _exposed(metric: Metric) -> str:
    """The name on the page."""
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def _add(metric: Metric, more: Metric) -> None:
    """Adds the series that the metric lacks. One of another type is another metric of that name: it is left out."""
    if more is not metric and more.type == metric.type:
        known = {_series(sample) for sample in metric.samples}
        metric.samples = [
            *metric.samples,
            *(sample for sample in more.samples if _series(sample) not in known),
        ]


def _series(sample: Sample) -> tuple[str, frozenset[tuple[str, str]]]:
    return sample.name, frozenset(sample.labels.items())
