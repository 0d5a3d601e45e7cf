"""Whatever order is desired, whatever others do, and wherever processes end: nothing is written or deleted before its
turn, and in the end the cluster is as desired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from desiring import NAMESPACE, Killed, Operator, World
from hypothesis import given
from hypothesis import strategies as st
from ordering import FAR, Judge, Part, let_go, make_ready, part, with_parts

from kubeshard.controller import ApplyFailed, Ordered
from kubeshard.core import ApiError, NotFound
from kubeshard.core.namespaces import ALL

pytestmark = pytest.mark.regression

NAMES = "abcde"
KEPT = ("example.com/kept",)

Wish = Mapping[str, frozenset[str]]
"""Names, and what each comes after."""


@st.composite
def wishes(draw: st.DrawFn) -> Wish:
    names = draw(st.lists(st.sampled_from(NAMES), max_size=len(NAMES), unique=True))
    # One order of all names, so that the wishes of different versions contain no circle together.
    return {
        name: draw(st.frozensets(st.sampled_from(earlier))) if earlier else frozenset()
        for name in names
        for earlier in [sorted(other for other in names if other < name)]
    }


EVENTS = st.one_of(
    st.tuples(st.just("wish"), wishes()),
    st.tuples(st.just("run")),
    st.tuples(st.just("ready"), st.sampled_from(NAMES), st.sampled_from(["True", "False"])),
    st.tuples(st.just("release"), st.sampled_from(NAMES)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.just("end"), st.integers(0, 6), st.sampled_from(["before", "after", "lost"])),
)


def named(name: str) -> Part:
    """Some are in another namespace, some take time to be deleted, and each wish is of another size."""
    return part(name, FAR if name in "bd" else NAMESPACE, finalizers=KEPT if name in "ac" else ())


def desired(wish: Wish) -> list[Ordered[Part]]:
    return [
        Ordered(named(name), after=[named(other) for other in sorted(after)]) for name, after in wish.items()
    ]


class Tale:
    """Processes of one controller, one after the other, and the world around them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._wish: Wish = {}

    async def tell(self, events: list[tuple[Any, ...]]) -> None:
        left = list(events)
        while left:
            async with self._process() as operator:
                while left:
                    match left.pop(0):
                        case ("wish", wish):
                            self._wish = wish
                            await self._run(operator)
                        case ("run",):
                            await self._run(operator)
                        case ("end", number, how):
                            operator.wire.fatal, operator.wire.how = number, how
                            with suppress(Killed):
                                await self._run(operator)
                            break
                        case (what, name, *more):
                            await self._happens(operator, what, name, *more)
        await self._ends_as_desired()
        self._wish = {}
        await self._ends_as_desired()

    def _process(self) -> Any:
        return self._world.operator(Part)

    async def _run(self, operator: Operator) -> Any:
        operator.wire.judge = Judge(self._world)
        with suppress(ApplyFailed, ApiError):
            return await operator.apply(*desired(self._wish))

    async def _happens(self, operator: Operator, what: str, name: str, *more: str) -> None:
        obj = named(name)
        with suppress(NotFound):
            live = await self._world.client.get(Part, name, obj.metadata.namespace)
            if what == "ready":
                await make_ready(self._world.client, name, obj.metadata.namespace, *more)
            elif what == "delete" and not live.metadata.deleting:
                await self._world.client.delete(Part, name, obj.metadata.namespace)
            elif what == "release" and live.metadata.deleting:
                await let_go(operator, obj)

    async def _ends_as_desired(self) -> None:
        """Every object becomes ready, and every deletion ends: then a few runs suffice."""
        async with self._process() as operator:
            for _ in range(4 * len(NAMES)):
                applied = await self._run(operator)
                if applied is not None and not applied.plan and not applied.leaving:
                    break
                for obj in await self._world.client.list_all(Part, ALL):
                    if obj.metadata.deleting:
                        await let_go(operator, obj)
                    else:
                        await make_ready(self._world.client, obj.metadata.name, obj.metadata.namespace)
            else:
                raise AssertionError(f"{applied and applied.held} of {self._wish}")
            await operator.apply(*desired(self._wish))
            assert operator.wire.requests == []
        there = {obj.metadata.name: obj for obj in await self._world.client.list_all(Part, ALL)}
        assert {*there} == {*self._wish}


@pytest.mark.long
@given(st.lists(EVENTS, max_size=14))
def test_nothing_is_done_before_its_turn_and_in_the_end_all_is_as_desired(
    events: list[tuple[Any, ...]],
) -> None:
    asyncio.run(with_parts(lambda world: Tale(world).tell(events)))
