"""A sharder service coordinates a ring by ranges, for shards that are not its coordinators: nothing is labelled, there
is no webhook, and the ControllerRing says what is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from test_scenes_ranges import SHARDS, Fleet
from test_scenes_reference_role import SHARDER

from kubeshard.controller import Context, Reconciler, Result
from kubeshard.core import ConfigMap
from kubeshard.core.conditions import Condition, get_condition
from kubeshard.core.objects import Key
from kubeshard.core.patches import MergePatch
from kubeshard.inspection.cluster import read_cluster
from kubeshard.inspection.status import RingStatus, status_of
from kubeshard.manager.roles import roles
from kubeshard.manifests.rights import certificate_grants, ring_grants, sharder_grants
from kubeshard.shard.settings import Ranges
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.conditions import RANGES_ASSIGNED
from kubeshard.sharding.names import (
    DELIVERY_ANNOTATION,
    SHARD_NAMESPACES_ANNOTATION,
    assignment_name,
    shard_label,
    webhook_config_name,
)
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, simulate

NAME = assignment_name("r")
BY_RANGES = {DELIVERY_ANNOTATION: "Ranges uid/64", SHARD_NAMESPACES_ANNOTATION: "ops"}


class Quiet(Reconciler[Thing]):
    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        return None


class Service(Fleet):
    async def annotate(self, **annotations: str | None) -> None:
        async with self.world.admin() as client:
            await client.patch(
                ControllerRing, "r", "", MergePatch({"metadata": {"annotations": annotations}})
            )

    async def grant(self) -> None:
        async with self.world.admin() as client:
            ring = await client.get(ControllerRing, "r")
            rights = [*sharder_grants(), *certificate_grants("sharding-system"), *ring_grants(ring)]
            for each in roles(rights, "sharder", account=("sharding-system", "sharder")):
                await client.apply(each)

    async def condition(self) -> Condition | None:
        async with self.world.admin() as client:
            status = (await client.get(ControllerRing, "r")).status
        assert status is not None
        return get_condition(status.conditions, RANGES_ASSIGNED)

    async def status(self) -> RingStatus:
        async with self.world.admin() as client:
            return await status_of(client, await read_cluster(client), "r")

    @property
    def webhooks(self) -> int:
        configs = self.world.objects("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
        found = configs.get(Key("", webhook_config_name("r")))
        return len(found.get("webhooks") or ()) if found else 0

    @property
    def labelled(self) -> int:
        things = self.world.objects("sim.example", "things").values()
        return sum(shard_label("r") in (each["metadata"].get("labels") or {}) for each in things)


@asynccontextmanager
async def service(*shards: str, **annotations: str) -> AsyncIterator[Service]:
    """A sharder with the rights that are rendered for it, and these shards."""
    async with SimulatedCluster(seed=1, users={"x0": SHARDER}) as world:
        fleet = Service(world, Ranges(buckets=64))
        await world.install()
        await world.make_ring()
        if annotations:
            await fleet.annotate(**annotations)
        await fleet.grant()
        world.sharder("x0")
        await world.make_things(60)
        for name in shards:
            fleet.start(name)
        yield fleet
        assert fleet.together == []


@pytest.mark.quick
def test_shards_by_ranges_get_their_shares_from_a_service_without_labels_and_without_a_webhook() -> None:
    async def scene() -> None:
        async with service(*SHARDS, **BY_RANGES) as fleet:
            await fleet.until_settled(*SHARDS)
            assert (fleet.webhooks, fleet.labelled, fleet.writes["things"]) == (0, 0, 0)
            await fleet.world.processes["s2"].stop()
            await fleet.until_settled("s0", "s1")
            await asyncio.sleep(2)  # until it is reported
            assert await fleet.condition() is None
            found = await fleet.status()
            assert (found.ready, found.troubles) == ("True", [])
            assert found.assignment is not None

    simulate(scene)


def test_the_ring_says_what_is_wrong_with_its_assignment_until_it_is_mended() -> None:
    async def scene() -> None:
        async with service("s0", **BY_RANGES) as fleet:
            await fleet.until_settled("s0")
            async with fleet.world.admin("home") as client:
                await client.delete(ConfigMap, NAME, "ops")
            await asyncio.sleep(1)
            said = await fleet.condition()
            assert said is not None
            assert "it was deleted" in said.message
            await fleet.until_settled("s0")
            await asyncio.sleep(5)
            assert await fleet.condition() is None

    simulate(scene)


@pytest.mark.parametrize(
    ("delivery", "namespaces", "problem"),
    [
        ("Ringes", "ops", "'Ringes': write Ranges"),
        ("Ranges", "", "in which one namespace"),
        ("Ranges name/64", "ops", "by 'name': not one of"),
        ("Ranges uid/63", "ops", "63 buckets: not a power of two"),
        ("Ranges cluster/64", "ops", "a ring by clusters has no ControllerRing"),
    ],
)
def test_a_delivery_that_cannot_be_is_told_and_nothing_is_assigned(
    delivery: str, namespaces: str, problem: str
) -> None:
    async def scene() -> None:
        stated = {DELIVERY_ANNOTATION: delivery, SHARD_NAMESPACES_ANNOTATION: namespaces}
        async with service("s0", **stated) as fleet:
            await asyncio.sleep(10)
            said = await fleet.condition()
            assert said is not None
            assert problem in said.message
            assert (fleet.assignment, fleet.labelled) == (None, 0)

    simulate(scene)


def test_a_ring_goes_from_labels_to_ranges_and_back_by_its_annotation() -> None:
    async def scene() -> None:
        async with service() as fleet:
            world = fleet.world
            world.shard("l0", Quiet(), owns=())
            await world.until(lambda: world.all_owned("l0"), within=60)
            assert fleet.webhooks
            await fleet.annotate(**BY_RANGES)
            await fleet.grant()
            await world.until(lambda: not fleet.webhooks, within=10)
            await world.processes["l0"].stop()
            fleet.start("s0")
            await fleet.until_settled("s0")
            await fleet.annotate(**{DELIVERY_ANNOTATION: None})
            await world.processes["s0"].stop()
            world.shard("l1", Quiet(), owns=())
            await world.until(lambda: world.all_owned("l1") and fleet.webhooks, within=120)

    simulate(scene)
