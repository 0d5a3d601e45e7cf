"""Objects are taken only from dead shards: a shard that returns under its name while a sharder moves its objects never
works on one together with its new owner.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tiers import further

from kubeshard import ALL, CacheSettings
from kubeshard.cache import Scope
from kubeshard.client import Client, ClusterConfig, TokenBucketLimiter
from kubeshard.controller import Context, Reconciler, Result
from kubeshard.controller.dependents import ensure
from kubeshard.core import ConfigMap, KubeObject, ObjectMeta
from kubeshard.core.errors import NotOurs
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.runtime.pod import Pod
from kubeshard.runtime.transport import UNDELIVERED, HttpRequest, HttpResponse
from kubeshard.shard import ShardFence, ShardIdentity
from kubeshard.shard.identity import Incarnation
from kubeshard.shard.reclaiming import PATIENCE, reclaim
from kubeshard.shard.settings import LeaseTerms
from kubeshard.shard.shard_lease import RETURNING_ANNOTATION, Takeover
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.names import shard_label
from kubeshard.sharding.ring_machine import CONTROLLED_FIRST
from kubeshard.sharding.ring_resources import RingResources
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch, simulate
from kubeshard_lab.simulation.faults.injection import Conditions, Rule
from kubeshard_lab.simulation.processes import Network, Process, refusal
from kubeshard_lab.virtual_time import VirtualClock

pytestmark = pytest.mark.regression

SLOW_DOWN = HttpResponse(
    429,
    {"content-type": "application/json", "retry-after": "4"},
    b'{"kind":"Status","status":"Failure","reason":"TooManyRequests","code":429,"message":"slow down"}',
)


class Cluster:
    """A world whose shards take some time over each object, and a record of shards that worked on one together."""

    def __init__(self, world: SimulatedCluster) -> None:
        self.world = world
        self.working: dict[str, set[str]] = {}
        self.together: list[tuple[float, str, str]] = []

    def shard(self, name: str, process: str = "", **sharding: Any) -> Process:
        process = process or name
        return self.world.shard(name, Slow(self, process), process=process, workers=20, sharding=sharding)

    def count(self, name: str) -> int:
        return list(self.world.owners().values()).count(name)


class Slow(Reconciler[Thing]):
    def __init__(self, cluster: Cluster, process: str) -> None:
        self._cluster = cluster
        self._process = process

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        world, name = self._cluster.world, obj.metadata.name
        at_work = self._cluster.working.setdefault(name, set())
        if others := {other for other in at_work if not world.processes[other].dead}:
            self._cluster.together.append((world.loop.time(), name, f"{self._process} and {others}"))
        at_work.add(self._process)
        try:
            await asyncio.sleep(world.rng.uniform(3.0, 8.0))
            metadata = ObjectMeta(name=f"c-{name}", namespace=obj.metadata.namespace)
            await ensure(ctx, ConfigMap(metadata=metadata, data={"by": self._process}), owner=obj)
        finally:
            at_work.discard(self._process)
        return None


def is_move(request: HttpRequest, shard: str = "") -> bool:
    """Whether the request moves a Thing; `shard`: to which shard."""
    label = f'"{shard_label("r")}":"{shard}'.encode()
    return request.method == "PATCH" and "/things/" in request.target and label in (request.body or b"")


@pytest.mark.parametrize(
    ("seed", "takeover"), [(1, Takeover.AT_ONCE), *further((2, Takeover.AT_ONCE), (1, Takeover.AFTER_RECORD))]
)
def test_a_shard_that_is_back_never_works_on_an_object_that_a_throttled_move_still_takes(
    seed: int, takeover: Takeover
) -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=seed, latency=(0.002, 0.02)) as world:
            cluster = Cluster(world)
            await world.install()
            await world.make_ring()
            sharder = world.sharder("x0")
            for number in range(3):
                cluster.shard(f"s{number}")
            await world.make_things(24)
            await world.until(lambda: world.all_owned("s0", "s1", "s2"), within=60)
            await asyncio.sleep(30)

            async def throttle(request: HttpRequest) -> HttpResponse | None:
                return SLOW_DOWN if is_move(request) and world.rng.uniform(0, 1) < 0.4 else None

            for network in sharder.networks:
                network.before = throttle
            world.processes["s0"].kill()
            await asyncio.sleep(1)
            cluster.shard("s0", "s0 again", lease=LeaseTerms(takeover=takeover))
            await asyncio.sleep(100)
            assert cluster.together == []
            await world.until(lambda: world.all_owned("s0", "s1", "s2") and cluster.count("s0"), within=100)
            assert cluster.together == []

    simulate(scene)


@pytest.mark.parametrize("ends", ["killed", "stopped"])
def test_a_shard_that_is_back_loses_nothing_to_a_sharder_that_was_stopped_between_proof_and_patch(
    ends: str,
) -> None:
    """The sharder's process resumes a minute later and sends its pending patch."""

    async def scene() -> None:
        async with SimulatedCluster(seed=3) as world:
            cluster = Cluster(world)
            await world.install()
            await world.make_ring()
            sharder = world.sharder("x0")
            s0, _ = cluster.shard("s0"), cluster.shard("s1")
            await world.make_things(12)
            await world.until(lambda: world.all_owned("s0", "s1"), within=60)
            await asyncio.sleep(30)
            landed: list[int] = []

            def stop(request: HttpRequest) -> None:
                if is_move(request, "s1"):
                    sharder.pause()

            def see(process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
                if process is sharder and answer is not None and is_move(request, "s1"):
                    landed.append(answer.status)

            for network in sharder.networks:
                network.leaving = stop
            world.observers.append(see)
            before = cluster.count("s0")
            if ends == "killed":
                s0.kill()
            else:
                await s0.stop()
            await world.until(lambda: sharder.stopped, within=40)
            cluster.shard("s0", "s0 again", lease=LeaseTerms(takeover=Takeover.AT_ONCE))
            await world.until(
                lambda: sum("s0 again" in at_work for at_work in cluster.working.values()) > 1, within=60
            )
            for network in sharder.networks:
                network.leaving = None
            sharder.resume()
            await asyncio.sleep(1)
            assert landed
            assert set(landed) == {409}
            assert cluster.count("s0") == before
            await asyncio.sleep(60)
            assert cluster.together == []

    simulate(scene)


ME = ShardIdentity("r", "s0", "ops", Incarnation("", "boot", "x"))
PLACES = ((Thing.KIND, ALL), (ConfigMap.KIND, ALL))


async def labelled(world: SimulatedCluster, cls: type[KubeObject], name: str, **labels: str) -> ObjectMeta:
    async with world.admin() as client:
        return (
            await client.create(cls(metadata=ObjectMeta(name=name, namespace="team", labels=labels)))
        ).metadata


def state(
    world: SimulatedCluster, meta: ObjectMeta, group: str = "sim.example", resource: str = "things"
) -> ObjectMeta:
    metadata = world.objects(group, resource)[Key("team", meta.name)]["metadata"]
    return ObjectMeta(
        name=meta.name, resource_version=metadata["resourceVersion"], labels=metadata.get("labels")
    )


def reclaiming(world: SimulatedCluster) -> Client:
    resources = RingResources([RingResource(group=kind.group, resource=kind.plural) for kind, _ in PLACES])
    return world.admin().fenced(ShardFence(ME, resources, (), lambda: None))


@pytest.mark.quick
def test_every_object_that_carries_the_name_has_a_new_version_and_is_otherwise_as_it_was() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install()
            mine = {ME.label: "s0", "app": "x"}
            main, child = (
                await labelled(world, Thing, "a", **mine),
                await labelled(world, ConfigMap, "c", **mine),
            )
            draining = await labelled(world, Thing, "b", **mine, **{ME.drain: "true"})
            other = await labelled(world, Thing, "d", **{ME.label: "s1"})
            assert await reclaim(reclaiming(world), ME, PLACES)
            now = state(world, child, "", "configmaps")
            assert (now.labels, now.resource_version != child.resource_version) == (mine, True)
            now = state(world, main)
            assert (now.labels, now.resource_version != main.resource_version) == (mine, True)
            for untouched in (draining, other):
                assert state(world, untouched).resource_version == untouched.resource_version

    simulate(scene)


@pytest.mark.quick
def test_objects_that_cannot_be_written_hold_a_returning_shard_up_for_half_a_minute_and_no_other_object(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install()
            for name in ("refused", "refused-too"):
                await labelled(world, Thing, name, **{ME.label: "s0"})
            good = await labelled(world, Thing, "good", **{ME.label: "s0"})
            client = reclaiming(world)
            process = Process(world, "s0")
            network = Network(process, world.front)

            async def refuse(request: HttpRequest) -> HttpResponse | None:
                refused = request.method == "PATCH" and "refused" in request.target
                return refusal(403, "Forbidden") if refused else None

            network.before = refuse
            client = Client(ClusterConfig("http://sim"), transport=network, world=world.outside)
            client = client.fenced(
                ShardFence(
                    ME,
                    RingResources([RingResource(group=Thing.KIND.group, resource=Thing.KIND.plural)]),
                    (),
                    lambda: None,
                )
            )
            began = world.loop.time()
            assert not await reclaim(client, ME, PLACES)
            assert world.loop.time() - began == PATIENCE
            assert state(world, good).resource_version != good.resource_version

    simulate(scene)
    assert [record.msg for record in caplog.records].count("Cannot write an object of this shard") == 1


@pytest.mark.quick
def test_a_lease_says_that_its_holder_returned_only_until_the_objects_are_reclaimed() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            cluster = Cluster(world)
            await world.install()
            await world.make_ring()
            world.sharder("x0")
            cluster.shard("s0")

            def annotations() -> dict[str, str]:
                lease = world.objects("coordination.k8s.io", "leases").get(Key("ops", "s0"))
                return (lease or {"metadata": {}})["metadata"].get("annotations") or {}

            await world.until(lambda: RETURNING_ANNOTATION in annotations(), within=10, step=0.001)
            await world.until(lambda: RETURNING_ANNOTATION not in annotations(), within=5)

    simulate(scene)


@pytest.mark.quick
def test_a_shard_that_works_in_one_namespace_reclaims_its_objects_there_and_asks_for_no_others() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install()
            await world.make_ring()
            mine = await labelled(world, Thing, "mine", **{ME.label: "s0"})
            asked: list[str] = []
            world.observers.append(lambda process, request, answer: asked.append(request.target))
            world.shard("s0", Touch(), cache=CacheSettings(default_scope=Scope(frozenset({"team"}))))
            await world.until(
                lambda: state(world, mine).resource_version != mine.resource_version, within=10, step=0.01
            )
            assert not [target for target in asked if target.startswith("/apis/sim.example/v1/things")]
            assert not [target for target in asked if target.startswith("/api/v1/configmaps")]

    simulate(scene)


def test_a_leader_that_may_send_few_requests_stays_the_leader_while_it_moves_many_objects() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install()
            await world.make_ring()
            await world.make_things(60)
            world.shard("s0", Touch())
            limiter = TokenBucketLimiter(qps=3, burst=3, clock=VirtualClock())
            sharder = world.sharder("x0", webhook=False, limiter=limiter)
            await world.until(lambda: world.all_owned("s0"), within=90)
            assert not sharder.dead, sharder.dead

    simulate(scene)


class WithChild(Reconciler[Thing]):
    """Makes a ConfigMap for each object, and counts the runs that failed because it is another shard's."""

    def __init__(self) -> None:
        self.not_ours = 0

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        metadata = ObjectMeta(name=f"c-{obj.metadata.name}", namespace=obj.metadata.namespace)
        data = {"generation": str(obj.metadata.generation), "by": ctx.key.name}
        try:
            await ensure(ctx, ConfigMap(metadata=metadata, data=data), owner=obj)
        except NotOurs:
            self.not_ours += 1
            raise
        return None


def is_taken(world: SimulatedCluster, shard: str) -> bool:
    """Whether the sharder holds the shard's Lease."""
    leases = world.objects("coordination.k8s.io", "leases").items()
    return any(key.name == shard and lease["spec"]["holderIdentity"] != shard for key, lease in leases)


def test_what_an_object_of_a_dead_shard_controls_moves_before_it_so_that_its_next_shard_finds_it() -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=5) as world:
            await world.install()
            await world.make_ring()
            world.sharder("x0")
            shards = [WithChild() for _ in range(3)]
            for number, reconciler in enumerate(shards):
                world.shard(f"s{number}", reconciler)
            await world.make_things(30)
            await world.until(lambda: world.all_owned("s0", "s1", "s2"), within=60)
            await world.until(lambda: len(world.owners("", "configmaps")) == 30, within=60)
            moved: list[str] = []

            def see(process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
                label = f'"{shard_label("r")}":"s'.encode()
                if answer is None and request.method == "PATCH" and label in (request.body or b""):
                    moved.append(request.target.partition("?")[0].rpartition("/")[2])

            await asyncio.sleep(60)
            world.observers.append(see)
            of_the_dead = sum(owner == "s0" for owner in world.owners().values())
            world.processes["s0"].kill()
            await world.until(lambda: world.all_owned("s1", "s2"), within=60)
            await asyncio.sleep(10)
            controlled = [name.startswith("c-") for name in moved]
            assert of_the_dead > 5
            assert controlled == [True] * of_the_dead + [False] * of_the_dead
            assert sum(each.not_ours for each in shards) == 0

    simulate(scene)


def test_an_object_of_a_dead_shard_does_not_wait_for_long_for_what_it_controls() -> None:
    """Nobody answers the sharder's requests for ConfigMaps."""

    async def scene() -> None:
        async with SimulatedCluster(seed=5) as world:
            await world.install()
            await world.make_ring()
            sharder = world.sharder("x0")
            for number in range(2):
                world.shard(f"s{number}", WithChild())
            await world.make_things(12)
            await world.until(lambda: world.all_owned("s0", "s1"), within=60)
            await asyncio.sleep(60)

            async def hang(request: HttpRequest) -> HttpResponse | None:
                if "/configmaps" in request.target:
                    await asyncio.sleep(600)
                return None

            for network in sharder.networks:
                network.before = hang
            world.processes["s0"].kill()
            await world.until(lambda: is_taken(world, "s0"), within=60)
            assert await world.until(lambda: world.all_owned("s1"), within=60) < CONTROLLED_FIRST + 1.0

    simulate(scene)


class Creates(Reconciler[Thing]):
    """Creates something for every object, and says when it began."""

    def __init__(self, world: SimulatedCluster) -> None:
        self._world = world
        self.began: list[float] = []

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        self.began.append(self._world.loop.time())
        metadata = ObjectMeta(generate_name="made-", namespace=obj.metadata.namespace)
        await ctx.client.create(ConfigMap(metadata=metadata))
        return None


@pytest.mark.quick
@pytest.mark.parametrize("host", [{"pod": Pod("s0", "u1")}, {"machine": "m"}], ids=["pod", "machine"])
def test_nothing_that_a_process_sent_before_it_ended_is_stored_once_its_successor_has_begun(
    host: dict[str, Any],
) -> None:
    """The successor knows that its predecessor has ended, so it does not wait for twice the Lease's duration. But a
    create that the kernel and the server were slow with cannot be refused.
    """

    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world:
            lands, stored = asyncio.Event(), list[float]()
            conditions = Conditions(world, 1)
            conditions.rules.append(
                Rule("late", lambda process, request: _creates(process, request, "s0"), lands=lands)
            )

            def store(resource: GroupResource) -> None:
                if resource.resource == "configmaps" and lands.is_set():
                    stored.append(world.loop.time())

            world.server.store.subscribe(store)
            await world.install()
            await world.make_ring()
            world.sharder("x0")
            s0 = world.shard("s0", Creates(world), **host)
            await world.make_things(1)
            await world.until(lambda: conditions.counts["happened: late"], within=60)
            sent = world.loop.time()
            s0.kill()
            successor = Creates(world)
            world.shard("s0", successor, process="s0 again", **host)
            await asyncio.sleep(sent + UNDELIVERED + 5.0 - 0.5 - world.loop.time())
            lands.set()
            await world.until(lambda: successor.began, within=10)
            assert stored, "it did take effect"
            assert stored[0] < successor.began[0]

    simulate(scene)


def _creates(process: Process, request: HttpRequest, name: str) -> bool:
    return (
        process.name == name
        and request.method == "POST"
        and request.target.partition("?")[0].endswith("/configmaps")
    )
