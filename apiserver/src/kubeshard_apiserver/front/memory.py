"""A Transport that calls the front directly: a client and its API server in one process, without a socket.

    server = ApiServer()
    client = Client(ClusterConfig("http://in-memory"), transport=InMemoryTransport(server))

Guaranteed: requests and answers are the bytes that would go over a connection; `abort` and `close` cut
streams and refuse what comes after. Every request yields to other tasks once, as a real one would. Timeouts of
requests do not apply: an answer does not wait for anything.
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
from kubeshard_apiserver.front.handlers import Front
from kubeshard_apiserver.front.replies import Reply
from kubeshard_apiserver.server import ApiServer


class InMemoryTransport:
    """Implements `kubeshard.runtime.transport.Transport`. `peer`: what a connection would say of this end."""

    def __init__(self, server: ApiServer | Front, *, peer: Peer = UNKNOWN) -> None:
        self._front = server if isinstance(server, Front) else Front(server)
        self._peer = peer
        self._streams: dict[_Stream, None] = {}
        """In their order: a set's order is another in every process."""
        self._closed = False

    async def request(self, request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0)
        reply = await self._reply(request)
        body = reply.body
        if reply.stream is not None:
            body = b"".join([chunk async for chunk in reply.stream])
        if request.method == "HEAD":
            body = b""
        return HttpResponse(reply.status, reply.headers, body)

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
        """There is nothing to verify."""

    def abort(self) -> None:
        """Call it on the event loop of the streams."""
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
        self._cut = asyncio.Event()

    @property
    def status(self) -> int:
        return self._reply.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._reply.headers

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
        self._cut.set()

    async def close(self) -> None:
        if self._reply.stream is not None:
            await self._reply.stream.aclose()

    async def _next(self, source: AsyncIterator[bytes]) -> bytes | None:
        """The next chunk, or None at the end. Raises TransportError when cut, TransportTimeout when idle too
        long.
        """
        chunk = asyncio.create_task(_chunk(source), name="chunk")
        cut = asyncio.create_task(self._cut.wait(), name="cut")
        try:
            done, _ = await asyncio.wait(
                (chunk, cut), timeout=self._idle_timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if cut in done:
                raise TransportError("the connection was cut")
            if not done:
                raise TransportTimeout(f"no byte for {self._idle_timeout} s")
            return chunk.result()
        finally:
            for task in (chunk, cut):
                task.cancel()
            await asyncio.gather(chunk, cut, return_exceptions=True)


async def _chunk(source: AsyncIterator[bytes]) -> bytes | None:
    return await anext(source, None)
