"""Workloads get pods, and pods become ready."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_api import ClusterApi, condition, template, with_image, workload

REVISION = "deployment.kubernetes.io/revision"


async def available(api: ClusterApi, name: str = "web", replicas: int = 2, **more: Any) -> Any:
    return await api.until_status(
        f"deployments/{name}",
        replicas=replicas or None,
        updatedReplicas=replicas or None,
        availableReplicas=replicas or None,
        unavailableReplicas=None,
        **more,
    )


async def replica_sets(api: ClusterApi) -> dict[str, tuple[int, str]]:
    """Returns size and revision of each ReplicaSet, by image."""
    return {
        each["spec"]["template"]["spec"]["containers"][0]["image"]: (
            each["spec"]["replicas"],
            each["metadata"]["annotations"][REVISION],
        )
        for each in await api.items("replicasets")
    }


def images(pods: list[Any]) -> list[str]:
    return [pod["spec"]["containers"][0]["image"] for pod in pods]


async def test_a_pod_is_bound_and_becomes_ready(api: ClusterApi) -> None:
    await api.create("pods", {"metadata": {"name": "a"}, "spec": template()["spec"]})
    pod = await api.until_status("pods/a", phase="Running")
    assert pod["spec"]["nodeName"] == "pretended"
    for type_ in ("PodScheduled", "Initialized", "ContainersReady", "Ready"):
        assert condition(pod, type_)["status"] == "True"
    (container,) = pod["status"]["containerStatuses"]
    assert (container["name"], container["image"], container["ready"], container["started"]) == (
        "c",
        "a",
        True,
        True,
    )
    assert list(container["state"]) == ["running"]


async def test_a_deleted_pod_is_gone(api: ClusterApi) -> None:
    await api.create("pods", {"metadata": {"name": "a"}, "spec": template()["spec"]})
    await api.until_status("pods/a", phase="Running")
    await api.delete("pods/a")
    await api.until_gone("pods/a")


async def test_a_pod_that_no_node_fits_stays_pending_and_says_why(api: ClusterApi) -> None:
    spec = {**template()["spec"], "nodeSelector": {"no": "where"}}
    await api.create("pods", {"metadata": {"name": "a"}, "spec": spec})

    async def unschedulable() -> Any:
        pod = await api.get("pods/a")
        return condition(pod, "PodScheduled") and pod

    pod = await api.until(unschedulable, "the pod was looked at")
    assert pod["status"]["phase"] == "Pending"
    said = condition(pod, "PodScheduled")
    assert (said["status"], said["reason"]) == ("False", "Unschedulable")
    assert "1 node(s) didn't match Pod's node affinity/selector" in said["message"]


async def test_a_deployment_becomes_available_and_says_so(api: ClusterApi) -> None:
    await api.create("deployments", workload("web", replicas=2))
    deployment = await available(api)
    (replica_set,) = await api.items("replicasets")
    hash_ = replica_set["metadata"]["labels"]["pod-template-hash"]
    name = replica_set["metadata"]["name"]
    assert name == f"web-{hash_}"
    status = {key: value for key, value in deployment["status"].items() if key != "conditions"}
    assert status == {
        "observedGeneration": 1,
        "replicas": 2,
        "updatedReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "terminatingReplicas": 0,
    }
    said = {
        each["type"]: (each["status"], each["reason"], each["message"])
        for each in deployment["status"]["conditions"]
    }
    assert said == {
        "Available": ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
        "Progressing": (
            "True",
            "NewReplicaSetAvailable",
            f'ReplicaSet "{name}" has successfully progressed.',
        ),
    }
    assert deployment["metadata"]["annotations"] == {REVISION: "1"}
    assert replica_set["metadata"]["annotations"] == {
        "deployment.kubernetes.io/desired-replicas": "2",
        "deployment.kubernetes.io/max-replicas": "3",
        REVISION: "1",
    }
    assert replica_set["spec"]["selector"] == {"matchLabels": {"app": "web", "pod-template-hash": hash_}}
    assert replica_set["status"] == {
        "observedGeneration": 1,
        "replicas": 2,
        "fullyLabeledReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "terminatingReplicas": 0,
    }
    (owner,) = replica_set["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "web",
        "uid": deployment["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    for pod in await api.items("pods"):
        assert pod["metadata"]["generateName"] == f"{name}-"
        assert pod["metadata"]["labels"] == {"app": "web", "pod-template-hash": hash_}
        assert pod["metadata"]["ownerReferences"][0]["uid"] == replica_set["metadata"]["uid"]


async def test_a_new_template_is_rolled_out_and_an_old_one_comes_back(api: ClusterApi) -> None:
    await api.create("deployments", workload("web", replicas=2))
    await available(api)
    await api.patch("deployments/web", with_image("b"))
    await available(api, observedGeneration=2)
    assert await replica_sets(api) == {"a": (0, "1"), "b": (2, "2")}
    assert images(await api.until_count("pods", 2)) == ["b", "b"]
    await api.patch("deployments/web", with_image("a"))
    deployment = await available(api, observedGeneration=3)
    assert await replica_sets(api) == {"a": (2, "3"), "b": (0, "2")}
    assert deployment["metadata"]["annotations"][REVISION] == "3"


async def test_a_deployment_is_scaled_without_a_new_revision(api: ClusterApi) -> None:
    await api.create("deployments", workload("web", replicas=1))
    await available(api, replicas=1)
    await api.patch("deployments/web", {"spec": {"replicas": 4}})
    await available(api, replicas=4, observedGeneration=2)
    await api.patch("deployments/web", {"spec": {"replicas": 0}})
    await available(api, replicas=0, observedGeneration=3)
    await api.until_count("pods", 0)
    assert await replica_sets(api) == {"a": (0, "1")}


async def test_a_deployment_of_no_pods_is_available(api: ClusterApi) -> None:
    await api.create("deployments", workload("web", replicas=0))

    async def said() -> Any:
        return condition(await api.get("deployments/web"), "Available")

    assert (await api.until(said, "a condition is there"))["status"] == "True"


async def test_a_rollout_without_pods_is_done_once_it_is_observed(api: ClusterApi) -> None:
    await api.create("deployments", workload("web", replicas=0))
    await api.until_status("deployments/web", observedGeneration=1)
    await api.patch("deployments/web", with_image("b"))
    deployment = await api.until_status("deployments/web", observedGeneration=2)
    assert condition(deployment, "Progressing")["reason"] == "NewReplicaSetAvailable"
    assert deployment["metadata"]["annotations"][REVISION] == "2"
    assert await replica_sets(api) == {"a": (0, "1"), "b": (0, "2")}


async def test_a_paused_deployment_rolls_nothing_out(api: ClusterApi) -> None:
    await api.create("deployments", workload("web", replicas=1))
    await available(api, replicas=1)
    await api.patch("deployments/web", {"spec": {"paused": True}})
    await api.patch("deployments/web", with_image("b"))
    found = await api.until_status("deployments/web", observedGeneration=3)
    assert await replica_sets(api) == {"a": (1, "1")}
    progressing = condition(found, "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("Unknown", "DeploymentPaused")
    await api.patch("deployments/web", {"spec": {"paused": False}})
    await available(api, replicas=1, observedGeneration=4)
    assert await replica_sets(api) == {"a": (0, "1"), "b": (1, "2")}


@pytest.mark.parametrize(
    ("size", "rolling", "begun", "steps"),
    [
        (
            10,
            {"maxSurge": 3, "maxUnavailable": 2},
            {"a": 8, "b": 5},
            [
                ({"a": 14, "b": 9}, {"paused": True, "replicas": 20}),
                ({"a": 5, "b": 3}, {"replicas": 5}),
                ({"a": 3, "b": 5}, {"paused": False}),
                ({"a": 7, "b": 11}, {"replicas": 15}),
                ({"a": 0, "b": 0}, {"replicas": 0}),
            ],
        ),
        (
            4,
            {"maxSurge": 1, "maxUnavailable": 0},
            {"a": 4, "b": 1},
            [({"a": 6, "b": 1}, {"paused": True, "strategy": {"rollingUpdate": {"maxSurge": 3}}})],
        ),
    ],
)
async def test_a_deployment_that_is_scaled_during_a_rollout_grows_and_shrinks_in_proportion(
    api: ClusterApi, size: int, rolling: Any, begun: Any, steps: Any
) -> None:
    await api.create("deployments", workload("web", replicas=size, strategy={"rollingUpdate": rolling}))
    await available(api, replicas=size)
    stuck = template("b", app="web")
    stuck["spec"]["nodeSelector"] = {"no": "where"}
    for wanted, spec in ((begun, {"template": stuck}), *steps):
        await api.patch("deployments/web", {"spec": spec})

        async def holds(wanted: Any = wanted) -> bool:
            return {image: size for image, (size, _) in (await replica_sets(api)).items()} == wanted

        await api.until(holds, f"ReplicaSets of {wanted} pods")


async def test_recreate_replaces_all_pods(api: ClusterApi) -> None:
    await api.create("deployments", workload("web", replicas=2, strategy={"type": "Recreate"}))
    await available(api)
    await api.patch("deployments/web", with_image("b"))
    await available(api, observedGeneration=2)
    assert images(await api.until_count("pods", 2)) == ["b", "b"]


async def test_old_replica_sets_beyond_the_limit_are_forgotten(api: ClusterApi) -> None:
    await api.create("deployments", workload("web", replicas=1, revisionHistoryLimit=1))
    await available(api, replicas=1)
    for generation, image in enumerate("bcd", 2):
        await api.patch("deployments/web", with_image(image))
        await available(api, replicas=1, observedGeneration=generation)
    await api.until_count("replicasets", 2)
    assert await replica_sets(api) == {"c": (0, "3"), "d": (1, "4")}


async def test_a_deleted_pod_of_a_replica_set_is_replaced(api: ClusterApi) -> None:
    await api.create("deployments", workload("web", replicas=1))
    await available(api, replicas=1)
    (pod,) = await api.items("pods")
    await api.delete(f"pods/{pod['metadata']['name']}")
    await api.until_gone(f"pods/{pod['metadata']['name']}")
    await available(api, replicas=1)
    (other,) = await api.until_count("pods", 1)
    assert other["metadata"]["name"] != pod["metadata"]["name"]


async def test_a_deleted_deployment_takes_everything_with_it(api: ClusterApi) -> None:
    await api.create("deployments", workload("web", replicas=2))
    await available(api)
    await api.delete("deployments/web")
    await api.until_count("replicasets", 0)
    await api.until_count("pods", 0)


async def test_a_deployment_deleted_in_the_foreground_is_the_last_to_go(api: ClusterApi) -> None:
    await api.create("deployments", workload("web", replicas=2))
    await available(api)
    await api.delete("deployments/web", "Foreground")
    await api.until_gone("deployments/web")
    assert await api.items("replicasets") == []
    assert await api.items("pods") == []


async def test_an_orphaned_replica_set_keeps_its_pods(api: ClusterApi) -> None:
    await api.create("deployments", workload("web", replicas=2))
    await available(api)
    await api.delete("deployments/web", "Orphan")
    await api.until_gone("deployments/web")
    (left,) = await api.items("replicasets")
    assert "ownerReferences" not in left["metadata"]
    assert len(await api.items("pods")) == 2


async def test_a_replica_set_alone_keeps_its_number_of_pods(api: ClusterApi) -> None:
    await api.create("replicasets", workload("rs", replicas=2))
    await api.until_status("replicasets/rs", replicas=2, readyReplicas=2, availableReplicas=2)
    await api.patch("replicasets/rs", {"spec": {"replicas": 1}})
    await api.until_status("replicasets/rs", replicas=1, observedGeneration=2)
    await api.until_count("pods", 1)


async def test_a_stateful_set_has_named_pods_in_order(api: ClusterApi) -> None:
    await api.create("statefulsets", workload("db", replicas=3, serviceName="db"))
    found = await api.until_status("statefulsets/db", replicas=3, readyReplicas=3, updatedReplicas=3)
    (revision,) = await api.items("controllerrevisions")
    name = revision["metadata"]["name"]
    assert revision["revision"] == 1
    assert found["status"] == {
        "observedGeneration": 1,
        "replicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "currentReplicas": 3,
        "updatedReplicas": 3,
        "currentRevision": name,
        "updateRevision": name,
        "collisionCount": 0,
    }
    pods = await api.items("pods")
    assert [pod["metadata"]["name"] for pod in pods] == ["db-0", "db-1", "db-2"]
    created = [pod["metadata"]["creationTimestamp"] for pod in pods]
    assert created == sorted(created)
    for ordinal, pod in enumerate(pods):
        assert pod["metadata"]["labels"] == {
            "app": "db",
            "apps.kubernetes.io/pod-index": str(ordinal),
            "controller-revision-hash": name,
            "statefulset.kubernetes.io/pod-name": f"db-{ordinal}",
        }
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (f"db-{ordinal}", "db")


async def test_a_stateful_set_shrinks_from_its_end_and_is_updated_in_place(api: ClusterApi) -> None:
    spec = {"replicas": 3, "serviceName": "db", "podManagementPolicy": "Parallel"}
    await api.create("statefulsets", workload("db", **spec))
    await api.until_status("statefulsets/db", readyReplicas=3)
    await api.patch("statefulsets/db", {"spec": {"replicas": 2}})
    await api.until_status("statefulsets/db", replicas=2, observedGeneration=2)
    assert await api.names("pods") == ["db-0", "db-1"]
    await api.patch("statefulsets/db", with_image("b"))
    found = await api.until_status(
        "statefulsets/db", updatedReplicas=2, readyReplicas=2, currentReplicas=2, observedGeneration=3
    )
    assert found["status"]["currentRevision"] == found["status"]["updateRevision"]
    pods = await api.items("pods")
    assert [pod["metadata"]["name"] for pod in pods] == ["db-0", "db-1"]
    assert images(pods) == ["b", "b"]


async def test_a_partition_keeps_the_first_pods_as_they_are(api: ClusterApi) -> None:
    rolling = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}}
    await api.create("statefulsets", workload("db", replicas=2, serviceName="db", **rolling))
    await api.until_status("statefulsets/db", readyReplicas=2)
    await api.patch("statefulsets/db", with_image("b"))
    found = await api.until_status("statefulsets/db", updatedReplicas=1, readyReplicas=2, currentReplicas=1)
    assert found["status"]["currentRevision"] != found["status"]["updateRevision"]
    assert images(await api.items("pods")) == ["a", "b"]


@pytest.mark.parametrize(
    ("policy", "begun"),
    [
        ("OrderedReady", {"db-0": "a", "db-1": "b"}),  # db-1 is not available, so db-2 is not created
        ("Parallel", {"db-0": "a", "db-1": "b", "db-2": "b"}),
    ],
)
async def test_as_many_pods_are_replaced_at_once_as_may_be_unavailable(
    api: ClusterApi, policy: str, begun: dict[str, str]
) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "67%"}}
    spec = {"serviceName": "db", "podManagementPolicy": policy, "updateStrategy": rolling}
    await api.create("statefulsets", workload("db", replicas=3, **spec))
    await api.until_status("statefulsets/db", readyReplicas=3)

    stuck = template("b", app="db")
    stuck["spec"]["nodeSelector"] = {"no": "where"}
    await api.patch("statefulsets/db", {"spec": {"template": stuck}})

    async def holds() -> bool:
        pods = await api.items("pods")
        return {pod["metadata"]["name"]: images([pod])[0] for pod in pods} == begun

    await api.until(holds, f"the pods are {begun}")


async def test_pods_of_a_stateful_set_get_claims_that_stay(api: ClusterApi) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = [{"metadata": {"name": "data"}, "spec": claim}]
    await api.create(
        "statefulsets", workload("db", replicas=1, serviceName="db", volumeClaimTemplates=claims)
    )

    async def pod() -> Any:
        return await api.get("pods/db-0")

    found = await api.until(pod, "db-0 is there")
    assert found["spec"]["volumes"][0] == {
        "name": "data",
        "persistentVolumeClaim": {"claimName": "data-db-0"},
    }
    assert (await api.get("persistentvolumeclaims/data-db-0"))["metadata"]["labels"] == {"app": "db"}
    await api.delete("statefulsets/db")
    await api.until_gone("statefulsets/db", "pods/db-0")
    assert await api.get("persistentvolumeclaims/data-db-0")


async def test_a_daemon_set_has_one_pod_on_each_node(api: ClusterApi) -> None:
    await api.create("daemonsets", workload("ds"))
    found = await api.until_status(
        "daemonsets/ds", numberReady=1, numberAvailable=1, updatedNumberScheduled=1
    )
    assert found["status"] == {
        "observedGeneration": 1,
        "currentNumberScheduled": 1,
        "desiredNumberScheduled": 1,
        "numberMisscheduled": 0,
        "numberReady": 1,
        "numberAvailable": 1,
        "updatedNumberScheduled": 1,
    }
    (pod,) = await api.items("pods")
    assert pod["spec"]["nodeName"] == "pretended"
    await api.patch("daemonsets/ds", with_image("b"))
    await api.until_status("daemonsets/ds", observedGeneration=2, updatedNumberScheduled=1, numberAvailable=1)
    assert images(await api.until_count("pods", 1)) == ["b"]


def job(**spec: Any) -> dict[str, Any]:
    pod = template()
    pod["spec"]["restartPolicy"] = "Never"
    return {"metadata": {"name": "job"}, "spec": {"template": pod, **spec}}


async def test_a_job_completes(api: ClusterApi) -> None:
    await api.create("jobs", job(completions=3, parallelism=2))
    found = await api.until_status("jobs/job", succeeded=3, active=None, ready=0, terminating=0)

    async def complete() -> Any:
        found = await api.get("jobs/job")
        return condition(found, "Complete") and found

    found = await api.until(complete, "the job is complete")
    assert [
        (each["type"], each["status"], each["reason"], each["message"])
        for each in found["status"]["conditions"]
    ] == [
        ("SuccessCriteriaMet", "True", "CompletionsReached", "Reached expected number of succeeded pods"),
        ("Complete", "True", "CompletionsReached", "Reached expected number of succeeded pods"),
    ]
    assert found["status"]["completionTime"] >= found["status"]["startTime"]
    pods = await api.items("pods")
    assert len(pods) == 3
    uid = found["metadata"]["uid"]
    for pod in pods:
        assert pod["status"]["phase"] == "Succeeded"
        assert "finalizers" not in pod["metadata"]
        assert pod["metadata"]["labels"] == {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": "job",
            "controller-uid": uid,
            "job-name": "job",
        }


async def test_an_indexed_job_has_a_pod_for_each_index(api: ClusterApi) -> None:
    await api.create("jobs", job(completions=3, parallelism=3, completionMode="Indexed"))
    found = await api.until_status("jobs/job", succeeded=3, active=None)
    assert found["status"]["completedIndexes"] == "0-2"
    pods = await api.items("pods")
    indexes = [pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] for pod in pods]
    assert sorted(indexes) == ["0", "1", "2"]
    for pod in pods:
        assert pod["metadata"]["name"].startswith(f"{pod['spec']['hostname']}-")


async def test_a_suspended_job_has_no_pods_until_it_is_resumed(api: ClusterApi) -> None:
    await api.create("jobs", job(suspend=True))

    async def suspended() -> Any:
        found = await api.get("jobs/job")
        return condition(found, "Suspended") and found

    found = await api.until(suspended, "the job is suspended")
    said = condition(found, "Suspended")
    assert (said["status"], said["reason"], said["message"]) == ("True", "JobSuspended", "Job suspended")
    assert "startTime" not in found["status"]
    assert await api.items("pods") == []
    await api.patch("jobs/job", {"spec": {"suspend": False}})
    found = await api.until_status("jobs/job", succeeded=1)
    assert condition(found, "Suspended")["reason"] == "JobResumed"


async def test_a_finished_job_goes_when_its_time_is_over(api: ClusterApi) -> None:
    await api.create("jobs", job(ttlSecondsAfterFinished=0))
    await api.until_gone("jobs/job")
    await api.until_count("pods", 0)


async def test_pods_of_a_deleted_job_go(api: ClusterApi) -> None:
    await api.create("jobs", job(parallelism=2))
    await api.until_count("pods", 2)
    await api.delete("jobs/job", "Background")
    await api.until_gone("jobs/job")
    await api.until_count("pods", 0)


async def test_pods_that_a_deleted_job_leaves_behind_are_nobodys(api: ClusterApi) -> None:
    await api.create("jobs", job(parallelism=2))
    await api.until_count("pods", 2)
    await api.delete("jobs/job", "Orphan")
    await api.until_gone("jobs/job")

    async def free() -> bool:
        kept = [pod["metadata"] for pod in await api.items("pods")]
        return not any(meta.get("finalizers") or meta.get("ownerReferences") for meta in kept)

    await api.until(free, "the pods have neither owner nor finalizer")
    assert len(await api.items("pods")) == 2
