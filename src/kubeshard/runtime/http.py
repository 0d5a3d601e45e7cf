"""The real `Transport`: HTTP/1.1 over aiohttp.

Guaranteed:
- concurrent requests never wait for each other: each has a connection of its own, idle ones are reused;
- a connection whose request timed out, was cancelled or broke is closed and never reused;
- a dead peer is noticed: TCP keepalive 10/5/3 s finds one on a silent stream, TCP_USER_TIMEOUT (4 s) one that
  no longer acknowledges,
  and the kernel does not go on resending a write of a process that died (reliability F3, T3, T30);
- a request is sent once: whether to repeat it is for those to say who know what it does;
- redirects, cookies, `.netrc` and the environment are ignored: what is sent is what was asked for.

Not guaranteed: that a write whose answer was lost was not carried out (`TransportError.sent`).

Answers are not compressed: client and server are near each other, and gzip costs both more than the bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakSet

import aiohttp
from yarl import URL

from kubeshard.runtime.transport import HttpRequest, HttpResponse, TransportError, TransportTimeout

IDLE_LIFETIME = 30.0
"""Seconds an unused connection is kept: less than the idle timeout of API servers (90 s) and usual load
balancers, so that a request rarely meets a connection that the other end is just closing.
"""

_USER_TIMEOUT_MS = 4000
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class AiohttpTransport:
    """Connections to one server.

    `base_url` is scheme, host, port and an optional path before every target. `proxy` is the URL of an HTTP
    proxy. `connection_limit` bounds open connections (0: unbounded); a bound includes long-lived streams, so
    leave room for them. May be created outside of an event loop; belongs to the loop of its first request.
    """

    def __init__(
        self,
        base_url: str,
        ssl_context: ssl.SSLContext | None = None,
        *,
        server_hostname: str | None = None,
        proxy: str | None = None,
        connection_limit: int = 0,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._ssl_context = ssl_context
        self._server_hostname = server_hostname
        self._proxy = proxy
        self._connection_limit = connection_limit
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._session: aiohttp.ClientSession | None = None
        self._retired: list[aiohttp.ClientSession] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Task[None] | None = None
        self._closed = False

    async def request(self, request: HttpRequest) -> HttpResponse:
        """One exchange. Raises TransportTimeout after `request.timeout`, TransportError when it broke."""
        with _translated(request):
            async with asyncio.timeout(request.timeout), self._send(request) as answer:
                return HttpResponse(answer.status, _headers(answer), await answer.read())

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[_Stream]:
        """An answer piece by piece. The connection is reused only if the body was read to its end."""
        sent = self._send(request, sock_read=request.idle_timeout)
        with _translated(request):
            async with asyncio.timeout(request.timeout):
                answer = await sent.__aenter__()
        try:
            yield _Stream(request, answer)
        finally:
            if not answer.content.is_eof():
                answer.close()
            answer.release()

    def renew(self) -> None:
        """Later requests use new connections (the client certificate changed); exchanges under way are
        finished.
        """
        if self._session is not None:
            self._retired.append(self._session)
            self._session = None

    def abort(self) -> None:
        """Resets every connection so that the kernel discards what it has not delivered yet: no write of the
        past arrives from now on (reliability F3). May be called from any thread; where the loop is blocked
        the reset happens when the process ends.
        """
        for sock in list(self._sockets):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._start_closing)

    async def close(self) -> None:
        """Closes all connections; exchanges under way, and later ones, fail."""
        self._closed = True
        sessions = [*self._retired, *([self._session] if self._session else [])]
        self._session, self._retired = None, []
        for session in sessions:
            await session.close()

    def _send(self, request: HttpRequest, sock_read: float | None = None) -> Any:
        session = self._session or self._open()
        return session.request(
            request.method,
            URL(self._base_url + request.target, encoded=True),
            headers=[("Accept-Encoding", "identity"), *request.headers.items()],
            data=request.body,
            timeout=aiohttp.ClientTimeout(total=None, sock_read=sock_read),
            allow_redirects=False,
            proxy=self._proxy,
            server_hostname=self._server_hostname,
        )

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise TransportError("the client is closed", sent=False)
        self._loop = asyncio.get_running_loop()
        connector = aiohttp.TCPConnector(
            limit=self._connection_limit,
            ssl=self._ssl_context or True,
            keepalive_timeout=IDLE_LIFETIME,
            socket_factory=self._socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), raise_for_status=False, trust_env=False
        )
        # aiohttp would send a PUT or DELETE again, on its own, when a reused connection breaks.
        self._session._retry_connection = False
        return self._session

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, *_ = address
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

    def _start_closing(self) -> None:
        self._closing = asyncio.create_task(self.close())


class _Stream:
    def __init__(self, request: HttpRequest, answer: aiohttp.ClientResponse) -> None:
        self._request = request
        self._answer = answer
        self.status = answer.status
        self.headers: Mapping[str, str] = _headers(answer)

    async def chunks(self) -> AsyncIterator[bytes]:
        with _translated(self._request):
            try:
                async for chunk in self._answer.content.iter_any():
                    yield chunk
            except RuntimeError as error:  # aiohttp's word for a connection that this side closed meanwhile
                raise TransportError(str(error)) from error

    async def read(self) -> bytes:
        with _translated(self._request):
            async with asyncio.timeout(self._request.timeout):
                return await self._answer.read()


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


@contextlib.contextmanager
def _translated(request: HttpRequest) -> Iterator[None]:
    where = f"{request.method} {request.target.partition('?')[0]}"
    try:
        yield
    except aiohttp.ClientHttpProxyError as error:  # its own text would tell the proxy's password
        raise TransportError(
            f"{where}: the proxy answered {error.status} {error.message}", sent=False
        ) from None
    except aiohttp.ClientConnectorError as error:
        raise TransportError(f"{where}: {error}", sent=False) from error
    except TimeoutError as error:  # asyncio's, and aiohttp's on a silent stream
        raise TransportTimeout(f"{where}: no answer in time") from error
    except (aiohttp.ClientError, OSError) as error:
        raise TransportError(f"{where}: {str(error) or type(error).__name__}") from error
