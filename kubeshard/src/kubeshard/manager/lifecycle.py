"""The process of a manager: the order in which its parts start and stop, and when they may work.

Each line depends on those above it; they start from top to bottom, and stop from bottom to top:

    client, Kubernetes events
    health and metrics pages
    what the program opens: pools, sessions
    servers (admission webhooks)
    the ring is read, if sharded
    caches start to fill
        if a cache was passed in, wait until its kinds, which others may also read, are filled
        wait, for half a minute at most, until every other kind is filled or has failed
        membership of a ring, if sharded: wait until the shard's Lease is held
        before that: wait, half a minute at most if any can be read, for the kinds of its controllers
        work: runnables; each controller while its own kinds are live; those that need leadership once it is acquired
    ------------------------------------------------------------------------
    stop: no further reconcile starts; running ones may end within the grace period; then the rest is cancelled
    leadership and membership are released, if nothing had to be cancelled
    in a pod, servers go on until some seconds have passed since the stop, within the grace period: whoever calls them
    learns late that the pod ends
    caches, servers, what was opened, pages, events, client stop

Who stops whom:

| what is wrong | stops |
|---|---|
| a kind is not served, forbidden, failing or silent | the controllers that read it; at the start, too |
| a reconcile ignores its cancellation | the object; the process, if there are many |
| all kinds that it reconciles are silent, many runs hang, the loop is blocked | the shard: its Lease is not renewed |
| the API server does not respond | what needs it; the process waits, and stays alive |
| the credentials are rejected for every kind | at the start the process; later what needs them, until renewed |
| a cluster other than the home cluster does not respond, or rejects us | the controllers that work there |
| a Lease is lost | all work, at once and without a grace period, and then the process |
| a part fails: a runnable, a source, a server | the process, gracefully |

Controllers work only while every Lease that they need is held. Not guaranteed: that the process ends if a reconcile
swallows cancellation; `kubeshard.manager.run` bounds that.

RBAC: see controllers, election, membership and pages.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Literal, NoReturn

from kubeshard.cache.cache import Cache
from kubeshard.client.client import Client
from kubeshard.client.kubeconfig import load_config
from kubeshard.controller.cluster import Cluster
from kubeshard.controller.events import EventRecorder
from kubeshard.core.clusters import HOME_CLUSTER
from kubeshard.core.errors import ConfigurationError, ungrouped
from kubeshard.leases.held_lease import Gate
from kubeshard.manager.cache_metrics import CacheMetrics
from kubeshard.manager.controllers import Controllers
from kubeshard.manager.debug import Debug
from kubeshard.manager.declaration import Declaration
from kubeshard.manager.every_kind import DynamicControllers
from kubeshard.manager.health import Check
from kubeshard.manager.leader_election import LeaderElector
from kubeshard.manager.membership import Membership, holding
from kubeshard.manager.metrics import Metrics
from kubeshard.manager.other_clusters import OtherClusters
from kubeshard.manager.pages import NO_PAGES, StatusPagesServer
from kubeshard.manager.process_health import ProcessHealth
from kubeshard.manager.runnable import Runnable, Stop, beside
from kubeshard.manager.servers import registries, serving, unready_checks
from kubeshard.manager.unreadable_kinds import KindMetrics, Kinds, until_known, until_shared
from kubeshard.runtime.logs import get_logger

STOP_REPORTED_AFTER = 3.0
"""Seconds after which a stop that is not done logs what it waits for."""

STOP_REPORTED_AGAIN = 10.0

CALLED_FOR = 5.0
"""Seconds after the stop of a pod in which its servers may still be called: it is in EndpointSlices and on nodes."""

_log = get_logger("kubeshard.manager")


class Process:
    """The parts of a process that runs what is declared. Run it once.

    Raises ValueError for controllers or servers with the same name and for names of clusters, ConfigurationError for an
    invalid address and for controllers that read one kind as two classes.
    """

    def __init__(self, declared: Declaration) -> None:
        self._declared = declared
        self._election = declared.leader_election
        self._sharding = sharding = declared.sharding
        self.metrics = Metrics(declared.registry, lambda: registries(declared.servers))
        self.stopping = Stop(declared.graceful_timeout)
        self.controllers = Controllers(
            declared.controllers, sharding=sharding, metrics=self.metrics, stop=self.stopping
        )
        clock = declared.world.clock
        shared = sharding is not None and sharding.shares_clusters
        self.health = ProcessHealth(
            clock, lambda: () if shared else self.controllers.heard(), self.controllers.hanging
        )
        self.loop_watch = declared.world.loop_watch(self.metrics.blocked)
        self.metrics.watch_loop(self.loop_watch.longest_lag)
        self._cache: Cache | None = None
        self._elector: LeaderElector | None = None
        self._events: EventRecorder | None = None
        self._kinds = Kinds(
            lambda: self._cache, self.controllers, clock, client=lambda: self.client, record=self._record
        )
        self.other_clusters = others = OtherClusters(
            declared.clusters or {},
            self.controllers,
            world=declared.world,
            metrics=self.metrics,
            make_cache=self._new_cache,
            assemble=self._clusters_of,
            failed=self._end,
            record=self._record,
            kept=sharding.objects_in if sharding else HOME_CLUSTER,
            shared=shared,
        )
        # prometheus_client's default registry collects at once, to learn the names.
        kinds = KindMetrics(lambda: [self._kinds, *others.kinds()])
        for collector in (CacheMetrics(self._caches, clock), kinds, others):
            self.metrics.registry.register(collector)
        self.client: Client | None = None
        self.debug = Debug(
            clock,
            self.loop_watch,
            self._caches,
            lambda: self.controllers.runners,
            others.views,
            lambda: [*([self.client] if self.client else []), *others.clients.values()],
            lambda: sharding.state if sharding else "",
        )
        election: dict[str, Check] = {"leader-election": self._hung} if self._election or sharding else {}
        self.pages = StatusPagesServer(
            declared.status_pages or NO_PAGES,
            liveness={"workers": self.health.hanging, **election},
            readiness={
                "cache-sync": self._kinds.unfilled,
                "api-server": self._unverified,
                **({"sharding": lambda: sharding.unready or None} if sharding else {}),
                **unready_checks(declared.servers),
            },
            notes=lambda: (*filter(None, [self._unverified()]), *self._kinds.notes(), *others.notes()),
            snapshot=self.debug.snapshot,
            metrics=self.metrics,
        )
        self._task: asyncio.Task[None] | None = None
        self._serves_on = False
        """Whether it waits for those who call its servers."""

    async def run(self) -> None:
        """Runs until `stop` or cancellation, which both stop it gracefully; a second cancellation ends it at once."""
        assert self._task is None, "a manager runs once"
        self._task = task = asyncio.create_task(self._run(), name="manager")
        reporting = asyncio.create_task(
            _follow_stop(self.stopping, self.controllers.lasting, self._sharding, lambda: self._serves_on),
            name="stop",
        )
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            self.stop()
            await _end_of(task)
            raise
        finally:
            reporting.cancel()
        failure = None if task.cancelled() else task.exception()
        if error := failure or self.stopping.error:
            raise ungrouped(error)

    def elect(self, wanted: bool) -> None:
        """Whether to compete for the declared Lease, before `run`. Raises ConfigurationError if none is declared."""
        if wanted and self._election is None and self._sharding is None:
            raise ConfigurationError(
                "leader election: the manager declares no Lease: add leader_election=LeaderElection(name=...)"
            )
        if not wanted:
            self._election = None

    def stop(self) -> None:
        self._end(None)

    def _unverified(self) -> str | None:
        """Why the process cannot know what the API server says. Its files are read again (`client.credentials`)."""
        problem = self.client.unverified if self.client is not None else ""
        return f"the API server cannot be verified: {problem}" if problem else None

    @property
    def cache(self) -> Cache:
        """The home cluster's cache."""
        assert self._cache is not None, "there is no cache yet"
        return self._cache

    async def _run(self) -> None:
        async with AsyncExitStack() as stack:
            stack.enter_context(self.loop_watch)
            declared = self._declared
            self.client = client = await self._connect(stack)
            self._events = events = EventRecorder(
                client.sparing(), "manager", declared.world.host.name(), clock=declared.world.clock
            )
            await stack.enter_async_context(self.metrics.watched(events).running())
            await self.pages.open(stack, client)
            for opened in declared.opens:
                await stack.enter_async_context(opened())
            for server in declared.servers:
                await stack.enter_async_context(beside("server", serving(server, client), self._end))
            await stack.enter_async_context(self.other_clusters.connected())
            if self._sharding is not None:
                await self._sharding.prepare(client, self.controllers.declared, self.other_clusters.clients)
            shared = declared.cache.informers if isinstance(declared.cache, Cache) else ()
            cluster = self._assemble(client, events)
            await stack.enter_async_context(cluster.cache.running())
            await stack.enter_async_context(beside("kinds", self._kinds.run(), self._end))
            await stack.enter_async_context(self.other_clusters.running())
            await until_shared(shared)
            await until_known(cluster.cache.informers, self.controllers.main, self.controllers.runners)
            stack.push_async_exit(self._serve_on)
            if self._sharding is None:
                await self._work(())
            else:
                caches = {cache.cluster: cache for cache in self._caches()}
                refused = partial(self._record, "Warning", "LeaseRefused")
                held = self._sharding.held(self.health.unfit, caches, refused, self.other_clusters)
                async with holding(held, "membership", self.stopping.ending) as right:
                    if await self._work((right.gate,)):
                        right.stopped_cleanly()

    async def _serve_on(self, _: object, error: BaseException | None, __: object) -> None:
        """In a pod, until nobody is led to its servers any more, if it stops gracefully, or before any work began."""
        stopping, declared = self.stopping, self._declared
        began = self.controllers.always.started
        graceful = stopping.requested and stopping.error is None and (error is None or not began)
        if graceful and declared.servers and declared.world.host.pod_namespace():
            self._serves_on = True
            await stopping.lasted(CALLED_FOR)
            self._serves_on = False

    def _record(self, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Records an event about this process, if something in the cluster stands for it."""
        about = self._sharding.about if self._sharding else None
        if about is not None and self._events is not None:
            self._events.event(about, type, reason, message, action="Watch")

    def _end(self, error: BaseException | None) -> None:
        assert self._task is not None, "the manager does not run"
        if self.stopping.requested:
            return
        _log.info("Stopping", grace=self.stopping.grace)
        self.stopping.request(error)
        if not self.controllers.always.started:
            self._task.cancel()

    async def _connect(self, stack: AsyncExitStack) -> Client:
        if isinstance(self._declared.client, Client):
            client = self._declared.client
        else:
            config = self._declared.client or await load_config()
            client = await stack.enter_async_context(Client(config, world=self._declared.world))
        client.observers.append(self.metrics.request)
        stack.callback(client.observers.remove, self.metrics.request)
        return client

    def _assemble(self, client: Client, events: EventRecorder) -> Cluster:
        """Creates cache, controllers and work groups; nothing runs yet."""
        if self._sharding is not None:
            self._election = self._election or self._sharding.election
        given = self._declared.cache
        self._cache = cache = given if isinstance(given, Cache) else self._new_cache(client, HOME_CLUSTER)
        if self._election is not None:
            self._elector = LeaderElector(client, self._election, self.metrics)
        cluster, leading = self._clusters_of(client, cache, events)
        self.controllers.begin(cluster, leading, election=self._election is not None)
        works = self._sharding.beside(events, self.metrics, self.health.unfit) if self._sharding else ()
        runnables = tuple(self._declared.runnables)
        if self._declared.every:
            dynamic = DynamicControllers(self._declared.every, self.controllers, client, cache)
            runnables += (Runnable("every-kind", dynamic.run),)
        self.controllers.add_work(runnables, works)
        return cluster

    def _new_cache(self, client: Client, cluster: str) -> Cache:
        return self._declared.cache_settings.new_cache(
            client, cluster, self._sharding.scopes(cluster) if self._sharding else {}
        )

    def _clusters_of(self, client: Client, cache: Cache, events: EventRecorder) -> tuple[Cluster, Cluster]:
        """The cluster for controllers that do not need leadership, and the one for those that do."""
        clusters, leading_clusters = self.controllers.clusters
        writing = client if self._sharding is None else self._sharding.client(client, cache.cluster)
        elsewhere = self.other_clusters.elsewhere
        cluster = leading = Cluster(writing, cache, events, clusters=clusters, elsewhere=elsewhere)
        if self._elector is not None:
            fence = self._elector.fence
            fenced = client.fenced(fence) if self._sharding is None else writing.checked(fence.check)
            leading = dataclasses.replace(
                cluster, client=fenced, clusters=leading_clusters, term=self._elector.term
            )
        return cluster, leading

    def _caches(self) -> Sequence[Cache]:
        return ([self._cache] if self._cache else []) + self.other_clusters.caches

    async def _work(self, gates: Sequence[Gate]) -> bool:
        """Runs both work groups until the stop. Returns whether everything ended by itself."""
        async with asyncio.TaskGroup() as tasks:
            led = tasks.create_task(self._lead(gates), name="elected work")
            clean = await self.controllers.always.run(gates)
            if not self.controllers.elected.started:
                led.cancel()  # still a candidate
            await asyncio.wait([led])
        return clean and (led.cancelled() or led.result())

    async def _lead(self, gates: Sequence[Gate]) -> bool:
        """Runs the elected work group once this process leads. Returns whether everything ended by itself."""
        if self._elector is None:
            return True
        await self.controllers.elected.needed()
        held = self._elector.held(self.health.unfit, self.cache.distrust)
        async with holding(held, "leadership", self.stopping.ending) as leadership:
            clean = await self.controllers.elected.run((*gates, leadership.gate))
            if clean:
                leadership.stopped_cleanly()
        return clean

    def _hung(self) -> str | None:
        return "leads, but does not renew" if self._elector and self._elector.hung() else None


async def _follow_stop(
    stop: Stop,
    lasting: Callable[[], Iterable[str]],
    sharding: Membership | None,
    serves_on: Callable[[], bool],
) -> NoReturn:
    """Until cancelled: tells the ring of work that takes long to stop, and logs what is waited for (`lasting`); not
    what each stop waits for (`serves_on`).
    """
    await stop.wait()
    seconds = STOP_REPORTED_AFTER
    await asyncio.sleep(STOP_REPORTED_AFTER)
    if sharding is not None and any(lasting()):
        sharding.leaving()
    while True:
        while serves_on():
            await asyncio.sleep(STOP_REPORTED_AFTER)
            seconds += STOP_REPORTED_AFTER
        waits_for = "; ".join(lasting()) or "Leases, servers and connections to close"
        _log.info("Still stopping", waits_for=waits_for, seconds=seconds, grace=stop.grace)
        await asyncio.sleep(STOP_REPORTED_AGAIN)
        seconds += STOP_REPORTED_AGAIN


async def _end_of(task: asyncio.Task[None]) -> None:
    """Waits for the task. If this is cancelled, cancels the task."""
    try:
        await asyncio.wait([task])
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()):
            _log.error("Failed while stopping", error=error)
