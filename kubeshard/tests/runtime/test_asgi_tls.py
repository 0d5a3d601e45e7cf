from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
import tracemalloc
from pathlib import Path

import pytest

from kubeshard.runtime.asgi import Limits, Receive, Scope, Send
from kubeshard.runtime.http_server import AsgiServer
from kubeshard.webhook.selfsigned import renewed

PATIENCE = 10.0


async def length_of(scope: Scope, receive: Receive, send: Send) -> None:
    """Responds with the request body, doubled."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", str(2 * len(body)).encode())],
        }
    )
    await send({"type": "http.response.body", "body": 2 * body})


@pytest.fixture
def serving(tmp_path: Path) -> ssl.SSLContext:
    identity = renewed(None, ["127.0.0.1"], time.time())
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(identity.serving.certificate)
    key.write_bytes(identity.serving.private_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


async def connect(server: AsgiServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return await asyncio.open_connection("127.0.0.1", server.port, ssl=context)


async def exchange(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], body: bytes) -> bytes:
    reader, writer = connection
    writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    async with asyncio.timeout(PATIENCE):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        return await reader.readexactly(2 * len(body))


@pytest.mark.parametrize("size", [0, 1, 16 * 1024, 16 * 1024 + 1, 3_000_000])
async def test_bodies_of_any_size_pass_both_ways(serving: ssl.SSLContext, size: int) -> None:
    body = bytes(number % 251 for number in range(997)) * (size // 997 + 1)
    async with AsgiServer(length_of, "127.0.0.1", ssl_context=serving) as server:
        connection = await connect(server)
        for _ in range(2):
            assert await exchange(connection, body[:size]) == 2 * body[:size]
        connection[1].close()


def test_bodies_pass_both_ways_in_the_faster_event_loop(serving: ssl.SSLContext) -> None:
    """It has transports of its own, with TLS and without."""
    uvloop = pytest.importorskip("uvloop")

    async def pass_both_ways() -> None:
        for context in (None, serving):
            async with AsgiServer(length_of, "127.0.0.1", ssl_context=context) as server:
                connection = await (
                    connect(server) if context else asyncio.open_connection("127.0.0.1", server.port)
                )
                assert await exchange(connection, b"hello") == b"hellohello"
                connection[1].close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(pass_both_ways())


async def test_an_idle_connection_takes_less_than_64_kib_of_our_memory(serving: ssl.SSLContext) -> None:
    async with AsgiServer(length_of, "127.0.0.1", ssl_context=serving) as server:
        (await connect(server))[1].close()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            raw = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(20)]
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*others)  # the server is still accepting
            each = (tracemalloc.get_traced_memory()[0] - before) / len(raw)
        finally:
            tracemalloc.stop()
        for _, writer in raw:
            writer.close()
        # Both ends are in this process; the client's end has no TLS, so no buffer of its own.
        assert 2 * 1024 < each < 64 * 1024


async def test_a_client_that_does_not_speak_tls_is_cut_off_and_costs_no_log_line(
    serving: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with AsgiServer(length_of, "127.0.0.1", ssl_context=serving) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            async with asyncio.timeout(PATIENCE):
                assert b"HTTP" not in await reader.read()
            writer.close()
            connection = await connect(server)
            assert await exchange(connection, b"next") == b"nextnext"
            connection[1].close()
    assert not [
        record for record in caplog.records if record.name != "asyncio" or record.levelno > logging.DEBUG
    ]


async def test_a_client_that_does_not_finish_its_handshake_is_cut_off(serving: ssl.SSLContext) -> None:
    limits = Limits(header_timeout=0.05)
    async with AsgiServer(length_of, "127.0.0.1", ssl_context=serving, limits=limits) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"\x16\x03\x01")
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()


@pytest.mark.regression
async def test_clients_that_do_not_finish_their_handshake_keep_nobody_out(serving: ssl.SSLContext) -> None:
    limits = Limits(max_connections=3)
    async with AsgiServer(length_of, "127.0.0.1", ssl_context=serving, limits=limits) as server:
        slow = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(30)]
        connection = await connect(server)
        assert await exchange(connection, b"next") == b"nextnext"
        async with asyncio.timeout(PATIENCE):
            for reader, _ in slow[:-2]:
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
        for _, writer in [*slow, connection]:
            writer.close()


async def test_stopping_ends_idle_connections_and_unfinished_handshakes(serving: ssl.SSLContext) -> None:
    async with asyncio.timeout(PATIENCE):
        async with AsgiServer(length_of, "127.0.0.1", ssl_context=serving) as server:
            idle = await connect(server)
            assert await exchange(idle, b"a") == b"aa"
            unfinished = await asyncio.open_connection("127.0.0.1", server.port)
        assert await idle[0].read() == b""
        idle[1].close()
        unfinished[1].close()
