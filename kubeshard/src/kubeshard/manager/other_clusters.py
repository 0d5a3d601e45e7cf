"""The clusters of a manager other than the home cluster, which has its Leases.

Each has its own client, cache, events and task. Guaranteed: none of them waits for another, and the home cluster never
waits for any of them, except at the end for runs that may still write there. If a cluster does not answer or rejects
the credentials, only the controllers that work in it pause until it does. The process stays ready, but the problem is
reported in the log, in the details of readiness, on the debug page, and as

| metric | |
|---|---|
| `kubeshard_cluster_up{cluster}` | 0 while the cluster cannot be read: it does not answer, or rejects the credentials |

A ring may share the clusters out (`Membership.shares_clusters`). Then this process connects to none of them by itself,
but to those that the ring engages. What was released and is engaged again begins anew: with a client, a cache and
controllers that have seen nothing.

Not guaranteed: isolation of resources. All clusters share the process's event loop, memory and file descriptors.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kubeshard.cache.cache import Cache
from kubeshard.client.client import Client
from kubeshard.client.config import ClusterConfig
from kubeshard.client.kubeconfig import read_config
from kubeshard.controller.cluster import Cluster
from kubeshard.controller.events import EventRecorder
from kubeshard.controller.syncing import CHECK, SILENCE, SyncProblem, sync_problem
from kubeshard.core.clusters import HOME_CLUSTER, check_cluster_name, named
from kubeshard.core.errors import ConfigurationError, NotOurs
from kubeshard.manager.controllers import Controllers
from kubeshard.manager.debug import ClusterView
from kubeshard.manager.metrics import Metrics
from kubeshard.manager.runnable import report_failure
from kubeshard.manager.unreadable_kinds import Kinds, RecordEvent
from kubeshard.metrics.families import gauge
from kubeshard.runtime.logs import error_line, get_logger
from kubeshard.runtime.loop import apart
from kubeshard.runtime.world import World

ClusterSource = Client | ClusterConfig | str
"""A client, which the caller closes; a configuration; or a context of the kubeconfig."""

Assemble = Callable[[Client, Cache, EventRecorder], tuple[Cluster, Cluster]]
"""Makes the clusters that controllers see from a cluster's parts: one for controllers that do not need leadership, and
one for those that do.
"""

SILENT = ("unanswered", "unavailable", "refused")
"""Causes that concern the cluster and not a kind."""

_log = get_logger("kubeshard.manager")


class OtherClusters(Collector):
    """The other clusters of a manager (`SharedClusters`). `failed` is called with unexpected errors, `record` with what
    happens to clusters and their kinds. `shared`: a ring shares them out. Raises ValueError for an invalid name,
    TypeError for anything other than a `ClusterSource`.
    """

    def __init__(
        self,
        given: Mapping[str, ClusterSource],
        controllers: Controllers,
        *,
        world: World,
        metrics: Metrics,
        make_cache: Callable[[Client, str], Cache],
        assemble: Assemble,
        failed: Callable[[BaseException | None], None],
        record: RecordEvent,
        kept: str = HOME_CLUSTER,
        shared: bool = False,
    ) -> None:
        self._sources: dict[str, ClusterSource] = {}
        """All clusters that the manager has."""
        self._places: dict[str, tuple[object, ...]] = {}
        """Where each is, and as whom it is asked: clusters behind one gateway may differ only in that."""
        self.clients: dict[str, Client] = {}
        self._own: set[str] = set()
        """The clusters whose client we created."""
        self._clusters: dict[str, _OtherCluster] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._controllers = controllers
        self._world = world
        self._metrics = metrics
        self._make_cache = make_cache
        self._assemble = assemble
        self._failed = failed
        self._record = record
        self._kept = kept
        """The cluster with the objects of a ring, which cannot be removed."""
        self._shared = shared
        self._changed: Callable[[], None] = _nobody
        self._runs = False
        for name, source in given.items():
            self.add(name, source)

    @property
    def caches(self) -> list[Cache]:
        return [cluster.cache for cluster in self._clusters.values()]

    @property
    def names(self) -> Collection[str]:
        """Those that the manager has. It follows what is added and removed."""
        return self._sources.keys()

    @property
    def elsewhere(self) -> Collection[str]:
        """Those in which another process may work when this one does not. It follows what is added and removed."""
        return self._sources.keys() if self._shared else ()

    def listen(self, changed: Callable[[], None]) -> None:
        """`changed` is called whenever the manager gets or loses a cluster, if they are shared out."""
        self._changed = changed

    def add(self, name: str, source: ClusterSource) -> None:
        """Adds a cluster. If the manager is running, work there starts at once, unless clusters are shared out. Raises
        like the class, and ValueError for a name that is taken, and ConfigurationError; nothing has changed then.
        """
        check_cluster_name(name)
        if not isinstance(source, ClusterSource):
            raise TypeError(
                f"cluster {name}: {source!r} is not a Client, a ClusterConfig or a context of the kubeconfig"
            )
        if name in self._sources or name in self._clusters:
            raise ValueError(f"there is already a cluster {name}")
        self._sources[name] = source
        if not self._runs:
            return
        try:
            if self._shared:
                self._resolve(name)
            else:
                self.engage(name)
        except BaseException:
            self._forget(name)
            raise
        self._changed()

    async def remove(self, name: str) -> None:
        """Removes a cluster. Returns when the runs there have ended; if cancelled, it cancels them and removes the
        cluster anyway. Raises KeyError, ValueError for the cluster with the objects of a ring, and RuntimeError in one
        of these runs.
        """
        if name and name == self._kept:
            raise ValueError(f"the objects of a ring are in cluster {name}: this process works on them")
        if name not in self._sources and name not in self._clusters:
            raise KeyError(name)
        self._controllers.refuse_own_run(self._controllers.runners_in(name))
        self._sources.pop(name, None)
        self._changed()
        if name in self._clusters:
            await self.release(name)
            return
        own = self.clients.get(name) if name in self._own else None
        self._forget(name)
        if own is not None:
            await own.close()

    def engage(self, name: str) -> None:
        """See `SharedClusters`."""
        if name in self._clusters:
            raise ValueError(f"cluster {name} is engaged")
        client = self._connect(name)
        cache = self._make_cache(client, name)
        events = EventRecorder(client.sparing(), "manager", self._world.host.name(), clock=client.world.clock)
        kinds = Kinds(
            lambda: cache,
            self._controllers,
            client.world.clock,
            name,
            client=lambda: client,
            record=self._record,
        )
        cluster = _OtherCluster(name, client, cache, events, kinds)
        self._controllers.engage(*self._assemble(client.checked(cluster.check), cache, events))
        self._clusters[name] = cluster
        cluster.task = asyncio.create_task(self._run(cluster), name=f"cluster {name}")

    def silent_in(self, name: str) -> float:
        """See `SharedClusters`. Infinite if the cluster is not engaged."""
        return self._clusters[name].silent_in() if name in self._clusters else math.inf

    async def release(self, name: str) -> None:
        """See `SharedClusters`."""
        if (cluster := self._clusters.get(name)) is None:
            return
        if cluster.leaving is None:
            cluster.ending = asyncio.create_task(
                self._controllers.disengage(name), name=f"work in {name} ends"
            )
            cluster.leaving = asyncio.create_task(self._leave(cluster), name=f"cluster {name} leaves")
            self._leaving.add(cluster.leaving)
            cluster.leaving.add_done_callback(self._leaving.discard)
        try:
            await asyncio.shield(cluster.leaving)
        except asyncio.CancelledError:
            cluster.ending.cancel()  # whoever began it
            await asyncio.wait([cluster.leaving])
            raise

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Creates a client for each cluster until the block ends, without sending anything yet; if clusters are shared
        out, when they are engaged. Raises ConfigurationError.
        """
        for name in self._sources:
            if self._shared:
                self._resolve(name)
            else:
                self._connect(name)
        try:
            yield
        finally:
            await asyncio.gather(*(self.clients[name].close() for name in self._own))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the clusters until the block ends. Raises ConfigurationError."""
        self._runs = True
        try:
            for name in () if self._shared else list(self._sources):
                self.engage(name)
            self._warn_of_unknown_names()
            yield
        finally:
            self._runs = False
            tasks = [cluster.task for cluster in self._clusters.values()]
            for task in tasks:
                task.cancel()
            tasks += self._leaving
            if tasks:
                await asyncio.wait(tasks)
            self._clusters.clear()

    def _connect(self, name: str) -> Client:
        if name not in self.clients:
            source = self._resolve(name)
            if isinstance(source, ClusterConfig):
                source = Client(source, world=self._world)
                self._own.add(name)
            self.clients[name] = source
        return self.clients[name]

    def _resolve(self, name: str) -> Client | ClusterConfig:
        """Raises ConfigurationError, also if the manager has the same cluster under another name."""
        source = self._sources[name]
        if isinstance(source, str):
            source = read_config(None, source)
        config = source.config if isinstance(source, Client) else source
        place = config.server.rstrip("/"), config.tls, config.auth, config.impersonate
        for other, known in self._places.items():
            if other != name and known == place:
                raise ConfigurationError(
                    f"clusters {other} and {name} are one, at {config.server}: its objects would be worked on twice, "
                    "and in a ring by two shards; leave one of the names out"
                )
        self._places[name] = place
        return source

    async def _leave(self, cluster: _OtherCluster) -> None:
        """In a task of its own: however often the removal is cancelled, nothing of the cluster stays open."""
        await asyncio.wait([cluster.ending])
        cluster.left = True
        try:
            cluster.task.cancel()
            await asyncio.wait([cluster.task])
            if cluster.name in self._own:
                await self.clients[cluster.name].close()
        finally:
            self._disconnected(cluster.name)
        if not cluster.ending.cancelled():
            cluster.ending.result()

    def _forget(self, name: str) -> None:
        self._sources.pop(name, None)
        self._disconnected(name)

    def _disconnected(self, name: str) -> None:
        self._clusters.pop(name, None)
        self.clients.pop(name, None)
        self._own.discard(name)
        if name not in self._sources:
            self._places.pop(name, None)

    async def _run(self, cluster: _OtherCluster) -> None:
        try:
            await apart(cluster.run, self._metrics)
        except Exception as error:
            report_failure(f"cluster {cluster.name}", error)
            self._failed(error)

    def _warn_of_unknown_names(self) -> None:
        for controller in self._controllers.declared:
            watches = controller.crossing_watches
            for clusters in (controller.clusters, *(each.clusters or () for each in watches)):
                if unknown := [name for name in named(clusters) if name not in self._sources]:
                    _log.warning(
                        "A controller names clusters that the manager does not have; it works there if they come",
                        controller=controller.name,
                        clusters=", ".join(unknown),
                    )

    # For the pages

    def notes(self) -> Iterator[str]:
        """What does not work, for the details of readiness."""
        for cluster in self._clusters.values():
            if found := cluster.problem():
                yield f"cluster {cluster.name} cannot be read ({found.cause})"
            yield from cluster.kinds.notes()

    def views(self) -> list[ClusterView]:
        return [cluster.view() for cluster in self._clusters.values()]

    def kinds(self) -> list[Kinds]:
        return [cluster.kinds for cluster in self._clusters.values()]

    def collect(self) -> Iterator[Metric]:
        up = gauge("kubeshard_cluster_up")
        for cluster in self._clusters.values():
            up.add_metric((cluster.name,), float(cluster.problem() is None))
        yield up


class _OtherCluster:
    def __init__(self, name: str, client: Client, cache: Cache, events: EventRecorder, kinds: Kinds) -> None:
        self.name = name
        self.cache = cache
        self.kinds = kinds
        self.left = False
        """Nothing is written there any more with what this engagement has given away."""
        self.ending: asyncio.Task[None]
        """Returns when all runs there have ended; cancelled, it cancels them."""
        self.leaving: asyncio.Task[None] | None = None
        """Returns when nothing of it is left and its name is free."""
        self.task: asyncio.Task[None]
        self._client = client
        self._events = events

    async def run(self, metrics: Metrics) -> None:
        async with AsyncExitStack() as stack:
            self._client.observers.append(metrics.request)
            stack.callback(self._client.observers.remove, metrics.request)
            await stack.enter_async_context(self._events.running())
            await stack.enter_async_context(self.cache.running())
            await self.kinds.run()

    def check(self) -> None:
        """Raises NotOurs once it has been left, also if the cluster has been engaged again since."""
        if self.left:
            raise NotOurs(f"cluster {self.name} has been left since this client was given: not written")

    def problem(self) -> SyncProblem | None:
        """Why the cluster cannot be read, or None."""
        now = self._client.world.clock.monotonic()
        found = [sync_problem(each, now) for each in self.cache.informers]
        silent = [each for each in found if each is not None and each.cause in SILENT]
        if not silent or len(silent) < len(found):
            return None
        return max(silent, key=lambda each: each.error is not None)

    def silent_in(self) -> float:
        """Seconds until it cannot be read, and does not send its first lists either, if nothing arrives until then."""
        found, informers = self.problem(), self.cache.informers
        if found is not None and found.error is not None:
            return 0.0
        last = (each.last_answered if found else each.last_heard for each in informers)
        arrived = max((at for at in last if at is not None), default=-math.inf)
        left = arrived + SILENCE - self._client.world.clock.monotonic()
        return left if found else max(left, CHECK)

    def view(self) -> ClusterView:
        found = self.problem()
        error = "" if found is None or found.error is None else error_line(found.error)
        return ClusterView(
            name=self.name,
            server=self._client.config.server,
            state="leaving" if self.leaving else "up" if found is None else found.cause,
            error=error,
        )


def _nobody() -> None: ...
