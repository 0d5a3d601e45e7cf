"""`ctx.status` writes the controller's own fields, only if they change, next to those of others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from app_cluster import RESYNC, App, AppCluster, AppStatus, app, app_cluster, definition

from kubeshard import (
    Condition,
    ConfigMap,
    Context,
    Controller,
    KubeObject,
    ObjectMeta,
    Struct,
    Watch,
    field,
    when,
)
from kubeshard.controller import NoStatusSubresource, Reconciler
from kubeshard.core import ApplyPatch, MergePatch
from kubeshard_lab.virtual_time import virtual_time


class Stating(Reconciler[App]):
    """Writes the status it is told to; with `again`, every change of the status triggers a run that writes it again."""

    def __init__(self, say: Callable[[App], Any]) -> None:
        self.say = say
        self.runs = 0
        self.errors: list[BaseException] = []

    async def reconcile(self, ctx: Context, obj: App) -> None:
        self.runs += 1
        try:
            await ctx.status(obj, self.say(obj))
        except BaseException as error:
            self.errors.append(error)
            raise

    @property
    def controller(self) -> Controller[App]:
        return Controller(name="app", reconciler=self, primary=Watch(App, resync=RESYNC))


def ready(status: str = "True", **more: Any) -> Condition:
    return Condition(type="Ready", status=status, **{"reason": "Told", **more})


async def resize(cluster: AppCluster, size: int) -> None:
    await cluster.client.patch(App, "a", "default", MergePatch({"spec": {"size": size}}))
    await asyncio.sleep(5)


async def others_state(cluster: AppCluster, **status: Any) -> None:
    head = {"apiVersion": "example.com/v1", "kind": "App", "metadata": {"name": "a", "namespace": "default"}}
    body = ApplyPatch({**head, "status": status})
    await cluster.client.patch(
        App, "a", "default", body, subresource="status", field_manager="others", force=True
    )
    await asyncio.sleep(5)


@virtual_time
async def test_a_status_is_written_once_and_again_only_when_it_changes() -> None:
    async with app_cluster() as cluster:
        stating = Stating(lambda obj: AppStatus(url="u", size=obj.spec.size, conditions=(ready(),)))
        await cluster.client.create(app())
        async with cluster.running(stating.controller):
            assert cluster.sent == ["PATCH status"]
            assert stating.runs == 2  # the write is a change, which triggers a run that finds nothing to do
            status = await cluster.status()
            assert (status.url, status.size, status.observed_generation) == ("u", 0, 1)
            assert [each.observed_generation for each in status.conditions] == [1]
            await asyncio.sleep(RESYNC * 1.2)
            assert stating.runs == 3
            assert cluster.sent == []
            await resize(cluster, 2)
            assert cluster.sent == ["PATCH status"]
            assert (await cluster.status()).size == 2
            assert list(await cluster.managers()) == ["app-controller"]


@virtual_time
async def test_the_transition_time_is_that_of_the_last_change_of_the_conditions_status() -> None:
    async with app_cluster() as cluster:
        stating = Stating(
            lambda obj: AppStatus(conditions=(ready("True" if obj.spec.size < 2 else "False"),))
        )
        await cluster.client.create(app())
        async with cluster.running(stating.controller):
            first = await cluster.condition()
            await asyncio.sleep(100)
            await resize(cluster, 1)
            second = await cluster.condition()
            await resize(cluster, 2)
            third = await cluster.condition()
        assert first is not None
        assert second is not None
        assert third is not None
        assert (second.observed_generation, third.observed_generation) == (2, 3)
        assert first.last_transition_time == second.last_transition_time < third.last_transition_time


@virtual_time
async def test_what_others_state_stays_and_costs_one_request() -> None:
    async with app_cluster() as cluster:
        stating = Stating(lambda obj: AppStatus(size=obj.spec.size, conditions=(ready(),)))
        await cluster.client.create(app())
        async with cluster.running(stating.controller):
            theirs = {"type": "Theirs", "status": "True", "reason": "R", "message": ""}
            theirs["lastTransitionTime"] = "2026-01-01T00:00:00Z"
            await others_state(cluster, url="theirs", conditions=[theirs])
            cluster.sent  # noqa: B018 - forgets what was sent
            for number in range(3):
                await others_state(cluster, url=f"theirs {number}", conditions=[theirs])
            assert cluster.sent == []
            await resize(cluster, 2)
            assert cluster.sent == ["PATCH status"]
            status = await cluster.status()
            assert (status.url, status.size) == ("theirs 2", 2)
            assert [each.type for each in status.conditions] == ["Ready", "Theirs"]


@virtual_time
async def test_what_is_not_stated_any_more_goes_also_after_a_restart() -> None:
    async with app_cluster() as cluster:
        full = Stating(lambda obj: AppStatus(url="u", size=1, conditions=(ready(),)))
        less = Stating(lambda obj: AppStatus(size=1))
        await cluster.client.create(app())
        async with cluster.running(full.controller):
            assert (await cluster.status()).url == "u"
        async with cluster.running(less.controller):
            status = await cluster.status()
            assert (status.url, status.size, status.conditions) == (None, 1, ())
            cluster.sent  # noqa: B018 - forgets what was sent
            await resize(cluster, 5)  # the generation is recorded
            assert cluster.sent == ["PATCH status"]


@virtual_time
async def test_a_field_is_taken_back_from_whoever_else_wrote_it() -> None:
    async with app_cluster() as cluster:
        stating = Stating(lambda obj: AppStatus(url="mine"))
        await cluster.client.create(app())
        async with cluster.running(stating.controller):
            await others_state(cluster, url="theirs")
            assert (await cluster.status()).url == "mine"


@virtual_time
async def test_a_second_status_of_a_run_is_compared_with_the_first_one() -> None:
    class Twice(Reconciler[App]):
        def __init__(self) -> None:
            self.seen: list[str | None] = []

        async def reconcile(self, ctx: Context, obj: App) -> None:
            self.seen.append((await ctx.status(obj, AppStatus(url="one"))).status.url)
            self.seen.append((await ctx.status(obj, AppStatus(url="two"))).status.url)

    async with app_cluster() as cluster:
        await cluster.client.create(app())
        twice = Twice()
        watch = Watch(App, when=when.generation_changed)
        async with cluster.running(Controller(name="app", reconciler=twice, primary=watch)):
            assert cluster.sent == ["PATCH status", "PATCH status"]
            assert twice.seen == ["one", "two"]
            assert (await cluster.status()).url == "two"


@virtual_time
async def test_a_kind_without_the_subresource_is_a_clear_error_that_is_not_retried() -> None:
    async with app_cluster(definition(subresource=False)) as cluster:
        stating = Stating(lambda obj: AppStatus(url="u"))
        await cluster.client.create(app())
        async with cluster.running(stating.controller):
            await asyncio.sleep(1000)
            (error,) = stating.errors
            assert isinstance(error, NoStatusSubresource)
            assert "subresources: {status: {}}" in str(error)


@virtual_time
async def test_an_object_that_went_meanwhile_is_no_error() -> None:
    async with app_cluster() as cluster:

        async def slow(ctx: Context, obj: App) -> None:
            await cluster.client.delete(App, "a", "default")
            assert await ctx.status(obj, AppStatus(url="u")) is obj
            ended.append(True)

        ended: list[bool] = []
        await cluster.client.create(app())
        async with cluster.running(Controller(name="app", reconciler=slow, primary=App)):
            assert ended == [True]


@virtual_time
async def test_a_namesake_is_never_told_what_is_about_its_predecessor() -> None:
    async with app_cluster() as cluster:
        told: list[str] = []

        async def slow(ctx: Context, obj: App) -> None:
            if not told:
                told.append(obj.metadata.uid)
                await cluster.client.delete(App, "a", "default")
                await cluster.client.create(app())
                await ctx.status(obj, AppStatus(url="about the first one"))

        await cluster.client.create(app())
        async with cluster.running(Controller(name="app", reconciler=slow, primary=App)):
            assert (await cluster.status()).url is None


class PodStatus(Struct):
    message: str | None = None
    start_time: str | None = None


class Pod(KubeObject, version="v1"):
    spec: dict[str, Any] | None = None
    status: PodStatus = field(default_factory=PodStatus)


@virtual_time
async def test_what_the_server_does_not_store_as_sent_is_not_sent_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The server stores times in UTC."""
    writes: list[str] = []
    runs: list[int] = []

    async def state(ctx: Context, obj: Pod) -> None:
        runs.append(1)
        done = await ctx.status(obj, PodStatus(start_time="2026-01-01T02:00:00+02:00"))
        assert done.status.start_time == "2026-01-01T00:00:00Z"

    async with app_cluster() as cluster:
        meta = ObjectMeta(name="a", namespace="default")
        await cluster.client.create(Pod(metadata=meta, spec={"containers": [{"name": "c", "image": "i"}]}))
        cluster.operator.observers.append(lambda method, *_: writes.append(method))
        async with cluster.running(Controller(name="pod", reconciler=state, primary=Pod)):
            for _ in range(3):
                await cluster.client.patch(
                    Pod, "a", "default", MergePatch({"metadata": {"labels": {"n": f"{len(runs)}"}}})
                )
                await asyncio.sleep(5)
    assert len(runs) > 3
    assert writes.count("PATCH") == 1
    assert "does not store a field as it was sent" in caplog.text


@virtual_time
async def test_a_field_that_the_schema_does_not_know_is_named() -> None:
    errors: list[str] = []

    async def state(ctx: Context, obj: Wider) -> None:
        try:
            await ctx.status(obj, WiderStatus(nobody_knows="x"))
        except Exception as error:
            errors.append(str(error))

    async with app_cluster() as cluster:
        await cluster.client.create(app())
        async with cluster.running(Controller(name="app", reconciler=state, primary=Wider)):
            assert ".status.nobodyKnows: field not declared in schema" in errors[0]


class WiderStatus(Struct):
    nobody_knows: str | None = None


class Wider(KubeObject, group="example.com", version="v1", kind="App"):
    status: WiderStatus | None = None


@virtual_time
async def test_others_who_write_the_object_at_the_same_time_are_no_reason_to_fail() -> None:
    async with app_cluster() as cluster:

        async def busy(ctx: Context, obj: App) -> None:
            for number in range(3):  # the cache lags behind by these changes
                label = MergePatch({"metadata": {"labels": {"n": str(number)}}})
                await cluster.client.patch(App, "a", "default", label)
            await ctx.status(obj, AppStatus(url="u"))
            ended.append(True)

        ended: list[bool] = []
        await cluster.client.create(app())
        watch = Watch(App, when=when.generation_changed)
        async with cluster.running(Controller(name="app", reconciler=busy, primary=watch)):
            assert ended == [True]
            assert (await cluster.status()).url == "u"
            assert cluster.sent == ["PATCH status", "GET a", "PATCH status"]


@virtual_time
async def test_a_status_that_is_not_of_the_objects_class_is_refused() -> None:
    class Other(Struct):
        url: str = ""

    problems: list[str] = []

    async def state(ctx: Context, obj: App) -> None:
        config = ConfigMap(metadata=ObjectMeta(name="c", namespace="default"))
        await ctx.client.create(config)
        attempts: list[tuple[KubeObject, Any]] = [
            (obj, Other()),
            (obj, {"url": "u"}),
            (await ctx.client.get(ConfigMap, "c", "default"), Other()),
        ]
        for what, status in attempts:
            try:
                await ctx.status(what, status)
            except TypeError as error:
                problems.append(str(error))

    async with app_cluster() as cluster:
        await cluster.client.create(app())
        controller = Controller(name="app", reconciler=state, primary=App, owns=[ConfigMap])
        async with cluster.running(controller):
            assert problems == [
                "App declares a status of type AppStatus, not Other",
                "a status must be a Struct, as App declares it, not {'url': 'u'}",
                "ConfigMap declares no status: declare one, with the class of the status that you pass",
            ]


@virtual_time
async def test_a_condition_that_is_no_condition_is_refused_before_it_is_sent() -> None:
    async with app_cluster() as cluster:
        stating = Stating(lambda obj: AppStatus(conditions=(ready(reason="two words"),)))
        await cluster.client.create(app())
        logging.getLogger("kubeshard").setLevel(logging.CRITICAL)
        try:
            async with cluster.running(stating.controller):
                assert isinstance(stating.errors[0], ValueError)
                assert cluster.sent == []
        finally:
            logging.getLogger("kubeshard").setLevel(logging.NOTSET)
