"""Kubernetes Events report what happens to the shards of a ring, and nothing waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest

from kubeshard.controller.event_series import IDLE
from kubeshard.controller.events import SERIES_CHECK_INTERVAL
from kubeshard.core import ConfigMap, Lease, ObjectMeta
from kubeshard.sharding.names import RING_LABEL
from kubeshard_lab.simulation.cluster import SimulatedCluster, Touch
from kubeshard_lab.virtual_time import virtual_time
from scenes import begin, refuse, shard_by_ranges


def told(world: SimulatedCluster, kind: str = "ControllerRing") -> list[dict[str, Any]]:
    """Returns the Events about objects of the kind."""
    events = world.objects("events.k8s.io", "events").values()
    return [event for event in events if event["regarding"]["kind"] == kind]


def about(world: SimulatedCluster, shard: str, kind: str = "ControllerRing") -> Counter[tuple[str, str]]:
    of = "related" if kind == "ControllerRing" else "regarding"
    return Counter(
        (event["type"], event["reason"])
        for event in told(world, kind)
        if event.get(of, {}).get("name") == shard
    )


@virtual_time
async def test_the_ring_tells_of_shards_that_join_leave_and_die() -> None:
    async with SimulatedCluster() as world:
        await begin(world)
        assert about(world, "s0") == {("Normal", "ShardJoined"): 1}
        await world.processes["s0"].stop()
        await asyncio.sleep(30)
        assert about(world, "s0") == {("Normal", "ShardJoined"): 1, ("Normal", "ShardLeft"): 1}
        world.processes["s1"].kill()
        await asyncio.sleep(60)
        assert about(world, "s1") == {("Normal", "ShardJoined"): 1, ("Warning", "ShardTakenOver"): 1}
        (taken,) = (event for event in told(world) if event["reason"] == "ShardTakenOver")
        assert (
            "its watchdog did 10 s after the last renewal: exit code 137 with the reason Error"
            in taken["note"]
        )
        assert about(world, "s1", "Lease") == {("Warning", "ShardExpired"): 1}
        none = [event for event in told(world) if event["reason"] == "NoShardAvailable"]
        assert [event["type"] for event in none] == ["Warning"]


@virtual_time
async def test_a_ring_without_a_controllerring_tells_its_problems_of_what_it_has_instead() -> None:
    async with SimulatedCluster() as world:
        await world.install()
        shard_by_ranges(world, "s0", "r")
        world.shard("t0", Touch(), sharding={"mode": "both", "ring": "t"})
        await asyncio.sleep(10)
        async with world.admin("home") as client:
            await client.delete(ConfigMap, "ranges-r", "ops")
            await client.create(
                Lease(metadata=ObjectMeta(name="t0", namespace="team", labels={RING_LABEL: "t"}))
            )
        await asyncio.sleep(20)
        assert about(world, "ranges-r", "ConfigMap") == {("Warning", "AssignmentUnusable"): 1}
        assert about(world, "sharder-t", "Lease")["Warning", "ShardsRefused"] == 1


@pytest.mark.nightly
@virtual_time
async def test_what_happens_to_a_shard_over_and_over_is_one_event_with_a_count() -> None:
    async with SimulatedCluster() as world:
        await begin(world)
        for _ in range(4):
            await world.processes["s0"].stop()
            await asyncio.sleep(20)
            world.shard("s0", Touch())
            await asyncio.sleep(20)
        await asyncio.sleep(IDLE + SERIES_CHECK_INTERVAL + 10)
        (joined,) = (e for e in told(world) if e["reason"] == "ShardJoined" and e["related"]["name"] == "s0")
        assert joined["series"]["count"] == 5


@virtual_time
async def test_events_that_are_forbidden_are_one_line_and_hold_up_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        refuse(world.sharder("x0"), "POST", "/events")
        with caplog.at_level(logging.WARNING):
            for name in ("s0", "s1"):
                world.shard(name, Touch())
            await asyncio.sleep(20)
            await world.make_things(4)
            await world.until(lambda: world.all_owned("s0", "s1"), within=30)
            world.processes["s0"].kill()
            await world.until(lambda: world.all_owned("s1"), within=60)
        assert not told(world)
        lines = [record.msg for record in caplog.records if record.name == "kubeshard.events"]
        assert lines == ["Could not send an event"]
