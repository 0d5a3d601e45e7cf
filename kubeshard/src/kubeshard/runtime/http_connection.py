"""One HTTP/1.1 connection, as the server sees it: RFC 9112, with a limit for everything that a client can withhold.

Sans-IO: bytes and the time go in (`receive`, `end`, `wake`); requests in their order (`due`), bytes to write (`out`),
whether to read on (`reading`) and when to call `wake` (`wake_at`) come out. httptools cuts the bytes into parts.

A connection has two directions, and each has a state of its own. That of the client is one of these classes, which hold
what exists in that state only:

    client      what it owes                bytes                     its end (FIN)         at `deadline`
    ----------  --------------------------  ------------------------  --------------------  ----------------------
    Idle        a request, unless some      first byte of one: Head   Closed, if none is    Closed, if none is due
                are due                                               due, else HalfClosed
    Head        the rest of a head          its end: Body             like Idle             Aborted
    Body        the rest of a body          its end: Idle             Closed                Aborted
                                            a chunk's size: Trailers
    Trailers    a chunk, or trailers        content: Body             Closed                Aborted
                                            their end: Idle
    HalfClosed  nothing, and reads          not read                  -                     -
    Refused     nothing, and gets an error  not read                  -                     -
    Closed      to read what was written    not read                  -                     -
    Aborted     nothing                     not read                  -                     -

Idle, Head, Body and Trailers become Refused at bytes that are no request, or too many. HalfClosed and Refused become
Closed when no response is due any more, after the error. So an error never overtakes a response, nor lands in one.

The server's direction is `due`: requests without a complete response, of which the first is being answered. What may
come next is in `Request.response`: a 100, a head, a body framed in one of four ways, or nothing ("complete").

| rule | of |
|---|---|
| one Host in a request of HTTP/1.1 | RFC 9112 section 3.2 |
| responses have the order of the requests | 9112 section 9.3.2 |
| a request of HTTP/1.0, and `connection: close` of either side, end the connection | 9112 section 9.3, 9.6 |
| no body after HEAD, with 204 and 304 | 9112 section 6.3 |
| otherwise its length, chunks, or for HTTP/1.0 the end of the connection; never two of them | 9112 section 6.1-6.3 |
| trailers are no headers; these are dropped | 9110 section 6.5.1 |
| 100 (Continue) before the body is read, not for HTTP/1.0 | 9110 section 10.1.1 |
| an upgrade is ignored, and refused with a body, which the parser takes for the other protocol | 9110 section 7.8 |

The limits are those of `kubeshard.runtime.asgi.Limits`. A head is measured when it is complete, and before that by the
reads that brought nothing else: the parser does not say where in a read it begins.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

import httptools
from msgspec import Struct

from kubeshard.runtime.asgi import STATUS_LINES, Fields

if TYPE_CHECKING:
    from kubeshard.runtime.asgi import DirectAnswer, Limits


BUFFERED = 64 * 1024
"""Bytes of a request's body that are held for the application before reading pauses."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_NOT_IN_NAMES = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')
_NOT_IN_VALUES = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_FRAMING = (b"content-length", b"transfer-encoding")
_END = b"\r\n\r\n"


def _error(status: int, text: str = "") -> bytes:
    """A whole response, which ends the connection."""
    kind = "content-type: text/plain; charset=utf-8\r\n" if text else ""
    lines = f"{kind}content-length: {len(text)}\r\nconnection: close\r\n\r\n{text}"
    return STATUS_LINES[status] + lines.encode()


OVERLOADED, TOO_LARGE = _error(503), _error(431)
BAD_REQUEST = _error(400, "Invalid HTTP request received.")
CRASHED = _error(500, "Internal Server Error")


# The client's direction


class Open(Struct, eq=False):
    since: float
    """When the connection began, its last complete request arrived, or its last response ended."""
    deadline: float


class Idle(Open): ...


class Head(Open):
    size: int = 0
    url: bytes = b""
    headers: list[tuple[bytes, bytes]] = []


class Body(Open, kw_only=True):
    request: Request


class Trailers(Body):
    size: int = 0


class Over(Struct):
    """Nothing more is read."""

    since: float
    deadline: float = math.inf


class HalfClosed(Over): ...


class Refused(Over, kw_only=True):
    error: bytes


class Closed(Over):
    """After what was written."""


class Aborted(Closed):
    """At once."""


# The server's direction


class Sized(Struct):
    left: int

    def framed(self, data: bytes, more: bool) -> bytes:
        self.left -= len(data)
        if self.left < 0 or (self.left and not more):
            raise RuntimeError("the body of the response is longer or shorter than its content-length")
        return data


class Chunked(Struct):
    def framed(self, data: bytes, more: bool) -> bytes:
        return (b"%x\r\n%b\r\n" % (len(data), data) if data else b"") + (b"" if more else b"0\r\n\r\n")


class UntilClose(Struct):
    def framed(self, data: bytes, _: bool) -> bytes:
        return data


class Bodiless(Struct):
    def framed(self, *_: object) -> bytes:
        return b""


Response: TypeAlias = (
    Literal["after a 100", "no head yet", "complete"] | Sized | Chunked | UntilClose | Bodiless
)


class RequestHead(Struct, eq=False):
    """What a head says. The same object for all requests with the same bytes (`Heads`)."""

    method: bytes
    url: bytes
    path: bytes
    query: bytes
    version: str
    headers: Fields
    """The same object for all requests with the same header fields."""
    keep_alive: bool
    response: Response
    answer: DirectAnswer | None = None
    """What answers requests with this head (`DirectApp.direct`), if it has been asked for."""


class Request(Struct, eq=False):
    """A request, and how far its response is."""

    head: RequestHead
    keep_alive: bool
    """Whether the connection outlasts the response."""
    response: Response
    body: bytes | bytearray = b""
    """What has arrived of it and was not taken."""
    part: Literal["some", "all", "taken"] = "some"
    """How much of the body has arrived; "taken": the application has all of it."""
    awaited: bool = False
    """Whether the application waits for more."""


class Heads(dict[bytes, tuple[RequestHead, int]]):
    """Heads that were parsed before, up to their empty line, and the lengths of their bodies. Clients repeat the same
    few heads, or at least the same header fields: a request with one of them that arrives in one read, with nothing
    else, is not parsed again.

    Fields are used again only behind a request line that says nothing about them: of HTTP/1.1, with a usual method and
    target.
    """

    MOST, LONGEST = 1024, 2048

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = min(longest, self.LONGEST)
        self._with_fields: dict[bytes, tuple[RequestHead, int]] = {}

    def found(self, data: bytes) -> Request | None:
        text, _, body = data.partition(_END)
        head, length = self.get(text, (None, 0))
        if head is None:
            line, _, fields = text.partition(b"\r\n")
            alike, length = self._with_fields.get(fields, (None, 0))
            usual = alike and _USUAL_LINE(line)
            if not (alike and usual) or len(text) > self._longest:
                return None
            method, url, path, query = usual.groups()
            head = RequestHead(
                method,
                url,
                path,
                query or b"",
                alike.version,
                alike.headers,
                alike.keep_alive,
                alike.response,
            )
            _keep(self, text, head, length)
        if len(data) != len(text) + len(_END) + length:
            return None
        return Request(head, head.keep_alive, head.response, body, "all")

    def remember(self, data: bytes, request: Request) -> None:
        """The bytes that contain this request alone. A chunked one has other bytes than its body, and is left out."""
        text, _, body = data.partition(_END)
        if request.part == "all" and body == request.body and len(text) <= self._longest:
            _keep(self, text, request.head, len(body))
            line, _, fields = text.partition(b"\r\n")
            if _USUAL_LINE(line):
                _keep(self._with_fields, fields, request.head, len(body))


def _keep(kept: dict[bytes, tuple[RequestHead, int]], text: bytes, head: RequestHead, length: int) -> None:
    if len(kept) >= Heads.MOST:
        kept.clear()
    kept[text] = head, length


_IN_PATHS = rb"[\w\-.~%!$&'()*+,;=:@/]"
_USUAL_LINE = re.compile(
    rb"(GET|POST|PUT|PATCH|DELETE) ((/%b*)(?:\?((?:%b|\?)*))?) HTTP/1\.1" % (_IN_PATHS, _IN_PATHS)
).fullmatch


class HttpConnection:
    """See the module. `on_...` are the calls of the parser."""

    def __init__(self, limits: Limits, now: float, heads: Heads | None = None) -> None:
        self._limits = limits
        self._now = now
        """The time of the last input."""
        self._heads = heads
        self._parser = httptools.HttpRequestParser(self)
        self.client: Open | Over = Idle(now, now + limits.keep_alive)
        self.due: deque[Request] = deque()
        self.out: list[bytes] = []

    @property
    def wake_at(self) -> float:
        """When to call `wake`; it may be called earlier, or later."""
        return math.inf if self.due and isinstance(self.client, Idle) else self.client.deadline

    @property
    def reading(self) -> bool:
        """Whether to receive more: a slow application stops its client."""
        if not (due := self.due) or isinstance(self.client, Over):
            return not isinstance(self.client, Over)
        return len(due[-1].body) <= BUFFERED and (len(due) == 1 or due[0].awaited)

    @property
    def waiting_since(self) -> float:
        """Since when the client owes something; never (`inf`) if a response is due first."""
        served = self.due and isinstance(self.client, Idle | HalfClosed | Refused)
        return math.inf if served else self.client.since

    # From the client

    def receive(self, data: bytes, now: float) -> None:
        before, due = self.client, len(self.due)
        if isinstance(before, Over):
            return
        self._now = now
        heads = self._heads if isinstance(before, Idle) and not due else None
        if heads is not None and (known := heads.found(data)):
            self.due.append(known)
            self._proceed()
            return
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            self._refuse(TOO_LARGE if isinstance(error.__context__, _TooLarge) else BAD_REQUEST)
            return
        state = self.client
        if isinstance(state, Head | Trailers):
            begins = isinstance(before, Idle) and len(self.due) == due  # with these bytes
            state.size += len(data) if begins or state is before else 0
            if state.size > self._limits.max_header_bytes:
                self._refuse(TOO_LARGE)
        elif heads is not None and len(self.due) == 1:
            heads.remember(data, self.due[0])

    def end(self) -> None:
        """The client has closed its half of the connection; it may still read."""
        if self.due and not isinstance(self.client, Body | Over):
            self.client = HalfClosed(self.client.since)
        elif isinstance(self.client, Open):
            self.close()

    def wake(self, now: float) -> None:
        if now >= self.wake_at:
            self.close(Closed if isinstance(self.client, Idle) else Aborted)

    def drain(self) -> None:
        """The connection ends with the last response that is due."""
        if self.due:
            self.due[-1].keep_alive = False
        else:
            self.close()

    def lost(self) -> None:
        """The connection has ended, whoever ended it."""
        self.close(Aborted)
        del self._parser  # it refers to this

    def close(self, how: type[Closed] = Closed) -> None:
        if not isinstance(self.client, Closed):
            self.client = how(self.client.since)
            self.due.clear()

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                return self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:  # the requests behind it are in the same protocol
                data = data[upgrade.args[0] :]

    def _refuse(self, error: bytes) -> None:
        if isinstance(self.client, Body) and (request := self.client.request) in self.due:
            if not isinstance(request.response, str):
                self.close()  # in the middle of a response
                return
            self.due.remove(request)
        self.client = Refused(self.client.since, error=error)
        self._proceed()

    def _proceed(self) -> None:
        """A request, a response or the whole of what is read is complete."""
        client = self.client
        client.since = self._now
        if isinstance(client, Idle):
            client.deadline = self._now + self._limits.keep_alive
        elif isinstance(client, Over) and not self.due:
            if isinstance(client, Refused):
                self.out.append(client.error)
            self.close()

    # Called by the parser. What these raise becomes an HttpParserError of `feed_data`.

    def on_message_begin(self) -> None:
        if len(self.due) >= self._limits.max_pipelined:
            raise ValueError("too many requests at once")
        self.client = Head(self.client.since, self._now + self._limits.header_timeout)

    def on_url(self, url: bytes) -> None:
        assert isinstance(self.client, Head)
        self.client.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if isinstance(self.client, Head):  # a trailer must not pass for a header
            self.client.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        head, parser = self.client, self._parser
        assert isinstance(head, Head)
        headers, version = head.headers, parser.get_http_version()
        if (
            len(head.url) + sum(len(name) + len(value) + 4 for name, value in headers)
            > self._limits.max_header_bytes
        ):
            raise _TooLarge
        hosts, modern = [name for name, _ in headers].count(b"host"), version != "1.0"
        if hosts > 1 or (modern and not hosts):
            raise ValueError("not exactly one host")
        if parser.should_upgrade() and any(name in _FRAMING and value != b"0" for name, value in headers):
            raise ValueError("the parser takes the body for the other protocol")
        url = httptools.parse_url(head.url)
        if not url.path:
            raise ValueError("no path")
        expects = modern and any(
            name == b"expect" and value.lower() == b"100-continue" for name, value in headers
        )
        response: Response = "after a 100" if expects else "no head yet"
        kept = modern and parser.should_keep_alive()
        method, query = parser.get_method(), url.query or b""
        parsed = RequestHead(method, head.url, url.path, query, version, Fields(headers), kept, response)
        request = Request(parsed, kept, response, bytearray())
        self.due.append(request)
        self.client = Body(head.since, self._now + self._limits.body_timeout, request=request)

    def on_chunk_header(self) -> None:
        body = self.client
        assert isinstance(body, Body)
        self.client = Trailers(body.since, body.deadline, request=body.request)

    def on_body(self, data: bytes) -> None:
        body = self.client
        assert isinstance(body, Body)
        if isinstance(body, Trailers):
            self.client = Body(body.since, body.deadline, request=body.request)
        if body.request.response != "complete":
            body.request.body += data  # in place: a bytearray

    def on_message_complete(self) -> None:
        assert isinstance(self.client, Body)
        self.client.request.part = "all"
        self.client = Idle(self._now, self._now + self._limits.keep_alive)

    # From the application, about the first request that is due. Once the connection is closed nothing happens.

    def take(self, request: Request) -> tuple[bytes, bool] | None:
        """What has arrived of the body, and whether there is more to come; None: nothing yet. Raises EOFError when
        nothing more will come."""
        taken = request.part == "taken"
        if self.is_over(request) or (taken and isinstance(self.client, HalfClosed)):
            raise EOFError("disconnected")
        if request.response == "after a 100":
            request.response = "no head yet"
            self.out.append(CONTINUE)
        request.awaited = taken or (request.part == "some" and not request.body)
        if request.awaited:
            return None
        more, body = request.part == "some", bytes(request.body)
        request.part, request.body = "some" if more else "taken", bytearray()
        return body, more

    def is_over(self, request: Request) -> bool:
        return isinstance(self.client, Closed) or request.response == "complete"

    def respond(self, request: Request, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """The head of the response. Raises RuntimeError, ValueError if it cannot be sent."""
        if isinstance(self.client, Closed):
            return
        if request.response not in ("after a 100", "no head yet"):
            raise RuntimeError("a second head of a response")
        lines, closes = [STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status], False
        response: Response = UntilClose() if request.head.version == "1.0" else Chunked()
        for name, value in headers:
            if _NOT_IN_NAMES.search(name) or _NOT_IN_VALUES.search(value):
                raise RuntimeError(f"invalid header {name!r}")
            name = name.lower()
            if name == b"transfer-encoding":
                continue  # it is ours
            if name == b"content-length":
                response = Sized(int(value))
            elif name == b"connection":
                closes = closes or b"close" in (token.strip() for token in value.lower().split(b","))
            lines += (name, b": ", value, b"\r\n")
        last = isinstance(self.client, HalfClosed) and request is self.due[-1]
        request.keep_alive = request.keep_alive and not (closes or last)
        if not (request.keep_alive or closes):
            lines.append(b"connection: close\r\n")
        if request.head.method == b"HEAD" or status in (204, 304):
            response = Bodiless()
        elif isinstance(response, Chunked):
            lines.append(b"transfer-encoding: chunked\r\n")
        request.response = response
        self.out.append(b"".join([*lines, b"\r\n"]))

    def send(self, request: Request, data: bytes, more: bool, now: float) -> None:
        """A part of the response's body. Raises RuntimeError if it cannot be sent."""
        if isinstance(self.client, Closed):
            return
        if isinstance(request.response, str):
            raise RuntimeError("a body before or after its response")
        self._now = now
        self.out.append(request.response.framed(data, more))
        if not more:
            self._answered(request)

    def answer(self, request: Request, response: bytes) -> None:
        """The whole response, at the time of the last input."""
        self.out.append(response)
        self._answered(request)

    def fail(self, request: Request) -> None:
        """There will be no response, or no more of it."""
        if self.is_over(request):
            return
        if isinstance(request.response, str):
            self.out.append(CRASHED.partition(b"Internal")[0] if request.head.method == b"HEAD" else CRASHED)
        self.close()

    def _answered(self, request: Request) -> None:
        request.response = "complete"
        self.due.popleft()
        if request.keep_alive:
            self._proceed()
        else:
            self.close()


class _TooLarge(Exception): ...
