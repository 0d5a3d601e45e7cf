"""PodDisruptionBudgets: their status, and its effect on evictions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from cluster_api import ClusterApi, condition, template, workload
from test_cluster_pretending import Cluster, pod

from kubeshard.core.patches import MergePatch
from kubeshard_apiserver.controllers import Controllers
from kubeshard_lab.virtual_time import virtual_time

BUDGET = "poddisruptionbudgets/web"


def budget(app: str = "web", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": app}}, **spec}}


async def until_allowed(api: ClusterApi, count: int, **status: Any) -> Any:
    return await api.until_status(BUDGET, disruptionsAllowed=count, **status)


async def evict(api: ClusterApi, name: str) -> Any:
    """Returns the code and body of the response."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return await api.attempt("POST", f"pods/{name}/eviction", body)


@pytest.mark.parametrize(
    ("spec", "desired", "allowed"),
    [
        ({"minAvailable": 2}, 2, 1),
        ({"minAvailable": "50%"}, 2, 1),
        ({"maxUnavailable": 1}, 2, 1),
        ({"maxUnavailable": "34%"}, 1, 2),
        ({"minAvailable": 4}, 4, 0),
    ],
)
async def test_a_budget_counts_its_pods(
    api: ClusterApi, spec: dict[str, Any], desired: int, allowed: int
) -> None:
    await api.create("deployments", workload("web", replicas=3))
    await api.until_status("deployments/web", readyReplicas=3)
    await api.create("poddisruptionbudgets", budget(**spec))
    found = await until_allowed(api, allowed, currentHealthy=3)
    status = found["status"]
    (said,) = status.pop("conditions")
    assert status == {
        "currentHealthy": 3,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "expectedPods": 3,
        "observedGeneration": 1,
    }
    assert {key: value for key, value in said.items() if key != "lastTransitionTime"} == {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
        "observedGeneration": 1,
    }


async def test_a_budget_follows_its_pods_and_its_spec(api: ClusterApi) -> None:
    await api.create("poddisruptionbudgets", budget(minAvailable=1))
    await until_allowed(api, 0, expectedPods=0, currentHealthy=0)
    await api.create("replicasets", workload("web", replicas=2))
    await until_allowed(api, 1, expectedPods=2, currentHealthy=2)
    await api.patch("replicasets/web", {"spec": {"replicas": 1}})
    await until_allowed(api, 0, expectedPods=1, currentHealthy=1)
    await api.patch(BUDGET, {"spec": {"minAvailable": 0}})
    await until_allowed(api, 1, observedGeneration=2)


async def test_a_budget_without_pods_tells_so(api: ClusterApi) -> None:
    await api.create("poddisruptionbudgets", budget("nobody", maxUnavailable=1))

    async def told() -> Any:
        return await api.items("events?fieldSelector=involvedObject.kind=PodDisruptionBudget")

    (event,) = await api.until(told, "it has told")
    assert (event["type"], event["reason"], event["message"]) == (
        "Normal",
        "NoPods",
        "No matching pods found",
    )
    assert event["source"] == {"component": "controllermanager"}


async def test_pods_that_nothing_sizes_make_a_share_impossible(api: ClusterApi) -> None:
    body = template(app="web")
    body["spec"] |= {"restartPolicy": "Never"}
    body["metadata"]["annotations"] = {"kubeshard.dev/pretend": "run"}
    await api.create("jobs", {"metadata": {"name": "job"}, "spec": {"template": body}})
    await api.until_count("pods", 1)
    await api.create("poddisruptionbudgets", budget(maxUnavailable=1))

    async def failed() -> Any:
        said = condition(await api.get(BUDGET), "DisruptionAllowed")
        return said and said["reason"] == "SyncFailed" and said

    said = await api.until(failed, "the budget cannot be calculated")
    assert said["message"] == "jobs.batch does not implement the scale subresource"


async def test_evictions_spend_the_budget_until_other_pods_are_ready(api: ClusterApi) -> None:
    await api.create("replicasets", workload("web", replicas=2))
    await api.create("poddisruptionbudgets", budget(minAvailable=2))
    await until_allowed(api, 0, currentHealthy=2)
    first, _ = await api.names("pods")
    code, answer = await evict(api, first)
    assert code == 429
    assert answer["details"]["causes"] == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget web needs 2 healthy pods and has 2 currently",
        }
    ]
    await api.patch("replicasets/web", {"spec": {"replicas": 3}})
    await until_allowed(api, 1, currentHealthy=3)
    code, answer = await evict(api, first)
    assert (code, answer["status"]) == (201, "Success")
    await api.until_gone(f"pods/{first}")
    found = await until_allowed(api, 1, currentHealthy=3, expectedPods=3)
    assert "disruptedPods" not in found["status"]


@virtual_time
async def test_an_evicted_pod_that_stays_is_counted_again_after_two_minutes() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        body = pod()
        body["metadata"]["labels"] = {"app": "web"}
        cluster.create("v1/pods", body)
        path = "policy/v1/poddisruptionbudgets"
        cluster.create(path, budget(minAvailable=0))
        await asyncio.sleep(1)
        target = cluster.at(f"{path}/web")
        disrupted = {"disruptedPods": {"a": cluster.server.now()}, "disruptionsAllowed": 0}
        cluster.server.patch(replace(target, subresource="status"), MergePatch({"status": disrupted}))
        await asyncio.sleep(100)
        assert cluster.get(f"{path}/web")["status"]["currentHealthy"] == 0
        await asyncio.sleep(30)
        status = cluster.get(f"{path}/web")["status"]
        assert (status["currentHealthy"], status["disruptionsAllowed"]) == (1, 1)
        assert "disruptedPods" not in status
