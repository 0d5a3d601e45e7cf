"""One manager works in several clusters, with the embedded server's rules on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from clusters import DEFAULT, Places, Seen, refused

from kubeshard import EVERY_CLUSTER, HOME_CLUSTER, OTHER_CLUSTERS, errors, when
from kubeshard.client import install
from kubeshard.controller import ChannelSource, Context, Controller, Index, Watch
from kubeshard.controller.mapping import Reader
from kubeshard.core import (
    ConfigMap,
    Key,
    KubeObject,
    MergePatch,
    ObjectMeta,
    OwnerReference,
    Secret,
    controller_reference,
    field,
)
from kubeshard.crd import definition
from kubeshard.manager import LeaderElection, Manager
from kubeshard.manager.debug_page import as_text
from kubeshard.runtime.transport import UNDELIVERED
from kubeshard_lab.virtual_time import virtual_time

NO_PAGES: dict[str, Any] = {"status_pages": None}


def controller(act: Any, primary: Any = ConfigMap, name: str = "maps", **options: Any) -> Controller[Any]:
    return Controller(name=name, reconciler=act, primary=primary, **{"clusters": EVERY_CLUSTER, **options})


def key(name: str, cluster: str = HOME_CLUSTER) -> Key:
    return Key(DEFAULT, name).at(cluster)


@virtual_time
async def test_objects_of_one_name_in_several_clusters_are_as_many_keys() -> None:
    seen = Seen()
    async with Places("eu", "us") as places:
        for place in places.by_name.values():
            await place.put("one")
        async with places.manager(controller(seen)):
            await asyncio.sleep(5)
            assert sorted(seen.ended) == [key("one"), key("one", "eu"), key("one", "us")]


@virtual_time
async def test_a_controller_works_where_it_says_and_by_default_at_home() -> None:
    at_home, others, named = Seen(), Seen(), Seen()
    async with Places("eu", "us") as places:
        for place in places.by_name.values():
            await place.put("one")
        async with places.manager(
            Controller(name="home", reconciler=at_home, primary=ConfigMap),
            controller(others, name="others", clusters=OTHER_CLUSTERS),
            controller(named, name="named", clusters=[HOME_CLUSTER, "us"]),
        ):
            await asyncio.sleep(5)
            assert sorted(at_home.ended) == [key("one")]
            assert sorted(others.ended) == [key("one", "eu"), key("one", "us")]
            assert sorted(named.ended) == [key("one"), key("one", "us")]


@virtual_time
async def test_reads_writes_and_events_are_of_the_cluster_of_the_object() -> None:
    clusters: list[str] = []

    async def copy(ctx: Context, obj: ConfigMap) -> None:
        if not obj.metadata.name.startswith("original"):
            return
        clusters.append(ctx.cluster)
        assert await ctx.get(ConfigMap, obj.metadata.name) is obj
        await ctx.apply(
            Secret(metadata=ObjectMeta(name=f"copy-of-{ctx.cluster or 'home'}", namespace=DEFAULT))
        )
        ctx.event(obj, "Normal", "Copied", "there is a copy now")

    async with Places("eu") as places:
        for place in places.by_name.values():
            await place.put("original")
        async with places.manager(controller(copy, applies=[Secret])):
            await asyncio.sleep(20)
        assert sorted(set(clusters)) == ["", "eu"]
        for name, place in places.by_name.items():
            copies = [each.metadata.name for each in await place.client.list_all(Secret, DEFAULT)]
            assert copies == [f"copy-of-{name}"]
            answer = await place.client.raw("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
            assert answer.body.count(b'"reason":"Copied"') == 1


@virtual_time
async def test_what_is_owned_triggers_its_owner_in_its_own_cluster_only() -> None:
    seen = Seen()
    async with Places("eu") as places:
        owners = {
            name: await place.client.create(Secret(metadata=ObjectMeta(name="owner", namespace=DEFAULT)))
            for name, place in places.by_name.items()
        }
        async with places.manager(controller(seen, Secret, owns=[ConfigMap])):
            await asyncio.sleep(5)
            seen.ended.clear()
            reference: OwnerReference = controller_reference(owners["eu"])
            await places["eu"].put("child", owner_references=(reference,))
            await asyncio.sleep(5)
            assert seen.ended == [key("owner", "eu")]


def to_its_app(_: Reader, obj: ConfigMap) -> Iterable[Key]:
    if obj.metadata.has_label("app"):
        yield Key(DEFAULT, obj.metadata.label("app"))


@virtual_time
async def test_a_watch_of_other_clusters_triggers_where_the_primary_objects_are_and_there_they_are_read() -> (
    None
):
    found: dict[str, list[str]] = {}

    async def gather(ctx: Context, obj: Secret) -> None:
        cached = [ctx.at(name).cache.get(ConfigMap, "part", DEFAULT) for name in ("eu", "us")]
        found[obj.metadata.name] = [each.metadata.label("app") if each else "" for each in cached]

    async with Places("eu", "us") as places:
        await places.home.client.create(Secret(metadata=ObjectMeta(name="app", namespace=DEFAULT)))
        parts = Watch(ConfigMap, to=to_its_app, clusters=OTHER_CLUSTERS)
        async with places.manager(controller(gather, Secret, watches=[parts], clusters=[HOME_CLUSTER])):
            await asyncio.sleep(5)
            assert found == {"app": ["", ""]}
            for name in ("eu", "us"):
                await places[name].put("part", labels={"app": "app"})
                await asyncio.sleep(5)
            assert found == {"app": ["app", "app"]}
            assert not [each for each in await places.home.names() if each == "part"]


@virtual_time
async def test_a_run_writes_in_other_clusters_as_the_controller() -> None:
    async def spread(ctx: Context, obj: Secret) -> None:
        metadata = ObjectMeta(name="spread", namespace=DEFAULT)
        await ctx.at("eu").client.apply(ConfigMap(metadata=metadata, data={"by": obj.metadata.name}))

    async with Places("eu") as places:
        await places.home.client.create(Secret(metadata=ObjectMeta(name="app", namespace=DEFAULT)))
        async with places.manager(controller(spread, Secret, name="spreader", clusters=[HOME_CLUSTER])):
            await asyncio.sleep(5)
        answer = await places["eu"].client.raw("GET", "/api/v1/namespaces/default/configmaps/spread")
        assert b'"manager":"spreader-controller"' in answer.body
        assert "spread" not in await places.home.names()


@virtual_time
async def test_a_cluster_that_is_not_there_is_an_error_that_says_which_are() -> None:
    errors_: list[str] = []

    async def look(ctx: Context, obj: ConfigMap) -> None:
        try:
            ctx.at("mars")
        except errors.NoSuchCluster as error:
            errors_.append(str(error))

    async with Places("eu") as places:
        await places.home.put("one")
        async with places.manager(controller(look, clusters=[HOME_CLUSTER])):
            await asyncio.sleep(5)
    assert set(errors_) == {"there is no cluster 'mars', only the home cluster, 'eu'"}


@virtual_time
async def test_a_key_with_a_cluster_is_of_that_cluster_whoever_gives_it() -> None:
    """Themes at home affect the objects of both clusters; a source, which runs at home, can trigger any of them."""
    seen, source = Seen(), ChannelSource()

    def everywhere(_: Reader, theme: Secret) -> Iterable[Key]:
        return [key("one", "eu"), key("one")]

    async with Places("eu") as places:
        for place in places.by_name.values():
            await place.put("one")
        async with places.manager(
            controller(seen, watches=[Watch(Secret, to=everywhere, when=when.never)], sources=[source]),
            controller(Seen(), Secret, name="themes"),
        ) as process:
            await asyncio.sleep(5)
            seen.ended.clear()
            source.trigger(key("one", "eu"), "by hand")
            source.trigger(key("one", "mars"), "nobody is there")
            await asyncio.sleep(1)
            assert seen.ended == [key("one", "eu")]
            assert not process.task.done()


@virtual_time
async def test_a_map_function_may_name_other_clusters() -> None:
    seen = Seen()

    def everywhere(_: Reader, theme: Secret) -> Iterable[Key]:
        return [key("one", "eu"), key("one")]

    async with Places("eu") as places:
        for place in places.by_name.values():
            await place.put("one")
        async with places.manager(controller(seen, watches=[Watch(Secret, to=everywhere)])):
            await asyncio.sleep(5)
            seen.ended.clear()
            await places.home.client.create(Secret(metadata=ObjectMeta(name="dark", namespace=DEFAULT)))
            await asyncio.sleep(1)
            assert sorted(seen.ended) == [key("one"), key("one", "eu")]
            seen.ended.clear()
            await places["eu"].client.create(Secret(metadata=ObjectMeta(name="dark", namespace=DEFAULT)))
            await asyncio.sleep(1)
            assert seen.ended == [key("one", "eu")], "without a cluster it is the one of the watched object"


@virtual_time
async def test_a_cluster_comes_and_goes_while_the_manager_runs() -> None:
    seen = Seen(10.0)
    async with Places("eu") as places:
        await places["eu"].put("one")
        async with places.manager(controller(seen), clusters={}) as process:
            manager = process.manager
            await asyncio.sleep(5)
            for rounds in range(1, 4):
                seen.began.clear()
                seen.ended.clear()
                manager.add_cluster("eu", places["eu"].config)
                with pytest.raises(ValueError, match="there is already a cluster eu"):
                    manager.add_cluster("eu", places["eu"].config)
                await asyncio.sleep(1)
                assert seen.began == [key("one", "eu")]
                await manager.remove_cluster("eu")
                assert seen.ended == [key("one", "eu")], "what runs there ends by itself"
                with pytest.raises(KeyError):
                    await manager.remove_cluster("eu")
                assert places["eu"].line.closed == rounds, "its connections are closed"
                tries = places["eu"].line.tries
                await asyncio.sleep(60)
                assert places["eu"].line.tries == tries, "nobody asks the cluster for anything any more"
                assert [each.name for each in manager.snapshot().controllers] == ["maps"]
            manager.add_cluster("eu", places["eu"].config)
        assert places["eu"].line.closed == 4, "at the end, too"


@virtual_time
async def test_a_removal_of_a_cluster_that_is_cancelled_cancels_its_runs_and_it_is_gone_all_the_same() -> (
    None
):
    seen = Seen(1000.0)
    async with Places("eu", "us") as places:
        await places["eu"].put("one")
        async with places.manager(controller(seen)) as process:
            await asyncio.sleep(5)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await process.manager.remove_cluster("eu")
            assert (seen.began, seen.ended) == ([key("one", "eu")], [])
            await places["us"].put("two")
            await asyncio.sleep(1)
            assert seen.began[-1] == key("two", "us")
            process.manager.add_cluster("eu", places["eu"].config)


@virtual_time
async def test_a_removal_that_is_cancelled_again_while_it_waits_closes_the_clusters_client() -> None:
    async with Places("eu") as places:
        await places["eu"].put("one")
        async with places.manager(controller(Seen(1000.0)), clusters={}) as process:
            for steps in range(60):  # iterations of the loop from the end of its runs to the end of its task
                process.manager.add_cluster("eu", places["eu"].config)
                await asyncio.sleep(5)
                removal = asyncio.create_task(process.manager.remove_cluster("eu"))
                await asyncio.sleep(1)
                removal.cancel()
                for _ in range(steps):
                    await asyncio.sleep(0)
                removal.cancel()
                await asyncio.wait([removal])
                await asyncio.sleep(1)
                assert places["eu"].line.closed == steps + 1, f"cancelled again after {steps} steps"


@virtual_time
async def test_a_run_cannot_wait_for_the_removal_of_its_own_cluster_that_somebody_else_began() -> None:
    refused: list[RuntimeError] = []
    async with Places("eu") as places:
        await places["eu"].put("one")

        async def late(ctx: Context, obj: ConfigMap) -> None:
            if ctx.key == key("one", "eu"):
                await asyncio.sleep(10)
                try:
                    await process.manager.remove_cluster("eu")
                except RuntimeError as error:
                    refused.append(error)

        async with places.manager(controller(late)) as process:
            await asyncio.sleep(5)
            async with asyncio.timeout(60):
                await process.manager.remove_cluster("eu")
            assert len(refused) == 1


@virtual_time
async def test_a_cluster_is_gone_when_any_of_its_removals_returns_and_may_come_again_at_once() -> None:
    seen = Seen(10.0)
    async with Places("eu") as places:
        await places["eu"].put("one")
        async with places.manager(controller(seen)) as process:
            await asyncio.sleep(5)

            async with asyncio.timeout(60):
                first = asyncio.create_task(process.manager.remove_cluster("eu"))
                await asyncio.sleep(1)
                await process.manager.remove_cluster("eu")
                process.manager.add_cluster("eu", places["eu"].config)
                await first
            await asyncio.sleep(1)
            assert seen.began == [key("one", "eu")] * 2


@virtual_time
async def test_a_cluster_that_leaves_before_the_manager_has_begun_there_is_closed() -> None:
    async with Places("eu") as places:
        places.home.line.hangs = ["GET", "WATCH"]
        async with places.manager(controller(Seen())) as process:
            for _ in range(100):
                if process.manager._process.other_clusters.clients:
                    break
                await asyncio.sleep(0)
            await process.manager.remove_cluster("eu")
            places.home.line.hangs = []
            await asyncio.sleep(5)
        assert places["eu"].line.closed == 1


@pytest.mark.regression
@virtual_time
async def test_a_cluster_under_two_names_is_not_worked_on_twice() -> None:
    """argoproj/argo-cd#18118. With other credentials, it may be another one behind the same gateway."""
    async with Places("eu", "us") as places:
        eu = places["eu"].config
        twice = Manager(
            [], client=places.home.config, clusters={"eu": eu, "too": eu}, world=places.world, **NO_PAGES
        )
        with pytest.raises(errors.ConfigurationError, match="clusters eu and too are one, at http://eu"):
            await twice.run()
        async with places.manager(controller(Seen())) as running:
            await asyncio.sleep(1)
            with pytest.raises(errors.ConfigurationError, match="clusters eu and too are one"):
                running.manager.add_cluster("too", eu)
            running.manager.add_cluster("other", refused(places["eu"]))
            await running.manager.remove_cluster("eu")
            running.manager.add_cluster("too", eu)
            await running.manager.remove_cluster("too")


@virtual_time
async def test_a_cluster_is_refused_under_a_second_name_until_the_runs_under_the_first_have_ended() -> None:
    seen = Seen(10.0)
    async with Places("eu") as places:
        await places["eu"].put("one")
        async with places.manager(controller(seen)) as process:
            await asyncio.sleep(5)
            removal = asyncio.create_task(process.manager.remove_cluster("eu"))
            await asyncio.sleep(1)
            with pytest.raises(errors.ConfigurationError, match="clusters eu and too are one"):
                process.manager.add_cluster("too", places["eu"].config)
            await removal
            process.manager.add_cluster("too", places["eu"].config)


@virtual_time
async def test_a_controller_that_comes_and_goes_does_so_in_every_cluster() -> None:
    seen = Seen()
    async with Places("eu") as places:
        for place in places.by_name.values():
            await place.put("one")
        parts = Watch(Secret, to=lambda _, obj: [], clusters=EVERY_CLUSTER)
        async with places.manager() as process:
            await asyncio.sleep(5)
            process.manager.add(controller(seen, watches=[parts]))
            await asyncio.sleep(5)
            assert sorted(seen.ended) == [key("one"), key("one", "eu")]
            await process.manager.remove("maps")
            assert not process.manager.snapshot().controllers
            assert not process.manager.snapshot().informers, (
                "those of watches in other clusters have ended, too"
            )


@virtual_time
async def test_a_controller_that_is_leaving_does_not_begin_in_a_cluster_that_comes() -> None:
    seen = Seen(10.0)
    async with Places("eu") as places:
        for place in places.by_name.values():
            await place.put("one")
        async with places.manager(controller(seen), clusters={}) as process:
            await asyncio.sleep(1)
            removing = asyncio.create_task(process.manager.remove("maps"))
            await asyncio.sleep(1)
            process.manager.add_cluster("eu", places["eu"].config)
            await removing
            await asyncio.sleep(20)
            assert seen.began == [key("one")]
            assert not process.manager.snapshot().controllers


@virtual_time
async def test_a_controller_that_is_leaving_hears_of_no_cluster_that_comes() -> None:
    seen = Seen(10.0)
    async with Places("eu") as places:
        await places.home.put("one")
        parts = Watch(Secret, to=lambda _, obj: [], clusters=EVERY_CLUSTER)
        async with places.manager(
            controller(seen, watches=[parts], clusters=[HOME_CLUSTER]), clusters={}
        ) as process:
            await asyncio.sleep(1)
            removing = asyncio.create_task(process.manager.remove("maps"))
            await asyncio.sleep(1)
            process.manager.add_cluster("eu", places["eu"].config)
            await removing
            await asyncio.sleep(5)
            assert not process.manager.snapshot().informers


class Gadget(KubeObject, group="example.com", version="v1"):
    spec: dict[str, str] = field(default_factory=dict)


@virtual_time
async def test_a_changed_spec_begins_the_backoff_anew_in_every_cluster() -> None:
    times: list[float] = []

    async with Places("eu") as places:
        there, clock = places["eu"].client, places.world.clock

        async def fail(ctx: Context, obj: Gadget) -> None:
            times.append(clock.monotonic())
            raise RuntimeError("not yet")

        async for _ in install(there, [definition(Gadget)]):
            pass
        await there.create(Gadget(metadata=ObjectMeta(name="one", namespace=DEFAULT)))
        async with places.manager(controller(fail, Gadget, clusters=["eu"])):
            await asyncio.sleep(600)
            assert times[-1] - times[-2] > 30
            del times[:]
            await there.patch(Gadget, "one", DEFAULT, MergePatch({"spec": {"size": "2"}}))
            await asyncio.sleep(2)
            assert len(times) > 2


@virtual_time
async def test_a_write_elsewhere_of_unknown_outcome_keeps_its_object_busy() -> None:
    """The run has given up on the write, which may still take effect for a while."""
    given_up: list[float] = []
    async with Places("eu") as places:
        await places.home.put("one")
        clock = places.world.clock

        async def write(ctx: Context, obj: ConfigMap) -> None:
            wanted = ConfigMap(metadata=ObjectMeta(name="made", namespace=DEFAULT))
            if obj.metadata.name == "one":
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await ctx.at("eu").client.apply(wanted)
                given_up.append(clock.monotonic())

        places["eu"].line.hangs = ("PATCH",)
        async with places.manager(controller(write, clusters=[HOME_CLUSTER])) as process:
            await asyncio.sleep(2)
            assert len(given_up) == 1
            await process.manager.remove("maps")
            assert clock.monotonic() - given_up[0] >= UNDELIVERED


@virtual_time
async def test_a_controller_that_cannot_work_in_one_of_the_clusters_changes_nothing_in_any() -> None:
    by_name = Index(ConfigMap, "name", lambda obj: [obj.metadata.name])
    async with Places("eu") as places:
        there = controller(Seen(), name="there", clusters=["eu"])
        async with places.manager(there) as process:
            await asyncio.sleep(5)
            (cache,) = process.manager._process.other_clusters.caches
            cache.informer(ConfigMap).add_index("name", lambda obj: ["another"])
            before = process.manager.snapshot()
            with pytest.raises(ValueError, match="index 'name' exists"):
                process.manager.add(controller(Seen(), indexes=[by_name]))
            after = process.manager.snapshot()
            assert [each.kind for each in before.informers] == [each.kind for each in after.informers]
            assert [each.name for each in after.controllers] == ["there@eu"]
            lines = await process.metrics()
            assert not [line for line in lines if '"maps"' in line or '"maps@eu"' in line]
            assert 'controller_runtime_max_concurrent_reconciles{controller="there@eu"} 1.0' in lines


@virtual_time
async def test_in_every_cluster_only_the_leader_works() -> None:
    election = [LeaderElection(name="leader", namespace=DEFAULT, identity=name) for name in "ab"]
    first, second = Seen(), Seen()
    async with Places("eu") as places:
        await places["eu"].put("one")
        async with (
            places.manager(controller(first), leader_election=election[0]),
        ):
            await asyncio.sleep(30)
            async with places.manager(controller(second), leader_election=election[1]):
                await asyncio.sleep(120)
                assert first.ended == [key("one", "eu")]
                assert second.began == []


@virtual_time
async def test_who_does_not_lead_writes_nothing_in_any_cluster() -> None:
    refusals: list[BaseException] = []
    election = LeaderElection(name="leader", namespace=DEFAULT, identity="a")
    async with Places("eu") as places:
        await places["eu"].put("one")

        async def late(ctx: Context, obj: ConfigMap) -> None:
            if obj.metadata.name != "one":
                return
            places.home.line.break_off()
            try:
                await asyncio.sleep(600)
            finally:
                for client in (ctx.client, ctx.at("eu").client):
                    with pytest.raises(errors.NotOurs) as caught:
                        await client.create(ConfigMap(metadata=ObjectMeta(name="late", namespace=DEFAULT)))
                    refusals.append(caught.value)

        with pytest.raises(Exception, match="lost leadership"):
            async with places.manager(controller(late, clusters=["eu"]), leader_election=election) as process:
                await asyncio.wait([process.task])
        assert len(refusals) == 2
        assert "late" not in await places["eu"].names()


@virtual_time
async def test_logs_metrics_and_the_debug_page_tell_clusters_apart() -> None:
    seen = Seen(50.0)
    async with Places("eu") as places:
        await places["eu"].put("one")
        async with places.manager(controller(seen), graceful_timeout=0) as process:
            await asyncio.sleep(5)
            lines = "\n".join(await process.metrics())
            assert 'controller_runtime_active_workers{controller="maps@eu"} 1.0' in lines
            assert 'kubeshard_cluster_up{cluster="eu"} 1.0' in lines
            assert 'kubeshard_controller_waiting{controller="maps@eu",kind="ConfigMap.v1@eu"} 0.0' in lines
            assert 'kubeshard_cache_objects{kind="ConfigMap.v1@eu"}' in lines
            assert 'kubeshard_cache_objects{kind="ConfigMap.v1"}' in lines
            text = as_text(process.manager.snapshot())
            assert "controller maps@eu (ConfigMap.v1)" in text
            assert f"    {DEFAULT}/one@eu  for" in text
            assert "  eu    http://eu  up\n" in text


@virtual_time
async def test_of_a_cluster_that_has_gone_no_series_of_a_controller_is_left() -> None:
    async with Places("eu") as places:
        await places["eu"].put("one")
        async with places.manager(controller(Seen())) as process:
            await asyncio.sleep(5)
            assert "maps@eu" in "\n".join(await process.metrics())
            await process.manager.remove_cluster("eu")
            lines = "\n".join(await process.metrics())
            assert "maps@eu" not in lines
            assert 'controller_runtime_max_concurrent_reconciles{controller="maps"}' in lines


@virtual_time
async def test_clusters_that_a_controller_names_and_the_manager_lacks_are_told_and_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = Seen()
    async with Places("eu") as places:
        await places["eu"].put("one")
        async with places.manager(controller(seen, clusters=["eu", "mars"]), clusters={}) as process:
            await asyncio.sleep(5)
            told = [each.fields for each in caplog.records if "names clusters" in each.message]  # type: ignore[attr-defined]
            assert told == [{"controller": "maps", "clusters": "eu, mars"}]
            process.manager.add_cluster("eu", places["eu"].config)
            await asyncio.sleep(5)
            assert seen.ended == [key("one", "eu")]


@virtual_time
async def test_a_context_that_the_kubeconfig_lacks_ends_the_start_with_what_to_do(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("apiVersion: v1\nkind: Config\n")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    async with Places() as places:
        manager = Manager(client=places.home.config, clusters={"eu": "mars"}, world=places.world, **NO_PAGES)
        with pytest.raises(errors.ConfigurationError, match="mars"):
            await manager.run()


@pytest.mark.parametrize(
    ("clusters", "error", "said"),
    [
        ({"": "context"}, ValueError, "cluster name ''"),
        ({"EU": "context"}, ValueError, "cluster name 'EU'"),
        (["eu"], TypeError, "clusters takes clusters by name"),
        ({"eu": 5}, TypeError, "cluster eu: 5 is not a Client, a ClusterConfig"),
    ],
    ids=["empty", "upper case", "list", "number"],
)
def test_what_is_no_cluster_is_refused_where_it_is_given(
    clusters: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        Manager(clusters=clusters)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"clusters": "eu"}, TypeError, "controller maps: clusters takes a list"),
        ({"clusters": 5}, TypeError, "controller maps: clusters takes a list"),
        ({"clusters": ["eu"], "sources": [ChannelSource()]}, ValueError, "sources run at home"),
        ({"owns": [Watch(Secret, clusters=["eu"])]}, ValueError, "is in the cluster of its primary objects"),
        ({"watches": [Watch(Secret, clusters=["eu"])]}, ValueError, "needs a map function"),
    ],
    ids=["one name", "number", "sources", "owned elsewhere", "no map function"],
)
def test_what_a_controller_cannot_mean_is_refused_where_it_is_declared(
    options: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        controller(Seen(), **options)
