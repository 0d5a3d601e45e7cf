"""Statuses and finalizers of a shard: each write proves that the object still belongs to the shard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from app_cluster import App, AppCluster, AppStatus, Recording, app, app_cluster

from kubeshard import Condition, Context, Controller, Finalizer
from kubeshard.client import Client, ClusterConfig
from kubeshard.client.label_fence import LabelFence
from kubeshard.core import MergePatch, ObjectMeta
from kubeshard.core.kinds import Kind
from kubeshard_lab.virtual_time import virtual_time

LABEL, MINE, BUCKET = "shard.example.com/ring", "me", "example.com/bucket"


class Fence(LabelFence):
    label_key, shard = LABEL, MINE

    def covers(self, kind: Kind) -> bool:
        return kind == App.KIND

    def by_label(self, kind: Kind, meta: ObjectMeta) -> bool:
        return True

    def stamps(self, kind: Kind, meta: ObjectMeta) -> bool:
        return False

    def check(self) -> None: ...


@asynccontextmanager
async def fenced_cluster() -> AsyncIterator[AppCluster]:
    async with app_cluster() as cluster:
        recording = Recording(cluster.recording)
        config = ClusterConfig("http://in-memory")
        async with Client(config, transport=recording, world=cluster.operator.world) as client:
            yield AppCluster(cluster.server, cluster.client, client.fenced(Fence()), recording)


async def give_to(cluster: AppCluster, shard: str) -> None:
    await cluster.client.patch(App, "a", "default", MergePatch({"metadata": {"labels": {LABEL: shard}}}))


@virtual_time
async def test_a_status_an_error_and_a_finalizer_of_an_own_object_are_written() -> None:
    async with fenced_cluster() as cluster:
        fails = True
        cleaned: list[str] = []

        async def reconcile(ctx: Context, obj: App) -> None:
            if fails:
                raise OSError("no route")
            await ctx.status(
                obj, AppStatus(url="u", conditions=(Condition(type="Up", status="True", reason="R"),))
            )

        async def clean(ctx: Context, obj: App) -> None:
            cleaned.append(obj.metadata.name)

        await cluster.client.create(app(labels={LABEL: MINE}))
        controller = Controller(
            name="app",
            reconciler=reconcile,
            primary=App,
            error_condition="Ready",
            finalizers=[Finalizer(BUCKET, clean)],
        )
        async with cluster.running(controller):
            ready = await cluster.condition()
            assert ready is not None
            assert (ready.status, ready.reason) == ("False", "OSError")
            fails = False
            await asyncio.sleep(60)
            ready, up = await cluster.condition(), await cluster.condition("Up")
            assert ready is not None
            assert up is not None
            assert (ready.status, up.status, (await cluster.status()).url) == ("True", "True", "u")
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(5)
            assert cleaned == ["a"]
            assert await cluster.get() is None


@virtual_time
async def test_what_became_anothers_during_the_run_is_not_written_and_no_failure_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fenced_cluster() as cluster:

        async def reconcile(ctx: Context, obj: App) -> None:
            await give_to(cluster, "another")
            await ctx.status(obj, AppStatus(url="u"))

        await cluster.client.create(app(labels={LABEL: MINE}))
        controller = Controller(name="app", reconciler=reconcile, primary=App, error_condition="Ready")
        async with cluster.running(controller):
            await asyncio.sleep(60)
            status = await cluster.status()
            assert (status.url, status.conditions) == (None, ())
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@virtual_time
async def test_anothers_object_gets_no_finalizer() -> None:
    async with fenced_cluster() as cluster:
        made: list[str] = []

        async def reconcile(ctx: Context, obj: App) -> None:
            made.append(obj.metadata.name)

        async def clean(ctx: Context, obj: App) -> None: ...

        await cluster.client.create(app(labels={LABEL: "another"}))
        controller = Controller(
            name="app", reconciler=reconcile, primary=App, finalizers=[Finalizer(BUCKET, clean)]
        )
        async with cluster.running(controller):
            found = await cluster.get()
            assert found is not None
            assert (found.metadata.finalizers, made) == ((), [])
