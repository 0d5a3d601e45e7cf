"""The fields that a manager applied can be read back, and applying them changes nothing."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeshard.client import Client
from kubeshard.core import ApplyPatch, Invalid, KubeObject
from kubeshard.core.managed_fields import owned_fields
from kubeshard_apiserver.testing.memory import MemoryApi
from kubeshard_lab.virtual_time import run_virtual

READY = {"type": "Ready", "status": "True"}
DOCUMENT = {
    "status": {
        "phase": "Up",
        "url": "u",
        "nested": {"a": 1, "b": [1, 2]},
        "conditions": [READY, {"type": "Other", "status": "False"}],
        "tags": ["x", "y"],
        "empty": {},
    }
}


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({}, {}),
        ({"f:phase": {}}, {"phase": "Up"}),
        ({"f:gone": {}}, {}),
        ({"f:nested": {}}, {"nested": {"a": 1, "b": [1, 2]}}),
        ({"f:nested": {"f:a": {}}}, {"nested": {"a": 1}}),
        ({"f:empty": {".": {}}}, {"empty": {}}),
        ({"f:tags": {'v:"y"': {}}}, {"tags": ["y"]}),
        (
            {"f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:type": {}, "f:status": {}}}},
            {"conditions": [READY]},
        ),
        ({"f:conditions": {'k:{"type":"Gone"}': {"f:type": {}}}}, {"conditions": []}),
    ],
)
def test_the_fields_of_a_manager_are_taken_with_their_values(fields: dict[str, Any], part: Any) -> None:
    entry = {"manager": "me", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": fields}}
    document = {**DOCUMENT, "metadata": {"managedFields": [entry]}}
    assert owned_fields(document, "me", "status") == {"status": part}
    assert owned_fields(document, "you", "status") == {}
    assert owned_fields(document, "me") == {}


TEXT = {"type": "string"}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "status": {
                                "type": "object",
                                "properties": {
                                    "phase": TEXT,
                                    "url": TEXT,
                                    "tags": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
                                    "ports": {"type": "array", "items": {"type": "integer"}},
                                    "nested": {"type": "object", "additionalProperties": {"type": "integer"}},
                                    "conditions": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["type"],
                                        "items": {
                                            "type": "object",
                                            "required": ["type"],
                                            "properties": {"type": TEXT, "status": TEXT, "reason": TEXT},
                                        },
                                    },
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}  # fmt: skip


class Thing(KubeObject, group="example.com", version="v1"):
    pass


WORD = st.sampled_from(["a", "b", "c"])
CONDITION = st.fixed_dictionaries({"type": WORD}, optional={"status": WORD, "reason": WORD})
STATUS = st.fixed_dictionaries(
    {},
    optional={
        "phase": WORD,
        "url": WORD,
        "tags": st.lists(WORD, unique=True, min_size=1),  # an empty list with keys has no owner
        "ports": st.lists(st.integers(0, 3)),
        "nested": st.dictionaries(WORD, st.integers(0, 3), min_size=1),
        "conditions": st.lists(CONDITION, unique_by=lambda item: item["type"], min_size=1),
    },
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), STATUS), min_size=1, max_size=5))
def test_applying_what_is_owned_changes_nothing(writes: list[tuple[str, dict[str, Any]]]) -> None:
    async def check() -> None:
        api = MemoryApi()
        await api.install(DEFINITION)
        async with api.client() as client:
            meta = {"name": "a", "namespace": "default"}
            await client.apply({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": meta})
            for manager, status in writes:
                with suppress(Invalid):  # what an apply empties of its own may become null, which is refused
                    await apply(client, manager, status)
            before = await whole(client)
            for manager in managers(before):
                await apply(client, manager, owned_fields(before, manager, "status").get("status", {}))
            after = await whole(client)
            assert after.get("status") == before.get("status")
            assert managers(after) == managers(before)

    run_virtual(check())


async def apply(client: Client, manager: str, status: dict[str, Any]) -> None:
    head = {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "a", "namespace": "default"},
    }
    options: dict[str, Any] = {"subresource": "status", "field_manager": manager, "force": True}
    await client.patch(Thing, "a", "default", ApplyPatch({**head, "status": status}), **options)


async def whole(client: Client) -> dict[str, Any]:
    body = (await client.raw("GET", Thing.KIND.path("default", "a"))).body
    decoded: dict[str, Any] = msgspec.json.decode(body)
    return decoded


def managers(document: dict[str, Any]) -> dict[str, Any]:
    return {
        entry["manager"]: entry.get("fieldsV1")
        for entry in document["metadata"].get("managedFields", ())
        if entry.get("subresource") == "status" and entry.get("fieldsV1", {}) != {}
    }
