"""The connections of `AsgiServer`: does to a transport, a timer and an ASGI application what `HttpConnection` says.

Guaranteed: a slow client stops the application (`send` waits), and a slow application stops the client (reading
pauses). An application that raises, or that ends without a complete response, is logged, and its client gets a 500 if
no response has begun. One whose client has left, or has closed its half of the connection, is told of a disconnect when
it waits for more, and may respond; TLS has no half-closed connections. A request that arrives in one read sets no
timer: there is one, which is moved when it fires, or when it must fire earlier.

If the application has a method `direct` (`kubeshard.runtime.asgi.DirectApp`), it is called first for a request that is
complete when its turn comes: if it returns a response or a stream, no task, events or scope are created. A client
that sends many requests at once keeps no others waiting: it gets one such answer in each iteration of the event loop.

Imported by `kubeshard.runtime.http_server` only, when a server starts: most programs do not need httptools before.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from kubeshard.runtime import http_connection as core
from kubeshard.runtime.asgi import Stream
from kubeshard.runtime.http_connection import HttpConnection, Request
from kubeshard.runtime.logs import get_logger

if TYPE_CHECKING:
    from kubeshard.runtime.asgi import AsgiApp, DirectAnswer, Fields, Limits, Message, Scope

_log = get_logger("kubeshard.runtime.http")

_LAST_STEPS = 0.5
"""How long a request may continue after its connection is lost."""


class Connections:
    """The connections of one server: creates their protocols, waits for their end."""

    def __init__(self, app: AsgiApp, limits: Limits) -> None:
        self.app = app
        self.limits = limits
        self.direct: Callable[[bytes, bytes, Fields], DirectAnswer | None] | None = None
        self.heads: core.Heads | None = None
        if direct := getattr(app, "direct", None):
            self.heads = core.Heads(limits.max_header_bytes)
            self.direct = direct
        self.open: set[HttpProtocol] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._none_left = asyncio.Event()
        self.aborted = False

    def protocol(self) -> HttpProtocol:
        return HttpProtocol(self)

    def admit(self, newcomer: HttpProtocol) -> bool:
        """If there are too many, in place of the one that has waited longest for its client. False if none waits."""
        if len(self.open) >= self.limits.max_connections:
            longest = min(self.open, key=lambda each: each.http.waiting_since)
            if longest.http.waiting_since == math.inf:
                return False
            self.open.discard(longest)
            longest.transport.abort()
        self.open.add(newcomer)
        return True

    async def drain(self) -> None:
        """Close idle connections, and the others after their current request. Returns when none is left."""
        self._none_left.clear()
        for connection in list(self.open):
            connection.http.drain()
            connection.follow()
        while self.open:
            await self._none_left.wait()

    async def abort(self) -> None:
        """Close all connections immediately, and those in a TLS handshake as soon as it is over.
        Returns when all requests have ended: those that do not end when their connection is lost are cancelled.
        """
        self.aborted = True
        for connection in list(self.open):
            connection.transport.abort()
        await self.drain()
        if not self.tasks:
            return
        # Requests that wait for the client are notified of the disconnect, and clean up.
        _, tasks = await asyncio.wait(list(self.tasks), timeout=_LAST_STEPS)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def lost(self, connection: HttpProtocol) -> None:
        self.open.discard(connection)
        if not self.open:
            self._none_left.set()


class HttpProtocol(asyncio.Protocol):
    """Used by the event loop. It knows no rule of HTTP."""

    transport: asyncio.Transport

    def __init__(self, connections: Connections) -> None:
        self._all = connections
        self._loop = asyncio.get_running_loop()
        self.http = HttpConnection(connections.limits, self._loop.time(), connections.heads)
        self._scope: dict[str, Any] = {}
        """What the scopes of all requests contain."""
        self._exchange: _Exchange | _Push | None = None
        self.writable = asyncio.Event()
        """Set when the client has read most of what was written, or is gone."""
        self.writable.set()
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = math.inf

    def arrived(self, transport: asyncio.Transport) -> bool:
        """Counts the connection, which may have a TLS handshake before it. False if there are too many."""
        self.transport = transport
        return self._all.admit(self)

    def left(self) -> None:
        """After the end of a connection, which may have been lost in its handshake: else the loop says so, later."""
        if not self._scope:
            self._all.lost(self)

    # Called by the event loop

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a socket
        if not (self in self._all.open or self.arrived(transport)):
            transport.write(core.OVERLOADED)
            self.http.close()
        self.transport = transport
        tls = transport.get_extra_info("ssl_object")
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "server": _address(transport.get_extra_info("sockname")),
            "client": _address(transport.get_extra_info("peername")),
            "scheme": "http" if tls is None else "https",
            "root_path": "",
        }
        if tls is not None and (certificate := tls.getpeercert(binary_form=True)):
            chain = [ssl.DER_cert_to_PEM_cert(certificate)]
            self._scope["extensions"] = {"tls": {"client_cert_chain": chain}}
        self.follow()
        if self._all.aborted:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self.http.receive(data, self._loop.time())
        self.follow()

    def eof_received(self) -> bool:
        """Whether the other half stays open."""
        if self._scope["scheme"] == "http":
            self.http.end()
            self.follow()
        return isinstance(self.http.client, core.HalfClosed)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()
        if self._exchange is not None:
            self._exchange.notify()

    def connection_lost(self, exc: Exception | None) -> None:
        self.http.lost()
        if self._timer is not None:
            self._timer.cancel()
        self.writable.set()
        if self._exchange is not None:
            self._exchange.notify()
        self._exchange = None  # it refers to this
        self._all.lost(self)

    # What the core says

    def follow(self) -> None:
        http, transport = self.http, self.transport
        if http.due and (self._exchange is None or self._exchange.request is not http.due[0]):
            self._begin(http.due[0])
            if http.due and self._exchange is None:
                self._loop.call_soon(self.follow)
        self.flush()
        if isinstance(http.client, core.Closed):
            if not transport.is_closing():
                (transport.abort if isinstance(http.client, core.Aborted) else transport.close)()
        elif http.reading != transport.is_reading():
            (transport.resume_reading if http.reading else transport.pause_reading)()
        if http.wake_at < self._fires_at:
            if self._timer is not None:
                self._timer.cancel()
            self._fires_at = http.wake_at
            self._timer = self._loop.call_at(self._fires_at, self._wake)
        if self._exchange is not None:
            self._exchange.notify()

    def flush(self) -> None:
        if out := self.http.out:
            self.transport.write(b"".join(out))
            out.clear()

    def _wake(self) -> None:
        self._timer, self._fires_at = None, math.inf
        self.http.wake(self._loop.time())
        self.follow()

    def _begin(self, request: Request) -> None:
        app, direct, head = self._all.app, self._all.direct, request.head
        self._exchange = None
        if direct and request.part == "all" and request.keep_alive and self.writable.is_set():
            try:
                if head.answer is None:
                    head.answer = direct(head.method, head.url, head.headers)
                answer = head.answer(bytes(request.body), self._scope) if head.answer else None
                if isinstance(answer, bytes):
                    self.http.answer(request, answer)
                    return
                if isinstance(answer, Stream):
                    self._exchange = _Push(self, request, answer)
                    return
            except Exception as error:
                _crashed(self.http, request, error)
                return
            app = answer or app
        path = head.path.decode()
        scope = self._scope | {
            "http_version": head.version,
            "method": head.method.decode(),
            "path": unquote(path) if "%" in path else path,
            "raw_path": head.path,
            "query_string": head.query,
            "headers": [*head.headers],
        }
        self._exchange = _Exchange(self, request)
        task = self._loop.create_task(self._exchange.run(app, scope), name="HTTP request")
        self._all.tasks.add(task)
        task.add_done_callback(self._all.tasks.discard)


class _Push:
    """A response whose parts come from a source."""

    def __init__(self, protocol: HttpProtocol, request: Request, stream: Stream) -> None:
        self._protocol = protocol
        self._http = protocol.http
        self._loop = asyncio.get_running_loop()
        self.request = request
        self._source = stream.source
        self._scheduled = self._waits = self._ended = False
        request.awaited = True  # the end of the client, which may send more before that
        self._http.respond(request, stream.status, stream.headers)
        self._source.begin(self._changed)
        self._changed()

    def notify(self) -> None:
        if self._is_over:
            self._end()
        elif self._waits:
            self._changed()

    @property
    def _is_over(self) -> bool:
        return self._http.is_over(self.request) or isinstance(self._http.client, core.HalfClosed)

    def _changed(self) -> None:
        if not (self._scheduled or self._ended):
            self._scheduled = True
            self._loop.call_soon(self._push)

    def _push(self) -> None:
        self._scheduled, protocol = False, self._protocol
        if self._ended:
            return
        self._waits = not protocol.writable.is_set()
        part = b"" if self._waits else self._source.take()
        if part is None:
            self._http.send(self.request, b"", False, self._loop.time())
            self._end()
            return
        if part:
            self._http.send(self.request, part, True, self._loop.time())
        protocol.flush()
        if self._source.more and not self._waits:
            self._changed()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        if self.request.response != "complete":
            self._http.close()
        self._source.close()
        self._protocol.follow()


class _Exchange:
    def __init__(self, protocol: HttpProtocol, request: Request) -> None:
        self._protocol = protocol
        self._http = protocol.http
        self.request = request
        self.news = asyncio.Event()
        """Set when `receive` may have something to return."""

    def notify(self) -> None:
        self.news.set()

    async def run(self, app: AsgiApp, scope: Scope) -> None:
        request, http = self.request, self._http
        try:
            await app(scope, self._receive, self._send)
            if not (http.is_over(request) or isinstance(http.client, core.HalfClosed)):
                raise RuntimeError("it ended without a complete response")
        except Exception as error:
            _crashed(http, request, error)
        finally:
            if not http.is_over(request):
                http.close()
            self._protocol.follow()

    async def _receive(self) -> Message:
        try:
            while (taken := self._http.take(self.request)) is None:
                self._protocol.follow()
                self.news.clear()
                await self.news.wait()
        except EOFError:
            return {"type": "http.disconnect"}
        self._protocol.follow()
        return {"type": "http.request", "body": taken[0], "more_body": taken[1]}

    async def _send(self, message: Message) -> None:
        await self._protocol.writable.wait()
        kind = message["type"]
        if kind == "http.response.start":
            self._http.respond(self.request, message["status"], message.get("headers", ()))
            # With the body: one TLS record, one system call and one packet instead of two.
            asyncio.get_running_loop().call_soon(self._protocol.flush)
        elif kind == "http.response.body":
            data, more = message.get("body", b""), message.get("more_body", False)
            self._http.send(self.request, data, more, asyncio.get_running_loop().time())
            self.news.set()  # of the end, if this was it; the next exchange may begin now
            self._protocol.follow()
        else:
            raise RuntimeError(f"unknown ASGI message {kind}")


def _crashed(http: HttpConnection, request: Request, error: Exception) -> None:
    _log.crash("An HTTP handler crashed", error)
    http.fail(request)


def _address(name: Any) -> tuple[str, int] | None:
    """Host and port of a socket's name."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) and len(name) >= 2 else None
