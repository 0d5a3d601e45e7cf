"""Clusters over real connections: home is each kind of API server, the others are an embedded one and addresses where
nothing responds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from kubeshard import when
from kubeshard.client import Client, ClusterConfig
from kubeshard.client.config import BearerToken
from kubeshard.controller import Context, Controller, Watch
from kubeshard.core import EVERY_CLUSTER, OTHER_CLUSTERS, ConfigMap, Lease, MergePatch, Namespace, ObjectMeta
from kubeshard.core.selectors import LabelSelector
from kubeshard.manager import Manager
from kubeshard.shard import DeclaredRing, Ranges, Sharding
from kubeshard.sharding.names import shard_label
from kubeshard_apiserver.testing.kube_api import EmbeddedApi


@pytest.fixture
def eu() -> Iterator[EmbeddedApi]:
    api = EmbeddedApi(controllers=False, pods=False)
    yield api
    api.stop()


@asynccontextmanager
async def running(manager: Manager) -> AsyncIterator[Manager]:
    task = asyncio.create_task(manager.run())
    try:
        yield manager
    finally:
        manager.stop()
        await asyncio.wait([task])
    await task


async def until(holds: Callable[[], Awaitable[object]], within: float = 30.0) -> None:
    async with asyncio.timeout(within):
        while not await holds():  # noqa: ASYNC110 - several servers, and the manager itself, are asked
            await asyncio.sleep(0.05)


def parent(namespace: str, name: str = "parent", **labels: str) -> ConfigMap:
    metadata = ObjectMeta(name=name, namespace=namespace, labels={"role": "parent", **labels})
    return ConfigMap(metadata=metadata, data={"words": "hello"})


async def answer(ctx: Context, obj: ConfigMap) -> None:
    data = {"words": (obj.data or {})["words"].upper(), "cluster": ctx.cluster}
    await ctx.apply(
        ConfigMap(metadata=ObjectMeta(name="answer", namespace=obj.metadata.namespace), data=data)
    )


async def test_clusters_work_beside_others_that_are_down_or_refuse_us_and_each_is_lost_alone(
    kube_client: Client, namespace: str
) -> None:
    controller = Controller(
        name="answers",
        reconciler=answer,
        primary=Watch(ConfigMap, when=when.label_selector("role=parent")),
        applies=[ConfigMap],
        clusters=EVERY_CLUSTER,
    )
    eu = EmbeddedApi(controllers=False, pods=False)
    with ExitStack() as serving:
        serving.callback(eu.stop)
        there = eu.client()
        config = there.config
        clusters = {
            "eu": config,
            "down": ClusterConfig("https://127.0.0.1:1"),
            "refused": replace(
                config, auth=BearerToken("wrong"), tls=replace(config.tls, certificate=None, key=None)
            ),
        }
        await there.create(Namespace(metadata=ObjectMeta(name=namespace)))
        places = {"": kube_client, "eu": there}
        for client in places.values():
            await client.create(parent(namespace))

        async def answered() -> bool:
            found = [
                [
                    each.data
                    async for each in client.list(ConfigMap, namespace)
                    if each.metadata.name == "answer"
                ]
                for client in places.values()
            ]
            return found == [[{"words": "HELLO", "cluster": name}] for name in places]

        manager = Manager([controller], client=kube_client, clusters=clusters, status_pages=None)
        async with running(manager):
            await until(answered)

            async def told() -> bool:
                states = {each.name: each.state for each in manager.snapshot().clusters}
                return states == {"eu": "up", "down": "unavailable", "refused": "refused"}

            await until(told)
            serving.close()
            patch = MergePatch({"data": {"words": "still here"}})
            await kube_client.patch(ConfigMap, "parent", namespace, patch)

            async def at_home() -> bool:
                found = await kube_client.get(ConfigMap, "answer", namespace)
                return found.data == {"words": "STILL HERE", "cluster": ""}

            await until(at_home)


async def test_a_ring_has_its_leases_at_home_and_its_objects_elsewhere(
    kube_client: Client, namespace: str, eu: EmbeddedApi
) -> None:
    ring, label = f"ring-{namespace}", shard_label(f"ring-{namespace}")
    selector = LabelSelector(match_labels={"kubernetes.io/metadata.name": namespace})

    async def nothing(ctx: Context, obj: ConfigMap) -> None: ...

    def shard(name: str, config: ClusterConfig) -> Manager:
        objects = Controller(
            name="objects", reconciler=nothing, primary=Watch(ConfigMap, sharded=True), clusters=["work"]
        )
        sharding = Sharding(
            DeclaredRing(ring, namespace_selector=selector), name, namespace, mode="both", objects_in="work"
        )
        options: dict[str, Any] = {"status_pages": None}
        return Manager([objects], client=kube_client, clusters={"work": config}, sharding=sharding, **options)

    async with eu.client() as there:
        await there.create(Namespace(metadata=ObjectMeta(name=namespace)))
        for number in range(12):
            await there.create(parent(namespace, f"object-{number}"))

        async def owners() -> set[str]:
            return {each.metadata.label(label) async for each in there.list(ConfigMap, namespace)}

        async def shared() -> bool:
            return await owners() == {"a", "b"}

        async def alone() -> bool:
            return await owners() == {"a"}

        async with running(shard("a", there.config)):
            async with running(shard("b", there.config)):
                await until(shared)
                leases = {each.metadata.name async for each in kube_client.list(Lease, namespace)}
                assert {"a", "b", f"sharder-{ring}"} <= leases
                assert not [each async for each in there.list(Lease, namespace)]
            await until(alone)


async def test_shards_share_out_clusters_and_one_that_is_down_is_in_nobodys_way(
    kube_client: Client, namespace: str
) -> None:
    names = ("asia", "eu", "us")
    answers = Controller(
        name="answers",
        reconciler=answer,
        primary=Watch(ConfigMap, when=when.label_selector("role=parent")),
        applies=[ConfigMap],
        clusters=OTHER_CLUSTERS,
    )
    async with AsyncExitStack() as serving:
        clusters: dict[str, ClusterConfig] = {"down": ClusterConfig("https://127.0.0.1:1")}
        places: dict[str, Client] = {}
        for name in names:
            api = EmbeddedApi(controllers=False, pods=False)
            serving.callback(api.stop)
            places[name] = client = await serving.enter_async_context(api.client())
            clusters[name] = client.config
            await client.create(Namespace(metadata=ObjectMeta(name=namespace)))
            await client.create(parent(namespace))

        def shard(name: str) -> Manager:
            ranges = Ranges(by="cluster")
            sharding = Sharding(f"ring-{namespace}", name, namespace, mode="both", delivery=ranges)
            options: dict[str, Any] = {"status_pages": None}
            return Manager([answers], client=kube_client, clusters=clusters, sharding=sharding, **options)

        async def says(words: str) -> bool:
            wanted = {"words": words}
            found = {
                name: [
                    each.data
                    async for each in client.list(ConfigMap, namespace)
                    if each.metadata.name == "answer"
                ]
                for name, client in places.items()
            }
            return found == {name: [{**wanted, "cluster": name}] for name in names}

        def of(manager: Manager) -> set[str]:
            return {each.name for each in manager.snapshot().clusters}

        async with running(shard("a")) as first:
            async with running(shard("b")) as second:

                async def shared() -> bool:
                    return len(of(first)) == len(of(second)) == 2 and of(first) | of(second) == {*clusters}

                await until(shared)
                await until(lambda: says("HELLO"))

            async def alone() -> bool:
                return of(first) == {*clusters}

            await until(alone)
            for client in places.values():
                patch = MergePatch({"data": {"words": "again"}})
                await client.patch(ConfigMap, "parent", namespace, patch)
            await until(lambda: says("AGAIN"))
        assert not [each async for each in places["eu"].list(Lease, namespace)]
