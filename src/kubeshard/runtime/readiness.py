"""Which sockets are ready, reported in batches.

libcurl stops waiting for a socket after every response and starts again with the next request. On Linux that is
free here: the sockets are in a separate epoll set, which is one descriptor for the event loop, and a socket that
libcurl does not wait for stays in the set until it has an event. Elsewhere every change is passed to the event loop.

Guaranteed: a descriptor that was closed and reused for another socket is never mistaken for the old one. The kernel
removes a closed socket from the set, and `watch` checks with the kernel, not with its own records.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from collections.abc import Callable, Iterable
from typing import Protocol

READ, WRITE = 1, 2
"""The events to wait for, and those that are ready; they can be combined."""

Ready = Callable[[Iterable[tuple[int, int]]], None]
"""Called in the loop with descriptors and what they are ready for."""


class Readiness(Protocol):
    def watch(self, descriptor: int, wanted: int) -> None:
        """Sets the events to wait for at the socket; 0: none, also before it is closed."""
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

    def close(self) -> None:
        self._wanted.clear()
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll)
            self._epoll.close()

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

    def close(self) -> None:
        for descriptor in list(self._wanted):
            self.watch(descriptor, 0)
