"""Requests at the edges of what a client sends: texts of numbers and strings, halves of characters, bodies that are
none, and parameters and metadata that mean nothing.
"""

import json

import pytest
from conformance_api import APPLY, JSON_PATCH, MERGE, STRATEGIC, owned
from conformance_kinds import config_map
from conformance_schemas import fields, shared

TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
SPEC = fields(
    text=TEXT, count={**WHOLE, "nullable": True}, free={"x-kubernetes-preserve-unknown-fields": True}
)
SCALE = {"scale": {"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count"}, "status": {}}


@pytest.fixture
async def things(api, ns):
    return await shared(api, "odd-requests", ns, SPEC, subresources=SCALE)


def sent(body, **texts):
    """Encodes the body with these texts of JSON in the places of their names."""
    encoded = json.dumps(body)
    for name, text in texts.items():
        encoded = encoded.replace(f'"@{name}"', text)
    return encoded.encode()


@pytest.mark.parametrize(
    ("stored", "expected", "holds"),
    [
        ("1.1", "1.1", True),
        ("1.1", "1.10", False),
        ("0", "-0", False),
        ("1", "1.0", False),
        ("1000", "1e3", False),
        ("1e21", "1e+21", True),
        ("1e21", "1e21", False),
        ("1e-7", "1e-7", True),
        ("1e-7", "0.0000001", False),
        ("0.000001", "0.000001", True),
        ('"a<b"', '"a<b"', False),
        ('"a<b"', r'"a\u003cb"', True),
        ('"é"', '"é"', True),
        ('"é"', r'"\u00e9"', False),
        ('"a/b"', r'"a\/b"', False),
        (r'"\t"', r'"\u0009"', False),
        ('{"a":1.5,"b":[2]}', '{ "b": [ 2 ], "a": 1.5 }', True),
        ('{"a":1.5}', '{"a":1.50}', False),
        ("[1.5]", "[1.50]", False),
        ('{"<":1}', '{"<":1}', True),
        ("true", "true", True),
        ("{}", "null", False),
    ],
)
async def test_a_test_of_a_json_patch_compares_texts(api, things, stored, expected, holds):
    await api.create(things.path, sent(things.body({"free": {"x": "@x"}}), x=stored))
    test = {"op": "test", "path": "/spec/free/x", "value": "@x"}
    answer = await api.call("PATCH", f"{things.path}/a", sent([test], x=expected), content_type=JSON_PATCH)
    assert answer.status == (200 if holds else 422), answer.text


@pytest.mark.parametrize(
    ("added", "expected", "holds"),
    [("1.10", "1.10", True), ("1.10", "1.1", False), ('{"a":1.0}', '{"a":1.0}', True), ('"<"', '"<"', True)],
)
async def test_a_test_of_what_the_same_json_patch_has_added_compares_it_as_sent(
    api, things, added, expected, holds
):
    await things.create({"free": {}})
    add, test = ({"op": op, "path": "/spec/free/x", "value": f"@{op}"} for op in ("add", "test"))
    body = sent([add, test], add=added, test=expected)
    answer = await api.call("PATCH", f"{things.path}/a", body, content_type=JSON_PATCH)
    assert answer.status == (200 if holds else 422), answer.text
    if holds:
        assert answer["spec"]["free"]["x"] == json.loads(added)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (r'"a\ud800b"', "a\ufffdb"),
        (r'"\udc00\ud800"', "\ufffd\ufffd"),
        (r'"\ud800\u0041"', "\ufffdA"),
        (r'"\ud83d\ude00\ud800"', "\U0001f600\ufffd"),
        (r'"\ud83d\\ude00"', "\ufffd\\ude00"),
        (r'"\\ud800"', "\\ud800"),
    ],
)
async def test_half_of_a_surrogate_pair_is_read_as_the_replacement_character(api, maps, things, text, read):
    made = await api.create(maps, sent(config_map(data={"k": "@k"}), k=text))
    assert (made.status, made["data"]) == (201, {"k": read})
    merged = await api.merge(f"{maps}/a", sent({"data": {"l": "@l"}}, l=text))
    assert merged["data"] == {"k": read, "l": read}
    assert (await api.create(things.path, sent(things.body({"text": "@t"}), t=text)))["spec"] == {
        "text": read
    }


@pytest.mark.parametrize("content_type", [MERGE, JSON_PATCH, STRATEGIC])
@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        (b"{", (400, "BadRequest")),
        (b"x", (400, "BadRequest")),
        (b"[", (400, "BadRequest")),
        (b"1", (404, "NotFound")),
    ],
)
async def test_a_missing_object_is_noticed_before_json_that_is_no_patch(
    api, maps, content_type, body, refusal
):
    missing = await api.call("PATCH", f"{maps}/a", body, content_type=content_type)
    assert missing.refusal == refusal
    await api.create(maps, config_map())
    assert (await api.call("PATCH", f"{maps}/a", body, content_type=content_type)).status == 400


@pytest.mark.parametrize("body", [b"{", b"1", b"{}"])
async def test_a_missing_object_is_noticed_before_an_apply_to_its_status_that_cannot_be_read(
    api, things, body
):
    at = f"{things.path}/a/status"
    missing = await api.call("PATCH", at, body, content_type=APPLY, fieldManager="one")
    assert missing.refusal == (404, "NotFound")


async def test_a_strategic_patch_of_null_changes_nothing(api, maps):
    made = await api.create(maps, config_map())
    patched = await api.strategic(f"{maps}/a", b"null")
    assert (patched.status, patched.version) == (200, made.version)


@pytest.mark.parametrize("limit", ["", "x", "1.5", "99999999999999999999", "1_0"])
async def test_numbers_in_a_query_are_read_as_such(api, maps, limit):
    assert (await api.get(maps, limit=limit)).refusal == (400, "BadRequest")
    assert (await api.get(maps, timeoutSeconds=limit)).refusal == (400, "BadRequest")
    await api.create(maps, config_map())
    assert (await api.delete(f"{maps}/a", gracePeriodSeconds=limit)).refusal == (400, "BadRequest")


async def test_an_unknown_escape_in_a_field_selector_is_refused(api, maps):
    refused = await api.get(maps, fieldSelector=r"metadata.name=a\b")
    assert (refused.refusal, r"invalid escape sequence: \b" in refused.message) == ((400, "BadRequest"), True)
    assert (await api.get(maps, fieldSelector=r"metadata.name=a\,b\\")).status == 200


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_an_empty_precondition_of_a_delete_does_not_hold(api, maps, field):
    await api.create(maps, config_map())
    refused = await api.delete(f"{maps}/a", {"preconditions": {field: ""}})
    assert refused.refusal == (409, "Conflict")
    assert (await api.delete(f"{maps}/a", {"preconditions": {}})).status == 200


async def test_options_of_another_kind_are_refused(api, maps):
    await api.create(maps, config_map())
    refused = await api.delete(f"{maps}/a", {"kind": "X"})
    assert refused.refusal == (400, "BadRequest")
    assert 'no kind "X" is registered' in refused.message


async def test_a_negative_generation_is_invalid_where_the_server_does_not_count(api, maps, things):
    refused = await api.create(maps, config_map(generation=-5))
    assert refused.fields == {"metadata.generation"}
    made = await api.create(things.path, {**things.body({}), "metadata": {"name": "a", "generation": -5}})
    assert made.meta["generation"] == 1


async def test_a_self_link_is_not_kept(api, maps):
    made = await api.create(maps, config_map(selfLink="x"))
    merged = await api.merge(f"{maps}/a", {"metadata": {"selfLink": "x"}})
    assert not {"selfLink"} & {*made.meta, *merged.meta}
    assert merged.version == made.version


@pytest.mark.parametrize("owner", [{}, {"apiVersion": "v1"}])
async def test_a_key_that_is_always_written_may_be_missing_in_an_apply(api, maps, owner):
    refused = await api.apply(f"{maps}/a", config_map(ownerReferences=[owner]))
    assert "metadata.ownerReferences[0].uid" in refused.fields


async def test_an_apply_does_not_look_at_some_metadata(api, maps, things):
    for given in (1, "", "x"):
        body = things.body({})
        body["metadata"]["creationTimestamp"] = given
        assert (await api.apply(f"{things.path}/a", body)).status in (200, 201)
    assert (await api.apply(f"{maps}/a", config_map(managedFields=[None]))).status == 201
    assert (await api.apply(f"{maps}/a", config_map(managedFields=[{}]))).status == 400
    assert (await api.apply(f"{maps}/a", config_map(managedFields=1))).status == 500


async def test_an_apply_may_write_whole_numbers_as_floats(api, ns):
    jobs = f"/apis/batch/v1/namespaces/{ns}/jobs"
    container = {"name": "c", "image": "i"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}}
    applied = await api.apply(f"{jobs}/a", {**job, "spec": {"parallelism": 2.0, "template": template}})
    assert (applied.status, applied["spec"]["parallelism"]) == (201, 2)


async def test_hosts_of_pods_have_an_address_and_names(api, ns):
    spec = {"containers": [{"name": "c", "image": "i"}], "hostAliases": [{}, {"ip": "1.1.1.1"}]}
    spec["hostAliases"] += [{"ip": "1.2.3", "hostnames": ["a", "B"]}]
    pod = {"metadata": {"name": "a"}, "spec": spec}
    refused = await api.create(f"/api/v1/namespaces/{ns}/pods", pod, dryRun="All")
    assert {field.removeprefix("spec.hostAliases") for field in refused.fields} == {
        "[0].ip",
        "[2].ip",
        "[2].hostnames[1]",
    }


async def test_the_scale_of_a_custom_resource_ignores_uids_and_knows_no_replicas(api, things):
    await things.create({"count": 1})
    at = f"{things.path}/a/scale"
    assert (await api.merge(at, {"metadata": {"uid": "x"}, "spec": {"replicas": 2}})).status == 200
    refused = await api.merge(at, {"spec": {"replicas": -(1 << 31)}})
    assert (refused.refusal, refused.message) == (
        (400, "BadRequest"),
        'the spec replicas field ".spec.count" cannot be empty',
    )
    assert (await api.merge(at, {"spec": {"replicas": -1}})).refusal == (422, "Invalid")


async def test_replicas_of_null_are_no_number(api, things):
    refused = await things.create({"count": None})
    assert refused.causes == {
        (
            ".spec.count",
            "FieldValueInvalid",
            "Invalid value: 0: .spec.count accessor error: <nil> is of the type <nil>, expected int64",
        )
    }


@pytest.mark.parametrize(
    ("element", "kept"),
    [
        ("x", None),
        ("fx", None),
        ("k:[1]", None),
        ("v:{", None),
        ("i:x", None),
        ("f:b", {"f:b": {}}),
    ],
)
async def test_managed_fields_that_cannot_be_read_are_ignored(api, maps, element, kept):
    made = await api.create(maps, config_map(data={"a": "b"}))
    entry = {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    sent_fields = {"f:data": {element: {}}}
    merged = await api.merge(
        f"{maps}/a", {"metadata": {"managedFields": [{**entry, "fieldsV1": sent_fields}]}}
    )
    assert merged.status == 200, merged.text
    expected = owned(made) if kept is None else {("x", "Update", ""): {"f:data": kept}}
    assert owned(merged) == expected


async def test_a_deprecated_version_warns_of_requests_that_it_does_not_serve_too(api, ns):
    things = await shared(
        api, "deprecated-odd", ns, SPEC, deprecated=True, deprecationWarning="it is deprecated"
    )
    for method in ("GET", "PUT"):
        answer = await api.call(method, f"{things.path}/a/status", {})
        assert answer.status == 404
        assert answer.warnings == ["it is deprecated"]
