"""A server on the loopback interface that has the API of a Prometheus, and answers as the test says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Labels = dict[str, str]


def matrix(*series: tuple[Labels, list[tuple[float, str]]]) -> dict[str, Any]:
    result = [{"metric": labels, "values": values} for labels, values in series]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def vector(*samples: tuple[Labels, tuple[float, str]]) -> dict[str, Any]:
    result = [{"metric": labels, "value": value} for labels, value in samples]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def scalar(value: str) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "scalar", "result": [1, value]}}


def failure(kind: str, error: str) -> dict[str, Any]:
    return {"status": "error", "errorType": kind, "error": error}


class FakePrometheus:
    """`answers` are by the text of the query."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: dict[str, Any] = {}
        self.status = 200
        self.asked: list[tuple[str, dict[str, str]]] = []
        """(path, parameters)"""
        self.authorizations: list[str | None] = []

    async def handle(self, request: web.Request) -> web.Response:
        parameters = {**request.query, **(await request.post())}
        self.asked.append((request.path, {name: str(value) for name, value in parameters.items()}))
        self.authorizations.append(request.headers.get("authorization"))
        answer = self.answers[str(parameters["query"])]
        if isinstance(answer, str):
            return web.Response(status=self.status, text=answer)
        return web.json_response(answer, status=self.status if answer["status"] == "success" else 422)


@asynccontextmanager
async def fake_prometheus() -> AsyncIterator[FakePrometheus]:
    fake, app = FakePrometheus(), web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    fake.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
    try:
        yield fake
    finally:
        await runner.cleanup()
