"""libcurl's transfers in an asyncio event loop.

libcurl implements connections, TLS and HTTP, and leaves waiting to the program: it reports which sockets it waits for
and when it wants to be woken, and the program reports which of them are ready (its "multi socket" interface). So a
transfer needs no thread and no task.

libcurl stops waiting for a socket after every response and starts again with the next request. On Linux that is free
here: the sockets are in a separate epoll set, which is one descriptor for the event loop, and a socket that libcurl
does not wait for stays in the set until it has an event. Elsewhere every change is passed to the event loop.

Guaranteed: a transfer ends once, with libcurl's code; `Sockets.abort` and `Transfers.halt` may be called from any
thread at any time; a descriptor that was closed and reused for another socket is never mistaken for the old one: the
kernel removes a closed socket from the set, and `watch` checks with the kernel, not with its own records. Bound to the
loop in which it was created, which must be able to watch sockets (Windows' default loop cannot).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import pycurl

from kubeshard.runtime.blocking_calls import Call, in_daemon
from kubeshard.runtime.transport import UNDELIVERED

READ, WRITE = 1, 2
"""The events to wait for, and those that are ready; they can be combined."""

Ready = Callable[[Iterable[tuple[int, int]]], None]
"""Called in the loop with descriptors and what they are ready for."""


class Readiness(Protocol):
    def watch(self, descriptor: int, wanted: int) -> None:
        """Sets the events to wait for at the socket; 0: none, also before it is closed."""
        ...

    def rest(self, seconds: float) -> None:
        """The next events are reported after that, together, if that costs less."""
        ...

    def close(self) -> None: ...


def readiness(loop: asyncio.AbstractEventLoop, ready: Ready) -> Readiness:
    return EpollReadiness(loop, ready) if hasattr(select, "epoll") else LoopReadiness(loop, ready)


class EpollReadiness:
    def __init__(self, loop: asyncio.AbstractEventLoop, ready: Ready) -> None:
        self._loop = loop
        self._ready = ready
        self._wanted: dict[int, int] = {}
        self._epoll = select.epoll()
        self._rest: asyncio.TimerHandle | None = None
        loop.add_reader(self._epoll, self._poll)

    def watch(self, descriptor: int, wanted: int) -> None:
        if not wanted:
            self._wanted.pop(descriptor, None)
            return
        self._wanted[descriptor] = wanted
        events = (select.EPOLLIN if wanted & READ else 0) | (select.EPOLLOUT if wanted & WRITE else 0)
        try:
            self._epoll.modify(descriptor, events)
        except FileNotFoundError:
            self._epoll.register(descriptor, events)

    def rest(self, seconds: float) -> None:
        if self._rest is None:
            self._loop.remove_reader(self._epoll)
            self._rest = self._loop.call_later(seconds, self._go_on)

    def close(self) -> None:
        self._wanted.clear()
        if self._rest is not None:
            self._rest.cancel()
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll)
            self._epoll.close()

    def _go_on(self) -> None:
        self._rest = None
        self._loop.add_reader(self._epoll, self._poll)
        self._poll()

    def _poll(self) -> None:
        wanted, ready = self._wanted, []
        for descriptor, events in self._epoll.poll(0):
            if descriptor in wanted:
                # Errors are reported by the next read or write.
                read = 0 if events == select.EPOLLOUT else READ
                write = 0 if events == select.EPOLLIN else WRITE
                ready.append((descriptor, read | write))
            else:
                with contextlib.suppress(OSError):  # closed in the meantime
                    self._epoll.unregister(descriptor)
        if ready:
            self._ready(ready)


class LoopReadiness:
    def __init__(self, loop: asyncio.AbstractEventLoop, ready: Ready) -> None:
        self._loop = loop
        self._ready = ready
        self._wanted: dict[int, int] = {}

    def watch(self, descriptor: int, wanted: int) -> None:
        before = self._wanted.pop(descriptor, 0)
        if wanted:
            self._wanted[descriptor] = wanted
        if wanted & READ and not before & READ:
            self._loop.add_reader(descriptor, self._ready, ((descriptor, READ),))
        elif before & READ and not wanted & READ:
            self._loop.remove_reader(descriptor)
        if wanted & WRITE and not before & WRITE:
            self._loop.add_writer(descriptor, self._ready, ((descriptor, WRITE),))
        elif before & WRITE and not wanted & WRITE:
            self._loop.remove_writer(descriptor)

    def rest(self, seconds: float) -> None: ...

    def close(self) -> None:
        for descriptor in list(self._wanted):
            self.watch(descriptor, 0)


Ended = Callable[[int, str], None]
"""Called with libcurl's code (`pycurl.E_OK` is success) and message."""

IDLE_CONNECTIONS = 256
MANY, TOGETHER, LONGEST_REST = 32, 8, 0.05
"""While `MANY` requests are under way the server is the limit, and it costs nobody time if answers are handled when
some `TOGETHER` are expected, after `LONGEST_REST` seconds at most. One by one each costs two to three times as much,
since the process goes to sleep and wakes for each of them.
"""
_RESOLUTION = 0.001
"""Seconds by which event loops call timers too early."""
_TIMEOUT = ((pycurl.SOCKET_TIMEOUT, 0),)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 10),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", int(UNDELIVERED * 1000)),
)
"""A dead peer is detected on a silent connection after 25 s, and after 4 s if it does not acknowledge."""


class Sockets:
    """Those that libcurl opened. Closed ones stay; `abort` compares inodes as numbers are reused."""

    def __init__(self) -> None:
        self._inodes: dict[int, int] = {}

    def opened(self, descriptor: int, _purpose: int) -> int:
        """libcurl's call for every new socket, before it connects."""
        with _borrowed(descriptor) as sock:
            for level, name, value in _SOCKET_OPTIONS:
                if hasattr(socket, name):  # macOS lacks some
                    sock.setsockopt(level, getattr(socket, name), value)
        self._inodes[descriptor] = os.fstat(descriptor).st_ino
        return 0

    def descriptors(self) -> list[int]:
        # `list` of a dict of ints is atomic, so another thread may add to the dict concurrently.
        return [number for number, inode in list(self._inodes.items()) if _inode(number) == inode]

    def abort(self) -> None:
        """When these sockets are closed, the kernel discards undelivered data."""
        for descriptor in self.descriptors():
            with contextlib.suppress(OSError), _borrowed(descriptor) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)


class Transfers:
    """Runs `pycurl.Curl` handles. A handle is used for one transfer at a time, and again after it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._wake)
        self._multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_NOTHING)
        self._multi.setopt(pycurl.M_MAXCONNECTS, IDLE_CONNECTIONS)
        self._running: dict[Any, Ended] = {}
        self._late_at: dict[Any, float] = {}
        """When (the loop's time) those of them are late that have a timeout: all but streams."""
        self._sockets = readiness(self.loop, self._ready)
        self._timer: asyncio.Handle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_at = math.inf
        self._ended_at, self._gap = 0.0, 0.0
        """When requests have ended last, and the time between two ends while many are under way."""
        self._halted = False
        self._closed = False

    def start(self, curl: pycurl.Curl, ended: Ended, timeout: float | None = None) -> None:
        """After `timeout` seconds it ends with libcurl's code for that."""
        self._running[curl] = ended
        if timeout is not None:
            late_at = self._late_at[curl] = self.loop.time() + timeout
            if late_at < self._deadline_at:
                self._check_at(late_at)
        try:
            self._multi.add_handle(curl)
        except pycurl.error as error:
            self._forget(curl)
            ended(*_code(error))

    def cancel(self, curl: pycurl.Curl) -> None:
        """Aborts a transfer without a callback, and closes its connection; does nothing if it has ended."""
        if self._forget(curl) is not None:
            self._multi.remove_handle(curl)

    def resume(self, curl: pycurl.Curl) -> None:
        """Resumes a transfer that its receiver paused. Does not raise if it has ended."""
        if curl in self._running:
            with contextlib.suppress(pycurl.error):  # the same error ends the transfer
                curl.pause(pycurl.PAUSE_CONT)

    def halt(self) -> None:
        """Stops sending and receiving; call `close` afterwards. From any thread."""
        self._halted = True

    def close(self, why: str) -> Call[None]:
        """And closes all connections, in a thread: libcurl waits for DNS lookups, which cannot be interrupted."""
        running, self._running, self._late_at = self._running, {}, {}
        for curl, ended in running.items():
            self._multi.remove_handle(curl)
            ended(pycurl.E_ABORTED_BY_CALLBACK, why)
        if self._timer is not None:
            self._timer.cancel()
        self._check_at(math.inf)
        self._sockets.close()
        self._closed = True
        return in_daemon(self._multi.close, "closing connections")

    def _watch(self, wanted: int, descriptor: int, _multi: object, _data: object) -> None:
        """libcurl's callback with the events that it waits for at a socket."""
        if self._closed:  # in the thread that closes
            return
        # Its bits are those of `Readiness`, both ways.
        self._sockets.watch(descriptor, 0 if wanted == pycurl.POLL_REMOVE else wanted)

    def _wake(self, milliseconds: int) -> None:
        """libcurl's callback with the time at which it wants to be woken; negative: not at all."""
        if self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if milliseconds == 0:
            self._timer = self.loop.call_soon(self._ready, _TIMEOUT)
        elif milliseconds > 0:
            self._timer = self.loop.call_later(milliseconds / 1000, self._ready, _TIMEOUT)

    def _ready(self, sockets: Iterable[tuple[int, int]]) -> None:
        for descriptor, events in sockets:
            if self._halted:
                return
            self._multi.socket_action(descriptor, events)
        left, ended = 1, 0
        while left:
            left, succeeded, failed = self._multi.info_read()
            ended += len(succeeded)
            for curl in succeeded:
                self._end(curl, pycurl.E_OK, "")
            for curl, code, words in failed:
                self._end(curl, code, words)
        if ended:
            self._rest(ended)

    def _rest(self, ended: int) -> None:
        """Some requests have ended: more will soon, if many are under way."""
        now = time.monotonic()
        gap, self._ended_at = (now - self._ended_at) / ended, now
        if len(self._late_at) < MANY:
            self._gap = 0.0
        else:
            self._gap += (min(gap, LONGEST_REST) - self._gap) / TOGETHER
            self._sockets.rest(min(self._gap * TOGETHER, LONGEST_REST))

    def _check_at(self, at: float) -> None:
        """One timer serves many transfers, since nearly all end long before they are late."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_at(at, self._check) if at < math.inf else None
        self._deadline_at = at

    def _check(self) -> None:
        now, next_at = self.loop.time() + _RESOLUTION, math.inf
        for curl, late_at in tuple(self._late_at.items()):
            if late_at <= now:
                self._end(curl, pycurl.E_OPERATION_TIMEDOUT, "")
            elif late_at < next_at:
                next_at = late_at
        self._check_at(next_at)

    def _end(self, curl: pycurl.Curl, code: int, words: str) -> None:
        ended = self._forget(curl)
        if ended is not None:
            self._multi.remove_handle(curl)
            ended(code, words)

    def _forget(self, curl: pycurl.Curl) -> Ended | None:
        if self._late_at.pop(curl, None) is not None and not self._late_at:
            self._check_at(math.inf)  # nothing wakes the loop for what has ended
        return self._running.pop(curl, None)


def _code(error: pycurl.error) -> tuple[int, str]:
    code, *words = error.args
    return int(code), " ".join(map(str, words))


def _inode(descriptor: int) -> int:
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return -1


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Any:
    """A socket object for a borrowed socket, which stays open."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)
    try:
        yield sock
    finally:
        sock.detach()
