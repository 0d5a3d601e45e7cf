"""A watch that is accepted and ends at once, as through a misconfigured proxy, does not cause a storm of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kubeshard.runtime.transport import HttpRequest, HttpStream
from kubeshard_lab.simulation.cluster import SimulatedCluster, Touch
from kubeshard_lab.simulation.processes import StreamAround
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression


class Ended(StreamAround):
    """A stream without content."""

    async def chunks(self) -> AsyncIterator[bytes]:
        return
        yield b""


@pytest.mark.nightly
@virtual_time
async def test_watches_of_unassigned_objects_that_end_at_once_are_reopened_with_growing_pauses() -> None:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        sharder = world.sharder("x0", webhook=False)
        world.shard("s0", Touch())
        await asyncio.sleep(60)
        opened: list[float] = []
        bad = True

        def through(request: HttpRequest, stream: HttpStream) -> HttpStream:
            objects = "/things?" in request.target or "/configmaps?" in request.target
            if not (bad and objects and "watch=true" in request.target):
                return stream
            opened.append(world.loop.time())
            return Ended(stream)

        for network in sharder.networks:
            network.through = through
            network.abort()
        await asyncio.sleep(600)
        assert 2 * 10 < len(opened) <= 2 * 25  # two resources: 0.8 s, doubled up to 30 s, and jitter
        bad = False
        await asyncio.sleep(90)  # longer than the longest pause
        opened.clear()
        await world.make_things(5)
        await world.until(lambda: world.all_owned("s0"), within=2)
