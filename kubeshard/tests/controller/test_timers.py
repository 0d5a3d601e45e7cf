"""Timers and polls: functions that are called again and again for each object."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from app_cluster import App, AppCluster, app, app_cluster

from kubeshard import Context, Controller, Daemon, Manager, Result, Watch, when
from kubeshard.controller import poll, timer
from kubeshard.core import MergePatch
from kubeshard_lab.virtual_time import virtual_time


class Calls:
    """When a function was called, for which size of its object; it raises what it is told."""

    def __init__(self, *errors: Exception | None) -> None:
        self.at: list[tuple[float, int]] = []
        self.errors = list(errors)
        self.value: object = "same"

    async def __call__(self, ctx: Context, obj: App) -> object:
        self.at.append((round(asyncio.get_running_loop().time() - self.began), obj.spec.size))
        if self.errors and (error := self.errors.pop(0)):
            raise error
        return self.value

    async def until(self, seconds: float) -> None:
        """Waits until so many seconds after the beginning."""
        await asyncio.sleep(self.began + seconds - asyncio.get_running_loop().time())

    async def tick(self, ctx: Context, obj: App) -> None:
        await self(ctx, obj)

    began = 0.0


RUNS: list[float] = []


async def reconcile(ctx: Context, obj: App) -> None:
    RUNS.append(asyncio.get_running_loop().time())


@asynccontextmanager
async def following(daemon: Daemon[App], calls: Calls) -> AsyncIterator[AppCluster]:
    """A controller with the daemon, and one object."""
    RUNS.clear()
    async with app_cluster() as cluster:
        await cluster.client.create(app())
        controller = Controller(name="app", reconciler=reconcile, primary=App, daemons=[daemon])
        calls.began = asyncio.get_running_loop().time()
        async with cluster.running(controller):
            yield cluster


async def resize(cluster: AppCluster, size: int) -> None:
    await cluster.client.patch(App, "a", "default", MergePatch({"spec": {"size": size}}))


@virtual_time
async def test_a_timer_begins_after_its_delay_and_gets_the_current_object() -> None:
    calls = Calls()
    async with following(timer(calls.tick, every=10, initial_delay=25), calls) as cluster:
        await calls.until(40)
        await resize(cluster, 7)
        await calls.until(60)
        assert calls.at == [(25, 0), (35, 0), (45, 7), (55, 7)]
        await cluster.client.delete(App, "a", "default")
        await asyncio.sleep(100)
        assert len(calls.at) == 4


@virtual_time
async def test_a_timer_that_waits_for_quiet_starts_anew_with_each_change_of_the_spec() -> None:
    calls = Calls()
    async with following(timer(calls.tick, every=100, idle=30), calls) as cluster:
        for size in (2, 3, 4):
            await calls.until(20 * (size - 1))
            await resize(cluster, size)
        await calls.until(210)
        assert calls.at == [(90, 4), (190, 4)]


@virtual_time
async def test_a_call_that_raises_is_followed_by_the_next_one_as_usual(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = Calls(None, ValueError("no"), None)
    async with following(timer(calls.tick, every=10), calls):
        await calls.until(25)
    assert [at for at, _ in calls.at] == [0, 10, 20]
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.__dict__["fields"]["timer"] for record in told] == ["tick"]


@virtual_time
async def test_while_the_outside_is_down_it_is_asked_less_and_less_often_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kubeshard.controller")
    down = True

    async def ask(ctx: Context, obj: App) -> int:
        asked.append(asyncio.get_running_loop().time())
        if down:
            raise ConnectionError("nobody is there")
        return 1

    asked: list[float] = []
    async with following(poll(ask, every=10), Calls()) as cluster:
        for number in range(4):
            await cluster.client.create(app(f"more-{number}"))
        await asyncio.sleep(3600)
        assert len(asked) <= 5 * 18
        assert max(b - a for a, b in itertools.pairwise(asked)) <= 301
        down = False
        await asyncio.sleep(400)
    told = [record.msg for record in caplog.records if record.msg.startswith("Timer")]
    assert told == ["Timer failed; calling it again, less and less often", "Timer works again"]


@virtual_time
async def test_a_poll_triggers_a_reconcile_when_the_value_changes_and_only_then() -> None:
    calls = Calls()
    async with following(poll(calls, every=10), calls):
        await calls.until(95)
        assert len(calls.at) == 10
        assert len(RUNS) == 1
        calls.value = "another"
        await asyncio.sleep(50)
        assert len(RUNS) == 2
        calls.errors = [ValueError("down")]
        await asyncio.sleep(50)
        assert len(RUNS) == 4, "it fails, and it works again"
        calls.value = "same"
        await asyncio.sleep(50)
        assert len(RUNS) == 5


@pytest.mark.parametrize(("every", "delay"), [(0, 0), (-1, 0), (1, -1)])
def test_times_that_cannot_be_are_refused(every: float, delay: float) -> None:
    calls = Calls()
    with pytest.raises(ValueError, match="must be positive"):
        timer(calls.tick, every=every, initial_delay=delay)
    with pytest.raises(ValueError, match="must be positive"):
        poll(calls, every=every, initial_delay=delay)


@virtual_time
async def test_an_object_that_is_gone_leaves_no_delay_behind_whatever_the_watch_lets_pass() -> None:
    async def daily(ctx: Context, obj: App) -> Result:
        return Result(requeue_after=86_400.0)

    for passes in (when.always, when.generation_changed, when.on(deleted=lambda _: False)):
        async with app_cluster() as cluster:
            controller = Controller(name="app", reconciler=daily, primary=Watch(App, when=passes))
            manager = Manager([controller], client=cluster.operator, status_pages=None)
            running = asyncio.create_task(manager.run())
            for number in range(5):
                await cluster.client.create(app(f"a{number}"))
            await asyncio.sleep(5)
            (runner,) = manager._process.controllers.runners
            assert runner.queue.delayed == 5
            for number in range(4):
                await cluster.client.delete(App, f"a{number}", "default")
            await asyncio.sleep(5)
            assert [delay.key.name for delay in runner.queue.view().delays] == ["a4"]
            running.cancel()
            await asyncio.wait([running])
