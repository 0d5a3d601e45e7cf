"""Both sharders compute the same assignment, so one can take the other's place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from programs import Programs
from ring import Ring, eventually, on

from kubeshard.client import Client
from kubeshard.core import ConfigMap, Conflict, Lease, LeaseSpec, ObjectMeta, Secret, controller_reference
from kubeshard.core.times import micro_time
from kubeshard.sharding import RING_LABEL, HashRing
from kubeshard.testing import Child

pytestmark = pytest.mark.interop

SHARDS = ("shard-0", "shard-1", "shard-2", "checksum-controller-c95c4fdb6-7jb2v", "node.example.com")
MAINS = [f"object-{number}" for number in range(150)]
WINDOW = 4.0
"""Seconds in which nothing may move: more than a sharder's start and its first pass take."""
PROBE = "probe"


@pytest.fixture
async def ring(kube_client: Client, namespace: str) -> AsyncIterator[Ring]:
    ring = Ring(kube_client, f"same-{namespace}", namespace, Secret, (ConfigMap,))
    try:
        yield ring
    finally:
        await ring.remove()


async def test_both_sharders_assign_every_object_alike_and_swapping_them_moves_nothing(
    ring: Ring, programs: Programs, go_sharder: Path
) -> None:
    """300 objects of a main and a controlled kind, 5 shards, then 4, then 3."""
    owners = await create_objects(ring)
    async with shards(ring, *SHARDS) as leases:
        await ring.create()
        sharder = programs.sharder(go_sharder)
        await placed(ring, owners, SHARDS)

        sharder = await swapped(ring, programs, sharder, None)
        await leases.release(SHARDS[0])
        await placed(ring, owners, SHARDS[1:])

        sharder = await swapped(ring, programs, sharder, go_sharder)
        await leases.release(SHARDS[1])
        await placed(ring, owners, SHARDS[2:])

        await swapped(ring, programs, sharder, None)


async def create_objects(ring: Ring) -> dict[str, str]:
    """Secrets, controlled config maps with generated names, and a config map that nobody controls. Returns
    who controls each config map.
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
    """Waits until every object is where the specification says."""
    hashring = HashRing(shards)
    mains = {name: hashring.owner(f"/Secret/{ring.namespace}/{name}") for name in MAINS}
    controlled = {name: mains[owner] for name, owner in owners.items()}

    async def so() -> bool:
        config_maps = await ring.labels(ConfigMap)
        assert config_maps.pop("nobodys") == {}
        return await ring.labels() == on(mains) and config_maps == on(controlled)

    await eventually(so, 60)


async def swapped(ring: Ring, programs: Programs, old: Child, go: Path | None) -> Child:
    """Another sharder takes over; fails if anything moves."""
    await asyncio.to_thread(old.stop)
    async with ring.history() as mains, ring.history(ConfigMap) as controlled:
        started = time.monotonic()
        new = programs.sharder(go)
        await eventually(lambda: assigns(ring, programs))
        await asyncio.sleep(max(0.0, started + WINDOW - time.monotonic()))
    mains.pop(PROBE, None)
    assert (mains, controlled) == ({}, {})
    return new


async def assigns(ring: Ring, programs: Programs) -> bool:
    """Whether a sharder is at work."""
    programs.check()
    client = ring.client
    made = await client.create(Secret(metadata=ObjectMeta(name=PROBE, namespace=ring.namespace)))
    try:
        await asyncio.sleep(0.1)
        return bool((await ring.shards_of())[PROBE])
    finally:
        await client.delete(Secret, made.metadata.name, ring.namespace)


class Leases:
    """Shards that renew their Leases and do nothing else."""

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
