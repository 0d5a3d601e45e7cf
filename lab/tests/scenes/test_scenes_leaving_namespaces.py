"""A namespace that is being deleted costs no more than a few refused requests, and nothing else."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kubeshard.controller import Context, Result
from kubeshard.core import ConfigMap, Namespace, ObjectMeta
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch, simulate
from kubeshard_lab.simulation.processes import Process

pytestmark = pytest.mark.regression

WORKERS = 5
AT_ONCE = WORKERS + 1
"""Workers, and the task that sends events, may be about to create something when the first create is refused."""
PROBES = 2
"""After pauses of 30 and 120 seconds, in five minutes."""


class Telling(Touch):
    """Also reports each run in an event."""

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        try:
            return await super().reconcile(ctx, obj)
        finally:
            ctx.event(obj, "Normal", f"Run{self.runs}", "it ran")


def test_hardly_anything_is_created_in_a_namespace_that_is_being_deleted_and_all_in_its_successor() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install()
            await world.make_ring()
            world.sharder("x0")
            shards = [world.shard(f"s{number}", Telling(), workers=WORKERS) for number in range(2)]
            await world.make_things(20)
            await world.until(lambda: len(world.objects("", "configmaps")) == 20, within=60)
            refused: dict[str, int] = {shard.name: 0 for shard in shards}

            def observe(process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
                if request.method == "POST" and "/namespaces/team/" in request.target and answer is not None:
                    refused[process.name] = refused.get(process.name, 0) + (answer.status == 403)

            world.observers.append(observe)
            async with world.admin() as client:
                await client.delete(Namespace, "team")
                for name in world.owners():
                    await client.delete(ConfigMap, f"c-{name}", "team")
                await asyncio.sleep(300)
                assert all(0 < refused[shard.name] <= AT_ONCE + PROBES for shard in shards), refused
                for name in world.owners():
                    await client.delete(Thing, name, "team")
                team = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "team"}, "spec": {}}
                body = msgspec.json.encode(team)
                await client.raw("PUT", "/api/v1/namespaces/team/finalize", body)
                await client.create(Namespace(metadata=ObjectMeta(name="team")))
            await world.make_things(5, prefix="new")
            await world.until(lambda: len(world.objects("", "configmaps")) == 5, within=5)
            assert [shard.dead for shard in shards] == ["", ""]

    simulate(scene)
