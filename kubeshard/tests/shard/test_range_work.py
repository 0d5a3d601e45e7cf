"""A shard by ranges that is not made of controllers; the test acts as the coordinator, on virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from kubeshard.client import Client, ClusterConfig
from kubeshard.core import ConfigMap, Lease, MergePatch, NotFound, NotOurs, ObjectMeta
from kubeshard.core.errors import ConfigurationError
from kubeshard.shard import OwnedRanges, Ranges, ShardIdentity, work_by_ranges
from kubeshard.shard.identity import Incarnation
from kubeshard.sharding.assignment import Assignment, Place
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.names import OWNED_RANGES_ANNOTATION, RING_LABEL, SHARDER_IDENTITY, assignment_name
from kubeshard_apiserver import ApiServer, InMemoryTransport
from kubeshard_lab.virtual_time import virtual_time
from kubeshard_lab.virtual_world import virtual_world

ME = ShardIdentity("ring", "me", "default", Incarnation("", "boot", "x"))
BUCKETS = Buckets(4)
LOWER, UPPER = frozenset({0, 1}), frozenset({2, 3})


class Scene:
    """A shard that works on whatever it gets until it is asked to stop, and then for `takes` seconds."""

    def __init__(self, *gates: str) -> None:
        self.server = ApiServer(world=virtual_world(), feature_gates=gates)
        self.client = self._client()
        self.calls: list[frozenset[int]] = []
        self.takes = 0.0
        self.working = self.returns = False
        self.stop = asyncio.Event()

    def _client(self) -> Client:
        world = virtual_world(connect=lambda *_, **__: InMemoryTransport(self.server))
        return Client(ClusterConfig("http://in-memory"), world=world)

    async def run(self) -> None:
        async with self._client() as client:
            await work_by_ranges(ME, client, self.work, stop=self.stop, ranges=Ranges(buckets=4))

    async def work(self, mine: OwnedRanges) -> None:
        self.calls.append(frozenset(each for each in range(4) if (each << 62) in mine.hashes))
        self.working = True
        if not self.returns:
            await mine.over.wait()
            await asyncio.sleep(self.takes)
        self.working = False

    async def assign(self, **buckets: frozenset[int]) -> None:
        """Gives buckets to shards: `a=...`, or asks for a hand-over: `a_to_b=...`."""
        name = assignment_name("ring")
        owners = {
            each: (shard.partition("_to_")[0], shard.partition("_to_")[2])
            for shard, given in buckets.items()
            for each in given
        }
        try:
            before = Assignment.parse((await self.client.get(ConfigMap, name, "default")).data)
        except NotFound:
            places = {each: Place(owner, target, 1) for each, (owner, target) in owners.items()}
            metadata = ObjectMeta(name=name, namespace="default", labels={RING_LABEL: "ring"})
            await self.client.create(ConfigMap(metadata=metadata, data=Assignment.of(BUCKETS, places).data()))
        else:
            patch = before.change(owners)
            assert patch is not None
            await self.client.patch(ConfigMap, name, "default", patch)
        await asyncio.sleep(1)

    async def owned(self, shard: str) -> frozenset[int]:
        found = await self.client.get(ConfigMap, assignment_name("ring"), "default")
        return Assignment.parse(found.data).owned_by(shard)

    async def lease(self) -> Lease:
        return await self.client.get(Lease, ME.name, "default")


@asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(scene.run())
    await asyncio.sleep(1)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(BaseException):
            await task


@virtual_time
async def test_nothing_is_handed_over_before_the_call_that_works_on_it_has_returned() -> None:
    scene = Scene()
    scene.takes = 3.0
    await scene.assign(me=LOWER | UPPER)
    async with running(scene):
        assert scene.calls == [LOWER | UPPER]
        await scene.assign(me_to_other=UPPER)
        assert scene.working
        assert not await scene.owned("other")
        await asyncio.sleep(3)
        assert await scene.owned("other") == UPPER
        assert scene.calls == [LOWER | UPPER, LOWER]
        report = (await scene.lease()).metadata.annotation(OWNED_RANGES_ANNOTATION)
        assert report == "uid/4:0-1@2/4"


@virtual_time
async def test_what_it_gets_is_worked_on_together_with_what_it_had() -> None:
    scene = Scene()
    await scene.assign(me=LOWER, other=UPPER)
    async with running(scene):
        await scene.assign(me=UPPER)
        assert scene.calls == [LOWER, LOWER | UPPER]


@virtual_time
async def test_a_hand_over_that_is_withdrawn_begins_a_new_call() -> None:
    scene = Scene()
    scene.takes = 5.0
    await scene.assign(me=LOWER)
    async with running(scene):
        await scene.assign(me_to_other=LOWER)
        await scene.assign(me=LOWER)
        assert scene.working
        await asyncio.sleep(5)
        assert scene.calls == [LOWER, LOWER]
        assert await scene.owned("me") == LOWER


@virtual_time
async def test_a_stop_waits_for_the_call_and_releases_the_lease_with_all_that_it_owned() -> None:
    scene = Scene()
    scene.takes = 3.0
    await scene.assign(me=LOWER)
    async with running(scene) as task:
        scene.stop.set()
        await asyncio.sleep(2)
        assert (await scene.lease()).spec.holder_identity == ME.name
        await task
    assert not (await scene.lease()).spec.holder_identity
    assert (scene.working, await scene.owned("me")) == (False, LOWER)


@virtual_time
async def test_the_loss_of_the_lease_is_an_error() -> None:
    scene = Scene()
    await scene.assign(me=LOWER)
    async with running(scene) as task:
        taken = MergePatch({"spec": {"holderIdentity": SHARDER_IDENTITY}})
        await scene.client.patch(Lease, ME.name, "default", taken)
        with pytest.raises(NotOurs):
            await task


@virtual_time
async def test_work_that_ends_by_itself_is_an_error_and_the_lease_is_left_to_expire() -> None:
    scene = Scene()
    scene.returns = True
    await scene.assign(me=LOWER)
    async with running(scene) as task:
        with pytest.raises(ExceptionGroup) as raised:
            await task
    assert raised.group_contains(RuntimeError, match="without being asked to")
    assert (await scene.lease()).spec.holder_identity == ME.name


@pytest.mark.parametrize(
    ("gates", "said"),
    [
        (("ShardedListAndWatch",), "The API server selects this shard's objects"),
        ((), "The API server sends all objects, and this shard leaves out those of others"),
    ],
    ids=["selects", "ignores"],
)
@virtual_time
async def test_it_is_said_once_who_selects_a_shards_objects(
    caplog: pytest.LogCaptureFixture, gates: tuple[str, ...], said: str
) -> None:
    scene = Scene(*gates)
    with caplog.at_level(logging.INFO):
        await scene.assign(me=LOWER)
        async with running(scene):
            await scene.assign(me=LOWER)
    assert [each.msg for each in caplog.records if each.msg.startswith("The API server se")] == [said]


def test_an_object_is_owned_by_what_the_ring_hashes() -> None:
    everything = OwnedRanges(BUCKETS.ranges(range(4)))
    assert everything.owns(uid="u")
    assert not OwnedRanges(BUCKETS.ranges(())).owns(uid="u")
    by_namespace = Buckets(4, "namespace")
    bucket = by_namespace.of(ObjectMeta(namespace="team-a"))
    assert OwnedRanges(by_namespace.ranges({bucket})).owns(namespace="team-a")


@virtual_time
async def test_a_ring_by_clusters_is_refused() -> None:
    scene, by_cluster = Scene(), Ranges(by="cluster")
    with pytest.raises(ConfigurationError, match="a share of clusters is what a Manager works on"):
        await work_by_ranges(ME, scene.client, scene.work, stop=scene.stop, ranges=by_cluster)
