"""Both sharders compute the same assignment, so one can take the other's place."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from objects import create_objects, placed, shards
from programs import Programs
from ring import Ring, eventually

from kubeshard.core import ConfigMap, ObjectMeta, Secret
from kubeshard_apiserver.testing.child import Child

pytestmark = pytest.mark.interop

SHARDS = ("shard-0", "shard-1", "shard-2", "checksum-controller-c95c4fdb6-7jb2v", "node.example.com")
WINDOW = 4.0
"""Seconds in which nothing may move: longer than a sharder's start and its first full scan."""
PROBE = "probe"


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


async def swapped(ring: Ring, programs: Programs, old: Child, go: Path | None) -> Child:
    """Replaces the sharder; fails if anything moves."""
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
    """Whether a sharder is working."""
    programs.check()
    client = ring.client
    made = await client.create(Secret(metadata=ObjectMeta(name=PROBE, namespace=ring.namespace)))
    try:
        await asyncio.sleep(0.1)
        return bool((await ring.shards_of())[PROBE])
    finally:
        await client.delete(Secret, made.metadata.name, ring.namespace)
