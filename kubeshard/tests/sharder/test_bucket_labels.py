"""Which objects of a ring by ranges the coordinator labels, and with what."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from kubeshard.cache import Added
from kubeshard.core import ALL, ConfigMap, KubeObject, Namespace, ObjectMeta, Secret
from kubeshard.core.objects import OwnerReference
from kubeshard.core.owners import NOTED_OWNER, controller_reference, owner_note
from kubeshard.core.selectors import LabelSelector
from kubeshard.sharder.bucket_labels import RETRY, BucketLabels
from kubeshard.sharder.kinds_and_rights import ResourceKinds
from kubeshard.sharder.metrics import SharderMetrics
from kubeshard.sharder.owners import OwnerChains
from kubeshard.sharder.rings import Rings
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingGroupResource, RingResource
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.names import bucket_label
from kubeshard.sharding.ring import RingInputs
from kubeshard.sharding.shard_states import ShardStates
from kubeshard_apiserver import ApiServer
from kubeshard_apiserver.testing.memory import MemoryApi
from kubeshard_lab.virtual_time import settle, virtual_time
from kubeshard_lab.virtual_world import virtual_world


class ServiceAccount(KubeObject, group="", version="v1"):
    pass


LABEL = bucket_label("ring")
BUCKETS = Buckets(64)
MAPS, ACCOUNTS = RingGroupResource(resource="configmaps"), RingGroupResource(resource="serviceaccounts")
RESOURCES = (
    RingResource(resource="secrets", controlled_resources=(MAPS, ACCOUNTS)),
    RingResource(resource="namespaces", controlled_resources=(MAPS,)),
)
STRANGER = OwnerReference(api_version="apps/v1", kind="Deployment", name="x", uid="x", controller=True)


def owned(name: str, *owners: OwnerReference, label: str = "", note: KubeObject | None = None) -> ObjectMeta:
    return ObjectMeta(
        name=name,
        namespace="default",
        owner_references=owners,
        labels={LABEL: label} if label else None,
        annotations={NOTED_OWNER: owner_note(note)} if note else None,
    )


@virtual_time
async def test_each_object_is_labelled_with_the_bucket_of_the_main_object_that_it_follows() -> None:
    api = MemoryApi(ApiServer(world=virtual_world()))
    async with api.client() as client:
        near = await client.create(Secret(metadata=ObjectMeta(name="near", namespace="default")))
        wide = await client.create(Namespace(metadata=ObjectMeta(name="wide")))
        far = await client.create(Secret(metadata=ObjectMeta(name="far", namespace="wide")))
        of_near, of_wide, of_far = (str(BUCKETS.of(each.metadata)) for each in (near, wide, far))
        assert len({of_near, of_wide, of_far, "7"}) == 4
        by_near = controller_reference(near)
        right = await client.create(ConfigMap(metadata=owned("right", by_near, label=of_near)))
        between = await client.create(ConfigMap(metadata=owned("between", by_near)))
        for metadata in (
            owned("wrong", by_near, label="7"),
            owned("wide", controller_reference(wide)),
            owned("noted", note=far),
            owned("believed", note=far, label="7"),  # to know better, its owner would be read each time
            owned("stranger", STRANGER),
            owned("left", label="7"),
        ):
            await client.create(ConfigMap(metadata=metadata))
        below = owned("below", controller_reference(between))
        await client.create(ServiceAccount(metadata=below))

        kinds = ResourceKinds(client)
        chains = OwnerChains(client, kinds)
        rings = Rings(
            RingInputs(
                shards=ShardStates(),
                kinds=kinds,
                metrics=SharderMetrics(CollectorRegistry()),
                clock=client.clock,
                default_selector=LabelSelector(),
                chains=chains,
            )
        )
        labels = BucketLabels("ring", BUCKETS, rings, kinds, chains, client, sync_period=300)
        scanning = asyncio.create_task(labels.run())
        rings.apply(
            Added(
                ControllerRing(metadata=ObjectMeta(name="ring"), spec=ControllerRingSpec(resources=RESOURCES))
            )
        )
        await asyncio.sleep(RETRY)
        await settle()
        maps = {each.metadata.name: each.metadata for each in await client.list_all(ConfigMap, "default")}
        assert {name: meta.label(LABEL) for name, meta in maps.items()} == {
            "right": of_near,
            "between": of_near,
            "wrong": of_near,
            "wide": of_wide,
            "noted": of_far,
            "believed": "7",
            "stranger": "",
            "left": "",
        }
        assert maps["right"].resource_version == right.metadata.resource_version
        (account,) = await client.list_all(ServiceAccount, ALL)
        assert account.metadata.label(LABEL) == of_near
        assert rings.get("ring").report.unresolved == {}
        scanning.cancel()
