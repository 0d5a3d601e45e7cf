"""One HTTP/1.1 connection of `AsgiServer`: requests as httptools parses them, each answered by the ASGI application.

Guaranteed: responses have the order of their requests, which includes the refusal of what is no request, and one is
written at a time; a slow client stops the application (`send` waits), and a slow application stops the client (reading
pauses). A client that closes its half of the connection still gets the responses to its requests, except over TLS: the
application is told of a disconnect when it waits for one, and may respond. An application that raises, or
that ends without a complete response, is logged, and its client gets a 500 if no response has begun. Every client has
the limits of `kubeshard.runtime.asgi.Limits`. They cost a request that arrives in one read a few assignments and no
timer: a timer is armed only when the bytes received so far end in the middle of a message.

If the application has a method `direct` (`kubeshard.runtime.asgi.DirectApp`), it is called first when a request
arrives in one read: if it returns a response, no task, events or scope are created.

Not supported: WebSockets and other upgrades (the request is answered as if it had not asked for one, or refused if it
has a body), trailers (they are dropped, and limited like headers).

Imported by `kubeshard.runtime.http_server` only, when a server starts: most programs do not need httptools before.
"""

from __future__ import annotations

import asyncio
import enum
import http
import re
import ssl
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httptools

from kubeshard.runtime.logs import get_logger

if TYPE_CHECKING:
    from kubeshard.runtime.asgi import AsgiApp, DirectAnswer, Limits, Message, Scope

_log = get_logger("kubeshard.runtime.http")

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "

_NO_ROOM = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"

_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 30\r\n"
    b"connection: close\r\n\r\nInvalid HTTP request received."
)

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_STATUS_LINES = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in http.HTTPStatus}

_NOT_IN_NAMES = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')
_NOT_IN_VALUES = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

_FRAMING = (b"content-length", b"transfer-encoding")

_BUFFERED = 64 * 1024
"""Bytes of a request's body that are held for the application before reading pauses."""

_LAST_STEPS = 0.5
"""How long a request may continue after its connection is lost."""


_HEADS = 1024
_HEAD_BYTES = 2048
"""The number of cached heads, and their maximum length."""

Direct = Callable[[bytes, bytes, list[tuple[bytes, bytes]]], "DirectAnswer | None"]


class _Waiting(enum.Enum):
    """The part of a request that is missing after the bytes received so far."""

    NOTHING = enum.auto()
    HEADERS = enum.auto()
    BODY = enum.auto()


class Connections:
    """The connections of one server: creates their protocols, waits for their end."""

    def __init__(self, app: AsgiApp, limits: Limits) -> None:
        self.app = app
        self.limits = limits
        self.direct: Direct | None = getattr(app, "direct", None)
        self.heads: dict[bytes, tuple[DirectAnswer, int]] = {}
        """Heads of requests, up to the empty line, with the functions that answer their bodies, and the body length.
        Clients repeat the same few heads: such a request need not be parsed again."""
        self.open: set[HttpConnection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        """The calls of the application."""
        self._none_left = asyncio.Event()
        self.aborted = False

    def protocol(self) -> HttpConnection:
        return HttpConnection(self)

    def admit(self, newcomer: HttpConnection) -> bool:
        """Counts a new connection, in place of the one that has waited longest for its client if there are too many.
        False if none waits.
        """
        if len(self.open) >= self.limits.max_connections:
            waiting = [each for each in self.open if each.waits()]
            if not waiting:
                return False
            longest = min(waiting, key=lambda each: each.since)
            self.open.discard(longest)
            longest.transport.abort()
        self.open.add(newcomer)
        return True

    async def drain(self) -> None:
        """Close idle connections, and the others after their current request. Returns when none is left."""
        self._none_left.clear()
        for connection in list(self.open):
            connection.shutdown()
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

    def lost(self, connection: HttpConnection) -> None:
        self.open.discard(connection)
        if not self.open:
            self._none_left.set()


class HttpConnection(asyncio.Protocol):
    """Used by the event loop; `on_...` are the calls of httptools' parser."""

    __slots__ = (  # a dict with more than thirty attributes would be slower by a tenth
        "_afresh",
        "_all",
        "_arrived",
        "_begun",
        "_chunk",
        "_direct",
        "_exchanges",
        "_expects_continue",
        "_head",
        "_header_bytes",
        "_headers",
        "_held",
        "_held_body",
        "_hosts",
        "_idle_timer",
        "_in_trailers",
        "_instead",
        "_limits",
        "_loop",
        "_missing",
        "_parser",
        "_reading",
        "_receiving",
        "_refusal",
        "_scope",
        "_timed",
        "_timer",
        "_url",
        "_writable",
        "since",
        "transport",
    )
    transport: asyncio.Transport

    def __init__(self, connections: Connections) -> None:
        self._all = connections
        self._limits = connections.limits
        self._direct = connections.direct
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        if hasattr(self._parser, "set_dangerous_leniencies"):  # httptools 0.6.3
            # A request after one with `connection: close` does not make that one invalid.
            self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._scope: dict[str, Any] = {}
        """What the scopes of all requests contain."""

        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects_continue = False
        self._held = False
        """Whether a request has started that was not passed to the application yet: it may be answered directly."""
        self._held_body = b""
        self._instead: AsgiApp | None = None
        """The application for the request that has just arrived, if `direct` returned one."""
        self._receiving: _Exchange | None = None
        """The exchange whose request arrived last, perhaps without the end of its body."""
        self._exchanges: deque[_Exchange] = deque()
        """Those without a complete response. The application works on the first."""

        self._missing = _Waiting.NOTHING
        self._timed: _Waiting = _Waiting.NOTHING
        self._timer: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        """Bytes of the headers or trailers, except those that arrived together with something before them."""
        self._hosts = 0
        self._in_trailers = False
        """Whether the last chunk has had no content yet: trailers may follow."""
        self._refusal = b""
        """The last thing that the client gets, after the responses that are due."""
        self._chunk = b""
        self._afresh = False
        """Whether the bytes received last started with a request."""
        self._begun = 0
        """The number of requests that began in the bytes received last, and of those that were already queued."""
        self._arrived = False
        self.since = 0.0
        """When the connection began, its last complete request arrived, or its last response ended."""
        self._idle_timer: asyncio.TimerHandle | None = None
        """It checks `since` instead of being reset by every request."""

        self._reading = True
        self._writable = asyncio.Event()
        self._writable.set()
        self._head = b""
        """The head of a response, until its first bytes are written: see `write_head`."""

    def arrived(self, transport: asyncio.Transport) -> bool:
        """Counts the connection, which may have a TLS handshake before it. False if there are too many."""
        self._arrived = True
        self.transport = transport
        self.since = self._loop.time()
        return self._all.admit(self)

    def left(self) -> None:
        """After the end of a connection, which may have been lost in its handshake."""
        self._all.lost(self)

    def waits(self) -> bool:
        """Whether the client owes a request, or the rest of one."""
        return self._missing is not _Waiting.NOTHING or not self._exchanges

    def shutdown(self) -> None:
        """Closes the connection after its last request."""
        if self._exchanges:
            self._exchanges[-1].keep_alive = False
        else:
            self.close()

    # Called by the event loop

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a socket
        admitted = self._arrived or self.arrived(transport)
        self.transport = transport
        if not admitted:
            transport.write(_NO_ROOM)
            transport.close()
            return
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
        self._rest()
        if self._all.aborted:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for exchange in self._exchanges:
            exchange.disconnect()
        self._writable.set()
        del self._parser  # it refers to this
        self._all.lost(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def eof_received(self) -> bool:
        """Whether the other half stays open."""
        if not self._exchanges or self._missing is _Waiting.BODY:
            return False
        if self._scope["scheme"] == "https":  # which has no half-closed connections
            return False
        self._missing = _Waiting.NOTHING
        self._disarm()
        self._exchanges[-1].keep_alive = False
        for exchange in self._exchanges:
            exchange.end_of_client()
        return True

    def data_received(self, data: bytes) -> None:
        self._begun = max(0, len(self._exchanges) - 1)
        self._afresh = self._missing is _Waiting.NOTHING
        if self._afresh and self._direct is not None:
            head, found, body = data.partition(b"\r\n\r\n")
            known = self._all.heads.get(head)
            if known is not None and found and len(body) == known[1] and self._may_answer():
                answer = known[0](body)
                if isinstance(answer, bytes):
                    self._answer(answer)
                    return
                self._instead = answer
        if self._refusal or self.transport.is_closing():
            return
        self._chunk = data
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._parse_behind(upgrade, data)
            if self._held and self._missing is _Waiting.BODY:
                self._hand_over()
        except httptools.HttpParserError:
            self._refuse()
            return
        finally:
            self._chunk = b""
        if self._missing is _Waiting.HEADERS or self._in_trailers:
            self._header_bytes += len(data)
            if self._header_bytes > self._limits.max_header_bytes:
                self._refuse()
                return
        if self._missing is not self._timed:
            self._wait()

    def _parse_behind(self, upgrade: httptools.HttpParserUpgrade, data: bytes) -> None:
        """The requests behind one for an upgrade: they are in the same protocol."""
        while True:
            data = data[upgrade.args[0] :]
            try:
                return self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as again:
                upgrade = again

    # Called by the parser. What these raise becomes an HttpParserError of `feed_data`.

    def on_message_begin(self) -> None:
        self._begun += 1
        if self._begun > self._limits.max_pipelined:
            raise ValueError("too many requests at once")
        self._missing = _Waiting.HEADERS
        self._header_bytes = 0 if self._afresh and self._begun == 1 else -len(self._chunk)
        self._hosts = 0
        if self._timer is not None:
            self._disarm()
        self._held = True
        self._held_body = self._url = b""
        self._headers = []
        self._expects_continue = False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_trailers:
            return  # a trailer must not pass for a header
        name = name.lower()
        if name == b"host":
            self._hosts += 1
        elif name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._missing = _Waiting.BODY
        if not self._afresh or self._begun > 1 or len(self._chunk) > self._limits.max_header_bytes:
            # The bytes received may be headers, or headers and something else.
            self._header_bytes = len(self._url) + sum(
                len(name) + len(value) + 4 for name, value in self._headers
            )
            if self._header_bytes > self._limits.max_header_bytes:
                raise ValueError("request headers too large")
        if self._hosts != 1 and (self._hosts or self._parser.get_http_version() == "1.1"):
            raise ValueError("not exactly one host")
        if self._parser.should_upgrade():
            self._direct = None
            if any(name in _FRAMING and value != b"0" for name, value in self._headers):
                raise ValueError("the parser takes the body for the other protocol")

    def on_chunk_header(self) -> None:
        self._in_trailers = True
        self._header_bytes = -len(self._chunk)

    def on_body(self, body: bytes) -> None:
        self._in_trailers = False
        if self._held:
            self._held_body = self._held_body + body if self._held_body else body
        elif self._receiving is not None:
            self._receiving.feed(body)

    def on_message_complete(self) -> None:
        self._missing = _Waiting.NOTHING
        self._in_trailers = False
        self.since = self._loop.time()
        if self._held and self._answered_directly():
            return
        if self._receiving is not None:
            self._receiving.feed_end()

    # Requests

    def _answered_directly(self) -> bool:
        """Answers the held request, or passes it on."""
        instead, self._instead = self._instead, None
        if (
            instead is not None
            or self._direct is None
            or not self._may_answer()
            or not self._parser.should_keep_alive()
        ):
            self._hand_over(instead)
            return False
        direct = self._direct(self._parser.get_method(), self._url, self._headers)
        answer = direct(self._held_body) if direct is not None else None
        if direct is not None:
            self._remember(direct)
        if not isinstance(answer, bytes):
            self._hand_over(answer)
            return False
        self._held = False
        self._answer(answer)
        return True

    def _hand_over(self, app: AsgiApp | None = None) -> None:
        """Passes the held request to the application. Raises HttpParserError for a URL without a path."""
        parser, url = self._parser, httptools.parse_url(self._url)
        if url.path is None:
            raise httptools.HttpParserInvalidURLError("no path")
        self._held = False
        path, version = url.path.decode("ascii"), parser.get_http_version()
        scope = self._scope | {
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": self._headers,
        }
        modern = version != "1.0"  # an older client knows neither kept connections nor interim responses
        keep_alive = modern and parser.should_keep_alive()
        expects_continue = modern and self._expects_continue
        exchange = _Exchange(self, app or self._all.app, scope, keep_alive, expects_continue)
        self._receiving = exchange
        self._exchanges.append(exchange)
        if self._held_body:
            exchange.feed(self._held_body)
        if len(self._exchanges) == 1:
            self._start(exchange)
        else:
            self.pause_reading()

    def _start(self, exchange: _Exchange) -> None:
        task = self._loop.create_task(exchange.run(), name="HTTP request")
        self._all.tasks.add(task)
        task.add_done_callback(self._all.tasks.discard)

    def _refuse(self) -> None:
        """Ends a connection whose bytes are no request, or whose headers are too large, after the responses to the
        requests before.
        """
        too_large = self._header_bytes > self._limits.max_header_bytes
        self._refusal = _TOO_LARGE if too_large else _BAD_REQUEST
        if self._missing is _Waiting.BODY and not self._held:
            if self._exchanges and self._exchanges[0] is self._receiving:
                if self._receiving.started:
                    self._refusal = b""
                self._end()
                return
            if self._exchanges and self._exchanges[-1] is self._receiving:
                self._exchanges.pop()
        self._missing = _Waiting.NOTHING
        self._disarm()
        self.pause_reading()
        if not self._exchanges:
            self._end()

    def _end(self) -> None:
        self.write(self._refusal)
        self.close()

    def _may_answer(self) -> bool:
        """Whether a response may be written now: no earlier one is due, and the client is reading."""
        return not (self._exchanges or not self._writable.is_set() or self.transport.is_closing())

    def _answer(self, body: bytes) -> None:
        self.write(b"%b%d\r\n\r\n%b" % (_HEAD, len(body), body))
        self._rest()

    def _remember(self, direct: DirectAnswer) -> None:
        """The head of the held request, if the last bytes contain exactly that request. Chunked bodies are excluded:
        their bytes differ from their content.
        """
        head, _, body = self._chunk.partition(b"\r\n\r\n")
        if self._afresh and body == self._held_body and len(head) <= _HEAD_BYTES:
            heads = self._all.heads
            if len(heads) >= _HEADS:
                heads.clear()
            heads[head] = direct, len(body)

    # Called by exchanges

    def answered(self, *, keep_alive: bool) -> None:
        """The response of the first exchange is complete."""
        self._exchanges.popleft()
        if not keep_alive:
            self.close()
        if self.transport.is_closing():
            return
        self.resume_reading()
        if self._exchanges:
            self._start(self._exchanges[0])
        elif self._refusal:
            self._end()
        else:
            self._rest()

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if not (self._reading or self._refusal):
            self._reading = True
            self.transport.resume_reading()

    async def writable(self) -> None:
        """Returns when the client has read most of what was written, or is gone."""
        if not self._writable.is_set():
            await self._writable.wait()

    def write_head(self, head: bytes) -> None:
        """Writes the head of a response together with the next write: one TLS record, one system call and one packet
        instead of two. A head without another write is written at the end of the loop's turn.
        """
        self._head = head
        self._loop.call_soon(self._flush)

    def write(self, data: bytes) -> None:
        head, self._head = self._head, b""
        self.transport.write(head + data if head else data)

    def close(self) -> None:
        """After what was written."""
        self._flush()
        if not self.transport.is_closing():
            self.transport.close()

    def _flush(self) -> None:
        if self._head:
            self.write(b"")

    # Timers

    def _rest(self) -> None:
        """It is the client's turn: the connection is closed if no request comes."""
        self.since = self._loop.time()
        if self._idle_timer is None:
            self._idle_timer = self._loop.call_later(self._limits.keep_alive, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self._idle_timer = None
        if self._exchanges or self._missing is not _Waiting.NOTHING:
            return  # the next response sets a timer
        remaining = self.since + self._limits.keep_alive - self._loop.time()
        if remaining > 0:
            self._idle_timer = self._loop.call_later(remaining, self._close_if_idle)
        else:
            self.close()

    def _wait(self) -> None:
        """Starts the timeout of the missing part after that part has changed."""
        self._disarm()
        self._timed = self._missing
        if self._missing is not _Waiting.NOTHING and not self.transport.is_closing():
            headers = self._missing is _Waiting.HEADERS
            seconds = self._limits.header_timeout if headers else self._limits.body_timeout
            self._timer = self._loop.call_later(seconds, self.transport.abort)

    def _disarm(self) -> None:
        self._timed = _Waiting.NOTHING
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Exchange:
    """One request, and the application's response to it."""

    def __init__(
        self,
        connection: HttpConnection,
        app: AsgiApp,
        scope: Scope,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self._connection = connection
        self._app = app
        self._scope = scope
        self.keep_alive = keep_alive
        self._expects_continue = expects_continue
        self._body = bytearray()
        self._more_body = True
        self._news = asyncio.Event()
        """Set when `receive` has something to return."""
        self._delivered = False
        """Whether the application has received all of the request."""
        self._client_ended = False
        self._disconnected = False
        self.started = False
        self._complete = False
        self._has_body = scope["method"] != "HEAD"
        self._remaining: int | None = None
        """The bytes of the response's body that are still to come; None if its length is not known."""
        self._chunked = False
        """Whether a body of unknown length is sent in chunks. Otherwise it ends with the connection."""

    # The request

    def feed(self, body: bytes) -> None:
        if not self._complete:
            self._body += body
            if len(self._body) > _BUFFERED:
                self._connection.pause_reading()
            self._news.set()

    def feed_end(self) -> None:
        self._more_body = False
        self._news.set()

    def end_of_client(self) -> None:
        """Nothing more will arrive; the client may still read."""
        self._client_ended = True
        self._news.set()

    def disconnect(self) -> None:
        self._disconnected = True
        self._news.set()

    # The application

    async def run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
            if not (self._complete or self._disconnected or self._client_ended):
                raise RuntimeError("it ended without a complete response")
        except Exception as error:
            _log.crash("An HTTP handler crashed", error)
            if not self.started:
                await self._send(_CRASHED)
                await self._send({"type": "http.response.body", "body": b"Internal Server Error"})
        finally:
            if not self._complete:
                self._connection.close()

    async def _receive(self) -> Message:
        if self._expects_continue and not self._connection.transport.is_closing():
            self._expects_continue = False
            self._connection.write(_CONTINUE)
        if not self._ended():
            self._connection.resume_reading()
            await self._news.wait()
            self._news.clear()
        if self._ended():
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), bytearray()
        self._delivered = not self._more_body
        return {"type": "http.request", "body": body, "more_body": self._more_body}

    def _ended(self) -> bool:
        """Whether there is nothing more to receive, for whatever reason."""
        return self._disconnected or self._complete or (self._delivered and self._client_ended)

    async def _send(self, message: Message) -> None:
        await self._connection.writable()
        if self._disconnected:
            return
        expected = "http.response.body" if self.started else "http.response.start"
        if self._complete or message["type"] != expected:
            raise RuntimeError(f"ASGI message {message['type']} instead of {expected}")
        if self.started:
            self._write(message.get("body", b""), more=message.get("more_body", False))
        else:
            self._begin(message["status"], message.get("headers", ()))

    def _begin(self, status: int, headers: Any) -> None:
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
        length: int | None = None
        chunked = closes = False
        for name, value in headers:
            if _NOT_IN_NAMES.search(name) or _NOT_IN_VALUES.search(value):
                raise RuntimeError(f"invalid header {name!r}")
            name = name.lower()
            if name == b"content-length":
                length = int(value)
            elif name == b"transfer-encoding" and value.lower() == b"chunked":
                chunked = True
                continue
            elif name == b"connection":
                closes = closes or b"close" in (token.strip() for token in value.lower().split(b","))
            lines += (name, b": ", value, b"\r\n")
        if closes:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if not self._has_body or status in (204, 304):
            self._has_body, length = False, 0
        elif (length is None or chunked) and self._scope["http_version"] != "1.0":
            lines.append(b"transfer-encoding: chunked\r\n")
            self._chunked, length = True, None
        self.started, self._expects_continue, self._remaining = True, False, length
        lines.append(b"\r\n")
        self._connection.write_head(b"".join(lines))

    def _write(self, body: bytes, *, more: bool) -> None:
        if not self._has_body:
            body = b""
        elif self._chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        elif self._remaining is not None:
            self._remaining -= len(body)
            if self._remaining < 0 or (self._remaining and not more):
                raise RuntimeError("the body of the response is longer or shorter than its content-length")
        if body:
            self._connection.write(body)
        if not more:
            self._complete = True
            self._news.set()
            self._connection.answered(keep_alive=self.keep_alive)


_CRASHED: Message = {
    "type": "http.response.start",
    "status": 500,
    "headers": [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"21"),
        (b"connection", b"close"),
    ],
}


def _address(name: Any) -> tuple[str, int] | None:
    """Host and port of a socket's name."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) and len(name) >= 2 else None
