"""The real transport against a real socket."""

import asyncio
import socket
import struct
import threading

import pytest
from aiohttp import web

from kubeshard.runtime.http import AiohttpTransport
from kubeshard.runtime.transport import HttpRequest, TransportError, TransportTimeout


@pytest.fixture
async def transport(server):
    made = AiohttpTransport(server.url)
    yield made
    await made.close()


def get(target="/", timeout=5.0, idle_timeout=None):
    return HttpRequest("GET", target, {}, None, timeout, idle_timeout)


async def streamed(transport, request):
    async with transport.stream(request) as stream:
        return [chunk async for chunk in stream.chunks()]


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the server's side of a socket has no event
            await asyncio.sleep(0.005)


async def test_connections_are_reused(server, transport):
    server.answer(web.Response(body=b"ok"))
    for _ in range(3):
        assert (await transport.request(get())).body == b"ok"
    assert len(set(map(id, server.connections))) == 1


@pytest.mark.parametrize("begun", [False, True])
async def test_a_connection_that_timed_out_is_closed_and_not_reused(server, transport, begun):
    server.answer(server.stall_within if begun else server.stall, web.Response())
    with pytest.raises(TransportTimeout):
        await transport.request(get(timeout=0.05))
    await transport.request(get())
    first, second = server.connections
    assert first is not second
    await until(first.is_closing)


async def test_a_stream_left_early_is_closed_and_not_reused(server, transport):
    server.answer(server.stall_within, web.Response())
    async with transport.stream(get()) as stream:
        assert await anext(stream.chunks()) == b"x"
    await transport.request(get())
    assert server.connections[0] is not server.connections[1]


async def test_requests_do_not_wait_behind_a_stream(server, transport):
    server.answer(server.stall_within, web.Response(body=b"ok"))
    async with transport.stream(get()):
        assert (await transport.request(get())).body == b"ok"


async def test_silence_on_a_stream_is_a_timeout(server, transport):
    server.answer(server.stall_within)
    with pytest.raises(TransportTimeout):
        await streamed(transport, get(idle_timeout=0.05))


async def test_a_stream_cut_short_is_an_error(server, transport):
    async def cut(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x")
        request.transport.abort()
        return response

    server.answer(cut)
    with pytest.raises(TransportError):
        await streamed(transport, get())


async def test_a_refused_connection_says_that_nothing_was_sent():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    transport = AiohttpTransport(f"http://127.0.0.1:{port}")
    with pytest.raises(TransportError) as caught:
        await transport.request(get())
    assert not caught.value.sent
    await transport.close()


async def test_redirects_are_not_followed(server, transport):
    server.answer(web.Response(status=301, headers={"Location": "/elsewhere"}))
    answer = await transport.request(get())
    assert (answer.status, answer.headers["location"], len(server.requests)) == (301, "/elsewhere", 1)


async def test_sockets_notice_a_dead_peer(server, transport):
    server.answer(web.Response())
    await transport.request(get())
    (sock,) = transport._sockets

    def option(level, name):
        return sock.getsockopt(level, getattr(socket, name))

    assert option(socket.SOL_SOCKET, "SO_KEEPALIVE") == 1
    assert [
        option(socket.IPPROTO_TCP, name) for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
    ] == [10, 5, 3]
    assert option(socket.IPPROTO_TCP, "TCP_USER_TIMEOUT") == 4000


async def test_abort_resets_connections_even_while_the_loop_is_blocked(server, transport):
    server.answer(server.stall)
    waiting = asyncio.create_task(transport.request(get()))
    await until(lambda: server.connections)
    (sock,) = transport._sockets
    thread = threading.Thread(target=transport.abort)
    thread.start()
    thread.join()
    assert struct.unpack("ii", sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)) == (1, 0)
    with pytest.raises(TransportError):
        await waiting
    with pytest.raises(TransportError, match="closed"):
        await transport.request(get())


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "PATCH"])
async def test_a_write_on_a_connection_that_the_server_closes_is_sent_once(server, transport, method):
    async def cut(request):
        request.transport.abort()
        return web.Response()

    server.answer(web.Response(), cut)
    await transport.request(get())
    with pytest.raises(TransportError) as caught:
        await transport.request(HttpRequest(method, "/", {}, b"{}", 5.0))
    assert caught.value.sent
    assert len(server.requests) == 2
