"""A shard's Lease as the main loop uses it, on virtual time against an in-memory server (reliability 1.6)."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
from fake_lease_server import LeaseServer

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.errors import ConfigurationError, NotOurs
from kubeshard.core.objects import ObjectMeta
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.thread import LoopThread, SameLoop
from kubeshard.runtime.watchdog import NoWatchdog
from kubeshard.shard import Incarnation, ShardIdentity, ShardLease, ShardTenure, Takeover, scaled
from kubeshard.shard.incarnation import INCARNATION_ANNOTATION
from kubeshard.sharding.names import RING_LABEL, SHARDER_IDENTITY, STATE_LABEL
from kubeshard.testing.virtual_time import VirtualClock, virtual_time

ME = ShardIdentity("ring", "shard-0", "ns", Incarnation("pod-a", "boot", "x"))
RIVAL = ShardIdentity("ring", "shard-0", "ns", Incarnation("pod-b", "boot", "y"))


class Watchdog:
    """Writes down what it was told."""

    def __init__(self) -> None:
        self.deadline: float | None = None
        self.bitten_at: float | None = None

    def arm(self, deadline: float) -> None:
        self.deadline = deadline

    def disarm(self) -> None:
        self.deadline = None

    def bite(self) -> None:
        self.bitten_at = asyncio.get_running_loop().time()


class World:
    """A server, a clock and the shard's process."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.server = LeaseServer()
        self.watchdog = Watchdog()
        self.sick: str | None = None

    def lease(
        self, shard: ShardIdentity = ME, *, keep_on_stop: bool = False, takeover: Takeover = Takeover.AT_ONCE
    ) -> ShardLease:
        return ShardLease(
            shard,
            self.server.client(),
            connect=self.server.client,
            takeover=takeover,
            keep_on_stop=keep_on_stop,
            watchdog=self.watchdog,
            runner=SameLoop(),
            clock=self.clock,
        )

    def health(self) -> str | None:
        return self.sick

    @property
    def now(self) -> float:
        return self.clock.boottime()

    @property
    def spec(self) -> LeaseSpec:
        assert self.server.lease is not None
        return self.server.lease.spec


def may_write(tenure: ShardTenure) -> bool:
    try:
        tenure.check()
    except NotOurs:
        return False
    return True


@virtual_time
async def test_the_lease_is_renewed_every_two_seconds_and_keeps_the_sharders_label() -> None:
    world = World()
    async with world.lease().held() as tenure:
        world.server.edit(labels={STATE_LABEL: "ready"})
        await asyncio.sleep(60)
        assert may_write(tenure)
        assert tenure.gate.is_open
        tenure.stopped_cleanly()
    times = [at for at, _ in world.server.writes]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times[:-1])]
    assert all(1.79 < gap < 2.21 for gap in gaps), gaps
    assert world.server.lease is not None
    assert world.server.lease.metadata.labels == {RING_LABEL: "ring", STATE_LABEL: "ready"}
    assert {agent.split("/")[-1] for agent in world.server.agents} == {"shard-lease"}


@virtual_time
async def test_after_a_proven_stop_the_lease_is_given_back_and_the_watchdog_called_off() -> None:
    world = World()
    async with world.lease().held() as tenure:
        await asyncio.sleep(5)
        tenure.stopped_cleanly()
        assert not may_write(tenure)
    assert (world.spec.holder_identity, world.spec.lease_duration_seconds) == ("", 1)
    assert world.spec.lease_transitions == 0
    assert world.spec.acquire_time == world.spec.renew_time
    assert world.watchdog.deadline is None
    assert world.server.aborts == 0


@virtual_time
async def test_without_a_proven_stop_the_lease_is_left_to_expire_under_the_kernels_deadline() -> None:
    world = World()
    async with world.lease().held():
        await asyncio.sleep(5)
    assert world.spec.holder_identity == ME.name
    assert world.watchdog.deadline is not None
    assert world.now < world.watchdog.deadline <= world.now + 10


@pytest.mark.regression
@virtual_time
async def test_the_process_is_bitten_also_when_the_reset_of_its_connections_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    order: list[str] = []

    def fails() -> None:
        order.append(f"reset, may write: {may_write(tenure)}, told: {told.called}")
        raise RuntimeError("set changed size during iteration")

    class Told:
        called = False

        def __init__(self, post: Callable[..., None]) -> None:
            self._post = post

        def __call__(self, *args: object) -> None:
            self.called = True
            self._post(*args)

    def refuses(deadline: float) -> None:
        order.append("arm")
        raise OSError("no timer")

    monkeypatch.setattr(world.server, "abort", fails)
    async with world.lease().held(world.health) as tenure:
        told = Told(tenure._in_main_loop)
        monkeypatch.setattr(tenure, "_in_main_loop", told)
        world.sick = "unwell"
        await asyncio.sleep(4)
        monkeypatch.setattr(world.watchdog, "arm", refuses)
        await asyncio.sleep(30)
        assert not may_write(tenure)
        assert not tenure.gate.is_open
        assert await tenure.lost()
        assert order[:2] == ["arm", "reset, may write: False, told: True"]
        assert world.watchdog.bitten_at is not None
        tenure.stopped_cleanly()


@virtual_time
async def test_a_lease_can_be_kept_on_stop_for_a_restart_under_the_same_name() -> None:
    world = World()
    async with world.lease(keep_on_stop=True).held() as tenure:
        tenure.stopped_cleanly()
    assert world.spec.holder_identity == ME.name
    assert world.watchdog.deadline is None
    successor = ShardIdentity("ring", "shard-0", "ns", Incarnation("pod-a", "boot", "z"))
    async with world.lease(successor).held():
        assert world.now == 0.0


@virtual_time
async def test_the_gate_closes_two_seconds_before_the_deadline_even_while_an_attempt_hangs() -> None:
    world = World()
    async with world.lease().held() as tenure:
        await asyncio.sleep(1)
        deadline = world.watchdog.deadline
        assert deadline is not None
        world.server.down = True
        await asyncio.sleep(deadline - 2.1 - world.now)
        assert tenure.gate.is_open
        await asyncio.sleep(0.2)
        assert not tenure.gate.is_open
        assert may_write(tenure)
        assert "not renewed" in await tenure.lost()


@virtual_time
async def test_a_renewal_within_the_last_seconds_opens_the_gate_again() -> None:
    world = World()
    async with world.lease().held(world.health) as tenure:
        deadline = world.watchdog.deadline
        assert deadline is not None
        world.sick = "a worker hangs"
        await asyncio.sleep(deadline - 1.5 - world.now)
        assert not tenure.gate.is_open
        world.sick = None
        await asyncio.sleep(0.3)
        assert tenure.gate.is_open
        assert may_write(tenure)
        tenure.stopped_cleanly()


@virtual_time
async def test_a_partition_ends_the_right_to_work_one_second_before_the_deadline_counted_from_the_last_start() -> (
    None
):
    world = World()
    world.server.slow = 1.0
    async with world.lease().held() as tenure:
        acquired_asked_at = world.now - 1.0
        assert world.watchdog.deadline == acquired_asked_at + 10
        world.server.down = True
        reason = await tenure.lost()
        assert reason.startswith("not renewed for 9s: ")
        assert world.now == pytest.approx(acquired_asked_at + 9)
        assert not may_write(tenure)
        assert not tenure.gate.is_open
        assert world.server.aborts == 1
        assert world.watchdog.deadline == acquired_asked_at + 10
    assert world.watchdog.bitten_at is None
    assert world.watchdog.deadline == acquired_asked_at + 10


@virtual_time
async def test_a_process_that_does_not_leave_is_ended_at_its_deadline() -> None:
    world = World()
    async with AsyncExitStack() as stack:
        tenure = await stack.enter_async_context(world.lease().held())
        deadline = world.watchdog.deadline
        world.server.down = True
        await tenure.lost()
        await asyncio.sleep(5)
        assert world.watchdog.bitten_at == deadline


@pytest.mark.parametrize("holder", [SHARDER_IDENTITY, "", "somebody"])
def test_a_foreign_holder_stops_the_work_at_once(holder: str) -> None:
    @virtual_time
    async def run() -> None:
        world = World()
        async with world.lease().held() as tenure:
            await asyncio.sleep(1)
            world.server.edit(holder=holder)
            before = world.now
            assert (await tenure.lost()).startswith("the lease is held by")
            assert world.now - before < 0.01
            assert not may_write(tenure)
            assert world.server.aborts == 1
            assert world.watchdog.deadline == world.now + 2
        assert world.spec.holder_identity == holder

    run()


@virtual_time
async def test_a_foreign_holder_is_heard_of_while_a_renewal_hangs() -> None:
    world = World()
    async with world.lease().held() as tenure:
        await asyncio.sleep(1)
        world.server.slow = 1.9
        await asyncio.sleep(1.5)  # a renewal is under way
        world.server.edit(holder=SHARDER_IDENTITY)
        before = world.now
        await tenure.lost()
        assert world.now - before < 0.01
        assert not may_write(tenure)


@virtual_time
async def test_without_a_watch_a_foreign_holder_is_noticed_at_the_next_renewal() -> None:
    world = World()
    async with world.lease().held() as tenure:
        world.server.cut_watches()
        await asyncio.sleep(0.1)
        world.server.edit(holder=SHARDER_IDENTITY)
        await tenure.lost()
        assert world.now < 2.3


@virtual_time
async def test_a_deleted_lease_is_created_again_at_once_by_the_same_incarnation() -> None:
    world = World()
    async with world.lease().held() as tenure:
        await asyncio.sleep(0.5)
        world.server.delete()
        await asyncio.sleep(0.01)
        assert world.server.lease is not None
        assert world.server.lease.metadata.annotation(INCARNATION_ANNOTATION) == str(ME.incarnation)
        assert may_write(tenure)
        tenure.stopped_cleanly()


@virtual_time
async def test_an_unfit_process_loses_its_lease_and_says_why() -> None:
    world = World()
    async with world.lease().held(world.health) as tenure:
        world.sick = "informer Website has been silent for 91s"
        assert await tenure.lost() == "not renewed for 9s: informer Website has been silent for 91s"


@virtual_time
async def test_of_two_processes_under_one_name_the_second_waits_and_the_first_goes_on() -> None:
    world = World()
    async with world.lease().held() as tenure:
        second = asyncio.create_task(world.lease(RIVAL).held().__aenter__())
        await asyncio.sleep(300)
        assert not second.done()
        assert may_write(tenure)
        second.cancel()
        await asyncio.wait((second,))
        tenure.stopped_cleanly()


@virtual_time
async def test_a_rival_is_succeeded_after_two_lease_durations_of_silence() -> None:
    world = World()
    async with world.lease(RIVAL).held():
        pass  # dies: no proof of its stop, no release
    async with world.lease().held() as tenure:
        assert world.now == pytest.approx(30.0, abs=0.1)
        tenure.stopped_cleanly()


@pytest.mark.parametrize(("takeover", "waited"), [(Takeover.AT_ONCE, 0.0), (Takeover.AFTER_RECORD, 30.0)])
def test_a_seized_lease_comes_back_at_once_or_with_a_go_sharder_after_its_record(
    takeover: Takeover, waited: float
) -> None:
    @virtual_time
    async def run() -> None:
        world = World()
        world.server.put(
            Lease(
                metadata=ObjectMeta(name="shard-0", namespace="ns"),
                spec=LeaseSpec(
                    holder_identity=SHARDER_IDENTITY, lease_duration_seconds=30, lease_transitions=1
                ),
            )
        )
        async with world.lease(takeover=takeover).held() as tenure:
            assert world.now == pytest.approx(waited)
            assert world.spec.lease_transitions == 2
            tenure.stopped_cleanly()

    run()


@virtual_time
async def test_a_lease_of_somebody_else_is_a_configuration_error() -> None:
    world = World()
    world.server.put(
        Lease(metadata=ObjectMeta(name="shard-0", namespace="ns"), spec=LeaseSpec(holder_identity="other"))
    )
    with pytest.raises(ConfigurationError, match="held by 'other'"):
        async with world.lease().held():
            pass
    assert world.spec.holder_identity == "other"


@virtual_time
async def test_a_shard_says_once_that_it_holds_its_lease_and_once_why_it_cannot(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kubeshard.shard")
    world = World()
    world.server.read_only = True
    asyncio.get_running_loop().call_later(60, setattr, world.server, "read_only", False)
    async with world.lease().held() as tenure:
        await asyncio.sleep(60)
        tenure.stopped_cleanly()
    told = [
        "No usable answer about the shard Lease",
        "Holding the shard Lease",
        "Stopped keeping the shard Lease",
    ]
    assert [record.message for record in caplog.records] == told


@virtual_time
async def test_stopping_while_the_lease_is_being_acquired_leaves_nothing_held() -> None:
    world = World()
    world.server.slow = 1.0
    entering = asyncio.create_task(world.lease().held().__aenter__())
    await asyncio.sleep(1.5)
    entering.cancel()
    await asyncio.wait((entering,))
    assert entering.cancelled()
    assert world.server.lease is None or world.spec.holder_identity == ""


@virtual_time
async def test_sleep_of_the_machine_counts_against_the_deadline() -> None:
    world = World()
    async with world.lease().held() as tenure:
        await asyncio.sleep(0.5)
        world.clock.suspend(20)
        assert not may_write(tenure)
        assert "not renewed" in await tenure.lost()


async def test_a_blocked_main_loop_can_neither_keep_the_lease_nor_write_after_its_time() -> None:
    beat = [time.monotonic()]

    def health() -> str | None:
        lag = time.monotonic() - beat[0]
        return f"event loop blocked for {lag:.1f}s" if lag > 0.3 else None

    server: list[LeaseServer] = []

    def connect() -> object:
        server.append(LeaseServer())  # in the keeper's loop
        return server[0].client()

    lease = ShardLease(
        ME,
        LeaseServer().client(),
        connect=connect,  # type: ignore[arg-type]  # a client, made in the thread
        timing=scaled(4),
        watchdog=NoWatchdog(),
        runner=LoopThread("shard-lease"),
        clock=SystemClock(),
    )
    async with lease.held(health) as tenure:
        assert may_write(tenure)
        beat[0] = time.monotonic()
        time.sleep(2.7)  # noqa: ASYNC251 - the blocked loop is the point
        assert not may_write(tenure)
        assert "event loop blocked" in await asyncio.wait_for(tenure.lost(), 5)
