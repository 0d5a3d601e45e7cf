"""Configurations that do not fit their kind cannot be applied; the server reports this as an internal error."""

import pytest

SITE = {"apiVersion": "conformance.example.com/v1", "kind": "Site", "metadata": {"name": "a"}}
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}
UNTYPED = "failed to create typed patch object (/a; "
UNCONVERTED = "failed to convert new object (/a; "
OMITTED = (
    '.spec.ports: element 0: associative list with keys has an element that omits all key fields ["name"] '
    "(and doesn't have default values for any key fields)"
)
NO_STRING = "expected string, got &value.valueUnstructured"
NO_NUMBER = "expected numeric (int or float), got"
KEYED = ".spec.ports: element 0: associative list with keys may not have"
IN_SET = ".spec.tags: element 0: associative list without keys has an element that's"
REFUSED_SITES = [
    ({"ports": [{"port": 5}]}, OMITTED),
    ({"ports": ["a"]}, f"{KEYED} non-map elements"),
    ({"ports": [None]}, f"{KEYED} a null element"),
    ({"ports": {"a": "b"}}, ".spec.ports: expected list, got &{map[a:b]}"),
    ({"ports": True}, ".spec.ports: expected list, got &{true}"),
    ({"ports": [{"name": 1}]}, f".spec.ports[name=1].name: {NO_STRING}{{Value:1}}"),
    ({"tags": [{"a": "b"}]}, f"{IN_SET} a map type"),
    ({"tags": [None]}, f"{IN_SET} an explicit null"),
    ({"tags": [1]}, f".spec.tags[=1]: {NO_STRING}{{Value:1}}"),
    ({"list": [{}]}, f".spec.list[0]: {NO_STRING}{{Value:map[string]interface {{}}{{}}}}"),
    ({"list": {}}, ".spec.list: expected list, got &{map[]}"),
    ({"map": []}, ".spec.map: expected map, got &{[]}"),
    ({"map": {"a": 1}}, f".spec.map.a: {NO_STRING}{{Value:1}}"),
    ({"replicas": "3"}, f".spec.replicas: {NO_NUMBER} string"),
    ({"replicas": {"a": "b"}}, f".spec.replicas: {NO_NUMBER} map[string]interface {{}}"),
    ({"replicas": True}, f".spec.replicas: {NO_NUMBER} bool"),
    ({"theme": [1]}, f".spec.theme: {NO_STRING}{{Value:[]interface {{}}{{1}}}}"),
    ({"on": 1}, ".spec.on: expected boolean, got &{1}"),
    ({"free": "x"}, ".spec.free: expected map, got &{x}"),
    ("x", ".spec: expected map, got &{x}"),
]


@pytest.mark.parametrize(("spec", "told"), REFUSED_SITES)
async def test_custom_resources_that_do_not_fit_their_schema_have_no_fields(api, sites, spec, told):
    refused = await api.apply(f"{sites}/a", {**SITE, "spec": spec})
    assert refused.refusal == (500, None)
    assert refused.message == f"{UNTYPED}conformance.example.com/v1, Kind=Site): {told}"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"data": {"a": 1}}, f".data.a: {NO_STRING}{{Value:1}}"),
        ({"data": "x"}, ".data: expected map, got &{x}"),
        ({"immutable": "x"}, ".immutable: expected boolean, got &{x}"),
        ({"metadata": {"name": "a", "labels": "x"}}, ".metadata.labels: expected map, got &{x}"),
        ({"metadata": {"name": "a", "finalizers": "x"}}, ".metadata.finalizers: expected list, got &{x}"),
        ({"metadata": {"name": "a", "generation": "x"}}, f".metadata.generation: {NO_NUMBER} string"),
    ],
)
async def test_built_in_kinds_are_checked_alike(api, maps, fields, told):
    refused = await api.apply(f"{maps}/a", {**MAP, **fields})
    assert refused.refusal == (500, None)
    assert refused.message == f"{UNTYPED}/v1, Kind=ConfigMap): {told}"


@pytest.mark.parametrize(("metadata", "shown"), [("", ""), ([1], "[1]")])
async def test_metadata_is_a_map(api, maps, metadata, shown):
    refused = await api.apply(f"{maps}/a", {**MAP, "metadata": metadata})
    assert refused.refusal == (500, None)
    begin = "failed to create typed patch object (/; /v1, Kind=ConfigMap)"
    assert refused.message == f"{begin}: .metadata: expected map, got &{{{shown}}}"


async def test_what_fits_its_type_and_says_nothing_of_it_cannot_be_converted(api, ns, maps):
    refused = await api.apply(f"{maps}/a", {**MAP, "binaryData": {"a": "!"}})
    assert refused.refusal == (500, None)
    told = "unable to convert unstructured object to /v1, Kind=ConfigMap: error decoding from json: "
    told += "illegal base64 data at input byte 0"
    assert refused.message == f"{UNCONVERTED}/v1, Kind=ConfigMap) to proper version: {told}"
    container = {"name": "a", "resources": {"limits": {"cpu": "x"}}}
    body = {**DEPLOYMENT, "spec": {"template": {"spec": {"containers": [container]}}}}
    refused = await api.apply(f"/apis/apps/v1/namespaces/{ns}/deployments/a", body)
    assert refused.refusal == (500, None)
    assert refused.message.startswith(f"{UNCONVERTED}apps/v1, Kind=Deployment) to proper version: ")
    assert "quantities must match the regular expression" in refused.message


async def test_that_it_is_missing_is_told_first_of_a_subresource(api, sites):
    refused = await api.apply(f"{sites}/b/status", {**SITE, "metadata": {"name": "b"}, "status": 1})
    assert refused.refusal == (404, "NotFound")


async def test_unknown_fields_are_warned_of_whatever_becomes_of_the_request(api, maps):
    await api.create(maps, {"metadata": {"name": "a"}})
    refused = await api.create(maps, {"metadata": {"name": "a"}, "bogus": 1})
    assert (refused.status, refused.warnings) == (409, ['unknown field "bogus"'])


async def test_of_a_delete_with_a_body_the_query_says_nothing(api, maps):
    await api.create(maps, {"metadata": {"name": "a"}})
    assert (await api.delete(f"{maps}/a", {}, dryRun="All", propagationPolicy="Orphan"))[
        "status"
    ] == "Success"
    assert (await api.get(f"{maps}/a")).status == 404
