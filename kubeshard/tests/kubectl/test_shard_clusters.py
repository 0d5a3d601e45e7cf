"""`kubectl shard` answers for a ring that shares out whole clusters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubeshard.cli.kubectl.planning import _print_plan
from kubeshard.cli.kubectl.questions import _explain, _print_status, placements
from kubeshard.client import Client, ClusterConfig
from kubeshard.controller import Context, Controller
from kubeshard.core import OTHER_CLUSTERS, ConfigMap
from kubeshard.core.objects import Key
from kubeshard.inspection.cluster import read_cluster, read_sharder
from kubeshard.inspection.doctor import examine
from kubeshard.inspection.errors import Unanswerable
from kubeshard.inspection.placement import Placement
from kubeshard.inspection.planning import planned, with_shards
from kubeshard.inspection.ring import see
from kubeshard.inspection.status import status_of
from kubeshard.manager.manager import Manager
from kubeshard.shard.settings import Ranges
from kubeshard.shard.sharding import Sharding
from kubeshard.sharding import buckets
from kubeshard.sharding.assignment import Assignment
from kubeshard.sharding.names import assignment_name
from kubeshard_lab.simulation.cluster import SimulatedCluster, simulate
from kubeshard_lab.simulation.processes import Network, Process

CLUSTERS = ("asia", "eu", "us")
RANGES = Ranges(by="cluster", buckets=64)


async def nothing(ctx: Context, obj: ConfigMap | None) -> None: ...


@asynccontextmanager
async def team(*shards: str) -> AsyncIterator[tuple[SimulatedCluster, Client]]:
    async with SimulatedCluster(seed=1, others=CLUSTERS) as world, world.admin() as client:
        await world.install()
        for name in shards:
            process = Process(world, name)
            maps = Controller(name="maps", reconciler=nothing, primary=ConfigMap, clusters=OTHER_CLUSTERS)
            manager = Manager(
                [maps],
                client=process.client(),
                clusters={each: ClusterConfig(f"http://{each}") for each in CLUSTERS},
                sharding=Sharding("r", name, "ops", mode="both", delivery=RANGES),
                status_pages=None,
            )
            process.start(manager)

        def settled() -> bool:
            found = world.objects("", "configmaps").get(Key("ops", assignment_name("r")))
            assignment = None if found is None else Assignment.parse(found["data"])
            return assignment is not None and assignment.shards == set(shards)

        await world.until(settled, within=60)
        await asyncio.sleep(2)  # until it is reported
        yield world, client


def test_each_shard_is_shown_with_its_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    async def scene() -> None:
        async with team("s0", "s1") as (_, client):
            found = await status_of(client, await read_cluster(client), "r")
            assert (found.ready, found.troubles, found.resources) == ("True", [], [])
            shared = [each.buckets.clusters for each in found.shards if each.buckets]
            assert sorted(name for names in shared for name in names) == list(CLUSTERS)
            assert sorted(map(len, shared)) == [1, 2]
            _print_status([found], [], [], {})
            said = capsys.readouterr().out
            assert "64 buckets by cluster" in said
            assert "each shard connects to its own clusters" in said
            assert ", ".join(max(shared, key=len)) in said

    simulate(scene)


def test_why_a_cluster_is_on_its_shard_is_said_as_of_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    async def scene() -> None:
        async with team("s0", "s1") as (_, client):
            (where,) = await placements(["cluster/eu"], None, family=True)(client)
            assert (where.exists, where.reason, where.desired) == (True, "Placed", where.shard)
            assert where.successors == [({"s0", "s1"} - {where.shard}).pop()]
            _explain(where)
            said = capsys.readouterr().out
            assert "clusters eu in ring r" in said
            assert f"bucket    {RANGES.divided.of_key('eu')} of 64 by cluster" in said
            assert f"reported  on the Lease of {where.shard}" in said
            (none,) = await placements(["cluster", "mars"], None, family=True)(client)
            assert (none.exists, none.shard, none.reason) == (False, "", "NotFound")
            with pytest.raises(Unanswerable, match="no ring shards secret"):
                await placements(["secret/eu"], None, family=True)(client)

    simulate(scene)


@pytest.mark.parametrize("cut_off", [["s0"], ["s0", "s1"]], ids=len)
def test_why_says_which_shards_could_not_reach_a_cluster(cut_off: list[str]) -> None:
    async def scene() -> None:
        async with team("s0", "s1") as (world, client):
            (cluster, *_) = [each for each in CLUSTERS if (await why(client, each)).shard == "s0"]
            for name in cut_off:
                world.processes[name].cut_off(cluster=cluster)

            def connected(process: Process, network: Network) -> None:
                network.down = process.name in cut_off and network.server == f"http://{cluster}"

            world.connected = connected
            await asyncio.sleep(600)
            found = await why(client, cluster)
            if cut_off == ["s0"]:
                assert found.shard == "s1"
                assert "s0 could not reach the cluster, and gets it only if no shard can" in found.message
            else:
                assert "no shard can reach the cluster, so it stays where it is" in found.message
            other = next(each for each in CLUSTERS if each != cluster)
            assert "reach" not in (await why(client, other)).message

    async def why(client: Client, cluster: str) -> Placement:
        (found,) = await placements([f"cluster/{cluster}"], None, family=True)(client)
        return found

    simulate(scene)


def test_a_cluster_whose_name_no_lease_says_is_found_by_its_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "LONGEST_NAMES", 0)

    async def scene() -> None:
        async with team("s0", "s1") as (_, client):
            (where,) = await placements(["cluster/eu"], None, family=True)(client)
            assert (where.exists, where.reason, where.desired) == (True, "Placed", where.shard)
            found = await status_of(client, await read_cluster(client), "r")
            assert (found.ready, found.troubles) == ("True", [])
            assert not any(each.buckets.clusters for each in found.shards if each.buckets)

    simulate(scene)


def test_a_plan_and_the_doctor_work_without_any_resource(capsys: pytest.CaptureFixture[str]) -> None:
    async def scene() -> None:
        async with team("s0", "s1") as (_, client):
            ring = await see(client, await read_cluster(client), "r")
            plan = await planned(client, ring, with_shards(ring, add=["s2"], remove=[]))
            _print_plan(plan)
            assert "(buckets)" in capsys.readouterr().out
            leader = (await read_sharder(client, await read_cluster(client), "r")).leader
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": leader, "namespace": "ops"}}
            await client.apply({**pod, "spec": {"containers": [{"name": "operator", "image": "operator"}]}})
            found = await examine(client)
            assert found.unchecked == []
            assert not [each.problem for each in found.findings if "ignores shardSelector" in each.problem]

    simulate(scene)
