"""One client cannot harm the others: slow readers, slow writers, cut connections, oversized requests."""

import asyncio
import itertools
import json
import ssl
from contextlib import asynccontextmanager

import pytest

from kubeshard.core.kinds import GroupResource
from kubeshard.runtime.asgi import Limits
from kubeshard_apiserver import ApiServer
from kubeshard_apiserver.model import Target
from kubeshard_apiserver.serving import EmbeddedServer
from kubeshard_apiserver.serving.embedded import LIMITS

PATH = "/api/v1/namespaces/default/configmaps"
MAPS = GroupResource("", "configmaps")
WITHIN = 20


@pytest.fixture
async def served():
    async with EmbeddedServer() as running:
        yield running


class Wire:
    """A raw connection, without the courtesies of a client library."""

    def __init__(self, reader, writer, token):
        self.reader = reader
        self.writer = writer
        self.token = token

    def send(self, method, path, *headers, body=b""):
        lines = [f"{method} {path} HTTP/1.1", "host: x", f"authorization: Bearer {self.token}", *headers]
        if body:
            lines.append(f"content-length: {len(body)}")
        self.writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    async def answer(self):
        """Returns status, headers and body of a response with a Content-Length."""
        async with asyncio.timeout(WITHIN):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    async def chunk(self):
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        data = await self.reader.readexactly(size)
        await self.reader.readexactly(2)
        return data

    async def events(self, count):
        """Returns the names in the next events of a watch."""
        names, rest = [], b""
        async with asyncio.timeout(WITHIN):
            while len(names) < count:
                *lines, rest = (rest + await self.chunk()).split(b"\n")
                names += [json.loads(line)["object"]["metadata"]["name"] for line in lines]
        return names

    async def ended(self):
        async with asyncio.timeout(WITHIN):
            try:
                return await self.reader.read()
            except (ConnectionError, ssl.SSLError):
                return b""


@asynccontextmanager
async def wire(served, *, buffer=2**16):
    context = ssl.create_default_context(cadata=served.credentials.ca)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=context, limit=buffer)
    try:
        yield Wire(reader, writer, served.token)
    finally:
        writer.transport.abort()


async def watching(client, path=PATH):
    client.send("GET", f"{path}?watch=1&resourceVersion=0")
    head = await client.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")


def create(served, name, size=10):
    target = Target(served.server.registry.find("", "v1", "configmaps"), "default")
    served.server.create(target, {"metadata": {"name": name}, "data": {"x": "x" * size}})


async def until(condition):
    async with asyncio.timeout(WITHIN):
        while not condition():  # noqa: ASYNC110 - what changes is the server
            await asyncio.sleep(0.01)


async def test_a_watcher_that_never_reads_stops_nobody(served):
    async with wire(served) as deaf, wire(served) as other:
        await watching(deaf)
        await watching(other)
        deaf.reader._transport.pause_reading()
        names = []
        for number in range(2000):
            create(served, f"a-{number}", size=5000)
            if number % 100 == 99:
                names += await other.events(100)
        assert names == [f"a-{number}" for number in range(2000)]
        other.send("GET", "/readyz")


async def test_what_waits_for_a_deaf_watcher_is_bounded(served):
    """The server's own buffer stays far below the 10 MB of events that follow once the system's buffers are full."""
    async with wire(served) as deaf:
        await watching(deaf)
        (connection,) = served._http._connections.open
        deaf.reader._transport.pause_reading()
        numbers = itertools.count()
        while connection.writable.is_set():
            create(served, f"a-{next(numbers)}", size=50_000)
            await asyncio.sleep(0)
        for _ in range(200):
            create(served, f"a-{next(numbers)}", size=50_000)
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)  # time in which it could do what it must not do
        assert connection.transport.get_write_buffer_size() < 4_000_000


async def test_a_watcher_that_comes_too_late_is_told_to_list_again():
    async with EmbeddedServer(ApiServer(window=10)) as served, wire(served) as slow:
        await watching(slow)
        connection = next(iter(served._http._connections.open))
        slow.reader._transport.pause_reading()
        number = 0
        while connection.writable.is_set():
            create(served, f"a-{number}", size=100_000)
            number += 1
            await asyncio.sleep(0)
        for _ in range(50):
            create(served, f"b-{number}", size=10)
            number += 1
        slow.reader._transport.resume_reading()
        data = b""
        async with asyncio.timeout(WITHIN):
            while b'"ERROR"' not in data:
                data = data[-1000:] + await slow.reader.read(2**16)
        assert b'"code":410' in data


async def test_a_watcher_that_is_cut_leaves_nothing_behind(served):
    tasks = asyncio.all_tasks()
    for _ in range(20):
        async with wire(served) as client:
            await watching(client)
    async with asyncio.timeout(WITHIN):
        while served._http._connections.open:  # noqa: ASYNC110 - of the loop's own turns
            await asyncio.sleep(0)
    assert served.server.store.watchers(MAPS) == 0
    assert asyncio.all_tasks() == tasks


async def test_a_body_that_does_not_come_is_not_waited_for():
    limits = Limits(body_timeout=0.2, header_timeout=5, stop_grace=1)
    async with EmbeddedServer(limits=limits) as served, wire(served) as slow, wire(served) as other:
        slow.send("POST", PATH, "content-length: 1000")
        slow.writer.write(b'{"metadata"')
        assert await slow.ended() == b""
        other.send("GET", "/readyz")
        assert (await other.answer())[2] == b"ok"


async def test_headers_that_do_not_come_are_not_waited_for():
    limits = Limits(header_timeout=0.5, stop_grace=1)
    async with EmbeddedServer(limits=limits) as served, wire(served) as slow:
        slow.writer.write(b"GET /readyz HTTP/1.1\r\nhost:")
        assert await slow.ended() == b""


async def test_a_watch_has_no_time_limit_of_the_connection():
    limits = Limits(header_timeout=0.3, body_timeout=0.3, keep_alive=0.3, stop_grace=1)
    async with EmbeddedServer(limits=limits) as served, wire(served) as client:
        await watching(client)
        await asyncio.sleep(0.6)  # longer than every limit
        create(served, "a")
        assert await client.events(1) == ["a"]


async def test_headers_may_be_large_and_not_endless(served):
    async with wire(served) as client:
        client.send("GET", f"{PATH}?labelSelector=" + "a%20in%20(" + "a," * 20_000 + "a)")
        assert (await client.answer())[0] == 200
    async with wire(served) as client:
        client.send(
            "GET", "/readyz", *(f"x-{n}: {'x' * 1000}" for n in range(2 * LIMITS.max_header_bytes // 1000))
        )
        assert (await client.answer())[0] == 431


async def test_a_body_that_is_too_large_is_refused_with_a_status(served):
    async with wire(served) as client:
        client.send(
            "POST", PATH, body=b'{"metadata": {"name": "a"}, "data": {"x": "' + b"x" * 4_000_000 + b'"}}'
        )
        status, _, body = await client.answer()
        assert (status, json.loads(body)["reason"]) == (413, "RequestEntityTooLarge")
        client.send("GET", "/readyz")
        assert (await client.answer())[2] == b"ok"


@pytest.mark.parametrize("nested", [b"[" * 100_000, b'{"a":' * 100_000])
@pytest.mark.parametrize("content_type", ["application/json", "application/yaml"])
async def test_a_body_that_is_nested_too_deeply_is_refused_with_a_status(served, nested, content_type):
    async with wire(served) as client:
        client.send("POST", PATH, f"content-type: {content_type}", body=nested)
        status, _, body = await client.answer()
        assert (status, json.loads(body)["kind"]) == (400, "Status")


async def test_aliases_that_unfold_without_end_are_refused_with_a_status(served):
    lines = ["a: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    async with wire(served) as client:
        for body in ("\n".join(lines).encode(), b"a: &a [*a]"):
            client.send("POST", PATH, "content-type: application/yaml", body=body)
            status, _, answer = await client.answer()
            assert (status, json.loads(answer)["kind"]) == (400, "Status")


async def test_requests_may_be_sent_without_waiting_for_answers(served):
    async with wire(served) as client:
        for number in range(20):
            body = json.dumps({"metadata": {"name": f"a-{number}"}}).encode()
            client.send("POST", PATH, body=body)
        for number in range(20):
            status, _, body = await client.answer()
            assert (status, json.loads(body)["metadata"]["name"]) == (201, f"a-{number}")


async def test_a_body_in_pieces_is_one_body(served):
    async with wire(served) as client:
        client.send("POST", PATH, "transfer-encoding: chunked")
        for piece in (b'{"metadata":', b' {"name": "a"', b"}}"):
            client.writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await asyncio.sleep(0.01)
        client.writer.write(b"0\r\n\r\n")
        assert (await client.answer())[0] == 201


async def test_a_client_that_waits_for_leave_to_send_is_given_it(served):
    async with wire(served) as client:
        client.send("POST", PATH, "expect: 100-continue", "content-length: 27")
        async with asyncio.timeout(WITHIN):
            assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.writer.write(b'{"metadata": {"name": "a"}}')
        assert (await client.answer())[0] == 201


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 10 + b"nonsense\r\n\r\n"],
)
async def test_garbage_ends_its_connection_and_nothing_else(served, garbage):
    async with wire(served) as client, wire(served) as other:
        client.writer.write(garbage)
        assert not (await client.ended()).startswith(b"HTTP/1.1 5")
        other.send("GET", "/readyz")
        assert (await other.answer())[2] == b"ok"


async def test_what_users_write_cannot_begin_a_header(served):
    async with wire(served) as client:
        body = json.dumps({"metadata": {"name": "a"}, "x\r\nset-cookie: y\u20ac": 1}).encode()
        client.send("POST", PATH, body=body)
        status, headers, _ = await client.answer()
        assert status == 201
        assert "set-cookie" not in headers
