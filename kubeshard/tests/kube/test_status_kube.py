"""Statuses, finalizers and waiting, where the server's own rules decide: on the embedded server and on a real one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubeshard import (
    CacheSettings,
    Condition,
    Context,
    Controller,
    Finalizer,
    KubeObject,
    Manager,
    ObjectMeta,
    Result,
    Struct,
    errors,
    field,
    is_ready,
    until,
    wait_for,
)
from kubeshard.cache import Scope
from kubeshard.client import Client
from kubeshard.controller import NoStatusSubresource
from kubeshard.core import ApplyPatch, ConfigMap, JsonPatch, MergePatch
from kubeshard.core.finalizers import adding, removing
from kubeshard.core.patches import add, remove
from kubeshard.crd import definition

BUCKET, ENTRY, THEIRS = "example.com/bucket", "example.com/entry", "others.example.com/x"


class AppSpec(Struct):
    size: int = 0


class AppStatus(Struct):
    observed_generation: int | None = None
    url: str | None = None
    size: int | None = None
    conditions: tuple[Condition, ...] = ()


class App(KubeObject, group="status.example.com", version="v1"):
    spec: AppSpec = field(default_factory=AppSpec)
    status: AppStatus = field(default_factory=AppStatus)


class Plain(KubeObject, group="status.example.com", version="v1"):
    status: AppStatus | None = None


class NoRoom(Exception):
    pass


@pytest.fixture(autouse=True)
def kinds(install_crd: Any) -> None:
    install_crd(definition(App))
    plain = json.loads(json.dumps(definition(Plain)))
    del plain["spec"]["versions"][0]["subresources"]
    install_crd(plain)


@asynccontextmanager
async def running(client: Client, namespace: str, *controllers: Controller[Any]) -> AsyncIterator[list[str]]:
    """Runs a manager; yields the list of its writes."""
    writes: list[str] = []
    observing = Client(client.config, world=client.world)
    observing.observers.append(lambda method, *_: writes.append(method) if method != "GET" else None)
    scope = Scope(frozenset({namespace}))
    options: dict[str, Any] = {"status_pages": None}
    manager = Manager(controllers, client=observing, cache=CacheSettings(default_scope=scope), **options)
    task = asyncio.create_task(manager.run())
    try:
        yield writes
    finally:
        task.cancel()
        await asyncio.wait([task])
        await observing.close()


async def make(client: Client, namespace: str, *finalizers: str) -> App:
    meta = ObjectMeta(name="a", namespace=namespace, finalizers=finalizers)
    return await client.create(App(metadata=meta))


async def seen(what: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not what():  # noqa: ASYNC110 - it is a list that grows
            await asyncio.sleep(0.02)


async def managers(client: Client, namespace: str) -> list[str]:
    body = (await client.raw("GET", App.KIND.path(namespace, "a"))).body
    fields = json.loads(body)["metadata"]["managedFields"]
    return sorted(each["manager"] for each in fields if each.get("subresource") == "status")


async def others_state(client: Client, namespace: str, **status: Any) -> None:
    head = {
        "apiVersion": "status.example.com/v1",
        "kind": "App",
        "metadata": {"name": "a", "namespace": namespace},
    }
    body = ApplyPatch({**head, "status": status})
    await client.patch(App, "a", namespace, body, subresource="status", field_manager="others", force=True)


async def test_a_status_is_applied_on_change_beside_those_of_others(
    kube_client: Client, namespace: str
) -> None:
    runs: list[int] = []

    async def reconcile(ctx: Context, app: App) -> None:
        ready = Condition(type="Ready", status="True" if app.spec.size < 2 else "False", reason="Sized")
        await ctx.status(app, AppStatus(size=app.spec.size, conditions=(ready,)))
        runs.append(app.spec.size)

    app = await make(kube_client, namespace)
    async with running(
        kube_client, namespace, Controller(name="app", reconciler=reconcile, primary=App)
    ) as writes:
        first = await wait_for(kube_client, app, until.condition("Ready"), timeout=20)
        assert first is not None
        theirs = {"type": "Theirs", "status": "True", "reason": "R", "message": ""}
        theirs["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        await others_state(kube_client, namespace, url="theirs", conditions=[theirs])
        await kube_client.patch(App, "a", namespace, MergePatch({"spec": {"size": 1}}))
        sized = until.holds("sized 1", lambda app: app.status.size == 1)
        second = await wait_for(kube_client, app, sized, timeout=20)
        assert second is not None
        assert second.status.url == "theirs"
        assert {each.type for each in second.status.conditions} == {"Ready", "Theirs"}
        own = [
            next(each for each in app.status.conditions if each.type == "Ready") for app in (first, second)
        ]
        assert own[0].last_transition_time == own[1].last_transition_time
        assert [each.observed_generation for each in own] == [1, 2]
        assert await managers(kube_client, namespace) == ["app-controller", "others"]
        before, count = len(writes), len(runs)
        for number in range(3):
            await others_state(kube_client, namespace, url=f"theirs {number}", conditions=[theirs])
            await seen(lambda: len(runs) > count + number)  # noqa: B023 - called in this turn only
        assert len(writes) - before <= 1  # fields of others may have been written by an earlier process


async def test_an_error_is_a_condition_until_the_next_success_and_all_else_stays(
    kube_client: Client, namespace: str
) -> None:
    async def reconcile(ctx: Context, app: App) -> None:
        if app.spec.size > 3:
            raise NoRoom(f"no room for {app.spec.size}")
        await ctx.status(app, AppStatus(url="u", size=app.spec.size))

    app = await make(kube_client, namespace)
    controller = Controller(name="app", reconciler=reconcile, primary=App, error_condition="Ready")
    async with running(kube_client, namespace, controller):
        await wait_for(kube_client, app, until.condition("Ready"), timeout=20)
        await kube_client.patch(App, "a", namespace, MergePatch({"spec": {"size": 4}}))
        failed = await wait_for(kube_client, app, until.condition("Ready", "False"), timeout=20)
        assert failed is not None
        (ready,) = failed.status.conditions
        assert (ready.reason, ready.message, ready.observed_generation) == ("NoRoom", "no room for 4", 2)
        assert (failed.status.url, failed.status.size) == ("u", 0)
        await kube_client.patch(App, "a", namespace, MergePatch({"spec": {"size": 3}}))
        done = await wait_for(kube_client, app, until.condition("Ready"), timeout=20)
        assert done is not None
        assert is_ready(done)
        assert (done.status.url, done.status.size) == ("u", 3)
        assert await managers(kube_client, namespace) == ["app-controller"]


async def test_a_kind_without_the_subresource_is_told_from_an_object_that_is_gone(
    kube_client: Client, namespace: str
) -> None:
    problems: list[Exception] = []

    async def reconcile(ctx: Context, plain: Plain) -> None:
        try:
            await ctx.status(plain, AppStatus(url="u"))
        except Exception as error:
            problems.append(error)
            raise

    await kube_client.create(Plain(metadata=ObjectMeta(name="a", namespace=namespace)))
    async with running(kube_client, namespace, Controller(name="plain", reconciler=reconcile, primary=Plain)):
        await seen(lambda: problems)
    assert isinstance(problems[0], NoStatusSubresource)


async def test_finalizers_come_off_in_order_and_leave_those_of_others(
    kube_client: Client, namespace: str
) -> None:
    cleaned: list[tuple[str, tuple[str, ...]]] = []

    def finalizer(key: str) -> Finalizer[App]:
        async def clean(ctx: Context, app: App) -> Result | None:
            live = await kube_client.get(App, "a", namespace)
            cleaned.append((key, live.metadata.finalizers))
            return Result(requeue_after=0.1) if len(cleaned) == 1 else None

        return Finalizer(key, clean)

    made: list[tuple[str, ...]] = []

    async def reconcile(ctx: Context, app: App) -> None:
        made.append(app.metadata.finalizers)

    app = await make(kube_client, namespace, THEIRS)
    controller = Controller(
        name="app", reconciler=reconcile, primary=App, finalizers=[finalizer(BUCKET), finalizer(ENTRY)]
    )
    async with running(kube_client, namespace, controller):
        has = until.holds("held", lambda app: ENTRY in app.metadata.finalizers)
        await wait_for(kube_client, app, has, timeout=20)
        await kube_client.delete(App, "a", namespace)
        left = until.holds("left", lambda app: app.metadata.finalizers == (THEIRS,))
        await wait_for(kube_client, app, left, timeout=20)
        every = (THEIRS, BUCKET, ENTRY)
        assert cleaned == [(BUCKET, every), (BUCKET, every), (ENTRY, (THEIRS, ENTRY))]
        assert set(made) <= {every}
        await kube_client.patch(App, "a", namespace, JsonPatch([remove("/metadata/finalizers/0")]))
        await wait_for(kube_client, app, until.deleted(app.metadata.uid), timeout=20)


async def test_the_server_holds_the_patches_to_what_they_test(kube_client: Client, namespace: str) -> None:
    app = await make(kube_client, namespace)
    one = await kube_client.patch(App, "a", namespace, adding(app.metadata, [BUCKET]))
    assert one.metadata.finalizers == (BUCKET,)
    with pytest.raises(errors.PatchTestFailed):  # somebody was faster
        await kube_client.patch(App, "a", namespace, adding(app.metadata, [ENTRY]))
    two = await kube_client.patch(App, "a", namespace, adding(one.metadata, [ENTRY]))
    stranger = ObjectMeta(name="a", uid="another", finalizers=two.metadata.finalizers)
    with pytest.raises(errors.PatchTestFailed):
        await kube_client.patch(App, "a", namespace, removing(stranger, [BUCKET]))
    front = JsonPatch([add("/metadata/finalizers/0", THEIRS)])
    await kube_client.patch(App, "a", namespace, front)
    with pytest.raises(errors.PatchTestFailed):
        await kube_client.patch(App, "a", namespace, removing(two.metadata, [BUCKET]))
    await kube_client.delete(App, "a", namespace)
    going = await kube_client.get(App, "a", namespace)
    with pytest.raises(errors.PatchTestFailed):  # it is being deleted
        await kube_client.patch(App, "a", namespace, adding(going.metadata, ["example.com/late"]))
    left = await kube_client.patch(App, "a", namespace, removing(going.metadata, [BUCKET, THEIRS]))
    assert left.metadata.finalizers == (ENTRY,)
    await kube_client.patch(App, "a", namespace, removing(left.metadata, [ENTRY]))
    with pytest.raises(errors.NotFound):
        await kube_client.get(App, "a", namespace)


class Deployment(KubeObject, group="apps", version="v1"):
    spec: Mapping[str, Any] | None = None
    status: Mapping[str, Any] | None = None


async def test_a_rollout_is_judged_by_what_its_controller_writes(kube_client: Client, namespace: str) -> None:
    labels = {"app": "web"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
    made = await kube_client.create(Deployment(metadata=ObjectMeta(name="w", namespace=namespace), spec=spec))
    assert is_ready(made).state == "InProgress"
    waiting = asyncio.create_task(wait_for(kube_client, made, until.ready, timeout=20))
    status: dict[str, Any] = {
        "observedGeneration": 1,
        "replicas": 1,
        "updatedReplicas": 1,
        "readyReplicas": 1,
        "availableReplicas": 1,
    }
    times = {"lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status["conditions"] = [
        {"type": "Available", "status": "True", "reason": "R", "message": "", **times},
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": "", **times},
    ]
    await kube_client.patch(Deployment, "w", namespace, MergePatch({"status": status}), subresource="status")
    assert (await waiting) is not None
    await kube_client.patch(Deployment, "w", namespace, MergePatch({"spec": {"replicas": 2}}))
    changed = await kube_client.get(Deployment, "w", namespace)
    assert is_ready(changed).state == "InProgress"


async def test_the_command_lists_what_is_held_and_releases_it_when_told(
    kube_client: Client, namespace: str, kubeconfig: Path
) -> None:
    def run(*arguments: str, answer: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kubeshard", "release-finalizers", "-n", namespace, *arguments],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            input=answer,
            capture_output=True,
            text=True,
            timeout=60,
        )

    config = ConfigMap(metadata=ObjectMeta(name="c", namespace=namespace, finalizers=(BUCKET, THEIRS)))
    await kube_client.create(config)
    await make(kube_client, namespace, BUCKET)
    await kube_client.delete(App, "a", namespace)

    listed = await asyncio.to_thread(run, "--finalizer", BUCKET)
    assert listed.returncode == 0, listed.stderr
    assert (
        f"apps.status.example.com {namespace}/a  {BUCKET}  being deleted, for less than a minute"
        in listed.stdout
    )
    assert f"configmaps {namespace}/c  {BUCKET}  not being deleted" in listed.stdout
    assert "2 objects are held; nothing was changed; use --release to release them" in listed.stdout

    refused = await asyncio.to_thread(run, "--finalizer", BUCKET, "--release", answer="n\n")
    assert refused.returncode == 130
    assert (await kube_client.get(App, "a", namespace)).metadata.finalizers == (BUCKET,)

    done = await asyncio.to_thread(run, "--finalizer", BUCKET, "--release", "--yes")
    assert done.returncode == 0, done.stderr
    assert (await kube_client.get(ConfigMap, "c", namespace)).metadata.finalizers == (THEIRS,)
    with pytest.raises(errors.NotFound):
        await kube_client.get(App, "a", namespace)
    again = await asyncio.to_thread(run, "--finalizer", BUCKET, "--release", "--yes")
    assert again.stdout == "0 objects are held\n"
    await kube_client.patch(ConfigMap, "c", namespace, JsonPatch([remove("/metadata/finalizers")]))

    own = await asyncio.to_thread(run, "--finalizer", "kubernetes.io/pvc-protection")
    assert own.returncode == 2
    assert "removed by Kubernetes itself" in own.stderr
    alone = await asyncio.to_thread(run, "--finalizer", BUCKET, "--yes")
    assert alone.returncode == 2
