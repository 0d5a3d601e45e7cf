"""What the oracles of a simulation notice, and what they excuse, each next to what they do not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import cast

import msgspec
import pytest

from kubeshard.client.client import Client
from kubeshard.controller.context import Context
from kubeshard.controller.reconciler import Result
from kubeshard.core.builtin import ConfigMap, Lease, LeaseSpec
from kubeshard.core.errors import AlreadyExists, ApiError, NotFound, PatchTestFailed
from kubeshard.core.objects import Key, KubeObject, ObjectMeta, OwnerReference
from kubeshard.core.patches import JsonPatch, MergePatch, add, test
from kubeshard.core.times import micro_time
from kubeshard.manager.manager import Manager
from kubeshard.runtime.transport import HttpRequest
from kubeshard.shard.settings import Ranges
from kubeshard.sharding.api import ControllerRing, RingResource
from kubeshard.sharding.assignment import Assignment, Place
from kubeshard.sharding.names import (
    EVICTED_ANNOTATION,
    SHARDER_IDENTITY,
    assignment_name,
    bucket_label,
    drain_label,
    shard_label,
)
from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH
from kubeshard_lab.simulation.checker import check
from kubeshard_lab.simulation.cluster import MAIN, SimulatedCluster, Thing, Touch
from kubeshard_lab.simulation.deliveries import CHILDREN, Ranged
from kubeshard_lab.simulation.faults.injection import Conditions, Rule
from kubeshard_lab.simulation.history import Calm, Finished
from kubeshard_lab.simulation.oracles import SimulationResult
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.simulation.properties import (
    AMNESTY,
    CRASH,
    DEAD_TARGET,
    EXPIRED,
    FORMER_PROCESS,
    HASTY,
    HUNG,
    LIVE_LEASE,
    MISSED_CHILD,
    NEGLECTED,
    NOT_OURS,
    NOT_OWNED,
    NOT_RESTORED,
    NOT_SETTLED,
    OF_RINGS,
    OVERLAP,
    PARTED,
    RELEASED_AT_WORK,
    STALE_READ,
    STALE_WRITE,
    TAKEN_ALIVE,
    Property,
)
from kubeshard_lab.simulation.ring_oracles import RingOracles
from kubeshard_lab.simulation.running import things
from kubeshard_lab.simulation.script import Script, Sharder
from kubeshard_lab.simulation.workload import Things
from kubeshard_lab.virtual_time import virtual_time
from measures import MEASURES

pytestmark = pytest.mark.regression

ONE, OTHER = (ObjectMeta(name="t0", uid=uid, resource_version="1") for uid in ("1", "2"))
ALONE = msgspec.structs.replace(MAIN, controlled_resources=())


class Watched(Touch):
    """The oracles see its reconciles."""

    def __init__(self, oracles: RingOracles, process: str) -> None:
        super().__init__()
        self._oracles = oracles
        self._process = process

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        self._oracles.begins(self._process, obj.metadata)
        try:
            return await super().reconcile(ctx, obj)
        finally:
            self._oracles.ends(self._process, obj.metadata)


async def watched(client: Client) -> None:
    async with client.watch(ConfigMap, "ops") as events:
        async for _ in events:
            return


async def follow(client: Client) -> None:
    """As a shard does: it hears what it is given, and reads whether that is so."""
    await asyncio.create_task(watched(client))  # the task acts for this process from then on
    await client.get(ConfigMap, assignment_name("r"), "ops")


async def hold(process: Process, holder: str | None = None) -> None:
    """The process gets its Lease, or makes it another one's."""
    name = process.name.partition("~")[0]
    client, spec = process.client(), {"holderIdentity": name if holder is None else holder}
    try:
        await client.get(Lease, name, "ops")
    except NotFound:
        lease = LeaseSpec(holder_identity=spec["holderIdentity"], lease_duration_seconds=15)
        await client.create(Lease(metadata=ObjectMeta(name=name, namespace="ops"), spec=lease))
    else:
        again = {"spec": {**spec, "renewTime": micro_time(process.world.clock.wall())}}
        await client.patch(Lease, name, "ops", MergePatch(again))


class Scene:
    def __init__(self, world: SimulatedCluster) -> None:
        self.world = world
        self.conditions = Conditions(world, seed=1)
        self.result = SimulationResult()
        self.oracles = RingOracles(world, self.result)

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


async def paused(process: Process, until: Awaitable[object]) -> None:
    process.pause()
    await until
    process.resume()


@pytest.mark.parametrize("stops", [paused, Process.suspended, Process.frozen])
@virtual_time
async def test_a_process_stays_blocked_when_something_else_that_stopped_it_is_over(
    stops: Callable[[Process, Awaitable[object]], Awaitable[None]],
) -> None:
    async with scene() as at:
        process = at.shard("s0~1")
        await at.world.until(lambda: at.holder("s0") == "s0", within=30)
        await asyncio.sleep(5)
        process.block()
        last = at.oracles._renewed["s0"]
        await stops(process, asyncio.sleep(1))
        await at.world.until(lambda: bool(process.dead), within=15)
        assert process.dead == "watchdog"
        assert at.oracles._renewed["s0"] == last
        assert not at.result.breaks


@virtual_time
async def test_a_process_stays_stopped_while_anything_stops_it_and_goes_on_afterwards() -> None:
    async with scene() as at:
        process = at.shard("s0~1")
        await at.world.until(lambda: at.holder("s0") == "s0", within=30)
        suspended = asyncio.create_task(process.suspended(asyncio.sleep(4)))
        await asyncio.sleep(1)
        last = at.oracles._renewed["s0"]
        await paused(process, asyncio.sleep(1))
        process.block()
        process.unblock()
        await asyncio.sleep(1.9)
        assert process.stopped
        assert at.oracles._renewed["s0"] == last
        await suspended
        await at.world.until(lambda: at.oracles._renewed["s0"] > last, within=5)


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


@pytest.mark.quick
@pytest.mark.parametrize("taken", [False, True], ids=["its shard's", "nobody's"])
@virtual_time
async def test_an_object_that_has_come_to_a_shard_is_awaited_until_it_is_deleted(taken: bool) -> None:
    async with scene() as at, at.world.admin() as client:
        label = shard_label(at.world.ring)
        await client.create(Thing(metadata=ObjectMeta(name="t0", namespace="team", labels={label: "s0"})))
        if taken:
            await client.patch(Thing, "t0", "team", MergePatch({"metadata": {"labels": {label: None}}}))
        assert at.oracles.awaited == {"t0"}
        await client.delete(Thing, "t0", "team")
        assert at.oracles.awaited == set()


@pytest.mark.quick
@pytest.mark.parametrize(("later", "noticed"), [(5.0, False), (7.0, True)])
@virtual_time
async def test_a_renewal_that_arrives_after_a_later_one_takes_nothing_from_the_right_to_act(
    later: float, noticed: bool
) -> None:
    async with scene() as at, at.world.admin() as client:
        await client.create(Thing(metadata=ObjectMeta(name="t0", namespace="team")))
        process, arrives = Process(at.world, "s0~1"), asyncio.Event()
        await hold(process)
        at.conditions.rules.append(
            Rule("withheld", lambda of, request: request.method == "PATCH", lands=arrives)
        )
        late = asyncio.create_task(hold(process))
        await asyncio.sleep(4)
        at.conditions.rules.clear()
        await hold(process)
        await asyncio.sleep(4)
        arrives.set()
        await asyncio.sleep(later)
        await process.client().patch(Thing, "t0", "team", MergePatch({"spec": {"v": 1}}))
        late.cancel()
        assert at.result.broken["expired"] == noticed


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


@pytest.mark.quick
@pytest.mark.parametrize(
    ("known", "unheard", "noticed"), [(20.0, True, False), (20.0, False, True), (100.0, True, True)]
)
@virtual_time
async def test_a_webhook_need_not_have_heard_of_a_ring_until_a_silent_watch_is_given_up(
    known: float, unheard: bool, noticed: bool
) -> None:
    async with scene() as at, at.world.admin() as client:
        at.shard("s0~1")
        label = shard_label(at.world.ring)
        await client.create(Thing(metadata=ObjectMeta(name="t0", namespace="team", labels={label: "s1"})))
        await asyncio.sleep(known)
        at.oracles.replaced("t0", "s0", seen=True, unheard=unheard)
        assert at.result.broken == ({"not restored": 1} if noticed else {})


async def ring_of(
    world: SimulatedCluster, shards: int, *, objects: int = 12, sharder: Sharder = "service"
) -> Things:
    """A workload that has begun, with this number of shards."""
    script = Script(seed=1, minutes=1, objects=objects, sharder=sharder)
    workload = things(world, SimulationResult(), script, "")
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
    ("others", "mode", "least", "most"),
    [(True, "both", 60, 145), (True, "shard", 145, 147), (False, "shard", 60, 62)],
    ids=["the others", "the others, and there is no sharder", "some of their own"],
)
@virtual_time
async def test_a_ring_that_changes_its_delivery_may_wait_for_shards_of_the_former_one_that_fail_together(
    others: bool, mode: str, least: float, most: float
) -> None:
    """Until they are given up, those by labels take nothing, whosever it was. For some by labels nobody waits."""
    async with SimulatedCluster(seed=1, ranges=Ranges(), feature_gates=(SHARDED_LIST_AND_WATCH,)) as world:
        script = Script(seed=1, minutes=1, objects=12, sharder="in-manager", delivery="uid")
        workload = things(world, SimulationResult(), script, "")
        assert isinstance(workload, Things)
        workload.names, workload.by_labels = ["s0", "s1", "s2", "s3", "s4"], not others
        await workload.begin()
        for process in workload.live("s"):
            process.kill()
        workload.names, workload.by_labels, workload.mode = ["s8", "s9"], True, mode
        for name in workload.names:
            workload.start(name)
        ended = MergePatch({"metadata": {"labels": {shard_label("r"): "s7"}}})
        await workload.admin.patch(Thing, "t0", "team", ended)
        await workload.end()
        assert least < workload.result.owned_after < most
        assert workload.result.broken == ({} if mode == "both" else {"not owned": 1, "not settled": 1})


@pytest.mark.parametrize(
    ("shards", "mode", "least", "most"),
    [(2, "both", 60, 90), (2, "shard", 90, 92), (6, "both", 145, 175), (6, "shard", 175, 177)],
    ids=["few", "few, and none shares out", "most", "most, and none shares out"],
)
@virtual_time
async def test_where_shards_share_out_and_all_end_objects_wait_until_one_of_them_is_a_shard_again(
    shards: int, mode: str, least: float, most: float
) -> None:
    """It waits for its predecessor, and has seen no Lease before, so it waits as long again for those of the others."""
    async with SimulatedCluster(seed=1) as world:
        workload = await ring_of(world, shards, objects=30, sharder="in-manager")
        for process in workload.live("s"):
            process.kill()
        workload.names, workload.mode = ["s0"], mode
        workload.start("s0")
        workload.recorder.add(Calm)
        await workload.end()
        workload.recorder.add(Finished)
        assert least < workload.result.owned_after < most
        assert workload.result.broken == ({} if mode == "both" else {"not owned": 1, "not settled": 1})
        found = {finding.rule for finding in check(workload.recorder.entries)}
        assert found == (set() if mode == "both" else {"ownership"})


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


@pytest.mark.parametrize(
    ("erased", "sharder", "least", "most"),
    [(2, "x0", 60, 145), (1, "x0", 20, 60), (1, "", 60, 62), (2, "", 145, 152)],
    ids=["most", "few", "few, and there is no sharder", "most, and there is no sharder"],
)
@virtual_time
async def test_after_a_restore_shards_fail_whose_leases_it_has_erased(
    erased: int, sharder: str, least: float, most: float
) -> None:
    async with SimulatedCluster(seed=1) as world:
        workload = await ring_of(world, 3)
        restore = world.backup()
        names = [f"s{number}" for number in range(3, 3 + erased)]
        for name in names:
            workload.start(name)
        await asyncio.sleep(20)
        workload.oracles.restored()
        restore()
        for name in ["s2", *names, *([] if sharder else workload.sharders)]:
            for process in workload.live(f"{name}~"):
                process.kill()
        workload.sharders = [sharder] if sharder else []
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


def assigned(to: Place) -> ConfigMap:
    """An assignment that gives everything to this place."""
    buckets = Ranges().divided
    data = Assignment.of(buckets, dict.fromkeys(buckets.all.buckets, to)).data()
    return ConfigMap(metadata=ObjectMeta(name=assignment_name("r"), namespace="ops"), data=data)


@pytest.mark.quick
@virtual_time
async def test_a_shard_may_be_evicted_because_of_a_bucket_in_which_no_object_is_left() -> None:
    """Something may go on for one that was deleted."""
    async with SimulatedCluster(ranges=Ranges()) as world:
        await world.install()
        at = Scene(world)
        async with world.admin() as client:
            held = LeaseSpec(holder_identity="s0", lease_duration_seconds=15)
            await client.create(Lease(metadata=ObjectMeta(name="s0", namespace="ops"), spec=held))
            await client.create(assigned(Place("s0", "s1", 1)))
        await asyncio.sleep(60.0)
        evicted = {"metadata": {"annotations": {EVICTED_ANNOTATION: "1"}}}
        taken = MergePatch({**evicted, "spec": {"holderIdentity": SHARDER_IDENTITY}})
        await Process(world, "x9").client().patch(Lease, "s0", "ops", taken)
        assert not at.result.broken


@pytest.mark.quick
@pytest.mark.parametrize("etcd", [False, True], ids=["a user restores it", "etcd is restored"])
@pytest.mark.parametrize(
    ("asked", "held"),
    [(True, True), (True, False), (False, False)],
    ids=["asked for it", "asked without its Lease", "was about to begin"],
)
@virtual_time
async def test_a_restored_assignment_counts_once_no_shard_or_coordinator_lives_that_has_asked_for_a_later_one(
    asked: bool, held: bool, etcd: bool
) -> None:
    async with SimulatedCluster(ranges=Ranges()) as world:
        await world.install()

        def owner() -> str:
            shown = world.delivery.shown({"metadata": {"name": "t0", "namespace": "team", "uid": "1"}})
            return str(shown["metadata"]["labels"].get(shard_label("r"), ""))

        shard = Process(world, "s0~1")
        async with world.admin() as client:
            await client.create(assigned(Place("s1", "", 3)))
            back = world.backup()
            await client.apply(assigned(Place("s0", "", 5)), force=True)
            if held:
                await hold(shard)
            if asked:
                await follow(shard.client())
            if etcd:
                back()
            else:
                await client.apply(assigned(Place("s1", "", 3)), force=True)
            assert owner() == ("s0" if held else "s1")
            shard.kill()
            await client.apply(assigned(Place("s1", "", 4)), force=True)
            assert owner() == "s1"


@pytest.mark.quick
@pytest.mark.parametrize("ended", ["before", "after", "never"])
@pytest.mark.parametrize("given_on", [False, True], ids=["taken", "given on"])
@virtual_time
async def test_what_an_edit_gives_a_shard_counts_when_it_is_taken_only_if_no_process_lives_that_had_it_before(
    ended: str, given_on: bool
) -> None:
    """By that shard, or by a coordinator that has begun since and finds it dead."""
    async with SimulatedCluster(ranges=Ranges()) as world:
        await world.install()
        at, name, edited = Scene(world), assignment_name("r"), assigned(Place("s1", "", 3))
        await world.make_things(1)
        former, coordinator, begins = (Process(world, each) for each in ("s0~1", "x0~1", "s1~1"))
        async with world.admin() as client:
            await client.create(assigned(Place("s0", "", 3)))
            await hold(former)
            for each in former, coordinator:
                await follow(each.client())
            await asyncio.sleep(AMNESTY)
            if ended == "before":
                former.kill()
            await client.apply(edited, force=True)
        assert set(world.owners().values()) == {"s1" if ended == "before" else "s0"}
        if ended == "after":
            former.kill()
        said = Assignment.parse(edited.data)
        bucket = said.buckets.all.buckets
        act = said.change(dict.fromkeys(bucket, ("s2", ""))) if given_on else said.reclaim("s1")
        assert act is not None
        await begins.client().patch(ConfigMap, name, "ops", act)
        assert set(world.owners().values()) == {"s2" if given_on else "s1"}
        assert at.result.broken == ({"stale write": 1} if ended == "never" else {})


@pytest.mark.quick
@virtual_time
async def test_a_bucket_is_remembered_by_those_who_began_when_another_one_was_edited_already() -> None:
    async with SimulatedCluster(ranges=Ranges()) as world:
        await world.install()
        await world.make_things(40)
        first, since = Process(world, "s0~1"), Process(world, "s1~1")
        half = Assignment.of(
            Ranges().divided, {each: Place("s0" if each < 512 else "s1", "", 5) for each in range(1024)}
        )

        def says(left: Place, right: Place) -> ConfigMap:
            return msgspec.structs.replace(
                assigned(left), data={**half.data(), "0000-0511": str(left), "0512-1023": str(right)}
            )

        async with world.admin() as client:
            await client.create(says(Place("s0", "", 5), Place("s1", "", 5)))
            for each in first, since:
                await hold(each)
            await follow(first.client())
            await client.apply(says(Place("s2", "", 4), Place("s1", "", 5)), force=True)
            await follow(since.client())
            first.kill()
            await client.apply(says(Place("s2", "", 4), Place("s2", "", 4)), force=True)
        assert set(world.owners().values()) == {"s1", "s2"}


@pytest.mark.quick
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "lives"])
@virtual_time
async def test_a_shard_may_work_on_what_a_restore_gives_it_only_if_no_process_lives_that_had_it_before(
    ended: bool,
) -> None:
    """By ranges, there is no minute after a restore in which two may work on an object."""
    async with SimulatedCluster(ranges=Ranges()) as world:
        await world.install()
        at, name, restored = Scene(world), assignment_name("r"), assigned(Place("s1", "", 3))
        await world.make_things(1)
        former, coordinator, begins = (Process(world, each) for each in ("s0~1", "x0~1", "s1~1"))
        async with world.admin() as client:
            await client.create(restored)
            restore = world.backup()
            await client.apply(assigned(Place("s0", "", 9)), force=True)
            await hold(former)
            for each in former, coordinator:
                await follow(each.client())
            thing = await client.get(Thing, "t0", "team")
        await asyncio.sleep(AMNESTY)
        if ended:
            former.kill()
        at.oracles.restored()
        restore()
        assert set(world.owners().values()) == {"s1" if ended else "s0"}
        await asyncio.sleep(AMNESTY if ended else 0)
        reclaim = Assignment.parse(restored.data).reclaim("s1")
        assert reclaim is not None
        await begins.client().patch(ConfigMap, name, "ops", reclaim)
        at.oracles.begins("s1~1", thing.metadata)
        assert at.result.broken == ({} if ended else {"not ours": 1})


@pytest.mark.quick
@pytest.mark.parametrize(
    "seen", [True, False], ids=["which has written its Lease again", "whose Lease it shows as gone"]
)
@pytest.mark.parametrize("by", ["its own request", "a coordinator that begins then"])
@virtual_time
async def test_a_shard_that_begins_after_a_restore_may_take_over_what_one_has(seen: bool, by: str) -> None:
    """Nothing shows that the other one lives, until that writes its Lease again."""
    async with SimulatedCluster(ranges=Ranges()) as world:
        await world.install()
        at, restored = Scene(world), assigned(Place("s1", "", 3))
        await world.make_things(1)
        former, begins = Process(world, "s0~1"), Process(world, "s1~1")
        async with world.admin() as client:
            await client.create(restored)
            restore = world.backup()
            await client.apply(assigned(Place("s0", "", 9)), force=True)
            await hold(former)
            await follow(former.client())
            thing = await client.get(Thing, "t0", "team")
        restore()
        at.oracles.restored()
        at.oracles.begins("s0~1", thing.metadata)
        for each in (former, begins) if seen else (begins, former):
            await hold(each)
        reclaim = Assignment.parse(restored.data).reclaim("s1")
        assert reclaim is not None
        user_agent = "sharder" if by == "a coordinator that begins then" else ""
        writes = begins.client().with_user_agent(user_agent) if user_agent else begins.client()
        await writes.patch(ConfigMap, assignment_name("r"), "ops", reclaim)
        for process in "s1~1", "s0~1":
            at.oracles.begins(process, thing.metadata)
        assert at.result.broken == ({"not ours": 1, "overlap": 2} if seen else {})


@asynccontextmanager
async def owned(place: Place, *others: str) -> AsyncIterator[tuple[Scene, Client, ObjectMeta]]:
    """A Thing is in this place, and its owner and other processes have asked for the assignment."""
    async with SimulatedCluster(ranges=Ranges()) as world:
        await world.install()
        at = Scene(world)
        await world.make_things(1)
        async with world.admin() as client:
            await client.create(assigned(place))
            for process in (f"{place.owner}~1", *others):
                await hold(Process(world, process))
                await follow(world.processes[process].client())
            yield at, client, (await client.get(Thing, "t0", "team")).metadata


@pytest.mark.quick
@pytest.mark.parametrize("before", [True, False], ids=["began before", "begins later"])
@virtual_time
async def test_an_edit_of_the_assignment_excuses_nobody_but_the_former_owner(before: bool) -> None:
    async with owned(Place("s0", "", 3), "s1~1", "s2~1") as (at, client, thing):
        if before:
            at.oracles.begins("s2~1", thing)
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        for process in "s0~1", "s1~1":
            at.oracles.begins(process, thing)
        if not before:
            assert at.result.broken == {}
            at.oracles.begins("s2~1", thing)
        assert at.result.broken == {"not ours": 1, "overlap": 1}


TOLD: dict[str, Callable[[Client], Awaitable[object]]] = {
    "its watch has delivered the edit": watched,
    "it has listed it": lambda client: client.list_all(ConfigMap, "ops"),
    "a read of it was answered with it": lambda client: client.get(ConfigMap, assignment_name("r"), "ops"),
}
UNTOLD: dict[str, Callable[[Client], Awaitable[object]]] = {
    "nothing": lambda client: asyncio.sleep(0),
    "a read of something else": lambda client: client.get(Thing, "t0", "team"),
    "it has asked for the current version only": lambda client: client.current_version(ConfigMap, "ops"),
    "its sharder was told": lambda client: watched(client.with_user_agent("sharder")),
}


@pytest.mark.quick
@pytest.mark.parametrize("heard", [*TOLD, *UNTOLD])
@virtual_time
async def test_an_edit_excuses_its_former_owner_until_that_has_been_told_however_late(heard: str) -> None:
    async with owned(Place("s0", "", 3)) as (at, client, thing):
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        await asyncio.sleep(10 * AMNESTY)
        await (TOLD | UNTOLD)[heard](at.world.processes["s0~1"].client())
        await asyncio.sleep(1)
        at.oracles.begins("s0~1", thing)
        assert at.result.broken == ({"not ours": 1} if heard in TOLD else {})


@pytest.mark.quick
@virtual_time
async def test_who_was_told_of_something_older_than_the_edit_has_not_been_told_of_it() -> None:
    """Of what has been put back since."""
    async with owned(Place("s0", "", 3), "s1~1") as (at, client, thing):
        s0, s1 = (at.world.processes[each].client() for each in ("s0~1", "s1~1"))
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        await follow(s1)
        await client.apply(assigned(Place("s0", "", 3)), force=True)
        assert set(at.world.owners().values()) == {"s1"}
        await s0.get(ConfigMap, assignment_name("r"), "ops")
        at.oracles.begins("s0~1", thing)
        assert at.result.broken == {}
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        await s0.get(ConfigMap, assignment_name("r"), "ops")
        await asyncio.sleep(1)
        at.oracles.begins("s0~1", thing)
        assert at.result.broken == {"not ours": 1}


@pytest.mark.quick
@pytest.mark.parametrize("overtaken", [True, False])
@virtual_time
async def test_an_answer_that_the_watch_has_overtaken_takes_nothing_from_a_shard(overtaken: bool) -> None:
    """So it has the object by the next read, and need not know at once that a user takes it."""
    async with owned(Place("s0", "", 3), "s1~1") as (at, client, thing):
        s1, name = at.world.processes["s1~1"], assignment_name("r")
        before = json.dumps(at.world.stored(CHILDREN, Key("ops", name))).encode()
        late = HttpRequest("GET", f"/api/v1/namespaces/ops/configmaps/{name}", {})
        ranged = cast(Ranged, at.world.delivery)
        if overtaken:
            ranged.sent(s1, late)
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        await asyncio.create_task(watched(s1.client()))
        if not overtaken:  # what it says has been put back since
            ranged.sent(s1, late)
        ranged.heard(s1, late, before)
        await s1.client().get(ConfigMap, name, "ops")
        await client.apply(assigned(Place("s2", "", 7)), force=True)
        at.oracles.begins("s1~1", thing)
        assert at.result.broken == ({} if overtaken else {"not ours": 1})


@pytest.mark.quick
@pytest.mark.parametrize("told", [True, False])
@virtual_time
async def test_an_assignment_that_is_put_back_counts_unless_its_later_owner_has_been_told(told: bool) -> None:
    """That a coordinator or a shard that had it before knows better gives nobody two owners."""
    async with owned(Place("s0", "", 3), "s1~1", "x0~1") as (at, client, _):
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        for each in ("s0~1", "x0~1", *(["s1~1"] if told else ())):
            await follow(at.world.processes[each].client())
        await client.apply(assigned(Place("s2", "", 5)), force=True)
        assert set(at.world.owners().values()) == {"s1" if told else "s2"}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("before", "edited"),
    [(Place("s0", "", 9), Place("s1", "", 9)), (Place("s0", "s2", 9), Place("s0", "", 9))],
    ids=str,
)
@virtual_time
async def test_an_assignment_that_was_put_back_counts_once_those_have_died_who_knew_better(
    before: Place, edited: Place
) -> None:
    """Whoever writes his Lease then has written nothing else."""
    async with owned(before, "s1~1") as (at, client, thing):
        at.oracles.begins("s0~1", thing)
        patch = MergePatch({"metadata": {"annotations": {"by": "s0~1"}}})
        written = await at.world.processes["s0~1"].client().patch(Thing, "t0", "team", patch)
        at.oracles.ends("s0~1", thing)
        await client.apply(assigned(edited), force=True)
        assert set(at.world.owners().values()) == {"s0"}
        assert bool(at.world.delivery.drained) == bool(before.target)
        at.world.processes["s0~1"].kill()
        await hold(at.world.processes["s1~1"])
        assert at.world.delivery.drained == {}
        if edited.owner == "s1":
            at.oracles.begins("s1~1", written.metadata)
            assert at.oracles.awaited == set()
        assert (set(at.world.owners().values()), at.result.broken) == ({edited.owner}, {})


@asynccontextmanager
async def late_watch(client: Client) -> AsyncIterator[asyncio.Event]:
    """It delivers nothing until the event is set."""
    late = asyncio.Event()

    async def follow() -> None:
        async with client.watch(ConfigMap, "ops") as events:
            await late.wait()
            async for _ in events:
                pass

    watching = asyncio.create_task(follow())
    await asyncio.sleep(1)
    yield late
    watching.cancel()


@pytest.mark.quick
@pytest.mark.parametrize("known", [True, False])
@virtual_time
async def test_an_edit_excuses_its_former_owner_that_hears_first_what_was_edited(known: bool) -> None:
    """At that epoch, the edit is no news to it; at a greater one it is."""
    async with owned(Place("s0", "", 3), "s1~1") as (at, client, thing):
        async with late_watch(at.world.processes["s0~1"].client()) as late:
            for place in Place("s0", "", 5), Place("s1", "", 6 if known else 5):
                await client.apply(assigned(place), force=True)
            late.set()
            await asyncio.sleep(1)
        assert set(at.world.owners().values()) == {"s1"}
        at.oracles.begins("s0~1", thing)
        assert at.result.broken == ({"not ours": 1} if known else {})


@pytest.mark.quick
@virtual_time
async def test_everything_is_where_it_should_be_whatever_the_epoch_at_which_its_owner_knows_it() -> None:
    async with owned(Place("s0", "", 3)) as (at, client, _):
        async with late_watch(at.world.processes["s0~1"].client()) as late:
            for epoch in 5, 4:
                await client.apply(assigned(Place("s0", "", epoch)), force=True)
            late.set()
            await asyncio.sleep(1)
            await client.apply(assigned(Place("s0", "", 5)), force=True)
        assert [*at.world.delivery.misplaced(at.world.owners(), {"s0"})] == []


@pytest.mark.quick
@pytest.mark.parametrize("heard", [True, False])
@virtual_time
async def test_a_shard_has_to_work_on_what_it_got_back_only_if_it_knew_that_it_was_anothers(
    heard: bool,
) -> None:
    async with owned(Place("s0", "", 3)) as (at, client, _):
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        if heard:
            await watched(at.world.processes["s0~1"].client())
            await asyncio.sleep(1)
        await client.apply(assigned(Place("s0", "", 7)), force=True)
        assert list(at.oracles.awaited) == (["t0"] if heard else [])


@pytest.mark.quick
@pytest.mark.parametrize("again", [True, False])
@virtual_time
async def test_work_on_an_object_that_is_gone_is_none_on_one_that_has_its_name(again: bool) -> None:
    async with owned(Place("s0", "", 3), "x0~1") as (at, client, gone):
        await client.delete(Thing, "t0", "team")
        await at.world.make_things(1)
        thing = (await client.get(Thing, "t0", "team")).metadata
        for each in (gone, thing) if again else (gone,):
            at.oracles.begins("s0~1", each)
            at.oracles.ends("s0~1", each)
        said = Assignment.parse(assigned(Place("s0", "", 3)).data)
        taken = said.change(dict.fromkeys(said.buckets.all.buckets, ("s2", "")))
        assert taken is not None
        await at.world.processes["x0~1"].client().patch(ConfigMap, assignment_name("r"), "ops", taken)
        assert at.result.broken == ({"taken alive": 1} if again else {})


@pytest.mark.quick
@virtual_time
async def test_a_restore_that_undoes_a_restore_excuses_as_an_edit_does() -> None:
    """What the first one had erased comes back, at an epoch that is news to the owner."""
    async with owned(Place("s0", "", 3)) as (at, client, thing):
        first = at.world.backup()
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        second = at.world.backup()
        for restore, owner in (first, "s0"), (second, "s1"):
            restore()
            assert set(at.world.owners().values()) == {owner}
        await asyncio.sleep(1)
        at.oracles.begins("s0~1", thing)
        assert at.result.broken == {}


@pytest.mark.quick
@pytest.mark.parametrize("told", [False, True], ids=["begun before the edit", "begun before it was told"])
@virtual_time
async def test_what_has_begun_before_is_excused_until_it_ends_and_nothing_that_begins_later(
    told: bool,
) -> None:
    async with owned(Place("s0", "", 3), "s1~1") as (at, client, thing):
        edit, former = assigned(Place("s1", "", 5)), at.world.processes["s0~1"].client()
        if told:
            await client.apply(edit, force=True)
        at.oracles.begins("s0~1", thing)
        await client.apply(edit, force=True)
        await former.get(ConfigMap, assignment_name("r"), "ops")
        await asyncio.sleep(10 * AMNESTY)
        at.oracles.begins("s1~1", thing)
        assert at.result.broken == {}
        at.oracles.ends("s0~1", thing)
        at.oracles.begins("s0~1", thing)
        assert at.result.broken == {"not ours": 1, "overlap": 1}


@pytest.mark.quick
@pytest.mark.parametrize("first", ["sent", "told"])
@virtual_time
async def test_a_write_is_excused_that_was_sent_before_its_sender_was_told_of_an_edit(first: str) -> None:
    async with owned(Place("s0", "", 3), "s1~1") as (at, client, _):
        former, present = (at.world.processes[each].client() for each in ("s0~1", "s1~1"))
        arrives, name = asyncio.Event(), assignment_name("r")
        late = Rule("withheld", lambda *of: of[1].method == "PATCH" and of[0].name == "s0~1", lands=arrives)
        at.conditions.rules.append(late)
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        patch = MergePatch({"metadata": {"annotations": {"by": "s0~1"}}})
        if first == "told":
            await former.get(ConfigMap, name, "ops")
            await asyncio.sleep(0.1)
        writing = asyncio.create_task(former.patch(Thing, "t0", "team", patch))
        await asyncio.sleep(1)
        await former.get(ConfigMap, name, "ops")
        await present.patch(Thing, "t0", "team", MergePatch({"metadata": {"annotations": {"by": "s1~1"}}}))
        arrives.set()
        await asyncio.sleep(1)
        writing.cancel()
        assert at.result.broken["stale write"] == (first == "told")


async def give_away(at: Scene, present: Place) -> None:
    """A coordinator gives everything that is in this place to another shard."""
    said = Assignment.parse(assigned(present).data)
    patch = said.change(dict.fromkeys(said.buckets.all.buckets, ("s2", "")))
    assert patch is not None
    await at.world.processes["x0~1"].client().patch(ConfigMap, assignment_name("r"), "ops", patch)


@pytest.mark.quick
@pytest.mark.parametrize("told", [True, False], ids=["has been told", "has not been told"])
@virtual_time
async def test_a_shard_that_got_back_what_an_edit_took_works_on_it_once_it_has_been_told(told: bool) -> None:
    """Only then may no sharder take it from the shard."""
    async with owned(Place("s0", "", 3), "x0~1") as (at, client, thing):
        for place in Place("s1", "", 5), Place("s0", "", 7):
            await client.apply(assigned(place), force=True)
        if told:
            await watched(at.world.processes["s0~1"].client())
            await asyncio.sleep(1)
        at.oracles.begins("s0~1", thing)
        await give_away(at, Place("s0", "", 7))
        assert at.result.broken == ({"taken alive": 1} if told else {})


@pytest.mark.quick
@pytest.mark.parametrize("given_back", [True, False])
@virtual_time
async def test_a_shard_that_has_asked_to_hand_something_over_works_on_it_only_once_a_read_has_given_it_back(
    given_back: bool,
) -> None:
    """Nobody knows whether the request takes effect. Only then may no sharder take it from the shard."""
    async with owned(Place("s0", "s1", 3), "x0~1") as (at, client, thing):
        at.oracles.begins("s0~1", thing)
        s0, said = at.world.processes["s0~1"].client(), Assignment.parse(assigned(Place("s0", "s1", 3)).data)
        await client.apply(assigned(Place("s0", "", 4)), force=True)
        acknowledgement = said.acknowledge("s0", said.buckets.all.buckets)
        assert acknowledgement is not None
        anew = JsonPatch([test("/metadata/resourceVersion", "1"), add("/data", said.data())])
        for patch, sender in (anew, s0.with_user_agent("sharder")), (acknowledgement, s0):
            with suppress(PatchTestFailed):
                await sender.patch(ConfigMap, assignment_name("r"), "ops", patch)
        await asyncio.create_task(watched(s0))
        if given_back:
            await s0.get(ConfigMap, assignment_name("r"), "ops")
        await give_away(at, Place("s0", "", 4))
        assert at.result.broken == ({"taken alive": 1} if given_back else {})


@pytest.mark.quick
@pytest.mark.parametrize("by", ["s0~1", "s1~1", "x0~1"])
@virtual_time
async def test_what_its_owners_own_request_gives_away_is_given_away_at_any_epoch(by: str) -> None:
    """A user has put back what its acknowledgement tests. Of nobody else's request that counts."""
    async with owned(Place("s0", "", 9), "s1~1", "x0~1") as (at, client, thing):
        put_back = assigned(Place("s0", "s1", 3))
        await client.apply(put_back, force=True)
        said = Assignment.parse(put_back.data)
        patch = said.acknowledge("s0", said.buckets.all.buckets)
        assert patch is not None
        await at.world.processes[by].client().patch(ConfigMap, assignment_name("r"), "ops", patch)
        await asyncio.sleep(1)
        at.oracles.begins("s1~1", thing)
        assert at.result.broken["not ours"] == (by != "s0~1")


@pytest.mark.quick
@pytest.mark.parametrize(("undone", "noticed"), [(True, False), (False, True)], ids=["undone", "kept"])
@virtual_time
async def test_what_a_restore_undid_was_not_written_by_the_shard_that_has_the_object(
    undone: bool, noticed: bool
) -> None:
    """So a late write of the former one does not overwrite it."""
    async with owned(Place("s0", "s1", 3), "s1~1") as (at, _, _):
        former, present = (at.world.processes[each].client() for each in ("s0~1", "s1~1"))
        said = Assignment.parse(assigned(Place("s0", "s1", 3)).data)
        given = said.acknowledge("s0", said.buckets.all.buckets)
        assert given is not None
        await former.patch(ConfigMap, assignment_name("r"), "ops", given)
        back = at.world.backup()
        await present.patch(Thing, "t0", "team", MergePatch({"metadata": {"annotations": {"by": "s1~1"}}}))
        if not undone:
            back = at.world.backup()
        await present.patch(Thing, "t0", "team", MergePatch({"metadata": {"annotations": {"by": "again"}}}))
        back()
        at.oracles.restored()
        await former.patch(Thing, "t0", "team", MergePatch({"metadata": {"annotations": {"by": "s0~1"}}}))
        assert at.result.broken["stale write"] == noticed


@pytest.mark.quick
@pytest.mark.parametrize(("after", "noticed"), [(AMNESTY - 1, False), (AMNESTY, True)])
@virtual_time
async def test_by_ranges_a_shard_need_not_know_at_once_of_a_child_that_a_restore_brought_back(
    after: float, noticed: bool
) -> None:
    async with owned(Place("s0", "", 3)) as (at, client, thing):
        label = {bucket_label("r"): str(Ranges().divided.of_key(thing.uid))}
        reference = OwnerReference(api_version="sim.example/v1", kind="Thing", name="t0", uid=thing.uid)
        metadata = ObjectMeta(name="c-t0", namespace="team", labels=label, owner_references=(reference,))
        await client.create(ConfigMap(metadata=metadata, data={"by": "s1"}))
        back = at.world.backup()
        await client.delete(ConfigMap, "c-t0", "team")
        await asyncio.sleep(MISSED_CHILD.bound + 1)
        back()
        at.oracles.restored()
        await asyncio.sleep(after)
        with suppress(AlreadyExists):
            await at.world.processes["s0~1"].client().create(ConfigMap(metadata=metadata))
        assert at.result.broken["missed child"] == noticed


@pytest.mark.quick
@pytest.mark.parametrize("labelled", ["before", "after"])
@virtual_time
async def test_a_shard_need_not_know_of_a_child_that_was_labelled_after_its_owner_had_come(
    labelled: str,
) -> None:
    """By shards that took it by labels, say, it was made without."""
    async with owned(Place("s1", "", 3), "s0~1") as (at, client, thing):
        reference = OwnerReference(api_version="sim.example/v1", kind="Thing", name="t0", uid=thing.uid)
        metadata = ObjectMeta(name="c-t0", namespace="team", owner_references=(reference,))
        await client.create(ConfigMap(metadata=metadata, data={"by": "s1"}))
        label = {bucket_label("r"): str(Ranges().divided.of_key(thing.uid))}
        for step in ("label", "give") if labelled == "before" else ("give", "label"):
            if step == "give":
                await client.apply(assigned(Place("s0", "", 5)), force=True)
            else:
                await client.patch(ConfigMap, "c-t0", "team", MergePatch({"metadata": {"labels": label}}))
            await asyncio.sleep(MISSED_CHILD.bound)
        with suppress(AlreadyExists):
            await at.world.processes["s0~1"].client().create(ConfigMap(metadata=metadata))
        assert at.result.broken["missed child"] == (labelled == "before")


@pytest.mark.quick
@virtual_time
async def test_the_objects_of_a_cluster_have_its_shard_and_come_to_another_one_together() -> None:
    by_cluster = Ranges(by="cluster", buckets=64)
    of = by_cluster.divided.of_key
    async with SimulatedCluster(ranges=by_cluster) as world:
        await world.install()
        at = Scene(world)
        await world.make_things(8)
        places = dict.fromkeys(range(64), Place("s0", "", 1))
        async with world.admin() as client:
            meta = ObjectMeta(name=assignment_name("r"), namespace="ops")
            data = Assignment.of(by_cluster.divided, places).data()
            await client.create(ConfigMap(metadata=meta, data=data))
            assert set(world.owners().values()) == {"s0"}
            moved = Assignment.of(by_cluster.divided, places | {of("c1"): Place("s1", "", 2)})
            await client.patch(
                ConfigMap, meta.name, "ops", MergePatch({"data": {**dict.fromkeys(data), **moved.data()}})
            )
        theirs = {name for name, owner in world.owners().items() if owner == "s1"}
        assert theirs == {name for name in world.owners() if world.cluster_of(name) == "c1"}
        assert 0 < len(theirs) < 8
        assert at.result.counts["changes of owners"] == 8 + len(theirs)


class Mischief(Scene):
    """Somebody does what must not happen. Nobody else is there."""

    def process(self, name: str) -> Process:
        return self.world.processes.get(name) or Process(self.world, name)

    async def thing(self, shard: str = "") -> ObjectMeta:
        labels = {shard_label(self.world.ring): shard} if shard else {}
        metadata = ObjectMeta(name="t0", namespace="team", labels=labels)
        async with self.world.admin() as admin:
            return (await admin.create(Thing(metadata=metadata))).metadata

    async def child(self, owner: ObjectMeta, shard: str, by: str) -> None:
        reference = OwnerReference(
            api_version="sim.example/v1", kind="Thing", name="t0", uid=owner.uid, controller=True
        )
        labels = {shard_label(self.world.ring): shard}
        metadata = ObjectMeta(name="c-t0", namespace="team", labels=labels, owner_references=(reference,))
        async with self.world.admin() as admin:
            await admin.create(ConfigMap(metadata=metadata, data={"by": by}))

    async def write(self, process: str, kind: type[KubeObject] = Thing, **metadata: str) -> None:
        patch = MergePatch({"metadata": {"annotations": {"by": process}, **metadata}})
        await self.process(process).client().patch(kind, "t0" if kind is Thing else "c-t0", "team", patch)

    async def give(self, shard: str, kind: type[KubeObject] = Thing, by: str = "x9") -> None:
        """A sharder does."""
        label = MergePatch({"metadata": {"labels": {shard_label(self.world.ring): shard}}})
        await self.process(by).client().patch(kind, "t0" if kind is Thing else "c-t0", "team", label)

    async def hold(self, process: str, holder: str | None = None) -> None:
        await hold(self.process(process), holder)

    async def work(self, process: str, meta: ObjectMeta) -> None:
        self.process(process)
        self.oracles.begins(process, meta)


async def stale_write(at: Mischief) -> None:
    await at.thing("s1")
    await at.write("s0~1")


async def former_process(at: Mischief) -> None:
    meta, lands = await at.thing("s0"), asyncio.Event()
    at.conditions.rules.append(Rule("withheld", lambda process, _: process.name == "s0~1", lands=lands))
    writing = asyncio.create_task(at.write("s0~1"))
    await asyncio.sleep(1)
    await at.work("s0~2", meta)
    lands.set()
    await asyncio.sleep(1)
    writing.cancel()


async def not_ours(at: Mischief) -> None:
    await at.work("s0~1", await at.thing("s1"))


async def stale_read(at: Mischief) -> None:
    before = await at.thing()
    await at.give("s0")
    await at.work("s0~1", before)


async def expired(at: Mischief) -> None:
    await at.thing("s0")
    await at.hold("s0~1")
    await asyncio.sleep(EXPIRED.bound + 0.5)
    await at.write("s0~1")


async def missed_child(at: Mischief) -> None:
    meta = await at.thing("s0")
    await at.child(meta, "s0", by="s1")
    await asyncio.sleep(MISSED_CHILD.bound + 2)
    with suppress(AlreadyExists):
        metadata = ObjectMeta(name="c-t0", namespace="team")
        await at.process("s0~1").client().create(ConfigMap(metadata=metadata))


async def taken_alive(at: Mischief) -> None:
    meta = await at.thing("s0")
    await at.hold("s0~1")
    await at.work("s0~1", meta)
    await at.give("s1")


async def parted(at: Mischief) -> None:
    meta = await at.thing("s0")
    await at.child(meta, "s0", by="s0")
    await at.hold("s0~1")
    await at.work("s0~1", meta)
    await at.give("s1", ConfigMap)


async def dead_target(at: Mischief) -> None:
    await at.thing()
    await at.hold("s0~1", "")
    await asyncio.sleep(DEAD_TARGET.bound + 1)
    await at.give("s0")


async def hung(at: Mischief) -> None:
    process = at.process("s0~1")
    process.inside.watchdog().arm(process.clock.boottime() + 60)
    await at.hold("s0~1")
    process.block()
    await asyncio.sleep(HUNG.bound + 1)
    await at.hold("s0~1")


async def released_at_work(at: Mischief) -> None:
    meta = await at.thing("s0")
    await at.hold("s0~1")
    await at.work("s0~1", meta)
    await at.hold("s0~1", "")


async def crash(at: Mischief) -> None:
    class Failing:
        async def run(self) -> None:
            raise ValueError("no fuel")

    at.process("s0~1").start(cast(Manager, Failing()))
    await asyncio.sleep(1)


MISCHIEF = {
    STALE_WRITE: stale_write,
    FORMER_PROCESS: former_process,
    NOT_OURS: not_ours,
    STALE_READ: stale_read,
    EXPIRED: expired,
    MISSED_CHILD: missed_child,
    TAKEN_ALIVE: taken_alive,
    PARTED: parted,
    DEAD_TARGET: dead_target,
    HUNG: hung,
    RELEASED_AT_WORK: released_at_work,
    CRASH: crash,
}
ELSEWHERE = {OVERLAP, HASTY, NOT_RESTORED, LIVE_LEASE, NOT_OWNED, NOT_SETTLED, NEGLECTED}
"""Noticed in the tests above, beside what is excused, and in `test_scenes_swarm.py`."""


@pytest.mark.quick
@pytest.mark.parametrize("broken", MISCHIEF, ids=lambda each: each.name)
@virtual_time
async def test_each_property_of_a_ring_is_noticed_when_it_is_broken(broken: Property) -> None:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        at = Mischief(world)
        await MISCHIEF[broken](at)
        assert at.result.broken == {broken.name: 1}


@pytest.mark.quick
def test_no_property_of_a_ring_is_left_out_of_the_tests() -> None:
    by_measures = {measure.oracle for measure in MEASURES}
    tried = {each.name for each in (*MISCHIEF, *ELSEWHERE)}
    assert tried | by_measures == {each.name for each in OF_RINGS}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("read_before", "noticed"), [(0.5, False), (PARTED.bound + 0.5, True)], ids=["just now", "long ago"]
)
@virtual_time
async def test_a_child_may_leave_the_owner_that_has_just_come_if_a_read_just_before_showed_otherwise(
    read_before: float, noticed: bool
) -> None:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        at = Mischief(world)
        await at.child(await at.thing("s1"), "s0", by="s0")
        await at.hold("s0~1")
        sharder = at.process("x9").client()
        await sharder.get(Thing, "t0", "team")
        await at.give("s0", by="x8")
        async with world.admin() as admin:
            await at.work("s0~1", (await admin.get(Thing, "t0", "team")).metadata)
        await asyncio.sleep(read_before)
        await at.give("s1", ConfigMap)
        assert at.result.broken == ({"parted": 1} if noticed else {})
        assert at.result.counts["late moves of children"] == (not noticed)
