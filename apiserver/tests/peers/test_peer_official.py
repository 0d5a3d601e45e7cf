"""The official Python client: an operator on its informer, its leader election, its dynamic client."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.informer.informer import ADDED, DELETED, MODIFIED, SharedInformer
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

from kubeshard_apiserver.testing import KubeApi

Eventually = Callable[..., Any]
VERSION, PLURAL = "v1", "greetings"


@pytest.fixture
def api_client(kube_api: KubeApi) -> Iterator[client.ApiClient]:
    with config.new_client_from_config(str(kube_api.kubeconfig)) as made:
        yield made


@pytest.fixture
def core(api_client: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(api_client)


@pytest.fixture
def custom(api_client: client.ApiClient) -> client.CustomObjectsApi:
    return client.CustomObjectsApi(api_client)


def greeting(name: str, to: str, group: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{group}/{VERSION}",
        "kind": "Greeting",
        "metadata": {"name": name},
        "spec": {"to": to},
    }


def config_map(name: str, **data: str) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data)


def test_an_operator_on_a_watch_reconciles_and_says_so_in_the_status(
    core: client.CoreV1Api,
    custom: client.CustomObjectsApi,
    greetings: str,
    kube_namespace: str,
    eventually: Eventually,
) -> None:
    kind = (greetings, VERSION, kube_namespace, PLURAL)
    failures: list[Exception] = []

    def reconcile(obj: dict[str, Any]) -> None:
        meta, text = obj["metadata"], f"hello, {obj['spec']['to']}"
        owner = client.V1OwnerReference(
            api_version=obj["apiVersion"],
            kind=obj["kind"],
            name=meta["name"],
            uid=meta["uid"],
            controller=True,
            block_owner_deletion=True,
        )
        wanted = config_map(meta["name"], text=text)
        wanted.metadata.owner_references = [owner]
        try:
            core.create_namespaced_config_map(kube_namespace, wanted)
        except ApiException as error:
            if error.status != 409:
                raise
            core.patch_namespaced_config_map(meta["name"], kube_namespace, {"data": {"text": text}})
        status = {"said": text, "observedGeneration": meta["generation"]}
        custom.patch_namespaced_custom_object_status(*kind, meta["name"], {"status": status})

    def operate() -> None:
        try:
            for event in watch.Watch().stream(custom.list_namespaced_custom_object, *kind):
                obj = event["object"]
                done = obj.get("status", {}).get("observedGeneration")
                if event["type"] == "DELETED":
                    return
                if done != obj["metadata"]["generation"]:
                    reconcile(obj)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=operate, daemon=True)
    thread.start()
    made = custom.create_namespaced_custom_object(*kind, greeting("a", "world", greetings))
    assert made["spec"]["tone"] == "friendly"

    def said(text: str) -> bool:
        assert not failures
        live = custom.get_namespaced_custom_object(*kind, "a")
        return bool(live.get("status", {}).get("said") == text)

    eventually(lambda: said("hello, world"))
    custom.patch_namespaced_custom_object(*kind, "a", {"spec": {"to": "moon"}})
    eventually(lambda: said("hello, moon"))
    found = core.read_namespaced_config_map("a", kube_namespace)
    assert found.data == {"text": "hello, moon"}
    assert found.metadata.owner_references[0].uid == made["metadata"]["uid"]
    custom.delete_namespaced_custom_object(*kind, "a")
    thread.join(20)
    assert not thread.is_alive()
    assert not failures


def test_the_shared_informer_follows_and_lists_again_after_the_server_forgot(
    core: client.CoreV1Api, kube_api: KubeApi, kube_namespace: str, eventually: Eventually
) -> None:
    seen: list[tuple[str, str]] = []
    informer = SharedInformer(core.list_namespaced_config_map, namespace=kube_namespace)
    for kind in (ADDED, MODIFIED, DELETED):
        informer.add_event_handler(kind, lambda obj, kind=kind: seen.append((kind, obj.metadata.name)))
    core.create_namespaced_config_map(kube_namespace, config_map("before"))
    informer.start()
    try:
        eventually(lambda: (ADDED, "before") in seen)
        core.create_namespaced_config_map(kube_namespace, config_map("during"))
        eventually(lambda: (ADDED, "during") in seen)
        core.patch_namespaced_config_map("during", kube_namespace, {"data": {"a": "b"}})
        eventually(lambda: (MODIFIED, "during") in seen)
        kube_api.forget()
        core.delete_namespaced_config_map("before", kube_namespace)
        eventually(lambda: (DELETED, "before") in seen)
        assert f"{kube_namespace}/before" not in informer.cache.list_keys()
        assert informer.cache.get_by_key(f"{kube_namespace}/during").data == {"a": "b"}
    finally:
        informer.stop()


def test_a_watch_from_a_forgotten_version_is_answered_gone(
    core: client.CoreV1Api, kube_api: KubeApi, kube_namespace: str
) -> None:
    if kube_api.target == "real":
        pytest.skip("did not run: etcd forgets, the watch cache of a real server remembers for minutes")
    core.create_namespaced_config_map(kube_namespace, config_map("a"))
    kube_api.forget()
    with pytest.raises(ApiException) as raised:
        for _ in watch.Watch().stream(
            core.list_namespaced_config_map, kube_namespace, resource_version="1", timeout_seconds=5
        ):
            pass
    assert raised.value.status == 410


def test_one_candidate_leads_and_another_takes_over(
    kube_api: KubeApi, kube_namespace: str, eventually: Eventually
) -> None:
    logging.getLogger("leaderelection").setLevel(logging.CRITICAL)
    config.load_kube_config(str(kube_api.kubeconfig))  # LeaseLock takes the default one

    def candidate(name: str) -> leaderelection.LeaderElection:
        lock = LeaseLock("greetings", kube_namespace, name)
        return leaderelection.LeaderElection(
            electionconfig.Config(
                lock,
                lease_duration=3,
                renew_deadline=2,
                retry_period=1,
                onstarted_leading=lambda: None,
                onstopped_leading=lambda: None,
            )
        )

    first, second = candidate("first"), candidate("second")
    assert first.try_acquire_or_renew()
    assert first.try_acquire_or_renew()
    assert not second.try_acquire_or_renew()
    lease = client.CoordinationV1Api().read_namespaced_lease("greetings", kube_namespace)
    assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("first", 3)
    eventually(second.try_acquire_or_renew)  # once the first one's lease has run out
    assert not first.try_acquire_or_renew()


def test_the_dynamic_client_discovers_applies_and_meets_conflicts(
    api_client: client.ApiClient, greetings: str, kube_namespace: str
) -> None:
    dynamic = DynamicClient(api_client)
    kind = dynamic.resources.get(api_version=f"{greetings}/{VERSION}", kind="Greeting")
    body = greeting("a", "world", greetings)

    def apply(to: str, manager: str, **options: Any) -> Any:
        body["spec"]["to"] = to
        return kind.server_side_apply(
            body=body, namespace=kube_namespace, name="a", field_manager=manager, **options
        )

    assert apply("world", "one").spec.to == "world"
    with pytest.raises(ApiException) as raised:
        apply("moon", "two")
    assert raised.value.status == 409
    assert apply("moon", "two", force_conflicts=True).spec.to == "moon"
    managers = [
        entry["manager"] for entry in kind.get(name="a", namespace=kube_namespace).metadata.managedFields
    ]
    assert managers == ["two"]
    names = [item.metadata.name for item in kind.get(namespace=kube_namespace).items]
    assert names == ["a"]


def test_events_are_posted_and_selected_by_what_they_are_about(
    core: client.CoreV1Api, kube_namespace: str
) -> None:
    now = datetime.now(UTC)
    about = client.V1ObjectReference(kind="ConfigMap", namespace=kube_namespace, name="a")
    event = client.CoreV1Event(
        metadata=client.V1ObjectMeta(generate_name="a-"),
        involved_object=about,
        reason="Greeted",
        message="hello",
        type="Normal",
        first_timestamp=now,
        last_timestamp=now,
        count=1,
    )
    core.create_namespaced_event(kube_namespace, event)
    selected = core.list_namespaced_event(kube_namespace, field_selector="involvedObject.name=a,type=Normal")
    assert [item.reason for item in selected.items] == ["Greeted"]
    other = core.list_namespaced_event(kube_namespace, field_selector="involvedObject.name=b")
    assert other.items == []
