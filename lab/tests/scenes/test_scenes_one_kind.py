"""A kind that cannot be read costs its own objects only: shards keep their Leases and work on the other kinds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubeshard.controller import Context, Controller, Reconciler, Result, Watch
from kubeshard.core import ConfigMap, Key, KubeObject, MergePatch, Namespace, ObjectMeta
from kubeshard.core.clusters import HOME_CLUSTER
from kubeshard.manager.unreadable_kinds import START_PATIENCE
from kubeshard.runtime.transport import HttpRequest, HttpResponse, TransportTimeout
from kubeshard.shard.reclaiming import PATIENCE
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard_lab.simulation.cluster import MAIN, SimulatedCluster, Thing, Touch, definition, simulate
from kubeshard_lab.simulation.processes import Process, refusal

pytestmark = pytest.mark.regression

USUAL = 2.0
"""Seconds within which a change is reconciled."""


def a_kind(name: str) -> type[KubeObject]:
    class Kind(KubeObject, group="sim.example", version="v1", plural=f"{name}s", kind=name.title()):
        pass

    return Kind


class Noting(Reconciler[Any]):
    """Remembers the latest version of each object that it has seen, and counts runs."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}
        self.runs = 0

    async def reconcile(self, ctx: Context, obj: KubeObject) -> Result | None:
        self.runs += 1
        self.seen[obj.metadata.name] = obj.metadata.annotation("v")
        return None


async def hanging(request: HttpRequest) -> HttpResponse:
    await asyncio.sleep(request.timeout or 30)
    raise TransportTimeout("no answer in time")


def answering(response: HttpResponse) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
    async def answer(request: HttpRequest) -> HttpResponse:
        return response

    return answer


async def crashing(request: HttpRequest) -> HttpResponse:
    """A bug in what reads the kind."""
    raise ValueError(request.target)


GARBAGE = HttpResponse(200, {"content-type": "text/html"}, b"<html>the proxy is at lunch</html>")

MISBEHAVIOUR = {
    "failing": answering(refusal(500, "InternalError")),
    "unavailable": answering(refusal(503, "ServiceUnavailable")),
    "throttled": answering(refusal(429, "TooManyRequests")),
    "forbidden": answering(refusal(403, "Forbidden")),
    "garbled": answering(GARBAGE),
    "silent": hanging,
    "crashing": crashing,
}
"""How the server responds to every request for the kind of this name."""

KINDS = {name: a_kind(name) for name in MISBEHAVIOUR}
RING = (MAIN, *(RingResource(group="sim.example", resource=f"{name}s") for name in KINDS))


class Scene:
    """A ring of Things and `kinds`. While `broken`, every kind but Thing misbehaves towards the shards."""

    def __init__(self, world: SimulatedCluster, *kinds: str) -> None:
        self.world = world
        self.kinds = kinds
        self.noted = {kind: Noting() for kind in kinds}
        self.broken = False
        world.connected = lambda process, network: setattr(network, "before", self._before)

    async def begin(self) -> None:
        ring = [each for each in RING if each.resource[:-1] in ("thing", *self.kinds)]
        await self.world.install(*(definition(f"{kind}s", kind.title()) for kind in self.kinds))
        await self.world.make_ring(resources=ring)
        self.world.sharder("x0")

    async def _before(self, request: HttpRequest) -> HttpResponse | None:
        for kind in self.kinds if self.broken else ():
            if f"/{kind}s" in request.target:
                return await MISBEHAVIOUR[kind](request)
        return None

    def shard(self, name: str) -> Process:
        controllers = [
            Controller(name=kind, reconciler=noting, primary=Watch(KINDS[kind], sharded=True), workers=2)
            for kind, noting in self.noted.items()
        ]
        return self.world.shard(name, Touch(), controllers=controllers)

    def break_(self) -> None:
        """Breaks the kinds, and cuts their watches, as when a definition changes."""
        self.broken = True
        for process in self.world.processes.values():
            for network in process.networks:
                network.abort()

    async def things_are_reconciled(self, value: int) -> None:
        """Changes every Thing, and waits for the ConfigMaps that the shards write then."""
        world = self.world
        async with world.admin() as client:
            for name in world.owners():
                await client.patch(Thing, name, "team", MergePatch({"spec": {"v": value}}))
        await world.until(
            lambda: {each["data"]["v"] for each in world.objects("", "configmaps").values()} == {str(value)},
            within=USUAL,
        )

    async def make(self, name: str) -> None:
        """One object of each kind."""
        async with self.world.admin() as client:
            for kind in self.kinds:
                await client.create(KINDS[kind](metadata=ObjectMeta(name=name, namespace="team")))

    async def mark(self, name: str, value: str) -> None:
        async with self.world.admin() as client:
            patch = MergePatch({"metadata": {"annotations": {"v": value}}})
            for kind in self.kinds:
                await client.patch(KINDS[kind], name, "team", patch)

    def seen(self, name: str, value: str = "") -> bool:
        """Whether the object of each kind was reconciled with that mark last."""
        return all(noting.seen.get(name) == value for noting in self.noted.values())

    def runs(self) -> dict[str, int]:
        return {kind: noting.runs for kind, noting in self.noted.items()}


def test_kinds_that_cannot_be_read_cost_their_own_objects_only_and_come_back_by_themselves() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            play = Scene(world, *KINDS)
            await play.begin()
            shards = [play.shard("s0"), play.shard("s1")]
            await asyncio.sleep(20)
            await world.make_things(6)
            await play.make("o")
            await world.until(lambda: world.all_owned("s0", "s1") and play.seen("o"), within=60)
            play.break_()
            for value in range(1, 6):
                await asyncio.sleep(40)
                await play.things_are_reconciled(value)
                assert [shard.dead for shard in shards] == ["", ""]
            # No run starts on a view that is not current.
            before = play.runs()
            await play.mark("o", "1")
            await asyncio.sleep(20)
            assert play.runs() == before
            play.broken = False
            await world.until(lambda: play.seen("o", "1"), within=120)
            assert [shard.dead for shard in shards] == ["", ""]

    simulate(scene)


def test_a_shard_starts_without_the_kinds_that_cannot_be_read() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            play = Scene(world, *KINDS)
            await play.begin()
            play.broken = True
            shard = play.shard("s0")
            await world.make_things(3)
            await world.until(lambda: world.all_owned("s0"), within=START_PATIENCE + 15)
            await play.make("o")
            await asyncio.sleep(120)
            await play.things_are_reconciled(1)
            assert not shard.dead
            assert not any(play.runs().values())
            play.broken = False
            await world.until(lambda: play.seen("o"), within=120)

    simulate(scene)


def test_a_drain_is_acknowledged_once_the_kind_can_be_read_again_and_not_before() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            play = Scene(world, "failing")
            await play.begin()
            play.shard("s0")
            await play.make("o")
            await world.until(lambda: play.seen("o"), within=60)
            play.break_()
            await asyncio.sleep(400)  # longer than `handover.KEPT`
            async with world.admin() as client:
                drained = MergePatch({"metadata": {"labels": {drain_label("r"): "true"}}})
                await client.patch(KINDS["failing"], "o", "team", drained)

            def labels() -> dict[str, str]:
                (obj,) = world.objects("sim.example", "failings").values()
                found: dict[str, str] | None = obj["metadata"].get("labels")
                return found or {}

            await asyncio.sleep(60)
            assert (drain_label("r") in labels(), labels()[shard_label("r")]) == (True, "s0")
            play.broken = False
            await world.until(lambda: drain_label("r") not in labels(), within=120)

    simulate(scene)


@pytest.mark.nightly
def test_a_kind_that_fails_is_said_once_with_its_controllers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        async with SimulatedCluster() as world:
            play = Scene(world, "failing")
            await play.begin()
            play.shard("s0")
            await play.make("o")
            await world.until(lambda: play.seen("o"), within=60)
            play.break_()
            await asyncio.sleep(300)
            play.broken = False
            await asyncio.sleep(120)
            events = [
                (each["reason"], each["regarding"]["kind"], each["regarding"]["name"])
                for each in world.objects("events.k8s.io", "events").values()
                if each["metadata"]["namespace"] == "ops"
            ]
            assert events == [("KindUnreadable", "Lease", "s0"), ("KindReadable", "Lease", "s0")]

    simulate(scene)
    cannot, can = "A kind cannot be read; the controllers that need it wait", "A kind can be read again"
    said = [
        (record.msg, record.__dict__["fields"]["controllers"])
        for record in caplog.records
        if record.msg in (cannot, can)
    ]
    assert said == [(cannot, "failing"), (can, "failing")]


async def returning(world: SimulatedCluster) -> tuple[Scene, Process]:
    """A shard that finds objects with its name, and may not write those of a kind: it cannot reclaim them."""
    play = Scene(world, "forbidden")
    await play.begin()
    async with world.admin() as client:
        for kind in (Thing, KINDS["forbidden"]):
            labels = {shard_label("r"): "s0"}
            await client.create(kind(metadata=ObjectMeta(name="o", namespace="team", labels=labels)))

    async def before(request: HttpRequest) -> HttpResponse | None:
        refused = request.method == "PATCH" and "/forbiddens/" in request.target
        return refusal(403, "Forbidden") if refused else None

    world.connected = lambda process, network: setattr(network, "before", before)
    shard = play.shard("s0")
    await world.until(lambda: world.objects("", "configmaps"), within=5)
    assert play.runs() == {"forbidden": 0}
    return play, shard


@pytest.mark.quick
def test_a_kind_that_cannot_be_reclaimed_holds_up_its_own_controller_only() -> None:
    """Late moves of a sharder may take objects from a shard that returns, until the shard has written to them."""

    async def scene() -> None:
        async with SimulatedCluster() as world:
            play, _ = await returning(world)
            assert await world.until(lambda: play.seen("o"), within=PATIENCE + 1) > PATIENCE - 5

    simulate(scene)


@pytest.mark.quick
def test_a_shard_that_is_stopped_while_a_kind_is_reclaimed_ends_at_once_and_releases_its_lease() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            play, shard = await returning(world)
            await asyncio.wait_for(shard.stop(), timeout=2)
            lease = world.objects("coordination.k8s.io", "leases")[Key("ops", "s0")]
            assert not lease["spec"].get("holderIdentity")
            assert play.runs() == {"forbidden": 0}

    simulate(scene)


# -- across clusters


def test_a_controller_that_works_at_home_goes_on_while_the_cluster_of_the_objects_is_down() -> None:
    async def scene() -> None:
        async with SimulatedCluster(apart=True) as world:
            await world.install()
            async with world.admin("home") as home:
                await home.create(Namespace(metadata=ObjectMeta(name="h")))
                await home.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="h")))
            homely = [Noting(), Noting()]
            down = False
            world.connected = lambda process, network: setattr(
                network, "down", down and network.server.endswith("sim")
            )

            def start(number: int) -> Process:
                controller = Controller(
                    name="homely",
                    reconciler=homely[number],
                    primary=ConfigMap,
                    clusters=[HOME_CLUSTER],
                    needs_leadership=False,
                )
                return world.shard(f"s{number}", Touch(), sharding={"mode": "both"}, controllers=[controller])

            first = start(0)
            await world.make_things(3)
            await world.until(lambda: world.all_owned("s0"), within=60)
            down = True
            first.cut_off(cluster="sim")
            late = start(1)
            await asyncio.sleep(START_PATIENCE + 30)
            for value in range(6):
                async with world.admin("home") as home:
                    await home.patch(
                        ConfigMap, "a", "h", MergePatch({"metadata": {"annotations": {"v": str(value)}}})
                    )
                await world.until(
                    lambda value=value: all(each.seen.get("a") == str(value) for each in homely), within=USUAL
                )
                await asyncio.sleep(30)
                assert (first.dead, late.dead) == ("", "")
            down = False
            for process in (first, late):
                process.cut_off(False)
            await world.make_things(6, prefix="new")
            await world.until(lambda: world.all_owned("s0", "s1"), within=120)

    simulate(scene)
