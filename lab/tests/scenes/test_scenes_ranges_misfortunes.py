"""A ring that is sharded by ranges when several things go wrong at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Literal

import msgspec
import pytest
from test_scenes_outages import slow_lease_writes
from test_scenes_range_coordinator import NAME, Operators, leader, working
from test_scenes_ranges import Part, Work, meta_of
from test_scenes_ranges import working as coordinated

from kubeshard.controller import Context, Controller, Reconciler, Result, Watch
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.core.builtin import Lease
from kubeshard.core.objects import Key
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.shard.settings import Ranges, SharderSettings
from kubeshard.shard.sharding import Sharding
from kubeshard.sharding.coordinator import REWRITE
from kubeshard.sharding.names import WEIGHT_ANNOTATION
from kubeshard_apiserver.front.memory import InMemoryTransport
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, definition, simulate
from kubeshard_lab.simulation.faults.injection import Conditions
from kubeshard_lab.simulation.processes import Before, Network, Process, refusal


def test_a_shard_that_stops_while_it_lists_new_buckets_is_succeeded_at_once() -> None:
    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            s2 = fleet.start("s2")

            async def never(request: HttpRequest) -> HttpResponse | None:
                if request.method == "GET" and "shardSelector" in request.target:
                    await asyncio.sleep(1000)
                return None

            for network in s2.networks:
                network.before = never
            await fleet.world.until(
                lambda: fleet.assignment is not None and fleet.assignment.owned_by("s2"), 10
            )
            await asyncio.sleep(1)
            await s2.stop()
            took = await fleet.until_settled("s0", "s1")
            assert took < 5

    simulate(scene)


def test_no_instance_ends_and_no_bucket_moves_while_each_write_of_a_lease_takes_four_seconds() -> None:
    async def scene() -> None:
        async with working("s0", "s1", "s2") as fleet:
            before, led, started = fleet.assignment, leader(fleet), fleet.world.loop.time()
            slow_lease_writes(fleet.world, 4.0)
            while fleet.world.loop.time() < started + 300:
                await asyncio.sleep(1)
                assert not [process for process in fleet.world.processes.values() if process.dead]
            assert (fleet.assignment, leader(fleet)) == (before, led)
            await fleet.world.make_things(20, prefix="new")
            await fleet.until_settled("s0", "s1", "s2")

    simulate(scene)


def test_an_instance_joins_while_each_write_of_a_lease_takes_four_seconds() -> None:
    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            slow_lease_writes(fleet.world, 4.0)
            fleet.start("s2")
            assert await fleet.until_settled("s0", "s1", "s2") < 30

    simulate(scene)


def test_a_program_that_keeps_editing_the_assignment_is_told_of_and_not_fought(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It writes the former owner back, at the former epoch, each second for three minutes."""

    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            assert fleet.assignment is not None
            last, before = fleet.assignment.groups[-1], fleet.writes[NAME]
            former = {fleet.assignment.buckets.key(last.run): str(last.place._replace(owner="s9"))}
            for _ in range(180):
                await fleet.write(former)
                await asyncio.sleep(1)
            assert 6 <= fleet.writes[NAME] - before <= 3 + 180 / REWRITE
            await fleet.until_settled("s0", "s1")

    simulate(scene)
    told = [r.getMessage() for r in caplog.records if "The ring has a problem" in r.getMessage()]
    assert len(told) < 10
    assert "somebody else keeps changing the assignment" in told[-1]


def test_an_immutable_assignment_costs_few_requests(caplog: pytest.LogCaptureFixture) -> None:
    requests = Counter[str]()

    def see(process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        if NAME in request.target:
            requests[process.name] += 1

    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            async with fleet.world.admin("home") as client:
                await client.patch(ConfigMap, NAME, "ops", MergePatch({"immutable": True}))
            fleet.world.observers.append(see)
            fleet.world.processes["s1"].kill()
            fleet.start("s1", process="again")
            await asyncio.sleep(60)
            assert 0 < requests["again"] < 150
            async with fleet.world.admin("home") as client:
                await client.delete(ConfigMap, NAME, "ops")
            await fleet.until_settled("s0", "s1")

    simulate(scene)


def test_a_shard_does_not_begin_with_what_it_was_given_and_has_lost_before_it_heard_of_either() -> None:
    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            conditions, heard = Conditions(fleet.world, seed=1), Once()
            conditions.quiet.append(("late", follows_as_s2, heard))
            fleet.start("s2")
            await fleet.world.until(
                lambda: fleet.assignment is not None and fleet.assignment.owned_by("s2"), 10
            )
            async with fleet.world.admin("home") as client:
                light = MergePatch({"metadata": {"annotations": {WEIGHT_ANNOTATION: "0"}}})
                await client.patch(Lease, "s2", "ops", light)
            heard.set()
            await asyncio.sleep(1)
            assert fleet.assignment is not None
            epoch = fleet.assignment.epoch + 1
            groups = [group for group in fleet.assignment.groups if group.place.owner == "s2"]
            await fleet.write({fleet.assignment.buckets.key(run): f"s1@{epoch}" for run, _ in groups})
            await asyncio.sleep(2)
            fleet.ran.clear()
            heard.set()
            await asyncio.sleep(5)
            assert "s2" not in fleet.ran.values()

    simulate(scene)


class Once(asyncio.Event):
    """Lets one through each time that it is set."""

    async def wait(self) -> Literal[True]:
        await super().wait()
        self.clear()
        return True


def follows_as_s2(process: Process, request: HttpRequest) -> bool:
    return process.name == "s2" and "/namespaces/ops/configmaps?" in request.target


def test_a_shard_that_begins_again_does_not_believe_a_restored_assignment_that_names_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        async with working("s0", "s1", "s2") as fleet:
            assert fleet.assignment is not None
            former = fleet.assignment.data()
            fleet.world.processes["s2"].kill()
            await fleet.until_settled("s0", "s1")
            assert fleet.assignment is not None
            gone = dict.fromkeys(fleet.assignment.data().keys() - former.keys())
            await fleet.write({**gone, **former})
            fleet.start("s2", process="again")
            await fleet.until_settled("s0", "s1", "s2")

    simulate(scene)
    assert "Cannot believe what the assignment says" in caplog.text


class Stubborn(Work):
    """Its runs swallow that they are cancelled."""

    async def reconcile(self, ctx: Context, obj: Thing) -> None:
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1000)


def test_a_drain_that_waits_for_runs_that_do_not_end_is_told_with_their_objects(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        ranges = Ranges(buckets=64, drain_timeout=10)
        async with coordinated(ranges=ranges, shards=("s0",)) as fleet:
            await fleet.world.processes["s0"].stop()
            fleet.world.shard(
                "s1",
                Stubborn(fleet, "s1", 0),
                workers=200,
                sharding={"mode": "shard", "delivery": ranges},
            )
            await asyncio.sleep(20)
            fleet.start("s2")
            await asyncio.sleep(60)

    simulate(scene)
    (told,) = [r.getMessage() for r in caplog.records if "Cannot hand over buckets" in r.getMessage()]
    assert "team/t" in told
    assert "more" in told


def test_a_shard_whose_runs_do_not_end_is_evicted_after_the_ring_s_drain_timeout_and_what_it_had_goes_on() -> (
    None
):
    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world:
            fleet = Operators(world, Ranges(buckets=64, drain_timeout=10))
            evicting = {
                "mode": "both",
                "delivery": fleet.ranges,
                "sharder": SharderSettings(drain_timeout=60),
            }
            await world.install()
            await world.make_things(50)
            world.shard("s0", Stubborn(fleet, "s0", 0), workers=200, owns=(), sharding=evicting)
            await asyncio.sleep(20)
            world.shard("s1", Work(fleet, "s1", 0), workers=20, owns=(), sharding=evicting)
            await asyncio.sleep(60)
            assert not fleet.settled("s1")
            await fleet.until_settled("s1", within=60)
            assert world.processes["s0"].dead

    simulate(scene)


class OneLong(Work):
    """The runs of one object, of `s1`, take three minutes."""

    long = ""

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        self._seconds = 180 if obj.metadata.name == self.long else 0.05
        return await super().reconcile(ctx, obj)


def start_long(fleet: Operators, name: str, process: str = "") -> OneLong:
    work = OneLong(fleet, name, 0)
    sharding = {"mode": "both", "delivery": fleet.ranges}
    fleet.world.shard(
        name, work, workers=20, owns=(), sharding=sharding, process=process, graceful_timeout=600
    )
    return work


@pytest.mark.parametrize("killed", [False, True], ids=["ends", "killed"])
def test_what_nothing_works_on_any_more_does_not_wait_for_the_last_run_of_a_shard_that_stops(
    killed: bool,
) -> None:
    """The run has its whole grace period; and whoever comes next under the name has a share again."""

    async def scene() -> None:
        async with working("s0") as fleet:
            work = start_long(fleet, "s1")
            await fleet.until_settled("s0", "s1")
            world, buckets = fleet.world, fleet.ranges.divided
            things = world.objects("sim.example", "things")
            of = {key.name: buckets.of(meta_of(thing)) for key, thing in things.items()}
            assert fleet.assignment is not None
            work.long = next(name for name, bucket in of.items() if bucket in fleet.assignment.owned_by("s1"))
            others = {Key("team", name) for name, bucket in of.items() if bucket != of[work.long]}
            async with world.admin() as client:
                await client.patch(Thing, work.long, "team", MergePatch({"spec": {"v": 1}}))
                await asyncio.sleep(1)
                world.processes["s1"].terminate()
                await asyncio.sleep(8)
                assert fleet.assignment.owned_by("s1") == {of[work.long]}
                await asyncio.sleep(0.5)
                assert {fleet.ran[key] for key in others} == {"s0"}
            if killed:
                world.processes["s1"].kill()
            await world.until(lambda: world.processes["s1"].dead, within=200)
            await fleet.until_settled("s0", within=60)
            assert fleet.cancelled["s1"] == 0
            start_long(fleet, "s1", process="next")
            await fleet.until_settled("s0", "s1")

    simulate(scene)


def test_the_last_shard_keeps_everything_while_it_stops() -> None:
    async def scene() -> None:
        async with working("s0") as fleet:
            await fleet.world.processes["s0"].stop()
            work = start_long(fleet, "s1")
            await fleet.until_settled("s1")
            work.long, before = "t0", fleet.writes[NAME]
            async with fleet.world.admin() as client:
                await client.patch(Thing, "t0", "team", MergePatch({"spec": {"v": 1}}))
            await asyncio.sleep(1)
            await fleet.world.processes["s1"].stop()
            assert fleet.cancelled["s1"] == 0
            assert fleet.writes[NAME] == before

    simulate(scene)


def unready(process: Process) -> str:
    """The readiness check of its share; "" if it passes."""
    assert process.manager is not None
    return process.manager._process.pages._readyz._checks["sharding"]() or ""


async def gets_nothing_while(fleet: Operators, refuse: Before, why: str) -> None:
    """A shard whose requests are refused starts in the ring of s0 and s1. Then it gets its share."""
    before = fleet.writes[NAME]
    process = fleet.start("s2")
    for network in process.networks:
        network.before = refuse
    await asyncio.sleep(30)
    assert fleet.settled("s0", "s1")
    assert fleet.writes[NAME] == before
    assert why in unready(process)
    for network in process.networks:
        network.before = None
    await fleet.until_settled("s0", "s1", "s2")
    assert not unready(process)


def test_a_program_that_divides_objects_differently_gets_nothing_and_its_rollout_stops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            sharding = {"mode": "both", "delivery": Ranges(buckets=32)}
            fleet.world.shard("s2", Work(fleet, "s2", 0), workers=20, owns=(), sharding=sharding)
            await asyncio.sleep(20)
            assert fleet.settled("s0", "s1")
            assert "divides objects by uid/32" in unready(fleet.world.processes["s2"])

    simulate(scene)
    assert "s2 gets nothing: its program divides objects by uid/32, and the ring by uid/64" in caplog.text


def test_a_shard_that_may_not_read_the_assignment_gets_nothing_and_tells_it_and_its_rollout_stops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def refuse(request: HttpRequest) -> HttpResponse | None:
        return refusal(403, "Forbidden") if NAME in request.target else None

    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            await gets_nothing_while(fleet, refuse, "cannot read the ConfigMap")

    simulate(scene)
    assert "Cannot read what this shard owns" in caplog.text


@pytest.mark.parametrize(
    ("verb", "what"),
    [("list", "leases"), *((verb, f"configmaps {NAME}") for verb in ("list", "watch", "patch"))],
)
def test_a_shard_that_may_not_follow_the_assignment_or_hand_over_gets_nothing_and_its_rollout_stops(
    verb: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What it got would be nobody else's while it lives."""

    async def refuse(request: HttpRequest) -> HttpResponse | None:
        if "selfsubjectaccessreviews" not in request.target:
            return None
        attributes = msgspec.json.decode(request.body or b"")["spec"]["resourceAttributes"]
        asked = f"{attributes['resource']} {attributes.get('name', '')}".strip()
        if (attributes["verb"], asked, attributes["namespace"]) != (verb, what, "ops"):
            return None
        denied = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "status": {}}
        return HttpResponse(201, {"content-type": "application/json"}, msgspec.json.encode(denied))

    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            await gets_nothing_while(fleet, refuse, f"may not {verb} {what}")

    simulate(scene)
    assert "This shard gets nothing of the ring, and is not ready" in caplog.text


@pytest.mark.parametrize("kind", ["/things?", "/api/v1/configmaps?"], ids=["main", "controlled"])
def test_a_shard_that_may_not_list_a_kind_is_given_nothing_until_it_may(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a version with one more kind is rolled out without the right to read it."""

    async def forbid(request: HttpRequest) -> HttpResponse | None:
        return refusal(403, "Forbidden") if request.method == "GET" and kind in request.target else None

    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            before, process = fleet.writes[NAME], fleet.start("s2")
            for network in process.networks:
                network.before = forbid
            await asyncio.sleep(60)
            assert fleet.settled("s0", "s1")
            assert fleet.writes[NAME] == before
            for network in process.networks:
                network.before = None
            await fleet.until_settled("s0", "s1", "s2")

    simulate(scene)
    assert "cause=forbidden" in caplog.text


def test_shards_whose_leases_are_stripped_by_admission_are_given_nothing_and_say_why(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_of = InMemoryTransport.request

    async def admitted(transport: InMemoryTransport, request: HttpRequest) -> HttpResponse:
        if request.body and request.method in ("POST", "PUT") and "/leases" in request.target:
            lease = msgspec.json.decode(request.body)
            lease["metadata"].pop("annotations", None)
            request = request._replace(body=msgspec.json.encode(lease))
        return await request_of(transport, request)

    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            with monkeypatch.context() as patched:
                patched.setattr(InMemoryTransport, "request", admitted)
                fleet.start("s2")
                await asyncio.sleep(30)
                assert fleet.assignment is not None
                assert fleet.assignment.shards == {"s0", "s1"}
            await fleet.until_settled("s0", "s1", "s2")

    simulate(scene)
    (told,) = [r for r in caplog.records if "lacks what this shard has written" in r.getMessage()]
    assert "owned-ranges" in told.getMessage()


def is_take_over(request: HttpRequest) -> bool:
    return request.method == "PUT" and "/leases/s" in request.target


def is_proof(request: HttpRequest) -> bool:
    return "/leases?" in request.target and "fieldSelector=metadata.name" in request.target


def is_change(request: HttpRequest) -> bool:
    return request.method == "PATCH" and NAME in request.target


def refuse(process: Process, what: Callable[[HttpRequest], bool]) -> None:
    """Its sharder lacks a right, and its shard has it."""

    async def before(request: HttpRequest) -> HttpResponse | None:
        by_sharder = request.headers.get("User-Agent", "").endswith("/sharder")
        return refusal(403, "Forbidden", "it lacks a right") if by_sharder and what(request) else None

    for network in process.networks:
        network.before = before


UNABLE = "cannot do all of a sharder's work"


@pytest.mark.parametrize("what", [is_change, is_take_over, is_proof])
def test_what_a_dead_shard_had_goes_on_although_the_elected_instance_lacks_a_right(
    what: Callable[[HttpRequest], bool], caplog: pytest.LogCaptureFixture
) -> None:
    """Another one becomes the sharder, and stays it. What the first one works on goes on."""

    async def scene() -> None:
        async with working("s0", "s1", "s2") as fleet:
            unable, dead = leader(fleet), next(name for name in ("s0", "s1") if name != leader(fleet))
            able = next(name for name in ("s0", "s1", "s2") if name not in (unable, dead))
            refuse(fleet.world.processes[unable], what)
            fleet.world.processes[dead].kill()
            await fleet.until_settled(unable, able, within=90)
            assert leader(fleet) == able
            await asyncio.sleep(300)
            assert leader(fleet) == able
            assert fleet.settled(unable, able)

    simulate(scene)
    assert sum(UNABLE in record.getMessage() for record in caplog.records) == 1


def test_an_instance_that_divides_objects_differently_leaves_the_coordination_to_others() -> None:
    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            sharding = {"mode": "both", "delivery": Ranges(buckets=32)}
            fleet.world.shard("s2", Work(fleet, "s2", 0), workers=20, owns=(), sharding=sharding)
            await asyncio.sleep(20)
            for name in ("s0", "s1"):  # until s2 is elected
                await fleet.world.processes[name].stop()
                await asyncio.sleep(5)
                fleet.start(name)
                await asyncio.sleep(5)
            await fleet.world.until(lambda: leader(fleet) != "s2", within=30)
            await fleet.until_settled("s0", "s1")
            fleet.world.processes[leader(fleet)].kill()
            await fleet.until_settled(*({"s0", "s1"} - {leader(fleet)}), within=60)

    simulate(scene)


def test_an_instance_that_lacks_a_right_and_is_alone_goes_on_trying_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    terms = list[float]()

    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            alone = leader(fleet)
            process, other = fleet.world.processes[alone], next(n for n in ("s0", "s1") if n != alone)
            refuse(process, is_change)
            fleet.world.processes[other].kill()
            led = True
            for second in range(1200):
                await asyncio.sleep(1)
                if led != (led := leader(fleet) == alone):
                    terms.append(second)
            for network in process.networks:
                network.before = None
            await fleet.until_settled(alone, within=20)

    simulate(scene)
    assert 6 <= len(terms) <= 16
    told = [record.getMessage() for record in caplog.records if record.name == "kubeshard.sharder"]
    assert sum(UNABLE in each for each in told) == 1
    assert sum("it lacks a right" in each for each in told) == 2
    assert sum("is resolved" in each for each in told) <= 1


class Parts(Reconciler[Part]):
    """What another program does, or the next version besides."""

    def __init__(self) -> None:
        self.ran: set[str] = set()

    def controller(self) -> Controller[Part]:
        return Controller(name="part", reconciler=self, primary=Watch(Part, sharded=True))

    async def reconcile(self, ctx: Context, obj: Part) -> None:
        self.ran.add(obj.metadata.name)


async def make_parts(fleet: Operators) -> None:
    async with fleet.world.admin() as client:
        await client.apply(definition("parts", "Part"))
        for number in range(50):
            await client.create(Part(metadata=ObjectMeta(name=f"p{number}", namespace="team")))


def test_a_program_with_other_kinds_that_has_the_ring_of_another_one_gets_nothing_and_both_say_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """When the other one has been removed, it begins."""

    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            await make_parts(fleet)
            parts, before = Parts(), fleet.writes[NAME]
            sharding = Sharding("r", "a0", "ops", mode="both", delivery=fleet.ranges)
            fleet.world.operator("a0", parts.controller(), sharding=sharding)
            await asyncio.sleep(60)
            assert fleet.settled("s0", "s1")
            assert (fleet.writes[NAME], parts.ran) == (before, set())
            for name in "s0", "s1":  # the stranger is elected in between
                await fleet.world.processes[name].stop()
                await fleet.world.until(lambda name=name: not fleet.shares.get(name), 10)
                fleet.start(name)
                await fleet.until_settled("s0", "s1")
            for name in "s0", "s1":
                await fleet.world.processes[name].stop()
            await fleet.world.until(lambda: len(parts.ran) == 50, within=30)

    simulate(scene)
    told = " ".join(record.getMessage() for record in caplog.records)
    assert "a0 gets nothing: its program works on parts.sim.example" in told
    assert "All other shards of the ring work on other kinds" in told


def test_a_version_with_one_more_kind_is_rolled_out_and_back() -> None:
    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            await make_parts(fleet)
            parts = Parts()
            for name in "s0", "s1":
                await fleet.world.processes[name].stop()
                fleet.start(name, process=f"{name}-new", controllers=[parts.controller()])
                await fleet.until_settled("s0", "s1")
            await fleet.world.until(lambda: len(parts.ran) == 50, within=10)
            for name in "s0", "s1":
                await fleet.world.processes[f"{name}-new"].stop()
                fleet.start(name)
                await fleet.until_settled("s0", "s1")

    simulate(scene)


class Changing:
    """Instances of a ring that is sharded by labels, and those of the same names by ranges; and a user who changes all
    objects each second.
    """

    def __init__(self, world: SimulatedCluster) -> None:
        self.world = world
        self.fleet = Operators(world, Ranges(buckets=64))

    def labels(self, name: str, mode: str = "both") -> None:
        work = Work(self.fleet, name, 0.05, process := f"labels-{name}")
        self.world.shard(name, work, workers=20, owns=(), sharding={"mode": mode}, process=process)

    async def stop(self, name: str) -> None:
        await self.world.processes[name].stop()

    async def change(self, seconds: int) -> None:
        async with self.world.admin() as client:
            for number in range(seconds):
                await asyncio.sleep(1)
                for thing in await client.list_all(Thing, "team"):
                    patch = MergePatch({"spec": {"v": number}})
                    await client.patch(Thing, thing.metadata.name, "team", patch)

    async def by_labels(self, *shards: str) -> float:
        """Until these have run everything that has been there since."""
        self.fleet.ran.clear()
        things = self.world.objects("sim.example", "things")
        changes = asyncio.create_task(self.change(60))
        try:
            return await self.world.until(
                lambda: (
                    self.fleet.ran.keys() == things.keys() and set(self.fleet.ran.values()) == set(shards)
                ),
                60,
            )
        finally:
            changes.cancel()


@asynccontextmanager
async def changing() -> AsyncIterator[Changing]:
    async with SimulatedCluster(seed=1) as world:
        await world.install()
        await world.make_things(50)
        yield (scene := Changing(world))
        assert scene.fleet.together == []


def test_a_ring_goes_from_labels_to_ranges_and_back_while_it_runs_under_the_same_names() -> None:
    """One instance after the other. The last of the former kind has everything in the end, and what remains says so
    when the next change begins with an instance of its name.
    """

    async def scene() -> None:
        async with changing() as ring:
            fleet, names = ring.fleet, ("s0", "s1", "s2")
            for name in names:
                ring.labels(name)
            await ring.by_labels(*names)
            changes = asyncio.create_task(ring.change(1000))
            for _ in range(2):
                for name in reversed(names):
                    await ring.stop(f"labels-{name}")
                    fleet.start(name)
                    await asyncio.sleep(5)
                assert await fleet.until_settled(*names) < 15
                for name in names:
                    await ring.stop(name)
                    ring.labels(name)
                    await asyncio.sleep(5)
                assert await ring.by_labels(*names) < 15
            changes.cancel()

    simulate(scene)


def test_nothing_is_shared_out_by_ranges_while_a_shard_by_labels_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world:
            fleet = Operators(world, Ranges(buckets=64))
            await world.install()
            await world.make_things(50)
            for name, mode in ("s0", "both"), ("s1", "shard"):  # so s2 succeeds s0 as the sharder
                world.shard(name, Work(fleet, name, 0.05), workers=20, owns=(), sharding={"mode": mode})
                await world.until(lambda name=name: name in fleet.ran.values(), within=60)
            fleet.start("s2")
            await asyncio.sleep(10)
            await world.processes["s0"].stop()
            async with world.admin() as client:
                for number in range(50):
                    await asyncio.sleep(1)
                    for thing in await client.list_all(Thing, "team"):
                        await client.patch(
                            Thing, thing.metadata.name, "team", MergePatch({"spec": {"v": number}})
                        )
            assert fleet.together == []
            await world.processes["s1"].stop()
            assert await fleet.until_settled("s2") < 10

    simulate(scene)
    assert "those that take objects by labels have ended: s1" in caplog.text


def test_a_leader_that_is_elected_just_after_its_ring_has_appeared_gives_nothing_beside_a_shard_by_labels() -> (
    None
):
    """All Leases were listed before it knew the ring, and the watch shows them after that."""

    async def scene() -> None:
        async with working("s0") as fleet:
            world = fleet.world
            await world.processes["s0"].stop()
            world.shard("l0", Work(fleet, "l0", 0.05), owns=(), sharding={"mode": "shard"})
            await world.until(lambda: world.processes["l0"].armed, 10)

            def connected(_: Process, network: Network) -> None:
                async def late(request: HttpRequest) -> HttpResponse | None:
                    if "/controllerrings" in request.target:
                        await asyncio.sleep(0.1)
                    if "/leases?watch" in request.target:
                        await asyncio.sleep(0.8)
                    return None

                network.before = late

            world.connected = connected
            fleet.start("s1")
            await asyncio.sleep(10)
            assert leader(fleet) == "s1"
            assert fleet.shares == {"s0": 64}
            await world.processes["l0"].stop()
            assert await fleet.until_settled("s1") < 5

    simulate(scene)


@pytest.mark.parametrize("former", ["labels", "ranges"])
def test_who_waits_for_the_end_of_the_other_delivery_does_not_take_a_deleted_lease_for_it(
    former: str,
) -> None:
    """The shard that works cannot write it anew at once."""

    async def scene() -> None:
        async with changing() as ring:
            world, fleet = ring.world, ring.fleet
            fleet.start("s1")
            await fleet.until_settled("s1")
            await ring.stop("s1")
            ring.labels("s1")
            await ring.by_labels("s1")
            await ring.stop("labels-s1")  # labels and assignment name it, so it may begin with either
            changes = asyncio.create_task(ring.change(1000))
            starts = {"labels": ring.labels, "ranges": partial(fleet.start, process="ranges-s1")}
            if former == "labels":
                ring.labels("s0")
            else:
                fleet.start("s0")
            await world.until(lambda: "s0" in fleet.ran.values(), 60)
            starts["ranges" if former == "labels" else "labels"]("s1")
            await asyncio.sleep(5)
            works = world.processes["labels-s0" if former == "labels" else "s0"]
            works.cut_off()
            async with world.admin() as client:
                await client.delete(Lease, "s0", "ops")
            fleet.ran.clear()
            await asyncio.sleep(3)
            works.cut_off(False)
            await asyncio.sleep(30)
            assert set(fleet.ran.values()) == {"s0"}
            await works.stop()
            fleet.ran.clear()
            await world.until(lambda: set(fleet.ran.values()) == {"s1"}, 10)
            changes.cancel()

    simulate(scene)
