"""What passes the sharder's webhook during a handover."""

import asyncio

import pytest
from world import Thing, World

from kubeshard.controller import Context, Reconciler
from kubeshard.core import MergePatch
from kubeshard.sharding import drain_label, shard_label
from kubeshard.testing.virtual_time import virtual_time


class Busy(Reconciler[Thing]):
    """Goes on with each object until it may end."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.running: set[str] = set()

    async def reconcile(self, ctx: Context, obj: Thing) -> None:
        self.running.add(obj.metadata.name)
        await self.may_end.wait()
        self.running.discard(obj.metadata.name)


@pytest.mark.regression
@virtual_time
async def test_an_object_being_drained_changes_hands_by_an_acknowledgement_and_by_no_other_update() -> None:
    async with World() as world:
        await world.install()
        await world.make_ring()
        world.sharder("x0")
        busy = Busy()
        world.shard("s0", busy, workers=20)
        await world.make_things(20)
        await world.until(lambda: len(busy.running) == 20, within=30)
        world.shard("s1", Busy())
        await world.until(world.draining, within=30)
        await asyncio.sleep(10)
        asked, before = world.draining(), world.owners()
        assert before == {f"t{number}": "s0" for number in range(20)}
        async with world.admin() as client:
            for name in before:
                await client.patch(
                    Thing, name, "team", MergePatch({"metadata": {"labels": None}, "spec": {"v": 1}})
                )
            assert world.owners() == before
            assert world.draining() == asked
            for name in asked:
                only = {"metadata": {"labels": {shard_label(world.ring): None}}}
                await client.patch(Thing, name, "team", MergePatch(only))
                only = {"metadata": {"labels": {drain_label(world.ring): "true", "x": "y"}}}
                await client.patch(Thing, name, "team", MergePatch(only))
        assert world.owners() == before
        busy.may_end.set()
        await world.until(lambda: world.all_owned("s0", "s1"), within=30)
        assert {name for name, owner in world.owners().items() if owner == "s1"} == asked
