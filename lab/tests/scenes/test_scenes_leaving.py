"""Ways in which a shard's objects are moved away from it, and ways that do not work, with the production sharder and
shards: why `kubectl shard drain` evicts a pod instead of writing labels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest

from kubeshard.client import Client
from kubeshard.core import Lease, MergePatch
from kubeshard.inspection.cluster import read_cluster
from kubeshard.inspection.ring import see
from kubeshard.inspection.shard_drain import Pod, begin, plan_drain, progress
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import RING_LABEL, drain_label
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

SHARDS = ("s0", "s1", "s2")


def at_home(world: SimulatedCluster, shards: Iterable[str]) -> bool:
    ring = HashRing(shards)
    return not world.draining() and all(
        shard == ring.owner(f"sim.example/Thing/team/{name}") for name, shard in world.owners().items()
    )


async def start(world: SimulatedCluster) -> None:
    await world.install()
    await world.make_ring()
    world.sharder("x0")
    for name in SHARDS:
        world.shard(name, Touch())
    await world.make_things(30)
    await world.until(lambda: at_home(world, SHARDS), within=60)


@pytest.mark.quick
@virtual_time
async def test_an_object_that_only_gets_the_drain_label_comes_back() -> None:
    async with SimulatedCluster(1) as world:
        await start(world)
        before = world.owners()
        async with world.admin() as client:
            for name, shard in before.items():
                if shard == "s0":
                    patch = MergePatch({"metadata": {"labels": {drain_label(world.ring): "true"}}})
                    await client.patch(Thing, name, "team", patch)
        await world.until(lambda: not world.draining(), within=30)
        await world.until(lambda: at_home(world, SHARDS), within=60)
        assert world.owners() == before


@pytest.mark.nightly
@virtual_time
async def test_a_lease_without_the_rings_label_has_it_again_before_anything_moves() -> None:
    async with SimulatedCluster(1) as world:
        await start(world)
        before = world.owners()
        async with world.admin() as client:
            patch = MergePatch({"metadata": {"labels": {RING_LABEL: None}}})
            await client.patch(Lease, "s0", "ops", patch)
            await asyncio.sleep(20)
            assert (await client.get(Lease, "s0", "ops")).metadata.label(RING_LABEL) == world.ring
        await asyncio.sleep(400)
        assert world.owners() == before


async def make_pod(client: Client, name: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ops"},
        "spec": {"containers": [{"name": "operator", "image": "operator"}], "nodeName": "node"},
        "status": {"phase": "Running"},
    }
    await client.apply(pod)


async def kubelet(world: SimulatedCluster, client: Client, name: str) -> None:
    """Ends a pod: sends SIGTERM once it is being deleted, and removes it after its process has ended."""
    while not (await client.get(Pod, name, "ops")).metadata.deleting:  # noqa: ASYNC110 - as a kubelet's watch
        await asyncio.sleep(0.5)
    await world.processes[name].stop()
    await client.raw("DELETE", f"/api/v1/namespaces/ops/pods/{name}", b'{"gracePeriodSeconds": 0}')


async def evict(
    world: SimulatedCluster, then: Callable[[Client], Awaitable[None]] | None = None
) -> list[str]:
    """Evicts the pod of s0 and waits until all its objects are elsewhere; returns what was reported meanwhile. `then`
    runs after its end.
    """
    async with world.admin() as client:
        await make_pod(client, "s0")
        ring = await see(client, await read_cluster(client), world.ring)
        leaving = await plan_drain(client, ring, "s0")
        assert leaving.objects["things.sim.example"] == list(world.owners().values()).count("s0")
        await begin(client, leaving)

        async def end() -> None:
            await kubelet(world, client, "s0")
            if then is not None:
                await then(client)

        ending = asyncio.create_task(end())
        lines = [line async for line in progress(client, ring, leaving)]
        await ending
        return lines


@virtual_time
async def test_a_shard_whose_pod_is_evicted_leaves_and_its_objects_have_other_shards() -> None:
    async with SimulatedCluster(1) as world:
        await start(world)
        before = world.owners()
        lines = await evict(world)
        assert (lines[0], lines[-1]) == (
            "s0 ends its work",
            "the pod of s0 is gone, and no object is on it",
        )
        assert at_home(world, ("s1", "s2"))
        assert {name for name, shard in world.owners().items() if shard != before[name]} == {
            name for name, shard in before.items() if shard == "s0"
        }


@virtual_time
async def test_a_shard_that_is_started_again_under_its_name_has_its_objects_again() -> None:
    async with SimulatedCluster(1) as world:
        await start(world)
        before = world.owners()

        async def restart(client: Client) -> None:
            await make_pod(client, "s0")
            world.shard("s0", Touch())

        lines = await evict(world, restart)
        await world.until(lambda: at_home(world, SHARDS), within=120)
        assert lines[-1].startswith(("s0 is back", "the pod of s0 is gone, and no object"))
        assert world.owners() == before
