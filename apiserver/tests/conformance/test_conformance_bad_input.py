"""Bad input results in a Status with the right code and reason, whatever it is."""

import pytest
from conformance_api import APPLY, JSON, JSON_PATCH, MERGE
from conformance_kinds import config_map, site

pytestmark = pytest.mark.wire

BAD_REQUEST = (400, "BadRequest")
INVALID = (422, "Invalid")


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        (b'"x"', BAD_REQUEST),
        (b"[]", BAD_REQUEST),
        (b"1", BAD_REQUEST),
        (b"null", INVALID),
        (b"{}", INVALID),
        (b'{"metadata": []}', BAD_REQUEST),
        (b'{"metadata": "x"}', BAD_REQUEST),
        (b'{"metadata": null}', INVALID),
        (b'{"metadata": {"name": 1}}', BAD_REQUEST),
        (b'{"metadata": {"name": "a"}, "data": []}', BAD_REQUEST),
        (b'{"metadata": {"name": "a", "ownerReferences": {}}}', BAD_REQUEST),
        (b'{"metadata": {"name": "a", "finalizers": [1]}}', BAD_REQUEST),
        (b"\xff\xfe", BAD_REQUEST),
    ],
)
async def test_a_body_that_is_no_object_of_the_kind_is_refused(api, maps, body, refusal):
    assert (await api.create(maps, body)).refusal == refusal


async def test_metadata_of_another_type_is_explained(api, maps):
    assert (await api.create(maps, {"metadata": []})).message == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal array into '
        "Go struct field ConfigMap.metadata of type v1.ObjectMeta"
    )


@pytest.mark.parametrize(
    ("content_type", "body", "refusal"),
    [
        (MERGE, b'"x"', BAD_REQUEST),
        (MERGE, b"null", BAD_REQUEST),
        (MERGE, b'{"metadata": null}', BAD_REQUEST),
        (MERGE, b'{"apiVersion": null}', BAD_REQUEST),
        (MERGE, b'{"kind": "Secret"}', INVALID),
        (MERGE, b'{"data": "x"}', INVALID),
        (MERGE, b'{"data": {"a": 1}}', INVALID),
        (JSON_PATCH, b"{}", BAD_REQUEST),
        (JSON_PATCH, b'[{"op": "replace", "path": "", "value": {}}]', BAD_REQUEST),
        (JSON_PATCH, b'[{"op": "remove", "path": "/metadata"}]', BAD_REQUEST),
        (JSON_PATCH, b'[{"op": "add", "path": "/data/a", "value": 1}]', INVALID),
        (JSON_PATCH, b'[{"op": "add"}]', INVALID),
        (JSON_PATCH, b'[{"path": "/data"}]', INVALID),
        (JSON_PATCH, b"[1]", BAD_REQUEST),
        (JSON_PATCH, b"[null]", INVALID),
        (JSON_PATCH, b'[{"op": 1, "path": "/data"}]', BAD_REQUEST),
        (JSON_PATCH, b'[{"op": "add", "path": ["data"]}]', BAD_REQUEST),
        (APPLY, b"- a", BAD_REQUEST),
        (APPLY, b"x", BAD_REQUEST),
        (APPLY, b'{"apiVersion": null, "kind": "ConfigMap", "metadata": {"name": "a"}}', BAD_REQUEST),
        (APPLY, b'{"apiVersion": "v1", "kind": null, "metadata": {"name": "a"}}', BAD_REQUEST),
    ],
)
async def test_a_patch_that_makes_no_object_of_the_kind_is_refused(api, maps, content_type, body, refusal):
    await api.create(maps, config_map(data={"a": "1"}))
    answer = await api.call("PATCH", f"{maps}/a", body, content_type=content_type, fieldManager="one")
    assert answer.refusal == refusal


async def test_a_json_patch_of_null_has_no_operations(api, maps):
    made = await api.create(maps, config_map())
    assert (await api.call("PATCH", f"{maps}/a", b"null", content_type=JSON_PATCH)).body == made.body


async def test_a_json_patch_has_a_limit(api, maps):
    await api.create(maps, config_map())
    test = {"op": "test", "path": "/kind", "value": "ConfigMap"}
    assert (await api.json_patch(f"{maps}/a", *[test] * 10000)).status == 200
    refused = await api.json_patch(f"{maps}/a", *[test] * 10001)
    assert refused.refusal == (413, "RequestEntityTooLarge")


@pytest.mark.parametrize("version", [None, "", "0"])
async def test_a_patch_of_a_custom_resource_leaves_it_its_version(api, sites, version):
    await api.create(sites, site())
    patch = {"metadata": {"resourceVersion": version}}
    refused = await api.merge(f"{sites}/a", patch)
    assert (refused.refusal, refused.fields) == (INVALID, {"metadata.resourceVersion"})
    refused = await api.apply(f"{sites}/a", {**site(), "metadata": {"name": "a", **patch["metadata"]}})
    assert (refused.refusal, refused.fields) == (INVALID, {"metadata.resourceVersion"})


@pytest.mark.parametrize("patch", [{"kind": None, "apiVersion": None}, {"apiVersion": "a/b/c"}])
async def test_a_patch_that_leaves_a_custom_resource_no_type_is_to_blame(api, sites, patch):
    await api.create(sites, site())
    refused = await api.merge(f"{sites}/a", patch)
    assert (refused.refusal, refused.fields) == (INVALID, {"patch"})


async def test_only_the_status_of_a_patched_status_counts(api, sites):
    await api.create(sites, site())
    patch = {"apiVersion": "v9", "kind": "Other", "status": {"phase": "Up"}}
    assert (await api.merge(f"{sites}/a/status", patch)).status == 200
    assert (await api.get(f"{sites}/a"))["status"]["phase"] == "Up"


async def test_a_patch_into_another_type_names_the_patch(api, maps):
    await api.create(maps, config_map())
    assert (await api.merge(f"{maps}/a", {"data": "x"})).fields == {"patch"}


async def test_replace_without_a_name_is_a_bad_request(api, maps):
    await api.create(maps, config_map())
    refused = await api.replace(f"{maps}/a", {"metadata": {}})
    assert refused.refusal == BAD_REQUEST
    assert refused.message == (
        "the name of the object (a based on URL) was undeterminable: name must be provided"
    )


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"preconditions": []}', b'"x"'])
async def test_options_of_a_delete_that_are_none_are_a_bad_request(api, maps, body):
    await api.create(maps, config_map())
    assert (await api.call("DELETE", f"{maps}/a", body)).refusal == BAD_REQUEST


async def test_options_of_a_delete_in_plain_text_are_refused(api, maps):
    refused = await api.call("DELETE", f"{maps}/a", b"x", content_type="text/plain")
    assert refused.refusal == (415, "UnsupportedMediaType")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/configmaps/x", 404),
        ("GET", "/api/v1/namespaces/{ns}/namespaces", 404),
        ("GET", "/api/v1/namespaces/{ns}/nodes", 404),
        ("GET", "/api/v1/namespaces/{ns}/configmaps/a/status", 404),
        ("OPTIONS", "/api/v1/namespaces/{ns}/configmaps", 405),
        ("POST", "/api/v1/configmaps", 405),
        ("PATCH", "/api/v1/namespaces/{ns}/configmaps", 405),
    ],
)
async def test_a_path_or_method_that_is_not_served_is_refused(api, ns, method, path, status):
    body = {} if method in ("POST", "PATCH") else None
    content_type = MERGE if method == "PATCH" else JSON
    answer = await api.call(method, path.format(ns=ns), body, content_type=content_type)
    assert answer.refusal == (status, {404: "NotFound", 405: "MethodNotAllowed"}[status])


@pytest.mark.parametrize("spelling", ["maybe", "TRUE", "1"])
async def test_a_flag_is_set_by_whatever_is_not_false(api, maps, spelling):
    await api.create(maps, config_map())
    async with api.watch(maps, watch=spelling) as events:
        assert await events.take(1) == [("ADDED", "a")]


@pytest.mark.parametrize("spelling", ["false", "0", "False"])
async def test_a_flag_that_is_false_is_not_set(api, maps, spelling):
    assert (await api.get(maps, watch=spelling))["kind"] == "ConfigMapList"


@pytest.mark.parametrize("fields", [{"spec": None}, {"spec": []}], ids=str)
async def test_a_custom_resource_of_another_form_is_invalid(api, sites, fields):
    refused = await api.create(sites, {**site(), **fields})
    assert refused.refusal == INVALID
    assert refused.fields == {"spec"}


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":"b",}',
        b"{'a':1}",
        b'{"a":01}',
        b'{"a":1e}',
        b'{"a":tru}',
        b'{"a":"\x01"}',
        b'{"a" 1}',
        b"{}{}",
        b'{"a":"x',
    ],
)
async def test_where_json_breaks_is_told_with_the_beginning_of_the_body(api, maps, sites, body):
    for path in (maps, sites):
        assert (await api.call("POST", path, body)).refusal == (400, "BadRequest")
        await api.call("PATCH", f"{path}/a", body, content_type=MERGE)
    await api.call("DELETE", f"{maps}/a", body)


@pytest.mark.parametrize(
    "body", [b"[1]", b"1", b'{"kind":1}', b'{"kind":"X","apiVersion":"v1"}', b'{"a":"' + b"x" * 40 + b'"}']
)
async def test_what_is_of_no_kind_is_told(api, maps, sites, body):
    for path in (maps, sites):
        refused = await api.call("POST", path, body)
        assert refused.status in (400, 422), refused.text
    await api.call("PATCH", f"{maps}/a", body, content_type=APPLY, fieldManager="one")
