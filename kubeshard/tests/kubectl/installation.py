"""An installation of the sharder in which everything is well: the objects of `kubeshard manifests`, a sharder at work,
a ring with two shards, and objects that its webhook has assigned.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from ring_cluster import SECRETS, TEAM, RingCluster

from kubeshard.client import Client, install, load_config
from kubeshard.client.config import ClusterConfig
from kubeshard.core import Lease, MergePatch, Secret
from kubeshard.core.conditions import get_condition
from kubeshard.core.errors import NotFound
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration, Pod
from kubeshard.core.selectors import Selector
from kubeshard.core.times import micro_time
from kubeshard.kinds import Deployment
from kubeshard.manager.config_file import Endpoint
from kubeshard.manifests.ring import ring_objects
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import SharderValues
from kubeshard.runtime.watchdog import NoWatchdog
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.sharder.app import build_sharder
from kubeshard.sharder.config import SharderConfig, WebhookClientConfig, WebhookServerConfig, WebhookSettings
from kubeshard.sharder.webhook_config import SECRET_NAME
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import webhook_config_name
from kubeshard_apiserver.admission.caller import HttpCaller
from kubeshard_apiserver.controllers.controllers import Controllers
from kubeshard_apiserver.serving.embedded import EmbeddedServer
from kubeshard_apiserver.testing.control_plane import ControlPlane, free_port

RING = "r"
SYSTEM = "sharding-system"
WORLD = dataclasses.replace(REAL_WORLD, watchdog=NoWatchdog)


class Installation:
    """`client` is an administrator's. `stop_sharder` ends the sharder as a crash would: it releases nothing."""

    def __init__(self, client: Client, config: ClusterConfig, port: int, *, by_url: bool = False) -> None:
        """`by_url`: the API server cannot find the Service."""
        self.client = client
        self.config = config
        self.cluster = RingCluster(client)
        self._port = port
        self._called = WebhookClientConfig(url=f"https://127.0.0.1:{port}/") if by_url else None
        self._sharder: asyncio.Task[None] | None = None

    async def install(self) -> None:
        objects = sharder_objects(SharderValues())
        namespaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            for name in ("team", "other")
        ]
        async for _ in install(self.client, [*objects, *namespaces]):
            pass
        await self.apply_ring(TEAM)
        if not self._called:
            await until(self._has_pods)
        for name in ("a", "b"):
            await self.cluster.shard(name)
            await self.client.patch(Lease, name, "team", MergePatch({"spec": {"leaseDurationSeconds": 60}}))
        self.start_sharder()
        await until(self._is_ready)
        for number in range(3):
            await self.cluster.secret(f"s{number}")
        await until(self._is_assigned)

    async def apply_ring(self, selector: Mapping[str, Any]) -> None:
        """With the sharder's rights on it."""
        ring = {
            "apiVersion": "sharding.timebertt.dev/v1alpha1",
            "kind": "ControllerRing",
            "metadata": {"name": RING},
            "spec": {"resources": SECRETS, "namespaceSelector": selector},
        }
        async for _ in install(self.client, ring_objects(ring, (SYSTEM, "sharder"))):
            pass

    async def renew(self) -> None:
        """The Leases of the shards; nobody else does."""
        renewed = MergePatch({"spec": {"renewTime": micro_time(time.time())}})
        for name in ("a", "b"):
            await self.client.patch(Lease, name, "team", renewed)

    async def remove(self) -> None:
        """All that the next installation would meet, and what somebody else has changed."""
        for manifest in sharder_objects(SharderValues()):
            await self.client.apply(manifest, force=True)
        await self.delete(f"/apis/sharding.timebertt.dev/v1alpha1/controllerrings/{RING}")
        with suppress(NotFound):  # which the garbage collector may have deleted
            await self.client.delete(MutatingWebhookConfiguration, webhook_config_name(RING))
        for kind in (Secret, Lease):
            await self.client.delete_collection(kind, "team")
        for namespace, kind, name in ((SYSTEM, Lease, "sharder"), (SYSTEM, Secret, SECRET_NAME)):
            await self.client.delete(kind, name, namespace)

    def start_sharder(self) -> None:
        off = Endpoint(bind_address="0")
        server = WebhookServerConfig(bind_address=f"127.0.0.1:{self._port}")
        webhook = WebhookSettings(server=server)
        if self._called:
            called = msgspec.structs.replace(webhook.config, client_config=self._called)
            webhook = msgspec.structs.replace(webhook, config=called)
        config = msgspec.structs.replace(SharderConfig(), health=off, metrics=off, webhook=webhook)
        self._sharder = asyncio.create_task(self._sharding(config))

    async def _sharding(self, config: SharderConfig) -> None:
        """With the rights of its account, unless it registers a URL, which the policies deny it."""
        user = {} if self._called else {"Impersonate-User": f"system:serviceaccount:{SYSTEM}:sharder"}
        own = dataclasses.replace(self.config, impersonate=user)
        async with Client(own, world=self.client.world) as client:
            await build_sharder(config, client).run()

    async def start_with_new_pods(self) -> None:
        """Starts a sharder when the Deployment has other pods, as they would."""
        before = await self._pods()

        async def are_new() -> bool:
            now = await self._pods()
            return bool(now) and not now & before

        await until(are_new)
        await self.stop_sharder()
        self.start_sharder()

    async def _pods(self) -> set[str]:
        chosen = Selector.equals("app.kubernetes.io/component", "sharder")
        return {each.metadata.uid for each in await self.client.list_all(Pod, SYSTEM, label_selector=chosen)}

    async def stop_sharder(self) -> None:
        if self._sharder:
            self._sharder.cancel()
            await asyncio.gather(self._sharder, return_exceptions=True)
        self._sharder = None

    async def patch(self, path: str, body: Mapping[str, Any]) -> None:
        """A merge patch of any object."""
        await self.client.raw(
            "PATCH", path, msgspec.json.encode(body), content_type="application/merge-patch+json"
        )

    async def delete(self, path: str) -> None:
        await self.client.raw("DELETE", path)

    async def webhooks(self, **changed: Any) -> None:
        """Changes the clientConfig of the ring's webhooks, as somebody else would; the sharder is gone."""
        name = webhook_config_name(RING)
        found = await self.client.get(MutatingWebhookConfiguration, name)
        entries = [
            {**each, "clientConfig": _without_none({**each["clientConfig"], **changed})}
            for each in found.webhooks
        ]
        await self.client.patch(MutatingWebhookConfiguration, name, None, MergePatch({"webhooks": entries}))

    async def _has_pods(self) -> bool:
        found = await self.client.get(Deployment, "sharder", SYSTEM)
        return found.status.available_replicas == found.spec.replicas

    async def _is_ready(self) -> bool:
        ring = await self.client.get(ControllerRing, RING)
        ready = get_condition(ring.status.conditions, "Ready") if ring.status else None
        return bool(ring.status and ready and ready.status == "True" and ring.status.available_shards == 2)

    async def _is_assigned(self) -> bool:
        found = await self.client.list_all(Secret, "team")
        return all(each.metadata.labels for each in found)


@asynccontextmanager
async def installation(folder: Path) -> AsyncIterator[Installation]:
    """On the embedded server, which finds the Service."""
    port = free_port()

    def resolve(namespace: str, name: str, wanted: int) -> str:
        if (namespace, name, wanted) != (SYSTEM, "sharder", 443):
            raise LookupError(f"service {namespace}/{name}:{wanted} not found")
        return f"127.0.0.1:{port}"

    async with AsyncExitStack() as stack:
        caller = HttpCaller(WORLD.connect, resolve)
        stack.push_async_callback(caller.close)
        served = await stack.enter_async_context(EmbeddedServer(caller=caller))
        await stack.enter_async_context(
            Controllers(
                served.server,
                pods=True,
                root_ca=served.credentials.ca,
                caller=served.caller,
                rights=served.front.gate.rights,
            )
        )
        served.write_kubeconfig(folder / "kubeconfig")
        config = await load_config(folder / "kubeconfig")
        client = await stack.enter_async_context(Client(config, world=WORLD))
        async with installed(Installation(client, config, port)) as made:
            yield made
            await caller.close()  # else the sharder waits a second for the end of idle connections


@asynccontextmanager
async def real_installation(control_plane: ControlPlane) -> AsyncIterator[Installation]:
    """On a real control plane, of which little is left afterwards."""
    config = await load_config(control_plane.kubeconfig)
    async with Client(config, world=WORLD) as client:
        async with installed(Installation(client, config, free_port(), by_url=True)) as made:
            yield made
        await made.remove()


@asynccontextmanager
async def installed(made: Installation) -> AsyncIterator[Installation]:
    try:
        await made.install()
        yield made
    finally:
        await made.stop_sharder()


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


async def until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)
