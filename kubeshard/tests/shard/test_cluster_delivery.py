"""A membership in a ring by clusters: what it refuses, and what may be written in which cluster."""

from __future__ import annotations

from typing import Any

import pytest
from test_sharding_membership import Api, Noop

from kubeshard.client.version_fence import VersionFence
from kubeshard.controller import Controller, Watch
from kubeshard.core import (
    EVERY_CLUSTER,
    HOME_CLUSTER,
    OTHER_CLUSTERS,
    ConfigMap,
    NotOurs,
    ObjectMeta,
    Secret,
)
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.patches import JsonPatch, test
from kubeshard.shard import Sharding
from kubeshard.shard.settings import DeclaredRing, Ranges
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.assignment import Assignment, Place
from kubeshard_lab.virtual_time import virtual_time

BY_CLUSTER = Ranges(by="cluster", buckets=64)
NEW = ConfigMap(metadata=ObjectMeta(name="m", namespace="ns"))
READ = ConfigMap(metadata=ObjectMeta(name="m", namespace="ns", uid="u", resource_version="1"))


def controller(**options: Any) -> Controller[Any]:
    given = {"name": "maps", "reconciler": Noop(), "primary": ConfigMap, "clusters": OTHER_CLUSTERS}
    return Controller(**{**given, **options})


async def prepared(*controllers: Controller[Any]) -> Sharding:
    sharding = Sharding("ring", "a", "ns", delivery=BY_CLUSTER)
    await sharding.prepare(Api().client(), controllers, {})
    return sharding


@pytest.mark.parametrize(
    "given",
    [
        {"objects_in": "eu"},
        {"ring": DeclaredRing("ring", [RingResource(group="", resource="configmaps")])},
    ],
)
def test_what_is_shared_out_by_clusters_is_not_narrowed(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="shares out everything in the manager's other clusters"):
        Sharding(**{"ring": "ring", "delivery": BY_CLUSTER, **given})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"clusters": [HOME_CLUSTER]}, "no controller works in other clusters"),
        ({"primary": Watch(ConfigMap, sharded=True)}, "leave out sharded=True"),
        (
            {
                "clusters": EVERY_CLUSTER,
                "watches": [Watch(Secret, to=lambda reader, obj: (), clusters=OTHER_CLUSTERS)],
            },
            "would see those of one shard only",
        ),
    ],
)
@virtual_time
async def test_a_controller_that_cannot_be_right_with_some_of_the_clusters_is_refused(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        await prepared(controller(**options))


@virtual_time
async def test_every_controller_is_the_rings_in_other_clusters_and_none_is_at_home() -> None:
    here = Watch(Secret, to=lambda reader, obj: (), clusters=[HOME_CLUSTER])
    maps = controller(clusters=EVERY_CLUSTER, watches=[here])
    sharding = await prepared(maps)
    assert sharding.wrap(maps, HOME_CLUSTER) is maps
    wrapped = sharding.wrap(maps, "eu")
    assert wrapped is not None
    assert len(wrapped.guards) == 1
    assert sharding.scopes("eu") == {}


@virtual_time
async def test_a_cluster_is_written_while_its_bucket_is_owned_and_a_write_proves_what_it_was_decided_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Sharding, "_check", lambda _: None)
    sharding = await prepared(controller())
    ownership = sharding._ready.member.metrics.ranges
    assert ownership is not None
    ours = ownership.buckets.of_key("eu")
    ownership.seen(Assignment.of(ownership.buckets, {ours: Place("a", "", 1)}))
    ownership.listed(ownership.terms)
    eu, us = Api(), Api()
    here, there = sharding.client(eu.client(), "eu"), sharding.client(us.client(), "us")
    assert isinstance(here._fence, VersionFence)
    with pytest.raises(ValueError, match="pass base"):
        await here.patch(ConfigMap, "m", "ns", JsonPatch([]))
    proven = JsonPatch([test("/metadata/uid", "u"), test("/data/v", "1")])
    for write in (
        lambda client: client.create(NEW),
        lambda client: client.patch(ConfigMap, "m", "ns", proven),
        lambda client: client.delete_object(READ),
    ):
        with pytest.raises(NotOurs, match="cluster us is another shard's"):
            await write(there)
    assert sharding._writes.refused == (3, 0)
    ownership.seen(Assignment.of(ownership.buckets, {ours: Place("b", "", 2)}))
    with pytest.raises(NotOurs, match="cluster eu is another shard's"):
        await here.create(NEW)
    sharding.client(eu.client(), "eu")
    assert sharding._writes.refused == (4, 0)
