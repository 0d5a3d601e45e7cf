"""Faults that a test injects into the API server in memory."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from kubeshard import ConfigMap, Context, Controller, Manager, ObjectMeta, ensure, errors
from kubeshard.core import MergePatch
from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver.server import ApiServer
from kubeshard_apiserver.testing.faults import Asked, asked
from kubeshard_apiserver.testing.memory import MemoryApi
from kubeshard_lab.virtual_time import virtual_time
from kubeshard_lab.virtual_world import virtual_world

REQUESTS = [
    ("GET", "/api/v1/namespaces/a/configmaps/b", Asked("get", "configmaps", "b")),
    ("GET", "/api/v1/configmaps?limit=1", Asked("list", "configmaps", "")),
    ("GET", "/api/v1/namespaces/a/configmaps?watch=1&x=y", Asked("watch", "configmaps", "")),
    ("GET", "/api/v1/namespaces/a", Asked("get", "namespaces", "a")),
    ("PUT", "/api/v1/namespaces/a/status", Asked("update", "namespaces/status", "a")),
    ("POST", "/apis/apps/v1/namespaces/a/deployments", Asked("create", "deployments", "")),
    ("PATCH", "/apis/apps/v1/namespaces/a/deployments/b/status", Asked("patch", "deployments/status", "b")),
    ("DELETE", "/apis/apps/v1/namespaces/a/deployments/b", Asked("delete", "deployments", "b")),
    ("DELETE", "/apis/apps/v1/namespaces/a/deployments", Asked("deletecollection", "deployments", "")),
]


@pytest.mark.parametrize(("method", "target", "found"), REQUESTS)
def test_a_request_is_recognized(method: str, target: str, found: Asked) -> None:
    assert asked(HttpRequest(method, target, {})) == found


def config_map(name: str = "a") -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"))


@virtual_time
async def test_a_refused_request_changes_nothing_and_only_so_many_are() -> None:
    api = MemoryApi()
    fault = api.inject("create", "configmaps", status=409, times=2)
    async with api.client() as client:
        for _ in range(2):
            with pytest.raises(errors.Conflict, match="injected by the test"):
                await client.create(config_map())
        await client.create(config_map())
        assert fault.hits == 2


@virtual_time
async def test_a_fault_is_about_its_verb_resource_and_name_and_can_be_stopped() -> None:
    api = MemoryApi()
    async with api.client() as client:
        await client.create(config_map("a"))
        await client.create(config_map("b"))
        fault = api.inject("get", "configmaps", "a", status=403)
        await client.get(ConfigMap, "b", "default")
        with pytest.raises(errors.Forbidden):
            await client.get(ConfigMap, "a", "default")
        fault.stop()
        await client.get(ConfigMap, "a", "default")
        assert fault.hits == 1


@virtual_time
async def test_a_lost_response_is_of_a_request_that_took_effect() -> None:
    api = MemoryApi()
    async with api.client() as client:
        await client.create(config_map())
        api.inject("patch", lost=True, times=1)
        with pytest.raises(errors.Unavailable):
            await client.patch(ConfigMap, "a", "default", MergePatch({"data": {"x": "1"}}))
        assert (await client.get(ConfigMap, "a", "default")).data == {"x": "1"}


@virtual_time
async def test_latency_costs_the_time_of_the_loop() -> None:
    api, loop = MemoryApi(), asyncio.get_running_loop()
    async with api.client() as client:
        api.inject(latency=30.0, times=1)
        began = loop.time()
        await client.create(config_map())
        assert loop.time() - began == 30


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"verb": "apply", "status": 409},
        {"status": 418},
        {"status": 409, "lost": True},
        {"verb": "watch", "lost": True},
    ],
)
def test_a_fault_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"does nothing|one of|take effect|cut"):
        MemoryApi().inject(**wrong)


@virtual_time
async def test_an_operator_gets_over_conflicts_outages_lost_responses_and_refused_watches() -> None:
    """What `kube_memory.inject` is for."""
    api = MemoryApi(ApiServer(world=virtual_world()))

    async def reconcile(ctx: Context, source: ConfigMap) -> None:
        if source.metadata.name == "source":
            copy = ConfigMap(metadata=ObjectMeta(name="copy", namespace="default"), data=source.data)
            await ensure(ctx, copy)

    faults = [
        api.inject("create", "configmaps", "", lost=True, times=1),
        api.inject("watch", "configmaps", status=503, times=3),
        api.inject("patch", "configmaps", "copy", status=409, times=3),
        api.inject("patch", "configmaps", "copy", lost=True, times=1),
    ]
    async with api.client() as client:
        with contextlib.suppress(errors.Unavailable):
            await client.create(config_map("source"))
        controller = Controller(name="copies", reconciler=reconcile, primary=ConfigMap)
        running = asyncio.create_task(Manager([controller], client=client, status_pages=None).run())
        await asyncio.sleep(120)
        await client.patch(ConfigMap, "source", "default", MergePatch({"data": {"x": "2"}}))
        await asyncio.sleep(120)
        assert (await client.get(ConfigMap, "copy", "default")).data == {"x": "2"}
        running.cancel()
        await asyncio.wait([running])
    assert [fault.hits for fault in faults] == [1, 3, 3, 1]
