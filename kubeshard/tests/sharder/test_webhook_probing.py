"""Dry runs that find out whether the webhook is called: of which object, and until when."""

from __future__ import annotations

import asyncio
from typing import Any

from small_ring import SmallRing, job_for, ring_machine

from kubeshard.core.kinds import Kind, TypeMeta
from kubeshard.core.objects import ObjectMeta, PartialObject
from kubeshard.sharder.moves import Mover
from kubeshard.sharder.tasks import carried_out
from kubeshard.sharding.object_job import Job
from kubeshard.sharding.planner import plan
from kubeshard.sharding.ring_machine import Do
from kubeshard.sharding.waiting import ENOUGH, LATER, SOON
from kubeshard_lab.virtual_time import VirtualClock, virtual_time
from kubeshard_lab.virtual_world import SeededRng

SECRET = Kind("", "v1", "Secret", "secrets")


class World:
    """A ring whose webhook the server calls as the test says."""

    def __init__(self, **options: Any) -> None:
        self.small = SmallRing("a", clock=VirtualClock(), **options)
        self.small.ring_sync = ring_machine(self.small.ring, probes=True)
        self.calls = False
        self.dry_runs = 0
        client: Any = self
        unused: Any = None
        self.mover = Mover(client, unused, unused, clock=self.small.clock, rng=SeededRng(1))

    def impatient(self) -> World:
        return self

    def with_timeout(self, _: float) -> World:
        return self

    async def patch(self, form: object, name: str, namespace: str, patch: object, *, dry_run: bool) -> Any:
        assert dry_run
        self.dry_runs += 1
        labels = {self.small.view.shard_label: "a"} if self.calls else {}
        return PartialObject(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels))

    def late(self, name: str, namespace: str = "default") -> None:
        """An object was assigned late."""
        sync, meta = self.small.sync("secrets"), ObjectMeta(name=name, namespace=namespace)
        decision = plan(self.small.view, sync.entry, TypeMeta("v1", "Secret"), meta)
        sync._assigned_late(job_for(sync.ring, sync.entry, SECRET, meta, decision))

    async def passes(self, seconds: float) -> None:
        """Does what becomes due meanwhile."""
        sync, end = self.small.sync("secrets"), self.small.clock.monotonic() + seconds
        while (now := self.small.clock.monotonic()) < end:
            await asyncio.sleep(max(0.0, min(sync.wake_at, end) - now))
            for what, job in sync.due():
                if what is Do.SCAN:
                    continue
                assert what is Do.PROBE
                assert isinstance(job, Job)
                await carried_out(sync.steps(what, job), self.mover.do)

    @property
    def unreached(self) -> bool:
        return self.small.ring.report.webhook_unreached


@virtual_time
async def test_a_ring_has_one_series_of_dry_runs_however_many_objects_are_assigned_late_at_once() -> None:
    world = World()
    for number in range(100):
        world.late(f"x-{number}")
    await world.passes(ENOUGH * SOON - 1)
    assert not world.unreached
    await world.passes(LATER + 2)
    assert (world.dry_runs, world.unreached) == (ENOUGH + 1, True)
    world.calls = True
    await world.passes(LATER)
    assert (world.dry_runs, world.unreached) == (ENOUGH + 2, False)
    await world.passes(10 * LATER)
    assert world.dry_runs == ENOUGH + 2


@virtual_time
async def test_a_series_ends_with_its_resource_and_does_not_keep_the_next_one_away() -> None:
    world = World()
    world.late("x")
    await world.passes(ENOUGH * SOON)
    assert world.unreached
    world.small.sync("secrets").close()
    assert not world.unreached
    await world.passes(SOON)
    assert world.dry_runs == ENOUGH
    world.late("y")
    await world.passes(SOON)
    assert world.dry_runs == ENOUGH + 1


@virtual_time
async def test_where_no_webhook_is_called_nobody_looks_whether_it_is() -> None:
    world = World(system_namespaces=("kube-system",))
    world.late("x", "kube-system")
    await world.passes(10 * LATER)
    assert world.dry_runs == 0
