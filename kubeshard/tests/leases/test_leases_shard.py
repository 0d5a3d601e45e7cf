"""A shard's Lease as the main loop uses it, on virtual time against a server in memory."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time

import pytest
from lease_bench import LeaseServer, Process

from kubeshard.client import Client, ClusterConfig
from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.objects import ObjectMeta
from kubeshard.runtime.loop_thread import LoopThread
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.watchdog import NoSignals, NoWatchdog, Watchdog
from kubeshard.runtime.world import REAL_WORLD, World
from kubeshard.shard import ShardIdentity, ShardLease, scaled
from kubeshard.shard.identity import Incarnation
from kubeshard.shard.shard_lease import Takeover
from kubeshard.sharding.names import OWNED_RANGES_ANNOTATION, RING_LABEL, SHARDER_IDENTITY, STATE_LABEL
from kubeshard_lab.virtual_time import virtual_time

ME = ShardIdentity("ring", "shard-0", "ns", Incarnation("pod-a", "boot", "x"))
RIVAL = ShardIdentity("ring", "shard-0", "ns", Incarnation("pod-b", "boot", "y"))
SUCCESSOR = ShardIdentity("ring", "shard-0", "ns", Incarnation("pod-a", "boot", "z"))


class Shard(Process):
    def lease(
        self,
        shard: ShardIdentity = ME,
        *,
        keep_on_stop: bool = False,
        takeover: Takeover = Takeover.AT_ONCE,
    ) -> ShardLease:
        return ShardLease(shard, self.client(), takeover=takeover, keep_on_stop=keep_on_stop)


@virtual_time
async def test_the_lease_says_the_ring_keeps_the_sharders_label_and_comes_from_a_user_agent_of_its_own() -> (
    None
):
    shard = Shard(LeaseServer())
    async with shard.lease().held() as held:
        shard.server.edit(labels={STATE_LABEL: "ready"})
        await asyncio.sleep(10)
        held.stopped_cleanly()
    assert shard.server.lease is not None
    assert shard.server.lease.metadata.labels == {RING_LABEL: "ring", STATE_LABEL: "ready"}
    assert {agent.split("/")[-1] for agent in shard.server.agents} == {"shard-lease"}


@virtual_time
async def test_what_the_shard_works_on_is_on_its_lease_soon_after_it_changed() -> None:
    shard = Shard(LeaseServer())
    async with shard.lease().held() as held:
        for report in "0-1@1/1", "0-2@2/2":
            held.works_on(report)
            await asyncio.sleep(1.1)
            assert shard.server.lease is not None
            assert shard.server.lease.metadata.annotation(OWNED_RANGES_ANNOTATION) == report
        writes = len(shard.server.writes)
        held.works_on("0-2@2/2")
        await asyncio.sleep(0.5)
        assert len(shard.server.writes) == writes
        held.stopped_cleanly()


@virtual_time
async def test_the_connections_of_the_controllers_are_reset_when_the_lease_is_lost() -> None:
    shard = Shard(LeaseServer())
    async with shard.lease().held(shard.health) as held:
        shard.sick = "informer Website has been silent for 91s"
        assert await held.lost() == "not renewed for 9s: informer Website has been silent for 91s"
        assert shard.server.aborts == 1
        assert shard.watchdog.deadline == 10


@virtual_time
async def test_a_lease_can_be_kept_on_stop_for_a_restart_under_the_same_name() -> None:
    shard = Shard(LeaseServer())
    async with shard.lease(keep_on_stop=True).held() as held:
        assert held.returning
        held.objects_reclaimed()
        assert not held.returning
        await asyncio.sleep(3)
        held.stopped_cleanly()
    assert shard.server.holder == ME.name
    assert shard.watchdog.deadline is None
    async with shard.lease(SUCCESSOR).held() as held:
        assert shard.now == 3.0
        assert not held.returning


@virtual_time
async def test_a_lease_that_is_kept_says_that_its_objects_were_not_reclaimed_yet() -> None:
    shard = Shard(LeaseServer())
    async with shard.lease(keep_on_stop=True).held() as held:
        held.stopped_cleanly()
    async with shard.lease(SUCCESSOR).held() as held:
        assert held.returning


@virtual_time
async def test_of_two_processes_under_one_name_the_second_waits_and_the_first_goes_on() -> None:
    shard = Shard(LeaseServer())
    async with shard.lease().held() as held:
        second = asyncio.create_task(shard.lease(RIVAL).held().__aenter__())
        await asyncio.sleep(300)
        assert not second.done()
        assert held.holds()
        second.cancel()
        await asyncio.wait((second,))


@virtual_time
async def test_a_rival_is_succeeded_after_two_lease_durations_of_silence() -> None:
    shard = Shard(LeaseServer())
    async with shard.lease(RIVAL).held():
        pass  # the process dies: there is no proof that it stopped, and no release
    async with shard.lease().held():
        assert shard.now == pytest.approx(30.0)


@virtual_time
async def test_a_rival_whose_lease_is_deleted_still_has_two_lease_durations() -> None:
    shard = Shard(LeaseServer())
    async with shard.lease(RIVAL).held():
        second = asyncio.create_task(shard.lease().held().__aenter__())
        await asyncio.sleep(20)
        shard.server.down = True  # the rival cannot re-create it either
        shard.server.delete()
        await asyncio.sleep(3)
        shard.server.down = False
        shard.server.read_only = True
        await asyncio.sleep(6)
        assert not second.done()
    shard.server.read_only = False
    (await second)
    assert shard.now >= 23.0 + 30.0


@pytest.mark.parametrize(("takeover", "waited"), [(Takeover.AT_ONCE, 0.0), (Takeover.AFTER_RECORD, 30.0)])
def test_a_seized_lease_comes_back_at_once_or_with_a_go_sharder_after_its_record(
    takeover: Takeover, waited: float
) -> None:
    @virtual_time
    async def run() -> None:
        shard = Shard(LeaseServer())
        taken = LeaseSpec(holder_identity=SHARDER_IDENTITY, lease_duration_seconds=30, lease_transitions=1)
        shard.server.put(Lease(metadata=ObjectMeta(name="shard-0", namespace="ns"), spec=taken))
        async with shard.lease(takeover=takeover).held() as held:
            assert shard.now == pytest.approx(waited)
            assert shard.server.spec.lease_transitions == 2
            assert held.returning

    run()


@virtual_time
async def test_a_lease_of_somebody_else_is_a_configuration_error() -> None:
    shard = Shard(LeaseServer())
    shard.server.put(
        Lease(metadata=ObjectMeta(name="shard-0", namespace="ns"), spec=LeaseSpec(holder_identity="other"))
    )
    with pytest.raises(ConfigurationError, match="held by 'other'"):
        async with shard.lease().held():
            pass
    assert shard.server.holder == "other"


@virtual_time
async def test_where_no_watchdog_can_bite_no_shard_begins() -> None:
    def refuses() -> Watchdog:
        raise NoSignals

    shard = Shard(LeaseServer())
    shard.world = dataclasses.replace(shard.world, watchdog=refuses)
    with pytest.raises(ConfigurationError, match=r"process 1 of its container.*tini"):
        async with shard.lease().held():
            pass
    assert shard.server.requests == []


@pytest.mark.system
async def test_a_blocked_main_loop_can_neither_keep_the_lease_nor_write_after_its_time() -> None:
    """In the real world, except for the server, of which each thread has its own."""
    connected: list[str] = []

    def connect(server: str, tls: Tls, /, *, proxy: str | None = None) -> LeaseServer:
        connected.append(threading.current_thread().name)
        return LeaseServer()

    world: World = dataclasses.replace(REAL_WORLD, connect=connect, watchdog=NoWatchdog)
    assert world.thread is LoopThread
    client = Client(ClusterConfig("https://api"), world=world)
    lease = ShardLease(ME, client, timing=scaled(4))
    async with lease.held() as held:
        assert connected == ["MainThread", "shard-lease"]
        assert held.holds()
        time.sleep(2.7)  # noqa: ASYNC251 - the blocked loop is the point
        assert not held.holds()
        assert "the event loop is blocked" in await asyncio.wait_for(held.lost(), 5)
