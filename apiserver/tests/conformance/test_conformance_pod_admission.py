"""Admission of bindings and evictions of pods: webhooks see the binding or the eviction, not the pod."""

from __future__ import annotations

import pytest
from conformance_webhooks import deny, patch
from conformance_workloads import pod

POD = {"group": "", "version": "v1", "resource": "pods"}
TARGET = {"kind": "Node", "name": "n"}


@pytest.fixture
async def pods(api, ns):
    path = f"/api/v1/namespaces/{ns}/pods"
    assert (await api.create(path, pod())).status == 201
    return path


def rule(*resources):
    return {
        "rules": [
            {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": list(resources)}
        ]
    }


def about(request):
    """Returns the review's request without the fields that every review has."""
    left = ("uid", "userInfo", "object", "options", "dryRun", "oldObject", "namespace")
    return {name: value for name, value in request.items() if name not in left}


@pytest.mark.parametrize("dry", [{}, {"dryRun": "All"}], ids=["for good", "dry run"])
async def test_a_binding_is_reviewed_and_the_pod_is_not(api, pods, ns, hooks, registered, dry):
    await registered.mutating(registered.webhook("/m.one", **rule("pods", "pods/*")))
    await registered.validating(registered.webhook("/v.one", **rule("pods", "pods/*")))
    body = {"metadata": {"name": "a"}, "target": TARGET}
    assert (await api.create(f"{pods}/a/binding", body, **dry)).status == 201
    assert hooks.order == ["/m.one", "/v.one"]
    (request,) = hooks.asked["/v.one"]
    kind = {"group": "", "version": "v1", "kind": "Binding"}
    assert about(request) == {
        "kind": kind,
        "resource": POD,
        "subResource": "binding",
        "requestKind": kind,
        "requestResource": POD,
        "requestSubResource": "binding",
        "name": "a",
        "operation": "CREATE",
    }
    assert (request["dryRun"], request["oldObject"]) == (bool(dry), None)
    meta = request["object"].pop("metadata")
    assert (meta["name"], meta["namespace"]) == ("a", ns)
    assert request["object"] == {"kind": "Binding", "apiVersion": "v1", "target": TARGET}
    assert ("nodeName" in (await api.get(f"{pods}/a"))["spec"]) is not bool(dry)


async def test_a_binding_that_is_denied_binds_nothing(api, pods, hooks, registered):
    hooks.responders["/v.one"] = lambda request: deny(request, message="not there")
    await registered.validating(registered.webhook("/v.one", **rule("pods/binding")))
    refused = await api.create(f"{pods}/a/binding", {"metadata": {"name": "a"}, "target": TARGET})
    assert refused.status == 400
    assert refused.message.endswith("denied the request: not there")
    assert "nodeName" not in (await api.get(f"{pods}/a"))["spec"]


async def test_a_webhook_may_bind_a_pod_elsewhere(api, pods, hooks, registered):
    elsewhere = {"op": "replace", "path": "/target/name", "value": "other"}
    hooks.responders["/m.one"] = lambda request: patch(request, elsewhere)
    await registered.mutating(registered.webhook("/m.one", **rule("pods/binding")))
    body = {"metadata": {"name": "a"}, "target": TARGET}
    assert (await api.create(f"{pods}/a/binding", body)).status == 201
    assert (await api.get(f"{pods}/a"))["spec"]["nodeName"] == "other"


async def test_a_binding_without_its_pod_s_path_is_one_of_bindings(api, pods, ns, hooks, registered):
    await registered.validating(registered.webhook("/v.one", **rule("pods/*", "bindings")))
    bindings = f"/api/v1/namespaces/{ns}/bindings"
    assert (await api.create(bindings, {"metadata": {"name": "a"}, "target": TARGET})).status == 201
    (request,) = hooks.asked["/v.one"]
    kind = {"group": "", "version": "v1", "kind": "Binding"}
    resource = {**POD, "resource": "bindings"}
    assert about(request) == {
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": "a",
        "operation": "CREATE",
    }


async def test_an_eviction_is_reviewed_and_the_deletion_is_not(api, pods, ns, hooks, registered):
    await registered.mutating(registered.webhook("/m.one", **rule("pods", "pods/*")))
    await registered.validating(registered.webhook("/v.one", **rule("pods", "pods/*")))
    assert (await api.create(f"{pods}/a/eviction", {"metadata": {"name": "a"}})).status == 201
    assert hooks.order == ["/m.one", "/v.one"]
    (request,) = hooks.asked["/v.one"]
    kind = {"group": "policy", "version": "v1", "kind": "Eviction"}
    assert about(request) == {
        "kind": kind,
        "resource": POD,
        "subResource": "eviction",
        "requestKind": kind,
        "requestResource": POD,
        "requestSubResource": "eviction",
        "name": "a",
        "operation": "CREATE",
    }
    assert (request["object"]["kind"], request["object"]["apiVersion"]) == ("Eviction", "policy/v1")
    assert request["object"]["metadata"]["namespace"] == ns


async def test_an_eviction_that_is_denied_leaves_the_pod_alone(api, pods, hooks, registered):
    hooks.responders["/v.one"] = lambda request: deny(request, message="not now")
    await registered.validating(registered.webhook("/v.one", **rule("pods/eviction")))
    refused = await api.create(f"{pods}/a/eviction", {"metadata": {"name": "a"}})
    assert refused.status == 400
    assert refused.message.endswith("denied the request: not now")
    left = await api.get(f"{pods}/a")
    assert left.status == 200
    assert "conditions" not in left["status"]
