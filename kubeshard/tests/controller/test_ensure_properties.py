"""Whatever is desired: the server ends up with what the author declared, and nothing is sent twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from ensuring import Ensuring
from hypothesis import example, given
from hypothesis import strategies as st

from kubeshard.client import Client
from kubeshard.controller.dependents import EnsureResult
from kubeshard.core import UNSET, KubeObject, ObjectMeta, Struct, UnsetType, encode, field
from kubeshard.crd import definition
from kubeshard_apiserver.testing.memory import MemoryApi

pytestmark = pytest.mark.regression


class Nested(Struct):
    level: int = 0
    free: bool | None = None


class Item(Struct):
    name: str
    weight: int = 0
    size: int | None = None


class Spec(Struct):
    """A spec whose class defaults differ from those of the definition."""

    count: int = 1
    title: str = ""
    on: bool = False
    ratio: float = 0.0
    tags: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    port: int | str = 0
    nested: Nested = field(default_factory=Nested)
    items: tuple[Item, ...] = ()
    requests: Mapping[str, str] = field(default_factory=dict)
    when: str | None = None
    size: int | None = None
    chosen: tuple[str, ...] | None = None
    switch: int | UnsetType | None = UNSET
    loose: Mapping[str, Any] | None = None


class Sample(KubeObject, group="example.com", version="v1", plural="samples"):
    spec: Spec = field(default_factory=Spec)


TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer"}
EITHER = {"x-kubernetes-int-or-string": True}
ITEM = {"type": "object", "properties": {"name": TEXT, "weight": NUMBER, "size": {**NUMBER, "default": 5}}}
SPEC = {
    "count": {**NUMBER, "default": 3},
    "title": {**TEXT, "default": "hello"},
    "on": {"type": "boolean", "default": True},
    "ratio": {"type": "number", "default": 0.5},
    "tags": {"type": "array", "items": TEXT, "default": ["x"]},
    "options": {"type": "object", "additionalProperties": TEXT, "default": {"a": "b"}},
    "port": {**EITHER, "default": "http"},
    "nested": {
        "type": "object",
        "default": {},
        "properties": {"level": {**NUMBER, "default": 7}, "free": {"type": "boolean", "default": True}},
    },
    "items": {"type": "array", "items": ITEM, "default": [{"name": "one"}]},
    "requests": {"type": "object", "additionalProperties": EITHER, "default": {"cpu": "100m"}},
    "when": {**TEXT, "format": "date-time", "default": "2026-01-01T00:00:00Z"},
    "size": {**NUMBER, "default": 9},
    "chosen": {"type": "array", "items": TEXT, "default": ["y"]},
    "switch": NUMBER,
    "loose": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "default": {"z": 1}},
}
DEFINITION = definition(Sample)
DEFINITION["spec"]["versions"][0]["schema"] = {
    "openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": SPEC}}}
}
"""Unlike the class, it has defaults."""

WORDS = st.sampled_from(["", "a", "b", "hello"])
FEW = st.integers(0, 9)
MAPS = st.dictionaries(st.sampled_from(["a", "b", "cpu"]), WORDS, max_size=2)
NAMES = st.lists(st.sampled_from("pqrs"), unique=True, max_size=3)
PLAIN = st.one_of(WORDS, FEW)
SPECS = st.builds(
    Spec,
    count=FEW,
    title=WORDS,
    on=st.booleans(),
    ratio=st.sampled_from([0.0, 0.5, 1.0]),
    tags=st.lists(WORDS, max_size=2).map(tuple),
    options=MAPS,
    port=st.one_of(FEW, WORDS),
    nested=st.builds(Nested, level=FEW, free=st.none() | st.booleans()),
    items=NAMES.flatmap(
        lambda names: st.tuples(
            *(st.builds(Item, name=st.just(name), weight=FEW, size=st.none() | FEW) for name in names)
        )
    ),
    requests=st.dictionaries(
        st.sampled_from(["cpu", "memory"]),
        st.sampled_from(["1", "1000m", "0.5", "500m", "1Gi", "1024Mi", "1e3", "1k"]),
    ),
    when=st.none() | st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00"]),
    size=st.none() | FEW,
    chosen=st.none() | st.lists(WORDS, max_size=2).map(tuple),
    switch=st.sampled_from([UNSET, None, 0, 1]),
    loose=st.none()
    | st.dictionaries(
        st.sampled_from("xyz"),
        PLAIN | st.lists(FEW, max_size=2) | st.dictionaries(st.sampled_from("vw"), PLAIN),
    ),
)


class Counting:
    """Counts requests that change something, or try to."""

    def __init__(self, api: MemoryApi) -> None:
        self._transport = api.transport()
        self.sent = 0

    async def request(self, request: Any) -> Any:
        self.sent += request.method != "GET"
        return await self._transport.request(request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def run(*specs: Spec, learned: bool = True) -> list[Any]:
    """Returns the server's object after each of the specs, checked on the way."""

    async def work() -> list[Any]:
        api = MemoryApi()
        await api.install(DEFINITION)
        transport = Counting(api)
        client = Client(api.client().config, transport=transport)
        ensuring = Ensuring(client)
        states: list[Any] = []
        for spec in specs:
            desired = Sample(metadata=ObjectMeta(name="a", namespace="default"), spec=spec)
            before = states[-1] if states else None
            await ensuring(desired)
            raw = await client.raw("GET", "/apis/example.com/v1/namespaces/default/samples/a")
            states.append(json.loads(raw.body)["spec"])
            assert_granted(json.loads(encode(desired))["spec"], states[-1], before or {}, SPEC)
            transport.sent = 0
            for again in (ensuring, *([] if learned else [Ensuring(client)])):
                assert await again(desired) is EnsureResult.UNCHANGED
            assert transport.sent == 0
        return states

    return asyncio.run(work())


def assert_granted(desired: Any, has: Any, had: Any, schema: Any) -> None:
    """Checks that declared members are as declared, and the others are unchanged or have the definition's defaults."""
    for name, value in desired.items():
        match name, value:
            case "nested", _:
                assert_granted(value, has[name], (had or {}).get(name, {}), schema[name]["properties"])
            case "items", _:
                assert [item["name"] for item in has[name]] == [item["name"] for item in value]
                earlier = {item["name"]: item for item in (had or {}).get(name, ())}
                for item, there in zip(value, has[name], strict=True):
                    assert_granted(item, there, earlier.get(item["name"], {}), ITEM["properties"])
            case "requests", _:
                assert value.keys() == has[name].keys()
                assert all(AMOUNTS[value[key]] == AMOUNTS[has[name][key]] for key in value)
            case "loose", _:
                assert _within(value, has[name]), (value, has[name], had)
            case _, None:
                assert name not in has
            case _:
                assert has[name] == value
                assert type(has[name]) is type(value) or isinstance(value, tuple | float)
    for name in schema.keys() - desired.keys():
        default = [schema[name]["default"]] if "default" in schema[name] else []
        assert has.get(name) in ([had[name]] if name in had else default or [None])


AMOUNTS = {
    "1": 1.0,
    "2": 2.0,
    "1000m": 1.0,
    "0.5": 0.5,
    "500m": 0.5,
    "1Gi": 2.0**30,
    "1024Mi": 2.0**30,
    "1e3": 1e3,
    "1k": 1e3,
}


def _within(desired: Any, has: Any) -> bool:
    if isinstance(desired, dict):
        return isinstance(has, dict) and all(_within(value, has.get(key)) for key, value in desired.items())
    return type(desired) is type(has) and bool(desired == has)


@pytest.mark.long
@given(st.lists(SPECS, min_size=1, max_size=3))
@example([Spec(count=2), Spec()])
@example([Spec(count=3), Spec(count=0, on=False, title="")])
@example([Spec(requests={"cpu": "1"}), Spec(requests={"cpu": "1000m"}), Spec(requests={"cpu": "2"})])
@example([Spec(switch=1), Spec(switch=None), Spec(switch=None)])
@example([Spec(options={"a": "b"}), Spec(options={})])
def test_the_server_has_what_was_desired_and_the_second_ensure_sends_nothing(specs: list[Spec]) -> None:
    run(*specs, learned=False)


def test_a_value_equal_to_its_class_default_is_sent() -> None:
    (state,) = run(Spec())
    assert (state["count"], state["title"], state["on"], state["tags"], state["options"]) == (
        1,
        "",
        False,
        [],
        {},
    )


def test_what_is_left_at_none_is_the_servers_to_decide() -> None:
    (state,) = run(Spec())
    assert (state["size"], state["chosen"], state["nested"]["free"]) == (9, ["y"], True)


def test_none_removes_what_was_declared_with_unset() -> None:
    first, second, third = run(Spec(switch=1), Spec(), Spec(switch=None))
    assert (first["switch"], second["switch"]) == (1, 1)
    assert "switch" not in third
