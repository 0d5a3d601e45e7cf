"""kubernetes_asyncio: an operator on its watch, its leader election."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.leaderelection import electionconfig, leaderelection
from kubernetes_asyncio.leaderelection.resourcelock.leaselock import LeaseLock

from kubeshard_apiserver.testing import KubeApi

VERSION, PLURAL = "v1", "greetings"


@pytest.fixture
async def api_client(kube_api: KubeApi) -> AsyncIterator[client.ApiClient]:
    async with await config.new_client_from_config(str(kube_api.kubeconfig)) as made:
        yield made


async def test_an_operator_on_a_watch_finalizes_and_says_so_in_the_status(
    api_client: client.ApiClient, greetings: str, kube_namespace: str
) -> None:
    custom = client.CustomObjectsApi(api_client)
    kind = (greetings, VERSION, kube_namespace, PLURAL)
    finalizer = f"{greetings}/farewell"
    farewells: list[str] = []
    said = asyncio.Event()

    async def reconcile(obj: dict[str, Any]) -> None:
        meta = obj["metadata"]
        if "deletionTimestamp" in meta:
            if meta.get("finalizers"):
                farewells.append(meta["name"])
                await custom.patch_namespaced_custom_object(
                    *kind,
                    meta["name"],
                    {"metadata": {"finalizers": None}},
                    _content_type="application/merge-patch+json",
                )
        elif finalizer not in meta.get("finalizers", ()):
            await custom.patch_namespaced_custom_object(
                *kind,
                meta["name"],
                [{"op": "add", "path": "/metadata/finalizers", "value": [finalizer]}],
                _content_type="application/json-patch+json",
            )
        elif "said" in obj.get("status", {}):
            said.set()
        else:
            await custom.patch_namespaced_custom_object_status(
                *kind,
                meta["name"],
                {"status": {"said": f"hello, {obj['spec']['to']}"}},
                _content_type="application/merge-patch+json",
            )

    async def operate() -> None:
        async with watch.Watch() as watching:
            async for event in watching.stream(custom.list_namespaced_custom_object, *kind):
                if event["type"] in ("ADDED", "MODIFIED"):
                    await reconcile(event["object"])

    body = {"apiVersion": f"{greetings}/{VERSION}", "kind": "Greeting", "spec": {"to": "world"}}
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        operator = group.create_task(operate())
        await custom.create_namespaced_custom_object(*kind, {**body, "metadata": {"name": "a"}})
        await said.wait()
        live = await custom.get_namespaced_custom_object(*kind, "a")
        assert live["metadata"]["finalizers"] == [finalizer]
        assert live["status"] == {"said": "hello, world"}
        deleted = await custom.delete_namespaced_custom_object(*kind, "a")
        assert deleted["metadata"]["deletionTimestamp"]
        while await _exists(custom, *kind, "a"):  # noqa: ASYNC110 - the server cannot tell us
            await asyncio.sleep(0.02)
        operator.cancel()
    assert farewells == ["a"]


async def _exists(custom: client.CustomObjectsApi, *path: str) -> bool:
    try:
        await custom.get_namespaced_custom_object(*path)
    except ApiException as error:
        if error.status != 404:
            raise
        return False
    return True


async def test_a_watch_goes_on_where_the_one_before_ended(
    api_client: client.ApiClient, kube_namespace: str
) -> None:
    core = client.CoreV1Api(api_client)
    seen = []

    async def follow(version: str, seconds: int) -> str:
        async with watch.Watch() as watching:
            async for event in watching.stream(
                core.list_namespaced_config_map,
                kube_namespace,
                resource_version=version,
                timeout_seconds=seconds,
            ):
                seen.append((event["type"], event["object"].metadata.name))
                version = event["object"].metadata.resource_version
                if event["type"] == "DELETED":
                    break
        return version

    start = (await core.list_namespaced_config_map(kube_namespace)).metadata.resource_version
    await core.create_namespaced_config_map(kube_namespace, {"metadata": {"name": "a"}})
    async with asyncio.timeout(30):
        version = await follow(start, 1)
        await core.create_namespaced_config_map(kube_namespace, {"metadata": {"name": "b"}})
        await core.delete_namespaced_config_map("a", kube_namespace)
        await follow(version, 10)
    assert [event for event in seen if event[1] in "ab"] == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]


async def test_one_candidate_leads_and_another_takes_over(
    api_client: client.ApiClient, kube_namespace: str
) -> None:
    leading = {name: asyncio.Event() for name in ("first", "second")}

    def candidate(name: str) -> leaderelection.LeaderElection:
        async def lead() -> None:
            leading[name].set()
            await asyncio.Event().wait()

        async def end() -> None:
            pass

        lock = LeaseLock("greetings", kube_namespace, name, api_client)
        return leaderelection.LeaderElection(
            electionconfig.Config(
                lock,
                lease_duration=3,
                renew_deadline=2,
                retry_period=1,
                onstarted_leading=lead,
                onstopped_leading=end,
            )
        )

    async with asyncio.timeout(40):
        first = asyncio.create_task(candidate("first").run())
        await leading["first"].wait()
        second = asyncio.create_task(candidate("second").run())
        lease = await client.CoordinationV1Api(api_client).read_namespaced_lease("greetings", kube_namespace)
        assert lease.spec.holder_identity == "first"
        assert not leading["second"].is_set()
        first.cancel()
        await leading["second"].wait()
        second.cancel()
    for task in (first, second):
        with contextlib.suppress(asyncio.CancelledError):
            await task
