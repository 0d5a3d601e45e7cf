"""A shard's metrics about its Lease, hand-overs and rejected writes."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from kubeshard.controller import Context, Result
from kubeshard.core import ConfigMap, Conflict, NotOurs, ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.manager.debug_page import as_text
from kubeshard.manager.metrics import MAX_TASKS, OTHER_TASKS, Metrics
from kubeshard.runtime.alarm import LONGEST_SLEEP
from kubeshard.shard.timing import LeaseTiming
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.virtual_time import virtual_time
from scenes import begin, leads, refuse, shard_by_ranges


def value(process: Process, name: str, **labels: str) -> float | None:
    assert process.manager is not None
    metric = f"controller_sharding_{name}"
    return process.manager.metrics.registry.get_sample_value(metric, {"controllerring": "r", **labels})


@virtual_time
async def test_the_margin_is_what_is_left_of_the_lease_and_falls_while_it_is_not_renewed() -> None:
    async with SimulatedCluster() as world:
        await begin(world)
        shard, timing = world.processes["s0"], LeaseTiming()
        assert value(shard, "lease_held", shard="s0") == 1
        renewals = value(shard, "lease_renewals_total", shard="s0")
        await asyncio.sleep(30)
        assert value(shard, "lease_renewals_total", shard="s0") > renewals + 10
        full = value(shard, "lease_margin_seconds", shard="s0")
        assert timing.renew_deadline - timing.cancel_margin - 1.3 * timing.retry_period <= full
        assert full <= timing.renew_deadline - timing.cancel_margin
        shard.cut_off()
        await asyncio.sleep(3)
        assert value(shard, "lease_margin_seconds", shard="s0") == pytest.approx(full - 3, abs=0.1)
        await asyncio.sleep(full - 3)
        assert value(shard, "lease_margin_seconds", shard="s0") == 0
        await asyncio.sleep(LONGEST_SLEEP)
        assert value(shard, "lease_held", shard="s0") == 0


@virtual_time
async def test_buckets_are_counted_like_objects_with_labels() -> None:
    async with SimulatedCluster() as world:
        await world.install()
        first, buckets = shard_by_ranges(world, "s0", "r"), {"group": "", "resource": "buckets"}
        await world.make_things(20)
        await asyncio.sleep(10)
        assert value(first, "buckets", shard="s0", state="owned") == 64
        assert value(first, "movements_total", **buckets) == 64
        second = shard_by_ranges(world, "s1", "r")
        await asyncio.sleep(10)
        for process in first, second:
            assert value(process, "buckets", shard=process.name, state="owned") == 32
            assert value(process, "buckets", shard=process.name, state="draining") == 0
        assert value(first, "drains_total", **buckets) == 32
        assert first.manager is not None
        page = as_text(first.manager.snapshot())
        assert "shard s0 of ring r, by ranges: of 64 buckets, 32 owned" in page
        assert value(first, "drains_acknowledged_total", **buckets) == 32
        assert value(first, "drain_acknowledgement_seconds_count", **buckets) == 32
        assert value(first, "drain_acknowledgement_seconds_bucket", **buckets, le="2.5") == 32
        assert value(second, "drain_acknowledgement_seconds_count", **buckets) == 0
        assert value(first, "drains_pending", **buckets) in (None, 0)
        assert second.manager is not None
        foreign = second.manager.metrics.registry.get_sample_value(
            "kubeshard_cache_foreign_objects_total", {"kind": "Thing.v1.sim.example"}
        )
        assert foreign, "the API server does not select"


@virtual_time
async def test_what_waits_in_a_ring_by_ranges_is_measured_and_so_is_an_assignment_that_cannot_be_used() -> (
    None
):
    async with SimulatedCluster() as world:
        await world.install()
        first, buckets = shard_by_ranges(world, "s0", "r"), {"group": "", "resource": "buckets"}
        await world.until(lambda: leads(first, "sharder-r"), within=10)
        second = shard_by_ranges(world, "s1", "r")
        await asyncio.sleep(10)
        refuse(second, "PATCH", "/configmaps/ranges-r")
        shard_by_ranges(world, "s2", "r")
        await asyncio.sleep(70)
        assert leads(first, "sharder-r")
        assert value(first, "drains_pending", **buckets) in (10, 11)  # what `second` may not hand over
        assert 5 < value(first, "oldest_drain_seconds") <= 70
        async with world.admin("home") as client:
            await client.delete(ConfigMap, "ranges-r", "ops")
        await asyncio.sleep(0.5)
        assert value(first, "assignment_unusable") == 1
        await asyncio.sleep(30)
        assert value(first, "assignment_unusable") == 0


@virtual_time
async def test_a_renewal_that_fails_is_counted_by_its_cause() -> None:
    async with SimulatedCluster() as world:
        await begin(world)
        shard = world.processes["s0"]
        failures = {"shard": "s0", "reason": "forbidden"}
        assert value(shard, "lease_renewal_failures_total", **failures) == 0
        refuse(shard, "PUT", "/leases/s0")
        await asyncio.sleep(6)
        assert value(shard, "lease_renewal_failures_total", **failures) >= 2
        other = world.processes["s1"]
        other.cut_off()
        await asyncio.sleep(8)
        assert value(other, "lease_renewal_failures_total", shard="s1", reason="timeout") >= 1


@virtual_time
async def test_a_process_that_is_unfit_counts_so_once_until_it_is_fit_again() -> None:
    async with SimulatedCluster() as world:
        await begin(world)
        shard = world.processes["s0"]
        assert shard.manager is not None
        health = shard.manager._process.health
        health._hanging = lambda: ["all workers of controller thing hang"]
        await asyncio.sleep(5)
        health._hanging = list
        await asyncio.sleep(5)
        assert not shard.dead
        assert value(shard, "lease_renewal_failures_total", shard="s0", reason="unfit") == 1


class Slow(Touch):
    def __init__(self) -> None:
        super().__init__()
        self.may_end = asyncio.Event()

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        await self.may_end.wait()
        return await super().reconcile(ctx, obj)


@pytest.mark.quick
@virtual_time
async def test_the_time_of_a_hand_over_begins_when_the_shard_is_asked_though_it_still_works() -> None:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        world.sharder("x0")
        slow = Slow()
        shard = world.shard("s0", slow)
        await asyncio.sleep(20)
        await world.make_things(1)
        await world.until(lambda: world.all_owned("s0"), within=10)
        await asyncio.sleep(5)
        things = {"group": "sim.example", "resource": "things"}
        assert value(shard, "drains_acknowledged_total", **things) == 0
        async with world.admin() as client:
            patch = MergePatch({"metadata": {"labels": {drain_label("r"): "true"}}})
            await client.patch(Thing, "t0", "team", patch)
        await asyncio.sleep(20)
        slow.may_end.set()
        await asyncio.sleep(5)
        assert value(shard, "drains_acknowledged_total", **things) == 1
        assert value(shard, "drain_acknowledgement_seconds_sum", **things) == pytest.approx(20, abs=0.5)
        assert value(shard, "drain_acknowledgement_seconds_count", **things) == 1


class Writes(Touch):
    """Writes an object that another shard owns, with proof and without."""

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        if obj.metadata.name != "t0":
            return None
        patch = MergePatch({"metadata": {"annotations": {"a": "b"}}})
        with suppress(Conflict):
            await ctx.client.patch(Thing, "t0", "team", patch, unfenced=True)
        taken = await ctx.client.get(Thing, "theirs", "team")
        with pytest.raises(NotOurs):
            await ctx.client.patch(Thing, "theirs", "team", patch, base=taken)
        return None


@pytest.mark.quick
@virtual_time
async def test_writes_that_are_refused_or_unfenced_are_counted() -> None:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        world.sharder("x0")
        shard = world.shard("s0", Writes())
        await asyncio.sleep(20)
        async with world.admin() as client:
            labels = {shard_label("r"): "s9"}
            await client.create(Thing(metadata=ObjectMeta(name="theirs", namespace="team", labels=labels)))
        assert value(shard, "refused_writes_total", by="shard") == 0
        await world.make_things(1)
        await asyncio.sleep(5)
        assert value(shard, "refused_writes_total", by="shard") >= 1
        assert value(shard, "unfenced_writes_total") >= 1
        assert shard.manager is not None
        assert shard.manager.snapshot().unfenced_writes == {
            str(Thing.KIND): value(shard, "unfenced_writes_total")
        }
        assert f"  {Thing.KIND}" in as_text(shard.manager.snapshot())


@pytest.mark.quick
def test_tasks_that_block_the_loop_are_counted_by_name_and_the_names_are_bounded() -> None:
    metrics = Metrics()
    for number in range(MAX_TASKS + 5):
        metrics.blocked(f"Task-{number}")
    metrics.blocked("Task-1")

    def count(task: str) -> float | None:
        return metrics.registry.get_sample_value("kubeshard_event_loop_blockages_total", {"task": task})

    assert (count("Task-1"), count(OTHER_TASKS), count(f"Task-{MAX_TASKS}")) == (2, 5, None)
