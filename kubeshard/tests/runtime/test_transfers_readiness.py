"""Which sockets are ready."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Callable, Iterable

import pytest

from kubeshard.runtime.curl_transfers import READ, WRITE, EpollReadiness, LoopReadiness, Readiness, Ready

Made = Callable[[asyncio.AbstractEventLoop, Ready], Readiness]
WAYS = [LoopReadiness, *([EpollReadiness] if hasattr(select, "epoll") else [])]

pytestmark = pytest.mark.parametrize("made", WAYS)


class Told:
    """Records what the loop was told, and can wait for the next call."""

    def __init__(self, made: Made) -> None:
        self.events: list[tuple[int, int]] = []
        self.first: list[tuple[int, int]] = []
        """Those of the first call."""
        self._news = asyncio.Event()
        self.readiness = made(asyncio.get_running_loop(), self._ready)

    def _ready(self, sockets: Iterable[tuple[int, int]]) -> None:
        self.events += sockets
        self.first = self.first or self.events[:]
        self._news.set()

    async def next(self) -> list[tuple[int, int]]:
        self.events.clear()
        self._news.clear()
        await asyncio.wait_for(self._news.wait(), 5)
        return self.events


async def turns() -> None:
    """Lets the loop run for as many iterations as any of this needs."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_socket_is_told_for_what_is_waited_for_and_nothing_else(made: Made) -> None:
    one, other = socket.socketpair()
    with one, other:
        told = Told(made)
        told.readiness.watch(one.fileno(), READ)
        await turns()
        assert told.events == []
        other.send(b"x")
        assert (one.fileno(), READ) in await told.next()
        told.readiness.watch(one.fileno(), WRITE)
        assert set(await told.next()) == {(one.fileno(), WRITE)}
        told.readiness.close()


async def test_a_socket_nobody_waits_for_is_not_told_until_somebody_does_again(made: Made) -> None:
    one, other = socket.socketpair()
    with one, other:
        told = Told(made)
        told.readiness.watch(one.fileno(), READ)
        told.readiness.watch(one.fileno(), 0)
        other.send(b"x")
        await turns()
        assert told.events == []
        told.readiness.watch(one.fileno(), READ)
        assert (one.fileno(), READ) in await told.next()
        told.readiness.close()
        told.events.clear()
        await turns()
        assert told.events == []


async def test_a_number_that_means_another_socket_now_is_watched_as_that_one(made: Made) -> None:
    """libcurl closes idle sockets without notice."""
    one, other = socket.socketpair()
    told = Told(made)
    number = one.fileno()
    told.readiness.watch(number, READ)
    told.readiness.watch(number, 0)
    one.close()
    other.close()
    new, peer = socket.socketpair()
    with peer:
        if new.fileno() != number:
            os.dup2(new.fileno(), number)
            new.close()
            new = socket.socket(fileno=number)
        with new:
            told.readiness.watch(number, READ)
            await turns()
            assert told.events == []
            peer.send(b"x")
            assert (number, READ) in await told.next()
            told.readiness.close()


async def test_a_connection_that_broke_is_told_to_whoever_waits(made: Made) -> None:
    one, other = socket.socketpair()
    with one:
        told = Told(made)
        told.readiness.watch(one.fileno(), READ)
        other.close()
        assert any(events & READ for _, events in await told.next())
        told.readiness.close()


async def test_what_happens_during_a_rest_is_told_after_it_together(made: Made) -> None:
    pairs = [socket.socketpair() for _ in range(3)]
    told = Told(made)
    for one, _ in pairs:
        told.readiness.watch(one.fileno(), READ)
    told.readiness.rest(0.3)
    told.readiness.rest(60.0)  # does not make it longer
    for _, other in pairs:
        other.send(b"x")
        await turns()
    if made is not LoopReadiness:
        assert told.events == []
        await told.next()
        assert {number for number, _ in told.first} == {one.fileno() for one, _ in pairs}
    told.readiness.rest(0.0)
    told.readiness.close()
    told.events.clear()
    await turns()
    assert told.events == []
    for pair in pairs:
        for each in pair:
            each.close()
