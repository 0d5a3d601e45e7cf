"""Rings come and go for months: everything that the sharder remembers and counts about a ring is dropped with it."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import generate_latest

from kubeshard.sharding.api import ControllerRing, RingResource
from kubeshard_lab.simulation.cluster import SimulatedCluster, Touch
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression


@virtual_time
async def test_a_deleted_ring_leaves_no_series_in_any_replica() -> None:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring("lasting", [RingResource(group="", resource="secrets")])
        await world.make_ring()
        replicas = [world.sharder("x0"), world.sharder("x1")]
        shards = [world.shard(name, Touch()) for name in ("s0", "s1")]
        await world.make_things(10)
        await world.until(lambda: world.all_owned("s0", "s1"), within=30)
        pages = [_page(process.manager) for process in replicas]
        assert any('controllerring="r"' in page for page in pages)
        for shard in shards:
            await shard.stop()
        async with world.admin() as client:
            await client.delete(ControllerRing, "r")
        await asyncio.sleep(120)
        pages = [_page(process.manager) for process in replicas]
        assert any('controllerring="lasting"' in page for page in pages)
        left = [line for page in pages for line in page.splitlines() if 'controllerring="r"' in line]
        assert [
            line for line in left if "controller_sharding_shard_" not in line
        ] == []  # of Leases, which remain


def _page(manager: object) -> str:
    return generate_latest(manager.metrics.registry).decode()  # type: ignore[attr-defined]
