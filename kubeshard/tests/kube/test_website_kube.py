"""The webhosting operator on a cluster with controllers and pods that become ready."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeshard.client import Client, load_config
from kubeshard.client.installing import install
from kubeshard.controller.events import Event
from kubeshard.core import ConfigMap, JsonPatch, MergePatch, Namespace, NotFound, ObjectMeta
from kubeshard.core.patches import add
from kubeshard.manager import Manager
from kubeshard_apiserver.testing import ControlPlane, EmbeddedApi
from kubeshard_lab.examples.webhosting import build_operator, manifests
from kubeshard_lab.examples.webhosting.api import Theme, ThemeSpec, Website, WebsiteSpec
from kubeshard_lab.examples.webhosting.config import load_settings
from kubeshard_lab.examples.webhosting.workload import Deployment, Ingress, Service

CONFIG = """
apiVersion: config.webhosting.timebertt.dev/v1alpha1
kind: WebhostingOperatorConfig
insecureMetrics: true
metrics: {bindAddress: "127.0.0.1:0"}
health: {bindAddress: "127.0.0.1:0"}
gracefulShutDown: 1s
ingress: {annotations: {ours: "1"}}
"""
CHILDREN = (ConfigMap, Service, Ingress, Deployment)
_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.kube)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The kubeconfig of a cluster with pods."""
    if request.param == "real":
        with ControlPlane(pods=True) as kube:
            yield kube.kubeconfig
    else:
        api = EmbeddedApi()
        yield api.kubeconfig
        api.stop()


class World:
    """A running operator, and a namespace and theme for the test."""

    def __init__(self, client: Client, manager: Manager, writes: list[str], namespace: str) -> None:
        self.client = client
        self.manager = manager
        self.writes = writes
        """The methods of the operator's requests that change something; Events are not counted."""
        self.namespace = namespace
        self.theme = f"theme-{namespace}"

    async def create(self, theme: str | None = None, **labels: str) -> Website:
        metadata = ObjectMeta(name="homepage", namespace=self.namespace, labels=labels)
        spec = WebsiteSpec(theme=self.theme if theme is None else theme)
        return await self.client.create(Website(metadata=metadata, spec=spec))

    async def website(self) -> Website:
        return await self.client.get(Website, "homepage", self.namespace)

    async def phase(self) -> str:
        return (await self.website()).status.phase

    async def becomes(self, phase: str) -> Website:
        async def has_phase() -> bool:
            website = await self.website()
            status = website.status
            return status.phase == phase and status.observed_generation == website.metadata.generation

        await eventually(has_phase)
        return await self.website()

    async def only(self, cls: type[Any]) -> Any:
        found = await self.client.list_all(cls, self.namespace)
        return next(obj for obj in found if obj.metadata.name.startswith("homepage-"))

    async def events(self) -> set[tuple[str, str, str]]:
        return {
            (event.reporting_controller, event.reason, event.note)
            for event in await self.client.list_all(Event, self.namespace)
            if event.regarding.kind == "Website"
        }

    def reconciles(self) -> float:
        labels = {"controller": "website", "result": "success"}
        return (
            self.manager.metrics.registry.get_sample_value("controller_runtime_reconcile_total", labels)
            or 0.0
        )


@pytest.fixture
async def world(cluster: Path, tmp_path: Path) -> AsyncIterator[World]:
    async with _client(cluster) as client, _client(cluster) as operators:
        async for _ in install(client, manifests.crds()):
            pass
        namespace = f"websites-{next(_numbers)}"
        await client.create(Namespace(metadata=ObjectMeta(name=namespace)))
        theme = ThemeSpec(color="darkcyan", font_family="Menlo")
        await client.create(Theme(metadata=ObjectMeta(name=f"theme-{namespace}"), spec=theme))
        writes: list[str] = []

        def observe(method: str, host: str, code: int, seconds: float) -> None:
            if method != "GET":
                writes.append(method)

        operators.observers.append(observe)
        file = tmp_path / "config.yaml"
        file.write_text(CONFIG)
        settings, _ = load_settings(file, {"LEADER_ELECT": "false"})
        manager = build_operator(settings, operators, operators.world)
        running = asyncio.create_task(manager.run())
        yield World(client, manager, writes, namespace)
        manager.stop()
        await running


@asynccontextmanager
async def _client(cluster: Path) -> AsyncIterator[Client]:
    async with Client(await load_config(kubeconfig=cluster)) as client:
        yield client


async def eventually(condition: Callable[[], Awaitable[bool]], within: float = 60.0) -> None:
    async with asyncio.timeout(within):
        while not await condition():  # noqa: ASYNC110 - the API server's state
            await asyncio.sleep(0.05)


async def test_a_website_becomes_ready_with_its_pods(world: World) -> None:
    await world.create()
    website = await world.becomes("Ready")
    assert website.status.last_transition_time is not None
    for cls in CHILDREN:
        child = await world.only(cls)
        assert child.metadata.owner_references[0].uid == website.metadata.uid
    assert (await world.only(Ingress)).metadata.annotations == {"ours": "1"}


async def test_reconciles_that_find_nothing_to_do_send_nothing(world: World) -> None:
    """Server defaults do not count as differences."""
    await world.create(**{"skip-workload": "true"})
    await world.becomes("Ready")
    await quiet(world)
    world.writes.clear()
    for number in range(3):
        before = world.reconciles()
        patch = MergePatch({"metadata": {"annotations": {"experiment-reconcile": str(number)}}})
        await world.client.patch(Website, "homepage", world.namespace, patch)

        async def reconciled(before: float = before) -> bool:
            return world.reconciles() > before

        await eventually(reconciled)
    assert world.writes == []


async def quiet(world: World) -> None:
    """Returns once no reconcile has happened for half a second."""
    seen = -1.0
    while seen != (seen := world.reconciles()):  # noqa: ASYNC110 - a counter's value
        await asyncio.sleep(0.5)


async def test_a_changed_theme_rolls_out(world: World) -> None:
    await world.create()
    await world.becomes("Ready")
    before = (await world.only(Deployment)).metadata.generation
    await world.client.patch(Theme, world.theme, "", MergePatch({"spec": {"color": "white"}}))

    async def rolled_out() -> bool:
        deployment = await world.only(Deployment)
        page = (await world.only(ConfigMap)).data["index.html"]
        return deployment.metadata.generation > before and "background-color: white" in page

    await eventually(rolled_out)
    await world.becomes("Ready")


async def test_foreign_fields_survive_a_new_image(world: World) -> None:
    await world.create()
    await world.becomes("Ready")
    deployment = await world.only(Deployment)
    container = "/spec/template/spec/containers/0"
    ops = [
        add(f"{container}/image", "nginx:1.28-alpine"),
        add(f"{container}/env", [{"name": "THEIRS", "value": "1"}]),
        add("/metadata/labels/theirs", "1"),
    ]
    await world.client.patch(Deployment, deployment.metadata.name, world.namespace, JsonPatch(ops))

    async def put_right() -> bool:
        path = Deployment.KIND.path(world.namespace, deployment.metadata.name)
        found = msgspec.json.decode((await world.client.raw("GET", path)).body)
        (server,) = found["spec"]["template"]["spec"]["containers"]
        kept = server.get("env") == [{"name": "THEIRS", "value": "1"}]
        assert kept
        assert found["metadata"]["labels"]["theirs"] == "1"
        return bool(server["image"] == "nginx:1.29-alpine")

    await eventually(put_right)


async def test_a_child_that_is_deleted_comes_back(world: World) -> None:
    await world.create(**{"skip-workload": "true"})
    await world.becomes("Ready")
    service = await world.only(Service)
    await world.client.delete(Service, service.metadata.name, world.namespace)

    async def back() -> bool:
        found = await world.client.list_all(Service, world.namespace)
        return bool(found) and found[0].metadata.uid != service.metadata.uid

    await eventually(back)


async def test_a_missing_theme_is_an_error_until_it_is_there(world: World) -> None:
    await world.create(theme=f"later-{world.namespace}", **{"skip-workload": "true"})
    await world.becomes("Error")
    event = ("website-controller", "ThemeNotFound", f"Theme later-{world.namespace} not found")

    async def told() -> bool:
        return event in await world.events()

    await eventually(told)
    theme = ThemeSpec(color="black", font_family="Menlo")
    await world.client.create(Theme(metadata=ObjectMeta(name=f"later-{world.namespace}"), spec=theme))
    await world.becomes("Ready")


async def test_an_empty_theme_is_an_error_until_one_is_named(world: World) -> None:
    labels = {"skip-workload": "true"}
    await world.client.apply_manifest(manifests.website("homepage", world.namespace, "", labels))
    await world.becomes("Error")
    event = ("website-controller", "ThemeUnspecified", "Website doesn't specify a Theme")

    async def told() -> bool:
        return event in await world.events()

    await eventually(told)
    patch = MergePatch({"spec": {"theme": world.theme}})
    await world.client.patch(Website, "homepage", world.namespace, patch)
    await world.becomes("Ready")


async def test_foreground_deletion_shows_as_terminating_and_takes_everything_along(world: World) -> None:
    await world.create()
    await world.becomes("Ready")
    deployment = await world.only(Deployment)
    hold = MergePatch({"metadata": {"finalizers": ["example.com/hold"]}})
    await world.client.patch(Deployment, deployment.metadata.name, world.namespace, hold)
    await world.client.delete(Website, "homepage", world.namespace, propagation="Foreground")
    await world.becomes("Terminating")
    release = MergePatch({"metadata": {"finalizers": None}})
    await world.client.patch(Deployment, deployment.metadata.name, world.namespace, release)

    async def gone() -> bool:
        try:
            await world.website()
        except NotFound:
            return True
        return False

    await eventually(gone)


async def test_metrics_and_health_are_served(world: World) -> None:
    website = await world.create(**{"skip-workload": "true"})
    await world.becomes("Ready")
    await quiet(world)
    labels = {"namespace": world.namespace, "website": "homepage", "uid": website.metadata.uid}
    value = world.manager.metrics.registry.get_sample_value
    assert value("kube_website_info", {**labels, "theme": world.theme}) == 1
    assert value("kube_website_status_phase", {**labels, "phase": "Ready"}) == 1
    assert await _get(world.manager.health_port, "/healthz") == 200
    assert await _get(world.manager.health_port, "/readyz") == 200
    assert await _get(world.manager.metrics_port, "/metrics") == 200


async def _get(port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])
