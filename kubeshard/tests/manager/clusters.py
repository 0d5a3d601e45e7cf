"""Several API servers in one event loop, each over a line that can break and hang, and a manager for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Self

from test_manager_informers import Opened, page

from kubeshard.client import Client, ClusterConfig
from kubeshard.client.config import BearerToken
from kubeshard.controller import Context
from kubeshard.core import ConfigMap, Key, ObjectMeta
from kubeshard.manager import Manager
from kubeshard.manager.http import pages_app
from kubeshard.runtime.transport import (
    HttpRequest,
    HttpResponse,
    HttpStream,
    TransportError,
    TransportTimeout,
)
from kubeshard.runtime.world import World
from kubeshard_apiserver import ADMINISTRATOR, ApiServer, Identity, InMemoryTransport
from kubeshard_apiserver.front.handlers import Front
from kubeshard_lab.virtual_world import virtual_world

DEFAULT = "default"
TOKEN = "right"


class Line:
    """The line to one API server. `down`: nothing gets through. `hangs`: requests with these methods get through, but
    no response comes back.
    """

    def __init__(self, front: Front) -> None:
        self._inner = InMemoryTransport(front)
        self.down = False
        self.hangs: Sequence[str] = ()
        self.tries = 0
        self.closed = 0
        self.aborted = 0

    async def request(self, request: HttpRequest) -> HttpResponse:
        self._leave()
        answer = await self._inner.request(request)
        if request.method in self.hangs:
            await self._no_answer(request)
        return answer

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpStream]:
        self._leave()
        if "WATCH" in self.hangs:
            await self._no_answer(request)
        async with self._inner.stream(request) as stream:
            yield stream

    def renew(self, tls: Any) -> None: ...

    def abort(self) -> None:
        self.aborted += 1
        self._inner.abort()

    async def close(self) -> None:
        """The next client uses the same line."""
        self.closed += 1
        self._inner.abort()

    def break_off(self) -> None:
        self.down = True
        self._inner.abort()

    def _leave(self) -> None:
        self.tries += 1
        if self.down:
            raise TransportError("no route to host", sent=False)

    async def _no_answer(self, request: HttpRequest) -> None:
        try:
            async with asyncio.timeout(request.timeout):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            raise TransportTimeout("no answer in time") from None


class Place:
    """A cluster, and the test's own client of it."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.server = ApiServer(world=world)
        self.front = Front(self.server, gate=Identity(self.server, tokens={TOKEN: ADMINISTRATOR}))
        self.line = Line(self.front)
        self.config = ClusterConfig(f"http://{name}", auth=BearerToken(TOKEN))
        self.client = Client(self.config, transport=InMemoryTransport(self.front), world=world)

    async def put(self, name: str, namespace: str = DEFAULT, **fields: Any) -> ConfigMap:
        metadata = ObjectMeta(name=name, namespace=namespace, **fields)
        return await self.client.create(ConfigMap(metadata=metadata))

    async def names(self) -> list[str]:
        return sorted(each.metadata.name for each in await self.client.list_all(ConfigMap, DEFAULT))


class Places:
    """`home` and the other clusters by name."""

    def __init__(self, *names: str) -> None:
        self.by_name: dict[str, Place] = {}
        self.world = virtual_world(connect=lambda server, *_, **__: self[server.removeprefix("http://")].line)
        for name in ("home", *names):
            self.by_name[name] = Place(name, self.world)

    def __getitem__(self, name: str) -> Place:
        return self.by_name[name]

    @property
    def home(self) -> Place:
        return self["home"]

    @property
    def others(self) -> dict[str, ClusterConfig]:
        return {name: place.config for name, place in self.by_name.items() if name != "home"}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for place in self.by_name.values():
            await place.client.close()

    @asynccontextmanager
    async def manager(self, *controllers: Any, **options: Any) -> AsyncIterator[Running]:
        """Runs a manager until the block ends, without waiting for it to start."""
        options = {"client": self.home.config, "clusters": self.others} | options
        manager = Manager(controllers, world=self.world, status_pages=None, **options)
        manager._process.pages.health = health = Opened()  # type: ignore[assignment]
        task = asyncio.create_task(manager.run())
        try:
            yield Running(manager, health, task)
        finally:
            manager.stop()
            await asyncio.wait([task])
        await task


class Running:
    def __init__(self, manager: Manager, health: Any, task: asyncio.Task[None]) -> None:
        self.manager = manager
        self.task = task
        self._health = health

    async def ready(self) -> str:
        return await page(self._health.app, "/readyz?verbose")

    async def metrics(self) -> list[str]:
        return (await page(pages_app(self.manager.metrics.page), "/metrics")).splitlines()


class Seen:
    """A reconciler that records the keys of the objects that tests create, and takes `seconds`."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.began: list[Key] = []
        self.ended: list[Key] = []

    async def __call__(self, ctx: Context, obj: Any) -> None:
        if ctx.key.namespace != DEFAULT or ctx.key.name == "kube-root-ca.crt":
            return
        self.began.append(ctx.key)
        await asyncio.sleep(self.seconds)
        self.ended.append(ctx.key)

    def of(self, cluster: str) -> list[str]:
        return [key.name for key in self.ended if key.cluster == cluster]


def refused(place: Place) -> ClusterConfig:
    """Uses a token that the server does not know."""
    return replace(place.config, auth=BearerToken("wrong"))
