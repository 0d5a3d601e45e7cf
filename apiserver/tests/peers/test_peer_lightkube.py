"""lightkube: typed and generic resources, server-side apply, watches, all Lists at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from lightkube import ApiError, AsyncClient, Client, KubeConfig
from lightkube.generic_resource import GenericNamespacedResource, create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import PatchType

from kubeshard_apiserver.testing import KubeApi


@pytest.fixture
def lightkube(kube_api: KubeApi, kube_namespace: str) -> Client:
    return Client(
        config=KubeConfig.from_file(kube_api.kubeconfig), namespace=kube_namespace, field_manager="lightkube"
    )


@pytest.fixture
async def async_lightkube(kube_api: KubeApi, kube_namespace: str) -> AsyncIterator[AsyncClient]:
    made = AsyncClient(
        config=KubeConfig.from_file(kube_api.kubeconfig), namespace=kube_namespace, field_manager="lightkube"
    )
    yield made
    await made.close()


@pytest.fixture
def kind(greetings: str) -> type[GenericNamespacedResource]:
    return create_namespaced_resource(greetings, "v1", "Greeting", "greetings")


async def test_an_operator_on_a_watch_applies_children_and_status(
    async_lightkube: AsyncClient, kind: type[GenericNamespacedResource], kube_namespace: str
) -> None:
    said = asyncio.Event()

    async def operate() -> None:
        async for what, obj in async_lightkube.watch(kind):
            if what == "DELETED":
                continue
            text = f"hello, {obj.spec['to']}"
            if (obj.status or {}).get("said") == text:
                said.set()
                continue
            await async_lightkube.apply(
                ConfigMap(
                    metadata=ObjectMeta(name=obj.metadata.name, namespace=kube_namespace), data={"text": text}
                )
            )
            await async_lightkube.patch(
                kind.Status, obj.metadata.name, {"status": {"said": text}}, patch_type=PatchType.MERGE
            )

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        operator = group.create_task(operate())
        await async_lightkube.create(kind(metadata=ObjectMeta(name="a"), spec={"to": "world"}))
        await said.wait()
        operator.cancel()
    assert (await async_lightkube.get(ConfigMap, "a")).data == {"text": "hello, world"}
    assert (await async_lightkube.get(kind, "a")).status["said"] == "hello, world"


def test_server_side_apply_owns_what_it_states(lightkube: Client, kube_namespace: str) -> None:
    def wanted(**data: str) -> ConfigMap:
        return ConfigMap(metadata=ObjectMeta(name="a", namespace=kube_namespace), data=data)

    lightkube.apply(wanted(a="1", b="2"))
    assert lightkube.apply(wanted(a="1")).data == {"a": "1"}
    with pytest.raises(ApiError) as raised:
        lightkube.apply(wanted(a="2"), field_manager="other")
    assert raised.value.status.code == 409
    assert [cause.field for cause in raised.value.status.details.causes] == [".data.a"]
    assert lightkube.apply(wanted(a="2"), field_manager="other", force=True).data == {"a": "2"}


def test_a_stale_replace_is_a_conflict(lightkube: Client) -> None:
    lightkube.create(ConfigMap(metadata=ObjectMeta(name="a")))
    mine, yours = lightkube.get(ConfigMap, "a"), lightkube.get(ConfigMap, "a")
    yours.data = {"by": "you"}
    lightkube.replace(yours)
    mine.data = {"by": "me"}
    with pytest.raises(ApiError) as raised:
        lightkube.replace(mine)
    assert raised.value.status.reason == "Conflict"


def test_lists_are_paged_and_selected_and_wait_sees_conditions(
    lightkube: Client, kind: type[GenericNamespacedResource]
) -> None:
    for number in range(7):
        labels = {"odd": str(number % 2)}
        lightkube.create(ConfigMap(metadata=ObjectMeta(name=f"a-{number}", labels=labels)))
    assert len(list(lightkube.list(ConfigMap, chunk_size=3, labels={"odd": ["0", "1"]}))) == 7
    assert len(list(lightkube.list(ConfigMap, labels={"odd": "1"}))) == 3
    lightkube.create(kind(metadata=ObjectMeta(name="a"), spec={"to": "world"}))
    ready = {"type": "Ready", "status": "True"}
    lightkube.patch(kind.Status, "a", {"status": {"conditions": [ready]}}, patch_type=PatchType.MERGE)
    assert lightkube.wait(kind, "a", for_conditions=["Ready"]).metadata.name == "a"
