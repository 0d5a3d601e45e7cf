"""Classes from schemas: the source is as expected here, compiles, and passes strict type checking."""

from __future__ import annotations

import builtins
import keyword
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeshard import KubeObject, Struct
from kubeshard.core import Kind, decode, to_dict
from kubeshard.core.objects import form_of
from kubeshard.crd import definition
from kubeshard.crd.codegen import Described, UnknownField, source_of, wanted_fields
from kubeshard.crd.manifests import definitions_in, described, kind_in, schemas_in
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.crd import controller_ring_crd

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parent / "golden"
(VAULT,) = definitions_in(yaml.safe_load_all((GOLDEN / "vault_crd.yaml").read_text()))
OPENAPI = yaml.safe_load((GOLDEN / "openapi.yaml").read_text())
ROLLOUT = Kind("apps", "v1", "Rollout", "rollouts")


def of_vault(*fields: str, version: str = "") -> str:
    kind, schema = kind_in(VAULT, version)
    return source_of(
        [Described(kind, schema, wanted_fields(fields))], command="kubeshard types vault_crd.yaml"
    )


def of_rollout(*fields: str) -> str:
    rollout = Described(ROLLOUT, described(OPENAPI, ROLLOUT), wanted_fields(fields))
    return source_of([rollout], schemas_in(OPENAPI))


CHART = Kind("apps", "v1", "Chart", "charts")


def of_both(*fields: str) -> str:
    """A Rollout, and a Chart, which has a Template, too."""
    template = {"$ref": "#/components/schemas/io.example.api.core.v1.Template"}
    chart = {
        "properties": {
            "spec": {"properties": {"template": template}},
            "tasks": {"items": TASK, "type": "array"},
        }
    }
    return source_of(
        [
            Described(ROLLOUT, described(OPENAPI, ROLLOUT), wanted_fields(fields)),
            Described(CHART, chart),
        ],
        schemas_in(OPENAPI),
    )


TASK = {"$ref": "#/components/schemas/io.example.api.core.v1.Task"}
WRITTEN = {
    "vault.py": of_vault(),
    "vault_parts.py": of_vault("spec.doors.name", "spec.shelves", "status.openedAt"),
    "rollout.py": of_rollout(),
    "rollout_parts.py": of_rollout("spec.template.tasks.image", "spec.first.port", "spec.replicas"),
}


def loaded(source: str) -> ModuleType:
    module = ModuleType("written")
    sys.modules[module.__name__] = module  # annotations are resolved in it
    exec(compile(source, "written.py", "exec"), vars(module))
    return module


@pytest.mark.parametrize("name", WRITTEN)
def test_the_source_is_as_it_is_written_here(name: str) -> None:
    assert WRITTEN[name] == (GOLDEN / name).read_text()


@pytest.mark.system
def test_type_checkers_find_nothing_in_it() -> None:
    environment = {**os.environ, "MYPYPATH": str(ROOT / "kubeshard" / "src")}
    command = [sys.executable, "-m", "mypy", "--strict", *(str(GOLDEN / name) for name in WRITTEN)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout


def test_its_classes_read_what_the_server_stores() -> None:
    stored = {
        "apiVersion": "storage.example.com/v1",
        "kind": "Vault",
        "metadata": {"name": "a"},
        "spec": {
            "class": "Gold",
            "doors": [{"name": "front", "locks": [{"turns": 2, "x-code": "s"}], "unknown": 1}],
            "clusterIPs": ["1.2.3.4"],
            "port": "http",
            "anything": [1, {}],
            "shelves": {"top": {"field": True, "str": "x"}},
        },
    }
    vault: Any = decode(form_of(loaded(of_vault()).Vault), msgspec.json.encode(stored))
    assert vault.spec.class_ == "Gold"
    assert vault.spec.doors[0].locks[0].x_code == "s"
    assert vault.spec.cluster_ips == ("1.2.3.4",)
    assert vault.spec.shelves["top"].field_ is True
    written = msgspec.json.decode(msgspec.json.encode(vault.spec))
    del stored["spec"]["doors"][0]["unknown"]
    assert written == stored["spec"]


def test_only_the_fields_that_are_asked_for_are_declared_for_all_uses_of_a_class_together() -> None:
    module = loaded(of_rollout("spec.template.tasks.image", "spec.first.port"))
    assert module.Task.__struct_fields__ == ("image", "port")
    assert module.RolloutSpec.__struct_fields__ == ("template", "first")
    assert "metadata" not in module.Template.__struct_fields__
    assert loaded(of_rollout("spec.first", "spec.first.port")).Task.__struct_fields__ == (
        "name",
        "image",
        "port",
        "limits",
    )


def test_several_kinds_share_the_classes_of_what_both_refer_to() -> None:
    source = of_both()
    assert source.startswith('"""Rollout of apps/v1 and Chart of apps/v1, as far as they are used here."""\n')
    assert source.count("class Task(") == source.count("class Template(") == 1
    module = loaded(source)
    assert module.Chart.KIND == CHART
    chart = decode(form_of(module.Chart), b'{"metadata":{"name":"a"},"tasks":[{"name":"t"}]}')
    rollout = decode(
        form_of(module.Rollout), b'{"metadata":{"name":"a"},"spec":{"template":{},"first":{"name":"t"}}}'
    )
    assert chart.tasks == (rollout.spec.first,)


def test_a_shared_class_has_what_every_kind_wants_of_it() -> None:
    module = loaded(of_both("spec.first.port"))
    assert module.Task.__struct_fields__ == ("name", "image", "port", "limits")
    assert module.RolloutSpec.__struct_fields__ == ("first",)


def test_two_kinds_of_one_name_are_refused() -> None:
    other = Described(ROLLOUT._replace(group="example.com"), {})
    with pytest.raises(
        ValueError, match=r"Rollout\.v1\.apps and Rollout\.v1\.example\.com have the same name"
    ):
        source_of([Described(ROLLOUT, {}), other])


def test_a_reference_to_what_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownField, match=r"refers to io\.example\.api\.core\.v1\.Task, which is not there"):
        source_of([Described(ROLLOUT, {"properties": {"spec": TASK}})])


def test_a_spec_that_cannot_be_empty_is_required_where_the_server_always_writes_one() -> None:
    module = loaded(of_rollout())
    with pytest.raises(TypeError, match="spec"):
        module.Rollout()
    rollout = module.Rollout(spec=module.RolloutSpec(template=module.Template()))
    assert rollout.status == module.RolloutStatus()


def test_what_the_writer_of_a_status_always_writes_is_zero_until_then() -> None:
    status = {
        "required": ["replicas", "ready", "phase", "hosts"],
        "properties": {
            "replicas": {"type": "integer"},
            "ready": {"type": "boolean"},
            "phase": {"type": "string"},
            "hosts": {"type": "array", "items": {"type": "string"}},
            "since": {"type": "string"},
        },
    }
    module = loaded(source_of([Described(CHART, {"properties": {"status": status}})]))
    said = module.ChartStatus(replicas=0, ready=False, phase="", hosts=(), since=None)
    assert decode(form_of(module.Chart), b'{"metadata":{"name":"a"}}').status == said


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (["spec.replica"], "Rollout.spec has no field replica; it has first, replicas, template, tree"),
        (["spec.replicas.more"], "Rollout.spec.replicas has no field more; it has no fields that are known"),
    ],
)
def test_a_field_that_is_not_there_is_refused(fields: list[str], says: str) -> None:
    with pytest.raises(UnknownField) as refused:
        of_rollout(*fields)
    assert str(refused.value) == says


def test_another_version_than_the_stored_one_can_be_chosen() -> None:
    assert 'version="v1beta1"' in of_vault(version="v1beta1")
    with pytest.raises(ValueError, match=r"has no version v9; it has v1beta1, v1"):
        of_vault(version="v9")


def shape(schema: Any) -> Any:
    """Returns names and types of fields, without defaults, bounds and descriptions."""
    match schema:
        case {"properties": dict(properties)}:
            return {name: shape(inner) for name, inner in properties.items()}
        case {"items": items}:
            return [shape(items)]
        case {"additionalProperties": dict(values)}:
            return {"*": shape(values)}
    return schema.get("type")


@pytest.mark.parametrize(
    "manifest", [controller_ring_crd(), definition(ControllerRing)], ids=["crd", "class"]
)
def test_from_a_definition_to_classes_and_back_the_fields_stay(manifest: dict[str, Any]) -> None:
    kind, schema = kind_in(manifest)
    cls: type[KubeObject] = vars(loaded(source_of([Described(kind, schema)])))[kind.kind]
    again, back = kind_in(definition(cls))
    assert again == kind == ControllerRing.KIND
    assert shape(back) == shape(schema)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"kind": "CustomResourceDefinition"}, "without a name is not of apiextensions.k8s.io/v1"),
        (
            {
                "kind": "CustomResourceDefinition",
                "apiVersion": "apiextensions.k8s.io/v1",
                "metadata": {"name": "a"},
            },
            "a lacks group, names, scope or versions",
        ),
    ],
)
def test_what_is_not_a_definition_is_refused(document: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace(".", r"\.")):
        definitions_in([document])


def test_definitions_are_found_in_lists_and_beside_other_objects() -> None:
    assert definitions_in([None, {"kind": "Pod"}, {"kind": "List", "items": [VAULT]}]) == [VAULT]


KEYS = [
    *keyword.kwlist,
    *keyword.softkwlist,
    *dir(builtins),
    *dir(KubeObject),
    *dir(Struct),
    *(
        f"{key.title()}"
        for key in ("key", "metadata", "kind", "none", "true", "any", "mapping", "struct", "condition")
    ),
    *(
        "fooBar",
        "foo_bar",
        "FooBar",
        "foo-bar",
        "foobar",
        "fooBAR",
        "foo.bar",
        "foo_bar_",
        "_foo_bar",
        "f_1",
        "f1",
        "1",
    ),
    *(
        "1x",
        "f_1x",
        "9",
        "",
        "-",
        "$ref",
        "x-y",
        "a b",
        "größe",
        "名前",
        "ﬁeld",
        "a'b",
        'a"b',
        "a\\b",
        "a\nb",
        '"""',
    ),
    *(
        "clusterIPs",
        "clusterIps",
        "cluster_ips",
        "apiVersion",
        "kind",
        "spec",
        "status",
        "name",
        "default",
        "omit",
    ),
]
KEY = st.sampled_from(KEYS) | st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
LEAF = st.sampled_from(
    [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"x-kubernetes-int-or-string": True}]
)
NODE = st.recursive(
    LEAF,
    lambda inner: (
        st.dictionaries(KEY, inner, max_size=6).map(lambda found: {"type": "object", "properties": found})
        | inner.map(lambda item: {"type": "array", "items": item})
        | inner.map(lambda value: {"type": "object", "additionalProperties": value})
    ),
    max_leaves=12,
)
KINDS = st.sampled_from(
    ["Thing", "None", "True", "My-Kind", "Condition", "Struct", "Any", "KubeObject", "Mapping", "Class"]
)
VALUES: dict[str, Any] = {"string": "text", "integer": 3, "boolean": True}


def filled(schema: dict[str, Any]) -> Any:
    """A value in which no field is absent."""
    if "properties" in schema:
        return {key: filled(inner) for key, inner in schema["properties"].items()}
    if "items" in schema:
        return [filled(schema["items"])]
    if "additionalProperties" in schema:
        return {"any key": filled(schema["additionalProperties"])}
    return VALUES.get(schema.get("type", ""), "50%")


@settings(max_examples=200, deadline=None)
@given(kind=KINDS, top=st.dictionaries(KEY, NODE, max_size=5), spec=st.dictionaries(KEY, NODE, max_size=8))
def test_generated_classes_can_be_imported_and_lose_nothing_whatever_the_names_are(
    kind: str, top: dict[str, Any], spec: dict[str, Any]
) -> None:
    properties = {**top, "spec": {"type": "object", "properties": spec}}
    for name in (
        "apiVersion",
        "kind",
        "metadata",
        *(key for key in top if re.search(r'[\x00-\x1f"\\]', key)),
    ):
        properties.pop(name, None)  # the last ones cannot be fields of a class, and a kind is one
    schema = {"type": "object", "properties": properties}
    source = source_of([Described(Kind("example.com", "v1", kind, "things"), schema)])
    module = loaded(source)
    (cls,) = (
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, KubeObject) and each is not KubeObject
    )
    assert (cls.KIND.kind, cls.KIND.plural) == (kind, "things")
    given = {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "a"}}
    given |= {key: filled(inner) for key, inner in properties.items()}
    written = to_dict(decode(form_of(cls), msgspec.json.encode(given)))
    assert msgspec.json.decode(msgspec.json.encode(written)) == given


STRING = {"type": "string"}
NAMED = {"type": "object", "properties": {"a": STRING}}
LIKE_A_CONDITION = dict.fromkeys(
    ("type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"), STRING
)


def nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "nullable": True}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        *((nullable(schema), None) for schema in (STRING, {"type": "integer"}, NAMED)),
        (nullable({"type": "array", "items": STRING}), None),
        ({"type": "array", "items": nullable(STRING)}, ["a", None]),
        ({"type": "array", "items": nullable(NAMED)}, [None, {"a": "b"}]),
        ({"type": "object", "additionalProperties": nullable(STRING)}, {"a": None}),
        (
            {"type": "object", "additionalProperties": nullable({"type": "array", "items": STRING})},
            {"a": None},
        ),
        ({**NAMED, "type": "string"}, "text"),
        ({**NAMED, "type": "array", "items": STRING}, ["text"]),
        ({"properties": NAMED["properties"], "x-kubernetes-preserve-unknown-fields": True}, "text"),
        ({"type": "object", "properties": LIKE_A_CONDITION}, dict.fromkeys(LIKE_A_CONDITION, "1")),
    ],
)
def test_a_class_reads_each_value_that_a_schema_allows(schema: dict[str, Any], value: Any) -> None:
    spec = {"type": "object", "properties": {"field": schema}, "required": ["field"]}
    kind = Described(CHART, {"type": "object", "properties": {"spec": spec}})
    chart = decode(form_of(loaded(source_of([kind])).Chart), msgspec.json.encode({"spec": {"field": value}}))
    assert msgspec.json.decode(msgspec.json.encode(chart))["spec"] == {"field": value}


@pytest.mark.parametrize("schema", [{}, {"properties": {"status": NAMED}}])
def test_a_kind_that_keeps_unknown_fields_has_a_spec_and_a_status(schema: dict[str, Any]) -> None:
    kind = Described(CHART, {**schema, "x-kubernetes-preserve-unknown-fields": True})
    given = {"spec": [1], "status": {"a": "b"}}
    chart = decode(form_of(loaded(source_of([kind])).Chart), msgspec.json.encode(given))
    assert {name: to_dict(chart)[name] for name in given} == given


@pytest.mark.parametrize("text", ["a\x00b", "ends in \\", 'a """ b', "a\x85b\u2028c", '"', "\ud83e"])
def test_a_description_of_any_text_leaves_the_source_importable(text: str) -> None:
    field = {"type": "string", "description": text, "enum": [text]}
    schema = {"type": "object", "description": text, "properties": {"spec": {"properties": {"a": field}}}}
    assert loaded(source_of([Described(Kind("example.com", "v1", "Thing", "things"), schema)])).Thing
