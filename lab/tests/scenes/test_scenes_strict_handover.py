"""A ring with strict hand-over: nobody works on the objects of a dead shard, or under its name, before it is confirmed
that its process has ended, even if a hypervisor stopped the machine so that no clock on it knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest
from test_scenes_pod_reports import at_work

from kubeshard.client import Client
from kubeshard.controller.context import Context
from kubeshard.controller.reconciler import Result
from kubeshard.core import Key, Lease, MergePatch
from kubeshard.core.objects import ObjectMeta
from kubeshard.inspection.cluster import read_cluster
from kubeshard.inspection.errors import Unanswerable
from kubeshard.inspection.release import confirm, unconfirmed
from kubeshard.inspection.ring import see
from kubeshard.runtime.pod import Pod
from kubeshard.shard.settings import DeclaredRing
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import (
    CONFIRMED_ANNOTATION,
    SHARDER_IDENTITY,
    STRICT_HANDOVER_ANNOTATION,
    shard_label,
)
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

GIVEN_UP = 30.0
LONG = 600.0


class Works(Touch):
    """Takes ten seconds for each object, and notes who else is at work on it."""

    def __init__(self, at: Scene, process: str) -> None:
        super().__init__()
        self._at = at
        self._process = process

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        busy = self._at.busy.setdefault(obj.metadata.name, set())
        self._at.overlaps += [
            f"{obj.metadata.name}: {self._process} and {other}"
            for other in busy
            if not self._at.world.processes[other].dead
        ]
        busy.add(self._process)
        try:
            await asyncio.sleep(10)
            return await super().reconcile(ctx, obj)
        finally:
            busy.discard(self._process)


class Scene:
    def __init__(self, world: SimulatedCluster, admin: Client) -> None:
        self.world = world
        self.admin = admin
        self.busy: dict[str, set[str]] = {}
        self.overlaps: list[str] = []

    def shard(self, name: str, process: str = "", pod: str = "") -> Process:
        process = process or name
        return self.world.shard(
            name, Works(self, process), process=process, pod=Pod(name, pod) if pod else None
        )

    def of(self, shard: str) -> set[str]:
        return {name for name, owner in self.world.owners().items() if owner == shard}

    def lease(self, shard: str) -> dict[str, object] | None:
        return self.world.objects("coordination.k8s.io", "leases").get(Key("ops", shard))

    def holder(self, shard: str) -> str:
        found = self.lease(shard)
        return "" if found is None else str(found["spec"].get("holderIdentity"))  # type: ignore[attr-defined]

    async def strict(self, asked: str) -> None:
        change = MergePatch({"metadata": {"annotations": {STRICT_HANDOVER_ANNOTATION: asked}}})
        await self.admin.patch(ControllerRing, self.world.ring, "", change)
        await asyncio.sleep(1)

    async def release(self, shard: str) -> None:
        """What `kubectl shard release` does."""
        seen = await see(self.admin, await read_cluster(self.admin), self.world.ring)
        await confirm(self.admin, unconfirmed(seen, shard))

    async def condition(self) -> str:
        ring = await self.admin.get(ControllerRing, self.world.ring)
        conditions = ring.status.conditions if ring.status else ()
        return next((each.message for each in conditions if each.type == "ConfirmationAwaited"), "")

    def freeze(self, shard: str, until: Awaitable[object]) -> asyncio.Task[None]:
        return asyncio.create_task(self.world.processes[shard].frozen(until), name="frozen")

    async def change_all(self) -> None:
        for name in self.world.owners():
            await self.admin.patch(Thing, name, "team", MergePatch({"spec": {"v": self.world.loop.time()}}))


@asynccontextmanager
async def scene(asked: str = "true", pod: str = "") -> AsyncIterator[Scene]:
    """Two shards that work on all of 20 objects."""
    async with SimulatedCluster() as world, world.admin() as admin:
        await world.install()
        await world.make_ring()
        at = Scene(world, admin)
        if asked:
            await at.strict(asked)
        world.sharder("x0")
        at.shard("s0", pod=pod)
        at.shard("s1")
        await world.make_things(20)
        await world.until(lambda: world.all_owned("s0", "s1"), within=30)
        await asyncio.sleep(60)
        await at.change_all()
        await asyncio.sleep(2)
        assert at.of("s0")
        yield at


@pytest.mark.parametrize(("asked", "safe"), [("", False), ("true", True)])
@virtual_time
async def test_a_shard_whose_machine_stood_still_goes_on_beside_another_one_unless_hand_over_is_strict(
    asked: str, safe: bool
) -> None:
    async with scene(asked) as at:
        before = at.of("s0")
        await at.freeze("s0", asyncio.sleep(3 * GIVEN_UP))
        assert at.holder("s0") == SHARDER_IDENTITY
        assert bool(at.overlaps) is not safe
        assert (at.of("s0") == before) is safe
        await at.world.until(lambda: bool(at.world.processes["s0"].dead), within=15)
        await asyncio.sleep(60)
        assert bool(at.overlaps) is not safe


@virtual_time
async def test_new_objects_do_not_wait_for_a_dead_shard_and_the_ring_says_which_do() -> None:
    async with scene() as at:
        before = at.of("s0")
        at.world.processes["s0"].kill()
        await at.world.until(lambda: at.holder("s0") == SHARDER_IDENTITY, within=GIVEN_UP + 10)
        await at.world.make_things(10, prefix="new")
        await asyncio.sleep(60)
        assert at.of("s0") == before
        message = await at.condition()
        children = sorted(f"configmaps team/c-{name}" for name in before)
        assert message.startswith(f"{2 * len(before)} objects wait")
        assert f"s0 ({', '.join(children[:3])} and {2 * len(before) - 3} more)" in message
        assert at.world.owners()["new0"] == "s1"

        await at.release("s0")
        await at.world.until(lambda: at.world.all_owned("s1"), within=10)
        await asyncio.sleep(60)
        assert not at.overlaps
        assert not await at.condition()


@virtual_time
async def test_objects_wait_no_longer_than_the_ring_says() -> None:
    async with scene("5m") as at:
        at.world.processes["s0"].kill()
        died = at.world.loop.time()
        await at.world.until(lambda: at.world.all_owned("s1"), within=GIVEN_UP + 300 + 15)
        assert at.world.loop.time() - died >= 300 + GIVEN_UP - 5
        assert not at.overlaps
        lease = await at.admin.get(Lease, "s0", "ops")
        assert lease.metadata.annotation(CONFIRMED_ANNOTATION).endswith("/waited")


@pytest.mark.nightly
@virtual_time
async def test_who_deletes_the_lease_of_a_dead_shard_or_makes_another_one_the_leader_confirms_nothing() -> (
    None
):
    async with scene() as at:
        before = at.of("s0")
        frozen = at.freeze("s0", asyncio.sleep(LONG))
        await asyncio.sleep(5)
        await at.admin.delete(Lease, "s0", "ops")
        await asyncio.sleep(120)
        assert at.of("s0") == before
        at.world.processes["x0"].kill()
        await at.admin.delete(Lease, "s0", "ops")
        at.world.sharder("x1")  # which has never seen a Lease of s0
        await asyncio.sleep(120)
        assert at.of("s0") == before
        frozen.cancel()
        at.world.processes["s0"].kill()
        await at.release("s0")
        await at.world.until(lambda: at.world.all_owned("s1"), within=15)
        assert not at.overlaps


@virtual_time
async def test_a_process_of_the_same_name_does_not_begin_before_the_end_of_the_former_one_is_confirmed() -> (
    None
):
    async with scene() as at:
        frozen = at.freeze("s0", asyncio.sleep(LONG))
        at.shard("s0", process="again")
        await asyncio.sleep(300)
        assert at.holder("s0") == SHARDER_IDENTITY
        assert not at.overlaps
        frozen.cancel()
        at.world.processes["s0"].kill()
        await at.release("s0")
        await at.world.until(lambda: at.holder("s0") == "s0", within=20)
        await at.world.until(lambda: at.world.all_owned("s0", "s1") and bool(at.of("s0")), within=30)
        assert not at.overlaps


@virtual_time
async def test_a_container_that_is_restarted_in_its_pod_waits_for_nobody() -> None:
    async with scene(pod="uid") as at:
        before = at.of("s0")
        at.world.processes["s0"].kill()
        await asyncio.sleep(60)
        assert at.holder("s0") == SHARDER_IDENTITY
        at.shard("s0", process="again", pod="uid")
        await at.world.until(lambda: at.holder("s0") == "s0", within=15)
        await asyncio.sleep(5)
        assert at.of("s0") == before
        assert not at.overlaps


@virtual_time
async def test_a_kubelet_that_reports_the_end_of_a_shard_confirms_it_at_once() -> None:
    async with at_work() as node, node.world.admin() as admin:
        change = MergePatch({"metadata": {"annotations": {STRICT_HANDOVER_ANNOTATION: "true"}}})
        await admin.patch(ControllerRing, node.world.ring, "", change)
        await asyncio.sleep(1)
        node.world.processes["s0"].kill()
        await node.report("s0", {"waiting": {"reason": "CrashLoopBackOff"}}, node.ended())
        await node.world.until(node.gone, within=5.0)
        lease = await admin.get(Lease, "s0", "ops")
        assert lease.metadata.annotation(CONFIRMED_ANNOTATION).endswith("/kubelet")


@pytest.mark.nightly
@virtual_time
async def test_a_report_that_comes_when_the_lease_has_been_taken_confirms_it_too() -> None:
    async with at_work() as node, node.world.admin() as admin:
        change = MergePatch({"metadata": {"annotations": {STRICT_HANDOVER_ANNOTATION: "true"}}})
        await admin.patch(ControllerRing, node.world.ring, "", change)
        node.world.processes["s0"].kill()
        await asyncio.sleep(120)
        assert node.holder("s0") == SHARDER_IDENTITY
        assert node.count("s0")
        await node.report("s0", node.ended())
        await node.world.until(node.gone, within=10.0)


@virtual_time
async def test_an_operator_that_is_its_own_sharder_asks_for_it_without_a_controllerring() -> None:
    async with SimulatedCluster() as world, world.admin() as admin:
        await world.install()
        strict = DeclaredRing(world.ring, strict_handover=True)
        at, sharding = Scene(world, admin), {"mode": "both", "ring": strict}
        for name in ("s0", "s1"):
            world.shard(name, Works(at, name), sharding=sharding)
        await world.make_things(20)
        await world.until(lambda: bool(at.of("s0")), within=60)  # the first shard has had all of them
        await asyncio.sleep(30)
        before = at.of("s0")
        world.processes["s0"].kill()
        await asyncio.sleep(180)
        assert at.holder("s0") == SHARDER_IDENTITY
        assert at.of("s0") == before


@virtual_time
async def test_a_shard_that_stops_in_order_confirms_it_by_releasing_its_lease() -> None:
    async with scene() as at:
        await at.world.processes["s0"].stop()
        await at.world.until(lambda: at.world.all_owned("s1"), within=10)
        assert not at.overlaps


@virtual_time
async def test_a_label_that_a_user_takes_from_an_object_of_a_dead_shard_is_put_back() -> None:
    async with scene() as at:
        before = at.of("s0")
        at.world.processes["s0"].kill()
        await asyncio.sleep(60)
        for name in sorted(before)[:2]:
            labels = MergePatch({"metadata": {"labels": {shard_label(at.world.ring): None}}})
            await at.admin.patch(Thing, name, "team", labels)
        await asyncio.sleep(10)
        assert at.of("s0") == before


@virtual_time
async def test_also_a_replica_that_was_asked_about_the_name_before_the_shard_was_there_waits_as_long() -> (
    None
):
    """It does not lead, and is not asked about anything else meanwhile. The Lease of the dead shard is deleted."""
    async with scene("3m") as at:
        caller = at.world.caller
        at.world.sharder("x1")
        await asyncio.sleep(10)

        async def take_label(name: str) -> None:
            caller.preferred = "x1"
            labels = MergePatch({"metadata": {"labels": {shard_label(at.world.ring): None}}})
            await at.admin.patch(Thing, name, "team", labels)
            caller.preferred = "x0"

        early = ObjectMeta(name="early", namespace="team", labels={shard_label(at.world.ring): "s9"})
        await at.admin.create(Thing(metadata=early))
        await take_label("early")
        assert at.of("s9") == {"early"}
        at.shard("s9")
        await at.world.until(lambda: at.world.all_owned("s0", "s1", "s9"), within=60)
        await asyncio.sleep(200)
        at.world.processes["s9"].kill()
        await at.world.until(lambda: at.holder("s9") == SHARDER_IDENTITY, within=GIVEN_UP + 10)
        await at.admin.delete(Lease, "s9", "ops")
        await asyncio.sleep(5)
        before = at.of("s9")
        await take_label(min(before))
        await asyncio.sleep(10)
        assert at.of("s9") == before


@virtual_time
async def test_only_what_is_dead_and_not_confirmed_can_be_confirmed() -> None:
    async with scene() as at:
        with pytest.raises(Unanswerable, match="s1 holds its Lease"):
            await at.release("s1")
        await at.world.processes["s0"].stop()
        with pytest.raises(Unanswerable, match="nothing to confirm"):
            await at.release("s0")
        await at.strict("false")
        with pytest.raises(Unanswerable, match="does not ask"):
            await at.release("s0")


@pytest.mark.nightly
@virtual_time
async def test_an_annotation_that_is_no_duration_is_told_and_objects_wait_without_a_limit() -> None:
    async with scene("soon") as at:
        at.world.processes["s0"].kill()
        await asyncio.sleep(300)
        assert at.of("s0")
        ring = await at.admin.get(ControllerRing, at.world.ring)
        assert ring.status is not None
        (found,) = (each for each in ring.status.conditions if each.type == "StrictHandoverAccepted")
        assert "'soon' is neither true nor a duration" in found.message
