"""A TCP proxy that breaks connections as networks do. Each client has a way of its own, with faults of its own.

Guaranteed: bytes arrive complete and in order, or the connection ends; what a hold keeps back arrives when it is over,
however late and even if the sender has gone by then; a server hears of that `LINGER` seconds later, because an API
server gives up a request whose sender has gone. That is more than a real network does: the harshest case for a client
that relies on its late writes not to land.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_CHUNK = 65_536
LINGER = 2.0
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of a socket that is closed with a reset."""

Address = tuple[str, int]


@dataclass
class Faults:
    """What is wrong with a way at the moment."""

    hold_requests: bool = False
    """What the client sends does not arrive yet."""
    hold_answers: bool = False
    delay: float = 0.0
    """Seconds that bytes take in each direction."""
    refuse: bool = False
    """New connections are reset."""
    cut_after: int | None = None
    """So many more bytes of answers arrive on each connection before it is reset; 0 for the next byte."""
    effects: int = 0
    """How often something was held back, delayed, cut, reset or refused."""


class Line:
    """One direction of a connection: what came in, and what may go out when. Sans I/O."""

    def __init__(self, faults: Faults, *, answers: bool) -> None:
        self._faults = faults
        self._answers = answers
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._end: float | None = None
        self._lingers = 0.0
        self._left: int | None = None

    def came(self, data: bytes, now: float) -> None:
        """`b""` is the end."""
        faults = self._faults
        faults.effects += bool(
            data and (self.held or faults.delay or (self._answers and faults.cut_after is not None))
        )
        if data:
            self._chunks.append((now + self._faults.delay, data))
        else:
            self._end = now + self._faults.delay
            self._lingers = LINGER if self.held else 0.0

    def take(self, now: float) -> bytes:
        """What goes out now."""
        data = bytearray()
        while not self.held and not self.cut and self._chunks and self._chunks[0][0] <= now:
            data += self._within_limit(self._chunks.popleft()[1])
        if data and self._end is not None:
            self._end = max(self._end, now + self._lingers)
        return bytes(data)

    @property
    def held(self) -> bool:
        return self._faults.hold_answers if self._answers else self._faults.hold_requests

    @property
    def cut(self) -> bool:
        """Whether the connection has to be reset now."""
        return self._answers and self._faults.cut_after is not None and self._left == 0

    def ended(self, now: float) -> bool:
        """Whether everything has gone out, and nothing will come."""
        return not self.held and not self._chunks and self._end is not None and self._end <= now

    def due(self) -> float | None:
        """When to look again; None: when something comes or a fault changes."""
        if self.held:
            return None
        return self._chunks[0][0] if self._chunks else self._end

    def _within_limit(self, data: bytes) -> bytes:
        limit = self._faults.cut_after
        if not self._answers or limit is None:
            self._left = None
            return data
        if self._left is None:
            self._left = limit
        data = data[: self._left]
        self._left -= len(data)
        return data


class Way:
    """How one client reaches servers: a port of the proxy, and `servers` in the order in which they are tried."""

    def __init__(self, servers: Sequence[Address], port: int = 0) -> None:
        self.servers = list(servers)
        self.faults = Faults()
        self._wanted = port
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._wanted)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        for connection in [*self._connections]:
            await connection.over.wait()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        return len(self._connections)

    def change(self, **faults: object) -> None:
        """Sets fields of the faults."""
        for name, value in faults.items():
            assert hasattr(self.faults, name), name
            setattr(self.faults, name, value)
        for connection in self._connections:
            connection.wake.set()

    def heal(self) -> None:
        self.change(**vars(Faults(effects=self.faults.effects)))

    def reset(self) -> None:
        """Resets all connections, at both ends."""
        self.faults.effects += len(self._connections)
        for connection in [*self._connections]:
            connection.reset()

    def half_open(self) -> None:
        """The servers' ends of all connections are gone, and the client hears nothing of it."""
        self.faults.effects += len(self._connections)
        for connection in self._connections:
            connection.sever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self.faults, reader, writer)
        if self.faults.refuse:
            self.faults.effects += 1
            connection.reset()
            return
        self._connections.add(connection)
        try:
            await connection.run([*self.servers])
        finally:
            self._connections.discard(connection)
            connection.over.set()


class _Connection:
    def __init__(self, faults: Faults, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.wake = asyncio.Event()
        self.over = asyncio.Event()
        self._faults = faults
        self._client = reader, writer
        self._server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._severed = False
        self._broken = False

    async def run(self, servers: Sequence[Address]) -> None:
        try:
            for address in servers:
                with contextlib.suppress(OSError):
                    self._server = await asyncio.open_connection(*address)
                    break
            if self._server is None or self._broken:
                return
            requests, answers = Line(self._faults, answers=False), Line(self._faults, answers=True)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._fill(self._client[0], requests))
                tasks.create_task(self._fill(self._server[0], answers))
                tasks.create_task(self._flow(requests, answers))
        finally:
            self.reset()

    def reset(self) -> None:
        self._broken = True
        for _, writer in (self._client, *([self._server] if self._server else [])):
            _reset(writer)
        self.wake.set()

    def sever(self) -> None:
        self._severed = True
        if self._server is not None:
            _reset(self._server[1])

    async def _fill(self, reader: asyncio.StreamReader, line: Line) -> None:
        data = b" "
        while data:
            try:
                data = await reader.read(_CHUNK)
            except OSError:
                data = b""
            if self._severed:  # the client is still heard, by nobody
                if not data and reader is self._client[0]:
                    self.reset()
                continue
            line.came(data, _now())
            self.wake.set()

    async def _flow(self, requests: Line, answers: Line) -> None:
        assert self._server is not None
        ways = (requests, self._server[1]), (answers, self._client[1])
        while not self._broken:
            for line, writer in ways:
                if self._severed:
                    break
                data = line.take(_now())
                if data and not writer.transport.is_closing():
                    writer.write(data)  # without waiting: one direction must not hold up the other
                if line.cut:
                    self.reset()
                    return
            # What ends on one side ends on the other: HTTP clients do not close half of a connection.
            if not self._severed and any(line.ended(_now()) for line, _ in ways):
                self._close()
                return
            dues = [due for line, _ in ways if (due := line.due()) is not None]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(dues) - _now()) if dues else None):
                    await self.wake.wait()
            self.wake.clear()

    def _close(self) -> None:
        assert self._server is not None
        for _, writer in (self._client, self._server):
            writer.close()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _reset(writer: asyncio.StreamWriter) -> None:
    found = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
