"""An HTTP server for ASGI applications inside the running event loop: admission webhooks, metrics, health.

Guaranteed: inside `async with AsgiServer(...)` the port is open and known; on exit the listener is closed first,
requests in flight may finish for `Limits.stop_grace` seconds and are then aborted; no signal handler is
installed and the process is never ended. A client certificate that the TLS context requested and verified is
in the scope (`client_cert_chain` of ASGI's TLS extension, the leaf only). Slow and oversized requests are
aborted (`Limits`). HTTP/1.1 only, so HTTP/2 rapid-reset attacks do not apply.

Not guaranteed: a limit on request bodies, which only the application can reject (stop reading and
respond with `connection: close`).

HTTP is parsed by httptools, which is imported when a server starts.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import sys
from asyncio import sslproto
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kubeshard.runtime.asgi import AsgiApp, Limits

if TYPE_CHECKING:
    from kubeshard.runtime.http_server_protocol import Connections, HttpProtocol


_PROTOCOL = "kubeshard.runtime.http_server_protocol"


class ListenError(OSError):
    """Cannot listen on the address: used by another process, not local to this machine, not permitted."""


class AsgiServer:
    """Serves `app` on `host`:`port`; port 0 picks a free one, host `""` listens on all addresses, IPv4 and
    IPv6.

    Raises ListenError on entry. The `ssl_context` may be
    changed while the server runs (`SSLContext.load_cert_chain`): new connections use it, existing ones keep
    theirs. `reuse_port`: other processes that also set this may listen on the same port; the kernel
    distributes new connections across them. `listener`: a socket that listens already, instead of a new one.
    """

    def __init__(
        self,
        app: AsgiApp,
        host: str = "",
        port: int = 0,
        ssl_context: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        *,
        reuse_port: bool = False,
        listener: socket.socket | None = None,
    ) -> None:
        self._app = app
        self._listener = listener
        self._host = host
        self._reuse_port = reuse_port
        self._requested_port = port
        self._ssl = ssl_context
        self._limits = limits or Limits()
        self._server: asyncio.Server | None = None
        self._connections: Connections | None = None
        self._port = 0

    @property
    def port(self) -> int:
        """The actual port, also after the server stopped. 0 before it started."""
        return self._port

    @property
    def scheme(self) -> str:
        return "http" if self._ssl is None else "https"

    async def __aenter__(self) -> AsgiServer:
        if _PROTOCOL not in sys.modules:  # others may need the loop meanwhile: it takes some milliseconds
            await asyncio.to_thread(import_module, _PROTOCOL)
        from kubeshard.runtime.http_server_protocol import Connections

        self._connections = Connections(self._app, self._limits)
        listener = self._listener or _listen(self._host, self._requested_port, self._reuse_port)
        self._port = listener.getsockname()[1]
        loop = asyncio.get_running_loop()
        protocol: Callable[[], asyncio.BaseProtocol] = self._connections.protocol
        loops_tls: dict[str, Any] = {}
        if self._ssl is not None:
            timeouts = {"ssl_handshake_timeout": self._limits.header_timeout, "ssl_shutdown_timeout": 1.0}
            if isinstance(loop, asyncio.BaseEventLoop):
                protocol = partial(_tls, self._connections, self._ssl, timeouts)
            else:  # uvloop has no such buffer
                loops_tls = {"ssl": self._ssl, **timeouts}
        self._server = await loop.create_server(protocol, sock=listener, backlog=1024, **loops_tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._connections is not None
        self._server.close()
        try:
            async with asyncio.timeout(self._limits.stop_grace):
                await self._connections.drain()
        except TimeoutError:
            pass
        finally:
            await self._connections.abort()


class _Tls(sslproto.SSLProtocol):
    """TLS of one connection, as asyncio does it, with a read buffer of one TLS record instead of 256 KiB.

    kube-apiserver opens a connection for each review in flight. With asyncio's buffer, three hundred of them take
    80 MiB, which the process never gives back.
    """

    max_size = 16 * 1024
    http: HttpProtocol

    def connection_made(self, transport: Any) -> None:
        if self.http.arrived(transport):
            super().connection_made(transport)
        else:
            transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.http.left()


def _tls(connections: Connections, context: ssl.SSLContext, timeouts: dict[str, Any]) -> _Tls:
    http = connections.protocol()
    waiter: Any = None  # nobody waits for the handshake
    tls = _Tls(asyncio.get_running_loop(), http, context, waiter, server_side=True, **timeouts)
    tls.http = http
    return tls


def parse_bind_address(text: str) -> tuple[str, int]:
    """`:8080` -> (`""`, 8080), `127.0.0.1:0`, `[::1]:9443`: the notation of Go's `net.Listen`. Raises
    ValueError."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"bind address {text!r}: write an IPv6 address in brackets, as in [::1]:8080")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"bind address {text!r} is not of the form host:port or :port")
    return host, int(port)


def _listen(host: str, port: int, reuse_port: bool) -> socket.socket:
    dual = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or ":" in host else socket.AF_INET
    try:
        listener = socket.create_server(
            (host, port), family=family, backlog=1024, reuse_port=reuse_port, dualstack_ipv6=dual
        )
    except (OSError, OverflowError, ValueError) as error:
        raise ListenError(
            getattr(error, "errno", None) or 0, f"cannot listen on {host}:{port}: {_reason(error)}"
        ) from error
    # Accepted connections inherit it. asyncio would set it, but only on sockets made with an explicit
    # protocol number; without it a response, written as headers and body, waits 40 ms for the client's delayed
    # acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _reason(error: Exception) -> str:
    number = getattr(error, "errno", None) or 0
    if number < 0 or isinstance(error, socket.gaierror):
        return "there is no such host"
    if number == errno.EADDRINUSE:
        return "the address is in use by another process"
    return os.strerror(number) if number > 0 else str(error)
