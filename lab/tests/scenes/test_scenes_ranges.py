"""A ring that is sharded by ranges: joins, clean leaves, crashes and rolling restarts, with an API server that selects
hash ranges and with one that ignores them.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from kubeshard.controller import Context, Controller, Reconciler, Result, Watch
from kubeshard.controller.dependents import ensure
from kubeshard.core import ConfigMap, KubeObject, Namespace, ObjectMeta
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import ApiError, NotFound
from kubeshard.core.kinds import GroupResource
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Key
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import Selector
from kubeshard.manager.manager import Manager
from kubeshard.manager.roles import roles
from kubeshard.runtime.transport import HttpRequest, HttpResponse, TransportError
from kubeshard.shard.settings import Ranges
from kubeshard.shard.sharding import Sharding
from kubeshard.sharding.assignment import Assignment, Place
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.names import RING_LABEL, assignment_name
from kubeshard.sharding.shares import divide
from kubeshard_apiserver import User
from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, definition, simulate
from kubeshard_lab.simulation.processes import Process, refusal

OPERATOR = User(
    "system:serviceaccount:ops:operator", groups=("system:serviceaccounts", "system:serviceaccounts:ops")
)
SHARDS = ("s0", "s1", "s2")
OBJECTS = 200
GATES = pytest.mark.parametrize("gates", [(SHARDED_LIST_AND_WATCH,), ()], ids=["selects", "ignores"])


class Part(KubeObject, group="sim.example", version="v1"):
    pass


class Coordinator:
    """Shares out the buckets among the shards whose Leases it sees renewed."""

    def __init__(self, world: SimulatedCluster, buckets: Buckets) -> None:
        self._world = world
        self._buckets = buckets
        self._seen: dict[str, tuple[str, float]] = {}

    async def run(self) -> None:
        async with self._world.admin("home") as client:
            while True:
                with suppress(ApiError):
                    await self._once(client)
                await asyncio.sleep(0.2)

    async def _once(self, client: Any) -> None:
        now, available = self._world.loop.time(), {}
        for lease in await client.list_all(
            Lease, "ops", label_selector=Selector.equals(RING_LABEL, self._world.ring)
        ):
            name = lease.metadata.name
            record, since = self._seen.get(name, ("", 0.0))
            if record != str(lease.spec):
                self._seen[name] = str(lease.spec), (since := now)
            if lease.spec.holder_identity == name and now - since < 30:
                available[name] = 1
        name = assignment_name(self._world.ring)
        try:
            found = await client.get(ConfigMap, name, "ops")
        except NotFound:
            empty = Assignment.of(self._buckets).data()
            metadata = ObjectMeta(name=name, namespace="ops", labels={RING_LABEL: self._world.ring})
            found = await client.create(ConfigMap(metadata=metadata, data=empty))
        assignment = Assignment.parse(found.data)
        places = assignment.places
        wanted = divide([place.target or place.owner for place in places], available)
        moves = {}
        for bucket, (place, shard) in enumerate(zip(places, wanted, strict=True)):
            if place.owner not in available:
                if shard:
                    moves[bucket] = (shard, "")
            elif shard != (place.target or place.owner):
                moves[bucket] = (place.owner, "" if shard == place.owner else shard)
        if (patch := assignment.change(moves, join=True)) is not None:
            await client.patch(ConfigMap, name, "ops", patch)


class Fleet:
    """Shards, what they ran, and what was written."""

    children = True
    """Whether each object has a ConfigMap."""

    def __init__(self, world: SimulatedCluster, ranges: Ranges) -> None:
        self.world = world
        self.ranges = ranges
        self.working: dict[Key, str] = {}
        self.together: list[str] = []
        self.ran: dict[Key, str] = {}
        """The shard of the last complete run of each object."""
        self.runs: Counter[Key] = Counter()
        self.cancelled: Counter[str] = Counter()
        """How many runs of each shard were cancelled."""
        self.blind: list[str] = []
        """Runs that did not see a child that existed."""
        self.states = False
        """Whether runs write statuses."""
        self.coordinating: asyncio.Task[None]
        self.writes: Counter[str] = Counter()
        """Requests that change the assignment or objects of the ring, by resource."""
        world.observers.append(self._see)

    def start(self, name: str, work: float = 0.05, mode: str = "shard", **more: Any) -> Process:
        sharding = {"mode": mode, "delivery": self.ranges}
        reconciler = Work(self, name, work, more.get("process", name))
        return self.world.shard(name, reconciler, workers=20, sharding=sharding, **more)

    def roles(self) -> Iterator[Mapping[str, Any]]:
        """Returns what `kubeshard rbac` renders."""
        sharding = Sharding(self.world.ring, namespace="ops", delivery=self.ranges)
        controller = Controller(
            name="thing",
            reconciler=Work(self, "", 0),
            primary=Watch(Thing, sharded=True),
            owns=[Watch(ConfigMap, sharded=True)],
        )
        grants = Manager([controller], sharding=sharding).grants()
        return roles(grants, "operator", namespace="ops", account=("ops", "operator"))

    @property
    def assignment(self) -> Assignment | None:
        found = self.world.objects("", "configmaps").get(Key("ops", assignment_name(self.world.ring)))
        return None if found is None else Assignment.parse(found["data"])

    def settled(self, *shards: str) -> bool:
        """Whether these shards share out everything, and each object was last run by the owner of its bucket."""
        assignment, buckets = self.assignment, self.ranges.divided
        if assignment is None or assignment.shards != set(shards):
            return False
        if any(place.target for place in assignment.places):
            return False
        return all(
            self.ran.get(key) == assignment.places[buckets.of(meta_of(obj))].owner
            for key, obj in self.world.objects("sim.example", "things").items()
        )

    async def until_settled(self, *shards: str, within: float = 60) -> float:
        took = await self.world.until(lambda: self.settled(*shards), within)
        assert self.together == []
        assert self.blind == []
        return took

    def versions(self) -> dict[Key, str]:
        """Those of the objects of the ring."""
        things, children = self.world.objects("sim.example", "things"), self.world.objects("", "configmaps")
        there = {**things, **{key: obj for key, obj in children.items() if key.namespace != "ops"}}
        return {key: obj["metadata"]["resourceVersion"] for key, obj in there.items()}

    def _see(self, process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        if answer is None or request.method == "GET":
            return
        for resource in "things", assignment_name(self.world.ring):
            if f"/{resource}" in request.target:
                self.writes[resource] += 1


class Work(Reconciler[Thing]):
    def __init__(self, fleet: Fleet, shard: str, seconds: float, process: str = "") -> None:
        self._fleet = fleet
        self._shard = shard
        self._seconds = seconds
        self._process = process or shard

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        fleet, key = self._fleet, obj.key
        other = fleet.working.get(key)
        if other is not None and not fleet.world.processes[other].dead:
            fleet.together.append(f"{key}: {self._process} and {other}")
        fleet.working[key] = self._process
        try:
            await asyncio.sleep(self._seconds)
            metadata = ObjectMeta(name=f"c-{obj.metadata.name}", namespace=obj.metadata.namespace)
            if fleet.children:
                there = Key(metadata.namespace, metadata.name) in fleet.world.objects("", "configmaps")
                if there and await ctx.get(ConfigMap, metadata.name) is None:
                    fleet.blind.append(f"{key} on {self._shard}")
                await ensure(ctx, ConfigMap(metadata=metadata, data={"v": "1"}), owner=obj)
            if fleet.states:
                status = MergePatch({"status": {"by": self._shard}})
                name, namespace = obj.metadata.name, obj.metadata.namespace
                await ctx.client.patch(Thing, name, namespace, status, base=obj, subresource="status")
        except asyncio.CancelledError:
            fleet.cancelled[self._shard] += 1
            raise
        finally:
            fleet.working.pop(key, None)
        fleet.ran[key] = self._shard
        fleet.runs[key] += 1
        return None


def meta_of(obj: Any) -> ObjectMeta:
    meta = obj["metadata"]
    return ObjectMeta(name=meta["name"], namespace=meta["namespace"], uid=meta["uid"])


@asynccontextmanager
async def working(
    gates: tuple[str, ...] = (),
    ranges: Ranges | None = None,
    shards: tuple[str, ...] = SHARDS,
    users: Mapping[str, User] | None = None,
) -> AsyncIterator[Fleet]:
    async with SimulatedCluster(seed=1, feature_gates=gates, users=users) as world:
        fleet = Fleet(world, ranges or Ranges(buckets=64))
        await world.install()
        async with world.admin() as client:
            for each in fleet.roles() if users else ():
                await client.apply(each)
            for number in range(OBJECTS):
                # Numbers at the end of a name hardly change its bucket.
                place = f"{number % 25 * 1_234_567:x}-n" if fleet.ranges.by == "namespace" else "team"
                if place != "team" and number < 25:
                    await client.create(Namespace(metadata=ObjectMeta(name=place)))
                await client.create(Thing(metadata=ObjectMeta(name=f"t{number}", namespace=place)))
        fleet.coordinating = asyncio.create_task(Coordinator(world, fleet.ranges.divided).run())
        for name in shards:
            fleet.start(name)
        try:
            await fleet.until_settled(*shards)
            yield fleet
        finally:
            fleet.coordinating.cancel()
            await asyncio.wait([fleet.coordinating])


@GATES
@pytest.mark.quick
def test_objects_are_shared_out_evenly_and_no_shard_keeps_those_of_others(gates: tuple[str, ...]) -> None:
    async def scene() -> None:
        async with working(gates) as fleet:
            assignment = fleet.assignment
            assert assignment is not None
            shares = Counter(place.owner for place in assignment.places)
            assert max(shares.values()) - min(shares.values()) <= 1
            assert fleet.writes["things"] == 0

    simulate(scene)


@GATES
def test_a_shard_that_joins_gets_its_share_within_seconds_and_a_handful_of_writes(
    gates: tuple[str, ...],
) -> None:
    async def scene() -> None:
        async with working(gates) as fleet:
            before, versions = fleet.writes.copy(), fleet.versions()
            fleet.start("s3")
            assert await fleet.until_settled(*SHARDS, "s3") < 5
            # One asks three shards, each acknowledges, and the new one has nothing to reclaim.
            assert (fleet.writes - before)[assignment_name("r")] <= 5
            assert fleet.versions() == versions

    simulate(scene)


@GATES
def test_a_shard_that_stops_is_succeeded_within_seconds(gates: tuple[str, ...]) -> None:
    async def scene() -> None:
        async with working(gates) as fleet:
            before, versions = fleet.writes.copy(), fleet.versions()
            await fleet.world.processes["s1"].stop()
            assert await fleet.until_settled("s0", "s2") < 3
            assert (fleet.writes - before)[assignment_name("r")] <= 2
            assert fleet.versions() == versions

    simulate(scene)


@GATES
def test_a_shard_that_is_killed_is_succeeded_two_lease_durations_later(gates: tuple[str, ...]) -> None:
    async def scene() -> None:
        async with working(gates) as fleet:
            before, versions = fleet.writes.copy(), fleet.versions()
            fleet.world.processes["s1"].kill()
            assert 25 < await fleet.until_settled("s0", "s2") < 35
            assert (fleet.writes - before)[assignment_name("r")] <= 2
            assert fleet.versions() == versions

    simulate(scene)


@GATES
def test_objects_that_change_all_the_time_are_on_one_shard_at_a_time_however_shards_come_and_go(
    gates: tuple[str, ...],
) -> None:
    async def scene() -> None:
        async with working(gates) as fleet:
            world = fleet.world

            async def change() -> None:
                async with world.admin() as client:
                    for number in itertools.count():
                        name = f"t{world.rng.randrange(OBJECTS)}"
                        await client.patch(Thing, name, "team", MergePatch({"spec": {"v": number}}))
                        await asyncio.sleep(0.002)

            changing = asyncio.create_task(change())
            for name in ("s3", "s4"):
                fleet.start(name)
                await fleet.until_settled(*SHARDS, "s3", *["s4"][: name == "s4"])
            await world.processes["s0"].stop()
            await fleet.until_settled("s1", "s2", "s3", "s4")
            changing.cancel()

    simulate(scene)


@GATES
def test_a_rolling_restart_leaves_no_object_without_an_owner(gates: tuple[str, ...]) -> None:
    async def scene() -> None:
        async with working(gates) as fleet:
            before, versions, shards = fleet.writes.copy(), fleet.versions(), list(SHARDS)
            for number, old in enumerate(SHARDS):
                new = f"n{number}"
                fleet.start(new)
                shards.append(new)
                await fleet.until_settled(*shards, within=10)
                await fleet.world.processes[old].stop()
                shards.remove(old)
                await fleet.until_settled(*shards, within=10)
            assert (fleet.writes - before)[assignment_name("r")] <= 3 * 7
            assert fleet.versions() == versions

    simulate(scene)


def test_a_shard_that_comes_back_reclaims_what_it_had() -> None:
    async def scene() -> None:
        async with working() as fleet:
            fleet.world.processes["s1"].kill()
            await asyncio.sleep(3)
            before, runs = fleet.writes.copy(), fleet.runs.copy()
            fleet.start("s1", process="s1-again")
            await asyncio.sleep(40)
            await fleet.until_settled(*SHARDS)
            assert (fleet.writes - before)[assignment_name("r")] <= 2
            assert 0 < (fleet.runs - runs).total() < OBJECTS

    simulate(scene)


def test_everything_in_a_namespace_is_on_one_shard_and_nothing_but_children_is_written() -> None:
    async def scene() -> None:
        async with working(ranges=Ranges(by="namespace", buckets=64)) as fleet:
            versions = fleet.versions()
            fleet.start("s3")
            await fleet.until_settled(*SHARDS, "s3")
            assert "s3" in fleet.ran.values()
            assert fleet.versions() == versions
            async with fleet.world.admin() as client:
                children = [
                    each
                    for each in await client.list_all(ConfigMap, ALL)
                    if each.metadata.name.startswith("c-")
                ]
            assert len(children) == OBJECTS
            assert not any(each.metadata.labels for each in children)

    simulate(scene)


def test_runs_that_last_are_cancelled_at_the_drains_timeout_and_the_others_are_handed_over_before() -> None:
    async def scene() -> None:
        async with working(ranges=Ranges(buckets=64, drain_timeout=10), shards=("s0",)) as fleet:
            await fleet.world.processes["s0"].stop()
            fleet.start("s1", work=math.inf)
            await asyncio.sleep(20)
            fleet.start("s2")
            took = await fleet.world.until(lambda: "s2" in fleet.ran.values(), within=30)
            assert took < 10
            assert fleet.together == []

    simulate(scene)


def test_runs_have_the_whole_timeout_of_a_drain_whatever_drain_was_cancelled_before() -> None:
    async def scene() -> None:
        async with working(ranges=Ranges(buckets=64, drain_timeout=10), shards=("s0",)) as fleet:
            await fleet.world.processes["s0"].stop()
            fleet.start("s1", work=math.inf)
            await asyncio.sleep(20)
            fleet.coordinating.cancel()
            async with fleet.world.admin() as client:
                for target, pause in ("s2", 1), ("", 7), ("s2", 4):
                    assert fleet.assignment is not None
                    patch = fleet.assignment.change(
                        dict.fromkeys(fleet.assignment.owned_by("s1"), ("s1", target))
                    )
                    assert patch is not None
                    await client.patch(ConfigMap, assignment_name("r"), "ops", patch)
                    await asyncio.sleep(pause)
            assert fleet.cancelled["s1"] == 0
            await asyncio.sleep(7)
            assert fleet.cancelled["s1"] == 20

    simulate(scene)


def test_objects_are_created_changed_and_deleted_without_a_coordinator() -> None:
    async def scene() -> None:
        async with working() as fleet:
            fleet.coordinating.cancel()
            before = fleet.writes.copy()
            await fleet.world.make_things(20, prefix="later")
            assert await fleet.until_settled(*SHARDS) < 1
            async with fleet.world.admin() as client:
                await client.delete(Thing, "later1", "team")
            assert (fleet.writes - before).total() == 0

    simulate(scene)


def test_a_hand_over_that_was_decided_is_completed_without_a_coordinator() -> None:
    async def scene() -> None:
        async with working() as fleet:
            fleet.coordinating.cancel()
            assert fleet.assignment is not None
            asked = dict.fromkeys(fleet.assignment.owned_by("s0"), ("s0", "s1"))
            patch = fleet.assignment.change(asked)
            assert patch is not None
            async with fleet.world.admin() as client:
                await client.patch(ConfigMap, assignment_name("r"), "ops", patch)
            assert await fleet.until_settled("s1", "s2") < 3

    simulate(scene)


def test_shards_keep_what_they_have_when_the_assignment_is_deleted(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with working() as fleet:
            fleet.coordinating.cancel()
            owners = dict(fleet.ran)
            async with fleet.world.admin() as client:
                await client.delete(ConfigMap, assignment_name("r"), "ops")
                await asyncio.sleep(5)
                fleet.ran.clear()
                for key in owners:
                    await client.patch(Thing, key.name, key.namespace, MergePatch({"spec": {"v": 1}}))
            await fleet.world.until(lambda: fleet.ran == owners, within=5)
            assert fleet.together == []

    simulate(scene)
    assert "Something is wrong with the assignment of the ring" in caplog.text


def test_a_shard_stops_at_once_when_somebody_gives_its_buckets_away(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with working() as fleet:
            fleet.coordinating.cancel()
            for process in ("s1", "s2"):
                await fleet.world.processes[process].stop()
            for name in ("u1", "u2"):
                fleet.start(name, work=1000.0)
            async with fleet.world.admin() as client:
                found = await client.get(ConfigMap, assignment_name("r"), "ops")
                assignment = Assignment.parse(found.data)
                moves = dict.fromkeys(assignment.owned_by("s1"), ("u1", ""))
                patch = assignment.change({**moves, **dict.fromkeys(assignment.owned_by("s2"), ("u2", ""))})
                assert patch is not None
                await client.patch(ConfigMap, assignment_name("r"), "ops", patch)
                await asyncio.sleep(5)
                assert set(fleet.working.values()) == {"u1", "u2"}
                assignment = fleet.assignment
                assert assignment is not None
                patch = assignment.change(dict.fromkeys(assignment.owned_by("u1"), ("s0", "")))
                assert patch is not None
                await client.patch(ConfigMap, assignment_name("r"), "ops", patch)
            await asyncio.sleep(0.5)
            assert fleet.cancelled["u1"] == 20
            assert set(fleet.working.values()) == {"u2"}

    simulate(scene)
    assert "were given to others without this shard's consent" in caplog.text


def test_an_acknowledgement_whose_answer_is_lost_changes_nothing() -> None:
    async def scene() -> None:
        async with working() as fleet:
            lost = Counter[str]()

            def losing(process: Process) -> None:
                async def lose(request: HttpRequest, answer: HttpResponse) -> None:
                    if request.method == "PATCH" and assignment_name("r") in request.target:
                        lost[process.name] += 1
                        if lost[process.name] <= 2:
                            raise TransportError("connection reset")

                for network in process.networks:
                    network.after = lose

            for name in SHARDS:
                losing(fleet.world.processes[name])
            fleet.start("s3")
            await fleet.until_settled(*SHARDS, "s3")
            assert set(lost) == set(SHARDS)

    simulate(scene)


def test_api_servers_that_take_turns_in_ignoring_the_selector_cost_time_only() -> None:
    async def scene() -> None:
        async with working((SHARDED_LIST_AND_WATCH,)) as fleet:

            async def take_turns() -> None:
                reads = fleet.world.server.reads
                while True:
                    await asyncio.sleep(0.3)
                    reads._shards = not reads._shards
                    fleet.world.server.store.interrupt(GroupResource("sim.example", "things"))

            turns = asyncio.create_task(take_turns())
            fleet.start("s3")
            await fleet.until_settled(*SHARDS, "s3")
            await fleet.world.processes["s0"].stop()
            await fleet.until_settled("s1", "s2", "s3")
            turns.cancel()

    simulate(scene)


def test_the_rights_of_a_shard_are_enough_and_nothing_is_refused() -> None:
    refused: list[str] = []

    def see(process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        if answer is not None and answer.status in (401, 403):
            refused.append(f"{process.name} {request.method} {request.target}")

    async def scene() -> None:
        async with working(users=dict.fromkeys((*SHARDS, "s3"), OPERATOR)) as fleet:
            fleet.world.observers.append(see)
            fleet.start("s3")
            await fleet.until_settled(*SHARDS, "s3")
            assert refused == []

    simulate(scene)


class Late:
    """From now on, writes of statuses by one process reach the server so many seconds late."""

    def __init__(self, fleet: Fleet, process: Process, seconds: float) -> None:
        self._fleet = fleet
        self._seconds = seconds
        self.landed: list[tuple[int, Place]] = []
        """The status of each answer, and the place of the object's bucket when the write arrived."""
        self._sending: list[asyncio.Task[None]] = []
        for network in process.networks:
            network.before = self._before(network._inner.request)

    @property
    def sent(self) -> int:
        return len(self._sending)

    def _before(
        self, send: Callable[[HttpRequest], Awaitable[HttpResponse]]
    ) -> Callable[[HttpRequest], Awaitable[HttpResponse | None]]:
        async def land(request: HttpRequest) -> None:
            await asyncio.sleep(self._seconds)
            answer, assignment = await send(request), self._fleet.assignment
            assert assignment is not None
            obj = self._fleet.world.objects("sim.example", "things")[Key("team", "late")]
            bucket = self._fleet.ranges.divided.of(meta_of(obj))
            self.landed.append((answer.status, assignment.places[bucket]))

        async def before(request: HttpRequest) -> HttpResponse | None:
            if request.method == "PATCH" and "/things/late/status" in request.target:
                self._sending.append(asyncio.create_task(land(request)))
                await asyncio.sleep(60)
            return None

        return before


@asynccontextmanager
async def writing_late(seconds: float) -> AsyncIterator[tuple[Fleet, Late]]:
    """One shard, s0, has just sent a write that will arrive late."""
    async with working(shards=("s0",)) as fleet:
        fleet.states = True
        late = Late(fleet, fleet.world.processes["s0"], seconds)
        async with fleet.world.admin() as client:
            await client.create(Thing(metadata=ObjectMeta(name="late", namespace="team")))
        await fleet.world.until(lambda: late.sent, within=5)
        yield fleet, late


def test_no_bucket_is_handed_over_while_a_write_is_under_way() -> None:
    async def scene() -> None:
        async with writing_late(8.0) as (fleet, late):
            for name in ("s1", "s2", "s3", "s4", "s5", "s6", "s7"):
                fleet.start(name)
            await fleet.world.until(lambda: late.landed, within=30)
            status, place = late.landed[0]
            assert (status, place.owner) == (200, "s0")
            assert place.target

    simulate(scene)


def test_a_late_write_of_a_dead_shard_does_not_overwrite_what_its_successor_wrote() -> None:
    async def scene() -> None:
        async with writing_late(60.0) as (fleet, late):
            fleet.start("s1")
            fleet.world.processes["s0"].kill()
            await fleet.until_settled("s1")
            await fleet.world.until(lambda: late.landed, within=60)
            assert [(status, place.owner) for status, place in late.landed] == [(409, "s1")]
            stored = fleet.world.objects("sim.example", "things")[Key("team", "late")]
            assert stored["status"] == {"by": "s1"}

    simulate(scene)


def test_a_kind_that_is_not_served_yet_holds_up_nobody() -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world:
            fleet = Fleet(world, Ranges(buckets=64, by="namespace"))
            await world.install()
            await world.make_things(20)
            fleet.coordinating = asyncio.create_task(Coordinator(world, fleet.ranges.divided).run())

            async def reconcile(ctx: Context, obj: Part) -> None:
                parts.append(obj.metadata.name)

            parts: list[str] = []
            controller = Controller(name="part", reconciler=reconcile, primary=Watch(Part, sharded=True))
            for name in SHARDS:
                fleet.start(name, controllers=[controller])
            await fleet.until_settled(*SHARDS, within=30)
            async with world.admin() as client:
                await client.apply(definition("parts", "Part"))
                await client.create(Part(metadata=ObjectMeta(name="p", namespace="team")))
            await world.until(lambda: parts, within=30)
            assert parts == ["p"]
            fleet.coordinating.cancel()

    simulate(scene)


@asynccontextmanager
async def unlistable_parts(
    world: SimulatedCluster, seconds: float = 0.0
) -> AsyncIterator[tuple[Fleet, Callable[..., None], list[str]]]:
    """A ring of two kinds without shards yet. Parts cannot be listed: their conversion webhook fails, after so long."""
    fleet = Fleet(world, Ranges(buckets=64))
    await world.install()
    await world.make_things(20)
    async with world.admin() as client:
        await client.apply(definition("parts", "Part"))
        await client.create(Part(metadata=ObjectMeta(name="p", namespace="team")))
    fleet.coordinating = asyncio.create_task(Coordinator(world, fleet.ranges.divided).run())
    parts: list[str] = []

    async def reconcile(ctx: Context, obj: Part) -> None:
        parts.append(obj.metadata.name)

    async def refuse(request: HttpRequest) -> HttpResponse | None:
        if "/parts" not in request.target:
            return None
        await asyncio.sleep(seconds)
        return refusal(500, "InternalError", "conversion webhook failed")

    def start(name: str) -> None:
        controller = Controller(name="part", reconciler=reconcile, primary=Watch(Part, sharded=True))
        for network in fleet.start(name, controllers=[controller]).networks:
            network.before = refuse

    yield fleet, start, parts
    fleet.coordinating.cancel()


def heal(fleet: Fleet) -> None:
    for process in fleet.world.processes.values():
        for network in process.networks:
            network.before = None


def test_a_kind_that_cannot_be_listed_holds_up_no_other_when_all_shards_start() -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world, unlistable_parts(world) as (fleet, start, parts):
            for name in SHARDS:
                start(name)
            await world.until(lambda: len(fleet.ran) == 20, within=60)
            assert not parts
            heal(fleet)
            await world.until(lambda: parts, within=60)
            assert not fleet.blind
            assert not fleet.together

    simulate(scene)


def test_a_kind_that_cannot_be_listed_holds_up_no_other_when_a_shard_joins_or_dies() -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world, unlistable_parts(world) as (fleet, start, parts):
            start("s0")
            await world.until(lambda: len(fleet.ran) == 20, within=60)
            start("s1")
            await world.until(lambda: "s1" in fleet.ran.values(), within=60)
            fleet.world.processes["s0"].kill()
            await world.until(lambda: set(fleet.ran.values()) == {"s1"}, within=60)
            assert not parts
            heal(fleet)
            await world.until(lambda: parts, within=60)
            assert not fleet.blind
            assert not fleet.together

    simulate(scene)


def test_a_run_waits_for_a_kind_that_was_not_served_for_a_while() -> None:
    async def scene() -> None:
        async with working(shards=("s0",)) as fleet:

            async def not_found(request: HttpRequest) -> HttpResponse | None:
                if "/api/v1/configmaps?" not in request.target or "fieldSelector" in request.target:
                    return None
                return refusal(404, "NotFound")

            networks = fleet.start("s1").networks
            for network in networks:
                network.before = not_found
            await asyncio.sleep(20)
            for network in networks:
                network.before = None
            await fleet.until_settled("s0", "s1")

    simulate(scene)


def test_a_kind_whose_lists_fail_late_holds_up_no_other_when_shards_leave_one_after_the_other() -> None:
    async def scene() -> None:
        world = SimulatedCluster(seed=1)
        async with world, unlistable_parts(world, seconds=30) as (fleet, start, parts):
            for name in SHARDS:
                start(name)
            await fleet.until_settled(*SHARDS, within=200)
            for gone, left in ("s2", ("s0", "s1")), ("s1", ("s0",)):
                await world.processes[gone].stop()
                await fleet.until_settled(*left, within=5)
            assert not parts

    simulate(scene)


def test_a_kind_that_cannot_be_listed_any_more_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with working() as fleet:
            process = fleet.start("s3")

            async def refuse(request: HttpRequest) -> HttpResponse | None:
                if "/things" not in request.target or "shardSelector" not in request.target:
                    return None
                return refusal(403, "Forbidden")

            for network in process.networks:
                network.before = refuse
            await asyncio.sleep(30)
            for network in process.networks:
                network.before = None
            await fleet.until_settled(*SHARDS, "s3")

    simulate(scene)
    assert "Cannot list kinds of the ring" in caplog.text
