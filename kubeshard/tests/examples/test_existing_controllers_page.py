"""docs/existing-controllers.md: the ring is the one in the example, and the kopf operators are shards."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeshard import (
    Client,
    ConfigMap,
    Context,
    Controller,
    KubeObject,
    Manager,
    ObjectMeta,
    Reconciler,
    Sharding,
    Struct,
    Watch,
    errors,
    field,
    until,
    wait_for,
    when,
)
from kubeshard.core import Lease, MergePatch
from kubeshard.crd import definition
from kubeshard.runtime.watchdog import NoWatchdog
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.sharding.assignment import Assignment
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.control_plane import ControlPlane
from kubeshard_apiserver.testing.kube_api import EmbeddedApi, KubeApi, RealApi
from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "existing-controllers.md").read_text()
SHARD, DRAIN = shard_label("pages"), drain_label("pages")


class PageStatus(Struct):
    shown_by: str | None = None


class Page(KubeObject, group="example.kubeshard.dev", version="v1"):
    status: PageStatus = field(default_factory=PageStatus)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def test_the_ring_is_that_of_the_example() -> None:
    (ring,) = blocks("yaml")
    assert yaml.safe_load(ring) == yaml.safe_load(
        (ROOT / "examples" / "first_operator_ring.yaml").read_text()
    )


def test_the_argument_of_a_kubeshard_operator_is_that_of_the_readme() -> None:
    assert blocks("python")[0] in (ROOT / "README.md").read_text()


@contextmanager
def embedded(gates: Collection[str] = ()) -> Iterator[KubeApi]:
    api = EmbeddedApi(feature_gates=gates)
    try:
        yield api
    finally:
        api.stop()


@contextmanager
def real() -> Iterator[KubeApi]:
    with ControlPlane(feature_gates=[f"{SHARDED_LIST_AND_WATCH}=true"]) as kube:
        api = RealApi(kube)
        try:
            yield api
        finally:
            api.stop()


Server = Callable[[], AbstractContextManager[KubeApi]]


@asynccontextmanager
async def served(server: Server) -> AsyncIterator[tuple[KubeApi, Client]]:
    with server() as api:
        async with api.client() as client:
            yield api, client


@pytest.mark.system
async def test_the_kopf_operator_works_on_its_own_objects_and_lets_go_of_them(tmp_path: Path) -> None:
    """The test acts as the sharder."""
    program = tmp_path / "sharded_pages.py"
    program.write_text(blocks("python")[2])
    async with served(embedded) as (api, client):
        await client.apply_manifest(definition(Page))
        await wait_for_pages(client)
        for name, shard in (("mine", "kopf-0"), ("other", "kopf-1")):
            labels = {SHARD: shard}
            await client.create(Page(metadata=ObjectMeta(name=name, namespace="default", labels=labels)))
        environment = {**os.environ, "KUBECONFIG": str(api.kubeconfig), "POD_NAME": "kopf-0"}
        child = Child(
            "kopf",
            [sys.executable, str(program)],
            tmp_path / "log",
            {**environment, "NAMESPACE": "default"},
        )
        try:
            shown = until.holds("shown", lambda page: page.status.shown_by == "kopf-0")
            await wait_for(client, Page, shown, name="mine", namespace="default", timeout=15)
            lease = await client.get(Lease, "kopf-0", "default")
            assert lease.spec.holder_identity == "kopf-0"
            # Another object that the shard gets from a neighbor.
            await client.patch(
                Page, "other", "default", MergePatch({"metadata": {"labels": {SHARD: "kopf-0"}}})
            )
            await wait_for(client, Page, shown, name="other", namespace="default", timeout=15)
            await client.patch(Page, "mine", "default", MergePatch({"metadata": {"labels": {DRAIN: "true"}}}))
            free = until.holds("free", lambda page: not {SHARD, DRAIN} & set(page.metadata.labels or {}))
            await wait_for(client, Page, free, name="mine", namespace="default", timeout=15)
            assert child.running, child.tail(20)
        except TimeoutError as error:
            raise AssertionError(child.tail(30)) from error
        finally:
            child.stop(grace=20)
        released = await client.get(Lease, "kopf-0", "default")
        assert not released.spec.holder_identity, child.tail(30)


async def wait_for_pages(client: Client) -> None:
    async with asyncio.timeout(20):
        while True:
            with suppress(errors.KindNotServed):
                await client.discovery.kind(Page.KIND.group, resource=Page.KIND.plural)
                return
            await asyncio.sleep(0.05)


class Shows(Reconciler[Page]):
    def __init__(self, name: str) -> None:
        self._name = name

    async def reconcile(self, ctx: Context, page: Page) -> None:
        if page.status.shown_by != self._name:
            await ctx.status(page, PageStatus(shown_by=self._name))


@asynccontextmanager
async def ours(api: KubeApi, name: str, **more: Any) -> AsyncIterator[None]:
    """An instance of a kubeshard operator that does what the kopf operator does."""
    primary = Watch(Page, when=when.generation_changed, sharded=True)
    manager = Manager(
        [Controller(name="page", reconciler=Shows(name), primary=primary)],
        client=api.config,
        sharding=Sharding("pages", name, "default", delivery="ranges", **more),
        world=dataclasses.replace(REAL_WORLD, watchdog=NoWatchdog),
        status_pages=None,
    )
    task = asyncio.create_task(manager.run())
    try:
        yield
    finally:
        manager.stop()
        await asyncio.wait([task])
        assert task.exception() is None


async def settled(client: Client, *shards: str) -> None:
    """Waits until these shards have all buckets, and each page has been shown by the shard that owns it."""
    async with asyncio.timeout(30):
        while True:
            with suppress(errors.NotFound):
                data = (await client.get(ConfigMap, "ranges-pages", "default")).data
                places, pages = Assignment.parse(data).places, await client.list_all(Page, "default")
                of = Buckets().of
                shown = all(page.status.shown_by == places[of(page.metadata)].owner for page in pages)
                if {(each.owner, each.target) for each in places} == {
                    (each, "") for each in shards
                } and shown:
                    return
            await asyncio.sleep(0.1)


SERVERS = pytest.mark.parametrize(
    "server",
    [partial(embedded, [SHARDED_LIST_AND_WATCH]), embedded, pytest.param(real, marks=pytest.mark.kube)],
    ids=["selects", "ignores", "real"],
)


@asynccontextmanager
async def pages(server: Server) -> AsyncIterator[tuple[KubeApi, Client]]:
    async with served(server) as (api, client):
        await client.apply_manifest(definition(Page))
        await wait_for_pages(client)
        await create(client, "page", 16)
        yield api, client


async def create(client: Client, name: str, count: int) -> None:
    for number in range(count):
        await client.create(Page(metadata=ObjectMeta(name=f"{name}-{number}", namespace="default")))


def foreign(api: KubeApi, name: str, log: Path, *command: str) -> Child:
    environment = {"KUBECONFIG": str(api.kubeconfig), "POD_NAME": name, "NAMESPACE": "default"}
    return Child(name, command, log, {**os.environ, **environment})


async def come_and_go(api: KubeApi, client: Client, start: Callable[[], Child]) -> str:
    """Two of our instances and one foreign one join and leave. Returns what that logged."""
    async with ours(api, "ours-0", mode="both"):
        await settled(client, "ours-0")
        child = start()
        try:
            await settled(client, "ours-0", child.name)
            await create(client, "more", 20)
            async with ours(api, "ours-1"):
                await settled(client, "ours-0", "ours-1", child.name)
            await create(client, "last", 4)
            await settled(client, "ours-0", child.name)
            assert child.running, child.tail(20)
        except TimeoutError as error:
            raise AssertionError(child.tail(30)) from error
        finally:
            code = child.stop(grace=20)
        assert code == 0, child.tail(30)
        released = await client.get(Lease, child.name, "default")
        assert not released.spec.holder_identity, child.tail(30)
        await settled(client, "ours-0")
    return child.log.read_text()


@pytest.mark.system
@SERVERS
async def test_the_kopf_operator_shares_ranges_with_a_kubeshard_operator(
    tmp_path: Path, server: Server
) -> None:
    program = tmp_path / "kopf_by_ranges.py"
    program.write_text(blocks("python")[1])
    async with pages(server) as (api, client):
        log = tmp_path / "log"
        await come_and_go(api, client, lambda: foreign(api, "kopf-0", log, sys.executable, str(program)))


@pytest.mark.go
@SERVERS
async def test_the_go_controller_shares_ranges_and_hands_over_when_it_is_idle(
    tmp_path: Path, server: Server, built_go: Callable[[Path], Path]
) -> None:
    program = str(await asyncio.to_thread(built_go, ROOT / "examples" / "go_by_ranges"))
    async with pages(server) as (api, client):
        log = tmp_path / "log"
        said = await come_and_go(api, client, lambda: foreign(api, "go-0", log, program, "--takes", "1s"))
    running, busy = set[str](), False
    for line in said.splitlines():
        match line.split()[2:]:
            case ["begin", page]:
                running.add(page)
            case ["end", page]:
                running.remove(page)
            case ["asked", *_]:
                busy = busy or bool(running)
            case ["handing", "over"]:
                assert not running
    assert busy, "no run was under way when it was asked"
