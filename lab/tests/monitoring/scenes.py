"""Runs of a ring in which one thing goes wrong, each named after the alert that reports it, and one in which nothing
does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from test_scenes_reference_role import LEADER_ELECTION, SHARDER, SHARDER_ROLE, Rule, grant

from kubeshard.controller import Context, Reconciler, Result
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.shard.settings import Ranges
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.assignment import Assignment
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.names import assignment_name
from kubeshard_lab.simulation.cluster import MAIN, SimulatedCluster, Thing, Touch
from kubeshard_lab.simulation.processes import Network, Process, refusal
from kubeshard_lab.virtual_world import VirtualLoopWatch

MINUTE = 60.0

Scene = Callable[[SimulatedCluster], Awaitable[None]]


SHARDERS = dict.fromkeys(("x0", "x1", "x2"), SHARDER)
"""The users of worlds in which sharders have exactly the rights that they need."""

REST: Sequence[Rule] = (
    ("events.k8s.io", "events", "create patch"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "get list watch"),
    ("coordination.k8s.io", "leases", "create"),
    ("", "secrets", "get create update"),
)
"""The rights that kubeshard's sharder uses in addition to the Go project's role."""

READ_THINGS: Rule = ("sim.example", "things", "get list watch")
PATCH_THINGS: Rule = ("sim.example", "things", "patch")
CHILDREN: Rule = ("", "configmaps", "get list watch patch")


async def grant_rights(world: SimulatedCluster, *ring: Rule) -> None:
    """Grants the sharders' rights, and these on the resources of the ring; earlier grants are removed."""
    await grant(world, "sharder", (*SHARDER_ROLE, *REST))
    await grant(world, "election", LEADER_ELECTION, "sharding-system")
    await grant(world, "ring", ring)


async def begin(world: SimulatedCluster) -> None:
    """Starts two sharders, two shards and ten objects, and waits until they have settled."""
    await world.install()
    await grant_rights(world, READ_THINGS, PATCH_THINGS, CHILDREN)
    await world.make_ring()
    world.sharder("x0")
    world.sharder("x1")
    for name in ("s0", "s1"):
        world.shard(name, Touch())
    await asyncio.sleep(20)
    await world.make_things(10)
    await world.until(lambda: world.all_owned("s0", "s1"), within=30)
    await asyncio.sleep(2 * MINUTE)


async def begin_in_manager(world: SimulatedCluster) -> None:
    """Three shards, of which one is the sharder, without a ControllerRing; ten objects, at rest."""
    await world.install()
    for name in ("s0", "s1", "s2"):
        world.shard(name, Touch(), sharding={"mode": "both"})
    await asyncio.sleep(20)
    await world.make_things(10)
    await world.until(lambda: world.all_owned("s0", "s1", "s2"), within=30)
    await asyncio.sleep(2 * MINUTE)


async def a_leader_leaves(world: SimulatedCluster) -> None:
    leader = next(name for name in ("s0", "s1", "s2") if leads(world.processes[name], "sharder-r"))
    await world.processes[leader].stop()
    await asyncio.sleep(6 * MINUTE)
    assert world.all_owned(*{"s0", "s1", "s2"} - {leader})


def refuse(process: Process, methods: str, *parts: str) -> None:
    """From now on the process is denied requests whose target contains all of these parts."""

    async def before(request: HttpRequest) -> HttpResponse | None:
        asked = request.method in methods.split() and all(part in request.target for part in parts)
        return refusal(403, "Forbidden") if asked else None

    connected = process.world.connected

    def later(other: Process, network: Network) -> None:
        if connected is not None:
            connected(other, network)
        if other is process:
            network.before = before

    process.world.connected = later
    for network in process.networks:
        network.before = before


async def create_things(world: SimulatedCluster, count: int, every: float, prefix: str = "more") -> None:
    for number in range(count):
        await world.make_things(1, prefix=f"{prefix}-{number}-")
        await asyncio.sleep(every)


async def nothing(world: SimulatedCluster) -> None:
    """A shard joins, one leaves, the leader changes and objects are created: all is well."""
    world.shard("s2", Touch())
    await create_things(world, 10, 12.0)
    await world.processes["s0"].stop()
    await create_things(world, 10, 12.0, prefix="yet-more")
    await world.processes["x0"].stop()
    await asyncio.sleep(MINUTE)
    world.sharder("x2")
    await asyncio.sleep(15 * MINUTE)
    assert world.all_owned("s1", "s2")


async def a_shard_dies(world: SimulatedCluster) -> None:
    world.processes["s0"].kill()
    await asyncio.sleep(5 * MINUTE)


async def all_shards_die(world: SimulatedCluster) -> None:
    for name in ("s0", "s1"):
        world.processes[name].kill()
    await asyncio.sleep(6 * MINUTE)
    assert not {key.name for key in world.objects("coordination.k8s.io", "leases")} & {"s0", "s1"}


async def a_ring_waits_for_its_first_shard(world: SimulatedCluster) -> None:
    await world.make_ring("prepared")
    await create_things(world, 10, MINUTE)


class Keeping(Touch):
    """A reconciler that never finishes."""

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        await asyncio.get_running_loop().create_future()
        raise AssertionError


async def a_drain_is_held(world: SimulatedCluster) -> None:
    await world.processes["s0"].stop()
    await world.processes["s1"].stop()
    world.shard("s2", Keeping(), workers=20)
    await world.until(lambda: world.all_owned("s2"), within=MINUTE)
    await asyncio.sleep(20)
    world.shard("s3", Touch())
    await asyncio.sleep(6 * MINUTE)


async def a_right_to_move_is_revoked(world: SimulatedCluster) -> None:
    await grant_rights(world, READ_THINGS, CHILDREN)
    world.processes["s0"].kill()
    await asyncio.sleep(20 * MINUTE)


async def nobody_may_assign(world: SimulatedCluster) -> None:
    await grant_rights(world, READ_THINGS, CHILDREN)
    world.caller.reachable = False
    await world.make_things(3, prefix="new")
    await asyncio.sleep(16 * MINUTE)  # the second periodic full scan sees how long they have waited


class Nothing(Reconciler[Thing]):
    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        return None


def shard_by_ranges(world: SimulatedCluster, name: str, ring: str) -> Process:
    sharding = {"ring": ring, "mode": "both", "delivery": Ranges(buckets=64)}
    return world.shard(name, Nothing(), owns=(), sharding=sharding)


async def an_assignment_is_that_of_other_buckets(world: SimulatedCluster) -> None:
    """The program of the ring has been given other buckets."""
    meta = ObjectMeta(name=assignment_name("other"), namespace="ops")
    async with world.admin("home") as client:
        await client.create(ConfigMap(metadata=meta, data=Assignment.of(Buckets(32)).data()))
    shard_by_ranges(world, "o0", "other")
    await asyncio.sleep(5 * MINUTE)


async def the_webhook_is_not_reached(world: SimulatedCluster) -> None:
    world.caller.reachable = False
    await create_things(world, 40, 30.0)


async def the_rings_status_cannot_be_written(world: SimulatedCluster) -> None:
    for name in ("x0", "x1"):
        refuse(world.processes[name], "PUT", "/controllerrings/", "/status")
    async with world.admin() as client:
        ring = await client.get(ControllerRing, world.ring)
        spec = msgspec.structs.replace(
            ring.spec, resources=(msgspec.structs.replace(MAIN, controlled_resources=()),)
        )
        await client.replace(msgspec.structs.replace(ring, spec=spec))
    await asyncio.sleep(10 * MINUTE)


async def nobody_may_lead(world: SimulatedCluster) -> None:
    for name in ("x0", "x1"):
        refuse(world.processes[name], "PUT", "/leases/sharder")
    await asyncio.sleep(6 * MINUTE)


async def no_sharder_runs(world: SimulatedCluster) -> None:
    """Nobody is left to say that nobody leads."""
    for name in ("x0", "x1"):
        world.processes[name].kill()
    await asyncio.sleep(4 * MINUTE)


async def no_process_runs(world: SimulatedCluster) -> None:
    """Nobody is left to say that there are rings."""
    for process in world.processes.values():
        process.kill()
    await asyncio.sleep(8 * MINUTE)


async def a_shard_may_not_renew(world: SimulatedCluster) -> None:
    """The shard ends when its time is over, and is restarted."""
    refuse(world.processes["s0"], "PUT", "/leases/s0")
    await world.until(lambda: world.processes["s0"].dead, within=MINUTE)
    world.shard("s0", Touch(), process="s0~2")
    refuse(world.processes["s0~2"], "PUT", "/leases/s0")
    await asyncio.sleep(5 * MINUTE)


async def the_event_loop_is_blocked(world: SimulatedCluster) -> None:
    """A callback blocks the loop of each process for three seconds, which shows for a minute."""
    watches = [each.manager._process.loop_watch for each in world.processes.values() if each.manager]
    for late in 3.0, 0.0:
        for watch in watches:
            assert isinstance(watch, VirtualLoopWatch)
            watch.late = late
        await asyncio.sleep(MINUTE)
    await asyncio.sleep(3 * MINUTE)


async def a_kind_may_not_be_read(world: SimulatedCluster) -> None:
    shard = world.processes["s0"]
    refuse(shard, "GET", "/configmaps")
    for network in shard.networks:
        network.abort()
    await asyncio.sleep(8 * MINUTE)


async def a_sharder_is_cut_off(world: SimulatedCluster) -> None:
    follower = next(name for name in ("x0", "x1") if not leads(world.processes[name]))
    world.processes[follower].cut_off()
    await asyncio.sleep(6 * MINUTE)


def leads(process: Process, name: str = "sharder") -> bool:
    assert process.manager is not None
    registry = process.manager.metrics.registry
    return bool(registry.get_sample_value("leader_election_master_status", {"name": name}))


FAULTS: dict[str, Scene] = {
    "KubeshardShardTakenOver": a_shard_dies,
    "KubeshardNoShardAvailable": all_shards_die,
    "KubeshardDrainStuck": a_drain_is_held,
    "KubeshardObjectsUnassigned": nobody_may_assign,
    "KubeshardAssignmentUnusable": an_assignment_is_that_of_other_buckets,
    "KubeshardMovesFail": a_right_to_move_is_revoked,
    "KubeshardWebhookNotAssigning": the_webhook_is_not_reached,
    "KubeshardRingNotReconciled": the_rings_status_cannot_be_written,
    "KubeshardNoLeader": nobody_may_lead,
    "KubeshardSharderMissing": no_sharder_runs,
    "KubeshardNoSharder": no_process_runs,
    "KubeshardShardLeaseNotRenewed": a_shard_may_not_renew,
    "KubeshardEventLoopBlocked": the_event_loop_is_blocked,
    "KubeshardKindUnreadable": a_kind_may_not_be_read,
    "KubeshardCacheSilent": a_sharder_is_cut_off,
}
