"""The checksum controller as two shards of a ring, without a sharder: the test writes the labels."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from kubeshard.client import Client
from kubeshard.core import ConfigMap, MergePatch, Namespace, NotFound, ObjectMeta, Secret
from kubeshard.examples.checksum import build_checksum_controller
from kubeshard.sharding import ControllerRing, ControllerRingSpec, RingGroupResource, RingResource
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import drain_label, shard_label


@asynccontextmanager
async def shard(client: Client, ring: str, namespace: str) -> AsyncIterator[None]:
    controller = build_checksum_controller(
        client, ring=ring, namespace=namespace, shard_name="one", lease_namespace=namespace
    )
    running = asyncio.create_task(controller.run())
    try:
        yield
    finally:
        controller.stop()
        await running


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110 - the API server's state
            await asyncio.sleep(0.05)


async def test_a_shard_hashes_its_secrets_follows_changes_and_hands_over(
    kube_client: Client, namespace: str, install_crd: Callable[..., None]
) -> None:
    install_crd(controller_ring_crd())
    ring, elsewhere = f"checksums-{namespace}", f"{namespace}-other"
    resources = RingResource(
        group="",
        resource="secrets",
        controlled_resources=(RingGroupResource(group="", resource="configmaps"),),
    )
    spec = ControllerRingSpec(resources=(resources,))
    await kube_client.create(ControllerRing(metadata=ObjectMeta(name=ring), spec=spec))
    await kube_client.create(Namespace(metadata=ObjectMeta(name=elsewhere)))
    ours = {shard_label(ring): "one"}
    for name, place, labels in (
        ("ours", namespace, ours),
        ("theirs", namespace, {shard_label(ring): "two"}),
        ("elsewhere", elsewhere, ours),
    ):
        data = {"key": base64.b64encode(b"1").decode()}
        await kube_client.create(
            Secret(metadata=ObjectMeta(name=name, namespace=place, labels=labels), data=data)
        )

    async def checksum_of(value: bytes) -> bool:
        try:
            found = await kube_client.get(ConfigMap, "checksums-ours", namespace)
        except NotFound:
            return False
        return (found.data or {}).get("key") == hashlib.sha256(value).hexdigest()

    async def released() -> bool:
        labels = (await kube_client.get(Secret, "ours", namespace)).metadata.labels or {}
        return not labels

    async with shard(kube_client, ring, namespace):
        await eventually(lambda: checksum_of(b"1"))
        data = {"data": {"key": base64.b64encode(b"2").decode()}}
        await kube_client.patch(Secret, "ours", namespace, MergePatch(data))
        await eventually(lambda: checksum_of(b"2"))
        found = await kube_client.get(ConfigMap, "checksums-ours", namespace)
        assert found.metadata.labels == {**ours, "secret": "ours"}
        drain = MergePatch({"metadata": {"labels": {drain_label(ring): "true"}}})
        await kube_client.patch(Secret, "ours", namespace, drain)
        await eventually(released)
    names = [m.metadata.name for m in await kube_client.list_all(ConfigMap, namespace)]
    assert "checksums-theirs" not in names
    assert not [m for m in await kube_client.list_all(ConfigMap, elsewhere) if "checksums" in m.metadata.name]
    await kube_client.delete(ControllerRing, ring)
    await kube_client.delete(Namespace, elsewhere)
