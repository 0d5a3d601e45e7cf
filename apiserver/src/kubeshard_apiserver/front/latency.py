"""Latency between a server and its clients, for a server that is on the same machine as they are.

Guaranteed: a request takes effect half of the latency after it was sent, and its reply arrives half of the latency
later; so does every part of a stream, in order. Any number of requests travel at the same time, and so do the parts of
a stream, up to `MOST_IN_FLIGHT`: then the next part waits, so a slow reader fills no memory. Not guaranteed: less than
a millisecond of precision, and any latency in setting up a connection. Calls of webhooks are not delayed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver.front.gate import UNKNOWN, Peer
from kubeshard_apiserver.front.handlers import Front
from kubeshard_apiserver.front.replies import Reply

MOST_IN_FLIGHT = 1000


class DelayedFront:
    """A front as seen by clients whose round trip takes `latency` seconds."""

    def __init__(self, front: Front, latency: float) -> None:
        self._front = front
        self._one_way = latency / 2

    async def reply(self, request: HttpRequest, peer: Peer = UNKNOWN) -> Reply:
        await asyncio.sleep(self._one_way)
        reply = await self._front.reply(request, peer)
        await asyncio.sleep(self._one_way)
        return reply if reply.stream is None else replace(reply, stream=delayed(reply.stream, self._one_way))


async def delayed(stream: AsyncGenerator[bytes, None], seconds: float) -> AsyncGenerator[bytes, None]:
    """Yields each part of the stream this much later. The stream must not raise."""
    loop = asyncio.get_running_loop()
    in_flight: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(MOST_IN_FLIGHT)

    async def send() -> None:
        async for part in stream:
            await in_flight.put((loop.time() + seconds, part))
        await in_flight.put((loop.time() + seconds, None))

    sending = asyncio.create_task(send(), name="latency")
    try:
        while True:
            arrival, part = await in_flight.get()
            await asyncio.sleep(arrival - loop.time())
            if part is None:
                return
            yield part
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await stream.aclose()
