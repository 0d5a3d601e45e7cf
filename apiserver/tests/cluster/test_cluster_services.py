"""EndpointSlices and Endpoints of Services: the addresses of their pods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cluster_api import ClusterApi, owned_by, template, workload
from test_cluster_pretending import Cluster, pod

from kubeshard_apiserver.controllers import Controllers
from kubeshard_lab.virtual_time import virtual_time

SLICES = "endpointslices?labelSelector=kubernetes.io/service-name="
HTTP = {"name": "http", "port": 80, "targetPort": 8080}


def service(name: str = "web", **spec: Any) -> dict[str, Any]:
    spec = {"selector": {"app": "web"}, "ports": [HTTP], **spec}
    return {"metadata": {"name": name, "labels": {"tier": "front"}}, "spec": spec}


async def until_reached(api: ClusterApi, count: int, name: str = "web") -> Any:
    """Waits until the Service's only slice has this many ready endpoints; returns the slice."""

    async def has() -> Any:
        slices = await api.items(f"{SLICES}{name}")
        if len(slices) != 1:
            return None
        endpoints = slices[0]["endpoints"] or ()
        return slices[0] if sum(each["conditions"]["ready"] for each in endpoints) == count else None

    return await api.until(has, f"{name} is reached at {count} addresses")


async def until_endpoints(api: ClusterApi, *addresses: str) -> Any:
    async def has() -> Any:
        found = await api.get("endpoints/web")
        subsets = (found or {}).get("subsets") or ()
        has = [each["ip"] for subset in subsets for each in subset.get("addresses") or ()]
        return found if sorted(has) == sorted(addresses) else None

    return await api.until(has, f"endpoints are {addresses}")


async def pods_by_address(api: ClusterApi) -> dict[str, Any]:
    return {each["status"]["podIP"]: each for each in await api.items("pods")}


async def test_a_service_has_a_slice_of_its_ready_pods(api: ClusterApi) -> None:
    owner = await api.create("services", service())
    await api.create("replicasets", workload("web", replicas=2))
    found = await until_reached(api, 2)
    name = found["metadata"]["name"]
    assert name.startswith("web-")
    assert found["metadata"]["generateName"] == "web-"
    assert found["metadata"]["labels"] == {
        "tier": "front",
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    reference = owned_by({**owner, "kind": "Service", "apiVersion": "v1"}, controller=True)
    assert found["metadata"]["ownerReferences"] == [{**reference, "blockOwnerDeletion": True}]
    assert (found["addressType"], found["ports"]) == (
        "IPv4",
        [{"name": "http", "port": 8080, "protocol": "TCP"}],
    )
    pods = await pods_by_address(api)
    assert {each["addresses"][0] for each in found["endpoints"]} == set(pods)
    for each in found["endpoints"]:
        target = pods[each["addresses"][0]]["metadata"]
        assert each == {
            "addresses": each["addresses"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "nodeName": "pretended",
            "targetRef": {
                "kind": "Pod",
                "namespace": api.namespace,
                "name": target["name"],
                "uid": target["uid"],
            },
        }


async def test_endpoints_say_the_same(api: ClusterApi) -> None:
    await api.create("services", service())
    await api.create("replicasets", workload("web", replicas=2))
    await until_reached(api, 2)
    pods = await pods_by_address(api)
    found = await until_endpoints(api, *pods)
    assert found["metadata"]["labels"] == {
        "tier": "front",
        "endpoints.kubernetes.io/managed-by": "endpoint-controller",
    }
    assert "ownerReferences" not in found["metadata"]
    (subset,) = found["subsets"]
    assert subset["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    assert [each["ip"] for each in subset["addresses"]] == sorted(pods)
    for each in subset["addresses"]:
        target = pods[each["ip"]]["metadata"]
        reference = {
            "kind": "Pod",
            "namespace": api.namespace,
            "name": target["name"],
            "uid": target["uid"],
        }
        assert each == {"ip": each["ip"], "nodeName": "pretended", "targetRef": reference}


async def test_a_service_without_pods_has_an_empty_slice_that_is_filled_and_emptied(api: ClusterApi) -> None:
    await api.create("services", service())
    empty = await until_reached(api, 0)
    assert (empty["endpoints"] or [], empty["ports"] or []) == ([], [])
    assert not (await until_endpoints(api)).get("subsets")
    await api.create("replicasets", workload("web", replicas=1))
    filled = await until_reached(api, 1)
    assert filled["metadata"]["name"] == empty["metadata"]["name"]
    await api.patch("replicasets/web", {"spec": {"replicas": 0}})

    async def empty_again() -> Any:
        (found,) = await api.items(f"{SLICES}web")
        return not found["endpoints"] and not found["ports"] and found["metadata"]["name"]

    # For a while there is a terminating endpoint.
    assert await api.until(empty_again, "the slice is empty") == empty["metadata"]["name"]


async def test_slices_and_endpoints_go_with_their_service(api: ClusterApi) -> None:
    await api.create("services", service())
    await api.create("replicasets", workload("web", replicas=1))
    await until_reached(api, 1)
    (address,) = await pods_by_address(api)
    await until_endpoints(api, address)
    await api.delete("services/web")
    await api.until_count(f"{SLICES}web", 0)
    await api.until_gone("endpoints/web")


async def test_slices_and_endpoints_that_somebody_deletes_come_back(api: ClusterApi) -> None:
    await api.create("services", service())
    await api.create("replicasets", workload("web", replicas=1))
    found = await until_reached(api, 1)
    (address,) = await pods_by_address(api)
    await until_endpoints(api, address)
    await api.delete(f"endpointslices/{found['metadata']['name']}")
    await api.delete("endpoints/web")
    again = await until_reached(api, 1)
    assert again["metadata"]["uid"] != found["metadata"]["uid"]
    await until_endpoints(api, address)


async def test_slices_follow_the_labels_and_the_selector_of_their_service(api: ClusterApi) -> None:
    await api.create("services", service())
    await api.create("replicasets", workload("web", replicas=1))
    await api.create("replicasets", workload("other", replicas=2))
    await until_reached(api, 1)
    patch = {"metadata": {"labels": {"tier": "back"}}, "spec": {"selector": {"app": "other"}}}
    await api.patch("services/web", patch)
    found = await until_reached(api, 2)
    assert found["metadata"]["labels"]["tier"] == "back"


async def test_a_pod_that_loses_its_label_is_no_endpoint_any_more(api: ClusterApi) -> None:
    await api.create("services", service())
    body = {"metadata": {"name": "a", "labels": {"app": "web"}}, "spec": template()["spec"]}
    await api.create("pods", body)
    await until_reached(api, 1)
    await api.patch("pods/a", {"metadata": {"labels": {"app": "other"}}})
    await until_reached(api, 0)


async def test_a_headless_service_names_pods_and_needs_no_ports(api: ClusterApi) -> None:
    await api.create("services", service("db", clusterIP="None", ports=None, selector={"app": "db"}))
    await api.create("statefulsets", workload("db", replicas=1, serviceName="db"))
    found = await until_reached(api, 1, "db")
    assert found["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
    assert [each["hostname"] for each in found["endpoints"]] == ["db-0"]
    assert not found["ports"]

    async def named() -> Any:
        endpoints = await api.get("endpoints/db")
        return (endpoints or {}).get("subsets")

    (subset,) = await api.until(named, "there are endpoints")
    assert [each["hostname"] for each in subset["addresses"]] == ["db-0"]
    assert "ports" not in subset


async def test_a_named_port_is_looked_up_in_each_pod(api: ClusterApi) -> None:
    port = {"name": "http", "port": 80, "targetPort": "web"}
    await api.create("services", service(ports=[port]))
    for name, number in (("a", 8080), ("b", 9090)):
        spec = template()["spec"]
        spec["containers"][0]["ports"] = [{"name": "web", "containerPort": number}]
        await api.create("pods", {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec})

    async def two() -> Any:
        slices = await api.items(f"{SLICES}web")
        return sorted(
            (each["ports"][0]["port"], each["endpoints"][0]["targetRef"]["name"])
            for each in slices
            if each["ports"] and each["endpoints"]
        ) == [(8080, "a"), (9090, "b")]

    await api.until(two, "there is a slice for each port")
    subsets = (await until_endpoints(api, *await pods_by_address(api)))["subsets"]
    assert sorted(each["ports"][0]["port"] for each in subsets) == [8080, 9090]


async def test_services_without_a_selector_are_left_alone(api: ClusterApi) -> None:
    await api.create("services", service("alone", selector=None))
    await api.create("services", service("last"))
    await until_reached(api, 0, "last")
    assert await api.items(f"{SLICES}alone") == []
    assert await api.get("endpoints/alone") is None


@virtual_time
async def test_pods_that_are_not_ready_are_endpoints_that_do_not_serve() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        cluster.create("v1/services", service())
        body = pod("never-ready")
        body["metadata"]["labels"] = {"app": "web"}
        cluster.create("v1/pods", body)
        await asyncio.sleep(1)
        (found,) = cluster.items("discovery.k8s.io/v1/endpointslices")
        conditions = {"ready": False, "serving": False, "terminating": False}
        assert [each["conditions"] for each in found["endpoints"]] == [conditions]
        (subset,) = cluster.get("v1/endpoints/web")["subsets"]
        assert [each["targetRef"]["name"] for each in subset["notReadyAddresses"]] == ["a"]
        assert "addresses" not in subset
        cluster.annotate("v1/pods/a", pretend=None)
        await asyncio.sleep(1)
        (found,) = cluster.items("discovery.k8s.io/v1/endpointslices")
        assert [each["conditions"]["ready"] for each in found["endpoints"]] == [True]


@pytest.mark.long
@virtual_time
async def test_a_slice_has_a_hundred_endpoints_and_the_others_are_in_more() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        cluster.create("v1/services", service())
        cluster.create("apps/v1/replicasets", workload("web", replicas=110))
        await asyncio.sleep(5)
        slices = cluster.items("discovery.k8s.io/v1/endpointslices")
        assert sorted(len(each["endpoints"]) for each in slices) == [10, 100]
        names = [each["targetRef"]["name"] for found in slices for each in found["endpoints"]]
        assert len(set(names)) == 110
