"""HTTP to one server, as the client needs it: whole answers and byte streams, nothing of Kubernetes.

The boundary of simulation: everything above `Transport` is production code in a simulated world, everything
below (libcurl, TLS, sockets) is tested against real servers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from kubeshard.runtime.tls import Tls

UNDELIVERED = 4.0
"""Seconds for which the kernel goes on sending what the other end does not acknowledge, also after the
connection was closed and after the process has died.
"""


class TransportError(Exception):
    """The request got no complete answer: refused, reset, TLS failure, name not found. `sent` tells whether
    bytes may have reached the server (a write may have taken effect).
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class TransportTimeout(TransportError):
    """No complete answer within the request's deadline. The connection is closed and never reused."""


class HttpRequest(NamedTuple):
    method: str
    target: str
    """Path and query, already encoded, beginning with `/`."""
    headers: Mapping[str, str]
    """`items()` may have a name several times."""
    body: bytes | None = None
    timeout: float | None = None
    """Seconds for the whole exchange (of a stream: until its headers); None waits forever."""
    idle_timeout: float | None = None
    """Of a stream: seconds without a byte after which it ends with TransportTimeout; None never."""


class HttpResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class HttpStream(Protocol):
    """An answer whose body arrives piece by piece. Raises TransportError while iterating when the connection
    breaks.
    """

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncIterator[bytes]: ...

    async def read(self) -> bytes:
        """The rest of the body (for error answers)."""
        ...


class Transport(Protocol):
    """Connections to one server. Concurrent requests do not wait for each other."""

    async def request(self, request: HttpRequest) -> HttpResponse: ...

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]: ...

    def renew(self, tls: Tls) -> None:
        """Later requests use these settings, on new connections. Raises ValueError for settings that cannot work."""
        ...

    def abort(self) -> None:
        """Resets all connections: what was written and not yet delivered never arrives. From any thread."""
        ...

    async def close(self) -> None: ...
