"""Objects whose shard label a user changes where no webhook is called."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from processes import Process
from test_regression_in_manager import SHARDS, Team, working
from world import Thing, World

from kubeshard.core import ApiError, MergePatch, ObjectMeta
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharding import ControllerRing, drain_label, shard_label
from kubeshard.testing.virtual_time import virtual_time

pytestmark = pytest.mark.regression

LABEL, DRAIN = shard_label("r"), drain_label("r")


class Reads:
    """Counts reads of single Things, and patches of Things, by shards and not by their sharder."""

    def __init__(self, world: World) -> None:
        self.gets = Counter[str]()
        self.patches = Counter[str]()
        world.observers.append(self._see)

    def _see(self, process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        if answer is None or "/things/" not in request.target or _is_sharders(request):
            return
        if request.method == "GET":
            self.gets[process.name] += 1
        if request.method == "PATCH" and answer.status < 300:
            self.patches[process.name] += 1


def _is_sharders(request: HttpRequest) -> bool:
    return request.headers.get("User-Agent", "").endswith("/sharder")


async def relabel(world: World, name: str, labels: dict[str, str | None] | None, *, by: str = "") -> None:
    async with world.admin() as admin:
        patch = MergePatch({"metadata": {"labels": labels}})
        await admin.patch(Thing, name, "team", patch, field_manager=by or None)


async def put_without_labels(world: World, name: str) -> None:
    path = f"/apis/sim.example/v1/namespaces/team/things/{name}"
    async with world.admin() as admin:
        thing = json.loads((await admin.raw("GET", path)).body)
        thing["metadata"].pop("labels", None)
        await admin.raw("PUT", path, json.dumps(thing).encode())


async def keep_busy(world: World) -> None:
    async with world.admin() as admin:
        for value in range(1_000_000):
            for name in world.owners():
                with suppress(ApiError):
                    await admin.patch(Thing, name, "team", MergePatch({"spec": {"v": value}}))
            await asyncio.sleep(2)


@pytest.mark.parametrize("seed", [1, 2])
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


@pytest.mark.parametrize("wrong", ["another", "ghost", "", None])
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
        assert reads.gets[shard] >= 1
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
        assert moved > 5
        assert [reads.gets[name] for name in SHARDS] == [0, 0, 0]


@virtual_time
async def test_nobody_is_fought_who_changes_the_label_again_and_again() -> None:
    async with working(count=1) as team:
        world, reads = team.world, Reads(team.world)
        await asyncio.sleep(10)
        ((name, shard),) = world.owners().items()
        other = next(each for each in SHARDS if each != shard)
        for _ in range(30):
            await relabel(world, name, {LABEL: other})
            await asyncio.sleep(1)
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


async def _without_ring(world: World) -> None:
    async with world.admin() as admin:
        await admin.delete(ControllerRing, world.ring)


async def _without_resource(world: World) -> None:
    async with world.admin() as admin:
        ring = await admin.get(ControllerRing, world.ring)
        other = [{"group": "", "resource": "secrets"}]
        patch = MergePatch({"spec": {"resources": other}})
        await admin.patch(ControllerRing, ring.metadata.name, None, patch)


async def _without_namespace(world: World) -> None:
    async with world.admin() as admin:
        selector = {"matchLabels": {"no": "such"}}
        await admin.patch(
            ControllerRing, world.ring, None, MergePatch({"spec": {"namespaceSelector": selector}})
        )


@pytest.mark.parametrize("gone", [_without_ring, _without_resource, _without_namespace])
@virtual_time
async def test_labels_are_removed_for_good_where_the_ring_does_not_select_the_object(
    gone: Callable[[World], Awaitable[None]],
) -> None:
    async with World() as world:
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
