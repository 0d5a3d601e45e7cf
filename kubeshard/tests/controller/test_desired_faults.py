"""If a run ends at any of its requests, with or without its response, the next run completes it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from desiring import (
    DEFINITIONS,
    NAMESPACE,
    App,
    Killed,
    Operator,
    Tenant,
    Widget,
    World,
    app,
    config,
    widget,
)
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.controller import ApplyFailed
from kubeshard.core import ApiError, ConfigMap, KubeObject, ObjectMeta
from kubeshard_apiserver.testing.memory import MemoryApi

pytestmark = pytest.mark.regression

Fault = tuple[int, str]

BEFORE = (
    config("changed", x="1", labels={"old": "1"}),
    config("unwanted"),
    widget("anew", serial="1"),
    Tenant(metadata=ObjectMeta(name="of-an-earlier-version")),
)
DESIRED: tuple[KubeObject, ...] = (
    config("changed", x="2"),
    config("new"),
    config("found", x="2"),
    widget("anew", serial="2"),
    widget("second"),
)
FOREIGN = (config("foreign"), widget("foreign"), Tenant(metadata=ObjectMeta(name="foreign")))


class Story:
    """Objects left by an earlier version of the program and foreign objects; then runs of a later version."""

    async def begin(self) -> Story:
        api = MemoryApi()
        await api.install(*DEFINITIONS)
        self.world = World(api)
        await self.world.client.create(app())
        for obj in (*FOREIGN, config("found", x="1", labels={"theirs": "1"})):
            await self.world.client.create(obj)
        async with self.world.operator(ConfigMap, Widget, Tenant) as earlier:
            await earlier.apply(*BEFORE)
        self._foreign = [await self._raw(obj) for obj in FOREIGN]
        return self

    async def run(self, *faults: Fault) -> int:
        """Runs one process per fault, and one without; returns the number of requests of the last."""
        for fault in faults:
            async with self.world.operator(ConfigMap, Widget) as operator:
                operator.wire.fatal, operator.wire.how = fault
                try:
                    await self._apply(operator)
                except (Killed, ApplyFailed, ApiError):
                    continue
        async with self.world.operator(ConfigMap, Widget) as last:
            await self._apply(last)
            requests = len(last.wire.requests)
        # The cluster is as desired: a new process finds nothing to do.
        async with self.world.operator(ConfigMap, Widget) as next_one:
            applied = await self._apply(next_one)
            assert not applied.plan
            assert next_one.wire.requests == []
        return requests

    async def _apply(self, operator: Operator) -> Any:
        return await operator.apply(*DESIRED, unowned="adopt", immutable="recreate")

    async def check(self) -> None:
        assert [await self._raw(obj) for obj in FOREIGN] == self._foreign
        there = await self.world.there(ConfigMap, Widget, Tenant)
        mine = {name: obj for name, obj in there.items() if "foreign" not in name}
        assert {*mine} == {f"{obj.KIND.kind} {obj.key}" for obj in DESIRED}
        assert mine["ConfigMap default/changed"].data == {"x": "2"}  # type: ignore[attr-defined]
        assert mine["ConfigMap default/found"].data == {"x": "2"}  # type: ignore[attr-defined]
        assert mine["ConfigMap default/found"].metadata.label("theirs") == "1"
        assert mine["Widget default/anew"].spec.serial == "2"  # type: ignore[attr-defined]
        assert not mine["ConfigMap default/changed"].metadata.has_label("old")
        owner = await self.world.client.get(App, "shop", NAMESPACE)
        kinds = owner.metadata.annotation("applyset.kubernetes.io/contains-group-kinds")
        assert kinds == "ConfigMap,Widget.example.com"

    async def _raw(self, obj: KubeObject) -> Any:
        path = obj.KIND.path(obj.metadata.namespace, obj.metadata.name)
        return json.loads((await self.world.client.raw("GET", path)).body)


def told(*faults: Fault) -> int:
    async def tell() -> int:
        story = await Story().begin()
        requests = await story.run(*faults)
        await story.check()
        return requests

    return asyncio.run(tell())


REQUESTS = told()


@pytest.mark.parametrize("how", ["before", "after", "lost"])
@pytest.mark.parametrize(
    "request_number",
    [
        number if number % 5 == 0 else pytest.param(number, marks=pytest.mark.long)
        for number in range(REQUESTS)
    ],
)
def test_a_run_that_ends_at_any_request_is_completed_by_the_next_one(request_number: int, how: str) -> None:
    told((request_number, how))


@pytest.mark.long
@given(
    st.lists(
        st.tuples(st.integers(0, REQUESTS - 1), st.sampled_from(["before", "after", "lost"])),
        min_size=2,
        max_size=4,
    )
)
def test_runs_that_end_one_after_the_other_are_completed_too(faults: list[Fault]) -> None:
    told(*faults)


def test_the_story_has_a_request_of_every_kind() -> None:
    async def requests() -> list[str]:
        story = await Story().begin()
        async with story.world.operator(ConfigMap, Widget) as operator:
            await operator.apply(*DESIRED, unowned="adopt", immutable="recreate")
            return [request.split("?")[0] for request in operator.wire.requests]

    sent = asyncio.run(requests())
    configs, widgets = (
        "/api/v1/namespaces/default/configmaps",
        "/apis/example.com/v1/namespaces/default/widgets",
    )
    tenants, shop = "/apis/example.com/v1/tenants", "/apis/example.com/v1/namespaces/default/apps/shop"
    assert [request for request in sent if not request.startswith("GET")] == [
        f"PATCH {configs}/changed",
        f"PATCH {configs}/changed",
        f"POST {configs}",
        f"PATCH {configs}/found",
        f"PATCH {widgets}/anew",
        f"PATCH {widgets}/anew",
        f"POST {widgets}",
        f"DELETE {widgets}/anew",
        f"POST {widgets}",
        f"POST {widgets}",
        f"DELETE {configs}/unwanted",
        f"DELETE {tenants}/of-an-earlier-version",
        f"PATCH {shop}",
    ]
