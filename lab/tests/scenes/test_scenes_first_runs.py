"""A shard sees the children of its objects, whichever shard made them, from its first reconcile on; and what others
have in every one.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from kubeshard.controller import Context, Controller, Reconciler, Result, Watch
from kubeshard.controller.dependents import ensure
from kubeshard.core import ConfigMap, Key, ObjectMeta
from kubeshard.manager import Manager
from kubeshard.shard import Ranges, Sharding
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression


class Looking(Reconciler[Thing]):
    """Makes sure that there is a child which never changes, and does so all the time."""

    def __init__(self) -> None:
        self.missing: Counter[str] = Counter()
        self.ours: Counter[str] = Counter()
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


NAMES = ("t0", "t1", "t2", "t3", "t4", "t5")


class Asking(Reconciler[Thing]):
    """Asks for every Thing, for one that does not exist, and for those that it has been told are gone."""

    def __init__(self) -> None:
        self.missing: Counter[str] = Counter()
        self.ours: Counter[str] = Counter()
        self.gone_but_found: list[str] = []

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        self.missing.update([each for each in (*NAMES, "none") if await ctx.get(Thing, each) is None])
        self.ours.update([each for each in NAMES if await ctx.get(Thing, each, ours=True) is not None])
        return Result(requeue_after=1.0)

    async def gone(self, ctx: Context, key: Key) -> None:
        if await ctx.get(Thing, key.name) is not None:
            self.gone_but_found.append(key.name)


@pytest.mark.parametrize("delivery", ["labels", Ranges(buckets=8)], ids=["labels", "ranges"])
@virtual_time
async def test_an_object_is_found_in_every_run_whichever_shard_has_it(delivery: str | Ranges) -> None:
    """As without sharding (fluxcd/kustomize-controller#1175). Of the object that a shard has just lost, it is told."""
    asking: dict[str, Asking] = {}

    def start(world: SimulatedCluster, name: str) -> None:
        process, asking[name] = Process(world, name), Asking()
        things = Controller(name="things", reconciler=asking[name], primary=Watch(Thing, sharded=True))
        member = Sharding("r", name, "ops", mode="both", delivery=delivery)
        process.start(Manager([things], client=process.client(), sharding=member, status_pages=None))

    async with SimulatedCluster(seed=1) as world:
        await world.install()
        await world.make_things(len(NAMES))
        start(world, "s0")
        await asyncio.sleep(60)
        start(world, "s1")
        await asyncio.sleep(120)
        for each in asking.values():
            each.missing.clear()
            each.ours.clear()
        await asyncio.sleep(20)
    assert [set(each.missing) for each in asking.values()] == [{"none"}, {"none"}]
    assert sorted(name for each in asking.values() for name in each.ours) == list(NAMES)
    assert asking["s0"].gone_but_found == []
