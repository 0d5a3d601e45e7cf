"""The page about informers: its programs run unchanged and do what the page says."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kubeshard.cache import Cache, Scope
from kubeshard.client import Client
from kubeshard.controller import Controller
from kubeshard.core import HASHES, ConfigMap, HashRanges, ObjectMeta
from kubeshard.manager.http import Listener
from kubeshard_apiserver import ApiServer
from kubeshard_apiserver.testing.memory import MemoryApi
from kubeshard_lab.virtual_time import settle, virtual_time
from kubeshard_lab.virtual_world import virtual_world

PAGE = Path(__file__).parents[3] / "docs" / "informers.md"


@pytest.fixture(scope="module")
def page() -> Any:
    """Returns all programs of the page as one module."""
    module = ModuleType("informers_page")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert len(blocks) == 8
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), module.__dict__)
    return module


async def put(client: Client, key: str, **data: str) -> None:
    namespace, _, name = key.rpartition("/")
    meta = ObjectMeta(name=name, namespace=namespace)
    await client.apply(ConfigMap(metadata=meta, data=data), force=True)


def memory() -> MemoryApi:
    return MemoryApi(ApiServer(world=virtual_world()))


@virtual_time
async def test_a_cache_tells_its_handlers_and_is_read(page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    async with memory().client() as client:
        await put(client, "default/a")
        await page.follow(client)
    told = capsys.readouterr().out.splitlines()
    assert "default/a was there" in told
    assert told[-1].endswith(" ConfigMaps")


@virtual_time
async def test_handlers_are_told_the_difference(page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    async with memory().client() as client:
        cache = Cache(client)
        cache.declare(ConfigMap).add_handler(page.report)
        async with cache.running():
            await cache.synced()
            capsys.readouterr()
            await put(client, "default/a", color="red")
            await put(client, "default/a", color="blue")
            await client.delete(ConfigMap, "a", "default")
            await settle()
    assert capsys.readouterr().out.splitlines() == [
        "default/a came",
        "default/a changed from {'color': 'red'} to {'color': 'blue'}",
        "default/a left; its last state {'color': 'blue'}",
    ]


@virtual_time
async def test_handlers_and_users_come_and_go(page: Any) -> None:
    async with memory().client() as client:
        await put(client, "default/settings", color="red")
        cache = Cache(client)
        async with cache.running():
            assert await page.settings(cache, "default") == {"color": "red"}
            assert await page.settings(cache, "kube-system") == {}
            assert cache.informers == ()
            informer = cache.declare(ConfigMap)
            assert await page.count(cache) == len(informer.store)
            assert informer.handlers == ()


@virtual_time
async def test_an_async_handler_holds_nobody_up(page: Any) -> None:
    sent = []

    async def send_elsewhere(delta: Any) -> None:
        sent.append(delta)
        await asyncio.sleep(3600)

    page.send_elsewhere = send_elsewhere
    async with memory().client() as client:
        await put(client, "default/a")
        cache = Cache(client)
        registration = cache.declare(ConfigMap).add_handler(page.mirror)
        async with cache.running():
            await cache.synced()
            await settle()
            assert (len(sent), registration.name) == (1, "mirror")


@virtual_time
async def test_a_scope_moves(page: Any) -> None:
    async with memory().client() as client:
        await put(client, "default/a")
        await put(client, "kube-system/b")
        cache = Cache(client, default_scope=Scope(namespaces=frozenset({"default"})))
        informer = cache.declare(ConfigMap)
        async with cache.running():
            await cache.synced()
            await page.move(cache, {"kube-system"})
            assert {obj.key.namespace for obj in informer.store.list()} == {"kube-system"}


@virtual_time
async def test_a_scope_is_half_of_the_hashes(page: Any) -> None:
    async with memory().client() as client:
        for number in range(20):
            await put(client, f"default/{number}")
        cache = Cache(client)
        informer = cache.declare(ConfigMap)
        async with cache.running():
            await cache.synced()
            await page.take_half(cache)
            half = [obj for obj in await client.list_all(ConfigMap, "default") if hash_of(obj) < HASHES // 2]
            assert sorted(obj.key for obj in informer.store.list()) == sorted(obj.key for obj in half)


def hash_of(obj: ConfigMap) -> int:
    return HashRanges("uid").hash_of(obj.metadata)


@virtual_time
async def test_a_manager_transforms(page: Any) -> None:
    seen: list[dict[str, str] | None] = []

    async def note(ctx: Any, obj: ConfigMap) -> None:
        seen.append(obj.data)

    async with memory().client() as client:
        await put(client, "default/a", password="secret")
        controller = Controller(name="note", reconciler=note, primary=ConfigMap)
        manager = page.manager(controller, client)
        manager._process.pages.metrics = manager._process.pages.health = Listener(
            "pages", None
        )  # no sockets here
        running = asyncio.create_task(manager.run())
        await asyncio.sleep(5)
        assert {"password": ""} in seen
        running.cancel()
        await asyncio.wait([running])


@virtual_time
async def test_the_hook_hears_of_errors(page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    api = memory()
    async with api.client() as client:
        cache = page.watchful(client)
        cache.declare(ConfigMap)
        async with cache.running():
            await cache.synced()
            api.cut()
            await settle()
    assert re.fullmatch(r"ConfigMap\.v1 Unavailable again in \d s\n", capsys.readouterr().out)
