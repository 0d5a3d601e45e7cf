"""The webhook as called by a real API server: over TLS, with the certificate that the sharder creates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from kubeshard.cache import Added
from kubeshard.client import Client
from kubeshard.core import ConfigMap, GroupResource, MergePatch, ObjectMeta, OwnerReference, Secret
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import KubeshardError
from kubeshard.core.owners import controller_reference
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.selectors import LabelSelector
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.rng import SystemRng
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.sharder.admission import ShardAdmission
from kubeshard.sharder.config import WebhookClientConfig, WebhookConfig
from kubeshard.sharder.metrics import SharderMetrics
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.webhook_config import SECRET_NAME, serving_names, webhook_configuration
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingGroupResource, RingResource
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import APP_NAME, WEBHOOK_PATH_PREFIX
from kubeshard.sharding.ring import RingInputs
from kubeshard.sharding.ring_resources import PossibleOwners, RingResources
from kubeshard.sharding.shard_states import Availability
from kubeshard.webhook import WebhookServer
from kubeshard.webhook.shared_certificate import SharedCertificate

RING = "webhook-test"
SHARD_LABEL = f"shard.alpha.sharding.timebertt.dev/{RING}"
DRAIN_LABEL = f"drain.alpha.sharding.timebertt.dev/{RING}"


class View:
    """The view of a sharder that learns nothing new, except about its shards."""

    learned = 0

    def __init__(self, ring: ControllerRing) -> None:
        self.shards: tuple[str, ...] = ("a", "b")
        self.rings = Rings(
            RingInputs(
                shards=self,
                kinds=self,
                metrics=SharderMetrics(CollectorRegistry()),
                clock=SystemClock(),
                default_selector=LabelSelector(),
            )
        )
        self.rings.apply(Added(ring))

    def owner_kinds(self, resources: RingResources) -> Mapping[GroupResource, PossibleOwners]:
        return {}

    def availability(self, ring: str, now: float) -> Availability:
        return Availability(self.shards, self.shards, now)

    def fresh(self, now: float) -> bool:
        return True

    def named(self, ring: str, shard: str) -> list[Lease]:
        return []

    def signs(self, ring: str, shard: str) -> bool:
        return False


def owner(namespace: str, name: str, *shards: str) -> str:
    return HashRing(shards or ("a", "b")).owner(f"/ConfigMap/{namespace}/{name}")


@pytest.fixture
async def view(kube_client: Client, namespace: str) -> AsyncIterator[View]:
    """A ring of the namespace's ConfigMaps whose webhook runs in this process."""
    ring = ControllerRing(
        metadata=ObjectMeta(name=RING, uid="00000000-0000-4000-8000-000000000000"),
        spec=ControllerRingSpec(
            resources=(
                RingResource(
                    group="",
                    resource="configmaps",
                    controlled_resources=(RingGroupResource(group="", resource="secrets"),),
                ),
            )
        ),
    )
    view = View(ring)
    names = serving_names(WebhookClientConfig(url="https://127.0.0.1"))
    certificate = SharedCertificate(
        kube_client,
        names,
        namespace=namespace,
        secret=SECRET_NAME,
        app=APP_NAME,
        clock=SystemClock(),
        rng=SystemRng(),
    )
    server = WebhookServer(
        {WEBHOOK_PATH_PREFIX: ShardAdmission(view.rings, SystemClock())},
        certificate,
        host="127.0.0.1",
        port=0,
        server_name=names[0],
    )
    async with server.running(REAL_WORLD):
        client_config = WebhookClientConfig(
            url=f"https://127.0.0.1:{server.port}", ca_bundle=certificate.ca_bundle
        )
        config = WebhookConfig(client_config=client_config)
        body: dict[str, Any] = webhook_configuration(ring, config, sharders=("sharder",))
        del body["metadata"]["ownerReferences"]
        for webhook in body["webhooks"]:
            webhook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
            webhook["failurePolicy"] = "Fail"  # a call that fails must fail the test
        await kube_client.apply(body, field_manager="test", force=True)
        await called(kube_client, namespace)
        yield view
        with suppress(KubeshardError):
            await kube_client.delete(MutatingWebhookConfiguration, body["metadata"]["name"])


async def called(client: Client, namespace: str) -> None:
    """Waits until the API server, which watches configurations, calls a new webhook."""
    async with asyncio.timeout(20):
        while True:
            probe = ConfigMap(metadata=ObjectMeta(name="probe", namespace=namespace))
            created = await client.create(probe, dry_run=True)
            if created.metadata.has_label(SHARD_LABEL):
                return
            await asyncio.sleep(0.05)


def config_map(namespace: str, name: str, labels: Mapping[str, str] | None = None) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels))


async def test_created_objects_are_assigned(kube_client: Client, namespace: str, view: View) -> None:
    for name, labels in (("bare", None), ("labelled", {"x": "y"}), ("c-3", None), ("c-4", {})):
        created = await kube_client.create(config_map(namespace, name, labels))
        assert created.metadata.labels == {**(labels or {}), SHARD_LABEL: owner(namespace, name)}


async def test_a_generated_name_is_let_through_unassigned(
    kube_client: Client, namespace: str, view: View
) -> None:
    meta = ObjectMeta(generate_name="some-", namespace=namespace)
    created = await kube_client.create(ConfigMap(metadata=meta))
    assert created.metadata.label(SHARD_LABEL) in ("", owner(namespace, created.metadata.name))


async def test_a_removed_label_is_put_back_until_the_drain_is_acknowledged(
    kube_client: Client, namespace: str, view: View
) -> None:
    created = await kube_client.create(config_map(namespace, "kept"))
    shard = created.metadata.label(SHARD_LABEL)
    view.shards = ("a", "b", "c", "d", "e")

    async def patch(labels: dict[str, str | None], by: str = "user") -> Mapping[str, str] | None:
        change = MergePatch({"metadata": {"labels": labels}})
        patched = await kube_client.patch(ConfigMap, "kept", namespace, change, field_manager=by)
        return patched.metadata.labels

    assert await patch({SHARD_LABEL: None}) == {SHARD_LABEL: shard}
    replaced = await kube_client.replace(config_map(namespace, "kept"))
    assert replaced.metadata.labels == {SHARD_LABEL: shard}
    assert await patch({DRAIN_LABEL: "true"}) == {SHARD_LABEL: shard, DRAIN_LABEL: "true"}
    both = {SHARD_LABEL: shard, DRAIN_LABEL: "true"}
    assert await patch({SHARD_LABEL: None, DRAIN_LABEL: None}) == both
    target = owner(namespace, "kept", *view.shards)
    # One that just released it does not get it back from here: the sharder knows why it asked.
    assigned = {SHARD_LABEL: target} if target != shard else None
    assert await patch({SHARD_LABEL: None, DRAIN_LABEL: None}, by=str(shard)) == assigned


async def test_a_controlled_object_follows_when_it_gets_another_owner(
    kube_client: Client, namespace: str, view: View
) -> None:
    on = {owner(namespace, f"o-{number}"): f"o-{number}" for number in range(20)}
    owners = {
        shard: controller_reference(await kube_client.create(config_map(namespace, name)))
        for shard, name in on.items()
    }

    async def given_to(*references: OwnerReference) -> str:
        change = {"ownerReferences": [msgspec.to_builtins(each) for each in references]}
        patched = await kube_client.patch(Secret, "child", namespace, MergePatch({"metadata": change}))
        return patched.metadata.label(SHARD_LABEL)

    meta = ObjectMeta(name="child", namespace=namespace, owner_references=(owners["a"],))
    assert (await kube_client.create(Secret(metadata=meta))).metadata.label(SHARD_LABEL) == "a"
    assert await given_to(owners["b"]) == "b"
    assert await given_to() == "b"
    assert await given_to(owners["a"]) == "a"


async def test_without_a_shard_objects_are_let_through(
    kube_client: Client, namespace: str, view: View
) -> None:
    view.shards = ()
    created = await kube_client.create(config_map(namespace, "early"))
    assert not created.metadata.has_label(SHARD_LABEL)
    view.shards = ("b",)
    patched = await kube_client.patch(ConfigMap, "early", namespace, MergePatch({"data": {"x": "y"}}))
    assert patched.metadata.label(SHARD_LABEL) == "b"


async def test_many_concurrent_requests_are_all_assigned(
    kube_client: Client, namespace: str, view: View
) -> None:
    created = await asyncio.gather(
        *(kube_client.create(config_map(namespace, f"many-{i}")) for i in range(100))
    )
    assert all(o.metadata.label(SHARD_LABEL) == owner(namespace, o.metadata.name) for o in created)
