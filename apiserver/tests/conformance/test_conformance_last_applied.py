"""The annotation that client-side apply leaves behind, and how kubectl's server-side apply uses it."""

from __future__ import annotations

import json

import pytest
from conformance_api import owned
from conformance_kinds import config_map

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


async def client_side_applied(api, maps, data, **stated):
    said = {**config_map(data=data), **stated}
    body = config_map(data=data, annotations={ANNOTATION: json.dumps(said)})
    answer = await api.create(maps, body, fieldManager="kubectl-client-side-apply")
    assert answer.status == 201, answer.text


async def test_kubectl_takes_over_what_client_side_apply_stated(api, maps):
    await client_side_applied(api, maps, {"a": "1", "b": "2"})
    answer = await api.apply(f"{maps}/a", config_map(data={"a": "3"}), "kubectl")
    assert answer["data"] == {"a": "3", "b": "2"}
    owners = owned(answer)
    assert owners["kubectl", "Apply", ""]["f:data"] == {"f:a": {}}
    assert owners["kubectl-client-side-apply", "Update", ""]["f:data"] == {".": {}, "f:b": {}}


async def test_the_annotation_says_what_was_applied_last(api, maps):
    await client_side_applied(api, maps, {"a": "1"})
    answer = await api.apply(f"{maps}/a", config_map(data={"b": "<&>"}, annotations={"x": "y"}), "kubectl")
    said = answer.meta["annotations"][ANNOTATION]
    assert said.endswith("}\n")
    assert '"\\u003c\\u0026\\u003e"' in said
    stated = json.loads(said)
    assert (stated["data"], stated["metadata"]["annotations"]) == ({"b": "<&>"}, {"x": "y"})


@pytest.mark.parametrize("manager", ["one", "kubectl-apply"])
async def test_another_manager_has_a_conflict(api, maps, manager):
    await client_side_applied(api, maps, {"a": "1"})
    refused = await api.apply(f"{maps}/a", config_map(data={"a": "3"}), manager)
    assert refused.refusal == (409, "Conflict")


async def test_what_has_changed_since_is_a_conflict(api, maps):
    await client_side_applied(api, maps, {"a": "1", "b": "1"})
    await api.merge(f"{maps}/a", {"data": {"a": "2"}}, fieldManager="other")
    refused = await api.apply(f"{maps}/a", config_map(data={"a": "3", "b": "3"}), "kubectl")
    assert refused.refusal == (409, "Conflict")
    assert {cause["field"] for cause in refused.details["causes"]} == {".data.a"}


async def test_what_it_did_not_state_is_a_conflict(api, maps):
    await client_side_applied(api, maps, {"a": "1"})
    await api.merge(f"{maps}/a", {"data": {"b": "2"}}, fieldManager="other")
    refused = await api.apply(f"{maps}/a", config_map(data={"b": "3"}), "kubectl")
    assert refused.refusal == (409, "Conflict")


async def test_an_annotation_of_another_version_is_nothing(api, maps):
    await client_side_applied(api, maps, {"a": "1"}, apiVersion="v2")
    refused = await api.apply(f"{maps}/a", config_map(data={"a": "3"}), "kubectl")
    assert refused.refusal == (409, "Conflict")


async def test_an_object_without_the_annotation_gets_none(api, maps):
    await api.create(maps, config_map(data={"a": "1"}))
    answer = await api.apply(f"{maps}/a", config_map(data={"b": "1"}), "kubectl")
    assert "annotations" not in answer.meta
