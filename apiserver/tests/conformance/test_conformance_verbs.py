"""The methods served at each path: every built-in resource and subresource in discovery, the paths around them, and
custom resources.
"""

from __future__ import annotations

import pytest
from conformance_api import APPLY, JSON

pytestmark = pytest.mark.wire

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
GROUPS = ("/api/v1", "/apis/apps/v1", "/apis/batch/v1", "/apis/authorization.k8s.io/v1", "/apis/policy/v1")
NOT_FOUND = (404, "the server could not find the requested resource")
NOT_ALLOWED = (405, "the server does not allow this method on the requested resource")


async def asked(api, method, path):
    """Returns the code and message of the response; the message is empty if the response has no body."""
    body = b"{}" if method in ("POST", "PUT", "PATCH") else None
    answer = await api.call(method, path, body, content_type=APPLY if method == "PATCH" else JSON)
    told = (answer.body or {}).get("message", "") if method != "HEAD" else ""
    return answer.status, told


async def served(api, path):
    """Returns the methods at a path that result in neither NotFound (no such path) nor MethodNotAllowed."""
    found = {method: await asked(api, method, path) for method in METHODS if method != "HEAD"}
    assert set(found.values()) & {NOT_FOUND, NOT_ALLOWED} != {NOT_FOUND, NOT_ALLOWED}, found
    return {method for method, answer in found.items() if answer not in (NOT_FOUND, NOT_ALLOWED)}


def methods(verbs, of):
    return {method for method, verb in of.items() if verb in verbs}


COLLECTION = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
OBJECT = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
PART = {**OBJECT, "POST": "create"}


@pytest.mark.parametrize("base", GROUPS)
async def test_a_resource_serves_the_methods_of_its_verbs_and_no_others(api, base):
    for entry in (await api.get(base))["resources"]:
        plural, _, part = entry["name"].partition("/")
        verbs, namespaced = entry["verbs"], entry["namespaced"]
        root = f"{base}/namespaces/missing/{plural}" if namespaced else f"{base}/{plural}"
        if part:
            expected = methods(verbs, PART) | ({"OPTIONS"} if part == "proxy" else set())
            assert await served(api, f"{root}/missing/{part}") == expected, entry
            continue
        assert await served(api, f"{root}/missing") == methods(verbs, OBJECT), entry
        assert await served(api, f"{root}/missing/nonsense") == set(), entry
        if "deletecollection" not in verbs or namespaced:
            assert await served(api, root) == methods(verbs, COLLECTION), entry
        if namespaced:
            across = {"GET"} if "list" in verbs else set()
            assert await served(api, f"{base}/{plural}") == across, entry
            assert await served(api, f"{base}/{plural}/missing") == set(), entry
        else:
            assert await served(api, f"{base}/namespaces/missing/{plural}/missing") == set(), entry


@pytest.mark.parametrize("method", METHODS)
async def test_a_path_that_nothing_is_served_at_is_not_found_whatever_the_method(api, method):
    for path in (
        "/api/v1/bindings",
        "/api/v1/nonsense",
        "/api/v1/namespaces/default/configmaps/a/status",
        "/api/v1/namespaces/default/pods/a/log/more",
        "/api/v1//namespaces",
        "/apis/apps/v2/deployments",
        "/apis/apps/v1/deployments/a",
        "/apis/apps/v2",
        "/apis/batch/v1/watch/namespaces/default/jobs/a/status",
    ):
        status, message = await asked(api, method, path)
        assert (status, message) == (404, NOT_FOUND[1] if method != "HEAD" else ""), path


@pytest.mark.parametrize("method", [method for method in METHODS if method != "GET"])
async def test_the_old_paths_of_watches_are_for_reading(api, method):
    for path in ("/api/v1/watch/pods", "/api/v1/watch/namespaces/default/pods/a", "/api/v1/watch/nodes/a"):
        assert (await asked(api, method, path))[0] == 405, path


async def test_the_head_of_a_built_in_resource_is_not_served(api, maps):
    assert await asked(api, "HEAD", maps) == (405, "")


async def test_the_head_of_custom_resources_is_a_read_without_a_body(api, sites):
    answer = await api.call("HEAD", sites)
    assert (answer.status, answer.text) == (200, "")
    assert (await api.call("HEAD", f"{sites}/missing")).status == 404


async def test_what_custom_resources_do_not_serve_is_told_by_its_verb(api, sites):
    kind = 'resources of kind "sites.conformance.example.com"'
    for method, verb in (("DELETE", "delete"), ("POST", "create"), ("OPTIONS", "")):
        status, message = await asked(api, method, f"{sites}/a/status")
        assert (status, message) == (405, f"{verb} is not supported on {kind}"), method
    refused = await api.call("DELETE", f"{sites}/a/status")
    assert refused.details == {"group": "conformance.example.com", "kind": "sites"}


@pytest.mark.parametrize("method", METHODS)
async def test_subresources_that_are_not_declared_are_not_found_as_objects_are_not(api, sites, method):
    for part in ("scale", "nonsense"):
        status, message = await asked(api, method, f"{sites}/a/{part}")
        told = 'sites.conformance.example.com "a" not found' if method != "HEAD" else ""
        assert (status, message) == (404, told), part


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_writes_of_custom_resources_need_a_name(api, sites, method):
    assert await asked(api, method, sites) == (400, "name must be provided")


async def test_custom_resources_of_a_namespace_are_nowhere_else(api, sites):
    path = "/apis/conformance.example.com/v1/sites"
    assert (await api.get(path)).status == 200
    for method, at in (("POST", path), ("DELETE", path), ("GET", f"{path}/a"), ("PUT", f"{path}/a/status")):
        answer = await api.call(method, at, b"{}" if method in ("POST", "PUT") else None)
        assert (answer.status, answer.text) == (404, "404 page not found\n"), (method, at)


async def test_a_slash_at_the_end_and_escapes_change_nothing(api, maps):
    assert (await api.create(f"{maps}/", {"metadata": {"name": "a"}})).status == 201
    assert (await api.get(f"{maps}/a/")).meta["name"] == "a"
    assert (await api.get(f"{maps}/%61")).meta["name"] == "a"


async def test_patches_in_an_unknown_form_are_refused_by_the_router(api, maps):
    refused = await api.call("PATCH", f"{maps}/a", b"{}", content_type="text/plain")
    assert refused.refusal == (415, "UnsupportedMediaType")
    assert refused.message == "415: Unsupported Media Type"


async def test_nothing_is_proxied_to_what_has_no_address(api, ns, name):
    pods = f"/api/v1/namespaces/{ns}/pods"
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    assert (await api.create(pods, pod)).status == 201
    for path in ("a/proxy", "a/proxy/x/y", "a:80/proxy/", "https:a:80/proxy"):
        refused = await api.get(f"{pods}/{path}")
        assert (refused.refusal, refused.message) == ((400, "BadRequest"), "address not allowed"), path
    missing = await api.get(f"{pods}/b/proxy/x")
    assert (missing.refusal, missing.message) == ((404, "NotFound"), 'pods "b" not found')
    refused = await api.get(f"{pods}/a:b:c:d/proxy")
    assert (refused.refusal, refused.message) == ((400, "BadRequest"), 'invalid pod request "a:b:c:d"')
    assert (await api.create("/api/v1/nodes", {"metadata": {"name": name}})).status == 201
    refused = await api.get(f"/api/v1/nodes/{name}/proxy")
    assert (refused.status, refused.message) == (500, "no preferred addresses found; known addresses: []")


async def test_a_service_without_endpoints_is_unavailable_to_a_proxy(api, ns):
    services = f"/api/v1/namespaces/{ns}/services"
    service = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80, "name": "x"}]}}
    assert (await api.create(services, service)).status == 201
    for path in ("a/proxy", "a:x/proxy/b", "a:80/proxy"):
        refused = await api.get(f"{services}/{path}")
        told = 'no endpoints available for service "a"'
        assert (refused.refusal, refused.message) == ((503, "ServiceUnavailable"), told), path
    refused = await api.get(f"{services}/a:81/proxy")
    told = 'no service port 81 found for service "a"'
    assert (refused.refusal, refused.message) == ((503, "ServiceUnavailable"), told)
