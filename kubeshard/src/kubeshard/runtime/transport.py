"""HTTP to one server, for the client: complete responses and byte streams, without any Kubernetes specifics.

The boundary of simulation: everything above `Transport` is production code in a simulated world, everything
below (libcurl, TLS, sockets) is tested against real servers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from kubeshard.runtime.tls import Tls

UNDELIVERED = 4.0
"""Seconds for which the kernel keeps resending data that the other end does not acknowledge, even after the
connection was closed or the process has died.
"""


class TransportError(Exception):
    """The request got no complete response: refused, reset, TLS failure, name not found. `sent` is whether
    bytes may have reached the server (a write may have taken effect).
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class TransportClosed(TransportError):
    """The transport was closed, before the request or during it."""


class TransportTimeout(TransportError):
    """No complete response within the request's deadline. The connection is closed and never reused."""


class TransportUnverified(TransportError):
    """The server's certificate is not one of the trusted authorities', or has another name. Nothing was sent."""


class RepeatedHeaders(dict[str, str]):
    """Headers, some of which have several lines, as `items` lists them."""

    def __init__(self, once: Mapping[str, str], repeated: Iterable[tuple[str, str]]) -> None:
        super().__init__(once)
        self._repeated = tuple(repeated)

    def items(self) -> Any:
        return [*super().items(), *self._repeated]


class HttpRequest(NamedTuple):
    method: str
    target: str
    """Path and query, already encoded, starting with `/`."""
    headers: Mapping[str, str]
    """`items()` may have a name several times."""
    body: bytes | None = None
    timeout: float | None = None
    """Seconds for the whole exchange (for a stream: until its headers); None waits forever."""
    idle_timeout: float | None = None
    """For a stream: seconds without a byte after which it ends with TransportTimeout; None: never."""


class HttpResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class HttpStream(Protocol):
    """Raises TransportError while iterating when the connection breaks."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncIterator[bytes]: ...

    async def read(self) -> bytes:
        """The rest of the body (for error responses)."""
        ...


class Transport(Protocol):
    """Connections to one server. Concurrent requests do not wait for each other."""

    async def request(self, request: HttpRequest) -> HttpResponse: ...

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]: ...

    def renew(self, tls: Tls) -> None:
        """Later requests use these settings, on new connections. Raises ValueError for settings that cannot work."""
        ...

    def abort(self) -> None:
        """Resets all connections: undelivered writes never arrive. From any thread."""
        ...

    async def close(self) -> None: ...
