"""Create-or-patch of a dependent object: what is sent, and which fields of others remain."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from little_server import LittleServer, Run

from kubeshard.controller.dependents import EnsureResult, ensure
from kubeshard.core import Conflict, KubeObject, ObjectMeta, controller_reference
from kubeshard.core.objects import Struct, field
from kubeshard.core.owners import AlreadyControlled

NAMESPACE = "default"


class Part(Struct):
    name: str = ""
    image: str = ""


class ThingSpec(Struct):
    size: int = 0
    parts: tuple[Part, ...] = ()


class ThingStatus(Struct):
    phase: str = ""


class Thing(KubeObject, group="example.com", version="v1"):
    spec: ThingSpec = field(default_factory=ThingSpec)
    status: ThingStatus = field(default_factory=ThingStatus)


class Owner(KubeObject, group="example.com", version="v1"):
    pass


OWNER = Owner(metadata=ObjectMeta(name="owner", namespace=NAMESPACE, uid="1"))
DEFAULTS = {"Thing": {"spec": {"defaulted": True}}}


def thing(size: int = 1, *parts: Part, **meta: Any) -> Thing:
    metadata = ObjectMeta(name="thing", namespace=NAMESPACE, **meta)
    return Thing(metadata=metadata, spec=ThingSpec(size=size, parts=parts))


@pytest.fixture
def server() -> LittleServer:
    return LittleServer(DEFAULTS)


async def make(server: LittleServer, desired: Thing, owner: KubeObject | None = OWNER) -> EnsureResult:
    _, outcome = await ensure(Run(server, NAMESPACE).context, desired, owner=owner)
    return outcome


async def test_what_is_absent_is_created_with_its_owner(server: LittleServer) -> None:
    assert await make(server, thing()) is EnsureResult.CREATED
    assert server.find(Thing, "thing", NAMESPACE).metadata.owner_references == (controller_reference(OWNER),)


async def test_nothing_is_sent_when_the_object_is_as_desired(server: LittleServer) -> None:
    await make(server, thing(1, Part(name="a", image="x"), labels={"a": "b"}))
    server.writes.clear()
    assert (
        await make(server, thing(1, Part(name="a", image="x"), labels={"a": "b"})) is EnsureResult.UNCHANGED
    )
    assert server.writes == []


async def test_only_the_difference_is_sent(server: LittleServer) -> None:
    await make(server, thing(1, labels={"a": "b"}))
    server.writes.clear()
    assert await make(server, thing(2, labels={"a": "b"})) is EnsureResult.PATCHED
    assert server.writes == [("patch", "Thing", {"spec": {"size": 2}})]


async def test_what_others_set_is_kept(server: LittleServer) -> None:
    await make(server, thing(1, labels={"mine": "1"}))
    theirs = {
        "metadata": {"labels": {"theirs": "1"}, "annotations": {"note": "x"}, "finalizers": ["a/b"]},
        "spec": {"foreign": {"deep": 1}},
        "status": {"phase": "Good"},
    }
    server.change(Thing, "thing", NAMESPACE, theirs)
    assert await make(server, thing(2, labels={"mine": "2"})) is EnsureResult.PATCHED
    found = server.objects["Thing", NAMESPACE, "thing"]
    assert found["metadata"]["labels"] == {"mine": "2", "theirs": "1"}
    assert found["metadata"]["annotations"] == {"note": "x"}
    assert found["spec"] == {"size": 2, "parts": [], "defaulted": True, "foreign": {"deep": 1}}
    assert found["status"] == {"phase": "Good"}


async def test_foreign_fields_within_list_items_are_kept(server: LittleServer) -> None:
    await make(server, thing(1, Part(name="a", image="x"), Part(name="b", image="x")))
    parts = [{"name": "a", "image": "x", "cpu": 1}, {"name": "b", "image": "x", "cpu": 2}]
    server.change(Thing, "thing", NAMESPACE, {"spec": {"parts": parts}})
    assert (
        await make(server, thing(1, Part(name="a", image="y"), Part(name="b", image="x")))
        is EnsureResult.PATCHED
    )
    assert server.objects["Thing", NAMESPACE, "thing"]["spec"]["parts"] == [
        {"name": "a", "image": "y", "cpu": 1},
        {"name": "b", "image": "x", "cpu": 2},
    ]


async def test_a_list_gets_the_items_and_the_order_that_are_desired(server: LittleServer) -> None:
    await make(server, thing(1, Part(name="a", image="x")))
    assert await make(server, thing(1, Part(name="b"), Part(name="a", image="x"))) is EnsureResult.PATCHED
    assert server.objects["Thing", NAMESPACE, "thing"]["spec"]["parts"] == [
        {"name": "b", "image": ""},
        {"name": "a", "image": "x"},
    ]


async def test_items_are_never_merged_into_an_object_that_has_changed(server: LittleServer) -> None:
    await make(server, thing(1, Part(name="a", image="x")))
    run = Run(server, NAMESPACE)
    stale = server.find(Thing, "thing", NAMESPACE)
    server.change(Thing, "thing", NAMESPACE, {"spec": {"parts": [{"name": "other"}]}})

    async def behind(*_: object) -> Thing:
        return stale

    run.get = behind  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        await ensure(run.context, thing(1, Part(name="a", image="y")), owner=OWNER)


@pytest.mark.regression
async def test_a_number_that_falls_to_its_class_default_is_sent(server: LittleServer) -> None:
    await make(server, thing(3))
    server.writes.clear()
    assert await make(server, thing(0)) is EnsureResult.PATCHED
    assert server.writes == [("patch", "Thing", {"spec": {"size": 0}})]


async def test_an_object_of_another_controller_is_refused(server: LittleServer) -> None:
    other = Owner(metadata=ObjectMeta(name="other", namespace=NAMESPACE, uid="2"))
    server.has(thing(1, owner_references=(controller_reference(other),)))
    with pytest.raises(AlreadyControlled, match="Owner other"):
        await make(server, thing(2))
    assert server.writes == []


async def test_a_second_owner_is_kept_and_a_namesake_of_the_owner_replaced(server: LittleServer) -> None:
    old = msgspec.structs.replace(controller_reference(OWNER), uid="0")
    plain = msgspec.structs.replace(old, kind="Other", controller=None, block_owner_deletion=None)
    server.has(thing(1, owner_references=(old, plain)))
    assert await make(server, thing(1)) is EnsureResult.PATCHED
    assert set(server.find(Thing, "thing", NAMESPACE).metadata.owner_references) == {
        plain,
        controller_reference(OWNER),
    }


async def test_without_an_owner_references_are_left_alone(server: LittleServer) -> None:
    server.has(thing(1, owner_references=(controller_reference(OWNER),)))
    assert await make(server, thing(1), owner=None) is EnsureResult.UNCHANGED
