"""Checks the arguments of a manager before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubeshard.cache.cache import Cache
from kubeshard.manager.caching import CacheSettings
from kubeshard.manager.leader_election import LeaderElection
from kubeshard.manager.pages import StatusPages


def check_arguments(
    leader_election: Any, sharding: Any, clusters: Any, cache: Any, status_pages: Any, **lists: Any
) -> None:
    """Raises TypeError for arguments of the wrong type, ValueError for those that exclude each other."""
    if not isinstance(cache, Cache | CacheSettings | None):
        raise TypeError("cache takes CacheSettings(scopes=..., ...) or a Cache")
    if isinstance(cache, Cache) and sharding is not None:
        raise ValueError(
            "a shard caches its own objects only: pass cache=CacheSettings(...) instead of a Cache"
        )
    if not isinstance(status_pages, StatusPages | None):
        raise TypeError("status_pages takes StatusPages(metrics_address=..., ...), or None for no pages")
    if not isinstance(clusters, Mapping | None):
        raise TypeError('clusters takes clusters by name: clusters={"eu": "context of the kubeconfig"}')
    if leader_election is not None and not isinstance(leader_election, LeaderElection):
        raise TypeError("leader_election takes a LeaderElection(name=..., namespace=...)")
    if isinstance(sharding, str):
        raise TypeError(f"sharding takes a Sharding: Sharding({sharding!r})")
    for name, parts in lists.items():
        if not isinstance(parts, Iterable):
            raise TypeError(f"{name} takes a list: {name}=[{type(parts).__name__}(...)]")


_PAGES = (
    "metrics_address",
    "metrics_ssl",
    "metrics_auth",
    "health_address",
    "liveness",
    "readiness",
    "debug",
)
_CACHE = ("scopes", "default_scope", "transforms", "on_watch_error")
INSTEAD = {
    **{name: f"status_pages=StatusPages({name}=...), or status_pages=None for no pages" for name in _PAGES},
    **{name: f"cache=CacheSettings({name}=...)" for name in _CACHE},
    "leader_fence": "client.fenced(election.fence), with the fence of the LeaderElection",
}
"""Arguments of earlier versions of `Manager`."""
