"""A ring with a sharder service goes from labels to ranges and back while it runs. Its annotation changes before,
during or after the rollout of its shards (docs/migration.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from test_scenes_range_service import BY_RANGES, Service, service

from kubeshard.controller import Context, Reconciler, Result
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.core.patches import MergePatch
from kubeshard.sharding.assignment import BY_LABELS
from kubeshard.sharding.names import DELIVERY_ANNOTATION, OWNED_RANGES_ANNOTATION, shard_label
from kubeshard_lab.simulation.cluster import Thing, simulate
from kubeshard_lab.simulation.deliveries import LEASES

PAUSE = 10.0
"""Seconds from one step to the next."""
OTHER = {"labels": "ranges", "ranges": "labels"}


class Beats(Reconciler[Thing]):
    """What one instance does: it notes when."""

    def __init__(self, ring: Rolled, process: str) -> None:
        self._ring, self._process = ring, process

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        self._ring.beats(obj.key, self._process)
        await asyncio.sleep(0.05)
        self._ring.at_work.get(obj.key, set()).discard(self._process)
        return None


class Rolled:
    """Instances of the ring, each with a name of its own, as in a Deployment; and a user who changes all objects each
    second.
    """

    def __init__(self, fleet: Service) -> None:
        self.fleet, self.world = fleet, fleet.world
        self.kinds: dict[str, str] = {}
        """How each instance that was started takes objects."""
        self.last: dict[Key, tuple[float, str]] = {}
        """When each object was reconciled last, and by which."""
        self.waited = 0.0
        """The longest time between two reconciles of an object."""
        self.at_work: dict[Key, set[str]] = {}

    def beats(self, key: Key, process: str) -> None:
        now, at_work = self.world.loop.time(), self.at_work.setdefault(key, set())
        assert not [other for other in at_work if not self.world.processes[other].dead]
        at_work.add(process)
        self.waited = max(self.waited, now - self.last.get(key, (now, ""))[0])
        self.last[key] = now, process

    def next(self, by: str) -> str:
        """The name of the instance that is started next."""
        return f"{by[0]}{len(self.kinds)}"

    def start(self, by: str) -> None:
        name = self.next(by)
        self.kinds[name] = by
        delivery = self.fleet.ranges if by == "ranges" else "labels"
        self.world.shard(name, Beats(self, name), owns=(), workers=20, sharding={"delivery": delivery})

    async def replace(self, by: str) -> None:
        """Rolls out the other program to one instance."""
        former = next(name for name in self.alive() if self.kinds[name] != by)
        self.start(by)
        await self.world.processes[former].stop()
        await asyncio.sleep(PAUSE)

    def alive(self) -> list[str]:
        return [name for name in self.kinds if not self.world.processes[name].dead]

    async def says(self, by: str) -> None:
        await self.fleet.annotate(**(BY_RANGES if by == "ranges" else {DELIVERY_ANNOTATION: None}))
        await self.fleet.grant()
        await asyncio.sleep(PAUSE)

    def working(self) -> set[str]:
        """Who has reconciled an object last."""
        return {process for _, process in self.last.values()}

    def given(self) -> set[str]:
        """The instances to which something is assigned in either way."""
        assignment, label = self.fleet.assignment, shard_label("r")
        things = self.world.objects("sim.example", "things").values()
        named = {each["metadata"].get("labels", {}).get(label, "") for each in things}
        return named | (assignment.shards if assignment is not None else set())

    async def troubles(self) -> str:
        return "; ".join(each.problem for each in (await self.fleet.status()).troubles)

    async def settled(self, within: float = 15) -> None:
        """Until each instance works on something, and everything was reconciled within the last two seconds."""

        def holds() -> bool:
            now = self.world.loop.time()
            return self.working() == set(self.alive()) and all(now - at < 2 for at, _ in self.last.values())

        await self.world.until(holds, within)

    async def change(self) -> None:
        async with self.world.admin() as client:
            for number in range(10_000):
                await asyncio.sleep(1)
                for name in range(60):
                    await client.patch(Thing, f"t{name}", "team", MergePatch({"spec": {"v": number}}))


@asynccontextmanager
async def rolled(by: str) -> AsyncIterator[Rolled]:
    async with service(**(BY_RANGES if by == "ranges" else {})) as fleet:
        ring = Rolled(fleet)
        changes = asyncio.create_task(ring.change())
        for _ in range(3):
            ring.start(by)
        await ring.settled(60)
        ring.waited = 0.0
        yield ring
        changes.cancel()


BOTH_WAYS = pytest.mark.parametrize("former", OTHER)


@BOTH_WAYS
def test_an_object_waits_for_a_moment_if_the_annotation_changes_while_one_instance_of_the_former_kind_is_left(
    former: str,
) -> None:
    """The service gives nothing to those that wait."""

    async def scene() -> None:
        async with rolled(former) as ring:
            latter = OTHER[former]
            for left in ("two", "one"):
                await ring.replace(latter)
                waiting = [name for name in ring.alive() if ring.kinds[name] == latter]
                assert ring.working().isdisjoint(waiting), left
                assert ring.given().isdisjoint(waiting)
                assert f"by {latter}, and waiting until the shards by {former} (" in await ring.troubles()
            await ring.says(latter)
            assert "the ControllerRing does not say so" not in await ring.troubles()
            await ring.replace(latter)
            await ring.settled()
            assert ring.waited < 2.5

    simulate(scene)


@BOTH_WAYS
def test_what_ended_instances_had_waits_for_the_end_of_the_last_one_if_the_annotation_changes_before_all(
    former: str,
) -> None:
    async def scene() -> None:
        async with rolled(former) as ring:
            await ring.says(OTHER[former])
            for _ in range(3):
                await ring.replace(OTHER[former])
            await ring.settled()
            assert 2 * PAUSE < ring.waited < 2 * PAUSE + 5

    simulate(scene)


@BOTH_WAYS
def test_everything_waits_for_the_annotation_if_that_changes_after_all_instances(former: str) -> None:
    async def scene() -> None:
        async with rolled(former) as ring:
            for _ in range(3):
                await ring.replace(OTHER[former])
            assert not ring.working() & set(ring.alive())
            what = "its shards are by ranges, but the ControllerRing does not say so"
            if OTHER[former] == "labels":
                what = (
                    "nothing is given to shards by ranges before those that take objects by labels have ended"
                )
            assert what in await ring.troubles()
            await ring.says(OTHER[former])
            await ring.settled()
            assert PAUSE < ring.waited < PAUSE + 10

    simulate(scene)


@pytest.mark.parametrize("waits", [True, False])
def test_a_shard_by_labels_says_from_its_first_write_on_that_it_waits_for_those_by_ranges_and_only_then(
    waits: bool,
) -> None:
    """What a quick sharder gives it before it says so has to wait for them, too."""

    async def scene() -> None:
        async with rolled("labels") as ring:
            if waits:
                await ring.replace("ranges")
            said, store = list[str](), ring.world.server.store

            def written(resource: GroupResource) -> None:
                if lease := store.get(LEASES, Key("ops", name)) if resource == LEASES else None:
                    said.append(lease["metadata"]["annotations"].get(OWNED_RANGES_ANNOTATION, ""))

            name = ring.next("labels")
            store.subscribe(written)
            ring.start("labels")
            await asyncio.sleep(PAUSE)
            assert set(said) == {BY_LABELS if waits else ""}
            assert (name in ring.given()) != waits
            if waits:
                (by_ranges,) = (each for each in ring.alive() if ring.kinds[each] == "ranges")
                await ring.world.processes[by_ranges].stop()
                await ring.settled(5)
                assert said[-1] == ""

    simulate(scene)


@BOTH_WAYS
def test_a_change_of_the_delivery_can_be_taken_back_half_way(former: str) -> None:
    """The annotation first or last, with two of three instances replaced, or before any is."""

    async def scene() -> None:
        async with rolled(former) as ring:
            latter = OTHER[former]
            await ring.says(latter)
            await ring.says(former)
            await ring.replace(latter)
            await ring.replace(latter)
            await ring.says(latter)
            await ring.says(former)
            await ring.replace(former)
            await ring.says(latter)
            await ring.replace(former)
            await ring.says(former)
            await ring.settled()
            assert ring.waited < 2.5
            assert set(map(ring.kinds.get, ring.alive())) == {former}

    simulate(scene)
