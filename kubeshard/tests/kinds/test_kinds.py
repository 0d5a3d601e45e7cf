"""The classes of Kubernetes' own kinds: which there are, their fields, what is sent, and what a name loads."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from kubeshard import KubeObject, ObjectMeta, kinds
from kubeshard.controller.merging import merged
from kubeshard.core import decode, to_dict
from kubeshard.core.builtin import ConfigMap
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import form_of
from kubeshard.core.overlay import spliced
from kubeshard.core.patches import merge_patch
from kubeshard.core.readiness import can_be_judged
from kubeshard.kinds import GROUPS, core_v1, events_v1, rbac_v1
from kubeshard.kinds.generated.homes import HOMES
from kubeshard_apiserver.schema.catalog import said_of, served_kinds, type_name

OLD = {Kind("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers")}
"""Stable kinds that have a newer stable version."""


def _classes() -> dict[Kind, type[KubeObject]]:
    found: dict[Kind, type[KubeObject]] = {core_v1.Event.KIND: core_v1.Event}
    for name in kinds.__all__:
        thing = getattr(kinds, name)
        if issubclass(thing, KubeObject):
            found[thing.KIND] = thing
    return found


CLASSES = _classes()
EACH = pytest.mark.parametrize("class_", CLASSES.values(), ids=[f"{kind}" for kind in CLASSES])
KNOWN = [served.kind for served in served_kinds() if re.fullmatch(r"v\d+", served.kind.version)]
"""The stable kinds of the embedded API server's catalogue, which is read from the same release."""


def test_every_stable_kind_has_a_class() -> None:
    assert set(KNOWN) - OLD <= set(CLASSES)


@pytest.mark.parametrize("kind", [kind for kind in KNOWN if kind not in OLD], ids=str)
def test_a_class_has_the_fields_of_the_server_with_their_types(kind: Kind) -> None:
    seen: set[str] = set()
    wrong = list(_differences(inspect.type_info(CLASSES[kind]), type_name(kind), str(kind), seen))
    assert not wrong


SCALARS = {
    "string": inspect.StrType,
    "bytes": inspect.StrType,
    "quantity": inspect.StrType,
    "time": inspect.StrType,
    "micro-time": inspect.StrType,
    "bool": inspect.BoolType,
    "int32": inspect.IntType,
    "int64": inspect.IntType,
    "float64": inspect.FloatType,
    "int-or-string": inspect.UnionType,
}
FREE = {
    "any",
    "schema-or-array",
    "schema-or-bool",
    "schema-or-strings",
    "apiextensions.v1.JSONSchemaProps",  # contains itself
}
OURS = {"ObjectMeta", "Condition", "LabelSelector", "LabelSelectorRequirement"}
"""Classes that kubeshard defines for all kinds."""


def _differences(type_: Any, told: str, place: str, seen: set[str]) -> Iterator[str]:
    """Yields where a type is not that of the catalogue, in whose notation `told` is."""
    told = told.removeprefix("*")
    if isinstance(type_, inspect.AnyType):
        if told not in FREE:
            yield f"{place} is Any, not {told}"
        return
    if isinstance(type_, inspect.DictType) and not told.startswith("map[") and not said_of(told)["fields"]:
        return
    if told in SCALARS:
        if not isinstance(type_, SCALARS[told]):
            yield f"{place} is {type_}, not {told}"
    elif told.startswith("[]"):
        yield from _differences(_of(type_, "item_type", place), told[2:], f"{place}[]", seen)
    elif told.startswith("map[string]"):
        inner = told.removeprefix("map[string]")
        yield from _differences(_of(type_, "value_type", place), inner, f"{place}{{}}", seen)
    elif told not in seen and not (isinstance(type_, inspect.StructType) and type_.cls.__name__ in OURS):
        seen.add(told)
        has = {field.encode_name: field for field in _of(type_, "fields", place)}
        known = said_of(told)["fields"]
        if missing := set(known) ^ set(has) ^ (set(known) & {"apiVersion", "kind"} - set(has)):
            yield f"{place}: {missing}"
        for name in set(known) & set(has):
            inner_type = _bare(has[name].type)
            yield from _differences(inner_type, known[name]["type"], f"{place}.{name}", seen)


def _bare(type_: Any) -> Any:
    """The type without None."""
    if isinstance(type_, inspect.UnionType):
        members = tuple(each for each in type_.types if not isinstance(each, inspect.NoneType))
        return members[0] if len(members) == 1 else inspect.UnionType(members)
    return type_


def _of(type_: Any, attribute: str, place: str) -> Any:
    assert hasattr(type_, attribute), f"{place} is {type_}"
    return getattr(type_, attribute)


def filled(type_: Any) -> Any:
    """JSON for a type with every field set, and in each object one that its class does not know."""
    match type_:
        case inspect.StructType():
            known = {field.encode_name: filled(_bare(field.type)) for field in type_.fields}
            return known if type_.cls.__name__ in OURS else {**known, "fromTheFuture": {"a": [1]}}
        case inspect.CollectionType():
            return [filled(type_.item_type)]
        case inspect.DictType():
            return {"k": filled(type_.value_type)}
        case inspect.UnionType():
            return filled(type_.types[0])
        case inspect.AnyType():
            return {"free": [None, 1]}
    return {inspect.StrType: "text", inspect.IntType: 3, inspect.FloatType: 1.5, inspect.BoolType: True}[
        type(type_)
    ]


def without_the_future(value: Any) -> Any:
    match value:
        case dict():
            return {key: without_the_future(each) for key, each in value.items() if key != "fromTheFuture"}
        case list():
            return [without_the_future(each) for each in value]
    return value


@EACH
def test_an_object_with_every_field_is_read_and_sent_as_it_was(class_: type[KubeObject]) -> None:
    stored = filled(inspect.type_info(class_))
    read = decode(form_of(class_), msgspec.json.encode(stored))
    sent = json.loads(json.dumps(to_dict(read)))
    expected = without_the_future(stored)
    assert sent == {"apiVersion": class_.KIND.api_version, "kind": class_.KIND.kind, **expected}


@EACH
def test_a_changed_object_is_sent_without_what_its_class_does_not_know_and_that_stays(
    class_: type[KubeObject],
) -> None:
    stored = filled(inspect.type_info(class_))
    live = decode(form_of(class_), msgspec.json.encode(stored))
    meta = msgspec.structs.replace(live.metadata, labels={"k": "new"})
    old, new = to_dict(live), to_dict(msgspec.structs.replace(live, metadata=meta))
    assert merge_patch(old, new) == {"metadata": {"labels": {"k": "new"}}}
    whole = {"apiVersion": class_.KIND.api_version, "kind": class_.KIND.kind, **stored}
    labelled = {**whole, "metadata": {**whole["metadata"], "labels": {"k": "new"}}}
    assert spliced(whole, *(json.loads(json.dumps(each)) for each in (old, new))) == labelled


@EACH
def test_its_readiness_can_be_judged(class_: type[KubeObject]) -> None:
    """`ctx.apply` and waiting take every kind of object that a server keeps for a controller."""
    if not class_.__name__.endswith("Review") and class_.__name__ not in ("Binding", "ComponentStatus"):
        can_be_judged(class_)


def test_only_the_kinds_that_kubeshard_itself_writes_whole_may_be_replaced() -> None:
    """Of the others, a later release may have fields that are not here."""
    assert {class_.__name__ for class_ in CLASSES.values() if class_.COMPLETE} == {
        "ConfigMap",
        "Lease",
        "Secret",
    }


def test_what_is_not_given_is_not_sent() -> None:
    container = kinds.Container(name="main", image="app:1")
    pod = kinds.Pod(spec=kinds.PodSpec(containers=(container,)))
    assert to_dict(pod)["spec"] == {"containers": ({"name": "main", "image": "app:1"},)}


def test_a_status_can_be_read_before_anybody_has_written_it() -> None:
    read = decode(form_of(kinds.StatefulSet), msgspec.json.encode({"metadata": {"name": "a"}, "spec": SPEC}))
    assert (read.status.replicas, read.status.ready_replicas) == (0, None)


SPEC: Mapping[str, Any] = {"selector": {}, "template": {}, "serviceName": "a"}


def test_a_null_in_a_required_list_is_an_empty_one_as_in_go() -> None:
    rule = {"verbs": None, "apiGroups": [""]}
    role = decode(form_of(kinds.Role), msgspec.json.encode({"metadata": {"name": "a"}, "rules": [rule]}))
    assert role.rules == (kinds.PolicyRule(verbs=(), api_groups=("",)),)


def test_what_others_write_to_a_pod_template_stays() -> None:
    """`kubectl rollout restart` adds an annotation there, and the controller of Jobs adds labels."""

    def job(labels: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> kinds.Job:
        meta = ObjectMeta(labels=labels, annotations=annotations)
        pod = kinds.PodSpec(containers=(kinds.Container(name="main", image="app:1"),))
        return kinds.Job(spec=kinds.JobSpec(template=kinds.PodTemplateSpec(metadata=meta, spec=pod)))

    live = job({"app": "a", "job-name": "a"}, {"kubectl.kubernetes.io/restartedAt": "now"})
    assert merged(live, job({"app": "a"}, {})) is live
    changed = merged(live, job({"app": "b"})).spec.template.metadata
    assert changed == ObjectMeta(
        labels={"app": "b", "job-name": "a"}, annotations=live.spec.template.metadata.annotations
    )


def test_a_name_is_found_in_one_place() -> None:
    assert kinds.ConfigMap is ConfigMap
    assert kinds.Event is events_v1.Event
    assert "Deployment" in dir(kinds)
    for name in kinds.__all__:
        assert getattr(kinds, name).__name__ == name


def test_the_class_of_a_group_whose_name_another_group_has_is_in_its_module() -> None:
    assert core_v1.Event.KIND.api_version == "v1"
    assert kinds.Event.KIND.api_version == "events.k8s.io/v1"
    assert kinds.Subject is rbac_v1.Subject


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Deploymnet'"):
        kinds.Deploymnet  # type: ignore[attr-defined]  # noqa: B018


def test_type_checkers_and_the_interpreter_are_told_the_same() -> None:
    tree = ast.parse(Path(kinds.__file__).with_suffix(".pyi").read_text())
    shown = {
        alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert shown == HOMES | dict.fromkeys(GROUPS, "kubeshard.kinds.generated")


def loaded_after(code: str) -> tuple[set[str], int]:
    """The modules of `kubeshard.kinds.generated` that the code loads, and how many decoders it builds."""
    program = (
        f"{code}\nimport sys, kubeshard.core.encoding as encoding\n"
        "print(encoding.decoder.cache_info().currsize, *sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    decoders, *modules = ran.stdout.split()
    prefix = "kubeshard.kinds.generated."
    return {name.removeprefix(prefix) for name in modules if name.startswith(prefix)}, int(decoders)


@pytest.mark.system
@pytest.mark.parametrize(
    ("code", "modules"),
    [
        ("import kubeshard.kinds", ()),
        ("from kubeshard.kinds import ConfigMap, Lease, Namespace, Secret", ()),
        ("from kubeshard.kinds import Service, ServiceSpec", ("core_v1", "core_v1_references")),
        ("from kubeshard.kinds import Role", ("rbac_v1",)),
        (
            "from kubeshard.kinds import Deployment",
            ("apps_v1", "core_v1_pod_templates", "core_v1_references"),
        ),
        (
            "from kubeshard.kinds import Job",
            ("batch_v1", "core_v1_pod_templates", "core_v1_references", "scheduling_v1alpha3"),
        ),
    ],
)
def test_a_name_loads_the_module_of_its_group_and_builds_no_decoder(
    code: str, modules: tuple[str, ...]
) -> None:
    assert loaded_after(code) == ({"homes", *modules}, 0)


@pytest.mark.system
def test_nothing_of_the_framework_loads_them() -> None:
    loaded, _ = loaded_after("import kubeshard; kubeshard.Manager; kubeshard.Controller; kubeshard.Sharding")
    assert not loaded
