"""Four operators as users would write them survive what happens to operators: they are restarted, their watches break,
others write the same objects, and objects are deleted. Runs on the embedded API server and on a real one.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from kubeshard import (
    CacheSettings,
    ConfigMap,
    EveryKind,
    KubeObject,
    Manager,
    ObjectMeta,
    errors,
    until,
    wait_for,
)
from kubeshard.cache import Scope
from kubeshard.client import Client
from kubeshard.core import MergePatch, Namespace, Secret, controller_of, get_condition, safe_name
from kubeshard.crd import definition

pytestmark = pytest.mark.system

EXAMPLES = Path(__file__).parents[3] / "examples"
OPERATORS = ("sensors", "storefronts", "team_labels", "apps")
SECONDS = 30


def module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return cast(ModuleType, loaded)


class Place:
    """A namespace of an API server. `client` belongs to a user, or to a rival."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self._operators: list[Client] = []

    @asynccontextmanager
    async def running(self, *controllers: Any) -> AsyncIterator[None]:
        """Runs the operator and shuts it down gracefully."""
        async with Client(self.client.config) as operator:
            self._operators.append(operator)
            scope = Scope(frozenset({self.namespace, "default"}))
            manager = Manager(
                controllers, client=operator, cache=CacheSettings(default_scope=scope), status_pages=None
            )
            task = asyncio.create_task(manager.run())
            try:
                yield
            finally:
                manager.stop()
                await task
                self._operators.remove(operator)

    def cut(self) -> None:
        """Breaks every connection of the operator, including its watches."""
        for operator in self._operators:
            transport: Any = operator._connection.transport
            for number in transport._sockets.descriptors():
                with socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM) as connection:
                    connection.shutdown(socket.SHUT_RDWR)

    async def make(self, obj: KubeObject) -> Any:
        return await self.client.create(obj)

    def meta(self, name: str, **more: Any) -> ObjectMeta:
        return ObjectMeta(name=name, namespace=self.namespace, **more)

    async def change(self, kind: Any, name: str, patch: Mapping[str, Any], namespace: str = "") -> None:
        namespace = namespace or self.namespace
        place = namespace if kind.KIND.namespaced else None
        await self.client.patch(kind, name, place, MergePatch(patch))

    async def sees(
        self, kind: Any, name: str, what: Callable[[Any], Any], namespace: str | None = None
    ) -> Any:
        place = (namespace or self.namespace) if kind.KIND.namespaced else None
        return await wait_for(
            self.client,
            kind,
            until.holds("as expected", lambda obj: bool(what(obj))),
            name=name,
            namespace=place,
            timeout=SECONDS,
        )

    async def delete(self, kind: Any, name: str, namespace: str = "") -> None:
        await self.client.delete(kind, name, namespace or self.namespace)

    async def gone(self, kind: Any, name: str, namespace: str = "") -> None:
        await wait_for(
            self.client,
            kind,
            until.deleted(),
            name=name,
            namespace=namespace or self.namespace,
            timeout=SECONDS,
        )

    @asynccontextmanager
    async def rival(self, *edits: tuple[Any, str, Mapping[str, Any]]) -> AsyncIterator[None]:
        """A rival makes these edits eight times, also while the block runs. Beyond ten, what it changes would only be
        put right once a minute.
        """
        rounds = 0

        async def edit() -> None:
            nonlocal rounds
            while rounds < 8:
                for kind, name, patch in edits:
                    with suppress(errors.NotFound):
                        await self.change(kind, name, patch)
                label = {"metadata": {"labels": {"rival": str(rounds)}}}
                for kind, name, _ in edits:
                    with suppress(errors.NotFound):
                        await self.change(kind, name, label)
                rounds += 1
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as group:
            group.create_task(edit())
            yield


@pytest.fixture
def place(kube_client: Client, namespace: str) -> Place:
    return Place(kube_client, namespace)


# -- kopf's: sensors


class Device:
    """A sensor outside the cluster."""

    def __init__(self) -> None:
        self.connections: list[asyncio.StreamWriter] = []
        self.told: list[str] = []
        self.changed = asyncio.Condition()

    @classmethod
    @asynccontextmanager
    async def listening(cls) -> AsyncIterator[Device]:
        device = cls()
        server = await asyncio.start_server(device._serve, "127.0.0.1", 0)
        device.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield device
        finally:
            server.close()
            for writer in device.connections:
                writer.close()

    address = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        await self._tell()
        while line := await reader.readline():
            self.told.append(line.decode().strip())
            await self._tell()
        self.connections.remove(writer)
        writer.close()
        await self._tell()

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def until(self, what: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS), self.changed:
            await self.changed.wait_for(what)

    @asynccontextmanager
    async def sending(self, line: str) -> AsyncIterator[None]:
        """Sends the same reading again and again while the block runs."""

        async def repeat() -> None:
            while True:
                self.send(line)
                await asyncio.sleep(0.1)

        task = asyncio.create_task(repeat())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    def send(self, line: str) -> None:
        for writer in self.connections:
            writer.write(f"{line}\n".encode())


async def test_sensors_are_listened_to_and_looked_after_whatever_happens_to_the_operator(
    place: Place, install_crd: Any
) -> None:
    it = module("sensors")
    install_crd(definition(it.Sensor))

    async def reads(line: str) -> None:
        await place.sees(it.Sensor, "roof", lambda sensor: sensor.status.reading == line)

    def heard_of(status: str) -> Callable[[Any], bool]:
        def test(sensor: Any) -> bool:
            condition = get_condition(sensor.status.conditions, "HeardOf")
            return condition is not None and condition.status == status

        return test

    async with Device.listening() as device, Device.listening() as other:
        spec = it.SensorSpec(address=device.address, patience=1.0)
        async with place.running(it.sensors, it.looks):
            await place.make(it.Sensor(metadata=place.meta("roof"), spec=spec))
            await place.sees(it.Sensor, "roof", heard_of("False"))
            await device.until(lambda: len(device.connections) == 1)
            async with device.sending("21.5"):
                await reads("21.5")
                await place.sees(it.Sensor, "roof", heard_of("True"))
            await place.sees(it.Sensor, "roof", heard_of("False"))  # the sensor has become silent
        await device.until(lambda: not device.connections)  # the daemon ended with the process
        async with place.running(it.sensors, it.looks):
            await device.until(lambda: len(device.connections) == 1)
            async with place.rival(
                (it.Sensor, "roof", {"metadata": {"annotations": {"a": "b"}}}),
                (ConfigMap, "roof-address", {"data": {"address": "elsewhere"}}),
            ):
                for number in range(20):
                    device.send(str(number))
                await reads("19")
            await place.sees(ConfigMap, "roof-address", lambda it: it.data == {"address": device.address})
            device.connections[0].close()  # the device hangs up
            await device.until(lambda: not device.connections)
            await device.until(lambda: len(device.connections) == 1)
            place.cut()
            await place.change(it.Sensor, "roof", {"spec": {"address": other.address}})
            await other.until(lambda: len(other.connections) == 1)
            await device.until(lambda: not device.connections)
            other.send("-3")
            await reads("-3")
            await place.delete(it.Sensor, "roof")
            await place.gone(it.Sensor, "roof")
            await other.until(lambda: not other.connections)
            assert set(other.told) == {"good-bye"}  # a cleanup may run again
            assert device.told == []


# -- wrangler's: storefronts


async def test_storefronts_have_what_they_ask_for_and_nothing_else_whatever_happens_to_the_operator(
    place: Place, install_crd: Any
) -> None:
    it = module("storefronts")
    install_crd(definition(it.Theme))
    install_crd(definition(it.Storefront))
    theme, entry = f"theme-{place.namespace}", safe_name("storefront", place.namespace, "shop")
    home, about = safe_name("shop", "home"), safe_name("shop", "about us")
    await place.make(it.Theme(metadata=ObjectMeta(name=theme), spec=it.ThemeSpec(color="red")))

    def colored(color: str) -> Callable[[Any], bool]:
        return lambda page: f"color: {color}" in page.data["index.html"]

    async with place.running(it.storefronts):
        spec = it.StorefrontSpec(theme=theme, pages=("home", "about us"), directory="default")
        await place.make(it.Storefront(metadata=place.meta("shop"), spec=spec))
        page = await place.sees(ConfigMap, home, colored("red"))
        owner = controller_of(page.metadata)
        assert owner is not None
        assert (owner.kind, owner.name) == ("Storefront", "shop")
        await place.sees(ConfigMap, about, colored("red"))
        await place.sees(it.Service, "shop", lambda it: it.spec.ports[0].port == 80)
        await place.sees(ConfigMap, entry, lambda it: it.data == {"pages": "home, about us"}, "default")
        await place.sees(it.Storefront, "shop", lambda it: it.status.pages == 2 and it.status.ready is False)
        await place.change(it.Theme, theme, {"spec": {"color": "green"}})
        await place.sees(ConfigMap, home, colored("green"))
    await place.change(it.Storefront, "shop", {"spec": {"pages": ["home"]}})
    await place.delete(it.Service, "shop")
    async with place.running(it.storefronts):  # the operator notices what happened while it was down
        await place.gone(ConfigMap, about)
        await place.sees(it.Service, "shop", lambda it: True)
        await place.sees(it.Storefront, "shop", lambda it: it.status.pages == 1)
        place.cut()
        await place.change(it.Theme, theme, {"spec": {"color": "blue"}})
        await place.sees(ConfigMap, home, colored("blue"))
        async with place.rival(
            (ConfigMap, home, {"data": {"index.html": "mine"}}),
            (it.Service, "shop", {"spec": {"selector": {"app": "mine"}}}),
            (it.Storefront, "shop", {"metadata": {"annotations": {"a": "b"}}}),
        ):
            await place.change(it.Storefront, "shop", {"spec": {"pages": ["home", "news"]}})
            await place.sees(ConfigMap, safe_name("shop", "news"), colored("blue"))
        await place.sees(ConfigMap, home, colored("blue"))
        selector = {"app.kubernetes.io/instance": "storefront-shop"}
        await place.sees(it.Service, "shop", lambda it: it.spec.selector == selector)
        await place.delete(it.Storefront, "shop")
        await place.gone(it.Storefront, "shop")
        for kind, name, namespace in (
            (ConfigMap, home, ""),
            (it.Service, "shop", ""),
            (it.Deployment, "shop", ""),
            (ConfigMap, entry, "default"),
        ):
            await place.gone(kind, name, namespace)
    await place.client.delete(it.Theme, theme)


# -- dynamic: team labels


class Gadget(KubeObject, group="late.examples.kubeshard.dev", version="v1"):
    size: int = 0


async def test_objects_of_all_kinds_carry_the_label_of_their_team_whatever_happens_to_the_operator(
    place: Place, kube_api: Any
) -> None:
    it = module("team_labels")

    def of(team: str | None) -> Callable[[Any], bool]:
        return lambda obj: (obj.metadata.labels or {}).get(it.LABEL) == team

    def asking(team: str | None) -> dict[str, Any]:
        return {"metadata": {"annotations": {it.ANNOTATION: team}}}

    every = EveryKind(it.labels)
    async with place.running(every):
        await place.make(ConfigMap(metadata=place.meta("a", annotations={it.ANNOTATION: "blue"})))
        await place.make(ConfigMap(metadata=place.meta("b", labels={"other": "label"})))
        await place.sees(ConfigMap, "a", of("blue"))
        await place.change(Namespace, place.namespace, asking("blue"))
        await place.sees(Namespace, place.namespace, of("blue"))
        await asyncio.to_thread(kube_api.install, definition(Gadget))
        await place.make(Gadget(metadata=place.meta("g", annotations={it.ANNOTATION: "green"})))
        await place.sees(Gadget, "g", of("green"))
        await place.make(Secret(metadata=place.meta("s", annotations={it.ANNOTATION: "no team!"})))
    await place.change(ConfigMap, "a", asking("red"))
    await place.change(ConfigMap, "b", asking("red"))
    async with place.running(every):
        await place.sees(ConfigMap, "a", of("red"))
        await place.sees(ConfigMap, "b", of("red"))
        place.cut()
        await place.change(Gadget, "g", asking("red"))
        await place.sees(Gadget, "g", of("red"))
        taking_off = {"metadata": {"labels": {it.LABEL: None}}}
        async with place.rival((ConfigMap, "a", taking_off), (ConfigMap, "b", taking_off)):
            await place.change(ConfigMap, "b", asking("white"))
            await place.sees(ConfigMap, "b", of("white"))
        await place.sees(ConfigMap, "a", of("red"))
        await place.sees(ConfigMap, "b", of("white"))
        await place.change(ConfigMap, "b", asking(None))
        b = await place.sees(ConfigMap, "b", of(None))
        assert b.metadata.labels["other"] == "label"
        await place.delete(ConfigMap, "a")
        await place.make(ConfigMap(metadata=place.meta("a", annotations={it.ANNOTATION: "black"})))
        await place.sees(ConfigMap, "a", of("black"))
        assert of(None)(await place.client.get(Secret, "s", place.namespace))
        body = (
            await place.client.raw("GET", f"/apis/events.k8s.io/v1/namespaces/{place.namespace}/events")
        ).body
        assert b"cannot be a label" in body
    await place.client.delete(Gadget, "g", place.namespace)


# -- sixty lines: apps


async def test_apps_run_with_their_secret_and_leave_the_dns_whatever_happens_to_the_operator(
    place: Place, install_crd: Any
) -> None:
    it = module("apps")
    install_crd(definition(it.App))
    key = f"{place.namespace}/web"

    def ready(status: str, reason: str) -> Callable[[Any], bool]:
        def test(app: Any) -> bool:
            condition = get_condition(app.status.conditions, "Ready")
            return condition is not None and (condition.status, condition.reason) == (status, reason)

        return test

    def digest(deployment: Any) -> str:
        text: str = deployment.spec.template.metadata.annotations["examples.kubeshard.dev/settings"]
        return text

    def rolled_out(deployment: Any) -> dict[str, Any]:
        replicas = deployment.spec.replicas
        conditions = [
            {"type": kind, "status": "True", "reason": reason, "message": ""}
            for kind, reason in (("Available", "Up"), ("Progressing", "NewReplicaSetAvailable"))
        ]
        numbers = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        status = {"observedGeneration": deployment.metadata.generation, "conditions": conditions}
        return {"status": status | dict.fromkeys(numbers, replicas)}

    async with place.running(it.controller):
        spec = it.AppSpec(image="web:1", host="web.example.com", settings={"A": "1"}, secret="keys")
        await place.make(it.App(metadata=place.meta("web"), spec=spec))
        await place.sees(it.App, "web", ready("False", "NoSecret"))
        await place.make(Secret(metadata=place.meta("keys"), data={"k": "MQ=="}))
        first = await place.sees(it.Deployment, "web", lambda it: True)
        await place.sees(it.App, "web", ready("False", "InProgress"))
        await place.client.patch(
            it.Deployment, "web", place.namespace, MergePatch(rolled_out(first)), subresource="status"
        )
        await place.sees(it.App, "web", ready("True", "Current"))
        assert it.DNS[key] == "web.example.com"
        await place.change(Secret, "keys", {"data": {"k": "Mg=="}})
        second = await place.sees(it.Deployment, "web", lambda it: digest(it) != digest(first))
    await place.change(it.App, "web", {"spec": {"settings": {"A": "2"}, "host": "www.example.com"}})
    await place.delete(ConfigMap, "web")
    async with place.running(it.controller):
        await place.sees(ConfigMap, "web", lambda it: it.data == {"A": "2"})
        third = await place.sees(it.Deployment, "web", lambda it: digest(it) != digest(second))
        place.cut()
        await place.change(Secret, "keys", {"data": {"k": "Mw=="}})
        await place.sees(it.Deployment, "web", lambda it: digest(it) != digest(third))
        async with place.rival(
            (ConfigMap, "web", {"data": {"A": "mine", "B": "mine, too"}}),
            (it.Deployment, "web", {"spec": {"replicas": 7}}),
            (it.App, "web", {"metadata": {"annotations": {"a": "b"}}}),
        ):
            await place.change(it.App, "web", {"spec": {"replicas": 2}})
        await place.sees(it.Deployment, "web", lambda it: it.spec.replicas == 2)
        await place.sees(ConfigMap, "web", lambda it: it.data["A"] == "2")
        assert it.DNS[key] == "www.example.com"
        await place.delete(it.App, "web")
        await place.gone(it.App, "web")
        assert key not in it.DNS


# -- the page about them


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_less_than_200_lines(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 200


def test_apps_are_60_lines_of_their_author_at_most() -> None:
    """Not counting imports, the module's docstring, comments and empty lines."""
    text = (EXAMPLES / "apps.py").read_text()
    docstring, *body = ast.parse(text).body
    assert isinstance(docstring, ast.Expr)
    others = [docstring, *(node for node in body if isinstance(node, ast.Import | ast.ImportFrom))]
    left_out = {line for node in others for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    lines = [line.strip() for number, line in enumerate(text.splitlines(), 1) if number not in left_out]
    assert len([line for line in lines if line and not line.startswith("#")]) <= 60
