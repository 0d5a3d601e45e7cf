"""Two controllers that want different things of one object: told with a name, and slowed down."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from app_cluster import App, AppStatus, app, app_cluster

from kubeshard import (
    ConfigMap,
    Context,
    Controller,
    Finalizer,
    Manager,
    MergePatch,
    ObjectMeta,
    Result,
    Watch,
    ensure,
    when,
)
from kubeshard.client import Client, ClusterConfig
from kubeshard.core.conditions import Condition
from kubeshard_apiserver.testing.memory import MemoryApi
from kubeshard_lab.virtual_time import virtual_time

Write = Callable[[Context, App, str], Awaitable[Any]]


def config(version: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name="a", namespace="default"), data={"version": version})


async def ensures(ctx: Context, obj: App, version: str) -> None:
    await ensure(ctx, config(version), owner=obj)


async def states(ctx: Context, obj: App, version: str) -> None:
    await ctx.status(obj, AppStatus(url=version))


async def judges(ctx: Context, obj: App, version: str) -> None:
    """The time of a condition begins anew with each write."""
    ready = Condition(type="Ready", status="True" if version == "v0" else "False", reason="Judged")
    await ctx.status(obj, AppStatus(conditions=[ready]))


@asynccontextmanager
async def two_processes(controller: Callable[[int], Controller[App]]) -> AsyncIterator[None]:
    """Two, each with the controller of its number, and an object that they work on."""
    async with app_cluster() as cluster:
        config = ClusterConfig("http://in-memory")
        transport = MemoryApi(cluster.server).transport()
        async with Client(config, transport=transport, world=cluster.server.world) as other:
            managers = [
                Manager([controller(which)], client=client, status_pages=None)
                for which, client in enumerate((cluster.operator, other))
            ]
            running = [asyncio.create_task(each.run()) for each in managers]
            await asyncio.sleep(1)
            await cluster.client.create(app())
            try:
                yield
            finally:
                for each in running:
                    each.cancel()
                await asyncio.wait(running)


@pytest.mark.parametrize("write", [ensures, states, judges])
@pytest.mark.parametrize("names", [("app", "app"), ("old", "new")], ids=["one name", "two names"])
def test_two_controllers_that_fight_over_an_object_are_slowed_down_and_told(
    write: Write, names: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    runs: Counter[int] = Counter()

    def controller(which: int) -> Controller[App]:
        async def reconcile(ctx: Context, obj: App) -> None:
            runs[which] += 1
            await write(ctx, obj, f"v{which}")

        return Controller(name=names[which], reconciler=reconcile, primary=App, owns=[ConfigMap])

    @virtual_time
    async def check() -> None:
        async with two_processes(controller):
            await asyncio.sleep(600)
            assert max(runs.values()) < 100

    check()
    told = [str(vars(record).get("fields", "")) for record in caplog.records if record.levelname == "WARNING"]
    fought = [each for each in told if "back" in each]
    assert fought
    who = "another process that calls itself app-controller" if names == ("app", "app") else "-controller"
    assert who in fought[0]
    field = {ensures: "/data/version", states: "/status/url", judges: "/status/conditions"}[write]
    assert field in fought[0]


def test_two_processes_of_which_one_fails_do_not_fight_over_the_condition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs: Counter[int] = Counter()

    def controller(which: int) -> Controller[App]:
        async def reconcile(ctx: Context, obj: App) -> None:
            runs[which] += 1
            await asyncio.sleep(0.1)
            if which:
                raise ValueError("of this release only")

        return Controller(name="app", reconciler=reconcile, primary=App, error_condition="Ready")

    @virtual_time
    async def check() -> None:
        async with two_processes(controller):
            await asyncio.sleep(120)

    check()
    assert max(runs.values()) < 100
    assert any("/status/conditions" in str(vars(record).get("fields", "")) for record in caplog.records)


def test_a_finalizer_that_somebody_removes_again_and_again_is_not_fought_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def cleanup(ctx: Context, obj: App) -> None: ...

    async def reconcile(ctx: Context, obj: App) -> None: ...

    @virtual_time
    async def check() -> None:
        async with app_cluster() as cluster:
            await cluster.client.create(app())
            finalizers = [Finalizer("example.com/app", cleanup)]
            controller = Controller(name="app", reconciler=reconcile, primary=App, finalizers=finalizers)
            removed = 0
            async with cluster.running(controller):
                for _ in range(600):
                    await asyncio.sleep(0.1)
                    if (await cluster.client.get(App, "a", "default")).metadata.finalizers:
                        removed += 1
                        patch = MergePatch({"metadata": {"finalizers": None}})
                        await cluster.client.patch(App, "a", "default", patch)
            assert removed < 20

    check()
    assert any("/metadata/finalizers" in str(vars(record).get("fields", "")) for record in caplog.records)


@virtual_time
async def test_a_person_who_changes_a_child_now_and_then_is_corrected_at_once() -> None:
    async def reconcile(ctx: Context, obj: App) -> None:
        await ensures(ctx, obj, "ours")

    async with app_cluster() as cluster:
        await cluster.client.create(app())
        primary = Watch(App, when=when.generation_changed)
        async with cluster.running(
            Controller(name="app", reconciler=reconcile, primary=primary, owns=[ConfigMap])
        ):
            for number in range(8):
                await cluster.client.apply(config(f"theirs {number}"), force=True)
                await asyncio.sleep(1)
                found = await cluster.client.get(ConfigMap, "a", "default")
                assert found.data == {"version": "ours"}


@pytest.mark.parametrize("write", [ensures, states])
@virtual_time
async def test_a_controller_that_changes_its_own_mind_fights_with_nobody(write: Write) -> None:
    versions: list[str] = []

    async def reconcile(ctx: Context, obj: App) -> Result:
        versions.append("idle" if len(versions) % 2 else "busy")
        await write(ctx, obj, versions[-1])
        return Result(requeue_after=5.0)

    async with app_cluster() as cluster:
        await cluster.client.create(app())
        controller = Controller(
            name="app",
            reconciler=reconcile,
            primary=Watch(App, when=when.generation_changed),
            reads=[ConfigMap],
            applies=[ConfigMap],
        )
        async with cluster.running(controller):
            await asyncio.sleep(300)
    assert len(versions) >= 59
