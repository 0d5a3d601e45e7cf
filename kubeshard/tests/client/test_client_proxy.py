"""Servers behind an HTTP proxy, and consumers slower than the server."""

import asyncio
import base64
import ssl

import pytest
from aiohttp import web

from kubeshard.runtime.http import HttpTransport
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, TransportError

GET = HttpRequest("GET", "/path", {}, None, 5.0)


class Proxy:
    """Tunnels to one port, whatever the client requests; `heads` are the requests that it received."""

    def __init__(self):
        self.heads = []
        self.target = 0
        self.answer = b"HTTP/1.1 200 Connection established\r\n\r\n"
        self._tasks = set()

    async def serve(self, reader, writer):
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self.answer)
        if b" 200 " not in self.answer:
            writer.close()
            return
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.target)
        for source, sink in ((reader, inner_writer), (inner_reader, writer)):
            task = asyncio.create_task(self._copy(source, sink))
            self._tasks.add(task)

    async def _copy(self, source, sink):
        while data := await source.read(65536):
            sink.write(data)
        sink.close()

    async def stop(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def proxy():
    made = Proxy()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://user:pa%20ss@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    await made.stop()
    server.close()
    await server.wait_closed()


@pytest.fixture
async def secure(tmp_path):
    """A TLS server that responds with the requested host name, and a context that trusts it."""
    selfsigned = pytest.importorskip("kubeshard.webhook.selfsigned")
    import time

    identity = selfsigned.renewed(None, ["kube.example.com"], time.time())
    (tmp_path / "crt").write_bytes(identity.serving.certificate)
    (tmp_path / "key").write_bytes(identity.serving.private_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")

    async def handle(request):
        return web.Response(text=request.host)

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    trust = Tls(ca=identity.bundle.decode())
    yield runner.addresses[0][1], trust
    await runner.cleanup()


async def test_a_tls_server_is_reached_through_a_tunnel_that_carries_several_requests(proxy, secure):
    proxy.target, trust = secure
    transport = HttpTransport("https://kube.example.com:6443", trust, proxy=proxy.url)
    for _ in range(2):
        assert (await transport.request(GET)).body == b"kube.example.com:6443"
    await transport.close()
    credentials = base64.b64encode(b"user:pa ss").decode()
    (head,) = proxy.heads
    assert head.startswith(b"CONNECT kube.example.com:6443 HTTP/1.1\r\nHost: kube.example.com:6443\r\n")
    assert f"Proxy-Authorization: Basic {credentials}\r\n".encode() in head


async def test_a_socks_proxy_is_asked_for_the_name_as_by_clients_in_go(secure):
    port, trust = secure
    asked = []

    async def serve(reader, writer):
        count = (await reader.readexactly(2))[1]
        await reader.readexactly(count)
        writer.write(b"\5\0")  # no authentication
        *_, kind, length = await reader.readexactly(5)
        asked.append((kind, await reader.readexactly(length)))
        await reader.readexactly(2)
        writer.write(b"\5\0\0\1\0\0\0\0\0\0")
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(made._copy(reader, inner_writer), made._copy(inner_reader, writer))

    made = Proxy()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        proxy = f"socks5://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        transport = HttpTransport("https://kube.example.com:6443", trust, proxy=proxy)
        assert (await transport.request(GET)).body == b"kube.example.com:6443"
        await transport.close()
    assert asked == [(3, b"kube.example.com")]


async def test_a_proxy_that_refuses_is_an_error_with_nothing_sent(proxy, secure):
    proxy.answer = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    transport = HttpTransport("https://kube.example.com:6443", secure[1], proxy=proxy.url)
    with pytest.raises(TransportError, match="answered 407") as caught:
        await transport.request(GET)
    assert not caught.value.sent
    await transport.close()


async def test_a_slow_consumer_holds_the_server_back_and_loses_nothing(server):
    piece, count = b"x" * 65536, 200
    sent = 0

    async def flood(request):
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(count):
            await response.write(piece)
            sent += 1
        return response

    server.answer(flood)
    transport = HttpTransport(server.url)
    received = 0
    async with transport.stream(GET) as stream:
        chunks = stream.chunks()
        received += len(await anext(chunks))
        before = -1
        while sent != before:  # until the server is blocked
            before = sent
            await asyncio.sleep(0.2)
        assert sent < count
        async for chunk in chunks:
            received += len(chunk)
    assert received == count * len(piece)
    await transport.request(GET)
    assert server.connections[0] is server.connections[1]
    await transport.close()
