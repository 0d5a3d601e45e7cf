"""What users do to the objects, Leases and rings of others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from contextlib import suppress

import msgspec

from kubeshard.client.client import Client
from kubeshard.core.builtin import ConfigMap, Lease, LeaseSpec, Namespace
from kubeshard.core.errors import AlreadyExists, ApiError
from kubeshard.core.objects import Key, KubeObject, ObjectMeta, metadata_only
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import LabelSelector
from kubeshard.core.times import micro_time
from kubeshard.runtime.transport import HttpRequest
from kubeshard.sharding.api import GROUP, ControllerRing
from kubeshard.sharding.names import CLEAN_UP_FINALIZER, RING_LABEL, SYNC_PERIOD, drain_label, shard_label
from kubeshard_lab.simulation.cluster import MAIN, SimulatedCluster, Thing, definition
from kubeshard_lab.simulation.deliveries import CHILDREN, NAMESPACES, THINGS
from kubeshard_lab.simulation.faults.injection import Injection, Rule, fault, fault_by
from kubeshard_lab.simulation.faults.rollouts import scale
from kubeshard_lab.simulation.processes import Process, name_of
from kubeshard_lab.simulation.workload import Workload


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


@fault_by("labels")
async def label(on: Injection) -> None:
    """A user writes the name of another shard, live or not, into the shard label, or takes it away."""
    key = shard_label(on.world.ring)
    value = on.rng.choice([*sorted(on.workload.living("s")), "nobody", None])
    await on.patch(on.object(), {"metadata": {"labels": {key: value}}})


@fault_by("labels")
async def put_without_labels(on: Injection) -> None:
    """A user replaces objects by versions without labels: up to three that are being drained, or else any one."""
    await on.until(lambda: bool(on.world.draining()), 15)
    for name in sorted(on.world.draining())[:3] or [on.object()]:
        path = f"/apis/sim.example/v1/namespaces/team/things/{name}"
        before, calls = on.world.owners().get(name, ""), on.world.caller.answered
        with suppress(ApiError):
            thing = json.loads((await on.admin.raw("GET", path)).body)
            thing["metadata"]["labels"] = {"app": "x"}
            answer = await on.admin.raw("PUT", path, json.dumps(thing).encode())
            on.effects += 1
            seen = on.world.caller.answered > calls
            unheard = "error determining ControllerRing" in answer.headers.get("warning", "")
            on.workload.oracles.replaced(name, before, seen=seen, unheard=unheard)


@fault_by("labels")
async def drain(on: Injection) -> None:
    """A user sets the drain label."""
    await on.patch(on.object(), {"metadata": {"labels": {drain_label(on.world.ring): "true"}}})


async def recreated(on: Injection) -> int:
    """A user deletes three objects or children, and creates some again. Returns how many were deleted."""
    deleted = 0
    for _ in range(3):
        admin = on.admin_of(name := on.object())
        with suppress(ApiError):
            await admin.delete(ConfigMap, f"c-{name}", on.world.home_of(name))
            deleted += 1
        if on.rng.random() < 0.5:
            with suppress(ApiError):
                await admin.delete(Thing, name, on.world.home_of(name))
                await asyncio.sleep(on.rng.choice((0.0, 2.0)))
                await admin.create(
                    Thing(metadata=ObjectMeta(name=name, namespace=on.world.home_of(name)), spec={"v": 0})
                )
    return deleted


@fault
async def recreate(on: Injection) -> None:
    """A user deletes objects and children, and creates some of the objects again."""
    on.effects += await recreated(on)


async def _ring(admin: Client, name: str, **spec: object) -> bool:
    """Changes the ring; returns whether that worked."""
    with suppress(ApiError):
        ring = await admin.get(ControllerRing, name)
        await admin.replace(msgspec.structs.replace(ring, spec=msgspec.structs.replace(ring.spec, **spec)))
        return True
    return False


@fault_by("labels")
async def ring_without_children(on: Injection) -> None:
    """The controlled resources are removed from the ring, and added again."""
    alone = msgspec.structs.replace(MAIN, controlled_resources=())
    on.effects += await _ring(on.admin, on.world.ring, resources=(alone,))
    await on.lasts(1, 30)
    await _ring(on.admin, on.world.ring, resources=(MAIN,))


@fault_by("labels")
async def ring_without_namespace(on: Injection) -> None:
    """The ring's selector no longer selects the namespace, for a while."""
    nowhere = LabelSelector(match_labels={"nobody": "has"})
    on.effects += await _ring(on.admin, on.world.ring, namespace_selector=nowhere)
    await on.lasts(1, 30)
    await _ring(on.admin, on.world.ring, namespace_selector=None)


@fault_by("labels")
async def ring_anew(on: Injection) -> None:
    """The ring is deleted and re-created."""
    with suppress(ApiError):
        await on.admin.delete(ControllerRing, on.world.ring)
        on.effects += 1
    await on.lasts(0.1, 30)
    with suppress(ApiError):
        await on.world.make_ring()


@fault_by("labels")
async def ring_cleaned(on: Injection) -> None:
    """The ring gets the finalizer, is deleted, and re-created when gone. If that is late, by hand."""
    with suppress(ApiError):
        await on.admin.patch(ControllerRing, on.world.ring, "", _finalizers(CLEAN_UP_FINALIZER))
        await on.admin.delete(ControllerRing, on.world.ring)
        on.effects += 1
    await on.until(lambda: Key("", on.world.ring) not in on.world.objects(GROUP, "controllerrings"), 40)
    with suppress(ApiError):
        await on.admin.patch(ControllerRing, on.world.ring, "", _finalizers())
    with suppress(ApiError):
        await on.world.make_ring()


@fault_by("labels")
async def ring_midway(on: Injection) -> None:
    """The number of shards changes; during the drains, controlled resources leave the ring and return."""
    await scale(on)
    on.effects -= 1
    if await on.until(lambda: bool(on.world.draining()), 30):
        alone = msgspec.structs.replace(MAIN, controlled_resources=())
        on.effects += await _ring(on.admin, on.world.ring, resources=(alone,))
        await on.lasts(0.5, 10)
        await _ring(on.admin, on.world.ring, resources=(MAIN,))


@fault
async def sharder_lease(on: Injection) -> None:
    """A user deletes the Leases of elections: that of the sharder, wherever it runs."""
    leases = on.world.objects("coordination.k8s.io", "leases").items()
    for key, found in sorted(leases):
        if RING_LABEL not in (found["metadata"].get("labels") or {}):
            with suppress(ApiError):
                await on.admin.delete(Lease, key.name, key.namespace)
                on.effects += 1


@fault
async def rights_revoked(on: Injection) -> None:
    """A process may no longer write things, children or Leases, for a while."""
    process, what = on.one(on.rng.choice("sx")), on.rng.choice(("/things", "/configmaps", "/leases"))
    if process is None:
        return
    on.effects -= 1
    name = name_of(process.name)

    def forbidden(process: Process, request: HttpRequest) -> bool:
        return request.method != "GET" and name_of(process.name) == name and what in request.target

    async with on.happening("forbidden"), on.ruled(Rule("forbidden", forbidden, code=403)):
        await on.lasts(5, 60)


async def _cleared(on: Injection, cluster: str) -> None:
    """Deletes all objects of a cluster with their children, as the garbage collector would."""
    world = on.world
    kinds: Mapping[type[KubeObject], Collection[str]]
    kinds = {ConfigMap: world.owners("", "configmaps"), Thing: world.owners()}
    for kind, name in ((kind, name) for kind, names in kinds.items() for name in sorted(names)):
        if world.cluster_of(name) == cluster:
            with suppress(ApiError):
                await on.admin_of(name).delete(kind, name, world.home_of(name))
                on.effects += kind is Thing


def _missing(workload: Workload) -> list[str]:
    there = workload.world.owners()
    return [name for name in (f"t{number}" for number in range(workload.count)) if name not in there]


async def _created(workload: Workload) -> None:
    """A user creates what is missing of the kind, the namespace and the objects, as far as the API server lets them."""
    world = workload.world
    for place, admin in workload.admins.items():
        store = world.store(place)
        if not store.has(THINGS):
            with suppress(ApiError):
                await admin.apply(definition())
        for name in world.namespaces:
            if Key("", name) not in store.objects(NAMESPACES):
                with suppress(ApiError):
                    await admin.create(Namespace(metadata=ObjectMeta(name=name)))
    for name in _missing(workload):
        with suppress(ApiError):
            meta = ObjectMeta(name=name, namespace=world.home_of(name))
            await workload.admin_of(name).create(Thing(metadata=meta, spec={"v": 0}))


async def created_again(on: Injection) -> None:
    """A user goes on until all objects are there, or all faults are over."""
    while _missing(on.workload) and not on.conditions.over.is_set():
        await _created(on.workload)
        await asyncio.sleep(1)


@fault
async def namespace_deleted(on: Injection) -> None:
    """The namespace with all objects of a cluster is deleted, and created again with them."""
    name, cluster = on.world.namespaces[0], on.a_cluster()
    admin = on.workload.admins[cluster]
    with suppress(ApiError):
        await admin.raw("DELETE", f"/api/v1/namespaces/{name}")
        await on.lasts(0.5, 5)
        await _cleared(on, cluster)
        await _finalized(admin, name)
    await on.lasts(0.5, 20)
    await created_again(on)


async def _finalized(admin: Client, namespace: str) -> None:
    """One that is being deleted is gone."""
    path = f"/api/v1/namespaces/{namespace}"
    terminating = json.loads((await admin.raw("GET", path)).body)
    terminating["spec"] = {"finalizers": []}
    await admin.raw("PUT", f"{path}/finalize", json.dumps(terminating).encode())


@fault
async def kind_deleted(on: Injection) -> None:
    """The CustomResourceDefinition of a cluster is deleted with all objects, and created again, and then they are."""
    cluster = on.a_cluster()
    await _cleared(on, cluster)
    with suppress(ApiError):
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await on.workload.admins[cluster].raw("DELETE", f"{definitions}/things.sim.example")
    await on.lasts(0.5, 30)
    await created_again(on)


@fault
async def hot(on: Injection) -> None:
    """An object is changed twenty times a second."""
    name, over = on.object(), on.conditions.now + on.rng.uniform(2, 15)
    while on.conditions.now < over and not on.conditions.over.is_set():
        await on.patch(name, {"spec": on.other_value()})
        await asyncio.sleep(0.05)


@fault
async def undecodable(on: Injection) -> None:
    """An object cannot be decoded for a while."""
    name, form = on.object(), metadata_only(Thing)
    await on.patch(name, {"spec": "a text"}, form)
    await on.lasts(1, 40)
    await on.patch(name, {"spec": on.other_value()}, form)


HEARD_AGAIN = 10.0
"""So long after it was cut off a sharder has listed all Leases again."""


@fault
async def reparented(on: Injection) -> None:
    """A child gets another owner of its cluster, and its own back. If no webhook is asked then, or one of a sharder
    that is cut off, it may take until the next full scan that it is where its owner is.
    """
    first, second = on.rng.sample(range(on.workload.count), 2)
    cluster_of = on.world.cluster_of
    while cluster_of(f"t{first}") != cluster_of(f"t{second}"):
        first, second = on.rng.sample(range(on.workload.count), 2)
    child = f"c-t{first}"
    on.effects += await _given(on.workload, child, f"t{second}")
    await on.lasts(1, 30)
    on.effects += await _given_back(on.workload, child)


async def _given(workload: Workload, child: str, name: str) -> bool:
    """Whether the child is now one of this object, as far as both exist."""
    world, home = workload.world, workload.world.home_of(child)
    owner = world.stored(THINGS, Key(world.home_of(name), name))
    if owner is None or world.stored(CHILDREN, Key(home, child)) is None:
        return False
    reference = {"apiVersion": "sim.example/v1", "kind": "Thing", "name": name, "controller": True}
    references = [{**reference, "uid": owner["metadata"]["uid"], "blockOwnerDeletion": True}]
    try:
        patch = MergePatch({"metadata": {"ownerReferences": references}})
        await workload.admin_of(child).patch(ConfigMap, child, home, patch)
    except ApiError:
        return False
    return True


async def _given_back(workload: Workload, child: str) -> bool:
    world, name = workload.world, child.removeprefix("c-")
    calls = world.caller.answered
    given = await _given(workload, child, name)
    heard = world.loop.time() - HEARD_AGAIN
    informed = all(
        network.whole_since <= heard for process in workload.live("x") for network in process.networks
    )
    if not informed or world.caller.answered == calls:
        workload.next_scan[name] = world.loop.time() + SYNC_PERIOD
    return given


def _finalizers(*keys: str) -> MergePatch:
    return MergePatch({"metadata": {"finalizers": list(keys)}})


async def mended_again(workload: Workload) -> None:
    """What users broke and mended is whole: a restore may have brought back what was broken."""
    world, admin = workload.world, workload.admin
    if world.ranges is None:
        await _ring_as_it_was(world, admin)
    for place in world.places:
        for key, namespace in tuple(world.store(place).objects(NAMESPACES).items()):
            if "deletionTimestamp" in namespace["metadata"]:
                await _finalized(workload.admins[place], key.name)
    await _created(workload)
    for key, thing in world.objects("sim.example", "things").items():
        if not isinstance(thing["spec"], dict):
            mended = MergePatch({"spec": {"v": 0}})
            await workload.admin_of(key.name).patch(metadata_only(Thing), key.name, key.namespace, mended)
    for key, child in world.objects("", "configmaps").items():
        owners = child["metadata"].get("ownerReferences") or ()
        if any(owner["name"] != key.name.removeprefix("c-") for owner in owners):
            await _given_back(workload, key.name)


async def _ring_as_it_was(world: SimulatedCluster, admin: Client) -> None:
    """The ring is put back to its proper state, whatever a restore did to it: it may be one that is being deleted."""
    with suppress(ApiError):
        ring = await admin.get(ControllerRing, world.ring)
        if ring.metadata.deletion_timestamp:
            await admin.patch(ControllerRing, world.ring, "", _finalizers())
    with suppress(AlreadyExists):
        await world.make_ring()
    await _ring(admin, world.ring, resources=(MAIN,), namespace_selector=None)
