"""Writes of a shard that acts on objects which it has lost, as often as `KUBESHARD_STALE_WRITES` says for each verb."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from test_policies_kube import DATA, RING, SHARD, client_of, policed

from kubeshard.client import Client
from kubeshard.core import (
    ApplyPatch,
    ConfigMap,
    JsonPatch,
    MergePatch,
    ObjectMeta,
    Secret,
    controller_reference,
)
from kubeshard.core.errors import ApiError, Conflict, Invalid
from kubeshard.core.patches import add
from kubeshard.core.selectors import Selector
from kubeshard.shard import ShardFence, ShardIdentity
from kubeshard.shard.identity import Incarnation
from kubeshard.sharding.api import RingGroupResource, RingResource
from kubeshard.sharding.ring_resources import RingResources

__all__ = ["policed"]

TIMES = int(os.environ.get("KUBESHARD_STALE_WRITES", "20"))
OBJECTS, AT_ONCE = 10, 5
ENFORCED_WITHIN = 30.0

Write = Callable[[Client, ConfigMap], Awaitable[object]]


def changed(obj: ConfigMap) -> ConfigMap:
    return msgspec.structs.replace(obj, data={"a": "b"})


def apply_body(obj: ConfigMap) -> Mapping[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": obj.metadata.name}, **DATA}


def patched(patch: Callable[[ConfigMap], Any], *, base: bool = False, **options: Any) -> Write:
    def write(client: Client, obj: ConfigMap) -> Awaitable[object]:
        meta, given = obj.metadata, {"base": obj} if base else {}
        return client.patch(ConfigMap, meta.name, meta.namespace, patch(obj), **given, **options)

    return write


FENCED: Mapping[str, Write] = {
    "replace": lambda client, obj: client.replace(changed(obj)),
    "JSON patch": patched(lambda obj: JsonPatch([add("/data", {"a": "b"})])),
    "JSON patch with base": patched(lambda obj: JsonPatch([add("/data", {"a": "b"})]), base=True),
    "merge patch": patched(lambda obj: MergePatch(DATA), base=True),
    "apply": patched(lambda obj: ApplyPatch(apply_body(obj))),
    "apply with base": patched(lambda obj: ApplyPatch(apply_body(obj)), base=True),
    "delete": lambda client, obj: client.delete_object(obj),
}
"""With what the shard has read before it lost the object."""

BARE: Mapping[str, Write] = {
    "replace": lambda client, obj: replaced(client, obj),
    "JSON patch": patched(lambda obj: JsonPatch([add("/data", {"a": "b"})])),
    "merge patch": patched(lambda obj: MergePatch(DATA)),
    "apply": patched(lambda obj: ApplyPatch(apply_body(obj))),
    "forced apply": patched(lambda obj: ApplyPatch(apply_body(obj)), force=True),
    "taking the label": patched(lambda obj: MergePatch({"metadata": {"labels": {SHARD: "a"}}})),
    "delete": lambda client, obj: client.delete(ConfigMap, obj.metadata.name, obj.metadata.namespace),
}
"""Without any proof, and with the object as it is now where the verb needs one."""


async def replaced(client: Client, obj: ConfigMap) -> object:
    return await client.replace(
        changed(await client.get(ConfigMap, obj.metadata.name, obj.metadata.namespace))
    )


async def lost_objects(client: Client, namespace: str) -> Sequence[ConfigMap]:
    """Objects as shard `a` has read them; now they are those of `b`."""
    read = []
    for number in range(OBJECTS):
        meta = ObjectMeta(name=f"lost-{number}", namespace=namespace, labels={SHARD: "a"})
        read.append(await client.create(ConfigMap(metadata=meta, data={"k": "v"})))
        patch = MergePatch({"metadata": {"labels": {SHARD: "b"}}})
        await client.patch(ConfigMap, meta.name, namespace, patch)
    return read


async def own_objects(client: Client, namespace: str) -> Sequence[ConfigMap]:
    """One for each verb, which nobody has taken from shard `a`."""
    metas = (
        ObjectMeta(name=f"own-{number}", namespace=namespace, labels={SHARD: "a"})
        for number in range(len(FENCED))
    )
    return [await client.create(ConfigMap(metadata=meta, data={"k": "v"})) for meta in metas]


async def versions(client: Client, namespace: str) -> Mapping[str, tuple[str, str, object]]:
    found = await client.list_all(ConfigMap, namespace)
    return {
        obj.metadata.name: (obj.metadata.uid, obj.metadata.resource_version, obj.data)
        for obj in found
        if obj.metadata.name.startswith("lost-")
    }


async def attempted(
    client: Client, writes: Mapping[str, Write], objects: Sequence[ConfigMap], times: int = TIMES
) -> Counter[str]:
    """Returns how many of each succeeded, by their answers."""
    landed, turns = Counter[str](), asyncio.Semaphore(AT_ONCE)

    async def one(verb: str, write: Write, obj: ConfigMap) -> None:
        async with turns:
            try:
                await write(client, obj)
            except (ApiError, Conflict, Invalid):
                return
            landed[verb] += 1

    async with asyncio.TaskGroup() as tasks:
        for verb, write in writes.items():
            for number in range(times):
                tasks.create_task(one(verb, write, objects[number % len(objects)]))
    return landed


async def test_no_stale_write_of_any_verb_lands_through_a_shards_client(
    kube_client: Client, namespace: str
) -> None:
    """Its Lease never stops it, as in a process that believes its clock."""
    identity = ShardIdentity(RING, "a", namespace, Incarnation("", "", "x"))
    fence = ShardFence(
        identity,
        RingResources([RingResource(group=ConfigMap.KIND.group, resource=ConfigMap.KIND.plural)]),
        (),
        lambda: None,
    )
    liar = kube_client.fenced(fence)
    own = await own_objects(kube_client, namespace)
    for (verb, write), obj in zip(FENCED.items(), own, strict=True):
        assert await attempted(liar, {verb: write}, [obj], 1), f"{verb} of an own object"
    stale = await lost_objects(kube_client, namespace)
    before = await versions(kube_client, namespace)
    landed = await attempted(liar, FENCED, stale)
    await liar.delete_collection(ConfigMap, namespace, label_selector=Selector.everything())
    assert not landed
    assert await versions(kube_client, namespace) == before


async def test_creates_land_however_late_and_are_the_shards_that_sent_them(
    kube_client: Client, namespace: str
) -> None:
    """There is nothing to compare with. They carry the label of their sender, so the sharder moves them to the owner of
    the object that they belong to.
    """
    identity = ShardIdentity(RING, "a", namespace, Incarnation("", "", "x"))
    children = (RingGroupResource(resource="configmaps"),)
    ring = RingResources([RingResource(resource="secrets", controlled_resources=children)])
    liar = kube_client.fenced(ShardFence(identity, ring, (Secret.KIND, ConfigMap.KIND), lambda: None))
    owner = await kube_client.create(Secret(metadata=ObjectMeta(name="owner", namespace=namespace)))
    for number in range(TIMES):
        meta = ObjectMeta(
            name=f"late-{number}", namespace=namespace, owner_references=(controller_reference(owner),)
        )
        await liar.create(ConfigMap(metadata=meta))
    mine = await kube_client.list_all(ConfigMap, namespace, label_selector=Selector.equals(SHARD, "a"))
    assert len(mine) == TIMES


async def test_policies_let_no_write_land_that_proves_nothing(kube_client: Client, policed: str) -> None:
    """A program with the rights of a shard, written with whatever library, in the pod of shard `a`."""
    stale, own = await lost_objects(kube_client, policed), await own_objects(kube_client, policed)
    async with client_of(kube_client, policed, "shard", "a") as liar:
        async with asyncio.timeout(ENFORCED_WITHIN):
            while await attempted(liar, {"": BARE["JSON patch"]}, stale[:1], 1):  # noqa: ASYNC110 - the server's
                await asyncio.sleep(0.2)
        for (verb, write), obj in zip(BARE.items(), own, strict=True):
            assert await attempted(liar, {verb: write}, [obj], 1), f"{verb} of an own object"
        before = await versions(kube_client, policed)
        landed = await attempted(liar, BARE, stale)
    assert not landed
    assert await versions(kube_client, policed) == before
