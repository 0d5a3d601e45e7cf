"""A controller at work: it follows what the controller watches, turns changes into keys, and has workers run them.

Guaranteed:

- Workers (`workers`) start when all triggers have handled the initial contents of the caches, so each existing key runs
  only once for them.
- `drain` returns only when every worker has ended by itself, and nothing they started is still in flight: no thread,
  and no write that may still take effect.
- Cancelling `run` cancels the workers at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from kubeshard.cache.handlers import Registration
from kubeshard.cache.informer import Informer
from kubeshard.controller.cluster import Cluster
from kubeshard.controller.controller import Controller
from kubeshard.controller.finalizers import holding
from kubeshard.controller.outcomes import ControllerMetrics, NoMetrics
from kubeshard.controller.reader import ControllerReader
from kubeshard.controller.syncing import Inputs, SyncProblem, until_answered
from kubeshard.controller.triggers import Trigger, lives_of, mapped, mapped_watches
from kubeshard.controller.when import never
from kubeshard.controller.workers import Workers
from kubeshard.core.clusters import HOME_CLUSTER, located
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.leases.held_lease import Gate
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import apart
from kubeshard.workqueue.order import NORMAL
from kubeshard.workqueue.queue import QueueMetrics
from kubeshard.workqueue.reasons import Reason


class ControllerRunner:
    """One controller in one cluster. It declares what the controller reads on creation, and works while `run` runs."""

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
        self._metrics = metrics or NoMetrics()
        world = cluster.client.world
        self._log = get_logger(f"kubeshard.controller.{controller.name}")
        self._form = controller.primary_watch.form
        self.reader = ControllerReader(cluster.cache, controller.all_watches, controller.declared_indexes)
        self._informers = cluster.hold(controller, self.reader)
        self._inputs = Inputs(self._informers, world.clock)
        self._workers = Workers(
            controller, cluster, self._inputs, self.reader, self._metrics, queue_metrics, self._log
        )
        self.queue = self._workers.queue
        self._add = self.queue.add if controller.debounce is None else self.queue.add_debounced
        self.trigger = partial(
            Trigger,
            enqueue=self._enqueue,
            has_time=self._has_time,
            metrics=self._metrics,
            log=self._log.bind(controller=self.name),
            clock=world.clock,
            rng=world.rng,
        )
        """Creates the triggers of its watches."""
        self.runner_in: Callable[[str], ControllerRunner | None] = lambda _: None
        """The controller's workers in another cluster."""
        self.gate: Gate | None = None
        """Another gate, of this controller only."""
        self.leaves = False
        """The cluster is about to be left: for the reconciler, all objects there are gone."""

    def hanging(self) -> str | None:
        """Why no more runs that do not end can be tolerated; None while the workers make progress."""
        return self._workers.hanging()

    @property
    def primary(self) -> Informer[Any]:
        """The informer of the primary kind."""
        return self._informers[0]

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return self._inputs.informers

    @property
    def has_workers(self) -> bool:
        return bool(self._workers.tasks)

    def waits_for(self) -> Mapping[str, SyncProblem]:
        """The kinds that are missing at the moment, which keep reconciles from running."""
        return self._inputs.problems()

    async def run(self, gates: Sequence[Gate] = ()) -> None:
        """Works until cancelled or drained. Exceptions of sources are raised as an exception group."""
        registrations: list[Registration[Any]] = []
        beside: list[asyncio.Task[None]] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                beside.append(
                    tasks.create_task(self._inputs.follow(self._workers.resume), name=f"{self.name} kinds")
                )
                beside += [
                    tasks.create_task(apart(source.run, self._enqueue), name=f"{self.name} source")
                    for source in (*(() if self.cluster else self.controller.sources), self._workers.daemons)
                ]
                await until_answered(self._informers)
                for informer in self._informers:
                    await informer.indexed()
                watches = mapped_watches(self.controller, self.reader, self._workers.sets.unfinished)
                for place, ((watch, keys_of), informer) in enumerate(
                    zip(watches, self._informers, strict=True)
                ):
                    is_primary = place == 0
                    trigger = self.trigger(
                        watch,
                        keys_of,
                        informer,
                        renewed=self._renewed if is_primary else _ignore,
                        left=self._left if is_primary else _ignore,
                        unless_own=None if watch.echoes else partial(self._enqueue_unless_own, informer),
                        lives=lives_of(self.controller) if is_primary else never,
                    )
                    beside.append(tasks.create_task(trigger.run(), name=f"{self.name} trigger"))
                    undecodable = self._undecodable if is_primary else _ignore
                    registrations.append(informer.add_handler(trigger.handle, undecodable=undecodable))
                # Existing objects trigger each key once: workers that started earlier would run many of them twice.
                for informer, registration in zip(self._informers, registrations, strict=True):
                    if informer.has_synced:
                        await registration.synced()
                own = () if self.gate is None else (self.gate,)
                await self._workers.run((*gates, *own))
                for task in beside:
                    task.cancel()
        finally:
            self.queue.shut_down(discard=True)
            for registration in registrations:
                registration.remove()

    async def drain(self) -> None:
        """Starts no further run, and returns when all workers have ended by themselves and none of their writes or
        threads is in flight, however long that takes. Drops queued keys: the next worker finds the objects in the
        cluster. If that is left, a last run of each object finds it gone.
        """
        if self.gate is not None:
            self.gate.open()  # nothing runs any more, and workers that wait there can end
        if self.leaves:
            store = self.primary.store
            keys = [*(each.key for each in store.objects()), *store.undecodable]
            await self._workers.leave(map(self._here, keys))
        self.queue.shut_down(discard=True)
        await self._workers.drain()
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
            self._workers.sets.leave(informer.store)
        await self._cluster.release(self.controller, self.reader, self._informers)

    # Turning deltas into keys

    def _renewed(self, key: Key) -> None:
        if self.cluster:
            key = self._here(key)
        self.queue.reset_backoff(key)
        self._workers.patience.forget(key)

    def _left(self, key: Key) -> None:
        # One that left the selectors may have to be cleaned up. Its worker drops the delay if not.
        if not self.controller.leaving_watches:
            self.queue.drop_delay(self._here(key))

    def _here(self, key: Key) -> Key:
        """The key with this cluster's name, unless it names a cluster."""
        return key if self.cluster == key.cluster else key.at(self.cluster)

    def _has_time(self) -> bool:  # fewer keys wait than there are workers
        return len(self.queue) < self.controller.workers

    def _undecodable(self, error: UndecodableObject) -> None:
        controller = self.controller
        if error.key is not None and (
            bool(controller.error_condition)
            or holding(controller.finalizers, error.metadata)
            or any(g.undecodable(error.metadata) for g in controller.guards)
        ):
            self._enqueue(error.key, Reason(f"does not fit {self._form.type.__name__}", self._form.kind.kind))

    def _enqueue(
        self, key: Key, reason: Reason | str = "", *, after: float = 0.0, priority: int = NORMAL
    ) -> None:
        if self.cluster or type(key) is not Key:
            if key.cluster not in (HOME_CLUSTER, self.cluster):
                # That cluster is missing: it has been removed, or will be read completely once it is added.
                if (there := self.runner_in(key.cluster)) is not None:
                    there._enqueue(key, reason, after=after, priority=priority)
                return
            key = self._here(key)
        # A key outside the cached namespaces would be reconciled as gone, again and again.
        if not self._informers[0].scope.covers(self._form.kind, key.namespace):
            return
        after = max(after, self._workers.loops.pause(key))
        if after > 0:
            self.queue.add_after(key, after, reason, priority=priority)
        else:
            self._add(key, reason, priority=priority)

    def _enqueue_unless_own(
        self, informer: Informer[Any], meta: ObjectMeta, key: Key, reason: Reason, *, priority: int
    ) -> None:
        enqueue = partial(self._enqueue, key, reason, priority=priority)
        own = key if key.cluster else self._here(key)  # another cluster has workers and writes of its own
        self._workers.writes.unless_own(own, informer, meta, enqueue)


def _ignore(_: UndecodableObject | Key) -> None:
    """Does nothing: for kinds other than the primary one."""


class RemoteWatches:
    """A controller's watches in another cluster than that of the objects that it reconciles (`Watch.clusters`). It
    declares them on creation, and follows them while `run` runs. Raises ConfigurationError.

    Guaranteed: only these watches wait for their cluster. While it does not answer, its objects trigger nothing and
    the controller keeps working; once it answers, the controller sees all of them.
    """

    def __init__(self, runner: ControllerRunner, cluster: Cluster) -> None:
        self.runner = runner
        self.cluster = cluster.name
        self.name = f"{runner.name} in {cluster.name or 'the home cluster'}"
        self._cache = cluster.cache
        self._watches = [
            watch for watch in runner.controller.crossing_watches if cluster.name in (watch.clusters or ())
        ]
        self.informers: list[Informer[Any]] = []
        try:
            for watch in self._watches:
                self.informers.append(cluster.hold_watched(watch))
        except BaseException:
            self.discard()
            raise

    async def run(self, gates: Sequence[Gate] = ()) -> None:
        """Follows the watches until cancelled."""
        with ExitStack() as stack:
            async with asyncio.TaskGroup() as tasks:
                for watch, informer in zip(self._watches, self.informers, strict=True):
                    trigger = self.runner.trigger(watch, mapped(watch, self.runner.reader), informer)
                    tasks.create_task(trigger.run(), name=f"{self.name} trigger")
                    stack.enter_context(informer.add_handler(trigger.handle))

    async def drain(self) -> None:
        """Returns at once: watches never have anything in flight."""

    def under_way(self) -> Sequence[str]:
        return ()

    def discard(self) -> None:
        """Releases the informers. For use before `run`."""
        for informer in self.informers:
            self._cache._let_go(informer)

    async def close(self) -> None:
        """Releases the informers. For use after the end of `run`."""
        for informer in self.informers:
            await self._cache._release(informer)
