"""What `kubectl shard plan` predicts is what happens, with the production sharder and shards."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tiers import further

from kubeshard.core import ConfigMap, MergePatch
from kubeshard.inspection.cluster import read_cluster
from kubeshard.inspection.planning import MovePlan, Seen, ShardSetChange, moves, planned, with_shards
from kubeshard.inspection.ring import SeenRing, see
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import shard_label
from kubeshard_lab.simulation.cluster import SimulatedCluster, Touch
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

Places = dict[tuple[str, str], str]
"""Shards by resource and name."""


def places(world: SimulatedCluster) -> Places:
    return {
        (resource, name): shard
        for group, resource in (("sim.example", "things"), ("", "configmaps"))
        for name, shard in world.owners(group, resource).items()
    }


def settled(world: SimulatedCluster, shards: set[str]) -> bool:
    """Waits until every Thing is on the shard that the hash ring chooses, and its ConfigMap with it."""
    ring, children = HashRing(shards), world.owners("", "configmaps")
    right = {name: ring.owner(f"sim.example/Thing/team/{name}") for name in world.owners()}
    return world.owners() == right and children == {f"c-{name}": shard for name, shard in right.items()}


async def look(world: SimulatedCluster) -> SeenRing:
    async with world.admin() as client:
        return await see(client, await read_cluster(client), world.ring)


async def plan_of(world: SimulatedCluster, change: ShardSetChange, ring: SeenRing) -> tuple[MovePlan, Places]:
    """Returns the plan, and the future shards of the objects that move."""
    async with world.admin() as client:
        moving = {
            (move.resource.resource, move.key.name): move.target
            async for move in moves(client, ring, change, Seen())
        }
        return await planned(client, ring, change), moving


@pytest.mark.parametrize("seed", [*range(4), *further(*range(4, 12))])
@virtual_time
async def test_what_a_plan_says_is_what_then_happens(seed: int) -> None:
    random = Random(seed)
    names = random.sample([f"shard-{letter}" for letter in "abcdefgh"], 8)
    first = names[: random.randint(1, 4)]
    added = names[4 : 4 + random.randint(0, 2)]
    most = len(first) - (not added)
    removed = random.sample(first, random.randint(0, most) if added else most)
    async with SimulatedCluster(seed) as world:
        await world.install()
        await world.make_ring()
        world.sharder("x0")
        for name in first:
            world.shard(name, Touch())
        await world.make_things(random.randint(20, 40))
        await world.until(lambda: settled(world, set(first)), within=60)

        ring = await look(world)
        plan, moving = await plan_of(world, with_shards(ring, add=added, remove=removed), ring)
        before = places(world)
        for name in added:
            world.shard(name, Touch())
        for name in removed:
            await world.processes[name].stop()
        await world.until(lambda: settled(world, {*first, *added} - set(removed)), within=120)

        after = places(world)
        assert {place: shard for place, shard in after.items() if shard != before[place]} == moving
        assert bool(moving) is bool(added or removed)
        assert sum(plan.moving.values()) == len(moving)
        assert plan.objects == {"things.sim.example": len(before) // 2, "configmaps": len(before) // 2}
        assert (plan.anyway, plan.strays) == (0, [])
        flows = {(each.source, each.target, each.resource): each.objects for each in plan.flows}
        assert sum(flows.values()) == len(moving)
        for (source, target, resource), count in flows.items():
            short = resource.partition(".")[0]
            assert count == sum(
                before[place] == source and place[0] == short
                for place, shard in moving.items()
                if shard == target
            )


@pytest.mark.quick
@virtual_time
async def test_children_that_were_left_behind_are_told_before_they_move() -> None:
    async with SimulatedCluster(1) as world:
        await world.install()
        await world.make_ring()
        sharder = world.sharder("x0")
        for name in ("s0", "s1"):
            world.shard(name, Touch())
        await world.make_things(20)
        await world.until(lambda: settled(world, {"s0", "s1"}), within=60)
        await sharder.stop()
        left = sorted(name for name, shard in world.owners("", "configmaps").items() if shard == "s0")[:3]
        async with world.admin() as client:
            for name in left:
                patch = MergePatch({"metadata": {"labels": {shard_label(world.ring): "s1"}}})
                await client.patch(ConfigMap, name, "team", patch)

        ring = await look(world)
        plan, moving = await plan_of(world, with_shards(ring), ring)
        (strays,) = plan.strays
        assert (strays.resource, strays.objects, sorted(strays.names)) == (
            "configmaps",
            3,
            [f"team/{name}" for name in left],
        )
        assert moving == {("configmaps", name): "s0" for name in left}
        assert plan.anyway == 3

        world.sharder("x1")
        await world.until(lambda: settled(world, {"s0", "s1"}), within=120)
        await asyncio.sleep(1)
        assert (await plan_of(world, with_shards(await look(world)), await look(world)))[1] == {}
