"""Fixtures that run the command against the shared API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from commands import KubectlShard
from ring_cluster import RING, RingCluster

from kubeshard.client import Client
from kubeshard.core import ALL, ConfigMap, Lease, Secret
from kubeshard.core.errors import NotFound
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import RING_LABEL
from kubeshard_apiserver.testing import KubeApi


@pytest.fixture
def kubectl_shard(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> KubectlShard:
    return KubectlShard(monkeypatch, capsys)


@pytest.fixture
def written(kube_api: KubeApi, kubectl_shard: KubectlShard) -> Iterator[KubeApi]:
    """A server with the ring `r` and the shards a and b, against which the command runs."""

    async def begin(client: Client) -> None:
        cluster = RingCluster(client)
        await cluster.install()
        async for ring in client.list(ControllerRing, ALL):
            if ring.metadata.name != RING:  # left by an earlier test
                await client.delete(ControllerRing, ring.metadata.name)
        async for lease in client.list(Lease, ALL):
            if RING_LABEL in (lease.metadata.labels or ()):  # as well, and says that there is a ring
                await client.delete(Lease, lease.metadata.name, lease.metadata.namespace)
        await cluster.shard("a")
        await cluster.shard("b")

    async def end(client: Client) -> None:
        for kind in (Lease, Secret, ConfigMap):
            await client.delete_collection(kind, "team")
        with suppress(NotFound):  # tests may have deleted it
            await client.delete(ControllerRing, RING)

    kube_api.call(begin)
    kubectl_shard.at(kube_api.kubeconfig)
    yield kube_api
    kube_api.call(end)
