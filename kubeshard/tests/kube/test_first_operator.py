"""The README's operator on a real API server, alone and as a shard."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from kubeshard import CacheSettings
from kubeshard.cache import Scope
from kubeshard.client import Client
from kubeshard.core import ConfigMap, MergePatch, NotFound, ObjectMeta, controller_of
from kubeshard.manager import Manager
from kubeshard.runtime.watchdog import NoWatchdog
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.shard import Sharding
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import shard_label

EXAMPLES = Path(__file__).parents[3] / "examples"
InstallCrd = Callable[[Mapping[str, Any]], None]


@pytest.fixture
def example(install_crd: InstallCrd) -> ModuleType:
    install_crd(yaml.safe_load((EXAMPLES / "first_operator.yaml").read_text()))
    spec = importlib.util.spec_from_file_location("first_operator", EXAMPLES / "first_operator.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@asynccontextmanager
async def running(manager: Manager) -> AsyncIterator[None]:
    """Runs the manager next to the block; if it fails, the block fails."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(manager.run())
        try:
            async with asyncio.timeout(60):
                yield
        finally:
            task.cancel()


async def text_of(client: Client, name: str, namespace: str, other_than: str = "") -> str:
    """Waits until the page's HTML exists and differs from `other_than`; returns it."""
    while True:
        try:
            config_map = await client.get(ConfigMap, name, namespace)
            html = (config_map.data or {})["index.html"]
            if html != other_than:
                owner = controller_of(config_map.metadata)
                assert owner
                assert (owner.kind, owner.name) == ("Page", name)
                return html
        except NotFound:
            pass
        await asyncio.sleep(0.05)


async def test_it_creates_and_mends_what_its_pages_own(
    kube_client: Client, namespace: str, example: ModuleType
) -> None:
    metadata = ObjectMeta(name="home", namespace=namespace)
    await kube_client.create(example.Page(metadata=metadata, spec=example.PageSpec(title="Hello & welcome")))
    manager = Manager(
        [example.pages],
        client=kube_client.config,
        cache=CacheSettings(default_scope=Scope(frozenset({namespace}))),
        status_pages=None,
    )
    async with running(manager):
        first = await text_of(kube_client, "home", namespace)
        assert first == "<h1>Hello &amp; welcome</h1>\n"
        await kube_client.patch(example.Page, "home", namespace, MergePatch({"spec": {"title": "News"}}))
        second = await text_of(kube_client, "home", namespace, other_than=first)
        assert second == "<h1>News</h1>\n"
        await kube_client.patch(ConfigMap, "home", namespace, MergePatch({"data": {"index.html": "mine!"}}))
        assert await text_of(kube_client, "home", namespace, other_than="mine!") == second
        await kube_client.delete(ConfigMap, "home", namespace)
        assert await text_of(kube_client, "home", namespace) == second


async def test_as_a_shard_it_works_on_its_own_pages_only(
    kube_client: Client, namespace: str, example: ModuleType, install_crd: InstallCrd
) -> None:
    install_crd(controller_ring_crd())
    await kube_client.apply_manifest(yaml.safe_load((EXAMPLES / "first_operator_ring.yaml").read_text()))
    for name, shard in (("mine", "a"), ("other", "b")):
        labels = {shard_label("pages"): shard}
        metadata = ObjectMeta(name=name, namespace=namespace, labels=labels)
        await kube_client.create(example.Page(metadata=metadata))
    manager = Manager(
        [example.pages],
        client=kube_client.config,
        sharding=Sharding("pages", "a", namespace),
        world=dataclasses.replace(REAL_WORLD, watchdog=NoWatchdog),
        status_pages=None,
    )
    async with running(manager):
        await text_of(kube_client, "mine", namespace)
    config_maps = [item async for item in kube_client.list(ConfigMap, namespace)]
    assert [item.metadata.name for item in config_maps] == ["mine"]
    assert config_maps[0].metadata.label(shard_label("pages")) == "a"
