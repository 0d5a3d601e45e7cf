"""Many rings with the same resource cost connections and requests of the resource, not of each ring."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from kubeshard.core import Lease, Namespace, ObjectMeta
from kubeshard.core.builtin import LeaseSpec
from kubeshard.core.selectors import LabelSelector
from kubeshard.core.times import micro_time
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharder.unassigned import APART
from kubeshard.sharding.names import RING_LABEL, shard_label
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

RINGS = 60


async def make_ring(world: SimulatedCluster, name: str) -> None:
    """A ring with two shards and a namespace of its own, which has one object."""
    async with world.admin() as client:
        await client.create(Namespace(metadata=ObjectMeta(name=name, labels={"ring": name})))
        await client.create(Thing(metadata=ObjectMeta(name="before", namespace=name)))
        await world.make_ring(name, selector=LabelSelector(match_labels={"ring": name}))
        for number in range(2):
            shard, now = f"{name}-{number}", micro_time(0.0)
            spec = LeaseSpec(
                holder_identity=shard, lease_duration_seconds=300, acquire_time=now, renew_time=now
            )
            meta = ObjectMeta(name=shard, namespace="ops", labels={RING_LABEL: name})
            await client.create(Lease(metadata=meta, spec=spec))


def served(world: SimulatedCluster, *names: str) -> bool:
    """Whether these objects have a shard in every ring."""
    for (namespace, name), thing in world.objects("sim.example", "things").items():
        if name in names and not (thing["metadata"].get("labels") or {}).get(shard_label(namespace)):
            return False
    return True


@pytest.mark.nightly
@virtual_time
async def test_many_rings_are_all_served_over_a_few_watches_and_without_reading_what_is_of_others() -> None:
    async with SimulatedCluster() as world:
        await world.install()
        names = [f"ring{number}" for number in range(RINGS)]
        for name in names:
            await make_ring(world, name)
        asked: Counter[str] = Counter()

        def note(process: object, request: HttpRequest, answer: HttpResponse | None) -> None:
            if answer is None and "/things" in request.target and request.method == "GET":
                whole = "/namespaces/" not in request.target and "labelSelector=" not in request.target
                asked["watch" if "watch=" in request.target else "whole list" if whole else "part"] += 1
            elif answer is None and "selfsubjectaccessreviews" in request.target:
                asked["question"] += 1

        world.observers.append(note)
        world.sharder("x0", webhook=False)
        await world.until(lambda: served(world, "before"), within=60)
        await asyncio.sleep(20)
        assert asked["watch"] <= APART + 1
        assert asked["whole list"] <= 2
        assert asked["question"] <= 12
        asked.clear()
        async with world.admin() as client:
            for name in names[1:]:
                await client.create(Thing(metadata=ObjectMeta(name="after", namespace=name)))
        await world.until(lambda: served(world, "after"), within=5)
        assert asked["whole list"] == 0
