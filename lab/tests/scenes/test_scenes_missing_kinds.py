"""A kind that is missing, or an API server that does not respond, stops only what needs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeshard.controller import Context, Controller, Reconciler, Result
from kubeshard.core import ConfigMap, Key, KubeObject, MergePatch, ObjectMeta
from kubeshard.core.builtin import Lease
from kubeshard.manager import LeaderElection
from kubeshard.runtime.transport import HttpRequest, HttpResponse, HttpStream
from kubeshard.sharding.names import drain_label
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch, definition, simulate
from kubeshard_lab.simulation.processes import Process, refusal

pytestmark = pytest.mark.regression


class Other(KubeObject, group="sim.example", version="v1", plural="others"):
    pass


class Neighbour(KubeObject, group="sim.example", version="v1", plural="neighbours"):
    pass


OTHERS, NEIGHBOURS = definition("others", "Other"), definition("neighbours", "Neighbour")
ELECTION = LeaderElection(name="operator", namespace="ops")


class Noting(Reconciler[Any]):
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.left: list[str] = []

    async def reconcile(self, ctx: Context, obj: KubeObject) -> Result | None:
        self.seen.append(obj.metadata.name)
        return None

    async def gone(self, ctx: Context, key: Key) -> Result | None:
        self.left.append(key.name)
        return None


async def make(world: SimulatedCluster, kind: type[KubeObject], name: str) -> None:
    async with world.admin() as client:
        await client.create(kind(metadata=ObjectMeta(name=name, namespace="team")))


async def drop(world: SimulatedCluster, plural: str) -> None:
    async with world.admin() as client:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.sim.example"
        await client.raw("DELETE", path)


async def holder(world: SimulatedCluster, name: str) -> str:
    async with world.admin() as client:
        return (await client.get(Lease, name, "ops")).spec.holder_identity or ""


def waiting(process: Process) -> dict[tuple[str, str], float]:
    """Returns the metric about kinds that controllers wait for."""
    assert process.manager is not None
    families = process.manager.metrics.registry.collect()
    return {
        (sample.labels["controller"], sample.labels["kind"]): sample.value
        for family in families
        for sample in family.samples
        if sample.name == "kubeshard_controller_waiting" and sample.value
    }


# -- kinds that are not installed


def test_a_kind_that_is_not_installed_stops_its_controller_only_which_starts_when_it_appears() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install(NEIGHBOURS)
            other, neighbour = Noting(), Noting()
            process = world.operator(
                "op",
                Controller(name="other", reconciler=other, primary=Other),
                Controller(name="neighbour", reconciler=neighbour, primary=Neighbour),
                leader_election=ELECTION,
            )
            await make(world, Neighbour, "n")
            await world.until(lambda: neighbour.seen, within=5)
            await asyncio.sleep(200)
            assert not process.dead
            assert waiting(process) == {("other", "Other.v1.sim.example"): 1}
            async with world.admin() as client:
                await client.apply(OTHERS)
            await make(world, Other, "o")
            await world.until(lambda: other.seen, within=11)
            assert waiting(process) == {}

    simulate(scene)


@pytest.mark.quick
def test_a_definition_deleted_for_two_minutes_costs_neighbours_and_leadership_nothing() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install(OTHERS, NEIGHBOURS)
            other, neighbour = Noting(), Noting()
            process = world.operator(
                "op",
                Controller(name="other", reconciler=other, primary=Other),
                Controller(name="neighbour", reconciler=neighbour, primary=Neighbour),
                leader_election=ELECTION,
            )
            await make(world, Other, "old")
            await world.until(lambda: other.seen, within=10)
            leader = await holder(world, "operator")
            await drop(world, "others")
            await asyncio.sleep(120)
            assert waiting(process) == {("other", "Other.v1.sim.example"): 1}
            await make(world, Neighbour, "meanwhile")
            await world.until(lambda: neighbour.seen == ["meanwhile"], within=2)
            async with world.admin() as client:
                await client.apply(OTHERS)
            await make(world, Other, "new")
            await world.until(lambda: "new" in other.seen, within=11)
            assert other.left == ["old"]
            assert not process.dead
            assert await holder(world, "operator") == leader

    simulate(scene)


@pytest.mark.quick
def test_what_came_while_an_owned_kind_was_missing_is_reconciled_when_it_is_back() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install(OTHERS, NEIGHBOURS)
            reconciler = Noting()
            world.operator("op", Controller(name="n", reconciler=reconciler, primary=Neighbour, owns=[Other]))
            await make(world, Neighbour, "before")
            await world.until(lambda: reconciler.seen, within=5)
            await drop(world, "others")
            await asyncio.sleep(60)
            await make(world, Neighbour, "meanwhile")
            await asyncio.sleep(60)
            assert reconciler.seen == ["before"]
            async with world.admin() as client:
                await client.apply(OTHERS)
            await world.until(lambda: reconciler.seen == ["before", "meanwhile"], within=11)

    simulate(scene)


# -- with shards


def test_a_shard_keeps_its_lease_and_acknowledges_drains_while_a_kind_that_it_merely_owns_is_missing() -> (
    None
):
    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install(OTHERS, NEIGHBOURS)
            await world.make_ring()
            world.sharder("x0")
            neighbours = [Noting(), Noting()]
            shards = [
                world.shard(
                    f"s{number}",
                    Touch(),
                    owns=(ConfigMap, Other),
                    controllers=[
                        Controller(
                            name="neighbour", reconciler=noting, primary=Neighbour, needs_leadership=False
                        )
                    ],
                )
                for number, noting in enumerate(neighbours)
            ]
            await world.make_things(10)
            await world.until(lambda: world.all_owned("s0", "s1"), within=30)
            await drop(world, "others")
            await asyncio.sleep(200)
            assert [shard.dead for shard in shards] == ["", ""]
            assert waiting(shards[0]) == {("thing", "Other.v1.sim.example"): 1}
            await make(world, Neighbour, "meanwhile")
            await world.until(lambda: all(noting.seen for noting in neighbours), within=2)
            name = next(iter(world.owners()))
            async with world.admin() as client:
                drained = MergePatch({"metadata": {"labels": {drain_label("r"): "true"}}})
                await client.patch(Thing, name, "team", drained)
            await world.until(lambda: not world.draining(), within=5)
            await world.until(lambda: world.all_owned("s0", "s1"), within=30)
            assert [shard.dead for shard in shards] == ["", ""]

    simulate(scene)


@pytest.mark.nightly
def test_a_shard_starts_and_keeps_its_lease_though_a_main_kind_is_not_installed() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install()
            await world.make_ring()
            world.sharder("x0")
            shard = world.shard("s0", touch := Touch())
            await world.make_things(3)
            await world.until(lambda: world.all_owned("s0") and touch.runs >= 3, within=30)
            await drop(world, "things")
            await asyncio.sleep(200)
            assert not shard.dead
            late = world.shard("s1", Touch())
            await asyncio.sleep(60)
            assert await holder(world, "s1") == "s1"
            async with world.admin() as client:
                await client.apply(definition())
            await asyncio.sleep(11)
            await world.make_things(6, prefix="new")
            await world.until(lambda: world.all_owned("s0", "s1"), within=30)
            assert (shard.dead, late.dead) == ("", "")

    simulate(scene)


class _Muted:
    """A stream that delivers nothing once `mute` is set, so its reader hangs."""

    def __init__(self, stream: HttpStream, mute: asyncio.Event) -> None:
        self.status, self.headers = stream.status, stream.headers
        self._stream, self._mute = stream, mute

    async def read(self) -> bytes:
        return await self._stream.read()

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream.chunks():
            if self._mute.is_set():
                await asyncio.get_running_loop().create_future()
            yield chunk


def test_a_shard_that_hears_nothing_of_any_kind_that_it_reconciles_loses_its_lease() -> None:
    """Not one that hears of another kind: then the cause is the kind, others would not hear more, and the ring would
    stop (`test_scenes_one_kind`).
    """

    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install()
            await world.make_ring()
            world.sharder("x0")
            mute = asyncio.Event()
            deaf, _ = world.shard("s0", Touch()), world.shard("s1", Touch())
            for network in deaf.networks:
                network.through = lambda request, stream: _Muted(
                    stream, mute if "/things" in request.target else asyncio.Event()
                )
            await world.make_things(6)
            await world.until(lambda: world.all_owned("s0", "s1"), within=30)
            mute.set()
            await world.until(lambda: deaf.dead, within=120)
            await world.until(lambda: world.all_owned("s1"), within=60)

    simulate(scene)


@pytest.mark.quick
def test_workers_are_said_to_start_when_their_kinds_are_there(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def started() -> list[str]:
        return [
            record.__dict__["fields"]["controller"]
            for record in caplog.records
            if record.msg == "Starting workers"
        ]

    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install(NEIGHBOURS)
            world.operator(
                "op",
                Controller(name="other", reconciler=Noting(), primary=Other),
                Controller(name="neighbour", reconciler=Noting(), primary=Neighbour),
            )
            await world.until(lambda: started() == ["neighbour"], within=5)
            await asyncio.sleep(60)
            assert started() == ["neighbour"]
            async with world.admin() as client:
                await client.apply(OTHERS)
            await asyncio.sleep(60)
            assert started() == ["neighbour", "other"]

    simulate(scene)


# -- credentials


@pytest.mark.quick
@pytest.mark.parametrize("sharded", [False, True])
def test_credentials_that_are_refused_at_the_start_end_the_process_at_once(sharded: bool) -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install(NEIGHBOURS)
            await world.make_ring()
            controllers = [Controller(name="neighbour", reconciler=Noting(), primary=Neighbour)]
            process = world.shard("s0", Touch()) if sharded else world.operator("op", *controllers)

            async def refuse(request: HttpRequest) -> HttpResponse | None:
                return refusal(401, "Unauthorized")

            for network in process.networks:
                network.before = refuse
            await world.until(lambda: process.dead, within=5)
            assert "Unauthorized" in process.dead

    simulate(scene)


def test_credentials_that_are_refused_later_are_waited_for() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install(NEIGHBOURS)
            reconciler = Noting()
            process = world.operator(
                "op", Controller(name="neighbour", reconciler=reconciler, primary=Neighbour)
            )
            await make(world, Neighbour, "before")
            await world.until(lambda: reconciler.seen, within=5)

            async def refuse(request: HttpRequest) -> HttpResponse | None:
                return refusal(401, "Unauthorized")

            process.networks[0].before = refuse
            await asyncio.sleep(600)
            assert not process.dead
            process.networks[0].before = None
            await make(world, Neighbour, "after")
            await world.until(lambda: "after" in reconciler.seen, within=90)

    simulate(scene)


# -- missing rights


def test_a_forbidden_kind_is_waited_for_with_the_rule_to_grant_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install(OTHERS, NEIGHBOURS)
            other, neighbour = Noting(), Noting()
            process = world.operator(
                "op",
                Controller(name="other", reconciler=other, primary=Other),
                Controller(name="neighbour", reconciler=neighbour, primary=Neighbour),
                leader_election=ELECTION,
            )

            async def refuse(request: HttpRequest) -> HttpResponse | None:
                return refusal(403, "Forbidden") if "/others" in request.target else None

            process.networks[0].before = refuse
            await make(world, Neighbour, "n")
            await make(world, Other, "o")
            await world.until(lambda: neighbour.seen, within=40)
            await asyncio.sleep(600)
            assert other.seen == []
            process.networks[0].before = None
            await world.until(lambda: other.seen, within=90)
            assert not process.dead

    simulate(scene)
    lines = [
        record
        for record in caplog.records
        if record.msg == "A kind cannot be read; the controllers that need it wait"
    ]
    assert len(lines) == 1
    fields: dict[str, Any] = lines[0].__dict__["fields"]
    assert (fields["kind"], fields["controllers"]) == ("Other.v1.sim.example", "other")
    assert "apiGroups: ['sim.example'], resources: ['others'], verbs: [list, watch]" in fields["advice"]


def test_a_right_to_watch_that_is_missing_is_said_once_and_not_taken_back_because_lists_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    def said(message: str) -> int:
        records = [
            record
            for record in caplog.records
            if record.msg == message and "Other" in str(record.__dict__["fields"])
        ]
        return len(records)

    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install(OTHERS)
            other = Noting()
            process = world.operator(
                "op", Controller(name="other", reconciler=other, primary=Other), leader_election=ELECTION
            )

            async def refuse(request: HttpRequest) -> HttpResponse | None:
                watched = "/others" in request.target and "watch=" in request.target
                return refusal(403, "Forbidden") if watched else None

            process.networks[0].before = refuse
            await make(world, Other, "o")
            await asyncio.sleep(600)
            assert said("A kind cannot be read; the controllers that need it wait") == 1
            assert said("A kind can be read again") == 0
            assert said("List or watch failed") <= 2
            process.networks[0].before = None
            await world.until(lambda: said("A kind can be read again") == 1, within=60)
            assert other.seen
            assert not process.dead

    simulate(scene)


@pytest.mark.quick
def test_a_kind_about_which_the_server_says_nothing_does_not_keep_the_others_waiting_for_long() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install(OTHERS, NEIGHBOURS)
            other, neighbour = Noting(), Noting()
            process = world.operator(
                "op",
                Controller(name="other", reconciler=other, primary=Other),
                Controller(name="neighbour", reconciler=neighbour, primary=Neighbour),
                leader_election=ELECTION,
            )

            async def hang(request: HttpRequest) -> HttpResponse | None:
                if "/others" in request.target:
                    await asyncio.get_running_loop().create_future()
                return None

            process.networks[0].before = hang
            await make(world, Neighbour, "n")
            await world.until(lambda: neighbour.seen, within=40)
            assert waiting(process) == {("other", "Other.v1.sim.example"): 1}

    simulate(scene)


@pytest.mark.nightly
def test_a_shard_that_may_not_read_its_main_kind_asks_for_no_lease_and_so_for_no_objects() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install()
            await world.make_ring()
            world.sharder("x0")
            blind = world.shard("s0", Touch())

            async def refuse(request: HttpRequest) -> HttpResponse | None:
                return refusal(403, "Forbidden") if "/things" in request.target else None

            for network in blind.networks:
                network.before = refuse
            world.shard("s1", Touch())
            await world.make_things(6)
            await world.until(lambda: world.all_owned("s1"), within=30)
            await asyncio.sleep(300)
            assert world.all_owned("s1")
            assert not blind.dead
            for network in blind.networks:
                network.before = None
            await world.until(lambda: "s0" in world.owners().values(), within=120)

    simulate(scene)


# -- outages


@pytest.mark.nightly
def test_an_outage_of_ten_minutes_restarts_nobody_who_need_not_and_who_starts_in_it_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install(NEIGHBOURS)
            await world.make_ring()
            reconciler = Noting()
            operator = world.operator(
                "op", Controller(name="neighbour", reconciler=reconciler, primary=Neighbour)
            )
            await world.make_things(3)
            await make(world, Neighbour, "before")
            await world.until(lambda: reconciler.seen, within=10)
            operator.cut_off()
            await asyncio.sleep(30)
            late = [world.sharder("x0"), world.shard("s0", Touch())]
            late.append(
                world.operator(
                    "op2",
                    Controller(name="neighbour", reconciler=Noting(), primary=Neighbour),
                    leader_election=ELECTION,
                )
            )
            for process in late:
                process.cut_off()
            await asyncio.sleep(600)
            assert operator.manager is not None
            assert operator.manager._process.health.unfit() is None
            assert [process.dead for process in (operator, *late)] == [""] * 4
            for process in (operator, *late):
                process.cut_off(False)
            await make(world, Neighbour, "after")
            await world.until(lambda: "after" in reconciler.seen, within=90)
            await world.until(lambda: world.all_owned("s0"), within=120)
            assert await holder(world, "operator")

    simulate(scene)
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    outages = [record for record in lines if record.msg == "The API server does not respond; waiting for it"]
    assert len(outages) == 3  # a process that waits for its ring words it differently
    assert "certificate authority" in outages[0].__dict__["fields"]["advice"]
    assert len(lines) < 30, [record.msg for record in lines]  # four processes, eight informers, ten minutes
