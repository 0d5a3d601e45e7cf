"""Conflicts that no retry resolves are explained, with the embedded server's rules on virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from controller_bench import Calling

from kubeshard.cache import Scope
from kubeshard.client import Client, ClusterConfig
from kubeshard.controller import Context, Controller, Watch
from kubeshard.controller.dependents import ensure
from kubeshard.core import (
    ConfigMap,
    Conflict,
    FieldConflict,
    ObjectMeta,
    Secret,
    Selector,
)
from kubeshard.manager import Manager
from kubeshard_apiserver import ApiServer, InMemoryTransport
from kubeshard_apiserver.front.handlers import Front
from kubeshard_lab.virtual_time import virtual_time
from kubeshard_lab.virtual_world import virtual_world

pytestmark = pytest.mark.regression


def config(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data=data)


async def reconciled(client: Client, act: Callable[[Context], Awaitable[Any]], **options: Any) -> int:
    """Reconciles one Secret for ten minutes; returns how often."""
    runs = 0

    async def reconcile(ctx: Context, obj: Any) -> None:
        nonlocal runs
        runs += 1
        await act(ctx)

    controller = Controller(
        name="secrets",
        reconciler=Calling(reconcile, None),
        primary=Watch(Secret, scope=Scope(frozenset({"default"}))),
        **options,
    )
    manager = Manager([controller], client=client, status_pages=None)
    run = asyncio.create_task(manager.run())
    await asyncio.sleep(600)
    manager.stop()
    await run
    return runs


def scene(act: Callable[[Context], Awaitable[Any]], before: ConfigMap | None = None, **options: Any) -> None:
    @virtual_time
    async def run() -> None:
        world = virtual_world()
        transport = InMemoryTransport(Front(ApiServer(world=world)))
        async with Client(ClusterConfig("http://sim"), transport=transport, world=world) as client:
            await client.create(Secret(metadata=ObjectMeta(name="s", namespace="default")))
            if before is not None:
                await client.with_field_manager("other").apply(before)
            assert await reconciled(client, act, **options) > 5

    run()


def told(caplog: pytest.LogCaptureFixture, level: int, message: str) -> list[dict[str, Any]]:
    return [
        record.__dict__["fields"]
        for record in caplog.records
        if record.levelno == level and record.msg == message
    ]


def test_fields_of_another_manager_are_an_error_that_names_field_manager_and_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def act(ctx: Context) -> None:
        await ctx.client.apply(config("shared", a="mine", b="mine"))

    scene(act, before=config("shared", a="theirs"))
    error = told(caplog, logging.ERROR, "Reconcile failed")[0]["error"]
    assert isinstance(error, FieldConflict)
    assert ".data.a" in str(error)
    assert '"other"' in str(error)
    assert "leave these fields to them, or apply with force" in str(error)


def test_a_name_taken_by_an_object_that_the_cache_will_never_show_is_told_with_the_missing_labels(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def act(ctx: Context) -> None:
        labelled = ObjectMeta(name="taken", namespace="default", labels={"app": "mine"})
        await ensure(ctx, ConfigMap(metadata=labelled, data={"a": "b"}))

    mine = Scope(labels=Selector.equals("app", "mine"))
    scene(act, before=config("taken", a="theirs"), owns=[Watch(ConfigMap, scope=mine)])
    lines = told(caplog, logging.WARNING, "Reconcile keeps having stale reads")
    assert [line["times"] for line in lines] == [5, 10]
    assert lines[0]["advice"] == (
        "ConfigMap taken exists, but the cache holds only what matches app=mine: give it these labels, delete it, or "
        "choose another name"
    )


def test_a_stale_read_is_quiet_and_the_fifth_in_a_row_is_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def act(ctx: Context) -> None:
        raise Conflict("changed since it was read")

    scene(act)
    lines = told(caplog, logging.WARNING, "Reconcile keeps having stale reads")
    assert [line["times"] for line in lines] == [5, 10]
    assert "resourceVersion" in lines[0]["advice"]
    assert not [record for record in caplog.records if record.levelno > logging.WARNING]


def test_a_name_taken_in_a_kind_that_is_not_cached_is_told_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def act(ctx: Context) -> None:
        labelled = ObjectMeta(name="taken", namespace="default", labels={"app": "mine"})
        await ctx.client.create(ConfigMap(metadata=labelled))

    scene(act, before=config("taken", a="theirs"))
    lines = told(caplog, logging.WARNING, "Reconcile keeps having stale reads")
    assert lines[0]["advice"].startswith("the controller does not cache this kind")
