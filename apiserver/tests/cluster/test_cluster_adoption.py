"""Objects without a controller, and objects whose labels have changed: which owner adopts them."""

from __future__ import annotations

from typing import Any

from cluster_api import ClusterApi, template, workload


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "spec": template()["spec"]}


async def controller_of(api: ClusterApi, path: str) -> Any:
    """Returns the kind and name of the object's controller."""
    found = await api.get(path)
    for reference in found["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            assert reference["blockOwnerDeletion"] is True
            return reference["kind"], reference["name"]
    return None


async def until_controlled(api: ClusterApi, path: str, wanted: tuple[str, str] | None) -> None:
    async def is_so() -> bool:
        return bool(await controller_of(api, path) == wanted)

    await api.until(is_so, f"{path} is controlled by {wanted}")


async def test_a_replica_set_adopts_pods_that_it_selects(api: ClusterApi) -> None:
    await api.create("pods", pod("mine", app="rs"))
    await api.create("pods", pod("other", app="other"))
    await api.until_status("pods/mine", phase="Running")
    await api.create("replicasets", workload("rs", replicas=2))
    await api.until_status("replicasets/rs", readyReplicas=2)
    assert await controller_of(api, "pods/mine") == ("ReplicaSet", "rs")
    assert await controller_of(api, "pods/other") is None
    assert len(await api.items("pods")) == 3


async def test_a_pod_that_comes_later_is_adopted_and_one_too_many_goes(api: ClusterApi) -> None:
    await api.create("replicasets", workload("rs", replicas=1))
    await api.until_status("replicasets/rs", readyReplicas=1)
    (first,) = await api.names("pods")
    await api.create("pods", pod("late", app="rs"))
    await api.until_gone("pods/late")
    assert await api.names("pods") == [first]


async def test_a_pod_that_is_not_selected_any_more_is_given_up_and_replaced(api: ClusterApi) -> None:
    await api.create("replicasets", workload("rs", replicas=1))
    await api.until_status("replicasets/rs", readyReplicas=1)
    (name,) = await api.names("pods")
    await api.patch(f"pods/{name}", {"metadata": {"labels": {"app": "quarantine"}}})
    await until_controlled(api, f"pods/{name}", None)
    await api.until_count("pods", 2)
    await api.patch(f"pods/{name}", {"metadata": {"labels": {"app": "rs"}}})
    await api.until_count("pods", 1)


async def test_a_pod_of_another_controller_is_left_alone(api: ClusterApi) -> None:
    await api.create("replicasets", workload("a", replicas=1))
    await api.until_status("replicasets/a", readyReplicas=1)
    (name,) = await api.names("pods")
    same = workload("b", replicas=1)
    same["spec"]["selector"] = {"matchLabels": {"app": "a"}}
    same["spec"]["template"]["metadata"]["labels"] = {"app": "a"}
    await api.create("replicasets", same)
    await api.until_status("replicasets/b", readyReplicas=1)
    assert await controller_of(api, f"pods/{name}") == ("ReplicaSet", "a")
    assert len(await api.items("pods")) == 2


async def test_a_deployment_takes_over_what_its_predecessor_left(api: ClusterApi) -> None:
    await api.create("deployments", workload("web", replicas=2))
    await api.until_status("deployments/web", readyReplicas=2)
    before = (await api.names("replicasets"), sorted(await api.names("pods")))
    await api.delete("deployments/web", "Orphan")
    await api.until_gone("deployments/web")
    await until_controlled(api, f"replicasets/{before[0][0]}", None)
    await api.create("deployments", workload("web", replicas=2))
    await api.until_status("deployments/web", readyReplicas=2, updatedReplicas=2)
    assert (await api.names("replicasets"), sorted(await api.names("pods"))) == before
    assert await controller_of(api, f"replicasets/{before[0][0]}") == ("Deployment", "web")


async def test_a_stateful_set_takes_over_what_its_predecessor_left(api: ClusterApi) -> None:
    await api.create("statefulsets", workload("db", replicas=2, serviceName="db"))
    await api.until_status("statefulsets/db", readyReplicas=2)
    before = {each["metadata"]["name"]: each["metadata"]["uid"] for each in await api.items("pods")}
    await api.delete("statefulsets/db", "Orphan")
    await api.until_gone("statefulsets/db")
    await until_controlled(api, "pods/db-0", None)
    await api.create("pods", pod("db-other", app="db"))
    await api.create("statefulsets", workload("db", replicas=2, serviceName="db"))
    await api.until_status("statefulsets/db", readyReplicas=2)
    after = {each["metadata"]["name"]: each["metadata"]["uid"] for each in await api.items("pods")}
    assert after.pop("db-other")
    assert after == before
    assert await controller_of(api, "pods/db-1") == ("StatefulSet", "db")
    # The name is not one that the set would give.
    assert await controller_of(api, "pods/db-other") is None


async def test_a_daemon_set_takes_over_what_its_predecessor_left(api: ClusterApi) -> None:
    await api.create("daemonsets", workload("ds"))
    await api.until_status("daemonsets/ds", numberReady=1)
    (name,) = await api.names("pods")
    await api.delete("daemonsets/ds", "Orphan")
    await api.until_gone("daemonsets/ds")
    await until_controlled(api, f"pods/{name}", None)
    await api.create("daemonsets", workload("ds"))
    await api.until_status("daemonsets/ds", numberReady=1, updatedNumberScheduled=1)
    assert await api.names("pods") == [name]
    assert await controller_of(api, f"pods/{name}") == ("DaemonSet", "ds")
