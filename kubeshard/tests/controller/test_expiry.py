"""`Controller.expires`: an object is deleted when the time has come that it says itself, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from app_cluster import App, AppCluster, AppSpec, AppStatus, app, app_cluster

from kubeshard import Context, Controller, Finalizer, Watch, errors, when
from kubeshard.core import MergePatch
from kubeshard.core.kinds import GroupResource
from kubeshard.manager.roles import controller_grants
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard_lab.virtual_time import virtual_time

BEFORE = 5.0
"""Seconds that `AppCluster.running` waits."""


def after_size(obj: App) -> datetime | None:
    """As many seconds after its creation as its size says."""
    created = obj.metadata.created
    return created + timedelta(seconds=obj.spec.size) if created and obj.spec.size else None


def after_done(obj: App) -> datetime | None:
    """As many seconds after its creation as its status says."""
    created = obj.metadata.created
    return created + timedelta(seconds=obj.status.size) if created and obj.status.size else None


async def nothing(ctx: Context, obj: App) -> None: ...


def expiring(expires: Callable[[App], Any] = after_size, **options: Any) -> Controller[App]:
    return Controller(**{"name": "app", "reconciler": nothing, "primary": App, "expires": expires, **options})


async def create(cluster: AppCluster, ttl: int, *finalizers: str, name: str = "a") -> None:
    await cluster.client.create(msgspec.structs.replace(app(name, *finalizers), spec=AppSpec(size=ttl)))


async def resize(cluster: AppCluster, ttl: int | None) -> None:
    await cluster.client.patch(App, "a", "default", MergePatch({"spec": {"size": ttl}}))


@virtual_time
async def test_an_object_is_deleted_at_its_time_and_one_without_a_time_never() -> None:
    async with app_cluster() as cluster:
        await create(cluster, 100)
        await create(cluster, 0, name="lasting")
        async with cluster.running(expiring()):
            await asyncio.sleep(90 - BEFORE)
            assert await cluster.get() is not None
            await asyncio.sleep(12)
            assert await cluster.get() is None
            await asyncio.sleep(10_000)
            assert await cluster.get("lasting") is not None
            assert [each for each in cluster.sent if each.startswith("DELETE")] == ["DELETE a"]


@virtual_time
@pytest.mark.parametrize(("ttl", "gone"), [(50, True), (500, False), (None, False)])
async def test_a_time_that_changes_counts_as_soon_as_the_object_says_so(ttl: int | None, gone: bool) -> None:
    async with app_cluster() as cluster:
        await create(cluster, 100)
        async with cluster.running(expiring()):
            await resize(cluster, ttl)
            await asyncio.sleep(60)
            assert (await cluster.get() is None) == gone
            await asyncio.sleep(60)
            assert (await cluster.get() is None) == gone
            await asyncio.sleep(500)
            assert (await cluster.get() is None) == (ttl is not None)


@virtual_time
@pytest.mark.parametrize("echoes", [True, False])
async def test_what_the_watch_does_not_let_pass_counts_also_what_a_run_writes_itself(echoes: bool) -> None:
    runs: list[float] = []

    async def finish(ctx: Context, obj: App) -> None:
        runs.append(asyncio.get_running_loop().time())
        await ctx.status(obj, AppStatus(size=100))

    async with app_cluster() as cluster:
        await create(cluster, 0)
        watch = Watch(App, when=when.generation_changed, echoes=echoes)
        async with cluster.running(expiring(after_done, reconciler=finish, primary=watch)):
            await asyncio.sleep(90 - BEFORE)
            assert await cluster.get() is not None
            await asyncio.sleep(12)
            assert await cluster.get() is None
            assert len(runs) <= 2, "none in place of the deletion"


@virtual_time
async def test_an_object_that_expired_while_nothing_ran_is_deleted_at_the_start() -> None:
    never = when.Predicate(lambda delta: False, "never")
    async with app_cluster() as cluster:
        await create(cluster, 100)
        async with cluster.running(expiring()):
            pass
        await asyncio.sleep(100)
        assert await cluster.get() is not None
        async with cluster.running(expiring(primary=Watch(App, when=never))):
            assert await cluster.get() is None


@virtual_time
@pytest.mark.parametrize(
    "error", [OSError("no"), errors.Terminal("never"), errors.Retry("later", after=9000.0)]
)
async def test_an_object_whose_runs_fail_expires_all_the_same(error: Exception) -> None:
    async def fail(ctx: Context, obj: App) -> None:
        raise error

    async with app_cluster() as cluster:
        await create(cluster, 100)
        async with cluster.running(expiring(reconciler=fail, give_up_after=2)):
            await asyncio.sleep(102)
            assert await cluster.get() is None


@virtual_time
async def test_a_deletion_that_is_refused_is_told_on_the_object_and_tried_again() -> None:
    body = b'{"kind":"Status","reason":"Forbidden","code":403,"message":"apps is forbidden"}'
    async with app_cluster() as cluster:
        cluster.recording.instead["DELETE"] = HttpResponse(403, {"content-type": "application/json"}, body)
        await create(cluster, 10)
        async with cluster.running(expiring(error_condition="Ready")):
            await asyncio.sleep(60)
            ready = await cluster.condition()
            assert ready is not None
            assert (ready.status, ready.reason) == ("False", "Forbidden")
            assert len([each for each in cluster.sent if each.startswith("DELETE")]) < 15
            cluster.recording.instead.clear()
            await asyncio.sleep(70)
            assert await cluster.get() is None


@virtual_time
async def test_what_the_object_controls_goes_with_it_whatever_the_default_of_its_kind() -> None:
    async with app_cluster() as cluster:
        await create(cluster, 10)
        async with cluster.running(expiring()):
            await asyncio.sleep(20)
            (sent,) = (each for each in cluster.recording.requests if each.method == "DELETE")
            assert msgspec.json.decode(sent.body)["propagationPolicy"] == "Background"


@virtual_time
async def test_an_object_that_is_being_deleted_is_left_to_its_finalizers() -> None:
    cleaned: list[str] = []

    async def clean(ctx: Context, obj: App) -> None:
        cleaned.append(obj.metadata.name)

    async with app_cluster() as cluster:
        await create(cluster, 10, "example.com/of-another")
        async with cluster.running(expiring(finalizers=[Finalizer("example.com/bucket", clean)])):
            await asyncio.sleep(100)
            left = await cluster.get()
            assert left is not None
            assert left.metadata.deleting
            assert left.metadata.finalizers == ("example.com/of-another",)
            assert cleaned == ["a"]
            assert [each for each in cluster.sent if each.startswith("DELETE")] == ["DELETE a"]


@virtual_time
async def test_an_object_that_was_given_more_time_meanwhile_is_not_deleted() -> None:
    """The cache does not show it yet, but the API server refuses to delete another state than the one that expired."""
    async with app_cluster() as cluster:
        await create(cluster, 10)
        straight = cluster.recording.request
        refused: list[int] = []

        async def late(request: HttpRequest) -> HttpResponse:
            if request.method == "DELETE" and not refused:
                await resize(cluster, 500)
            response = await straight(request)
            if request.method == "DELETE":
                refused.append(response.status)
            return response

        cluster.recording.request = late  # type: ignore[method-assign]
        async with cluster.running(expiring()):
            await asyncio.sleep(100)
            assert await cluster.get() is not None
            assert refused == [409]
            await asyncio.sleep(410)
            assert await cluster.get() is None


@virtual_time
async def test_a_deletion_without_an_answer_is_made_sure_of() -> None:
    async with app_cluster() as cluster:
        for lost in ("request", "answer"):
            cluster.recording.lost, cluster.recording.after = lost, 0
            await create(cluster, 10)
            async with cluster.running(expiring()):
                await asyncio.sleep(30)
                assert await cluster.get() is None


@virtual_time
@pytest.mark.parametrize("wrong", [5.0, datetime(2026, 1, 1), "2026-01-01T00:00:00Z"])
async def test_a_time_that_is_none_is_told_on_the_object(wrong: object) -> None:
    async with app_cluster() as cluster:
        await create(cluster, 10)
        async with cluster.running(expiring(lambda obj: wrong, error_condition="Ready")):
            ready = await cluster.condition()
            assert ready is not None
            assert ready.status == "False"
            assert "return None, or a datetime with a time zone" in ready.message
            assert await cluster.get() is not None


def test_expires_is_a_plain_function() -> None:
    async def late(obj: App) -> None: ...

    for wrong in (late, 60.0):
        with pytest.raises(TypeError, match="controller app: expires is a plain function"):
            expiring(wrong)  # type: ignore[arg-type]


def unknown(obj: App) -> datetime:
    raise KeyError("ttl")


@virtual_time
@pytest.mark.parametrize(
    ("expires", "said"),
    [
        (unknown, "KeyError: 'ttl'"),
        (lambda obj: datetime(2026, 1, 1), "return None, or a datetime with a time zone"),
        (lambda obj: False, "expires returned False"),
    ],
    ids=["raises", "no time zone", "no time"],
)
async def test_a_mistake_in_expires_fails_the_run_and_does_not_keep_the_reconcile_from_its_work(
    expires: Callable[[App], Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    watch = Watch(App, when=when.generation_changed)

    async def work(ctx: Context, obj: App) -> None:
        seen.append(obj.metadata.name)

    async with app_cluster() as cluster:
        await create(cluster, 100)
        async with cluster.running(expiring(expires, reconciler=work, primary=watch)):
            assert "a" in seen
            assert said in caplog.text
            seen.clear()
            await cluster.client.patch(App, "a", "default", MergePatch({"spec": {"size": 7}}))
            await asyncio.sleep(5)
            assert "a" in seen
            assert await cluster.get() is not None


def test_the_role_of_a_controller_with_expires_may_delete() -> None:
    def verbs(controller: Controller[App]) -> set[str]:
        apps = GroupResource("example.com", "apps")
        found = controller_grants(controller, lambda kind: None)
        return {verb for grant in found if grant.resource == apps for verb in grant.verbs}

    assert "delete" in verbs(expiring())
    assert "delete" not in verbs(Controller(name="app", reconciler=nothing, primary=App))
