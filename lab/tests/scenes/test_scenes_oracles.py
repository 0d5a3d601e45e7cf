"""What the oracles of a simulation notice, and what they excuse, each next to what they do not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import cast

import msgspec
import pytest
from judged_scene import Scene, hold, scene

from kubeshard.core.builtin import ConfigMap, Lease, LeaseSpec
from kubeshard.core.errors import AlreadyExists, ApiError
from kubeshard.core.objects import KubeObject, ObjectMeta, OwnerReference
from kubeshard.core.patches import MergePatch
from kubeshard.manager.manager import Manager
from kubeshard.runtime.transport import HttpRequest
from kubeshard.shard.settings import Ranges
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.names import (
    EVICTED_ANNOTATION,
    SHARDER_IDENTITY,
    drain_label,
    shard_label,
)
from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH
from kubeshard_lab.simulation.checker import check
from kubeshard_lab.simulation.cluster import MAIN, SimulatedCluster, Thing
from kubeshard_lab.simulation.faults.injection import Rule
from kubeshard_lab.simulation.history import Calm, Finished
from kubeshard_lab.simulation.oracles import SimulationResult
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.simulation.properties import (
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
from kubeshard_lab.simulation.running import things
from kubeshard_lab.simulation.script import Script, Sharder
from kubeshard_lab.simulation.workload import Things
from kubeshard_lab.virtual_time import virtual_time
from measures import MEASURES

pytestmark = pytest.mark.regression

ONE, OTHER = (ObjectMeta(name="t0", uid=uid, resource_version="1") for uid in ("1", "2"))
ALONE = msgspec.structs.replace(MAIN, controlled_resources=())


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
