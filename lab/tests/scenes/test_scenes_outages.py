"""When nobody reaches the API server for longer than a Lease lasts, every shard ends, and all return. Shards that
really die together do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tiers import further

from kubeshard.core.times import parse_time
from kubeshard.manager.config_file import Duration
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.shard.settings import LeaseTerms
from kubeshard.shard.shard_lease import Takeover
from kubeshard.sharder.config import ControllersConfig, SharderConfig, SharderControllerConfig
from kubeshard.sharding.names import MASS_FAILURE_GRACE
from kubeshard.sharding.take_overs import EVERY, PARTS
from kubeshard_lab.simulation.cluster import SimulatedCluster, Touch
from kubeshard_lab.simulation.processes import Network, Process, name_of, refusal
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

SHARDS = ("s0", "s1", "s2", "s3", "s4")
THINGS = 60

DETECTED = 30.0
"""Twice the duration of a Lease."""


class Ring:
    """A ring at work. Processes that end are restarted a second later, under their names, except for `gone`. `machine`:
    where all shards run, if that is one machine.
    """

    def __init__(self, world: SimulatedCluster, machine: str = "") -> None:
        self.world = world
        self.machine = machine
        self.gone: set[str] = set()
        self.down = False
        self.moves: list[tuple[float, str]] = []
        self._started = dict.fromkeys((*SHARDS, "x0", "x1"), 0)
        self._owners: dict[str, str] = {}

    def start(self, name: str, config: SharderConfig | None = None) -> None:
        self._started[name] = self._started.get(name, 0) + 1
        process = f"{name}~{self._started[name]}"
        if name.startswith("x"):
            self.world.sharder(process, config)
        else:
            self.world.shard(name, Touch(), process=process, machine=self.machine)

    def living(self) -> set[str]:
        return {name_of(process.name) for process in self.world.processes.values() if not process.dead}

    async def respawn(self) -> None:
        while True:
            await asyncio.sleep(1)
            for name in sorted(self._started.keys() - self.living() - self.gone):
                self.start(name)

    def count(self, *_: object) -> None:
        for name, owner in self.world.owners().items():
            if self._owners.get(name) != owner:
                self.moves.append((self.world.loop.time(), name))
            self._owners[name] = owner

    def holders(self) -> set[str]:
        """The shards that have renewed their Leases lately."""
        return {
            key.name
            for key, lease in self.world.objects("coordination.k8s.io", "leases").items()
            if key.name in SHARDS
            and lease["spec"]["holderIdentity"] == key.name
            and self.world.clock.wall() - (parse_time(lease["spec"]["renewTime"]) or 0.0) < 4.0
        }

    async def outage(self, seconds: float) -> None:
        """Nobody reaches the API server."""
        self.down = True
        for process in self.world.processes.values():
            process.cut_off()
        await asyncio.sleep(seconds)
        self.down = False
        for process in self.world.processes.values():
            process.cut_off(down=False)

    def kill(self, *names: str) -> None:
        self.gone |= set(names)
        for process in self.world.processes.values():
            if name_of(process.name) in names:
                process.kill()

    def conditions(self) -> dict[str, str]:
        (ring,) = self.world.objects("sharding.timebertt.dev", "controllerrings").values()
        return {each["type"]: each["reason"] for each in ring["status"]["conditions"]}


@asynccontextmanager
async def at_work(config: SharderConfig | None = None, machine: str = "") -> AsyncIterator[Ring]:
    async with SimulatedCluster(seed=1, latency=(0.002, 0.02)) as world:
        ring = Ring(world, machine)
        world.connected = lambda _, network: setattr(network, "down", ring.down)
        await world.install()
        await world.make_ring()
        for name in (*SHARDS, "x0", "x1"):
            ring.start(name, config)
        await world.make_things(THINGS)
        await world.until(lambda: world.all_owned(*SHARDS), within=60)
        await asyncio.sleep(60)
        ring.count()
        ring.moves.clear()
        world.server.store.subscribe(ring.count)
        respawning = asyncio.create_task(ring.respawn())
        try:
            yield ring
        finally:
            respawning.cancel()


@pytest.mark.parametrize(
    ("machine", "seconds", "within"),
    [
        ("m", 20.0, 15.0),
        *further(
            ("", 60.0, DETECTED + 10),
            ("", 20.0, DETECTED + 10),
            ("", 300.0, DETECTED + 10),
            ("m", 60.0, 10.0),
            ("m", 300.0, 10.0),
        ),
    ],
)
def test_after_an_outage_every_shard_has_its_objects_again_and_none_has_moved(
    machine: str, seconds: float, within: float
) -> None:
    """Where a process can see that its predecessor has ended, it only waits until nothing that this one sent can take
    effect; otherwise until it must have ended.
    """

    @virtual_time
    async def scene() -> None:
        async with at_work(machine=machine) as ring:
            before = ring.world.owners()
            await ring.outage(seconds)
            await ring.world.until(lambda: ring.holders() == set(SHARDS), within=within)
            await asyncio.sleep(90)
            assert ring.moves == []
            assert ring.world.owners() == before
            assert set(ring.conditions()) == {"Ready"}

    scene()


@pytest.mark.nightly
@pytest.mark.parametrize(("takeover", "within"), [(Takeover.WITH_PROOF, 5.0), (Takeover.AFTER_RECORD, 36.0)])
def test_a_shard_that_is_restarted_after_its_lease_was_taken_over_is_back_at_once(
    takeover: Takeover, within: float
) -> None:
    @virtual_time
    async def scene() -> None:
        async with at_work() as ring:
            world = ring.world
            ring.kill("s0")
            await world.until(lambda: world.all_owned(*SHARDS[1:]), within=DETECTED + 5)
            world.shard("s0", Touch(), process="s0 again", sharding={"lease": LeaseTerms(takeover=takeover)})
            returned = await world.until(lambda: "s0" in ring.holders(), within=within)
            assert (returned > 5.0) is (takeover is Takeover.AFTER_RECORD)
            await world.until(lambda: world.all_owned(*SHARDS), within=30)

    scene()


@pytest.mark.nightly
@virtual_time
async def test_shards_whose_renewals_alone_are_refused_keep_their_objects_until_they_return() -> None:
    """The sharder reaches the API server all the time: a policy or a webhook for Leases fails."""
    async with at_work() as ring:
        refusing = True

        async def refuse(request: HttpRequest) -> HttpResponse | None:
            lease = request.method in ("PUT", "POST") and "/namespaces/ops/leases" in request.target
            return refusal(500, "InternalError") if lease and refusing else None

        def connected(process: Process, network: Network) -> None:
            if process.name.startswith("s"):
                network.before = refuse

        ring.world.connected = connected
        for process in ring.world.processes.values():
            for network in process.networks:
                connected(process, network)
        await asyncio.sleep(DETECTED + 20)
        assert ring.conditions()["TakeoversPaused"] == "ManyShardsFailed"
        assert ring.living() >= {"x0", "x1"}
        refusing = False
        await ring.world.until(lambda: ring.holders() == set(SHARDS), within=DETECTED + 10)
        await asyncio.sleep(60)
        assert ring.moves == []
        assert set(ring.conditions()) == {"Ready"}


def slow_lease_writes(world: SimulatedCluster, seconds: float) -> None:
    """From now on each write of a Lease takes so long, as when a webhook is called for it."""

    async def slow(request: HttpRequest) -> HttpResponse | None:
        if request.method != "GET" and "/leases" in request.target:
            await asyncio.sleep(seconds)
        return None

    def connected(process: Process, network: Network) -> None:
        network.before = slow

    world.connected = connected
    for process in world.processes.values():
        for network in process.networks:
            connected(process, network)


@virtual_time
async def test_nobody_ends_and_who_is_dead_is_replaced_while_each_write_of_a_lease_takes_four_seconds() -> (
    None
):
    async with at_work() as ring:
        alive = ring.living()
        before, processes = ring.world.owners(), set(ring.world.processes)
        slow_lease_writes(ring.world, 4.0)
        await asyncio.sleep(150)
        await ring.world.make_things(20, prefix="new")
        await asyncio.sleep(150)
        assert (ring.living(), set(ring.world.processes)) == (alive, processes)
        assert {name: owner for name, owner in ring.world.owners().items() if name in before} == before
        assert ring.world.all_owned(*SHARDS)
        assert set(ring.conditions()) == {"Ready"}
        ring.kill("s4")
        await ring.world.until(lambda: ring.world.all_owned(*SHARDS[:4]), within=DETECTED + 10)
        ring.kill("x0", "x1")
        ring.start("x2")
        ring.start("s5")
        await ring.world.until(lambda: ring.world.all_owned(*SHARDS[:4], "s5"), within=60)


@pytest.mark.nightly
@virtual_time
async def test_a_sharder_that_was_cut_off_alone_takes_nothing_over() -> None:
    async with at_work() as ring:
        for process in ring.world.processes.values():
            if process.name.startswith("x"):
                process.cut_off()
        await asyncio.sleep(60)
        for process in ring.world.processes.values():
            process.cut_off(down=False)
        await asyncio.sleep(120)
        assert ring.moves == []
        assert "TakeoversPaused" not in ring.conditions()


@pytest.mark.nightly
@virtual_time
async def test_shards_that_really_die_together_are_given_up_within_the_stated_bound() -> None:
    async with at_work() as ring:
        died = ring.world.loop.time()
        ring.kill("s0", "s1", "s2", "s3")
        await asyncio.sleep(DETECTED + 20)
        assert ring.conditions()["TakeoversPaused"] == "ManyShardsFailed"
        assert ring.moves == []
        bound = DETECTED + MASS_FAILURE_GRACE + (PARTS - 1) * EVERY + 10
        await ring.world.until(lambda: ring.world.all_owned("s4"), within=bound - (DETECTED + 20))
        renewed_before = 3.0
        assert ring.moves[0][0] - died > DETECTED + MASS_FAILURE_GRACE - renewed_before
        moved_at = {round(at - died) for at, _ in ring.moves}
        assert max(moved_at) - min(moved_at) >= 2 * EVERY, "they move in batches"
        await asyncio.sleep(60)
        assert "TakeoversPaused" not in ring.conditions()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("dying", "grace"),
    [
        (("s0", "s1"), MASS_FAILURE_GRACE),
        (("s0",), MASS_FAILURE_GRACE),
        (SHARDS[:4], 0.0),
    ],
)
def test_few_shards_or_all_if_so_configured_are_given_up_at_once(
    dying: tuple[str, ...], grace: float
) -> None:
    settings = SharderControllerConfig(mass_failure_grace=Duration(grace))

    @virtual_time
    async def scene() -> None:
        async with at_work(SharderConfig(controller=ControllersConfig(sharder=settings))) as ring:
            ring.kill(*dying)
            left = set(SHARDS) - set(dying)
            await ring.world.until(lambda: ring.world.all_owned(*left), within=DETECTED + 5)

    scene()


@virtual_time
async def test_when_nobody_is_left_of_those_that_failed_together_no_take_over_is_said_to_be_paused() -> None:
    """Ten of them, so that the last ones are given up while many were a moment ago."""
    async with at_work() as ring:
        more = [f"s{number}" for number in range(5, 10)]
        for name in more:
            ring.start(name)
        await ring.world.until(lambda: ring.world.all_owned(*SHARDS, *more), within=60)
        await asyncio.sleep(60)
        ring.kill(*SHARDS, *more)
        await ring.world.until(lambda: "TakeoversPaused" in ring.conditions(), within=DETECTED + 10)
        bound = MASS_FAILURE_GRACE + PARTS * EVERY + 2 * DETECTED
        await ring.world.until(lambda: "TakeoversPaused" not in ring.conditions(), within=bound)
