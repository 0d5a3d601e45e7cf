"""Whose objects are, as it is shown to those who judge a ring."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from kubeshard.core.objects import Key
from kubeshard.shard.settings import Ranges
from kubeshard.sharding.assignment import Assignment, Place
from kubeshard.sharding.names import assignment_name, shard_label
from kubeshard_apiserver.states import Objects
from kubeshard_lab.simulation.cluster import SimulatedCluster, simulate
from kubeshard_lab.simulation.deliveries import CHILDREN


def owner_of(world: SimulatedCluster, obj: Any) -> str:
    return str((obj["metadata"].get("labels") or {}).get(shard_label(world.ring), ""))


def test_a_change_of_the_assignment_looks_at_objects_only_if_somebody_asks_which_have_moved() -> None:
    async def scene() -> None:
        ranges = Ranges()
        async with SimulatedCluster(ranges=ranges) as world:
            await world.install()
            await world.make_things(3)
            store, buckets = world.server.store, ranges.divided
            given = Assignment.of(buckets, {bucket: Place("s0", "", 1) for bucket in range(buckets.count)})
            name = assignment_name(world.ring)
            obj = {"metadata": {"name": name, "namespace": "ops"}, "data": given.data()}
            with patch.object(Objects, "__getitem__", side_effect=AssertionError("an object was looked at")):
                store.put(CHILDREN, Key("ops", name), obj)
            moved = {event.key.name: event for _, event in world.delivery.changes(store, CHILDREN)}
            assert sorted(moved) == ["t0", "t1", "t2"]
            shards = [[owner_of(world, each) for each in (event.old, event.new)] for event in moved.values()]
            assert shards == [["", "s0"]] * 3

    simulate(scene)
