"""What a program declares, and the interface to its process.

`kubeshard.manager.declaration` checks what is declared, and `kubeshard.manager.lifecycle` says in which order things
start and stop, and what stops what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import fields
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from kubeshard.cache.cache import Cache
from kubeshard.client.client import Client
from kubeshard.client.config import ClusterConfig
from kubeshard.controller.controller import Controller
from kubeshard.controller.every_kind import EveryKind
from kubeshard.core.argument_hints import ArgumentHints
from kubeshard.core.errors import ConfigurationError, Unprepared
from kubeshard.core.grants import Grant
from kubeshard.manager.debug import DebugSnapshot
from kubeshard.manager.declaration import CacheSettings, Declaration, DeploymentNeeds
from kubeshard.manager.every_kind import split
from kubeshard.manager.leader_election import LeaderElection
from kubeshard.manager.lifecycle import Process
from kubeshard.manager.membership import Membership
from kubeshard.manager.other_clusters import ClusterSource
from kubeshard.manager.pages import STATUS_PAGES, StatusPages
from kubeshard.manager.runnable import Runnable
from kubeshard.manager.servers import AnyServer, Called
from kubeshard.manager.settings import Processes, Settings
from kubeshard.runtime.supervised import Supervised
from kubeshard.runtime.world import REAL_WORLD, World

LOOKED_AGAIN = 0.05
"""Seconds between two looks whether the controllers work."""

_INSTEAD = {
    **{
        each.name: f"status_pages=StatusPages({each.name}=...), or status_pages=None for no pages"
        for each in fields(StatusPages)
    },
    **{each.name: f"cache=CacheSettings({each.name}=...)" for each in fields(CacheSettings)},
}
"""Where arguments that are grouped belong."""


class Manager(ArgumentHints):
    """Runs controllers and what they need, against one or several clusters.

    `client`: the home cluster's client, or a configuration from which the manager creates one; by default, the
    configuration that `load_config` finds. `clusters`: other clusters by name, as clients, configurations, or contexts
    of the kubeconfig (`kubeshard.manager.other_clusters`). `cache`: the settings of the caches, of which there is one
    for each cluster; or a cache for the home cluster that the program has created.

    `leader_election`: controllers and runnables that need leadership run in one process at a time; without it, they run
    in every process. `sharding`: makes the process a shard of a ring, so that controllers of the ring's kinds reconcile
    its share. `opens`: functions that return async context managers, such as a pool of connections: they are entered in
    this order before anything works, and left when everything has ended. `runnables`: what runs beside the controllers.
    `servers`: webhook servers and similar ones. `status_pages`: metrics, health and debug; None for none.
    `graceful_timeout`: how many seconds reconciles get to end after a stop; negative means unlimited. `registry`: for
    the manager's metrics, instead of prometheus_client's default one.

    `processes`: how many processes `run(manager)` and `kubeshard run` start, to use several processors of a machine: a
    number, or `"auto"` for the container's CPU limit, rounded up, or without a container what the machine has. Each is
    a shard of the ring, with the name of the pod and `-0`, `-1`, ... . See `kubeshard.manager.run`.
    `await manager.run()` is one process.

    `world`: for a client that the manager creates; a given client brings its own world, which all parts use.

    Raises ValueError for controllers or servers with the same name, ConfigurationError for an invalid address and for
    controllers that read one kind as two classes.
    """

    INSTEAD = _INSTEAD

    def __init__(
        self,
        controllers: Sequence[Controller[Any] | EveryKind] = (),
        *,
        client: Client | ClusterConfig | None = None,
        clusters: Mapping[str, ClusterSource] | None = None,
        cache: CacheSettings | Cache | None = None,
        leader_election: LeaderElection | None = None,
        sharding: Membership | None = None,
        opens: Sequence[Callable[[], AbstractAsyncContextManager[Any]]] = (),
        runnables: Sequence[Runnable] = (),
        servers: Sequence[AnyServer] = (),
        status_pages: StatusPages | None = STATUS_PAGES,
        graceful_timeout: float = 30.0,
        registry: CollectorRegistry | None = None,
        processes: Processes = 1,
        world: World = REAL_WORLD,
    ) -> None:
        fixed, every = split(controllers)
        self._declared = Declaration(
            controllers=fixed,
            every=every,
            client=client,
            clusters=clusters,
            cache=cache,
            leader_election=leader_election,
            sharding=sharding,
            opens=opens,
            runnables=runnables,
            servers=servers,
            status_pages=status_pages,
            graceful_timeout=graceful_timeout,
            registry=registry,
            processes=processes,
            world=client.world if isinstance(client, Client) else world,
        )
        self._process = Process(self._declared)
        self.metrics = self._process.metrics

    @property
    def client(self) -> Client:
        """The client of the running manager, for webhooks, runnables and what `opens` opens; reconciles have theirs in
        their context. It is connected before any of these begins.

        Not guaranteed: that what it writes is refused once another process leads, or owns the object. Raises
        RuntimeError before the manager runs.
        """
        if (client := self._process.client) is None:
            raise RuntimeError("the manager has no client before it runs")
        return client

    def connect_to(self, config: ClusterConfig, world: World | None = None) -> None:
        """Sets the cluster of a manager that was created without a client, and the world of its own client. Raises
        ConfigurationError if it has one.
        """
        if self._declared.client is not None:
            raise ConfigurationError("the manager was created with a client: its cluster is already chosen")
        self._declared.client = config
        self._declared.world = world or self._declared.world

    def move_to(
        self, client: Client, adapted: Callable[[Controller[Any]], Controller[Any]] = lambda each: each
    ) -> None:
        """Has the manager run with this client, in the client's world, and with controllers that are `adapted`, but
        without pages, servers and a registry of its own. Call this before it runs.

        For simulations. Raises ConfigurationError for a manager of several clusters, and for one with its own cache.
        """
        declared = self._declared
        if declared.clusters or isinstance(declared.cache, Cache):
            raise ConfigurationError(
                "a manager with other clusters, or with a Cache that the program has created, cannot be moved to "
                "another client"
            )
        declared.controllers[:] = map(adapted, declared.controllers)
        declared.client, declared.world = client, client.world
        declared.status_pages, declared.servers, declared.registry = None, (), None
        self._process = Process(declared)
        self.metrics = self._process.metrics

    def call_webhooks_at(self, url: str, **options: Any) -> None:
        """Has the API server call the webhooks at this URL, before the manager runs; for a program outside the cluster.
        Options are those of `kubeshard.webhook.Webhooks.call_at`.

        Raises ConfigurationError for a URL that cannot be called, without webhooks, and for a URL with a port that
        would be that of several servers.
        """
        servers = self._called()
        if not servers:
            raise ConfigurationError(f"webhooks at {url}: the manager has none: add servers=[Webhooks(...)]")
        try:
            if len(servers) > 1 and urlsplit(url).port:
                raise ValueError(
                    f"webhooks at {url}: the manager has {len(servers)} servers: leave out the port"
                )
            for server in servers:
                server.call_at(url, **options)
        except ValueError as error:
            raise ConfigurationError(str(error)) from None

    def only_serve_webhooks(self, certificates: Any) -> None:
        """Serves the webhooks with these certificates, and leaves their registration to others, before the manager
        runs. Raises ConfigurationError without webhooks.
        """
        if not self._called():
            raise ConfigurationError("webhooks: the manager has none: add servers=[Webhooks(...)]")
        for server in self._called():
            server.only_serve(certificates)

    @property
    def has_webhooks(self) -> bool:
        """Whether it serves webhooks that register themselves."""
        return any(server.served for server in self._called())

    async def webhooks_registered(self) -> None:
        """Returns once the running manager has registered all its webhooks."""
        for server in self._called():
            await server.registered()

    def configure_for_test(self, config: ClusterConfig, world: World) -> None:
        """Has the manager run beside tests, before it runs: with a cluster that reaches this process, in which its
        webhooks are registered, strictly, until it ends, and without pages.
        """
        self.connect_to(config, world)
        self.configure(Settings(metrics_address="0", health_address="0"))
        for server in self._called():
            server.call_at("https://127.0.0.1", strict=True)
            server.listen_on(0, "127.0.0.1")

    async def until_working(self, within: float) -> None:
        """Returns once the controllers of the running manager work, and the API server calls its webhooks. Raises
        Unprepared, with the reason, if that takes longer than so many seconds.
        """
        waiting = self._process.controllers.waiting
        try:
            async with asyncio.timeout(within):
                while waiting():  # noqa: ASYNC110 - for tests only: production does not pay for an event
                    await asyncio.sleep(LOOKED_AGAIN)
                await self.webhooks_registered()
        except TimeoutError:
            why = "; ".join(waiting()) or "the webhooks are not registered, see the log"
            raise Unprepared(f"not ready after {within:g} s: {why}") from None
        for server in self._called():
            if server.why_uncalled:
                raise Unprepared(server.why_uncalled)

    def configure(self, settings: Settings) -> None:
        """Applies settings before the manager runs, except those of the log, which `run` sets up.

        Raises ConfigurationError for an invalid address, for `leader_elect=True` without a declared `leader_election`,
        for `namespaces` with a cache that the program has created, and for settings of shards or webhooks without them.
        """
        self._process.pages.move(
            metrics_address=settings.metrics_address, health_address=settings.health_address
        )
        if settings.leader_elect is not None:
            self._process.elect(settings.leader_elect)
        if settings.processes is not None:
            self._declared.processes = settings.processes
        if settings.namespaces is not None:
            self._declared.confine(settings.namespaces)
        if settings.shard_name is not None:
            if self._declared.sharding is None:
                raise ConfigurationError("shard name: the manager is not sharded: add sharding=Sharding(...)")
            self._declared.sharding.rename(settings.shard_name)
        called = self._called()
        if settings.webhook_port is not None:
            if len(called) != 1:
                raise ConfigurationError(
                    f"webhook port: the manager has {len(called)} servers of webhooks, not one"
                )
            called[0].listen_on(settings.webhook_port)
        if settings.webhooks is not None:
            for server in called:
                server.served = settings.webhooks

    def add(self, controller: Controller[Any]) -> None:
        """Adds a controller. If the manager is running, it and its informers start at once; otherwise they start with
        the others. Call this in the event loop's thread.

        Raises ValueError for a name that is taken, and ConfigurationError like the class; nothing has changed then.
        """
        self._process.controllers.add(controller)

    async def remove(self, name: str) -> None:
        """Removes a controller: no further run starts, and this returns when the running ones have ended, however
        long that takes; if cancelled, it cancels them. Informers without another user stop.

        Raises KeyError, RuntimeError in a run of the controller itself, and ValueError for a controller of a ring: its
        shard would keep objects that nobody reconciles.
        """
        await self._process.controllers.remove(name)

    def add_cluster(self, name: str, cluster: ClusterSource) -> None:
        """Adds a cluster, as in `clusters`. If the manager is running, controllers that work in it start at once. Call
        this in the event loop's thread.

        Raises ValueError for a name that is taken or invalid, and ConfigurationError; nothing has changed then.
        """
        self._process.other_clusters.add(name, cluster)

    async def remove_cluster(self, name: str) -> None:
        """Removes a cluster: no further run starts there, and this returns when the running ones have ended, however
        long that takes; if cancelled, it cancels them. Raises KeyError, and RuntimeError in one of these runs.
        """
        await self._process.other_clusters.remove(name)

    def grants(self, namespaces: frozenset[str] | None = None) -> Iterator[Grant]:
        """The required RBAC rules (`kubeshard.manager.roles`); with `namespaces`, as with the setting of that name, for
        which it raises ConfigurationError if the program has created the cache itself.
        """
        return self._declared.grants(namespaces)

    def deployment_needs(self) -> DeploymentNeeds:
        """What manifests need to know about the process (`kubeshard manifests operator`)."""
        return self._declared.deployment_needs(self._process.pages)

    @property
    def processes(self) -> int:
        """How many processes are to run. Raises ConfigurationError if there cannot be several."""
        return self._declared.number_of_processes()

    @property
    def addresses(self) -> tuple[str, str]:
        """Where the health pages and the metrics are to be served."""
        return self._process.pages.health.address, self._process.pages.metrics.address

    def supervise(self, process: Supervised) -> None:
        """Makes this one of several processes, before the manager runs: its shard and its pages are its own, while
        webhooks are served by all at one port.
        """
        assert self._declared.sharding is not None
        self._declared.sharding.number(process.number)
        self._process.pages.supervise(process)
        for server in self._called():
            server.share(process.number)

    def _called(self) -> list[Called]:
        return [each for each in self._declared.servers if isinstance(each, Called)]

    # Running

    async def run(self) -> None:
        """Runs until `stop` or cancellation, which both stop it gracefully; a second cancellation ends it at once.

        Raises whatever else made it end: RightLost, ConfigurationError, an exception of a runnable.
        """
        await self._process.run()

    def stop(self) -> None:
        """Starts a graceful stop; `run` returns when it is done. Call this in the event loop's thread."""
        self._process.stop()

    def on_ending(self, bound: Callable[[float | None], None]) -> None:
        """Has `bound` called when shutdown starts, with the seconds that it may take (None: unlimited)."""
        self._process.stopping.ending = bound

    def report_blocked(self, after: float) -> None:
        """Logs what blocks the event loop for longer than so many seconds; 0 for nothing. Call this before `run`."""
        self._process.loop_watch.limit = after

    def snapshot(self) -> DebugSnapshot:
        """What the process is doing now (`kubeshard.manager.debug`)."""
        return self._process.debug.snapshot()

    @property
    def cache(self) -> Cache:
        """The cache that the controllers read. It exists once `run` has created it."""
        return self._process.cache

    @property
    def metrics_port(self) -> int:
        """The actual port; 0 while there is none."""
        return self._process.pages.metrics.port

    @property
    def health_port(self) -> int:
        return self._process.pages.health.port
