"""Writes that may still take effect after the client has given up on them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from kubeshard.client import Client, ClusterConfig
from kubeshard.core import ApiError, ConfigMap, NotOurs, ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.transport import (
    UNDELIVERED,
    HttpRequest,
    HttpResponse,
    TransportError,
    TransportTimeout,
)
from kubeshard_lab.virtual_time import virtual_time

JSON = {"content-type": "application/json"}
NAME = ConfigMap(metadata=ObjectMeta(name="c", namespace="ns"))
STORED = (
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"ns","resourceVersion":"2"}}'
)


class Book:
    """A ledger: how late each write may still take effect, and whether its outcome is known."""

    def __init__(self, refusal: ApiError | None = None) -> None:
        self.lines: list[list[Any]] = []
        self.refusal = refusal

    def sending(self, late: float) -> Callable[[bool], None]:
        if self.refusal:
            raise self.refusal
        line: list[Any] = [late]
        self.lines.append(line)
        return line.append


class Server:
    def __init__(self, act: HttpResponse | TransportError | float) -> None:
        self.act = act

    async def request(self, request: HttpRequest) -> HttpResponse:
        if isinstance(self.act, TransportError):
            raise self.act
        if isinstance(self.act, float):
            await asyncio.sleep(self.act)
            raise AssertionError
        return self.act

    def stream(self, request: HttpRequest) -> Any:
        raise NotImplementedError

    async def close(self) -> None: ...

    def abort(self) -> None: ...

    def client(self, book: Book) -> Client:
        return Client(ClusterConfig("http://kube.test"), transport=self).with_timeout(5.0).entered_in(book)


def status(code: int, reason: str = "") -> HttpResponse:
    return HttpResponse(code, JSON, b'{"kind":"Status","code":%d,"reason":"%s"}' % (code, reason.encode()))


@pytest.mark.parametrize(
    ("act", "known"),
    [
        (HttpResponse(201, JSON, STORED), True),
        (status(409, "Conflict"), True),
        (status(403, "Forbidden"), True),
        (status(422, "Invalid"), True),
        (TransportError("refused", sent=False), True),
        (TransportError("reset"), False),
        (TransportTimeout("no answer"), False),
        (status(500, "InternalError"), False),
        (status(504, "Timeout"), False),
        (HttpResponse(502, {"content-type": "text/html"}, b"<html>"), False),
        (HttpResponse(200, {"content-type": "text/html"}, b"<html>"), False),
    ],
)
def test_the_outcome_of_a_write_is_known_only_when_the_server_said_it(
    act: HttpResponse | TransportError, known: bool
) -> None:
    @virtual_time
    async def run() -> None:
        book = Book()
        with suppress(ApiError):
            await Server(act).client(book).create(NAME)
        assert book.lines == [[UNDELIVERED + 5, known]]

    run()


@virtual_time
async def test_a_write_that_is_cancelled_while_it_is_sent_may_land() -> None:
    book = Book()
    client = Server(60.0).client(book)
    for write in (
        client.create(NAME),
        client.patch(ConfigMap, "c", "ns", MergePatch({})),
        client.delete(ConfigMap, "c", "ns"),
        client.delete_collection(ConfigMap, "ns"),
        client.raw("POST", "/x"),
    ):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await write
    assert book.lines == [[UNDELIVERED + late, False] for late in (5, 5, 5, 60, 60)]


@virtual_time
async def test_reads_and_dry_runs_are_no_writes() -> None:
    book = Book()
    client = Server(HttpResponse(200, JSON, STORED)).client(book)
    reads: list[Awaitable[Any]] = [
        client.get(ConfigMap, "c", "ns"),
        client.create(NAME, dry_run=True),
        client.raw("GET", "/version"),
    ]
    for read in reads:
        await read
    assert book.lines == []


@virtual_time
async def test_a_write_that_may_not_be_sent_is_not() -> None:
    server = Server(AssertionError("sent"))  # type: ignore[arg-type]
    with pytest.raises(NotOurs, match="no more"):
        await server.client(Book(NotOurs("no more"))).create(NAME)
