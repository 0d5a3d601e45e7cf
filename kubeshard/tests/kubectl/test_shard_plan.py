"""The counts in `kubectl shard plan`, and the names that it uses for shards that do not exist yet."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from commands import KubectlShard
from ring_cluster import RING, RingCluster, name_on, owner_of

from kubeshard.client import Client
from kubeshard.core.errors import ConfigurationError
from kubeshard.inspection.cluster import read_cluster
from kubeshard.inspection.errors import Unanswerable
from kubeshard.inspection.planning import Flow, planned, resized, with_shards
from kubeshard.inspection.ring import SeenRing, see
from kubeshard_apiserver.testing import KubeApi, MemoryApi


@pytest.fixture
async def cluster(kube_memory: MemoryApi) -> AsyncIterator[RingCluster]:
    async with kube_memory.client() as client:
        cluster = RingCluster(client)
        await cluster.install()
        yield cluster


async def seen(cluster: RingCluster) -> SeenRing:
    return await see(cluster.client, await read_cluster(cluster.client), RING)


async def test_flows_are_counted_by_shards_and_resource(cluster: RingCluster) -> None:
    for shard in ("a", "b"):
        await cluster.shard(shard)
    names = [f"s{number}" for number in range(12)]
    for name in names:
        await cluster.secret(name, owner_of(name, "a", "b"))
    ring = await seen(cluster)
    plan = await planned(cluster.client, ring, with_shards(ring, remove=["b"]))
    leaving = sum(owner_of(name, "a", "b") == "b" for name in names)
    assert (plan.objects, plan.moving) == (
        {"secrets": 12, "configmaps": 0},
        {"secrets": leaving, "configmaps": 0},
    )
    assert plan.flows == [Flow("secrets", "b", "a", leaving)]


async def test_an_object_that_is_on_its_way_moves_in_any_case(cluster: RingCluster) -> None:
    for shard in ("a", "b"):
        await cluster.shard(shard)
    await cluster.secret(name_on("a", "a", "b"), "b")
    await cluster.secret("unassigned")
    ring = await seen(cluster)
    plan = await planned(cluster.client, ring, with_shards(ring))
    assert (plan.moving["secrets"], plan.anyway) == (2, 2)


async def test_without_shards_nothing_moves(cluster: RingCluster) -> None:
    await cluster.shard("a")
    await cluster.secret("s", "a")
    ring = await seen(cluster)
    plan = await planned(cluster.client, ring, resized(ring, 0))
    assert (plan.then, plan.moving["secrets"], plan.flows) == ([], 0, [])


@pytest.mark.parametrize(
    ("names", "count", "then", "guessed"),
    [
        (["op-0", "op-1"], 4, ["op-0", "op-1", "op-2", "op-3"], False),
        (["op-0", "op-1", "op-2"], 1, ["op-0"], False),
        ([f"op-{number}" for number in range(11)], 10, [f"op-{number}" for number in range(10)], False),
        (["op-1", "op-2"], 3, ["op-1", "op-2", "r-new-1"], True),
        (["x-7jb2v", "x-hv8pb"], 3, ["r-new-1", "x-7jb2v", "x-hv8pb"], True),
        (["x-7jb2v", "x-hv8pb"], 1, ["x-7jb2v"], True),
        (["x-7jb2v"], 1, ["x-7jb2v"], False),
    ],
)
async def test_shards_that_come_are_named_as_a_stateful_set_would(
    cluster: RingCluster, names: list[str], count: int, then: list[str], guessed: bool
) -> None:
    for name in names:
        await cluster.shard(name)
    change = resized(await seen(cluster), count)
    assert (list(change.then), change.guessed) == (sorted(then), guessed)


async def test_names_that_cannot_be_are_refused(cluster: RingCluster) -> None:
    await cluster.shard("shard-a")
    await cluster.shard("dead", holder="")
    ring = await seen(cluster)
    with pytest.raises(ConfigurationError, match="is already a shard of r"):
        with_shards(ring, add=["shard-a"])
    with pytest.raises(ConfigurationError, match="has to be a valid label value"):
        with_shards(ring, add=["not a label"])
    with pytest.raises(Unanswerable, match="shard-b; did you mean shard-a"):
        with_shards(ring, remove=["shard-b"])
    with pytest.raises(Unanswerable, match="there is no available shard dead"):
        with_shards(ring, remove=["dead"])


def test_a_plan_for_people_and_for_pipes(written: KubeApi, kubectl_shard: KubectlShard) -> None:
    first, second = name_on("a", "a", "b"), name_on("b", "a", "b")

    async def fill(client: Client) -> None:
        cluster = RingCluster(client)
        await cluster.secret(first, "a")
        owner = await cluster.secret(second, "b")
        await cluster.child("stray", owner, "a")

    written.call(fill)
    done = kubectl_shard("plan", RING, "--remove", "b")
    assert (done.code, done.err) == (0, "")
    assert [line.split() for line in done.out.splitlines() if line] == [
        ["r:", "2", "->", "1", "shards,", "-", "b"],
        ["RESOURCE", "OBJECTS", "MOVE"],
        ["secrets", "2", "1", "50", "%"],
        ["configmaps", "1", "0", "0", "%"],
        ["FROM", "TO", "RESOURCE", "OBJECTS"],
        ["b", "a", "secrets", "1"],
        ["configmaps", "that", "are", "not", "on", "their", "owner's", "shard", "now:", "1", "(team/stray)"],
    ]
    assert kubectl_shard("plan", RING, "--remove", "b", "-o", "name").out == f"secrets/{second} -n team\n"
    assert kubectl_shard("plan", RING, "-o", "json").json["flows"] == [
        {"resource": "configmaps", "source": "a", "target": "b", "objects": 1}
    ]
    assert kubectl_shard("plan", RING, "--shards", "2", "--add", "c").code == 2
    assert kubectl_shard("plan", RING, "--shards", "501").code == 2
    none = kubectl_shard("plan", RING, "--shards", "0")
    assert "without any shard nothing is moved" in none.out
    assert "will choose" not in none.out
