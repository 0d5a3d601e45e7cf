"""One request and its response on a libcurl handle: complete, or streamed.

Guaranteed: a request is sent at most once. libcurl would resend it when a kept-alive connection turns out
to be broken; it calls back before every send, and the second one is refused.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache

import pycurl

from kubeshard.runtime.curl_transfers import Transfers
from kubeshard.runtime.open_files import exhausted
from kubeshard.runtime.transport import (
    HttpRequest,
    HttpResponse,
    TransportClosed,
    TransportError,
    TransportTimeout,
    TransportUnverified,
)

_MAY_LACK_FILES = frozenset(
    {
        pycurl.E_COULDNT_CONNECT,
        pycurl.E_COULDNT_RESOLVE_HOST,
        pycurl.E_COULDNT_RESOLVE_PROXY,
        pycurl.E_FAILED_INIT,
        pycurl.E_OUT_OF_MEMORY,
        pycurl.E_SSL_CACERT_BADFILE,
        pycurl.E_SSL_CONNECT_ERROR,
    }
)
"""How libcurl says, among other things, that it could not open a socket or a file."""

_BUFFERED = 256 * 1024
"""Bytes of a stream that are buffered for a slow reader before back-pressure on the server."""

_RESOLUTION = 0.001
"""Seconds by which event loops call timers too early."""


class Sending:
    """The heads of request and response, and the end of a transfer. `curl` has its connection's options already."""

    def __init__(self, curl: pycurl.Curl) -> None:
        self.curl = curl
        self.head: list[bytes] = []
        self._sent = False
        self._refused = False
        """Whether libcurl tried to send the request again."""
        self._request = HttpRequest("GET", "/", {})
        self._method = ""
        self._set: tuple[dict[str, str], list[str]] | None = None
        """The headers that are already set on the handle, if they are in a dict."""
        curl.setopt(pycurl.PREREQFUNCTION, self._leaves)

    def prepare(self, request: HttpRequest, url: str, headers: list[str]) -> None:
        """Raises TransportError for headers that cannot be sent."""
        self._request = request
        self._sent = self._refused = False
        curl = self.curl
        if type(request.headers) is not dict or self._set != (request.headers, headers):
            self._set_headers(request.headers, headers)
        curl.setopt(pycurl.URL, url)
        if request.method == "HEAD":
            curl.setopt(pycurl.NOBODY, 1)
        elif request.body is None:
            curl.setopt(pycurl.HTTPGET, 1)
        else:
            if self._method == "HEAD":
                curl.setopt(pycurl.NOBODY, 0)  # these do not reset it, unlike HTTPGET
            curl.setopt(pycurl.POSTFIELDS, request.body)
        if request.method != self._method:
            curl.setopt(pycurl.CUSTOMREQUEST, request.method)
            self._method = request.method

    def _set_headers(self, given: Mapping[str, str], always: list[str]) -> None:
        lines = [*always, *(f"{name}: {value}" if value else f"{name};" for name, value in given.items())]
        written = "".join(lines)
        if "\r" in written or "\n" in written or "\0" in written:
            raise self.error("a header has a line break in it")
        self.curl.setopt(pycurl.HTTPHEADER, lines if written.isascii() else [line.encode() for line in lines])
        self._set = (dict(given), always) if type(given) is dict else None

    def _leaves(self, *_: object) -> int:
        """libcurl's call before the request is written to a connection."""
        if self._sent:
            self._refused = True
            return pycurl.PREREQFUNC_ABORT
        self._sent = True
        self.head.clear()  # a proxy's response to CONNECT
        return pycurl.PREREQFUNC_OK

    def failure(self, code: int, words: str) -> TransportError:
        answered = self.curl.getinfo(pycurl.HTTP_CONNECTCODE)
        if not self._sent and answered >= 300:
            return self.error(f"the proxy answered {answered}")
        if self._refused:
            return self.error("the server closed the kept connection")
        if code == pycurl.E_OPERATION_TIMEDOUT:
            return self.timeout()
        if code == pycurl.E_ABORTED_BY_CALLBACK:
            return self.error(words, TransportClosed)
        if code == pycurl.E_PEER_FAILED_VERIFICATION:
            said = words.removeprefix("SSL certificate OpenSSL verify result: ")
            return self.error(f"certificate verify failed: {said}", TransportUnverified)
        if code == pycurl.E_COULDNT_RESOLVE_PROXY and "syntax" in words:
            words = "the URL of the proxy cannot be used"  # libcurl's message would include its password
        return self.error(words or "the connection broke")

    def error(self, words: str, kind: type[TransportError] = TransportError) -> TransportError:
        where = f"{self._request.method} {self._request.target.partition('?')[0]}"
        return kind(f"{where}: {words}", sent=self._sent)

    def timeout(self) -> TransportError:
        return self.error("no answer in time", TransportTimeout)


class Exchange(Sending):
    """A request with a complete response. Reused until an error."""

    def __init__(self, curl: pycurl.Curl) -> None:
        super().__init__(curl)
        self._body: list[bytes] = []
        self._ended: asyncio.Future[None] | None = None
        curl.setopt(pycurl.HEADERFUNCTION, self.head.append)
        curl.setopt(pycurl.WRITEFUNCTION, self._body.append)

    async def run(self, transfers: Transfers, timeout: float | None) -> HttpResponse:
        """Raises TransportError, TransportTimeout; the handle cannot be used again then, or after a cancellation."""
        self.head.clear()
        self._body.clear()
        self._ended = ended = transfers.loop.create_future()
        transfers.start(self.curl, self._end, timeout)
        try:
            await ended
        finally:
            transfers.cancel(self.curl)
        body = b"".join(self._body)
        self._body.clear()  # it may take long until the next request
        return HttpResponse(*_read_head(self.head), body)

    def _end(self, code: int, words: str) -> None:
        if self._ended is not None and not self._ended.done():
            if code == pycurl.E_OK:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(self.failure(code, _lacking_files(code) or words))


class Stream(Sending):
    """A response with a streamed body (`transport.HttpStream`)."""

    def __init__(self, curl: pycurl.Curl, transfers: Transfers) -> None:
        super().__init__(curl)
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self._transfers = transfers
        self._pieces: deque[bytes] = deque()
        self._buffered = 0
        self._paused = False
        self._ended: tuple[int, str] | None = None
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        """The future of the task that waits for data."""
        self._late = math.inf
        """The deadline of its wait (the loop's time)."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = math.inf
        curl.setopt(pycurl.HEADERFUNCTION, self._header)
        curl.setopt(pycurl.WRITEFUNCTION, self._received)

    async def begin(self) -> None:
        """Returns when the response's headers have arrived. Raises TransportError, TransportTimeout."""
        self._transfers.start(self.curl, self._end)
        if not self.status and self._ended is None:
            await self._wait(self._request.timeout)
        if not self.status:
            raise self._how_it_ended()

    def close(self) -> None:
        self._stop_timer()
        self._transfers.cancel(self.curl)

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            if self._pieces:
                data = b"".join(self._pieces)
                self._pieces.clear()
                self._buffered = 0
                if self._paused:
                    self._paused = False
                    self._transfers.resume(self.curl)
                yield data
            elif self._ended is None:
                await self._wait(self._request.idle_timeout)
            elif self._ended[0] == pycurl.E_OK:
                return
            else:
                raise self._how_it_ended()

    async def read(self) -> bytes:
        try:
            async with asyncio.timeout(self._request.timeout):
                return b"".join([chunk async for chunk in self.chunks()])
        except TimeoutError:
            raise self.timeout() from None

    async def _wait(self, timeout: float | None) -> None:
        """Returns when data arrived or the transfer ended. Raises TransportTimeout."""
        # Every event of a watch waits here: one timer serves many waits, since nearly all end long before it.
        self._late = math.inf if timeout is None else self._loop.time() + timeout
        if self._late < self._timer_due:
            self._set_timer()
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _set_timer(self) -> None:
        self._stop_timer()
        self._timer_due = self._late
        self._timer = self._loop.call_at(self._late, self._check_deadline)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_due = None, math.inf

    def _check_deadline(self) -> None:
        self._timer, self._timer_due = None, math.inf
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() + _RESOLUTION >= self._late:
            self._waiter.set_exception(self.timeout())
        elif self._late < math.inf:
            self._set_timer()

    def _news(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _how_it_ended(self) -> TransportError:
        code, words = self._ended or (pycurl.E_OK, "")
        return self.failure(code, words)

    def _header(self, line: bytes) -> None:
        if self.status:
            return  # a trailer
        self.head.append(line)
        if self._sent and not line.strip():
            status, headers = _read_head(self.head)
            if _is_final(status):
                self.status, self.headers = status, headers
                self._news()

    def _received(self, data: bytes) -> int | None:
        if self._buffered >= _BUFFERED:
            self._paused = True
            return int(pycurl.WRITEFUNC_PAUSE)
        self._pieces.append(data)
        self._buffered += len(data)
        self._news()
        return None

    def _end(self, code: int, words: str) -> None:
        self._ended = (code, _lacking_files(code) or words)
        self._news()


def _lacking_files(code: int) -> str:
    """What to do, if that is the cause. Only certain in the moment of the failure."""
    return exhausted() if code in _MAY_LACK_FILES else ""


def _is_final(status: int) -> bool:
    """Whether this is the final response; after 101 the connection switches to another protocol."""
    return status >= 200 or status == 101


def _read_head(lines: list[bytes]) -> tuple[int, dict[str, str]]:
    """Of the final response: interim ones precede it, trailers follow it. Repeated values are joined by commas."""
    status = 0
    headers: dict[str, str] = {}
    for line in lines:
        if not status:
            status = int(line.split(None, 2)[1])
        elif (header := _header(line) if len(line) <= _REMEMBERED_LENGTH else _read_header(line)) is not None:
            name, value = header
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        elif _is_final(status):
            break
        else:
            status, headers = 0, {}
    return status, headers


def _read_header(line: bytes) -> tuple[str, str] | None:
    """In UTF-8, as all programs written in Go send text: RFC 9110 names no encoding beyond ASCII."""
    name, colon, value = line.decode(errors="replace").partition(":")
    return (name.lower(), value.strip()) if colon else None


_REMEMBERED_LENGTH = 100
_header = lru_cache(maxsize=128)(_read_header)
"""Cached: a server sends the same lines in nearly every response."""
