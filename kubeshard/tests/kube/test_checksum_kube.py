"""The checksum controller as a shard of a ring whose labels the test writes, as its own sharder, and as a singleton."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from kubeshard.client import Client
from kubeshard.core import ConfigMap, MergePatch, Namespace, NotFound, ObjectMeta, Secret
from kubeshard.shard.sharding import Mode
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingGroupResource, RingResource
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard_lab.examples.checksum import build_checksum_controller


@asynccontextmanager
async def instance(
    client: Client, ring: str, namespace: str, name: str = "one", mode: Mode | None = "shard"
) -> AsyncIterator[None]:
    controller = build_checksum_controller(
        client, ring=ring, namespace=namespace, shard_name=name, lease_namespace=namespace, mode=mode
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

    async with instance(kube_client, ring, namespace):
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


@pytest.mark.parametrize("mode", ["both", None], ids=["in-manager", "singleton"])
async def test_without_a_service_two_instances_share_the_secrets_and_a_singleton_has_them_all(
    kube_client: Client, namespace: str, mode: Mode | None
) -> None:
    ring, elsewhere = f"inside-{namespace}", f"{namespace}-beyond"
    await kube_client.create(Namespace(metadata=ObjectMeta(name=elsewhere)))
    shards = HashRing(["one", "two"] if mode else [])
    names = {f"s{number}" for number in range(8)}
    data = {"key": base64.b64encode(b"1").decode()}

    async def owners(place: str) -> dict[str, set[str]]:
        """Returns the shard labels of the Secrets and of their ConfigMaps, by name."""
        found: dict[str, set[str]] = {}
        for kind in (Secret, ConfigMap):
            for obj in await kube_client.list_all(kind, place):
                name = obj.metadata.name.removeprefix("checksums-")
                if name in names:
                    found.setdefault(f"{kind.KIND.kind} {name}", set()).add(
                        obj.metadata.label(shard_label(ring))
                    )
        return found

    async def all_done() -> bool:
        found = await owners(namespace)
        wanted = {name: {shards.owner(f"/Secret/{namespace}/{name}")} for name in names}
        return found == {f"{kind} {name}": wanted[name] for name in names for kind in ("Secret", "ConfigMap")}

    async with AsyncExitStack() as running:
        for name in ("one", "two"):
            await running.enter_async_context(instance(kube_client, ring, namespace, name, mode))
        for place in (namespace, elsewhere):
            for name in sorted(names):
                await kube_client.create(Secret(metadata=ObjectMeta(name=name, namespace=place), data=data))
        await eventually(all_done)
        assert {owner for each in (await owners(elsewhere)).values() for owner in each} == {""}
    await kube_client.delete(Namespace, elsewhere)
