"""Latency between the server and its clients, on virtual time."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from kubeshard import ALL
from kubeshard.client import Client, ClusterConfig
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver import ApiServer, Front, InMemoryTransport
from kubeshard_apiserver.cli.command import apiserver
from kubeshard_apiserver.front.latency import MOST_IN_FLIGHT, DelayedFront, delayed
from kubeshard_lab.virtual_time import virtual_time
from kubeshard_lab.virtual_world import virtual_world

MAPS = "/api/v1/namespaces/default/configmaps"


def distant(server, latency):
    return InMemoryTransport(DelayedFront(Front(server), latency))


def create(name):
    body = json.dumps({"metadata": {"name": name}}).encode()
    return HttpRequest("POST", MAPS, {"content-type": "application/json"}, body)


@virtual_time
async def test_requests_sent_together_arrive_together_and_take_one_round_trip():
    loop, server = asyncio.get_running_loop(), ApiServer(world=virtual_world())
    transport, began = distant(server, 0.010), loop.time()
    answers = await asyncio.gather(*(transport.request(create(f"a{number}")) for number in range(500)))
    assert {answer.status for answer in answers} == {201}
    assert loop.time() - began == pytest.approx(0.010)


@virtual_time
async def test_a_request_takes_effect_half_a_round_trip_after_it_was_sent():
    server = ApiServer(world=virtual_world())
    before = server.store.revision
    sending = asyncio.create_task(distant(server, 0.010).request(create("a")))
    await asyncio.sleep(0.004)
    assert server.store.revision == before
    await asyncio.sleep(0.002)
    assert server.store.revision == before + 1
    assert not sending.done()
    assert (await sending).status == 201


@virtual_time
async def test_events_arrive_half_a_round_trip_after_the_change_however_many_there_are():
    loop, server = asyncio.get_running_loop(), ApiServer(world=virtual_world())
    near = Client(ClusterConfig("http://in-memory"), transport=InMemoryTransport(server))
    far = Client(ClusterConfig("http://in-memory"), transport=distant(server, 0.010))
    delays = []
    async with near, far, far.watch(ConfigMap, ALL, resource_version="2") as events:
        seen = aiter(events)
        following = asyncio.create_task(anext(seen))
        await asyncio.sleep(1)
        made = []
        for number in range(20):  # all of them before the first arrives
            await near.create(ConfigMap(metadata=ObjectMeta(name=f"a{number:02}", namespace="default")))
            made.append(loop.time())
            await asyncio.sleep(0.0001)
        for number, then in enumerate(made):
            event = await following
            assert event.object.metadata.name == f"a{number:02}"
            delays.append(loop.time() - then)
            following = asyncio.create_task(anext(seen))
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert delays == pytest.approx([0.005] * 20, abs=0.0001)


@virtual_time
async def test_a_reader_that_stops_reading_fills_no_memory_and_its_end_ends_the_source():
    taken, closed = 0, asyncio.Event()

    async def endless():
        nonlocal taken
        try:
            while True:
                taken += 1
                yield b"x"
        finally:
            closed.set()

    stream = delayed(endless(), 0.005)
    assert await anext(stream) == b"x"
    await asyncio.sleep(60)
    assert taken <= MOST_IN_FLIGHT + 2
    await stream.aclose()
    assert closed.is_set()


@pytest.mark.parametrize("given", ["10", "-1ms", "ms", "61s", "1h", "nans"])
def test_a_latency_that_is_no_short_duration_is_refused(given):
    outcome = CliRunner().invoke(apiserver, ["--latency", given])
    assert outcome.exit_code == 2
    assert "10ms" in outcome.output
