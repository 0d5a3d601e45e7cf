"""Objects to try an operator with: made-up ones are accepted by their definition, and change from one to the next."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeshard.core.errors import ConfigurationError
from kubeshard.manifests.samples import MadeUp, ObjectTemplate
from kubeshard_apiserver.testing.memory import MemoryApi


def definition(**spec: Any) -> dict[str, Any]:
    properties = {"spec": {"type": "object", **spec}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "desks.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Desk", "plural": "desks", "singular": "desk", "listKind": "DeskList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


PROPERTIES = {
    "colour": {"type": "string", "enum": ["red", "green"]},
    "name": {"type": "string", "maxLength": 5, "minLength": 3},
    "legs": {"type": "integer", "minimum": 3, "maximum": 4},
    "share": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
    "folds": {"type": "boolean"},
    "port": {"x-kubernetes-int-or-string": True},
    "drawers": {
        "type": "array",
        "minItems": 1,
        "items": {"type": "object", "required": ["label"], "properties": {"label": {"type": "string"}}},
    },
    "code": {"type": "string", "pattern": "^x"},
    "until": {"type": "string", "format": "date-time"},
    "schedule": {
        "type": "object",
        "required": ["from"],
        "properties": {"from": {"type": "string", "pattern": "^x"}},
    },
    "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}


async def test_what_is_made_up_is_accepted_by_the_definition() -> None:
    given = definition(required=["colour", "name", "drawers"], properties=PROPERTIES)
    api = MemoryApi()
    await api.install(given)
    async with api.client() as client:
        for number in range(1, 8):
            made = MadeUp(given).render(f"desk-{number}", number, f"word{number}")
            body = json.dumps(made).encode()
            await client.raw("POST", "/apis/example.com/v1/namespaces/default/desks", body)
    assert {"code", "until", "schedule"} & made["spec"].keys() == set()
    assert made["spec"]["drawers"] == [{"label": "word7"}]


def test_an_object_changes_with_its_number() -> None:
    made_up = MadeUp(definition(properties=PROPERTIES))
    specs = [made_up.render("a", number, f"w{number}")["spec"] for number in (1, 2)]
    assert all(specs[0][name] != specs[1][name] for name in ("colour", "name", "legs", "folds", "port"))


def test_a_required_field_that_cannot_be_guessed_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"no value can be made up for Desk\.spec\.code"):
        MadeUp(definition(required=["code"], properties=PROPERTIES)).render("a", 1, "w")


def test_a_required_field_with_a_default_is_left_to_the_server() -> None:
    code = {"type": "string", "pattern": "^x", "default": "x"}
    made = MadeUp(definition(required=["code"], properties={"code": code})).render("a", 1, "w")
    assert made["spec"] == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Desk", "the template needs apiVersion, kind and metadata.name"),
        ("a: $nobody", "it may use "),
        ("a: [", "what the template renders is not YAML"),
    ],
)
def test_a_template_that_renders_no_manifest_is_a_mistake(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ObjectTemplate(text).render("a", 1, "w")
