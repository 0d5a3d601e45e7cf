"""Leases of shards that do not exist, created by somebody who may create Leases in a namespace."""

import asyncio
from typing import Any

import msgspec
import pytest
from tiers import further

from kubeshard.client import Client
from kubeshard.core import ConfigMap, MergePatch, Namespace, ObjectMeta
from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.owners import controller_reference
from kubeshard.core.times import micro_time
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import RING_LABEL, SHARD_NAMESPACES_ANNOTATION, shard_label
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

SHARDS = ("s0", "s1", "s2")
PHANTOMS = ("phantom-1", "phantom-2", "phantom-3")


async def hijack(world: SimulatedCluster, admin: Client) -> None:
    await admin.create(Namespace(metadata=ObjectMeta(name="tenant")))
    for name in PHANTOMS:
        now = micro_time(world.clock.wall())
        spec = LeaseSpec(
            holder_identity=name, lease_duration_seconds=86_400, acquire_time=now, renew_time=now
        )
        meta = ObjectMeta(name=name, namespace="tenant", labels={RING_LABEL: world.ring})
        await admin.create(Lease(metadata=meta, spec=spec))


def hijacked(world: SimulatedCluster) -> set[str]:
    return {name for name, owner in world.owners().items() if owner not in SHARDS}


async def problems(world: SimulatedCluster, admin: Client) -> str:
    ring = await admin.get(ControllerRing, world.ring)
    conditions = ring.status.conditions if ring.status else ()
    return "; ".join(each.message for each in conditions if each.type == "ShardsAccepted")


async def start(world: SimulatedCluster) -> None:
    await world.install()
    await world.make_ring()
    world.sharder("x0")
    for name in SHARDS:
        world.shard(name, Touch())
    await world.make_things(30)
    settled = {*SHARDS}  # each has some: before that, one may have joined late
    await world.until(lambda: world.all_owned(*SHARDS) and {*world.owners().values()} == settled, within=60)


async def say(world: SimulatedCluster, admin: Client, namespaces: str | None) -> None:
    annotations: dict[str, Any] = {SHARD_NAMESPACES_ANNOTATION: namespaces}
    patch = MergePatch({"metadata": {"annotations": annotations}})
    await admin.patch(ControllerRing, world.ring, "", patch)


@pytest.mark.parametrize("deleted", [True, *further(False)])
@virtual_time
async def test_leases_that_ask_for_a_day_are_given_a_minute_and_the_ring_says_so(deleted: bool) -> None:
    async with SimulatedCluster() as world, world.admin() as admin:
        await start(world)
        await hijack(world, admin)
        await world.until(lambda: hijacked(world), within=10)
        await asyncio.sleep(5)
        found = await problems(world, admin)
        assert "tenant/phantom-1 asks for 86400 s without renewal; it is given 60 s" in found
        assert "the shards are in several namespaces (ops, tenant)" in found
        if deleted:
            for name in PHANTOMS:
                await admin.delete(Lease, name, "tenant")
        await world.until(lambda: not hijacked(world), within=2 * 60 + 10)


@virtual_time
async def test_leases_outside_the_namespaces_of_the_ring_get_nothing_and_give_back_what_they_got() -> None:
    async with SimulatedCluster() as world, world.admin() as admin:
        await start(world)
        before = world.owners()
        await say(world, admin, "ops, elsewhere")
        await hijack(world, admin)
        await asyncio.sleep(60)
        assert world.owners() == before
        assert "tenant/phantom-1 is left out" in await problems(world, admin)

        await say(world, admin, None)
        await world.until(lambda: hijacked(world), within=10)
        await say(world, admin, "ops")
        await world.until(lambda: not hijacked(world) and world.owners() == before, within=30)


@pytest.mark.quick
@virtual_time
async def test_a_shard_does_not_live_because_a_lease_of_its_name_is_held_in_another_namespace() -> None:
    async with SimulatedCluster() as world, world.admin() as admin:
        await start(world)
        await say(world, admin, "ops")
        await hijack(world, admin)
        lease = await admin.get(Lease, "phantom-1", "tenant")
        spec = msgspec.structs.replace(lease.spec, holder_identity="s0")
        meta = ObjectMeta(name="s0", namespace="tenant", labels=lease.metadata.labels)
        await admin.create(Lease(metadata=meta, spec=spec))
        world.processes["s0"].kill()
        await world.until(lambda: world.all_owned("s1", "s2"), within=60)


@pytest.mark.parametrize(
    "changed", [False, True], ids=["as from the start", "after shards have come and gone"]
)
@pytest.mark.parametrize("webhook", [True, *further(False)])
@virtual_time
async def test_what_is_created_with_the_label_of_a_shard_that_does_not_exist_gets_another_within_ten_seconds(
    webhook: bool, changed: bool
) -> None:
    async with SimulatedCluster() as world, world.admin() as admin:
        await world.install()
        await world.make_ring()
        world.sharder("x0", webhook=webhook)
        for name in SHARDS:
            world.shard(name, Touch())
        await world.make_things(1)
        await world.until(lambda: world.all_owned(*SHARDS), within=60)
        if changed:
            world.shard("s3", Touch())
            await asyncio.sleep(30)
            await world.processes["s2"].stop()
        await asyncio.sleep(60)  # all scans that follow the changes are over
        labels = {shard_label(world.ring): "nobody"}
        owner = controller_reference(await admin.get(Thing, "t0", "team"))
        await admin.create(Thing(metadata=ObjectMeta(name="t1", namespace="team", labels=labels)))
        child = ObjectMeta(name="child", namespace="team", labels=labels, owner_references=(owner,))
        await admin.create(ConfigMap(metadata=child))
        await world.until(
            lambda: (
                world.all_owned(*SHARDS, "s3")
                and world.owners("", "configmaps")["child"] == world.owners()["t0"]
            ),
            within=10,
        )
