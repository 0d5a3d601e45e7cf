"""`kubectl shard` answers for a ring by ranges: on virtual time with operators that share it out, and for assignments
and Leases that were written by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import KubectlShard, reader_grants
from ring_cluster import RING, RingCluster

from kubeshard.cli.kubectl.planning import _print_plan
from kubeshard.cli.kubectl.questions import _explain, _print_status, placements
from kubeshard.client import Client
from kubeshard.controller import Context, Reconciler, Result
from kubeshard.controller.dependents import ensure
from kubeshard.core import ConfigMap, Lease, MergePatch, ObjectMeta, Secret
from kubeshard.core.grants import Grant
from kubeshard.core.objects import Key
from kubeshard.core.owners import NOTED_OWNER, controller_reference
from kubeshard.inspection.cluster import read_cluster, read_sharder
from kubeshard.inspection.counts import count
from kubeshard.inspection.doctor import examine
from kubeshard.inspection.live import RingWatcher
from kubeshard.inspection.placement import Placement, placement_of
from kubeshard.inspection.planning import Seen, moves, planned, with_shards
from kubeshard.inspection.ring import SeenRing, see
from kubeshard.inspection.shard_drain import owned_on
from kubeshard.inspection.status import RingStatus, status_of
from kubeshard.manager.roles import roles
from kubeshard.shard.settings import Ranges
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.assignment import BY_LABELS, Assignment, Place, Report
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.names import (
    DELIVERY_ANNOTATION,
    OWNED_RANGES_ANNOTATION,
    SHARD_NAMESPACES_ANNOTATION,
    WEIGHT_ANNOTATION,
    assignment_name,
)
from kubeshard_apiserver.testing import KubeApi, MemoryApi
from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, simulate

SHARDS = ("s0", "s1", "s2")
BUCKETS = Buckets(4)


class Child(Reconciler[Thing]):
    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        meta = ObjectMeta(name=f"c-{obj.metadata.name}", namespace=obj.metadata.namespace)
        await ensure(ctx, ConfigMap(metadata=meta), owner=obj)
        return None


class Team:
    """Operators that are their own coordinators."""

    def __init__(self, world: SimulatedCluster) -> None:
        self.world = world
        self.client = world.admin()

    def start(self, name: str) -> None:
        sharding = {"mode": "both", "delivery": Ranges(buckets=64)}
        self.world.shard(name, Child(), sharding=sharding)

    @property
    def assignment(self) -> Assignment:
        found = self.world.objects("", "configmaps").get(Key("ops", assignment_name("r")))
        return Assignment.of(Buckets(64)) if found is None else Assignment.parse(found["data"])

    async def settled(self, *shards: str) -> None:
        def done() -> bool:
            found = self.assignment
            return found.shards == set(shards) and not any(place.target for place in found.places)

        await self.world.until(done, within=120)
        await asyncio.sleep(2)  # until it is reported

    async def see(self) -> SeenRing:
        return await see(self.client, await read_cluster(self.client), "r")

    async def owners(self) -> dict[Key, str]:
        places = self.assignment.places
        return {
            thing.key: places[Buckets(64).of(thing.metadata)].owner
            for thing in await self.client.list_all(Thing, "team")
        }


@asynccontextmanager
async def team(*gates: str) -> AsyncIterator[Team]:
    async with SimulatedCluster(seed=1, feature_gates=gates) as world:
        await world.install()
        found = Team(world)
        for name in SHARDS:
            found.start(name)
        await world.make_things(30)
        await found.settled(*SHARDS)
        yield found


def explained_on_the_page() -> list[str]:
    """The names of what docs/kubectl-shard.md shows."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "kubectl-shard.md").read_text()
    block = page.partition("```text\n")[2].partition("```")[0]
    return [line.split()[0] for line in block.splitlines()[1:]]


def test_what_is_said_of_a_ring_in_which_everything_is_where_it_belongs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def scene() -> None:
        async with team() as its:
            found = await status_of(its.client, await read_cluster(its.client), "r")
            assert (found.ready, found.troubles) == ("True", [])
            assert [(each.resource, each.objects, each.unassigned) for each in found.resources] == [
                ("things.sim.example", 30, 0),
                ("configmaps", 30, 0),
            ]
            owned = [each.buckets for each in found.shards if each.buckets]
            assert [(each.owned, each.reported) for each in owned] == [(22, 22), (21, 21), (21, 21)]
            _print_status([found], [], [], {})
            assert "64 buckets by uid: ConfigMap ops/ranges-r, epoch " in capsys.readouterr().out
            for key, owner in (await its.owners()).items():
                (where,) = await placements(("thing", key.name), "team", family=True)(its.client)
                assert (where.shard, where.desired, where.reason) == (owner, owner, "Placed")
                (child,) = await placements(("cm", f"c-{key.name}"), "team", family=True)(its.client)
                assert (child.shard, child.reason, child.bucket) == (owner, "Placed", where.bucket)
            _explain(where)
            said = capsys.readouterr().out
            assert [line.split()[0] for line in said.splitlines()[1:]] == explained_on_the_page()
            assert where.bucket is not None
            assert f"bucket    {where.bucket.number} of 64 by uid" in said
            assert f"reported  on the Lease of {where.shard}" in said

    simulate(scene)


@pytest.mark.long
def test_what_moves_is_what_was_planned(capsys: pytest.CaptureFixture[str]) -> None:
    async def scene() -> None:
        async with team() as its:
            for change, after in (("+", (*SHARDS, "s3")), ("-", ("s0", "s1", "s3"))):
                ring, before = await its.see(), await its.owners()
                add, remove = (["s3"], []) if change == "+" else ([], ["s2"])
                then = with_shards(ring, add=add, remove=remove)
                planned_moves = {
                    each.key: each.target
                    async for each in moves(its.client, ring, then, Seen())
                    if each.resource.resource == "things"
                }
                plan = await planned(its.client, ring, then)
                places = its.assignment.places
                if add:
                    its.start("s3")
                else:
                    assert ring.ranges is not None
                    assert await owned_on(its.client, ring, ring.ranges, "s2") == 16
                    await its.world.processes["s2"].stop()
                    await its.settled(*after)
                    assert await owned_on(its.client, ring, ring.ranges, "s2") == 0
                await its.settled(*after)
                moved = {key: owner for key, owner in (await its.owners()).items() if owner != before[key]}
                assert moved == planned_moves
                gone = sum(a.owner != b.owner for a, b in zip(places, its.assignment.places, strict=True))
                assert plan.buckets == (64, gone)
                _print_plan(plan)
                assert "(buckets)           64       16    25 %" in capsys.readouterr().out

    simulate(scene)


@pytest.mark.parametrize("gates", [(SHARDED_LIST_AND_WATCH,), ()], ids=["selects", "ignores"])
def test_doctor_says_whether_the_api_server_selects_and_looks_for_what_such_a_ring_needs(
    gates: tuple[str, ...],
) -> None:
    async def scene() -> None:
        async with team(*gates) as its:
            leader = (await read_sharder(its.client, await read_cluster(its.client), "r")).leader
            containers = [{"name": "operator", "image": "operator"}]
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": leader, "namespace": "ops"}}
            await its.client.apply({**pod, "spec": {"containers": containers}})
            found = await examine(its.client)
            parts = ["clocks", "ring r", "selection of ring r", "rights on ring r", "deleted rings"]
            assert [each for each in found.examined if each in parts] == parts
            assert found.unchecked == []
            problems = [each.problem for each in found.findings if each.part in parts]
            assert ["ignores shardSelector" in each for each in problems] == [True] * (not gates)
            (status,) = [await status_of(its.client, await read_cluster(its.client), "r")]
            assert status.assignment is not None
            assert status.assignment.selected is bool(gates)

    simulate(scene)


@pytest.mark.long
def test_a_live_picture_follows_the_assignment() -> None:
    async def scene() -> None:
        async with team() as its:
            watcher = RingWatcher(its.client, await its.see())
            watching = asyncio.create_task(watcher.run())
            await watcher.read()
            picture, before = watcher.snapshot(), await its.owners()
            assert (picture.verdict, picture.total) == ("every object is where it belongs", 60)
            await its.world.processes["s2"].stop()
            await its.settled("s0", "s1")
            picture, owners = watcher.snapshot(), await its.owners()
            moved = sum(owners[key] != before[key] for key in owners)
            assert (picture.settled, picture.moves) == (True, 2 * moved)
            rows = {row.shard: (row.live, row.objects, row.left) for row in picture.rows}
            assert rows["s2"] == (False, 0, 2 * moved)
            async with its.world.admin("home") as home:
                await home.delete(ConfigMap, assignment_name("r"), "ops")
            await asyncio.sleep(0.5)
            assert watcher.snapshot().verdict.endswith("ranges-r: the ConfigMap ops/ranges-r does not exist")
            await its.settled("s0", "s1")
            assert watcher.snapshot().verdict == "every object is where it belongs"
            watching.cancel()

    simulate(scene)


class Written(RingCluster):
    """Leases and an assignment of four buckets, written by hand."""

    async def shard_by_ranges(self, name: str, report: str, **more: Any) -> None:
        """`report`: what it says that it works on."""
        await self.shard(name, **more)
        await self.annotate(name, **{OWNED_RANGES_ANNOTATION: report})

    async def annotate(self, name: str, **annotations: str) -> None:
        await self.client.patch(Lease, name, "team", MergePatch({"metadata": {"annotations": annotations}}))

    async def state(self, annotations: dict[str, str | None]) -> None:
        """In the ControllerRing."""
        await self.client.patch(
            ControllerRing, RING, "", MergePatch({"metadata": {"annotations": annotations}})
        )

    async def assign(self, *places: Place) -> None:
        await self.write(Assignment.of(BUCKETS, dict(enumerate(places))).data())

    async def write(self, data: dict[str, str]) -> None:
        meta = ObjectMeta(name=assignment_name(RING), namespace="team")
        await self.client.create(ConfigMap(metadata=meta, data=data))

    async def status(self) -> RingStatus:
        return await status_of(self.client, await read_cluster(self.client), RING)

    async def troubles(self) -> str:
        """Those of ranges."""
        found = (await self.status()).troubles
        return "\n".join(each.problem for each in found if "no sharder has seen" not in each.problem)

    async def why(self, name: str) -> Placement:
        ring = await see(self.client, await read_cluster(self.client), RING)
        return await placement_of(self.client, ring, Secret.KIND, name, "team")


def said(*buckets: int, epoch: int = 1) -> str:
    return Report(dict.fromkeys(buckets, epoch), epoch).text(BUCKETS)


@pytest.fixture
async def cluster(kube_memory: MemoryApi) -> AsyncIterator[Written]:
    async with kube_memory.client() as client:
        cluster = Written(client)
        await cluster.install(resources=[{"group": "", "resource": "secrets"}])
        await cluster.state({DELIVERY_ANNOTATION: "Ranges uid/4", SHARD_NAMESPACES_ANNOTATION: "team"})
        yield cluster


async def test_what_belongs_to_an_object_is_where_it_is_and_what_follows_nothing_is_not_sharded(
    kube_memory: MemoryApi,
) -> None:
    async with kube_memory.client() as client:
        cluster = Written(client)
        controlled = [{"group": "", "resource": "configmaps"}]
        await cluster.install(
            resources=[{"group": "", "resource": "secrets", "controlledResources": controlled}]
        )
        await cluster.shard_by_ranges("a", said(0, 1))
        await cluster.shard_by_ranges("b", said(2, 3))
        await cluster.assign(A, A, B, B)
        made = {
            BUCKETS.of(each.metadata): each for each in [await cluster.secret(f"s{n}") for n in range(40)]
        }
        for bucket, shard in (1, "a"), (3, "b"):
            owner = made[bucket]
            references = (controller_reference(owner),)
            meta = ObjectMeta(name=f"of-{shard}", namespace="team", owner_references=references)
            await client.create(ConfigMap(metadata=meta))
        await client.create(ConfigMap(metadata=ObjectMeta(name="stranger", namespace="team")))
        for name, owner in ("far", f"Secret {made[3].key}"), ("lost", "Secret team/gone"):
            noted = {NOTED_OWNER: owner}
            await client.create(
                ConfigMap(metadata=ObjectMeta(name=name, namespace="default", annotations=noted))
            )
        ring = await see(client, await read_cluster(client), RING)
        for name, shard, reason in (
            ("of-a", "a", "Placed"),
            ("of-b", "b", "Placed"),
            ("stranger", "", "NoController"),
            ("far", "b", "Placed"),
            ("lost", "", "NoController"),
        ):
            place = "default" if name in ("far", "lost") else "team"
            where = await placement_of(client, ring, ConfigMap.KIND, name, place)
            assert (where.shard, where.reason) == (shard, reason)
        assert f"{NOTED_OWNER} names Secret team/gone, which does not exist" in where.message
        found = {str(each.resource): each async for each in count(client, ring)}["configmaps"]
        assert (found.shards, found.unassigned.count, found.beyond) == ({"a": 1, "b": 2}, 0, 3)
        watcher = RingWatcher(client, ring)
        watching = asyncio.create_task(watcher.run())
        await watcher.read()
        assert watcher.snapshot().total == len([name async for name in client.list(Secret, "team")]) + 3
        watching.cancel()


async def secret_in(cluster: Written, bucket: int) -> str:
    """The name of a new object."""
    number = 0
    while BUCKETS.of((made := await cluster.secret(f"s{number}")).metadata) != bucket:
        number += 1
    return made.metadata.name


A, B = Place("a", "", 1), Place("b", "", 1)


@pytest.mark.parametrize(
    ("place", "a", "reason", "message"),
    [
        (A, {}, "Placed", "a owns its bucket, and says that it works on it"),
        (Place("a", "b", 1), {}, "DrainPending", "to hand its bucket over to b"),
        (A, {"holder": ""}, "ShardGone", "its shard a is dead, and b should get it"),
        (A, {"weight": "0"}, "ToBeDrained", "a will be asked to hand its bucket over to b"),
        (
            A,
            {"report": said(1)},
            "NotReported",
            "a owns its bucket, but does not say yet that it works on it",
        ),
        (Place(), {"report": said(1)}, "Unassigned", "nobody has had its bucket yet, and a should get it"),
        (Place("b", "", 1), {}, "AssignmentUnusable", "a has had some of it since 1: it was edited"),
    ],
    ids=lambda each: each if isinstance(each, str) and each.isalpha() else "",
)
async def test_the_reason_follows_from_bucket_owner_lease_and_report(
    cluster: Written, place: Place, a: dict[str, str], reason: str, message: str
) -> None:
    await cluster.shard_by_ranges("a", a.get("report", said(0, 1)), holder=a.get("holder"))
    await cluster.shard_by_ranges("b", said(2, 3))
    if weight := a.get("weight"):
        await cluster.annotate("a", **{WEIGHT_ANNOTATION: weight})
    await cluster.assign(place, A, B, B)
    found = await cluster.why(await secret_in(cluster, 0))
    assert found.reason == reason
    assert message in found.message
    assert found.bucket is not None
    assert (found.bucket.number, found.bucket.epoch) == (
        0,
        place.epoch if reason != "AssignmentUnusable" else 2,
    )


def test_the_commands_answer_at_an_api_server(written: KubeApi, kubectl_shard: KubectlShard) -> None:
    async def begin(client: Client) -> str:
        cluster = Written(client)
        await cluster.annotate("a", **{OWNED_RANGES_ANNOTATION: said(0, 1)})
        await cluster.annotate("b", **{OWNED_RANGES_ANNOTATION: said(2, 3)})
        await cluster.assign(A, A, B, Place("b", "a", 2))
        return await secret_in(cluster, 3)

    name = written.call(begin)
    assert "4 buckets by uid: ConfigMap team/ranges-r, epoch 2" in kubectl_shard("status").out
    (ring,) = kubectl_shard("status", "-o", "json").json["rings"]
    assert [each["buckets"]["owned"] for each in ring["shards"]] == [2, 2]
    assert ring["assignment"]["draining"] == 1
    assert "DrainPending" in kubectl_shard("where", f"secret/{name}", "-n", "team").out
    assert (
        "range     3-3: b, asked to hand it to a, epoch 2"
        in kubectl_shard("why", f"secret/{name}", "-n", "team").out
    )
    assert "(buckets)" in kubectl_shard("plan", "--remove", "b").out
    assert "label" not in kubectl_shard("plan", "--shards", "0").out
    weight_0 = f"`kubectl --namespace team annotate --overwrite lease a {WEIGHT_ANNOTATION}=0`"
    assert weight_0 in kubectl_shard("drain", "a", "--yes").err
    assert "draining" in kubectl_shard("top", "--once").out
    assert "selection of ring r" in kubectl_shard("doctor").out


def test_a_reader_of_a_ring_by_ranges_needs_to_list_its_configmap_only(
    written: KubeApi, kubectl_shard: KubectlShard
) -> None:
    """And to watch it, for `top`."""
    secrets = Secret.KIND.group_resource
    place = {"namespace": "team", "name": assignment_name(RING)}

    async def grant(client: Client, *more: Grant) -> None:
        for each in roles((*reader_grants([secrets]), *more), "ranges-reader", account=("team", "ranges")):
            await client.apply(each)

    async def begin(client: Client) -> None:
        cluster = Written(client)
        await cluster.ring(resources=[{"group": "", "resource": "secrets"}])
        await cluster.annotate("a", **{OWNED_RANGES_ANNOTATION: said(0, 1, 2, 3)})
        await cluster.assign(A, A, A, A)
        await grant(client)

    written.call(begin)
    reader = ("--as", "system:serviceaccount:team:ranges")
    refused = kubectl_shard("status", *reader)
    assert (refused.code, "you may not list configmaps" in refused.err) == (1, True)
    written.call(lambda client: grant(client, Grant.on(ConfigMap, "list", "watch", **place)))
    assert "4 buckets by uid" in kubectl_shard("status", *reader).out
    assert kubectl_shard("top", "--once", *reader).code == 0


async def test_by_uid_an_object_that_does_not_exist_has_no_shard_yet(cluster: Written) -> None:
    await cluster.shard_by_ranges("a", said(0, 1, 2, 3))
    await cluster.assign(A, A, A, A)
    found = await cluster.why("missing")
    assert (found.exists, found.reason, found.desired, found.bucket) == (False, "NotFound", "", None)


async def test_nothing_is_wrong_with_an_assignment_that_shards_report(cluster: Written) -> None:
    await cluster.shard_by_ranges("a", said(0, 1))
    await cluster.shard_by_ranges("b", said(2, 3))
    await cluster.assign(A, A, B, B)
    assert await cluster.troubles() == ""


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (None, "the ConfigMap team/ranges-r does not exist"),
        ({"by": "uid", "buckets": "4", "0-2": "a@1"}, "cannot be read: 3-3 is missing"),
        ({"by": "uid", "buckets": "4", "0-3": "a@0"}, "older than what a has seen: it was restored"),
        ({"by": "uid", "buckets": "4", "0-3": "b@1"}, "but a has had some of it since 1: it was edited"),
        ({"by": "cluster", "buckets": "4", "0-3": "a@1"}, "objects by cluster/4, and its shards by uid/4"),
        (
            {"by": "namespace", "buckets": "4", "0-3": "a@1"},
            "objects by namespace/4, and its shards by uid/4",
        ),
    ],
    ids=["deleted", "unreadable", "restored", "edited", "by cluster", "by namespace"],
)
async def test_an_assignment_that_cannot_be_used_is_a_trouble_and_what_shards_report_is_shown(
    cluster: Written, data: dict[str, str] | None, problem: str
) -> None:
    await cluster.shard_by_ranges("a", said(0, 1, 2, 3))
    await cluster.shard_by_ranges("b", said())
    if data is not None:
        await cluster.write(data)
    assert (await cluster.why(await secret_in(cluster, 0))).reason == "AssignmentUnusable"
    found = await cluster.status()
    assert problem in found.troubles[1].problem
    assert not any("gets nothing" in each.problem for each in found.troubles)
    assert found.assignment is not None
    assert problem in found.assignment.problem
    assert [each.buckets.owned for each in found.shards if each.buckets] == [4, 0]


@pytest.mark.parametrize(
    ("lease", "annotations", "problem"),
    [
        (said(2), {}, "b does not say that it works on buckets that it owns: 3-3"),
        (
            "namespace/4:/1",
            {},
            f"b gets nothing: its program divides objects by namespace/4, and the ring by {BUCKETS}",
        ),
        ("", {}, "beside shards by ranges, objects are taken by labels on b: an object may be on two"),
        (BY_LABELS, {}, "by labels, and waiting until the shards by ranges (a) have ended: b"),
        (said(2, 3), {WEIGHT_ANNOTATION: "much"}, "b: the weight 'much' is not a number"),
    ],
    ids=["unreported", "differs", "by labels", "waits", "weight"],
)
async def test_a_shard_that_does_not_fit_the_others_is_a_trouble(
    cluster: Written, lease: str, annotations: dict[str, str], problem: str
) -> None:
    await cluster.shard_by_ranges("a", said(0, 1))
    await cluster.shard_by_ranges("b", lease)
    await cluster.annotate("b", **annotations)
    await cluster.assign(A, A, B, B)
    assert problem in await cluster.troubles()


async def test_the_command_for_a_shard_that_does_not_fit_shows_its_lease(cluster: Written) -> None:
    await cluster.shard_by_ranges("a", said(0, 1, 2, 3))
    await cluster.shard_by_ranges("b", "namespace/4:/1")
    await cluster.assign(A, A, A, A)
    found = (await cluster.status()).troubles
    (trouble,) = [each for each in found if "its program divides objects by namespace/4" in each.problem]
    assert trouble.command == "kubectl --namespace team get lease b --output yaml"


async def test_a_shard_that_does_not_begin_is_a_trouble_after_some_seconds(cluster: Written) -> None:
    await cluster.shard_by_ranges("a", said(0, 1, 2, 3))
    await cluster.shard_by_ranges("late", f"{BUCKETS}:", age=11)
    await cluster.shard_by_ranges("soon", f"{BUCKETS}:")
    await cluster.assign(A, A, A, A)
    found = (await cluster.status()).troubles
    (trouble,) = [each for each in found if "has not begun" in each.problem]
    assert trouble.problem == "late has not begun: it cannot read or hand over a share"
    assert trouble.command == "kubectl --namespace team logs late"


async def test_a_ring_works_by_labels_until_the_last_shard_by_labels_has_ended(cluster: Written) -> None:
    await cluster.shard("a")
    await cluster.shard_by_ranges("b", f"{BUCKETS}:")
    found = await cluster.status()
    assert found.assignment is None
    assert "by ranges, and waiting until the shards by labels (a) have ended: b" in await cluster.troubles()


async def test_until_then_it_is_not_sure_that_anybody_moves_objects(cluster: Written) -> None:
    await cluster.shard("a")
    await cluster.shard_by_ranges("b", f"{BUCKETS}:")
    await cluster.secret("without")
    await cluster.secret("left", "gone")
    remedies = {each.problem: each.remedy for each in (await cluster.status()).troubles}
    for problem in (
        "secrets without a shard: 1 (team/without)",
        "secrets on shards that are gone: 1 (team/left)",
    ):
        assert " them when the shards by labels have ended, at the latest; " in remedies[problem]


async def test_it_is_a_trouble_if_nobody_coordinates(cluster: Written) -> None:
    await cluster.shard_by_ranges("a", f"{BUCKETS}:")
    await cluster.state({DELIVERY_ANNOTATION: None})
    found = (await cluster.status()).troubles
    (said,) = [each for each in found if "the ControllerRing does not say so" in each.problem]
    assert (said.command, said.fixes) == (
        f"kubectl annotate --overwrite controllerring r '{DELIVERY_ANNOTATION}=Ranges {BUCKETS}'"
        f" {SHARD_NAMESPACES_ANNOTATION}=team",
        True,
    )


async def test_a_ring_that_goes_to_labels_is_not_told_to_stay_with_ranges(cluster: Written) -> None:
    await cluster.shard_by_ranges("a", said(0, 1, 2, 3))
    await cluster.shard_by_ranges("b", BY_LABELS)
    await cluster.assign(A, A, A, A)
    await cluster.state({DELIVERY_ANNOTATION: None})
    troubles = await cluster.troubles()
    assert "by labels, and waiting until the shards by ranges (a) have ended: b" in troubles
    assert "the ControllerRing does not say so" not in troubles


async def test_it_is_a_trouble_if_no_shard_has_a_weight(cluster: Written) -> None:
    await cluster.shard_by_ranges("a", said(0, 1, 2, 3))
    await cluster.annotate("a", **{WEIGHT_ANNOTATION: "0"})
    await cluster.assign(A, A, A, A)
    found = (await cluster.status()).troubles
    (trouble,) = [each for each in found if "no shard gets anything" in each.problem]
    assert trouble.command.endswith(f" annotate lease a {WEIGHT_ANNOTATION}-")
    assert trouble.fixes
    why = await cluster.why(await secret_in(cluster, 0))
    assert (why.reason, why.command, why.fixes) == ("NoShardAvailable", trouble.command, True)
