"""Reviews of users and their rights."""

import pytest
from conformance_access import REVIEWS, WHOAMI, grant, may, rule, rules_of
from conformance_api import until

SELF = f"{REVIEWS}/selfsubjectaccessreviews"
SUBJECT = f"{REVIEWS}/subjectaccessreviews"
RULES = f"{REVIEWS}/selfsubjectrulesreviews"
PODS = {"verb": "get", "resource": "pods"}
ONE_OF_TWO = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
DISCOVERY = [
    "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version",
    "/version/",
]  # fmt: skip


def local(ns):
    return f"{REVIEWS}/namespaces/{ns}/localsubjectaccessreviews"


async def test_who_am_i_is_answered_with_who_and_when(api):
    answer = await api.create(WHOAMI, {"metadata": {"name": "x"}})
    assert answer.status == 201
    assert (answer["kind"], answer["apiVersion"]) == ("SelfSubjectReview", "authentication.k8s.io/v1")
    assert set(answer.meta) == {"creationTimestamp"}
    assert set(answer["status"]) == {"userInfo"}


async def test_administrators_may_without_a_reason(api):
    assert await may(api, **PODS) == {"allowed": True}
    assert await may(api) == {"allowed": True}


async def test_others_may_not_without_a_reason(api):
    assert await may(api.acting_as("jo"), **PODS) == {"allowed": False}
    assert await may(api.acting_as("jo"), path="/metrics", verb="get") == {"allowed": False}


async def test_what_is_allowed_is_told_with_its_binding(api, ns, name):
    jo = await grant(api, name, rule("get", "pods"), ns=ns)
    assert await may(jo, **PODS, namespace=ns) == {
        "allowed": True,
        "reason": f'RBAC: allowed by RoleBinding "{name}/{ns}" of Role "{name}" to User "{name}"',
    }
    jane = await grant(api, f"{name}-2", rule("get", "pods"))
    assert (await may(jane, **PODS))["reason"] == (
        f'RBAC: allowed by ClusterRoleBinding "{name}-2" of ClusterRole "{name}-2" to User "{name}-2"'
    )
    assert (await may(jo, path="/openapi", verb="get"))["reason"] == (
        'RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group '
        '"system:authenticated"'
    )


async def test_a_service_account_is_told_with_its_namespace(api, ns, name):
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": ns}
    await grant(api, name, rule("get", "pods"), ns=ns, subject=subject)
    acting = api.acting_as(f"system:serviceaccount:{ns}:robot")
    reason = f'RBAC: allowed by RoleBinding "{name}/{ns}" of Role "{name}" to ServiceAccount "robot/{ns}"'

    async def told():
        return await may(acting, **PODS, namespace=ns) == {"allowed": True, "reason": reason}

    await until(told)


async def test_a_review_comes_back_with_its_spec(api):
    answer = await api.create(SELF, {"spec": {"resourceAttributes": PODS}})
    assert answer["spec"] == {"resourceAttributes": PODS}
    (entry,) = answer.meta["managedFields"]
    assert entry["fieldsV1"] == {
        "f:spec": {"f:resourceAttributes": {".": {}, "f:resource": {}, "f:verb": {}}}
    }
    assert set(answer.meta) == {"managedFields"}


async def test_a_review_warns_of_unknown_fields(api):
    answer = await api.create(SELF, {"spec": {"resourceAttributes": PODS, "bad": 1}})
    assert answer.status == 201
    assert answer.headers["warning"] == '299 - "unknown field \\"spec.bad\\""'
    strict = await api.create(
        SELF, {"spec": {"resourceAttributes": PODS, "bad": 1}}, fieldValidation="Strict"
    )
    assert strict.refusal == (400, "BadRequest")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, f"spec: Invalid value: null: {ONE_OF_TWO}"),
        (
            {"resourceAttributes": PODS, "nonResourceAttributes": {"path": "/x", "verb": "get"}},
            f'spec: Invalid value: {{"Path":"/x","Verb":"get"}}: {ONE_OF_TWO}',
        ),
        (
            {"resourceAttributes": {**PODS, "labelSelector": {}}},
            "spec.resourceAttributes.labelSelector.requirements: Required value: when "
            "spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required",
        ),
    ],
)
async def test_a_review_asks_one_thing(api, spec, message):
    refused = await api.create(SELF, {"spec": spec})
    assert refused.refusal == (422, "Invalid")
    assert refused.message == f'.authorization.k8s.io "" is invalid: {message}'


async def test_selectors_of_a_review_are_taken(api):
    spec = {"resourceAttributes": {**PODS, "fieldSelector": {"rawSelector": "a=b"}}}
    assert (await api.create(SELF, {"spec": spec}))["status"] == {"allowed": True}


async def test_a_review_has_no_metadata(api):
    refused = await api.create(SELF, {"metadata": {"name": "x"}, "spec": {"resourceAttributes": PODS}})
    assert refused.refusal == (422, "Invalid")
    assert refused.fields == {"metadata"}
    assert refused.message.startswith(
        '.authorization.k8s.io "" is invalid: metadata: Invalid value: {"name":"x",'
    )
    assert refused.message.endswith("}: must be empty")


async def test_others_are_asked_about_by_name_and_groups(api):
    asked = await api.create(SUBJECT, {"spec": {"user": "jo", "resourceAttributes": PODS}})
    assert asked["status"] == {"allowed": False}
    spec = {"groups": ["system:masters"], "resourceAttributes": PODS}
    assert (await api.create(SUBJECT, {"spec": spec}))["status"] == {"allowed": True}
    spec = {
        "user": "jo",
        "uid": "u",
        "extra": {"a": ["b"]},
        "nonResourceAttributes": {"path": "/api", "verb": "get"},
    }
    assert (await api.create(SUBJECT, {"spec": spec}))["status"] == {"allowed": False}


async def test_others_need_a_name_or_groups(api):
    refused = await api.create(SUBJECT, {"spec": {}})
    assert refused.message == (
        f'.authorization.k8s.io "" is invalid: [spec: Invalid value: null: {ONE_OF_TWO}, spec.user: Invalid value: "": '
        "at least one of user or group must be specified]"
    )


async def test_asking_about_others_is_a_right_of_its_own(api):
    refused = await api.acting_as("jo").create(SUBJECT, {"spec": {"user": "jo", "resourceAttributes": PODS}})
    assert refused.refusal == (403, "Forbidden")


async def test_a_local_review_is_about_its_namespace(api, ns, name):
    await grant(api, name, rule("get", "pods"), ns=ns)
    spec = {"user": name, "resourceAttributes": {**PODS, "namespace": ns}}
    answer = await api.create(local(ns), {"spec": spec})
    assert answer["status"]["allowed"] is True
    assert answer.meta["namespace"] == ns


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            {"resourceAttributes": {**PODS, "namespace": "other"}},
            'spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace',
        ),
        (
            {"resourceAttributes": PODS},
            'spec.resourceAttributes.namespace: Invalid value: "": must match metadata.namespace',
        ),
        (
            {"nonResourceAttributes": {"path": "/x", "verb": "get"}},
            'spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: disallowed on this kind of request',
        ),
    ],
)
async def test_a_local_review_is_about_nothing_else(api, attributes, message):
    refused = await api.create(local("default"), {"spec": {"user": "jo", **attributes}})
    assert refused.refusal == (422, "Invalid")
    assert refused.message == f'.authorization.k8s.io "" is invalid: {message}'


async def test_a_local_review_needs_its_namespace(api):
    refused = await api.create(f"{REVIEWS}/localsubjectaccessreviews", {})
    assert refused.refusal == (404, "NotFound")


async def test_the_namespace_of_a_local_review_need_not_exist(api):
    spec = {"user": "jo", "resourceAttributes": {**PODS, "namespace": "nowhere"}}
    assert (await api.create(local("nowhere"), {"spec": spec}))["status"] == {"allowed": False}


async def test_rules_are_those_of_a_user_in_a_namespace(api, ns, name):
    jo = await grant(api, name, rule("get", "pods", resourceNames=["a"]), ns=ns)
    answer = await rules_of(jo, ns)
    status = answer["status"]
    assert status["incomplete"] is False
    assert answer["spec"] == {}
    assert rule("get", "pods", resourceNames=["a"]) in status["resourceRules"]
    assert rule("create", "selfsubjectreviews", "authentication.k8s.io") in status["resourceRules"]
    assert {"verbs": ["get"], "nonResourceURLs": DISCOVERY} in status["nonResourceRules"]
    elsewhere = (await rules_of(jo, "default"))["status"]["resourceRules"]
    assert rule("get", "pods", resourceNames=["a"]) not in elsewhere


async def test_rules_of_an_administrator_are_everything(api):
    status = (await rules_of(api, "default"))["status"]
    assert rule("*", "*", "*") in status["resourceRules"]
    assert {"verbs": ["*"], "nonResourceURLs": ["*"]} in status["nonResourceRules"]


async def test_rules_need_a_namespace(api):
    refused = await api.create(RULES, {"spec": {}})
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == "no namespace on request"


@pytest.mark.parametrize("path", [WHOAMI, SELF, SUBJECT, RULES])
async def test_reviews_are_only_created(api, path):
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        assert (await api.call(method, path, {})).refusal == (405, "MethodNotAllowed"), method
    assert (await api.get(f"{path}/x")).refusal == (404, "NotFound")
    assert (await api.delete(f"{path}/x")).refusal == (404, "NotFound")


@pytest.mark.parametrize("path", [SELF, WHOAMI])
async def test_nobody_asks_about_rights(api, path):
    assert (await api.bearing("").create(path, {})).refusal == (403, "Forbidden")


async def test_a_review_of_another_kind_is_refused(api):
    refused = await api.create(
        SELF, {"kind": "Pod", "apiVersion": "v1", "spec": {"resourceAttributes": PODS}}
    )
    assert refused.refusal == (400, "BadRequest")


async def test_a_dry_run_is_answered_all_the_same(api):
    answer = await api.create(SELF, {"spec": {"resourceAttributes": PODS}}, dryRun="All")
    assert answer["status"] == {"allowed": True}
