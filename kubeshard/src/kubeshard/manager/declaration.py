"""What a manager is declared to run, checked, and what that needs of a cluster: RBAC rules, Services, a Deployment."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry

from kubeshard.cache.cache import Cache
from kubeshard.cache.informer import OnError
from kubeshard.cache.scope import Scope
from kubeshard.cache.transforms import Transform
from kubeshard.client.client import Client
from kubeshard.client.config import ClusterConfig
from kubeshard.controller.controller import Controller
from kubeshard.controller.every_kind import EveryKind
from kubeshard.controller.watch import narrowed
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.grants import Grant
from kubeshard.core.kinds import GroupKind, Kind
from kubeshard.core.namespaces import ALL
from kubeshard.manager.leader_election import LeaderElection
from kubeshard.manager.membership import Membership
from kubeshard.manager.other_clusters import ClusterSource
from kubeshard.manager.pages import StatusPages, StatusPagesServer
from kubeshard.manager.roles import manager_grants
from kubeshard.manager.runnable import Runnable
from kubeshard.manager.servers import AnyServer, BehindService, Converting
from kubeshard.manager.settings import Processes, processes_of
from kubeshard.runtime.processors import processor_limit, processors
from kubeshard.runtime.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """What a manager's caches keep, the same in each of its clusters; a watch's own scope narrows it.

    `scopes`: the objects that are read and cached, by kind. `default_scope`: those of kinds that are not in `scopes`;
    by default all. `transforms`: called with each object before it is cached, by kind. `on_watch_error`: called when a
    list or a watch fails. See `kubeshard.cache.Cache`.
    """

    scopes: Mapping[GroupKind | Kind, Scope] = field(default_factory=dict)
    default_scope: Scope | None = None
    transforms: Mapping[GroupKind | Kind, Transform[Any]] = field(default_factory=dict)
    on_watch_error: OnError | None = None

    def scope_of(self, kind: Kind) -> Scope | None:
        """The scope in which a kind is cached."""
        return self.scopes.get(kind) or self.scopes.get(kind.group_kind) or self.default_scope

    def new_cache(self, client: Client, cluster: str, shares: Mapping[GroupKind, Scope]) -> Cache:
        """A cache for a cluster. `shares` contains the kinds of which this process only sees a part."""
        wholes = {kind: self.scopes.get(kind) or self.default_scope or Scope() for kind in shares}
        return Cache(
            client,
            scopes={**self.scopes, **{kind: narrowed(whole, shares[kind]) for kind, whole in wholes.items()}},
            default_scope=self.default_scope,
            transforms=self.transforms,
            on_watch_error=self.on_watch_error,
            cluster=cluster,
            wholes=wholes,
        )


class DeploymentNeeds(NamedTuple):
    controllers: Sequence[Controller[Any]]
    takes_turns: bool
    """Whether it may have several replicas: they share the work, or one of them does it."""
    health: int
    """A port; 0 for none."""
    metrics: int
    metrics_secure: bool
    """Whether metrics are served over HTTPS."""
    services: Sequence[tuple[str, int, str | None]]
    """The required Services, each with the process's port behind its port 443, and its namespace if that is decided."""
    conversions: Mapping[str, Converting]
    """The servers that convert between the versions of a kind, by the name of its definition."""
    sharding: Membership | None


@dataclass(slots=True, kw_only=True)
class Declaration:
    """The arguments of a `Manager`, which explains them; `world` is that of the client, if there is one.

    Raises TypeError for arguments of the wrong type, ValueError for those that exclude each other.
    """

    controllers: list[Controller[Any]]
    """Contains those that were added while the manager runs."""
    every: Sequence[EveryKind]
    client: Client | ClusterConfig | None
    clusters: Mapping[str, ClusterSource] | None
    cache: CacheSettings | Cache | None
    leader_election: LeaderElection | None
    sharding: Membership | None
    opens: Sequence[Callable[[], AbstractAsyncContextManager[Any]]]
    runnables: Sequence[Runnable]
    servers: Sequence[AnyServer]
    status_pages: StatusPages | None
    graceful_timeout: float
    registry: CollectorRegistry | None
    processes: Processes
    world: World

    def __post_init__(self) -> None:
        if not isinstance(self.cache, Cache | CacheSettings | None):
            raise TypeError("cache takes CacheSettings(scopes=..., ...) or a Cache")
        if isinstance(self.cache, Cache) and self.sharding is not None:
            raise ValueError(
                "a shard caches its own objects only: pass cache=CacheSettings(...) instead of a Cache"
            )
        if not isinstance(self.status_pages, StatusPages | None):
            raise TypeError("status_pages takes StatusPages(metrics_address=..., ...), or None for no pages")
        if not isinstance(self.clusters, Mapping | None):
            raise TypeError('clusters takes clusters by name: clusters={"eu": "context of the kubeconfig"}')
        if self.leader_election is not None and not isinstance(self.leader_election, LeaderElection):
            raise TypeError("leader_election takes a LeaderElection(name=..., namespace=...)")
        if isinstance(self.sharding, str):
            raise TypeError(f"sharding takes a Sharding: Sharding({self.sharding!r})")
        for name, parts in (("servers", self.servers), ("runnables", self.runnables), ("opens", self.opens)):
            if not isinstance(parts, Iterable):
                raise TypeError(f"{name} takes a list: {name}=[{type(parts).__name__}(...)]")
        processes_of(str(self.processes))
        opens: tuple[Any, ...] = tuple(self.opens)
        self.opens = opens
        # One made by `asynccontextmanager` can be called, too: as a decorator.
        if not all(callable(each) and not isinstance(each, AbstractAsyncContextManager) for each in opens):
            raise TypeError(
                "opens takes functions without arguments that return an async context manager: opens=[pool], not "
                "opens=[pool()]"
            )

    @property
    def cache_settings(self) -> CacheSettings:
        return self.cache if isinstance(self.cache, CacheSettings) else CacheSettings()

    def number_of_processes(self) -> int:
        """Raises ConfigurationError if there cannot be several, or if nobody says how many."""
        count = self.processes if self.processes != "auto" else self._processors()
        if count > 1:
            if self.sharding is None:
                raise ConfigurationError(
                    f"processes={count}: each would reconcile every object: share them out with "
                    'sharding=Sharding("NAME", mode="both", delivery="ranges"), or leave processes out'
                )
            if self.status_pages is not None and self.status_pages.metrics_ssl is not None:
                raise ConfigurationError(
                    f"processes={count}: their metrics are one page, which is not served over HTTPS: leave out "
                    "metrics_ssl, or processes"
                )
            self.sharding.number(count - 1)
        return count

    def _processors(self) -> int:
        limit = processor_limit()
        if limit is None and self.world.host.pod_namespace() is not None:
            raise ConfigurationError(
                "processes=auto: the container has no CPU limit, and would get a process for each processor of the "
                "node: give it a limit, or processes a number"
            )
        return processors() if limit is None else max(1, min(processors(), math.ceil(limit)))

    def confine(self, namespaces: frozenset[str]) -> None:
        """Caches nothing outside these namespaces. Raises ConfigurationError for a cache that the program created."""
        self.cache = self._confined(namespaces)

    def _confined(self, namespaces: frozenset[str]) -> CacheSettings:
        if isinstance(self.cache, Cache):
            raise ConfigurationError(
                "namespaces: the program has created the cache itself, so it decides what that contains"
            )
        settings, only = self.cache_settings, Scope(namespaces)
        return replace(
            settings,
            scopes={kind: narrowed(scope, only) for kind, scope in settings.scopes.items()},
            default_scope=narrowed(settings.default_scope or Scope(), only),
        )

    def grants(self, namespaces: frozenset[str] | None = None) -> Iterator[Grant]:
        """With `namespaces`, those of a process that is confined to them; raises like `confine`. Of a kind whose
        namespaces the program names itself, they are those in these namespaces.
        """
        settings = self.cache_settings
        confined = settings if namespaces is None else self._confined(namespaces)

        def scope_of(kind: Kind) -> Scope | None:
            own = settings.scope_of(kind)
            return confined.scope_of(kind) if own is None or own.namespaces is ALL else own

        parts = (self.leader_election, self.sharding, *self.servers, *self.every)
        auth = self.status_pages is not None and self.status_pages.metrics_auth
        return manager_grants(self.controllers, parts, scope_of, metrics_auth=auth)

    def deployment_needs(self, pages: StatusPagesServer) -> DeploymentNeeds:
        return DeploymentNeeds(
            controllers=self.controllers,
            takes_turns=self.leader_election is not None or self.sharding is not None,
            health=pages.health.wanted,
            metrics=pages.metrics.wanted,
            metrics_secure=pages.metrics.secure,
            services=[
                each.behind for each in self.servers if isinstance(each, BehindService) and each.behind
            ],
            conversions={
                name: each for each in self.servers if isinstance(each, Converting) for name in each.converted
            },
            sharding=self.sharding,
        )
