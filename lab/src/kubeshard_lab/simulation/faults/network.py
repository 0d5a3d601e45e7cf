"""Faults of the network: what is sent gets lost, is late, or is heard of later."""

from __future__ import annotations

from kubeshard.listwatch.reflector import READ_DEADLINE
from kubeshard.runtime.transport import HttpRequest
from kubeshard_lab.simulation.faults.injection import Injection, fault, fault_of
from kubeshard_lab.simulation.processes import Process, is_sharders


async def _cut(on: Injection, process: Process | None) -> None:
    if process:
        process.cut_off()
        await on.lasts(3, 50)
        process.cut_off(down=False)


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


async def _befalls(on: Injection, chance: float, *what: str) -> None:
    """For a while this happens to requests."""
    on.conditions.chances.update(dict.fromkeys(what, chance))
    async with on.happening(*what):
        await on.lasts(5, 40)
    on.conditions.chances.update(dict.fromkeys(what, 0.0))


@fault_of("any")
async def throttled(on: Injection) -> None:
    """Half of the requests are answered with 429."""
    await _befalls(on, 0.5, "429")


@fault_of("any")
async def failing(on: Injection) -> None:
    """Requests are answered with 500 or 503."""
    await _befalls(on, 0.2, "500", "503")


@fault_of("any")
async def writes_failing(on: Injection) -> None:
    """Writes are refused, others fail with an error before or after they took effect; reads work."""
    await _befalls(on, 0.3, "write 429", "write 500")


@fault_of("any")
async def lost(on: Injection) -> None:
    """Writes take effect, but their responses are lost."""
    await _befalls(on, 0.3, "lost")


@fault_of("any")
async def late(on: Injection) -> None:
    """Writes get no response, and take effect later."""
    await _befalls(on, 0.2, "late")


@fault_of("any")
async def watches_cut(on: Injection) -> None:
    """All watches are cut."""
    for process in on.workload.live(""):
        for network in process.networks:
            network.abort()
        on.effects += 1


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


def _second_watch(process: Process, request: HttpRequest) -> bool:
    """Whether the second controller of a shard watches."""
    return (
        "PartialObjectMetadata" in request.headers.get("Accept", "")
        and "/things?" in request.target
        and not is_sharders(process, request)
    )


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
