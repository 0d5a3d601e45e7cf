"""The contract between a server and an application: ASGI, a fast path around it, and limits for each client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An ASGI 3 application. Only `http` scopes are ever sent: there is no lifespan and no websocket."""


class Fields(tuple[tuple[bytes, bytes], ...]):
    """Names and values of header fields. An application may leave here what it has made of them, for the next request
    with the same ones.
    """

    read: Any = None


STATUS_LINES = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}
_WHOLE = b"%bcontent-length: %d\r\n\r\n%b"
JSON_RESPONSE = _WHOLE.replace(b"%b", STATUS_LINES[200] + b"content-type: application/json\r\n", 1)
"""The bytes of a response, before `%` the length of its body and that."""


def response(status: int, headers: bytes, body: bytes) -> bytes:
    """The bytes of a response. `headers` are lines, each with its CR and LF, without the length."""
    return _WHOLE % (STATUS_LINES[status] + headers, len(body), body)


class Source(Protocol):
    """The body of a response whose parts come one by one. Its methods may neither raise nor block."""

    more: bool
    """Whether `take` may return more at once."""

    def begin(self, changed: Callable[[], None]) -> None:
        """Called before all else. `changed` is to be called when there may be something to take."""
        ...

    def take(self) -> bytes | None:
        """The next part, empty if there is none yet; None at the end."""
        ...

    def close(self) -> None:
        """The end has been taken, or the client has gone."""
        ...


class Stream(NamedTuple):
    """A response whose body comes from a source. It is asked once in an iteration of the event loop at most, and not
    while the client does not read.
    """

    source: Source
    status: int
    headers: list[tuple[bytes, bytes]]


DirectAnswer = Callable[[bytes, Scope], bytes | Stream | AsgiApp]
"""See `DirectApp.direct`."""


class DirectApp(Protocol):
    """An ASGI application that answers many of its requests immediately, from memory."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def direct(self, method: bytes, url: bytes, headers: Fields) -> DirectAnswer | None:
        """A function from the body of a request with this head, and what the scopes of all requests on its connection
        contain, to the bytes of its response (`response`); None: call the application normally.

        It may return an application to call with the whole request instead (this one, or one that reuses the work done
        so far). Called only for requests that are complete when their turn comes; the function is cached, and used for
        other requests with the same head, on any connection. Header names are in lower case; requests with the same
        header fields have the same object as `headers`. Neither may raise or block, nor let anything into a header that
        is not allowed there.
        """
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for one client. Times are in seconds."""

    header_timeout: float = 5.0
    """From the first byte of a request to the end of its headers; also for a TLS handshake."""
    body_timeout: float = 10.0
    """From the end of the headers to the end of the body, including the time while the application does
    not read."""
    keep_alive: float = 120.0
    """An idle connection is closed after this long, and a new one without a byte. API servers close theirs after 90 s:
    one that is closed from here may be about to carry a request."""
    max_header_bytes: int = 32 * 1024
    """Request line and headers; larger requests get a 431. So do larger trailers."""
    max_connections: int = 1024
    """Open connections, including idle ones and those in a TLS handshake. A further one takes the place of that which
    has waited longest for its client; if none waits, it gets a 503 immediately."""
    max_pipelined: int = 16
    """Requests that a client may send before it has the answer to the first one; more end the connection, with a 400.
    Clients of webhooks send one."""
    stop_grace: float = 10.0
    """How long requests in flight may continue after the server is stopped."""
