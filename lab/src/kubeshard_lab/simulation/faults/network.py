"""Faults of the network: what is sent gets lost, is late, or is heard of later; of one of several clusters, too."""

from __future__ import annotations

from kubeshard.listwatch.reflector import READ_DEADLINE
from kubeshard.runtime.transport import HttpRequest
from kubeshard_lab.simulation.faults.injection import Injection, Rule, fault, fault_by, fault_of
from kubeshard_lab.simulation.processes import Process, is_sharders, name_of


async def _cut(on: Injection, process: Process | None, cluster: str = "", longest: float = 50) -> None:
    if process:
        process.cut_off(cluster=cluster)
        await on.lasts(3, longest)
        process.cut_off(down=False, cluster=cluster)


@fault_of("any")
async def cut(on: Injection) -> None:
    """A shard cannot reach the API server; what it sent arrives when it can."""
    await _cut(on, on.one("s"))


@fault_of("service")
async def sharder_cut(on: Injection) -> None:
    """A sharder cannot reach the API server."""
    await _cut(on, on.one("x"))


@fault_of("any")
async def cut_one_way(on: Injection) -> None:
    """What a process sends does not arrive, or it hears nothing."""
    if process := on.one(on.rng.choice("sx")):
        there = on.rng.random() < 0.5
        for network in process.networks:
            network.cut(there=there, back=not there)
        await on.lasts(3, 50)
        process.cut_off(down=False)


@fault_of("any")
async def half_open(on: Injection) -> None:
    """Watches of a process are dead without an error, until it must have noticed. New ones work."""
    if process := on.one(on.rng.choice("sx")):
        async with on.happening("half-open"):
            on.conditions.dropped[process.name] = began = on.conditions.now
            await on.lasts(30, 90)
            noticed = began + READ_DEADLINE - on.conditions.now
            await on.until(lambda: bool(process.dead), noticed, outlasting=True)


def _befalls(name: str, summary: str, chance: float, *what: str) -> None:
    """Makes a fault: for a while this happens to requests."""

    async def befall(on: Injection) -> None:
        on.conditions.chances.update(dict.fromkeys(what, chance))
        async with on.happening(*what):
            await on.lasts(5, 40)
        on.conditions.chances.update(dict.fromkeys(what, 0.0))

    befall.__name__, befall.__doc__ = name, summary
    fault_of("any")(befall)


_befalls("throttled", "Half of the requests are answered with 429.", 0.5, "429")
_befalls("failing", "Requests are answered with 500 or 503.", 0.2, "500", "503")
_befalls(
    "writes_failing",
    "Writes are refused, others fail with an error before or after they took effect; reads work.",
    0.3,
    *("write 429", "write 500"),
)
_befalls("lost", "Writes take effect, but their responses are lost.", 0.3, "lost")
_befalls("late", "Writes get no response, and take effect later.", 0.2, "late")


@fault_of("any")
async def watches_cut(on: Injection) -> None:
    """All watches are cut."""
    on.cut_streams(live := on.workload.live(""))
    on.effects += len(live)


@fault_of("any")
async def watches_silent(on: Injection) -> None:
    """The watches of a process deliver nothing for a while."""
    live = on.workload.live(on.rng.choice("ssx"))
    if process := on.rng.choice(live) if live else None:
        async with on.happening("silent"), on.silent(process):
            await on.lasts(3, 80)


def _watches_children(process: Process, request: HttpRequest) -> bool:
    return "/configmaps?" in request.target


@fault
async def children_late(on: Injection) -> None:
    """The watches of children deliver nothing for a while."""
    async with on.happening("children late"), on.quiet("children late", _watches_children):
        await on.lasts(3, 80)


def _reads_children(process: Process, request: HttpRequest) -> bool:
    return request.method == "GET" and _watches_children(process, request) and "/ops/" not in request.target


@fault
async def children_unlisted(on: Injection) -> None:
    """Lists of children fail for a while, and watches that begin."""
    async with on.happening("unlisted"), on.ruled(Rule("unlisted", _reads_children, code=500)):
        await on.lasts(3, 60)


def _second_watch(process: Process, request: HttpRequest) -> bool:
    """Whether the second controller of a shard watches."""
    things = "/things?" in request.target and not is_sharders(process, request)
    return things and "PartialObjectMetadata" in request.headers.get("Accept", "")


@fault
async def second_silent(on: Injection) -> None:
    """The watches of the second controller of all shards deliver nothing for a while."""
    async with on.happening("second silent"), on.quiet("second silent", _second_watch):
        await on.lasts(10, 60)


@fault
async def leases_unreadable(on: Injection) -> None:
    """Sharders cannot list or watch the Leases of shards."""
    async with on.happening("Leases unreadable"), on.hidden("Leases unreadable"):
        await on.lasts(10, 60)


@fault_by("cluster")
async def cluster_cut(on: Injection) -> None:
    """A shard cannot reach one of its clusters, and others can; what it sent arrives when it can."""
    if process := on.one("s"):
        world, shard = on.world, name_of(process.name)
        own = {world.cluster_of(name) for name, owner in world.owners().items() if owner == shard}
        await _cut(on, process, on.rng.choice(sorted(own or world.places)), 200)


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
    await _cut(on, on.one("s"), "sim")
