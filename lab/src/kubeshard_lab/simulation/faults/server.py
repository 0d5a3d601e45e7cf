"""Faults of the API server, of etcd, and of the webhooks that it calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kubeshard.runtime.transport import HttpRequest
from kubeshard_lab.simulation.faults.injection import Injection, Rule, fault, fault_by, fault_of
from kubeshard_lab.simulation.faults.users import created_again, recreated
from kubeshard_lab.simulation.processes import Process


@fault_of("any")
async def compaction(on: Injection) -> None:
    """etcd forgets its history: no watch can go on from an earlier version."""
    on.compact()
    on.effects += 1


@fault
async def restore(on: Injection) -> None:
    """etcd, of any cluster if there are several, is restored to an earlier state. Users create what it lacks."""
    cluster = on.a_cluster("sim")
    store, back = on.world.store(cluster), on.world.backup(cluster)
    revision = store.revision
    await on.lasts(5, 60)
    on.effects += store.revision - revision
    restored(on, back)
    await created_again(on)


def restored(on: Injection, back: Callable[[], None]) -> None:
    """etcd is what it was then."""
    back()
    on.workload.oracles.restored()
    on.workload.recorder.restored()


@fault_of("any")
async def restarted(on: Injection) -> None:
    """Requests get no answer, watches are cut and cannot go on, connections are refused for a while."""
    refused = Rule("connection refused", lambda *_: True, refuses_connections=True)
    async with on.happening("connection refused"), on.ruled(refused):
        on.conditions.chances["lost"] = 1.0
        on.cut_streams(on.workload.live(""))
        await on.lasts(1, 20)
        on.conditions.chances["lost"] = 0.0
        on.compact()


def _needs_etcd(process: Process, request: HttpRequest) -> bool:
    return request.method != "GET" or "watch=" not in request.target


@fault_of("any")
async def no_leader(on: Injection) -> None:
    """Reads and writes fail, some writes take effect when there is one again, and watches go on."""
    back = asyncio.Event()

    def proposed(process: Process, request: HttpRequest) -> bool:
        return request.method != "GET" and on.rng.random() < 0.1

    fails = Rule("no leader", _needs_etcd, delay=7.0)
    async with on.happening("no leader", "proposed"):
        async with on.ruled(Rule("proposed", proposed, lands=back)), on.ruled(fails):
            await on.lasts(5, 30)
        back.set()


@fault_of("any")
async def stale_front(on: Injection) -> None:
    """Of two API servers, one is late with what it tells watches. Every watch is opened anew."""
    fronts: dict[int, tuple[HttpRequest, bool]] = {}

    def stale(process: Process, request: HttpRequest) -> bool:
        if "watch=" not in request.target:
            return False
        if id(request) not in fronts:
            fronts[id(request)] = request, on.rng.random() < 0.5
        return fronts[id(request)][1]

    async with on.happening("stale front"), on.quiet("stale front", stale):
        on.cut_streams(on.workload.live(""))
        await on.lasts(5, 60)


@fault_by("labels")
@fault_of("service")
async def webhook(on: Injection) -> None:
    """The API server cannot reach the webhook."""
    caller = on.world.caller
    caller.reachable, before = False, caller.refused
    await on.lasts(1, 40)
    caller.reachable = True
    on.effects += caller.refused - before


@fault_by("labels")
async def webhook_slow(on: Injection) -> None:
    """The webhook answers late, or too late."""
    caller = on.world.caller
    before, caller.delay = caller.delayed, on.rng.uniform(0.5, 12)
    await recreated(on)
    await on.lasts(5, 40)
    caller.delay = 0.0
    on.effects += caller.delayed - before


@fault_by("labels")
async def webhook_distrusted(on: Injection) -> None:
    """The API server does not trust the certificate of the webhook."""
    caller = on.world.caller
    before, caller.trusted = caller.refused, False
    await recreated(on)
    await on.lasts(5, 40)
    caller.trusted = True
    on.effects += caller.refused - before


@fault_by("labels")
async def webhook_stale(on: Injection) -> None:
    """The webhook of one sharder is asked, which hears of nothing meanwhile."""
    caller, live = on.world.caller, on.workload.live("x")
    process = on.rng.choice(live) if live else None
    if process is None:
        return
    caller.preferred, before = process.name, caller.asked[process.name]
    async with on.silent(process):
        await recreated(on)
        await on.lasts(5, 60)
    on.effects += caller.asked[process.name] - before
    caller.preferred = ""
