"""A Transport that calls the front directly, for a client and its API server in one process, without a socket.

    server = ApiServer()
    client = Client(ClusterConfig("http://in-memory"), transport=InMemoryTransport(server))

Guaranteed: requests and responses are the bytes that would go over a connection; `abort` and `close` cut streams and
reject later requests. Every request yields to other tasks once, as a real one would. Request timeouts do not apply,
because a response does not wait for anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import (
    HttpRequest,
    HttpResponse,
    HttpStream,
    TransportError,
    TransportTimeout,
)
from kubeshard_apiserver.front.gate import UNKNOWN, Peer
from kubeshard_apiserver.front.handlers import Front, Replier
from kubeshard_apiserver.front.replies import Reply
from kubeshard_apiserver.server import ApiServer


class InMemoryTransport:
    """Implements `kubeshard.runtime.transport.Transport`. `peer` is what a connection would reveal about the client."""

    def __init__(self, server: ApiServer | Replier, *, peer: Peer = UNKNOWN) -> None:
        self._front: Replier = Front(server) if isinstance(server, ApiServer) else server
        self._peer = peer
        self._streams: dict[_Stream, None] = {}
        """The open streams in order of creation; the order of a set would differ between processes."""
        self._closed = False

    async def request(self, request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0)
        reply = await self._reply(request)
        body = reply.body
        if reply.stream is not None:
            body = b"".join([chunk async for chunk in reply.stream])
        if request.method == "HEAD":
            body = b""
        return HttpResponse(reply.status, _headers(reply), body)

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpStream]:
        await asyncio.sleep(0)
        stream = _Stream(await self._reply(request), request.idle_timeout)
        self._streams[stream] = None
        try:
            yield stream
        finally:
            self._streams.pop(stream, None)
            await stream.close()

    def renew(self, tls: Tls) -> None:
        """Does nothing, because there are no certificates."""

    def abort(self) -> None:
        """Cuts all streams. Call it on their event loop."""
        for stream in tuple(self._streams):
            stream.cut()

    async def close(self) -> None:
        self._closed = True
        self.abort()

    async def _reply(self, request: HttpRequest) -> Reply:
        if self._closed:
            raise TransportError("the transport is closed", sent=False)
        return await self._front.reply(request, self._peer)


class _Stream:
    def __init__(self, reply: Reply, idle_timeout: float | None) -> None:
        self._reply = reply
        self._idle_timeout = idle_timeout
        self._cut: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def status(self) -> int:
        return self._reply.status

    @property
    def headers(self) -> Mapping[str, str]:
        return _headers(self._reply)

    async def chunks(self) -> AsyncIterator[bytes]:
        if self._reply.stream is None:
            yield self._reply.body
            return
        source = aiter(self._reply.stream)
        while (chunk := await self._next(source)) is not None:
            yield chunk

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    def cut(self) -> None:
        if not self._cut.done():
            self._cut.set_result(None)

    async def close(self) -> None:
        if self._reply.stream is not None:
            await self._reply.stream.aclose()

    async def _next(self, source: AsyncIterator[bytes]) -> bytes | None:
        """Returns the next chunk, or None at the end. Raises TransportError if the stream is cut, and TransportTimeout
        if it is idle for too long.
        """
        chunk = asyncio.create_task(_chunk(source), name="chunk")
        try:
            done, _ = await asyncio.wait(
                (chunk, self._cut), timeout=self._idle_timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if self._cut in done:
                raise TransportError("the connection was cut")
            if not done:
                raise TransportTimeout(f"no byte for {self._idle_timeout} s")
            return chunk.result()
        finally:
            if not chunk.done():
                chunk.cancel()
                await asyncio.gather(chunk, return_exceptions=True)


async def _chunk(source: AsyncIterator[bytes]) -> bytes | None:
    return await anext(source, None)


def _headers(reply: Reply) -> Mapping[str, str]:
    """As a transport returns them: the values of a repeated header joined."""
    return {**reply.headers, "warning": ", ".join(reply.warning_headers)} if reply.warnings else reply.headers
