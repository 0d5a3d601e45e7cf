"""A resource that hangs blocks nothing but itself: other rings, and the other resources of its ring, continue."""

from __future__ import annotations

import asyncio

import pytest
from tiers import further

from kubeshard.core.times import micro_time
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharding.api import RingResource
from kubeshard_lab.simulation.cluster import MAIN, SimulatedCluster, Touch, definition
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

OTHERS = RingResource(group="sim.example", resource="others")
PARITY = 32.0
"""Seconds from a crash to the last moved object, for the reference on a good day."""


async def hang(request: HttpRequest) -> HttpResponse | None:
    if request.method == "GET" and "/others?" in request.target and "watch=" not in request.target:
        await asyncio.sleep(10_000)
    return None


async def flap(world: SimulatedCluster, ring: str) -> None:
    """A shard of the ring comes and goes, as if it were in a crash loop."""
    async with world.admin() as client:
        for number in range(10_000):
            now = micro_time(world.clock.wall())
            name = f"of-{ring}"
            labels = {"alpha.sharding.timebertt.dev/controllerring": ring}
            spec = {
                "holderIdentity": name if number % 2 else "",
                "leaseDurationSeconds": 15,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": number,
            }
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": "ops", "labels": labels},
                "spec": spec,
            }
            await client.apply(lease, force=True)
            await asyncio.sleep(20)


async def hung(world: SimulatedCluster, sharder: Process) -> None:
    """Lists of `others` begin to hang while all is well; returns after longer than a list may take."""
    await world.until(lambda: world.all_owned("s0", "s1", "s2"), within=60)
    for network in sharder.networks:
        network.before = hang
    await asyncio.sleep(65)


async def failover(world: SimulatedCluster) -> float:
    world.processes["s0"].kill()
    return await world.until(lambda: "s0" not in world.owners().values(), within=200)


@pytest.mark.parametrize("others", [4, *further(10, 50)])
@virtual_time
async def test_a_ring_fails_over_in_time_beside_others_whose_lists_hang(others: int) -> None:
    async with SimulatedCluster() as world:
        await world.install(definition("others", "Other"))
        await world.make_ring()
        sharder = world.sharder("x0")
        bad = [f"bad{number}" for number in range(others)]
        for name in bad:
            await world.make_ring(name, [OTHERS])
        for number in range(3):
            world.shard(f"s{number}", Touch())
        await world.make_things(10)
        flapping = [asyncio.create_task(flap(world, name)) for name in bad]
        await hung(world, sharder)
        assert await failover(world) <= PARITY
        for task in flapping:
            task.cancel()


@pytest.mark.quick
@virtual_time
async def test_a_resource_that_hangs_holds_up_no_other_of_its_ring() -> None:
    async with SimulatedCluster() as world:
        await world.install(definition("others", "Other"))
        await world.make_ring(resources=[OTHERS, MAIN])
        sharder = world.sharder("x0")
        for number in range(3):
            world.shard(f"s{number}", Touch())
        await world.make_things(10)
        await hung(world, sharder)
        assert await failover(world) <= PARITY


@virtual_time
async def test_a_shard_that_is_lost_during_a_long_look_at_everything_is_not_kept_waiting() -> None:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        sharder = world.sharder("x0")
        for number in range(3):
            world.shard(f"s{number}", Touch())
        await world.make_things(10)
        await world.until(lambda: world.all_owned("s0", "s1", "s2"), within=60)

        async def slow(request: HttpRequest) -> HttpResponse | None:
            lists = (
                request.method == "GET" and "/things?" in request.target and "watch=" not in request.target
            )
            if lists and "labelSelector" not in request.target:
                await asyncio.sleep(55)
            return None

        await asyncio.sleep(60)
        for network in sharder.networks:
            network.before = slow
        world.processes["s1"].kill()
        await world.until(lambda: "s1" not in world.owners().values(), within=60)
        world.shard("s1", Touch(), process="s1-again")  # a full scan begins, and takes a minute
        await asyncio.sleep(5)
        assert await failover(world) <= PARITY
