"""A ring of which the oracles judge what a test does, instead of its shards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from kubeshard.client.client import Client
from kubeshard.controller.context import Context
from kubeshard.controller.reconciler import Result
from kubeshard.core.builtin import ConfigMap, Lease, LeaseSpec
from kubeshard.core.errors import NotFound
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.core.times import micro_time
from kubeshard.sharding.api import ControllerRing, RingResource
from kubeshard.sharding.names import (
    assignment_name,
)
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch
from kubeshard_lab.simulation.faults.injection import Conditions
from kubeshard_lab.simulation.oracles import SimulationResult
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.simulation.ring_oracles import RingOracles


class Watched(Touch):
    """The oracles see its reconciles."""

    def __init__(self, oracles: RingOracles, process: str) -> None:
        super().__init__()
        self._oracles = oracles
        self._process = process

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        self._oracles.begins(self._process, obj.metadata)
        try:
            return await super().reconcile(ctx, obj)
        finally:
            self._oracles.ends(self._process, obj.metadata)


async def watched(client: Client) -> None:
    async with client.watch(ConfigMap, "ops") as events:
        async for _ in events:
            return


async def follow(client: Client) -> None:
    """As a shard does: it hears what it is given, and reads whether that is so."""
    await asyncio.create_task(watched(client))  # the task acts for this process from then on
    await client.get(ConfigMap, assignment_name("r"), "ops")


async def hold(process: Process, holder: str | None = None) -> None:
    """The process gets its Lease, or makes it another one's."""
    name = process.name.partition("~")[0]
    client, spec = process.client(), {"holderIdentity": name if holder is None else holder}
    try:
        await client.get(Lease, name, "ops")
    except NotFound:
        lease = LeaseSpec(holder_identity=spec["holderIdentity"], lease_duration_seconds=15)
        await client.create(Lease(metadata=ObjectMeta(name=name, namespace="ops"), spec=lease))
    else:
        again = {"spec": {**spec, "renewTime": micro_time(process.world.clock.wall())}}
        await client.patch(Lease, name, "ops", MergePatch(again))


class Scene:
    def __init__(self, world: SimulatedCluster) -> None:
        self.world = world
        self.conditions = Conditions(world, seed=1)
        self.result = SimulationResult()
        self.oracles = RingOracles(world, self.result)

    def shard(self, process: str) -> Process:
        name = process.partition("~")[0]
        return self.world.shard(name, Watched(self.oracles, process), process=process, machine=name)

    def holder(self, shard: str) -> str:
        leases = self.world.objects("coordination.k8s.io", "leases")
        return next(
            (obj["spec"].get("holderIdentity", "") for key, obj in leases.items() if key.name == shard), ""
        )

    async def list_in_ring(self, resource: RingResource) -> None:
        async with self.world.admin() as client:
            ring = await client.get(ControllerRing, self.world.ring)
            spec = msgspec.structs.replace(ring.spec, resources=(resource,))
            await client.replace(msgspec.structs.replace(ring, spec=spec))


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        yield Scene(world)
