"""The workers of one controller: they take keys from the queue, run the reconciler, and decide what happens to
the key.

Guaranteed:

- A key is run by one worker at a time, while all kinds that the controller reads are served (`syncing`) and all gates
  are open, and never while a thread of an earlier run of it has not ended. Wrappers run in any case, so a shard
  acknowledges drains even while its reconciler waits for a kind.
- Workers start when all triggers have handled the initial contents of the caches, so each existing key runs only once
  for them.
- Whatever a reconcile raises or returns ends only that run (`outcomes`). Only cancellation from outside ends the
  worker.
- A run is cancelled after `Controller.reconcile_timeout` seconds and counts as failed.
- `drain` returns only when every worker has ended by itself, and nothing they started is still in flight: no
  thread, and no write that may still take effect.
- Cancelling `run` cancels the workers at once.

Not guaranteed: that a reconcile that swallows cancellation, or whose thread blocks, ends. It is quarantined
(`deadlines`), and reported in the log, by a metric, on the debug page, and by an event on its object; `hanging` says
when there are too many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kubeshard.cache.handlers import Registration
from kubeshard.cache.informer import Informer
from kubeshard.cache.own_writes import WriteBook, record_own_write
from kubeshard.client.leaving import QUIET
from kubeshard.controller.cluster import Cluster
from kubeshard.controller.composition import composed
from kubeshard.controller.context import Services
from kubeshard.controller.controller import Controller
from kubeshard.controller.daemons import Daemons
from kubeshard.controller.deadlines import Deadline, Deadlines
from kubeshard.controller.desired.sets import DesiredSets
from kubeshard.controller.event_series import ObjectReference
from kubeshard.controller.in_flight import Activities, CurrentRun
from kubeshard.controller.metrics import ControllerMetrics, NoMetrics
from kubeshard.controller.outcomes import Ending, Outcome, of_error, of_result, report, warn_if_persistent
from kubeshard.controller.reader import ControllerReader
from kubeshard.controller.remote_clusters import RemoteClusters
from kubeshard.controller.run import Run
from kubeshard.controller.syncing import Inputs, Trouble, until_answered
from kubeshard.controller.triggers import Trigger, mapped_watches
from kubeshard.controller.unawaited import Noticing
from kubeshard.core.clusters import HOME, located
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.objects import Key, KubeObject
from kubeshard.leases.held_lease import Gate
from kubeshard.runtime.logs import context, get_logger
from kubeshard.runtime.loop import being_cancelled
from kubeshard.runtime.notices import Notices
from kubeshard.runtime.pace import Pace
from kubeshard.workqueue.limits import ItemExponential
from kubeshard.workqueue.metrics import QueueMetrics
from kubeshard.workqueue.order import NORMAL
from kubeshard.workqueue.queue import ShutDown, WorkQueue
from kubeshard.workqueue.reasons import Reason

_RETRY, _REQUEUED, _RESUMED = Reason("retry"), Reason("requeue_after"), Reason("all kinds are served")


class ControllerRunner:
    """The workers of one controller. It declares what the controller reads on creation, and works while `run` runs."""

    def __init__(
        self,
        controller: Controller[Any],
        cluster: Cluster,
        *,
        metrics: ControllerMetrics | None = None,
        queue_metrics: QueueMetrics | None = None,
    ) -> None:
        self.controller = controller
        self.cluster = cluster.name
        self.name = located(controller.name, cluster.name)
        self._cluster = cluster
        remote_clusters = RemoteClusters(cluster.clusters, f"{controller.name}-controller")
        self._client = (
            cluster.client.with_field_manager(f"{controller.name}-controller")
            .on_write(record_own_write)
            .entered_in(CurrentRun())
            .sparing()
        )
        self._events = cluster.events.reporting_as(f"{controller.name}-controller")
        self._metrics = metrics or NoMetrics()
        world = cluster.client.world
        self._clock = world.clock
        self._rng = world.rng
        self._log = get_logger(f"kubeshard.controller.{controller.name}")
        self._form = controller.primary_watch.form
        kind = self._form.kind
        self._group_kind = kind.group_kind
        self._about = {
            "controller": controller.name,
            "controller_group": kind.group,
            "controller_kind": kind.kind,
        }
        if self.cluster:
            self._about["cluster"] = self.cluster
        self.reader = ControllerReader(cluster.cache, controller.all_watches, controller.declared_indexes)
        self._writes: WriteBook[Key] = WriteBook(cluster.cache, world.clock)
        self._informers = cluster.hold(controller, self.reader)
        self._inputs = Inputs(self._informers, world.clock)
        self._parked: dict[Key, int] = {}
        """Keys that were queued while a kind was missing, and their priorities."""
        cache = cluster.cache
        self._sets = DesiredSets(controller.name, controller.applied_kinds, lambda: cache.restores)
        self._daemons = Daemons(self.name, controller.daemons)
        self.queue: WorkQueue[Key] = WorkQueue(
            self.name,
            clock=world.clock,
            limiter=controller.limiter(world) if controller.limiter else ItemExponential(rng=world.rng),
            order=controller.order,
            debounce=controller.debounce,
            metrics=queue_metrics,
        )
        self._workers: list[asyncio.Task[None]] = []
        """Those that take keys, and those that were replaced but have not ended."""
        self._replaced: set[asyncio.Task[Any]] = set()
        """Workers whose run is quarantined: they end with it."""
        self._replace: Callable[[], object] = _nothing
        """Starts another worker, while the workers run."""
        self._deadlines = Deadlines(
            controller.reconcile_timeout,
            world.clock,
            self._metrics,
            self._log,
            workers=controller.workers,
            quarantined=self._quarantined,
        )
        self._threads = world.threads(controller.name, controller.workers)
        services = Services(self._events, self._log, self._threads, self._sets, remote_clusters)
        self._reconcile = composed(controller, self._inputs.check, self._daemons, services)
        self.trigger = partial(
            Trigger,
            enqueue=self._enqueue,
            has_time=self._has_time,
            metrics=self._metrics,
            log=self._log.bind(controller=self.name),
            clock=self._clock,
            rng=self._rng,
        )
        """Creates the triggers of its watches."""
        self._draining = False
        self._notices = Notices()
        self.elsewhere: Callable[[str], ControllerRunner | None] = lambda _: None
        """The controller's workers in another cluster."""
        self.gate: Gate | None = None
        """Another gate, of this controller only."""

    def hanging(self) -> str | None:
        """Why no more runs that do not end can be tolerated; None while the workers make progress."""
        return self._deadlines.problem()

    @property
    def primary(self) -> Informer[Any]:
        """The informer of the primary kind."""
        return self._informers[0]

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return self._inputs.informers

    def waits_for(self) -> Mapping[str, Trouble]:
        """The kinds that are missing at the moment, which keep reconciles from running."""
        return self._inputs.troubles()

    async def run(self, gates: Sequence[Gate] = ()) -> None:
        """Works until cancelled or drained. Exceptions of sources are raised as an exception group."""
        registrations: list[Registration[Any]] = []
        beside: list[asyncio.Task[None]] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                beside.append(tasks.create_task(self._inputs.follow(self._resume), name=f"{self.name} kinds"))
                beside += [
                    tasks.create_task(source.run(self._enqueue), name=f"{self.name} source")
                    for source in (*(() if self.cluster else self.controller.sources), self._daemons)
                ]
                await until_answered(self._informers)
                for informer in self._informers:
                    await informer.indexed()
                for number, (trigger, informer) in enumerate(
                    zip(self._triggers(), self._informers, strict=True)
                ):
                    beside.append(tasks.create_task(trigger.run(), name=f"{self.name} trigger"))
                    undecodable = _ignore if number else self._undecodable
                    registrations.append(informer.add_handler(trigger.handle, undecodable=undecodable))
                # Existing objects trigger each key once: workers that started earlier would run many of them twice.
                for informer, registration in zip(self._informers, registrations, strict=True):
                    if informer.has_synced:
                        await registration.synced()
                async with asyncio.TaskGroup() as workers:
                    own = () if self.gate is None else (self.gate,)
                    self._replace = partial(self._begin_worker, workers, (*gates, *own))
                    for _ in range(self.controller.workers):
                        self._replace()
                    if self._inputs.complete():
                        self._tell_start()
                for task in beside:
                    task.cancel()
        finally:
            self._replace = _nothing
            self.queue.shut_down(discard=True)
            self._deadlines.stop()
            for registration in registrations:
                registration.remove()

    async def drain(self) -> None:
        """Starts no further run, and returns when all workers have ended by themselves and none of their writes or
        threads is in flight, however long that takes. Drops queued keys: the next worker finds the objects in the
        cluster.
        """
        self._draining = True
        if self.gate is not None:
            self.gate.open()  # nothing runs any more, and workers that wait there can end
        self.queue.shut_down(discard=True)
        if self._workers:
            await asyncio.wait(tuple(self._workers))
        await self._cluster.in_flight.ended(self.name)

    def discard(self) -> None:
        """Releases the informers. For use before `run`."""
        self._cluster.let_go(self.controller, self.reader, self._informers)

    def under_way(self) -> Sequence[str]:
        """A human-readable list of what `drain` waits for: runs, and what outlasts them."""
        running = {each.key: each.seconds for each in self.queue.view(0).running}
        lasting = {key for _, key in self._cluster.in_flight.objects(self.name)} - running.keys()
        runs = [f"{key} for {seconds:.0f} s" for key, seconds in running.items()]
        return [
            *runs,
            *(f"{key}: a thread, a daemon or a write without an answer" for key in sorted(lasting)),
        ]

    async def close(self) -> None:
        """Called at the end: releases the informers. Those without another user stop."""
        for informer in self._informers:
            self._sets.leave(informer.store)
        await self._cluster.release(self.controller, self.reader, self._informers)

    # Turning deltas into keys

    def _triggers(self) -> Iterator[Trigger]:
        """The triggers, in the order of `Controller.all_watches`."""
        mappings = zip(mapped_watches(self.controller, self.reader), self._informers, strict=True)
        for number, ((watch, keys_of), informer) in enumerate(mappings):
            renewed = _ignore if number else lambda key: self.queue.forget(self._here(key))
            yield self.trigger(watch, keys_of, informer, renewed=renewed)

    def _here(self, key: Key) -> Key:
        """The key with this cluster's name, unless it names a cluster."""
        return key if self.cluster == key.cluster else key.at(self.cluster)

    def _has_time(self) -> bool:  # fewer keys wait than there are workers
        return len(self.queue) < self.controller.workers

    def _undecodable(self, error: UndecodableObject) -> None:
        if error.key is not None and any(g.undecodable(error.metadata) for g in self.controller.guards):
            self._enqueue(error.key, Reason(f"does not fit {self._form.type.__name__}", self._form.kind.kind))

    def _enqueue(
        self, key: Key, reason: Reason | str = "", *, after: float = 0.0, priority: int = NORMAL
    ) -> None:
        if self.cluster or type(key) is not Key:
            if key.cluster not in (HOME, self.cluster):
                # That cluster is missing: it has been removed, or will be read completely once it is added.
                if (there := self.elsewhere(key.cluster)) is not None:
                    there._enqueue(key, reason, after=after, priority=priority)
                return
            key = self._here(key)
        # A key outside the cached namespaces would be reconciled as gone, again and again.
        if not self._informers[0].scope.covers(self._form.kind, key.namespace):
            return
        if after > 0:
            self.queue.add_after(key, after, reason, priority=priority)
        else:
            self.queue.add_debounced(key, reason, priority=priority)

    # Running keys

    def _begin_worker(self, group: asyncio.TaskGroup, gates: Sequence[Gate]) -> None:
        work = self._work(gates)
        try:
            worker = group.create_task(work, name=f"{self.name} worker {len(self._workers)}")
        except RuntimeError:  # the group has been cancelled
            work.close()
            return
        self._workers.append(worker)
        worker.add_done_callback(self._workers.remove)

    def _quarantined(self, run: Deadline) -> None:
        """Called when a run does not end: gives up its worker and its threads."""
        if not self._draining and run.worker is not None:
            self._replaced.add(run.worker)
            self._replace()
            for thread in run.activities.running_threads:
                self._threads.give_up(thread)
        key, kind = run.fields["object"], self._form.kind
        about = self.primary.store.metadata(key)
        self._events.event(
            ObjectReference(
                api_version=kind.api_version,
                kind=kind.kind,
                namespace=key.namespace,
                name=key.name,
                uid=about.uid if about else "",
            ),
            "Warning",
            "ReconcileHangs",
            f"The reconcile of controller {self.controller.name} was cancelled after {self._deadlines.seconds:g} s and "
            "does not end: the object is neither reconciled nor handed over until it does, or its process ends",
        )

    async def _work(self, gates: Sequence[Gate]) -> None:
        me = asyncio.current_task()
        assert me is not None
        pace = Pace(self._clock, sharers=self.controller.workers)
        while True:
            try:
                async with self.queue.get() as key:
                    while gates and (closed := next((gate for gate in gates if not gate.is_open), None)):
                        await closed.passed()
                    if not self._draining:
                        self._settle(key, await self._run(key))
                if me in self._replaced or me.cancelling():  # a run may swallow our cancellation
                    self._replaced.discard(me)
                    return
                if len(self.queue):
                    await pace.step()  # runs that find nothing to do never wait by themselves
            except ShutDown:
                return

    async def _run(self, key: Key) -> Outcome:
        """One run, measured and logged, until its threads have ended. Raises only the worker's own cancellation."""
        reconcile_id = self._rng.token()
        fields = {**self._about, "object": key, "reconcile_id": reconcile_id}
        activities = Activities(self._cluster.in_flight, self.name, self._group_kind, key)
        deadline = Deadline(self._deadlines, activities, fields)
        outcome: Outcome | None = None
        self._metrics.started()
        try:
            with context(fields), deadline:
                outcome = await self._outcome(key, reconcile_id, deadline)
                if outcome.ending is Ending.STALE and outcome.error is not None:
                    times, informers = self.queue.retries(key) + 1, self._informers
                    await warn_if_persistent(self._log, times, outcome.error, key, informers, self._client)
                self._report(key, outcome, deadline)
                if activities.threads:
                    await activities.threads_ended()
            return outcome
        finally:
            self._metrics.finished(outcome, self._clock.monotonic() - deadline.began)

    async def _outcome(self, key: Key, reconcile_id: str, deadline: Deadline) -> Outcome:
        try:
            with Noticing() as forgotten:
                result = await self._attempt(key, reconcile_id, deadline.activities)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            was_due = deadline.lift()
            if isinstance(error, asyncio.CancelledError) and being_cancelled():
                raise
            if not was_due:
                return of_error(error)
        else:
            if not deadline.lift():
                slip = forgotten.error
                return of_result(result) if slip is None else of_error(slip)
        timeout = self.controller.reconcile_timeout
        return Outcome(Ending.TIMED_OUT, TimeoutError(f"not done within {timeout:g} s"))

    async def _attempt(self, key: Key, reconcile_id: str, activities: Activities) -> object:
        with self._writes.recording(key) as writes, activities:
            if not self.primary.has_synced:
                self._inputs.check()
            elif writes and self._inputs.complete():
                await writes.settled(self._cluster.cache, self._form)
            obj, undecodable = self._read(key)
            if obj is None:
                self._sets.forget(key)
            else:
                self._client.saw(obj.metadata)
            run = Run(
                key=key,
                form=self._form,
                client=self._client,
                reader=self.reader,
                writes=writes,
                rewrites=self._sets.rewrites,
                activities=activities,
                clock=self._clock,
                reconcile_id=reconcile_id,
                wanted=self.queue.wanted(key),
            )
            if undecodable is not None:
                run.undecodable = undecodable
            return await self._reconcile(run, obj)

    def _read(self, key: Key) -> tuple[KubeObject | None, UndecodableObject | None]:
        """The object, decoded as far as possible, and the error if only its metadata could be decoded."""
        try:
            return self.primary.store.get(key), None
        except UndecodableObject as error:
            return error.partial, error

    def _settle(self, key: Key, outcome: Outcome) -> None:
        """Requeues or forgets the key, depending on the outcome."""
        match outcome.ending:
            case Ending.SUCCESS:
                self.queue.forget(key)
            case Ending.REQUEUE_AFTER:
                self.queue.forget(key)
                self.queue.add_after(key, outcome.requeue_after, _REQUEUED)
            case Ending.TERMINAL:
                pass
            case Ending.LEAVING:
                self.queue.forget(key)
                self.queue.add_after(key, QUIET, _RETRY)
            case Ending.PARKED:
                self._parked[key] = self.queue.priority(key)
            case _:
                self.queue.add_rate_limited(key, _RETRY)

    async def _resume(self) -> None:
        """Called when all kinds are served: runs what was parked."""
        self._tell_start()
        pace = Pace(self._clock)
        while self._parked:
            key = next(iter(self._parked))
            self.queue.add(key, _RESUMED, priority=self._parked.pop(key))
            await pace.step()

    def _tell_start(self) -> None:
        if self._workers and self._notices.due("start"):
            self._log.info("Starting workers", controller=self.name, workers=self.controller.workers)

    def _report(self, key: Key, outcome: Outcome, run: Deadline) -> None:
        if not outcome.failed and not self._log.debugs:
            return
        fields: dict[str, Any] = {
            "seconds": self._clock.monotonic() - run.began,
            "reasons": self.queue.reasons(key),
            "waited": run.began - min((cause.since for cause in self.queue.why(key)), default=run.began),
        }
        if outcome.error is not None:
            fields |= {"error": outcome.error, "retries": self.queue.retries(key)}
        report(self._log, outcome, fields)


def _nothing() -> None:
    """Starts no worker: there are none yet, or the controller is ending."""


def _ignore(_: UndecodableObject | Key) -> None:
    """Does nothing: for kinds other than the primary one."""
