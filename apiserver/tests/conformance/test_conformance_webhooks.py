"""Admission webhooks: which are called, with what request, and the effects of their responses."""

from __future__ import annotations

import json

import pytest
from conformance_api import MERGE, install, until
from conformance_kinds import SITE_DEFINITION, config_map, site
from conformance_registration import CONFIG_MAPS, REGISTRATION
from conformance_webhooks import allow, deny, labelled, patch

# The review


async def test_a_create_is_reviewed_before_the_server_names_and_dates_the_object(
    api, maps, ns, hooks, registered
):
    await registered.mutating(registered.webhook("/m.one"))
    answer = await api.create(maps, {"metadata": {"generateName": "g-"}}, fieldManager="me")
    assert answer.status == 201
    (request,) = hooks.asked["/m.one"]
    managed = request["object"]["metadata"].pop("managedFields")
    user = request.pop("userInfo")
    assert user == {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]}
    assert len(request.pop("uid")) == 36
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    assert request == {
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "namespace": ns,
        "operation": "CREATE",
        "object": {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"generateName": "g-", "namespace": ns},
        },
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"},
    }
    assert [entry["manager"] for entry in managed] == ["me"]


async def test_a_validating_webhook_sees_the_object_as_it_will_be_stored(api, maps, hooks, registered):
    await registered.validating(registered.webhook("/v.one"))
    made = await api.create(maps, {"metadata": {"generateName": "g-"}})
    (request,) = hooks.asked["/v.one"]
    assert request["name"] == made.meta["name"]
    assert {**request["object"]["metadata"], "resourceVersion": made.version} == made.meta


async def test_a_replace_is_reviewed_as_it_was_sent_beside_the_stored_object(api, maps, hooks, registered):
    await registered.mutating(registered.webhook("/m.one"))
    made = await api.create(maps, config_map(data={"a": "1"}))
    await api.replace(f"{maps}/a", config_map(data={"a": "2"}), dryRun="All")
    request = hooks.asked["/m.one"][1]
    assert (request["operation"], request["name"], request["dryRun"]) == ("UPDATE", "a", True)
    assert request["oldObject"] == made.body
    assert request["object"]["data"] == {"a": "2"}
    assert "uid" not in request["object"]["metadata"]
    assert request["options"] == {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"]}


async def test_a_patch_is_reviewed_as_an_update(api, maps, hooks, registered):
    await registered.mutating(registered.webhook("/m.one"))
    await api.create(maps, config_map())
    await api.merge(f"{maps}/a", {"data": {"a": "1"}}, fieldManager="p", fieldValidation="Strict")
    request = hooks.asked["/m.one"][1]
    assert request["object"]["data"] == {"a": "1"}
    assert request["options"] == {
        "kind": "UpdateOptions",
        "apiVersion": "meta.k8s.io/v1",
        "fieldManager": "p",
        "fieldValidation": "Strict",
    }


async def test_an_apply_is_reviewed_as_a_create_first_and_then_as_an_update(api, maps, hooks, registered):
    await registered.mutating(registered.webhook("/m.one"))
    await api.apply(f"{maps}/a", config_map(data={"a": "1"}))
    await api.apply(f"{maps}/a", config_map(data={"a": "2"}), force=True)
    first, second = hooks.asked["/m.one"]
    assert (first["operation"], first["options"]["kind"]) == ("CREATE", "CreateOptions")
    assert first["name"] == "a"
    assert (second["operation"], second["options"]["kind"]) == ("UPDATE", "UpdateOptions")


async def test_a_delete_is_reviewed_with_the_object_as_it_was(api, maps, hooks, registered):
    await registered.validating(registered.webhook("/v.one"))
    made = await api.create(maps, config_map())
    await api.delete(f"{maps}/a", {"propagationPolicy": "Background"})
    request = hooks.asked["/v.one"][1]
    assert (request["operation"], request["name"]) == ("DELETE", "a")
    assert (request["object"], request["oldObject"]) == (None, made.body)
    assert request["options"] == {
        "kind": "DeleteOptions",
        "apiVersion": "meta.k8s.io/v1",
        "propagationPolicy": "Background",
    }


async def test_a_deletecollection_is_reviewed_object_by_object_without_a_name(api, maps, hooks, registered):
    await registered.validating(registered.webhook("/v.one"))
    for name in ("a", "b"):
        await api.create(maps, config_map(name))
    hooks.asked.clear()
    await api.delete(maps)
    asked = hooks.asked["/v.one"]
    assert sorted(request["oldObject"]["metadata"]["name"] for request in asked) == ["a", "b"]
    assert all("name" not in request for request in asked)


async def test_a_write_that_changes_nothing_is_reviewed_as_well(api, maps, hooks, registered):
    await registered.validating(registered.webhook("/v.one"))
    made = await api.create(maps, config_map(data={"a": "1"}))
    again = await api.merge(f"{maps}/a", {"data": {"a": "1"}})
    assert again.version == made.version
    assert len(hooks.asked["/v.one"]) == 2


async def test_a_create_of_what_exists_is_reviewed_before_it_is_refused(api, maps, hooks, registered):
    await registered.validating(registered.webhook("/v.one"))
    await api.create(maps, config_map())
    assert (await api.create(maps, config_map())).refusal == (409, "AlreadyExists")
    assert len(hooks.asked["/v.one"]) == 2


async def test_a_replace_of_an_older_version_reaches_mutating_webhooks_only(api, maps, hooks, registered):
    await registered.mutating(registered.webhook("/m.one"))
    await registered.validating(registered.webhook("/v.one"))
    made = await api.create(maps, config_map(data={"a": "1"}))
    await api.merge(f"{maps}/a", {"data": {"a": "2"}})
    hooks.order.clear()
    assert (await api.replace(f"{maps}/a", made.body)).refusal == (409, "Conflict")
    assert set(hooks.order) == {"/m.one"}


async def test_an_invalid_object_reaches_mutating_webhooks_only(api, maps, hooks, registered):
    await registered.mutating(registered.webhook("/m.one"))
    await registered.validating(registered.webhook("/v.one"))
    answer = await api.create(maps, config_map(labels={"a": "not valid"}))
    assert answer.refusal == (422, "Invalid")
    assert hooks.order == ["/m.one"]


async def test_nobody_is_asked_about_a_namespace_that_is_missing(api, maps, ns, hooks, registered):
    await registered.mutating(registered.webhook("/m.one", namespaceSelector={}))
    missing = f"/api/v1/namespaces/{ns}-missing/configmaps"
    assert (await api.create(missing, config_map())).refusal == (404, "NotFound")
    assert not [path for path in hooks.order if path == "/m.one"]


async def test_the_status_subresource_is_named(api, sites, hooks, registered):
    rule = {"apiGroups": ["conformance.example.com"], "apiVersions": ["*"], "operations": ["UPDATE"]}
    await registered.mutating(registered.webhook("/m.one", rules=[{**rule, "resources": ["sites/status"]}]))
    await api.create(sites, site())
    await api.merge(f"{sites}/a", {"spec": {"replicas": 2}})
    await api.merge(f"{sites}/a/status", {"status": {"phase": "Ready"}})
    (request,) = hooks.asked["/m.one"]
    assert (request["subResource"], request["requestSubResource"]) == ("status", "status")
    assert request["kind"]["kind"] == "Site"


# Which webhooks are called


@pytest.mark.parametrize(
    ("rule", "asked"),
    [
        ({}, True),
        ({"operations": ["UPDATE"]}, False),
        ({"operations": ["*"]}, True),
        ({"apiGroups": ["apps"]}, False),
        ({"apiGroups": ["*"]}, True),
        ({"apiVersions": ["v2"]}, False),
        ({"apiVersions": ["*"]}, True),
        ({"resources": ["*"]}, True),
        ({"resources": ["*/*"]}, True),
        ({"resources": ["configmaps/*"]}, True),
        ({"resources": ["configmaps/status"]}, False),
        ({"resources": ["secrets"]}, False),
        ({"scope": "Namespaced"}, True),
        ({"scope": "Cluster"}, False),
    ],
)
async def test_a_rule_says_who_is_asked(api, maps, hooks, registered, rule, asked):
    await registered.mutating(registered.webhook("/m.one", rules=[{**CONFIG_MAPS, **rule}]))
    await api.create(maps, config_map())
    assert hooks.order == (["/m.one"] if asked else [])


@pytest.mark.parametrize(
    ("before", "after", "asked"), [("yes", "no", True), ("no", "yes", True), ("no", "no", False)]
)
async def test_an_object_selector_looks_at_the_object_and_at_what_it_was(
    api, maps, hooks, registered, before, after, asked
):
    await registered.mutating(registered.webhook("/m.one", objectSelector={"matchLabels": {"on": "yes"}}))
    await api.create(maps, config_map(labels={"on": before}))
    hooks.order.clear()
    await api.merge(f"{maps}/a", {"metadata": {"labels": {"on": after}}})
    assert bool(hooks.order) is asked


async def test_an_object_selector_looks_at_the_old_object_of_a_delete(api, maps, hooks, registered):
    await registered.validating(registered.webhook("/v.one", objectSelector={"matchLabels": {"on": "yes"}}))
    await api.create(maps, config_map(labels={"on": "yes"}))
    hooks.order.clear()
    await api.delete(f"{maps}/a")
    assert hooks.order == ["/v.one"]


async def test_a_namespace_selector_looks_at_the_labels_of_the_namespace(api, maps, ns, hooks, registered):
    selector = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}
    await registered.mutating(registered.webhook("/m.one", namespaceSelector=selector))
    await api.create(maps, config_map("before"))
    assert hooks.order == []
    await api.merge(f"/api/v1/namespaces/{ns}", {"metadata": {"labels": {"team": "a"}}})

    async def asked() -> bool:
        await api.create(maps, config_map("after"), dryRun="All")
        return bool(hooks.order)

    await until(asked)


async def test_of_a_namespace_its_own_new_labels_count(api, ns, hooks, registered):
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["namespaces"]}
    selector = {"matchLabels": {"case": ns}}
    await registered.mutating(registered.webhook("/m.one", rules=[rule], namespaceSelector=selector))
    await api.merge(f"/api/v1/namespaces/{ns}", {"metadata": {"labels": {"other": "a"}}})
    assert hooks.order == []
    await api.merge(f"/api/v1/namespaces/{ns}", {"metadata": {"labels": {"case": ns}}})
    (request,) = hooks.asked["/m.one"]
    assert (request["name"], request["namespace"]) == (ns, ns)


async def test_what_is_in_no_namespace_is_in_every_namespace_selector(api, ns, hooks, registered):
    rule = {"apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"]}
    rules = [{**rule, "resources": ["clusterroles"]}]
    await registered.mutating(
        registered.webhook("/m.one", rules=rules, objectSelector={"matchLabels": {"case": ns}})
    )
    role = {"metadata": {"name": ns, "labels": {"case": ns}}, "rules": []}
    await api.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role, dryRun="All")
    (request,) = hooks.asked["/m.one"]
    assert "namespace" not in request


async def test_nobody_is_asked_about_configurations_of_webhooks(api, ns, hooks, registered):
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    await registered.mutating(
        registered.webhook("/m.one", rules=[rule], objectSelector={"matchLabels": {"case": ns}})
    )
    body = {"metadata": {"name": f"{ns}-other", "labels": {"case": ns}}, "webhooks": []}
    for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        answer = await api.create(f"{REGISTRATION}/{plural}", body, dryRun="All")
        assert answer.status == 201
    assert hooks.order == []


async def test_all_match_conditions_must_hold(api, maps, hooks, registered):
    conditions = [
        {"name": "data", "expression": "has(object.data) && 'on' in object.data"},
        {"name": "user", "expression": "request.userInfo.username == 'admin'"},
    ]
    await registered.mutating(registered.webhook("/m.one", matchConditions=conditions))
    await api.create(maps, config_map("a"))
    await api.create(maps, config_map("b", data={"on": ""}))
    assert [request["name"] for request in hooks.asked["/m.one"]] == ["b"]


async def test_a_match_condition_that_fails_refuses_the_write(api, maps, hooks, registered):
    conditions = [{"name": "broken", "expression": "object.data.missing == 'a'"}]
    await registered.mutating(registered.webhook("/m.one", matchConditions=conditions))
    answer = await api.create(maps, config_map(data={"a": "1"}))
    assert answer.refusal == (403, "Forbidden")
    assert answer.message == (
        "configmaps \"a\" is forbidden: expression 'object.data.missing == 'a'' resulted in error: no such key: missing"
    )


async def test_a_match_condition_that_fails_skips_a_webhook_that_may_be_ignored(api, maps, hooks, registered):
    conditions = [{"name": "broken", "expression": "object.data.missing == 'a'"}]
    await registered.mutating(
        registered.webhook("/m.one", matchConditions=conditions, failurePolicy="Ignore")
    )
    assert (await api.create(maps, config_map(data={"a": "1"}))).status == 201
    assert hooks.order == []


async def test_a_false_match_condition_outweighs_a_broken_one(api, maps, hooks, registered):
    conditions = [
        {"name": "broken", "expression": "object.data.missing == 'a'"},
        {"name": "false", "expression": "request.operation == 'DELETE'"},
    ]
    await registered.mutating(registered.webhook("/m.one", matchConditions=conditions))
    assert (await api.create(maps, config_map(data={"a": "1"}))).status == 201
    assert hooks.order == []


# Where webhooks are called


@pytest.mark.parametrize(
    "written", ["//m.one", "/m.one/", "/x/..//m.one", "/./m.one"], ids=["doubled", "trailing", "up", "here"]
)
async def test_the_path_of_a_webhook_is_cleaned_before_it_is_called(api, maps, hooks, registered, written):
    await registered.mutating(registered.webhook("/m.one", clientConfig=hooks.client(written)))
    assert (await api.create(maps, config_map())).status == 201
    assert hooks.order == ["/m.one"]


async def test_a_call_follows_redirects(api, maps, hooks, registered):
    hooks.redirects["/m.one"] = (307, "/elsewhere")
    hooks.redirects["/elsewhere"] = (308, f"https://127.0.0.1:{hooks.port}/moved")
    hooks.responders["/moved"] = lambda request: labelled(request, "moved")
    await registered.mutating(registered.webhook("/m.one"))
    made = await api.create(maps, config_map())
    assert made.meta["labels"] == {"moved": "yes"}
    assert hooks.order == ["/m.one", "/elsewhere", "/moved"]


async def test_after_other_redirects_there_is_no_review(api, maps, hooks, registered):
    hooks.redirects["/m.one"] = (302, "/moved")
    await registered.mutating(registered.webhook("/m.one"))
    answer = await api.create(maps, config_map())
    assert answer.refusal == (500, "InternalError")
    assert answer.message.endswith("received invalid webhook response: webhook response was absent")


async def test_a_call_ends_after_ten_redirects(api, maps, hooks, registered):
    hooks.redirects["/m.one"] = (307, "/m.one")
    await registered.mutating(registered.webhook("/m.one"))
    answer = await api.create(maps, config_map())
    assert answer.refusal == (500, "InternalError")
    assert answer.message.endswith('failed to call webhook: Post "/m.one": stopped after 10 redirects')
    assert len(hooks.order) == 10


# Effects of responses


async def test_a_denial_speaks_with_the_status_of_the_webhook(api, maps, hooks, registered):
    await registered.validating(registered.webhook("/v.one"))
    hooks.responders["/v.one"] = lambda request: deny(request, code=409, reason="Conflict", message="not now")
    answer = await api.create(maps, config_map())
    assert answer.refusal == (409, "Conflict")
    assert answer.message == 'admission webhook "v.one.example.com" denied the request: not now'


async def test_a_denial_without_words_says_so(api, maps, hooks, registered):
    await registered.validating(registered.webhook("/v.one"))
    hooks.responders["/v.one"] = deny
    answer = await api.create(maps, config_map())
    assert answer.refusal == (400, None)
    assert answer.message == 'admission webhook "v.one.example.com" denied the request without explanation'


async def test_a_denial_without_a_message_shows_its_reason(api, maps, hooks, registered):
    await registered.validating(registered.webhook("/v.one"))
    hooks.responders["/v.one"] = lambda request: deny(request, reason="NotNow", code=200)
    answer = await api.create(maps, config_map())
    assert answer.refusal == (400, "NotNow")
    assert answer.message == 'admission webhook "v.one.example.com" denied the request: NotNow'


async def test_a_denied_delete_leaves_the_object(api, maps, hooks, registered):
    await registered.validating(registered.webhook("/v.one"))
    await api.create(maps, config_map())
    hooks.responders["/v.one"] = lambda request: deny(request, code=403, message="kept")
    assert (await api.delete(f"{maps}/a")).status == 403
    assert (await api.get(f"{maps}/a")).status == 200


async def test_a_patch_changes_what_is_stored(api, maps, hooks, registered):
    await registered.mutating(registered.webhook("/m.one"))
    hooks.responders["/m.one"] = lambda request: labelled(request, "x")
    made = await api.create(maps, config_map())
    assert made.meta["labels"] == {"x": "yes"}
    assert (await api.get(f"{maps}/a")).meta["labels"] == {"x": "yes"}


async def test_what_a_webhook_changes_belongs_to_no_manager(api, maps, hooks, registered):
    await registered.mutating(registered.webhook("/m.one"))
    hooks.responders["/m.one"] = lambda request: labelled(request, "x")
    made = await api.create(maps, config_map(data={"a": "1"}), fieldManager="me")
    (entry,) = made.meta["managedFields"]
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:a": {}}}
    hooks.responders["/m.one"] = lambda request: labelled(request, "y")
    changed = await api.apply(f"{maps}/a", config_map(data={"b": "1"}), manager="other")
    assert changed.meta["labels"] == {"x": "yes", "y": "yes"}
    assert {entry["manager"]: entry["fieldsV1"] for entry in changed.meta["managedFields"]} == {
        "me": {"f:data": {".": {}, "f:a": {}}},
        "other": {"f:data": {"f:b": {}}},
    }


async def test_a_patch_is_decoded_like_a_body_and_validated_afterwards(api, sites, hooks, registered):
    rule = {"apiGroups": ["conformance.example.com"], "apiVersions": ["*"], "operations": ["CREATE"]}
    await registered.mutating(registered.webhook("/m.one", rules=[{**rule, "resources": ["sites"]}]))
    hooks.responders["/m.one"] = lambda request: patch(
        request,
        {"op": "add", "path": "/spec/nested", "value": {}},
        {"op": "add", "path": "/spec/replicas", "value": 99},
    )
    answer = await api.create(sites, site())
    assert answer.refusal == (422, "Invalid")
    assert answer.fields == {"spec.replicas"}
    hooks.responders["/m.one"] = lambda request: patch(
        request, {"op": "add", "path": "/spec/nested", "value": {}}
    )
    assert (await api.create(sites, site()))["spec"]["nested"] == {"a": "x"}


async def test_webhooks_are_asked_in_the_order_of_configurations_and_see_each_others_changes(
    api, maps, hooks, registered
):
    await registered.mutating(registered.webhook("/m.b"), registered.webhook("/m.a"), suffix="-2")
    await registered.mutating(registered.webhook("/m.z"), suffix="-1")
    await registered.validating(registered.webhook("/v.one"), suffix="-0")
    for name in "abz":
        hooks.responders[f"/m.{name}"] = lambda request, name=name: labelled(request, name)
    await api.create(maps, config_map())
    assert hooks.order == ["/m.z", "/m.b", "/m.a", "/v.one"]
    assert set(hooks.asked["/m.a"][0]["object"]["metadata"]["labels"]) == {"z", "b"}
    assert set(hooks.asked["/v.one"][0]["object"]["metadata"]["labels"]) == {"z", "b", "a"}


async def test_a_webhook_is_asked_again_when_a_later_one_changes_the_object(api, maps, hooks, registered):
    await registered.mutating(
        registered.webhook("/m.first", reinvocationPolicy="IfNeeded"),
        registered.webhook("/m.never"),
        registered.webhook("/m.last", reinvocationPolicy="IfNeeded"),
    )
    hooks.responders["/m.last"] = lambda request: labelled(request, "x")
    await api.create(maps, config_map())
    assert hooks.order == ["/m.first", "/m.never", "/m.last", "/m.first"]
    assert hooks.asked["/m.first"][1]["object"]["metadata"]["labels"] == {"x": "yes"}


async def test_a_webhook_is_not_asked_again_when_nothing_changed_after_it(api, maps, hooks, registered):
    await registered.mutating(
        registered.webhook("/m.first"), registered.webhook("/m.last", reinvocationPolicy="IfNeeded")
    )
    hooks.responders["/m.first"] = lambda request: labelled(request, "x")
    await api.create(maps, config_map())
    assert hooks.order == ["/m.first", "/m.last"]


async def test_a_webhook_that_was_passed_over_is_not_asked_in_the_second_round(api, maps, hooks, registered):
    selector = {"matchLabels": {"x": "yes"}}
    await registered.mutating(
        registered.webhook("/m.first", reinvocationPolicy="IfNeeded", objectSelector=selector),
        registered.webhook("/m.last"),
    )
    hooks.responders["/m.last"] = lambda request: labelled(request, "x")
    await api.create(maps, config_map())
    assert hooks.order == ["/m.last"]


async def test_warnings_reach_the_client_of_an_allowed_write(api, maps, hooks, registered):
    await registered.validating(registered.webhook("/v.one"))
    hooks.responders["/v.one"] = lambda request: allow(request, warnings=['mind the "gap"'])
    answer = await api.create(maps, config_map())
    assert answer.headers["warning"] == '299 - "mind the \\"gap\\""'


async def test_warnings_are_sent_in_any_script_and_not_with_control_characters(api, maps, hooks, registered):
    await registered.validating(registered.webhook("/v.one"))
    told = ["größer – 日本", "two\nlines", "a\x85b", "no\u00a0break\u200b", ""]
    hooks.responders["/v.one"] = lambda request: allow(request, warnings=told)
    assert (await api.create(maps, config_map())).warnings == ["größer – 日本", "no\u00a0break\u200b"]


async def test_warnings_reach_the_client_of_a_denied_write(api, maps, hooks, registered):
    await registered.mutating(registered.webhook("/m.one"))
    await registered.validating(registered.webhook("/v.one"))
    hooks.responders["/m.one"] = lambda request: allow(request, warnings=["first"])
    hooks.responders["/v.one"] = deny
    answer = await api.create(maps, config_map())
    assert answer.status == 400
    assert answer.headers["warning"] == '299 - "first"'


# Invalid responses

REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
INVALID = "received invalid webhook response: "
FAILED = "failed to call webhook: "
PATCHED = {"patchType": "JSONPatch"}


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (lambda r: {"uid": "other", "allowed": True}, INVALID + 'expected response.uid="{uid}", got "other"'),
        (lambda r: REVIEW, INVALID + "webhook response was absent"),
        (lambda r: {}, INVALID + "webhook response was absent"),
        (
            lambda r: json.dumps({"response": allow(r)}).encode(),
            INVALID + "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
        ),
        (
            lambda r: {**REVIEW, "apiVersion": "admission.k8s.io/v1beta1", "response": allow(r)},
            FAILED + "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        ),
        (
            lambda r: b"",
            FAILED + "0-length response with status code: 200 and content type: application/json",
        ),
        (
            lambda r: allow(r, patch="W10="),
            INVALID + "webhook returned response.patch but not response.patchType",
        ),
        (
            lambda r: allow(r, **PATCHED),
            INVALID + "webhook returned response.patchType but not response.patch",
        ),
        (
            lambda r: allow(r, patch="W10=", patchType=""),
            INVALID + 'webhook returned invalid response.patchType of ""',
        ),
        (lambda r: allow(r, patch="!!", **PATCHED), FAILED + "illegal base64 data at input byte 0"),
        (
            lambda r: allow(r, patch="e30=", **PATCHED),
            "received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type "
            "jsonpatch.Patch",
        ),
        (lambda r: allow(r, patch="W3sib3AiOiJhIn1d", patchType="Merge"), 'unsupported patch type "Merge"'),
    ],
)
async def test_an_answer_that_is_none_fails_the_write(api, maps, hooks, registered, response, problem):
    await registered.mutating(registered.webhook("/m.one"))
    hooks.responders["/m.one"] = response
    answer = await api.create(maps, config_map())
    assert answer.refusal == (500, "InternalError")
    said = 'failed calling webhook "m.one.example.com": ' + problem.format(
        uid=hooks.asked["/m.one"][0]["uid"]
    )
    assert answer.message == f"Internal error occurred: {said}"
    assert answer.details == {"causes": [{"message": said}]}


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (400, "the server rejected our request for an unknown reason"),
        (404, "the server could not find the requested resource"),
        (418, "the server responded with the status code 418 but did not return more information"),
        (500, 'an error on the server ("unknown") has prevented the request from succeeding'),
        (503, "the server is currently unable to handle the request"),
    ],
)
async def test_a_webhook_that_answers_with_an_error_fails_the_write(
    api, maps, hooks, registered, status, problem
):
    await registered.validating(registered.webhook("/v.one"))
    hooks.statuses["/v.one"] = status
    hooks.responders["/v.one"] = lambda request: b""
    answer = await api.create(maps, config_map())
    assert answer.refusal == (500, "InternalError")
    assert answer.message == (
        f'Internal error occurred: failed calling webhook "v.one.example.com": failed to call webhook: {problem}'
    )


@pytest.mark.parametrize(("field", "value"), [("patch", "W10="), ("patchType", "JSONPatch")])
async def test_a_validating_webhook_may_not_patch(api, maps, hooks, registered, field, value):
    await registered.validating(registered.webhook("/v.one"))
    hooks.responders["/v.one"] = lambda request: allow(request, **{field: value})
    answer = await api.create(maps, config_map())
    assert answer.refusal == (500, "InternalError")
    assert answer.message == (
        'Internal error occurred: failed calling webhook "v.one.example.com": received invalid webhook response: '
        f"validating webhook may not return response.{field}"
    )


@pytest.mark.parametrize(
    ("op", "problem"),
    [
        (
            {"op": "add", "path": "/metadata/a/b", "value": "x"},
            'add operation does not apply: doc is missing path: "/metadata/a/b": missing value',
        ),
        (
            {"op": "remove", "path": "/missing"},
            "error in remove for path: '/missing': Unable to remove nonexistent key: missing: missing value",
        ),
        (
            {"op": "replace", "path": "/missing/a", "value": "x"},
            "replace operation does not apply: doc is missing path: /missing/a: missing value",
        ),
        (
            {"op": "test", "path": "/metadata/name", "value": "other"},
            "testing value /metadata/name failed: test failed",
        ),
        ({"op": "unknown", "path": "/metadata/name"}, "Unexpected kind: unknown"),
    ],
)
async def test_a_patch_that_cannot_be_applied_fails_the_write(api, maps, hooks, registered, op, problem):
    await registered.mutating(registered.webhook("/m.one", failurePolicy="Ignore"))
    hooks.responders["/m.one"] = lambda request: patch(request, op)
    answer = await api.create(maps, config_map())
    assert answer.refusal == (500, "InternalError")
    assert answer.message == f"Internal error occurred: {problem}"


async def test_a_patch_that_makes_no_object_of_the_kind_fails_the_write(api, maps, hooks, registered):
    await registered.mutating(registered.webhook("/m.one", failurePolicy="Ignore"))
    hooks.responders["/m.one"] = lambda request: patch(
        request, {"op": "add", "path": "/data", "value": "text"}
    )
    answer = await api.create(maps, config_map())
    assert answer.refusal == (500, "InternalError")


async def test_a_patch_may_not_move_the_object_to_another_namespace(api, maps, hooks, registered):
    await registered.mutating(registered.webhook("/m.one"))
    hooks.responders["/m.one"] = lambda request: patch(
        request, {"op": "replace", "path": "/metadata/namespace", "value": "other"}
    )
    answer = await api.create(maps, config_map())
    assert answer.refusal == (400, "BadRequest")
    assert answer.message == (
        "the namespace of the provided object does not match the namespace sent on the request"
    )


async def test_a_patch_may_name_the_object_and_cannot_choose_its_uid(api, maps, hooks, registered):
    await registered.mutating(registered.webhook("/m.one"))
    hooks.responders["/m.one"] = lambda request: patch(
        request,
        {"op": "replace", "path": "/metadata/name", "value": "other"},
        {"op": "add", "path": "/metadata/uid", "value": "mine"},
        {"op": "add", "path": "/unknown", "value": "gone"},
    )
    made = await api.create(maps, config_map())
    assert made.meta["name"] == "other"
    assert made.meta["uid"] != "mine"
    assert "unknown" not in made.body


async def test_managed_fields_that_nobody_can_read_are_put_back_with_a_warning(api, maps, hooks, registered):
    await registered.mutating(registered.webhook("/m.one"))
    hooks.responders["/m.one"] = lambda request: patch(
        request, {"op": "replace", "path": "/metadata/managedFields", "value": [{"manager": "x"}]}
    )
    made = await api.create(maps, config_map(data={"a": "1"}), fieldManager="me")
    assert [entry["manager"] for entry in made.meta["managedFields"]] == ["me"]
    assert made.headers["warning"] == (
        '299 - ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated '
        'mutating admission controller; please fix your requests: operation must be `Apply` or `Update`"'
    )


async def test_a_manager_to_which_a_webhook_gave_an_empty_field_set_is_gone_after_the_next_write(
    api, maps, hooks, registered
):
    await registered.mutating(registered.webhook("/m.one"))
    entry = {
        "manager": "x",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {".": {}},
    }
    hooks.responders["/m.one"] = lambda request: patch(
        request, {"op": "add", "path": "/metadata/managedFields/-", "value": entry}
    )
    made = await api.create(maps, config_map(data={"a": "1"}), fieldManager="me")
    assert [each["manager"] for each in made.meta["managedFields"]] == ["me", "x"]
    del hooks.responders["/m.one"]
    changed = await api.merge(f"{maps}/a", {"data": {"a": "2"}}, fieldManager="me")
    assert [each["manager"] for each in changed.meta["managedFields"]] == ["me"]


async def test_a_delete_cannot_be_patched(api, maps, hooks, registered):
    await registered.mutating(registered.webhook("/m.one"))
    await api.create(maps, config_map())
    hooks.responders["/m.one"] = lambda request: patch(request, {"op": "add", "path": "/data", "value": {}})
    answer = await api.delete(f"{maps}/a")
    assert answer.refusal == (500, "InternalError")
    assert answer.message == (
        'Internal error occurred: admission webhook "m.one.example.com" attempted to modify the object, which is not '
        "supported for this operation"
    )


async def test_a_webhook_where_nobody_listens_fails_the_write(api, maps, hooks, registered):
    await registered.validating(registered.webhook("/v.one", clientConfig={"url": "https://127.0.0.1:1/x"}))
    answer = await api.create(maps, config_map())
    assert answer.refusal == (500, "InternalError")
    assert answer.message.startswith(
        'Internal error occurred: failed calling webhook "v.one.example.com": failed to call webhook: '
        'Post "https://127.0.0.1:1/x?timeout=5s": '
    )


@pytest.mark.regression
async def test_a_bundle_may_be_the_servers_own_certificate(api, maps, hooks, registered):
    client = {**hooks.client("/v.one"), "caBundle": hooks.own_certificate}
    await registered.validating(registered.webhook("/v.one", clientConfig=client))
    assert (await api.create(maps, config_map())).status == 201
    assert len(hooks.asked["/v.one"]) == 1


async def test_a_webhook_whose_certificate_is_not_trusted_fails_the_write(api, maps, hooks, registered):
    client = {"url": hooks.client("/v.one")["url"]}
    await registered.validating(registered.webhook("/v.one", clientConfig=client))
    assert (await api.create(maps, config_map())).refusal == (500, "InternalError")
    assert hooks.order == []


async def test_a_webhook_that_takes_too_long_fails_the_write(api, maps, hooks, registered):
    await registered.validating(registered.webhook("/v.one", timeoutSeconds=1))
    hooks.delays["/v.one"] = 5.0
    answer = await api.create(maps, config_map())
    assert answer.refusal == (500, "InternalError")
    assert "context deadline exceeded" in answer.message


@pytest.mark.parametrize("kind", ["mutating", "validating"])
async def test_a_webhook_that_may_be_ignored_is_when_it_fails(api, maps, hooks, registered, kind):
    client = {"url": "https://127.0.0.1:1/x"}
    webhook = registered.webhook("/x.one", clientConfig=client, failurePolicy="Ignore")
    await (registered.mutating(webhook) if kind == "mutating" else registered.validating(webhook))
    assert (await api.create(maps, config_map())).status == 201


# Concurrent writes


async def test_a_patch_is_made_anew_when_the_object_changes_while_a_webhook_is_asked(
    api, maps, hooks, registered
):
    await registered.validating(registered.webhook("/v.one"))
    await api.create(maps, config_map(data={"a": "1"}))
    hooks.order.clear()

    async def meanwhile() -> None:
        answer = await api.merge(f"{maps}/a", {"data": {"b": "2"}})
        assert answer.status == 200

    hooks.meanwhile["/v.one"] = meanwhile
    changed = await api.merge(f"{maps}/a", {"data": {"c": "3"}})
    assert changed["data"] == {"a": "1", "b": "2", "c": "3"}
    assert len(hooks.order) == 3


async def test_a_replace_is_a_conflict_when_the_object_changes_while_a_webhook_is_asked(
    api, maps, hooks, registered
):
    await registered.validating(registered.webhook("/v.one"))
    made = await api.create(maps, config_map(data={"a": "1"}))

    async def meanwhile() -> None:
        await api.merge(f"{maps}/a", {"data": {"b": "2"}})

    hooks.meanwhile["/v.one"] = meanwhile
    answer = await api.replace(f"{maps}/a", {**made.body, "data": {"c": "3"}})
    assert answer.refusal == (409, "Conflict")


async def test_a_create_is_refused_when_the_name_is_taken_while_a_webhook_is_asked(
    api, maps, hooks, registered
):
    await registered.validating(registered.webhook("/v.one"))

    async def meanwhile() -> None:
        assert (await api.create(maps, config_map())).status == 201

    hooks.meanwhile["/v.one"] = meanwhile
    assert (await api.create(maps, config_map())).refusal == (409, "AlreadyExists")


async def test_a_patch_of_what_is_deleted_while_a_webhook_is_asked_finds_nothing(
    api, maps, hooks, registered
):
    await registered.mutating(registered.webhook("/m.one", rules=[{**CONFIG_MAPS, "operations": ["UPDATE"]}]))
    await api.create(maps, config_map())

    async def meanwhile() -> None:
        await api.delete(f"{maps}/a")

    hooks.meanwhile["/m.one"] = meanwhile
    answer = await api.call("PATCH", f"{maps}/a", {"data": {"a": "1"}}, content_type=MERGE)
    assert answer.refusal == (404, "NotFound")


async def test_a_kind_in_another_version_is_asked_about_in_that_of_the_rule(api, ns, hooks, registered):
    group = f"{ns}.example.com"
    versions = [
        {**SITE_DEFINITION["spec"]["versions"][0], "name": name, "storage": name == "v1"}
        for name in ("v1", "v2")
    ]
    definition = {
        **SITE_DEFINITION,
        "metadata": {"name": f"sites.{group}"},
        "spec": {**SITE_DEFINITION["spec"], "group": group, "versions": versions},
    }
    await install(api, definition)
    rule = {"apiGroups": [group], "apiVersions": ["v2"], "operations": ["CREATE"], "resources": ["sites"]}
    await registered.mutating(
        registered.webhook("/m.equivalent", rules=[rule]),
        registered.webhook("/m.exact", rules=[rule], matchPolicy="Exact"),
    )
    hooks.responders["/m.equivalent"] = lambda request: labelled(request, "x")
    body = {**site(), "apiVersion": f"{group}/v1"}
    made = await api.create(f"/apis/{group}/v1/namespaces/{ns}/sites", body)
    assert made.status == 201, made.text
    assert (made["apiVersion"], made.meta["labels"]) == (f"{group}/v1", {"x": "yes"})
    assert hooks.order == ["/m.equivalent"]
    (request,) = hooks.asked["/m.equivalent"]
    assert (request["kind"]["version"], request["requestKind"]["version"]) == ("v2", "v1")
    assert request["object"]["apiVersion"] == f"{group}/v2"
