"""Objects whose shard label a user changes where no webhook is called."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import msgspec
import pytest
from test_scenes_in_manager import SHARDS, Team, working
from test_scenes_restore import Late
from tiers import further

from kubeshard.client import Client
from kubeshard.core import ApiError, ConfigMap, Key, KubeObject, MergePatch, NotOurs, ObjectMeta
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.runtime.repairs import Repairs
from kubeshard.runtime.transport import HttpRequest, HttpResponse, TransportError
from kubeshard.shard import label_restorer
from kubeshard.shard.label_restorer import LabelRestorer, Losses
from kubeshard.shard.shard_lease import HeldShardLease
from kubeshard.shard.stale_guard import FirstRuns
from kubeshard.sharder.config import SharderConfig
from kubeshard.sharding import object_job, waiting
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard.sharding.object_job import Job
from kubeshard.sharding.waiting import ASSIGNMENT_DELAY
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

LABEL, DRAIN = shard_label("r"), drain_label("r")


class Reads:
    """Counts reads of single objects, and patches of objects, by shards and not by their sharder."""

    def __init__(self, world: SimulatedCluster) -> None:
        self.reads = Counter[str]()
        self.patches = Counter[str]()
        world.observers.append(self._see)

    def _see(self, process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        if answer is None or _is_sharders(request):
            return
        if (
            request.method == "GET"
            and "/team/" in request.target
            and "fieldSelector=metadata.name" in request.target
        ):
            self.reads[process.name] += 1
        if request.method == "PATCH" and "/things/" in request.target and answer.status < 300:
            self.patches[process.name] += 1


def _is_sharders(request: HttpRequest) -> bool:
    return request.headers.get("User-Agent", "").endswith("/sharder")


class Owners:
    """The shards of each object of a resource, one after the other."""

    def __init__(self, world: SimulatedCluster, resource: GroupResource) -> None:
        self.of: dict[str, list[str]] = {}
        self.without: dict[str, float] = {}
        """For how long each object had no shard, the last time."""
        self._since: dict[str, float] = {}
        self._now = world.loop.time
        self._store, self._resource = world.server.store, resource
        for key, obj in world.objects(*resource).items():
            self.of[key.name] = [obj["metadata"].get("labels", {}).get(LABEL, "")]
        self._store.subscribe(self._see)

    def _see(self, resource: GroupResource) -> None:
        if resource == self._resource:
            event = self._store.history(resource).after(self._store.revision - 1)[-1].event
            owner = (event.new or event.old)["metadata"].get("labels", {}).get(LABEL, "")
            before = self.of.setdefault(event.key.name, [])
            if before[-1:] != [owner]:
                before.append(owner)
                if not owner:
                    self._since[event.key.name] = self._now()
                elif event.key.name in self._since:
                    self.without[event.key.name] = self._now() - self._since.pop(event.key.name)


@asynccontextmanager
async def beside_a_sharder(
    shards: Sequence[str] = SHARDS,
    *,
    count: int = 60,
    webhook: bool = True,
    config: SharderConfig | None = None,
) -> AsyncIterator[Team]:
    """Shards that work on their objects, and a sharder in a process of its own."""
    async with SimulatedCluster() as world:
        team = Team(world)
        await world.install()
        await world.make_ring()
        world.sharder("x0", config, webhook=webhook)
        for name in shards:
            team.shard(name, mode="shard")
        await asyncio.sleep(30)
        await world.make_things(count)
        await team.until_settled(*shards)
        await asyncio.sleep(20)
        yield team


def as_go(job: Job) -> MergePatch:
    """A move of the Go sharder: the webhook adds the label."""
    view = job.view
    assert view is not None
    labels = {view.shard_label: None, view.drain_label: None}
    return MergePatch({"metadata": {"resourceVersion": job.meta.resource_version, "labels": labels}})


async def relabel(
    world: SimulatedCluster,
    name: str,
    labels: dict[str, str | None] | None,
    *,
    by: str = "",
    kind: type[KubeObject] = Thing,
) -> None:
    async with world.admin() as admin:
        patch = MergePatch({"metadata": {"labels": labels}})
        await admin.patch(kind, name, "team", patch, field_manager=by or None)


async def put_without_labels(world: SimulatedCluster, name: str) -> None:
    path = f"/apis/sim.example/v1/namespaces/team/things/{name}"
    async with world.admin() as admin:
        thing = json.loads((await admin.raw("GET", path)).body)
        thing["metadata"].pop("labels", None)
        await admin.raw("PUT", path, json.dumps(thing).encode())


async def keep_busy(world: SimulatedCluster) -> None:
    async with world.admin() as admin:
        for value in range(1_000_000):
            for name in world.owners():
                with suppress(ApiError):
                    await admin.patch(Thing, name, "team", MergePatch({"spec": {"v": value}}))
            await asyncio.sleep(2)


@pytest.mark.parametrize("seed", [1, *further(2)])
@virtual_time
async def test_an_object_that_loses_its_labels_during_its_drain_is_never_in_two_hands_without_a_webhook(
    seed: int,
) -> None:
    async with working(seed) as team:
        world, replaced = team.world, set[str]()
        busy = asyncio.create_task(keep_busy(world))
        await asyncio.sleep(5)
        team.shard("s3")
        for _ in range(300):
            await asyncio.sleep(0.1)
            for name in sorted(world.draining() - replaced):
                await put_without_labels(world, name)
                replaced.add(name)
        busy.cancel()
        assert replaced
        assert team.together == []
        await team.until_settled(*SHARDS, "s3")


@pytest.mark.parametrize("wrong", ["another", *further(None, "ghost", "")])
@virtual_time
async def test_a_label_that_a_user_changes_is_back_within_two_seconds_without_a_webhook(
    wrong: str | None,
) -> None:
    async with working() as team:
        world = team.world
        await asyncio.sleep(10)
        before = world.owners()
        for name, shard in before.items():
            other = next(each for each in SHARDS if each != shard) if wrong == "another" else wrong
            await relabel(world, name, {"app": "x", LABEL: other})
        assert world.owners() != before
        assert await world.until(lambda: world.owners() == before, within=2) < 2
        await asyncio.sleep(60)
        assert world.owners() == before
        labels = [obj["metadata"]["labels"] for obj in world.objects("sim.example", "things").values()]
        assert all(each["app"] == "x" and DRAIN not in each for each in labels)


@pytest.mark.parametrize("wrong", ["another", *further("ghost", "", None)])
@virtual_time
async def test_so_is_the_label_of_a_controlled_object(wrong: str | None) -> None:
    async with working() as team:
        world = team.world
        await asyncio.sleep(10)
        before = world.owners("", "configmaps")
        for name, shard in before.items():
            other = next(each for each in SHARDS if each != shard) if wrong == "another" else wrong
            await relabel(world, name, {"app": "x", LABEL: other}, kind=ConfigMap)
        assert world.owners("", "configmaps") != before
        assert await world.until(lambda: world.owners("", "configmaps") == before, within=2) < 2
        await asyncio.sleep(60)
        assert world.owners("", "configmaps") == before


@virtual_time
async def test_a_controlled_object_that_a_user_gives_to_another_owner_is_left_to_that_ones_shard() -> None:
    async with beside_a_sharder(("s0", "s1"), count=10) as team:
        world = team.world
        owners = world.owners()
        former, next_ = (next(name for name in owners if owners[name] == shard) for shard in ("s0", "s1"))
        reads = Reads(world)
        uid = world.objects("sim.example", "things")[Key("team", next_)]["metadata"]["uid"]
        reference = {
            "apiVersion": "sim.example/v1",
            "kind": "Thing",
            "name": next_,
            "uid": uid,
            "controller": True,
        }
        patch = MergePatch({"metadata": {"ownerReferences": [reference]}})
        async with world.admin() as admin:
            await admin.patch(ConfigMap, f"c-{former}", "team", patch, field_manager="kubectl")
        labels: list[str] = []
        for _ in range(50):
            labels.append(world.owners("", "configmaps").get(f"c-{former}", ""))
            await asyncio.sleep(0.1)
        assert reads.reads["s0"]
        assert set(labels) == {"s1"}


@virtual_time
async def test_an_object_of_a_controlled_kind_that_nobody_controls_is_nobodys() -> None:
    async with working() as team:
        world = team.world
        await asyncio.sleep(10)
        async with world.admin() as admin:
            metadata = ObjectMeta(name="alone", namespace="team", labels={LABEL: "s0"})
            await admin.create(ConfigMap(metadata=metadata))
        await asyncio.sleep(5)
        reads = Reads(world)
        await relabel(world, "alone", {LABEL: None}, kind=ConfigMap)
        await asyncio.sleep(30)
        assert world.owners("", "configmaps")["alone"] == ""
        assert not reads.reads


@virtual_time
async def test_the_drain_of_an_object_whose_label_a_user_removed_goes_on() -> None:
    async with working() as team:
        world = team.world
        await asyncio.sleep(10)
        busy = asyncio.create_task(keep_busy(world))
        name, shard = next(iter(world.owners().items()))
        reads = Reads(world)
        await world.until(lambda: team.working.get(name), within=10)
        await relabel(world, name, {DRAIN: "true"})
        await relabel(world, name, {LABEL: None, DRAIN: None})
        await world.until(lambda: world.owners()[name] == shard and name in world.draining(), within=2)
        assert reads.reads[shard] >= 1
        busy.cancel()
        await team.until_settled(*SHARDS)


@virtual_time
async def test_an_object_that_a_shard_releases_is_not_read_again() -> None:
    async with working(count=60) as team:
        await asyncio.sleep(20)
        reads, before = Reads(team.world), team.world.owners()
        team.shard("s3")
        await team.until_settled(*SHARDS, "s3")
        moved = sum(owner != before[name] for name, owner in team.world.owners().items())
        children = sum(owner == "s3" for owner in team.world.owners("", "configmaps").values())
        assert moved == children > 5
        assert [reads.reads[name] for name in SHARDS] == [0, 0, 0]


@virtual_time
async def test_nobody_is_fought_who_changes_the_label_again_and_again() -> None:
    async with working(count=1) as team:
        world, reads = team.world, Reads(team.world)
        await asyncio.sleep(10)
        ((name, shard),) = world.owners().items()
        other = next(each for each in SHARDS if each != shard)
        for _ in range(6):
            await relabel(world, name, {LABEL: other})
            await asyncio.sleep(10)  # enough for a run that confirms that the object is the shard's again
        assert reads.patches[shard] == 3
        assert reads.patches[other] == 0


@virtual_time
async def test_what_a_sharder_moves_stays_where_it_is() -> None:
    """A Go sharder that takes this shard for dead, say: a move is known by its field manager."""
    async with working() as team:
        world, reads = team.world, Reads(team.world)
        await asyncio.sleep(10)
        name, shard = next(iter(world.owners().items()))
        other = next(each for each in SHARDS if each != shard)
        await relabel(world, name, {LABEL: other}, by="sharder")
        await asyncio.sleep(5)
        assert reads.patches[shard] == 0


@pytest.mark.parametrize("webhook", [True, False])
@virtual_time
async def test_an_object_that_changes_hands_has_no_shard_for_a_second_and_at_no_time_with_a_webhook(
    webhook: bool,
) -> None:
    async with beside_a_sharder(webhook=webhook) as team:
        world = team.world
        things = Owners(world, GroupResource("sim.example", "things"))
        team.shard("s3", mode="shard")
        await team.until_settled(*SHARDS, "s3")
        moved = {name for name, owner in world.owners().items() if owner == "s3"}
        assert len(moved) > 5
        assert things.without.keys() == (set() if webhook else moved)
        assert all(ASSIGNMENT_DELAY < seconds < ASSIGNMENT_DELAY + 0.2 for seconds in things.without.values())


@virtual_time
async def test_an_object_that_was_deleted_and_created_again_is_not_taken_back() -> None:
    async with working() as team:
        world, reads = team.world, Reads(team.world)
        await asyncio.sleep(10)
        name, shard = next(iter(world.owners().items()))
        other = next(each for each in SHARDS if each != shard)
        async with world.admin() as admin:
            await admin.delete(Thing, name, "team")
            await admin.create(Thing(metadata=ObjectMeta(name=name, namespace="team", labels={LABEL: other})))
        await asyncio.sleep(5)
        assert reads.patches[shard] == 0


@pytest.mark.parametrize(
    ("webhook", "lost"), [(True, True), (False, False), *further((True, False), (False, True))]
)
@virtual_time
async def test_a_shard_that_does_not_learn_in_time_that_it_released_an_object_leaves_it_to_the_next(
    webhook: bool, lost: bool
) -> None:
    """The response comes long after the event, or never. A label that the webhook sets has no field manager."""
    async with beside_a_sharder(webhook=webhook) as team:
        world = team.world
        things = Owners(world, GroupResource("sim.example", "things"))

        async def late(request: HttpRequest, answer: HttpResponse) -> None:
            if request.method == "PATCH" and "/things/" in request.target:
                await asyncio.sleep(1)
                if lost:
                    raise TransportError("connection reset", sent=True)

        for shard in SHARDS:
            for network in world.processes[shard].networks:
                network.after = late
        team.shard("s3", mode="shard")
        await team.until_settled(*SHARDS, "s3")
        assert "s3" in world.owners().values()
        assert all(len([owner for owner in owners if owner]) <= 2 for owners in things.of.values())


@virtual_time
async def test_a_shard_that_learns_late_that_an_object_left_and_came_back_lets_go_of_it_once() -> None:
    """It hears of both, and of a drain, together."""
    async with beside_a_sharder(("s0", "s1"), count=30) as team:
        world = team.world
        before, things = world.owners(), Owners(world, GroupResource("sim.example", "things"))
        let = asyncio.Event()
        for network in world.processes["s0"].networks:
            network.through = lambda request, stream: Late(stream, let)
            network.abort()
        await asyncio.sleep(5)
        for owner in ("s1", "s0"):
            for name in before:
                if before[name] == "s0":
                    await relabel(world, name, {LABEL: owner}, by="sharder")
        team.shard("s2", mode="shard")
        await world.until(world.draining, within=20)
        await asyncio.sleep(2)
        let.set()
        await world.until(lambda: team.settled("s0", "s1", "s2"), within=30)
        await asyncio.sleep(5)
        taken = [owners for owners in things.of.values() if "s0" in owners and "s2" in owners]
        assert taken
        assert {tuple(owners) for owners in taken} == {("s0", "s1", "s0", "s2")}


@virtual_time
async def test_a_shard_that_is_back_takes_nothing_from_the_shards_that_work_on_what_it_had() -> None:
    """Its process listed the objects before they were moved, and hears later that they were, and moved on: to a shard
    that the webhook chose when another one released them.
    """
    shards = ("s0", "s1", "s3")
    async with beside_a_sharder(shards, count=60) as team:
        world = team.world
        before, let = world.owners(), asyncio.Event()
        things = Owners(world, GroupResource("sim.example", "things"))
        world.processes["s0"].kill()
        again = team.shard("s0", "s0-again", mode="shard")
        await asyncio.sleep(2)
        for network in again.networks:
            network.through = lambda request, stream: Late(stream, let)
            network.abort()
        await world.until(lambda: "s0" not in world.owners().values(), within=60)
        team.shard("s2", mode="shard")
        await world.until(lambda: team.settled(*shards, "s2"), within=30)
        let.set()
        await asyncio.sleep(10)
        moved_on = [name for name in before if before[name] == "s0" and world.owners()[name] == "s2"]
        assert moved_on
        assert {len(things.of[name]) for name in moved_on} == {3}
        assert team.settled(*shards, "s2")
        assert team.together == []


@virtual_time
async def test_a_controlled_object_that_a_webhook_gave_to_another_shard_is_that_shards() -> None:
    """The Go sharder moves it by removing the label, and its webhook adds another one, which then has no field manager.
    The shard may not yet know that it has no longer the owner.
    """
    async with beside_a_sharder(count=30, config=SharderConfig(sharders=("kubernetes-admin",))) as team:
        world = team.world
        children = Owners(world, GroupResource("", "configmaps"))
        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(Losses, "has", lambda *_: True)
            patching.setattr(object_job, "move_by_version", as_go)
            team.shard("s3", mode="shard")
            await team.until_settled(*SHARDS, "s3")
            await asyncio.sleep(5)
        assert "s3" in world.owners("", "configmaps").values()
        assert max(map(len, children.of.values())) == 2


@virtual_time
async def test_a_controlled_object_is_not_taken_back_after_its_owner_was_released() -> None:
    """The cache still shows the owner: the watch is late. The sharder removes the labels when a ring is cleaned up, and
    the ring may be there again before the shard hears of it. What takes them away here is a user, and the sharder is
    not there.
    """
    async with beside_a_sharder(("s0", "s1"), count=10, webhook=False) as team:
        world, reads, let = team.world, Reads(team.world), asyncio.Event()
        world.processes["x0"].kill()
        name = next(name for name, shard in world.owners().items() if shard == "s0")
        let.set()

        async def late_from_now_on(request: HttpRequest) -> HttpResponse | None:
            if request.method == "PATCH" and "/things/" in request.target:
                let.clear()
            return None

        for network in world.processes["s0"].networks:
            network.before = late_from_now_on
            network.through = lambda request, stream: (
                Late(stream, let) if "/things?" in request.target else stream
            )
            network.abort()
        await asyncio.sleep(5)
        await relabel(world, name, {"app": "x"})  # its run confirms that it is the shard's
        await asyncio.sleep(5)
        await relabel(world, name, {DRAIN: "true"}, by="sharder")
        await world.until(lambda: not world.owners()[name], within=10)
        assert not let.is_set()
        await relabel(world, f"c-{name}", {LABEL: None}, by="sharder", kind=ConfigMap)
        await asyncio.sleep(10)
        assert world.owners("", "configmaps")[f"c-{name}"] == ""
        assert reads.reads["s0"] == 0


@virtual_time
async def test_a_write_that_takes_back_an_object_and_is_late_takes_it_from_nobody() -> None:
    async with working(count=1) as team:
        world, reads = team.world, Reads(team.world)
        await asyncio.sleep(10)
        ((name, shard),) = world.owners().items()
        other = next(each for each in SHARDS if each != shard)
        held = asyncio.Event()

        async def hold(request: HttpRequest) -> HttpResponse | None:
            if request.method == "PATCH" and "/things/" in request.target and not _is_sharders(request):
                held.set()
                await asyncio.sleep(1)
            return None

        for network in world.processes[shard].networks:
            network.before = hold
        await relabel(world, name, {LABEL: "ghost"})
        await held.wait()
        await relabel(world, name, {LABEL: other}, by="sharder")
        await asyncio.sleep(5)
        assert reads.patches[shard] == 0
        assert world.owners()[name] == other


@virtual_time
async def test_a_shard_whose_lease_is_not_held_takes_nothing_back() -> None:
    def lost(self: HeldShardLease) -> None:
        raise NotOurs("the Lease is lost")

    async with working(count=1) as team:
        world, reads = team.world, Reads(team.world)
        await asyncio.sleep(10)
        ((name, shard),) = world.owners().items()
        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(HeldShardLease, "check", lost)
            await relabel(world, name, {LABEL: "ghost"})
            await asyncio.sleep(5)
        assert reads.reads[shard] == 1
        assert reads.patches[shard] == 0


@virtual_time
async def test_what_a_restore_of_etcd_gives_back_to_another_shard_is_that_shards() -> None:
    """Its label was set when it was created, by the webhook and so by no sharder's field manager. Its version does not
    tell a restore from an edit, since the object is written again after it.
    """
    async with SimulatedCluster() as world:
        team = Team(world)
        await world.install()
        await world.make_ring()
        world.sharder("x0")
        for name in ("s0", "s1"):
            team.shard(name, mode="shard")
        await asyncio.sleep(30)
        await world.make_things(6)
        await world.until(lambda: world.all_owned("s0", "s1"), within=30)
        name, other = [name for name, shard in world.owners().items() if shard == "s0"][:2]
        await asyncio.sleep(30)
        restore = world.backup()
        async with world.admin() as admin:
            # As a sharder would if s0 had died.
            await relabel(world, name, {LABEL: "s1"}, by="sharder")
            for value in range(500):
                await admin.patch(Thing, other, "team", MergePatch({"spec": {"v": value}}))
            await asyncio.sleep(5)
            reads = Reads(world)
            restore()
            for value in range(100):
                await admin.patch(Thing, name, "team", MergePatch({"spec": {"v": value}}))
        assert world.owners()[name] == "s0"
        await asyncio.sleep(60)
        assert reads.patches["s1"] == 0
        assert world.owners()[name] == "s0"


async def _without_ring(world: SimulatedCluster) -> None:
    async with world.admin() as admin:
        await admin.delete(ControllerRing, world.ring)


async def _without_resource(world: SimulatedCluster) -> None:
    async with world.admin() as admin:
        ring = await admin.get(ControllerRing, world.ring)
        other = [{"group": "", "resource": "secrets"}]
        patch = MergePatch({"spec": {"resources": other}})
        await admin.patch(ControllerRing, ring.metadata.name, None, patch)


async def _without_namespace(world: SimulatedCluster) -> None:
    async with world.admin() as admin:
        selector = {"matchLabels": {"no": "such"}}
        await admin.patch(
            ControllerRing, world.ring, None, MergePatch({"spec": {"namespaceSelector": selector}})
        )


@pytest.mark.parametrize("gone", [_without_ring, _without_resource, _without_namespace])
@virtual_time
async def test_labels_are_removed_for_good_where_the_ring_does_not_select_the_object(
    gone: Callable[[SimulatedCluster], Awaitable[None]],
) -> None:
    async with SimulatedCluster() as world:
        team = Team(world)
        await world.install()
        await world.make_ring()
        sharder = world.sharder("x0", webhook=False)
        for name in ("s0", "s1"):
            # Not declared by the controllers.
            team.shard(name, mode="shard")
        await world.make_things(6)
        await world.until(lambda: world.all_owned("s0", "s1"), within=60)
        await asyncio.sleep(20)
        await gone(world)
        await asyncio.sleep(1)
        for name in world.owners():
            await relabel(world, name, {LABEL: None})
        await asyncio.sleep(30)
        assert set(world.owners().values()) == {""}
        assert not sharder.dead


async def _is_selected(*_: object) -> bool:
    return True


def _unchanged(self: object, *args: object) -> object:
    return self


def _another_uid(now: Callable[..., bool]) -> Callable[..., bool]:
    def is_taken(self: LabelRestorer, kind: Kind, live: ObjectMeta, lost: ObjectMeta) -> bool:
        return now(self, kind, live, msgspec.structs.replace(lost, uid=live.uid))

    return is_taken


def _any_version(now: Callable[..., MergePatch]) -> Callable[..., MergePatch]:
    def patch(self: LabelRestorer, live: ObjectMeta, lost: ObjectMeta) -> MergePatch:
        metadata = now(self, live, lost).body["metadata"]
        return MergePatch({"metadata": {"labels": metadata["labels"]}})

    return patch


ANOTHER_UID, ANY_VERSION = _another_uid(LabelRestorer._is_taken), _any_version(LabelRestorer._patch)

GUARDS: dict[str, tuple[object, str, object, Callable[..., object]]] = {
    "it is the same object, by its uid": (
        LabelRestorer,
        "_is_taken",
        ANOTHER_UID,
        test_an_object_that_was_deleted_and_created_again_is_not_taken_back,
    ),
    "no sharder has moved it, by the field manager": (
        label_restorer,
        "_managers",
        lambda meta, label: set(),
        test_what_a_sharder_moves_stays_where_it_is,
    ),
    "the shard has not released it": (
        Losses,
        "is_released",
        lambda self, kind, key: False,
        partial(
            test_a_shard_that_does_not_learn_in_time_that_it_released_an_object_leaves_it_to_the_next,
            True,
            True,
        ),
    ),
    "it is in the version that was read": (
        LabelRestorer,
        "_patch",
        ANY_VERSION,
        test_a_write_that_takes_back_an_object_and_is_late_takes_it_from_nobody,
    ),
    "the shard holds its Lease": (
        Client,
        "checked",
        _unchanged,
        test_a_shard_whose_lease_is_not_held_takes_nothing_back,
    ),
    "etcd was not restored": (
        label_restorer,
        "SINCE_RESTORE",
        0.0,
        test_what_a_restore_of_etcd_gives_back_to_another_shard_is_that_shards,
    ),
    "the ring selects it": (
        LabelRestorer,
        "_is_selected",
        _is_selected,
        partial(
            test_labels_are_removed_for_good_where_the_ring_does_not_select_the_object, _without_namespace
        ),
    ),
    "the owner of a controlled one is on the shard": (
        LabelRestorer,
        "_was_ours",
        lambda self, lost: True,
        test_an_object_of_a_controlled_kind_that_nobody_controls_is_nobodys,
    ),
    "a live read has shown that it is the shard's": (
        FirstRuns,
        "confirmed",
        lambda self, key: True,
        test_a_shard_that_is_back_takes_nothing_from_the_shards_that_work_on_what_it_had,
    ),
    "it has not been taken back again and again": (
        Repairs,
        "wait",
        lambda self, thing: 0.0,
        test_nobody_is_fought_who_changes_the_label_again_and_again,
    ),
    "the sharder hesitates": (
        waiting,
        "ASSIGNMENT_DELAY",
        0.0,
        partial(
            test_an_object_that_loses_its_labels_during_its_drain_is_never_in_two_hands_without_a_webhook, 1
        ),
    ),
}


LONG = {
    "the shard has not released it",
    "etcd was not restored",
    "a live read has shown that it is the shard's",
    "the sharder hesitates",
}
"""Guards whose tests have long scenes."""


@pytest.mark.parametrize(
    ("where", "name", "off", "test"),
    [
        pytest.param(*guard, id=which, marks=[pytest.mark.nightly] if which in LONG else [])
        for which, guard in GUARDS.items()
    ],
)
def test_without_one_of_the_guards_its_test_fails(
    where: object,
    name: str,
    off: object,
    test: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(where, name, off)
    with pytest.raises(AssertionError):
        test()
