"""Objects in a namespace that is new to a ring are assigned at once, without the webhook, in whatever order the watches
show the namespace and the object.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
from tiers import further

from kubeshard.core import MergePatch, Namespace, ObjectMeta
from kubeshard.core.selectors import LabelSelector
from kubeshard.runtime.transport import HttpRequest, HttpResponse, HttpStream
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch
from kubeshard_lab.simulation.processes import StreamAround
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression


class Late(StreamAround):
    """A stream whose bytes arrive some time after those of others."""

    def __init__(self, inner: HttpStream, seconds: float) -> None:
        super().__init__(inner)
        self._seconds = seconds

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            await asyncio.sleep(self._seconds)
            yield chunk


def late(path: str, seconds: float) -> Callable[[HttpRequest, HttpStream], HttpStream]:
    return lambda request, stream: Late(stream, seconds) if request.target.startswith(path) else stream


def in_(world: SimulatedCluster, namespace: str) -> Callable[[], bool]:
    return lambda: all(world.owners(namespace=namespace).values())


def lists_of_things(world: SimulatedCluster) -> list[str]:
    """Returns the list requests for Things from now on."""
    seen: list[str] = []

    def look(_: object, request: HttpRequest, answer: HttpResponse | None) -> None:
        lists = request.method == "GET" and "/things?" in request.target and "watch=" not in request.target
        if answer is None and lists:
            seen.append(request.target)

    world.observers.append(look)
    return seen


async def quiet(world: SimulatedCluster, selector: LabelSelector | None = None) -> None:
    """A ring of two shards without a webhook, long after everything has settled."""
    await world.install()
    await world.make_ring(selector=selector)
    world.sharder("x0", webhook=False)
    for name in ("s0", "s1"):
        world.shard(name, Touch())
    await asyncio.sleep(60)


async def make(world: SimulatedCluster, namespace: str, labels: Mapping[str, str] | None = None) -> None:
    async with world.admin() as client:
        await client.create(Namespace(metadata=ObjectMeta(name=namespace, labels=labels)))
        await client.create(Thing(metadata=ObjectMeta(name="a", namespace=namespace)))


@pytest.mark.parametrize("slow", ["/api/v1/namespaces?", "/apis/sim.example/v1/things?"])
@virtual_time
async def test_an_object_created_with_its_namespace_is_assigned_whichever_watch_is_late(slow: str) -> None:
    async with SimulatedCluster() as world:
        await quiet(world)
        for network in world.processes["x0"].networks:
            network.through = late(slow, 0.3)
        for process in world.processes.values():
            for network in process.networks:
                network.abort()  # so that the watches are reopened through the delaying stream
        await asyncio.sleep(40)
        await make(world, "fresh")
        await world.until(in_(world, "fresh"), within=2)


@pytest.mark.nightly
@pytest.mark.parametrize("slow", ["/api/v1/namespaces?", *further("/apis/sim.example/v1/")])
@virtual_time
async def test_an_object_of_one_of_few_selected_namespaces_among_many_is_assigned_whichever_watch_is_late(
    slow: str,
) -> None:
    """Such a ring reads the objects of these namespaces only."""
    async with SimulatedCluster() as world:
        await quiet(world, LabelSelector(match_labels={"team": "yes"}))
        async with world.admin() as client:
            for number in range(60):
                await client.create(Namespace(metadata=ObjectMeta(name=f"other{number}")))
        await make(world, "mine", {"team": "yes"})
        await asyncio.sleep(400)
        assert all(world.owners(namespace="mine").values())
        for network in world.processes["x0"].networks:
            network.through = late(slow, 0.3)
        for process in world.processes.values():
            for network in process.networks:
                network.abort()
        await asyncio.sleep(40)
        await make(world, "fresh", {"team": "yes"})
        await world.until(in_(world, "fresh"), within=3)


@virtual_time
async def test_many_namespaces_with_objects_are_all_noticed_and_cost_no_full_pass_each() -> None:
    async with SimulatedCluster(seed=3) as world:
        await quiet(world)
        lists = lists_of_things(world)
        for number in range(40):
            await make(world, f"fresh{number}")
            await world.until(in_(world, f"fresh{number}"), within=2, step=0.05)
        assert len(lists) <= 40
        assert all("/namespaces/fresh" in target for target in lists)


@pytest.mark.nightly
@virtual_time
async def test_namespaces_without_objects_cost_nothing() -> None:
    async with SimulatedCluster() as world:
        await quiet(world)
        lists = lists_of_things(world)
        async with world.admin() as client:
            for number in range(40):
                await client.create(Namespace(metadata=ObjectMeta(name=f"empty{number}")))
        await asyncio.sleep(5)
        assert lists == []


@virtual_time
async def test_namespaces_that_appear_together_are_looked_at_together() -> None:
    async with SimulatedCluster() as world:
        await quiet(world)
        for network in world.processes["x0"].networks:
            network.through = late("/api/v1/namespaces?", 0.3)
            network.abort()
        await asyncio.sleep(40)
        lists = lists_of_things(world)
        for number in range(40):
            await make(world, f"fresh{number}")
        for number in range(40):
            await world.until(in_(world, f"fresh{number}"), within=30)
        assert len(lists) <= 20


@pytest.mark.quick
@virtual_time
async def test_objects_of_a_namespace_whose_labels_begin_to_match_are_assigned() -> None:
    async with SimulatedCluster() as world:
        await quiet(world, LabelSelector(match_labels={"team": "yes"}))
        await make(world, "other", {"team": "no"})
        await asyncio.sleep(5)
        assert not any(world.owners(namespace="other").values())
        async with world.admin() as client:
            await client.patch(Namespace, "other", "", MergePatch({"metadata": {"labels": {"team": "yes"}}}))
        await world.until(in_(world, "other"), within=2)
