"""A cluster that does not respond, rejects us or hangs delays the reconciles of its own objects, and no others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from clusters import DEFAULT, Places, Seen, refused

from kubeshard import EVERY_CLUSTER, HOME_CLUSTER, OTHER_CLUSTERS
from kubeshard.controller import Context, Controller, Watch
from kubeshard.core import ConfigMap, Key, KubeObject, ObjectMeta, Secret
from kubeshard.manager.unreadable_kinds import START_PATIENCE
from kubeshard_lab.virtual_time import virtual_time


def controller(act: Any, primary: Any = ConfigMap, **options: Any) -> Controller[Any]:
    return Controller(name="maps", reconciler=act, primary=primary, **{"clusters": EVERY_CLUSTER, **options})


async def filled(places: Places) -> None:
    for place in places.by_name.values():
        await place.put("one")


@virtual_time
async def test_a_cluster_that_cannot_be_reached_at_the_start_delays_nobody_and_works_when_it_can() -> None:
    seen = Seen()
    async with Places("eu", "us") as places:
        await filled(places)
        places["eu"].line.down = True
        async with places.manager(controller(seen)) as process:
            await asyncio.sleep(5)
            assert seen.of(HOME_CLUSTER) == seen.of("us") == ["one"]
            ready = await process.ready()
            assert "readyz check passed" in ready
            assert "warn: cluster eu cannot be read (unavailable)\n" in ready
            assert "warn: controller maps@eu waits for ConfigMap.v1@eu (unavailable)\n" in ready
            metrics = await process.metrics()
            assert 'kubeshard_cluster_up{cluster="eu"} 0.0' in metrics
            assert 'kubeshard_cluster_up{cluster="us"} 1.0' in metrics
            assert [(each.name, each.state) for each in process.manager.snapshot().clusters] == [
                ("eu", "unavailable"),
                ("us", "up"),
            ]
            places["eu"].line.down = False
            await asyncio.sleep(60)
            assert seen.of("eu") == ["one"]
            assert "cluster eu" not in await process.ready()
            assert 'kubeshard_cluster_up{cluster="eu"} 1.0' in await process.metrics()


@virtual_time
async def test_a_cluster_that_is_lost_and_comes_back_is_up_to_date_then_and_the_others_never_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = Seen()
    async with Places("eu") as places:
        await filled(places)
        async with places.manager(controller(seen)) as process:
            await asyncio.sleep(5)
            places["eu"].line.break_off()
            await asyncio.sleep(1)
            await places["eu"].put("two")
            await places.home.put("two")
            await asyncio.sleep(1)
            assert seen.of(HOME_CLUSTER) == ["one", "two"]
            await asyncio.sleep(200)
            assert 'kubeshard_cluster_up{cluster="eu"} 0.0' in await process.metrics()
            assert "readyz check passed" in await process.ready()
            places["eu"].line.down = False
            await asyncio.sleep(60)
            assert seen.of("eu")[-1] == "two"
            assert 'kubeshard_cluster_up{cluster="eu"} 1.0' in await process.metrics()
    told = [each for each in caplog.records if "The API server" in each.message]
    assert {each.fields.get("cluster") for each in told} == {"eu"}  # type: ignore[attr-defined]


@virtual_time
async def test_refused_credentials_of_one_cluster_are_told_and_cost_the_others_nothing() -> None:
    seen = Seen()
    async with Places("eu") as places:
        await filled(places)
        async with places.manager(controller(seen), clusters={"eu": refused(places["eu"])}) as process:
            await asyncio.sleep(30)
            assert (seen.of(HOME_CLUSTER), seen.of("eu")) == (["one"], [])
            ready = await process.ready()
            assert "readyz check passed" in ready
            assert "warn: cluster eu cannot be read (refused)\n" in ready
            await process.manager.remove_cluster("eu")
            process.manager.add_cluster("eu", places["eu"].config)
            await asyncio.sleep(5)
            assert seen.of("eu") == ["one"]


@virtual_time
async def test_requests_that_hang_in_one_cluster_hold_up_no_worker_of_another() -> None:
    written: list[Key] = []

    async def write(ctx: Context, obj: ConfigMap) -> None:
        if obj.metadata.name.startswith("one"):
            await ctx.client.apply(ConfigMap(metadata=ObjectMeta(name="made", namespace=DEFAULT)), force=True)
            written.append(ctx.key)

    async with Places("eu", "us") as places:
        for number in range(20):
            await places["eu"].put(f"one-{number}")
        places["eu"].line.hangs = ("PATCH",)
        async with places.manager(controller(write), graceful_timeout=1):
            await asyncio.sleep(5)
            await places["us"].put("one")
            await places.home.put("one")
            await asyncio.sleep(1)
            assert {key.cluster for key in written} == {HOME_CLUSTER, "us"}


@virtual_time
async def test_many_keys_of_one_cluster_do_not_stand_before_those_of_another() -> None:
    seen = Seen(1.0)
    async with Places("eu", "us") as places:
        for number in range(500):
            await places["eu"].put(f"object-{number}")
        async with places.manager(controller(seen), graceful_timeout=0):
            await asyncio.sleep(5)
            await places["us"].put("one")
            await asyncio.sleep(1.5)
            assert seen.of("us") == ["one"]
            assert 0 < len(seen.of("eu")) < 10


@virtual_time
async def test_a_stop_does_not_wait_for_a_cluster_that_hangs_beyond_the_grace_period() -> None:
    async def write(ctx: Context, obj: ConfigMap) -> None:
        ctx.event(obj, "Normal", "Began", "and hangs")
        while True:
            await ctx.client.apply(ConfigMap(metadata=ObjectMeta(name="made", namespace=DEFAULT)), force=True)

    async with Places("eu") as places:
        await places["eu"].put("one")
        places["eu"].line.hangs = ("PATCH", "POST", "WATCH")
        async with places.manager(controller(write, clusters=["eu"]), graceful_timeout=3) as process:
            await asyncio.sleep(20)
            began = places.world.clock.monotonic()
            process.manager.stop()
            await asyncio.wait([process.task])
            assert places.world.clock.monotonic() - began <= 3 + 5 + 0.1, "grace, and what is left of events"


@virtual_time
async def test_a_cluster_that_cannot_be_reached_leaves_at_once() -> None:
    async with Places("eu") as places:
        places["eu"].line.down = True
        async with places.manager(controller(Seen())) as process:
            await asyncio.sleep(5)
            began = places.world.clock.monotonic()
            await process.manager.remove_cluster("eu")
            assert places.world.clock.monotonic() - began < 1
            assert "eu" not in await process.ready()
            assert not [line for line in await process.metrics() if line.startswith("kubeshard_cluster_up{")]


@virtual_time
async def test_a_watched_cluster_that_is_down_hinders_no_run_at_home_and_is_heard_of_when_it_is_back() -> (
    None
):
    seen = Seen()
    parts = Watch(ConfigMap, to=lambda _, obj: [Key(DEFAULT, "app")], clusters=OTHER_CLUSTERS)
    async with Places("eu") as places:
        places["eu"].line.down = True
        await places.home.client.create(Secret(metadata=ObjectMeta(name="app", namespace=DEFAULT)))
        async with places.manager(controller(seen, Secret, watches=[parts], clusters=[HOME_CLUSTER])):
            await asyncio.sleep(30)
            assert seen.ended == [Key(DEFAULT, "app")]
            places["eu"].line.down = False
            await asyncio.sleep(60)
            seen.ended.clear()
            await places["eu"].put("part")
            await asyncio.sleep(1)
            assert seen.ended == [Key(DEFAULT, "app")]


@virtual_time
async def test_home_that_is_lost_stops_no_work_elsewhere_that_needs_no_leadership() -> None:
    seen = Seen()
    async with Places("eu") as places, places.manager(controller(seen)):
        await asyncio.sleep(5)
        places.home.line.break_off()
        await asyncio.sleep(300)
        await places["eu"].put("one")
        await asyncio.sleep(1)
        assert seen.of("eu") == ["one"]


@virtual_time
async def test_home_that_cannot_be_reached_at_the_start_keeps_others_waiting_for_half_a_minute_at_most() -> (
    None
):
    seen = Seen()
    async with Places("eu") as places:
        await places["eu"].put("one")
        places.home.line.down = True
        async with places.manager(controller(seen)):
            await asyncio.sleep(START_PATIENCE + 1)
            assert seen.of("eu") == ["one"]
            assert seen.of(HOME_CLUSTER) == []


class Gadget(KubeObject, group="example.com", version="v1"):
    pass


@virtual_time
async def test_a_kind_that_a_watched_cluster_lacks_is_told_with_who_needs_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = Watch(Gadget, to=lambda _, obj: [Key(DEFAULT, "app")], clusters=OTHER_CLUSTERS)
    async with Places("eu") as places:
        await places.home.put("one")
        seen = Seen()
        async with places.manager(controller(seen, watches=[parts], clusters=[HOME_CLUSTER])):
            await asyncio.sleep(30)
            assert seen.of(HOME_CLUSTER) == ["one"]
    (told,) = [each.fields for each in caplog.records if each.fields.get("cause") == "not served"]  # type: ignore[attr-defined]
    assert told["kind"] == "Gadget.v1.example.com@eu"
    assert (told["cluster"], told["controllers"]) == ("eu", "maps in eu")
