"""Shards by ranges against a real API server, with the feature gate and without; the test acts as the coordinator."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from kubeshard.client import Client, load_config
from kubeshard.client.version_fence import VersionFence
from kubeshard.controller import Context, Controller, Watch
from kubeshard.controller.dependents import ensure
from kubeshard.core import ConfigMap, Conflict, Namespace, ObjectMeta, Secret, Selector
from kubeshard.core.patches import ApplyPatch, JsonPatch, MergePatch, add
from kubeshard.manager import Manager
from kubeshard.runtime.watchdog import NoWatchdog
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.shard import DeclaredRing, RingResource, Sharding
from kubeshard.sharding.api import RingGroupResource
from kubeshard.sharding.assignment import Assignment, Place
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.names import RING_LABEL, assignment_name, bucket_label
from kubeshard_apiserver.testing import ControlPlane

pytestmark = pytest.mark.kube

BUCKETS = Buckets()
LABEL = bucket_label("secrets")
RING = DeclaredRing(
    "secrets",
    [RingResource(resource="secrets", controlled_resources=(RingGroupResource(resource="configmaps"),))],
)
OBJECTS = 24
PLACE = "ranges-test"


@pytest.fixture(scope="module", params=["true", "false"], ids=["selects", "ignores"])
def gated(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """The gate is given either way: which one is the default depends on the release."""
    with ControlPlane(feature_gates=[f"ShardedListAndWatch={request.param}"]) as plane:
        yield plane


@pytest.fixture
async def client(gated: ControlPlane) -> AsyncIterator[Client]:
    config = await load_config(kubeconfig=gated.kubeconfig)
    async with Client(config) as client:
        await client.create(Namespace(metadata=ObjectMeta(name=PLACE)))
        yield client


def manager(client: Client, name: str, runs: dict[str, str]) -> Manager:
    async def reconcile(ctx: Context, obj: Secret) -> None:
        if obj.metadata.namespace == PLACE:
            child = ObjectMeta(name=f"c-{obj.metadata.name}", namespace=PLACE)
            await ensure(ctx, ConfigMap(metadata=child, data={"by": "an owner"}), owner=obj)
            runs[obj.metadata.name] = name

    controller = Controller(
        name="secret",
        reconciler=reconcile,
        primary=Watch(Secret, sharded=True),
        owns=[Watch(ConfigMap, sharded=True)],
    )
    return Manager(
        [controller],
        client=client.config,
        sharding=Sharding(RING, name, PLACE, delivery="ranges"),
        world=dataclasses.replace(REAL_WORLD, watchdog=NoWatchdog),
        status_pages=None,
    )


async def children(client: Client) -> dict[str, ConfigMap]:
    """By the names of their owners."""
    found = await client.list_all(ConfigMap, PLACE, label_selector=Selector.exists(LABEL))
    return {each.metadata.name.removeprefix("c-"): each for each in found}


def cached(manager: Manager) -> dict[str, str]:
    """The uids of the children that a shard knows, by the names of their owners."""
    return {
        each.metadata.name.removeprefix("c-"): each.metadata.uid
        for informer in manager.cache.informers_of(ConfigMap.KIND)
        for each in informer.store.objects()
    }


async def until(condition: Callable[[], bool], what: str) -> None:
    """Polls the condition for 20 seconds."""
    for _ in range(400):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within 20 s: {what}")


SAID = {
    "true": "The API server selects this shard's objects",
    "false": "The API server sends all objects, and this shard leaves out those of others",
}


async def test_buckets_are_handed_over_with_what_their_objects_control_and_nothing_is_written(
    client: Client, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    """Each shard says once who selects its objects."""
    caplog.set_level(logging.INFO)
    made = [
        await client.create(Secret(metadata=ObjectMeta(name=f"s{number}", namespace=PLACE)))
        for number in range(OBJECTS)
    ]
    name, runs = assignment_name("secrets"), {}
    everything = Assignment.of(BUCKETS, dict.fromkeys(BUCKETS.all.buckets, Place("a", "", 1)))
    metadata = ObjectMeta(name=name, namespace=PLACE, labels={RING_LABEL: "secrets"})
    await client.create(ConfigMap(metadata=metadata, data=everything.data()))
    managers = [manager(client, each, runs) for each in ("a", "b")]
    tasks = [asyncio.create_task(each.run()) for each in managers]
    try:
        await until(lambda: len(runs) == OBJECTS, "the owner runs everything")
        assert set(runs.values()) == {"a"}
        owned = await children(client)
        assert {name: each.metadata.label(LABEL) for name, each in owned.items()} == {
            each.metadata.name: str(BUCKETS.of(each.metadata)) for each in made
        }
        before = Assignment.parse((await client.get(ConfigMap, name, PLACE)).data)
        half = dict.fromkeys(range(256, 768), ("a", "b"))
        patch = before.change(half)
        assert patch is not None
        await client.patch(ConfigMap, name, PLACE, patch)
        expected = {each.metadata.name: "ab"[256 <= BUCKETS.of(each.metadata) < 768] for each in made}
        assert set(expected.values()) == {"a", "b"}
        await until(lambda: runs == expected, "both have run what is theirs")
        after = await client.get(ConfigMap, name, PLACE)
        assert Assignment.parse(after.data).owned_by("b") == half.keys()
        now = {each.metadata.uid: each for each in await client.list_all(Secret, PLACE)}
        assert [now[each.metadata.uid].metadata.resource_version for each in made] == [
            each.metadata.resource_version for each in made
        ]
        assert await children(client) == owned
        for shard, manager_of in zip("ab", managers, strict=True):
            mine = {name: owned[name].metadata.uid for name in expected if expected[name] == shard}
            await until(lambda mine=mine, of=manager_of: cached(of) == mine, "it knows its own children")
            lost = min(mine)
            await client.delete(ConfigMap, f"c-{lost}", PLACE)
            await until(
                lambda mine=mine, of=manager_of, lost=lost: (
                    cached(of).keys() == mine.keys() and cached(of)[lost] != mine[lost]
                ),
                "it has made it again",
            )
            again = (await children(client))[lost]
            assert again.metadata.label(LABEL) == owned[lost].metadata.label(LABEL)
    finally:
        for each in managers:
            each.stop()
        await asyncio.wait(tasks)
    assert [task.exception() for task in tasks] == [None, None]
    said = [each.msg for each in caplog.records if each.msg in SAID.values()]
    assert said == [SAID[request.node.callspec.params["gated"]]] * 2


VERBS: dict[str, Callable[[Client, Secret], Any]] = {
    "replace": lambda client, obj: client.replace(obj),
    "merge": lambda client, obj: client.patch(
        Secret, obj.metadata.name, obj.metadata.namespace, MergePatch({"type": "Opaque"}), base=obj
    ),
    "apply": lambda client, obj: client.patch(
        Secret,
        obj.metadata.name,
        obj.metadata.namespace,
        ApplyPatch({"apiVersion": "v1", "kind": "Secret", "stringData": {"x": "y"}}),
        base=obj,
    ),
    "forced": lambda client, obj: client.patch(
        Secret,
        obj.metadata.name,
        obj.metadata.namespace,
        ApplyPatch({"apiVersion": "v1", "kind": "Secret", "stringData": {"x": "y"}}),
        base=obj,
        force=True,
    ),
    "json": lambda client, obj: client.patch(
        Secret,
        obj.metadata.name,
        obj.metadata.namespace,
        JsonPatch([add("/metadata/labels", {"a": "b"})]),
        base=obj,
    ),
    "delete": lambda client, obj: client.delete_object(obj),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_a_write_that_was_decided_on_an_older_version_is_refused(
    kube_client: Client, namespace: str, verb: str
) -> None:
    fenced = kube_client.fenced(VersionFence(lambda kind: True, lambda kind, meta: True, lambda: None))
    read = await kube_client.create(Secret(metadata=ObjectMeta(name=verb, namespace=namespace)))
    successors = MergePatch({"metadata": {"annotations": {"by": "the next owner"}}})
    now = await kube_client.patch(Secret, verb, namespace, successors)
    with pytest.raises(Conflict):
        await VERBS[verb](fenced, read)
    assert await kube_client.get(Secret, verb, namespace) == now
    await VERBS[verb](fenced, now)
