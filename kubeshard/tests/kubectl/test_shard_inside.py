"""`kubectl shard` answers for a ring whose sharder is inside its operator as for any other, with and without a
ControllerRing beside it; on virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeshard.cli.kubectl.questions import _print_status, placements
from kubeshard.client import Client
from kubeshard.core import Lease, MergePatch
from kubeshard.core.selectors import LabelSelector
from kubeshard.inspection.cluster import read_cluster, read_sharder
from kubeshard.inspection.doctor import examine
from kubeshard.inspection.errors import Unanswerable
from kubeshard.inspection.live import RingWatcher
from kubeshard.inspection.planning import planned, resized
from kubeshard.inspection.release import read_unconfirmed
from kubeshard.inspection.ring import see
from kubeshard.inspection.status import RingStatus, status_of
from kubeshard.shard.settings import DeclaredRing
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import DECLARED_RING_ANNOTATION, SHARDER_LABEL
from kubeshard_lab.simulation.cluster import SimulatedCluster, Touch, simulate

SHARDS = ("s0", "s1", "s2")
LEASE = "sharder-r"


@asynccontextmanager
async def team(*, defined: bool = False, **sharding: Any) -> AsyncIterator[SimulatedCluster]:
    """Three shards, one of which is the sharder, and Things; without even the definition of ControllerRings."""
    async with SimulatedCluster(seed=1) as world:
        await world.install()
        if not defined:
            await world.admin().raw("DELETE", DEFINITION)
        for name in SHARDS:
            world.shard(name, Touch(), sharding={"mode": "both", **sharding})
        await world.make_things(12)
        hashring = HashRing(SHARDS)

        def settled() -> bool:
            things, children = world.owners(), world.owners("", "configmaps")
            return not world.draining() and all(
                hashring.owner(f"sim.example/Thing/team/{name}") == shard == children.get(f"c-{name}", shard)
                for name, shard in things.items()
            )

        await world.until(settled, within=120)
        yield world


DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/controllerrings.sharding.timebertt.dev"


async def status(client: Client) -> RingStatus:
    return await status_of(client, await read_cluster(client), "r")


async def leader(client: Client) -> str:
    return (await read_sharder(client, await read_cluster(client), "r")).leader


def test_status_knows_the_ring_its_shards_and_the_sharder_that_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def scene() -> None:
        async with team() as world:
            found = await status(world.admin())
            assert (found.ring, found.ready, found.sharder, found.inside) == (
                "r",
                "True",
                f"ops/{LEASE}",
                True,
            )
            assert found.troubles == []
            assert [(each.name, each.state, each.available) for each in found.shards] == [
                (name, "ready", True) for name in SHARDS
            ]
            assert [(each.resource, each.objects, each.unassigned) for each in found.resources] == [
                ("things.sim.example", 12, 0),
                ("configmaps", 12, 0),
            ]
            _print_status([found], [], [], {})
            assert f"its sharder is inside the operator: Lease ops/{LEASE}" in capsys.readouterr().out

    simulate(scene)


def test_a_controllerring_beside_it_changes_nothing_for_the_user() -> None:
    async def scene() -> None:
        async with team(defined=True) as world:
            await world.make_ring()
            found = await status(world.admin())
            assert (found.ready, found.inside, found.declared, found.troubles) == ("True", True, False, [])

    simulate(scene)


def test_where_why_plan_and_top_answer() -> None:
    async def scene() -> None:
        async with team() as world:
            client = world.admin()
            owners = world.owners()
            for name, shard in owners.items():
                for family in (False, True):
                    (found,) = await placements(("thing", name), "team", family=family)(client)
                    assert (found.ring, found.shard, found.reason) == ("r", shard, "Placed")
            ring = await see(client, await read_cluster(client), "r")
            plan = await planned(client, ring, resized(ring, 3))
            assert (plan.now, plan.anyway, sum(plan.moving.values())) == (list(SHARDS), 0, 0)
            watcher = RingWatcher(client, ring)
            watching = asyncio.create_task(watcher.run())
            await watcher.read()
            picture = watcher.snapshot()
            verdict = "every object is where it belongs"
            assert (picture.verdict, picture.total, picture.well) == (verdict, 24, True)
            watching.cancel()

    simulate(scene)


def test_doctor_examines_what_such_a_ring_needs_and_misses_no_service() -> None:
    async def scene() -> None:
        async with team() as world:
            found = await examine(world.admin())
            assert found.findings == []
            assert found.examined == ["clocks", "ring r", "rights on ring r", "deleted rings"]
            (unchecked,) = found.unchecked  # there are no pods here
            assert unchecked.part == "rights on ring r"

    simulate(scene)


def test_doctor_examines_the_service_where_a_ring_needs_one() -> None:
    async def scene() -> None:
        async with team(defined=True) as world:
            await world.make_ring("other")
            found = await examine(world.admin())
            missing = {each.part for each in found.findings if "sharding-system/sharder" in each.problem}
            assert missing == {"deployment"}
            assert "leader" in {each.part for each in found.unchecked}, "which would be the consequence"

    simulate(scene)


def test_a_sharder_that_does_not_lead_any_more_is_the_trouble() -> None:
    async def scene() -> None:
        async with team() as world:
            for name in SHARDS:
                world.processes[name].kill()
            await asyncio.sleep(90)
            found = await status(world.admin())
            assert found.ready == "False"
            assert found.troubles[0].problem.startswith("the sharder inside the operator does not lead: s")
            assert found.troubles[0].command == f"kubectl --namespace ops get lease {LEASE} --output yaml"

    simulate(scene)


def test_an_operator_that_is_stopped_is_said_to_be_and_misses_no_service(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def scene() -> None:
        async with team() as world:
            for name in SHARDS:
                await world.processes[name].stop()
            await asyncio.sleep(60)
            cluster = await read_cluster(world.admin())
            assert (list(cluster.rings), cluster.orphans()) == ([], ["r"])
            (finding,) = (await examine(world.admin())).findings
            assert "ring r: its operator is stopped" in finding.problem
            assert not finding.fixes
            assert "#" not in finding.command, "the comment that it fixes nothing comes behind it"
            _print_status([], ["r"], cluster.orphans(), cluster.unled())
            assert "r: its operator is stopped" in capsys.readouterr().out
            with pytest.raises(Unanswerable, match="r: its operator is stopped"):
                await placements(("thing/t1",), None, family=False)(world.admin())

    simulate(scene)


def test_a_ring_whose_objects_are_in_another_cluster_is_not_taken_for_nothing() -> None:
    async def scene() -> None:
        async with team() as world:
            client = world.admin()
            lease = await client.get(Lease, LEASE, "ops")
            nothing = MergePatch({"metadata": {"annotations": {DECLARED_RING_ANNOTATION: None}}})
            await client.patch(Lease, LEASE, "ops", nothing, base=lease)
            assert (await read_cluster(client)).silent() == ["r"]
            found = await examine(client)
            assert [each.part for each in found.unchecked] == ["ring r"]
            assert found.findings == []

    simulate(scene)


def test_the_sharder_says_what_the_operator_declares_as_the_controllerring_that_would_say_the_same() -> None:
    async def scene() -> None:
        selector = LabelSelector(match_labels={"kubernetes.io/metadata.name": "team"})
        ring = DeclaredRing("r", namespace_selector=selector, strict_handover=True)
        async with team(defined=True, ring=ring) as world:
            client = world.admin()
            lease = await client.get(Lease, LEASE, "ops")
            assert lease.metadata.label(SHARDER_LABEL) == "r"
            declared = (await read_cluster(client)).rings["r"]
            await client.raw(
                "POST",
                "/apis/sharding.timebertt.dev/v1alpha1/controllerrings",
                lease.metadata.annotation(DECLARED_RING_ANNOTATION).encode(),
            )
            created = await client.get(ControllerRing, "r")
            assert created.spec == declared.spec
            assert created.metadata.annotations == declared.metadata.annotations
            assert created.spec.namespace_selector == selector
            found = await see(client, await read_cluster(client), "r")
            assert found.strict_handover

    simulate(scene)


def test_what_the_sharder_says_of_strict_handover_is_known_to_release() -> None:
    async def scene() -> None:
        async with team(ring=DeclaredRing("r", strict_handover=True)) as world:
            client = world.admin()
            leads = await leader(client)
            victim = next(name for name in SHARDS if name != leads)
            world.processes[victim].kill()
            await asyncio.sleep(60)
            found = await read_unconfirmed(client, victim)
            assert (found.ring, found.shard, found.asked) == ("r", victim, True)

    simulate(scene)


def test_a_lease_that_nobody_but_its_author_calls_a_sharders_is_none() -> None:
    """In another namespace than those of the shards, or under another name."""

    async def scene() -> None:
        async with team() as world:
            client = world.admin()
            lease = await client.get(Lease, LEASE, "ops")
            for namespace, name in (("team", LEASE), ("ops", "sharder-x")):
                labels = {SHARDER_LABEL: "r"}
                metadata = {"name": name, "namespace": namespace, "labels": labels}
                body = {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": metadata,
                    "spec": {"holderIdentity": "me", "renewTime": "2099-01-01T00:00:00.000000Z"},
                }
                await client.apply(body)
            assert (await read_cluster(client)).inside.keys() == {"r"}
            assert (await read_cluster(client)).inside["r"].key == lease.key

    simulate(scene)


def test_a_cluster_without_rings_says_what_there_is_not() -> None:
    async def scene() -> None:
        for defined in (True, False):
            async with SimulatedCluster(seed=1) as world:
                await world.install()
                if not defined:
                    await world.admin().raw("DELETE", DEFINITION)
                with pytest.raises(Unanswerable, match="neither a ControllerRing") as error:
                    await placements(("thing", "t"), "team", family=True)(world.admin())
                assert ("kubeshard manifests sharder" in str(error.value)) is not defined

    simulate(scene)
