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
from contextlib import suppress
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from kubeshard.controller.events import EventRecorder
from kubeshard.controller.metrics import TriggerStep
from kubeshard.controller.outcomes import Ending, Outcome
from kubeshard.leases.renewer import RENEWAL_FAILURES, RenewalFailure
from kubeshard.manager.fast_metrics import Counts, Durations, Histogram, Levels, Number, render
from kubeshard.manager.http import Page, Request
from kubeshard.metrics.declared import declared
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


class Metrics:
    """`registry` may be shared with the program's own metrics; without it, the default registry is shown too. `beside`:
    further registries to show, at the time of a scrape.
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
        self._queues = Queues(self.registry)
        self._reconciles = _Reconciles(self.registry)
        self._events = _Events(self.registry)
        self._requests = Counts(*declared("rest_client_requests_total"))
        self.registry.register(self._requests)
        self._durations = Durations(*declared("rest_client_request_duration_seconds"), REQUEST_BUCKETS)
        self.registry.register(self._durations)
        self._answers: dict[tuple[str, str, int], tuple[Number, Histogram]] = {}
        """The series of requests, by method, host and status code."""
        self._leading = Gauge(*declared("leader_election_master_status"), registry=self.registry)
        self._slow_path = Counter(*declared("leader_election_slowpath_total"), registry=self.registry)
        self._renewals = Counter(
            *declared("kubeshard_leader_election_renewals_total"), registry=self.registry
        )
        self._renewal_failures = Counter(
            *declared("kubeshard_leader_election_renewal_failures_total"), registry=self.registry
        )
        self._blockages = Counter(*declared("kubeshard_event_loop_blockages_total"), registry=self.registry)
        self._blocking_tasks: set[str] = set()
        about_build = Gauge(*declared("kubeshard_build_info"), registry=self.registry)
        about_build.labels(__version__, platform.python_version()).set(1)

    def queue(self, controller: str) -> QueueObserver:
        return QueueObserver(self._queues, controller)

    def controller(self, name: str, workers: int) -> ControllerObserver:
        return ControllerObserver(self._reconciles, name, workers)

    def watch_queue(self, queue: WorkQueue[Any]) -> None:
        """Exposes the metrics that are computed from the queue."""
        self._queues.computed[queue.name] = queue

    def forget(self, name: str) -> None:
        """The controller has left, or its cluster, or could not be added: its series, if any, are removed."""
        self._queues.forget(name)
        self._reconciles.forget(name)

    def watch_loop(self, longest_lag: Callable[[], float]) -> None:
        """Exposes the lag of the event loop."""
        lag = Gauge(*declared("kubeshard_event_loop_lag_seconds"), registry=self.registry)
        lag.set_function(longest_lag)

    def blocked(self, task: str) -> None:
        """Counts that a task blocked the event loop. May be called from any thread."""
        if task not in self._blocking_tasks and len(self._blocking_tasks) >= MAX_TASKS:
            task = OTHER_TASKS
        self._blocking_tasks.add(task)
        self._blockages.labels(task).inc()

    def watched(self, events: EventRecorder) -> EventRecorder:
        """Returns the same recorder, and exposes how many of its events could not be sent."""
        self._events.recorder = events
        return events

    def request(self, method: str, host: str, code: int, seconds: float) -> None:
        """A client observer."""
        if (series := self._answers.get((method, host, code))) is None:
            count = self._requests.series(str(code or "<error>"), method, host)
            series = self._answers[method, host, code] = count, self._durations.series(method, host)
        count, durations = series
        count.value += 1
        durations.observe(seconds)

    def holding(self, name: str, holds: bool) -> None:
        self._leading.labels(name).set(holds)

        for (
            why
        ) in RENEWAL_FAILURES:  # a counter that starts with its first failure hides that failure from `rate`
            self._renewal_failures.labels(name, why)

    def slow_path(self, name: str) -> None:
        self._slow_path.labels(name).inc()

    def renewed(self, name: str) -> None:
        self._renewals.labels(name).inc()

    def not_renewed(self, name: str, why: RenewalFailure) -> None:
        self._renewal_failures.labels(name, why).inc()

    def page(self, request: Request) -> Awaitable[Page] | None:
        """`/metrics` in the text format."""
        return self._page(request) if request.path == "/metrics" else None

    async def _page(self, request: Request) -> Page:
        body = await render(self.families(), gzip=request.gzip)
        return Page(200, body, CONTENT_TYPE_LATEST, "gzip" if request.gzip else "")

    def families(self) -> Iterator[Metric]:
        """What the page shows."""
        return _Shown([self.registry, *self._beside(), *self._default]).collect()


class ControllerObserver:
    """`kubeshard.controller.metrics.ControllerMetrics` of one controller."""

    def __init__(self, reconciles: _Reconciles, name: str, workers: int) -> None:
        self._results = {label: reconciles.total.series(name, label) for label in RESULTS}
        self._errors = reconciles.errors.labels(name)
        self._special = {
            Ending.TERMINAL: reconciles.terminal.labels(name),
            Ending.GAVE_UP: reconciles.terminal.labels(name),
            Ending.CRASHED: reconciles.panics.labels(name),
            Ending.TIMED_OUT: reconciles.timeouts.labels(name),
        }
        self._time = reconciles.time.series(name)
        self._active = reconciles.active.series(name)
        self._overdue = reconciles.overdue.labels(name)
        self._reconciles = reconciles
        self._name = name
        reconciles.workers.labels(name).set(workers)

    def started(self) -> None:
        self._active.value += 1

    def finished(self, outcome: Outcome | None, seconds: float) -> None:
        self._active.value -= 1
        if outcome is None:
            return
        self._time.observe(seconds)
        self._results[outcome.label].value += 1
        if outcome.failed:
            self._errors.inc()
        if special := self._special.get(outcome.ending):
            special.inc()

    def overdue(self, change: int) -> None:
        self._overdue.inc(change)

    def trigger_failed(self, source: str, step: TriggerStep) -> None:
        self._reconciles.trigger_failed(self._name, source, step)


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

    def forget(self, name: str) -> None:
        self.computed.pop(name, None)
        self._priorities.pop(name, None)
        for metric in (self.adds, self.retries, self.waits, self.work):
            metric.remove(name, name)

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


class _Events(Collector):
    def __init__(self, registry: CollectorRegistry) -> None:
        self.recorder: EventRecorder | None = None
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        lost = counter("kubeshard_events_lost_total")
        recorder = self.recorder
        lost.add_metric(("too_many",), recorder.dropped if recorder else 0)
        lost.add_metric(("refused",), recorder.failed if recorder else 0)
        yield lost


class _Reconciles:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.total = Counts(*declared("controller_runtime_reconcile_total"))
        self.errors = Counter(*declared("controller_runtime_reconcile_errors_total"), registry=registry)
        self.terminal = Counter(
            *declared("controller_runtime_terminal_reconcile_errors_total"), registry=registry
        )
        self.panics = Counter(*declared("controller_runtime_reconcile_panics_total"), registry=registry)
        self.timeouts = Counter(*declared("controller_runtime_reconcile_timeouts_total"), registry=registry)
        self.triggers = Counter(*declared("kubeshard_controller_trigger_errors_total"), registry=registry)
        self.overdue = Gauge(*declared("kubeshard_controller_overdue_reconciles"), registry=registry)
        self.time = Durations(*declared("controller_runtime_reconcile_time_seconds"), RECONCILE_BUCKETS)
        self.workers = Gauge(*declared("controller_runtime_max_concurrent_reconciles"), registry=registry)
        self.active = Levels(*declared("controller_runtime_active_workers"))
        for metric in (self.total, self.time, self.active):
            registry.register(metric)
        self._triggered: dict[str, set[tuple[str, str]]] = {}
        """The labels of each controller's errors of triggers."""

    def trigger_failed(self, controller: str, source: str, step: TriggerStep) -> None:
        self._triggered.setdefault(controller, set()).add((source, step))
        self.triggers.labels(controller, source, step).inc()

    def forget(self, controller: str) -> None:
        for result in RESULTS:
            self.total.remove(controller, result)
        self.time.remove(controller)
        self.active.remove(controller)
        for metric in (self.errors, self.terminal, self.panics, self.timeouts, self.overdue, self.workers):
            with suppress(KeyError):  # some versions of the library raise it if there is none
                metric.remove(controller)
        for labels in self._triggered.pop(controller, ()):
            self.triggers.remove(controller, *labels)


class _Shown:
    """Several registries as a scrape sees them. The first one is the largest, and is never in memory as a whole."""

    def __init__(self, registries: Iterable[CollectorRegistry]) -> None:
        self._first, *self._others = {id(registry): registry for registry in registries}.values()

    def collect(self) -> Iterator[Metric]:
        others: dict[str, Metric] = {}
        for registry in self._others:
            for metric in _without_created(registry):
                _add(others.setdefault(_exposed(metric), metric), metric)
        for metric in _without_created(self._first):
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
