"""The manager of a process: what it runs, the order in which it starts and stops, and when it may work.

Each line depends on those above it; they start from top to bottom, and stop from bottom to top:

    client, Kubernetes events
    health and metrics pages
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
    caches, servers, pages, events, client stop

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal

from prometheus_client import CollectorRegistry

from kubeshard.cache.cache import Cache
from kubeshard.client.client import Client
from kubeshard.client.config import ClusterConfig
from kubeshard.client.loading import load_config
from kubeshard.controller.cluster import Cluster
from kubeshard.controller.controller import Controller
from kubeshard.controller.events import EventRecorder
from kubeshard.controller.every_kind import EveryKind
from kubeshard.core.arguments import ArgumentHints
from kubeshard.core.clusters import HOME
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.grants import Grant
from kubeshard.leases.held_lease import Gate
from kubeshard.manager.arguments import INSTEAD, check_arguments
from kubeshard.manager.cache_metrics import CacheMetrics
from kubeshard.manager.caching import CacheSettings
from kubeshard.manager.controllers import Controllers
from kubeshard.manager.debug import Debug
from kubeshard.manager.deployment_needs import DeploymentNeeds, deployment_needs
from kubeshard.manager.ending import end_of, single, tell_what_lasts
from kubeshard.manager.every_kind import DynamicControllers, split
from kubeshard.manager.health import Check
from kubeshard.manager.kinds import KindMetrics, Kinds, until_known, until_shared
from kubeshard.manager.leader_election import LeaderElection, LeaderElector
from kubeshard.manager.membership import Membership, holding
from kubeshard.manager.metrics import Metrics
from kubeshard.manager.other_clusters import ClusterSource, OtherClusters
from kubeshard.manager.pages import NO_PAGES, STATUS_PAGES, StatusPages, StatusPagesServer
from kubeshard.manager.process_health import ProcessHealth
from kubeshard.manager.roles import manager_grants
from kubeshard.manager.runnable import Runnable, Stop, beside
from kubeshard.manager.servers import AnyServer, registries, serving, unready_checks
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.world import REAL_WORLD, World

_log = get_logger("kubeshard.manager")


class Manager(ArgumentHints):
    """Runs controllers and what they need, against one or several clusters.

    `client`: the home cluster's client, or a configuration from which the manager creates one; by default, the
    configuration that `load_config` finds. `clusters`: other clusters by name, as clients, configurations, or contexts
    of the kubeconfig (`kubeshard.manager.other_clusters`). `cache`: the settings of the caches, of which there is one
    for each cluster; or a cache for the home cluster that the program has created.

    `leader_election`: controllers and runnables that need leadership run in one process at a time; without it, they run
    in every process. `sharding`: makes the process a shard of a ring, so that controllers of the ring's kinds reconcile
    its share. `servers`: webhook servers and similar ones. `status_pages`: metrics, health and debug; None for none.
    `graceful_timeout`: how many seconds reconciles get to end after a stop; negative means unlimited. `registry`: for
    the manager's metrics, instead of prometheus_client's default one.

    `world`: for a client that the manager creates; a given client brings its own world, which all parts use.

    Raises ValueError for controllers or servers with the same name, ConfigurationError for an invalid address and for
    controllers that read one kind as two classes.
    """

    INSTEAD = INSTEAD

    def __init__(
        self,
        controllers: Sequence[Controller[Any] | EveryKind] = (),
        *,
        client: Client | ClusterConfig | None = None,
        clusters: Mapping[str, ClusterSource] | None = None,
        cache: CacheSettings | Cache | None = None,
        leader_election: LeaderElection | None = None,
        sharding: Membership | None = None,
        runnables: Sequence[Runnable] = (),
        servers: Sequence[AnyServer] = (),
        status_pages: StatusPages | None = STATUS_PAGES,
        graceful_timeout: float = 30.0,
        registry: CollectorRegistry | None = None,
        world: World = REAL_WORLD,
    ) -> None:
        check_arguments(
            leader_election, sharding, clusters, cache, status_pages, servers=servers, runnables=runnables
        )
        self.metrics = Metrics(registry, lambda: registries(self._servers))
        self._given_client = client
        self._given_cache = cache if isinstance(cache, Cache) else None
        self._caching = cache if isinstance(cache, CacheSettings) else CacheSettings()
        self._election = leader_election
        self._sharding = sharding
        self._runnables = tuple(runnables)
        self._servers = tuple(servers)
        self._world = client.world if isinstance(client, Client) else world
        self._stop = Stop(graceful_timeout)
        self._cache: Cache | None = None
        self._elector: LeaderElector | None = None
        fixed, self._every = split(controllers)
        self._controllers = Controllers(fixed, sharding=sharding, metrics=self.metrics, stop=self._stop)
        clock = self._world.clock
        self._process_health = ProcessHealth(clock, self._controllers.heard, self._controllers.hanging)
        self.metrics.watch_loop(self._process_health.longest_lag)
        self._events: EventRecorder | None = None
        self._kinds = Kinds(lambda: self._cache, self._controllers, clock, tell=self._tell)
        self._other_clusters = others = OtherClusters(
            clusters or {},
            self._controllers,
            world=self._world,
            metrics=self.metrics,
            make_cache=self._cache_of,
            assemble=self._clusters_of,
            failed=self._end,
            tell=self._tell,
            kept=sharding.objects_in if sharding else HOME,
        )
        # prometheus_client's default registry collects at once, to learn the names.
        kinds = KindMetrics(lambda: [self._kinds, *others.kinds()])
        for collector in (CacheMetrics(self._caches, clock), kinds, others):
            self.metrics.registry.register(collector)
        self._debug = Debug(
            clock, self._process_health, self._caches, lambda: self._controllers.runners, others.views
        )
        election: dict[str, Check] = {"leader-election": self._hung} if leader_election or sharding else {}
        self._pages = StatusPagesServer(
            status_pages or NO_PAGES,
            liveness={"workers": self._process_health.hanging, **election},
            readiness={"cache-sync": self._kinds.unfilled, **unready_checks(self._servers)},
            notes=lambda: (*self._kinds.notes(), *others.notes()),
            picture=self._debug.picture,
            metrics=self.metrics,
        )
        self._task: asyncio.Task[None] | None = None

    def connect_to(self, config: ClusterConfig) -> None:
        """Sets the cluster of a manager that was created without a client. Raises ConfigurationError if it has one."""
        if self._given_client is not None:
            raise ConfigurationError("the manager was created with a client: its cluster is already chosen")
        self._given_client = config

    def serve_at(self, *, metrics_address: str | None = None, health_address: str | None = None) -> None:
        """Replaces the addresses of pages before the manager runs, for several instances on one host; None leaves an
        address as it is. Raises ConfigurationError for an invalid one.
        """
        self._pages.move(metrics_address=metrics_address, health_address=health_address)

    def add(self, controller: Controller[Any]) -> None:
        """Adds a controller. If the manager is running, it and its informers start at once; otherwise they start with
        the others. Call this in the event loop's thread.

        Raises ValueError for a name that is taken, and ConfigurationError like the class; nothing has changed then.
        """
        self._controllers.add(controller)

    async def remove(self, name: str) -> None:
        """Removes a controller: no further run starts, and this returns when the running ones have ended, however
        long that takes; if cancelled, it cancels them. Informers without another user stop.

        Raises KeyError, RuntimeError in a run of the controller itself, and ValueError for a controller of a ring: its
        shard would keep objects that nobody reconciles.
        """
        await self._controllers.remove(name)

    def add_cluster(self, name: str, cluster: ClusterSource) -> None:
        """Adds a cluster, as in `clusters`. If the manager is running, controllers that work in it start at once. Call
        this in the event loop's thread.

        Raises ValueError for a name that is taken or invalid, and ConfigurationError; nothing has changed then.
        """
        self._other_clusters.add(name, cluster)

    async def remove_cluster(self, name: str) -> None:
        """Removes a cluster: no further run starts there, and this returns when the running ones have ended, however
        long that takes; if cancelled, it cancels them. Raises KeyError, and RuntimeError in one of these runs.
        """
        await self._other_clusters.remove(name)

    # Running

    async def run(self) -> None:
        """Runs until `stop` or cancellation, which both stop it gracefully; a second cancellation ends it at once.

        Raises whatever else made it end: RightLost, ConfigurationError, an exception of a runnable.
        """
        assert self._task is None, "a manager runs once"
        self._task = task = asyncio.create_task(self._run(), name="manager")
        telling = asyncio.create_task(tell_what_lasts(self._stop, self._controllers.lasting), name="stop")
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            self.stop()
            await end_of(task)
            raise
        finally:
            telling.cancel()
        failure = None if task.cancelled() else task.exception()
        if failure or self._stop.error:
            raise single(failure or self._stop.error)

    def stop(self) -> None:
        """Starts a graceful stop; `run` returns when it is done. Call this in the event loop's thread."""
        self._end(None)

    def on_ending(self, bound: Callable[[float | None], None]) -> None:
        """Has `bound` called when shutdown starts, with the seconds that it may take (None: unlimited)."""
        self._stop.ending = bound

    def lag(self) -> float:
        """The lag of the event loop in seconds; 0 unless `run` runs. May be called from any thread."""
        return self._process_health.lag()

    @property
    def cache(self) -> Cache:
        """The cache that the controllers read. It exists once `run` has created it."""
        assert self._cache is not None, "there is no cache yet"
        return self._cache

    @property
    def metrics_port(self) -> int:
        """The actual port; 0 while there is none."""
        return self._pages.metrics.port

    @property
    def health_port(self) -> int:
        return self._pages.health.port

    async def _run(self) -> None:
        async with AsyncExitStack() as stack:
            client = await self._connect(stack)
            self._events = events = EventRecorder(
                client.sparing(), "manager", self._world.host.name(), clock=self._world.clock
            )
            await stack.enter_async_context(self.metrics.watched(events).running())
            await stack.enter_async_context(beside("process health", self._process_health.run(), self._end))
            await self._pages.open(stack, client)
            for server in self._servers:
                await stack.enter_async_context(beside("server", serving(server, client), self._end))
            await stack.enter_async_context(self._other_clusters.connected())
            if self._sharding is not None:
                await self._sharding.prepare(client, self._controllers.declared, self._other_clusters.clients)
            shared = self._given_cache.informers if self._given_cache else ()
            cluster = self._assemble(client, events)
            await stack.enter_async_context(cluster.cache.running())
            await stack.enter_async_context(beside("kinds", self._kinds.run(), self._end))
            await stack.enter_async_context(self._other_clusters.running())
            await until_shared(shared)
            await until_known(cluster.cache.informers, self._controllers.main, self._controllers.runners)
            if self._sharding is None:
                await self._work(())
            else:
                caches = {cache.cluster: cache for cache in self._caches()}
                held = self._sharding.held(self._process_health.unfit, caches)
                async with holding(held, "membership", self._stop.ending) as right:
                    if await self._work((right.gate,)):
                        right.stopped_cleanly()

    def _tell(self, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Records an event about this process, if something in the cluster stands for it."""
        about = self._sharding.about if self._sharding else None
        if about is not None and self._events is not None:
            self._events.event(about, type, reason, message, action="Watch")

    def _end(self, error: BaseException | None) -> None:
        assert self._task is not None, "the manager does not run"
        if self._stop.requested:
            return
        _log.info("Stopping", grace=self._stop.grace)
        self._stop.request(error)
        if not self._controllers.always.started:
            self._task.cancel()

    def grants(self) -> Iterator[Grant]:
        """The required RBAC rules (`kubeshard.manager.roles`)."""
        parts = (self._election, self._sharding, *self._servers, *self._every)
        auth = self._pages.metrics_auth
        return manager_grants(self._controllers.declared, parts, self._caching.scope_of, metrics_auth=auth)

    def deployment_needs(self) -> DeploymentNeeds:
        """What manifests need to know about the process (`kubeshard manifests operator`)."""
        turns = self._election is not None or self._sharding is not None
        return deployment_needs(self._controllers.declared, self._pages, self._servers, takes_turns=turns)

    async def _connect(self, stack: AsyncExitStack) -> Client:
        if isinstance(self._given_client, Client):
            client = self._given_client
        else:
            config = self._given_client or await load_config()
            client = await stack.enter_async_context(Client(config, world=self._world))
        client.observers.append(self.metrics.request)
        stack.callback(client.observers.remove, self.metrics.request)
        return client

    def _assemble(self, client: Client, events: EventRecorder) -> Cluster:
        """Creates cache, controllers and work groups; nothing runs yet."""
        if self._sharding is not None:
            self._election = self._election or self._sharding.election
        self._cache = self._given_cache or self._cache_of(client, HOME)
        if self._election is not None:
            self._elector = LeaderElector(client, self._election, self.metrics)
        cluster, leading = self._clusters_of(client, self._cache, events)
        self._controllers.begin(cluster, leading, election=self._election is not None)
        works = (
            self._sharding.beside(events, self.metrics, self._process_health.unfit) if self._sharding else ()
        )
        runnables = self._runnables
        if self._every:
            dynamic = DynamicControllers(self._every, self._controllers, client, self._cache)
            runnables += (Runnable("every-kind", dynamic.run),)
        self._controllers.add_work(runnables, works)
        return cluster

    def _cache_of(self, client: Client, cluster: str) -> Cache:
        return self._caching.new_cache(
            client, cluster, self._sharding.scopes(cluster) if self._sharding else {}
        )

    def _clusters_of(self, client: Client, cache: Cache, events: EventRecorder) -> tuple[Cluster, Cluster]:
        """The cluster for controllers that do not need leadership, and the one for those that do."""
        clusters, leading_clusters = self._controllers.clusters
        writing = client if self._sharding is None else self._sharding.client(client, cache.cluster)
        cluster = leading = Cluster(writing, cache, events, clusters=clusters)
        if self._election is not None:
            fence = self._election.fence
            fenced = client.fenced(fence) if self._sharding is None else writing.checked(fence.check)
            leading = dataclasses.replace(cluster, client=fenced, clusters=leading_clusters)
        return cluster, leading

    def _caches(self) -> Sequence[Cache]:
        return ([self._cache] if self._cache else []) + self._other_clusters.caches

    async def _work(self, gates: Sequence[Gate]) -> bool:
        """Runs both work groups until the stop. Returns whether everything ended by itself."""
        async with asyncio.TaskGroup() as tasks:
            led = tasks.create_task(self._lead(gates), name="elected work")
            clean = await self._controllers.always.run(gates)
            if not self._controllers.elected.started:
                led.cancel()  # still a candidate
            await asyncio.wait([led])
        return clean and (led.cancelled() or led.result())

    async def _lead(self, gates: Sequence[Gate]) -> bool:
        """Runs the elected work group once this process leads. Returns whether everything ended by itself."""
        if self._elector is None:
            return True
        await self._controllers.elected.needed()
        held = self._elector.held(self._process_health.unfit, self.cache.distrust)
        async with holding(held, "leadership", self._stop.ending) as leadership:
            self._elector.fence.leadership = leadership
            clean = await self._controllers.elected.run((*gates, leadership.gate))
            if clean:
                leadership.stopped_cleanly()
        return clean

    def _hung(self) -> str | None:
        return "leads, but does not renew" if self._elector and self._elector.hung() else None
