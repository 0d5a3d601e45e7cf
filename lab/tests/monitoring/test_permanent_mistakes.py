"""A mistake that does not go away by itself is reported once, with a remedy, and not over and over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from test_scenes_reference_role import SHARDER, Rule, grant
from tiers import further

from kubeshard.controller import Controller
from kubeshard.core import Namespace, ObjectMeta
from kubeshard.manager import Manager
from kubeshard.runtime.transport import HttpRequest, HttpResponse, TransportError
from kubeshard.shard import DeclaredRing, Sharding
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch, definition
from kubeshard_lab.simulation.processes import Network, Process
from kubeshard_lab.virtual_time import run_virtual
from scenes import CHILDREN, READ_THINGS, grant_rights, refuse

MINUTES = 6
"""How long each mistake lasts: longer than the time between two full scans."""

LIMITED = "x-limited"
"""A sharder that is not an administrator."""

SHARD_WITHOUT_LEASES = (
    ("", "events", "create patch"),
    ("", "configmaps", "get list watch patch"),
    ("sim.example", "things", "get list watch patch"),
    ("sharding.timebertt.dev", "controllerrings", "get"),
)

Start = Callable[[SimulatedCluster], Awaitable[Process]]


def undeclared_shard(world: SimulatedCluster, ring: str = "r", user: str = "s0") -> Process:
    """A shard that does not declare its ring, which needs a ControllerRing."""
    process = Process(world, user)
    controller = Controller(name="thing", reconciler=Touch(), primary=Thing)
    sharding = Sharding(ring, "s0", "ops")
    return process.start(
        Manager(
            [controller],
            client=process.client(),
            sharding=sharding,
            status_pages=None,
        )
    )


def distrust(process: Process) -> Process:
    """The API server's certificate is signed by another authority than the one in the kubeconfig."""

    async def before(request: HttpRequest) -> HttpResponse | None:
        raise TransportError("SSL certificate problem: unable to get local issuer certificate", sent=False)

    def connected(other: Process, network: Network) -> None:
        if other is process:
            network.before = before

    for network in process.networks:
        network.before = before
    process.world.connected = connected
    return process


async def whole(world: SimulatedCluster) -> None:
    await world.install()
    await world.make_ring()


async def without_ring_crd(world: SimulatedCluster) -> None:
    async with world.admin() as client:
        await client.apply(definition())
        for name in ("sharding-system", "ops", "team"):
            await client.create(Namespace(metadata=ObjectMeta(name=name)))


async def sharder_wrong_ca(world: SimulatedCluster) -> Process:
    await whole(world)
    return distrust(world.sharder("x0"))


async def shard_wrong_ca(world: SimulatedCluster) -> Process:
    await whole(world)
    return distrust(undeclared_shard(world))


async def shard_wrong_ring(world: SimulatedCluster) -> Process:
    await whole(world)
    return undeclared_shard(world, "anything")


async def declaring_shard_wrong_ring(world: SimulatedCluster) -> Process:
    await whole(world)
    world.ring = "anything"
    return world.shard("s0", Touch())


async def shard_no_crd(world: SimulatedCluster) -> Process:
    await without_ring_crd(world)
    return undeclared_shard(world)


async def sharder_no_crd(world: SimulatedCluster) -> Process:
    await without_ring_crd(world)
    return world.sharder("x0")


async def shard_no_main_kind(world: SimulatedCluster) -> Process:
    async with world.admin() as client:
        await client.apply(controller_ring_crd())
        for name in ("sharding-system", "ops", "team"):
            await client.create(Namespace(metadata=ObjectMeta(name=name)))
    await world.make_ring()
    return undeclared_shard(world)


async def shard_without_leases(world: SimulatedCluster) -> Process:
    await whole(world)
    await grant(world, "a shard", SHARD_WITHOUT_LEASES)
    return undeclared_shard(world, user=LIMITED)


async def shard_without_watch(world: SimulatedCluster) -> Process:
    await whole(world)
    process = undeclared_shard(world)
    refuse(process, "GET", "/things")
    return process


async def sharder_that_may_only_list_rings(world: SimulatedCluster) -> Process:
    await whole(world)
    process = world.sharder("x0")
    refuse(process, "GET", "/controllerrings?", "watch=")
    return process


async def sharder_without_rings(world: SimulatedCluster) -> Process:
    await whole(world)
    process = world.sharder("x0")
    refuse(process, "GET", "/controllerrings")
    return process


async def sharder_without_leases(world: SimulatedCluster) -> Process:
    await whole(world)
    process = world.sharder("x0")
    refuse(process, "GET", "/coordination.k8s.io/v1/leases")
    return process


async def with_rules(world: SimulatedCluster, *ring: Rule) -> Process:
    """A sharder with the rights that its manifests grant, and these on the resources of its ring."""
    await whole(world)
    await grant_rights(world, *ring)
    process = world.sharder(LIMITED)
    world.caller.reachable = False
    world.shard("s0", Touch())
    await world.make_things(3)
    return process


async def sharder_without_patch(world: SimulatedCluster) -> Process:
    return await with_rules(world, READ_THINGS, CHILDREN)


async def sharder_without_list(world: SimulatedCluster) -> Process:
    return await with_rules(world, ("sim.example", "things", "get patch watch"), CHILDREN)


async def sharder_that_a_policy_refuses(world: SimulatedCluster) -> Process:
    await whole(world)
    process = world.sharder("x0")
    refuse(process, "PATCH", "/things/")
    world.caller.reachable = False
    world.shard("s0", Touch())
    await world.make_things(3)
    return process


async def ring_of_a_resource_that_is_not_served(world: SimulatedCluster) -> Process:
    await world.install()
    await world.make_ring(resources=[RingResource(group="sim.example", resource="thinks")])
    process = world.sharder("x0")
    declared = DeclaredRing(world.ring, [RingResource(group="sim.example", resource="things")])
    world.shard("s0", Touch(), sharding={"ring": declared})
    return process


MISTAKES: dict[str, tuple[Start, str]] = {
    "sharder: wrong certificate authority": (sharder_wrong_ca, "certificate authority"),
    "shard: wrong certificate authority": (shard_wrong_ca, "certificate authority"),
    "shard: a ring that does not exist": (shard_wrong_ring, "create it, or correct the name"),
    "shard that declares: a ring that does not exist": (
        declaring_shard_wrong_ring,
        "create the ControllerRing, or correct its name",
    ),
    "shard: no definition of ControllerRings": (shard_no_crd, "CustomResourceDefinition"),
    "sharder: no definition of ControllerRings": (sharder_no_crd, "CustomResourceDefinition"),
    "shard: no definition of its kind": (shard_no_main_kind, "CustomResourceDefinition"),
    "shard: no right on leases": (shard_without_leases, "grant"),
    "shard: no right to read its kind": (shard_without_watch, "bind a ClusterRole with the rule"),
    "sharder: no right to watch rings": (
        sharder_that_may_only_list_rings,
        "bind a ClusterRole with the rule",
    ),
    "sharder: no right to read rings": (sharder_without_rings, "bind a ClusterRole with the rule"),
    "sharder: no right to read leases": (sharder_without_leases, "bind a ClusterRole with the rule"),
    "sharder: no right to patch": (sharder_without_patch, "the sharder needs the rule"),
    "sharder: no right to list": (sharder_without_list, "the sharder needs the rule"),
    "sharder: a policy refuses its patches": (
        sharder_that_a_policy_refuses,
        "error moving things.sim.example",
    ),
    "ring: a resource that is not served": (ring_of_a_resource_that_is_not_served, "thinks.sim.example"),
}


LONG = {"sharder: no right to list", "sharder: a policy refuses its patches"}
"""Mistakes that cost most processor time, and are like another one."""


@pytest.mark.parametrize(
    "mistake", [*(name for name in MISTAKES if name not in LONG), *further(*sorted(LONG))]
)
def test_a_permanent_mistake_is_one_line_that_says_what_to_do(
    mistake: str, caplog: pytest.LogCaptureFixture
) -> None:
    start, advice = MISTAKES[mistake]

    async def run() -> None:
        async with SimulatedCluster(users={LIMITED: SHARDER}) as world:
            process = await start(world)
            await asyncio.sleep(MINUTES * 60)
            assert not process.dead

    with caplog.at_level(logging.WARNING):
        run_virtual(run())
    lines = [
        f"{r.message} {r.__dict__.get('fields')}" for r in caplog.records if r.levelno >= logging.WARNING
    ]
    assert len(lines) == 1, "\n".join(lines)
    assert advice in lines[0]
