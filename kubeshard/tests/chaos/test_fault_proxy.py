"""What the proxy does to bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fault_proxy import LINGER, Faults, Line, Way


def requests(**faults: object) -> Line:
    return Line(Faults(**faults), answers=False)  # type: ignore[arg-type]


def test_bytes_pass_in_order() -> None:
    line = requests()
    line.came(b"a", 1.0)
    line.came(b"b", 1.0)
    assert line.take(1.0) == b"ab"
    assert not line.ended(1.0)
    line.came(b"", 2.0)
    assert line.ended(2.0)


def test_what_is_held_arrives_when_the_hold_is_over_even_if_the_sender_has_gone() -> None:
    faults = Faults(hold_requests=True)
    line = Line(faults, answers=False)
    line.came(b"late", 1.0)
    line.came(b"", 2.0)
    assert line.take(100.0) == b""
    assert not line.ended(100.0)
    assert line.due() is None
    faults.hold_requests = False
    assert line.take(100.0) == b"late"
    assert not line.ended(100.0)  # whoever reads it has time to act on it
    assert line.due() == 100.0 + LINGER
    assert line.ended(100.0 + LINGER)


def test_a_hold_of_one_direction_leaves_the_other_alone() -> None:
    faults = Faults(hold_requests=True)
    answers = Line(faults, answers=True)
    answers.came(b"event", 1.0)
    assert answers.take(1.0) == b"event"


def test_delayed_bytes_are_due_later() -> None:
    line = requests(delay=2.0)
    line.came(b"a", 1.0)
    assert (line.take(2.9), line.due()) == (b"", 3.0)
    assert line.take(3.0) == b"a"


def test_what_a_fault_did_is_counted() -> None:
    faults = Faults()
    line = Line(faults, answers=False)
    line.came(b"a", 1.0)
    assert faults.effects == 0
    faults.hold_requests = True
    line.came(b"b", 1.0)
    assert faults.effects == 1


def test_answers_are_cut_after_so_many_bytes_and_requests_are_not() -> None:
    faults = Faults(cut_after=3)
    answers, others = Line(faults, answers=True), Line(faults, answers=False)
    for line in (answers, others):
        line.came(b"abcde", 1.0)
    assert (answers.take(1.0), answers.cut) == (b"abc", True)
    assert (others.take(1.0), others.cut) == (b"abcde", False)


class Server:
    """Answers each line with the same line, and knows what it was sent."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()
        self.ended: asyncio.Queue[str] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                await self.heard.put(line)
                writer.write(line)
            await self.ended.put("end")
        except ConnectionResetError:
            await self.ended.put("reset")
        writer.close()


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Server, Way]]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listening, Way([listening.sockets[0].getsockname()]) as way:
        yield server, way


async def test_a_connection_passes_both_ways_and_its_end_too() -> None:
    async with served() as (server, way):
        reader, writer = await asyncio.open_connection("127.0.0.1", way.port)
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        writer.close()
        assert await server.ended.get() == "end"


async def test_what_a_client_sent_before_it_died_arrives_after_the_partition() -> None:
    async with served() as (server, way):
        _, writer = await asyncio.open_connection("127.0.0.1", way.port)
        way.change(hold_requests=True, hold_answers=True)
        writer.write(b"late\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        async with served() as (_, other):  # another way works meanwhile
            reader, second = await asyncio.open_connection("127.0.0.1", other.port)
            second.write(b"hello\n")
            assert await reader.readline() == b"hello\n"
        assert server.heard.empty()
        way.heal()
        assert await server.heard.get() == b"late\n"


async def test_a_reset_ends_both_sides() -> None:
    async with served() as (server, way):
        reader, writer = await asyncio.open_connection("127.0.0.1", way.port)
        writer.write(b"hello\n")
        await reader.readline()
        way.reset()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        assert await server.ended.get() in ("reset", "end")


async def test_the_client_hears_nothing_of_a_half_open_connection_and_new_ones_work() -> None:
    async with served() as (server, way):
        reader, writer = await asyncio.open_connection("127.0.0.1", way.port)
        writer.write(b"hello\n")
        await reader.readline()
        way.half_open()
        await server.ended.get()
        writer.write(b"to nobody\n")
        waiting = asyncio.ensure_future(reader.read())
        other, second = await asyncio.open_connection("127.0.0.1", way.port)
        second.write(b"again\n")
        assert await other.readline() == b"again\n"
        assert not waiting.done()
        waiting.cancel()


async def test_refused_connections_are_reset() -> None:
    async with served() as (_, way):
        way.change(refuse=True)
        reader, _ = await asyncio.open_connection("127.0.0.1", way.port)
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_a_server_that_is_gone_is_passed_over() -> None:
    async with served() as (_, way):
        with_port = way.servers[0]
        async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as gone:
            dead = gone.sockets[0].getsockname()
        way.servers = [dead, with_port]
        reader, writer = await asyncio.open_connection("127.0.0.1", way.port)
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
