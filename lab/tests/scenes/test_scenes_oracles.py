"""What the oracles of a simulation excuse, each next to what they do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from kubeshard.controller.context import Context
from kubeshard.controller.reconciler import Result
from kubeshard.core.builtin import ConfigMap, Lease, LeaseSpec
from kubeshard.core.errors import ApiError
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.transport import HttpRequest
from kubeshard.sharding.api import ControllerRing, RingResource
from kubeshard.sharding.names import EVICTED_ANNOTATION, SHARDER_IDENTITY, drain_label, shard_label
from kubeshard_lab.simulation.cluster import MAIN, SimulatedCluster, Thing, Touch
from kubeshard_lab.simulation.faults.injection import Conditions, Rule
from kubeshard_lab.simulation.oracles import Oracles, SimulationResult
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.simulation.running import things
from kubeshard_lab.simulation.script import Script
from kubeshard_lab.simulation.workload import Things
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

ONE, OTHER = (ObjectMeta(name="t0", uid=uid, resource_version="1") for uid in ("1", "2"))
ALONE = msgspec.structs.replace(MAIN, controlled_resources=())


class Watched(Touch):
    """The oracles see its reconciles."""

    def __init__(self, oracles: Oracles, process: str) -> None:
        super().__init__()
        self._oracles = oracles
        self._process = process

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        self._oracles.begins(self._process, obj.metadata)
        try:
            return await super().reconcile(ctx, obj)
        finally:
            self._oracles.ends(self._process, obj.metadata)


class Scene:
    def __init__(self, world: SimulatedCluster) -> None:
        self.world = world
        self.conditions = Conditions(world, seed=1)
        self.result = SimulationResult()
        self.oracles = Oracles(world, self.result)

    def shard(self, process: str) -> Process:
        name = process.partition("~")[0]
        return self.world.shard(name, Watched(self.oracles, process), process=process, machine=name)

    def holder(self, shard: str) -> str:
        leases = self.world.objects("coordination.k8s.io", "leases")
        return next(
            (obj["spec"].get("holderIdentity", "") for key, obj in leases.items() if key.name == shard), ""
        )

    async def list_in_ring(self, resource: RingResource) -> None:
        async with self.world.admin() as client:
            ring = await client.get(ControllerRing, self.world.ring)
            spec = msgspec.structs.replace(ring.spec, resources=(resource,))
            await client.replace(msgspec.structs.replace(ring, spec=spec))


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        yield Scene(world)


@pytest.mark.parametrize(
    ("listed", "sent_before", "counted"),
    [(ALONE, True, True), (ALONE, False, False), (MAIN, True, False)],
    ids=["sent before the shard held its Lease", "sent later", "by a shard that reclaims children"],
)
@virtual_time
async def test_a_late_move_of_a_child_is_excused_only_if_its_shard_read_a_ring_without_children(
    listed: RingResource, sent_before: bool, counted: bool
) -> None:
    async with scene() as at:
        at.world.sharder("x0", webhook=False)
        former = at.shard("s0~1")
        await at.world.until(lambda: at.holder("s0") == "s0", within=30)
        await at.world.make_things(1)
        await at.world.until(lambda: "c-t0" in at.world.owners("", "configmaps"), within=20)
        await asyncio.sleep(2)
        former.kill()
        at.conditions.kinds = ("late",)
        arrives = asyncio.Event()

        def moves(process: Process, request: HttpRequest) -> bool:
            return process.name == "x9" and request.method == "PATCH"

        async def move() -> None:
            label = MergePatch({"metadata": {"labels": {shard_label(at.world.ring): "s9"}}})
            with suppress(ApiError):
                await Process(at.world, "x9").client().patch(ConfigMap, "c-t0", "team", label)

        at.conditions.rules.append(Rule("withheld", moves, lands=arrives))
        await at.list_in_ring(listed)
        moving = asyncio.create_task(move()) if sent_before else None
        began = at.world.loop.time()
        at.shard("s0~2")
        await asyncio.sleep(2)
        await at.list_in_ring(MAIN)
        await at.world.until(lambda: at.oracles._worked["t0"][0] == "s0~2", within=20)
        assert at.world.loop.time() - began < 20  # nobody has taken its objects
        moving = moving or asyncio.create_task(move())
        await asyncio.sleep(0.1)
        arrives.set()
        await at.world.until(lambda: at.world.owners("", "configmaps")["c-t0"] == "s9", within=1)
        await moving
        assert at.result.counts["late moves of children that were not in the ring"] == counted
        assert at.result.broken == ({} if counted else {"parted": 1})


@pytest.mark.quick
@pytest.mark.parametrize(
    ("begun", "overlap"), [(ONE, True), (OTHER, False)], ids=["the same", "another one of its name"]
)
@virtual_time
async def test_two_processes_may_not_work_on_one_object_but_on_two_of_one_name(
    begun: ObjectMeta, overlap: bool
) -> None:
    async with scene() as at:
        for process in ("s0~1", "s1~1"):
            at.shard(process)
        at.oracles.begins("s0~1", ONE)
        at.oracles.begins("s1~1", begun)
        at.oracles.ends("s0~1", ONE)
        at.oracles.ends("s1~1", begun)
        assert at.result.broken == ({"overlap": 1} if overlap else {})


@virtual_time
async def test_a_blocked_process_may_repeat_to_acquire_its_lease_until_it_hears_that_it_has() -> None:
    async with scene() as at:
        at.shard("s0~1")
        await at.world.until(lambda: at.holder("s0") == "s0", within=30)
        at.world.processes["s0~1"].kill()
        process = at.shard("s0~2")
        await asyncio.sleep(2)
        process.block()
        at.conditions.chances["lost"] = 1.0
        await at.world.until(lambda: at.oracles._renewed["s0"] > at.world.loop.time() - 0.2, within=30)
        first = at.oracles._renewed["s0"]
        await at.world.until(lambda: at.oracles._renewed["s0"] > first, within=10)
        assert not process.armed
        at.conditions.chances["lost"] = 0.0
        await at.world.until(lambda: process.armed, within=10)
        last = at.oracles._renewed["s0"]
        await at.world.until(lambda: process.dead, within=15)
        assert process.dead == "watchdog"
        assert at.oracles._renewed["s0"] == last
        assert not at.result.breaks


@virtual_time
async def test_a_lease_is_taken_by_the_clock_of_the_sharder_which_may_be_fast() -> None:
    async with scene() as at:
        at.world.sharder("x0").run_clock(1.05)
        shards = [at.shard(f"s{number}~1") for number in range(3)]
        await at.world.until(lambda: all(at.holder(f"s{number}") for number in range(3)), within=30)
        await asyncio.sleep(5)
        shards[0].kill()
        renewed = at.oracles._renewed["s0"]
        await at.world.until(lambda: at.holder("s0") == SHARDER_IDENTITY, within=40)
        assert 28 < at.world.loop.time() - renewed < 29
        assert not at.result.breaks


@pytest.mark.quick
@pytest.mark.parametrize(("age", "noticed"), [(2.0, False), (5.0, True)], ids=["new", "old"])
@virtual_time
async def test_what_a_user_has_taken_from_its_shard_may_be_given_away_at_once_only_if_it_is_new(
    age: float, noticed: bool
) -> None:
    async with scene() as at, at.world.admin() as client:
        at.shard("s0~1")
        await at.world.until(lambda: at.holder("s0") == "s0", within=30)
        label = shard_label(at.world.ring)
        await asyncio.sleep(1 - at.world.loop.time() % 1)
        await client.create(Thing(metadata=ObjectMeta(name="t0", namespace="team", labels={label: "s0"})))
        await asyncio.sleep(age)
        await client.patch(Thing, "t0", "team", MergePatch({"metadata": {"labels": {label: None}}}))
        given = MergePatch({"metadata": {"labels": {label: "s1"}}})
        await Process(at.world, "x9").client().patch(Thing, "t0", "team", given)
        assert at.result.broken == ({"hasty": 1} if noticed else {})
        assert at.result.counts["new objects that were given away at once"] == (not noticed)


@pytest.mark.parametrize(("held", "noticed"), [(5.0, False), (7.0, True)])
@virtual_time
async def test_a_webhook_need_not_know_a_shard_that_got_its_lease_a_moment_ago(
    held: float, noticed: bool
) -> None:
    async with scene() as at, at.world.admin() as client:
        label = shard_label(at.world.ring)
        await client.create(Thing(metadata=ObjectMeta(name="t0", namespace="team", labels={label: "s1"})))
        at.shard("s0~1")
        await at.world.until(lambda: at.holder("s0") == "s0", within=30)
        await asyncio.sleep(held)
        at.oracles.replaced("t0", "s0", seen=True)
        assert at.result.broken == ({"not restored": 1} if noticed else {})


async def ring_of(world: SimulatedCluster, shards: int) -> Things:
    """A workload that has begun, with this number of shards."""
    workload = things(world, SimulationResult(), Script(seed=1, minutes=1, objects=12), "")
    assert isinstance(workload, Things)
    workload.names = [f"s{number}" for number in range(shards)]
    await workload.begin()
    return workload


@pytest.mark.parametrize(
    ("shards", "ended", "sharder", "least", "most"),
    [(5, 2, "x0", 20, 60), (7, 3, "x0", 20, 60), (5, 3, "x0", 60, 145), (5, 3, "", 145, 146)],
    ids=["few", "three of many", "most", "most, and there is no sharder"],
)
@virtual_time
async def test_objects_of_shards_that_fail_together_may_wait_longer_but_not_forever(
    shards: int, ended: int, sharder: str, least: float, most: float
) -> None:
    async with SimulatedCluster(seed=1) as world:
        workload = await ring_of(world, shards)
        for name in workload.names[:ended] + ([] if sharder else [*workload.sharders]):
            for process in workload.live(f"{name}~"):
                process.kill()
        workload.sharders = [sharder] if sharder else []
        await workload.end()
        assert least < workload.result.owned_after < most
        assert workload.result.broken == ({} if sharder else {"not owned": 1, "not settled": 1})


@pytest.mark.parametrize(
    ("before", "after", "sharder", "least", "most"),
    [(2, 1, "x0", 20, 145), (1, 1, "x0", 20, 60), (1, 1, "", 60, 62), (2, 1, "", 145, 152)],
    ids=["most", "few", "few, and there is no sharder", "most, and there is no sharder"],
)
@virtual_time
async def test_after_a_restore_shards_fail_that_stopped_before_or_after_it(
    before: int, after: int, sharder: str, least: float, most: float
) -> None:
    async with SimulatedCluster(seed=1) as world:
        workload = await ring_of(world, 5)
        restore = world.backup()

        async def stop(names: list[str]) -> None:
            for name in names:
                await asyncio.gather(*(process.stop() for process in workload.live(f"{name}~")))

        await stop(workload.names[:before])
        workload.oracles.restored()
        restore()
        await stop(workload.names[before : before + after])
        workload.sharders = [sharder] if sharder else []
        for process in [] if sharder else workload.live("x"):
            process.kill()
        await workload.end()
        assert least < workload.result.owned_after < most
        assert workload.result.broken == ({} if sharder else {"not owned": 1, "not settled": 1})


@pytest.mark.quick
@virtual_time
async def test_a_sharder_that_takes_a_lease_earlier_than_any_clock_allows_is_noticed() -> None:
    async with scene() as at:
        process = at.shard("s0~1")
        await at.world.until(lambda: at.holder("s0") == "s0", within=30)
        process.kill()
        await asyncio.sleep(28 - (at.world.loop.time() - at.oracles._renewed["s0"]))
        taken = MergePatch({"spec": {"holderIdentity": SHARDER_IDENTITY}})
        await Process(at.world, "x9").client().patch(Lease, "s0", "ops", taken)
        assert at.result.broken == {"live Lease": 1}


@pytest.mark.quick
@pytest.mark.parametrize(("after", "early"), [(55.0, True), (57.1, False)])
@virtual_time
async def test_a_shard_is_evicted_by_the_clock_of_the_sharder_which_may_be_fast(
    after: float, early: bool
) -> None:
    async with scene() as at, at.world.admin() as client:
        held = LeaseSpec(holder_identity="s0", lease_duration_seconds=15)
        await client.create(Lease(metadata=ObjectMeta(name="s0", namespace="ops"), spec=held))
        labels = {shard_label(at.world.ring): "s0", drain_label(at.world.ring): "true"}
        await client.create(Thing(metadata=ObjectMeta(name="t0", namespace="team", labels=labels)))
        await asyncio.sleep(after)
        evicted = {"metadata": {"annotations": {EVICTED_ANNOTATION: "1"}}}
        taken = MergePatch({**evicted, "spec": {"holderIdentity": SHARDER_IDENTITY}})
        await Process(at.world, "x9").client().patch(Lease, "s0", "ops", taken)
        assert at.result.broken == ({"live Lease": 1} if early else {})
