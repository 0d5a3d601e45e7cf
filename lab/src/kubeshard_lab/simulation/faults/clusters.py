"""Faults of one of several clusters that a ring shares out."""

from __future__ import annotations

from kubeshard_lab.simulation.faults.injection import Injection, Rule, fault_by
from kubeshard_lab.simulation.processes import name_of


@fault_by("cluster")
async def cluster_cut(on: Injection) -> None:
    """A shard cannot reach one of its clusters, and others can; what it sent arrives when it can."""
    if process := on.one("s"):
        world, shard = on.world, name_of(process.name)
        own = {world.cluster_of(name) for name, owner in world.owners().items() if owner == shard}
        cluster = on.rng.choice(sorted(own or world.places))
        process.cut_off(cluster=cluster)
        await on.lasts(3, 200)
        process.cut_off(down=False, cluster=cluster)


@fault_by("cluster")
async def cluster_unreachable(on: Injection) -> None:
    """Nobody can reach a cluster; what was sent arrives when it can be reached."""
    cluster, unreachable = on.a_cluster(), on.conditions.unreachable
    unreachable.add(cluster)
    for process in on.workload.live(""):
        process.cut_off(cluster=cluster)
        on.effects += 1
    await on.lasts(3, 90)
    unreachable.discard(cluster)
    for process in on.workload.live(""):
        process.cut_off(down=False, cluster=cluster)


@fault_by("cluster")
async def cluster_restarted(on: Injection) -> None:
    """The API server of a cluster refuses connections for a while, and then its watches cannot go on."""
    cluster = on.a_cluster()
    refused = Rule("cluster refused", lambda *_: True, refuses_connections=True, cluster=cluster)
    async with on.happening("cluster refused"), on.ruled(refused):
        on.cut_streams(on.workload.live(""), cluster)
        await on.lasts(1, 60)
        on.world.store(cluster).compact()


@fault_by("cluster")
async def home_cut(on: Injection) -> None:
    """A shard cannot reach the cluster with its Lease, and goes on reaching its own."""
    if process := on.one("s"):
        process.cut_off(cluster="sim")
        await on.lasts(3, 50)
        process.cut_off(down=False, cluster="sim")
