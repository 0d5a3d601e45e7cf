"""The programs of docs/desired-sets.md run, one after the other, and do what the page says."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from desiring import World

from kubeshard.controller import Context
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.crd import definition
from kubeshard.manager import Manager
from kubeshard_apiserver.testing.memory import MemoryApi

TEXT = (Path(__file__).parents[3] / "docs" / "desired-sets.md").read_text()


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    module = sys.modules["desired_sets_page"] = ModuleType("desired_sets_page")
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
    assert len(blocks) == 6
    for block in blocks:
        exec(compile(block, "desired-sets.md", "exec"), vars(module))
    yield module
    del sys.modules[module.__name__]


def shop(page: Any, theme: str | None) -> Any:
    metadata = ObjectMeta(name="corner", namespace="default")
    return page.Shop(metadata=metadata, spec=page.ShopSpec(title="Corner shop", theme=theme))


async def names(world: World) -> list[str]:
    return sorted(await world.there(ConfigMap))


async def until(world: World, there: list[str]) -> None:
    """Checks whenever a ConfigMap changes; the first check is on those that exist."""
    async with world.client.watch(ConfigMap, "default") as events:
        async for _ in events:
            if await names(world) == there:
                return


PAGE, STYLE = "ConfigMap default/corner-page", "ConfigMap default/corner-style"


async def test_a_shop_has_what_is_desired_and_nothing_else(page: Any) -> None:
    api = MemoryApi()
    await api.install(definition(page.Shop))
    world = World(api)
    manager = Manager([page.shops], client=api.client(), status_pages=None)
    running = asyncio.create_task(manager.run())
    try:
        async with asyncio.timeout(30):
            for theme, there in (("dark", [PAGE, STYLE]), (None, [PAGE])):
                await world.client.with_field_manager("people").apply(shop(page, theme))
                await until(world, there)
    finally:
        manager.stop()
        await running


async def test_what_would_be_done_is_printed_as_the_page_shows(page: Any) -> None:
    async def show(operator: Any, the_shop: Any) -> None:
        async def look(ctx: Context) -> str:
            told: list[str] = []

            class Log:
                def info(self, message: str, **fields: Any) -> None:
                    told.append(fields["plan"])

            ctx.log = Log()  # type: ignore[assignment]
            await page.look(ctx, the_shop)
            return told[0]

        shown = re.findall(r"^```text\n(.*?)^```", TEXT, re.M | re.S)
        printed = (await operator.run(look, "corner")).splitlines()
        assert [line for line in printed if "corner-news" in line or line[0] in "~- "] == shown[
            0
        ].splitlines()

    await with_a_shop(page, show)


async def test_names_that_are_taken_are_told(page: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def careful(operator: Any, the_shop: Any) -> None:
        await operator.apply(*page.desired(the_shop), name="corner", set="other")
        with pytest.raises(ExceptionGroup):
            await operator.run(lambda ctx: page.careful(ctx, the_shop), "corner")

    await with_a_shop(page, careful, apply=False)
    record = next(record for record in caplog.records if record.msg == "names are taken")
    assert vars(record)["fields"]["objects"] == [PAGE, STYLE]


async def test_a_token_is_created_once(page: Any) -> None:
    async def twice(operator: Any, the_shop: Any) -> None:
        tokens = set()
        for _ in range(2):
            await operator.run(lambda ctx: page.with_token(ctx, the_shop), "corner")
            tokens.add((await operator.world.client.get(ConfigMap, "corner-token", "default")).data["token"])
        assert len(tokens) == 1

    await with_a_shop(page, twice)


async def test_a_second_set_and_nothing_at_all(page: Any) -> None:
    async def two(operator: Any, the_shop: Any) -> None:
        await operator.run(lambda ctx: page.two(ctx, the_shop), "corner")
        await operator.apply(name="corner")
        assert await names(operator.world) == ["ConfigMap default/corner-backup"]

    await with_a_shop(page, two)


async def with_a_shop(page: Any, act: Callable[[Any, Any], Awaitable[None]], *, apply: bool = True) -> None:
    api = MemoryApi()
    await api.install(definition(page.Shop))
    world = World(api)
    the_shop = await world.client.create(shop(page, "dark"))
    async with world.operator(ConfigMap, primary=page.Shop) as operator:
        if apply:
            await operator.apply(*page.desired(the_shop), name="corner")
        await act(operator, the_shop)
