"""`kubectl shard web`: a read-only page that follows the ring and that no other site's page can access."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from commands import KubectlShard

from kubeshard.inspection.history import History
from kubeshard.inspection.page.app import LivePage, local_names
from kubeshard.inspection.stats import RingSnapshot, ShardRow
from kubeshard_apiserver.testing import KubeApi

PORT = 8088


class Ring:
    def __init__(self) -> None:
        self.now = RingSnapshot((ShardRow("a", "ready", True, 3, 1, 0),), total=4)
        self.history = History()

    def snapshot(self) -> RingSnapshot:
        return self.now


async def found(word: str, namespace: str) -> object:
    return {"placements": [word, namespace]}


class Answer:
    """What the application sends."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.grown = asyncio.Event()

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message["body"]
            self.grown.set()

    async def pictures(self, count: int) -> list[Any]:
        async with asyncio.timeout(10):
            while self.body.count(b"data: ") < count:
                self.grown.clear()
                await self.grown.wait()
        return [json.loads(line[6:]) for line in self.body.decode().splitlines() if line.startswith("data: ")]


@asynccontextmanager
async def asking(
    ring: Ring, path: str, *, method: str = "GET", host: str = f"127.0.0.1:{PORT}", port: int = PORT
) -> AsyncIterator[tuple[Answer, asyncio.Event, asyncio.Task[None]]]:
    """Yields the response as it arrives, a function that disconnects the browser, and the application's task."""
    answer, leave = Answer(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        await leave.wait()
        return {"type": "http.disconnect"}

    page = LivePage({"r": ring, "other": Ring()}, lambda: local_names(port), found)
    path, _, query = path.partition("?")
    headers = [(b"host", host.encode())]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": headers,
    }
    task = asyncio.create_task(page(scope, receive, answer.send))
    try:
        yield answer, leave, task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def answered(path: str, **how: Any) -> Answer:
    async with asking(Ring(), path, **how) as (answer, _, task):
        await asyncio.wait_for(task, 10)
        return answer


@pytest.mark.parametrize(
    ("path", "type_"), [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")]
)
async def test_the_page_is_of_this_machine_alone(path: str, type_: str) -> None:
    answer = await answered(path)
    assert (answer.status, answer.headers["content-type"]) == (200, f"{type_}; charset=utf-8")
    assert "://" not in answer.body.decode()
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("path", ["/secret", "/../app.py", "/index.html"])
async def test_there_is_nothing_else(path: str) -> None:
    assert (await answered(path)).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_nothing_can_be_changed(method: str) -> None:
    answer = await answered("/", method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "host", ["evil.example:8088", "127.0.0.1:8089", "127.0.0.1", "127.0.0.1.evil.example:8088", ""]
)
@pytest.mark.parametrize("path", ["/", "/events", "/why?object=secret/a"])
async def test_a_name_of_somebody_elses_that_points_here_is_refused(path: str, host: str) -> None:
    assert (await answered(path, host=host)).status == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_the_port_of_http_itself_is_not_in_what_a_browser_asks_for(host: str) -> None:
    assert (await answered("/", host=host, port=80)).status == 200
    assert (await answered("/", host="evil.example", port=80)).status == 403


async def test_no_other_page_may_show_this_one_in_a_frame() -> None:
    answer = await answered("/")
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/", "/page.css", "/events"])
async def test_who_asks_for_the_headers_gets_them_alone_and_at_once(path: str) -> None:
    answer = await answered(path, method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    if path != "/events":
        whole = await answered(path)
        assert answer.headers == whole.headers
        assert int(answer.headers["content-length"]) == len(whole.body)


async def test_events_are_pictures_at_once_and_on_every_change() -> None:
    ring = Ring()
    async with asking(ring, "/events") as (answer, _, _):
        (first,) = await answer.pictures(1)
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert (first["ring"], first["well"], first["scale"]) == ("r", True, 5)
        assert first["picture"]["rows"][0]["objects"] == 3
        ring.now = RingSnapshot((ShardRow("a", "dead", False, 3, 1, 0),), stranded=4, total=4)
        _, second = await answer.pictures(2)
        assert (second["well"], second["verdict"]) == (False, "4 on dead shards, no shard is available")


async def test_each_ring_has_its_events_and_an_object_is_looked_for() -> None:
    async with asking(Ring(), "/events?ring=other") as (answer, _, _):
        (first,) = await answer.pictures(1)
        assert (first["ring"], first["rings"], first["history"]) == ("other", ["r", "other"], [])
    assert (await answered("/events?ring=none")).status == 404
    answer = await answered("/why?object=secret/a%20b&namespace=team")
    assert json.loads(answer.body) == {"placements": ["secret/a b", "team"]}


async def test_a_browser_that_leaves_leaves_nothing_behind() -> None:
    async with asking(Ring(), "/events") as (answer, leave, task):
        await answer.pictures(1)
        before = asyncio.all_tasks()
        leave.set()
        await asyncio.wait_for(task, 10)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() < before


def test_a_port_that_is_taken(written: KubeApi, kubectl_shard: KubectlShard) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = kubectl_shard("web", "r", "--port", str(port))
    assert (done.code, done.err) == (
        2,
        f"Error: --port {port}: cannot listen on 127.0.0.1:{port}: the address is in use by another process\n",
    )
