"""A ring whose selector names its namespaces reads these only, so rights in these are enough."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping

import msgspec
import pytest
from test_scenes_many_rings import served
from test_scenes_reference_role import LEADER_ELECTION, SHARDER, SHARDER_ROLE, Rule, grant
from tiers import further

from kubeshard.core import Lease, Namespace, ObjectMeta
from kubeshard.core.builtin import LeaseSpec
from kubeshard.core.conditions import Condition
from kubeshard.core.namespaces import NAMESPACE_NAME_LABEL
from kubeshard.core.selectors import LabelSelector, LabelSelectorRequirement
from kubeshard.core.times import micro_time
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharder.unassigned import APART
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import RING_LABEL
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

SHARDERS = {"x0": SHARDER}
RIGHTS: tuple[Rule, ...] = tuple(
    (group, resource, "get list watch patch")
    for group, resource in (("sim.example", "things"), ("", "configmaps"))
)


async def grant_rights(world: SimulatedCluster, *everywhere: Rule) -> None:
    """Grants the sharder what it needs, and these rights on the resources of the ring."""
    await grant(world, "sharder", (*SHARDER_ROLE, ("events.k8s.io", "events", "create patch")))
    await grant(world, "election", LEADER_ELECTION, "sharding-system")
    await grant(world, "ring", everywhere)


def naming(*names: str) -> LabelSelector:
    requirement = LabelSelectorRequirement(key=NAMESPACE_NAME_LABEL, operator="In", values=names)
    return LabelSelector(match_expressions=(requirement,))


def note_places(world: SimulatedCluster) -> dict[tuple[str, str], int]:
    """Returns how often the sharder read objects of the ring from now on, by namespace ("" for all), and how."""
    places = Counter[tuple[str, str]]()

    def note(process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        path = request.target.partition("?")[0].split("/")
        if answer is None and path[-1] in ("things", "configmaps") and process.name == "x0":
            namespace = path[path.index("namespaces") + 1] if "namespaces" in path else ""
            places[namespace, "watch" if "watch=" in request.target else "list"] += 1

    world.observers.append(note)
    return places


async def create(world: SimulatedCluster, namespace: str, *names: str) -> None:
    async with world.admin() as client:
        for name in names:
            await client.create(Thing(metadata=ObjectMeta(name=name, namespace=namespace)))


async def begin(world: SimulatedCluster, names: Collection[str], rights_in: Collection[str]) -> None:
    """A ring that names these namespaces, of which only `team` exists before; two shards; and a sharder without a
    webhook.
    """
    await world.install()
    await grant_rights(world)
    async with world.admin() as client:
        for name in {*rights_in, "closed", "elsewhere"} - {"team"}:
            await client.create(Namespace(metadata=ObjectMeta(name=name)))
    for name in rights_in:
        await grant(world, "here", RIGHTS, name)
    await world.make_ring(selector=naming(*names))
    world.sharder("x0", webhook=False)
    for name in ("s0", "s1"):
        world.shard(name, Touch())
    await asyncio.sleep(30)


async def conditions(world: SimulatedCluster) -> Mapping[str, Condition]:
    async with world.admin() as client:
        return {each.type: each for each in (await client.get(ControllerRing, world.ring)).status.conditions}


def owned(world: SimulatedCluster, namespace: str, *shards: str) -> bool:
    return set(world.owners(namespace=namespace).values()) <= set(shards)


@pytest.mark.nightly
@virtual_time
async def test_rights_in_the_named_namespaces_are_enough_and_nothing_is_read_elsewhere() -> None:
    async with SimulatedCluster(1, users=SHARDERS) as world:
        places = note_places(world)
        await begin(world, ["team", "other"], ["team", "other"])
        for namespace in ("team", "other", "elsewhere"):
            await create(world, namespace, "a", "b", "c")
        await world.until(
            lambda: owned(world, "team", "s0", "s1") and owned(world, "other", "s0", "s1"), within=2
        )
        await world.processes["s0"].stop()
        await asyncio.sleep(400)
        assert owned(world, "team", "s1")
        assert owned(world, "other", "s1")
        assert owned(world, "elsewhere", "")
        assert "Permitted" not in await conditions(world)
        assert {namespace for namespace, _ in places} == {"team", "other"}
        assert {how for _, how in places} == {"list", "watch"}


@pytest.mark.nightly
@virtual_time
async def test_a_namespace_in_which_the_right_is_missing_costs_the_others_nothing_and_is_named() -> None:
    """The objects that others control are moved, too, although it is unknown what is drained there."""
    async with SimulatedCluster(1, users=SHARDERS) as world:
        await begin(world, ["team", "closed"], ["team"])
        await create(world, "team", *(f"a{number}" for number in range(10)))
        await create(world, "closed", "b")
        await world.until(lambda: owned(world, "team", "s0", "s1"), within=2)
        await asyncio.sleep(100)
        world.shard("s2", Touch())
        await asyncio.sleep(60)
        assert "s2" in world.owners().values()
        await world.processes["s0"].stop()
        await world.until(lambda: owned(world, "team", "s1", "s2"), within=10)
        await world.until(lambda: children_follow(world), within=60)
        found = await conditions(world)
        assert found["Permitted"].status == "False"
        assert "closed" in found["Permitted"].message
        assert "team" not in found["Permitted"].message
        await grant(world, "here", RIGHTS, "closed")
        await asyncio.sleep(15)
        assert "Permitted" not in await conditions(world)
        assert owned(world, "closed", "s1", "s2")
        await asyncio.sleep(60)
        await create(world, "closed", "c")
        await world.until(lambda: owned(world, "closed", "s1", "s2"), within=2)


@pytest.mark.nightly
@virtual_time
async def test_a_namespace_whose_lists_hang_does_not_hold_up_the_others() -> None:
    async with SimulatedCluster(1, users=SHARDERS) as world:
        await begin(world, ["a-held", "team", "z-held"], ["a-held", "team", "z-held"])
        for namespace in ("a-held", "team", "z-held"):
            await create(world, namespace, *(f"a{number}" for number in range(10)))
        await asyncio.sleep(60)
        assert owned(world, "z-held", "s0", "s1")

        async def hang(request: HttpRequest) -> HttpResponse | None:
            if "-held/" in request.target and request.method == "GET" and "watch=" not in request.target:
                await asyncio.Event().wait()
            return None

        for network in world.processes["x0"].networks:
            network.before = hang
        for joins in range(2, 5):
            world.shard(f"s{joins}", Touch())
            await world.until(lambda name=f"s{joins}": name in world.owners().values(), within=30)  # type: ignore[misc]
        for leaves in range(3):
            await world.processes[f"s{leaves}"].stop()
            await world.until(lambda name=f"s{leaves}": name not in world.owners().values(), within=15)  # type: ignore[misc]
        found = await conditions(world)
        assert "no progress" in found["ResourcesResolved"].message, found
        for network in world.processes["x0"].networks:
            network.before = None
        await world.until(
            lambda: owned(world, "a-held", "s3", "s4") and owned(world, "z-held", "s3", "s4"), within=60
        )


def children_follow(world: SimulatedCluster) -> bool:
    """Whether each ConfigMap is where its owner is."""
    things, maps = world.owners(), world.owners("", "configmaps")
    return bool(maps) and all(shard == things[name.removeprefix("c-")] for name, shard in maps.items())


@pytest.mark.nightly
@virtual_time
async def test_a_named_namespace_that_comes_later_is_served_and_not_missed_before() -> None:
    async with SimulatedCluster(1, users=SHARDERS) as world:
        await begin(world, ["team", "later"], ["team"])
        await asyncio.sleep(400)
        assert "Permitted" not in await conditions(world)
        async with world.admin() as client:
            await client.create(Namespace(metadata=ObjectMeta(name="later")))
        await grant(world, "here", RIGHTS, "later")
        await create(world, "later", "a")
        await world.until(lambda: owned(world, "later", "s0", "s1"), within=20)
        await asyncio.sleep(70)
        await create(world, "later", "b")
        await world.until(lambda: owned(world, "later", "s0", "s1"), within=2)
        assert "Permitted" not in await conditions(world)


@pytest.mark.quick
@virtual_time
async def test_a_ring_that_names_other_namespaces_reads_these() -> None:
    async with SimulatedCluster(1, users=SHARDERS) as world:
        await begin(world, ["team"], ["team", "other"])
        await world.until(lambda: owned(world, "team", "s0", "s1"), within=2)
        places = note_places(world)
        async with world.admin() as client:
            ring = await client.get(ControllerRing, world.ring)
            spec = msgspec.structs.replace(ring.spec, namespace_selector=naming("other"))
            await client.replace(msgspec.structs.replace(ring, spec=spec))
        await asyncio.sleep(10)
        await create(world, "other", "a")
        await world.until(lambda: owned(world, "other", "s0", "s1"), within=2)
        assert {namespace for namespace, _ in places} == {"other"}


@pytest.mark.parametrize("everywhere", [True, *further(False)])
def test_many_rings_with_named_namespaces_share_a_watch_only_if_it_is_permitted(everywhere: bool) -> None:
    @virtual_time
    async def scene() -> None:
        async with SimulatedCluster(1, users=SHARDERS) as world:
            await world.install()
            names, places = [f"ring{number}" for number in range(2 * APART)], note_places(world)
            await grant_rights(world, *(RIGHTS if everywhere else ()))
            for name in names:
                await make_ring(world, name)
                if not everywhere:
                    await grant(world, "here", RIGHTS, name)
            world.sharder("x0", webhook=False)
            await world.until(lambda: served(world, "before"), within=60)
            await asyncio.sleep(10)
            for name in names:
                await create(world, name, "after")
            await world.until(lambda: served(world, "after"), within=2)
            watched = {namespace for namespace, how in places if how == "watch"}
            assert ("" in watched) is everywhere
            assert everywhere or watched == set(names)
            assert ("", "list") not in places or everywhere
            async with world.admin() as client:
                for name in names:
                    ring = await client.get(ControllerRing, name)
                    assert "Permitted" not in {each.type for each in ring.status.conditions}

    scene()


@pytest.mark.nightly
@virtual_time
async def test_rings_that_may_not_share_a_watch_any_longer_watch_on_their_own() -> None:
    async with SimulatedCluster(1, users=SHARDERS) as world:
        await world.install()
        names = [f"ring{number}" for number in range(2 * APART)]
        await grant_rights(world, *RIGHTS)
        for name in names:
            await make_ring(world, name)
            await grant(world, "here", RIGHTS, name)
        world.sharder("x0", webhook=False)
        await world.until(lambda: served(world, "before"), within=60)
        await asyncio.sleep(5)
        await grant_rights(world)
        for network in world.processes["x0"].networks:
            network.abort()
        await asyncio.sleep(20)
        for name in names:
            await create(world, name, "after")
        await world.until(lambda: served(world, "after"), within=2)


async def make_ring(world: SimulatedCluster, name: str) -> None:
    """A ring with a shard and a namespace that it names, which has one object."""
    async with world.admin() as client:
        await client.create(Namespace(metadata=ObjectMeta(name=name)))
        await create(world, name, "before")
        await world.make_ring(name, selector=naming(name))
        now = micro_time(0.0)
        spec = LeaseSpec(holder_identity=name, lease_duration_seconds=300, acquire_time=now, renew_time=now)
        meta = ObjectMeta(name=name, namespace="ops", labels={RING_LABEL: name})
        await client.create(Lease(metadata=meta, spec=spec))
