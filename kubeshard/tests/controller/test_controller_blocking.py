"""Reconciles that block run in threads: on real event loops, without waiting for any time to pass."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from controller_bench import Bench, Site, json_answer, site

from kubeshard.cache.scope import ALL_NAMESPACES
from kubeshard.controller import BlockingReconciler, Context, Controller, Result, deadlines
from kubeshard.controller.cluster import Cluster
from kubeshard.controller.in_flight import follow_thread
from kubeshard.controller.runner import ControllerRunner
from kubeshard.core import Key
from kubeshard.core.patches import MergePatch
from kubeshard.listwatch.state_machine import Listed
from kubeshard.runtime.blocking_calls import FollowedExecutor, Threads, wait_in_thread

A = Key("ns", "a")
PATIENCE = 20.0


class Work:
    """Blocks until `may_end` is set, and counts how many reconciles block at once."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.began = threading.Semaphore(0)
        self._lock = threading.Lock()
        self.running = 0
        self.most = 0
        self.runs = 0

    def __call__(self) -> None:
        with self._lock:
            self.running += 1
            self.runs += 1
            self.most = max(self.most, self.running)
        self.began.release()
        self.may_end.wait(PATIENCE)
        with self._lock:
            self.running -= 1


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - of threads, which know no asyncio.Event
            await asyncio.sleep(0.001)


async def started(made: Bench, first: Site | None = None) -> asyncio.Task[None]:
    """Runs the bench's controller on a cache with one Site. (`Bench.running` needs virtual time.)"""
    running = asyncio.create_task(made.runner.run())
    await asyncio.sleep(0)
    for informer in made.cache.informers:
        await informer.listed(Listed("1"), {A: first or site("a")}, ALL_NAMESPACES)
    return running


def on_a_real_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


async def check_one_run_at_a_time(reconcile: Callable[[Context, Any], Any], work: Work) -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(deadlines, "OVERDUE", 0.1)  # time is real here
    made = Bench(reconcile, workers=3, reconcile_timeout=0.01)
    running = await started(made)
    try:
        await until(lambda: made.recorded.outcomes or work.running)
        await until(lambda: made.recorded.overdue_runs)
        await asyncio.sleep(0.05)  # enough time for a second run to start if one could
        made.runner.queue.add(A)
        await asyncio.sleep(0.05)
        assert work.most == 1
        drain = asyncio.create_task(made.runner.drain())
        await asyncio.sleep(0.02)
        assert not drain.done()
        work.may_end.set()
        async with asyncio.timeout(PATIENCE):
            await drain
        assert work.runs == 1
        assert made.recorded.labels == ["error"]
    finally:
        patch.undo()
        work.may_end.set()
        running.cancel()
        await asyncio.wait([running])


@pytest.mark.regression
@on_a_real_loop
async def test_a_key_stays_busy_until_the_thread_of_a_timed_out_run_has_ended() -> None:
    work = Work()

    async def reconcile(ctx: Context, obj: Site) -> None:
        await ctx.run_blocking(work)

    await check_one_run_at_a_time(reconcile, work)


@pytest.mark.regression
@on_a_real_loop
async def test_threads_of_the_default_executor_are_followed() -> None:
    work = Work()
    asyncio.get_running_loop().set_default_executor(FollowedExecutor(follow_thread))

    async def reconcile(ctx: Context, obj: Site) -> None:
        blocking = asyncio.ensure_future(asyncio.to_thread(work))
        await asyncio.sleep(0)
        work.began.acquire(
            timeout=PATIENCE
        )  # before the time is over: a call that no thread has begun is cancelled
        await blocking

    await check_one_run_at_a_time(reconcile, work)


class Blocking(BlockingReconciler[Site]):
    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.ended: BaseException | None = None

    def reconcile(self, ctx: Context, obj: Site) -> Result | None:
        try:
            written = ctx.wait(ctx.client.patch(Site, "a", "ns", MergePatch({})))
            self.seen.append((threading.current_thread().name, written.metadata.name))
            ctx.event(obj, "Normal", "Written", "from a thread")
            ctx.wait(asyncio.sleep(3600))
        except BaseException as error:
            self.ended = error
            raise
        return None


@pytest.mark.regression
@on_a_real_loop
async def test_a_plain_function_reconciles_in_a_thread_and_ends_at_its_next_wait_when_time_is_over() -> None:
    made = Bench(lambda *_: asyncio.sleep(0), answer=lambda _: json_answer(site("a", 2)))
    blocking = Blocking()
    made.runner = ControllerRunner(
        Controller(name="blocking", reconciler=blocking, primary=Site, reconcile_timeout=0.2),
        Cluster(made.client, made.cache, made.recorded),
        metrics=made.recorded,
    )
    running = await started(made)
    try:
        await until(lambda: made.recorded.outcomes)
        assert blocking.seen[0] == ("blocking", "a")
        assert isinstance(blocking.ended, asyncio.CancelledError)
        assert made.recorded.events == [("Normal", "Written")]
        assert made.recorded.labels[0] == "error"
    finally:
        running.cancel()
        await asyncio.wait([running])


@on_a_real_loop
async def test_no_more_threads_at_once_than_were_asked_for() -> None:
    work, threads = Work(), Threads("few", 2)
    begun = [asyncio.create_task(threads.begin(work)) for _ in range(5)]
    await until(lambda: work.running == 2)
    await asyncio.sleep(0.01)
    assert work.most == 2
    work.may_end.set()
    for task in begun:
        await asyncio.wrap_future(await task)
    assert (work.runs, work.most) == (5, 2)


@on_a_real_loop
async def test_what_a_thread_raises_is_raised() -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await asyncio.wrap_future(await Threads("one", 1).begin(fail))


@on_a_real_loop
async def test_looking_up_names_is_no_work_of_a_run() -> None:
    followed: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_default_executor(FollowedExecutor(followed.append))
    await loop.getaddrinfo("127.0.0.1", 80)
    assert followed == []
    await asyncio.to_thread(len, "")
    assert len(followed) == 1


@on_a_real_loop
async def test_a_thread_with_an_event_loop_is_told_to_await() -> None:
    with pytest.raises(RuntimeError, match="await the coroutine"):
        wait_in_thread(asyncio.sleep(0), asyncio.get_running_loop())
