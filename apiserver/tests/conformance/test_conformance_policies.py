"""ValidatingAdmissionPolicies and their bindings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from conformance_api import Api, until
from conformance_kinds import config_map, site
from conformance_registration import CONFIG_MAPS, REGISTRATION, PolicyRegistration

POLICIES = f"{REGISTRATION}/validatingadmissionpolicies"
BINDINGS = f"{REGISTRATION}/validatingadmissionpolicybindings"
SPEC = {"matchConstraints": {"resourceRules": [CONFIG_MAPS]}, "validations": [{"expression": "true"}]}
BINDING = {"policyName": "p", "validationActions": ["Deny"]}


@pytest.fixture
async def policies(api, ns) -> AsyncIterator[PolicyRegistration]:
    registration = PolicyRegistration(api, ns)
    yield registration
    await registration.remove()


def check(expression: str, **fields: Any) -> dict[str, Any]:
    return {"expression": expression, **fields}


# Messages of denials


async def test_a_write_that_does_not_satisfy_an_expression_is_refused(api, maps, ns, policies):
    await policies.create(validations=[check("has(object.data)")])
    assert (await api.create(maps, config_map(data={"a": "1"}))).status == 201
    answer = await api.create(maps, config_map("b"))
    assert answer.refusal == (422, "Invalid")
    denied = f"ValidatingAdmissionPolicy '{ns}' with binding '{ns}' denied request: failed expression: has(object.data)"
    assert answer.message == f'configmaps "b" is forbidden: {denied}'
    assert answer.details == {"name": "b", "kind": "configmaps", "causes": [{"message": denied}]}


@pytest.mark.parametrize(
    ("fields", "code", "reason", "message"),
    [
        ({"message": "no data"}, 422, "Invalid", "no data"),
        ({"reason": "Forbidden"}, 403, "Forbidden", "failed expression: has(object.data)"),
        (
            {"reason": "RequestEntityTooLarge"},
            413,
            "RequestEntityTooLarge",
            "failed expression: has(object.data)",
        ),
        (
            {"messageExpression": "object.metadata.name + ' is empty'", "message": "unused"},
            422,
            "Invalid",
            "a is empty",
        ),
        ({"messageExpression": "'' + object.missing", "message": "instead"}, 422, "Invalid", "instead"),
        ({"messageExpression": "'two\\nlines'", "message": "instead"}, 422, "Invalid", "instead"),
        ({"messageExpression": "'  '"}, 422, "Invalid", "failed expression: has(object.data)"),
    ],
)
async def test_a_refusal_speaks_as_the_validation_says(
    api, maps, ns, policies, fields, code, reason, message
):
    await policies.create(validations=[check("has(object.data)", **fields)])
    answer = await api.create(maps, config_map())
    assert answer.refusal == (code, reason)
    assert answer.message.endswith(f"with binding '{ns}' denied request: {message}")


async def test_the_first_validation_that_fails_speaks(api, maps, policies):
    await policies.create(
        validations=[
            check("true", message="one"),
            check("false", message="two"),
            check("false", message="three"),
        ]
    )
    assert (await api.create(maps, config_map())).message.endswith("denied request: two")


async def test_an_object_without_a_name_is_called_by_its_prefix(api, maps, policies):
    await policies.create(validations=[check("false")])
    answer = await api.create(maps, {"metadata": {"generateName": "g-"}})
    assert answer.message.startswith('configmaps "g-')


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("object.data.missing == 'a'", "no such key: missing"),
        ("1 / (size(object.metadata.name) - 1) == 1", "division by zero"),
        ("[1][size(object.metadata.name)] == 1", "index out of bounds: 1"),
        ("object.metadata.name + 1 == 2", "no such overload"),
    ],
)
async def test_an_expression_that_fails_refuses_the_write(api, maps, policies, expression, problem):
    await policies.create(validations=[check(expression)])
    answer = await api.create(maps, config_map(data={"a": "1"}))
    assert answer.refusal == (422, "Invalid")
    assert answer.message.endswith(f"denied request: expression '{expression}' resulted in error: {problem}")


async def test_an_expression_that_fails_is_ignored_where_failures_are(api, maps, policies):
    await policies.create(
        failurePolicy="Ignore", validations=[check("object.data.missing == 'a'"), check("has(object.data)")]
    )
    assert (await api.create(maps, config_map(data={"a": "1"}))).status == 201
    assert (await api.create(maps, config_map("b"))).status == 422


# Actions


async def test_a_binding_may_warn_instead(api, maps, ns, policies):
    await policies.create(
        {"validationActions": ["Warn"]}, validations=[check("has(object.data)", message="empty")]
    )
    answer = await api.create(maps, config_map())
    assert answer.status == 201
    assert answer.headers["warning"] == (
        f"299 - \"Validation failed for ValidatingAdmissionPolicy '{ns}' with binding '{ns}': empty\""
    )


async def test_a_binding_may_only_be_audited(api, maps, policies):
    await policies.create({"validationActions": ["Audit"]}, validations=[check("has(object.data)")])
    answer = await api.create(maps, config_map())
    assert (answer.status, answer.headers.get("warning")) == (201, None)


async def test_a_policy_without_a_binding_is_not_in_force(api, maps, ns, policies):
    await policies.create(bound=False, validations=[check("has(object.data)")])
    assert (await api.create(maps, config_map())).status == 201


# Variables


async def test_expressions_see_the_request(api, maps, ns, policies):
    seen = (
        "[request.operation, request.kind.kind, request.resource.resource, request.namespace, request.name, "
    )
    seen += "request.userInfo.username, string(request.dryRun)].join(' ')"
    await policies.create(validations=[check("false", messageExpression=seen)])
    answer = await api.create(maps, config_map())
    assert answer.message.endswith(f": CREATE ConfigMap configmaps {ns} a admin false")


@pytest.mark.parametrize(
    ("operation", "seen"), [("CREATE", "true false"), ("UPDATE", "true true"), ("DELETE", "false true")]
)
async def test_expressions_see_the_object_and_what_it_was(api, maps, policies, operation, seen):
    shown = "string(object != null) + ' ' + string(oldObject != null)"
    await policies.create(validations=[check(f"request.operation != '{operation}'", messageExpression=shown)])
    answer = await api.create(maps, config_map())
    if operation == "UPDATE":
        answer = await api.merge(f"{maps}/a", {"data": {"a": "1"}})
    if operation == "DELETE":
        answer = await api.delete(f"{maps}/a")
    assert answer.status == 422
    assert answer.message.endswith(f"denied request: {seen}")


async def test_expressions_see_the_namespace(api, maps, ns, policies):
    await policies.create(
        validations=[
            check("false", messageExpression="namespaceObject.metadata.name + namespaceObject.status.phase")
        ]
    )
    assert (await api.create(maps, config_map())).message.endswith(f": {ns}Active")


async def test_variables_are_made_of_those_before_them(api, maps, policies):
    await policies.create(
        variables=[
            {"name": "name", "expression": "string(object.metadata.name)"},
            {"name": "twice", "expression": "variables.name + variables.name"},
        ],
        validations=[check("variables.twice == 'aa'", messageExpression="variables.twice")],
    )
    assert (await api.create(maps, config_map())).status == 201
    assert (await api.create(maps, config_map("b"))).message.endswith(": bb")


async def test_a_variable_that_fails_matters_only_where_it_is_needed(api, maps, policies):
    await policies.create(
        variables=[{"name": "bad", "expression": "object.data.missing"}],
        validations=[check("object.metadata.name == 'a' || variables.bad == 'x'")],
    )
    assert (await api.create(maps, config_map("a", data={"a": "1"}))).status == 201
    answer = await api.create(maps, config_map("b", data={"a": "1"}))
    assert answer.status == 422
    assert answer.message.endswith(
        'resulted in error: composited variable "bad" fails to evaluate: no such key: missing'
    )


async def test_expressions_may_ask_whether_a_field_of_the_request_is_there(api, maps, policies):
    await policies.create(
        validations=[
            check("has(request.name) && !has(request.subResource) && request.?name.orValue('') == 'a'")
        ]
    )
    assert (await api.create(maps, config_map("a"))).status == 201
    assert (await api.create(maps, config_map("b"))).status == 422


async def test_optional_fields_and_the_functions_of_kubernetes_can_be_used(api, maps, policies):
    await policies.create(
        validations=[
            check("object.?data[?'size'].orValue('1Gi').matches('^[0-9]+Gi$')"),
            check("!has(object.data) || quantity(object.data.size).isLessThan(quantity('10Gi'))"),
            check("object.?data.optMap(data, data.all(key, value, key == 'size')).orValue(true)"),
        ]
    )
    assert (await api.create(maps, config_map(data={"size": "9Gi"}))).status == 201
    assert (await api.create(maps, config_map("b", data={"size": "10Gi"}))).status == 422
    assert (await api.create(maps, config_map("c", data={"other": "9Gi"}))).status == 422


async def test_expressions_may_ask_what_the_user_may_do(api, maps, ns, policies):
    await policies.create(
        validations=[
            check(
                "authorizer.group('').resource('secrets').namespace(request.namespace).check('delete').allowed()"
            ),
        ]
    )
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}"
    await api.create(f"{roles}/roles", {"metadata": {"name": "writer"}, "rules": rules})
    subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": ns}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"}
    binding = {"metadata": {"name": "writer"}, "subjects": subjects, "roleRef": reference}
    await api.create(f"{roles}/rolebindings", binding)
    assert (await api.create(maps, config_map("a"))).status == 201

    async def refused() -> bool:
        return (await api.acting_as(ns).create(maps, config_map("b"))).status == 422

    await until(refused)  # until the role is in force


@pytest.mark.parametrize(
    ("asked", "holds"),
    [
        ("authorizer.path('/healthz').check('get').allowed()", True),
        ("authorizer.requestResource.check('anything').allowed()", True),
        ("authorizer.serviceAccount('a', 'b').group('').resource('pods').check('get').allowed()", False),
        ("authorizer.serviceAccount('a', 'b').path('/healthz').check('get').allowed()", False),
        ("authorizer.serviceAccount('a', 'b').path('/other').check('get').errored()", False),
        ("authorizer.serviceAccount('a', 'b').path('/other').check('get').reason() == ''", True),
        (
            "authorizer.group('apps').resource('deployments').subresource('scale').check('get').error() == ''",
            True,
        ),
    ],
)
async def test_an_authorizer_answers(api, maps, policies, asked, holds):
    await policies.create(validations=[check(asked)])
    assert (await api.create(maps, config_map())).status == (201 if holds else 422)


# Matching


@pytest.mark.parametrize(
    ("constraints", "refused"),
    [
        ({}, True),
        ({"resourceRules": [{**CONFIG_MAPS, "operations": ["DELETE"]}]}, False),
        ({"resourceRules": [{**CONFIG_MAPS, "resourceNames": ["a"]}]}, True),
        ({"resourceRules": [{**CONFIG_MAPS, "resourceNames": ["b"]}]}, False),
        ({"excludeResourceRules": [{**CONFIG_MAPS, "resourceNames": ["a"]}]}, False),
        ({"excludeResourceRules": [{**CONFIG_MAPS, "resources": ["secrets"]}]}, True),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, True),
        ({"objectSelector": {"matchLabels": {"a": "c"}}}, False),
    ],
)
async def test_constraints_say_to_which_writes_a_policy_speaks(api, maps, policies, constraints, refused):
    await policies.create(validations=[check("false")], matchConstraints=constraints)
    answer = await api.create(maps, config_map(labels={"a": "b"}))
    assert answer.status == (422 if refused else 201)


async def test_a_binding_narrows_its_policy(api, maps, policies):
    resources = {"objectSelector": {"matchLabels": {"a": "b"}}}
    await policies.create({"matchResources": resources}, validations=[check("false")])
    assert (await api.create(maps, config_map("a"))).status == 201
    assert (await api.create(maps, config_map("b", labels={"a": "b"}))).status == 422


async def test_match_conditions_narrow_a_policy(api, maps, policies):
    await policies.create(
        matchConditions=[{"name": "a", "expression": "object.metadata.name == 'a'"}],
        validations=[check("false")],
    )
    assert (await api.create(maps, config_map("a"))).status == 422
    assert (await api.create(maps, config_map("b"))).status == 201


async def test_a_match_condition_that_fails_refuses_the_write(api, maps, policies):
    await policies.create(matchConditions=[{"name": "a", "expression": "object.data.missing == 'a'"}])
    answer = await api.create(maps, config_map(data={"a": "1"}))
    assert answer.refusal == (422, "Invalid")
    assert answer.message.endswith(
        "denied request: expression 'object.data.missing == 'a'' resulted in error: no such key: missing"
    )


# Parameters


async def test_a_policy_is_evaluated_with_its_parameter(api, maps, ns, policies):
    await api.create(maps, config_map("limits", data={"name": "a"}))
    await policies.create(
        {"paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}},
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        validations=[
            check("object.metadata.name == params.data.name", messageExpression="'not ' + params.data.name")
        ],
    )
    assert (await api.create(maps, config_map("a"))).status == 201
    assert (await api.create(maps, config_map("b"))).message.endswith("denied request: not a")


async def test_a_policy_is_evaluated_with_every_selected_parameter(api, maps, policies):
    for name, least in (("one", "b"), ("two", "c")):
        await api.create(maps, config_map(name, data={"least": least}, labels={"limit": "yes"}))
    await policies.create(
        {"paramRef": {"selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Deny"}},
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        validations=[check("object.metadata.name >= params.data.least")],
    )
    assert (await api.create(maps, config_map("b"))).status == 422
    assert (await api.create(maps, config_map("c"))).status == 201


@pytest.mark.parametrize(("action", "status"), [("Deny", 422), ("Allow", 201)])
async def test_a_parameter_that_is_missing_refuses_or_passes(api, maps, ns, policies, action, status):
    await policies.create(
        {"paramRef": {"name": "missing", "parameterNotFoundAction": action}},
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        validations=[check("params != null")],
    )
    answer = await api.create(maps, config_map())
    assert answer.status == status
    if action == "Deny":
        assert answer.message.endswith(
            f"with binding '{ns}' denied request: failed to configure binding: no params found for policy binding with "
            "`Deny` parameterNotFoundAction"
        )


async def test_a_binding_without_a_reference_has_no_parameter(api, maps, policies):
    await policies.create(
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"}, validations=[check("params == null")]
    )
    assert (await api.create(maps, config_map())).status == 201


# The fence of a ring: a shard writes only objects whose label names it


async def test_only_the_shard_that_an_object_is_assigned_to_may_write_it(api, sites, ns, policies):
    account = f"system:serviceaccount:{ns}:operator"
    await api.create(f"/api/v1/namespaces/{ns}/configmaps", config_map("ring"))
    rule = {
        "apiGroups": ["conformance.example.com"],
        "apiVersions": ["*"],
        "operations": ["UPDATE", "DELETE"],
    }
    await policies.create(
        {"paramRef": {"name": "ring", "parameterNotFoundAction": "Deny"}},
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        matchConstraints={"resourceRules": [{**rule, "resources": ["sites", "sites/*"]}]},
        matchConditions=[{"name": "shard", "expression": f"request.userInfo.username == '{account}'"}],
        variables=[
            {"name": "key", "expression": "'shard.alpha.sharding.timebertt.dev/' + params.metadata.name"},
            {
                "name": "me",
                "expression": "request.userInfo.?extra[?'authentication.kubernetes.io/pod-name'].orValue([''])[0]",
            },
            {"name": "owner", "expression": "oldObject.metadata.?labels[?variables.key].orValue('')"},
        ],
        validations=[check("variables.me != '' && variables.me == variables.owner", reason="Forbidden")],
    )
    label = "shard.alpha.sharding.timebertt.dev/ring"
    await api.create(sites, site(metadata={"labels": {label: "shard-a"}}))

    def shard(pod: str) -> Api:
        extra = {"Extra-authentication.kubernetes.io%2Fpod-name": pod} if pod else {}
        return api.acting_as(account, "system:masters", **extra)

    path = f"{sites}/a"
    assert (await shard("shard-a").merge(path, {"spec": {"replicas": 2}})).status == 200
    assert (await api.merge(path, {"spec": {"replicas": 3}})).status == 200
    for stranger in (shard("shard-b"), shard("")):
        answer = await stranger.merge(path, {"spec": {"replicas": 4}})
        assert answer.refusal == (403, "Forbidden")
        assert answer.message == (
            f"sites.conformance.example.com \"a\" is forbidden: ValidatingAdmissionPolicy '{ns}' with binding '{ns}' "
            "denied request: failed expression: variables.me != '' && variables.me == variables.owner"
        )
        assert (await stranger.merge(f"{path}/status", {"status": {"phase": "Ready"}})).status == 403
        assert (await stranger.delete(path)).status == 403
    released = {"metadata": {"labels": {label: None}}}
    assert (await shard("shard-a").merge(path, released)).status == 200
    assert (await shard("shard-a").merge(path, {"spec": {"replicas": 5}})).status == 403


# Defaults and validation


async def test_what_is_not_said_of_a_policy_is_defaulted(api, name):
    made = await api.create(POLICIES, {"metadata": {"name": name}, "spec": SPEC}, dryRun="All")
    assert made["spec"] == {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "resourceRules": [{**CONFIG_MAPS, "scope": "*"}],
        },
        "validations": [{"expression": "true"}],
    }


async def test_what_is_not_said_of_a_binding_is_defaulted(api, name):
    spec = {**BINDING, "matchResources": {}}
    made = await api.create(BINDINGS, {"metadata": {"name": name}, "spec": spec}, dryRun="All")
    assert made["spec"] == {
        **BINDING,
        "matchResources": {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}},
    }


COMPILED = "Invalid value: {0}: compilation failed: ERROR: <input>:1:{1}: {2}\n | {3}\n | {4}^"


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"matchConstraints": None}, "matchConstraints", "Required value"),
        ({"matchConstraints": {}}, "matchConstraints.resourceRules", "Required value"),
        (
            {"failurePolicy": "x"},
            "failurePolicy",
            'Unsupported value: "x": supported values: "Fail", "Ignore"',
        ),
        (
            {"validations": [check(" ")]},
            "validations[0].expression",
            "Required value: expression is not specified",
        ),
        (
            {"validations": [check("1")]},
            "validations[0].expression",
            'Invalid value: "1": must evaluate to bool but got int',
        ),
        (
            {"validations": [check("object.a")]},
            "validations[0].expression",
            'Invalid value: "object.a": must evaluate to bool but got dyn',
        ),
        (
            {"validations": [check("params.a == 1")]},
            "validations[0].expression",
            COMPILED.format(
                '"params.a == 1"',
                1,
                "undeclared reference to 'params' (in container '')",
                "params.a == 1",
                "",
            ),
        ),
        (
            {"validations": [check("1 + 'a' == 2")]},
            "validations[0].expression",
            COMPILED.format(
                "\"1 + 'a' == 2\"",
                3,
                "found no matching overload for '_+_' applied to '(int, string)'",
                "1 + 'a' == 2",
                "..",
            ),
        ),
        (
            {"validations": [check("'a'.reverse() == 'a'")]},
            "validations[0].expression",
            COMPILED.format(
                "\"'a'.reverse() == 'a'\"",
                12,
                "found no matching overload for 'reverse' applied to 'string.()'",
                "'a'.reverse() == 'a'",
                "...........",
            ),
        ),
        (
            {"validations": [check("true", reason="X")]},
            "validations[0].reason",
            'Unsupported value: "X": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"',
        ),
        (
            {"validations": [check("true", message="a\nb")]},
            "validations[0].message",
            'Invalid value: "a\\nb": must not contain line breaks',
        ),
        (
            {"validations": [check("true", messageExpression="1")]},
            "validations[0].messageExpression",
            'Invalid value: "1": must evaluate to string but got int',
        ),
        (
            {"validations": [check("true", messageExpression="string(authorizer == null)")]},
            "validations[0].messageExpression",
            COMPILED.format(
                '"string(authorizer == null)"',
                8,
                "undeclared reference to 'authorizer' (in container '')",
                "string(authorizer == null)",
                ".......",
            ),
        ),
        (
            {"variables": [{"name": "a-b", "expression": "1"}]},
            "variables[0].name",
            'Invalid value: "a-b": must be a valid CEL identifier',
        ),
        (
            {"variables": [{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}]},
            "variables[0].expression",
            COMPILED.format('"variables.b"', 10, "undefined field 'b'", "variables.b", "........."),
        ),
        (
            {"paramKind": {"apiVersion": "a/b/c", "kind": "A"}},
            "paramKind.apiVersion",
            'Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
        ),
        (
            {"matchConstraints": {"resourceRules": [{**CONFIG_MAPS, "resourceNames": ["a", "a"]}]}},
            "matchConstraints.resourceRules[0].resourceNames[1]",
            'Duplicate value: "a"',
        ),
        (
            {"auditAnnotations": [{"key": "a", "valueExpression": "1"}]},
            "auditAnnotations[0].valueExpression",
            'Invalid value: "1": must evaluate to one of [string null_type] but got int',
        ),
    ],
)
async def test_a_policy_that_is_refused(api, name, fields, field, message):
    answer = await api.create(POLICIES, {"metadata": {"name": name}, "spec": {**SPEC, **fields}})
    assert answer.refusal == (422, "Invalid")
    assert {(path, said) for path, _, said in answer.causes} == {(f"spec.{field}", message)}


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"policyName": ""}, "policyName", "Required value"),
        (
            {"validationActions": []},
            "validationActions",
            "Required value",
        ),
        (
            {"validationActions": ["x"]},
            "validationActions[0]",
            'Unsupported value: "x": supported values: "Audit", "Deny", "Warn"',
        ),
        ({"validationActions": ["Deny", "Deny"]}, "validationActions[1]", 'Duplicate value: "Deny"'),
        (
            {"validationActions": ["Deny", "Warn"]},
            "validationActions",
            'Invalid value: ["Deny","Warn"]: must not contain both Deny and Warn (repeating the same validation '
            "failure information in the API response and headers serves no purpose)",
        ),
        ({"paramRef": {"name": "a"}}, "paramRef.parameterNotFoundAction", "Required value"),
        (
            {"paramRef": {"parameterNotFoundAction": "Deny"}},
            "paramRef",
            "Required value: one of name or selector must be specified",
        ),
        (
            {"paramRef": {"name": "a", "parameterNotFoundAction": "x"}},
            "paramRef.parameterNotFoundAction",
            'Unsupported value: "x": supported values: "Deny", "Allow"',
        ),
    ],
)
async def test_a_binding_that_is_refused(api, name, fields, field, message):
    answer = await api.create(BINDINGS, {"metadata": {"name": name}, "spec": {**BINDING, **fields}})
    assert answer.refusal == (422, "Invalid")
    assert {(path, said) for path, _, said in answer.causes} == {(f"spec.{field}", message)}
