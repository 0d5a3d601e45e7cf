"""The API server's answer to what it refuses reaches people within a minute, whatever waits for it."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import pytest
from test_ring_conditions import conditions
from tiers import further

from kubeshard.inspection.cluster import read_cluster
from kubeshard.inspection.placement import placement_of
from kubeshard.inspection.ring import see
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch
from kubeshard_lab.simulation.processes import Process, refusal
from kubeshard_lab.virtual_time import virtual_time

WITHIN = 60.0


class Refused(NamedTuple):
    """What the API server does with a write, and the words of its answer that people need."""

    code: int
    reason: str
    message: str
    words: str


REFUSALS = {
    "policy": Refused(422, "Invalid", "is invalid: things need a cost centre (FIN-7)", "FIN-7"),
    "webhook": Refused(403, "Forbidden", "admission webhook denied the request: FIN-7", "FIN-7"),
    "quota": Refused(403, "Forbidden", "exceeded quota: objects, requested: 1, limited: 1", "exceeded quota"),
    "size": Refused(413, "RequestEntityTooLarge", "etcdserver: request is too large", "too large"),
    "broken webhook": Refused(
        500, "InternalError", "failed calling webhook: connection refused", "failed calling"
    ),
}


class Hindrance:
    """Refuses requests of a process, from now on."""

    def __init__(
        self,
        process: Process,
        refused: Refused,
        which: Callable[[HttpRequest], bool],
    ) -> None:
        self.now = True

        async def before(request: HttpRequest) -> HttpResponse | None:
            if self.now and which(request):
                return refusal(refused.code, refused.reason, refused.message)
            return None

        for network in process.networks:
            network.before = before


def patches_things(request: HttpRequest) -> bool:
    return request.method == "PATCH" and "/things/" in request.target and "dryRun" not in request.target


async def begun(world: SimulatedCluster) -> Process:
    await world.install()
    await world.make_ring()
    sharder = world.sharder("x0", webhook=False)
    for name in ("s0", "s1"):
        world.shard(name, Touch())
    await asyncio.sleep(20)
    await world.make_things(8)
    await world.until(lambda: world.all_owned("s0", "s1"), within=30)
    await asyncio.sleep(5)
    return sharder


Waits = Callable[[SimulatedCluster], Awaitable[str]]
"""Makes an object wait; returns its name."""


async def its_shard_dies(world: SimulatedCluster) -> str:
    name = next(key for key, shard in world.owners().items() if shard == "s1")
    world.processes["s1"].kill()
    await asyncio.sleep(35)  # until it is given up
    return name


async def it_is_released(world: SimulatedCluster) -> str:
    name = next(key for key, shard in world.owners().items() if shard == "s1")
    await world.processes["s1"].stop()
    return name


async def it_is_new(world: SimulatedCluster) -> str:
    await world.make_things(1, prefix="late")
    return "late0"


async def it_has_to_move(world: SimulatedCluster) -> str:
    world.shard("s2", Touch())
    world.shard("s3", Touch())
    await asyncio.sleep(5)
    return ""


WAITS: Mapping[str, Waits] = {
    "its shard has died": its_shard_dies,
    "its shard has left": it_is_released,
    "it is new": it_is_new,
    "it has to move": it_has_to_move,
    "its shard may not release it": it_has_to_move,
}


SHARD_TRIES_AGAIN = 125.0
"""After 120 s at most (`workqueue.limits`); then it is told."""


def told(world: SimulatedCluster) -> str:
    events = world.objects("events.k8s.io", "events").values()
    return " ".join(event["note"] for event in events if event["regarding"]["kind"] == "ControllerRing")


async def why(world: SimulatedCluster, name: str) -> str:
    async with world.admin() as client:
        ring = await see(client, await read_cluster(client), "r")
        return (await placement_of(client, ring, Thing.KIND, name, "team")).remedy


ALL = list(itertools.product(WAITS, REFUSALS))
QUICK = [(waits, refused) for waits, refused in ALL if waits == "it is new" or refused == "policy"]
OTHERS = [each for each in ALL if each not in QUICK]


@pytest.mark.parametrize(("waits", "refused"), [*QUICK, *further(*OTHERS)])
@virtual_time
async def test_why_an_object_waits_is_in_a_condition_an_event_and_why_within_a_minute(
    waits: str, refused: str
) -> None:
    async with SimulatedCluster() as world:
        sharder = await begun(world)
        words = REFUSALS[refused].words
        shards = [world.processes[shard] for shard in ("s0", "s1")]
        refuse = shards if waits == "its shard may not release it" else [sharder]
        hindrances = [Hindrance(each, REFUSALS[refused], patches_things) for each in refuse]
        name = await WAITS[waits](world)
        await asyncio.sleep(WITHIN)
        messages = " ".join(each.message for each in (await conditions(world)).values())
        assert words in messages
        assert words in told(world)
        if not name:
            named = next(word for word in messages.split() if word.startswith("team/"))
            name = named.removeprefix("team/").strip(",()")
        assert words in await why(world, name)
        for hindrance in hindrances:
            hindrance.now = False
        await asyncio.sleep(20 if refuse == [sharder] else SHARD_TRIES_AGAIN)
        assert words not in " ".join(each.message for each in (await conditions(world)).values())


@virtual_time
async def test_a_dead_shards_lease_that_the_api_server_refuses_to_change_is_told_with_the_answer() -> None:
    async with SimulatedCluster() as world:
        sharder = await begun(world)
        Hindrance(
            sharder,
            REFUSALS["policy"],
            lambda request: request.method in ("PUT", "PATCH") and "/leases/s1" in request.target,
        )
        world.processes["s1"].kill()
        await asyncio.sleep(35 + WITHIN)
        found = (await conditions(world))["LeasesWritten"]
        assert found.status == "False"
        assert "FIN-7" in found.message
        assert "ops/s1" in found.message
        assert "FIN-7" in told(world)


def _writes_lease(request: HttpRequest) -> bool:
    return request.method in ("POST", "PUT") and "/leases" in request.target


@pytest.mark.parametrize(
    ("message", "advised"),
    [("exceeded quota: leases, limited: 1", False), ("", True)],
    ids=["quota", "right"],
)
@virtual_time
async def test_a_shards_own_lease_that_is_refused_is_an_event_and_advice_is_given_only_if_a_right_is_missing(
    message: str, advised: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        connected = world.connected

        def hinder(process: Process, network: Any) -> None:
            if connected is not None:
                connected(process, network)

            async def before(request: HttpRequest) -> HttpResponse | None:
                if _writes_lease(request):
                    return refusal(403, "Forbidden", message or 'leases is forbidden: User "x" cannot create')
                if advised and "selfsubjectaccessreviews" in request.target:
                    body = b'{"kind":"SelfSubjectAccessReview","status":{"allowed":false}}'
                    return HttpResponse(201, {"content-type": "application/json"}, body)
                return None

            network.before = before

        world.connected = hinder
        world.shard("s0", Touch())
        await asyncio.sleep(WITHIN)
        (line,) = (r for r in caplog.records if r.getMessage().startswith("A request for the Lease failed"))
        assert ("advice" in line.__dict__ or "advice" in line.getMessage()) is advised
        events = [
            e for e in world.objects("events.k8s.io", "events").values() if e["reason"] == "LeaseRefused"
        ]
        assert events
        assert (message or "cannot create") in events[0]["note"]
