"""The clusters of a manager in which a controller works, and those that a watch covers.

A manager has one home cluster, with its Leases, and any number of others by name. Clusters are added and removed at
run time, so this module works with names: of current clusters, and of those added later.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

HOME_CLUSTER = ""

_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class _Clusters(Container[str]):
    """All other clusters, and the home cluster if `home` is true."""

    home: bool

    def __contains__(self, name: object) -> bool:
        return self.home or name != HOME_CLUSTER

    def __repr__(self) -> str:
        return "EVERY_CLUSTER" if self.home else "OTHER_CLUSTERS"


EVERY_CLUSTER: Container[str] = _Clusters(home=True)
"""The home cluster and all others, including those added later."""

OTHER_CLUSTERS: Container[str] = _Clusters(home=False)


def check_clusters(whose: str, clusters: Any) -> None:
    """Raises TypeError for a value of another type."""
    if isinstance(clusters, str) or not isinstance(clusters, Container):
        raise TypeError(f"{whose}: clusters takes a list of names, EVERY_CLUSTER or OTHER_CLUSTERS")


def is_cluster_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def check_cluster_name(name: str) -> None:
    """Raises ValueError for an invalid name."""
    if not is_cluster_name(name):
        raise ValueError(f"cluster name {name!r}: lower case letters, digits, '-' and '.', at most 63")


def named(clusters: Container[str]) -> tuple[str, ...]:
    """The clusters listed by name, without the home cluster."""
    return (
        tuple(name for name in clusters if name)
        if isinstance(clusters, list | tuple | set | frozenset)
        else ()
    )


def overlap(one: Container[str], other: Container[str]) -> bool:
    """Whether there is a cluster in both, or may be one that is added later."""
    if isinstance(one, _Clusters) and isinstance(other, _Clusters):
        return True
    return any(name in one and name in other for name in (HOME_CLUSTER, *named(one), *named(other)))


def located(name: str, cluster: str) -> str:
    """`name` with the cluster, as in logs and metrics."""
    return f"{name}@{cluster}" if cluster else name
