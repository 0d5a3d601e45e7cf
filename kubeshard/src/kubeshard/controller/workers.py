"""The workers of a controller: they take keys from its queue, run the reconciler, and decide what happens to the key.

Guaranteed:

- A key is run by one worker at a time, while all kinds that the controller reads are served (`syncing`) and all gates
  are open, and never while a thread of an earlier run of it has not ended. Wrappers run in any case, so a shard
  acknowledges drains even while its reconciler waits for a kind.
- Whatever a reconcile raises or returns ends only that run (`outcomes`). Only cancellation from outside ends the
  worker.
- A run is cancelled after `Controller.reconcile_timeout` seconds and counts as failed.

Not guaranteed: that a reconcile that swallows cancellation, or whose thread blocks, ends. It is quarantined
(`deadlines`), and reported in the log, by a metric, on the debug page, and by an event on its object; `hanging` says
when there are too many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from types import CoroutineType
from typing import Any

from kubeshard.cache.informer import Informer
from kubeshard.cache.own_writes import WriteBook, record_own_write
from kubeshard.client.terminating_namespaces import QUIET
from kubeshard.controller.cluster import Cluster
from kubeshard.controller.contested import Contests
from kubeshard.controller.context import Context, RemoteClusters, Services
from kubeshard.controller.controller import Controller, Guard
from kubeshard.controller.daemons import Daemons
from kubeshard.controller.deadlines import Deadlines, Timed
from kubeshard.controller.desired.sets import DesiredSets
from kubeshard.controller.error_condition import GAVE_UP, ErrorCondition
from kubeshard.controller.event_series import ObjectReference
from kubeshard.controller.expiry import expiring
from kubeshard.controller.finalizers import Finalizer, finalized, holding, refuse_cleanup
from kubeshard.controller.forgotten_awaits import ForgottenAwait, listen
from kubeshard.controller.hot_loops import HotLoops, Written
from kubeshard.controller.in_flight import CurrentRun
from kubeshard.controller.outcomes import (
    ControllerMetrics,
    Ending,
    Outcome,
    Patience,
    is_persistent,
    of_error,
    of_result,
    origin,
    out_of_time,
    report,
    stale_advice,
)
from kubeshard.controller.reader import ControllerReader
from kubeshard.controller.reconciler import (
    BlockingReconciler,
    ReconcileFn,
    ReconcileFunction,
    Reconciler,
    Result,
    RunFn,
    no_run,
)
from kubeshard.controller.run import Run
from kubeshard.controller.syncing import Inputs
from kubeshard.core.clusters import located
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import NotFound
from kubeshard.core.objects import Key, KubeObject
from kubeshard.leases.held_lease import Gate
from kubeshard.runtime.logs import Logger, context, error_line
from kubeshard.runtime.loop import forget_cancellations
from kubeshard.runtime.notices import Notices
from kubeshard.runtime.pace import Pace
from kubeshard.workqueue.limits import ItemExponential
from kubeshard.workqueue.queue import QueueMetrics, ShutDown, WorkQueue
from kubeshard.workqueue.reasons import Reason

TRACED_AGAIN = 3600.0
"""Seconds after which the stack trace of an unexpected exception is logged again; in between it is one line."""

_RETRY, _REQUEUED, _RESUMED = Reason("retry"), Reason("requeue_after"), Reason("all kinds are served")
_EXPIRES, _LEFT = Reason("expires"), Reason("its cluster is left")


class Workers:
    """The workers of one controller in one cluster."""

    def __init__(
        self,
        controller: Controller[Any],
        cluster: Cluster,
        inputs: Inputs,
        reader: ControllerReader,
        metrics: ControllerMetrics,
        queue_metrics: QueueMetrics | None,
        log: Logger,
    ) -> None:
        self.controller = controller
        self.name = located(controller.name, cluster.name)
        self._cluster = cluster
        self._inputs = inputs
        self._primary = inputs.informers[0]
        self._leaving = inputs.informers[-1] if controller.leaving_watches else None
        self._reader = reader
        self._metrics = metrics
        self._log = log
        world, cache = cluster.client.world, cluster.cache
        self._clock = world.clock
        self._rng = world.rng
        self.queue: WorkQueue[Key] = WorkQueue(
            self.name,
            clock=world.clock,
            limiter=controller.limiter(world) if controller.limiter else ItemExponential(rng=world.rng),
            order=controller.order,
            debounce=controller.debounce,
            metrics=queue_metrics,
        )
        self.sets = DesiredSets(
            controller.name, controller.applied_kinds, lambda: cache.restores, deleted=controller.deleted_sets
        )
        self.daemons = Daemons(self.name, controller.daemons)
        me = f"{controller.name}-controller"
        client = cluster.client.with_field_manager(me).on_write(record_own_write)
        self._client = client.entered_in(CurrentRun()).sparing()
        self._events = cluster.events.reporting_as(me)
        self._form = controller.primary_watch.form
        kind = self._form.kind
        self._group_kind = kind.group_kind
        self._about = {
            "controller": controller.name,
            "controller_group": kind.group,
            "controller_kind": kind.kind,
        }
        if cluster.name:
            self._about["cluster"] = cluster.name
        self.writes: WriteBook[Key] = WriteBook(reader, world.clock)
        self._parked: dict[Key, int] = {}
        """Keys that were queued while a kind was missing, and their priorities."""
        self.tasks: list[asyncio.Task[None]] = []
        """Those that take keys, and those that were replaced but have not ended."""
        self._runner: asyncio.Task[Any] | None = None
        """Runs the workers: they are cancelled when it is."""
        self._replaced: set[asyncio.Task[Any]] = set()
        """Workers whose run is quarantined: they end with it."""
        self._begin: Callable[[], object] = _nothing
        """Starts another worker, while the workers run."""
        self._deadlines = Deadlines(
            controller.reconcile_timeout,
            world.clock,
            metrics,
            log,
            workers=controller.workers,
            quarantined=self._quarantined,
        )
        self._threads = world.threads(controller.name, controller.workers)
        remote_clusters = RemoteClusters(cluster.clusters, me, cluster.elsewhere)
        services = Services(self._events, log, self._threads, self.sets, remote_clusters, cluster.term)
        self._unguarded = composed(controller, self._check, self.daemons, services, self.queue)
        self._reconcile = guarded(controller.guards, self._unguarded)
        self._draining = self._left = False
        self._notices = Notices()
        self._traced = Notices(world.clock, every=TRACED_AGAIN)
        """The unexpected exceptions whose stack traces have been logged."""
        self.patience = Patience(controller.give_up_after, world.clock)
        self.loops = HotLoops(world.clock)
        self._contests = Contests(world.clock)

    def hanging(self) -> str | None:
        """Why no more runs that do not end can be tolerated; None while the workers make progress."""
        return self._deadlines.problem()

    async def run(self, gates: Sequence[Gate]) -> None:
        """Works until cancelled or drained."""
        self._runner = asyncio.current_task()
        try:
            async with asyncio.TaskGroup() as group:
                self._begin = partial(self._begin_worker, group, gates)
                for _ in range(self.controller.workers):
                    self._begin()
                if self._inputs.complete():
                    self._log_start()
        finally:
            self._begin = _nothing
            self._deadlines.stop()

    async def drain(self) -> None:
        """Starts no further run, and returns when all workers have ended by themselves, however long that takes. The
        queue must have been shut down.
        """
        self._draining = True
        if self.tasks:
            await asyncio.wait(tuple(self.tasks))

    async def leave(self, keys: Iterable[Key]) -> None:
        """From now on all runs are for objects that are gone, whoever may work on them, and whether or not the cluster
        responds. Returns when these keys, and those that were queued, have had one, or when the queue is shut down.
        """
        self._left = True
        for key in keys:
            self.queue.add(key, _LEFT)
        if self.tasks:
            await self.queue.shut_down_with_drain()

    async def resume(self) -> None:
        """Called when all kinds are served: runs what was parked."""
        self._log_start()
        pace = Pace(self._clock)
        while self._parked:
            key = next(iter(self._parked))
            self.queue.add(key, _RESUMED, priority=self._parked.pop(key))
            await pace.step()

    def _check(self, obj: KubeObject | None) -> None:
        if obj is not None or not self._left:
            self._inputs.check()

    def _begin_worker(self, group: asyncio.TaskGroup, gates: Sequence[Gate]) -> None:
        work = self._work(gates)
        try:
            worker = group.create_task(work, name=f"{self.name} worker {len(self.tasks)}")
        except RuntimeError:  # the group has been cancelled
            work.close()
            return
        self.tasks.append(worker)
        worker.add_done_callback(self.tasks.remove)

    def _quarantined(self, run: Timed) -> None:
        """Called when a run does not end: gives up its worker and its threads."""
        if not self._draining:
            self._replaced.add(run.worker)
            self._begin()
            for thread in tuple(run.threads):
                self._threads.give_up(thread)
        self._events.event(
            self._reference(run.fields["object"]),
            "Warning",
            "ReconcileHangs",
            f"The reconcile of controller {self.controller.name} was cancelled after {self._deadlines.seconds:g} s and "
            "does not end: the object is neither reconciled nor handed over until it does, or its process ends",
        )

    def _reference(self, key: Key) -> ObjectReference:
        kind, about = self._form.kind, self._primary.store.metadata(key)
        return ObjectReference(
            api_version=kind.api_version,
            kind=kind.kind,
            namespace=key.namespace,
            name=key.name,
            uid=about.uid if about else "",
        )

    async def _work(self, gates: Sequence[Gate]) -> None:
        me = asyncio.current_task()
        assert me is not None
        pace = Pace(self._clock, sharers=self.controller.workers)

        def closed() -> Awaitable[None] | None:
            for gate in gates:
                if not gate.is_open:
                    return gate.passed()
            return None

        while True:
            try:
                async with self.queue.get(closed if gates else None) as key:
                    if not self._draining:
                        self._settle(key, await self._run(key, me))
                if me in self._replaced or self._cancelled(me):  # a run may swallow our cancellation
                    self._replaced.discard(me)
                    return
                if len(self.queue):
                    await pace.step()  # runs that find nothing to do never wait by themselves
            except ShutDown:
                return

    def _cancelled(self, worker: asyncio.Task[Any]) -> bool:
        """Whether this worker has been cancelled, and not only by a task group of the reconciler (see
        `forget_cancellations`). A CancelledError does not say: it may be left over from a task that was awaited.
        """
        return worker.cancelling() > 0 and self._runner is not None and self._runner.cancelling() > 0

    async def _run(self, key: Key, me: asyncio.Task[Any]) -> Outcome:
        """One run, measured and logged, until its threads have ended. Raises only the worker's own cancellation."""
        fields = {**self._about, "object": key, "reconcile_id": self._rng.token()}
        timed = Timed(self._cluster.in_flight, self.name, self._group_kind, key, fields, me)
        outcome: Outcome | None = None
        self._metrics.started()
        self._deadlines.begin(timed)
        try:
            with context(fields):
                last_try = self.patience.is_last(key)
                written: set[tuple[str, str, str]] = set()
                outcome = await self._outcome(key, timed, last_try, written)
                if me.cancelling() and not self._cancelled(me):
                    forget_cancellations()
                if outcome.ending is Ending.STALE and outcome.error is not None:
                    self._notice_stale(key, outcome.error)
                failed = outcome.failed
                if failed:
                    outcome = self._given_up(key, outcome, last_try)
                if failed or self._log.debugs:
                    self._report(key, outcome, timed.began)
                self._notice_loop(key, written)
                if timed.threads:
                    await timed.threads_ended()
            return outcome
        finally:
            self._metrics.finished(outcome, self._deadlines.end(timed))

    async def _outcome(
        self, key: Key, timed: Timed, last_try: bool, written: set[tuple[str, str, str]]
    ) -> Outcome:
        listen()
        try:
            with timed, self.writes.recording(key, written, timed.is_writing) as writes:
                left = self._left  # it may be while the run waits
                run = Run(
                    key=key,
                    form=self._form,
                    client=self._client,
                    reader=self._reader,
                    writes=writes,
                    rewrites=self.sets.rewrites,
                    contests=self._contests,
                    activities=timed,
                    clock=self._clock,
                    reconcile_id=timed.fields["reconcile_id"],
                    wanted=self.queue.wanted(key),
                )
                run.last_try = last_try
                obj = None if left else await self._newest(run)
                if obj is None:
                    self.queue.drop_delay(key)
                    self.sets.forget(key)
                    self.patience.forget(key)
                    self.loops.forget(key)
                else:
                    self._client.saw(obj.metadata)
                result = await (self._unguarded if left else self._reconcile)(run, obj)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            was_due = timed.lift()
            if isinstance(error, asyncio.CancelledError) and self._cancelled(timed.worker):
                raise
            if not was_due:
                return of_error(error)
        else:
            if not timed.lift():
                if timed.forgotten:
                    return of_error(ForgottenAwait("; ".join(timed.forgotten)))
                return of_result(result)
        return Outcome(Ending.TIMED_OUT, out_of_time(self._deadlines.seconds))

    async def _newest(self, run: Run) -> KubeObject | None:
        """The object with what earlier runs wrote; `Run.undecodable` says why only its metadata could be decoded."""
        writes, key, synced = run.writes, run.key, self._primary.has_synced
        if writes.lost:
            await writes.find_out(self._reader, self._client)
            synced = self._primary.has_synced
        if not synced:
            self._inputs.check()
        elif writes.pending and self._inputs.complete():
            await writes.settled(self._reader, self._primary)
        try:
            obj: KubeObject | None = self._primary.store.get(key)
            if obj is None and self._leaving is not None:
                obj = await self._left_behind(key, self._leaving)
        except UndecodableObject as error:
            run.undecodable = error
            return error.partial
        return obj

    async def _left_behind(self, key: Key, leaving: Informer[Any]) -> KubeObject | None:
        """An object that left the controller's selectors, and is being deleted with a finalizer of ours on it."""
        meta = leaving.store.metadata(key)
        if meta is None or not holding(self.controller.finalizers, meta):
            return None
        try:
            found: KubeObject = await self._client.get(self._form, key.name, key.namespace or None)
        except NotFound:
            return None
        return found

    def _notice_stale(self, key: Key, error: BaseException) -> None:
        times = self.queue.retries(key) + 1
        if is_persistent(times):
            advice = stale_advice(error, self._inputs.informers)
            self._log.warning("Reconcile keeps having stale reads", times=times, error=error, advice=advice)

    def _notice_loop(self, key: Key, written: Written) -> None:
        causes = self.queue.why(key) if written else ()
        if (because := self.loops.ran(key, causes, written)) and self._notices.due("hot loop"):
            self._log.warning(
                "The object triggers itself: each run changes what triggers the next one; slowing it down",
                because=because,
                pause=self.loops.pause(key),
            )

    def _given_up(self, key: Key, outcome: Outcome, last_try: bool) -> Outcome:
        """The outcome, or that the object is given up because of it."""
        if not outcome.retried:
            return outcome
        self.patience.failed(key)
        if not last_try:
            return outcome
        error = error_line(outcome.error) if outcome.error is not None else "it failed"
        self._events.event(self._reference(key), "Warning", GAVE_UP, f"Not retried until it changes: {error}")
        return replace(outcome, ending=Ending.GAVE_UP)

    def _settle(self, key: Key, outcome: Outcome) -> None:
        """Requeues or forgets the key, depending on the outcome."""
        match outcome.ending:
            case Ending.SUCCESS:
                self.queue.forget(key)
                self.patience.forget(key)
            case Ending.REQUEUE_AFTER:
                self.queue.forget(key)
                self.patience.forget(key)
                self.queue.add_after(key, outcome.requeue_after, _REQUEUED)
            case Ending.RETRY_AFTER:
                self.queue.add_after(key, outcome.requeue_after, _RETRY)
            case Ending.TERMINAL | Ending.GAVE_UP:
                pass
            case Ending.LEAVING:
                self.queue.forget(key)
                self.queue.add_after(key, QUIET, _RETRY)
            case Ending.PARKED if self._inputs.complete():  # again, since the run began to end
                self.queue.add(key, _RESUMED, priority=self.queue.priority(key))
            case Ending.PARKED:
                self._parked[key] = self.queue.priority(key)
            case _:
                self.queue.add_rate_limited(key, _RETRY)

    def _log_start(self) -> None:
        if self.tasks and self._notices.due("start"):
            self._log.info("Starting workers", controller=self.name, workers=self.controller.workers)

    def _report(self, key: Key, outcome: Outcome, began: float) -> None:
        fields: dict[str, Any] = {} if outcome.error is None else {"error": outcome.error}
        fields |= {
            "seconds": self._clock.monotonic() - began,
            "reasons": self.queue.reasons(key),
            "waited": began - min((cause.since for cause in self.queue.why(key)), default=began),
        }
        if outcome.error is not None:
            fields["retries"] = self.queue.retries(key)
        unexpected = origin(outcome.error)
        trace = unexpected is not None and self._traced.due(unexpected)
        report(self._log, outcome, fields, trace=trace)


def _nothing() -> None:
    """Starts no worker: there are none yet, or the controller is ending."""


def composed(
    controller: Controller[Any],
    check: Callable[[KubeObject | None], None],
    daemons: Daemons,
    services: Services,
    queue: WorkQueue[Key],
) -> RunFn:
    """The reconciler behind its finalizers and the check, inside its wrappers and the condition that reports all of
    that. Ending daemons does not wait for the check.
    """
    run = daemons.beginning(_run_of(controller.reconciler))
    if controller.finalizers:
        run = finalized(controller.finalizers, run)

    def checked(ctx: Context, obj: KubeObject | None) -> Awaitable[Result | None]:
        check(obj)
        ctx._run.reached = True
        return run(ctx, obj)

    whole = daemons.ending(checked)
    if controller.expires is not None:
        whole = expiring(controller.expires, partial(queue.add_after, reason=_EXPIRES), whole)
    for wrapper in reversed(controller.wrappers):
        whole = wrapper(whole)
    decoded = _decoded(whole, services, controller.finalizers)
    if controller.error_condition:
        condition = ErrorCondition(controller.error_condition, services.events, services.log, queue.retries)
        return condition.around(decoded)
    return decoded


def guarded(guards: Sequence[Guard], inner: RunFn) -> RunFn:
    for guard in reversed(guards):
        inner = guard.wrapper(inner)
    return inner


def _run_of(
    reconciler: Reconciler[Any] | BlockingReconciler[Any] | ReconcileFunction[Any],
) -> ReconcileFn:
    if isinstance(reconciler, BlockingReconciler):
        return _in_a_thread(reconciler)
    if not hasattr(reconciler, "reconcile"):
        return _while_there(reconciler)
    methods: Any = reconciler

    def run(ctx: Context, obj: KubeObject | None) -> Awaitable[Result | None]:
        running: Any = methods.gone(ctx, ctx.key) if obj is None else methods.reconcile(ctx, obj)
        if type(running) is not CoroutineType and not isawaitable(running):
            raise TypeError(
                f"{type(methods).__name__}: declare reconcile and gone with `async def`, "
                "or derive from BlockingReconciler"
            )
        return running

    return run


def _in_a_thread(reconciler: BlockingReconciler[Any]) -> ReconcileFn:
    async def run(ctx: Context, obj: KubeObject | None) -> Result | None:
        if obj is None:
            return await ctx.run_blocking(reconciler.gone, ctx, ctx.key)
        return await ctx.run_blocking(reconciler.reconcile, ctx, obj)

    return run


def _while_there(function: ReconcileFunction[Any]) -> ReconcileFn:
    """A function keeps no state about an object, so it is not called when the object is gone."""

    def run(ctx: Context, obj: KubeObject | None) -> Awaitable[Result | None]:
        return no_run(None) if obj is None else function(ctx, obj)

    return run


def _decoded(inner: ReconcileFn, services: Services, finalizers: Sequence[Finalizer[Any]]) -> RunFn:
    """Lets only objects of the controller's class pass."""

    def reconcile(run: Run, obj: KubeObject | None) -> Awaitable[Result | None]:
        if run.undecodable is not None:
            if obj is not None and (key := holding(finalizers, obj.metadata)):
                refuse_cleanup(Context(run, services), obj, key, run.undecodable)
            raise run.undecodable
        return inner(Context(run, services), obj)

    return reconcile
