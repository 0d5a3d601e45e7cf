"""HorizontalPodAutoscalers are one resource in two versions."""

import pytest

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}
MEMORY = {
    "type": "Resource",
    "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "100Mi"}},
}


@pytest.fixture
def v1(ns):
    return f"/apis/autoscaling/v1/namespaces/{ns}/horizontalpodautoscalers"


@pytest.fixture
def v2(ns):
    return f"/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers"


def autoscaler(**spec):
    return {
        "metadata": {"name": "a"},
        "spec": {"scaleTargetRef": TARGET, "minReplicas": 1, "maxReplicas": 3, **spec},
    }


async def test_a_target_of_the_first_version_is_a_metric_of_the_second(api, v1, v2):
    made = await api.create(v1, autoscaler(targetCPUUtilizationPercentage=50))
    assert made["status"] == {"currentReplicas": 0, "desiredReplicas": 0}
    read = await api.get(f"{v2}/a")
    assert (read["apiVersion"], read.meta) == ("autoscaling/v2", made.meta)
    assert read["spec"] == {**autoscaler()["spec"], "metrics": [CPU]}
    assert read["status"] == {"desiredReplicas": 0, "currentMetrics": None}


async def test_what_the_first_version_cannot_say_comes_back_in_the_second(api, v1, v2):
    made = await api.create(v2, autoscaler(metrics=[CPU, MEMORY]))
    read = await api.get(f"{v1}/a")
    assert read["spec"] == {**autoscaler()["spec"], "targetCPUUtilizationPercentage": 50}
    assert read.meta["annotations"].keys() == {"autoscaling.alpha.kubernetes.io/metrics"}
    assert "annotations" not in made.meta
    await api.merge(f"{v1}/a", {"spec": {"maxReplicas": 9}})
    again = await api.get(f"{v2}/a")
    assert again["spec"] == {**autoscaler()["spec"], "maxReplicas": 9, "metrics": [MEMORY, CPU]}
    assert "annotations" not in again.meta
