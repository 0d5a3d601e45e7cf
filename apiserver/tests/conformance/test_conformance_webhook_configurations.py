"""MutatingWebhookConfiguration and ValidatingWebhookConfiguration: defaults and validation."""

from __future__ import annotations

import pytest
from conformance_kinds import DEFINITIONS, definition
from conformance_registration import CONFIG_MAPS, REGISTRATION

MUTATING = f"{REGISTRATION}/mutatingwebhookconfigurations"
VALIDATING = f"{REGISTRATION}/validatingwebhookconfigurations"
WEBHOOK = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://127.0.0.1:1/x"},
    "rules": [CONFIG_MAPS],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def configuration(name, *webhooks):
    return {"metadata": {"name": name}, "webhooks": list(webhooks)}


def service(**fields):
    return {"service": {"name": "a", "namespace": "b", **fields}}


async def test_what_is_not_said_of_a_mutating_webhook_is_defaulted(api, name):
    made = await api.create(MUTATING, configuration(name, WEBHOOK), dryRun="All")
    assert made["webhooks"] == [
        {
            **WEBHOOK,
            "rules": [{**CONFIG_MAPS, "scope": "*"}],
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "timeoutSeconds": 10,
            "reinvocationPolicy": "Never",
        }
    ]


async def test_a_validating_webhook_has_no_reinvocation(api, name):
    made = await api.create(
        VALIDATING, configuration(name, {**WEBHOOK, "reinvocationPolicy": "Never"}), dryRun="All"
    )
    assert "reinvocationPolicy" not in made["webhooks"][0]
    assert made.headers["warning"] == '299 - "unknown field \\"webhooks[0].reinvocationPolicy\\""'


async def test_the_port_of_a_service_is_defaulted(api, name):
    webhook = {**WEBHOOK, "clientConfig": service(path="/x/")}
    made = await api.create(MUTATING, configuration(name, webhook), dryRun="All")
    assert made["webhooks"][0]["clientConfig"]["service"]["port"] == 443


async def test_a_bundle_that_is_not_base64_cannot_be_decoded(api, name):
    webhook = {**WEBHOOK, "clientConfig": {"url": "https://a", "caBundle": "!!"}}
    answer = await api.create(MUTATING, configuration(name, webhook))
    assert answer.refusal == (400, "BadRequest")


async def test_names_of_webhooks_are_unique(api, name):
    answer = await api.create(MUTATING, configuration(name, WEBHOOK, WEBHOOK))
    assert answer.causes == {
        ("webhooks[1].name", "FieldValueDuplicate", 'Duplicate value: "a.example.com"'),
    }


async def test_a_version_of_reviews_that_is_no_name_is_none_that_the_server_knows_either(api, name):
    answer = await api.create(MUTATING, configuration(name, {**WEBHOOK, "admissionReviewVersions": ["A"]}))
    place = "webhooks[0].admissionReviewVersions"
    assert {field for field, _, _ in answer.causes} == {place, f"{place}[0]"}
    webhook = {"conversionReviewVersions": ["A"], "clientConfig": {"url": "https://example.com/convert"}}
    made = definition("reviews.example.com")
    made["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    refused = await api.create(DEFINITIONS, made)
    place = "spec.conversion.conversionReviewVersions"
    assert {field for field, _, _ in refused.causes} == {place, f"{place}[0]"}


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"name": ""}, "name", "Required value"),
        ({"name": "A_b.c.d"}, "name", f'Invalid value: "A_b.c.d": {SUBDOMAIN}'),
        (
            {"name": "a.b"},
            "name",
            'Invalid value: "a.b": should be a domain with at least three segments separated by dots',
        ),
        ({"sideEffects": None}, "sideEffects", "Required value: must specify one of None, NoneOnDryRun"),
        (
            {"sideEffects": "Some"},
            "sideEffects",
            'Unsupported value: "Some": supported values: "None", "NoneOnDryRun"',
        ),
        (
            {"admissionReviewVersions": []},
            "admissionReviewVersions",
            "Required value: must specify one of v1, v1beta1",
        ),
        (
            {"admissionReviewVersions": ["v2"]},
            "admissionReviewVersions",
            'Invalid value: ["v2"]: must include at least one of v1, v1beta1',
        ),
        (
            {"admissionReviewVersions": ["v1", "v1"]},
            "admissionReviewVersions[1]",
            'Invalid value: "v1": duplicate version',
        ),
        (
            {"timeoutSeconds": 0},
            "timeoutSeconds",
            "Invalid value: 0: the timeout value must be between 1 and 30 seconds",
        ),
        (
            {"timeoutSeconds": 31},
            "timeoutSeconds",
            "Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        (
            {"failurePolicy": "x"},
            "failurePolicy",
            'Unsupported value: "x": supported values: "Fail", "Ignore"',
        ),
        (
            {"reinvocationPolicy": "x"},
            "reinvocationPolicy",
            'Unsupported value: "x": supported values: "IfNeeded", "Never"',
        ),
        ({"clientConfig": {}}, "clientConfig", "Required value: exactly one of url or service is required"),
        (
            {"clientConfig": {"url": "http://a"}},
            "clientConfig.url",
            "Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
        ),
        (
            {"clientConfig": {"url": "https://"}},
            "clientConfig.url",
            'Invalid value: "": host must be specified; desired format: https://host[/path]',
        ),
        (
            {"clientConfig": {"url": "https://a:b@c"}},
            "clientConfig.url",
            'Invalid value: "a:b": user information is not permitted in the URL',
        ),
        (
            {"clientConfig": {"url": "https://a/?x=1"}},
            "clientConfig.url",
            'Invalid value: "x=1": query parameters are not permitted in the URL',
        ),
        (
            {"clientConfig": service(port=0)},
            "clientConfig.service.port",
            "Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
        ),
        (
            {"clientConfig": service(path="/x//y")},
            "clientConfig.service.path",
            'Invalid value: "/x//y": segment[1] may not be empty',
        ),
        (
            {"rules": [{**CONFIG_MAPS, "operations": ["X"]}]},
            "rules[0].operations[0]",
            'Unsupported value: "X": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"',
        ),
        (
            {"rules": [{**CONFIG_MAPS, "apiGroups": ["*", "a"]}]},
            "rules[0].apiGroups",
            'Invalid value: ["*","a"]: if \'*\' is present, must not specify other API groups',
        ),
        (
            {"rules": [{**CONFIG_MAPS, "resources": ["a/*", "a/b"]}]},
            "rules[0].resources[1]",
            "Invalid value: \"a/b\": if 'a/*' is present, must not specify a/b",
        ),
        (
            {"rules": [{**CONFIG_MAPS, "resources": ["*", "a"]}]},
            "rules[0].resources",
            'Invalid value: ["*","a"]: if \'*\' is present, must not specify other resources without subresources',
        ),
        (
            {"rules": [{**CONFIG_MAPS, "scope": "x"}]},
            "rules[0].scope",
            'Unsupported value: "x": supported values: "*", "Cluster", "Namespaced"',
        ),
        (
            {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "X"}]}},
            "objectSelector.matchExpressions[0].operator",
            'Invalid value: "X": not a valid selector operator',
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "1"}]},
            "matchConditions[0].expression",
            'Invalid value: "1": must evaluate to bool but got int',
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "foo.bar == 'a'"}]},
            "matchConditions[0].expression",
            "Invalid value: \"foo.bar == 'a'\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' "
            "(in container '')\n | foo.bar == 'a'\n | ^",
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]},
            "matchConditions[1].name",
            'Duplicate value: "a"',
        ),
    ],
)
async def test_a_webhook_that_is_refused(api, name, fields, field, message):
    answer = await api.create(MUTATING, configuration(name, {**WEBHOOK, **fields}))
    assert answer.refusal == (422, "Invalid")
    assert {(path, said) for path, _, said in answer.causes} == {(f"webhooks[0].{field}", message)}


async def test_a_rule_without_anything_lacks_four_fields(api, name):
    answer = await api.create(VALIDATING, configuration(name, {**WEBHOOK, "rules": [{}]}))
    assert answer.fields == {
        f"webhooks[0].rules[0].{field}" for field in ("operations", "apiGroups", "apiVersions", "resources")
    }
