"""A reconcile's access to clusters other than that of the reconciled object.

Guaranteed: a write belongs to the run, so the object is busy until the outcome is known. It is refused whenever a write
at home would be, because this process does not lead or has lost its shard's Lease, and in a cluster that is another
shard's by now. Its field manager is the controller.
Not guaranteed: that reads from the cache include what the controller wrote there; use the client for those.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple, Protocol

from kubeshard.cache.cache import Cache
from kubeshard.client.client import Client
from kubeshard.controller.in_flight import CurrentRun
from kubeshard.core.errors import NoSuchCluster, NotOurs


class RemoteCluster(NamedTuple):
    """A cluster of the manager. `cache` contains what its controllers watch there."""

    client: Client
    cache: Cache


class _Cluster(Protocol):
    @property
    def client(self) -> Client: ...

    @property
    def cache(self) -> Cache: ...


class RemoteClusters:
    """The clusters of a manager, for one controller. `elsewhere`: the names of those that another process has if they
    are not in `clusters`.
    """

    def __init__(
        self, clusters: Mapping[str, _Cluster], field_manager: str, elsewhere: Container[str] = ()
    ) -> None:
        self._clusters = clusters
        self._elsewhere = elsewhere
        self._field_manager = field_manager
        self._seen: dict[str, tuple[_Cluster, RemoteCluster]] = {}

    def at(self, cluster: str) -> RemoteCluster:
        """The cluster with this name. Raises NotOurs for that of another process, and NoSuchCluster."""
        place = self._clusters.get(cluster)
        if place is None:
            if cluster in self._elsewhere:
                raise NotOurs(f"cluster {cluster} is another shard's: neither read nor written")
            there = ", ".join(repr(name) if name else "the home cluster" for name in self._clusters)
            raise NoSuchCluster(f"there is no cluster {cluster!r}, only {there}")
        known = self._seen.get(cluster)
        if known is None or known[0] is not place:
            client = place.client.with_field_manager(self._field_manager).entered_in(CurrentRun()).sparing()
            known = self._seen[cluster] = place, RemoteCluster(client, place.cache)
        return known[1]
