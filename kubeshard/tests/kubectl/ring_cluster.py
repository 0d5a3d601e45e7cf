"""A ring of Secrets and the ConfigMaps that they control, written by hand: there is no sharder and no shard."""

from __future__ import annotations

import json
import time
from typing import Any

from kubeshard.client import Client, install
from kubeshard.core import (
    ConfigMap,
    KubeObject,
    Lease,
    LeaseSpec,
    MergePatch,
    Namespace,
    ObjectMeta,
    Secret,
    controller_reference,
)
from kubeshard.core.times import micro_time
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import RING_LABEL, STATE_LABEL, drain_label, shard_label

RING = "r"
TEAM = {"matchLabels": {"kubernetes.io/metadata.name": "team"}}
SECRETS = [
    {"group": "", "resource": "secrets", "controlledResources": [{"group": "", "resource": "configmaps"}]}
]


class RingCluster:
    """A ring that selects the namespace `team`."""

    def __init__(self, client: Client, name: str = RING) -> None:
        self.client = client
        self.name = name
        self._shard, self._drain = shard_label(name), drain_label(name)

    async def install(self, **spec: Any) -> None:
        async for _ in install(self.client, [controller_ring_crd()]):
            pass
        for name in ("team", "other", "sharding-system"):
            await self.client.apply(Namespace(metadata=ObjectMeta(name=name)))
        await self.ring(**spec)

    async def ring(self, name: str = "", **spec: Any) -> None:
        await self.client.apply(
            {
                "apiVersion": "sharding.timebertt.dev/v1alpha1",
                "kind": "ControllerRing",
                "metadata": {"name": name or self.name},
                "spec": {"resources": SECRETS, "namespaceSelector": TEAM, **spec},
            }
        )

    async def conditions(self, *conditions: tuple[str, str, str], generation: int = 1) -> None:
        """Writes conditions as a sharder would: (type, status, message)."""
        written = [
            {
                "type": type_,
                "status": status,
                "reason": "Because",
                "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for type_, status, message in conditions
        ]
        status = {"observedGeneration": generation, "shards": 0, "availableShards": 0, "conditions": written}
        path = f"/apis/sharding.timebertt.dev/v1alpha1/controllerrings/{self.name}/status"
        await self.client.raw(
            "PATCH",
            path,
            json.dumps({"status": status}).encode(),
            content_type="application/merge-patch+json",
        )

    async def shard(
        self,
        name: str,
        *,
        holder: str | None = None,
        age: float = 0.0,
        told: str = "",
        lasts: int = 15,
        namespace: str = "team",
    ) -> None:
        """Creates a Lease that was renewed `age` seconds ago; held by the shard unless another holder is named."""
        renewed = micro_time(time.time() - age)
        labels = {RING_LABEL: self.name} | ({STATE_LABEL: told} if told else {})
        spec = LeaseSpec(
            holder_identity=name if holder is None else holder,
            lease_duration_seconds=lasts,
            acquire_time=renewed,
            renew_time=renewed,
        )
        await self.client.create(
            Lease(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels), spec=spec)
        )

    async def secret(self, name: str, shard: str = "", *, namespace: str = "team") -> Secret:
        return await self.client.create(
            Secret(
                metadata=ObjectMeta(
                    name=name, namespace=namespace, labels={self._shard: shard} if shard else None
                )
            )
        )

    async def child(self, name: str, owner: KubeObject | None, shard: str = "") -> ConfigMap:
        references = (controller_reference(owner),) if owner else ()
        meta = ObjectMeta(
            name=name,
            namespace="team",
            labels={self._shard: shard} if shard else None,
            owner_references=references,
        )
        return await self.client.create(ConfigMap(metadata=meta))

    async def drain(self, name: str) -> None:
        patch = MergePatch({"metadata": {"labels": {self._drain: "true"}}})
        await self.client.patch(Secret, name, "team", patch)


def owner_of(name: str, *shards: str) -> str:
    """Returns the hash ring's choice for a Secret of the team."""
    return HashRing(shards).owner(f"/Secret/team/{name}")


def name_on(shard: str, *shards: str, prefix: str = "s") -> str:
    """Returns the first name of a Secret that the hash ring assigns to a given shard."""
    return next(
        name for name in (f"{prefix}{number}" for number in range(1000)) if owner_of(name, *shards) == shard
    )
