"""Whatever state an object is in, its shard gives it back when it is asked to."""

import asyncio
from contextlib import suppress

import msgspec
import pytest
from world import Process, Thing, Touch, World

from kubeshard.core import ApiError
from kubeshard.core.patches import MergePatch
from kubeshard.sharding import HashRing
from kubeshard.testing.virtual_time import virtual_time

pytestmark = pytest.mark.regression

SPLIT = (0.015, 0.03)
"""Seconds one way: an object that changes every 20 ms has changed before an answer to a read is back."""


def name_that_takes(*things: str) -> str:
    """A shard that owns all these Things in a ring with s0."""
    keys = [f"sim.example/Thing/team/{thing}" for thing in things]
    names = (f"n{number}" for number in range(3000))
    return next(n for n in names if all(HashRing(["s0", n]).owner(key) == n for key in keys))


def undecodable(process: Process) -> float | None:
    assert process.manager is not None
    labels = {"kind": "Thing.v1.sim.example"}
    return process.manager.metrics.registry.get_sample_value("kubeshard_informer_undecodable_objects", labels)


async def start(world: World) -> None:
    await world.install()
    await world.make_ring()
    world.sharder("x0")
    world.shard("s0", Touch())
    await asyncio.sleep(10)


@virtual_time
async def test_an_object_written_every_20_ms_is_handed_over() -> None:
    async with World(4, latency=SPLIT) as world:
        await start(world)
        await world.make_things(1)
        await world.until(lambda: world.all_owned("s0"), within=10)

        async def heat() -> None:
            async with world.admin() as client:
                beat = 0
                while True:
                    await asyncio.sleep(0.02)
                    beat += 1
                    with suppress(ApiError):
                        patch = MergePatch({"metadata": {"annotations": {"beat": str(beat)}}})
                        await client.patch(Thing, "t0", "team", patch)

        heating = asyncio.create_task(heat())
        other = name_that_takes("t0")
        world.shard(other, Touch())
        await world.until(lambda: world.all_owned(other), within=15)
        heating.cancel()


@virtual_time
async def test_an_object_that_does_not_fit_the_controllers_class_is_handed_over() -> None:
    async with World(4) as world:
        await start(world)
        odd = {
            "apiVersion": "sim.example/v1",
            "kind": "Thing",
            "metadata": {"name": "odd", "namespace": "team"},
            "spec": "of a newer version",
        }
        async with world.admin() as client:
            path = "/apis/sim.example/v1/namespaces/team/things"
            await client.raw("POST", path, msgspec.json.encode(odd))
        await world.until(lambda: world.all_owned("s0"), within=10)
        await asyncio.sleep(1)
        assert undecodable(world.processes["s0"]) == 1
        other = name_that_takes("odd")
        world.shard(other, Touch())
        await world.until(lambda: world.all_owned(other), within=15)
