"""A shard that holds its Lease, but does not release objects: where that is configured, it is evicted, and nobody else
works on its objects before it cannot any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
from tiers import further

from kubeshard.controller.context import Context
from kubeshard.controller.reconciler import Result
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.manager.config_file import Duration
from kubeshard.sharder.config import ControllersConfig, SharderConfig, SharderControllerConfig
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import drain_label
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

TIMEOUT = 90.0
GIVEN_UP = 30.0
"""Seconds for which an evicted shard may still act."""
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Hanging(Touch):
    """Reconciles that do not end, and cannot be cancelled, of the objects named in `hangs`; it notes when it works."""

    def __init__(self, at: Scene, shard: str) -> None:
        super().__init__()
        self._at = at
        self._shard = shard

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        name = obj.metadata.name
        others = self._at.busy.setdefault(name, set())
        self._at.overlaps += [
            f"{name}: {self._shard} and {other}" for other in others if self._at.lives(other)
        ]
        others.add(self._shard)
        while name in self._at.hangs.get(self._shard, ()):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1)
        try:
            return await super().reconcile(ctx, obj)
        finally:
            others.discard(self._shard)


class Scene:
    def __init__(self, world: SimulatedCluster) -> None:
        self.world = world
        self.hangs: dict[str, set[str]] = {}
        self.busy: dict[str, set[str]] = {}
        self.overlaps: list[str] = []
        self.evicted: list[tuple[float, str]] = []
        self.moved: dict[str, float] = {}
        """When objects left their shard that were not released by it."""
        self._owners: dict[str, str] = {}
        world.server.store.subscribe(self._stored)

    def lives(self, shard: str) -> bool:
        return not self.world.processes[shard].dead

    def sharder(self, name: str, timeout: float) -> None:
        settings = SharderControllerConfig(drain_timeout=Duration(timeout))
        controllers = ControllersConfig(sharder=settings)
        self.world.sharder(name, msgspec.structs.replace(SharderConfig(), controller=controllers))

    def shard(self, name: str, process: str = "") -> None:
        self.world.shard(name, Hanging(self, process or name), process=process)

    async def hang(self, shard: str, *objects: str) -> None:
        """Reconciles of these objects begin, and do not end."""
        self.hangs[shard] = set(objects)
        async with self.world.admin() as client:
            for name in objects:
                await client.patch(Thing, name, "team", MergePatch({"spec": {"v": 1}}))
        await self.world.until(lambda: all(self.busy.get(name) for name in objects), within=5)

    def of(self, shard: str) -> set[str]:
        return {name for name, owner in self.world.owners().items() if owner == shard}

    def would_leave(self, shard: str, *shards: str) -> list[str]:
        """Which objects of the shard have another target among these shards."""
        ring = HashRing(shards)
        return sorted(
            name for name in self.of(shard) if ring.owner(f"sim.example/Thing/team/{name}") != shard
        )

    def said(self, reason: str) -> list[Any]:
        events = self.world.objects("events.k8s.io", "events").values()
        return [event for event in events if event["reason"] == reason]

    def conditions(self) -> set[str]:
        """Those of the ring that are true."""
        (ring,) = self.world.objects("sharding.timebertt.dev", "controllerrings").values()
        return {each["type"] for each in ring["status"]["conditions"] if each["status"] == "True"}

    def holder(self, shard: str) -> str:
        leases = self.world.objects("coordination.k8s.io", "leases")
        return str(
            next((obj["spec"].get("holderIdentity") for key, obj in leases.items() if key.name == shard), "")
        )

    def _stored(self, _: Any) -> None:
        now = self.world.loop.time()
        for name, owner in self.world.owners().items():
            if self._owners.get(name, owner) != owner and owner:
                self.moved[name] = now
            self._owners[name] = owner


@asynccontextmanager
async def scene(timeout: float = TIMEOUT) -> AsyncIterator[Scene]:
    """Two shards with 20 objects."""
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        at = Scene(world)
        at.sharder("x0", timeout)
        for name in ("s0", "s1"):
            at.shard(name)
        await world.make_things(20)
        await world.until(lambda: world.all_owned("s0", "s1"), within=30)
        await asyncio.sleep(5)
        try:
            yield at
        finally:
            at.hangs.clear()


@virtual_time
async def test_a_shard_that_does_not_release_an_object_is_evicted_and_cannot_act_when_others_get_its_objects() -> (
    None
):
    async with scene() as at:
        stuck = at.would_leave("s0", "s0", "s1", "s2")[0]
        await at.hang("s0", stuck)
        at.shard("s2")
        began = at.world.loop.time()
        await at.world.until(lambda: at.holder("s0") == "shardlease-controller", within=TIMEOUT + 40)
        evicted = at.world.loop.time()
        assert evicted - began > TIMEOUT
        held = at.of("s0")
        assert stuck in held
        await at.world.until(lambda: not at.lives("s0"), within=15)
        await at.world.until(lambda: at.world.all_owned("s1", "s2"), within=GIVEN_UP + 10)
        assert min(at.moved[name] for name in held) >= evicted + GIVEN_UP - 1
        assert not at.overlaps
        assert at.said("ShardEvicted")


@pytest.mark.parametrize("minutes", [2, *further(30)])
@virtual_time
async def test_without_a_timeout_no_shard_is_evicted(minutes: int) -> None:
    async with scene(timeout=0.0) as at:
        stuck = at.would_leave("s0", "s0", "s1", "s2")[0]
        await at.hang("s0", stuck)
        at.shard("s2")
        await asyncio.sleep(minutes * 60)
        assert at.holder("s0") == "s0"
        assert stuck in at.of("s0")
        assert not at.said("ShardEvicted")


@pytest.mark.nightly
@virtual_time
async def test_a_shard_that_is_asked_again_has_the_whole_timeout_again() -> None:
    async with scene() as at:
        ring = ("s0", "s1", "s2")
        stuck = next(
            name for name in at.would_leave("s0", *ring) if name in at.would_leave("s0", *ring, "s3")
        )
        await at.hang("s0", stuck)
        at.shard("s2")
        await at.world.until(lambda: stuck in at.world.draining(), within=10)
        await asyncio.sleep(TIMEOUT - 20)
        async with at.world.admin() as client:
            undone = MergePatch({"metadata": {"labels": {drain_label(at.world.ring): None}}})
            await client.patch(Thing, stuck, "team", undone)
        at.shard("s3")  # so all objects are looked at
        await at.world.until(lambda: stuck in at.world.draining(), within=10)
        asked = at.world.loop.time()
        await at.world.until(lambda: at.holder("s0") == "shardlease-controller", within=TIMEOUT + 40)
        assert at.world.loop.time() - asked > TIMEOUT - 1
        assert not at.overlaps


@virtual_time
async def test_an_object_that_is_gone_with_its_kind_before_the_timeout_costs_no_shard_its_lease() -> None:
    async with scene() as at:
        stuck = at.would_leave("s0", "s0", "s1", "s2")[0]
        await at.hang("s0", stuck)
        at.shard("s2")
        await at.world.until(lambda: stuck in at.world.draining(), within=10)
        await asyncio.sleep(TIMEOUT - 5)
        assert "DrainStuck" in at.conditions()
        async with at.world.admin() as client:
            for name in at.world.owners():
                await client.delete(Thing, name, "team")
            await client.raw("DELETE", CRDS + "/things.sim.example")
        await asyncio.sleep(2 * TIMEOUT)
        assert at.lives("s0")
        assert not at.said("ShardEvicted")
        assert "DrainStuck" not in at.conditions()


@pytest.mark.nightly
@virtual_time
async def test_an_object_on_which_every_shard_hangs_costs_one_of_them() -> None:
    async with scene() as at:
        stuck = at.would_leave("s0", "s0", "s1", "s2")[0]
        at.hangs = {shard: {stuck} for shard in ("s0", "s0again", "s1", "s2", "s3")}
        await at.hang("s0", stuck)
        at.shard("s2")
        await at.world.until(lambda: not at.lives("s0"), within=TIMEOUT + 60)
        await at.world.until(lambda: at.world.all_owned("s1", "s2"), within=GIVEN_UP + 10)
        at.shard("s0", process="s0again")
        await asyncio.sleep(10 * TIMEOUT)
        assert len(at.said("ShardEvicted")) == 1
        assert at.lives("s1")
        assert at.lives("s2")
        assert at.lives("s0again")
        assert not at.overlaps


@virtual_time
async def test_an_object_costs_no_shard_less_because_of_another_one_that_had_its_name() -> None:
    async with scene() as at:
        stuck = at.would_leave("s0", "s0", "s1", "s2")[0]
        await at.hang("s0", stuck)
        at.shard("s2")
        await at.world.until(lambda: not at.lives("s0"), within=TIMEOUT + 60)
        at.hangs.clear()
        await at.world.until(lambda: at.world.all_owned("s1", "s2"), within=GIVEN_UP + 10)
        async with at.world.admin() as client:
            await client.delete(Thing, stuck, "team")
            await client.create(Thing(metadata=ObjectMeta(name=stuck, namespace="team")))
        await at.world.until(lambda: at.world.all_owned("s1", "s2"), within=10)
        owner = at.world.owners()[stuck]
        joins = next(
            name for name in map("n{}".format, range(99)) if stuck in at.would_leave(owner, "s1", "s2", name)
        )
        await at.hang(owner, stuck)
        at.shard(joins)
        await at.world.until(lambda: at.holder(owner) == "shardlease-controller", within=TIMEOUT + 40)
        assert not at.overlaps


@pytest.mark.nightly
@virtual_time
async def test_the_next_leader_waits_as_long_before_it_takes_objects_from_an_evicted_shard() -> None:
    async with scene() as at:
        stuck = at.would_leave("s0", "s0", "s1", "s2")[0]
        await at.hang("s0", stuck)
        at.shard("s2")
        await at.world.until(lambda: at.holder("s0") == "shardlease-controller", within=TIMEOUT + 40)
        evicted, held = at.world.loop.time(), at.of("s0")
        at.world.processes["x0"].kill()
        at.sharder("x1", TIMEOUT)
        await at.world.until(lambda: at.world.all_owned("s1", "s2"), within=90)
        assert min(at.moved[name] for name in held) >= evicted + GIVEN_UP - 1
        assert not at.overlaps


@pytest.mark.nightly
@virtual_time
async def test_an_evicted_shard_that_is_restarted_gets_its_objects_back() -> None:
    async with scene() as at:
        stuck = at.would_leave("s0", "s0", "s1", "s2")[0]
        await at.hang("s0", stuck)
        at.shard("s2")
        await at.world.until(lambda: not at.lives("s0"), within=TIMEOUT + 60)
        at.shard("s0", process="s0again")
        await at.world.until(lambda: at.holder("s0") == "s0", within=40)
        await at.world.until(lambda: at.of("s0") and at.world.all_owned("s0", "s1", "s2"), within=60)
        assert not at.would_leave("s0", "s0", "s1", "s2")
        assert not at.overlaps
