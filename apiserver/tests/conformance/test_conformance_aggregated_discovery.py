"""Aggregated discovery, compared word for word with the plain documents."""

import pytest
from conformance_api import JSON, install
from conformance_kinds import definition

from kubeshard_apiserver import ApiServer
from kubeshard_apiserver.front.discovery import aggregated_discovery, discovery

pytestmark = pytest.mark.wire

AGGREGATED = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
OURS = ApiServer().registry
"""The resources that the release is known to serve, without custom resources."""
VERSIONS = [
    f"/apis/{group}/{version}" if group else f"/api/{version}"
    for group in OURS.groups()
    for version in OURS.versions(group)
]


@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_all_kinds_come_in_one_document(api, path):
    answer = await api.get(path, accept=f"{AGGREGATED},{JSON}")
    assert answer.headers["content-type"] == AGGREGATED
    found = {item["metadata"].get("name", ""): item for item in answer["items"]}
    expected = aggregated_discovery(OURS, path)
    assert (answer["kind"], answer["apiVersion"]) == (expected["kind"], expected["apiVersion"])
    for item in expected["items"]:
        assert found[item["metadata"].get("name", "")] == item


@pytest.mark.parametrize("path", VERSIONS)
async def test_the_plain_document_says_the_same(api, path):
    assert (await api.get(path)).body == discovery(OURS, path)


async def test_the_groups_come_in_an_order_of_their_own(api):
    served = set(OURS.groups())
    names = [group["name"] for group in (await api.get("/apis"))["groups"] if group["name"] in served]
    assert names == [group for group in OURS.groups() if group]


@pytest.mark.parametrize("path", ["/api", "/apis"])
@pytest.mark.parametrize("version", ["v1", "v2beta1", "v3"])
async def test_another_version_of_the_form_is_not_acceptable(api, path, version):
    refused = await api.get(path, accept=AGGREGATED.replace("v=v2", f"v={version}"))
    assert refused.refusal == (406, "NotAcceptable")


async def test_without_the_form_the_document_is_the_plain_one(api):
    assert (await api.get("/apis", accept=f"{AGGREGATED.replace('v=v2', 'v=v1')},{JSON}"))[
        "kind"
    ] == "APIGroupList"


@pytest.mark.parametrize("path", ["/apis/apps", "/apis/apps/v1", "/api/v1"])
async def test_only_the_roots_have_the_form(api, path):
    assert (await api.get(path, accept=AGGREGATED)).refusal == (406, "NotAcceptable")
    assert (await api.get(path, accept=f"{AGGREGATED},{JSON}")).status == 200


async def test_versions_of_a_custom_group_are_sorted_by_maturity(api, name):
    group = f"{name}.example.com"
    crd = definition(group, status=True)
    version = crd["spec"]["versions"][0]
    crd["spec"]["versions"] = [
        {**version, "name": one, "storage": one == "v1alpha1"} for one in ("v1alpha1", "v1", "v2beta1", "v11")
    ]
    crd["spec"]["names"] |= {"shortNames": [f"s{name}"], "categories": ["all"]}
    await install(api, crd)
    answer = await api.get(f"/apis/{group}")
    assert [one["version"] for one in answer["versions"]] == ["v11", "v1", "v2beta1", "v1alpha1"]
    assert answer["preferredVersion"]["version"] == "v11"


async def test_a_custom_resource_is_told_with_its_group_and_version(api, name):
    group = f"{name}.example.com"
    await install(api, definition(group))
    items = (await api.get("/apis", accept=AGGREGATED))["items"]
    kind = {"group": group, "version": "v1", "kind": "Site"}
    assert next(item for item in items if item["metadata"]["name"] == group)["versions"] == [
        {
            "version": "v1",
            "resources": [
                {
                    "resource": "sites",
                    "responseKind": kind,
                    "scope": "Namespaced",
                    "singularResource": "site",
                    "verbs": [
                        "delete",
                        "deletecollection",
                        "get",
                        "list",
                        "patch",
                        "create",
                        "update",
                        "watch",
                    ],
                    "subresources": [
                        {
                            "subresource": "status",
                            "responseKind": kind,
                            "verbs": ["get", "patch", "update"],
                        }
                    ],
                }
            ],
            "freshness": "Current",
        }
    ]


async def test_a_custom_resource_in_the_plain_document(api, name):
    group = f"{name}.example.com"
    await install(api, definition(group))
    verbs = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
    found = (await api.get(f"/apis/{group}/v1"))["resources"]
    assert len(found[0].pop("storageVersionHash")) == 12
    assert found == [
        {"name": "sites", "singularName": "site", "namespaced": True, "kind": "Site", "verbs": verbs},
        {
            "name": "sites/status",
            "singularName": "",
            "namespaced": True,
            "kind": "Site",
            "verbs": ["get", "patch", "update"],
        },
    ]
