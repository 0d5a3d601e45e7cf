"""Merge patch and JSON Patch."""

import pytest
from conformance_api import JSON
from conformance_kinds import config_map, site

UNPROCESSABLE = "the server rejected our request due to an error in our request"


@pytest.fixture
async def path(api, maps):
    await api.create(maps, config_map(data={"a": "1", "b": "2"}, labels={"x": "y"}))
    return f"{maps}/a"


async def test_merge_patch_null_removes(api, path):
    assert (await api.merge(path, {"data": {"a": None, "c": "3"}}))["data"] == {"b": "2", "c": "3"}


async def test_merge_patch_adds_labels_where_there_are_none(api, maps):
    await api.create(maps, config_map())
    assert (await api.merge(f"{maps}/a", {"metadata": {"labels": {"a": "b"}}})).meta["labels"] == {"a": "b"}


async def test_merge_patch_that_changes_nothing_keeps_the_version(api, path):
    before = await api.get(path)
    assert (await api.merge(path, {"data": {"a": "1"}})).body == before.body


async def test_merge_patch_with_an_old_version_is_a_conflict(api, path):
    refused = await api.merge(path, {"metadata": {"resourceVersion": "1"}, "data": {"a": "9"}})
    assert refused.refusal == (409, "Conflict")


async def test_merge_patch_with_the_present_version_succeeds(api, path):
    version = (await api.get(path)).version
    assert (
        await api.merge(path, {"metadata": {"resourceVersion": version}, "data": {"a": "9"}})
    ).status == 200


async def test_merge_patch_cannot_change_the_uid(api, path):
    refused = await api.merge(path, {"metadata": {"uid": "b"}})
    assert refused.refusal == (422, "Invalid")
    assert refused.message == 'ConfigMap "a" is invalid: metadata.uid: Invalid value: "b": field is immutable'


async def test_merge_patch_cannot_rename(api, path):
    refused = await api.merge(path, {"metadata": {"name": "b"}})
    assert refused.refusal == (400, "BadRequest")


async def test_a_patch_of_what_is_missing_is_not_found(api, maps):
    assert (await api.merge(f"{maps}/a", {"data": {}})).refusal == (404, "NotFound")
    assert (await api.json_patch(f"{maps}/a")).refusal == (404, "NotFound")


async def test_json_patch_applies_its_operations_in_order(api, path):
    changed = await api.json_patch(
        path,
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "add", "path": "/data/c", "value": "3"},
        {"op": "move", "from": "/data/c", "path": "/data/d"},
        {"op": "copy", "from": "/data/d", "path": "/data/e"},
        {"op": "replace", "path": "/data/a", "value": "9"},
        {"op": "remove", "path": "/data/b"},
    )
    assert changed["data"] == {"a": "9", "d": "3", "e": "3"}


async def test_json_patch_knows_escaped_pointers(api, path):
    changed = await api.json_patch(path, {"op": "add", "path": "/metadata/labels/a.b~1c", "value": "d"})
    assert changed.meta["labels"]["a.b/c"] == "d"


async def test_a_failed_test_of_a_json_patch_is_invalid_without_a_hint(api, path):
    refused = await api.json_patch(path, {"op": "test", "path": "/data/a", "value": "x"})
    assert refused.refusal == (422, "Invalid")
    assert refused.message == UNPROCESSABLE
    assert refused["details"] == {}


async def test_a_failed_test_leaves_the_object_as_it_was(api, path):
    before = await api.get(path)
    await api.json_patch(
        path, {"op": "remove", "path": "/data/a"}, {"op": "test", "path": "/data/b", "value": "x"}
    )
    assert (await api.get(path)).body == before.body


async def test_a_test_of_null_holds_for_what_is_absent(api, path):
    changed = await api.json_patch(
        path,
        {"op": "test", "path": "/data/zz", "value": None},
        {"op": "add", "path": "/data/zz", "value": "1"},
    )
    assert changed.status == 200


@pytest.mark.parametrize(
    "op",
    [
        {"op": "remove", "path": "/data/zz"},
        {"op": "replace", "path": "/bogus/zz", "value": "1"},
        {"op": "add", "path": "/spec/a/b", "value": "1"},
        {"op": "bogus", "path": "/data/a"},
    ],
    ids=["remove", "replace", "add", "unknown"],
)
async def test_an_operation_that_cannot_be_carried_out_is_invalid(api, path, op):
    refused = await api.json_patch(path, op)
    assert refused.refusal == (422, "Invalid")
    assert refused.message == UNPROCESSABLE


async def test_json_patch_replace_sets_a_missing_member_of_a_map(api, path):
    changed = await api.json_patch(path, {"op": "replace", "path": "/data/zz", "value": "1"})
    assert changed["data"]["zz"] == "1"


async def test_json_patch_labels_an_object_without_labels_only_by_adding_the_map(api, maps):
    await api.create(maps, config_map("plain"))
    refused = await api.json_patch(f"{maps}/plain", {"op": "add", "path": "/metadata/labels/a", "value": "b"})
    assert refused.refusal == (422, "Invalid")
    done = await api.json_patch(
        f"{maps}/plain", {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
    )
    assert done.meta["labels"] == {"a": "b"}


async def test_a_json_patch_that_is_no_list_is_a_bad_request(api, path):
    refused = await api.call("PATCH", path, {"op": "add"}, content_type="application/json-patch+json")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message.startswith("error decoding patch: json: cannot unmarshal object into Go value")


async def test_a_merge_patch_with_broken_json_is_a_bad_request(api, path):
    refused = await api.merge(path, b"[1")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == "invalid JSON patch"


async def test_plain_json_is_no_patch(api, path):
    refused = await api.call("PATCH", path, {}, content_type=JSON)
    assert refused.refusal == (415, "UnsupportedMediaType")


async def test_custom_resources_take_no_strategic_merge_patch(api, sites):
    await api.create(sites, site())
    patch = "application/strategic-merge-patch+json"
    refused = await api.call("PATCH", f"{sites}/a", {}, content_type=patch)
    assert refused.refusal == (415, "UnsupportedMediaType")
    assert refused.message == (
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, "
        "application/merge-patch+json, application/apply-patch+yaml"
    )


async def test_force_is_for_apply_only(api, path):
    refused = await api.merge(path, {"data": {}}, force=True)
    assert refused.refusal == (422, "Invalid")
    assert refused.fields == {"force"}
    assert refused.details["kind"] == "PatchOptions"


async def test_a_dry_run_patches_nothing(api, path):
    before = await api.get(path)
    told = await api.merge(path, {"data": {"a": "9"}}, dryRun="All")
    assert told["data"]["a"] == "9"
    assert (await api.get(path)).body == before.body


async def test_a_patch_that_makes_a_custom_resource_invalid_is_refused(api, sites):
    await api.create(sites, site())
    refused = await api.merge(f"{sites}/a", {"spec": {"replicas": 99}})
    assert refused.refusal == (422, "Invalid")
    assert refused.fields == {"spec.replicas"}


@pytest.mark.regression
async def test_a_number_and_a_truth_are_two_values(api, sites):
    made = await api.create(sites, site(spec={"theme": "dark", "free": {"a": 1, "b": [{"c": 0}]}}))
    for free in ({"a": True}, {"b": [{"c": False}]}, {"a": 1}):
        changed = await api.merge(f"{sites}/a", {"spec": {"free": free}})
        name, value = next(iter(free.items()))
        assert repr(changed["spec"]["free"][name]) == repr(value)
        assert changed.meta["generation"] == made.meta["generation"] + 1
        assert changed.version != made.version
        made = changed
