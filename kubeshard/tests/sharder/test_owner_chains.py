"""What a process remembers of objects that control others."""

from __future__ import annotations

import pytest
from small_api import SmallApi

from kubeshard.core.kinds import GroupKind, GroupResource
from kubeshard.core.objects import ObjectMeta, OwnerReference
from kubeshard.runtime.clock import SystemClock
from kubeshard.sharder import owners
from kubeshard.sharder.kinds_and_rights import ResourceKinds
from kubeshard.sharder.owners import OwnerChains
from kubeshard.sharding.api import RingGroupResource, RingResource
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.planner import RingView
from kubeshard.sharding.ring_resources import OwnerKind, RingResources


async def test_objects_whose_controllers_are_gone_are_not_remembered_without_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owners, "MOST", 10)
    api = SmallApi()
    client = api.client(SystemClock())
    kinds = ResourceKinds(client)
    chains = OwnerChains(client, kinds)
    controlled = (
        RingGroupResource(group="", resource="configmaps"),
        RingGroupResource(group="", resource="pods"),
    )
    resources = RingResources((RingResource(resource="secrets", controlled_resources=controlled),))
    pods, maps = GroupResource("", "pods"), GroupResource("", "configmaps")
    above = {
        GroupKind("", "Secret"): OwnerKind(GroupResource("", "secrets"), True, True),
        GroupKind("", "ConfigMap"): OwnerKind(maps, False, True),
    }
    view = RingView(
        "ring", resources, HashRing(("a",)), owner_kinds={pods: above, maps: above}, controllers=chains.known
    )
    for number in range(100):
        gone = OwnerReference(
            api_version="v1", kind="ConfigMap", name="gone", uid=f"uid-{number}", controller=True
        )
        meta = ObjectMeta(
            name=f"p{number}", namespace=f"ns-{number}", uid=f"p{number}", owner_references=(gone,)
        )
        await chains.look_up(view, resources.entry(pods), meta)
        assert gone.uid in chains.known
        assert len(chains.known) <= 10
        assert len(chains._missed) <= 10
