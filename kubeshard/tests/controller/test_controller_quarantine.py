"""A run that ignores its cancellation costs its own object only."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from controller_bench import Bench, Site, site
from test_controller_blocking import on_a_real_loop, started, until

from kubeshard.cache.scope import ALL_NAMESPACES
from kubeshard.controller import Context
from kubeshard.controller.deadlines import OVERDUE, TOLERATED
from kubeshard.core import Key
from kubeshard.runtime.blocking_calls import Threads
from kubeshard_lab.virtual_time import settle, virtual_time

pytestmark = pytest.mark.regression

TIMEOUT = 10.0


class Reconciling:
    """Runs of Sites whose theme is `poison` do not end before `over`, whatever is cancelled."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.begun: list[str] = []
        self.done: list[str] = []

    async def __call__(self, ctx: Context, obj: Site) -> None:
        self.begun.append(obj.metadata.name)
        while obj.spec.theme == "poison" and not self.over.is_set():
            try:
                await self.over.wait()
            except asyncio.CancelledError:
                continue
        self.done.append(obj.metadata.name)


@asynccontextmanager
async def reconciling(*objects: Site, workers: int = 1) -> AsyncIterator[tuple[Bench, Reconciling]]:
    reconcile = Reconciling()
    bench = Bench(reconcile, workers=workers, reconcile_timeout=TIMEOUT)
    async with bench.running(*objects):
        try:
            yield bench, reconcile
        finally:
            reconcile.over.set()


def poisons(count: int) -> list[Site]:
    return [site(f"p{number}", theme="poison") for number in range(count)]


async def overdue() -> None:
    await asyncio.sleep(TIMEOUT + OVERDUE + 0.1)


@virtual_time
async def test_the_worker_of_a_run_that_does_not_end_is_replaced_and_its_object_stays_busy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with reconciling(*poisons(1)) as (bench, reconcile):
        await bench.put(site("a"))
        assert reconcile.done == []
        await overdue()
        assert reconcile.done == ["a"]
        await bench.put(site("p0", 2, theme="poison"))
        await asyncio.sleep(1000)
        assert reconcile.begun == ["p0", "a"]
        assert bench.runner.hanging() is None
        assert [each.key for each in bench.runner.queue.view().running] == [Key("ns", "p0")]
        reconcile.over.set()
        await settle()
        assert reconcile.begun == ["p0", "a", "p0"], "what came meanwhile is reconciled now"
        await bench.put(site("b"))
        assert reconcile.done[-1] == "b"
        assert len(bench.runner._workers.tasks) == 1, "the worker that was given up has ended"
    assert bench.recorded.events == [("Warning", "ReconcileHangs")]
    assert bench.recorded.overdue_runs == [1, -1]
    (line,) = (each for each in caplog.records if each.message.startswith("Reconcile is overdue"))
    assert line.__dict__["fields"]["object"] == Key("ns", "p0")


@virtual_time
async def test_a_drain_does_not_end_before_a_run_that_was_given_up() -> None:
    async with reconciling(*poisons(1)) as (bench, reconcile):
        await overdue()
        drain = asyncio.create_task(bench.runner.drain())
        await asyncio.sleep(1000)
        assert not drain.done()
        assert bench.runner.under_way()
        reconcile.over.set()
        await drain


@virtual_time
async def test_a_worker_that_has_a_run_which_swallowed_its_cancellation_takes_no_other_key() -> None:
    async with reconciling(*poisons(1)) as (bench, reconcile):
        running = bench.runner._workers._runner
        assert running is not None
        running.cancel()
        await settle()
        await bench.put(site("a"))
        reconcile.over.set()
        await settle()
        assert reconcile.begun == ["p0"]


@virtual_time
async def test_a_task_group_of_a_reconciler_that_fails_costs_no_worker() -> None:
    """Before Python 3.13 it leaves a request to cancel the worker behind, if it fails while it waits for its tasks."""
    begun = list[str]()

    async def fail() -> None:
        await asyncio.sleep(0.1)
        raise RuntimeError("a bug")

    async def reconcile(ctx: Context, obj: Site) -> None:
        begun.append(obj.metadata.name)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())
            tasks.create_task(asyncio.sleep(1))

    bench = Bench(reconcile, workers=1)
    async with bench.running(site("a"), site("b"), site("c")):
        await asyncio.sleep(10)
        assert {*begun} == {"a", "b", "c"}
        assert len(begun) > 6, "each is tried again"


@pytest.mark.parametrize("workers", [1, TOLERATED + 5])
def test_a_controller_tolerates_so_many_runs_that_do_not_end_and_no_more(workers: int) -> None:
    @virtual_time
    async def check() -> None:
        bound = max(TOLERATED, workers)
        async with reconciling(workers=workers) as (bench, reconcile):
            for number, poison in enumerate(poisons(bound + 1)):
                assert bench.runner.hanging() is None
                await bench.put(poison)
                await overdue()
                await bench.put(site(f"a{number}"))  # there is progress
            assert len(reconcile.done) == bound + 1
            problem = bench.runner.hanging()
            assert problem is not None
            assert problem.startswith(
                f"{bound + 1} reconciles do not end, more than the {bound} that are tolerated"
            )
            reconcile.over.set()
            await settle()
            assert bench.runner.hanging() is None

    check()


@virtual_time
async def test_a_controller_whose_runs_all_hang_says_so_after_one_generation_of_workers() -> None:
    async with reconciling(*poisons(9), workers=3) as (bench, _):
        await overdue()
        assert bench.runner.hanging() is None, "the next ones may end"
        await overdue()
        problem = bench.runner.hanging()
        assert problem is not None
        assert problem.startswith(
            "6 reconciles in a row do not end, and no other one has ended since: ns/p0, ns/p1"
        )


@on_a_real_loop
async def test_a_thread_that_blocks_does_not_take_the_turn_of_others() -> None:
    may_end, called = threading.Event(), []

    async def reconcile(ctx: Context, obj: Site) -> None:
        if obj.spec.theme == "poison":
            await ctx.run_blocking(may_end.wait)
        await ctx.run_blocking(called.append, obj.metadata.name)

    made = Bench(reconcile, workers=1, reconcile_timeout=0.05)
    running = await started(made, site("a", theme="poison"))
    try:
        await until(lambda: made.recorded.overdue_runs)
        made.cache.informer(Site).put(site("b"), ALL_NAMESPACES)
        await until(lambda: called == ["b"])
    finally:
        may_end.set()
        running.cancel()
        await asyncio.wait([running])


@on_a_real_loop
async def test_the_turn_of_a_call_that_was_given_up_is_not_given_twice() -> None:
    may_end, threads = threading.Event(), Threads("one", 1)
    first: Any = await threads.begin(may_end.wait)
    threads.give_up(first)
    threads.give_up(first)
    await asyncio.wrap_future(await threads.begin(lambda: None))
    may_end.set()
    await asyncio.wrap_future(first)
    await asyncio.sleep(0.01)
    second: Any = await threads.begin(may_end.wait)
    await asyncio.wrap_future(second)
    assert threads._free._value <= 1
