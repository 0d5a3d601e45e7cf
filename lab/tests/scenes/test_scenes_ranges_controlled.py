"""What objects control, in a ring that is sharded by ranges of uids: it is where its owner is, whoever made it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from test_scenes_range_coordinator import Operators
from test_scenes_ranges import GATES, OPERATOR, Work

from kubeshard.cache.scope import Scope
from kubeshard.client import Client
from kubeshard.controller import Context, Controller, Reconciler, Result, Watch
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.core.objects import Key, OwnerReference
from kubeshard.core.owners import controller_reference
from kubeshard.core.patches import MergePatch
from kubeshard.manager.declaration import CacheSettings
from kubeshard.manager.manager import Manager
from kubeshard.manager.roles import roles
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.shard.settings import Ranges
from kubeshard.shard.sharding import Sharding
from kubeshard.sharding.names import SYNC_PERIOD, bucket_label
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, simulate
from kubeshard_lab.simulation.processes import Process

LABEL = bucket_label("r")
STRANGER = Key("team", "stranger")


class Family(Operators):
    """Operators whose objects have a ConfigMap each."""

    children = True

    def labels(self) -> dict[str, str]:
        """Those of the ConfigMaps of objects, by the object's name."""
        children = self.world.objects("", "configmaps")
        return {
            key.name.removeprefix("c-"): obj["metadata"].get("labels", {}).get(LABEL, "")
            for key, obj in children.items()
            if key.namespace == "team" and key.name.startswith("c-")
        }

    def bucket(self, name: str) -> int:
        thing = self.world.objects("sim.example", "things")[Key("team", name)]
        return self.ranges.divided.of(ObjectMeta(uid=thing["metadata"]["uid"]))

    def complete(self) -> bool:
        """Whether each object has its ConfigMap, with its bucket as the label."""
        things = self.world.objects("sim.example", "things")
        return self.labels() == {key.name: str(self.bucket(key.name)) for key in things}

    def cached(self, shard: str) -> set[str]:
        """The objects whose ConfigMaps the shard knows."""
        manager = self.world.processes[shard].manager
        assert manager is not None
        informers = manager.cache.informers_of(ConfigMap.KIND)
        return {obj.key.name.removeprefix("c-") for informer in informers for obj in informer.store.objects()}

    def owned(self, shard: str) -> set[str]:
        assert self.assignment is not None
        buckets = self.assignment.owned_by(shard)
        return {name for name in self.labels() if self.bucket(name) in buckets}


async def child(client: Client, name: str, of: str = "", label: str = "") -> None:
    owners: tuple[OwnerReference, ...] = ()
    if of:
        owners = (controller_reference(await client.get(Thing, of, "team")),)
    labels = {LABEL: label} if label else None
    metadata = ObjectMeta(name=name, namespace="team", owner_references=owners, labels=labels)
    await client.create(ConfigMap(metadata=metadata, data={"v": "1"}))


@asynccontextmanager
async def working(*gates: str, things: int = 60) -> AsyncIterator[Family]:
    """Two operators. Some children are there before them: without a label, with a wrong one, without an owner."""
    async with SimulatedCluster(seed=1, feature_gates=gates) as world:
        fleet = Family(world, Ranges(buckets=64))
        await world.install()
        await world.make_things(things)
        async with world.admin() as client:
            await child(client, "c-t0", of="t0")
            await child(client, "c-t1", of="t1", label="65")
            await child(client, "c-t2")
            await child(client, STRANGER.name)
        for name in ("s0", "s1"):
            fleet.start(name)
        await world.until(lambda: fleet.settled("s0", "s1"), 10)
        assert {each.partition(" ")[0] for each in fleet.blind} <= {"team/t0", "team/t1", "team/t2"}
        fleet.blind.clear()
        yield fleet
        assert fleet.together == []
        assert fleet.writes["things"] == 0
        stranger = world.objects("", "configmaps")[STRANGER]["metadata"]
        assert LABEL not in stranger.get("labels", {})


@GATES
@pytest.mark.quick
def test_a_shard_knows_the_children_of_its_objects_and_no_others_however_shards_come_and_go(
    gates: tuple[str, ...],
) -> None:
    async def scene() -> None:
        async with working(*gates) as fleet:
            await fleet.world.until(fleet.complete, 1)
            versions = fleet.versions()
            fleet.start("s2")
            await fleet.until_settled("s0", "s1", "s2")
            await fleet.world.processes["s0"].stop()
            await fleet.until_settled("s1", "s2")
            await fleet.world.until(lambda: all(fleet.cached(s) == fleet.owned(s) for s in ("s1", "s2")), 1)
            assert fleet.cached("s1") | fleet.cached("s2") == set(fleet.labels())
            assert fleet.versions() == versions  # a hand-over writes nothing

    simulate(scene)


@GATES
def test_a_child_that_is_deleted_is_made_again_by_the_shard_that_has_its_owner_now(
    gates: tuple[str, ...],
) -> None:
    async def scene() -> None:
        async with working(*gates) as fleet:
            fleet.start("s2")
            await fleet.until_settled("s0", "s1", "s2")
            runs = fleet.runs.copy()
            names = [min(fleet.owned(shard)) for shard in ("s0", "s1", "s2")]
            async with fleet.world.admin() as client:
                for name in names:
                    await client.delete(ConfigMap, f"c-{name}", "team")
            await fleet.world.until(fleet.complete, 3)
            assert {key.name for key in (fleet.runs - runs)} == set(names)
            assert fleet.settled("s0", "s1", "s2")

    simulate(scene)


def test_what_gets_another_owner_or_is_made_by_others_is_labelled_by_the_coordinator() -> None:
    """The operator wants neither, so no shard takes it over."""

    async def scene() -> None:
        async with working() as fleet:
            things = fleet.world.objects("sim.example", "things")
            buckets = [str(fleet.bucket(f"t{number}")) for number in range(60)]
            other = next(number for number in range(10, 60) if buckets[number] != buckets[3])
            uids = [things[Key("team", f"t{number}")]["metadata"]["uid"] for number in (3, other)]
            async with fleet.world.admin() as client:
                await child(client, "made", of="t3")
                await child(client, "given", of="t3", label=buckets[3])
                await child(client, "left", label=buckets[3])
                reference = {"apiVersion": "sim.example/v1", "kind": "Thing", "name": f"t{other}"}
                owners = [{**reference, "uid": uids[1], "controller": True, "blockOwnerDeletion": True}]
                patch = MergePatch({"metadata": {"ownerReferences": owners}})
                await client.patch(ConfigMap, "given", "team", patch)

            def labels() -> list[str]:
                found = fleet.world.objects("", "configmaps")
                return [
                    found[Key("team", name)]["metadata"].get("labels", {}).get(LABEL, "")
                    for name in ("made", "given", "left")
                ]

            await fleet.world.until(lambda: labels() == [buckets[3], buckets[other], ""], SYNC_PERIOD + 5)
            await asyncio.sleep(1)
            cached = fleet.cached("s0") | fleet.cached("s1")
            assert {"made", "given"} <= cached
            assert "left" not in cached

    simulate(scene)


def test_a_child_with_another_bucket_of_the_same_shard_gets_the_right_one_from_that_shard_at_once() -> None:
    async def scene() -> None:
        async with working() as fleet:
            assert fleet.assignment is not None
            name = min(fleet.owned("s0"))
            wrong = next(each for each in fleet.assignment.owned_by("s0") if each != fleet.bucket(name))
            async with fleet.world.admin() as client:
                patch = MergePatch({"metadata": {"labels": {LABEL: str(wrong)}}})
                await client.patch(ConfigMap, f"c-{name}", "team", patch)
            await fleet.world.until(lambda: fleet.labels()[name] == str(fleet.bucket(name)), 5)

    simulate(scene)


def test_an_operator_of_one_namespace_needs_no_rights_elsewhere_on_what_its_objects_control() -> None:
    """The coordinator looks for unlabelled children only where its shards work."""
    lists: list[str] = []
    cache = CacheSettings(default_scope=Scope(frozenset({"team"})))

    def see(process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        if answer is not None and request.method == "GET" and "/configmaps?" in request.target:
            lists.append(f"{answer.status} {request.target.partition('?')[0]}")

    async def scene() -> None:
        async with SimulatedCluster(seed=1, users={"s0": OPERATOR}) as world:
            fleet = Family(world, Ranges(buckets=64))
            await world.install()
            await world.make_things(20)
            work = Work(fleet, "s0", 0.05)
            controller = Controller(
                name="thing",
                reconciler=work,
                primary=Watch(Thing, sharded=True),
                owns=[Watch(ConfigMap, sharded=True)],
            )
            sharding = Sharding("r", namespace="ops", mode="both", delivery=fleet.ranges)
            grants = Manager([controller], sharding=sharding, cache=cache).grants()
            async with world.admin() as client:
                for each in roles(grants, "operator", namespace="ops", account=("ops", "operator")):
                    if each["kind"] == "ClusterRole":
                        assert all("configmaps" not in rule["resources"] for rule in each["rules"])
                    await client.apply(each)
                await child(client, "made", of="t3")
            world.observers.append(see)
            world.shard("s0", work, sharding={"mode": "both", "delivery": fleet.ranges}, cache=cache)
            made, bucket = Key("team", "made"), str(fleet.bucket("t3"))
            await world.until(
                lambda: world.objects("", "configmaps")[made]["metadata"].get("labels") == {LABEL: bucket}, 30
            )
            await fleet.until_settled("s0")

    simulate(scene)
    assert set(lists) == {f"200 /api/v1/namespaces/{namespace}/configmaps" for namespace in ("ops", "team")}


class Applying(Reconciler[Thing]):
    """Wants the ConfigMaps that the spec names."""

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        wanted = [
            ConfigMap(
                metadata=ObjectMeta(name=f"{obj.metadata.name}-{name}", namespace="team"), data={"v": "1"}
            )
            for name in (obj.spec or {}).get("names", ("x", "y"))
        ]
        await ctx.apply(*wanted, unowned="adopt")
        return None


def test_a_desired_set_is_labelled_adopted_pruned_and_repaired_on_whatever_shard_its_owner_is() -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world:
            fleet = Family(world, Ranges(buckets=64))
            await world.install()
            await world.make_things(20)
            async with world.admin() as client:
                await child(client, "t0-x", of="t0")
                await child(client, "t1-x")

            def start(name: str) -> None:
                controller = Controller(
                    name="thing",
                    reconciler=Applying(),
                    primary=Watch(Thing, sharded=True),
                    applies=[Watch(ConfigMap, sharded=True)],
                )
                sharding = Sharding("r", name, "ops", mode="both", delivery=fleet.ranges)
                world.operator(name, controller, sharding=sharding)

            def children() -> dict[str, dict[str, Any]]:
                found = world.objects("", "configmaps")
                return {key.name: obj["metadata"] for key, obj in found.items() if key.namespace == "team"}

            def is_complete() -> bool:
                wanted = {
                    f"t{n}-{name}": str(fleet.bucket(f"t{n}")) for n in range(20) for name in ("x", "y")
                }
                return {
                    name: meta.get("labels", {}).get(LABEL) for name, meta in children().items()
                } == wanted

            for name in ("s0", "s1"):
                start(name)
            await world.until(is_complete, 30)
            await asyncio.sleep(5)
            before = children()
            start("s2")
            await asyncio.sleep(5)
            assert fleet.assignment is not None
            assert fleet.assignment.shards == {"s0", "s1", "s2"}
            assert children() == before
            mine = [f"t{n}" for n in range(20) if fleet.bucket(f"t{n}") in fleet.assignment.owned_by("s2")]
            async with world.admin() as client:
                await client.patch(Thing, mine[0], "team", MergePatch({"spec": {"names": ["x"]}}))
                await client.delete(ConfigMap, f"{mine[1]}-y", "team")
            await world.until(lambda: f"{mine[0]}-y" not in children() and f"{mine[1]}-y" in children(), 5)
            wrong = {"metadata": {"labels": {LABEL: str(fleet.bucket(mine[1]))}}}
            async with world.admin() as client:
                await client.patch(ConfigMap, f"{mine[0]}-x", "team", MergePatch(wrong))
            right = str(fleet.bucket(mine[0]))
            await world.until(lambda: children()[f"{mine[0]}-x"]["labels"][LABEL] == right, 5)

    simulate(scene)
