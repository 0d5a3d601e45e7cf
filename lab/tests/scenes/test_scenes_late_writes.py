"""A write whose outcome is unknown may still take effect for a while. Until then its object counts as being worked on:
it is not handed over, and the right to act is not released.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from kubeshard.controller import Context, Reconciler, Result
from kubeshard.core import ApiError, ConfigMap, Lease, ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharding.hash_ring import HashRing
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

LATE = 8.0
"""Seconds after which a delayed write reaches the server: longer than the client waits for it."""


def name_that_takes(thing: str) -> str:
    """Returns a shard name that owns the Thing in a ring with s0."""
    names = (f"n{number}" for number in range(3000))
    return next(n for n in names if HashRing(["s0", n]).owner(f"sim.example/Thing/team/{thing}") == n)


class LateWrites:
    """From now on, writes of children by one process reach the server late."""

    def __init__(self, world: SimulatedCluster, process: Process) -> None:
        self._world = world
        self._sending: list[asyncio.Task[None]] = []
        self.landed: list[tuple[str, str | None]] = []
        """The owner of the main object and the holder of the Lease of s0 when each write took effect."""
        self.armed = False
        for network in process.networks:
            network.before = self._before(network._inner.request)

    def _before(
        self, send: Callable[[HttpRequest], Awaitable[HttpResponse]]
    ) -> Callable[[HttpRequest], Awaitable[HttpResponse | None]]:
        async def land(request: HttpRequest) -> None:
            await asyncio.sleep(LATE)
            await send(request)
            leases = self._world.objects("coordination.k8s.io", "leases")
            holders = [obj["spec"].get("holderIdentity") for key, obj in leases.items() if key.name == "s0"]
            owner = self._world.owners()["t0"]
            self.landed.append((owner, holders[0] if holders else None))

        async def before(request: HttpRequest) -> HttpResponse | None:
            if self.armed and request.method in ("PATCH", "POST") and "/configmaps" in request.target:
                self._sending.append(asyncio.create_task(land(request)))
                await asyncio.sleep(60)
            return None

        return before


class Creates(Touch):
    """Also creates a child with a new name in every run of a Thing with `spec.v`."""

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        if obj.spec.get("v"):
            metadata = ObjectMeta(generate_name="log-", namespace="team")
            await ctx.client.create(ConfigMap(metadata=metadata))
        return await super().reconcile(ctx, obj)


class Gives(Touch):
    """Gives up on its writes after a moment."""

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                return await super().reconcile(ctx, obj)
        return None


class Leaves(Touch):
    """Leaves its writes to background tasks."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks: list[asyncio.Task[None]] = []

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        self._tasks.append(asyncio.create_task(self._touch(ctx, obj)))
        return None

    async def _touch(self, ctx: Context, obj: Thing) -> None:
        with suppress(ApiError):
            await super().reconcile(ctx, obj)


async def begin(world: SimulatedCluster, reconciler: Reconciler[Thing]) -> LateWrites:
    """s0 owns t0, and has just sent a write that will arrive late."""
    await world.install()
    await world.make_ring()
    world.sharder("x0")
    shard = world.shard("s0", reconciler)
    await asyncio.sleep(10)
    await world.make_things(1)
    await world.until(lambda: world.all_owned("s0") and world.owners("", "configmaps"), within=10)
    late = LateWrites(world, shard)
    late.armed = True
    async with world.admin() as client:
        await client.patch(Thing, "t0", "team", MergePatch({"spec": {"v": 7}}))
    await asyncio.sleep(0.5)
    return late


@pytest.mark.parametrize("reconciler", [Touch, Creates, Gives, Leaves])
def test_no_write_lands_after_its_object_was_handed_over(reconciler: type[Touch]) -> None:
    @virtual_time
    async def run() -> None:
        async with SimulatedCluster(2) as world:
            late = await begin(world, reconciler())
            other = name_that_takes("t0")
            world.shard(other, reconciler())
            await world.until(lambda: world.draining() or world.all_owned(other), within=10)
            late.armed = False
            await world.until(lambda: world.all_owned(other), within=45)
            await asyncio.sleep(30)
            assert late.landed
            assert {owner for owner, _ in late.landed} == {"s0"}

    run()


@pytest.mark.parametrize("reconciler", [Touch, Creates, Gives, Leaves])
def test_a_graceful_stop_keeps_the_lease_while_a_write_may_land(reconciler: type[Touch]) -> None:
    @virtual_time
    async def run() -> None:
        async with SimulatedCluster(2) as world:
            late = await begin(world, reconciler())
            late.armed = False
            shard = world.processes["s0"]
            await shard.stop()
            assert shard.dead == "stopped"
            assert late.landed
            assert {holder for _, holder in late.landed} == {"s0"}
            async with world.admin() as client:
                lease = await client.get(Lease, "s0", "ops")
            assert not lease.spec.holder_identity  # and then it is released

    run()
