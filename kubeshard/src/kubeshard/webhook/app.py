"""The admission webhook as an ASGI application.

| request | response |
|---|---|
| path outside all routes | 404 |
| more than `max_in_flight` requests being read or decided | 503 at once, if none of them waits for its body |
| its body is not complete, and its place or its memory is needed (`bodies`) | 503, the rest is not read |
| not POST | 405 |
| Content-Encoding other than identity, Content-Type other than application/json (parameters allowed) | 415 |
| body longer than `max_body`, declared or sent | 413, the rest is not read |
| no valid AdmissionReview | 400 |
| a handler that fails, under "Fail" | 500; counted and logged |
| a handler that fails, under "Ignore" | 200, allowed, with a warning; counted and logged |
| any other | 200 with the handler's answer |

A handler fails if it raises, returns something other than an answer, or, if it is `async`, takes longer than the API
server waits (the `timeout` in the URL). Responses other than 200 are call failures for the API server, to which the
failurePolicy of the webhook's registration applies. They close the connection, except for 500 and 503. A response
contains only the name of an exception. The server handles slow clients (`kubeshard.runtime.asgi.Limits`).

A plain ASGI callable: runs in memory under a simulator as well as under any server. `AsgiServer` first calls `direct`,
which answers requests that do not need to wait.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from kubeshard.runtime.asgi import JSON_RESPONSE, AsgiApp, DirectAnswer, Fields, Message, Receive, Scope, Send
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import awaited_apart
from kubeshard.webhook.bodies import MAX_BYTES, Bodies, Body, NoRoom, give_up_oldest
from kubeshard.webhook.metrics import RouteMetrics, WebhookMetrics
from kubeshard.webhook.review import (
    AdmissionAnswer,
    AdmissionHandler,
    InvalidReview,
    Review,
    decode_review,
    encode_review,
)

MAX_BODY = 7 * 1024 * 1024
"""Bytes: two objects of at most 3 MiB each and the rest of the review, the limit of Go's webhook servers."""

MAX_IN_FLIGHT = 256

MAX_PATIENCE = 30.0
"""Seconds that an `async` handler may take; no API server waits longer."""

_TIMEOUT = re.compile(rb"(?:^|&)timeout=(\d{1,9}(?:\.\d{1,9})?)s(?:&|$)")

_LOG = get_logger("kubeshard.webhook")


@dataclass(frozen=True, slots=True)
class Webhook:
    """A handler, and what happens when it fails.

    "Fail": the call fails, and the API server applies the `failurePolicy` of the webhook's registration; if that is
    `Ignore`, users do not notice. "Ignore": the request is allowed and its user gets a warning, whatever the
    registration says.
    """

    handler: AdmissionHandler
    on_failure: Literal["Fail", "Ignore"] = "Fail"


@runtime_checkable
class Reviewer(Protocol):
    """Handles reviews other than admission, such as conversion."""

    max_body: int
    max_in_flight: int
    """Concurrent requests of this route; more get 503. With `max_body` it bounds the memory that clients can use."""

    async def answer(self, body: bytes | bytearray, failed: Callable[[], None], patience: float) -> bytes:
        """Within `patience` seconds. `failed` counts failures of the functions behind it. Raises InvalidReview."""
        ...


Routes = Mapping[str, AdmissionHandler | Webhook | Reviewer]
"""Webhooks by path prefix; a handler alone is a `Webhook` under "Fail"."""


class AdmissionApp:
    """Serves each webhook at the paths that begin with its prefix; if several prefixes match, the longest one wins."""

    def __init__(
        self,
        routes: Routes,
        *,
        clock: Clock,
        metrics: WebhookMetrics | None = None,
        max_body: int = MAX_BODY,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._metrics = metrics or WebhookMetrics()
        self._elsewhere = self._metrics.route("")
        self._bodies = Bodies(max_bytes)
        self._routes = [
            self._new_route(prefix, _webhook(routes[prefix]), max_bytes)
            for prefix in sorted(routes, key=len, reverse=True)
        ]
        self._max_body = max_body
        self._max_in_flight = max_in_flight
        self._clock = clock
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        route = self._route(path)
        if route is None:
            self._elsewhere.observe(404, 0.0)
            await _refuse(send, 404, "no webhook at this path")
            return
        if not self._has_place(route):
            route.numbers.observe(503, 0.0)
            await _refuse(send, 503, "too many requests in flight", close=False)
            return
        await self._answer(route, send, self._read(route, scope, receive, path))

    def direct(self, method: bytes, url: bytes, headers: Fields) -> DirectAnswer | None:
        """See `DirectApp`: answers proper requests whose handler is not `async`."""
        path = url.partition(b"?")[0].decode("latin-1")
        route = self._route(path)
        if (
            route is None
            or not isinstance(route.webhook, Webhook)
            or method != b"POST"
            or not path.isascii()
            or "%" in path
            or not _is_plain_json(headers)
        ):
            return None
        return partial(self._answer_directly, route, route.webhook, path)

    def _answer_directly(
        self, route: _Route, webhook: Webhook, path: str, body: bytes, _: Scope
    ) -> bytes | AsgiApp:
        if self._in_flight >= self._max_in_flight or len(body) > self._max_body:
            return self
        began = self._clock.monotonic()
        found: bytes | Awaitable[AdmissionAnswer] | _Refused
        try:
            review = decode_review(body, path)
            found = self._decide(webhook, review)
        except InvalidReview:
            return self
        except _Refused as refused:
            found = refused
        if isinstance(found, bytes):
            route.numbers.observe(200, self._clock.monotonic() - began)
            return JSON_RESPONSE % (len(found), found)

        async def later(scope: Scope, receive: Receive, send: Send) -> None:
            await self._answer(route, send, self._awaited(webhook, review, found, _patience(scope)))

        return later

    def _new_route(self, prefix: str, webhook: Webhook | Reviewer, max_bytes: int) -> _Route:
        bodies = self._bodies
        if isinstance(webhook, Reviewer):  # its bodies may be larger, and must not keep others out
            bodies = Bodies(max(max_bytes, webhook.max_body))
        return _Route(prefix, webhook, self._metrics.route(prefix), bodies)

    def _route(self, path: str) -> _Route | None:
        return next((route for route in self._routes if path.startswith(route.prefix)), None)

    def _has_place(self, route: _Route) -> bool:
        """Whether one more request may be read, perhaps after an unfinished body has been given up for it."""
        if _is_full(route):
            return give_up_oldest([route.bodies])
        return self._in_flight < self._max_in_flight or give_up_oldest({each.bodies for each in self._routes})

    async def _answer(self, route: _Route, send: Send, work: Coroutine[Any, Any, bytes | None]) -> None:
        began = self._clock.monotonic()
        self._in_flight += 1
        route.numbers.in_flight += 1
        code = _GONE
        try:
            code = await _sent(send, work)
        finally:
            self._in_flight -= 1
            route.numbers.in_flight -= 1
            route.numbers.observe(code, self._clock.monotonic() - began)

    async def _read(self, route: _Route, scope: Scope, receive: Receive, path: str) -> bytes | None:
        """The answer, or None if the client left. Raises InvalidReview, _Refused."""
        webhook = route.webhook
        max_body = self._max_body if isinstance(webhook, Webhook) else webhook.max_body
        _check_headers(scope, max_body)
        # A deadline in the past ends the reading.
        limit, now = asyncio.timeout(None), asyncio.get_running_loop().time
        with route.bodies.body(lambda: limit.reschedule(now())) as held:
            try:
                async with limit:
                    body = await _read(receive, max_body, held)
            except (TimeoutError, NoRoom):
                raise _Refused(503, "the body was not complete when its memory was needed") from None
            return None if body is None else await self._answered(webhook, scope, path, body)

    async def _answered(
        self, webhook: Webhook | Reviewer, scope: Scope, path: str, body: bytes | bytearray
    ) -> bytes:
        if not isinstance(webhook, Webhook):
            return await webhook.answer(body, self._count_failure, _patience(scope))
        review = decode_review(body, path)
        answer = self._decide(webhook, review)
        if isinstance(answer, bytes):
            return answer
        return await self._awaited(webhook, review, answer, _patience(scope))

    def _decide(self, webhook: Webhook, review: Review) -> bytes | Awaitable[AdmissionAnswer]:
        try:
            answer: object = webhook.handler(review.request)
            if not isinstance(answer, AdmissionAnswer) and isinstance(answer, Awaitable):
                return answer
            return encode_review(review, _checked(answer))
        except Exception as error:
            return self._failed(webhook, review, error)

    async def _awaited(
        self, webhook: Webhook, review: Review, found: Awaitable[AdmissionAnswer] | _Refused, patience: float
    ) -> bytes:
        if isinstance(found, _Refused):
            raise found
        try:
            async with asyncio.timeout(patience):
                return encode_review(review, _checked(await awaited_apart(found)))
        except Exception as error:
            return self._failed(webhook, review, error)

    def _count_failure(self) -> None:
        self._metrics.panics += 1

    def _failed(self, webhook: Webhook, review: Review, error: BaseException) -> bytes:
        self._count_failure()
        request = review.request
        ignored, name = webhook.on_failure == "Ignore", type(error).__name__
        _LOG.crash(
            "Webhook handler failed, request allowed" if ignored else "Webhook handler failed",
            error,
            path=request.path,
            object=f"{request.namespace}/{request.name}",
        )
        if not ignored:
            raise _Refused(500, f"the webhook's handler failed: {name}") from None
        warning = f"admission webhook failed, request was let through: {name}"
        return encode_review(review, AdmissionAnswer(message="internal error", warnings=(warning,)))


class _Route(NamedTuple):
    prefix: str
    webhook: Webhook | Reviewer
    numbers: RouteMetrics
    bodies: Bodies


class _Refused(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


_GONE = 499
"""Counts requests whose client left before it had sent its request or received its answer."""

_JSON = b"application/json"
_AS_JSON = (b"content-type", _JSON)
_AS_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_CLOSE = (b"connection", b"close")


async def _sent(send: Send, work: Coroutine[Any, Any, bytes | None]) -> int:
    """The status of the response, or `_GONE`."""
    try:
        answer = await work
    except InvalidReview as error:
        await _refuse(send, 400, str(error))
        return 400
    except _Refused as refused:
        await _refuse(send, refused.code, refused.text, close=refused.code != 500)
        return refused.code
    if answer is None:
        return _GONE
    await _send(send, 200, [_AS_JSON, (b"content-length", b"%d" % len(answer))], answer)
    return 200


def check_routes(routes: Routes) -> None:
    """Raises TypeError and ValueError for routes that could never answer."""
    for prefix, given in routes.items():
        if not prefix.startswith("/"):
            raise ValueError(f"webhook {prefix!r}: its path begins with '/', as in {'/' + prefix!r}")
        if isinstance(given, Reviewer):
            continue
        if not callable(given.handler if isinstance(given, Webhook) else given):
            raise TypeError(f"webhook {prefix}: {given!r} is not a function of an AdmissionRequest")


def _webhook(given: AdmissionHandler | Webhook | Reviewer) -> Webhook | Reviewer:
    return given if isinstance(given, Webhook | Reviewer) else Webhook(given)


def _checked(answer: object) -> AdmissionAnswer:
    if not isinstance(answer, AdmissionAnswer):
        raise TypeError(f"the handler returned {type(answer).__name__}, not an AdmissionAnswer")
    return answer


def _patience(scope: Scope) -> float:
    """Seconds for which the API server waits, as stated in the URL (`?timeout=10s`)."""
    found = _TIMEOUT.search(scope.get("query_string", b""))
    return min(float(found[1]), MAX_PATIENCE) if found else MAX_PATIENCE


def _is_plain_json(headers: Fields) -> bool:
    json = False
    for name, value in headers:
        if name == b"content-type":
            json = value == _JSON
        elif name == b"content-encoding":
            return False
    return json


def _is_full(route: _Route) -> bool:
    return not isinstance(route.webhook, Webhook) and route.numbers.in_flight >= route.webhook.max_in_flight


def _check_headers(scope: Scope, max_body: int) -> None:
    if scope["method"] != "POST":
        raise _Refused(405, "an admission webhook is called with POST")
    content_type = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            content_type = value
        elif name == b"content-length":
            if not value.isdigit() or len(value) > 18:
                raise _Refused(400, "the Content-Length is not a number")
            if int(value) > max_body:
                raise _Refused(413, f"the body is longer than {max_body} bytes")
        elif name == b"content-encoding" and value.strip().lower() != b"identity":
            raise _Refused(415, "a compressed body is not accepted")
    if content_type != _JSON and content_type.partition(b";")[0].strip().lower() != _JSON:
        raise _Refused(415, "the Content-Type must be application/json")


async def _read(receive: Receive, max_body: int, held: Body) -> bytes | bytearray | None:
    """The whole body, or None if the client left. Raises NoRoom, _Refused."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > max_body:
            raise _Refused(413, f"the body is longer than {max_body} bytes")
        held.grow(len(body))
        held.complete()
        return body
    pieces = bytearray()
    while message["type"] == "http.request":
        pieces += message.get("body", b"")
        if len(pieces) > max_body:
            raise _Refused(413, f"the body is longer than {max_body} bytes")
        held.grow(len(pieces))
        if not message.get("more_body"):
            held.complete()
            return pieces
        message = await receive()
    return None


async def _refuse(send: Send, status: int, text: str, *, close: bool = True) -> None:
    body = text.encode()
    headers = [_AS_TEXT, (b"content-length", b"%d" % len(body))]
    if close:
        headers.append(_CLOSE)
    await _send(send, status, headers, body)


async def _send(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    start: Message = {"type": "http.response.start", "status": status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})
