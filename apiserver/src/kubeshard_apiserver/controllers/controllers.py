"""The controllers of the embedded cluster, which run in the same process as the API server.

    async with Controllers(server):
        ...                                 # Deployments get pods, dependents are deleted with their owners

Guaranteed: the controllers handle everything that exists when they start and every change after that. A refused write
is retried with a growing delay. Nothing runs between changes and deadlines, and each controller has at most one timer.
A controller handles one key at a time, so its writes are ordered; the same clock, names and calls always produce the
same history. Not guaranteed: that a controller has acted by the time a request is answered. Wait for it, as on a real
cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from types import TracebackType
from typing import Self

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupResource
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard_apiserver.controllers.cluster import ClusterView
from kubeshard_apiserver.controllers.controller import Agenda, AnyController
from kubeshard_apiserver.controllers.cron_jobs import CronJobController
from kubeshard_apiserver.controllers.daemon_sets import DaemonSetController
from kubeshard_apiserver.controllers.deployments import DeploymentController
from kubeshard_apiserver.controllers.disruption import DisruptionController
from kubeshard_apiserver.controllers.endpoints import EndpointsController
from kubeshard_apiserver.controllers.events import EventExpiry
from kubeshard_apiserver.controllers.garbage import GarbageCollector
from kubeshard_apiserver.controllers.jobs import JobController
from kubeshard_apiserver.controllers.kubelet import Kubelet
from kubeshard_apiserver.controllers.namespaces import NamespaceController, NamespaceDefaults
from kubeshard_apiserver.controllers.replica_sets import ReplicaSetController
from kubeshard_apiserver.controllers.scheduler import Scheduler
from kubeshard_apiserver.controllers.stateful_sets import StatefulSetController
from kubeshard_apiserver.controllers.volumes import VolumeController
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.model import EVERY_RIGHT, Rights
from kubeshard_apiserver.server import ApiServer
from kubeshard_apiserver.steps import NoCalls, WebhookCaller, perform

_log = get_logger("kubeshard_apiserver.controllers")
_SOONEST = 0.001
"""The shortest delay. Time differences are inexact: what remains of a delay may be too short for any clock to show."""
_FIRST_RETRY = 0.05
_LAST_RETRY = 30.0


class Controllers:
    """Runs the controllers that its options select.

    `garbage_collection`: dependents are deleted with their owners. `namespaces`: terminating namespaces are emptied
    and finalized; all others get the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt` with `root_ca`
    (PEM). `pods`: workloads get pods, Services get endpoints, PodDisruptionBudgets get their numbers, and pods become
    ready `ready_after` seconds after they are bound to a pretended node. `event_ttl`: how many seconds Events are kept.
    `caller` calls admission webhooks. `rights` are those of the server's authorizer, for policies that check them.
    """

    def __init__(
        self,
        server: ApiServer,
        *,
        garbage_collection: bool = True,
        namespaces: bool = True,
        pods: bool = True,
        ready_after: float = 0.0,
        event_ttl: float = 3600.0,
        root_ca: str = "",
        caller: WebhookCaller | None = None,
        rights: Rights = EVERY_RIGHT,
    ) -> None:
        cluster = ClusterView(server, rights)
        controllers: list[AnyController] = [EventExpiry(cluster, event_ttl)]
        if garbage_collection:
            controllers.append(GarbageCollector(cluster))
        if namespaces:
            controllers += [NamespaceController(cluster), NamespaceDefaults(cluster, root_ca)]
        if pods:
            controllers += [
                Kubelet(cluster, ready_after),
                Scheduler(cluster),
                ReplicaSetController(cluster),
                DeploymentController(cluster),
                StatefulSetController(cluster),
                DaemonSetController(cluster),
                JobController(cluster),
                CronJobController(cluster),
                VolumeController(cluster),
                EndpointsController(cluster),
                DisruptionController(cluster),
            ]
        self._cluster = cluster
        self._workers = [_Worker(each, server.clock, caller or NoCalls()) for each in controllers]
        self._watching: dict[GroupResource, list[_Worker]] = {}
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        server = self._cluster.server

        def changed(resource: GroupResource) -> None:
            self._change(resource, server.store.history(resource).last.event)

        unsubscribe = server.store.subscribe(changed)
        try:
            for resource in self._cluster.resources():
                for key, obj in sorted(server.store.objects(resource.group_resource).items()):
                    self._change(resource.group_resource, Event(server.store.revision, key, None, obj))
            async with asyncio.TaskGroup() as group:
                for worker in self._workers:
                    group.create_task(worker.run(), name=worker.name)
        finally:
            unsubscribe()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run(), name="controllers")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _change(self, resource: GroupResource, event: Event) -> None:
        self._cluster.ownership.change(resource, event)
        writer = asyncio.current_task()
        watching = self._watching.get(resource)
        if watching is None:
            watching = self._watching[resource] = [each for each in self._workers if each.watches(resource)]
        for worker in watching:
            worker.tell(resource, event, writer)


class _Worker:
    """Runs one controller."""

    def __init__(self, controller: AnyController, clock: Clock, caller: WebhookCaller) -> None:
        self.name = type(controller).__name__
        self._controller = controller
        self._clock = clock
        self._caller = caller
        self._agenda: Agenda[Hashable] = Agenda()
        self._failures: dict[Hashable, int] = {}
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._reconciling: Hashable = None

    def watches(self, resource: GroupResource) -> bool:
        watched = self._controller.watched
        return watched is None or resource in watched

    def tell(self, resource: GroupResource, event: Event, writer: object) -> None:
        own = self._reconciling if writer is self._task else None
        for key in self._controller.concerned(resource, event):
            if key == own and not self._controller.repeats(resource, event):
                continue
            self._agenda.add(key)
            self._woken.set()

    async def run(self) -> None:
        self._task = asyncio.current_task()
        while True:
            key = self._agenda.take(self._clock.monotonic())
            if key is None:
                await self._wait()
                continue
            delay = await self._reconcile(key)
            deadline = None if delay is None else self._clock.monotonic() + max(delay, _SOONEST)
            self._agenda.set_deadline(key, deadline)
            # Yield to requests after each key, however many keys are due.
            await asyncio.sleep(0)

    async def _wait(self) -> None:
        deadline = self._agenda.next_deadline()
        within = None if deadline is None else max(0.0, deadline - self._clock.monotonic())
        try:
            async with asyncio.timeout(within):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()

    async def _reconcile(self, key: Hashable) -> float | None:
        self._reconciling = key
        try:
            delay: float | None = await perform(self._controller.reconcile(key), self._caller)
        except Exception as error:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            delay = min(_FIRST_RETRY * 2 ** min(failures - 1, 20), _LAST_RETRY)
            if isinstance(error, ApiError):
                _log.info("A write was refused", controller=self.name, key=key, error=error, retry=delay)
            else:
                _log.crash("A controller failed", error, controller=self.name, key=key)
            return delay
        self._failures.pop(key, None)
        return delay
