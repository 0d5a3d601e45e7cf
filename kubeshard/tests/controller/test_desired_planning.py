"""The pure parts of desired sets: what happens to which object, and what an owner records."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from desiring import NAMESPACE, App, Tenant, Widget, app, config, widget
from hypothesis import example, given
from hypothesis import strategies as st

from kubeshard.controller import AnothersApplySet, ApplyFailed, NotAdopted, Plan
from kubeshard.controller.desired.applyset import (
    APPLIED,
    ID,
    KINDS,
    NAMESPACES,
    PART_OF,
    SET,
    SETS,
    TOOLING,
    Address,
    ApplySet,
    Memory,
    Ownership,
    address_of,
    applyset,
    mark,
    memory_of,
    parent_patch,
    remembered,
)
from kubeshard.controller.desired.members import members_of
from kubeshard.controller.desired.plan import Observed, plan_of
from kubeshard.controller.merging import Rewrites
from kubeshard.core import ConfigMap, Forbidden, Key, KubeObject, Namespace, ObjectMeta, OwnerReference
from kubeshard.core.kinds import GroupKind

OWNER = msgspec.structs.replace(app(), metadata=msgspec.structs.replace(app().metadata, uid="u"))
SET_A = applyset(OWNER, "apps", "")
REFERENCE = OwnerReference(api_version="example.com/v2", kind="App", name="shop", uid="u", controller=True)
OTHER = msgspec.structs.replace(REFERENCE, name="other", uid="o")


def stored(obj: Any, set_: ApplySet = SET_A, operation: str = "applied", **changes: Any) -> Any:
    """Returns the object as the server stores it after an apply."""
    (member,) = members_of(set_, [obj]).values()
    metadata = member.obj.metadata
    annotations = {APPLIED: mark(operation, member.digest, member.address), **(metadata.annotations or {})}
    given = {"uid": "x", "resource_version": "1", "annotations": annotations, **changes}
    return msgspec.structs.replace(member.obj, metadata=msgspec.structs.replace(metadata, **given))


def planned(desired: list[Any], there: list[Any], unowned: Any = "refuse") -> Plan:
    members = members_of(SET_A, desired)
    live = {address_of(obj): obj for obj in there if address_of(obj) in members}
    strays = [obj for obj in there if address_of(obj) not in members]
    return plan_of(SET_A, members, Observed(live, strays), Rewrites(), unowned)


def parts(plan: Plan) -> set[str]:
    fields = ("creates", "updates", "deletes", "waiting", "refused", "unchanged")
    return {name for name in fields if getattr(plan, name)}


A = config("a", x="1")
PLAIN = msgspec.structs.replace(
    A, metadata=msgspec.structs.replace(A.metadata, uid="x", resource_version="1")
)


def having(obj: Any, **metadata: Any) -> Any:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, **metadata))


@pytest.mark.parametrize(
    ("there", "becomes"),
    [
        ([], "creates"),
        ([stored(A)], "unchanged"),
        ([stored(A, operation="created")], "unchanged"),
        ([stored(config("a", x="2"))], "updates"),
        ([stored(config("a", x="1", labels={"l": "1"}))], "updates"),
        ([stored(A, deletion_timestamp="2026-01-01T00:00:00Z")], "waiting"),
        ([stored(A, owner_references=(OTHER,))], "refused"),
        ([stored(A, annotations=None)], "updates"),
        ([stored(A, applyset(OWNER, "apps", "second"))], "refused"),
        ([stored(A, applyset(OWNER, "others", ""))], "refused"),
        ([PLAIN], "refused"),
        ([having(PLAIN, owner_references=(REFERENCE,))], "updates"),
        ([having(PLAIN, owner_references=(OTHER,))], "refused"),
        ([having(PLAIN, deletion_timestamp="2026-01-01T00:00:00Z")], "refused"),
    ],
)
def test_what_becomes_of_an_object_that_is_desired(there: list[Any], becomes: str) -> None:
    assert parts(planned([A], there)) == {becomes}


@pytest.mark.parametrize(
    ("there", "goes"),
    [
        (stored(A), True),
        (stored(A, operation="created"), True),
        (stored(A, deletion_timestamp="2026-01-01T00:00:00Z"), False),
        (stored(A, owner_references=(OTHER,)), False),
        (stored(A, annotations=None), False),
        (stored(A, name="copy"), False),
        (stored(A, applyset(OWNER, "apps", "second")), False),
        (PLAIN, False),
        (having(PLAIN, owner_references=(REFERENCE,)), False),
    ],
)
def test_what_becomes_of_an_object_that_is_not_desired(there: Any, goes: bool) -> None:
    plan = planned([], [there])
    assert plan.deletes == ((there,) if goes else ())
    assert bool(plan) is goes


def test_only_what_is_nobodys_is_adopted() -> None:
    assert parts(planned([A], [PLAIN], "adopt")) == {"updates"}
    for there in (having(PLAIN, owner_references=(OTHER,)), stored(A, applyset(OWNER, "apps", "second"))):
        plan = planned([A], [there], "adopt")
        assert [type(error) for error in plan.refused.values()] == [NotAdopted]


def test_kinds_that_others_need_come_first_and_go_last() -> None:
    class CustomResourceDefinition(KubeObject, group="apiextensions.k8s.io", version="v1", namespaced=False):
        pass

    namespace = Namespace(metadata=ObjectMeta(name="n"))
    definition = CustomResourceDefinition(metadata=ObjectMeta(name="d"))
    desired: list[Any] = [widget("w"), definition, config("a"), namespace]
    order = ["Namespace", "CustomResourceDefinition", "Widget", "ConfigMap"]
    assert [obj.KIND.kind for obj in planned(desired, []).creates] == order
    deletes = planned([], [stored(obj) for obj in desired]).deletes
    assert [obj.KIND.kind for obj in deletes] == ["Widget", "ConfigMap", *reversed(order[:2])]


def test_another_version_of_a_kind_is_the_same_object() -> None:
    class Old(KubeObject, group="example.com", version="v1beta1", kind="Widget"):
        pass

    there = stored(Old(metadata=widget("w").metadata))
    members = members_of(SET_A, [widget("w")])
    assert not plan_of(SET_A, members, Observed({}, [there]), Rewrites(), "refuse").deletes


# The record on an owner


def patched(owner: App, set_: ApplySet, *objects: KubeObject) -> App:
    patch = parent_patch(owner.metadata, set_, memory_of(map(address_of, objects)))

    def merged(have: Any, name: str) -> dict[str, str]:
        both = {**(have or {}), **patch.get(name, {})}
        return {key: value for key, value in both.items() if value is not None}

    meta = owner.metadata
    return having(
        owner, labels=merged(meta.labels, "labels"), annotations=merged(meta.annotations, "annotations")
    )


def test_an_owner_remembers_kinds_and_namespaces_of_each_set_and_shows_those_of_all() -> None:
    second = applyset(OWNER, "apps", "second")
    owner = patched(OWNER, SET_A, config("a"), config("a", "far"))
    owner = patched(owner, second, widget("w"))
    far = Memory(frozenset({ConfigMap.KIND.group_kind}), frozenset({NAMESPACE, "far"}))
    assert remembered(owner.metadata, "apps") == far
    assert remembered(owner.metadata, "apps.second").kinds == {Widget.KIND.group_kind}
    assert owner.metadata.annotation(KINDS) == "ConfigMap,Widget.example.com"
    assert owner.metadata.annotation(NAMESPACES) == "far"
    assert owner.metadata.label(ID) == SET_A.id == second.id
    owner = patched(owner, SET_A)
    assert owner.metadata.annotation(KINDS) == "Widget.example.com"
    assert not owner.metadata.has_label(NAMESPACES)
    owner = patched(owner, second)
    assert (owner.metadata.labels, owner.metadata.annotations) == ({}, {})


def test_an_owner_that_remembers_already_is_not_written() -> None:
    owner = patched(OWNER, SET_A, config("a"))
    assert parent_patch(owner.metadata, SET_A, memory_of([address_of(config("b"))])) == {}
    assert parent_patch(OWNER.metadata, SET_A, Memory()) == {}


def test_the_version_of_the_tool_alone_is_no_reason_to_write() -> None:
    owner = patched(OWNER, SET_A, config("a"))
    older = having(owner, annotations={**(owner.metadata.annotations or {}), TOOLING: "kubeshard/v0.0.1"})
    assert applyset(older, "apps", "").id == SET_A.id
    assert parent_patch(older.metadata, SET_A, memory_of([address_of(config("a"))])) == {}


def test_a_memory_that_cannot_be_read_is_taken_from_what_the_owner_shows() -> None:
    annotations = {SETS + "apps": "{", KINDS: "ConfigMap,Widget.example.com", NAMESPACES: "far"}
    owner = having(OWNER, annotations=annotations)
    found = remembered(owner.metadata, "apps")
    assert found.kinds == {GroupKind("", "ConfigMap"), GroupKind("example.com", "Widget")}
    assert found.namespaces == {NAMESPACE, "far"}


@pytest.mark.parametrize("tooling", ["kubectl/v1.36", "", "kubeshard-fork/v1"])
def test_an_owner_that_is_the_parent_of_another_tools_set_is_refused(tooling: str) -> None:
    owner = having(OWNER, labels={ID: "applyset-x-v1"}, annotations={TOOLING: tooling})
    with pytest.raises(AnothersApplySet):
        applyset(owner, "apps", "")


def test_the_id_is_that_of_the_specification() -> None:
    # base64url(sha256("t..Tenant.example.com")): an owner without a namespace
    tenant = Tenant(metadata=ObjectMeta(name="t", uid="u"))
    assert applyset(tenant, "apps", "").id == "applyset-USUsesOniaCvmVHty7_cspCWGwJOIuuim0cwY775afw-v1"


def test_members_are_marked_with_set_and_name() -> None:
    obj = stored(A)
    assert (obj.metadata.label(PART_OF), obj.metadata.label(SET)) == (SET_A.id, "apps")
    assert SET_A.ownership(obj) is Ownership.MEMBER
    assert SET_A.ownership(having(obj, name="copy")) is not Ownership.MEMBER
    assert str(Address(ConfigMap.KIND.group_kind, Key("n", "a"))) == "ConfigMap n/a"


NAMES = st.from_regex(r"[a-z0-9]([-._a-z0-9]{0,6}[a-z0-9])?", fullmatch=True)


@example(("apps.a", ""), ("apps", "a"))
@example(("a", "b.c"), ("a.b", "c"))
@example(("a..b", ""), ("a", "b"))
@given(st.tuples(NAMES, NAMES | st.just("")), st.tuples(NAMES, NAMES | st.just("")))
def test_sets_of_different_controllers_never_meet_whatever_they_are_called(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    assert (applyset(OWNER, *one).name == applyset(OWNER, *other).name) == (one == other)


def test_a_missing_right_is_told_with_the_command_that_prints_the_roles() -> None:
    address = Address(ConfigMap.KIND.group_kind, Key("ns", "a"))
    failed = ApplyFailed("set", {address: Forbidden("no", code=403, reason="Forbidden")})
    assert "grant it: `kubeshard rbac` prints what is needed" in str(failed)
    assert "rbac" not in str(ApplyFailed("set", {address: RuntimeError("no")}))
