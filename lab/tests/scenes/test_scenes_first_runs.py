"""A shard sees the children of its objects, whichever shard made them, from its first reconcile on."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from kubeshard.controller import Context, Reconciler, Result
from kubeshard.controller.dependents import ensure
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression


class Looking(Reconciler[Thing]):
    """Makes sure that there is a child which never changes, and does so all the time."""

    def __init__(self) -> None:
        self.missing: Counter[str] = Counter()
        """The Things without a child, and how often they were."""

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        child = ConfigMap(
            metadata=ObjectMeta(name=f"c-{obj.metadata.name}", namespace="team"), data={"v": "1"}
        )
        self.missing[obj.metadata.name] += await ctx.get(ConfigMap, child.metadata.name) is None
        await ensure(ctx, child, owner=obj)
        return Result(requeue_after=0.5)


@pytest.mark.quick
@virtual_time
async def test_a_shard_sees_children_that_have_not_followed_their_owner_yet() -> None:
    """It sees them in the first run, which reads live; those after it read from a cache of the shard's own objects."""
    async with SimulatedCluster(3) as world:
        await world.install()
        await world.make_ring()
        world.sharder("x0")
        world.shard("s0", Looking())
        await world.make_things(10)
        await world.until(lambda: world.all_owned("s0"), within=60)
        await asyncio.sleep(5)
        looking = Looking()
        world.shard("s1", looking)
        await world.until(lambda: world.all_owned("s0", "s1") and "s1" in world.owners().values(), within=60)
        await asyncio.sleep(15)
        assert len(looking.missing) > 2
        assert not looking.missing.total()


@virtual_time
async def test_reconciles_read_from_the_cache_once_the_children_are_there() -> None:
    async with SimulatedCluster(3) as world:
        await world.install()
        await world.make_ring()
        world.sharder("x0")
        for name in ("s0", "s1"):
            world.shard(name, Looking())
        await world.make_things(10)
        await world.until(world.all_owned, within=60)
        await asyncio.sleep(20)
        reads: Counter[str] = Counter()
        world.observers.append(
            lambda process, request, answer: reads.update(
                [process.name] if answer is None and "/configmaps/" in request.target else []
            )
        )
        await asyncio.sleep(15)
        assert not reads
