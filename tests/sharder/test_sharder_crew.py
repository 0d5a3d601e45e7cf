"""Bounded concurrency, second chances, and what is watched of Leases (protocol 14-A19, A20, B1)."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from prometheus_client import CollectorRegistry
from small_api import SmallApi, status

from kubeshard.core.errors import Timeout
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.objects import metadata_only
from kubeshard.core.selectors import Selector
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharder.crew import Crew
from kubeshard.sharder.lease_observer import SHARD_LEASES
from kubeshard.sharder.metrics import SharderMetrics
from kubeshard.sharder.moves import Job, Mover, Outcome, Still
from kubeshard.sharder.repairs import Repairs
from kubeshard.sharding import HashRing, RingEntry, RingResource, RingResources, RingView, TypeMeta, plan
from kubeshard.testing.virtual_time import VirtualClock, virtual_time
from kubeshard.testing.virtual_world import SeededRng

SHARD = "shard.alpha.sharding.timebertt.dev/ring"
SECRETS = "/api/v1/namespaces/default/secrets"
SECRET = Kind("", "v1", "Secret", "secrets")
ENTRY = RingEntry(GroupResource("", "secrets"))


@virtual_time
async def test_no_more_than_the_crews_size_run_at_a_time() -> None:
    running, most = 0, 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1.0)
        running -= 1

    async with Crew(3) as crew:
        for _ in range(10):
            await crew.start(work())
    assert (running, most) == (0, 3)


@virtual_time
async def test_a_cancelled_pass_ends_at_once_though_its_producer_waits_for_room() -> None:
    """protocol 14-A20"""

    async def produce() -> None:
        async with Crew(2) as crew:
            for _ in range(100):
                await crew.start(asyncio.sleep(3600.0))

    task = asyncio.create_task(produce())
    await asyncio.sleep(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.get_running_loop().time() == 1.0


@virtual_time
async def test_what_the_producer_raises_cancels_the_jobs_and_comes_out_as_it_is() -> None:
    """So that `except ApiError` around a crew means what it says."""
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(3600.0)
        finally:
            ended.append("job")

    async def produce() -> None:
        async with Crew(2) as crew:
            await crew.start(work())
            await asyncio.sleep(1.0)
            raise Timeout("no answer in time")

    with pytest.raises(Timeout):
        await produce()
    assert ended == ["job"]


@virtual_time
async def test_what_a_job_raises_ends_the_producer() -> None:
    async def work() -> None:
        raise ValueError("wrong")

    async def produce() -> None:
        async with Crew(2) as crew:
            await crew.start(work())
            await asyncio.sleep(3600.0)

    with pytest.raises(ExceptionGroup) as raised:
        await produce()
    assert [str(error) for error in raised.value.exceptions] == ["wrong"]


@virtual_time
async def test_a_refused_object_is_tried_again_alone_until_it_works() -> None:
    """reliability F17, 4.4"""
    api, clock = SmallApi(), VirtualClock()
    client = api.client(clock)
    view = RingView("ring", RingResources([RingResource(resource="secrets")]), HashRing(["a"]))
    repairs = Repairs(clock)

    async def is_dead(ring: str, shard: str, since: float) -> Still:
        return lambda: True

    mover = Mover(
        client,
        view=lambda _: view,
        dead=is_dead,
        failed=repairs.add,
        drained=lambda job: None,
        metrics=SharderMetrics(CollectorRegistry()),
        clock=clock,
        rng=SeededRng(1),
    )
    refusals = iter(range(3))

    def refuse(request: HttpRequest) -> HttpResponse | None:
        refused = request.method == "PATCH" and next(refusals, None) is not None
        return status(403, "Forbidden", "policy") if refused else None

    api.faults.append(refuse)
    api.put(SECRETS, "foo")
    meta = (await client.get(metadata_only(SECRET), "foo", "default")).metadata
    task = asyncio.create_task(repairs.run(mover))
    await asyncio.sleep(0)
    job = Job("ring", ENTRY, SECRET, meta, plan(view, ENTRY, TypeMeta("v1", "Secret"), meta))
    assert await mover.carry_out(job) is Outcome.FAILED
    await asyncio.sleep(30.0)
    assert api.labels(f"{SECRETS}/foo") == {SHARD: "a"}
    patches = [request for request in api.requests if request[0] == "PATCH"]
    assert len(patches) == 4
    task.cancel()


@virtual_time
async def test_an_object_that_is_refused_again_and_again_is_tried_again_within_a_minute() -> None:
    api, clock = SmallApi(), VirtualClock()
    client = api.client(clock)
    view = RingView("ring", RingResources([RingResource(resource="secrets")]), HashRing(["a"]))
    repairs = Repairs(clock, SeededRng(1))
    mover = Mover(
        client,
        view=lambda _: view,
        dead=_never_asked,
        failed=repairs.add,
        drained=lambda job: None,
        metrics=SharderMetrics(CollectorRegistry()),
        clock=clock,
        rng=SeededRng(1),
    )
    tries: list[float] = []

    def refuse(request: HttpRequest) -> HttpResponse | None:
        if request.method != "PATCH":
            return None
        tries.append(clock.monotonic())
        return status(403, "Forbidden", "policy")

    api.faults.append(refuse)
    api.put(SECRETS, "foo")
    meta = (await client.get(metadata_only(SECRET), "foo", "default")).metadata
    task = asyncio.create_task(repairs.run(mover))
    await asyncio.sleep(0)
    await mover.carry_out(Job("ring", ENTRY, SECRET, meta, plan(view, ENTRY, TypeMeta("v1", "Secret"), meta)))
    await asyncio.sleep(900.0)
    pauses = [after - before for before, after in pairwise(tries)]
    assert max(pauses[-5:]) > 45.0
    assert max(pauses) <= 60.1
    task.cancel()


@pytest.mark.regression
@virtual_time
async def test_a_throttled_object_is_repaired_when_the_server_asked_to_come_back() -> None:
    api, clock = SmallApi(), VirtualClock()
    client = api.client(clock)
    view = RingView("ring", RingResources([RingResource(resource="secrets")]), HashRing(["a"]))
    repairs = Repairs(clock)
    mover = Mover(
        client,
        view=lambda _: view,
        dead=_never_asked,
        failed=repairs.add,
        drained=lambda job: None,
        metrics=SharderMetrics(CollectorRegistry()),
        clock=clock,
        rng=SeededRng(1),
    )
    api.put(SECRETS, "foo")
    meta = (await client.get(metadata_only(SECRET), "foo", "default")).metadata
    task = asyncio.create_task(repairs.run(mover))
    await asyncio.sleep(0)
    busy = HttpResponse(
        429, {"content-type": "application/json", "retry-after": "45"}, status(429, "TooManyRequests").body
    )
    refusals = iter([busy])
    api.faults.append(lambda request: next(refusals, None) if request.method == "PATCH" else None)
    job = Job("ring", ENTRY, SECRET, meta, plan(view, ENTRY, TypeMeta("v1", "Secret"), meta))
    assert await mover.carry_out(job) is Outcome.FAILED
    await asyncio.sleep(44.0)
    assert api.labels(f"{SECRETS}/foo") == {}
    await asyncio.sleep(2.0)
    assert api.labels(f"{SECRETS}/foo") == {SHARD: "a"}
    task.cancel()


@pytest.mark.regression
@virtual_time
async def test_an_object_is_not_repaired_after_its_resource_left_the_ring() -> None:
    """Its label would stay for ever: nobody looks at the resource any more."""
    api, clock = SmallApi(), VirtualClock()
    client = api.client(clock)
    views = [RingView("ring", RingResources([RingResource(resource="secrets")]), HashRing(["a"]))]
    repairs = Repairs(clock)
    mover = Mover(
        client,
        view=lambda _: views[-1],
        dead=_never_asked,
        failed=repairs.add,
        drained=lambda job: None,
        metrics=SharderMetrics(CollectorRegistry()),
        clock=clock,
        rng=SeededRng(1),
    )
    api.put(SECRETS, "foo")
    meta = (await client.get(metadata_only(SECRET), "foo", "default")).metadata
    task = asyncio.create_task(repairs.run(mover))
    await asyncio.sleep(0)
    refusing = [lambda request: status(403, "Forbidden", "policy") if request.method == "PATCH" else None]
    api.faults.extend(refusing)
    job = Job("ring", ENTRY, SECRET, meta, plan(views[-1], ENTRY, TypeMeta("v1", "Secret"), meta))
    assert await mover.carry_out(job) is Outcome.FAILED
    views.append(RingView("ring", RingResources([RingResource(resource="configmaps")]), HashRing(["a"])))
    api.faults.clear()
    await asyncio.sleep(600.0)
    assert api.labels(f"{SECRETS}/foo") == {}
    task.cancel()


async def _never_asked(ring: str, shard: str, since: float) -> Still | None:
    raise AssertionError


def test_only_the_leases_of_shards_are_watched() -> None:
    """protocol 14-B1: not the one per node."""
    assert SHARD_LEASES.labels == Selector.exists("alpha.sharding.timebertt.dev/controllerring")
