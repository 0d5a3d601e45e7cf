"""Whatever an author's function does with task groups, timeouts and tasks of its own: it is called again, it ends when
it has to, and what fails is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from app_cluster import App, AppCluster, app, app_cluster

from failing_groups import (
    FOREVER,
    await_what_was_cancelled,
    be_late_after_a_group_has_failed,
    fail_in_a_group,
    fail_in_a_group_when_cancelled,
)
from kubeshard import Context, Controller, Manager, Reconciler, Result
from kubeshard.controller import Daemon, timer
from kubeshard.controller.event_series import ObjectReference
from kubeshard.controller.events import EventRecorder
from kubeshard.core.builtin import Lease
from kubeshard.manager import LeaderElection, Runnable
from kubeshard.manager.runnable import beside
from kubeshard_lab.virtual_time import VirtualClock, virtual_time

Failing = Callable[[], Awaitable[None]]
FAILING = (fail_in_a_group, be_late_after_a_group_has_failed, await_what_was_cancelled)


class Idle(Reconciler[App]):
    def __init__(self) -> None:
        self.gone_after: float | None = None

    async def reconcile(self, ctx: Context, obj: App) -> Result | None:
        return None

    async def gone(self, ctx: Context, key: object) -> None:
        self.gone_after = ctx.clock.monotonic()


@pytest.mark.parametrize("failing", FAILING)
def test_a_timer_is_called_again_however_its_function_fails(failing: Failing) -> None:
    calls = 0

    async def tick(ctx: Context, obj: App) -> None:
        nonlocal calls
        calls += 1
        if calls <= len(FAILING):  # one may come to light in the next
            await failing()

    @virtual_time
    async def scene() -> None:
        async with app_cluster() as cluster:
            await cluster.client.create(app())
            timers = Controller(name="app", reconciler=Idle(), primary=App, daemons=[timer(tick, every=10)])
            async with cluster.running(timers):
                await asyncio.sleep(200)

    scene()
    assert calls >= 17  # at most three fail in a row, and each makes the next pause longer


@pytest.mark.parametrize("failing", FAILING)
def test_a_daemon_is_restarted_however_it_fails(failing: Failing) -> None:
    starts = 0

    async def work(ctx: Context, obj: App) -> None:
        nonlocal starts
        starts += 1
        if starts <= len(FAILING):
            await failing()
        await asyncio.sleep(FOREVER)

    @virtual_time
    async def scene() -> None:
        async with app_cluster() as cluster:
            await cluster.client.create(app())
            controller = Controller(name="app", reconciler=Idle(), primary=App, daemons=[Daemon(work)])
            async with cluster.running(controller):
                await asyncio.sleep(200)

    scene()
    assert starts == len(FAILING) + 1


async def hold_a_connection(ctx: Context, obj: App) -> None:
    await fail_in_a_group_when_cancelled()


@pytest.mark.parametrize(
    "daemon", [Daemon(hold_a_connection), timer(hold_a_connection, every=10)], ids=["daemon", "timer"]
)
@virtual_time
async def test_a_daemon_that_fails_as_it_is_cancelled_has_ended(daemon: Daemon[App]) -> None:
    idle = Idle()
    controller = Controller(name="app", reconciler=idle, primary=App, daemons=[daemon])
    async with app_cluster() as cluster:
        await cluster.client.create(app("a"))
        await cluster.client.create(app("b"))
        manager = Manager([controller], client=cluster.operator, status_pages=None)
        running = asyncio.create_task(manager.run())
        await asyncio.sleep(5)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await cluster.client.delete(App, "a", "default")
        await asyncio.sleep(30)
        assert idle.gone_after is not None
        assert idle.gone_after < began + 1
        began = loop.time()
        manager.stop()
        await running
        assert loop.time() < began + 1
        assert not [task for task in asyncio.all_tasks() if "daemon" in task.get_name()]


class Part:
    """A source, or what a Runnable runs."""

    def __init__(self, failing: Failing) -> None:
        self._failing = failing

    async def run(self, enqueue: object = None) -> None:
        await asyncio.sleep(5)
        await self._failing()


@pytest.mark.parametrize("failing", [be_late_after_a_group_has_failed, await_what_was_cancelled])
@pytest.mark.parametrize("place", ["source", "runnable"])
@virtual_time
async def test_a_part_that_ends_by_a_failure_stops_the_process(failing: Failing, place: str) -> None:
    part = Part(failing)
    sources = [part] if place == "source" else []
    runnables = [Runnable("part", part.run)] if place == "runnable" else []
    controller = Controller(name="app", reconciler=Idle(), primary=App, sources=sources)
    async with app_cluster() as cluster:
        manager = Manager([controller], client=cluster.operator, status_pages=None, runnables=runnables)
        running = asyncio.create_task(manager.run())
        await asyncio.wait([running], timeout=100)
        assert running.done()
        assert running.exception() is not None


@virtual_time
async def test_a_part_that_fails_as_it_is_cancelled_is_told_and_keeps_the_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever it left undone, the next leader begins no sooner than after a crash."""
    part = Runnable("part", fail_in_a_group_when_cancelled, needs_leadership=True)
    async with app_cluster() as cluster:
        assert await holder_after_stop(cluster, part) != ""
    assert "Failed while it was being cancelled" in caplog.text
    assert "the connection cannot be closed" in caplog.text


@virtual_time
async def test_an_author_may_stop_what_a_part_waits_for_together_with_the_manager(
    caplog: pytest.LogCaptureFixture,
) -> None:
    helper = asyncio.create_task(asyncio.sleep(FOREVER))

    async def wait_for_helper() -> None:
        await helper

    async with app_cluster() as cluster:
        part = Runnable("part", wait_for_helper, needs_leadership=True)
        assert await holder_after_stop(cluster, part, helper.cancel) == ""
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def holder_after_stop(
    cluster: AppCluster, part: Runnable, stopping: Callable[[], object] = lambda: None
) -> str | None:
    controller = Controller(name="app", reconciler=Idle(), primary=App)
    election = LeaderElection(name="app", namespace="default")
    manager = Manager(
        [controller],
        client=cluster.operator,
        status_pages=None,
        leader_election=election,
        runnables=[part],
    )
    running = asyncio.create_task(manager.run())
    await asyncio.sleep(60)
    assert not running.done()
    stopping()
    manager.stop()
    await running
    return (await cluster.client.get(Lease, "app", "default")).spec.holder_identity


@virtual_time
async def test_work_beside_a_block_that_is_cancelled_before_it_begins_does_not_hold_up_the_block() -> None:
    async def work() -> None:
        raise AssertionError("it never begins")

    async def block() -> None:
        async with beside("work", work(), lambda _: None):
            pass

    blocked = asyncio.create_task(block())
    await asyncio.sleep(0)
    next(task for task in asyncio.all_tasks() if task.get_name() == "work").cancel()
    async with asyncio.timeout(10):
        await blocked


@virtual_time
async def test_a_worker_outlives_a_failed_group_and_advice_that_the_server_does_not_give() -> None:
    reconciled = []

    async def reconcile(ctx: Context, obj: App) -> None:
        reconciled.append(obj.metadata.name)
        if obj.metadata.name == "a":

            async def make() -> None:
                await ctx.client.create(app("taken"))

            async with asyncio.TaskGroup() as group:
                group.create_task(make())

    async with app_cluster() as cluster:
        cluster.recording.unanswered = lambda request: (
            request.method == "GET" and "/apps/taken" in request.target
        )
        await cluster.client.create(app("taken"))
        await cluster.client.create(app("a"))
        async with cluster.running(Controller(name="app", reconciler=reconcile, primary=App, workers=1)):
            await asyncio.sleep(900)
            await cluster.client.create(app("later"))
            await asyncio.sleep(300)
    assert "later" in reconciled


@virtual_time
async def test_a_run_that_is_out_of_time_is_reported_in_the_status_after_a_group_has_failed() -> None:
    async def reconcile(ctx: Context, obj: App) -> None:
        try:
            await fail_in_a_group()
        except* OSError:
            pass
        await asyncio.sleep(FOREVER)

    controller = Controller(
        name="app", reconciler=reconcile, primary=App, error_condition="Ready", reconcile_timeout=10
    )
    async with app_cluster() as cluster:
        await cluster.client.create(app())
        async with cluster.running(controller):
            await asyncio.sleep(30)
            condition = await cluster.condition()
    assert condition is not None
    assert condition.reason == "TimeoutError"


@virtual_time
async def test_a_failure_that_the_server_does_not_let_report_is_retried_as_that_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def reconcile(ctx: Context, obj: App) -> None:
        await fail_in_a_group()

    controller = Controller(
        name="app", reconciler=reconcile, primary=App, error_condition="Ready", reconcile_timeout=100
    )
    async with app_cluster() as cluster:
        cluster.recording.unanswered = lambda request: request.method == "PATCH"
        await cluster.client.create(app())
        async with cluster.running(controller):
            await asyncio.sleep(60)
    assert "nobody answers" in caplog.text
    assert "CancelledError" not in caplog.text


@virtual_time
async def test_events_that_cannot_be_sent_in_time_are_counted_also_when_their_part_is_cancelled() -> None:
    async with app_cluster() as cluster:
        cluster.recording.unanswered = lambda request: request.method in ("POST", "PATCH")
        recorder = EventRecorder(cluster.operator, "manager", "host", clock=VirtualClock())

        async def part() -> None:
            async with recorder.running():
                about = ObjectReference(
                    api_version="v1", kind="ConfigMap", namespace="default", name="x", uid="u"
                )
                recorder.event(about, "Normal", "Made", "it is there", action="Make")
                await asyncio.sleep(FOREVER)

        task = asyncio.create_task(part())
        await asyncio.sleep(3)
        task.cancel()
        await asyncio.wait([task])
        assert recorder.dropped == 1
