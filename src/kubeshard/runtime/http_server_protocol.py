"""One HTTP/1.1 connection of `AsgiServer`: uvicorn's httptools protocol with the limits that it lacks.

uvicorn closes idle connections, but waits forever for the rest of a request's headers or body, accepts headers of any
size and any number of requests at once, and refuses all clients when somebody holds too many connections. The limits
cost a request that arrives in one read a few assignments and no timer: a timer is armed only when the bytes received so
far end in the middle of a message.

If the application has a method `direct` (`kubeshard.runtime.asgi.DirectApp`), it is called first when a request
arrives in one read: if it returns a response, no task, events or scope are created.

Imported by `kubeshard.runtime.http_server` only, when a server starts: most programs do not need uvicorn before.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

if TYPE_CHECKING:
    from kubeshard.runtime.asgi import AsgiApp, DirectAnswer, Limits

# Application errors are logged as errors. uvicorn's warnings (garbage on the port, too many connections)
# can be caused by any client that reaches the port, and must not fill the log.
_LOG = logging.getLogger("kubeshard.runtime.http")
_LOG.setLevel(logging.ERROR)

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "

_NO_ROOM = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"

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
        self.limits = limits
        self.direct: Direct | None = getattr(app, "direct", None)
        self.heads: dict[bytes, tuple[DirectAnswer, int]] = {}
        """Heads of requests, up to the empty line, with the functions that answer their bodies, and the body length.
        Clients repeat the same few heads: such a request need not be parsed again."""
        self.state = ServerState()
        self.config = Config(
            app,
            http=HttpToolsProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            workers=1,
            forwarded_allow_ips=[],
            timeout_keep_alive=limits.keep_alive,  # type: ignore[arg-type]  # ends in call_later
        )
        self._none_left = asyncio.Event()
        self.aborted = False

    def protocol(self) -> BoundedHttpProtocol:
        return BoundedHttpProtocol(self)

    def admit(self, newcomer: BoundedHttpProtocol) -> bool:
        """Counts a new connection, in place of the one that has waited longest for its client if there are too many.
        False if none waits.
        """
        connections = self.state.connections
        if len(connections) >= self.limits.max_connections:
            waiting = [each for each in connections if isinstance(each, BoundedHttpProtocol) and each.waits()]
            if not waiting:
                return False
            longest = min(waiting, key=lambda each: each.since)
            connections.discard(longest)
            longest.transport.abort()
        connections.add(newcomer)
        return True

    async def drain(self) -> None:
        """Close idle connections, and the others after their current request. Returns when none is left."""
        self._none_left.clear()
        for connection in list(self.state.connections):
            connection.shutdown()
        while self.state.connections:
            await self._none_left.wait()

    async def abort(self) -> None:
        """Close all connections immediately, and those in a TLS handshake as soon as it is over.
        Returns when all requests have ended: those that do not end when their connection is lost are cancelled.
        """
        self.aborted = True
        for connection in list(self.state.connections):
            connection.transport.abort()
        await self.drain()
        if not self.state.tasks:
            return
        # Requests that wait for the client are notified of the disconnect, and clean up.
        _, tasks = await asyncio.wait(list(self.state.tasks), timeout=_LAST_STEPS)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def lost(self) -> None:
        if not self.state.connections:
            self._none_left.set()


class BoundedHttpProtocol(HttpToolsProtocol):
    def __init__(self, connections: Connections) -> None:
        super().__init__(connections.config, connections.state, app_state={})
        self.logger = _LOG
        self._all = connections
        self._limits = connections.limits
        self._missing = _Waiting.NOTHING
        self._timed: _Waiting = _Waiting.NOTHING
        self._timer: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._chunk = b""
        self._afresh = False
        """Whether the bytes received last started with a request."""
        self._extensions: dict[str, Any] = {}
        self._direct = connections.direct
        self._held = False
        """Whether a request has started that was not passed to uvicorn yet: it may be answered directly."""
        self._held_body = b""
        self._instead: AsgiApp | None = None
        """The application for the request that has just arrived, if `direct` returned one."""
        self._arrived = False
        self._begun = 0
        """The number of requests that began in the bytes received last, and of those that were already queued."""
        self.since = 0.0
        """When the connection began, or its last complete request arrived."""
        self._idle_timer: asyncio.TimerHandle | None = None
        """The timer of a connection with a direct response as its last one; uvicorn has its own for the others. It
        checks `since` instead of being reset by every request."""

    def arrived(self, transport: asyncio.Transport) -> bool:
        """Counts the connection, which may have a TLS handshake before it. False if there are too many."""
        self._arrived = True
        self.transport = transport
        self.since = self.loop.time()
        return self._all.admit(self)

    def left(self) -> None:
        """After the end of a connection, which may have been lost in its handshake."""
        self.connections.discard(self)
        self._all.lost()

    def waits(self) -> bool:
        """Whether the client owes a request, or the rest of one."""
        return self._missing is not _Waiting.NOTHING or not self._busy()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's
        admitted = self._arrived or self.arrived(transport)
        super().connection_made(cast(asyncio.Transport, _JoinedWrites(transport, self.loop)))
        if not admitted:
            self.connections.discard(self)
            transport.write(_NO_ROOM)
            transport.close()
            return
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and (certificate := tls.getpeercert(binary_form=True)):
            # The TLS extension of ASGI, which uvicorn does not support.
            self._extensions = {"tls": {"client_cert_chain": [ssl.DER_cert_to_PEM_cert(certificate)]}}
        self._missing = _Waiting.HEADERS
        self._wait()
        if self._all.aborted:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        super().connection_lost(exc)
        # uvicorn leaves its keep-alive timer running after an error, and with it this connection in memory.
        self._unset_keepalive_if_required()
        self._all.lost()

    def data_received(self, data: bytes) -> None:
        self._begun = len(self.pipeline)
        self._afresh = self._missing is _Waiting.NOTHING
        if self._afresh and self._direct is not None:
            head, found, body = data.partition(b"\r\n\r\n")
            known = self._all.heads.get(head)
            if known is not None and found and len(body) == known[1] and self._may_answer():
                self._unset_keepalive_if_required()
                answer = known[0](body)
                if isinstance(answer, bytes):
                    self._answer(answer)
                    return
                self._instead = answer
        if self.transport.is_closing():
            return
        self._chunk = data
        super().data_received(data)
        self._chunk = b""
        if self._missing is _Waiting.HEADERS:
            self._header_bytes += len(data)
            if self._header_bytes > self._limits.max_header_bytes:
                self.send_400_response("")
                return
        elif self._held and self._missing is _Waiting.BODY:
            self._hand_over()
        if self._missing is not self._timed:
            self._wait()

    def on_message_begin(self) -> None:
        self._begun += 1
        if self._begun > self._limits.max_pipelined:
            raise ValueError("too many requests at once")  # ends in send_400_response
        self._missing = _Waiting.HEADERS
        self._header_bytes = 0
        if self._timer is not None:
            self._disarm()
        if self._direct is not None:
            self._held = True
            self._held_body = self.url = b""
            self.headers = []
            self.expect_100_continue = False
            return
        self._begin()

    def on_headers_complete(self) -> None:
        self._missing = _Waiting.BODY
        if self._header_bytes + len(self._chunk) > self._limits.max_header_bytes:
            # The bytes received may be headers, or headers and body.
            self._header_bytes = len(self.url) + sum(
                len(name) + len(value) + 4 for name, value in self.headers
            )
            if self._header_bytes > self._limits.max_header_bytes:
                raise ValueError("request headers too large")  # ends in send_400_response
        if not self._held:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._held:
            self._held_body = self._held_body + body if self._held_body else body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._missing = _Waiting.NOTHING
        self.since = self.loop.time()
        if not self._held or not self._answered_directly():
            super().on_message_complete()

    def _begin(self) -> None:
        super().on_message_begin()
        if self._extensions:
            self.scope["extensions"] = self._extensions

    def _hand_over(self, app: AsgiApp | None = None) -> None:
        """Passes the held request to uvicorn."""
        self._held = False
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        self._begin()
        self.url, self.expect_100_continue = url, expect
        self.headers.extend(headers)
        usual = self.app
        self.app = usual if app is None else cast(Any, app)
        try:
            super().on_headers_complete()
        finally:
            self.app = usual
        if self._held_body:
            super().on_body(self._held_body)

    def _answered_directly(self) -> bool:
        """Answers the held request, or passes it on."""
        instead, self._instead = self._instead, None
        if self.parser.should_upgrade():
            self._direct = None
        if (
            instead is not None
            or self._direct is None
            or not self._may_answer()
            or not self.parser.should_keep_alive()
        ):
            self._hand_over(instead)
            return False
        direct = self._direct(self.parser.get_method(), self.url, self.headers)
        answer = direct(self._held_body) if direct is not None else None
        if direct is not None:
            self._remember(direct)
        if not isinstance(answer, bytes):
            self._hand_over(answer)
            return False
        self._held = False
        self._answer(answer)
        return True

    def _may_answer(self) -> bool:
        """Whether a response may be written now: no earlier one is due, and the client is reading."""
        return not (self._busy() or self.flow.write_paused or self.transport.is_closing())

    def _answer(self, body: bytes) -> None:
        self.transport.write(b"%b%d\r\n\r\n%b" % (_HEAD, len(body), body))
        self.since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self._limits.keep_alive, self._close_if_idle)

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

    def _busy(self) -> bool:
        """Whether a request that was passed on has no response yet."""
        return bool(self.cycle) and not self.cycle.response_complete

    def _close_if_idle(self) -> None:
        self._idle_timer = None
        if self._busy() or self._missing is not _Waiting.NOTHING or self.timeout_keep_alive_task is not None:
            return  # the next response, or uvicorn, sets a timer
        remaining = self.since + self._limits.keep_alive - self.loop.time()
        if remaining > 0:
            self._idle_timer = self.loop.call_later(remaining, self._close_if_idle)
        elif not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        if self._header_bytes <= self._limits.max_header_bytes:
            super().send_400_response(msg)
            return
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
        self.transport.close()

    def _wait(self) -> None:
        """Starts the timeout of the missing part after that part has changed."""
        self._disarm()
        self._timed = self._missing
        if self._missing is not _Waiting.NOTHING and not self.transport.is_closing():
            headers = self._missing is _Waiting.HEADERS
            seconds = self._limits.header_timeout if headers else self._limits.body_timeout
            self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _disarm(self) -> None:
        self._timed = _Waiting.NOTHING
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _JoinedWrites:
    """A transport that writes the head of a response together with the next write: one TLS record, one system call
    and one packet instead of two. A head without another write is written at the end of the loop's turn.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n"):
            self._head = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)
