"""One HTTP/1.1 connection of a client: bytes between the event loop and `Answer`, one exchange at a time.

Guaranteed: whoever waits for an answer is woken when it is there or never will be; after a failure every use
raises it; a stream that nobody takes from is not read beyond a bound. Bytes that nobody asked for end the
connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kubeshard.runtime.http1 import Answer, Malformed, Stage
from kubeshard.runtime.transport import TransportError

_HIGH_WATER = 1 << 20
"""Bytes of a stream that wait for their consumer before the socket is left alone."""


class Connection(asyncio.Protocol):
    """`opened` and `ended` are called when the socket is connected and closed."""

    def __init__(
        self, opened: Callable[[Connection], None], ended: Callable[[Connection], None], generation: int = 0
    ) -> None:
        self.generation = generation
        self.transport: asyncio.Transport | None = None
        self._opened = opened
        self._ended = ended
        self._answer: Answer | None = None
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._buffered = 0
        self._paused = False
        self._streaming = False
        """Whether the body is taken piece by piece, so that each piece wakes who waits."""

    # For the transport and streams

    def send(self, data: bytes, method: str) -> Answer:
        """Begins an exchange."""
        if self.transport is None or self._error is not None:
            raise self._error or TransportError("the connection was closed", sent=False)
        self._answer = Answer(method)
        self.transport.write(data)
        return self._answer

    async def until_ended(self) -> None:
        """Waits for the whole answer."""
        answer = self._answer
        assert answer is not None
        while answer.stage is not Stage.ENDED:
            await self._progress()

    async def until_begun(self) -> None:
        """Waits for the head; from then on the body is read as it is taken."""
        answer = self._answer
        assert answer is not None
        self._streaming = True
        while not answer.status:
            await self._progress()

    async def pieces(self) -> list[bytes]:
        """What has come of the body since the last call, at least one piece; nothing at the end."""
        answer = self._answer
        assert answer is not None
        while not answer.pieces and answer.stage is not Stage.ENDED:
            await self._progress()
        pieces, answer.pieces = answer.pieces, []
        self._buffered = 0
        if self._paused and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()
        return pieces

    def finish(self) -> bool:
        """Ends the exchange; whether another one can follow."""
        answer, self._answer = self._answer, None
        self._streaming = False
        return (
            answer is not None
            and answer.stage is Stage.ENDED
            and answer.reusable
            and self._error is None
            and not self._paused
        )

    def abort(self) -> None:
        if self._error is None:
            self._error = TransportError("the client closed the connection")
        if self.transport is not None:
            self.transport.abort()
        self._wake()

    async def _progress(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # For the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment] # of a stream socket
        self._opened(self)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            self._fail(Malformed("bytes without a request"))
            return
        try:
            answer.feed(data)
        except Malformed as error:
            self._fail(error)
            return
        if self._streaming:
            self._buffered += len(data)
            if self._buffered > _HIGH_WATER and not self._paused and self.transport is not None:
                self._paused = True
                self.transport.pause_reading()
            self._wake()
        elif answer.stage is Stage.ENDED:
            self._wake()

    def eof_received(self) -> None:
        """The event loop closes the connection."""

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._ended(self)
        try:
            if error is None and self._answer is not None:
                self._answer.finish()
        except Malformed as malformed:
            error = malformed
        self._fail(error or ConnectionResetError("the connection was closed"))

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        if self.transport is not None:
            self.transport.abort()
        self._wake()
