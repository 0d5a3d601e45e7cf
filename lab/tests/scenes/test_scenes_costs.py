"""An API server and processes of limited speed, in simulations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubeshard.client import Client
from kubeshard.core import ConfigMap, Namespace, ObjectMeta
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.costs import READ_SHARE, Charged, Costs, SlowFront
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.virtual_time import virtual_time

pytestmark = [pytest.mark.regression, pytest.mark.quick]


@asynccontextmanager
async def charged(costs: Costs) -> AsyncIterator[tuple[SimulatedCluster, Charged]]:
    async with SimulatedCluster(latency=(0.0, 0.0)) as world:
        async with world.admin() as admin:
            await admin.create(Namespace(metadata=ObjectMeta(name="team")))
            await admin.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="team")))
        world.fronts = {"sim": SlowFront(world.front, costs)}
        yield world, Charged(world, costs)


async def seconds_of_reads(*clients: Client, reads: int = 10) -> float:
    """Each client sends so many at once."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(client.get(ConfigMap, "a", "team") for client in clients for _ in range(reads)))
    return loop.time() - began


@virtual_time
async def test_each_answer_takes_the_latency_and_many_travel_at_once() -> None:
    async with charged(Costs(latency=0.5)) as (world, _), Process(world, "p").client() as client:
        assert await seconds_of_reads(client) == pytest.approx(0.5)


@virtual_time
async def test_the_server_answers_no_more_than_its_rate_whoever_asks() -> None:
    async with (
        charged(Costs(rate=5)) as (world, _),
        Process(world, "p").client() as one,
        Process(world, "q").client() as other,
    ):
        assert await seconds_of_reads(one, other) == pytest.approx(20 / 5 * READ_SHARE)


@virtual_time
async def test_a_process_does_one_thing_at_a_time_and_others_work_meanwhile() -> None:
    async with (
        charged(Costs(request_cpu=0.1)) as (world, costs),
        Process(world, "p").client() as one,
        Process(world, "q").client() as other,
    ):
        assert await seconds_of_reads(one, other) == pytest.approx(1.0)
        assert costs.busy == pytest.approx({"p": 1.0, "q": 1.0})
        assert costs.requests == {"p": 10, "q": 10}


@virtual_time
async def test_a_watch_shows_changes_late_and_reading_them_is_work() -> None:
    async with (
        charged(Costs(watch_delay=3.0, event_cpu=1.0)) as (world, costs),
        Process(world, "p").client() as client,
        world.admin() as admin,
    ):
        seen: list[float] = []

        async def watch() -> None:
            loop = asyncio.get_running_loop()
            async with client.watch(ConfigMap, "team", resource_version="1") as events:
                async for _ in events:
                    seen.append(loop.time())  # noqa: PERF401 - it is read meanwhile

        watching = asyncio.create_task(watch())
        await asyncio.sleep(10)
        before, began = len(seen), asyncio.get_running_loop().time()
        for name in ("b", "c"):
            await admin.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="team")))
        await asyncio.sleep(10)
        watching.cancel()
        assert [at - began for at in seen[before:]] == pytest.approx([4.0, 5.0])
        assert costs.events["p"] == len(seen)
