"""A Service on loopback: one address for several replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress


class Service:
    """Forwards each connection to a backend that accepts it; the latest backend is tried first."""

    def __init__(self, namespace: str, election: str) -> None:
        self.namespace = namespace
        self.election = election
        """The Lease of the replicas, in this namespace."""
        self.port = 0
        self.backends: list[int] = []
        """Ports of replicas, including those that have ended."""

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError):
            for port in reversed(self.backends):
                with suppress(OSError):
                    behind, before = await asyncio.open_connection("127.0.0.1", port)
                    break
            else:
                return
            with closing(before):
                pipes = [
                    asyncio.create_task(_pipe(reader, before)),
                    asyncio.create_task(_pipe(behind, writer)),
                ]
                await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
                for pipe in pipes:
                    pipe.cancel()


@asynccontextmanager
async def service(namespace: str, election: str = "sharder") -> AsyncIterator[Service]:
    made = Service(namespace, election)
    server = await asyncio.start_server(made.forward, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


async def _pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
