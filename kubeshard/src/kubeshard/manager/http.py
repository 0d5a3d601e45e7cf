"""Serves the few pages of a process, metrics and health. Plain ASGI: they need no framework."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.asgi import AsgiApp, Receive, Scope, Send
from kubeshard.runtime.http_server import AsgiServer, ListenError, parse_bind_address
from kubeshard.runtime.logs import get_logger

PLAIN = "text/plain; charset=utf-8"

METRICS_ADDRESS, HEALTH_ADDRESS = ":8080", ":8081"
"""Where pages are served unless somebody says otherwise."""

_log = get_logger("kubeshard.manager")


class Request(NamedTuple):
    path: str
    query: str
    """The query, URL-encoded and without `?`."""
    host: str = ""
    """The client's address, if known."""
    gzip: bool = False
    """Whether the client accepts a compressed body."""
    authorization: str = ""
    """The client's credentials: the header of that name."""


class Page(NamedTuple):
    status: int
    body: str | bytes
    content_type: str = PLAIN
    encoding: str = ""
    """The content encoding; the body is encoded already."""


Route = Callable[[Request], Page | Awaitable[Page] | None]
"""Returns None for paths that it does not serve."""


def pages_app(*pages: Route) -> AsgiApp:
    """Serves GET and HEAD requests from the first of `pages` that serves the path; otherwise 404 or 405."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, await _answer(scope, pages), head=scope["method"] == "HEAD")

    return app


async def respond(
    send: Send, page: Page, *, head: bool = False, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    body = page.body.encode() if isinstance(page.body, str) else page.body
    fields = [
        (b"content-type", page.content_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"x-content-type-options", b"nosniff"),
        *([(b"content-encoding", page.encoding.encode())] if page.encoding else []),
        *headers,
    ]
    await send({"type": "http.response.start", "status": page.status, "headers": fields})
    await send({"type": "http.response.body", "body": b"" if head else body})


async def _answer(scope: Scope, pages: Sequence[Route]) -> Page:
    if scope["method"] not in ("GET", "HEAD"):
        return Page(405, "method not allowed\n")
    host = (scope.get("client") or ("",))[0]
    query = scope.get("query_string", b"").decode("latin-1")
    authorization = b"".join(value for name, value in scope.get("headers", ()) if name == b"authorization")
    request = Request(scope["path"], query, host, _accepts_gzip(scope), authorization.decode("latin-1"))
    for page in pages:
        if (answer := page(request)) is not None:
            return answer if isinstance(answer, Page) else await answer
    return Page(404, "not found\n")


def _accepts_gzip(scope: Scope) -> bool:
    offers = [
        value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"accept-encoding"
    ]
    codings = (coding.replace(" ", "").lower() for offer in offers for coding in offer.split(","))
    return any(
        coding == "gzip" or (coding.startswith("gzip;") and coding != "gzip;q=0") for coding in codings
    )


def check_bind_address(field: str, address: str | None) -> tuple[str, int] | None:
    """The host and port of an address, or None if it is disabled (None or `"0"`). Raises ConfigurationError, whose
    message starts with `field`, for anything other than `host:port` or `:port`.
    """
    if address in (None, "0"):
        return None
    if not isinstance(address, str | None):
        raise ConfigurationError(f"{field}: {address!r} is not text such as ':8080'")
    try:
        return parse_bind_address(address or "")
    except ValueError as error:
        raise ConfigurationError(f"{field}: {error}") from error


class Listener:
    """A server listening at `address`, which the user configured as `field`. `movable`: nobody has chosen the address,
    so another port will do where nobody knows this one. Raises like `check_bind_address`.
    """

    def __init__(
        self,
        field: str,
        address: str | None,
        ssl_context: ssl.SSLContext | None = None,
        *,
        movable: bool = False,
    ) -> None:
        self.address = address or "0"
        self._page = f"{field.removesuffix('_address')} page"
        self._place = check_bind_address(field, address)
        self._ssl = ssl_context
        self._movable = movable
        self.port = 0
        """The actual port, once it is open."""

    @property
    def wanted(self) -> int:
        """The port that the user configured; 0 for no port or any port."""
        return self._place[1] if self._place else 0

    @property
    def secure(self) -> bool:
        return self._ssl is not None

    async def open(self, stack: AsyncExitStack, app: AsgiApp, *, in_pod: bool) -> None:
        """Serves `app` until the stack is closed. Raises ConfigurationError if it cannot."""
        if self._place is None:
            return
        host, port = self._place
        try:
            server = await stack.enter_async_context(AsgiServer(app, host, port, self._ssl))
        except ListenError as error:
            if not self._movable or in_pod or error.errno != errno.EADDRINUSE:
                raise ConfigurationError(f"{self._page}: {error.strerror}; choose another address") from error
            server = await stack.enter_async_context(AsgiServer(app, host, 0, self._ssl))
            _log.warning(
                "The default port is taken; serving at another one", page=self._page, port=server.port
            )
        self.port = server.port
