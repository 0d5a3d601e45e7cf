"""Generators: whatever they yield exists because of the object, and as long as the object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from app_cluster import RESYNC, App, AppCluster, AppStatus, app, app_cluster

from kubeshard import ALL, ConfigMap, Context, Controller, Generator, KubeObject, ObjectMeta, Watch
from kubeshard.controller import Applied
from kubeshard.core import MergePatch, Namespace
from kubeshard_apiserver.controllers import Controllers
from kubeshard_lab.virtual_time import virtual_time


def config(name: str, namespace: str = "default", **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data=data)


class Sized:
    """Yields as many ConfigMaps as the object's size; `act` is raised after the first."""

    def __init__(self, namespace: str = "default") -> None:
        self.namespace = namespace
        self.act: Exception | None = None
        self.runs = 0

    async def __call__(self, ctx: Context, obj: App) -> list[KubeObject]:
        return [each async for each in self.yielded(ctx, obj)]

    async def yielded(self, ctx: Context, obj: App) -> AsyncIterator[KubeObject]:
        self.runs += 1
        for number in range(obj.spec.size):
            yield config(f"{obj.metadata.name}-{number}", self.namespace, size=str(obj.spec.size))
            if self.act is not None:
                raise self.act


def controller(generator: Generator[App], **options: Any) -> Controller[App]:
    primary = Watch(App, resync=RESYNC)
    return Controller(name="app", reconciler=generator, primary=primary, applies=[ConfigMap], **options)


async def configs(cluster: AppCluster) -> dict[str, str]:
    found = await cluster.client.list_all(ConfigMap, ALL)
    return {
        each.metadata.name: (each.data or {}).get("size", "")
        for each in found
        if each.metadata.name[:2] == "a-"
    }


async def resize(cluster: AppCluster, size: int) -> None:
    await cluster.client.patch(App, "a", "default", MergePatch({"spec": {"size": size}}))
    await asyncio.sleep(5)


@pytest.mark.parametrize("way", ["yields", "returns"])
def test_what_is_generated_exists_and_nothing_else_does(way: str) -> None:
    @virtual_time
    async def check() -> None:
        async with app_cluster() as cluster:
            sized = Sized()
            generator = Generator(sized.yielded if way == "yields" else sized)
            await cluster.client.create(app())
            async with cluster.running(controller(generator)):
                assert await configs(cluster) == {}
                await resize(cluster, 3)
                assert await configs(cluster) == {"a-0": "3", "a-1": "3", "a-2": "3"}
                await resize(cluster, 1)
                assert await configs(cluster) == {"a-0": "1"}
                await cluster.client.delete(ConfigMap, "a-0", "default")
                await asyncio.sleep(5)
                assert await configs(cluster) == {"a-0": "1"}
                await resize(cluster, 0)
                assert await configs(cluster) == {}

    check()


@virtual_time
async def test_a_function_that_raises_half_way_changes_nothing() -> None:
    async with app_cluster() as cluster:
        sized = Sized()
        await cluster.client.create(app())
        async with cluster.running(controller(Generator(sized.yielded))):
            await resize(cluster, 2)
            sized.act = OSError("no route")
            await resize(cluster, 3)
            assert await configs(cluster) == {"a-0": "2", "a-1": "2"}
            sized.act = None
            await asyncio.sleep(60)
            assert len(await configs(cluster)) == 3


@virtual_time
async def test_a_function_that_returns_none_is_an_error_and_deletes_nothing() -> None:
    async with app_cluster() as cluster:

        async def forgets(ctx: Context, obj: App) -> Iterable[KubeObject]:
            return [config("a-0", size="1")] if obj.spec.size else None  # type: ignore[return-value]

        await cluster.client.create(app())
        async with cluster.running(controller(Generator(forgets))):
            await resize(cluster, 1)
            await resize(cluster, 0)
            assert await configs(cluster) == {"a-0": "1"}


@virtual_time
async def test_what_comes_after_hears_of_the_objects_as_they_are() -> None:
    async with app_cluster() as cluster:

        async def tell(ctx: Context, obj: App, applied: Applied) -> None:
            await ctx.status(obj, AppStatus(size=len(applied.objects)))

        await cluster.client.create(app())
        async with cluster.running(controller(Generator(Sized(), then=tell))):
            await resize(cluster, 2)
            assert (await cluster.status()).size == 2


@virtual_time
async def test_objects_in_the_namespace_go_with_the_owner() -> None:
    async with app_cluster() as cluster:
        await cluster.client.create(app())
        async with cluster.running(controller(Generator(Sized()))), Controllers(cluster.server):
            await resize(cluster, 2)
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(30)
            assert await configs(cluster) == {}


@virtual_time
async def test_objects_elsewhere_go_before_the_owner_by_its_finalizer() -> None:
    async with app_cluster() as cluster:
        await cluster.client.create(Namespace(metadata=ObjectMeta(name="far")))
        generator = Generator(Sized("far"))
        finalizer = generator.cleanup("example.com/generated")
        await cluster.client.create(app())
        async with cluster.running(controller(generator, finalizers=[finalizer])):
            await resize(cluster, 2)
            assert len(await configs(cluster)) == 2
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(5)
            assert await configs(cluster) == {}
            assert await cluster.get() is None


@virtual_time
async def test_what_is_as_generated_costs_no_request() -> None:
    async with app_cluster() as cluster:
        sized = Sized()
        await cluster.client.create(app())
        async with cluster.running(controller(Generator(sized))):
            await resize(cluster, 3)
            runs = sized.runs
            before = len(cluster.recording.requests)
            await asyncio.sleep(RESYNC * 1.2)
            assert sized.runs > runs
            assert not [each for each in cluster.recording.requests[before:] if each.method != "GET"]


def test_a_generator_of_other_arguments_is_refused_where_it_is_declared() -> None:
    async def of_nothing() -> list[KubeObject]:
        return []

    with pytest.raises(TypeError, match=r"of_nothing.* takes other arguments than \(ctx, obj\)"):
        Generator(of_nothing)  # type: ignore[arg-type]
