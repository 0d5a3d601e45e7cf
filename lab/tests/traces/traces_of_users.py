"""What users may do to labels, owners, rings and Leases."""

from __future__ import annotations

import asyncio
from itertools import count

import msgspec
from reference_protocol import HashRing
from trace_scene import DRAIN, SHARD, Scene, a_thing
from trace_table import trace

from kubeshard.core.builtin import ConfigMap
from kubeshard.core.objects import ObjectMeta, OwnerReference
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharding.api import ControllerRing, RingGroupResource, RingResource
from kubeshard.sharding.names import SHARD_NAMESPACES_ANNOTATION
from kubeshard_lab.simulation.cluster import Thing


@trace(
    "18a",
    "A user replaces an object by a manifest without labels while it is drained",
    reference="it goes to the next shard at once, while the former one works on it",
    kubeshard="the shard label is put back",
    measure="the webhook compares with the object as it was",
    oracle="overlap",
)
async def labels_dropped(scene: Scene) -> None:
    thing = a_thing(("a", "a"), ("b", "ab"))
    await scene.begin("a", things=[thing])
    scene.takes = {"thing": 30.0}
    await scene.change(thing)
    scene.shard("b")
    await scene.world.until(scene.world.draining, within=20)
    await scene.replace(thing)
    await asyncio.sleep(10)


@trace(
    "18b",
    "A user writes the name of another shard into the shard label",
    reference="both shards work on the object, and the former one's write lands",
    kubeshard="the shard label is put back",
    measure="the webhook is called for that, too",
    oracle="stale write",
)
async def label_exchanged(scene: Scene) -> None:
    thing = a_thing(("a", "ab"))
    await scene.begin("a", "b", things=[thing])
    scene.takes = {"thing": 5.0}
    await scene.change(thing)
    await asyncio.sleep(1)
    await scene.label(thing, {SHARD: "b"})
    await asyncio.sleep(10)


@trace(
    "18c",
    "A user sets the drain label while the webhook cannot be reached",
    reference="the object is released, and nobody's until the next full scan, five minutes later",
    kubeshard="it has its shard again within seconds",
    measure="a watch on what has no shard",
    oracle="not owned",
)
async def drained(scene: Scene) -> None:
    await scene.begin("a", things=["t"])
    scene.world.caller.reachable = False
    await scene.label("t", {DRAIN: "true"})
    await asyncio.sleep(1)
    scene.world.caller.reachable = True
    await scene.must("not owned", lambda: scene.owner("t"), within=30)


@trace(
    "18d",
    "A user creates an object with the label of a shard that does not exist",
    reference="it is nobody's until the next full scan, five minutes later",
    kubeshard="it has a shard within ten seconds, unless the names of all shards are longer than 4000 characters",
    measure="the watch on what has no shard excludes only the names of available shards",
    oracle="not owned",
    slow=True,
)
async def ghost(scene: Scene) -> None:
    await scene.begin("a")
    await asyncio.sleep(40)
    await scene.create("t", labels={SHARD: "ghost"})
    await scene.must("not owned", lambda: scene.owner("t") == "a", within=10)


@trace(
    "19",
    "A shard is about to create a child, named at random, when a shard joins that takes over the owner",
    reference="children move before their owner; its cache shows none any more, and it creates another one",
    kubeshard="there is one child",
    measure="children follow their owner, and are labelled by the shard that creates them",
    oracle="duplicate child",
    slow=True,
)
async def children_first(scene: Scene) -> None:
    thing = a_thing(("a", "a"), ("b", "ab"))
    scene.children = "generated"
    await scene.begin("a", things=[thing])
    scene.takes = {"thing": 10.0}
    await scene.change(thing)
    await asyncio.sleep(1)
    scene.shard("b")
    await asyncio.sleep(40)
    if (children := len(scene.world.objects("", "configmaps"))) != 1:
        scene.broken("duplicate child", f"{children} children of {thing}")


@trace(
    "20a",
    "An object that a foreign controller controls is of a kind that the ring lists as controlled",
    reference="it gets a shard, and moves with every change of the ring",
    kubeshard="it is left alone",
    measure="only what a main object of the ring controls follows it",
    oracle="touched",
)
async def foreign_controller(scene: Scene) -> None:
    await scene.begin("a")
    owner = OwnerReference(api_version="apps/v1", kind="Deployment", name="web", uid="1", controller=True)
    async with scene.world.admin() as admin:
        await admin.create(
            ConfigMap(metadata=ObjectMeta(name="web", namespace="team", owner_references=[owner]))
        )
    await asyncio.sleep(20)
    if shard := scene.world.owners("", "configmaps")["web"]:
        scene.broken("touched", f"the foreign object is {shard}'s")


@trace(
    "20b",
    "A user gives an object to another owner",
    reference="it stays on the shard of the former one until the next full scan, five minutes later",
    kubeshard="where the webhook is called, it is on the shard of its new owner at once",
    measure="the webhook is called for that, too",
    oracle="apart",
    slow=True,
)
async def reparented(scene: Scene) -> None:
    mine, other = a_thing(("a", "ab")), a_thing(("b", "ab"))
    scene.children = "none"
    await scene.begin("a", "b", things=[mine, other])
    await asyncio.sleep(40)
    async with scene.world.admin() as admin:
        metadata = ObjectMeta(name="child", namespace="team", owner_references=[scene.owner_reference(mine)])
        await admin.create(ConfigMap(metadata=metadata))
        await asyncio.sleep(2)
        owners = [msgspec.to_builtins(scene.owner_reference(other))]
        await admin.patch(ConfigMap, "child", "team", MergePatch({"metadata": {"ownerReferences": owners}}))
    await scene.must(
        "apart", lambda: scene.world.owners("", "configmaps")["child"] == scene.owner(other), within=10
    )


@trace(
    "21",
    "While a dead shard's objects move, one is deleted and created again, and another one is changed",
    reference="both wait until the whole ring is looked at again, after five seconds or more",
    kubeshard="both have their shard at once",
    measure="what is refused is tried again alone; what is gone is done",
    oracle="not owned",
    slow=True,
)
async def deleted_in_flight(scene: Scene) -> None:
    first = a_thing(("a", "ab"))
    second = a_thing(("a", "ab"), but=[first])
    await scene.begin("a", "b", things=[first, second])
    raced: list[str] = []

    async def race(request: HttpRequest) -> HttpResponse | None:
        if request.method != "PATCH" or "/things/" not in request.target:
            return None
        if first not in raced and f"/{first}" in request.target:
            raced.append(first)
            async with scene.world.admin() as admin:
                await admin.delete(Thing, first, "team")
            scene.world.caller.reachable = False
            await scene.create(first)
            scene.world.caller.reachable = True
        if second not in raced and f"/{second}" in request.target:
            raced.append(second)
            await scene.change(second)
        return None

    scene.before("x0", race)
    scene.world.processes["a"].kill()
    await scene.world.until(lambda: len(raced) == 2, within=60)
    await scene.must("not owned", lambda: scene.world.all_owned("b"), within=4)


@trace(
    "22",
    "Objects are created while the API server cannot reach the webhook",
    reference="they have no shard until the next full scan, five minutes later",
    kubeshard="they have one within seconds",
    measure="a watch on what has no shard",
    oracle="not owned",
)
async def webhook_down(scene: Scene) -> None:
    await scene.begin("a")
    scene.world.caller.reachable = False
    await scene.create("t")
    await scene.must("not owned", lambda: scene.owner("t"), within=30)


@trace(
    "23",
    "A user creates an object of a new ring, of which the replica that answers the webhook has not heard",
    reference="the user's request is refused",
    kubeshard="it is allowed, and the object gets its shard a moment later",
    measure="the webhook never denies",
    oracle="refused",
)
async def unknown_ring(scene: Scene) -> None:
    await scene.world.install()
    await scene.sharder("x0")
    await scene.sharder("x1")
    await asyncio.sleep(5)
    hear = scene.silence("x1", "/controllerrings")
    await scene.world.make_ring()
    webhooks = "admissionregistration.k8s.io", "mutatingwebhookconfigurations"
    await scene.world.until(lambda: scene.world.objects(*webhooks), within=20)
    scene.shard("a")
    await scene.ready("a")
    await scene.create("t")
    await scene.must("not owned", lambda: "t" in scene.world.owners() and scene.owner("t"), within=30)
    hear()


@trace(
    "24",
    "A ring lists a resource as main, and again as controlled by itself; a shard joins",
    reference="what is drained as a main object is moved as a controlled one, without waiting for its shard",
    kubeshard="it is main, and nothing else",
    measure="each resource has one role",
    oracle="overlap",
    slow=True,
)
async def listed_twice(scene: Scene) -> None:
    parent = a_thing(("a", "a"), ("b", "ab"))
    child = a_thing(("a", "a"), ("b", "ab"), but=[parent])
    things = RingGroupResource(group="sim.example", resource="things")
    scene.children = "none"
    await scene.begin(
        "a",
        things=[parent],
        resources=[RingResource(group="sim.example", resource="things", controlled_resources=(things,))],
    )
    scene.takes = {"thing": 40.0}
    await scene.create(child, owner_references=[scene.owner_reference(parent)])
    await asyncio.sleep(2)
    scene.shard("b")
    await asyncio.sleep(30)


@trace(
    "25a",
    "Somebody who may write Leases in a namespace creates one of a shard that does not exist, and renews it",
    reference="it gets its share of all objects, and nobody works on them",
    kubeshard="with the shards' namespaces named at the ring, nothing happens",
    measure="the ring's annotation `shard-namespaces`",
    oracle="not owned",
    slow=True,
)
async def ghost_shard(scene: Scene) -> None:
    await scene.begin("a")
    async with scene.world.admin() as admin:
        annotations = {SHARD_NAMESPACES_ANNOTATION: "ops"}
        await admin.patch(ControllerRing, "r", None, MergePatch({"metadata": {"annotations": annotations}}))
    await asyncio.sleep(1)
    thing = a_thing(("ghost", ["a", "ghost"]))
    for number in range(10):
        await scene.put_lease("ghost", "ghost", namespace="team")
        if number == 1:
            await scene.create(thing)
        await asyncio.sleep(2)
    await scene.must("not owned", lambda: scene.owner(thing) == "a", within=1)


@trace(
    "25b",
    "Somebody creates a Lease of the ring whose name is longer than a label may be",
    reference="every request that would create one of its objects is refused",
    kubeshard="the Lease is no shard",
    measure="names that are no label values are left out",
    oracle="refused",
)
async def long_name(scene: Scene) -> None:
    name = "ghost-" + "x" * 60
    await scene.begin("a")
    await scene.put_lease(name, name, namespace="team")
    await asyncio.sleep(2)
    await scene.create(a_thing((name, ["a", name])))


@trace(
    "25c",
    "Somebody creates a Lease with the name of another namespace's shard, that nobody holds",
    reference="which of the Leases counts is random: objects of the living shard may move without a drain",
    kubeshard="the shard lives, because its Lease is held",
    measure="all Leases of a name count; a condition of the ring tells",
    oracle="overlap",
    slow=True,
)
async def theft(scene: Scene) -> None:
    things = [a_thing(("a", "a"), ("b", "ab"))]
    things += [a_thing(("a", "a"), ("b", "ab"), but=things)]
    await scene.begin("a", things=things)
    scene.takes = {"thing": 30.0}
    for thing in things:
        await scene.change(thing)
    await asyncio.sleep(1)
    await scene.put_lease("a", "", namespace="team")
    scene.shard("b")
    await scene.ready("b")
    await scene.edit_ring(times=8)


@trace(
    "26",
    "Two shards have names whose tokens collide on the hash ring, and the sharder scans all objects again and again",
    reference="which of them an object belongs to is random each time: it moves to and fro",
    kubeshard="it stays",
    measure="names are added to the ring in order",
    oracle="moved",
    slow=True,
)
async def collision(scene: Scene) -> None:
    shards = ["s-1", "s-11"]
    rings = [HashRing(shards), HashRing(reversed(shards))]
    names = (f"t{number}" for number in count())
    thing = next(
        name for name in names if len({ring.owner(f"sim.example/Thing/team/{name}") for ring in rings}) == 2
    )
    await scene.begin(*shards, things=[thing])
    before = scene.result.counts["changes of owners"]
    await scene.edit_ring(times=8)
    if moves := scene.result.counts["changes of owners"] - before:
        scene.broken("moved", f"{thing} {moves} times")
