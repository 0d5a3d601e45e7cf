"""Desired sets in a running controller: the triggers of runs, their endings, and what a shard may write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from desiring import DEFINITIONS, NAMESPACE, App, Tenant, Widget, World, app, config, on_a_server, widget

from kubeshard import when
from kubeshard.client import Client
from kubeshard.client.label_fence import LabelFence
from kubeshard.controller import Applied, Context, Controller, Watch
from kubeshard.core import ConfigMap, Kind, KubeObject, MergePatch, NotOurs, ObjectMeta
from kubeshard.manager import Manager
from kubeshard.sharding.ring_resources import Belongs, OwnerKind, RingEntry, belongs
from kubeshard_apiserver.testing.memory import MemoryApi

pytestmark = pytest.mark.regression

Act = Callable[[Context], Awaitable[Applied]]


class Shop:
    """A manager whose controller `apps` calls `act` for each App, and records the end of every run."""

    def __init__(self, client: Client, act: Act) -> None:
        self.client = client
        self.runs: list[Applied | Exception] = []
        self._act = act
        self._ended = asyncio.Event()

    async def reconcile(self, ctx: Context, obj: App) -> None:
        try:
            self.runs.append(await self._act(ctx))
        except Exception as error:
            self.runs.append(error)
            raise
        finally:
            self._ended.set()

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Checks after each run."""
        while not await condition():
            self._ended.clear()
            if not await condition():
                await self._ended.wait()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Shop]:
        controller = Controller(
            name="apps",
            reconciler=self.reconcile,
            primary=Watch(App, when=when.generation_changed),
            applies=[ConfigMap, Widget, Tenant],
        )
        manager = Manager([controller], client=self.client, status_pages=None)
        task = asyncio.create_task(manager.run())
        try:
            async with asyncio.timeout(30):
                yield self
        finally:
            manager.stop()
            await task


@asynccontextmanager
async def shop(act: Act) -> AsyncIterator[Shop]:
    api = MemoryApi()
    await api.install(*DEFINITIONS)
    async with api.client() as client:
        await client.create(app())
        async with Shop(client, act).open() as opened:
            yield opened


TENANT = Tenant(metadata=ObjectMeta(name="t"))
DESIRED: tuple[KubeObject, ...] = (config("a", x="1"), TENANT)


async def test_members_that_somebody_deletes_come_back_whether_or_not_they_refer_to_the_owner() -> None:
    async with shop(lambda ctx: ctx.apply(*DESIRED)) as running:

        async def complete() -> bool:
            tenants = [obj async for obj in running.client.list(Tenant)]
            configs = [obj async for obj in running.client.list(ConfigMap, NAMESPACE)]
            return len(tenants) == len(configs) == 1

        await running.until(complete)
        for member in DESIRED:
            await running.client.delete(type(member), member.metadata.name, member.metadata.namespace)
            await running.until(complete)
        assert not [run for run in running.runs if isinstance(run, Exception)]


async def test_a_set_that_was_applied_ends_with_a_run_that_finds_nothing_to_do() -> None:
    """The events of its own writes trigger runs, which write nothing."""
    async with shop(lambda ctx: ctx.apply(*DESIRED)) as running:

        async def quiet() -> bool:
            last = running.runs[-1] if running.runs else None
            return isinstance(last, Applied) and not last.plan

        await running.until(quiet)
        assert sum(bool(run.plan) for run in running.runs if isinstance(run, Applied)) == 1


async def test_one_line_names_all_objects_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    wrong = (widget("v", size=101), widget("w", size=102))
    with caplog.at_level(logging.ERROR):
        async with shop(lambda ctx: ctx.apply(*wrong)) as running:

            async def ran() -> bool:
                return len(running.runs) > 0

            await running.until(ran)
    record = next(record for record in caplog.records if record.msg == "Reconcile failed")
    told = str(vars(record)["fields"]["error"])
    assert told.startswith("set apps of App default/shop: Widget default/v: ")
    assert "; Widget default/w: " in told


LABEL = "shard.alpha.sharding.timebertt.dev/ring"


class Shard(LabelFence):
    """The fence of a shard of a ring whose main kind is App, with one controlled kind."""

    label_key = LABEL

    def __init__(self, name: str, controlled: Kind = ConfigMap.KIND) -> None:
        self.shard = name
        self._controlled = controlled

    def covers(self, kind: Kind) -> bool:
        return kind in (App.KIND, self._controlled)

    def by_label(self, kind: Kind, meta: ObjectMeta) -> bool:
        return self._belongs(kind, meta).by_label

    def stamps(self, kind: Kind, meta: ObjectMeta) -> bool:
        return self._belongs(kind, meta) in (Belongs.OWNER, Belongs.FAR)

    def _belongs(self, kind: Kind, meta: ObjectMeta) -> Belongs:
        app = OwnerKind(App.KIND.group_resource, True, True)
        entry = RingEntry(kind.group_resource, frozenset() if kind == App.KIND else frozenset({app.resource}))
        return belongs(entry, {App.KIND.group_kind: app}, meta)

    def check(self) -> None: ...


async def assign(world: World, shard: str, *objects: KubeObject) -> None:
    for obj in objects:
        patch = MergePatch({"metadata": {"labels": {LABEL: shard}}})
        await world.client.patch(type(obj), obj.metadata.name, obj.metadata.namespace, patch)


@on_a_server
async def test_what_a_shard_applies_carries_its_label(world: World) -> None:
    await assign(world, "a", app())
    async with world.operator(ConfigMap, fenced=Shard("a")) as shard:
        await shard.apply(config("c", x="1"), config("d"))
        await shard.apply(config("c", x="2"))
        found = await world.there(ConfigMap)
        assert [obj.metadata.label(LABEL) for obj in found.values()] == ["a"]
        assert not (await shard.apply(config("c", x="2"))).plan
        # The sharder moves the owner and its children; the next shard continues from there.
        await assign(world, "b", app(), config("c"))
        with pytest.raises(NotOurs):
            await shard.apply(config("c", x="3"), config("e"))
    async with world.operator(ConfigMap, fenced=Shard("b")) as other:
        await other.apply(config("c", x="4"))
        found = await world.there(ConfigMap)
        assert {*found} == {"ConfigMap default/c"}
        assert found["ConfigMap default/c"].metadata.label(LABEL) == "b"
