"""Events about the actions of controllers, as `kubectl describe` shows them below an object."""

from __future__ import annotations

import asyncio
from typing import Any

from cluster_api import ClusterApi, template, with_image, workload
from test_cluster_pretending import Cluster, pod

from kubeshard_apiserver.controllers import Controllers
from kubeshard_lab.virtual_time import virtual_time


def said(event: Any) -> tuple[str, str, str, int | None]:
    return event["type"], event["reason"], event["message"], event.get("count")


async def told_of(api: ClusterApi, kind: str, name: str) -> list[Any]:
    return await api.items(f"events?fieldSelector=involvedObject.kind={kind},involvedObject.name={name}")


async def until_told(api: ClusterApi, kind: str, name: str, *wanted: tuple[str, str, str, int | None]) -> Any:
    """Waits until the object's Events are these, in any order; returns the first of them."""
    found: list[Any] = []

    async def has() -> bool:
        found[:] = await told_of(api, kind, name)
        return sorted(map(said, found), key=str) == sorted(wanted, key=str)

    try:
        await api.until(has, "")
    except AssertionError:
        assert sorted(map(said, found), key=str) == sorted(wanted, key=str)
    return next(event for event in found if said(event) == wanted[0])


async def pods_of(api: ClusterApi, count: int) -> list[str]:
    return [each["metadata"]["name"] for each in await api.until_count("pods", count)]


async def test_a_deployment_tells_how_it_scales_its_replica_sets(api: ClusterApi) -> None:
    deployment = await api.create("deployments", workload("web", replicas=1))
    await api.until_status("deployments/web", readyReplicas=1, updatedReplicas=1)
    (old,) = await api.names("replicasets")
    up = ("Normal", "ScalingReplicaSet", f"Scaled up replica set {old} from 0 to 1", 1)
    event = await until_told(api, "Deployment", "web", up)
    assert event["source"] == {"component": "deployment-controller"}
    assert (event["reportingComponent"], event["reportingInstance"]) == ("deployment-controller", "")
    assert event["firstTimestamp"] == event["lastTimestamp"]
    assert event["eventTime"] is None
    assert event["metadata"]["name"].startswith("web.")
    reference = {key: value for key, value in event["involvedObject"].items() if key != "resourceVersion"}
    assert reference == {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "namespace": api.namespace,
        "name": "web",
        "uid": deployment["metadata"]["uid"],
    }
    await api.patch("deployments/web", with_image("b"))
    await api.until_status("deployments/web", observedGeneration=2, readyReplicas=1, replicas=1)
    (new,) = [name for name in await api.names("replicasets") if name != old]
    await until_told(
        api,
        "Deployment",
        "web",
        up,
        ("Normal", "ScalingReplicaSet", f"Scaled up replica set {new} from 0 to 1", 1),
        ("Normal", "ScalingReplicaSet", f"Scaled down replica set {old} from 1 to 0", 1),
    )


async def test_a_replica_set_tells_of_its_pods(api: ClusterApi) -> None:
    await api.create("replicasets", workload("rs", replicas=1))
    (name,) = await pods_of(api, 1)
    created = ("Normal", "SuccessfulCreate", f"Created pod: {name}", 1)
    event = await until_told(api, "ReplicaSet", "rs", created)
    assert event["source"] == {"component": "replicaset-controller"}
    await api.patch("replicasets/rs", {"spec": {"replicas": 0}})
    deleted = ("Normal", "SuccessfulDelete", f"Deleted pod: {name}", 1)
    await until_told(api, "ReplicaSet", "rs", created, deleted)


async def test_the_tenth_event_that_differs_in_its_message_only_is_combined_with_those_after(
    api: ClusterApi,
) -> None:
    await api.create("replicasets", workload("rs", replicas=12))
    await api.until_count("pods", 12)

    async def combined() -> Any:
        found = [each for each in await told_of(api, "ReplicaSet", "rs") if each["count"] == 3]
        return found and found[0]

    event = await api.until(combined, "an event has happened three times")
    assert event["message"].startswith("(combined from similar events): Created pod: rs-")
    assert event.get("reportingComponent", "") == ""
    assert sorted(each["count"] for each in await told_of(api, "ReplicaSet", "rs")) == [1] * 9 + [3]


async def test_what_is_said_again_is_counted(api: ClusterApi) -> None:
    await api.create("statefulsets", workload("db", replicas=1, serviceName="db"))
    told = ("Normal", "SuccessfulCreate", "Create Pod db-0 in StatefulSet db successful", 1)
    event = await until_told(api, "StatefulSet", "db", told)
    assert event["source"] == {"component": "statefulset-controller"}
    await api.until_status("statefulsets/db", readyReplicas=1)
    await api.delete("pods/db-0")

    async def counted() -> Any:
        # kwok may also stop the next pod of this name.
        (found,) = await told_of(api, "StatefulSet", "db")
        return found["count"] > 1 and found

    again = await api.until(counted, "the event is counted")
    assert said(again)[:3] == told[:3]
    assert again["metadata"]["name"] == event["metadata"]["name"]
    assert again["firstTimestamp"] == event["firstTimestamp"] <= again["lastTimestamp"]


async def test_a_stateful_set_tells_of_claims_and_of_pods_that_it_deletes(api: ClusterApi) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = [{"metadata": {"name": "data"}, "spec": claim}]
    spec = {"replicas": 1, "serviceName": "db", "volumeClaimTemplates": claims}
    await api.create("statefulsets", workload("db", **spec))
    told = [
        ("Normal", "SuccessfulCreate", "Create Claim data-db-0 Pod db-0 in StatefulSet db success", 1),
        ("Normal", "SuccessfulCreate", "Create Pod db-0 in StatefulSet db successful", 1),
    ]
    await until_told(api, "StatefulSet", "db", *told)
    await api.patch("statefulsets/db", {"spec": {"replicas": 0}})
    deleted = ("Normal", "SuccessfulDelete", "Delete Pod db-0 in StatefulSet db successful", 1)
    await until_told(api, "StatefulSet", "db", *told, deleted)


async def test_a_daemon_set_tells_of_its_pods(api: ClusterApi) -> None:
    await api.create("daemonsets", workload("ds"))
    (name,) = await pods_of(api, 1)
    created = ("Normal", "SuccessfulCreate", f"Created pod: {name}", 1)
    event = await until_told(api, "DaemonSet", "ds", created)
    assert event["source"] == {"component": "daemonset-controller"}


def job(**spec: Any) -> dict[str, Any]:
    body = template()
    body["spec"]["restartPolicy"] = "Never"
    return {"metadata": {"name": "job"}, "spec": {"template": body, **spec}}


async def test_a_job_tells_of_its_pod_and_of_its_completion(api: ClusterApi) -> None:
    await api.create("jobs", job())
    (name,) = await pods_of(api, 1)
    created = ("Normal", "SuccessfulCreate", f"Created pod: {name}", 1)
    completed = ("Normal", "Completed", "Job completed", 1)
    event = await until_told(api, "Job", "job", created, completed)
    assert event["source"] == {"component": "job-controller"}


async def test_a_job_tells_that_it_is_suspended_and_resumed(api: ClusterApi) -> None:
    await api.create("jobs", job(suspend=True))
    suspended = ("Normal", "Suspended", "Job suspended", 1)
    await until_told(api, "Job", "job", suspended)
    await api.patch("jobs/job", {"spec": {"suspend": False}})
    (name,) = await pods_of(api, 1)
    created = ("Normal", "SuccessfulCreate", f"Created pod: {name}", 1)
    resumed = ("Normal", "Resumed", "Job resumed", 1)
    completed = ("Normal", "Completed", "Job completed", 1)
    await until_told(api, "Job", "job", suspended, resumed, created, completed)


async def test_a_pod_that_cannot_be_created_is_told_of(api: ClusterApi) -> None:
    body = workload("rs", replicas=1)
    body["spec"]["template"]["spec"]["priorityClassName"] = "missing"
    await api.create("replicasets", body)

    async def told() -> Any:
        return [each for each in await told_of(api, "ReplicaSet", "rs") if each["reason"] == "FailedCreate"]

    event = (await api.until(told, "the failure was told"))[0]
    assert event["type"] == "Warning"
    start, quoted, rest = event["message"].split('"')
    assert (start, rest) == (
        "Error creating: pods ",
        " is forbidden: no PriorityClass with name missing was found",
    )
    assert quoted.startswith("rs-")


async def test_the_scheduler_tells_where_a_pod_goes(api: ClusterApi) -> None:
    await api.create("pods", {"metadata": {"name": "a"}, "spec": template()["spec"]})
    message = f"Successfully assigned {api.namespace}/a to pretended"

    async def scheduled() -> Any:
        return [each for each in await told_of(api, "Pod", "a") if each["reason"] == "Scheduled"]

    (event,) = await api.until(scheduled, "the scheduler has told")
    assert said(event) == ("Normal", "Scheduled", message, None)
    assert (event["action"], event["reportingComponent"]) == ("Binding", "default-scheduler")
    assert event["eventTime"]
    assert event["source"] == {}
    assert event["firstTimestamp"] is None


async def test_the_scheduler_tells_why_a_pod_goes_nowhere(api: ClusterApi) -> None:
    spec = {**template()["spec"], "nodeSelector": {"kubeshard.test/none": ""}}
    await api.create("pods", {"metadata": {"name": "a"}, "spec": spec})

    async def failed() -> Any:
        return await told_of(api, "Pod", "a")

    (event,) = await api.until(failed, "the scheduler has told")
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "FailedScheduling", "Scheduling")
    assert event["message"].startswith(
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    )


def told(cluster: Cluster, name: str = "a") -> list[tuple[str, str, str, str]]:
    """Returns the Events that the node reports about a pod, in order."""
    return [
        (each["reason"], each["message"], each["involvedObject"].get("fieldPath", ""), each["source"]["host"])
        for each in cluster.items("v1/events")
        if each["involvedObject"]["name"] == name and each["source"]
    ]


@virtual_time
async def test_a_node_tells_of_containers_that_begin_and_are_stopped() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        cluster.create("v1/pods", pod())
        await asyncio.sleep(1)
        part, host = "spec.containers{c}", "pretended"
        begun = [
            ("Pulled", 'Container image "a" already present on machine', part, host),
            ("Created", "Container created", part, host),
            ("Started", "Container started", part, host),
        ]
        assert told(cluster) == begun
        cluster.server.delete(cluster.at("v1/pods/a"))
        await asyncio.sleep(1)
        assert told(cluster) == [*begun, ("Killing", "Stopping container c", part, host)]


@virtual_time
async def test_a_node_tells_of_init_containers_and_of_ends() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        cluster.create(
            "v1/pods", pod(initContainers=[{"name": "first", "image": "b"}], restartPolicy="Never")
        )
        await asyncio.sleep(1)
        parts = [(reason, part) for reason, _, part, _ in told(cluster)]
        reasons = ("Pulled", "Created", "Started")
        assert parts == [
            *((reason, "spec.initContainers{first}") for reason in reasons),
            *((reason, "spec.containers{c}") for reason in reasons),
        ]


@virtual_time
async def test_a_node_tells_of_crashes_and_missing_images_once() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        cluster.create("v1/pods", pod("crash"))
        cluster.create(
            "v1/pods", {**pod("no-image"), "metadata": {**pod("no-image")["metadata"], "name": "b"}}
        )
        await asyncio.sleep(1)
        uid = cluster.get("v1/pods/a")["metadata"]["uid"]
        *_, (reason, message, _, _) = told(cluster)
        assert (reason, message) == (
            "BackOff",
            f"Back-off restarting failed container c in pod a_default({uid})",
        )
        assert [reason for reason, *_ in told(cluster, "b")] == [
            "Pulling",
            "Failed",
            "Failed",
            "BackOff",
            "Failed",
        ]
        before = cluster.items("v1/events")
        cluster.annotate("v1/pods/a", other="thing")
        await asyncio.sleep(1)
        assert cluster.items("v1/events") == before


@virtual_time
async def test_a_source_does_not_flood_an_object_with_events() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        cluster.create("apps/v1/statefulsets", workload("db", replicas=1, serviceName="db"))
        for _ in range(60):
            await asyncio.sleep(0.1)
            cluster.server.delete(cluster.at("v1/pods/db-0"))
        await asyncio.sleep(1)
        events = [
            each for each in cluster.items("v1/events") if each["involvedObject"]["kind"] == "StatefulSet"
        ]
        assert [each["count"] for each in events] == [25]
        await asyncio.sleep(300)
        cluster.server.delete(cluster.at("v1/pods/db-0"))
        await asyncio.sleep(1)
        events = [
            each for each in cluster.items("v1/events") if each["involvedObject"]["kind"] == "StatefulSet"
        ]
        # Events that were not written were counted.
        assert [each["count"] for each in events] == [62]
