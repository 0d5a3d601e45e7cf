"""Daemons: one task per object, which ends when the object is deleted, and before any other process may act on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from app_cluster import App, AppCluster, AppStatus, app, app_cluster

from kubeshard import Context, Controller, Daemon, Finalizer, Manager, Watch, when
from kubeshard.cache.own_writes import OwnWrites
from kubeshard.client.write_records import WriteRecord
from kubeshard.controller.context import run_of
from kubeshard.controller.in_flight import Activity, InFlight
from kubeshard.core import Key, MergePatch
from kubeshard.core.objects import form_of
from kubeshard_lab.virtual_time import VirtualClock, settle, virtual_time


class Listening:
    """A long-running daemon, and a log of the events around it."""

    def __init__(self, act: Callable[[Context, App], Awaitable[None]] | None = None) -> None:
        self.log: list[str] = []
        self.act = act

    async def listen(self, ctx: Context, obj: App) -> None:
        name = f"{obj.metadata.name} {obj.spec.size}"
        self.log.append(f"begin {name}")
        try:
            if self.act is not None:
                await self.act(ctx, obj)
            else:
                await asyncio.get_running_loop().create_future()
            self.log.append(f"return {name}")
        except asyncio.CancelledError:
            await asyncio.sleep(1)  # does some cleanup
            self.log.append(f"end {name}")
            raise

    async def reconcile(self, ctx: Context, obj: App) -> None:
        self.log.append(f"reconcile {obj.metadata.name} {obj.spec.size}")

    def controller(self, *, restart: bool = False, **options: Any) -> Controller[App]:
        daemon = Daemon(self.listen, restart_on=lambda obj: obj.spec.size) if restart else Daemon(self.listen)
        options = {"primary": App, **options}
        return Controller(name="app", reconciler=self.reconcile, daemons=[daemon], **options)


async def resize(cluster: AppCluster, size: int, name: str = "a") -> None:
    await cluster.client.patch(App, name, "default", MergePatch({"spec": {"size": size}}))
    await asyncio.sleep(5)


@virtual_time
async def test_each_object_has_one_from_its_first_run_to_its_end() -> None:
    async with app_cluster() as cluster:
        listening = Listening()
        await cluster.client.create(app("a"))
        async with cluster.running(listening.controller()):
            assert sorted(listening.log) == ["begin a 0", "reconcile a 0"]
            await cluster.client.create(app("b"))
            await asyncio.sleep(5)
            await resize(cluster, 1)
            assert [line for line in listening.log if "begin" in line] == ["begin a 0", "begin b 0"]
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(5)
            assert listening.log[-1] == "end a 0"
            await cluster.client.create(app("a"))
            await asyncio.sleep(5)
            assert listening.log.count("begin a 0") == 2
        assert {"end a 0", "end b 0"} <= set(listening.log)
        assert listening.log.count("end a 0") == 2


@virtual_time
async def test_it_has_ended_before_a_finalizer_cleans_up() -> None:
    async with app_cluster() as cluster:
        listening = Listening()

        async def clean(ctx: Context, obj: App) -> None:
            listening.log.append("clean")

        await cluster.client.create(app("a"))
        controller = listening.controller(finalizers=[Finalizer("example.com/x", clean)])
        async with cluster.running(controller):
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(5)
            assert listening.log[-2:] == ["end a 0", "clean"]
            assert await cluster.get() is None


@virtual_time
async def test_it_begins_anew_with_the_object_as_it_is_when_its_part_changed() -> None:
    async with app_cluster() as cluster:
        listening = Listening()
        await cluster.client.create(app("a"))
        async with cluster.running(listening.controller(restart=True)):
            await cluster.client.patch(
                App, "a", "default", MergePatch({"metadata": {"labels": {"not": "it"}}})
            )
            await asyncio.sleep(5)
            assert listening.log.count("begin a 0") == 1
            await resize(cluster, 2)
            log = [line for line in listening.log if "reconcile" not in line]
            assert log == ["begin a 0", "end a 0", "begin a 2"]


@virtual_time
async def test_one_that_raises_begins_anew_after_growing_waits_and_harms_nobody() -> None:
    async with app_cluster() as cluster:
        times: list[float] = []

        async def fail(ctx: Context, obj: App) -> None:
            if obj.metadata.name == "b":
                await asyncio.get_running_loop().create_future()
            times.append(ctx.clock.monotonic())
            if len(times) == 2:
                asyncio.current_task().cancel()  # type: ignore[union-attr]
                asyncio.current_task().uncancel()  # type: ignore[union-attr]
                raise asyncio.CancelledError  # left over from something it awaited
            raise OSError("nobody answers")

        listening = Listening(fail)
        await cluster.client.create(app("a"))
        await cluster.client.create(app("b"))
        async with cluster.running(listening.controller()):
            await asyncio.sleep(30)
            waits = [later - earlier for earlier, later in pairwise(times)]
            assert len(waits) >= 4
            for number, wait in enumerate(waits[:4]):
                assert 2**number <= wait <= 2**number * 1.2 + 1.1  # the daemon's own cleanup takes 1 s
            assert "reconcile b 0" in listening.log
            await resize(cluster, 3)
            await asyncio.sleep(60)
            assert listening.log.count("begin a 3") >= 1  # it sees the object as it is at that time


@virtual_time
async def test_a_task_group_of_one_that_fails_leaves_no_cancellation_behind() -> None:
    async with app_cluster() as cluster:
        requests: list[int] = []

        async def crash() -> None:
            raise OSError("nobody answers")

        async def fail(ctx: Context, obj: App) -> None:
            requests.append(asyncio.current_task().cancelling())  # type: ignore[union-attr]
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(crash())
                tasks.create_task(asyncio.sleep(60))

        await cluster.client.create(app("a"))
        async with cluster.running(Listening(fail).controller()):
            await asyncio.sleep(30)
            assert len(requests) > 2
            assert not any(requests)


@virtual_time
async def test_one_that_returned_has_ended() -> None:
    async with app_cluster() as cluster:

        async def little(ctx: Context, obj: App) -> None:
            return None

        listening = Listening(little)
        await cluster.client.create(app("a"))
        async with cluster.running(listening.controller(restart=True)):
            await cluster.client.patch(
                App, "a", "default", MergePatch({"metadata": {"labels": {"not": "it"}}})
            )
            await asyncio.sleep(5)
            assert listening.log.count("return a 0") == 1
            await resize(cluster, 1)
            assert listening.log.count("return a 1") == 1


@virtual_time
async def test_its_reads_include_its_writes_and_its_statuses_are_sent_on_change_only() -> None:
    async with app_cluster() as cluster:
        seen: list[int | None] = []

        async def count(ctx: Context, obj: App) -> None:
            for number in (1, 2, 1, 1, 2):
                await ctx.status(obj, AppStatus(size=number))
                live = await ctx.get(App, "a")
                assert live is not None
                seen.append(live.status.size)

        await cluster.client.create(app("a"))
        async with cluster.running(Listening(count).controller()):
            assert seen == [1, 2, 1, 1, 2]
            assert cluster.sent == ["PATCH status"] * 4


@virtual_time
async def test_what_it_writes_is_remembered_apart_from_the_reconciler_and_until_the_cache_has_seen_it() -> (
    None
):
    async with app_cluster() as cluster:
        kept: list[Context] = []
        runs: list[Context] = []

        async def make(ctx: Context, obj: App) -> None:
            kept.append(ctx)
            for number in range(20):
                await ctx.client.create(app(f"made-{number}"))
            assert run_of(ctx).writes

        async def reconcile(ctx: Context, obj: App) -> None:
            runs.append(ctx)

        daemon = Daemon(make)
        await cluster.client.create(app("a"))
        scope = Watch(App, when=when.matching(lambda obj: obj.metadata.name == "a"))
        controller = Controller(name="app", reconciler=reconcile, primary=scope, daemons=[daemon])
        async with cluster.running(controller):
            await resize(cluster, 1)
            assert len(kept) == 1
            assert not run_of(kept[0]).writes
            assert not [ctx for ctx in runs if run_of(ctx).writes is run_of(kept[0]).writes]


@virtual_time
async def test_a_stop_of_the_process_waits_for_what_it_has_on_its_way_and_for_its_end() -> None:
    async with app_cluster() as cluster:
        listening = Listening()
        await cluster.client.create(app("a"))
        manager = Manager([listening.controller()], client=cluster.operator, status_pages=None)
        task = asyncio.create_task(manager.run())
        await asyncio.sleep(5)
        manager.stop()
        await task
        assert listening.log[-1] == "end a 0"


@virtual_time
async def test_who_waits_for_an_object_or_a_controller_asks_tasks_to_end_also_those_that_begin_meanwhile() -> (
    None
):
    in_flight, kind = InFlight(), form_of(App).kind.group_kind
    key, other = Key("default", "a"), Key("default", "b")
    asked: list[str] = []

    def begin(key: Key, name: str) -> Activity:
        return Activity(in_flight, "app", (kind, key), stop=lambda: asked.append(name))

    first, elsewhere = begin(key, "first"), begin(other, "elsewhere")
    idle = asyncio.create_task(in_flight.idle(kind, key))
    await settle()
    assert asked == ["first"]
    second = begin(key, "second")
    assert asked == ["first", "second"]
    first.end()
    await settle()
    assert not idle.done()
    second.end()
    await idle
    ended = asyncio.create_task(in_flight.ended("app"))
    await settle()
    assert asked == ["first", "second", "elsewhere"]
    elsewhere.end()
    await ended


@virtual_time
async def test_writes_without_end_take_no_more_memory_than_one() -> None:
    writes, kind = OwnWrites(VirtualClock()), form_of(App).kind
    for version in range(1000):
        writes.record(WriteRecord(kind, Key("ns", "a"), "u", str(version), None, False))
    (objects,) = writes.pending.values()
    assert [answered.write.resource_version for answered in objects[Key("ns", "a")]] == ["999"]


def test_what_is_no_daemon_is_refused_with_what_to_write() -> None:
    def plain(ctx: Context, obj: App) -> None: ...

    async def of_the_object_alone(obj: App) -> None: ...

    with pytest.raises(TypeError, match="give an `async def` function"):
        Daemon(plain)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="give an `async def` function"):
        Daemon(of_the_object_alone)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="restart_on is a function of the object"):
        Daemon(Listening().listen, restart_on="spec")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"daemons takes a list, as in daemons=\[Daemon\(function\)\]"):
        Controller(
            name="app", reconciler=Listening().reconcile, primary=App, daemons=Daemon(Listening().listen)
        )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "predicate",
    [
        when.labels_changed,
        when.never,
        when.matching(lambda obj: obj.spec.size == 0) & when.generation_changed,
    ],
)
@virtual_time
async def test_a_change_of_restart_on_and_the_end_reach_it_whatever_the_watch_lets_pass(
    predicate: when.Predicate[App],
) -> None:
    async with app_cluster() as cluster:
        listening = Listening()
        primary = Watch(App, when=predicate | when.on(updated=lambda old, new: False))
        async with cluster.running(replace(listening.controller(restart=True), primary=primary)):
            await cluster.client.create(app("a"))
            await asyncio.sleep(5)
            await resize(cluster, 1)
            await resize(cluster, 2)
            started = [line for line in listening.log if line.startswith("begin")]
            assert started == ["begin a 0", "begin a 1", "begin a 2"]
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(5)
            assert listening.log[-1] == "end a 2"


@virtual_time
async def test_a_change_of_restart_on_by_a_run_reaches_it_although_what_runs_write_triggers_nothing() -> None:
    class Resizing(Listening):
        async def reconcile(self, ctx: Context, obj: App) -> None:
            await ctx.client.patch(App, "a", "default", MergePatch({"spec": {"size": 1}}))

    async with app_cluster() as cluster:
        listening = Resizing()
        await cluster.client.create(app("a"))
        async with cluster.running(listening.controller(restart=True, primary=Watch(App, echoes=False))):
            await asyncio.sleep(5)
            assert listening.log == ["begin a 0", "end a 0", "begin a 1"]


@virtual_time
async def test_it_ends_with_its_object_even_if_the_watch_lets_no_deletion_pass() -> None:
    async with app_cluster() as cluster:
        listening = Listening()
        primary = Watch(App, when=when.on(updated=lambda old, new: False, deleted=lambda obj: False))
        await cluster.client.create(app("a", "others.example.com/theirs"))
        await cluster.client.create(app("b"))
        async with cluster.running(replace(listening.controller(), primary=primary)):
            await cluster.client.delete(App, "b", "default")
            await asyncio.sleep(5)
            assert listening.log[-1] == "end b 0"
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(5)
            assert "end a 0" in listening.log


@virtual_time
async def test_what_it_forgets_to_await_again_and_again_is_kept_once() -> None:
    async def rounds(ctx: Context, obj: App) -> None:
        for _ in range(100):
            asyncio.sleep(1)  # type: ignore[unused-coroutine]
        listening.log += run_of(ctx).activities.forgotten

    async with app_cluster() as cluster:
        listening = Listening(rounds)
        await cluster.client.create(app("a"))
        with pytest.warns(RuntimeWarning, match="never awaited"):
            async with cluster.running(listening.controller()):
                assert sum("never awaited" in line for line in listening.log) == 1
