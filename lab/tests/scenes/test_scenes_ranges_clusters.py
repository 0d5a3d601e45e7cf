"""A ring that shares out whole clusters: joins, clean leaves, crashes, outages of clusters and pauses of shards."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from kubeshard.client import Client, ClusterConfig
from kubeshard.controller import Context, Controller, Reconciler, Result
from kubeshard.controller.context import RemoteCluster
from kubeshard.controller.dependents import ensure
from kubeshard.core import EVERY_CLUSTER, HOME_CLUSTER, OTHER_CLUSTERS, ConfigMap, Key, NotOurs, ObjectMeta
from kubeshard.core.encoding import encode
from kubeshard.core.patches import MergePatch
from kubeshard.manager.manager import Manager
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.shard.settings import LeaseTerms, Ranges
from kubeshard.shard.sharding import Sharding
from kubeshard.sharding.assignment import Assignment
from kubeshard.sharding.names import assignment_name
from kubeshard_lab.simulation.cluster import SimulatedCluster, simulate
from kubeshard_lab.simulation.oracles import Job, Oracles, SimulationResult
from kubeshard_lab.simulation.processes import Process, name_of
from kubeshard_lab.simulation.properties import CRASH, NOT_OURS, OVERLAP

pytestmark = pytest.mark.regression

CLUSTERS = ("c0", "c1", "c2", "c3")
RANGES = Ranges(by="cluster", buckets=64, drain_timeout=10)
OBJECTS = 5


class ClusterOracles(Oracles):
    """Judges who works on the objects of a cluster."""

    properties = (OVERLAP, CRASH, NOT_OURS)

    def begins(self, process: str, key: Key, uid: str, owner: str) -> None:
        job = Job(str(key), uid)
        if owner != name_of(process) and not self._dead(process):
            self.broken(NOT_OURS, f"{process} begins with {key} of {owner or None}", str(key))
        self._judge_overlap(process, job, str(key), str(key))
        self._at_work[job].append(process)

    def ends(self, process: str, key: Key, uid: str) -> None:
        self._at_work[Job(str(key), uid)].remove(process)


class Fleet:
    """Shards of a ring by clusters, and what they did."""

    def __init__(self, world: SimulatedCluster, clusters: tuple[str, ...]) -> None:
        self.world = world
        self.clusters = clusters
        self.result = SimulationResult()
        self.oracles = ClusterOracles(world, self.result)
        self.ran: dict[Key, str] = {}
        """The shard of the last complete run of each object."""
        self.runs: Counter[Key] = Counter()
        self.remembered: set[tuple[str, Key]] = set()
        """Which process has which objects in memory."""
        self.asked: Counter[tuple[str, str]] = Counter()
        """How many requests each process sent to each cluster."""
        self.writes = 0
        """Of the assignment."""
        self.work: dict[str, float] = {}
        """How long runs of a shard take."""
        world.observers.append(self._see)

    def start(
        self,
        name: str,
        *,
        process: str = "",
        lease: LeaseTerms | None = None,
        controller: Controller[Any] | None = None,
        clients: Collection[str] = (),
        **more: Any,
    ) -> Process:
        """`clients`: the clusters of which the program makes the clients itself."""
        started = Process(self.world, process or name)
        controller = controller or Controller(
            name="maps",
            reconciler=Work(self, started.name),
            primary=ConfigMap,
            owns=[ConfigMap],
            workers=10,
            clusters=OTHER_CLUSTERS,
        )
        member = Sharding("r", name, "ops", mode="both", delivery=RANGES, lease=lease)
        home = started.client()
        configs = {each: ClusterConfig(f"http://{each}") for each in self.clusters}
        made = {each: Client(configs[each], world=home.world) for each in clients}
        options: dict[str, Any] = {"clusters": configs | made, "client": home, "sharding": member} | more
        return started.start(Manager([controller], status_pages=None, **options))

    @property
    def assignment(self) -> Assignment | None:
        found = self.world.objects("", "configmaps").get(Key("ops", assignment_name("r")))
        return None if found is None else Assignment.parse(found["data"])

    def owner(self, cluster: str) -> str:
        assignment = self.assignment
        return "" if assignment is None else assignment.places[RANGES.divided.of_key(cluster)].owner

    def of(self, shard: str) -> list[str]:
        return [each for each in self.clusters if self.owner(each) == shard]

    def objects(self, cluster: str) -> list[Key]:
        found = self.world.others[cluster].store.objects(("", "configmaps"))  # type: ignore[arg-type]
        return [Key(*key).at(cluster) for key in found if key.name.startswith("o")]

    def worked(self, *clusters: str) -> bool:
        """Whether each object of these clusters was last run by the shard that owns its cluster."""
        return all(
            self.ran.get(key) == self.owner(cluster) != ""
            for cluster in clusters
            for key in self.objects(cluster)
        )

    def settled(self, *shards: str) -> bool:
        assignment = self.assignment
        if assignment is None or assignment.shards != set(shards):
            return False
        return not any(place.target for place in assignment.places) and self.worked(*self.clusters)

    async def until_settled(self, *shards: str, within: float = 60) -> float:
        took = await self.world.until(lambda: self.settled(*shards), within)
        self.check()
        return took

    def check(self) -> None:
        assert self.result.breaks == []

    async def touch(self, cluster: str, value: str) -> None:
        async with self.world.admin(cluster) as client:
            for key in self.objects(cluster):
                await client.patch(ConfigMap, key.name, key.namespace, MergePatch({"data": {"v": value}}))

    def down(self, cluster: str, down: bool = True) -> None:
        """Nothing gets to the cluster any more, from any process, or again. "": nothing happens."""
        for process in self.world.processes.values() if cluster else ():
            process.cut_off(down, cluster=cluster)
        self.world.connected = (
            (lambda _, network: setattr(network, "down", network.server.endswith(cluster))) if down else None
        )

    def _see(self, process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        if answer is None and request.method != "GET" and assignment_name("r") in request.target:
            self.writes += 1

    def connected(self, process: Process) -> list[str]:
        """The clusters to which the process sends anything from now on, as it does."""
        asked: list[str] = []
        for network in process.networks:

            def leaving(_: HttpRequest, server: str = network.server.removeprefix("http://")) -> None:
                if server in self.clusters and server not in asked:
                    asked.append(server)

            network.leaving = leaving
        return asked


class Work(Reconciler[ConfigMap]):
    def __init__(self, fleet: Fleet, process: str) -> None:
        self._fleet = fleet
        self._process = process

    async def reconcile(self, ctx: Context, obj: ConfigMap) -> Result | None:
        fleet, key, uid = self._fleet, ctx.key, obj.metadata.uid
        if not key.name.startswith("o"):
            return None
        fleet.oracles.begins(self._process, key, uid, fleet.owner(ctx.cluster))
        fleet.remembered.add((self._process, key))
        try:
            await asyncio.sleep(fleet.work.get(name_of(self._process), 0.05))
            child = ConfigMap(
                metadata=ObjectMeta(name=f"child-{key.name}", namespace=key.namespace),
                data={"v": (obj.data or {}).get("v", ""), "by": name_of(self._process)},
            )
            await ensure(ctx, child, owner=obj)
        finally:
            fleet.oracles.ends(self._process, key, uid)
        fleet.ran[key] = name_of(self._process)
        fleet.runs[key] += 1
        return None

    async def gone(self, ctx: Context, key: Key) -> None:
        self._fleet.remembered.discard((self._process, key))


@asynccontextmanager
async def working(*shards: str, clusters: tuple[str, ...] = CLUSTERS, down: str = "") -> AsyncIterator[Fleet]:
    async with SimulatedCluster(seed=1, others=clusters) as world:
        await world.install()
        for cluster in clusters:
            async with world.admin(cluster) as client:
                for number in range(OBJECTS):
                    meta = ObjectMeta(name=f"o{number}", namespace="default")
                    await client.create(ConfigMap(metadata=meta, data={"v": "0"}))
        fleet = Fleet(world, clusters)
        if down:
            fleet.down(down)
        for name in shards:
            fleet.start(name)
        if shards and not down:
            await fleet.until_settled(*shards)
        yield fleet
        fleet.check()


@pytest.mark.quick
def test_each_cluster_is_on_one_shard_and_no_other_connects_to_it() -> None:
    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            assert sorted(fleet.of("s0") + fleet.of("s1")) == list(CLUSTERS)
            for name in "s0", "s1":
                process = fleet.world.processes[name]
                there = {network.server.removeprefix("http://") for network in process.networks} - {"sim"}
                assert there == set(fleet.of(name))

    simulate(scene)


@pytest.mark.quick
def test_clusters_are_shared_out_evenly_however_few_they_are() -> None:
    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            assert (len(fleet.of("s0")), len(fleet.of("s1"))) == (2, 2)

    simulate(scene)


def test_a_shard_that_joins_gets_its_clusters_when_their_shards_have_let_go_and_the_others_go_on() -> None:
    async def scene() -> None:
        async with working("s0") as fleet:
            fleet.work["s0"] = 3.0
            for cluster in CLUSTERS:
                await fleet.touch(cluster, "1")
            await asyncio.sleep(1)
            fleet.start("s1")
            assert 2 < await fleet.until_settled("s0", "s1") < 10
            assert len(fleet.of("s1")) == 2
            remembered = {(name, key) for key, name in fleet.ran.items()}
            await fleet.world.until(lambda: fleet.remembered == remembered, within=5)
            await asyncio.sleep(10)
            runs, writes = fleet.runs.copy(), fleet.writes
            fleet.start("s2")
            assert await fleet.until_settled("s0", "s1", "s2") < 10
            moved = {
                cluster
                for cluster in CLUSTERS
                if any(fleet.runs[k] > runs[k] for k in fleet.objects(cluster))
            }
            assert moved == set(fleet.of("s2"))
            assert len(moved) == 1
            assert fleet.writes - writes <= 4

    simulate(scene)


def test_a_shard_that_stops_is_succeeded_within_seconds_and_a_shard_that_is_killed_after_its_lease() -> None:
    async def scene() -> None:
        async with working("s0", "s1", "s2") as fleet:
            await fleet.world.processes["s1"].stop()
            assert await fleet.until_settled("s0", "s2") < 3
            fleet.world.processes["s2"].kill()
            assert 20 < await fleet.until_settled("s0") < 35

    simulate(scene)


def test_a_cluster_that_comes_back_to_a_shard_begins_there_with_what_has_changed_meanwhile() -> None:
    async def scene() -> None:
        async with working("s0") as fleet:
            fleet.start("s1")
            await fleet.until_settled("s0", "s1")
            for cluster in CLUSTERS:
                await fleet.touch(cluster, "2")
                async with fleet.world.admin(cluster) as client:
                    await client.create(ConfigMap(metadata=ObjectMeta(name="o-new", namespace="default")))
            await fleet.until_settled("s0", "s1")
            await fleet.world.processes["s1"].stop()
            await fleet.until_settled("s0")
            assert all(len(fleet.objects(cluster)) == OBJECTS + 1 for cluster in CLUSTERS)

    simulate(scene)


def test_runs_in_a_cluster_that_is_handed_over_are_cancelled_at_the_deadline_and_hold_up_no_other() -> None:
    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            lasting, quick = fleet.of("s1")
            fleet.work["s1"] = math.inf
            await fleet.touch(lasting, "1")
            await asyncio.sleep(1)
            began = fleet.world.loop.time()
            fleet.start("s2", lease=LeaseTerms(weight=0, pinned=[lasting, quick]))
            await fleet.world.until(lambda: fleet.owner(quick) == "s2", within=8)
            await fleet.world.until(lambda: fleet.owner(lasting) == "s2", within=20)
            assert fleet.world.loop.time() - began > RANGES.drain_timeout
            fleet.work.clear()
            await fleet.world.until(lambda: fleet.worked(*CLUSTERS), within=20)

    simulate(scene)


def test_the_other_clusters_of_a_shard_that_stops_do_not_wait_for_its_last_run() -> None:
    async def scene() -> None:
        async with working("s0") as fleet:
            s1 = fleet.start("s1", graceful_timeout=600)
            await fleet.until_settled("s0", "s1")
            lasting, quick = fleet.of("s1")
            fleet.work["s1"] = 100
            await fleet.touch(lasting, "1")
            await asyncio.sleep(1)
            s1.terminate()
            await fleet.world.until(lambda: fleet.owner(quick) == "s0", within=12)
            assert fleet.owner(lasting) == "s1"
            await fleet.until_settled("s0", within=120)
            assert s1.dead == "stopped"

    simulate(scene)


def test_a_cluster_that_does_not_answer_harms_no_other_and_is_worked_on_once_it_does() -> None:
    async def scene() -> None:
        async with working("s0", "s1", down="c1") as fleet:
            up = tuple(each for each in CLUSTERS if each != "c1")
            await fleet.world.until(lambda: fleet.worked(*up), within=60)
            owner = fleet.world.processes[fleet.owner("c1")]
            manager = owner.manager
            assert manager is not None
            assert {each.name: each.state for each in manager.snapshot().clusters}["c1"] == "unanswered"
            await asyncio.sleep(600)
            told = [each["reason"] for each in fleet.world.objects("events.k8s.io", "events").values()]
            assert "ClusterUnreadable" in told
            assert not [each.dead for each in fleet.world.processes.values() if each.dead]
            for cluster in up:
                await fleet.touch(cluster, "1")
            await fleet.world.until(lambda: fleet.worked(*up), within=5)
            fleet.start("s2")
            await fleet.world.until(lambda: bool(fleet.of("s2")), within=20)
            await fleet.world.until(lambda: fleet.worked(*up), within=10)
            fleet.down("c1", False)
            await fleet.until_settled("s0", "s1", "s2", within=120)

    simulate(scene)


def test_a_cluster_that_only_its_shard_cannot_reach_is_another_ones_soon_and_stays_there() -> None:
    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            cluster = fleet.of("s0")[0]
            fleet.world.processes["s0"].cut_off(cluster=cluster)
            await fleet.touch(cluster, "1")
            await fleet.world.until(
                lambda: fleet.owner(cluster) == "s1" and fleet.worked(cluster), within=300
            )
            fleet.world.processes["s0"].cut_off(down=False, cluster=cluster)
            writes = fleet.writes
            await asyncio.sleep(600)
            assert (fleet.owner(cluster), fleet.writes) == ("s1", writes)
            await fleet.until_settled("s0", "s1")

    simulate(scene)


def test_a_paused_shards_late_writes_are_refused_before_they_are_sent_or_by_their_version() -> None:
    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            process = fleet.world.processes["s1"]
            theirs = fleet.of("s1")
            fleet.work["s1"] = 1.0
            for cluster in theirs:
                await fleet.touch(cluster, "1")
            await asyncio.sleep(0.5)
            process.pause()
            await fleet.world.until(lambda: fleet.settled("s0"), within=120)
            taken: list[str] = []

            def see(who: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
                if who is process and answer is not None and request.method != "GET" and answer.status < 300:
                    taken.append(f"{request.method} {request.target}")

            fleet.world.observers.append(see)
            process.resume()
            await asyncio.sleep(30)
            assert process.dead
            assert not [each for each in taken if "/namespaces/default/" in each]
            await fleet.until_settled("s0")

    simulate(scene)


def test_a_cluster_that_is_added_to_a_running_ring_is_taken_by_one_shard_and_one_that_is_removed_is_left() -> (
    None
):
    async def scene() -> None:
        async with working("s0", "s1", clusters=(*CLUSTERS, "c4")) as fleet:
            managers = [process.manager for process in fleet.world.processes.values()]
            for manager in managers:
                assert manager is not None
                await manager.remove_cluster("c4")
            fleet.clusters = CLUSTERS
            await fleet.until_settled("s0", "s1")
            before = {key: n for key, n in fleet.runs.items() if key.cluster == "c4"}
            await fleet.touch("c4", "1")
            await asyncio.sleep(5)
            assert {key: n for key, n in fleet.runs.items() if key.cluster == "c4"} == before
            for manager in managers:
                assert manager is not None
                manager.add_cluster("c4", ClusterConfig("http://c4"))
            await fleet.world.until(lambda: all(fleet.runs[key] > n for key, n in before.items()), within=20)

    simulate(scene)


@asynccontextmanager
async def crossing(
    act: Callable[[RemoteCluster], Awaitable[None]], *, where: str = "c0"
) -> AsyncIterator[Fleet]:
    """Of a shard `s0` with all clusters, a run in c0, or at home, acts in c1. `canary` takes c1 away from it."""
    async with working(clusters=("c0", "c1")) as fleet:
        begun = False

        async def cross(ctx: Context, obj: ConfigMap) -> None:
            if begun and ctx.cluster == where and ctx.key.name == "o0":
                await act(ctx.at("c1"))

        crosses = Controller(name="maps", reconciler=cross, primary=ConfigMap, clusters=EVERY_CLUSTER)
        fleet.start("s0", controller=crosses, clients=["c1"])
        await asyncio.sleep(10)
        begun = True
        if where:
            await fleet.touch(where, "1")
        else:
            async with fleet.world.admin() as client:
                await client.create(ConfigMap(metadata=ObjectMeta(name="o0", namespace="default")))
        yield fleet


def canary(fleet: Fleet) -> Process:
    return fleet.start("canary", lease=LeaseTerms(weight=0, pinned=["c1"]))


def test_what_a_run_was_given_of_another_cluster_writes_nothing_there_any_more_even_when_it_has_come_back() -> (
    None
):
    async def scene() -> None:
        taken: list[tuple[float, str]] = []

        async def act(there: RemoteCluster) -> None:
            loop = asyncio.get_running_loop()
            for number in range(60):
                await asyncio.sleep(0.5)
                for how in "fenced", "unfenced", "raw":
                    made = ConfigMap(metadata=ObjectMeta(name=f"{how}-{number}", namespace="default"))
                    with suppress(NotOurs):
                        if how == "raw":
                            path = "/api/v1/namespaces/default/configmaps"
                            await there.client.raw("POST", path, encode(made))
                        else:
                            await there.client.create(made, unfenced=how == "unfenced")
                        taken.append((loop.time(), how))

        async with crossing(act) as fleet:
            await fleet.world.until(lambda: {how for _, how in taken} == {"fenced", "unfenced", "raw"}, 5)
            other = canary(fleet)
            await fleet.world.until(lambda: fleet.owner("c1") == "canary", within=20)
            given_away = fleet.world.loop.time()
            await asyncio.sleep(5)
            await other.stop()
            await fleet.world.until(lambda: fleet.owner("c1") == "s0", within=20)
            await asyncio.sleep(10)
            assert [each for each in taken if each[0] > given_away] == []

    simulate(scene)


@pytest.mark.parametrize("where", ["c0", HOME_CLUSTER])
def test_a_cluster_is_handed_over_when_what_runs_elsewhere_has_written_there_and_nothing_begins_to(
    where: str,
) -> None:
    async def scene() -> None:
        refused = asyncio.Event()
        takes_effect: list[str] = []

        async def act(there: RemoteCluster) -> None:
            for number in itertools.count():
                made = ConfigMap(metadata=ObjectMeta(name=f"x{number}", namespace="default"))
                try:
                    await there.client.create(made, unfenced=True)
                except NotOurs:
                    refused.set()
                    return

        async with crossing(act, where=where) as fleet:
            process = fleet.world.processes["s0"]

            async def slow(request: HttpRequest) -> None:
                if request.method == "POST":
                    await asyncio.sleep(4)

            def see(who: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
                if (
                    who is process
                    and request.method == "POST"
                    and answer is None
                    and b'"x' in (request.body or b"")
                ):
                    takes_effect.append(fleet.owner("c1"))

            fleet.world.observers.append(see)
            for network in process.networks:
                if network.server.endswith("c1"):
                    network.before = slow
            await asyncio.sleep(1)
            canary(fleet)
            took = await fleet.world.until(lambda: fleet.owner("c1") == "canary", within=20)
            assert 2 < took < 8
            assert refused.is_set()
            assert takes_effect
            assert set(takes_effect) == {"s0"}

    simulate(scene)


def test_a_cluster_is_pinned_to_a_shard_that_gets_nothing_else() -> None:
    async def scene() -> None:
        async with working("s0") as fleet:
            fleet.start("canary", lease=LeaseTerms(weight=0, pinned=["c2"]))
            await fleet.until_settled("s0", "canary")
            assert fleet.of("canary") == ["c2"]

    simulate(scene)


def test_after_a_time_without_any_shard_everything_is_worked_on_again() -> None:
    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            for name in "s0", "s1":
                await fleet.world.processes[name].stop()
            for cluster in CLUSTERS:
                await fleet.touch(cluster, "1")
            fleet.ran.clear()
            for name in "n0", "n1":
                fleet.start(name)
            await fleet.until_settled("n0", "n1")

    simulate(scene)


class Misfortunes:
    """What happens to the shards and clusters of a fleet, one thing after the other."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet = fleet
        self._rng = random.Random(seed)
        self._numbers = itertools.count(3)
        self._paused: list[Process] = []
        self._down = ""

    async def happen(self, times: int) -> None:
        world, rng = self._fleet.world, self._rng
        for _ in range(times):
            happens = rng.choice(
                [self._joins, self._leaves, self._pauses, self._goes_on, self._cluster, self._home]
            )
            for cluster in CLUSTERS:
                await self._fleet.touch(cluster, str(rng.random()))
            await asyncio.sleep(0.2)  # runs have begun
            await happens()
            self._fleet.work = {name: rng.choice([0.05, 0.05, 2.0]) for name in world.processes}
            await asyncio.sleep(rng.choice([0.2, 2, 8, 30]))

    async def end(self) -> None:
        self._fleet.down(self._down, False)
        for process in self._paused:
            process.resume()
        for process in self._alive:
            process.cut_off(False)
        self._fleet.work = {}
        await asyncio.sleep(120)
        if not self._alive:
            await self._joins()

    @property
    def _alive(self) -> list[Process]:
        return [each for each in self._fleet.world.processes.values() if not each.dead and not each.stopped]

    async def _joins(self) -> None:
        if len(self._alive) < 5:
            self._fleet.start(f"s{next(self._numbers)}")

    async def _leaves(self) -> None:
        if len(self._alive) > 1:
            process = self._rng.choice(self._alive)
            self._rng.choice([process.kill, process.terminate])()

    async def _pauses(self) -> None:
        if len(self._alive) > 1:
            self._paused.append(self._rng.choice(self._alive))
            self._paused[-1].pause()

    async def _goes_on(self) -> None:
        if self._paused:
            self._paused.pop(0).resume()

    async def _cluster(self) -> None:
        """One that was down is up again, and if there was none, one is down."""
        self._fleet.down(self._down, False)
        self._down = "" if self._down else self._rng.choice(CLUSTERS)
        if self._down:
            self._fleet.down(self._down)

    async def _home(self) -> None:
        """A shard is cut off from the home cluster for a while."""
        process = self._rng.choice(self._alive or [*self._fleet.world.processes.values()])
        process.cut_off(cluster="sim")
        self._fleet.world.loop.call_later(self._rng.uniform(1, 20), process.cut_off, False)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_no_two_shards_work_in_a_cluster_and_each_has_one_in_the_end_whatever_happens(seed: int) -> None:
    async def scene() -> None:
        async with working("s0", "s1", "s2") as fleet:
            misfortunes = Misfortunes(fleet, seed)
            await misfortunes.happen(40)
            await misfortunes.end()
            await asyncio.sleep(60)
            alive = [each.name for each in fleet.world.processes.values() if not each.dead]
            await fleet.until_settled(*alive, within=200)

    simulate(scene)
