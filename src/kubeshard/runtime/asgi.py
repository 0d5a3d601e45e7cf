"""The contract between a server and an application: ASGI, a shortcut past it, and limits for each client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An ASGI 3 application. Only `http` scopes are ever sent: there is no lifespan and no websocket."""

DirectAnswer = Callable[[bytes], bytes | AsgiApp]
"""See `DirectApp.direct`."""


class DirectApp(Protocol):
    """An ASGI application that answers many of its requests at once, from memory."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def direct(self, method: bytes, url: bytes, headers: list[tuple[bytes, bytes]]) -> DirectAnswer | None:
        """What answers requests that begin so, given their body; None: call the application as always.

        The answer is the body of a response 200 of type application/json, or the application that is to answer
        instead (this one, or one that knows what has been found out so far), which is called with the whole
        request. Asked only about requests that arrived in one piece; what it returns is kept, and asked about other
        requests with the same head, on any connection. Names of headers are in lower case. Neither may raise or
        block.
        """
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for one client. Times are in seconds."""

    header_timeout: float = 5.0
    """From the first byte of a request (or the connection's start) to the end of its headers; also for a TLS
    handshake."""
    body_timeout: float = 10.0
    """From the end of the headers to the end of the body, including the time in which the application does
    not read."""
    keep_alive: float = 90.0
    """An idle connection is closed after this long: just beyond the API server's own idle timeout."""
    max_header_bytes: int = 32 * 1024
    """Request line and headers; more is answered with 431."""
    max_connections: int = 1024
    """Open connections, idle ones included; requests on further ones are answered with 503 at once."""
    stop_grace: float = 10.0
    """How long requests in flight may go on after the server was asked to stop."""
