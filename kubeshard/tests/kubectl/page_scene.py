"""The ring that docs/kubectl-shard.md shows."""

from __future__ import annotations

import time

from ring_cluster import RingCluster, owner_of

from kubeshard.client import Client
from kubeshard.core import Lease, LeaseSpec, ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.core.times import micro_time

RING = "backups"
SHARDS = [f"{RING}-{number}" for number in range(3)]


async def build(client: Client) -> None:
    """Creates Secrets with a ConfigMap each. One is being drained, one has no shard, and one child was left behind."""
    cluster = RingCluster(client, RING)
    await cluster.install()
    await cluster.conditions(("Ready", "True", "ControllerRing was successfully reconciled"))
    await client.apply(webhook())
    for name in SHARDS:
        await cluster.shard(name, told="ready", lasts=60)
    spec = LeaseSpec(holder_identity="sharder-1", lease_duration_seconds=15)
    await client.create(Lease(metadata=ObjectMeta(name="sharder", namespace="sharding-system"), spec=spec))
    for number in range(12):
        shard = owner_of(name := f"db-{number}", *SHARDS)
        left_behind = next(each for each in SHARDS if each != shard)
        child_on = left_behind if number == 3 else shard
        await cluster.child(f"{name}-last", await cluster.secret(name, shard), child_on)
    await client.apply(pod(SHARDS[2]))
    drained = await cluster.secret("moving", SHARDS[1])
    assert owner_of("moving", *SHARDS) == SHARDS[0]
    await cluster.child("moving-last", drained, SHARDS[1])
    await cluster.drain("moving")
    await cluster.secret("new")


async def renew(client: Client) -> None:
    """Renews the Leases of the shards, which a test on a busy machine outlives."""
    renewed = MergePatch({"spec": {"renewTime": micro_time(time.time())}})
    for name in SHARDS:
        await client.patch(Lease, name, "team", renewed)


def webhook() -> dict[str, object]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": f"controllerring-{RING}"},
        "webhooks": [
            {
                "name": "sharder.sharding.timebertt.dev",
                "clientConfig": {
                    "service": {"namespace": "sharding-system", "name": "sharder"},
                    "caBundle": "bm90IHVzZWQ=",
                },
                "rules": [],
                "failurePolicy": "Ignore",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def pod(name: str) -> dict[str, object]:
    """Creates a pod of a StatefulSet."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": RING, "uid": "u", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "operator", "image": "operator"}]},
    }
