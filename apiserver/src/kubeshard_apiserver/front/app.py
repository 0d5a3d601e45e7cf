"""The front as an ASGI application, for uvicorn or any other server.

Guaranteed: a watch ends when its client disconnects; when the application is stopped, watches end as if they had timed
out; a body over the size limit is rejected without being buffered.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, cast

from kubeshard.runtime.asgi import AsgiApp, DirectAnswer, Fields, Receive, Scope, Send, Stream, response
from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver.front.gate import UNKNOWN, Peer
from kubeshard_apiserver.front.handlers import Front, Replier
from kubeshard_apiserver.front.replies import CONTROL, OpenSource, Reply
from kubeshard_apiserver.front.requests import LARGEST_BODY, SentHeaders
from kubeshard_apiserver.server import ApiServer


class ApiServerApp:
    """An ASGI application for a server or a front."""

    def __init__(self, server: ApiServer | Replier) -> None:
        front = Front(server) if isinstance(server, ApiServer) else server
        self._front: Replier = front
        self._stopped = asyncio.Event()
        self._sources: set[OpenSource] = set()
        self.direct = partial(_direct, self, front) if isinstance(front, Front) else None
        """See `kubeshard.runtime.asgi.DirectApp`: answers what has to wait for nothing."""

    def stop(self) -> None:
        """Ends all watches, including later ones as soon as they start. Call it on the server's event loop."""
        self._stopped.set()
        for source in tuple(self._sources):
            source.finish()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = await _body(receive)
        if body is None:
            return
        await self.send(await self._front.reply(_request(scope, body), _peer(scope)), receive, send)

    def push(self, source: OpenSource, reply: Reply) -> Stream:
        if self._stopped.is_set():
            source.finish()
        self._sources.add(source)
        source.open.callback(self._sources.discard, source)
        return Stream(source, reply.status, _header_fields(reply))

    async def send(self, reply: Reply, receive: Receive, send: Send) -> None:
        headers = _header_fields(reply)
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


def _direct(
    app: ApiServerApp, front: Front, method: bytes, url: bytes, headers: Fields
) -> DirectAnswer | None:
    if not url.startswith(b"/") or b"#" in url:
        return None
    if headers.read is None:
        headers.read = _headers(headers)
    verb, target, given = method.decode(), url.decode("latin-1"), headers.read

    def answer(body: bytes, connection: Scope) -> bytes | Stream | AsgiApp:
        begun = front.begin(HttpRequest(verb, target, given, body), _peer(connection))
        if isinstance(begun, Reply) and begun.stream is None:
            return response(begun.status, _header_lines(begun), begun.body)
        if isinstance(begun, Reply) and begun.source is not None:
            return app.push(begun.source, begun)

        async def rest(_: Scope, receive: Receive, send: Send) -> None:
            await app.send(begun if isinstance(begun, Reply) else await begun, receive, send)

        return rest

    return answer


def _request(scope: Mapping[str, Any], body: bytes) -> HttpRequest:
    path = scope.get("raw_path") or scope["path"].encode()
    query = scope.get("query_string", b"")
    target = (path + b"?" + query if query else path).decode("latin-1")
    return HttpRequest(scope["method"], target, _headers(scope["headers"]), body)


def _headers(fields: Iterable[tuple[bytes, bytes]]) -> Mapping[str, str]:
    given = [(name.decode(errors="replace"), value.decode(errors="replace")) for name, value in fields]
    return cast("Mapping[str, str]", SentHeaders(given))


def _peer(scope: Mapping[str, Any]) -> Peer:
    chain = (scope.get("extensions") or {}).get("tls", {}).get("client_cert_chain")
    return _peer_with(chain[0]) if chain else UNKNOWN


@lru_cache(256)
def _peer_with(certificate: str) -> Peer:
    return Peer(ssl.PEM_cert_to_DER_cert(certificate))


def _header_fields(reply: Reply) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in _headers_of(reply)]


def _header_lines(reply: Reply) -> bytes:
    return "".join([f"{name}: {value}\r\n" for name, value in _headers_of(reply)]).encode()


def _headers_of(reply: Reply) -> list[tuple[str, str]]:
    """A value may contain text from users, which must not start a new header. They are sent in UTF-8, as by the
    servers written in Go.
    """
    fields = [*reply.headers.items()]
    if reply.warnings:
        fields += [("warning", value) for value in reply.warning_headers]
    if CONTROL.search("".join([value for _, value in fields])):
        fields = [(name, CONTROL.sub(" ", value)) for name, value in fields]
    return fields


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
