from __future__ import annotations

import asyncio
import signal
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from kubeshard.runtime.asgi import (
    JSON_RESPONSE,
    AsgiApp,
    DirectAnswer,
    Fields,
    Limits,
    Message,
    Receive,
    Scope,
    Send,
    Stream,
)
from kubeshard.runtime.http_server import AsgiServer, ListenError, parse_bind_address


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        if not message["more_body"]:
            break
    await answer(send, body)


async def answer(send: Send, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def connect(server: AsgiServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port)


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(5):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def exchange(server: AsgiServer, request: bytes) -> bytes:
    reader, writer = await connect(server)
    writer.write(request)
    data = await until_closed(reader)
    writer.close()
    return data


class DirectEcho:
    """Echoes a body that arrives at `/` in one piece directly; that of `/later` later."""

    def __init__(self) -> None:
        self.direct_answers = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.later if scope["path"] == "/later" else echo)(scope, receive, send)

    async def later(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["path"] == "/later"
        await asyncio.sleep(0.01)
        assert (await receive())["more_body"] is False
        await answer(send, b"later")

    def direct(self, method: bytes, url: bytes, headers: Fields) -> DirectAnswer | None:
        assert method == b"POST"
        assert (b"host", b"x") in headers
        if url == b"/later":
            return lambda _, connection: self.later
        return self.answer if url == b"/" else None

    def answer(self, body: bytes, connection: Scope) -> bytes:
        assert connection["type"] == "http"
        self.direct_answers += 1
        return JSON_RESPONSE % (len(body), body)


@pytest.fixture(params=["plain", "direct"])
def app(request: pytest.FixtureRequest) -> AsgiApp:
    return echo if request.param == "plain" else DirectEcho()


POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n"


async def test_serves_on_a_free_port_while_entered_and_no_longer_after() -> None:
    async with AsgiServer(echo, "127.0.0.1") as server:
        assert server.port > 0
        assert (await exchange(server, POST + b"connection: close\r\n\r\nhello")).endswith(b"\r\n\r\nhello")
    with pytest.raises(ConnectionError):
        await connect(server)


async def test_an_empty_host_listens_on_ipv4_and_ipv6() -> None:
    async with AsgiServer(echo) as server:
        for host in ("127.0.0.1", "::1"):
            _, writer = await asyncio.open_connection(host, server.port)
            writer.close()


async def test_answers_do_not_wait_for_delayed_acknowledgements() -> None:
    async with AsgiServer(echo) as server:
        _, writer = await connect(server)
        assert server._connections is not None
        while not server._connections.open:  # noqa: ASYNC110 - accepted by the loop itself
            await asyncio.sleep(0)
        for connection in server._connections.open:
            sock = connection.transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()


async def test_a_taken_port_is_an_error_that_names_it() -> None:
    async with AsgiServer(echo, "127.0.0.1") as server:
        with pytest.raises(
            ListenError, match=f"cannot listen on 127.0.0.1:{server.port}: the address is in use"
        ):
            async with AsgiServer(echo, "127.0.0.1", server.port):
                pass


async def test_a_host_that_is_not_known_is_an_error_in_words() -> None:
    with pytest.raises(ListenError, match=r"^.*cannot listen on nowhere\.invalid:0: there is no such host$"):
        async with AsgiServer(echo, "nowhere.invalid"):
            pass


async def test_a_port_may_be_shared_and_stays_open_when_one_of_them_ends() -> None:
    async with AsgiServer(echo, "127.0.0.1", reuse_port=True) as one:
        async with AsgiServer(echo, "127.0.0.1", one.port, reuse_port=True) as other:
            assert other.port == one.port
        assert (await exchange(one, POST + b"connection: close\r\n\r\nhello")).endswith(b"hello")


async def test_signal_handlers_stay_as_they_were() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    async with AsgiServer(echo):
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize(
    "sent",
    [
        b"POST / HTT",
        POST,
        POST + b"\r\n",
        POST + b"\r\nhel",
        POST + b"\r\nhelloPOST / ",
    ],
    ids=["request line", "headers", "no body", "half a body", "second request"],
)
async def test_a_client_that_stops_in_the_middle_is_cut_off(sent: bytes, app: AsgiApp) -> None:
    async with AsgiServer(app, limits=Limits(header_timeout=0.05, body_timeout=0.05)) as server:
        reader, writer = await connect(server)
        writer.write(sent)
        await until_closed(reader)
        writer.close()


async def test_a_client_that_sends_byte_by_byte_gets_no_more_time(app: AsgiApp) -> None:
    async with AsgiServer(app, limits=Limits(header_timeout=0.1)) as server:
        reader, writer = await connect(server)

        async def drip() -> None:
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.01)

        task = asyncio.create_task(drip())
        await until_closed(reader)
        task.cancel()
        writer.close()


async def test_an_idle_connection_is_closed(app: AsgiApp) -> None:
    async with AsgiServer(app, limits=Limits(keep_alive=0.05)) as server:
        assert (await exchange(server, POST + b"\r\nhello")).endswith(b"hello")


@pytest.mark.regression
async def test_a_new_connection_without_a_byte_is_idle_and_not_slow(app: AsgiApp) -> None:
    """Go parks the connection that lost a race of two, and sends its next request on it."""
    async with AsgiServer(app, limits=Limits(header_timeout=0.02, keep_alive=30)) as server:
        reader, writer = await connect(server)
        await asyncio.sleep(0.1)
        writer.write(POST + b"\r\nhello")
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        writer.close()
    async with AsgiServer(app, limits=Limits(header_timeout=30, keep_alive=0.02)) as server:
        assert await exchange(server, b"") == b""


async def test_a_finished_request_leaves_no_timer_that_cuts_the_next_one_off(app: AsgiApp) -> None:
    async with AsgiServer(app, limits=Limits(header_timeout=0.4, body_timeout=0.4)) as server:
        reader, writer = await connect(server)
        for _ in range(2):
            writer.write(POST)
            await asyncio.sleep(0.15)
            writer.write(b"\r\nhel")
            await asyncio.sleep(0.15)
            writer.write(b"lo")
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        writer.close()


@pytest.mark.parametrize("end", [b"\r\n\r\n", b""], ids=["ended", "endless"])
async def test_too_large_headers_are_answered_with_431(end: bytes, app: AsgiApp) -> None:
    async with AsgiServer(app, limits=Limits(max_header_bytes=1000)) as server:
        data = await exchange(server, b"GET / HTTP/1.1\r\nx: " + b"y" * 2000 + end)
        assert data.startswith(b"HTTP/1.1 431 ")


CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"


@pytest.mark.regression
async def test_trailers_do_not_become_headers(app: AsgiApp) -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def recording(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)
        seen.extend(scope["headers"])

    request = CHUNKED + b"connection: close\r\n\r\n5\r\nhello\r\n"
    async with AsgiServer(recording) as server:
        for first in (len(request), len(request) + 3, len(request) + 10):
            sent = request + b"0\r\nauthorization: Bearer forged\r\n\r\n"
            reader, writer = await connect(server)
            writer.write(sent[:first])
            await asyncio.sleep(0.02)
            writer.write(sent[first:])
            assert (await until_closed(reader)).endswith(b"hello")
            writer.close()
    assert {name for name, _ in seen} == {b"host", b"transfer-encoding", b"connection"}


@pytest.mark.regression
@pytest.mark.parametrize("trailers", [b"a: b\r\n" * 500, b"a: " + b"b" * 2000], ids=["many", "one"])
async def test_too_large_trailers_are_answered_with_431(trailers: bytes, app: AsgiApp) -> None:
    async with AsgiServer(app, limits=Limits(max_header_bytes=1000)) as server:
        reader, writer = await connect(server)
        writer.write(CHUNKED + b"\r\n5\r\nhello\r\n0\r\n")
        await asyncio.sleep(0.02)
        writer.write(trailers)
        assert (await until_closed(reader)).startswith(b"HTTP/1.1 431 ")
        writer.close()


async def test_many_small_chunks_are_not_mistaken_for_trailers(app: AsgiApp) -> None:
    async with AsgiServer(app, limits=Limits(max_header_bytes=200)) as server:
        reader, writer = await connect(server)
        writer.write(CHUNKED + b"connection: close\r\n\r\n")
        for _ in range(20):
            for part in (b"5\r\n", b"hello\r\n" * 1 + b"1\r\nx\r\n" * 100 + b"5\r\n", b"hello\r\n"):
                writer.write(part)
                await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
        assert len((await until_closed(reader)).partition(b"\r\n\r\n")[2]) == 20 * 110
        writer.close()


@pytest.mark.regression
async def test_a_large_body_is_not_counted_to_the_head_that_follows_it(app: AsgiApp) -> None:
    large = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n" + b"x" * 60_000
    async with AsgiServer(app, limits=Limits(max_header_bytes=1000)) as server:
        reader, writer = await connect(server)
        writer.write(large + POST)
        await asyncio.sleep(0.02)
        writer.write(b"connection: close\r\n\r\nhello")
        data = await until_closed(reader)
        assert data.count(b"HTTP/1.1 200 ") == data.count(b"HTTP/1.1 ") == 2
        writer.close()
        reader, writer = await connect(server)
        writer.write(large + POST)
        await asyncio.sleep(0.02)
        writer.write(b"y: " + b"z" * 2000)
        assert b"HTTP/1.1 431 " in await until_closed(reader)
        writer.close()


@pytest.mark.regression
@pytest.mark.parametrize(
    "head", [b"HTTP/1.1\r\n", b"HTTP/1.1\r\nhost: x\r\nhost: y\r\n", b"HTTP/1.0\r\nhost: x\r\nhost: y\r\n"]
)
async def test_a_request_without_a_host_or_with_two_is_answered_with_400(head: bytes, app: AsgiApp) -> None:
    async with AsgiServer(app) as server:
        assert (await exchange(server, b"POST / " + head + b"content-length: 0\r\n\r\n")).startswith(
            b"HTTP/1.1 400 "
        )
        assert (await exchange(server, b"POST / HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.regression
@pytest.mark.parametrize("requests", [1, 2])
@pytest.mark.parametrize(
    ("sent", "refusal"),
    [
        (b"\x00garbage\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 2000, b"431"),
        (CHUNKED + b"\r\nno length\r\n", b"400"),
        (b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n", b"400"),
    ],
    ids=["no request", "large headers", "invalid chunk", "no path"],
)
async def test_a_refusal_does_not_overtake_responses_that_are_due(
    sent: bytes, refusal: bytes, requests: int
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await go_on.wait()
        await echo(scope, receive, send)

    async with AsgiServer(slow, limits=Limits(max_header_bytes=1000)) as server:
        reader, writer = await connect(server)
        writer.write((POST + b"\r\nhello") * requests)
        await begun.wait()
        writer.write(sent)
        await asyncio.sleep(0.05)
        go_on.set()
        *answers, refused = (await until_closed(reader)).split(b"hello")
        assert len(answers) == requests
        assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)
        assert refused.startswith(b"HTTP/1.1 " + refusal)
        writer.close()


@pytest.mark.regression
async def test_an_invalid_body_does_not_put_a_refusal_into_the_response_that_has_begun() -> None:
    async def early(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start((b"content-length", b"10")))
        await send(body(b"early", more=True))
        while (await receive())["type"] != "http.disconnect":
            pass

    async with AsgiServer(early) as server:
        reader, writer = await connect(server)
        writer.write(CHUNKED + b"\r\n")
        await reader.readuntil(b"early")
        writer.write(b"no length\r\n")
        assert await until_closed(reader) == b""
        writer.close()


@pytest.mark.regression
@pytest.mark.parametrize("rest", [b"", b"POST / HT"], ids=["at the end", "in the next request"])
async def test_a_client_that_closes_its_half_gets_the_responses_to_its_requests(rest: bytes) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.02)
        await echo(scope, receive, send)
        assert (await receive())["type"] == "http.disconnect"

    async with AsgiServer(slow) as server:
        for requests in (1, 2):
            reader, writer = await connect(server)
            writer.write((POST + b"\r\nhello") * requests + rest)
            writer.write_eof()
            assert (await until_closed(reader)).count(b"hello") == requests
            writer.close()


@pytest.mark.regression
async def test_an_application_that_waits_for_the_end_of_its_client_is_told_of_it() -> None:
    told = asyncio.Event()

    async def watch(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        while (await receive())["type"] != "http.disconnect":
            pass
        told.set()

    async with AsgiServer(watch) as server:
        reader, writer = await connect(server)
        writer.write(POST + b"\r\nhello")
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await asyncio.wait_for(told.wait(), 5)


@pytest.mark.regression
async def test_what_follows_a_request_for_an_upgrade_is_answered(app: AsgiApp) -> None:
    upgrade = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n"
    async with AsgiServer(app) as server:
        empty = upgrade + b"content-length: 0\r\n\r\n"
        data = await exchange(server, empty * 2 + POST + b"connection: close\r\n\r\nworld")
        assert data.count(b"HTTP/1.1 200 ") == 3
        assert data.endswith(b"world")
        for body in (
            b"content-length: 5\r\n\r\nhello",
            b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        ):
            assert (await exchange(server, upgrade + body)).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x00\xa5garbage", b"GET\r\n\r\n", b"G\xff / HTTP/1.1\r\n\r\n"]
)
async def test_garbage_is_answered_with_400(sent: bytes, app: AsgiApp) -> None:
    async with AsgiServer(app) as server:
        assert (await exchange(server, sent)).startswith(b"HTTP/1.1 400 ")


@pytest.mark.regression
async def test_a_client_that_sends_many_requests_before_it_reads_answers_is_cut_off(app: AsgiApp) -> None:
    """API servers wait for each answer. Others would have thousands before it is another client's turn."""
    async with AsgiServer(app, limits=Limits(max_pipelined=4)) as server:
        some = await exchange(server, (POST + b"\r\nhello") * 3 + POST + b"connection: close\r\n\r\nhello")
        assert some.count(b"HTTP/1.1 200 ") == 4
        many = await exchange(server, (POST + b"\r\nhello") * 500)
        assert many.count(b"HTTP/1.1 200 ") <= 4
        assert many.count(b"HTTP/1.1 ") - many.count(b"HTTP/1.1 200 ") == many.count(b"HTTP/1.1 400 ") == 1


@pytest.mark.regression
async def test_requests_that_wait_for_an_answer_do_not_accumulate() -> None:
    begun, go_on = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        begun.release()
        await go_on.acquire()
        await answer(send, b"slow!")

    async with AsgiServer(slow, limits=Limits(max_pipelined=4)) as server:
        reader, writer = await connect(server)
        async with asyncio.timeout(5):
            for _ in range(3):  # each answer lets the server read on
                writer.write((POST + b"\r\nhello") * 3)
                await begun.acquire()
                go_on.release()
            for _ in range(9):
                go_on.release()
        assert b"HTTP/1.1 400 " in await until_closed(reader)
        writer.close()


async def test_beyond_the_connection_limit_the_longest_idle_connection_is_given_up(app: AsgiApp) -> None:
    async with AsgiServer(app, limits=Limits(max_connections=2)) as server:
        held = [await connect(server) for _ in range(2)]
        for reader, writer in reversed(held):
            writer.write(POST + b"\r\nhello")
            await reader.readuntil(b"hello")
        assert (await exchange(server, POST + b"connection: close\r\n\r\nhello")).startswith(b"HTTP/1.1 200 ")
        assert await until_closed(held[1][0]) == b""
        reader, writer = held[0]
        writer.write(POST + b"\r\nworld")
        assert (await reader.readuntil(b"world")).startswith(b"HTTP/1.1 200 ")
        for _, writer in held:
            writer.close()


@pytest.mark.regression
@pytest.mark.parametrize("sent", [b"", b"POST / HTT", POST + b"\r\nhel"])
async def test_clients_that_complete_no_request_keep_nobody_out(sent: bytes, app: AsgiApp) -> None:
    async with AsgiServer(app, limits=Limits(max_connections=3)) as server:
        slow = [await connect(server) for _ in range(30)]
        for _, writer in slow:
            writer.write(sent)
        for _ in range(5):
            assert (await exchange(server, POST + b"connection: close\r\n\r\nhello")).startswith(
                b"HTTP/1.1 200 "
            )
        for _, writer in slow:
            writer.close()


async def test_beyond_the_connection_limit_of_requests_in_progress_answers_503_at_once() -> None:
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        begun.release()
        await go_on.wait()
        await answer(send, b"slow!")

    request = POST + b"connection: close\r\n\r\nhello"
    async with AsgiServer(slow, limits=Limits(max_connections=2)) as server:
        held = [asyncio.create_task(exchange(server, request)) for _ in range(2)]
        for _ in held:
            await begun.acquire()
        assert (await exchange(server, b"")).startswith(b"HTTP/1.1 503 ")
        go_on.set()
        assert all(data.startswith(b"HTTP/1.1 200 ") for data in await asyncio.gather(*held))
        assert (await exchange(server, request)).startswith(b"HTTP/1.1 200 ")


async def test_what_arrives_in_one_piece_is_answered_directly_and_all_answers_keep_their_order() -> None:
    app = DirectEcho()
    other = b"POST /other HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nother"
    later = b"POST /later HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
    async with AsgiServer(app) as server:
        reader, writer = await connect(server)

        async def bodies(*expected: bytes) -> None:
            for body in expected:
                assert (await reader.readuntil(body)).startswith(b"HTTP/1.1 200 OK\r\n")

        writer.write(POST + b"\r\nhello")
        await bodies(b"hello")
        writer.write(POST + b"\r\nhel")
        await asyncio.sleep(0.01)
        writer.write(b"lo" + later)
        await bodies(b"hello", b"later")
        assert app.direct_answers == 1
        # All at once: requests after one that is not answered directly wait for it, and are answered directly then.
        writer.write(POST + b"\r\nhello" + later + other + POST + b"\r\nworld" + POST + b"\r\nhello")
        await bodies(b"hello", b"later", b"other", b"world", b"hello")
        assert app.direct_answers == 4
        writer.write(POST + b"transfer-encoding: chunked\r\n\r\n")
        await reader.readuntil(b"400")
    assert (await until_closed(reader)) is not None
    writer.close()


async def test_a_client_that_sends_many_requests_at_once_keeps_no_others_waiting() -> None:
    order: list[str] = []

    class Noted(DirectEcho):
        def answer(self, body: bytes, connection: Scope) -> bytes:
            order.append("answer")
            asyncio.get_running_loop().call_soon(order.append, "others")
            return super().answer(body, connection)

    async with AsgiServer(Noted()) as server:
        _, writer = await connect(server)
        writer.write(3 * (POST + b"\r\nhello"))
        async with asyncio.timeout(5):
            while len(order) < 6:  # noqa: ASYNC110 - of the loop's own turns
                await asyncio.sleep(0)
        writer.close()
    assert order == 3 * ["answer", "others"]


class Parts:
    """A source of what is put into `ready`; None is its end."""

    def __init__(self) -> None:
        self.ready: deque[bytes | None] = deque()
        self.changed: Callable[[], None] | None = None
        self.closed = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("it arrived in one piece")

    def direct(self, method: bytes, url: bytes, headers: Fields) -> DirectAnswer:
        return lambda body, connection: Stream(self, 201, [(b"x", b"y")])

    def put(self, *parts: bytes | None) -> None:
        self.ready += parts
        if self.changed:
            self.changed()

    @property
    def more(self) -> bool:
        return bool(self.ready)

    def begin(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    def take(self) -> bytes | None:
        return self.ready.popleft() if self.ready else b""

    def close(self) -> None:
        self.closed.set()


async def test_a_stream_is_its_head_the_parts_as_they_come_and_its_end_and_then_the_next_request() -> None:
    async with AsgiServer(app := Parts()) as server, asyncio.timeout(5):
        reader, writer = await connect(server)
        writer.write(POST + b"\r\nhello")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head == b"HTTP/1.1 201 Created\r\nx: y\r\ntransfer-encoding: chunked\r\n\r\n"
        app.put(b"one", b"three")
        assert await reader.readexactly(18) == b"3\r\none\r\n5\r\nthree\r\n"
        writer.write(POST + b"\r\nhello")
        app.put(b"end", None)
        assert await reader.readexactly(13) == b"3\r\nend\r\n0\r\n\r\n"
        await app.closed.wait()
        assert await reader.readuntil(b"\r\n\r\n") == head
        writer.close()


@pytest.mark.parametrize("how", ["close", "write_eof"])
@pytest.mark.parametrize("requests", [1, pytest.param(2, marks=pytest.mark.regression)])
async def test_a_stream_is_closed_when_its_client_has_gone(how: str, requests: int) -> None:
    async with AsgiServer(app := Parts()) as server, asyncio.timeout(5):
        reader, writer = await connect(server)
        writer.write((POST + b"\r\nhello") * requests)
        await reader.readuntil(b"\r\n\r\n")
        getattr(writer, how)()
        await app.closed.wait()
        app.put(b"late")
        writer.close()


async def test_a_stream_is_not_read_while_its_client_does_not() -> None:
    async with AsgiServer(app := Parts()) as server, asyncio.timeout(5):
        reader, writer = await connect(server)
        writer.write(POST + b"\r\nhello")
        await reader.readuntil(b"\r\n\r\n")
        app.put(*[b"x" * 500_000] * 100, None)
        left = -1
        while left != len(app.ready):
            left = len(app.ready)
            await asyncio.sleep(0.05)
        assert left > 0
        received = b""
        while not received.endswith(b"\r\n0\r\n\r\n"):
            received = received[-7:] + await reader.read(1_000_000)
        assert not app.ready
        writer.close()


async def test_a_head_that_was_seen_before_is_answered_as_if_it_were_new() -> None:
    app = DirectEcho()
    chunked = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    later = b"POST /later HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n"
    async with AsgiServer(app) as server:
        reader, writer = await connect(server)

        async def said(request: bytes) -> bytes:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            return await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))

        for body in (b"first", b"other", b"third"):
            assert await said(POST + b"\r\n" + body) == body
            assert await said(chunked + b"5\r\n" + body + b"\r\n0\r\n\r\n") == body
            assert await said(later + body) == b"later"
        assert app.direct_answers == 6
        # The end of a head is not a head, even if it arrived alone before.
        writer.write(b"POST / HTTP/1.1\r\n")
        await asyncio.sleep(0.02)
        assert await said(b"host: x\r\ncontent-length: 5\r\n\r\nsplit") == b"split"
        writer.write(b"host: x\r\ncontent-length: 5\r\n\r\nsplit")
        assert (await until_closed(reader)).startswith(b"HTTP/1.1 400 ")
        writer.close()


@pytest.mark.parametrize("end", [b"HTTP/1.0\r\n", b"HTTP/1.1\r\nconnection: close\r\n"])
async def test_a_connection_that_is_not_to_be_kept_is_closed_after_the_answer(
    end: bytes, app: AsgiApp
) -> None:
    async with AsgiServer(app) as server:
        data = await exchange(server, b"POST / " + end + b"host: x\r\ncontent-length: 5\r\n\r\nhello")
        assert data.endswith(b"\r\n\r\nhello")


async def test_a_busy_connection_is_not_idle(app: AsgiApp) -> None:
    async with AsgiServer(app, limits=Limits(keep_alive=0.3)) as server:
        reader, writer = await connect(server)
        for _ in range(8):
            writer.write(POST + b"\r\nhello")
            await reader.readuntil(b"hello")
            await asyncio.sleep(0.05)
        assert await until_closed(reader) == b""
        writer.close()


async def test_stopping_lets_a_request_in_flight_finish_and_closes_idle_connections() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await go_on.wait()
        await answer(send, b"done")

    server = AsgiServer(slow)
    async with server:
        idle, _ = await connect(server)
        busy, writer = await connect(server)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await begun.wait()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
    assert (await until_closed(busy)).endswith(b"done")
    assert await until_closed(idle) == b""


async def test_stopping_ends_a_request_that_outlasts_the_grace() -> None:
    begun = asyncio.Event()
    ended: list[Any] = []

    async def stuck(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async with AsgiServer(stuck, limits=Limits(stop_grace=0.05)) as server:
        reader, writer = await connect(server)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await begun.wait()
    await until_closed(reader)
    assert ended


class Broken:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("secret")


class DirectlyBroken(Broken):
    def direct(self, method: bytes, url: bytes, headers: Fields) -> DirectAnswer:
        return self.answer

    def answer(self, body: bytes, connection: Scope) -> bytes:
        raise RuntimeError("secret")


@pytest.mark.parametrize("broken", [Broken(), pytest.param(DirectlyBroken(), marks=pytest.mark.regression)])
async def test_an_exception_of_the_application_is_a_500_without_traceback(
    broken: AsgiApp, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsgiServer(broken) as server:
        data = await exchange(server, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert data.startswith(b"HTTP/1.1 500 ")
    assert b"secret" not in data
    assert "An HTTP handler crashed" in caplog.text


def responds(*messages: Message) -> AsgiApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    return app


def start(*headers: tuple[bytes, bytes], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


FIVE = (b"content-length", b"5")


@pytest.mark.parametrize(
    ("request_line", "messages", "rest"),
    [
        (b"GET / HTTP/1.1", [start(FIVE), body(b"hello")], b"content-length: 5\r\n\r\nhello"),
        (b"HEAD / HTTP/1.1", [start(FIVE), body(b"hello")], b"content-length: 5\r\n\r\n"),
        (b"GET / HTTP/1.1", [start(status=204), body(b"")], b"204 No Content\r\n\r\n"),
        (
            b"GET / HTTP/1.1",
            [start(), body(b"he", more=True), body(b"", more=True), body(b"llo")],
            b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        ),
        (b"GET / HTTP/1.0", [start(FIVE), body(b"hello")], b"connection: close\r\n\r\nhello"),
        (
            b"GET / HTTP/1.0",
            [start(), body(b"he", more=True), body(b"llo")],
            b"200 OK\r\nconnection: close\r\n\r\nhello",
        ),
    ],
    ids=["length", "HEAD", "no content", "chunked", "HTTP/1.0", "HTTP/1.0 without length"],
)
async def test_the_end_of_a_response_is_known_to_its_client(
    request_line: bytes, messages: list[Message], rest: bytes
) -> None:
    async with AsgiServer(responds(*messages), limits=Limits(keep_alive=0.05)) as server:
        assert (await exchange(server, request_line + b"\r\nhost: x\r\n\r\n")).endswith(rest)


@pytest.mark.parametrize(
    ("messages", "answer"),
    [
        ([], b"HTTP/1.1 500 "),
        ([start((b"location", b"/\r\nset-cookie: x"))], b"HTTP/1.1 500 "),
        ([body(b"")], b"HTTP/1.1 500 "),
        ([start(FIVE)], b"HTTP/1.1 200 "),
        ([start(FIVE), body(b"hell")], b"HTTP/1.1 200 "),
        ([start(FIVE), body(b"hello!")], b"HTTP/1.1 200 "),
    ],
    ids=["nothing", "a line break in a header", "no start", "no body", "too short", "too long"],
)
async def test_a_response_that_cannot_be_sent_ends_the_connection_and_is_logged(
    messages: list[Message], answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsgiServer(responds(*messages)) as server:
        data = await exchange(server, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert data.startswith(answer)
    assert b"set-cookie" not in data
    assert b"hell" not in data
    assert "An HTTP handler crashed" in caplog.text


async def test_a_client_that_waits_to_be_asked_for_its_body_is_asked_when_the_application_reads() -> None:
    async with AsgiServer(echo) as server:
        reader, writer = await connect(server)
        writer.write(POST + b"expect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hello")
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_a_client_of_http_1_0_which_knows_no_interim_response_gets_only_its_answer() -> None:
    async with AsgiServer(echo) as server:
        data = await exchange(
            server, b"POST / HTTP/1.0\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\nhello"
        )
    assert data.startswith(b"HTTP/1.1 200 ")
    assert data.endswith(b"\r\n\r\nhello")


async def test_a_request_is_told_that_its_connection_is_lost_although_another_one_waits_behind_it() -> None:
    told = asyncio.Event()

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        told.set()

    async with AsgiServer(waits) as server:
        _, writer = await connect(server)
        writer.write((POST + b"\r\nhello") * 2)
        assert server._connections is not None
        while not server._connections.tasks:  # noqa: ASYNC110 - accepted by the loop itself
            await asyncio.sleep(0.001)
        writer.transport.abort()
        await asyncio.wait_for(told.wait(), 5)


@pytest.mark.regression
async def test_an_application_that_waits_beside_its_response_is_told_of_the_end_although_the_next_request_begins() -> (
    None
):
    told = asyncio.Semaphore(0)

    async def beside(scope: Scope, receive: Receive, send: Send) -> None:
        async def wait() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            told.release()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(wait())
            await asyncio.sleep(0)
            await answer(send, b"hello")

    async with AsgiServer(beside) as server, asyncio.timeout(5):
        reader, writer = await connect(server)
        writer.write((POST + b"\r\nhello") * 2)
        for _ in range(2):
            await reader.readuntil(b"hello")
            await told.acquire()
        writer.close()


@pytest.mark.parametrize(
    ("text", "address"),
    [(":8080", ("", 8080)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9443", ("::1", 9443))],
)
def test_bind_addresses_are_read_as_go_reads_them(text: str, address: tuple[str, int]) -> None:
    assert parse_bind_address(text) == address


@pytest.mark.parametrize("text", ["", "8080", "host", "::1:80", ":x", ":70000", ":-1", ":"])
def test_a_malformed_bind_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="bind address"):
        parse_bind_address(text)
