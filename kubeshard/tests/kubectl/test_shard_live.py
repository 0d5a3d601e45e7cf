"""A live picture follows the API server across every gap, and says what it cannot see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from ring_cluster import RING, RingCluster, name_on

from kubeshard.client import install
from kubeshard.core import ConfigMap, Lease, MergePatch, Namespace, Secret
from kubeshard.core.errors import ApiError, Unavailable
from kubeshard.core.objects import KubeObject
from kubeshard.crd import definition
from kubeshard.inspection import live
from kubeshard.inspection.cluster import read_cluster
from kubeshard.inspection.errors import Unanswerable
from kubeshard.inspection.live import RingWatcher, live_ring
from kubeshard.inspection.ring import SeenRing, see
from kubeshard.inspection.stats import RingSnapshot
from kubeshard.listwatch.state_machine import Listed
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard_apiserver.testing import MemoryApi

SHARD, DRAIN = shard_label(RING), drain_label(RING)


class Thing(KubeObject, group="no.example", version="v1"): ...


THINGS = definition(Thing)
ON_A, ON_B = name_on("a", "a", "b"), name_on("b", "a", "b")


@pytest.fixture
async def cluster(kube_memory: MemoryApi) -> AsyncIterator[RingCluster]:
    async with kube_memory.client() as client:
        cluster = RingCluster(client)
        await cluster.install()
        for shard in ("a", "b"):
            await cluster.shard(shard, told="ready")
        yield cluster


class Looking:
    def __init__(self, watcher: RingWatcher) -> None:
        self._watcher = watcher

    @property
    def live(self) -> live.LiveRing:
        return self._watcher.live

    @property
    def view(self) -> RingSnapshot:
        return self._watcher.snapshot()

    async def until(self, condition: Callable[[RingSnapshot], object]) -> RingSnapshot:
        try:
            async with asyncio.timeout(10):
                while not condition(self.view):  # noqa: ASYNC110 - a picture is asked for, it does not tell
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(self.view) from None
        return self.view


@asynccontextmanager
async def looking(cluster: RingCluster) -> AsyncIterator[Looking]:
    ring = await see(cluster.client, await read_cluster(cluster.client), RING)
    look = RingWatcher(cluster.client, ring)
    task = asyncio.create_task(look.run())
    try:
        async with asyncio.timeout(10):
            await look.read()
        yield Looking(look)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def relabel(cluster: RingCluster, name: str, **labels: str | None) -> None:
    keys = {"shard": SHARD, "drain": DRAIN}
    patch = MergePatch({"metadata": {"labels": {keys[key]: value for key, value in labels.items()}}})
    await cluster.client.patch(Secret, name, "team", patch)


def columns(view: RingSnapshot) -> dict[str, tuple[str, int, int, int]]:
    return {row.shard: (row.state, row.objects, row.followers, row.draining) for row in view.rows}


async def test_what_is_there_and_what_comes_and_goes(cluster: RingCluster) -> None:
    owner = await cluster.secret(ON_A, "a")
    await cluster.child("child", owner, "a")
    await cluster.child("plain", None)
    await cluster.secret("elsewhere", "a", namespace="other")
    async with looking(cluster) as look:
        view = await look.until(lambda view: view.total == 2)
        assert columns(view) == {"a": ("ready", 1, 1, 0), "b": ("ready", 0, 0, 0)}
        assert view.settled
        await cluster.secret("new")
        assert not (await look.until(lambda view: view.unassigned == 1)).settled
        await relabel(cluster, "new", shard="ghost")
        view = await look.until(lambda view: view.stranded == 1)
        assert columns(view)["ghost"] == ("gone", 1, 0, 0)
        await cluster.client.delete(Secret, "new", "team")
        await look.until(lambda view: view.settled)


async def test_a_drain_and_the_movement_that_follows(cluster: RingCluster) -> None:
    await cluster.secret(ON_B, "a")
    async with looking(cluster) as look:
        assert look.view.misplaced == 1
        await relabel(cluster, ON_B, drain="true")
        await look.until(lambda view: view.draining == 1 and view.drains == 1)
        await relabel(cluster, ON_B, drain=None, shard="b")
        view = await look.until(lambda view: view.settled)
        assert [(row.arrived, row.left) for row in view.rows] == [(0, 1), (1, 0)]
        assert (view.moves, view.drains) == (1, 1)


async def test_a_shard_that_dies_and_one_that_joins(cluster: RingCluster) -> None:
    await cluster.secret(ON_B, "b")
    async with looking(cluster) as look:
        patch = MergePatch({"spec": {"holderIdentity": ""}})
        await cluster.client.patch(Lease, "b", "team", patch)
        assert columns(await look.until(lambda view: view.stranded == 1))["b"][0] == "dead"
        await cluster.shard("c", told="ready")
        await look.until(lambda view: "c" in columns(view))
        await cluster.client.delete(Lease, "c", "team")
        await look.until(lambda view: "c" not in columns(view))


async def test_while_leases_are_listed_again_their_shards_are_still_there(cluster: RingCluster) -> None:
    async with looking(cluster) as look:
        leases, before = look.live._leases, columns(look.view)
        listing = leases.begin("")
        assert columns(look.view) == before
        listing.put(await cluster.client.get(Lease, "a", "team"), "")
        leases.listed(Listed("1", rewound=False), listing, "")
        assert list(columns(look.view)) == ["a"]


@pytest.mark.parametrize("gap", ["cut", pytest.param("forgotten", marks=pytest.mark.system)])
async def test_after_a_gap_everything_is_as_it_is(
    cluster: RingCluster, kube_memory: MemoryApi, gap: str
) -> None:
    await cluster.secret(ON_A, "a")
    await cluster.secret(ON_B, "b")
    async with looking(cluster) as look:
        await look.until(lambda view: view.total == 2)
        kube_memory.cut()
        await cluster.client.delete(Secret, ON_A, "team")
        await relabel(cluster, ON_B, shard="a")
        if gap == "forgotten":
            kube_memory.forget()
        view = await look.until(lambda view: view.total == 1 and view.misplaced == 1)
        assert view.moves == 1


async def test_namespaces_that_the_ring_begins_and_ceases_to_select(
    cluster: RingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "TOGETHER", 0.0)
    await cluster.ring(namespaceSelector={"matchLabels": {"sharded": "yes"}})
    await cluster.secret(ON_A, "a")

    async def label(value: str | None) -> None:
        patch = MergePatch({"metadata": {"labels": {"sharded": value}}})
        await cluster.client.patch(Namespace, "team", None, patch)

    async with looking(cluster) as look:
        assert look.view.total == 0
        await label("yes")
        await look.until(lambda view: view.total == 1)
        await label(None)
        await look.until(lambda view: view.total == 0)


async def test_a_ring_that_is_edited_meanwhile(cluster: RingCluster) -> None:
    await cluster.child("child", await cluster.secret(ON_A, "a"), "a")
    async with looking(cluster) as look:
        assert look.view.total == 2
        await cluster.ring(resources=[{"group": "", "resource": "secrets"}])
        await look.until(lambda view: view.total == 1)


async def test_who_waits_for_the_first_picture_gets_that_of_a_ring_that_is_edited_meanwhile(
    cluster: RingCluster,
) -> None:
    ring = await see(cluster.client, await read_cluster(cluster.client), RING)
    await cluster.ring(resources=[{"group": "", "resource": "secrets"}])
    look = RingWatcher(cluster.client, ring)
    replaced = look.live
    reading = asyncio.create_task(look.read())
    await asyncio.sleep(0)  # it waits for the ring, which is gone and which nobody has begun to read
    task = asyncio.create_task(look.run())
    try:
        async with asyncio.timeout(10):
            await reading
        assert look.live is not replaced
        assert not look.snapshot().unread
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_ring_with_a_resource_that_is_not_served_is_not_read_anew_until_it_is(
    cluster: RingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LOOK_AGAIN", 0.01)
    things = {"group": "no.example", "resource": "things"}
    await cluster.ring(resources=[{"group": "", "resource": "secrets"}, things])
    looks = 0
    again = RingWatcher._seen_again

    async def counted(self: RingWatcher) -> SeenRing:
        nonlocal looks
        looks += 1
        return await again(self)

    monkeypatch.setattr(RingWatcher, "_seen_again", counted)
    async with looking(cluster) as look:
        first = look.live
        await look.until(lambda _: looks >= 3)
        assert look.live is first
        async for _ in install(cluster.client, [THINGS]):
            pass
        await look.until(lambda view: look.live is not first and not view.unread)


async def test_a_ring_that_is_deleted_meanwhile_ends_the_picture(cluster: RingCluster) -> None:
    ring = await see(cluster.client, await read_cluster(cluster.client), RING)
    watcher = RingWatcher(cluster.client, ring)
    task = asyncio.create_task(watcher.run())
    await watcher.live.read()
    await cluster.client.delete(ControllerRing, RING)
    with pytest.raises(Unanswerable, match="there is no ring"):
        async with asyncio.timeout(10):
            await task


async def test_a_resource_that_is_not_served_is_told(cluster: RingCluster) -> None:
    await cluster.ring(
        resources=[{"group": "", "resource": "secrets"}, {"group": "no.example", "resource": "things"}]
    )
    async with looking(cluster) as look:
        (unread,) = look.view.unread
        assert unread.startswith("things.no.example: the server does not serve")
        assert not look.view.settled


async def test_what_cannot_be_read_is_told_and_not_waited_for(cluster: RingCluster) -> None:
    ring = await see(cluster.client, await read_cluster(cluster.client), RING)
    look = live_ring(cluster.client, ring)
    reading = asyncio.create_task(look.read())
    look.heard("leases.coordination.k8s.io", None)
    look.heard("secrets", None)
    await asyncio.sleep(0)
    assert not reading.done()
    look.heard("configmaps", ApiError("it is broken"))
    await asyncio.wait_for(reading, 10)
    assert look.snapshot().unread == ("configmaps: it is broken",)


async def test_namespaces_that_cannot_be_listed_are_told_and_asked_for_again(
    cluster: RingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is read before, and the picture does not say that all is well."""
    await cluster.secret(ON_A, "a")
    mended, follow = asyncio.Event(), live._follow

    async def following(client: Any, form: Any, follower: Any, **how: Any) -> None:
        if isinstance(follower, live._Selection):
            follower.failed(Unavailable("it is broken"))
            await mended.wait()
        await follow(client, form, follower, **how)

    monkeypatch.setattr(live, "_follow", following)
    async with looking(cluster) as look:
        assert {"namespaces: it is broken", "secrets: being read"} <= set(look.view.unread)
        mended.set()
        view = await look.until(lambda view: not view.unread)
        assert (view.total, view.settled) == (1, True)


async def test_objects_of_a_controller_that_no_ring_has_are_none_of_it(cluster: RingCluster) -> None:
    owner = await cluster.secret(ON_A, "a")
    await cluster.child("child", owner, "a")
    async with looking(cluster) as look:
        assert look.view.total == 2
        patch = MergePatch({"metadata": {"ownerReferences": None}})
        await cluster.client.patch(ConfigMap, "child", "team", patch)
        await look.until(lambda view: view.total == 1)
