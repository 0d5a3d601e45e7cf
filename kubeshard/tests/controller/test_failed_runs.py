"""An object whose run failed is never Ready, whatever failed and however late it was noticed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
import pytest
from app_cluster import STATUS, TEXT, App, AppStatus, app, app_cluster, definition
from test_error_condition import Acting, ready, resize
from test_finalizers import BUCKET, events

from kubeshard import (
    Condition,
    ConfigMap,
    Context,
    Controller,
    Finalizer,
    KubeObject,
    ObjectMeta,
    Result,
    Struct,
    Watch,
    field,
    when,
)
from kubeshard.controller import ReconcileFn
from kubeshard.core import AlreadyExists, MergePatch
from kubeshard.core.errors import Retry
from kubeshard_lab.virtual_time import virtual_time

Act = Callable[[Context, App], Awaitable[Any]]


async def forgets_an_await(ctx: Context, obj: App) -> None:
    _ = ctx.status(obj, AppStatus(url="x"))


async def returns_a_number(ctx: Context, obj: App) -> Any:
    return 30


async def returns_true(ctx: Context, obj: App) -> Any:
    return True


async def swallows_its_deadline(ctx: Context, obj: App) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()


async def turns_its_deadline_into_a_stale_read(ctx: Context, obj: App) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise AlreadyExists("no") from None


async def exits(ctx: Context, obj: App) -> None:
    raise SystemExit(3)


async def awaits_something_cancelled(ctx: Context, obj: App) -> None:
    task = asyncio.create_task(asyncio.sleep(10))
    task.cancel()
    await task


class Überlauf(Exception):
    """Its name is no reason."""


async def raises_an_odd_name(ctx: Context, obj: App) -> None:
    raise Überlauf("zu voll")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def raises_without_a_text(ctx: Context, obj: App) -> None:
    raise Unspeakable


async def raises_odd_bytes(ctx: Context, obj: App) -> None:
    raise Retry(b"no file caf\xe9".decode(errors="surrogateescape"))


def states(**fields: Any) -> Act:
    async def act(ctx: Context, obj: App) -> None:
        await ctx.status(obj, AppStatus(**fields))

    return act


def writes(**data: Any) -> Act:
    async def act(ctx: Context, obj: App) -> None:
        await ctx.client.patch(App, "a", "default", MergePatch({"spec": data}))

    return act


def nested(times: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(times):
        value = [value]
    return value


FAILURES = [
    (forgets_an_await, "ForgottenAwait", "never awaited"),
    (returns_a_number, "TypeError", "a reconcile returned int: return None or a Result"),
    (returns_true, "TypeError", "a reconcile returned bool"),
    (swallows_its_deadline, "TimeoutError", "not done within 5 s"),
    (turns_its_deadline_into_a_stale_read, "TimeoutError", "not done within 5 s"),
    (exits, "SystemExit", "3"),
    (awaits_something_cancelled, "CancelledError", ""),
    (raises_an_odd_name, "berlauf", "zu voll"),
    (raises_without_a_text, "Unspeakable", "its text cannot be shown: RuntimeError"),
    (raises_odd_bytes, "Retry", "no file caf?"),
    (states(url=5), "TypeError", "AppStatus.url: Expected `str | null`, got `int`"),
    (states(size=object()), "TypeError", "AppStatus.size has a value that cannot be sent"),
    (
        states(size=2**63),
        "ValueError",
        "['size'] has a value that cannot be sent: 9223372036854775808 is beyond 64",
    ),
    (states(size=2**80), "ValueError", "is beyond 64 bits"),
    (states(url="caf\udce9"), "ValueError", "['url'] has a value that cannot be sent"),
    (
        states(conditions=(Condition(type="Up", status="Perhaps", reason="X"),)),
        "ValueError",
        "not True, False",
    ),
    (
        writes(size=nested(30_000)),
        "ValueError",
        "App['spec'] has a value that cannot be sent: it is nested too",
    ),
    (writes(size=float("nan")), "ValueError", "App['spec']['size'] has a value that cannot be sent: nan"),
    (writes(size=2**63), "ValueError", "is beyond 64 bits"),
    (writes(size="much"), "Invalid", "size"),
]


def warned(reason: str) -> contextlib.AbstractContextManager[object]:
    """Expects Python's own warning, too, where there is one."""
    forgotten = reason == "ForgottenAwait"
    return pytest.warns(RuntimeWarning, match="never awaited") if forgotten else contextlib.nullcontext()


@pytest.mark.parametrize(("act", "reason", "text"), FAILURES)
def test_a_run_that_failed_is_told_whatever_failed(act: Act, reason: str, text: str) -> None:
    @virtual_time
    async def check() -> None:
        async with app_cluster() as cluster:
            acting = Acting()
            await cluster.client.create(app())
            async with cluster.running(acting.controller(reconcile_timeout=5.0)):
                assert await ready(cluster) == ("True", "Reconciled", "")
                acting.act = act
                await resize(cluster, 2)
                await asyncio.sleep(10)
                status, told, message = await ready(cluster)
                assert (status, told) == ("False", reason)
                assert text in message
                acting.act = None
                await asyncio.sleep(200)
                assert await ready(cluster) == ("True", "Reconciled", "")

    with warned(reason):
        check()


@virtual_time
async def test_what_a_wrapper_raises_is_told_and_one_that_keeps_an_object_back_states_nothing() -> None:
    does = "raise"

    def wrapper(inner: ReconcileFn) -> ReconcileFn:
        async def run(ctx: Context, obj: KubeObject | None) -> Result | None:
            if does == "raise":
                raise LookupError("no tenant")
            return await inner(ctx, obj) if does == "pass" else None

        return run

    async with app_cluster() as cluster:
        await cluster.client.create(app())
        async with cluster.running(Acting().controller(wrappers=(wrapper,))):
            assert await ready(cluster) == ("False", "LookupError", "no tenant")
            does = "keep back"
            await resize(cluster, 2)
            assert await ready(cluster) == ("False", "LookupError", "no tenant")
            does = "pass"
            await resize(cluster, 3)
            assert (await ready(cluster))[0] == "True"


class Strict(KubeObject, group="example.com", version="v1", kind="App"):
    class Spec(Struct):
        size: Annotated[int, msgspec.Meta(le=5)] = 0

    spec: Spec = field(default_factory=Spec)
    status: AppStatus = field(default_factory=AppStatus)


@virtual_time
async def test_an_object_that_does_not_fit_its_class_any_more_says_so_itself() -> None:
    async def reconcile(ctx: Context, obj: Strict) -> None:
        await ctx.status(obj, AppStatus(url="u"))

    async with app_cluster() as cluster:
        await cluster.client.create(app())
        controller = Controller(name="app", reconciler=reconcile, primary=Strict, error_condition="Ready")
        async with cluster.running(controller):
            assert (await ready(cluster))[0] == "True"
            await resize(cluster, 7)
            status, reason, message = await ready(cluster)
            assert (status, reason) == ("False", "UndecodableObject")
            assert "does not fit Strict" in message
            assert "size" in message
            assert (await cluster.status()).url == "u"
            await resize(cluster, 3)
            assert (await ready(cluster))[0] == "True"


@virtual_time
async def test_stale_reads_are_told_when_they_do_not_end() -> None:
    async with app_cluster() as cluster:
        acting = Acting()
        await cluster.client.create(app())
        async with cluster.running(acting.controller()):
            acting.act = AlreadyExists("apps a exists")
            await cluster.client.patch(App, "a", "default", MergePatch({"spec": {"size": 2}}))
            await asyncio.sleep(0.3)
            assert acting.runs > 3
            assert (await ready(cluster))[0] == "True"
            await asyncio.sleep(120)
            assert await ready(cluster) == ("False", "AlreadyExists", "apps a exists")


def refusing() -> dict[str, Any]:
    """The schema knows more than the class."""
    made = definition()
    phase = {**TEXT, "pattern": "^(Ready|Pending)$"}
    status = {"type": "object", "properties": {**STATUS, "url": phase}}
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = status
    return made


@virtual_time
async def test_a_status_that_the_server_refuses_does_not_take_the_report_with_it() -> None:
    async with app_cluster(refusing()) as cluster:
        acting = Acting(AppStatus(url="Ready", size=3))
        await cluster.client.create(app())
        async with cluster.running(acting.controller()):
            assert (await ready(cluster))[0] == "True"
            acting.act = AppStatus(url="Half way")
            await resize(cluster, 2)
            status, reason, message = await ready(cluster)
            assert (status, reason) == ("False", "Invalid")
            assert "url" in message
            found = await cluster.status()
            assert (found.url, found.size) == ("Ready", 3)


@virtual_time
async def test_a_failure_that_the_status_cannot_tell_is_an_event() -> None:
    async with app_cluster(definition(subresource=False)) as cluster:
        await cluster.client.create(app())
        async with cluster.running(Acting(Retry("no caf\udce9")).controller()):
            await asyncio.sleep(5)
            assert "Warning Retry no caf?" in await events(cluster)


def cleaning(cleanup: Any, **options: Any) -> Controller[App]:
    acting = Acting()
    return acting.controller(
        primary=Watch(App, when=when.generation_changed), finalizers=[Finalizer(BUCKET, cleanup)], **options
    )


CLEANUPS = [
    (returns_true, "TypeError", "the cleanup returned bool: return None or a Result"),
    (forgets_an_await, "ForgottenAwait", "never awaited"),
    (swallows_its_deadline, "TimeoutError", "not done within 5 s"),
]


@pytest.mark.parametrize(("cleanup", "reason", "text"), CLEANUPS)
def test_a_cleanup_that_failed_unnoticed_keeps_its_finalizer_and_says_so(
    cleanup: Act, reason: str, text: str
) -> None:
    @virtual_time
    async def check() -> None:
        async with app_cluster() as cluster:
            await cluster.client.create(app())
            async with cluster.running(cleaning(cleanup, reconcile_timeout=5.0)):
                await cluster.client.delete(App, "a", "default")
                await asyncio.sleep(8)
                status, told, message = await ready(cluster)
                assert (status, told) == ("False", reason)
                assert text in message
                assert any(
                    line.startswith("Warning CleanupPending") and text in line
                    for line in await events(cluster)
                )

    with warned(reason):
        check()


@virtual_time
async def test_a_cleanup_that_waits_for_a_change_is_called_and_reported_every_minute() -> None:
    calls: list[float] = []

    async def cleanup(ctx: Context, obj: App) -> Result:
        calls.append(ctx.clock.monotonic())
        return Result()

    async with app_cluster() as cluster:
        await cluster.client.create(app())
        async with cluster.running(cleaning(cleanup)):
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(65)
            assert [round(call - calls[0]) for call in calls] == [0, 60]
            (event,) = [line for line in await events(cluster) if "CleanupPending" in line]
            assert "returned Result(), which means that it is not done" in event
            status, reason, message = await ready(cluster)
            assert (status, reason) == ("False", "Finalizing")
            assert "1 min after the deletion" in message


@virtual_time
async def test_a_cleanup_that_asks_for_a_day_is_reported_after_a_minute_and_then_left_alone() -> None:
    calls = 0

    async def cleanup(ctx: Context, obj: App) -> Result:
        nonlocal calls
        calls += 1
        return Result(requeue_after=86_400.0)

    async with app_cluster() as cluster:
        await cluster.client.create(app())
        async with cluster.running(cleaning(cleanup)):
            await cluster.client.delete(App, "a", "default")
            await asyncio.sleep(600)
            assert calls == 2
            assert any("not cleaned up yet" in line for line in await events(cluster))


@virtual_time
async def test_events_are_sent_whatever_their_texts_are() -> None:
    async def reconcile(ctx: Context, obj: App) -> None:
        ctx.event(obj, "Warning", "Tool\udce9Failed", "no file caf\udce9", action="\udce9" * 500)

    async with app_cluster() as cluster:
        await cluster.client.create(app())
        async with cluster.running(Controller(name="app", reconciler=reconcile, primary=App)):
            assert await events(cluster) == ["Warning Tool?Failed no file caf?"]


@virtual_time
async def test_of_a_set_nothing_is_written_if_a_value_of_it_cannot_be_sent() -> None:
    made: list[str] = []

    async def reconcile(ctx: Context, obj: App) -> None:
        try:
            fine = ConfigMap(metadata=ObjectMeta(name="fine", namespace="default"), data={"a": "b"})
            odd = ConfigMap(metadata=ObjectMeta(name="odd", namespace="default"), data={"a": "caf\udce9"})
            await ctx.apply(fine, odd)
        except ValueError as error:
            made.append(str(error))
            raise

    async with app_cluster() as cluster:
        await cluster.client.create(app())
        controller = Controller(name="app", reconciler=reconcile, primary=App, applies=[ConfigMap])
        async with cluster.running(controller):
            assert "ConfigMap.data['a'] has a value that cannot be sent" in made[0]
            assert [each.metadata.name async for each in cluster.client.list(ConfigMap, "default")] == []
