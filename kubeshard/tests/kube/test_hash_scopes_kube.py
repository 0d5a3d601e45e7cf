"""A cache of hashes against a real API server, which filters by them or does not know the parameter."""

from __future__ import annotations

import asyncio

import pytest

from kubeshard.cache import Cache, Scope
from kubeshard.client import Client
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.core.hash_ranges import HASHES, HashRanges
from kubeshard_apiserver.testing import ControlPlane

pytestmark = pytest.mark.kube


def eighths(*which: int) -> Scope:
    ranges = HashRanges.of("uid", [(each * HASHES // 8, (each + 1) * HASHES // 8) for each in which])
    return Scope(frozenset({"default"}), hashes=ranges)


@pytest.mark.parametrize("gate", [True, False], ids=["filters", "ignores"])
async def test_a_cache_has_the_hashes_of_its_scope_whatever_these_were_before(gate: bool) -> None:
    with ControlPlane(feature_gates=[f"ShardedListAndWatch={str(gate).lower()}"]) as kube:
        async with await Client.connect(kube.kubeconfig) as client:

            async def write(number: int, value: str) -> None:
                meta = ObjectMeta(name=f"map-{number}", namespace="default")
                await client.apply(ConfigMap(metadata=meta, data={"value": value}), force=True)

            for number in range(60):
                await write(number, "first")
            cache = Cache(client)
            informer = cache.declare(ConfigMap, eighths(0, 1))
            async with cache.running(), asyncio.timeout(60):
                await cache.synced()
                for which in ((0, 1, 2, 3), (2, 3, 4), (2, 3, 4, 6), (0, 2, 4, 6), (0, 1, 2, 4, 6), (3,), ()):
                    await cache.rescope(informer, eighths(*which))
                    for number in range(0, 60, 7):
                        await write(number, str(which))
                    found = await client.list_all(ConfigMap, "default")
                    there = {
                        obj.key: obj
                        for obj in found
                        if informer.scope.may_select(ConfigMap.KIND, obj.metadata)
                    }
                    while {obj.key: obj for obj in informer.store.list()} != there:
                        await asyncio.wait([informer.progress()])
            assert (informer.foreign == 0) is gate
            assert informer.failures == 0
