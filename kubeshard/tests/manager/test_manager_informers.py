"""What a manager exposes about its informers and passes to them, with a complete API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from manager_bench import Item

from kubeshard import CacheSettings, Sharding
from kubeshard.cache import Cache, Interrupted, Scope
from kubeshard.client import Client, ClusterConfig
from kubeshard.controller import Context, Controller
from kubeshard.core import ConfigMap, ObjectMeta, Unavailable
from kubeshard.manager import Manager
from kubeshard.manager.http import pages_app
from kubeshard.runtime.asgi import AsgiApp
from kubeshard.runtime.transport import HttpRequest, HttpResponse, TransportUnverified
from kubeshard_apiserver import ApiServer, InMemoryTransport
from kubeshard_apiserver.front.gate import UNKNOWN, Peer
from kubeshard_apiserver.front.handlers import Front
from kubeshard_apiserver.front.replies import Reply
from kubeshard_apiserver.testing.memory import MemoryApi
from kubeshard_lab.virtual_time import settle, virtual_time
from kubeshard_lab.virtual_world import virtual_world


class Opened:
    """Takes the place of a listener."""

    port = 0
    app: AsgiApp

    async def open(self, stack: Any, app: AsgiApp, *, in_pod: bool) -> None:
        self.app = app


class Seen:
    def __init__(self) -> None:
        self.data: dict[str, Mapping[str, str] | None] = {}

    async def __call__(self, ctx: Context, obj: ConfigMap) -> None:
        self.data[obj.metadata.name] = obj.data


async def put(client: Client, name: str, **data: str) -> None:
    metadata = ObjectMeta(name=name, namespace="default")
    await client.apply(ConfigMap(metadata=metadata, data=data), force=True)
    await settle()


async def page(app: AsgiApp, target: str) -> str:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    path, _, query = target.partition("?")
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": []}
    await app(scope, receive, send)
    return b"".join(message.get("body", b"") for message in sent).decode()


class Running:
    def __init__(self, manager: Manager, health: Opened) -> None:
        self.manager = manager
        self._health = health

    async def ready(self) -> str:
        return await page(self._health.app, "/readyz?verbose")

    async def metrics(self) -> list[str]:
        return (await page(pages_app(self.manager.metrics.page), "/metrics")).splitlines()


@asynccontextmanager
async def running(client: Client, *controllers: Controller[Any], **options: Any) -> AsyncIterator[Running]:
    manager = Manager(controllers, client=client, status_pages=None, **options)
    manager._process.pages.health = health = Opened()  # type: ignore[assignment]
    task = asyncio.create_task(manager.run())
    await asyncio.sleep(1)
    yield Running(manager, health)
    manager.stop()
    await task


@virtual_time
async def test_a_process_that_cannot_verify_the_api_server_is_not_ready_and_says_why() -> None:
    """A rotated certificate authority, which the process does not have yet."""

    class Transport(InMemoryTransport):
        problem = ""

        async def request(self, request: HttpRequest) -> HttpResponse:
            if self.problem:
                raise TransportUnverified(f"GET /: {self.problem}", sent=False)
            return await super().request(request)

    server = ApiServer(world=virtual_world())
    transport = Transport(server)
    client = Client(ClusterConfig("http://in-memory"), transport=transport, world=server.world)
    async with (
        client,
        running(client, Controller(name="maps", reconciler=Seen(), primary=ConfigMap)) as process,
    ):
        assert "[+]api-server ok" in await process.ready()
        transport.problem = "certificate verify failed: self-signed certificate in certificate chain"
        with pytest.raises(Unavailable):
            await client.raw("GET", "/version")
        ready = await process.ready()
        assert "[-]api-server failed" in ready
        assert (
            f"warn: the API server cannot be verified: GET /: {transport.problem}\nreadyz check failed"
            in ready
        )
        transport.problem = ""
        await client.raw("GET", "/version")
        assert "readyz check passed" in await process.ready()


@virtual_time
async def test_a_handler_that_does_not_return_is_named_by_health_and_metrics_and_once_in_the_log_and_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def hangs(delta: object) -> None:
        await asyncio.sleep(50_000)

    seen = Seen()
    async with (
        MemoryApi(ApiServer(world=virtual_world())).client() as client,
        running(client, Controller(name="maps", reconciler=seen, primary=ConfigMap)) as process,
    ):
        informer = process.manager.cache.informer(ConfigMap)
        before = len(informer.store)
        with informer.add_handler(hangs, name="mirror"):
            await put(client, "a")
            await put(client, "b")
            await asyncio.sleep(29)
            assert "mirror" not in await process.ready()
            await asyncio.sleep(11)
            ready = await process.ready()
            assert "readyz check passed" in ready, "a restart would mend nothing for the others"
            assert (
                "warn: handler mirror of ConfigMap.v1 has not returned for 40 s; "
                f"{before + 1} objects wait for it\n" in ready
            )
            lines = await process.metrics()
            labels = '{handler="mirror",kind="ConfigMap.v1"}'
            assert f"kubeshard_cache_handler_seconds{labels} 40.0" in lines
            assert f"kubeshard_cache_handler_waiting{labels} {before + 1}.0" in lines
            assert {"a", "b"} <= set(seen.data)
        assert "mirror" not in await process.ready()
        assert not any("kubeshard_cache_handler_seconds{" in line for line in await process.metrics())
    said = [record for record in caplog.records if record.message.startswith("A handler does not return")]
    assert [record.__dict__["fields"]["handler"] for record in said] == ["mirror"]


@virtual_time
async def test_lists_and_watches_that_fail_are_counted_by_class_named_by_health_and_told_to_the_hook() -> (
    None
):
    told: list[tuple[str, str]] = []

    def hook(informer: Any, interrupted: Interrupted) -> None:
        told.append((str(informer), type(interrupted.error).__name__))

    controller = Controller(name="maps", reconciler=Seen(), primary=ConfigMap, reads=[Item])
    async with (
        MemoryApi(ApiServer(world=virtual_world())).client() as client,
        running(client, controller, cache=CacheSettings(on_watch_error=hook)) as process,
    ):
        await asyncio.sleep(60)
        kind = "Item.v1.example.com"
        assert f"warn: {kind} cannot be listed or watched (NotFound)\n" in await process.ready()
        line = f'kubeshard_cache_errors_total{{error="NotFound",kind="{kind}"}} {len(told)}.0'
        assert line in await process.metrics()
        assert set(told) == {(kind, "NotFound")}
        assert len(told) > 5


class Troubled(Front):
    """Items cannot be read: the API server answers with this code, or it crashes in this process (0)."""

    code = 500

    async def reply(self, request: HttpRequest, peer: Peer = UNKNOWN) -> Reply:
        if "/items" not in request.target:
            return await super().reply(request, peer)
        if not self.code:
            raise ZeroDivisionError("a bug")
        return Reply(self.code, {"content-type": "application/json"}, b'{"kind": "Status"}')


@pytest.mark.regression
@pytest.mark.parametrize(
    ("code", "cause", "ready"), [(500, "unavailable", True), (403, "forbidden", False), (0, "crashed", False)]
)
@virtual_time
async def test_a_kind_for_which_the_api_server_fails_keeps_nobody_from_being_called_and_a_mistake_of_the_process_does(
    code: int, cause: str, ready: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a conversion webhook that is served by the process itself could never be called: nobody calls a process that
    is not ready, and without conversion the kind cannot be read.
    """
    server = ApiServer(world=virtual_world())
    front = Troubled(server)
    front.code = code
    client = Client(ClusterConfig("http://in-memory"), transport=InMemoryTransport(front), world=server.world)
    controller = Controller(name="items", reconciler=Seen(), primary=Item)  # type: ignore[arg-type]
    others = Controller(name="maps", reconciler=Seen(), primary=ConfigMap)
    async with client, running(client, controller, others) as process:
        await asyncio.sleep(10)
        assert "[-]cache-sync" in await process.ready()
        await asyncio.sleep(60)
        assert ("readyz check passed" in await process.ready()) is ready
        assert f"warn: controller items waits for Item.v1.example.com ({cause})\n" in await process.ready()
    (told,) = [each for each in caplog.records if each.message.startswith("A kind cannot be read")]
    assert told.__dict__["fields"]["cause"] == cause


@virtual_time
async def test_controllers_see_what_the_managers_transforms_leave() -> None:
    def redacted(obj: ConfigMap) -> ConfigMap:
        if obj.metadata.name == "broken":
            raise KeyError("a bug")
        return msgspec.structs.replace(obj, data=dict.fromkeys(obj.data or {}, "-"))

    seen = Seen()
    async with MemoryApi(ApiServer(world=virtual_world())).client() as client:
        controller = Controller(name="maps", reconciler=seen, primary=ConfigMap)
        async with running(
            client, controller, cache=CacheSettings(transforms={ConfigMap.KIND: redacted})
        ) as process:
            await put(client, "broken", password="secret")
            await put(client, "a", password="secret")
            await asyncio.sleep(1)
            assert seen.data["a"] == {"password": "-"}
            assert "broken" not in seen.data
            assert (
                'kubeshard_cache_transform_errors_total{kind="ConfigMap.v1"} 1.0' in await process.metrics()
            )


@virtual_time
async def test_a_controller_goes_on_in_the_scope_to_which_its_informer_was_moved() -> None:
    seen = Seen()
    default, system = (Scope(namespaces=frozenset({name})) for name in ("default", "kube-system"))
    async with MemoryApi(ApiServer(world=virtual_world())).client() as client:
        controller = Controller(name="maps", reconciler=seen, primary=ConfigMap)
        async with running(client, controller, cache=CacheSettings(default_scope=system)) as process:
            await put(client, "a", n="0")
            await asyncio.sleep(1)
            assert "a" not in seen.data
            await process.manager.cache.rescope(process.manager.cache.informer(ConfigMap), default)
            await put(client, "b", n="1")
            await asyncio.sleep(1)
            assert (seen.data["a"], seen.data["b"]) == ({"n": "0"}, {"n": "1"})


@virtual_time
async def test_a_shard_is_given_no_cache_since_it_would_hold_the_objects_of_others() -> None:
    async with MemoryApi(ApiServer(world=virtual_world())).client() as client:
        with pytest.raises(ValueError, match="a shard caches its own objects only"):
            Manager([], client=client, cache=Cache(client), sharding=Sharding("ring"))
