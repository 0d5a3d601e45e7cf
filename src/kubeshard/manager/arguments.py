"""Checks the arguments of a manager before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubeshard.manager.leader_election import LeaderElection


def check_arguments(leader_election: Any, sharding: Any, clusters: Any, **lists: Any) -> None:
    """Raises TypeError for arguments of the wrong type."""
    if not isinstance(clusters, Mapping | None):
        raise TypeError('clusters takes clusters by name: clusters={"eu": "context of the kubeconfig"}')
    if leader_election is not None and not isinstance(leader_election, LeaderElection):
        raise TypeError("leader_election takes a LeaderElection(name=..., namespace=...)")
    if isinstance(sharding, str):
        raise TypeError(f"sharding takes a Sharding: Sharding({sharding!r})")
    for name, parts in lists.items():
        if not isinstance(parts, Iterable):
            raise TypeError(f"{name} takes a list: {name}=[{type(parts).__name__}(...)]")


def check_cache(cache: object, settings: Iterable[object]) -> None:
    """Raises ValueError if a cache is given together with cache settings."""
    if cache is not None and any(settings):
        raise ValueError("a given cache already has its settings: pass either cache or the settings for one")
