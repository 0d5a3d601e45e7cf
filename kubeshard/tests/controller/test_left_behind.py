"""A member of a set that the garbage collector will not delete: told once, with the line to write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from app_cluster import App, app, app_cluster

from kubeshard import ConfigMap, Context, Controller, Finalizer, ObjectMeta
from kubeshard.core import Namespace
from kubeshard_lab.virtual_time import virtual_time


async def own_cleanup(ctx: Context, obj: App) -> None: ...


@pytest.mark.parametrize(
    ("finalizers", "set_", "told"),
    [
        ([], "", True),
        ([], "previews", True),
        ([Finalizer.deleting_members("example.com/members")], "", False),
        ([Finalizer.deleting_members("example.com/members")], "previews", True),
        ([Finalizer.deleting_members("example.com/members", "", "previews")], "previews", False),
        ([Finalizer("example.com/own", own_cleanup)], "", False),
    ],
)
def test_a_member_that_is_left_behind_is_told_once_for_each_controller(
    finalizers: Any, set_: str, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def reconcile(ctx: Context, obj: App) -> None:
        near = ConfigMap(metadata=ObjectMeta(name=obj.metadata.name, namespace="default"))
        await ctx.apply(near, Namespace(metadata=ObjectMeta(name=f"preview-{obj.metadata.name}")), set=set_)

    @virtual_time
    async def check() -> None:
        async with app_cluster() as cluster:
            for name in ("a", "b"):
                await cluster.client.create(app(name))
            controller = Controller(
                name="app",
                reconciler=reconcile,
                primary=App,
                applies=[ConfigMap, Namespace],
                finalizers=finalizers,
            )
            async with cluster.running(controller):
                await asyncio.sleep(5)

    check()
    lines = [vars(record)["fields"] for record in caplog.records if "left behind" in record.message]
    assert len(lines) == told
    if told:
        names = f', "{set_}"' if set_ else ""
        line = f'finalizers=[Finalizer.deleting_members("example.com/members"{names})]'
        assert lines[0]["advice"] == f"give the controller {line}"
