"""The real transport against a real socket."""

import asyncio
import os
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import pycurl
import pytest
from aiohttp import web

from kubeshard.runtime.curl_transfers import LONGEST_REST, MANY, Sockets
from kubeshard.runtime.http import LOOKUP_LIFETIME, HttpTransport
from kubeshard.runtime.transport import HttpRequest, TransportClosed, TransportError, TransportTimeout


@pytest.fixture
async def transport(server):
    made = HttpTransport(server.url)
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
    transport = HttpTransport(f"http://127.0.0.1:{port}")
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
    (descriptor,) = transport._sockets.descriptors()

    def option(level, name):
        with socket.socket(fileno=os.dup(descriptor)) as sock:
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
    (descriptor,) = transport._sockets.descriptors()
    sock = socket.socket(fileno=os.dup(descriptor))
    thread = threading.Thread(target=transport.abort)
    thread.start()
    thread.join()
    assert struct.unpack("ii", sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)) == (1, 0)
    sock.close()
    with pytest.raises(TransportError):
        await waiting
    with pytest.raises(TransportClosed, match="closed"):
        await transport.request(get())


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "PATCH"])
async def test_a_write_on_a_connection_that_the_server_closes_is_sent_once(server, transport, method):
    async def cut(request):
        request.transport.abort()
        return web.Response()

    server.answer(web.Response(), cut)
    await transport.request(get())
    with pytest.raises(TransportError, match="the server closed the kept connection") as caught:
        await transport.request(HttpRequest(method, "/", {}, b"{}", 5.0))
    assert caught.value.sent
    assert len(server.requests) == 2


@pytest.mark.regression
async def test_abort_never_fails_while_another_thread_opens_sockets():
    sockets, aborted, stop = Sockets(), [], threading.Event()

    def abort():
        while not stop.is_set():
            sockets.abort()
            aborted.append(True)

    with ThreadPoolExecutor(1) as pool:
        aborting = pool.submit(abort)
        for _ in range(300):
            opened = [socket.socket() for _ in range(30)]
            for sock in opened:
                sockets.opened(sock.fileno(), 0)
            for sock in opened:
                sock.close()
        stop.set()
        aborting.result(timeout=5)
    assert aborted


async def test_abort_leaves_a_socket_alone_that_took_over_a_closed_one_s_number():
    sockets, first = Sockets(), socket.socket()
    sockets.opened(first.fileno(), 0)
    number = first.fileno()
    first.close()
    with socket.socket() as second:
        assert second.fileno() == number
        sockets.abort()
        assert struct.unpack("ii", second.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)) == (0, 0)


async def test_a_cancelled_request_closes_its_connection(server, transport):
    server.answer(server.stall, web.Response())
    waiting = asyncio.create_task(transport.request(get()))
    await until(lambda: server.connections)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until(server.connections[0].is_closing)


async def test_a_line_break_in_a_header_is_refused_and_nothing_is_sent(server, transport):
    server.answer(web.Response())
    with pytest.raises(TransportError, match="line break") as caught:
        await transport.request(HttpRequest("GET", "/", {"Authorization": "Bearer a\r\nX-Other: b"}))
    assert not caught.value.sent
    assert not server.requests


@pytest.mark.regression
async def test_closing_does_not_block_the_loop_while_a_host_name_is_looked_up(server, monkeypatch):
    looked_up, closed = threading.Event(), threading.Event()

    class LooksUpForLong(pycurl.CurlMulti):
        def close(self):
            looked_up.wait(10)
            super().close()
            closed.set()

    monkeypatch.setattr(pycurl, "CurlMulti", LooksUpForLong)
    monkeypatch.setattr("kubeshard.runtime.http._CLOSING", 0.01)
    transport = HttpTransport(server.url)
    server.answer(web.Response())
    await transport.request(get())
    await transport.close()
    assert not closed.is_set()
    looked_up.set()
    await until(server.connections[0].is_closing)


@pytest.mark.regression
async def test_after_an_abort_a_request_that_was_about_to_leave_is_not_sent(server, transport):
    server.answer(web.Response(), web.Response())
    await transport.request(get())
    waiting = asyncio.create_task(transport.request(get("/late")))
    await asyncio.sleep(0)  # libcurl has the request, and writes it in its next turn
    transport.abort()
    with pytest.raises(TransportClosed, match="closed"):
        await waiting
    await until(server.connections[0].is_closing)
    assert len(server.requests) == 1


async def test_after_an_abort_no_request_begins(server, transport):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(transport.abort).result(timeout=5)  # before the loop has noticed it
    with pytest.raises(TransportClosed, match="closed"):
        await transport.request(get())
    assert not server.requests


async def test_a_head_request_has_an_answer_without_a_body(server, transport):
    server.answer(web.Response(body=b"four"), web.Response(body=b"ok"))
    answer = await transport.request(HttpRequest("HEAD", "/", {}, None, 1.0))
    assert (answer.status, answer.headers["content-length"], answer.body) == (200, "4", b"")
    assert (await transport.request(get())).body == b"ok"


@pytest.mark.regression
@pytest.mark.parametrize("body", [None, b"{}"])
async def test_the_answer_after_that_of_a_head_request_has_its_body(server, transport, body):
    server.answer(web.Response(text="whole"))
    await transport.request(HttpRequest("HEAD", "/", {}, None, 1.0))
    answer = await transport.request(HttpRequest("POST", "/", {}, body, 1.0))
    assert answer.body == b"whole"
    assert server.connections[0] is server.connections[1]


async def serve_bytes(answer):
    """Runs a server that sends the same bytes to the first request of each connection; yields its URL."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    return listening, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("streamed_", [False, True])
async def test_odd_lines_in_an_answer_s_head_do_no_harm(streamed_):
    listening, url = await serve_bytes(
        b"HTTP/1.1 100 Continue\r\nX: 1\r\n\r\nHTTP/1.1 200\r\nHTTP/odd: x\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Type: application/json\r\n\r\n2\r\n{}\r\n0\r\nContent-Type: text/plain\r\n\r\n"
    )
    transport = HttpTransport(url)
    async with listening:
        if streamed_:
            async with transport.stream(get()) as stream:
                body = await stream.read()
                status, headers = stream.status, stream.headers
        else:
            status, headers, body = await transport.request(get())
        assert (status, headers["content-type"], body) == (200, "application/json", b"{}")
        assert "x" not in headers
    await transport.close()


async def test_headers_are_read_in_utf_8_and_bytes_that_are_none_do_no_harm():
    listening, url = await serve_bytes(
        "HTTP/1.1 200 OK\r\nX-Said: größer – 日本\r\nX-Odd: ".encode() + b"\xff!\r\nContent-Length: 0\r\n\r\n"
    )
    transport = HttpTransport(url)
    async with listening:
        _, headers, _ = await transport.request(get())
    assert (headers["x-said"], headers["x-odd"]) == ("größer – 日本", "\ufffd!")
    await transport.close()


@pytest.mark.parametrize("streamed_", [False, True])
async def test_an_answer_that_nobody_asked_for_still_has_its_status(streamed_):
    listening, url = await serve_bytes(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nhello")
    transport = HttpTransport(url)
    async with listening:
        if streamed_:
            async with transport.stream(get()) as stream:
                assert stream.status == 101
        else:
            assert (await transport.request(get())).status == 101
    await transport.close()


async def test_an_answer_is_not_kept_until_the_next_request(server, transport):
    server.answer(web.Response(body=b"x" * 1_000_000))
    await transport.request(get())
    (idle,) = transport._idle
    assert sum(map(len, idle._body)) == 0


@pytest.mark.regression
async def test_a_server_that_moved_is_found_before_a_lease_runs_out(server, monkeypatch):
    """libcurl resolves the name itself, so the test checks its setting."""
    options = {}

    class Recorded(pycurl.Curl):
        def setopt(self, option, value):
            options[option] = value
            super().setopt(option, value)

    monkeypatch.setattr(pycurl, "Curl", Recorded)
    transport = HttpTransport(server.url)
    server.answer(web.Response())
    await transport.request(get())
    assert options[pycurl.DNS_CACHE_TIMEOUT] == LOOKUP_LIFETIME <= 2
    await transport.close()


async def test_answers_are_handled_together_while_many_requests_are_under_way_and_at_once_else():
    """Each wakes the process otherwise, which costs more than to handle it."""
    asked = asyncio.Queue()

    async def serve(reader, writer):
        while await reader.readuntil(b"\r\n\r\n"):
            asked.put_nowait(writer)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    transport = HttpTransport(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    rests = {}
    async with listening:
        requests = {asyncio.create_task(transport.request(get())) for _ in range(MANY + 3)}
        writers = [await asked.get() for _ in requests]
        readiness = transport._transfers._sockets
        for left, writer in zip(range(len(requests) - 1, -1, -1), writers, strict=True):
            readiness.rest = lambda seconds, left=left: rests.update({left: seconds})
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            _, requests = await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
        await transport.close()
    assert list(rests) == [MANY + 2, MANY + 1, MANY]
    assert all(0 < seconds <= LONGEST_REST for seconds in rests.values())
