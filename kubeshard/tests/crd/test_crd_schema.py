"""The schema and definition of a class, without a server: the result of each declaration, and what is rejected."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, NewType

import msgspec
import pytest
from msgspec import Meta

from kubeshard import KubeObject, Struct, field
from kubeshard.core import UNSET, Condition, UnsetType
from kubeshard.crd import Column, CustomResource, ListMap, Rule, Scale, definition
from kubeshard.crd.schema import schema_of

STRING = {"type": "string"}
INTEGER = {"type": "integer", "format": "int64"}


class Phase(enum.Enum):
    OPEN = "Open"
    SHUT = "Shut"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Port(Struct):
    name: str
    port: int = 80


class Loose(Struct, omit_defaults=True):
    size: int = 3


PORT = {
    "type": "object",
    "properties": {"name": STRING, "port": {**INTEGER, "default": 80}},
    "required": ["name"],
}
Name = NewType("Name", str)


def of(hint: Any, *default: Any) -> dict[str, Any]:
    """Returns the schema of a field of this type, with this default."""
    namespace: dict[str, Any] = {"__annotations__": {"it": hint}, "__module__": __name__}
    if default:
        namespace["it"] = default[0]
    spec = type(Struct)("Spec", (Struct,), namespace)
    found: dict[str, Any] = schema_of(a_kind(spec=spec))["properties"]["spec"]
    return {**found["properties"]["it"], **({} if default else {"required": found["required"] == ["it"]})}


def a_kind(**fields: Any) -> type[KubeObject]:
    namespace = {"__annotations__": fields, "__module__": __name__}
    return type(KubeObject)("Thing", (KubeObject,), namespace, group="example.com", version="v1")


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, STRING),
        (Name, STRING),
        (bool, {"type": "boolean"}),
        (int, INTEGER),
        (float, {"type": "number", "format": "double"}),
        (int | float, {"type": "number", "format": "double"}),
        (bytes, {"type": "string", "format": "byte"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (int | str, {"x-kubernetes-int-or-string": True}),
        (Any, {"x-kubernetes-preserve-unknown-fields": True}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a"] | Literal["b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, 2], {**INTEGER, "enum": [1, 2]} | {"type": "integer"}),
        (Phase, {"type": "string", "enum": ["Open", "Shut"]}),
        (list[int], {"type": "array", "items": INTEGER}),
        (tuple[Port, ...], {"type": "array", "items": PORT}),
        (list[int | None], {"type": "array", "items": {**INTEGER, "nullable": True}}),
        (set[str], {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}),
        (Mapping[str, int], {"type": "object", "additionalProperties": INTEGER}),
        (dict[Name, Any], {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        (Annotated[int, Meta(ge=1, le=9)], {**INTEGER, "minimum": 1, "maximum": 9}),
        (
            Annotated[float, Meta(gt=0)],
            {"type": "number", "format": "double", "minimum": 0, "exclusiveMinimum": True},
        ),
        (Annotated[str, Meta(min_length=1, pattern="^a")], {**STRING, "minLength": 1, "pattern": "^a"}),
        (Annotated[list[str], Meta(max_length=3)], {"type": "array", "items": STRING, "maxItems": 3}),
        (
            Annotated[Mapping[str, str], Meta(max_length=3)],
            {"type": "object", "additionalProperties": STRING, "maxProperties": 3},
        ),
        (
            Annotated[tuple[Port, ...], ListMap("name")],
            {
                "type": "array",
                "items": PORT,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        ),
        (
            Annotated[str, Rule("self == oldSelf", "fixed")],
            {**STRING, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed"}]},
        ),
        (Annotated[int | list[int], Meta(extra_json_schema={"type": "string"})], {"type": "string"}),
    ],
    ids=str,
)
def test_a_type_becomes_its_schema(hint: Any, schema: dict[str, Any]) -> None:
    expected = {"type": "integer", "enum": [1, 2]} if hint == Literal[1, 2] else schema
    assert of(hint) == {**expected, "required": True}


@pytest.mark.parametrize(
    ("hint", "default", "schema"),
    [
        (int, 3, {**INTEGER, "default": 3}),
        (bool, False, {"type": "boolean", "default": False}),
        (str, "", {**STRING, "default": ""}),
        (Phase, Phase.OPEN, {"type": "string", "enum": ["Open", "Shut"], "default": "Open"}),
        (tuple[int, ...], (1, 2), {"type": "array", "items": INTEGER, "default": [1, 2]}),
        (int | None, None, INTEGER),
        (int | None | UnsetType, UNSET, INTEGER),
        (int | None, 3, {**INTEGER, "nullable": True, "default": 3}),
        (
            Literal["a", None],
            "a",
            {
                "type": "string",
                "nullable": True,
                "x-kubernetes-validations": [{"rule": 'self in ["a"]', "message": "must be one of a"}],
                "default": "a",
            },
        ),
        (
            Loose,
            field(default_factory=Loose),
            {"type": "object", "properties": {"size": INTEGER}, "default": {}},
        ),
        (str, field(default_factory=lambda: "made anew"), STRING),
    ],
)
def test_a_default_is_the_servers_too_unless_it_is_none_omitted_or_made(
    hint: Any, default: Any, schema: dict[str, Any]
) -> None:
    assert of(hint, default) == schema


def test_none_is_a_value_where_it_is_no_default() -> None:
    assert of(int | None) == {**INTEGER, "nullable": True, "required": True}


class Status(Struct):
    shards: int = 0
    conditions: tuple[Condition, ...] = ()


def test_a_status_is_a_subresource_without_defaults_and_its_conditions_are_a_map() -> None:
    manifest = definition(a_kind(status=Status))["spec"]["versions"][0]
    status = manifest["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert manifest["subresources"] == {"status": {}}
    assert status["properties"]["shards"] == INTEGER
    assert status["properties"]["conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    assert "conditions" not in status.get("required", ())


class Told(Struct):
    """What a told
    thing is.
    """

    size: int = 0
    """How large
    it is."""
    full_name: str = ""


class Tree(Struct):
    left: Tree | None = None


@Rule("self.a < 3")
class Base(Struct):
    a: int = 0


@Rule("self.b < 3")
@Rule("self.b > 0", "positive", reason="FieldValueInvalid", field_path=".b")
class Derived(Base):
    b: int = 1


def test_docstrings_are_descriptions_and_names_are_the_wires() -> None:
    spec = schema_of(a_kind(spec=Told))["properties"]["spec"]
    assert spec["description"] == "What a told thing is."
    assert spec["properties"]["size"]["description"] == "How large it is."
    assert list(spec["properties"]) == ["size", "fullName"]


def test_rules_of_bases_come_first_and_all_count() -> None:
    rules = schema_of(a_kind(spec=Derived))["properties"]["spec"]["x-kubernetes-validations"]
    assert [rule["rule"] for rule in rules] == ["self.a < 3", "self.b < 3", "self.b > 0"]
    assert rules[2] == {
        "rule": "self.b > 0",
        "message": "positive",
        "reason": "FieldValueInvalid",
        "fieldPath": ".b",
    }
    assert "x-kubernetes-validations" in schema_of(a_kind(spec=Base))["properties"]["spec"]


@pytest.mark.parametrize(
    ("hint", "says"),
    [
        (int | list[int], r"Thing\.spec\.it: no schema can describe int \| list"),
        (tuple[int, str], "a list has items of one type"),
        (dict[int, str], "the keys of a map are strings, not int"),
        (Tree, r"it\.left: Tree contains itself"),
        (complex, "no schema can describe complex: use a Struct"),
        (Literal["a", 1], "all strings, or all integers"),
        (
            Annotated[list[Port], ListMap("port")],
            "port is a key of the list, so it needs to be a field without a default",
        ),
    ],
    ids=str,
)
def test_what_no_schema_can_say_is_refused_with_its_place(hint: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        of(hint)


def test_a_default_that_does_not_fit_its_field_is_refused() -> None:
    with pytest.raises(TypeError, match=r"spec\.it: the default 0 does not fit: Expected `int` >= 1"):
        of(Annotated[int, Meta(ge=1)], 0)


class ScaledSpec(Struct):
    replicas: int = 1
    image: str = ""
    labels: Mapping[str, str] | None = None


class ScaledStatus(Struct):
    replicas: int = 0
    selector: str = ""
    since: datetime | None = None


def scaled(version: str, **says: Any) -> type[KubeObject]:
    namespace = {"__annotations__": {"spec": ScaledSpec, "status": ScaledStatus}, "__module__": __name__}
    cls = type(KubeObject)("Scaled", (KubeObject,), namespace, group="example.com", version=version)
    found: type[KubeObject] = CustomResource(**says)(cls)
    return found


def test_a_decorator_says_what_fields_do_not() -> None:
    manifest = definition(
        scaled(
            "v1",
            short_names=["sc"],
            categories=["all"],
            scale=Scale(selector=".status.selector"),
            selectable=[".spec.image"],
            columns=[
                Column("Replicas", ".spec.replicas"),
                Column("Since", ".status.since", priority=1),
                Column("Team", ".metadata.labels.team"),
                Column("Age", ".metadata.creationTimestamp"),
                Column("First", ".spec.labels['a.b/c']", "string", "of the labels"),
            ],
        )
    )["spec"]
    version = manifest["versions"][0]
    assert manifest["names"] == {
        "kind": "Scaled",
        "listKind": "ScaledList",
        "plural": "scaleds",
        "singular": "scaled",
        "shortNames": ["sc"],
        "categories": ["all"],
    }
    assert version["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
    assert [(column["type"], column.get("priority")) for column in version["additionalPrinterColumns"]] == [
        ("integer", None),
        ("date", 1),
        ("string", None),
        ("date", None),
        ("string", None),
    ]
    assert version["selectableFields"] == [{"jsonPath": ".spec.image"}]


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        ({"columns": [Column("Phase", ".status.phaze")]}, r"no field \.status\.phaze: there is no 'phaze'"),
        ({"columns": [Column("Phase", "status.since")]}, "must begin with a dot"),
        ({"scale": Scale(replicas=".spec.size")}, r"no field \.spec\.size"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(says: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        definition(scaled("v1", **says))


def test_of_several_versions_one_is_stored() -> None:
    v1, v2 = scaled("v1", deprecated="use v2", served=False), scaled("v2", storage=True, short_names=["sc"])
    manifest = definition(v1, v2, conversion={"strategy": "None"})["spec"]
    assert manifest["conversion"] == {"strategy": "None"}
    assert manifest["names"]["shortNames"] == ["sc"]
    first, second = manifest["versions"]
    assert (first["name"], first["served"], first["storage"]) == ("v1", False, False)
    assert (first["deprecated"], first["deprecationWarning"]) == (True, "use v2")
    assert (second["name"], second["served"], second["storage"]) == ("v2", True, True)


class Elsewhere(KubeObject, group="example.com", version="v3", kind="Scaled", plural="scales"):
    pass


class Core(KubeObject, group="apps", version="v1"):
    pass


@pytest.mark.parametrize(
    ("versions", "problem"),
    [
        ([scaled("v1"), scaled("v2")], "stored in one version: mark one of Scaled, Scaled"),
        ([scaled("v1", storage=True), scaled("v2", storage=True)], "mark one of"),
        ([scaled("v1", storage=True), scaled("v1")], "two classes have the same version"),
        ([scaled("v1", storage=True), Elsewhere], "not versions of one kind"),
        ([Core], "its group needs a dot"),
    ],
)
def test_versions_that_do_not_belong_together_are_refused(
    versions: list[type[KubeObject]], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        definition(*versions)


def test_a_class_without_a_version_is_no_kind() -> None:
    with pytest.raises(TypeError, match="Status is not a kind"):
        definition(Status)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is not a kind"):
        CustomResource()(Struct)  # type: ignore[type-var]


def test_what_a_class_encodes_it_decodes_with_its_notes() -> None:
    thing = msgspec.convert({"name": "a"}, Port)
    assert (thing.port, Derived().b, Loose().size) == (80, 1, 3)
