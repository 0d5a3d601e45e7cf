"""The programs of docs/several-clusters.md run, and do what the page says."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from clusters import DEFAULT, Place, Places

from kubeshard.client import install
from kubeshard.core import ConfigMap, Lease, ObjectMeta
from kubeshard.crd import definition
from kubeshard.manager import Manager, other_clusters
from kubeshard.sharding.names import shard_label
from kubeshard_lab.virtual_time import virtual_time

TEXT = (Path(__file__).parents[3] / "docs" / "several-clusters.md").read_text()


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    module = sys.modules["several_clusters_page"] = ModuleType("several_clusters_page")
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
    assert len(blocks) == 6
    for block in blocks:
        exec(compile(block, "several-clusters.md", "exec"), vars(module))
    yield module
    del sys.modules[module.__name__]


async def installed(page: Any, *places: Place) -> None:
    for place in places:
        async for _ in install(place.client, [definition(page.Team), definition(page.Rollout)]):
            pass


def team(page: Any, name: str) -> Any:
    return page.Team(metadata=ObjectMeta(name=name), spec=page.TeamSpec(contact="ann"))


def here(page: Any, monkeypatch: pytest.MonkeyPatch, places: Places, **contexts: str) -> None:
    """The page's managers run in the world of the test, and so do the contexts of the kubeconfig that they name."""
    manager = partial(Manager, client=places.home.config, world=places.world, status_pages=None)
    monkeypatch.setattr(page, "Manager", manager)
    known = {context: places[name].config for context, name in contexts.items()}
    monkeypatch.setattr(other_clusters, "read_config", lambda _, context: known[context])


@virtual_time
async def test_teams_are_greeted_in_every_cluster_but_home(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Places("eu", "us") as places:
        await installed(page, *places.by_name.values())
        for place in places.by_name.values():
            await place.client.create(team(page, "red"))
        here(page, monkeypatch, places, **{"prod-eu": "eu", "prod-us": "us"})
        manager = page.manager()
        task = asyncio.create_task(manager.run())
        await asyncio.sleep(20)
        manager.stop()
        await task
        for name in ("eu", "us"):
            made = await places[name].client.get(ConfigMap, "red", DEFAULT)
            assert made.data == {"contact": "ann", "cluster": name}
        assert "red" not in await places.home.names()


@virtual_time
async def test_a_rollout_at_home_makes_teams_elsewhere_and_hears_of_them(page: Any) -> None:
    async with Places("eu", "us") as places:
        await installed(page, *places.by_name.values())
        spec = page.RolloutSpec(team="red", clusters=("us",))
        await places.home.client.create(
            page.Rollout(metadata=ObjectMeta(name="first", namespace=DEFAULT), spec=spec)
        )
        async with places.manager(page.rollouts, clusters={"eu": places["eu"].config}) as process:
            await asyncio.sleep(20)
            process.manager.add_cluster("us", places["us"].config)
            await asyncio.sleep(120)
            made = await places["us"].client.get(page.Team, "red")
            assert made.spec.contact == "nobody yet"
            await places["us"].client.delete(page.Team, "red")
            await asyncio.sleep(5)
            assert (await places["us"].client.get(page.Team, "red")).metadata.uid != made.metadata.uid
            await page.disengage(process.manager, "us")


@virtual_time
async def test_shards_have_their_leases_at_home_and_their_teams_elsewhere(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Places("work") as places:
        here(page, monkeypatch, places, workload="work")
        work = places["work"]
        await installed(page, work)
        for number in range(12):
            await work.client.create(team(page, f"team-{number}"))
        managers = [page.sharded_manager(name) for name in ("a", "b")]
        tasks = [asyncio.create_task(each.run()) for each in managers]
        await asyncio.sleep(60)
        label = shard_label("teams")
        teams = {
            each.metadata.name: each.metadata.label(label) for each in await work.client.list_all(page.Team)
        }
        assert set(teams.values()) == {"a", "b"}
        made = {
            each.metadata.name: each.metadata.label(label)
            for each in await work.client.list_all(ConfigMap, DEFAULT)
        }
        assert {name: made.get(name) for name in teams} == teams
        leases = [each.metadata.name for each in await places.home.client.list_all(Lease, DEFAULT)]
        assert {"a", "b", "sharder-teams"} <= set(leases)
        assert not await work.client.list_all(Lease, DEFAULT)
        for manager in managers:
            manager.stop()
        await asyncio.gather(*tasks)


@virtual_time
async def test_two_instances_share_out_three_clusters_and_each_works_in_its_own_only(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("eu", "us", "asia")
    async with Places(*names) as places:
        here(page, monkeypatch, places, **{f"prod-{name}": name for name in names})
        for name in names:
            await installed(page, places[name])
            await places[name].client.create(team(page, "red"))
        managers = [page.fleet_manager(name) for name in ("a", "b")]
        tasks = [asyncio.create_task(each.run()) for each in managers]
        await asyncio.sleep(60)
        for name in names:
            made = await places[name].client.get(ConfigMap, "red", DEFAULT)
            assert made.data == {"contact": "ann", "cluster": name}
        shared = [[each.name for each in manager.snapshot().clusters] for manager in managers]
        assert sorted(map(len, shared)) == [1, 2]
        assert sorted(shared[0] + shared[1]) == sorted(names)
        for manager in managers:
            manager.stop()
        await asyncio.gather(*tasks)
