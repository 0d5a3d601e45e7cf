"""The real `Transport`: HTTP/1.1 over the event loop's sockets and TLS.

Guaranteed:
- concurrent requests never wait for each other: each has a connection of its own, idle ones are reused;
- a connection whose request timed out, was cancelled or broke is closed and never reused;
- a dead peer is noticed: TCP keepalive 10/5/3 s finds one on a silent stream, TCP_USER_TIMEOUT (4 s) one that
  no longer acknowledges,
  and the kernel does not go on resending a write of a process that died (reliability F3, T3, T30);
- a request is sent once: whether to repeat it is for those to say who know what it does;
- a stream whose consumer takes its time holds the server back instead of filling memory;
- redirects, cookies, `.netrc` and the environment are ignored: what is sent is what was asked for.

Not guaranteed: that a write whose answer was lost was not carried out (`TransportError.sent`).

Answers are not compressed: client and server are near each other, and gzip costs both more than the bytes.

Why not a general HTTP client: it costs more than twice the CPU per request (`docs/performance.md`), and
of what it offers nothing is wanted here but one request per connection at a time.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import unquote, urlsplit
from weakref import WeakSet

from kubeshard.runtime.http1 import Answer, Malformed, encode_request
from kubeshard.runtime.http_connection import Connection
from kubeshard.runtime.transport import HttpRequest, HttpResponse, TransportError, TransportTimeout

IDLE_LIFETIME = 30.0
"""Seconds an unused connection is kept: less than the idle timeout of API servers (90 s) and usual load
balancers, so that a request rarely meets a connection that the other end is just closing.
"""
STAGGER = 2.0
"""Seconds after which an address that does not answer gives way to the host's next one."""

_USER_TIMEOUT_MS = 4000
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_PORTS = {"http": 80, "https": 443}


class HttpTransport:
    """Connections to one server.

    `base_url` is scheme, host, port and an optional path before every target. `proxy` is the URL of an HTTP
    proxy. May be created outside of an event loop; belongs to the loop of its first request.
    """

    def __init__(
        self,
        base_url: str,
        ssl_context: ssl.SSLContext | None = None,
        *,
        server_hostname: str | None = None,
        proxy: str | None = None,
    ) -> None:
        url = urlsplit(base_url)
        self._server = _Peer(url.hostname or "", url.port or _PORTS[url.scheme])
        self._host = url.netloc.rpartition("@")[2]
        self._prefix = url.path.rstrip("/")
        self._ssl = (ssl_context or ssl.create_default_context()) if url.scheme == "https" else None
        self._server_hostname = server_hostname or self._server.host
        self._proxy = _Proxy(proxy) if proxy else None
        if self._proxy and not self._ssl:
            self._prefix = f"http://{self._host}{self._prefix}"
        self._idle: list[tuple[float, Connection]] = []
        """With the time since when, the latest last."""
        self._connections: set[Connection] = set()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._generation = 0
        self._closed = False

    async def request(self, request: HttpRequest) -> HttpResponse:
        """One exchange. Raises TransportTimeout after `request.timeout`, TransportError when it broke."""
        with _translated(request):
            async with asyncio.timeout(request.timeout):
                connection = await self._connection()
                try:
                    answer = connection.send(self._encode(request), request.method)
                    await connection.until_ended()
                except BaseException:
                    connection.abort()
                    raise
                self._release(connection)
                body = answer.pieces[0] if len(answer.pieces) == 1 else b"".join(answer.pieces)
                return HttpResponse(answer.status, answer.headers, body)

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[_Stream]:
        """An answer piece by piece. The connection is reused only if the body was read to its end."""
        connection = None
        try:
            with _translated(request):
                async with asyncio.timeout(request.timeout):
                    connection = await self._connection()
                    answer = connection.send(self._encode(request), request.method)
                    await connection.until_begun()
            yield _Stream(request, connection, answer)
        finally:
            if connection is not None:
                self._release(connection)

    def renew(self) -> None:
        """Later requests use new connections (the client certificate changed); exchanges under way are
        finished.
        """
        self._generation += 1
        self._drop_idle()

    def abort(self) -> None:
        """Resets every connection so that the kernel discards what it has not delivered yet: no write of the
        past arrives from now on (reliability F3). May be called from any thread; where the loop is blocked
        the reset happens when the process ends.
        """
        for sock in list(self._sockets):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._close)

    async def close(self) -> None:
        """Closes all connections; exchanges under way, and later ones, fail."""
        self._close()
        await asyncio.sleep(0)  # the loop closes sockets in its next round

    def _close(self) -> None:
        self._closed = True
        self._idle.clear()
        for connection in list(self._connections):
            connection.abort()

    def _encode(self, request: HttpRequest) -> bytes:
        headers = {"Accept-Encoding": "identity", **request.headers}
        if self._proxy and not self._ssl:
            headers |= self._proxy.headers
        return encode_request(
            request.method, self._prefix + request.target, self._host, headers, request.body
        )

    # Connections

    async def _connection(self) -> Connection:
        """An idle connection or a new one. Raises TransportError with nothing sent."""
        if self._closed:
            raise TransportError("the client is closed", sent=False)
        loop = self._loop = self._loop or asyncio.get_running_loop()
        if self._idle:
            since, connection = self._idle.pop()
            if loop.time() - since < IDLE_LIFETIME:
                return connection
            connection.abort()
            self._drop_idle()  # they are older still
        try:
            return await self._connect(loop)
        except ssl.SSLCertVerificationError as error:
            problem = f"certificate verify failed: {error.verify_message}"
            raise TransportError(f"cannot trust {self._host}: {problem}", sent=False) from error
        except (OSError, Malformed) as error:
            raise TransportError(f"cannot connect to {self._host}: {error}", sent=False) from error

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> Connection:
        connection = Connection(self._connections.add, self._forget, self._generation)
        peer = self._proxy or self._server
        sock = await self._reach(loop, peer)
        try:
            if self._proxy is None:
                tls, name = self._ssl, self._server_hostname
            else:
                tls, name = self._proxy.ssl, self._proxy.host
            await loop.create_connection(
                lambda: connection, sock=sock, ssl=tls, server_hostname=name if tls else None
            )
            if self._proxy is not None and self._ssl is not None:
                await self._tunnel(loop, connection, self._proxy, self._ssl)
        except BaseException:
            connection.abort()
            if connection.transport is None:
                sock.close()
            raise
        return connection

    async def _reach(self, loop: asyncio.AbstractEventLoop, peer: _Peer) -> socket.socket:
        """A connected socket. Raises OSError of the host's last address."""
        addresses = await loop.getaddrinfo(peer.host, peer.port, type=socket.SOCK_STREAM)
        for number, (family, kind, protocol, _, address) in enumerate(addresses, 1):
            last = number == len(addresses)
            sock = self._socket(family, kind, protocol)
            try:
                async with asyncio.timeout(None if last else STAGGER):
                    await loop.sock_connect(sock, address)
            except OSError:
                sock.close()
                if last:
                    raise
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        raise OSError(f"{peer.host} has no address")

    async def _tunnel(
        self, loop: asyncio.AbstractEventLoop, connection: Connection, proxy: _Proxy, tls: ssl.SSLContext
    ) -> None:
        authority = f"{_bracketed(self._server.host)}:{self._server.port}"
        request = encode_request("CONNECT", authority, authority, proxy.headers, None)
        answer = connection.send(request, "CONNECT")
        await connection.until_ended()
        if not 200 <= answer.status < 300:
            raise OSError(f"the proxy {proxy.host} answered {answer.status} to CONNECT")
        assert connection.transport is not None
        encrypted = await loop.start_tls(
            connection.transport, connection, tls, server_hostname=self._server_hostname
        )
        if encrypted is None:
            raise OSError("the connection was closed")
        connection.transport = encrypted
        connection.finish()

    def _socket(self, family: int, kind: int, protocol: int) -> socket.socket:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_NODELAY", 1),
            ("TCP_KEEPIDLE", 10),
            ("TCP_KEEPINTVL", 5),
            ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", _USER_TIMEOUT_MS),
        ):
            if hasattr(socket, option):  # macOS lacks some
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self._sockets.add(sock)
        return sock

    def _release(self, connection: Connection) -> None:
        """After an exchange: keep the connection if it is good for another one."""
        if connection.finish() and connection.generation == self._generation and not self._closed:
            assert self._loop is not None
            self._idle.append((self._loop.time(), connection))
        else:
            connection.abort()

    def _drop_idle(self) -> None:
        for _, connection in self._idle:
            connection.abort()
        self._idle.clear()

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._idle = [entry for entry in self._idle if entry[1] is not connection]


class _Peer:
    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port


class _Proxy(_Peer):
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        super().__init__(parts.hostname or "", parts.port or _PORTS[parts.scheme])
        self.ssl = ssl.create_default_context() if parts.scheme == "https" else None
        self.headers: dict[str, str] = {}
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self.headers["Proxy-Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()


class _Stream:
    def __init__(self, request: HttpRequest, connection: Connection, answer: Answer) -> None:
        self._request = request
        self._connection = connection
        self.status = answer.status
        self.headers: Mapping[str, str] = answer.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        with _translated(self._request):
            while True:
                async with asyncio.timeout(self._request.idle_timeout):
                    pieces = await self._connection.pieces()
                if not pieces:
                    return
                yield pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read(self) -> bytes:
        with _translated(self._request):
            async with asyncio.timeout(self._request.timeout):
                await self._connection.until_ended()
                return b"".join(await self._connection.pieces())


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@contextlib.contextmanager
def _translated(request: HttpRequest) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise TransportTimeout(f"{_where(request)}: no answer in time") from error
    except TransportError as error:
        raise TransportError(f"{_where(request)}: {error}", sent=error.sent) from error
    except (OSError, Malformed) as error:
        raise TransportError(f"{_where(request)}: {str(error) or type(error).__name__}") from error


def _where(request: HttpRequest) -> str:
    return f"{request.method} {request.target.partition('?')[0]}"
