"""The admission webhook as an ASGI application: what is let in, what is refused, what is answered.

| request | answer |
|---|---|
| path outside of all routes | 404 |
| more than `max_in_flight` requests being read or decided | 503 at once |
| not POST | 405 |
| Content-Encoding other than identity, Content-Type other than application/json (parameters allowed) | 415 |
| body longer than `max_body`, declared or sent | 413, the rest is not read |
| no valid AdmissionReview | 400 |
| exception in the handler | 200, allowed, with a warning; counted and logged |
| else | 200 with the handler's answer |

Answers other than 200 are given only to requests that are no valid AdmissionReview, and under overload; for
the API server they are call failures, to which the webhook's failurePolicy applies. They end the connection,
except for 503. No answer holds anything of an exception but its text. Slow clients are the server's business
(`kubeshard.runtime.asgi.Limits`).

A plain ASGI callable: runs in memory under a simulator as well as under any server. Source: reliability 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kubeshard.runtime.asgi import Message, Receive, Scope, Send
from kubeshard.runtime.clock import SYSTEM_CLOCK, Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.webhook.metrics import RouteMetrics, WebhookMetrics
from kubeshard.webhook.review import (
    AdmissionAnswer,
    AdmissionHandler,
    AdmissionRequest,
    InvalidReview,
    decode_review,
    encode_review,
)

MAX_BODY = 7 * 1024 * 1024
"""Bytes: two objects of at most 3 MiB each and the rest of the review, the limit of Go's webhook servers."""

MAX_IN_FLIGHT = 256

_LOG = get_logger("kubeshard.webhook")


class AdmissionApp:
    """Serves each handler at the paths that begin with its prefix; of several matching prefixes the longest
    one counts."""

    def __init__(
        self,
        routes: Mapping[str, AdmissionHandler],
        *,
        metrics: WebhookMetrics | None = None,
        max_body: int = MAX_BODY,
        max_in_flight: int = MAX_IN_FLIGHT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._metrics = metrics or WebhookMetrics()
        self._elsewhere = self._metrics.route("")
        self._routes = [
            _Route(prefix, handler, self._metrics.route(prefix))
            for prefix, handler in sorted(routes.items(), key=lambda route: -len(route[0]))
        ]
        self._max_body = max_body
        self._max_in_flight = max_in_flight
        self._clock = clock
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        route = next((route for route in self._routes if path.startswith(route.prefix)), None)
        if route is None:
            self._elsewhere.observe(404, 0.0)
            await _refuse(send, 404, "no webhook at this path")
            return
        if self._in_flight >= self._max_in_flight:
            route.numbers.observe(503, 0.0)
            await _refuse(send, 503, "too many requests in flight", close=False)
            return
        began = self._clock.monotonic()
        self._in_flight += 1
        route.numbers.in_flight += 1
        code = _GONE
        try:
            code = await self._serve(scope, receive, send, route.handler, path)
        finally:
            self._in_flight -= 1
            route.numbers.in_flight -= 1
            route.numbers.observe(code, self._clock.monotonic() - began)

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, handler: AdmissionHandler, path: str
    ) -> int:
        """The status that was answered, or `_GONE`."""
        try:
            _check_headers(scope, self._max_body)
            body = await _read(receive, self._max_body)
            if body is None:
                return _GONE
            review = decode_review(body, path)
        except _Refused as refused:
            await _refuse(send, refused.code, refused.text)
            return refused.code
        except InvalidReview as error:
            await _refuse(send, 400, str(error))
            return 400
        answer = encode_review(review, self._decide(handler, review.request))
        await _send(send, 200, [_AS_JSON, (b"content-length", b"%d" % len(answer))], answer)
        return 200

    def _decide(self, handler: AdmissionHandler, request: AdmissionRequest) -> AdmissionAnswer:
        try:
            return handler(request)
        except Exception as error:
            self._metrics.panics += 1
            _LOG.crash(
                "Webhook handler failed, request allowed",
                error,
                path=request.path,
                object=f"{request.namespace}/{request.name}",
            )
            return AdmissionAnswer(
                message="internal error",
                warnings=(f"admission webhook failed, request was let through: {type(error).__name__}",),
            )


class _Route(NamedTuple):
    prefix: str
    handler: AdmissionHandler
    numbers: RouteMetrics


class _Refused(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


_GONE = 499
"""Counted where the client left before it had sent its request or received its answer."""

_JSON = b"application/json"
_AS_JSON = (b"content-type", _JSON)
_AS_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_CLOSE = (b"connection", b"close")


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


async def _read(receive: Receive, max_body: int) -> bytes | bytearray | None:
    """The whole body; None when the client left."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > max_body:
            raise _Refused(413, f"the body is longer than {max_body} bytes")
        return body
    pieces = bytearray()
    while message["type"] == "http.request":
        pieces += message.get("body", b"")
        if len(pieces) > max_body:
            raise _Refused(413, f"the body is longer than {max_body} bytes")
        if not message.get("more_body"):
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
