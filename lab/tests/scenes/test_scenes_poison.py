"""An object whose reconcile never ends costs neither its shard nor, one after the other, all shards."""

from __future__ import annotations

import asyncio

import pytest

from kubeshard.controller import Context, Result
from kubeshard.core import MergePatch
from kubeshard.sharding.names import drain_label
from kubeshard_lab.simulation.cluster import Process, SimulatedCluster, Thing, Touch, simulate

pytestmark = pytest.mark.regression

LONGEST_RUN = 60.0


class Poisonous(Touch):
    """Never ends a run of the Thing `t0`, whatever is cancelled, while its process lives."""

    def __init__(self) -> None:
        super().__init__()
        self.process: Process | None = None
        self.poisoned = 0

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        if obj.metadata.name == "t0":
            self.poisoned += 1
            while self.process is not None and not self.process.dead:
                try:
                    await asyncio.sleep(5)
                except asyncio.CancelledError:
                    continue
        return await super().reconcile(ctx, obj)


def test_an_object_that_cannot_be_reconciled_ends_no_shard_and_stays_where_it_is_until_its_shard_ends() -> (
    None
):
    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install()
            await world.make_ring()
            world.sharder("x0")
            touches = {name: Poisonous() for name in ("s0", "s1")}
            shards = {
                name: world.shard(name, touch, workers=1, reconcile_timeout=LONGEST_RUN)
                for name, touch in touches.items()
            }
            for name, touch in touches.items():
                touch.process = shards[name]
            await asyncio.sleep(20)
            await world.make_things(8)
            await world.until(lambda: world.all_owned("s0", "s1"), within=60)
            owner = world.owners()["t0"]
            other = "s1" if owner == "s0" else "s0"
            await asyncio.sleep(LONGEST_RUN + 10)  # its worker, the only one, is replaced
            maps = world.objects("", "configmaps")
            assert len(maps) == 7
            async with world.admin() as client:
                for name in world.owners():
                    await client.patch(Thing, name, "team", MergePatch({"spec": {"v": 1}}))
                await world.until(
                    lambda: (
                        [each["data"]["v"] for each in world.objects("", "configmaps").values()] == ["1"] * 7
                    ),
                    within=2,
                )
                drained = MergePatch({"metadata": {"labels": {drain_label("r"): "true"}}})
                await client.patch(Thing, "t0", "team", drained)
            await asyncio.sleep(5 * LONGEST_RUN)
            assert [shard.dead for shard in shards.values()] == ["", ""]
            assert (world.draining(), world.owners()["t0"]) == ({"t0"}, owner)
            assert (touches[owner].poisoned, touches[other].poisoned) == (1, 0)
            events = world.objects("events.k8s.io", "events").values()
            assert [each["regarding"]["name"] for each in events if each["reason"] == "ReconcileHangs"] == [
                "t0"
            ]
            shards[owner].kill()
            await world.until(lambda: world.all_owned(other), within=60)
            assert not shards[other].dead

    simulate(scene)
