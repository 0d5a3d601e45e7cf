"""An error that escapes a reconciler becomes a condition of its object, until the next success."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from app_cluster import RESYNC, App, AppCluster, AppStatus, app, app_cluster
from test_finalizers import BUCKET, Outside

from kubeshard import Condition, Context, Controller, KubeObject, Result, Watch, errors, when
from kubeshard.controller import ReconcileFn
from kubeshard.core import MergePatch
from kubeshard.runtime.transport import HttpResponse
from kubeshard_lab.virtual_time import virtual_time


class QuotaExceeded(Exception):
    pass


class Acting:
    """A reconciler that does as it is told: an exception, a status, or a function."""

    def __init__(self, act: Any = None) -> None:
        self.act = act
        self.runs = 0

    async def __call__(self, ctx: Context, obj: App) -> Result | None:
        self.runs += 1
        if isinstance(self.act, BaseException):
            raise self.act
        if isinstance(self.act, AppStatus):
            await ctx.status(obj, self.act)
            return None
        result: Result | None = await self.act(ctx, obj) if self.act else None
        return result

    def controller(self, **options: Any) -> Controller[App]:
        options = {"primary": Watch(App, resync=RESYNC), "error_condition": "Ready", **options}
        return Controller(name="app", reconciler=self, **options)


async def ready(cluster: AppCluster) -> tuple[str, str, str]:
    condition = await cluster.condition()
    assert condition is not None
    return condition.status, condition.reason, condition.message


async def resize(cluster: AppCluster, size: int) -> None:
    await cluster.client.patch(App, "a", "default", MergePatch({"spec": {"size": size}}))
    await asyncio.sleep(5)


@virtual_time
async def test_an_error_is_told_once_and_gone_with_the_next_success() -> None:
    async with app_cluster() as cluster:
        acting = Acting(QuotaExceeded("no more than 3"))
        await cluster.client.create(app())
        async with cluster.running(acting.controller()):
            assert await ready(cluster) == ("False", "QuotaExceeded", "no more than 3")
            failed = await cluster.condition()
            await asyncio.sleep(600)
            assert acting.runs > 10
            assert cluster.sent == ["GET a", "PATCH status"]
            acting.act = None
            await asyncio.sleep(100)
            assert await ready(cluster) == ("True", "Reconciled", "")
            done = await cluster.condition()
            assert failed is not None
            assert done is not None
            assert done.last_transition_time > failed.last_transition_time
            assert cluster.sent == ["GET a", "PATCH status"]
            await asyncio.sleep(RESYNC * 1.2)
            assert cluster.sent == []


@virtual_time
async def test_what_the_controller_states_otherwise_stays_through_an_error_and_after_it() -> None:
    async with app_cluster() as cluster:
        acting = Acting(AppStatus(url="u", size=3))
        await cluster.client.create(app())
        async with cluster.running(acting.controller()):
            assert (await cluster.status()).url == "u"
            assert await ready(cluster) == ("True", "Reconciled", "")
            cluster.sent  # noqa: B018 - forgets what was sent
            acting.act = QuotaExceeded("no")
            await resize(cluster, 2)
            status = await cluster.status()
            assert (status.url, status.size, (await ready(cluster))[0]) == ("u", 3, "False")
            assert list(await cluster.managers()) == ["app-controller"]
            acting.act = AppStatus(url="v")
            await resize(cluster, 3)
            status = await cluster.status()
            assert (status.url, status.size, (await ready(cluster))[0]) == ("v", None, "True")
            cluster.sent  # noqa: B018 - forgets what was sent
            await asyncio.sleep(RESYNC * 1.2)
            assert cluster.sent == []


@virtual_time
async def test_a_condition_that_the_author_states_is_as_stated() -> None:
    async with app_cluster() as cluster:
        waits = Condition(type="Ready", status="False", reason="Starting", message="2 of 3")
        acting = Acting(AppStatus(conditions=(waits,)))
        await cluster.client.create(app())
        async with cluster.running(acting.controller()):
            assert await ready(cluster) == ("False", "Starting", "2 of 3")
            assert cluster.sent == ["PATCH status"]
            acting.act = QuotaExceeded("no")
            await resize(cluster, 2)
            assert await ready(cluster) == ("False", "QuotaExceeded", "no")
            acting.act = AppStatus(conditions=(waits,))
            await resize(cluster, 3)
            assert await ready(cluster) == ("False", "Starting", "2 of 3")


@virtual_time
async def test_an_error_whose_text_never_is_the_same_is_no_loop() -> None:
    """Each write of the status is a change, which triggers the controller."""
    async with app_cluster() as cluster:
        acting = Acting()

        async def fail(ctx: Context, obj: App) -> None:
            raise QuotaExceeded(f"request {acting.runs}")

        acting.act = fail
        await cluster.client.create(app())
        async with cluster.running(acting.controller()):
            await asyncio.sleep(595)
            assert cluster.sent.count("PATCH status") <= 11
            assert acting.runs < 60
            assert (await ready(cluster))[2] != "request 1"


@virtual_time
async def test_a_run_that_is_out_of_time_says_so() -> None:
    async with app_cluster() as cluster:

        async def hang(ctx: Context, obj: App) -> None:
            await asyncio.Event().wait()

        acting = Acting(hang)
        await cluster.client.create(app())
        async with cluster.running(acting.controller(reconcile_timeout=30.0)):
            await asyncio.sleep(40)
            assert await ready(cluster) == ("False", "TimeoutError", "not done within 30 s")
            assert acting.runs == 2


@virtual_time
async def test_a_run_that_is_out_of_time_says_so_also_where_others_had_some_of_it() -> None:
    """A wrapper may use up time before the reconciler runs, like a shard that reads the object first."""

    def waiting(inner: ReconcileFn) -> ReconcileFn:
        async def run(ctx: Context, obj: KubeObject | None) -> Result | None:
            await asyncio.sleep(5)
            return await inner(ctx, obj)

        return run

    async with app_cluster() as cluster:

        async def hang(ctx: Context, obj: App) -> None:
            await asyncio.Event().wait()

        controller = Acting(hang).controller(reconcile_timeout=30.0, wrappers=(waiting,))
        await cluster.client.create(app())
        async with cluster.running(controller):
            await asyncio.sleep(40)
            assert await ready(cluster) == ("False", "TimeoutError", "not done within 30 s")


@virtual_time
async def test_a_run_that_is_cancelled_says_nothing() -> None:
    """It has lost the right to write."""
    async with app_cluster() as cluster:

        async def hang(ctx: Context, obj: App) -> None:
            await asyncio.Event().wait()

        await cluster.client.create(app())
        async with cluster.running(Acting(hang).controller()):
            pass
        assert (await cluster.status()).conditions == ()


@pytest.mark.parametrize(
    "error", [errors.Conflict("stale"), errors.AlreadyExists("stale"), errors.NotOurs("moved")]
)
def test_a_stale_read_is_no_failure(error: Exception) -> None:
    @virtual_time
    async def check() -> None:
        async with app_cluster() as cluster:
            await cluster.client.create(app())
            async with cluster.running(Acting(error).controller()):
                assert (await cluster.status()).conditions == ()
                assert cluster.sent == []

    check()


@virtual_time
async def test_of_several_errors_the_worst_is_told_and_a_long_one_is_cut() -> None:
    async with app_cluster() as cluster:
        group = ExceptionGroup("several", [errors.Conflict("stale"), QuotaExceeded("x" * 5000)])
        await cluster.client.create(app())
        async with cluster.running(Acting(group).controller()):
            status, reason, message = await ready(cluster)
            assert (status, reason, len(message)) == ("False", "QuotaExceeded", 1024)


@virtual_time
async def test_a_report_that_fails_changes_nothing_of_how_the_error_is_treated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with app_cluster() as cluster:
        body = b'{"kind":"Status","reason":"Forbidden","message":"no right","code":403}'
        cluster.recording.instead["PATCH"] = HttpResponse(403, {"content-type": "application/json"}, body)
        acting = Acting(errors.Terminal("for good"))
        await cluster.client.create(app())
        async with cluster.running(acting.controller(primary=Watch(App, when=when.generation_changed))):
            await asyncio.sleep(600)
            assert acting.runs == 1
        assert "Could not report the failure" in caplog.text
        assert "Reconcile failed permanently" in caplog.text


@virtual_time
async def test_a_success_that_cannot_be_told_is_a_run_that_failed() -> None:
    async with app_cluster() as cluster:
        body = b'{"kind":"Status","reason":"Forbidden","message":"no right","code":403}'
        cluster.recording.instead["PATCH"] = HttpResponse(403, {"content-type": "application/json"}, body)
        acting = Acting()
        await cluster.client.create(app())
        async with cluster.running(acting.controller(primary=Watch(App, when=when.generation_changed))):
            await asyncio.sleep(60)
            assert acting.runs > 3
            cluster.recording.instead.clear()
            await asyncio.sleep(100)
            assert await ready(cluster) == ("True", "Reconciled", "")


@virtual_time
async def test_a_finalizer_that_is_stuck_is_seen_in_the_condition_with_its_age() -> None:
    async with app_cluster() as cluster:
        outside = Outside()
        outside.act[f"a {BUCKET}"] = OSError("no route")
        await cluster.client.create(app())
        async with cluster.running(outside.controller(error_condition="Ready")):
            assert await ready(cluster) == ("True", "Reconciled", "")
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(5)
            start = f"finalizer {BUCKET}, "
            assert await ready(cluster) == (
                "False",
                "OSError",
                f"{start}less than a minute after the deletion: no route",
            )
            await asyncio.sleep(300)
            assert (await ready(cluster))[2] in [
                f"{start}{minutes} min after the deletion: no route" for minutes in (3, 4, 5)
            ]
            outside.act[f"a {BUCKET}"] = Result(requeue_after=10)
            await asyncio.sleep(200)
            status, reason, message = await ready(cluster)
            assert (status, reason) == ("False", "Finalizing")
            assert message.startswith(start)
            outside.act.clear()
            await asyncio.sleep(100)
            assert await cluster.get() is None


class Loose(KubeObject, group="example.com", version="v1", kind="App"):
    status: Mapping[str, Any] | None = None


def test_a_class_without_conditions_is_refused() -> None:
    with pytest.raises(TypeError, match="error_condition needs `conditions: tuple"):
        Controller(name="app", reconciler=Acting(), primary=Loose, error_condition="Ready")
