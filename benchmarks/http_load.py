"""A cheap HTTP client: HTTP/1.1 over TLS, one request in flight per connection, bodies counted and discarded.
Run it in its own process (`in_process`), so that it shares no interpreter with the program that it measures.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection as Pipe
from typing import Any, NamedTuple, TypeVar

import uvloop

T = TypeVar("T")


class Endpoint(NamedTuple):
    host: str
    port: int
    token: str

    def request(
        self, method: str, path: str, body: bytes = b"", content: str = "application/json", accept: str = ""
    ) -> bytes:
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {self.host}:{self.port}",
            f"Authorization: Bearer {self.token}",
            "User-Agent: benchmark/1",
            f"Accept: {accept or 'application/json'}",
        ]
        if body:
            lines += [f"Content-Type: {content}", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + body


class Load(NamedTuple):
    requests: int
    seconds: float
    size: int
    """The size of the last response in bytes, as transferred."""
    began: float


class _Sender(asyncio.Protocol):
    """Sends the requests of an iterator one after the other."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self._requests = requests
        self._head = b""
        self._begin = b""
        self._length: int | None = None
        self.size = self.answers = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def send(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            if not self.done.done():
                self.done.set_result(None)
            return
        self._head, self._length, self.size, self._last = b"", None, 0, b""
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.size += len(data)
        if self._length is None:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._head[:end].lower()
            if not head.startswith(b"http/1.1 20"):
                self.connection_lost(RuntimeError(f"unexpected answer: {self._head[:600]!r}"))
                return
            at = head.find(b"content-length: ")
            self._length = end + 4 + int(head[at + 16 :].partition(b"\r")[0]) if at >= 0 else 0
        self._last = (self._last + data)[-5:]
        if self.size == self._length or (not self._length and self._last == b"0\r\n\r\n"):
            self.answers += 1
            self.send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or RuntimeError("connection closed"))


async def send_all(endpoint: Endpoint, requests: Iterator[bytes], connections: int) -> Load:
    """Sends all requests over the given number of concurrent connections."""
    loop = asyncio.get_running_loop()
    senders = []
    for _ in range(connections):
        _, sender = await loop.create_connection(
            lambda: _Sender(requests), endpoint.host, endpoint.port, ssl=untrusting()
        )
        senders.append(sender)
    began = time.perf_counter()
    for sender in senders:
        sender.send()
    await asyncio.gather(*(sender.done for sender in senders))
    seconds = time.perf_counter() - began
    size = max(sender.size for sender in senders)
    return Load(sum(sender.answers for sender in senders), seconds, size, began)


class _Watcher(asyncio.Protocol):
    """Counts events until it has received the given number."""

    def __init__(self, request: bytes, events: int) -> None:
        self._request = request
        self._left = events
        self._last = b""
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[float | None] = loop.create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self.begun.done():
            if not data.startswith(b"HTTP/1.1 200"):
                self.begun.set_exception(RuntimeError(f"unexpected answer: {data[:600]!r}"))
                return
            self.begun.set_result(None)
        # Lines end in LF alone; CR LF is HTTP's: headers, and chunks, which may begin anywhere in a line.
        whole = self._last + data
        self._left -= data.count(b"\n") - whole.count(b"\r\n")
        self._last = data[-1:] if data.endswith(b"\r") else b""
        if self._left <= 0 and not self.done.done():
            self.done.set_result(time.perf_counter())
            self._transport.close()
        elif data.endswith(b"0\r\n\r\n"):
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


class Watched(NamedTuple):
    ended: float
    again: int
    """How often a watcher was disconnected and started over."""


async def watch_all(
    endpoint: Endpoint, paths: Sequence[str], events: int, begun: Callable[[], None]
) -> Watched:
    """Watches each path. Returns when the last watcher has received all events; calls `begun` once all of them are
    watching.
    """
    loop = asyncio.get_running_loop()

    async def watcher(path: str) -> _Watcher:
        request = endpoint.request("GET", path)

        _, made = await loop.create_connection(
            lambda: _Watcher(request, events), endpoint.host, endpoint.port, ssl=untrusting()
        )
        await made.begun
        return made

    async def outcome(path: str, one: _Watcher) -> Watched:
        again = 0
        while (ended := await one.done) is None:
            again += 1
            one = await watcher(path)
        return Watched(ended, again)

    watching = await asyncio.gather(*map(watcher, paths))
    begun()
    outcomes = await asyncio.gather(*map(outcome, paths, watching))
    return Watched(max(one.ended for one in outcomes), sum(one.again for one in outcomes))


def untrusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Remote:
    """A function that runs in another process: its progress messages, and its result."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_run, args=(theirs, function, arguments))
        self._process.start()
        theirs.close()

    def told(self) -> Any:
        """Returns the next message, or the result at the end."""
        told = self._pipe.recv()
        if isinstance(told, Exception):
            raise told
        return told

    def result(self) -> Any:
        result = self.told()
        self._process.join()
        return result

    def stop(self) -> None:
        """Ends the function, whatever it is doing."""
        self._process.terminate()
        self._process.join()


def in_process(function: Callable[..., T], *arguments: Any) -> T:
    result: T = Remote(function, *arguments).result()
    return result


def _run(pipe: Pipe, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        pipe.send(function(*arguments, *([pipe.send] if function in TELLING else [])))
    except Exception as error:
        pipe.send(RuntimeError(f"{type(error).__name__}: {error}"))


def watch_in_process(
    endpoint: Endpoint, paths: Sequence[str], events: int, tell: Callable[[Any], None]
) -> Watched:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(watch_all(endpoint, paths, events, lambda: tell("begun")))


TELLING = (watch_in_process,)
