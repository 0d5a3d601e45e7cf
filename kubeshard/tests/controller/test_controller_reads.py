"""A read reports an object as absent only if the cache would show it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from app_cluster import App, app, app_cluster
from controller_bench import Bench, Site, Theme, child, json_answer, site

from kubeshard.cache import CacheBehind, Scope, UndeclaredIndex
from kubeshard.controller import Context, Controller, Watch
from kubeshard.controller.context import run_of, with_run
from kubeshard.controller.dependents import ensure
from kubeshard.core import ConfigMap, KubeObject, MergePatch, ObjectMeta, Secret, Selector
from kubeshard.core.namespaces import ALL, WrongNamespace
from kubeshard.listwatch.state_machine import Listed
from kubeshard_lab.virtual_time import settle, virtual_time

pytestmark = pytest.mark.regression

THEME = Theme(metadata=site("t", namespace="").metadata)


def raised_by(
    act: Callable[[Context], Awaitable[Any]], *objects: KubeObject, **options: Any
) -> tuple[BaseException | None, list[str]]:
    """Returns what one run of `act` raised, and the results of all runs within an hour."""
    errors: list[BaseException | None] = []
    labels: list[str] = []

    @virtual_time
    async def run() -> None:
        async def reconcile(ctx: Context, obj: Any) -> None:
            try:
                await act(ctx)
            except Exception as error:
                errors.append(error)
                raise

        async with Bench(reconcile, **options).running(*objects) as bench:
            await asyncio.sleep(3600)
            labels.extend(bench.recorded.labels)

    run()
    return (errors[0] if errors else None), labels


CLUSTER_SCOPED: dict[str, Any] = {"primary": Theme, "reads": [ConfigMap]}


@pytest.mark.parametrize(
    "act",
    [
        lambda ctx: ctx.get(ConfigMap, "c"),
        lambda ctx: ctx.get(ConfigMap, "c", ""),
        lambda ctx: with_run(ctx, run_of(ctx).reading_live()).get(ConfigMap, "c"),
    ],
    ids=["default", "empty", "live"],
)
def test_a_child_of_a_cluster_scoped_object_is_not_read_without_its_namespace(
    act: Callable[[Context], Awaitable[Any]],
) -> None:
    error, labels = raised_by(act, THEME, **CLUSTER_SCOPED)
    assert isinstance(error, WrongNamespace)
    assert str(error) == "ConfigMap.v1 has namespaces: say in which one 'c' is"
    assert labels == ["error"]  # a retry cannot fix it


def test_a_list_of_all_namespaces_is_said_on_purpose() -> None:
    assert raised_by(lambda ctx: ctx.list(ConfigMap, ALL), THEME, **CLUSTER_SCOPED) == (None, ["success"])
    for namespace in (None, ""):
        error, _ = raised_by(partial(_lists, namespace), THEME, **CLUSTER_SCOPED)
        assert str(error) == "ConfigMap.v1 has namespaces: say which one, or ALL"


def _lists(namespace: str | None, ctx: Context) -> Awaitable[Any]:
    return ctx.list(ConfigMap, namespace)


@pytest.mark.parametrize("live", [False, True], ids=["cached", "live"])
def test_an_index_that_nobody_declared_is_named(live: bool) -> None:
    async def act(ctx: Context) -> Any:
        reading = with_run(ctx, run_of(ctx).reading_live()) if live else ctx
        return await reading.list(Site, "ns", index=("theme", "dark"))

    error, labels = raised_by(act, site("a"))
    assert isinstance(error, UndeclaredIndex)
    assert str(error).startswith(
        "Site.v1.example.com: there is no index 'theme': declare it with `indexes=[Index("
    )
    assert labels == ["error"]


@virtual_time
async def test_a_cache_that_is_not_filled_is_waited_for_and_then_an_error_never_an_absent_object() -> None:
    found: list[Any] = []

    async def reconcile(ctx: Context, obj: Any) -> None:
        try:
            found.append(await ctx.get(Secret, "s"))
        except CacheBehind as error:
            found.append(error)

    bench = Bench(reconcile)
    async with bench.running():
        late = bench.cache.declare(Secret)  # a kind that another controller declares late
        await bench.put(site("a"))
        await asyncio.sleep(4)
        assert found == []
        await asyncio.sleep(2)
        assert "the cache of Secret.v1 has not been filled yet" in str(found[0])
        await bench.put(site("b"))
        await late.listed(Listed("1"), {}, "")
        await settle()
        assert found[1:] == [None]
        bench.cache.declare(ConfigMap)
        with pytest.raises(CacheBehind):
            bench.runner.reader.get(ConfigMap, "c", "ns")


MINE = Scope(labels=Selector.parse("app=mine"))


@pytest.mark.parametrize("listed", [False, True], ids=["never listed", "behind since its list"])
@virtual_time
async def test_what_a_run_wrote_is_not_remembered_for_a_cache_that_only_another_controller_reads(
    listed: bool,
) -> None:
    remembered: list[int] = []

    def written(obj: KubeObject) -> ConfigMap:
        number = obj.metadata.generation
        return child(f"c{number}", version=100 + (number or 0), labels={"app": "mine"})

    async def reconcile(ctx: Context, obj: Any) -> None:
        remembered.append(sum(map(len, run_of(ctx).writes.pending.values())))
        metadata = ObjectMeta(name=f"c{obj.metadata.generation}", namespace="ns", labels={"app": "mine"})
        await ctx.client.create(ConfigMap(metadata=metadata))

    async with Bench(
        reconcile, owns=[ConfigMap], answer=lambda _: json_answer(written(newest), 201)
    ).running() as bench:
        others = bench.cache.declare(ConfigMap, MINE)
        if listed:
            await others.listed(Listed("1"), {}, "")
        own = bench.runner.reader.informer(ConfigMap)
        assert own is not others
        for number in range(2, 6):
            newest = site("a", number)
            await bench.put(newest)
            own.put(written(newest), "")
            await settle()
    assert bench.recorded.labels == ["success"] * 4
    assert remembered == [0, 0, 0, 0]


def test_an_object_that_lost_the_labels_which_its_watch_selects_gets_them_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No cache shows it then: kubevirt/hyperconverged-cluster-operator#1801."""

    async def reconcile(ctx: Context, obj: App) -> None:
        metadata = ObjectMeta(name="child", namespace="default", labels={"app": "mine"})
        await ensure(ctx, ConfigMap(metadata=metadata, data={"a": "b"}), owner=obj)

    @virtual_time
    async def check() -> None:
        async with app_cluster() as cluster:
            await cluster.client.create(app())
            apps = Controller(
                name="apps", reconciler=reconcile, primary=App, owns=[Watch(ConfigMap, scope=MINE)]
            )
            async with cluster.running(apps):
                lost = MergePatch({"metadata": {"labels": {"app": None}}})
                await cluster.client.patch(ConfigMap, "child", "default", lost)
                await asyncio.sleep(5)
                found = await cluster.client.get(ConfigMap, "child", "default")
                assert found.metadata.label("app") == "mine"

    with caplog.at_level(logging.WARNING):
        check()
    assert not caplog.records
