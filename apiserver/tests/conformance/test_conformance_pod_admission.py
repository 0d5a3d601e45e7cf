"""Admission of bindings, evictions and scales, where webhooks see what is sent, and plugins that change pods."""

from __future__ import annotations

import pytest
from conformance_api import until
from conformance_schemas import Things, fields
from conformance_webhooks import deny, patch
from conformance_workloads import LABELS, SELECTOR, container, pod

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


SCALED = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
SCALES = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}


@pytest.fixture(params=["deployments", "things"])
async def scaled(request, api, name, ns):
    """The path of an object that can be scaled, and its resource."""
    if request.param == "deployments":
        path, resource = f"/apis/apps/v1/namespaces/{ns}/deployments", ("apps", "v1", "deployments")
        body = {
            "metadata": {"name": "a"},
            "spec": {"replicas": 1, "selector": SELECTOR, "template": template()},
        }
    else:
        things = Things(api, f"{name}.example.com", ns)
        whole = fields(spec=fields(size={"type": "integer"}), status=fields(size={"type": "integer"}))
        subresources = {"status": {}, "scale": SCALES}
        await things.define({}, schema={"openAPIV3Schema": whole}, subresources=subresources)
        path, resource, body = things.path, (things.group, "v1", "things"), things.body({"size": 1})
    made = await api.create(path, body)
    assert made.status == 201, made.text
    return f"{path}/a", resource


def template():
    return {"metadata": {"labels": LABELS}, "spec": {"containers": [container()]}}


async def replicas(api, path):
    return (await api.get(f"{path}/scale"))["spec"]["replicas"]


@pytest.mark.parametrize("how", ["merge", "replace"])
async def test_a_scale_is_reviewed_as_what_it_is(api, scaled, hooks, registered, how):
    path, (group, version, plural) = scaled
    await registered.mutating(registered.webhook("/m.one", **rule(f"{plural}/scale")))
    await registered.validating(registered.webhook("/v.one", **rule(f"{plural}/*", plural)))
    scale = (await api.get(f"{path}/scale")).body
    if how == "merge":
        answer = await api.merge(f"{path}/scale", {"spec": {"replicas": 3}})
    else:
        answer = await api.replace(f"{path}/scale", {**scale, "spec": {"replicas": 3}})
    assert (answer.status, hooks.order) == (200, ["/m.one", "/v.one"]), answer.text
    resource = {"group": group, "version": version, "resource": plural}
    for asked in hooks.asked["/m.one"] + hooks.asked["/v.one"]:
        assert about(asked) == {
            "kind": SCALED,
            "resource": resource,
            "subResource": "scale",
            "requestKind": SCALED,
            "requestResource": resource,
            "requestSubResource": "scale",
            "name": "a",
            "operation": "UPDATE",
        }
        shown = [
            (each["kind"], each["apiVersion"], each["spec"]) for each in (asked["oldObject"], asked["object"])
        ]
        assert shown == [
            ("Scale", "autoscaling/v1", {"replicas": 1}),
            ("Scale", "autoscaling/v1", {"replicas": 3}),
        ]
        assert asked["object"]["metadata"]["name"] == "a"


async def test_a_webhook_changes_or_denies_a_scale(api, scaled, hooks, registered):
    path, (_, _, plural) = scaled
    await registered.mutating(registered.webhook("/m.one", **rule(f"{plural}/scale")))
    hooks.responders["/m.one"] = lambda request: patch(
        request, {"op": "replace", "path": "/spec/replicas", "value": 5}
    )
    assert (await api.merge(f"{path}/scale", {"spec": {"replicas": 3}})).status == 200
    assert await replicas(api, path) == 5
    hooks.responders["/m.one"] = lambda request: deny(request, message="too many")
    refused = await api.merge(f"{path}/scale", {"spec": {"replicas": 9}})
    assert (refused.status, await replicas(api, path)) == (400, 5)


async def test_webhooks_see_what_plugins_add_to_a_pod_and_plugins_what_webhooks_add(
    api, ns, hooks, registered
):
    limits = {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}
    ranges = f"/api/v1/namespaces/{ns}/limitranges"
    assert (await api.create(ranges, {"metadata": {"name": "l"}, "spec": {"limits": [limits]}})).status == 201
    await registered.mutating(registered.webhook("/m.one", **rule("pods")))
    hooks.responders["/m.one"] = lambda request: patch(
        request, {"op": "add", "path": "/spec/containers/-", "value": {"name": "sidecar", "image": "b"}}
    )
    pods = f"/api/v1/namespaces/{ns}/pods"

    async def made():
        # The real server may not know the new range yet.
        await api.delete(f"{pods}/a")
        answer = await api.create(pods, pod())
        assert answer.status == 201, answer.text
        return answer["spec"]["containers"][0]["resources"] != {}

    await until(made)
    seen = hooks.asked["/m.one"][-1]["object"]["spec"]
    assert (seen["priority"], len(seen["tolerations"])) == (0, 2)
    assert seen["containers"][0]["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}
    stored = (await api.get(f"{pods}/a"))["spec"]["containers"]
    assert [one["resources"] for one in stored] == [seen["containers"][0]["resources"]] * 2
