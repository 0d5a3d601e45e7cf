"""OpenAPI documents. Descriptions and enumerations of built-in kinds are omitted on purpose; otherwise the test cases
compare what clients use.
"""

from __future__ import annotations

import json

import pytest
from conformance_api import JSON, install, until
from conformance_kinds import definition

from kubeshard_apiserver import ApiServer
from kubeshard_apiserver.front.openapi import OpenApi

pytestmark = pytest.mark.wire

OURS = ApiServer().registry
GROUP_VERSIONS = sorted(OpenApi(OURS).index()["paths"])
_EXTENSIONS = (
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
)
_UNTYPED = ("FieldsV1", "RawExtension", "JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool")
"""Types whose schemas say nothing about their content. Here the fields themselves are plain objects."""


_APART = ("JSONSchemaProps", "ListMeta")
"""Types that are compared separately: JSONSchemaProps refers to itself in special forms, and the newest field of
ListMeta is not served.
"""


def field(schema):
    """Returns the type of a field, what it refers to, and how patches treat it."""
    refers = reference(schema)
    return (
        "object" if refers.rpartition(".")[2] in _UNTYPED else schema.get("type", "") or refers,
        schema.get("format", ""),
        reference(schema.get("items") or {}),
        reference(schema.get("additionalProperties") or {}),
        *(str(schema.get(word, "")) for word in _EXTENSIONS),
    )


def reference(schema):
    if "allOf" in schema:
        (schema,) = schema["allOf"]
    return schema.get("$ref", "").rpartition("/")[2]


async def document(api, path):
    url = (await api.get("/openapi/v3", accept="*/*")).text
    where = json.loads(url)["paths"][path]["serverRelativeURL"]
    path, _, hash_ = where.partition("?hash=")
    return await api.get(path, hash=hash_)


async def test_the_index_has_every_group_and_version(api):
    index = await api.get("/openapi/v3")
    assert index.headers["content-type"] == "text/plain; charset=utf-8"
    paths = json.loads(index.text)["paths"]
    assert set(GROUP_VERSIONS) <= set(paths)
    assert paths["apis/apps/v1"]["serverRelativeURL"].startswith("/openapi/v3/apis/apps/v1?hash=")


@pytest.mark.parametrize("path", GROUP_VERSIONS)
async def test_kinds_have_their_fields(api, path):
    found = (await document(api, path))["components"]["schemas"]
    ours = json.loads(OpenApi(OURS).document(path)[1])["components"]["schemas"]
    described = {name: schema for name, schema in ours.items() if not name.endswith(_APART)}
    for name, schema in described.items():
        assert name in found
        expected = schema.get("properties") or {}
        properties = found[name].get("properties") or {}
        assert {one: field(told) for one, told in properties.items()} == {
            one: field(told) for one, told in expected.items()
        }, name
        assert set(found[name].get("required", ())) == set(schema.get("required", ())), name


@pytest.mark.parametrize("path", GROUP_VERSIONS)
async def test_schemas_say_which_kind_they_are_of(api, path):
    word = "x-kubernetes-group-version-kind"
    found = (await document(api, path))["components"]["schemas"]
    ours = json.loads(OpenApi(OURS).document(path)[1])["components"]["schemas"]
    kinds = {name: schema[word] for name, schema in ours.items() if word in schema}
    assert {name: found[name][word] for name in kinds} == kinds


@pytest.mark.parametrize("path", GROUP_VERSIONS)
async def test_operations_say_their_kind_and_parameters(api, path):
    found = (await document(api, path))["paths"]
    ours = json.loads(OpenApi(OURS).document(path)[1])["paths"]
    for where, item in ours.items():
        assert where in found
        for method, operation in item.items():
            if method == "parameters":
                continue
            told = found[where][method]
            word = "x-kubernetes-group-version-kind"
            assert told.get(word) == operation[word], (where, method)
            word = "x-kubernetes-action"
            assert told.get(word) == operation[word], (where, method)
            names = {
                one["name"] for one in (*told.get("parameters", ()), *found[where].get("parameters", ()))
            }
            assert {one["name"] for one in operation["parameters"]} <= names, (where, method)


async def test_a_document_comes_by_its_hash(api):
    answer = await document(api, "apis/apps/v1")
    assert answer.status == 200
    assert answer.headers["content-type"] == JSON
    assert answer["openapi"] == "3.0.0"


async def test_an_unknown_version_is_not_found(api):
    assert (await api.get("/openapi/v3/apis/apps/v9")).status == 404


@pytest.mark.regression
@pytest.mark.parametrize("separator", ["@", "."])
async def test_the_older_form_comes_in_protobuf_too(api, separator):
    asked = f"application/com.github.proto-openapi.spec.v2{separator}v1.0+protobuf"
    answer = await api.get("/openapi/v2", accept=f"{asked}, application/json")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    assert answer.text.startswith("\n\x032.0")


@pytest.mark.parametrize("path", ["/openapi/v3/apis/apps/v1", "/openapi/v2"])
async def test_html_is_not_acceptable(api, path):
    assert (await api.get(path, accept="text/html")).status == 406


async def told(api, path, of):
    """Returns the document once it contains a kind; the real server takes a moment."""

    async def tells():
        answer = await api.get(path)
        return answer.status == 200 and of in answer.text

    await until(tells)
    return await api.get(path)


async def test_a_custom_kind_has_a_document(api, name):
    group = f"{name}.example.com"
    crd = definition(group)
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "A site of sites."
    await install(api, crd)
    answer = await told(api, f"/openapi/v3/apis/{group}/v1", "Site")
    schema = answer["components"]["schemas"][f"com.example.{name}.v1.Site"]
    assert schema["description"] == "A site of sites."
    assert schema["x-kubernetes-group-version-kind"] == [{"group": group, "kind": "Site", "version": "v1"}]
    assert schema["required"] == ["spec"]
    assert set(schema["properties"]) == {"apiVersion", "kind", "metadata", "spec", "status"}
    assert schema["properties"]["spec"]["properties"]["either"] == {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    }
    assert schema["properties"]["spec"]["properties"]["ports"]["x-kubernetes-list-map-keys"] == ["name"]
    assert f"com.example.{name}.v1.SiteList" in answer["components"]["schemas"]
    assert f"/apis/{group}/v1/namespaces/{{namespace}}/sites/{{name}}/status" in answer["paths"]


async def test_a_hash_changes_with_the_definition(api, name):
    group = f"{name}.example.com"
    crd = definition(group)
    await install(api, crd)
    await told(api, "/openapi/v3", group)
    before = json.loads((await api.get("/openapi/v3")).text)["paths"][f"apis/{group}/v1"]
    description = [
        {"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/description", "value": "Told."}
    ]
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/sites.{group}"
    assert (await api.json_patch(path, *description)).status == 200
    await told(api, f"/openapi/v3/apis/{group}/v1", "Told.")

    async def changed():
        return json.loads((await api.get("/openapi/v3")).text)["paths"][f"apis/{group}/v1"] != before

    await until(changed)


async def test_the_older_form(api):
    answer = await api.get("/openapi/v2")
    assert answer["swagger"] == "2.0"
    spec = answer["definitions"]["io.k8s.api.apps.v1.DeploymentSpec"]
    assert spec["properties"]["template"]["$ref"] == "#/definitions/io.k8s.api.core.v1.PodTemplateSpec"
    containers = answer["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    quantity = answer["definitions"]["io.k8s.apimachinery.pkg.api.resource.Quantity"]
    assert quantity["type"] == "string"
    patch = answer["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert {"fieldValidation", "force", "body"} <= {one.get("name") for one in patch["parameters"]} | {
        one.get("$ref", "").rpartition("/")[2].partition("-")[0] for one in patch["parameters"]
    }
