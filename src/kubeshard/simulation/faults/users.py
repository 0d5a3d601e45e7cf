"""What users do to the objects, Leases and rings of others."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import msgspec

from kubeshard.client.client import Client
from kubeshard.core.builtin import ConfigMap, Lease, LeaseSpec
from kubeshard.core.errors import AlreadyExists, ApiError
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import LabelSelector
from kubeshard.core.times import micro_time
from kubeshard.sharding.api import GROUP, ControllerRing
from kubeshard.sharding.names import CLEAN_UP_FINALIZER, RING_LABEL, drain_label, shard_label
from kubeshard.simulation.cluster import MAIN, SimulatedCluster, Thing
from kubeshard.simulation.faults.injection import Injection, fault
from kubeshard.simulation.processes import name_of


@fault
async def lease(on: Injection) -> None:
    """A user deletes a shard's Lease."""
    if process := on.one("s"):
        target = f"/apis/coordination.k8s.io/v1/namespaces/ops/leases/{name_of(process.name)}"
        with suppress(ApiError):
            await on.admin.raw("DELETE", target)


@fault
async def phantom(on: Injection) -> None:
    """A user creates a Lease of a shard that does not exist, and deletes it after a while."""
    name = f"ghost{on.rng.randrange(3)}"
    spec = LeaseSpec(
        holder_identity=name, lease_duration_seconds=15, renew_time=micro_time(on.world.clock.wall())
    )
    labels = {RING_LABEL: on.world.ring}
    with suppress(ApiError):
        await on.admin.create(
            Lease(metadata=ObjectMeta(name=name, namespace="ops", labels=labels), spec=spec)
        )
        on.effects += 1
    await on.lasts(1, 60)
    with suppress(ApiError):
        await on.admin.delete(Lease, name, "ops")


@fault
async def label(on: Injection) -> None:
    """A user writes the name of another shard, live or not, into the shard label, or takes it away."""
    key = shard_label(on.world.ring)
    value = on.rng.choice([*sorted(on.workload.living("s")), "nobody", None])
    with suppress(ApiError):
        await on.admin.patch(Thing, on.object(), "team", MergePatch({"metadata": {"labels": {key: value}}}))
        on.effects += 1


@fault
async def put_without_labels(on: Injection) -> None:
    """A user replaces objects by versions without labels: up to three that are being drained, or else any one."""
    await on.until(lambda: bool(on.world.draining()), 15)
    for name in sorted(on.world.draining())[:3] or [on.object()]:
        path = f"/apis/sim.example/v1/namespaces/team/things/{name}"
        before, calls = on.world.owners().get(name, ""), on.world.caller.answered
        with suppress(ApiError):
            thing = json.loads((await on.admin.raw("GET", path)).body)
            thing["metadata"]["labels"] = {"app": "x"}
            await on.admin.raw("PUT", path, json.dumps(thing).encode())
            on.effects += 1
            on.workload.oracles.replaced(name, before, seen=on.world.caller.answered > calls)


@fault
async def drain(on: Injection) -> None:
    """A user sets the drain label."""
    patch = MergePatch({"metadata": {"labels": {drain_label(on.world.ring): "true"}}})
    with suppress(ApiError):
        await on.admin.patch(Thing, on.object(), "team", patch)
        on.effects += 1


async def recreated(on: Injection) -> int:
    """A user deletes three objects or their children, and creates some of the objects again, which webhooks see.
    Returns how many were deleted.
    """
    deleted = 0
    for _ in range(3):
        name = on.object()
        with suppress(ApiError):
            await on.admin.delete(ConfigMap, f"c-{name}", "team")
            deleted += 1
        if on.rng.random() < 0.5:
            with suppress(ApiError):
                await on.admin.delete(Thing, name, "team")
                await asyncio.sleep(on.rng.choice((0.0, 2.0)))
                await on.admin.create(Thing(metadata=ObjectMeta(name=name, namespace="team"), spec={"v": 0}))
    return deleted


@fault
async def recreate(on: Injection) -> None:
    on.effects += await recreated(on)


async def _ring(admin: Client, name: str, **spec: object) -> bool:
    """Changes the ring; returns whether that worked."""
    with suppress(ApiError):
        ring = await admin.get(ControllerRing, name)
        await admin.replace(msgspec.structs.replace(ring, spec=msgspec.structs.replace(ring.spec, **spec)))
        return True
    return False


@fault
async def ring_without_children(on: Injection) -> None:
    """The controlled resources are removed from the ring, and added again."""
    alone = msgspec.structs.replace(MAIN, controlled_resources=())
    on.effects += await _ring(on.admin, on.world.ring, resources=(alone,))
    await on.lasts(1, 30)
    await _ring(on.admin, on.world.ring, resources=(MAIN,))


@fault
async def ring_without_namespace(on: Injection) -> None:
    """The ring's selector no longer selects the namespace, for a while."""
    nowhere = LabelSelector(match_labels={"nobody": "has"})
    on.effects += await _ring(on.admin, on.world.ring, namespace_selector=nowhere)
    await on.lasts(1, 30)
    await _ring(on.admin, on.world.ring, namespace_selector=None)


@fault
async def ring_anew(on: Injection) -> None:
    """The ring is deleted and re-created."""
    with suppress(ApiError):
        await on.admin.delete(ControllerRing, on.world.ring)
        on.effects += 1
    await on.lasts(0.1, 30)
    with suppress(ApiError):
        await on.world.make_ring()


@fault
async def ring_cleaned(on: Injection) -> None:
    """The ring gets the finalizer, is deleted, and re-created as soon as it is gone. If that takes too long, the
    finalizer is removed by hand.
    """

    with suppress(ApiError):
        await on.admin.patch(ControllerRing, on.world.ring, "", _finalizers(CLEAN_UP_FINALIZER))
        await on.admin.delete(ControllerRing, on.world.ring)
        on.effects += 1
    await on.until(lambda: Key("", on.world.ring) not in on.world.objects(GROUP, "controllerrings"), 40)
    with suppress(ApiError):
        await on.admin.patch(ControllerRing, on.world.ring, "", _finalizers())
    with suppress(ApiError):
        await on.world.make_ring()


def _finalizers(*keys: str) -> MergePatch:
    return MergePatch({"metadata": {"finalizers": list(keys)}})


async def ring_as_it_was(world: SimulatedCluster, admin: Client) -> None:
    """The ring is put back to its proper state, whatever a restore did to it: it may be one that is being deleted."""
    with suppress(ApiError):
        ring = await admin.get(ControllerRing, world.ring)
        if ring.metadata.deletion_timestamp:
            await admin.patch(ControllerRing, world.ring, "", _finalizers())
    with suppress(AlreadyExists):
        await world.make_ring()
    await _ring(admin, world.ring, resources=(MAIN,), namespace_selector=None)
