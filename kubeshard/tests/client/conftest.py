"""An HTTP server on the loopback interface that responds as the test specifies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from kubeshard.client import Client, ClusterConfig
from kubeshard.runtime.rng import Rng
from kubeshard.runtime.world import REAL_WORLD

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """`answers` are sent in order, and the last one is repeated; `requests` and `connections` record what arrived."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[Handler] = []
        self.requests: list[tuple[web.Request, bytes]] = []
        self.connections: list[Any] = []
        self.closing = asyncio.Event()

    def answer(self, *answers: Handler | web.Response) -> None:
        self.answers = [given if callable(given) else _always(given) for given in answers]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request, await request.read()))
        self.connections.append(request.transport)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)

    async def stall(self, _request: web.Request) -> web.StreamResponse:
        """Never answers."""
        await self.closing.wait()
        return web.Response()

    async def stall_within(self, request: web.Request) -> web.StreamResponse:
        """Starts a response and never finishes it."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b"x")
        await self.closing.wait()
        return response

    def header(self, name: str) -> list[str | None]:
        return [request.headers.get(name) for request, _ in self.requests]

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(body) if body else None for _, body in self.requests]


def _always(response: web.Response) -> Handler:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=response.body, status=response.status, headers=response.headers)

    return answer


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    made.closing.set()
    await runner.cleanup()


class NoJitter:
    def uniform(self, low: float, high: float) -> float:
        return low

    def token(self) -> str:
        return "token"


@pytest.fixture
def rng() -> Rng:
    return NoJitter()


@pytest.fixture
async def client(server: Server, rng: Rng) -> AsyncIterator[Client]:
    async with Client(ClusterConfig(server.url), world=replace(REAL_WORLD, rng=rng)) as made:
        yield made


@pytest.fixture
def widget_written(server: Server) -> None:
    """Each request is answered with an object, as it is after a write."""
    metadata = {"name": "a", "resourceVersion": "8"}
    server.answer(web.json_response({"kind": "Widget", "apiVersion": "example.com/v1", "metadata": metadata}))


@pytest.fixture
def status() -> Callable[..., web.Response]:
    """Returns an error response of an API server."""

    def make(
        code: int, reason: str = "", *, headers: dict[str, str] | None = None, **fields: Any
    ) -> web.Response:
        body = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": reason,
            "code": code,
            **fields,
        }
        return web.json_response(body, status=code, headers=headers)

    return make
