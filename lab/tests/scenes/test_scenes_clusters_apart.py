"""A ring whose Leases are in a control cluster and whose objects are in another one: the guarantees are the same as in
one cluster, and either cluster may become unreachable.
"""

from __future__ import annotations

import asyncio

import pytest
from test_scenes_in_manager import SHARDS, Team, working
from test_scenes_late_writes import LATE, Creates, LateWrites, name_that_takes

from kubeshard.controller import Context, Controller
from kubeshard.core import ConfigMap, ObjectMeta, OwnerReference, Secret
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharding.names import shard_label
from kubeshard_lab.simulation.cluster import WORK, SimulatedCluster, Thing, Touch, simulate
from kubeshard_lab.simulation.processes import Process

pytestmark = pytest.mark.regression

THING = OwnerReference(api_version="sim.example/v1", kind="Thing", name="t", uid="t", controller=True)
LEASES, MAPS, THINGS = "/leases", "/configmaps", "/things"


def asked_of(world: SimulatedCluster, path: str) -> set[str]:
    """Returns the clusters that get requests with this path from now on."""
    servers: set[str] = set()
    for process in world.processes.values():
        for network in process.networks:

            def leaving(request: HttpRequest, server: str = network.server) -> None:
                if path in request.target:
                    servers.add(server)

            network.leaving = leaving
    return servers


def read_by_shards(world: SimulatedCluster) -> set[str]:
    """Returns the names of Things that shards read one by one from now on."""
    names: set[str] = set()

    def see(_: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        _, things, name = request.target.partition(f"{THINGS}/")
        if things and request.method == "GET" and not request.headers["User-Agent"].endswith("/sharder"):
            names.add(name)

    world.observers.append(see)
    return names


def test_leases_are_at_home_and_objects_where_they_were_said_to_be() -> None:
    async def scene() -> None:
        async with working(apart=True) as team:
            world = team.world
            assert set(world.owners().values()) == set(SHARDS)
            leases = {key.name for key in world.objects("coordination.k8s.io", "leases")}
            assert {*SHARDS, "sharder-r"} <= leases
            async with world.admin() as there:
                answer = await there.raw("GET", "/apis/coordination.k8s.io/v1/leases")
                assert not [name for name in SHARDS if f'"{name}"'.encode() in answer.body]
            servers = asked_of(world, LEASES)
            await asyncio.sleep(120)
            assert servers == {"http://home"}

    simulate(scene)


def test_a_shard_that_joins_gets_its_objects_when_their_shards_have_let_go() -> None:
    async def scene() -> None:
        async with working(apart=True) as team:
            team.shard("s3")
            await team.until_settled(*SHARDS, "s3")
            assert "s3" in team.world.owners().values()

    simulate(scene)


@pytest.mark.parametrize("leads", [True, False])
def test_a_shard_that_is_killed_is_replaced(leads: bool) -> None:
    async def scene() -> None:
        async with working(apart=True) as team:
            name = team.leader if leads else next(name for name in SHARDS if name != team.leader)
            moved = {thing for thing, owner in team.world.owners().items() if owner == name}
            servers, read_live = asked_of(team.world, LEASES), read_by_shards(team.world)
            team.world.processes[name].kill()
            left = [shard for shard in SHARDS if shard != name]
            assert 25 < await team.until_settled(*left) < 38
            assert servers == {"http://home"}, "whoever asks whether a shard lives asks where its Lease is"
            await team.world.until(
                lambda: moved <= read_live, within=5
            )  # a first run does not rely on the cache

    simulate(scene)


@pytest.mark.quick
def test_a_shard_that_stops_hands_over_at_once() -> None:
    async def scene() -> None:
        async with working(apart=True) as team:
            name = next(name for name in SHARDS if name != team.leader)
            await team.world.processes[name].stop()
            assert await team.until_settled(*(shard for shard in SHARDS if shard != name)) < 10

    simulate(scene)


@pytest.mark.nightly
def test_a_shard_that_loses_the_control_cluster_ends_and_others_take_its_objects() -> None:
    """Although it could still write to the other cluster: no two shards work on an object at once."""

    async def scene() -> None:
        async with working(apart=True) as team:
            name = next(name for name in SHARDS if name != team.leader)
            team.world.processes[name].cut_off(cluster="home")
            left = [shard for shard in SHARDS if shard != name]
            await team.until_settled(*left, within=90)
            assert "lost membership" in team.world.processes[name].dead

    simulate(scene)


@pytest.mark.nightly
def test_a_shard_that_alone_loses_the_cluster_with_the_objects_gives_them_up() -> None:
    """It cannot see that it should release an object, so it does not keep its Lease."""

    async def scene() -> None:
        async with working(apart=True) as team:
            name = next(name for name in SHARDS if name != team.leader)
            process = team.world.processes[name]
            process.cut_off(cluster="sim")
            left = [shard for shard in SHARDS if shard != name]
            await team.until_settled(*left, within=200)
            assert process.dead

    simulate(scene)


@pytest.mark.nightly
def test_the_cluster_with_the_objects_comes_back_before_anybody_gave_up_and_nothing_moved() -> None:
    async def scene() -> None:
        async with working(apart=True) as team:
            before = team.world.owners()
            for process in team.world.processes.values():
                process.cut_off(cluster="sim")
            await asyncio.sleep(60)
            for process in team.world.processes.values():
                process.cut_off(False, cluster="sim")
            await asyncio.sleep(120)
            assert team.world.owners() == before
            assert not [each.dead for each in team.world.processes.values() if each.dead]
            await team.world.make_things(5, prefix="later")
            await team.until_settled(*SHARDS)

    simulate(scene)


@pytest.mark.nightly
def test_a_shard_that_starts_while_the_cluster_with_the_objects_is_down_takes_no_lease_before_it_is_back() -> (
    None
):
    async def scene() -> None:
        async with working(apart=True) as team:
            process = team.shard("s3")
            team.world.connected = lambda _, network: setattr(network, "down", network.server.endswith("sim"))
            await asyncio.sleep(120)
            assert "s3" not in {key.name for key in team.world.objects("coordination.k8s.io", "leases")}
            team.world.connected = None
            process.cut_off(False)
            await team.until_settled(*SHARDS, "s3", within=120)

    simulate(scene)


def test_a_paused_shards_late_write_is_refused_by_the_cluster_with_the_objects() -> None:
    """It resumes when its objects belong to others: its writes are sent then, and the label that they expect proves
    nothing any more.
    """

    async def scene() -> None:
        async with working(apart=True, seed=3) as team:
            world = team.world
            name = next(name for name in SHARDS if name != team.leader)
            process = world.processes[name]
            async with world.admin() as admin:
                for thing, owner in world.owners().items():
                    if owner == name:
                        await admin.patch(Thing, thing, "team", MergePatch({"spec": {"v": 9}}))
            await asyncio.sleep(1)
            process.pause()
            left = [shard for shard in SHARDS if shard != name]
            await team.world.until(lambda: team.settled(*left), within=120)
            answers: list[tuple[str, int]] = []

            def see(who: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
                written = request.method in ("PATCH", "POST", "PUT", "DELETE")
                if who is process and answer is not None and written and LEASES not in request.target:
                    answers.append((request.target, answer.status))

            world.observers.append(see)
            process.resume()
            await asyncio.sleep(30)
            assert process.dead
            assert not [each for each in answers if each[1] < 300 and (MAPS in each[0] or THINGS in each[0])]
            await team.until_settled(*left)

    simulate(scene)


def test_an_object_is_not_handed_over_before_a_write_of_unknown_outcome_can_land_no_more() -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=2, apart=True) as world:
            await world.install()
            first = world.shard("s0", Creates(), sharding={"mode": "both"})
            await world.make_things(1)
            await world.until(lambda: world.all_owned("s0"), within=60)
            await asyncio.sleep(5)
            late = LateWrites(world, first)
            late.armed = True
            async with world.admin() as admin:
                await admin.patch(Thing, "t0", "team", MergePatch({"spec": {"v": 1}}))
            await asyncio.sleep(0.5)
            other = name_that_takes("t0")
            world.shard(other, Touch(), sharding={"mode": "both"})
            await world.until(lambda: world.all_owned(other), within=200)
            await asyncio.sleep(LATE)
            assert late.landed
            assert {owner for owner, _ in late.landed} == {"s0"}

    simulate(scene)


@pytest.mark.nightly
def test_namespaces_are_selected_by_their_labels_in_the_cluster_with_the_objects() -> None:
    """The control cluster has no namespace of that name at all."""

    async def scene() -> None:
        async with working(apart=True) as team:
            async with team.world.admin("home") as home:
                found = (await home.raw("GET", "/api/v1/namespaces")).body
            assert b'"team"' not in found
            assert all(team.world.owners().values())

    simulate(scene)


@pytest.mark.quick
def test_no_object_in_another_cluster_than_that_of_the_ring_gets_a_shards_name() -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=5, apart=True) as world:
            await world.install()
            team = Team(world)
            made: list[ConfigMap] = []

            async def write(ctx: Context, obj: Secret) -> None:
                for client, namespace in ((ctx.client, "ops"), (ctx.at(WORK).client, "team")):
                    metadata = ObjectMeta(
                        generate_name="made-", namespace=namespace, owner_references=(THING,)
                    )
                    made.append(await client.create(ConfigMap(metadata=metadata)))

            writing = Controller(name="writing", reconciler=write, primary=Secret)
            team.shard("s0", controllers=[writing])
            async with world.admin("home") as home:
                await home.create(Secret(metadata=ObjectMeta(name="one", namespace="ops")))
            await world.until(lambda: len(made) == 2, within=60)
            assert [each.metadata.label(shard_label("r")) for each in made] == ["", "s0"]

    simulate(scene)


@pytest.mark.quick
def test_a_manager_without_the_cluster_of_the_objects_says_so() -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=6) as world:
            await world.install()
            process = world.shard("s0", Touch(), sharding={"objects_in": "mars"})
            await world.until(lambda: process.dead, within=60)
            assert "objects_in='mars' is not a cluster of the manager" in process.dead

    simulate(scene)


def test_the_cluster_of_the_objects_is_not_taken_away_from_a_shard_nor_from_a_sharder() -> None:
    async def scene() -> None:
        async with working(apart=True) as team:
            for process in (team.world.processes["s0"], team.shard("x", mode="sharder")):
                assert process.manager is not None
                with pytest.raises(ValueError, match="the objects of a ring are in cluster work"):
                    await process.manager.remove_cluster(WORK)
            await team.world.make_things(5, prefix="later")
            await team.until_settled(*SHARDS)

    simulate(scene)
