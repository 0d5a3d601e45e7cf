"""How requests to a real API server share a connection, and what becomes of them when it dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from urllib.parse import urlsplit

import pytest

from kubeshard.client.config import BearerToken, ClusterConfig
from kubeshard.runtime.http import HttpTransport
from kubeshard.runtime.transport import HttpRequest, HttpStream, TransportClosed, TransportTimeout
from kubeshard_apiserver.testing.control_plane import ControlPlane
from kubeshard_apiserver.testing.kube_api import KubeApi

pytestmark = pytest.mark.kube

MANY = 60


class Way:
    """Leads to the API server. What is connected can be frozen: nothing passes any more, and nothing ends."""

    port = 0

    def __init__(self, server: int) -> None:
        self._server = server
        self._frozen: set[asyncio.StreamWriter] = set()
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def connections(self) -> int:
        return len(self._writers) // 2

    def freeze(self) -> None:
        self._frozen = {*self._writers}

    def close(self) -> None:
        for writer in self._writers:
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._server)
        self._writers += writer, back
        await asyncio.gather(
            self._forward(reader, back), self._forward(there, writer), return_exceptions=True
        )

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if writer not in self._frozen:
                writer.write(data)
                await writer.drain()
        writer.close()


@pytest.fixture
async def way(kube_api: KubeApi, kube_control_plane: ControlPlane) -> AsyncIterator[Way]:
    way = Way(urlsplit(kube_api.url).port or 443)
    server = await asyncio.start_server(way.serve, "127.0.0.1", 0)
    way.port = server.sockets[0].getsockname()[1]
    yield way
    server.close()
    way.close()


class Requests:
    """Requests over one transport, by the administrator: kube-apiserver closes what anonymous ones share."""

    def __init__(self, way: Way, config: ClusterConfig) -> None:
        assert isinstance(config.auth, BearerToken)
        self._headers = {"authorization": f"Bearer {config.auth.token}"}
        self.transport = HttpTransport(f"https://127.0.0.1:{way.port}", config.tls)

    async def version(self, timeout: float = 10.0) -> int:
        answer = await self.transport.request(
            HttpRequest("GET", "/version", self._headers, timeout=timeout, small=True)
        )
        return answer.status

    def watch(self) -> AbstractAsyncContextManager[HttpStream]:
        return self.transport.stream(HttpRequest("GET", "/api/v1/namespaces?watch=1", self._headers))


@pytest.fixture
async def requests(way: Way, kube_api: KubeApi) -> AsyncIterator[Requests]:
    requests = Requests(way, kube_api.config)
    yield requests
    await requests.transport.close()


async def test_requests_with_small_answers_share_a_connection_and_each_stream_has_its_own(
    way: Way, requests: Requests
) -> None:
    assert {*await asyncio.gather(*(requests.version() for _ in range(MANY)))} == {200}
    assert way.connections == 1
    async with AsyncExitStack() as streams:
        for _ in range(3):
            assert (await streams.enter_async_context(requests.watch())).status == 200
        assert await requests.version() == 200
        assert way.connections == 1 + 3


async def test_after_a_request_without_an_answer_later_ones_go_over_a_new_connection(
    way: Way, requests: Requests
) -> None:
    assert await requests.version() == 200
    before = way.connections
    way.freeze()
    with pytest.raises(TransportTimeout):
        await requests.version(timeout=0.3)
    assert await requests.version() == 200
    assert way.connections == before + 1


async def test_a_request_that_is_cancelled_takes_no_other_with_it(requests: Requests) -> None:
    await requests.version()
    others = [asyncio.create_task(requests.version()) for _ in range(MANY)]
    cancelled = asyncio.create_task(requests.version())
    await asyncio.sleep(0)
    cancelled.cancel()
    assert {*await asyncio.gather(*others)} == {200}
    assert await requests.version() == 200


async def test_closing_also_ends_what_was_begun_on_connections_that_were_left(
    way: Way, requests: Requests
) -> None:
    async with requests.watch() as stream:
        for _ in range(3):
            await requests.version()
            way.freeze()
            with pytest.raises(TransportTimeout):
                await requests.version(timeout=0.2)
        closing = asyncio.create_task(requests.transport.close())
        with pytest.raises(TransportClosed):
            await stream.read()
        await closing
