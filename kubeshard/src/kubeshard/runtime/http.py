"""The real `Transport`: HTTP/1.1 over libcurl.

Guaranteed:
- concurrent requests never wait for each other: each has its own connection, idle ones are reused;
- a connection whose request timed out, was cancelled or broke is closed and never reused;
- a dead peer is detected: by TCP keepalive on a silent stream, by TCP_USER_TIMEOUT (4 s) if it no longer
  acknowledges, and the kernel does not keep resending a write of a process that died;
- a request is sent once: whether to retry it is the caller's decision;
- the server's name is resolved for every new connection (those within one second share a lookup);
- the server is verified against the authorities of the `Tls` settings and no others;
- redirects, cookies, `.netrc` and the environment are ignored: exactly the given request is sent.

Not guaranteed: that a write without a response did not take effect (`TransportError.sent`); that an answer is handled
at once while very many requests are under way (`curl_transfers.MANY`).

Responses are not compressed: client and server are close to each other, and gzip costs both more than the bytes.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pycurl

from kubeshard.runtime.blocking_calls import Call
from kubeshard.runtime.curl_exchange import Exchange, Stream
from kubeshard.runtime.curl_transfers import IDLE_CONNECTIONS, Sockets, Transfers
from kubeshard.runtime.open_files import exhausted
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, HttpResponse, TransportClosed, TransportError

IDLE_LIFETIME = 30
"""Seconds an idle connection is kept: less than the idle timeout of API servers (90 s) and usual load
balancers, so that a request rarely uses a connection that the other end is closing.
"""

LOOKUP_LIFETIME = 1
"""Seconds for which a lookup of the server's name is cached, even if the name was not found. A
server that moved, or was briefly missing in DNS, must be found before a Lease expires.
"""

_READ_AT_ONCE = 128 * 1024
_WRITTEN_AT_ONCE = 16 * 1024
"""Bytes of each handle that has sent a body, and hundreds may be idle; libcurl's default is 64 KiB."""
_CLOSING = 1.0
"""Seconds that `close` waits for connections to be closed."""

_DEFAULT_TLS = Tls()


class HttpTransport:
    """Connections to one server.

    `base_url` is scheme, host, port and an optional path before every target. `proxy` is the URL of an HTTP
    or SOCKS5 proxy. May be created outside of an event loop; belongs to the loop of its first request. Raises
    ValueError for invalid TLS settings.
    """

    def __init__(self, base_url: str, tls: Tls = _DEFAULT_TLS, *, proxy: str | None = None) -> None:
        self._given_url = base_url.rstrip("/")
        self._proxy = (proxy or "").replace(
            "socks5://", "socks5h://"
        )  # the proxy resolves names, as with Go's clients
        self._sockets = Sockets()
        self._transfers: Transfers | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._idle: list[Exchange] = []
        self.renew(tls)

    async def request(self, request: HttpRequest) -> HttpResponse:
        """One exchange. Raises TransportTimeout after `request.timeout`, TransportError if the connection failed."""
        transfers = self._transfers or self._open()
        idle = self._idle
        exchange = idle.pop() if idle else Exchange(self._curl())
        exchange.prepare(request, self._base_url + request.target, self._headers)
        answer = await exchange.run(transfers, request.timeout)
        if len(idle) < IDLE_CONNECTIONS:
            idle.append(exchange)  # to the list for its settings: `renew` starts a new one
        return answer

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[Stream]:
        """A streamed response. The connection is reused only if the body was read to its end."""
        transfers = self._transfers or self._open()
        stream = Stream(self._curl(), transfers)
        stream.prepare(request, self._base_url + request.target, self._headers)
        try:
            await stream.begin()
            yield stream
        finally:
            stream.close()

    def renew(self, tls: Tls) -> None:
        """On new connections; exchanges in progress go on. Raises ValueError, and keeps the current ones."""
        if self._given_url.startswith("https://"):
            tls.check()
        self._tls = tls
        self._base_url, self._connect_to, host = _addressed(self._given_url, tls.server_name)
        # libcurl's own headers are switched off by their bare names.
        self._headers = ["Expect:", "Accept-Encoding: identity", *([f"Host: {host}"] if host else [])]
        self._idle = []

    def abort(self) -> None:
        """Resets every connection so that the kernel discards undelivered data: from now on no earlier write
        arrives, and no further one is sent. May be called from any thread; if the loop is blocked, the
        reset happens when the process ends.
        """
        self._closed = True
        if (transfers := self._transfers) is not None:
            transfers.halt()
        self._sockets.abort()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._close)

    async def close(self) -> None:
        """Exchanges in progress, and later ones, fail. A DNS lookup may keep connections a while longer."""
        if (closing := self._close()) is not None:
            await asyncio.wait([asyncio.wrap_future(closing)], timeout=_CLOSING)

    def _close(self) -> Call[None] | None:
        self._closed = True
        self._idle = []
        transfers, self._transfers = self._transfers, None
        return transfers.close("the client is closed") if transfers is not None else None

    def _open(self) -> Transfers:
        if self._closed:
            raise TransportClosed("the client is closed", sent=False)
        self._loop = asyncio.get_running_loop()
        try:
            self._transfers = Transfers()
        except (OSError, pycurl.error) as error:
            raise TransportError(exhausted() or str(error), sent=False) from error
        return self._transfers

    def _curl(self) -> pycurl.Curl:
        curl = pycurl.Curl()
        for option, value in (
            (pycurl.NOSIGNAL, 1),
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
            (pycurl.PATH_AS_IS, 1),
            (pycurl.USERAGENT, ""),
            (pycurl.PROXY, self._proxy),  # "": not the environment's
            (pycurl.NOPROXY, ""),
            (pycurl.BUFFERSIZE, _READ_AT_ONCE),
            (pycurl.UPLOAD_BUFFERSIZE, _WRITTEN_AT_ONCE),
            (pycurl.MAXAGE_CONN, IDLE_LIFETIME),
            (pycurl.DNS_CACHE_TIMEOUT, LOOKUP_LIFETIME),
            (pycurl.SOCKOPTFUNCTION, self._sockets.opened),
        ):
            curl.setopt(option, value)
        if self._connect_to:
            curl.setopt(pycurl.CONNECT_TO, [self._connect_to])
        if self._base_url.startswith("https://"):
            _secure(curl, self._tls)
        return curl


def _secure(curl: pycurl.Curl, tls: Tls) -> None:
    if tls.insecure:
        curl.setopt(pycurl.SSL_VERIFYPEER, 0)
        curl.setopt(pycurl.SSL_VERIFYHOST, 0)
    elif tls.ca is not None:
        curl.setopt(pycurl.CAINFO_BLOB, tls.ca.encode())
        curl.unsetopt(pycurl.CAPATH)  # the system's authorities, if libcurl was built with a folder of them
    else:
        system = ssl.get_default_verify_paths()
        if system.cafile:
            curl.setopt(pycurl.CAINFO, system.cafile)
        if system.capath:
            curl.setopt(pycurl.CAPATH, system.capath)
    if tls.certificate and tls.key:
        curl.setopt(pycurl.SSLCERT_BLOB, tls.certificate.encode())
        curl.setopt(pycurl.SSLKEY_BLOB, tls.key.encode())


def _addressed(url: str, server_name: str | None) -> tuple[str, str, str]:
    """(URL to request, where to connect instead, Host header), the last two empty without a separate server name:
    libcurl sends and verifies the host name of the URL.
    """
    parts = urlsplit(url)
    if not server_name or server_name == parts.hostname:
        return url, "", ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
    return (
        parts._replace(netloc=f"{server_name}:{port}").geturl(),
        f"::{host}:{port}",
        parts.netloc.rpartition("@")[2],
    )
