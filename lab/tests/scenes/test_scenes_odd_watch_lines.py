"""Nothing that a watch receives ends a process: not the watch of an informer, of its own Lease, or of unassigned
objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
from tiers import further

from kubeshard.runtime.transport import HttpRequest, HttpStream
from kubeshard_lab.simulation.cluster import SimulatedCluster, Touch
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

ODD_LINES = [
    b'{"type":"ERROR","object":null}\n',
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":12}}}\n',
    b'{"type":"MODIFIED","object":{"kind":7,"metadata":{"name":"a"}}}\n',
    b'{"type":"ADDED","object":null}\n',
    b'{"type":"ADDED","object":{"kind":"Lease","metadata":{"name":"\xff"}}}\n',
]


class Poisoned:
    """A watch that delivers one odd line and ends five seconds later."""

    status = 200

    def __init__(self, stream: HttpStream, line: bytes) -> None:
        self.headers: Mapping[str, str] = stream.headers
        self._line = line

    async def read(self) -> bytes:
        return b""

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._line
        await asyncio.sleep(5)


@pytest.mark.parametrize("line", [*ODD_LINES[:2], *further(*ODD_LINES[2:])], ids=range(len(ODD_LINES)))
def test_a_minute_of_odd_watch_lines_ends_no_process_and_stops_nobody_for_good(line: bytes) -> None:
    @virtual_time
    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install()
            await world.make_ring()
            processes = [world.sharder("x0"), world.shard("s0", Touch()), world.shard("s1", Touch())]
            await world.make_things(4)
            await world.until(lambda: world.all_owned("s0", "s1"), within=30)

            def poisoned(request: HttpRequest, stream: HttpStream) -> HttpStream:
                return Poisoned(stream, line) if "watch=true" in request.target else stream

            networks = [network for process in processes for network in process.networks]
            for network in networks:
                network.through = poisoned
                network.abort()
            await world.make_things(4, prefix="later")
            await asyncio.sleep(60)
            for network in networks:
                network.through = None
                network.abort()
            await world.until(lambda: world.all_owned("s0", "s1"), within=180)
            assert not [process.dead for process in processes if process.dead]

    scene()
