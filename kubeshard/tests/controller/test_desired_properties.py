"""Whatever is desired and whatever others do: after a run the cluster is as desired, and the next run sends nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from desiring import DEFINITIONS, NAMESPACE, Operator, Widget, World, app, config, widget
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core import ConfigMap, KubeObject, MergePatch, NotFound
from kubeshard_apiserver.testing.memory import MemoryApi

pytestmark = pytest.mark.regression

NAMES = st.sampled_from("abc")
VALUES = st.sampled_from("12")
CONFIGS = st.builds(
    lambda name, value, labels: config(name, labels=labels, x=value),
    NAMES,
    VALUES,
    st.dictionaries(st.sampled_from(["l", "m"]), VALUES, max_size=2),
)
WIDGETS = st.builds(lambda name, size: widget(name, size=size), NAMES, st.integers(1, 2))
DESIRED = st.lists(CONFIGS | WIDGETS, max_size=4, unique_by=lambda obj: (obj.KIND, obj.metadata.name))

MARKS = ("applyset.kubernetes.io/part-of", "kubeshard.dev/set")
EDITS: dict[str, dict[str, Any]] = {
    "changes a value": {"data": {"x": "other"}, "spec": {"size": 9}},
    "adds a label": {"metadata": {"labels": {"theirs": "1"}}},
    "takes a label": {"metadata": {"labels": {"l": None}}},
    "takes the hash": {"metadata": {"annotations": {"kubeshard.dev/applied": None}}},
    "takes the marks": {"metadata": {"labels": dict.fromkeys(MARKS)}},
}
ACTIONS = st.one_of(
    st.tuples(st.just("apply"), DESIRED),
    st.tuples(st.just("edit"), st.sampled_from([ConfigMap, Widget]), NAMES, st.sampled_from(sorted(EDITS))),
    st.tuples(st.just("delete"), st.sampled_from([ConfigMap, Widget]), NAMES),
    st.tuples(st.just("restart")),
)


class Tale:
    """The history of one server, and the objects that must exist."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._desired: list[KubeObject] = []
        self._unmarked: set[tuple[str, str]] = set()
        """Objects that the set cannot find again once they are no longer desired."""

    async def tell(self, actions: list[Any]) -> None:
        left = list(actions)
        while left or self._desired:
            async with self._world.operator(ConfigMap, Widget) as operator:
                while left:
                    match left.pop(0):
                        case ("apply", desired):
                            await self._apply(operator, desired)
                        case ("edit", kind, name, what):
                            await self._edit(kind, name, what)
                        case ("delete", kind, name):
                            await self._delete(kind, name)
                        case _:
                            break
                else:
                    await self._apply(operator, self._desired)
                    await self._apply(operator, [])

    async def _apply(self, operator: Operator, desired: list[KubeObject]) -> None:
        self._desired = desired
        applied = await operator.apply(*desired, unowned="adopt")
        there = await self._world.there(ConfigMap, Widget)
        wanted = {f"{obj.KIND.kind} {obj.key}": obj for obj in desired}
        self._unmarked -= {(obj.KIND.kind, obj.metadata.name) for obj in desired}
        lost = {f"{kind} {NAMESPACE}/{name}" for kind, name in self._unmarked}
        assert {*there} - lost == {*wanted}
        for name, obj in wanted.items():
            _granted(obj, there[name])
            assert applied[obj] == there[name]
        await operator.apply(*desired, unowned="adopt")
        assert operator.wire.writes == []

    async def _edit(self, kind: type[KubeObject], name: str, what: str) -> None:
        try:
            edited = await self._world.client.patch(kind, name, NAMESPACE, MergePatch(EDITS[what]))
        except NotFound:
            return
        if what in ("takes the hash", "takes the marks") or (kind.KIND.kind, name) in self._unmarked:
            self._unmarked.add((kind.KIND.kind, edited.metadata.name))

    async def _delete(self, kind: type[KubeObject], name: str) -> None:
        try:
            await self._world.client.delete(kind, name, NAMESPACE)
        except NotFound:
            return
        self._unmarked.discard((kind.KIND.kind, name))


def _granted(desired: Any, has: Any) -> None:
    if isinstance(desired, ConfigMap):
        assert (has.data or {})["x"] == (desired.data or {})["x"]
    else:
        assert has.spec.size == desired.spec.size
    labels = {key: value for key, value in (has.metadata.labels or {}).items() if key in "lm"}
    assert labels == (desired.metadata.labels or {})


@pytest.mark.long
@given(st.lists(ACTIONS, max_size=12))
def test_the_cluster_is_as_desired_whatever_happened_before(actions: list[Any]) -> None:
    async def work() -> None:
        api = MemoryApi()
        await api.install(*DEFINITIONS)
        world = World(api)
        await world.client.create(app())
        async with asyncio.timeout(60):
            await Tale(world).tell(actions)

    asyncio.run(work())
