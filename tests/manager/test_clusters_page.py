"""The programs of docs/several-clusters.md run, and do what the page says."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from clusters import DEFAULT, Place, Places

from kubeshard.client import install
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.crd import definition
from kubeshard.testing.virtual_time import virtual_time

TEXT = (Path(__file__).parents[2] / "docs" / "several-clusters.md").read_text()


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    module = sys.modules["several_clusters_page"] = ModuleType("several_clusters_page")
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
    assert len(blocks) == 4
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


@virtual_time
async def test_teams_are_greeted_in_every_cluster_but_home(page: Any) -> None:
    async with Places("eu", "us") as places:
        await installed(page, *places.by_name.values())
        for place in places.by_name.values():
            await place.client.create(team(page, "red"))
        async with places.manager(page.teams):
            await asyncio.sleep(20)
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
