"""Watches of kinds that the primary kind refers to, or that refer to it."""

from __future__ import annotations

import pytest
from controller_bench import Bench, Site, Theme, site

from kubeshard import ConfigMap, Context, Controller, Index, Key, ObjectMeta, Watch, related, when
from kubeshard.core import KubeObject
from kubeshard_lab.virtual_time import virtual_time

CONFIG = Index(Site, "config", lambda obj: obj.spec.theme.split())
THEME = Index(Site, "theme", lambda obj: [obj.spec.theme])
NAMING = Index(ConfigMap, "sites", lambda obj: (obj.data or {}).get("sites", "").split())


class Runs:
    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.told: list[list[str]] = []

    async def __call__(self, ctx: Context, obj: KubeObject) -> None:
        self.keys.append(ctx.key)

    def new(self) -> list[str]:
        keys, self.keys = sorted(map(str, self.keys)), []
        return keys


def config(name: str, namespace: str = "ns", version: int = 1, **data: str) -> ConfigMap:
    meta = ObjectMeta(name=name, namespace=namespace, uid=name, resource_version=str(version))
    return ConfigMap(metadata=meta, data=data)


def theme(name: str, version: int = 1) -> Theme:
    return Theme(metadata=ObjectMeta(name=name, uid=name, resource_version=str(version)))


@virtual_time
async def test_a_change_triggers_those_that_name_the_object_in_their_or_its_namespace() -> None:
    runs = Runs()
    bench = Bench(
        runs, primary=Watch(Site, when=when.generation_changed), watches=[related(ConfigMap, Site, CONFIG)]
    )
    sites = [
        site("one", theme="a b"),
        site("two", theme="b"),
        site("far", namespace="other", theme="a ns/b"),
        site("none"),
    ]
    async with bench.running(*sites, config("a"), config("b"), config("a", "other")):
        runs.new()
        await bench.put(config("a", version=2))
        assert runs.new() == ["ns/one"]
        await bench.put(config("b", version=3))
        assert runs.new() == ["ns/one", "ns/two", "other/far"]
        await bench.put(config("a", "other", version=4))
        assert runs.new() == ["other/far"]
        await bench.remove(config("b", version=5))
        assert runs.new() == ["ns/one", "ns/two", "other/far"]
        await bench.put(site("one", 6, theme=""))
        runs.new()
        await bench.put(config("a", version=7))
        assert runs.new() == []


@virtual_time
async def test_those_that_name_an_object_without_a_namespace_are_triggered_wherever_they_are() -> None:
    runs = Runs()
    bench = Bench(runs, watches=[related(Theme, Site, THEME)])
    async with bench.running(
        site("a", theme="dark"), site("b", namespace="other", theme="dark"), theme("dark")
    ):
        runs.new()
        await bench.put(theme("dark", 2))
        assert runs.new() == ["ns/a", "other/b"]
        await bench.put(theme("light", 3))
        assert runs.new() == []


@virtual_time
async def test_the_other_way_round_an_object_triggers_those_that_it_names_and_named() -> None:
    runs = Runs()
    listed: list[list[str]] = []

    async def reconcile(ctx: Context, obj: KubeObject) -> None:
        await runs(ctx, obj)
        found = await ctx.list(ConfigMap, index=("sites", obj.metadata.name))
        listed.append([each.metadata.name for each in found])

    bench = Bench(reconcile, watches=[related(ConfigMap, Site, NAMING)])
    async with bench.running(site("a"), site("b"), site("c", namespace="other")):
        runs.new()
        await bench.put(config("x", sites="a"))
        assert runs.new() == ["ns/a"]
        assert listed[-1] == ["x"]
        await bench.put(config("x", version=2, sites="b other/c"))
        assert runs.new() == ["ns/a", "ns/b", "other/c"]
        await bench.remove(config("x", version=3, sites="b other/c"))
        assert runs.new() == ["ns/b", "other/c"]


@virtual_time
async def test_a_primary_kind_without_namespaces_is_named_by_plain_names() -> None:
    runs = Runs()
    bench = Bench(runs, primary=Theme, watches=[related(ConfigMap, Theme, NAMING)])
    async with bench.running(theme("dark")):
        runs.new()
        await bench.put(config("x", sites="dark"))
        assert runs.new() == ["dark"]


def test_an_index_of_a_third_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'config' is on Site.*Theme.* to ConfigMap"):
        related(Theme, ConfigMap, CONFIG)


def test_an_index_that_several_watches_share_is_declared_once() -> None:
    async def nothing(ctx: Context, obj: Site) -> None: ...

    maps = [related(ConfigMap, Site, CONFIG), related(Theme, Site, CONFIG)]
    controller = Controller(name="site", reconciler=nothing, primary=Site, watches=maps, indexes=[CONFIG])
    assert list(controller.declared_indexes) == [CONFIG]
