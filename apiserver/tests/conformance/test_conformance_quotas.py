"""ResourceQuotas as objects; LimitRanges and their effect on pods and claims."""

import pytest
from conformance_workloads import (
    NOT_NEGATIVE,
    QUALIFIED,
    claim,
    duplicate,
    forbidden,
    invalid,
    pod_of,
    required,
)

EXISTS = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def quota(**spec):
    return {"metadata": {"name": "a"}, "spec": spec}


def limits(*given):
    return {"metadata": {"name": "a"}, "spec": {"limits": list(given)}}


@pytest.fixture
def quotas(ns):
    return f"/api/v1/namespaces/{ns}/resourcequotas"


@pytest.fixture
def ranges(ns):
    return f"/api/v1/namespaces/{ns}/limitranges"


async def test_a_minimal_quota(api, quotas):
    made = await api.create(quotas, {"metadata": {"name": "a"}})
    assert (made["spec"], made["status"]) == ({}, {})
    assert "generation" not in made.meta


async def test_a_quota_of_many_things(api, quotas):
    hard = {
        "pods": "1",
        "cpu": "500m",
        "requests.memory": "1Gi",
        "count/deployments.apps": "3",
        "requests.example.com/x": "1",
        "x.storageclass.storage.k8s.io/requests.storage": "1Gi",
    }
    assert (await api.create(quotas, quota(hard=hard)))["spec"]["hard"] == hard


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {"hard": {"x": "1"}},
            {
                invalid("spec.hard[x]", '"x"', "must be a standard resource for quota"),
                invalid("spec.hard[x]", '"x"', "must be a standard resource type or fully qualified"),
            },
        ),
        ({"hard": {"pods": "-1"}}, {invalid("spec.hard[pods]", '"-1"', NOT_NEGATIVE)}),
        ({"hard": {"services": "500m"}}, {invalid("spec.hard[services]", '"500m"', "must be an integer")}),
        (
            {"hard": {"a b": "1"}},
            {
                invalid("spec.hard[a b]", '"a b"', "must be a standard resource for quota"),
                invalid("spec.hard[a b]", '"a b"', QUALIFIED),
            },
        ),
        (
            {"hard": {"storage": "1"}},
            {invalid("spec.hard[storage]", '"storage"', "must be a standard resource for quota")},
        ),
        (
            {"hard": {"requests.example.com/x": "-1"}},
            {invalid("spec.hard[requests.example.com/x]", '"-1"', NOT_NEGATIVE)},
        ),
        ({"hard": {"pods": "1"}, "scopes": ["x"]}, {invalid("spec.scopes", '["x"]', "unsupported scope")}),
        (
            {"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]},
            {invalid("spec.scopes", '["BestEffort","NotBestEffort"]', "conflicting scopes")},
        ),
        (
            {"hard": {"services": "1"}, "scopes": ["Terminating"]},
            {invalid("spec.scopes", '["Terminating"]', "unsupported scope applied to resource")},
        ),
        (
            {"hard": {"pods": "1"}, "scopes": ["Terminating", "NotTerminating"]},
            {invalid("spec.scopes", '["Terminating","NotTerminating"]', "conflicting scopes")},
        ),
        (
            {
                "hard": {"pods": "1"},
                "scopeSelector": {"matchExpressions": [{"scopeName": "x", "operator": "Exists"}]},
            },
            {invalid("spec.scopeSelector.matchExpressions.scopeName", '"x"', "unsupported scope")},
        ),
        (
            {
                "hard": {"pods": "1"},
                "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "x"}]},
            },
            {invalid("spec.scopeSelector.matchExpressions.operator", '"x"', "not a valid selector operator")},
        ),
        (
            {
                "hard": {"pods": "1"},
                "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]},
            },
            {
                required(
                    "spec.scopeSelector.matchExpressions.values",
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
                )
            },
        ),
        (
            {
                "hard": {"pods": "1"},
                "scopeSelector": {
                    "matchExpressions": [
                        {"scopeName": "PriorityClass", "operator": "Exists", "values": ["a"]}
                    ]
                },
            },
            {
                invalid(
                    "spec.scopeSelector.matchExpressions.values",
                    '["a"]',
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
                )
            },
        ),
        (
            {
                "hard": {"pods": "1"},
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "BestEffort", "operator": "In", "values": ["a"]}]
                },
            },
            {
                invalid(
                    "spec.scopeSelector.matchExpressions.operator",
                    '"In"',
                    EXISTS,
                )
            },
        ),
        (
            {
                "hard": {"cpu": "1"},
                "scopeSelector": {"matchExpressions": [{"scopeName": "BestEffort", "operator": "Exists"}]},
            },
            {
                invalid(
                    "spec.scopeSelector.matchExpressions",
                    '{"MatchExpressions":[{"ScopeName":"BestEffort","Operator":"Exists","Values":null}]}',
                    "unsupported scope applied to resource",
                )
            },
        ),
    ],
)
async def test_an_unsound_quota(api, quotas, spec, causes):
    refused = await api.create(quotas, quota(**spec))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_a_quota_keeps_its_scopes(api, quotas):
    await api.create(quotas, quota(hard={"pods": "1"}))
    refused = await api.merge(f"{quotas}/a", {"spec": {"scopes": ["BestEffort"]}})
    assert refused.causes == {invalid("spec.scopes", '["BestEffort"]', "field is immutable")}
    assert (await api.merge(f"{quotas}/a", {"spec": {"hard": {"pods": "2"}}})).status == 200


async def test_what_a_quota_has_counted(api, quotas):
    await api.create(quotas, quota(hard={"pods": "1"}))
    status = {"hard": {"pods": "1"}, "used": {"pods": "0"}}
    assert (await api.merge(f"{quotas}/a/status", {"status": status}))["status"] == status
    refused = await api.merge(f"{quotas}/a/status", {"status": {"used": {"pods": "-1"}}})
    assert refused.causes == {invalid("status.used[pods]", '"-1"', NOT_NEGATIVE)}


async def test_a_deleted_quota_is_shown(api, quotas):
    await api.create(quotas, quota(hard={"pods": "1"}))
    assert (await api.delete(f"{quotas}/a"))["kind"] == "ResourceQuota"


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (
            {"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "100m", "memory": "1Gi"}},
            {"default": {"cpu": "1"}, "defaultRequest": {"cpu": "1", "memory": "1Gi"}},
        ),
        ({"type": "Container", "default": {"cpu": "1"}}, {"defaultRequest": {"cpu": "1"}}),
        ({"type": "Container", "defaultRequest": {"cpu": "1"}}, {}),
        ({"type": "Pod", "max": {"cpu": "1"}}, {}),
        ({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}, {}),
        ({"type": "Container"}, {}),
    ],
)
async def test_what_limits_do_not_say(api, ranges, given, stored):
    made = await api.create(ranges, limits(given))
    assert made["spec"]["limits"] == [{**given, **stored}]
    assert "status" not in made.body


async def test_a_range_without_limits(api, ranges):
    made = await api.create(ranges, {"metadata": {"name": "a"}})
    assert made["spec"] == {"limits": None}


@pytest.mark.parametrize(
    ("given", "causes"),
    [
        (
            {"type": "x"},
            {invalid("spec.limits[0].type", '"x"', "must be a standard limit type or fully qualified")},
        ),
        (
            {"type": ""},
            {
                invalid("spec.limits[0].type", '""', "name part must be non-empty"),
                invalid("spec.limits[0].type", '""', QUALIFIED),
            },
        ),
        (
            {"type": "Pod", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}},
            {
                forbidden("spec.limits[0].default", "may not be specified when `type` is 'Pod'"),
                forbidden("spec.limits[0].defaultRequest", "may not be specified when `type` is 'Pod'"),
            },
        ),
        (
            {"max": {"pods": "1"}},
            {
                invalid(
                    "spec.limits[0].defaultRequest[pods]",
                    '"pods"',
                    "must be a standard resource for containers",
                ),
                invalid(
                    "spec.limits[0].default[pods]", '"pods"', "must be a standard resource for containers"
                ),
                invalid("spec.limits[0].max[pods]", '"pods"', "must be a standard resource for containers"),
            },
        ),
        (
            {"max": {"x": "1"}},
            {
                invalid(
                    "spec.limits[0].defaultRequest[x]", '"x"', "must be a standard resource for containers"
                ),
                invalid(
                    "spec.limits[0].defaultRequest[x]",
                    '"x"',
                    "must be a standard resource type or fully qualified",
                ),
                invalid("spec.limits[0].default[x]", '"x"', "must be a standard resource for containers"),
                invalid(
                    "spec.limits[0].default[x]", '"x"', "must be a standard resource type or fully qualified"
                ),
                invalid("spec.limits[0].max[x]", '"x"', "must be a standard resource for containers"),
                invalid(
                    "spec.limits[0].max[x]", '"x"', "must be a standard resource type or fully qualified"
                ),
            },
        ),
        (
            {"type": "PersistentVolumeClaim"},
            {
                required(
                    "spec.limits[0].limits",
                    "either minimum or maximum storage value is required, but neither was provided",
                )
            },
        ),
        (
            {
                "min": {"cpu": "4"},
                "max": {"cpu": "3"},
                "default": {"cpu": "3"},
                "defaultRequest": {"cpu": "3"},
            },
            {
                invalid(
                    "spec.limits[0].defaultRequest[cpu]",
                    '"3"',
                    "min value 4 is greater than default request value 3",
                ),
                invalid("spec.limits[0].default[cpu]", '"4"', "min value 4 is greater than default value 3"),
                invalid("spec.limits[0].min[cpu]", '"4"', "min value 4 is greater than max value 3"),
            },
        ),
        (
            {"default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}},
            {
                invalid(
                    "spec.limits[0].defaultRequest[cpu]",
                    '"2"',
                    "default request value 2 is greater than default limit value 1",
                )
            },
        ),
        (
            {"max": {"cpu": "1"}, "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}},
            {invalid("spec.limits[0].default[cpu]", '"1"', "default value 2 is greater than max value 1")},
        ),
        (
            {"min": {"cpu": "2"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}},
            {
                invalid(
                    "spec.limits[0].defaultRequest[cpu]",
                    '"1"',
                    "min value 2 is greater than default request value 1",
                ),
                invalid("spec.limits[0].default[cpu]", '"2"', "min value 2 is greater than default value 1"),
            },
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "500m"}},
            {invalid("spec.limits[0].maxLimitRequestRatio[cpu]", '"500m"', "ratio 500m is less than 1")},
        ),
        (
            {"min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}},
            {
                invalid(
                    "spec.limits[0].maxLimitRequestRatio[cpu]",
                    '"3"',
                    "ratio 3 is greater than max/min = 2.000000",
                )
            },
        ),
        (
            {"default": {"a.b/c": "2"}, "defaultRequest": {"a.b/c": "1"}},
            {
                invalid(
                    "spec.limits[0].defaultRequest[a.b/c]",
                    '"1"',
                    "default value 2 must equal to defaultRequest value 1 in a.b/c",
                )
            },
        ),
    ],
)
async def test_unsound_limits(api, ranges, given, causes):
    refused = await api.create(ranges, limits({"type": "Container", **given}))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_limits_of_each_type_are_said_once(api, ranges):
    refused = await api.create(ranges, limits({"type": "Pod"}, {"type": "Pod"}))
    assert refused.causes == {duplicate("spec.limits[1].type", '"Pod"')}


async def test_limits_are_filled_in_where_a_container_says_none(api, ns, ranges):
    await api.create(ranges, limits({"type": "Container", "max": {"cpu": "1"}, "default": {"memory": "1Gi"}}))
    pods = f"/api/v1/namespaces/{ns}/pods"
    made = await api.create(pods, pod_of(resources={"requests": {"cpu": "100m"}}))
    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "100m", "memory": "1Gi"},
        "limits": {"cpu": "1", "memory": "1Gi"},
    }
    told = "LimitRanger plugin set: memory request for container c; cpu, memory limit for container c"
    assert made.meta["annotations"] == {"kubernetes.io/limit-ranger": told}
    assert made["status"]["qosClass"] == "Burstable"


@pytest.mark.parametrize(
    ("limit", "resources", "told"),
    [
        (
            {"max": {"cpu": "1"}},
            {"limits": {"cpu": "2"}},
            "maximum cpu usage per Container is 1, but limit is 2",
        ),
        (
            {"min": {"cpu": "1"}},
            {"requests": {"cpu": "500m"}},
            "minimum cpu usage per Container is 1, but request is 500m",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {},
            "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
        ),
    ],
)
async def test_a_container_beyond_its_limits(api, ns, ranges, limit, resources, told):
    await api.create(ranges, limits({"type": "Container", **limit}))
    refused = await api.create(f"/api/v1/namespaces/{ns}/pods", pod_of(resources=resources))
    assert refused.refusal == (403, "Forbidden")
    assert refused.message == f'pods "a" is forbidden: {told}'


async def test_a_claim_beyond_its_limits(api, ns, ranges):
    bounds = {"min": {"storage": "2Gi"}, "max": {"storage": "3Gi"}}
    await api.create(ranges, limits({"type": "PersistentVolumeClaim", **bounds}))
    claims = f"/api/v1/namespaces/{ns}/persistentvolumeclaims"
    refused = await api.create(claims, claim())
    told = "minimum storage usage per PersistentVolumeClaim is 2Gi, but request is 1Gi"
    assert refused.message == f'persistentvolumeclaims "a" is forbidden: {told}'
    refused = await api.create(claims, claim(resources={"requests": {"storage": "4Gi"}}))
    told = "maximum storage usage per PersistentVolumeClaim is 3Gi, but request is 4Gi"
    assert refused.message == f'persistentvolumeclaims "a" is forbidden: {told}'
