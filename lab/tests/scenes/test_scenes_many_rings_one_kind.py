"""Rings that share a kind write the same objects: as often as there is something to write, and hardly more."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tiers import further

from kubeshard.core import Lease, ObjectMeta
from kubeshard.core.builtin import LeaseSpec
from kubeshard.core.times import micro_time
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharding.names import RING_LABEL, shard_label
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

THINGS = 5


async def with_shards(world: SimulatedCluster, rings: int) -> None:
    """Makes the rings with one shard each, as if it lived elsewhere."""
    await world.install()
    now = micro_time(world.clock.wall())
    async with world.admin() as client:
        for number in range(rings):
            await world.make_ring(f"r{number}")
            metadata = ObjectMeta(name=f"s{number}", namespace="ops", labels={RING_LABEL: f"r{number}"})
            spec = LeaseSpec(
                holder_identity=f"s{number}", lease_duration_seconds=300, acquire_time=now, renew_time=now
            )
            await client.create(Lease(metadata=metadata, spec=spec))


class Requests:
    """Requests of the sharder for Things."""

    def __init__(self, world: SimulatedCluster) -> None:
        self.sent: Counter[str] = Counter()
        self.conflicts = 0
        world.observers.append(self._see)

    def _see(self, process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        if (
            "/things/" not in request.target or "dryRun" in request.target
        ):  # as it asks whether its webhook is called
            return
        if answer is None:
            self.sent[request.method] += 1
        else:
            self.conflicts += answer.status == 409


def all_labelled(world: SimulatedCluster, rings: int) -> bool:
    return all(
        shard_label(f"r{number}") in (thing["metadata"].get("labels") or {})
        for thing in world.objects("sim.example", "things").values()
        for number in range(rings)
    )


@pytest.mark.quick
@pytest.mark.parametrize("rings", [3, *further(24)])
@virtual_time
async def test_objects_that_all_rings_assign_at_once_are_patched_once_for_each_ring(rings: int) -> None:
    async with SimulatedCluster(latency=(0.001, 0.03)) as world:
        await with_shards(world, rings)
        await world.make_things(THINGS)
        requests = Requests(world)
        world.sharder("x0", webhook=False)
        await world.until(lambda: all_labelled(world, rings), within=10)
        await asyncio.sleep(60)
        # A few are late: a watch still shows an object as it was before the last write.
        late = 0.2 if rings == 3 else 0.1
        assert requests.sent["PATCH"] <= rings * THINGS * (1 + late)
        assert requests.conflicts <= rings * THINGS * late
        assert requests.sent["GET"] <= rings * THINGS * late
