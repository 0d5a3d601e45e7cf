"""The kinds of the rings' resources, which are learned in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from small_ring import SmallRing

from kubeshard.cache.deltas import Added, Deleted, Updated
from kubeshard.client import KindNotServed
from kubeshard.core.kinds import GroupKind, GroupResource, Kind
from kubeshard.core.objects import ObjectMeta
from kubeshard.sharder.kinds_and_rights import PATIENCE, RETRY, ResourceKinds
from kubeshard.sharder.rings import Rings
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingGroupResource, RingResource
from kubeshard.sharding.ring_resources import RingResources
from kubeshard_lab.virtual_time import virtual_time

SECRETS = RingResource(
    group="", resource="secrets", controlled_resources=(RingGroupResource(group="", resource="configmaps"),)
)
HANGING = RingResource(group="hangs.example", resource="things")


def ring(name: str, *resources: RingResource) -> ControllerRing:
    return ControllerRing(metadata=ObjectMeta(name=name), spec=ControllerRingSpec(resources=resources))


class World:
    """A server on which one group hangs, and rings."""

    def __init__(self, *rings: ControllerRing) -> None:
        small = SmallRing()
        small.delete()
        for each in rings:
            small.rings.apply(Added(each))
        self.tell = small.rings.apply
        self.asked: list[str] = []
        self.served = {"secrets": "Secret", "configmaps": "ConfigMap"}
        client: Any = SimpleNamespace(discovery=SimpleNamespace(kind=self._kind, forget=lambda _: None))
        self.kinds = ResourceKinds(client)
        self.running = asyncio.create_task(self.kinds.keep_learning(small.rings))

    async def _kind(self, group: str, *, resource: str) -> Kind:
        self.asked.append(resource)
        if group == "hangs.example":
            await asyncio.sleep(60.0)
        if resource not in self.served:
            raise KindNotServed("no")
        return Kind(group, "v1", self.served[resource], resource)

    def owner_kinds(self) -> Mapping[GroupResource, Collection[GroupKind]]:
        return {each: {*kinds} for each, kinds in self.kinds.owner_kinds(RingResources([SECRETS])).items()}


@virtual_time
async def test_a_group_that_hangs_keeps_no_other_from_being_learned_and_a_webhook_only_shortly() -> None:
    world = World(ring("bad", HANGING), ring("good", SECRETS))
    async with asyncio.timeout(PATIENCE + 0.1):
        await world.kinds.tried()
    either = {GroupKind("", "Secret"), GroupKind("", "ConfigMap")}
    assert world.owner_kinds() == {GroupResource("", "configmaps"): either}


@virtual_time
async def test_a_webhook_waits_until_every_kind_was_asked_for() -> None:
    world = World(ring("good", SECRETS))
    async with asyncio.timeout(0.1):
        await world.kinds.tried()
    assert set(world.asked) == {"secrets", "configmaps"}
    assert world.owner_kinds()


@virtual_time
async def test_without_rings_nothing_is_waited_for() -> None:
    world = World()
    async with asyncio.timeout(0.1):
        await world.kinds.tried()


@virtual_time
async def test_a_kind_that_is_not_served_is_asked_for_again() -> None:
    world = World(ring("early", RingResource(group="", resource="pods")))
    await asyncio.sleep(1.0)
    world.served["pods"] = "Pod"
    await asyncio.sleep(RETRY)
    assert await world.kinds.kind(GroupResource("", "pods")) == Kind("", "v1", "Pod", "pods")
    assert world.asked == ["pods", "pods"]


@pytest.mark.parametrize("how", ["deleted", "changed"])
@virtual_time
async def test_kinds_that_no_ring_needs_are_forgotten_and_not_asked_for_any_more(how: str) -> None:
    gone, pods = ring("ring", SECRETS, HANGING), RingResource(group="", resource="pods")
    world = World(gone, ring("other", pods))
    await asyncio.sleep(1.0)
    if how == "deleted":
        world.tell(Deleted(gone))
    else:
        changed = msgspec.structs.replace(gone, spec=ControllerRingSpec(resources=(pods,)))
        world.tell(Updated(gone, changed))
    await asyncio.sleep(0.0)
    await asyncio.sleep(1.0)
    assert set(world.kinds._kinds) == set()
    assert world.owner_kinds() == {}
    world.asked.clear()
    await asyncio.sleep(200.0)
    assert set(world.asked) == {"pods"}
    assert not world.running.done()


@virtual_time
async def test_a_new_rings_kinds_are_learned_at_once() -> None:
    world = World()
    await asyncio.sleep(1.0)
    world.tell(Added(ring("new", SECRETS)))
    await asyncio.sleep(0.1)
    assert world.owner_kinds()


@virtual_time
async def test_a_changed_ring_does_not_cost_a_scan_of_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(*(ring(f"ring-{number}", SECRETS) for number in range(1000)))
    await asyncio.sleep(1.0)
    scanned: list[object] = []
    monkeypatch.setattr(Rings, "__iter__", lambda rings: scanned.append(rings) or iter(()))
    world.tell(Added(ring("another", RingResource(group="", resource="pods"))))
    world.served["pods"] = "Pod"
    await asyncio.sleep(1.0)
    assert "pods" in world.asked
    world.tell(Deleted(ring("another")))
    await asyncio.sleep(1.0)
    assert GroupResource("", "pods") not in world.kinds._kinds
    assert world.owner_kinds()
    assert scanned == []
