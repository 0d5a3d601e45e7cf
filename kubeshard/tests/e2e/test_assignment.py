"""Objects get their shard in the request that creates them, or soon after."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from e2e_kinds import CHORES, REALMS, Chore, Realm
from e2e_processes import Processes
from e2e_recorder import Labels, Recorder
from e2e_ring import Ring, owners

from kubeshard.client import Client
from kubeshard.core import ConfigMap, Namespace, ObjectMeta, OwnerReference, controller_reference
from kubeshard.core.patches import MergePatch
from kubeshard_apiserver.testing.control_plane import free_port

SHARDS = ("a", "b", "c")


@pytest.fixture
async def ready_ring(ring: Ring, namespace: str, shards: Processes, sharders: Processes) -> Ring:
    await ring.create([CHORES, REALMS], {"kubernetes.io/metadata.name": namespace})
    shards.start_gated(*SHARDS, ring=ring.name, namespace=namespace)
    await ring.available(len(SHARDS))
    return ring


def chores(namespace: str, count: int, prefix: str = "chore") -> list[Chore]:
    return [Chore(metadata=ObjectMeta(name=f"{prefix}-{i}", namespace=namespace)) for i in range(count)]


async def test_an_object_is_assigned_in_the_request_that_creates_it(
    ready_ring: Ring, kube_client: Client, namespace: str
) -> None:
    async with Recorder(kube_client, ready_ring.name, [namespace], [Chore]).recording() as recorder:
        wanted = chores(namespace, 20)
        created = await asyncio.gather(*map(kube_client.create, wanted))
        places = owners(wanted, *SHARDS)
        assert {c.metadata.name: recorder.labels_of(c) for c in created} == places
        assert len({labels.shard for labels in places.values()}) == len(SHARDS)
        await recorder.quiet(Chore)
        assert {name: recorder.trace(Chore, name) for name in places} == {n: [p] for n, p in places.items()}


async def test_a_cluster_scoped_object_is_assigned_in_the_request_that_creates_it(
    ready_ring: Ring, kube_client: Client
) -> None:
    realms = [Realm(metadata=ObjectMeta(name=f"realm-{i}")) for i in range(5)]
    created = await asyncio.gather(*map(kube_client.create, realms))
    places = owners(realms, *SHARDS)
    assert {c.metadata.name: Labels(c.metadata.label(ready_ring.label)) for c in created} == places


async def test_generated_names_are_no_obstacle(ready_ring: Ring, kube_client: Client, namespace: str) -> None:
    """A controlled object gets its owner's shard at once. A main object has no name yet when the webhook is called: it
    is created without a shard, and assigned once it has a name.
    """
    async with Recorder(kube_client, ready_ring.name, [namespace], [Chore]).recording() as recorder:
        owner = await kube_client.create(chores(namespace, 1)[0])
        meta = ObjectMeta(
            generate_name="child-", namespace=namespace, owner_references=(controller_reference(owner),)
        )
        children = [await kube_client.create(ConfigMap(metadata=meta)) for _ in range(3)]
        shard = owner.metadata.label(ready_ring.label)
        assert shard
        assert {child.metadata.label(ready_ring.label) for child in children} == {shard}
        meta = ObjectMeta(generate_name="nameless-", namespace=namespace)
        made = await kube_client.create(Chore(metadata=meta))
        place = owners([made], *SHARDS)[made.metadata.name]
        name = made.metadata.name
        assert await recorder.until(lambda: recorder.labels(Chore).get(name) == place) < 2.0
        assert recorder.trace(Chore, name) == [Labels(""), place]


async def test_what_does_not_belong_to_the_ring_is_left_alone(
    ready_ring: Ring, kube_client: Client, namespace: str
) -> None:
    elsewhere = f"{namespace}-elsewhere"
    await kube_client.create(Namespace(metadata=ObjectMeta(name=elsewhere)))
    stranger = OwnerReference(api_version="v1", kind="Secret", name="s", uid="s", controller=True)
    recorder = Recorder(kube_client, ready_ring.name, [namespace, elsewhere], [Chore, ConfigMap])
    async with recorder.recording():
        for meta in (
            ObjectMeta(name="unowned", namespace=namespace),
            ObjectMeta(name="a-strangers", namespace=namespace, owner_references=(stranger,)),
        ):
            await kube_client.create(ConfigMap(metadata=meta))
        await kube_client.create(Chore(metadata=ObjectMeta(name="outside", namespace=elsewhere)))
        await recorder.quiet(Chore, ConfigMap, seconds=2.0)
        assert recorder.trace(ConfigMap, "unowned") == [Labels("")]
        assert recorder.trace(Chore, "outside") == [Labels("")]
        assert recorder.trace(ConfigMap, "a-strangers")[-1] == Labels("")
    await kube_client.delete(Namespace, elsewhere)


async def test_a_user_who_drops_the_shard_label_does_not_take_the_object_from_its_shard(
    ready_ring: Ring, kube_client: Client, namespace: str
) -> None:
    """It is put back in the same request, whichever verb removed it."""
    async with Recorder(kube_client, ready_ring.name, [namespace], [Chore]).recording() as recorder:
        chore = await kube_client.create(chores(namespace, 1)[0])
        place = recorder.labels_of(chore)
        manifest = {
            "apiVersion": Chore.KIND.api_version,
            "kind": "Chore",
            "metadata": {
                "name": chore.metadata.name,
                "resourceVersion": chore.metadata.resource_version,
                "labels": {"mine": "yes"},
            },
            "spec": {"note": "replaced"},
        }
        path = f"/apis/{Chore.KIND.api_version}/namespaces/{namespace}/chores/{chore.metadata.name}"
        await kube_client.raw("PUT", path, json.dumps(manifest).encode())
        dropped = MergePatch({"metadata": {"labels": None}})
        await kube_client.patch(Chore, chore.metadata.name, namespace, dropped)
        dropped = MergePatch({"metadata": {"labels": {ready_ring.label: None}}, "spec": {"note": "patched"}})
        await kube_client.patch(Chore, chore.metadata.name, namespace, dropped)
        await recorder.until(lambda: len(recorder.trace(Chore, chore.metadata.name)) >= 3)
        await recorder.quiet(Chore)
        assert set(recorder.trace(Chore, chore.metadata.name)) == {place}
        live = await kube_client.get(Chore, chore.metadata.name, namespace)
        assert live.spec.note == "patched"


@pytest.mark.usefixtures("kube_control_plane")  # ten seconds of waiting, so only on the real server
async def test_a_webhook_that_never_answers_delays_a_creation_but_does_not_refuse_it(
    ring: Ring, kube_client: Client, namespace: str, shards: Processes, sharders: Processes
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        alone(sharders, silent.getsockname()[1])
        await ring.create([CHORES], {"kubernetes.io/metadata.name": namespace})
        shards.start_gated("a", ring=ring.name, namespace=namespace, kinds=["chores"])
        async with Recorder(kube_client, ring.name, [namespace], [Chore]).recording() as recorder:
            await ring.ready(1)
            [chore] = chores(namespace, 1)
            assert not (await kube_client.create(chore)).metadata.label(ring.label)
            # The API server also calls the webhook for the sharder's patch, with the same timeout as for the user's.
            assert await recorder.until(lambda: recorder.labels(Chore) == owners([chore], "a")) < 5.0 + 2.0
        assert sharders.stop("sharder-alone") == 0


def alone(sharders: Processes, port: int) -> None:
    """Replaces the sharders by one whose webhook is registered at this port, where it does not listen."""
    for name in sharders.names:
        sharders.stop(name)
    url = f"https://127.0.0.1:{port}/"
    webhook = {"server": {"bindAddress": "0"}, "config": {"clientConfig": {"url": url}}}
    sharders.start_sharder("sharder-alone", webhook)


async def test_without_a_reachable_webhook_objects_are_assigned_within_two_seconds(
    ring: Ring, kube_client: Client, namespace: str, shards: Processes, sharders: Processes
) -> None:
    alone(sharders, free_port())
    await ring.create([CHORES, REALMS], {"kubernetes.io/metadata.name": namespace})
    shards.start_gated(*SHARDS, ring=ring.name, namespace=namespace)
    recorder = Recorder(kube_client, ring.name, [namespace], [Chore, ConfigMap, Realm])
    async with recorder.recording():
        await ring.ready(len(SHARDS))
        assert not await ring.webhook_assigns()
        wanted = chores(namespace, 20)
        for chore in wanted:
            owner = await kube_client.create(chore)
            assert not owner.metadata.label(ring.label)
            meta = ObjectMeta(
                name=f"of-{owner.metadata.name}",
                namespace=namespace,
                owner_references=(controller_reference(owner),),
            )
            await kube_client.create(ConfigMap(metadata=meta))
        await kube_client.create(Realm(metadata=ObjectMeta(name="realm")))
        places = owners(wanted, *SHARDS)
        children = {f"of-{name}": place for name, place in places.items()}
        await recorder.until(lambda: recorder.labels(Chore) == places)
        await recorder.until(lambda: children.items() <= recorder.labels(ConfigMap).items())
        await recorder.until(lambda: recorder.labels(Realm).get("realm", Labels("")).shard)
        for kind in (Chore, ConfigMap, Realm):
            for name in recorder.touched(kind, since=0) - {"kube-root-ca.crt"}:  # the cluster's own
                created, assigned = recorder.of(kind, name)
                assert assigned.at - created.at < 2.0
    assert sharders.stop("sharder-alone") == 0
