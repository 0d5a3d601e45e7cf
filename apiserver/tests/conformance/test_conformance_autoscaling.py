"""HorizontalPodAutoscalers: validation and defaults."""

import pytest
from conformance_workloads import LABEL, NOT_NEGATIVE, forbidden, invalid, required, unsupported

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
USUAL = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
PERCENT = {"type": "Percent", "value": 100, "periodSeconds": 15}
UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, PERCENT],
}
DOWN = {"selectPolicy": "Max", "policies": [PERCENT]}


def autoscaler(**spec):
    return {"metadata": {"name": "a"}, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3, **spec}}


@pytest.fixture
def v1(ns):
    return f"/apis/autoscaling/v1/namespaces/{ns}/horizontalpodautoscalers"


@pytest.fixture
def v2(ns):
    return f"/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers"


@pytest.mark.parametrize("field", ["scaleUp", "scaleDown"])
async def test_policies_that_are_empty_are_no_missing_ones(api, v2, field):
    refused = await api.create(v2, autoscaler(behavior={field: {"policies": []}}))
    assert refused.causes == {required(f"spec.behavior.{field}.policies", "must specify at least one Policy")}
    await api.create(v2, autoscaler(behavior={field: {"policies": None}}))
    changed = await api.merge(f"{v2}/a", {"spec": {"behavior": {field: {"policies": []}}}})
    assert changed.fields == {f"spec.behavior.{field}.policies"}


async def test_a_minimal_autoscaler(api, v2):
    made = await api.create(v2, autoscaler())
    assert made["spec"] == {**autoscaler()["spec"], "minReplicas": 1, "metrics": [USUAL]}
    assert made["status"] == {"desiredReplicas": 0, "currentMetrics": None}
    assert made.meta["generation"] == 1


async def test_a_minimal_autoscaler_of_the_first_version(api, v1):
    made = await api.create(v1, autoscaler())
    assert made["spec"] == {
        **autoscaler()["spec"],
        "minReplicas": 1,
        "targetCPUUtilizationPercentage": 80,
    }
    assert made["status"] == {"currentReplicas": 0, "desiredReplicas": 0}


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({}, {"scaleUp": UP, "scaleDown": DOWN}),
        (
            {"scaleDown": {"selectPolicy": "Min", "stabilizationWindowSeconds": 10}},
            {"scaleUp": UP, "scaleDown": {**DOWN, "selectPolicy": "Min", "stabilizationWindowSeconds": 10}},
        ),
        (
            {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1}]}},
            {
                "scaleUp": {**UP, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 1}]},
                "scaleDown": DOWN,
            },
        ),
    ],
)
async def test_what_a_behavior_does_not_say(api, v2, given, stored):
    made = await api.create(v2, autoscaler(behavior=given))
    assert made["spec"]["behavior"] == stored


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {"maxReplicas": 0},
            {
                invalid("spec.maxReplicas", "0", "must be greater than or equal to `minReplicas`"),
                required("spec.maxReplicas"),
            },
        ),
        (
            {"maxReplicas": -1},
            {
                invalid("spec.maxReplicas", "-1", "must be greater than or equal to 1"),
                invalid("spec.maxReplicas", "-1", "must be greater than or equal to `minReplicas`"),
            },
        ),
        (
            {"minReplicas": 0},
            {
                forbidden(
                    "spec.metrics",
                    "must specify at least one Object or External metric to support scaling to zero replicas",
                )
            },
        ),
        (
            {"minReplicas": 5},
            {invalid("spec.maxReplicas", "3", "must be greater than or equal to `minReplicas`")},
        ),
        (
            {"scaleTargetRef": {"kind": "", "name": "", "apiVersion": "a/b"}},
            {required("spec.scaleTargetRef.kind"), required("spec.scaleTargetRef.name")},
        ),
        (
            {"scaleTargetRef": {"kind": "a/b", "name": "c%", "apiVersion": "v1"}},
            {
                invalid("spec.scaleTargetRef.apiVersion", '"v1"', "apiVersion must specify API group"),
                invalid("spec.scaleTargetRef.kind", '"a/b"', "may not contain '/'"),
                invalid("spec.scaleTargetRef.name", '"c%"', "may not contain '%'"),
            },
        ),
        (
            {"scaleTargetRef": {"kind": "a", "name": "b", "apiVersion": "a/b/c"}},
            {invalid("spec.scaleTargetRef.apiVersion", '"a/b/c"', "unexpected GroupVersion string: a/b/c")},
        ),
        (
            {"metrics": [{"type": ""}]},
            {
                unsupported(
                    "spec.metrics[0].type",
                    '""',
                    "ContainerResource",
                    "External",
                    "Object",
                    "Pods",
                    "Resource",
                ),
                required("spec.metrics[0].type", "must specify a metric source type"),
            },
        ),
        (
            {"metrics": [{"type": "x"}]},
            {
                unsupported(
                    "spec.metrics[0].type",
                    '"x"',
                    "ContainerResource",
                    "External",
                    "Object",
                    "Pods",
                    "Resource",
                )
            },
        ),
        (
            {"metrics": [{"type": "Resource"}]},
            {required("spec.metrics[0].resource", "must populate information for the given metric source")},
        ),
        (
            {
                "metrics": [
                    {
                        "type": "Resource",
                        "pods": {
                            "metric": {"name": "m"},
                            "target": {"type": "AverageValue", "averageValue": "1"},
                        },
                    }
                ]
            },
            {required("spec.metrics[0].resource", "must populate information for the given metric source")},
        ),
        (
            {"metrics": [{"type": "Resource", "resource": {"name": "", "target": {"type": ""}}}]},
            {
                required("spec.metrics[0].resource.name", "must specify a resource name"),
                required(
                    "spec.metrics[0].resource.target.averageUtilization",
                    "must set either a target raw value or a target utilization",
                ),
                invalid(
                    "spec.metrics[0].resource.target.type",
                    '""',
                    "must be either Utilization, Value, or AverageValue",
                ),
                required("spec.metrics[0].resource.target.type", "must specify a metric target type"),
            },
        ),
        (
            {
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {
                            "name": "cpu",
                            "target": {"type": "Utilization", "averageUtilization": 0, "averageValue": "0"},
                        },
                    }
                ]
            },
            {
                invalid("spec.metrics[0].resource.target.averageUtilization", "0", "must be greater than 0"),
                forbidden(
                    "spec.metrics[0].resource.target.averageValue",
                    "may not set both a target raw value and a target utilization",
                ),
                invalid("spec.metrics[0].resource.target.averageValue", '"0"', "must be positive"),
            },
        ),
        (
            {"metrics": [{"type": "Pods", "pods": {"metric": {}, "target": {"type": "x", "value": "-1"}}}]},
            {
                required("spec.metrics[0].pods.metric.name", "must specify a metric name"),
                required(
                    "spec.metrics[0].pods.target.averageValue", "must specify a positive target averageValue"
                ),
                invalid(
                    "spec.metrics[0].pods.target.type",
                    '"x"',
                    "must be either Utilization, Value, or AverageValue",
                ),
                invalid("spec.metrics[0].pods.target.value", '"-1"', "must be positive"),
            },
        ),
        (
            {
                "metrics": [
                    {
                        "type": "Object",
                        "object": {
                            "describedObject": {"kind": "Service", "name": ""},
                            "metric": {"name": "a/b"},
                            "target": {"type": "Value"},
                        },
                    }
                ]
            },
            {
                required("spec.metrics[0].object.describedObject.name"),
                invalid("spec.metrics[0].object.metric.name", '"a/b"', "may not contain '/'"),
                required(
                    "spec.metrics[0].object.target.averageValue",
                    "must set either a target value or averageValue",
                ),
            },
        ),
        (
            {
                "metrics": [
                    {
                        "type": "External",
                        "external": {
                            "metric": {"name": "m"},
                            "target": {"type": "Value", "value": "1", "averageValue": "2"},
                        },
                    }
                ]
            },
            {
                forbidden(
                    "spec.metrics[0].external.target.value",
                    "may not set both a target value for metric and a per-pod target",
                )
            },
        ),
        (
            {
                "metrics": [
                    {"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value"}}}
                ]
            },
            {
                required(
                    "spec.metrics[0].external.target.averageValue",
                    "must set either a target value for metric or a per-pod target",
                )
            },
        ),
        (
            {
                "metrics": [
                    {
                        "type": "ContainerResource",
                        "containerResource": {
                            "name": "",
                            "container": "",
                            "target": {"type": "Utilization", "averageUtilization": 1},
                        },
                    }
                ]
            },
            {
                required("spec.metrics[0].containerResource.container", "must specify a container"),
                required("spec.metrics[0].containerResource.name", "must specify a resource name"),
            },
        ),
        (
            {
                "metrics": [
                    {
                        "type": "ContainerResource",
                        "containerResource": {
                            "name": "x",
                            "container": "A_",
                            "target": {"type": "Utilization"},
                        },
                    }
                ]
            },
            {
                invalid("spec.metrics[0].containerResource.container", '"A_"', LABEL),
                invalid(
                    "spec.metrics[0].containerResource.name",
                    '"x"',
                    "must be a standard resource for containers",
                ),
                invalid(
                    "spec.metrics[0].containerResource.name",
                    '"x"',
                    "must be a standard resource type or fully qualified",
                ),
                required(
                    "spec.metrics[0].containerResource.target.averageUtilization",
                    "must set either a target raw value or a target utilization",
                ),
            },
        ),
        (
            {"behavior": {"scaleUp": {"selectPolicy": "x"}}},
            {unsupported("spec.behavior.scaleUp.selectPolicy", '"x"', "Disabled", "Max", "Min")},
        ),
        (
            {"behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601}}},
            {
                invalid(
                    "spec.behavior.scaleUp.stabilizationWindowSeconds",
                    "3601",
                    "must be less than or equal to 3600",
                )
            },
        ),
        (
            {"behavior": {"scaleDown": {"stabilizationWindowSeconds": -1}}},
            {
                invalid(
                    "spec.behavior.scaleDown.stabilizationWindowSeconds",
                    "-1",
                    "must be greater than or equal to zero",
                )
            },
        ),
        (
            {"behavior": {"scaleDown": {"policies": [{"type": "x", "value": 0, "periodSeconds": 1801}]}}},
            {
                invalid(
                    "spec.behavior.scaleDown.policies[0].periodSeconds",
                    "1801",
                    "must be less than or equal to 1800",
                ),
                unsupported("spec.behavior.scaleDown.policies[0].type", '"x"', "Percent", "Pods"),
                invalid("spec.behavior.scaleDown.policies[0].value", "0", "must be greater than zero"),
            },
        ),
        (
            {"behavior": {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 0}]}}},
            {invalid("spec.behavior.scaleDown.policies[0].periodSeconds", "0", "must be greater than zero")},
        ),
        (
            {"behavior": {"scaleDown": {"tolerance": "-1"}}},
            {invalid("spec.behavior.scaleDown.tolerance", '"-1"', NOT_NEGATIVE)},
        ),
    ],
)
async def test_an_unsound_autoscaler(api, v2, spec, causes):
    refused = await api.create(v2, autoscaler(**spec))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_both_versions_have_the_same_rules(api, v1, v2):
    refused = await api.create(v1, autoscaler(maxReplicas=0, targetCPUUtilizationPercentage=0))
    assert refused.causes == {
        required("spec.maxReplicas"),
        invalid("spec.maxReplicas", "0", "must be greater than or equal to `minReplicas`"),
        invalid("spec.metrics[0].resource.target.averageUtilization", "0", "must be greater than 0"),
    }


async def test_a_controller_of_the_core_group_needs_no_group(api, v2):
    target = {"kind": "ReplicationController", "name": "c"}
    assert (await api.create(v2, autoscaler(scaleTargetRef=target))).status == 201


async def test_counts_of_an_autoscaler_are_not_negative(api, v2):
    await api.create(v2, autoscaler())
    counts = {"currentReplicas": -1, "desiredReplicas": -1}
    refused = await api.merge(f"{v2}/a/status", {"status": counts})
    assert refused.causes == {invalid(f"status.{field}", "-1", NOT_NEGATIVE) for field in counts}


async def test_an_autoscaler_without_metrics_has_the_usual_one_again(api, v1, v2):
    await api.create(v1, autoscaler(targetCPUUtilizationPercentage=50))
    replaced = await api.replace(f"{v1}/a", autoscaler(maxReplicas=4))
    assert replaced["spec"]["targetCPUUtilizationPercentage"] == 80
    assert (await api.get(f"{v2}/a"))["spec"]["metrics"] == [USUAL]
    changed = await api.merge(f"{v2}/a", {"spec": {"metrics": None}})
    assert changed["spec"]["metrics"] == [USUAL]
