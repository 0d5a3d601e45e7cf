"""The front as an ASGI application, for uvicorn or any other server.

Guaranteed: a watch ends when its client disconnects; when the application is stopped, watches end as if they had timed
out; a body over the size limit is rejected without being buffered.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, cast

from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver.front.gate import UNKNOWN, Peer
from kubeshard_apiserver.front.handlers import Front, Replier
from kubeshard_apiserver.front.replies import CONTROL
from kubeshard_apiserver.front.requests import LARGEST_BODY
from kubeshard_apiserver.server import ApiServer

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class ApiServerApp:
    """An ASGI application for a server or a front."""

    def __init__(self, server: ApiServer | Replier) -> None:
        self._front: Replier = Front(server) if isinstance(server, ApiServer) else server
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Ends all watches, including later ones as soon as they start. Call it on the server's event loop."""
        self._stopped.set()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = await _body(receive)
        if body is None:
            return
        reply = await self._front.reply(_request(scope, body), _peer(scope))
        headers = [(name.encode(), _header_value(value)) for name, value in reply.headers.items()]
        headers += [(b"warning", _header_value(value)) for value in reply.warning_headers]
        if reply.stream is None:
            headers.append((b"content-length", b"%d" % len(reply.body)))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        if reply.stream is None:
            await send({"type": "http.response.body", "body": reply.body})
        else:
            await self._send_stream(reply.stream, receive, send)

    async def _send_stream(self, stream: AsyncGenerator[bytes, None], receive: Receive, send: Send) -> None:
        """Sends a stream. `send` waits for a slow client; the stream ends if the client disconnects or the application
        is stopped.
        """

        async def pump() -> None:
            async for chunk in stream:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        tasks = [
            asyncio.create_task(step, name=f"stream {name}")
            for name, step in (("pump", pump()), ("gone", gone()), ("stopped", self._stopped.wait()))
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await stream.aclose()
        if not tasks[1].done() or tasks[1].cancelled():
            await send({"type": "http.response.body", "body": b""})


def _request(scope: Mapping[str, Any], body: bytes) -> HttpRequest:
    path = scope.get("raw_path") or scope["path"].encode()
    query = scope.get("query_string", b"")
    target = (path + b"?" + query if query else path).decode("latin-1")

    headers = [
        (name.decode(errors="replace"), value.decode(errors="replace")) for name, value in scope["headers"]
    ]
    return HttpRequest(scope["method"], target, cast("Mapping[str, str]", _Headers(headers)), body)


class _Headers:
    """The headers of a request, of which several may have one name."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs

    def items(self) -> list[tuple[str, str]]:
        return self._pairs


def _peer(scope: Mapping[str, Any]) -> Peer:
    chain = (scope.get("extensions") or {}).get("tls", {}).get("client_cert_chain")
    return Peer(ssl.PEM_cert_to_DER_cert(chain[0])) if chain else UNKNOWN


def _header_value(text: str) -> bytes:
    """Encodes a header value, in UTF-8 as the servers written in Go. It may contain text from users, which must not
    start a new header.
    """
    return CONTROL.sub(" ", text).encode()


async def _body(receive: Receive) -> bytes | None:
    """Reads the body; returns None if the client has disconnected. A body over the size limit is truncated just beyond
    it.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        if (part := message.get("body")) and size <= LARGEST_BODY:
            parts.append(part)
            size += len(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)
