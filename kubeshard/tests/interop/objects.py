"""Objects of a ring, and shards that only renew their Leases."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
from ring import Ring, eventually, on

from kubeshard.core import ConfigMap, Conflict, Lease, LeaseSpec, ObjectMeta, Secret, controller_reference
from kubeshard.core.times import micro_time
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import RING_LABEL

MAINS = [f"object-{number}" for number in range(150)]


async def create_objects(ring: Ring) -> dict[str, str]:
    """Creates Secrets, controlled ConfigMaps with generated names, and a ConfigMap without a controller. Returns the
    controller of each ConfigMap.
    """
    client, namespace = ring.client, ring.namespace
    owners = {}
    await client.create(ConfigMap(metadata=ObjectMeta(name="nobodys", namespace=namespace)))
    for name in MAINS:
        secret = await client.create(Secret(metadata=ObjectMeta(name=name, namespace=namespace)))
        reference = controller_reference(secret)
        metadata = ObjectMeta(generate_name="child-", namespace=namespace, owner_references=(reference,))
        config_map = await client.create(ConfigMap(metadata=metadata))
        owners[config_map.metadata.name] = name
    return owners


async def placed(ring: Ring, owners: dict[str, str], shards: tuple[str, ...]) -> None:
    """Waits until every object is assigned as specified."""
    hashring = HashRing(shards)
    mains = {name: hashring.owner(f"/Secret/{ring.namespace}/{name}") for name in MAINS}
    controlled = {name: mains[owner] for name, owner in owners.items()}

    async def so() -> bool:
        config_maps = await ring.labels(ConfigMap)
        assert config_maps.pop("nobodys") == {}
        return await ring.labels() == on(mains) and config_maps == on(controlled)

    await eventually(so, 60)


class Leases:
    """Shards that only renew their Leases."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._renewals: dict[str, asyncio.Task[None]] = {}

    async def join(self, shard: str) -> None:
        now = micro_time(time.time())
        metadata = ObjectMeta(
            name=shard, namespace=self._ring.namespace, labels={RING_LABEL: self._ring.name}
        )
        spec = LeaseSpec(holder_identity=shard, lease_duration_seconds=15, acquire_time=now, renew_time=now)
        await self._ring.client.create(Lease(metadata=metadata, spec=spec))
        self._renewals[shard] = asyncio.create_task(self._renew(shard))

    async def release(self, shard: str) -> None:
        self._renewals.pop(shard).cancel()
        await self._write(shard, holder_identity="", lease_duration_seconds=1)

    def stop(self) -> None:
        for task in self._renewals.values():
            task.cancel()

    async def _renew(self, shard: str) -> None:
        while True:
            await asyncio.sleep(2)
            await self._write(shard)

    async def _write(self, shard: str, **spec: object) -> None:
        while True:
            lease = await self._ring.lease(shard)
            renewed = msgspec.structs.replace(lease.spec, renew_time=micro_time(time.time()), **spec)
            with suppress(Conflict):
                await self._ring.client.replace(msgspec.structs.replace(lease, spec=renewed))
                return


@asynccontextmanager
async def shards(ring: Ring, *names: str) -> AsyncIterator[Leases]:
    leases = Leases(ring)
    try:
        for name in names:
            await leases.join(name)
        yield leases
    finally:
        leases.stop()
