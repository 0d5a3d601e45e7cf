"""A ring that is deleted: with the finalizer, its labels are removed from all objects, without taking one from a shard
that works on it, and the ring is gone within a bound, whatever fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeshard.client.client import Client
from kubeshard.controller.context import Context
from kubeshard.controller.reconciler import Result
from kubeshard.core.errors import AlreadyExists, Conflict, NotFound
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharding import waiting
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec
from kubeshard.sharding.conditions import CLEANED_UP
from kubeshard.sharding.names import CLEAN_UP_FINALIZER, drain_label, shard_label
from kubeshard_lab.simulation.cluster import MAIN, SimulatedCluster, Thing, Touch
from kubeshard_lab.simulation.processes import refusal
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression


class AtWork(Touch):
    """Notes on which objects it works."""

    def __init__(self, work: float) -> None:
        super().__init__()
        self.work = work
        self.at_work: set[str] = set()

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        self.at_work.add(obj.metadata.name)
        try:
            await asyncio.sleep(self.work)
            return await super().reconcile(ctx, obj)
        finally:
            self.at_work.discard(obj.metadata.name)


class Scene:
    """A ring with the finalizer, two shards and some objects."""

    def __init__(self, world: SimulatedCluster, client: Client) -> None:
        self.world = world
        self.client = client
        self.shards: dict[str, AtWork] = {}
        self.taken: list[str] = []
        """Objects that lost their shard while it worked on them."""
        world.server.store.subscribe(self._stored)

    async def make_ring(self) -> None:
        meta = ObjectMeta(name="r", finalizers=(CLEAN_UP_FINALIZER,))
        await self.client.create(ControllerRing(metadata=meta, spec=ControllerRingSpec(resources=(MAIN,))))

    def shard(self, name: str, work: float = 0.0, **options: Any) -> None:
        self.shards[name] = AtWork(work)
        self.world.shard(name, self.shards[name], **options)

    async def touch(self) -> None:
        """Changes all objects."""
        for name in self.world.owners():
            await self.client.patch(Thing, name, "team", MergePatch({"spec": {"v": 1}}))

    async def delete(self) -> None:
        await self.client.delete(ControllerRing, "r")

    async def gone(self, within: float) -> float:
        began = self.world.loop.time()
        while await self.ring() is not None:
            assert self.world.loop.time() - began < within, await self.condition()
            await asyncio.sleep(0.1)
        return self.world.loop.time() - began

    async def ring(self) -> ControllerRing | None:
        try:
            return await self.client.get(ControllerRing, "r")
        except NotFound:
            return None

    async def condition(self) -> str:
        ring = await self.ring()
        found = ring.status.conditions if ring and ring.status else ()
        return next((each.message for each in found if each.type == CLEANED_UP), "")

    def labelled(self) -> set[str]:
        """What still has a label of the ring."""
        labels = {shard_label("r"), drain_label("r")}
        return {
            f"{resource}/{key.name}"
            for group, resource in (("sim.example", "things"), ("", "configmaps"))
            for key, obj in self.world.objects(group, resource).items()
            if labels & (obj["metadata"].get("labels") or {}).keys()
        }

    def said(self) -> set[str]:
        return {event["reason"] for event in self.world.objects("events.k8s.io", "events").values()}

    def _stored(self, resource: Any) -> None:
        for name, owner in self.world.owners().items():
            for shard, reconciler in self.shards.items():
                process = self.world.processes[shard]
                if name in reconciler.at_work and owner != shard and not process.dead:
                    self.taken.append(f"{name} from {shard}")


@asynccontextmanager
async def scene(*, things: int = 12, work: float = 0.0) -> AsyncIterator[Scene]:
    async with SimulatedCluster() as world, world.admin() as client:
        await world.install()
        at = Scene(world, client)
        await at.make_ring()
        world.sharder("x0")
        for name in ("s0", "s1"):
            at.shard(name, work)
        await world.make_things(things)
        await world.until(lambda: world.all_owned("s0", "s1"), within=30)
        await world.until(lambda: len(world.objects("", "configmaps")) == things, within=60)
        yield at


@pytest.mark.quick
@virtual_time
async def test_the_labels_of_a_deleted_ring_are_gone_before_it_is() -> None:
    async with scene() as at:
        assert at.labelled()
        await at.delete()
        assert await at.gone(within=30) > 5
        assert not at.labelled()


@virtual_time
async def test_no_object_is_taken_from_a_shard_that_works_on_it() -> None:
    async with scene(work=3.0) as at:
        await at.touch()
        await at.world.until(lambda: any(each.at_work for each in at.shards.values()), within=5)
        await at.delete()
        await at.gone(within=60)
        assert not at.labelled()
        assert not at.taken


@virtual_time
async def test_objects_of_dead_shards_and_their_leases_are_cleaned_up_too() -> None:
    async with scene() as at:
        at.world.processes["s0"].kill()
        await at.world.processes["s1"].stop()
        await at.delete()
        await at.gone(within=90)
        assert not at.labelled()
        assert not at.world.objects("coordination.k8s.io", "leases").keys() & {
            Key("ops", "s0"),
            Key("ops", "s1"),
        }


@virtual_time
async def test_a_ring_is_gone_although_its_status_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    """Whether the API server refuses it, or somebody else is always faster. A refusal is told once."""
    for code, reason, told in ((403, "Forbidden", 1), (409, "Conflict", 0), (404, "NotFound", 0)):
        caplog.clear()
        async with scene(things=2) as at:
            answer = refusal(code, reason, "no")

            async def before(request: HttpRequest, answer: HttpResponse = answer) -> HttpResponse | None:
                written = request.method == "PUT" and "/controllerrings/r/status" in request.target
                return answer if written else None

            for network in at.world.processes["x0"].networks:
                network.before = before
            await at.delete()
            await at.gone(within=30)
            assert not at.labelled()
            lines = [line for line in caplog.messages if line.startswith("Cannot write the status")]
            assert len(lines) == told
            news = [line.partition("what=")[2] for line in caplog.messages if "has a problem" in line]
            assert len(news) == len(set(news))


@virtual_time
async def test_a_ring_is_gone_although_a_shard_does_not_release_its_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its labels stay: nobody else may work on the objects meanwhile."""
    patience = 60.0
    monkeypatch.setattr(waiting, "PATIENCE", patience)
    async with scene() as at:
        at.shards["s0"].work = 10_000.0
        stuck = {name for name, owner in at.world.owners().items() if owner == "s0"}
        await at.touch()
        await at.world.until(lambda: at.shards["s0"].at_work, within=5)
        busy = set(at.shards["s0"].at_work)
        await at.delete()
        await asyncio.sleep(30)
        assert "with shards s0" in await at.condition()
        await at.gone(within=2 * patience)
        assert busy <= {name for name, owner in at.world.owners().items() if owner == "s0"} <= stuck
        assert not at.taken
        assert "CleanUpGivenUp" in at.said()


@virtual_time
async def test_the_next_leader_does_not_give_up_a_clean_up_because_it_has_not_seen_its_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patience = 60.0
    monkeypatch.setattr(waiting, "PATIENCE", patience)
    async with scene(things=8) as at:
        at.world.sharder("x1")
        at.shards["s0"].work, at.shards["s1"].work = patience + 60, patience - 20
        await at.touch()
        await at.world.until(lambda: all(each.at_work for each in at.shards.values()), within=5)
        await at.delete()
        await asyncio.sleep(patience + 10)
        at.world.processes["x0"].kill()
        await at.gone(within=160)
        assert not at.labelled()
        assert not at.taken
        assert "CleanUpGivenUp" not in at.said()


@virtual_time
async def test_a_ring_that_is_created_again_at_once_gets_its_objects_back_and_none_has_two_shards() -> None:
    async with scene(work=2.0) as at:
        await at.touch()
        await at.delete()
        while True:
            try:
                await at.make_ring()
            except (AlreadyExists, Conflict):
                await asyncio.sleep(0.1)
            else:
                break
        assert not at.labelled()
        await at.world.until(lambda: at.world.all_owned("s0", "s1"), within=10)
        assert not at.taken


@virtual_time
async def test_a_ring_without_the_finalizer_is_gone_at_once_and_its_shards_work_on() -> None:
    async with scene() as at:
        await at.client.patch(ControllerRing, "r", "", MergePatch({"metadata": {"finalizers": None}}))
        owners = at.world.owners()
        await at.delete()
        assert await at.ring() is None
        await asyncio.sleep(30)
        assert at.world.owners() == owners
        await at.make_ring()
        await asyncio.sleep(30)
        assert at.world.owners() == owners
        assert not at.world.draining()


@virtual_time
async def test_the_next_leader_goes_on_with_a_clean_up() -> None:
    async with scene(work=2.0) as at:
        at.world.sharder("x1")
        await at.touch()
        await at.delete()
        await asyncio.sleep(1.5)
        at.world.processes["x0"].kill()
        await at.gone(within=90)
        assert not at.labelled()
        assert not at.taken


@virtual_time
async def test_the_clean_up_of_one_ring_does_not_delay_another_one() -> None:
    async with scene() as at:
        await at.world.make_ring("other")
        at.world.ring = "other"
        at.world.shard("o0", Touch())
        at.world.ring = "r"
        label = shard_label("other")

        def of_other() -> set[str]:
            things = at.world.objects("sim.example", "things").items()
            return {key.name for key, obj in things if (obj["metadata"].get("labels") or {}).get(label)}

        await at.world.until(lambda: len(of_other()) == 12, within=30)
        at.shards["s0"].work = 10_000.0
        await at.touch()
        await at.world.until(lambda: at.shards["s0"].at_work, within=5)
        await at.delete()
        await asyncio.sleep(20)
        assert await at.ring() is not None
        assert len(of_other()) == 12
        await at.world.make_things(12, prefix="u")
        await at.world.until(lambda: len(of_other()) == 24, within=2)


@virtual_time
async def test_new_objects_of_a_ring_that_is_being_deleted_get_no_shard() -> None:
    async with scene() as at:
        at.shards["s0"].work = 10_000.0
        await at.touch()
        await at.world.until(lambda: at.shards["s0"].at_work, within=5)
        await at.delete()
        await asyncio.sleep(1)
        await at.world.make_things(5, prefix="u")
        await asyncio.sleep(20)
        assert not [name for name, owner in at.world.owners().items() if owner and name.startswith("u")]
