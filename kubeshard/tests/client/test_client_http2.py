"""What an HTTP/2 server does with requests that share a connection, and what becomes of them."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable

import pytest

from kubeshard.runtime.http import HttpTransport
from kubeshard.runtime.tls import Tls, load_pair, server_context
from kubeshard.runtime.transport import HttpRequest, TransportError, TransportTimeout

pytest.importorskip("cryptography")

from kubeshard.runtime.certificate_authority import new_authority, new_server_leaf

MANY = 40
PATCH = HttpRequest("PATCH", "/", {}, b"{}", timeout=10.0, small=True)
WATCH = HttpRequest("GET", "/", {}, timeout=10.0)

PREFACE = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
HEADERS, RST_STREAM, SETTINGS, GOAWAY = 1, 3, 4, 7
LAST = 5
"""Flags of headers that are complete, and no body follows."""
STATUS_200 = b"\x88"
NO_ERROR, REFUSED_STREAM = bytes(4), b"\0\0\0\7"


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def answer(stream: int) -> bytes:
    return frame(HEADERS, STATUS_200, flags=LAST, stream=stream)


class Http2Server:
    """`fate` is what a request over HTTP/2 is answered with, by its number and its stream; None closes the connection.
    Over HTTP/1.1 every PATCH succeeds, and what GET answers has no end.
    """

    def __init__(self) -> None:
        self.fate: Callable[[int, int], bytes | None] = lambda number, stream: answer(stream)
        self.connections: set[asyncio.StreamWriter] = set()
        self.shared = self.alone = 0
        """Requests over HTTP/2, and over HTTP/1.1."""
        self.closed = asyncio.Event()
        """Whether a connection was closed."""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(writer)
        shares = writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        try:
            await (self._share(reader, writer) if shares else self._serve_alone(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.connections.discard(writer)
            self.closed.set()
            writer.close()

    async def _share(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(PREFACE)
        writer.write(frame(SETTINGS))
        while True:
            head = await reader.readexactly(9)
            await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] != HEADERS:
                continue
            self.shared += 1
            if (answered := self.fate(self.shared, int.from_bytes(head[5:], "big"))) is None:
                return
            writer.write(answered)

    async def _serve_alone(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if head.startswith(b"GET"):
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            else:
                self.alone += 1
                await reader.readexactly(len(PATCH.body or b""))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


@pytest.fixture(scope="module")
def identity() -> tuple[str, ssl.SSLContext]:
    authority = new_authority("test", time.time(), 3600.0)
    context = server_context(ssl.TLSVersion.TLSv1_3)
    context.set_alpn_protocols(["h2", "http/1.1"])
    load_pair(context, new_server_leaf(authority, ["127.0.0.1"], time.time(), 3600.0))
    return authority.certificate.decode(), context


@pytest.fixture
async def server(identity: tuple[str, ssl.SSLContext]) -> AsyncIterator[Http2Server]:
    made = Http2Server()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=identity[1])
    made.port = listening.sockets[0].getsockname()[1]
    yield made
    listening.close()
    for writer in made.connections:
        writer.close()


@pytest.fixture
async def transport(
    server: Http2Server, identity: tuple[str, ssl.SSLContext]
) -> AsyncIterator[HttpTransport]:
    made = HttpTransport(f"https://127.0.0.1:{server.port}", Tls(ca=identity[0]))
    yield made
    await made.close()


async def statuses(transport: HttpTransport) -> list[int]:
    return [
        answered.status for answered in await asyncio.gather(*(transport.request(PATCH) for _ in range(MANY)))
    ]


async def test_when_a_server_begins_to_leave_no_request_is_lost_and_none_is_carried_out_twice(
    server: Http2Server, transport: HttpTransport
) -> None:
    carried_out = 10

    def leaves(number: int, stream: int) -> bytes:
        if number > carried_out:
            return b""
        left = frame(GOAWAY, stream.to_bytes(4, "big") + NO_ERROR) if number == carried_out else b""
        return answer(stream) + left

    server.fate = leaves
    assert await statuses(transport) == [200] * MANY
    assert server.alone == MANY - carried_out


async def test_what_exceeds_the_server_s_limit_of_concurrent_requests_is_carried_out_once(
    server: Http2Server, transport: HttpTransport
) -> None:
    server.fate = lambda number, stream: (
        answer(stream) if number <= 3 else frame(RST_STREAM, REFUSED_STREAM, stream=stream)
    )
    assert await statuses(transport) == [200] * MANY
    assert server.alone == MANY - 3


async def test_what_a_server_may_have_seen_before_it_died_is_not_sent_again(
    server: Http2Server, transport: HttpTransport
) -> None:
    await transport.request(PATCH)
    server.fate = lambda number, stream: None
    with pytest.raises(TransportError) as caught:
        await transport.request(PATCH)
    assert caught.value.sent
    assert (server.shared, server.alone) == (2, 0)


async def test_requests_share_a_connection_also_beside_streams_that_were_there_first(
    server: Http2Server, transport: HttpTransport
) -> None:
    async with transport.stream(WATCH), transport.stream(WATCH):
        assert await statuses(transport) == [200] * MANY
        assert (len(server.connections), server.shared) == (2 + 1, MANY)


async def test_a_connection_that_was_left_is_closed_although_a_stream_goes_on(
    server: Http2Server, transport: HttpTransport
) -> None:
    async with transport.stream(WATCH):
        await transport.request(PATCH)
        server.fate = lambda number, stream: b""
        with pytest.raises(TransportTimeout):
            await transport.request(PATCH._replace(timeout=0.1))
        async with asyncio.timeout(10):
            await server.closed.wait()
        assert len(server.connections) == 1
