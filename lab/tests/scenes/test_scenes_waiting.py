"""Whatever keeps objects with a dead shard, they move at most ten seconds after the cause is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tiers import further

from kubeshard.client import Client
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharding import waiting
from kubeshard.sharding.names import shard_label
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch
from kubeshard_lab.simulation.processes import Process, refusal
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

BOUND = 10.0
WORKING = 5.0
"""Seconds that the work itself takes: a list, and 4 s between two reads of a Lease that is gone."""
INFORMERS = 60.0
"""The longest back-off of an informer. The controller of Leases does not run while that of Leases cannot be read."""
PARITY = 32.0
"""Seconds from a crash to the last moved object, for the reference on a good day."""


class Refusing:
    """Requests of the sharder that are refused until further notice."""

    def __init__(self, sharder: Process, which: Callable[[HttpRequest], bool], code: int = 500) -> None:
        self.now = True
        self.refused = 0

        async def before(request: HttpRequest) -> HttpResponse | None:
            if not (self.now and which(request)):
                return None
            self.refused += 1
            return refusal(code, "InternalError" if code == 500 else "Forbidden")

        for network in sharder.networks:
            network.before = before


async def balanced(world: SimulatedCluster, things: int) -> Process:
    """Starts a ring with things; returns the sharder when all is quiet."""
    await world.install()
    await world.make_ring()
    sharder = world.sharder("x0", webhook=False)
    for number in range(3):
        world.shard(f"s{number}", Touch(), workers=20)
    await asyncio.sleep(20)
    await world.make_things(things)
    await world.until(lambda: world.all_owned("s0", "s1", "s2"), within=60)
    await asyncio.sleep(60)
    return sharder


def moved(world: SimulatedCluster) -> bool:
    return "s0" not in world.owners().values()


async def delete_lease(client: Client) -> None:
    await client.raw("DELETE", "/apis/coordination.k8s.io/v1/namespaces/ops/leases/s0")


@pytest.mark.parametrize("refused_for", [40.0, *further(100.0, 400.0)])
@virtual_time
async def test_a_deleted_lease_that_cannot_be_created_again_for_a_while(refused_for: float) -> None:
    """Nobody looked at the objects when it was created at last: its shard was not available before either."""
    async with SimulatedCluster(seed=1) as world:
        sharder = await balanced(world, 30)
        world.processes["s0"].kill()
        async with world.admin() as client:
            await delete_lease(client)
        refusing = Refusing(sharder, lambda request: request.method == "POST" and "/leases" in request.target)
        await asyncio.sleep(refused_for)
        refusing.now = False
        assert refusing.refused
        await world.until(lambda: moved(world), within=BOUND + WORKING)


@pytest.mark.nightly
@virtual_time
async def test_a_lease_that_cannot_be_taken_over_for_a_while() -> None:
    async with SimulatedCluster(seed=1) as world:
        sharder = await balanced(world, 30)
        world.processes["s0"].kill()
        refusing = Refusing(
            sharder, lambda request: request.method == "PUT" and "/leases/s0" in request.target
        )
        await asyncio.sleep(200)
        refusing.now = False
        assert refusing.refused
        await world.until(lambda: moved(world), within=BOUND + WORKING)


@pytest.mark.parametrize("code", [403, *further(500)])
@virtual_time
async def test_a_lease_that_cannot_be_labelled_is_no_cause_at_all(code: int) -> None:
    async with SimulatedCluster(seed=3) as world:
        sharder = await balanced(world, 30)
        Refusing(sharder, lambda request: request.method == "PATCH" and "/leases/" in request.target, code)
        world.processes["s0"].kill()
        await world.until(lambda: moved(world), within=PARITY)


@pytest.mark.nightly
@virtual_time
async def test_objects_that_cannot_be_patched_for_a_while_however_many_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "REMEMBERED", 30)
    async with SimulatedCluster(seed=2) as world:
        sharder = await balanced(world, 200)
        world.processes["s0"].kill()
        patches = Refusing(
            sharder, lambda request: request.method == "PATCH" and "/things/" in request.target
        )
        await asyncio.sleep(100)
        assert patches.refused > 60
        patches.now = False
        await world.until(lambda: moved(world), within=BOUND + WORKING)


@pytest.mark.nightly
@virtual_time
async def test_objects_that_cannot_be_listed_for_a_while() -> None:
    async with SimulatedCluster(seed=2) as world:
        sharder = await balanced(world, 30)
        lists = Refusing(
            sharder,
            lambda request: (
                request.method == "GET" and "/things?" in request.target and "watch=" not in request.target
            ),
        )
        world.processes["s0"].kill()
        await asyncio.sleep(200)
        assert lists.refused
        assert not moved(world)
        lists.now = False
        await world.until(lambda: moved(world), within=BOUND + WORKING)


@pytest.mark.nightly
@virtual_time
async def test_leases_that_cannot_be_read_for_a_while() -> None:
    async with SimulatedCluster(seed=2) as world:
        sharder = await balanced(world, 30)
        world.processes["s0"].kill()
        leases = Refusing(sharder, lambda request: request.method == "GET" and "/leases" in request.target)
        for network in sharder.networks:
            network.abort()
        await asyncio.sleep(200)
        assert leases.refused
        assert not moved(world)
        leases.now = False
        await world.until(lambda: moved(world), within=INFORMERS + WORKING)


@virtual_time
async def test_objects_and_leases_that_are_older_than_the_ring_and_objects_without_any_shard() -> None:
    """A Lease of a ring that does not exist, and objects while there is no shard, are left alone until there is."""
    async with SimulatedCluster(seed=2) as world:
        await world.install()
        world.sharder("x0", webhook=False)
        world.shard("s0", Touch())
        await world.make_things(10)
        await asyncio.sleep(100)
        world.processes["s0"].kill()
        await asyncio.sleep(20)
        await world.make_ring()
        await asyncio.sleep(60)
        assert not set(world.owners().values()) - {"", "s0"}
        world.shard("s1", Touch())
        await world.until(lambda: world.all_owned("s1"), within=BOUND + WORKING)


@virtual_time
async def test_an_object_that_no_shard_may_own_until_it_changes() -> None:
    """A ConfigMap belongs to the ring only when a Thing controls it."""
    async with SimulatedCluster(seed=2) as world:
        await balanced(world, 1)
        label = shard_label(world.ring)
        async with world.admin() as client:
            await client.create(ConfigMap(metadata=ObjectMeta(name="late", namespace="team")))
            await asyncio.sleep(60)
            assert not world.owners("", "configmaps")["late"]
            thing = await client.get(Thing, "t0", "team")
            await client.patch(
                ConfigMap, "late", "team", MergePatch({"metadata": {"ownerReferences": [controller(thing)]}})
            )
        await world.until(
            lambda: world.owners("", "configmaps")["late"] == thing.metadata.label(label),
            within=BOUND + WORKING,
        )


def controller(thing: Thing) -> dict[str, object]:
    meta = thing.metadata
    return {
        "apiVersion": "sim.example/v1",
        "kind": "Thing",
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
    }
