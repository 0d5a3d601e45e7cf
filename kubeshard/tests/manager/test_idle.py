"""A process that has nothing to do sleeps: what wakes its loops in a minute is counted, on virtual time."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kubeshard import Client, ConfigMap, Context, Controller, LeaderElection, Manager, Sharding, Watch
from kubeshard.cache import Cache
from kubeshard.client import ClusterConfig
from kubeshard.controller.syncing import until_doubtful
from kubeshard.core import Namespace, NotFound, ObjectMeta
from kubeshard.listwatch.reflector import Interrupted
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.shard import DeclaredRing
from kubeshard.sharding.api import RingResource
from kubeshard_apiserver import ApiServer, InMemoryTransport
from kubeshard_lab.virtual_time import settle, virtual_time
from kubeshard_lab.virtual_world import virtual_world

MAPS = RingResource(group="", resource="configmaps")
MINUTE = 60.0
RENEWALS = 30
"""Every two seconds, of all Leases of a namespace at the same moment."""
LISTS = 1
"""Of all shards' Leases, while the watch shows the renewals of a shard to itself."""
DEADLINES = 6
"""Of watches, and for the silence of the API server."""
SETTLED = 100.0


class TimerAlarm:
    """As one of the kernel: it goes off at its moment."""

    def __init__(self, clock: Clock, event: asyncio.Event) -> None:
        self._clock = clock
        self._event = event
        self._timer: asyncio.TimerHandle | None = None

    def set(self, moment: float) -> None:
        self.close()
        seconds = moment - self._clock.boottime()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._event.set)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> set[float]:
    """When timers went off, in milliseconds: those of one moment count as one."""
    seen, run = set[float](), asyncio.TimerHandle._run

    def noted(self: asyncio.TimerHandle) -> None:
        seen.add(round(asyncio.get_running_loop().time(), 3))
        run(self)

    monkeypatch.setattr(asyncio.TimerHandle, "_run", noted)
    return seen


async def nothing(ctx: Context, obj: ConfigMap) -> None: ...


async def in_a_minute(moments: set[float], make: Callable[[Client], Manager]) -> int:
    world = dataclasses.replace(virtual_world(), alarm=TimerAlarm)
    transport = InMemoryTransport(ApiServer(world=world))
    async with Client(ClusterConfig("http://in-memory"), transport=transport, world=world) as client:
        await client.create(Namespace(metadata=ObjectMeta(name="ns")))
        running = asyncio.create_task(make(client).run())
        await asyncio.sleep(SETTLED)
        moments.clear()
        await asyncio.sleep(MINUTE)
        count = len(moments)
        assert not running.done()
        running.cancel()
        await asyncio.wait([running])
    return count


@virtual_time
async def test_a_manager_is_woken_by_a_few_deadlines(moments: set[float]) -> None:
    def make(client: Client) -> Manager:
        controller = Controller(name="maps", reconciler=nothing, primary=ConfigMap)
        return Manager([controller], client=client, status_pages=None)

    assert await in_a_minute(moments, make) <= DEADLINES


@virtual_time
async def test_a_leader_is_woken_for_its_renewals_besides(moments: set[float]) -> None:
    def make(client: Client) -> Manager:
        controller = Controller(name="maps", reconciler=nothing, primary=ConfigMap)
        election = LeaderElection(name="idle", namespace="ns")
        return Manager([controller], client=client, leader_election=election, status_pages=None)

    assert await in_a_minute(moments, make) <= RENEWALS + DEADLINES


@virtual_time
async def test_so_is_a_shard(moments: set[float]) -> None:
    def make(client: Client) -> Manager:
        controller = Controller(name="maps", reconciler=nothing, primary=Watch(ConfigMap))
        shard = Sharding(DeclaredRing("ring", resources=(MAPS,)), "a", "ns")
        return Manager([controller], client=client, sharding=shard, status_pages=None)

    assert await in_a_minute(moments, make) <= RENEWALS + DEADLINES


@virtual_time
async def test_the_elected_one_of_a_ring_lists_the_leases_besides_and_looks_for_silence_only_when_there_is_one(
    moments: set[float],
) -> None:
    def make(client: Client) -> Manager:
        controller = Controller(name="maps", reconciler=nothing, primary=Watch(ConfigMap, sharded=True))
        shard = Sharding("ring", "a", "ns", mode="both", delivery="ranges")
        return Manager([controller], client=client, sharding=shard, status_pages=None)

    assert await in_a_minute(moments, make) <= RENEWALS + LISTS + 3 * DEADLINES


@virtual_time
async def test_one_failed_watch_of_several_is_looked_at_when_it_fails() -> None:
    world = virtual_world()
    transport = InMemoryTransport(ApiServer(world=world))
    async with Client(ClusterConfig("http://in-memory"), transport=transport, world=world) as client:
        informers = [Cache(client).declare(kind) for kind in (ConfigMap, Namespace)]
        waiting = asyncio.create_task(until_doubtful(informers, world.clock))
        await asyncio.sleep(0)
        await informers[1].interrupted(Interrupted(NotFound(""), 1.0), "", quiet=True)
        await settle()
        assert waiting.done()


@pytest.mark.long
@pytest.mark.parametrize("delivery", ["labels", "ranges"])
@virtual_time
async def test_in_an_hour_in_which_nothing_happens_nothing_is_written_but_renewals(delivery: Any) -> None:
    """What only has to be as it is, is read before it is written."""
    requests: list[tuple[str, str]] = []

    class Counting(InMemoryTransport):
        async def request(self, request: HttpRequest) -> HttpResponse:
            requests.append((request.method, request.target.partition("?")[0]))
            return await super().request(request)

    world = virtual_world()
    server = ApiServer(world=world)
    world = dataclasses.replace(world, connect=lambda *_, **__: Counting(server))
    async with Client(ClusterConfig("http://in-memory"), world=world) as client:
        await client.create(Namespace(metadata=ObjectMeta(name="ns")))
        await client.create(ConfigMap(metadata=ObjectMeta(name="one", namespace="ns")))
        controller = Controller(name="maps", reconciler=nothing, primary=Watch(ConfigMap, sharded=True))
        shard = Sharding("ring", "a", "ns", mode="both", delivery=delivery)
        manager = Manager([controller], client=client, sharding=shard, status_pages=None)
        running = asyncio.create_task(manager.run())
        await asyncio.sleep(SETTLED)
        requests.clear()
        await asyncio.sleep(60 * MINUTE)
        assert not running.done()
        written = Counter(request for request in requests if request[0] != "GET")
        running.cancel()
        await asyncio.wait([running])
    reviews = {request for request in written if "/selfsubjectaccessreviews" in request[1]}
    leases = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/"
    renewed = [("PUT", f"{leases}{name}") for name in ("a", "sharder-ring")]
    assert written.keys() - reviews == set(renewed)
    assert all(1790 <= written[each] <= 1810 for each in renewed)
