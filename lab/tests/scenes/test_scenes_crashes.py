"""An unexpected exception, a bug, costs one resource of one ring, and only as long as it is raised."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tiers import further

from kubeshard.core.builtin import Namespace
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import LabelSelector
from kubeshard.sharder.assignments import Assignments
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.moves import Mover
from kubeshard.sharder.scanner import Scanner
from kubeshard.sharder.tasks import DrivenResource
from kubeshard.sharder.unassigned import _Watch
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.object_job import Write
from kubeshard_lab.simulation.cluster import MAIN, SimulatedCluster, Thing, Touch, definition
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

BOUND, WORKING = 10.0, 5.0
OTHERS = RingResource(group="sim.example", resource="others")
PARITY = 32.0
"""Seconds from a crash to the last moved object, for the reference on a good day."""


class Other(Thing, group="sim.example", version="v1"):
    """The kind whose handling crashes."""


def sync_of(args: tuple[Any, ...]) -> str:
    """The resource that a method is called for."""
    for arg in args:
        if isinstance(arg, DrivenResource):
            return arg.entry.resource.resource
        if isinstance(arg, Write):
            return arg.job.entry.resource.resource
        if isinstance(arg, _Watch):
            return arg._resource.name.resource
    return "others"


@pytest.mark.parametrize(
    ("owner", "method", "part"),
    [
        (Assignments, "_scan", "scan"),
        *further(
            (Mover, "_write", ""),
            (Scanner, "scan", "scan"),
            (_Watch, "put", "watch"),
            (Scanner, "look_into", "look into"),
            (LeaseObserver, "relist", "lease observer"),
        ),
    ],
)
@virtual_time
async def test_a_crash_costs_its_own_resource_of_its_own_ring_only_and_that_goes_on_when_it_is_over(
    owner: type, method: str, part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with SimulatedCluster() as world:
        await world.install(definition("others", "Other"))
        await world.make_ring(resources=[MAIN, OTHERS], selector=LabelSelector(match_labels={"mine": "yes"}))
        await label(world, "team")
        for number in range(3):
            world.shard(f"s{number}", Touch())
        sharder = world.sharder("x0", webhook=False)
        await world.make_things(10)
        await world.until(lambda: world.all_owned("s0", "s1", "s2"), within=60)
        await asyncio.sleep(60)
        broken = fail_for_others(owner, method, monkeypatch)
        async with world.admin() as client:
            await client.create(Namespace(metadata=ObjectMeta(name="new")))
            for namespace in ("team", "new"):
                await client.create(Other(metadata=ObjectMeta(name="o", namespace=namespace)))
        await label(world, "new")
        for network in sharder.networks:
            network.abort()  # watches are opened again, and scans follow
        await asyncio.sleep(30)
        world.processes["s0"].kill()
        await world.until(lambda: "s0" not in world.owners().values(), within=PARITY)
        await asyncio.sleep(60)
        assert not sharder.dead
        assert broken.raised >= 1
        broken.now = False
        await world.until(lambda: all_placed(world), within=BOUND + WORKING)
        if part:
            assert counted(sharder, part) == broken.raised
        assert len([record for record in caplog.records if "Deliberate" in str(record.exc_info)]) <= 2


async def label(world: SimulatedCluster, namespace: str) -> None:
    async with world.admin() as client:
        await client.patch(Namespace, namespace, "", MergePatch({"metadata": {"labels": {"mine": "yes"}}}))


class Broken:
    def __init__(self) -> None:
        self.now = True
        self.raised = 0


class Deliberate(Exception):
    """A bug."""


def fail_for_others(owner: type, method: str, monkeypatch: pytest.MonkeyPatch) -> Broken:
    broken, inner = Broken(), getattr(owner, method)

    async def fails(*args: Any, **kwargs: Any) -> Any:
        if broken.now and sync_of(args) == "others":
            broken.raised += 1
            raise Deliberate
        return await inner(*args, **kwargs)

    monkeypatch.setattr(owner, method, fails)
    return broken


def all_placed(world: SimulatedCluster) -> bool:
    return all(world.owners(resource="others", namespace=namespace).get("o") for namespace in ("team", "new"))


def counted(sharder: Any, part: str) -> float:
    registry = sharder.manager.metrics.registry
    return sum(
        sample.value
        for family in registry.collect()
        if family.name == "controller_sharding_crashes"
        for sample in family.samples
        if sample.name.endswith("_total") and sample.labels["part"].endswith(part)
    )
