"""The settings of a manager's caches: one for each cluster, all with the same settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeshard.cache.cache import Cache
from kubeshard.cache.informer import OnError
from kubeshard.cache.scope import Scope
from kubeshard.cache.transforms import Transform
from kubeshard.client.client import Client
from kubeshard.controller.watch import narrowed
from kubeshard.core.kinds import GroupKind, Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """What a manager's caches keep, the same in each of its clusters; a watch's own scope goes before.

    `scopes`: the objects that are read and cached, by kind. `default_scope`: those of kinds that are not in `scopes`;
    by default all. `transforms`: called with each object before it is cached, by kind. `on_watch_error`: called when a
    list or a watch fails. See `kubeshard.cache.Cache`.
    """

    scopes: Mapping[GroupKind | Kind, Scope] = field(default_factory=dict)
    default_scope: Scope | None = None
    transforms: Mapping[GroupKind | Kind, Transform[Any]] = field(default_factory=dict)
    on_watch_error: OnError | None = None

    def scope_of(self, kind: Kind) -> Scope | None:
        """The scope in which a kind is cached, unless a watch has its own."""
        return self.scopes.get(kind) or self.scopes.get(kind.group_kind) or self.default_scope

    def new_cache(self, client: Client, cluster: str, shares: Mapping[GroupKind, Scope]) -> Cache:
        """A cache for a cluster. `shares` contains the kinds of which this process only sees a part."""
        scopes = dict(self.scopes)
        for kind, share in shares.items():
            scopes[kind] = narrowed(scopes.get(kind) or self.default_scope or Scope(), share)
        return Cache(
            client,
            scopes=scopes,
            default_scope=self.default_scope,
            transforms=self.transforms,
            on_watch_error=self.on_watch_error,
            cluster=cluster,
        )
