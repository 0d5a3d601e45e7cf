"""The webhosting operator's ring with sharders and shards of both implementations, in every combination."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from programs import LEASE_SECONDS, Programs
from ring import Ring, differing, eventually, on

from kubeshard.client import Client
from kubeshard.core import ObjectMeta
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import STATE_LABEL, shard_label
from kubeshard_apiserver.testing.child import Child
from kubeshard_lab.examples.webhosting import manifests
from kubeshard_lab.examples.webhosting.api import RING, Website, WebsiteSpec
from kubeshard_lab.examples.webhosting.workload import Deployment, Ingress, ServerFiles, Service

pytestmark = pytest.mark.interop

CHILDREN = (Deployment, ServerFiles, Service, Ingress)
SITES = [f"site-{number}" for number in range(20)]


class Fleet:
    """The ring, its sharder, and shards that are all kubeshard's, all Go, or one after the other."""

    def __init__(
        self, ring: Ring, programs: Programs, sharder: str, shards: str, go: dict[str, Path]
    ) -> None:
        self.ring = ring
        self._programs = programs
        self._go = go
        self._sharder = go["sharder"] if sharder == "go" else None
        self.sharder_is_go = sharder == "go"
        self._kinds = itertools.cycle({"mixed": ("go", "kubeshard")}.get(shards, (shards,)))
        self._processes: dict[str, Child] = {}

    async def start(self, *shards: str) -> None:
        """Returns once new objects get a shard: the sharder's webhook works, and knows a shard."""
        self._programs.sharder(self._sharder)
        await self.ring.create()
        for shard in shards:
            await self.join(shard)
        await eventually(self._born_assigned, 60)

    async def join(self, shard: str) -> None:
        go = self._go["operator"] if next(self._kinds) == "go" else None
        self._processes[shard] = self._programs.operator(shard, self.ring.namespace, go)
        await eventually(lambda: self._holds(shard))

    async def _holds(self, shard: str) -> bool:
        self._programs.check()
        return await self.ring.holder(shard) == shard

    def stop(self, shard: str) -> int:
        return self._processes.pop(shard).stop(grace=30)

    def kill(self, shard: str) -> None:
        self._processes.pop(shard).kill()

    async def _born_assigned(self) -> bool:
        self._programs.check()
        made = await self.create("probe", dry_run=True)
        return bool(made.metadata.label(shard_label(RING)))

    async def create(self, name: str, dry_run: bool = False) -> Website:
        metadata = ObjectMeta(name=name, namespace=self.ring.namespace)
        website = Website(metadata=metadata, spec=WebsiteSpec(theme="exciting"))
        return await self.ring.client.create(website, dry_run=dry_run)

    def placement(self, *shards: str) -> dict[str, str]:
        """Returns the shards to which the sites belong."""
        ring = HashRing(shards)
        prefix = f"webhosting.timebertt.dev/Website/{self.ring.namespace}/"
        return {site: ring.owner(prefix + site) for site in SITES}

    async def rest(self, placement: dict[str, str]) -> bool:
        """Whether every site and all its children are on the right shard, and its status was written."""
        self._programs.check()
        sites = await self.ring.client.list_all(Website, self.ring.namespace)
        phases = {site.metadata.name: site.status.phase for site in sites}
        labels = await self.ring.labels()
        mine = {name: value for name, value in labels.items() if name in placement}
        if mine != on(placement) or not all(phases.get(name) for name in placement):
            return False
        for kind in CHILDREN:
            found = await self.ring.client.list_all(kind, self.ring.namespace)
            shards = {
                obj.metadata.label("website"): obj.metadata.label(shard_label(RING))
                for obj in found
                if obj.metadata.label("website") in placement
            }
            if shards != placement:
                return False
        return True


@pytest.fixture(
    params=[("kubeshard", "go"), ("go", "kubeshard"), ("kubeshard", "mixed"), ("go", "mixed")],
    ids=lambda pair: f"sharder={pair[0]},shards={pair[1]}",
)
async def fleet(
    request: pytest.FixtureRequest, kube_client: Client, namespace: str, programs: Programs
) -> AsyncIterator[Fleet]:
    sharder, shards = request.param
    go = {}
    if sharder == "go":
        go["sharder"] = request.getfixturevalue("go_sharder")
    if shards != "kubeshard":
        go["operator"] = request.getfixturevalue("go_operator")
    await kube_client.apply_manifest(manifests.theme("exciting", "darkcyan", "Futura"))
    ring = Ring(kube_client, RING, namespace, Website, CHILDREN)
    try:
        yield Fleet(ring, programs, sharder, shards, go)
    finally:
        programs.stop()  # a running shard would re-create its Lease
        await ring.remove()


async def test_a_joining_shard_gets_its_share_by_drain_and_acknowledgement(fleet: Fleet) -> None:
    """Each site that moves has two events, and the others none; children follow in one."""
    await fleet.start("a")
    for site in SITES:
        await fleet.create(site)
    before, after = fleet.placement("a"), fleet.placement("a", "b")
    await eventually(lambda: fleet.rest(before))
    async with fleet.ring.history() as sites, fleet.ring.history(ServerFiles) as children:
        await fleet.join("b")
        await eventually(lambda: fleet.rest(after))
    moving = differing(before, after)
    assert sites == {name: [{"shard": "a", "drain": "true"}, {"shard": "b"}] for name in moving}
    assert sorted(children.values(), key=str) == [[{"shard": "b"}] for _ in moving]


async def test_who_moved_an_object_is_told_by_the_field_manager_of_its_label_unless_a_webhook_set_it(
    fleet: Fleet,
) -> None:
    """What shards rely on before they take something back (`kubeshard.shard.label_restorer`). A released object gets
    its label from the webhook, with either sharder; the Go sharder leaves that of a child to its webhook, too.
    """
    await fleet.start("a")
    for site in SITES:
        await fleet.create(site)
    before, after = fleet.placement("a"), fleet.placement("a", "b")
    await eventually(lambda: fleet.rest(before))
    await fleet.join("b")
    await eventually(lambda: fleet.rest(after))
    moved = differing(before, after)
    sites, children = await fleet.ring.managers(), await fleet.ring.managers(ServerFiles)
    owners = await fleet.ring.shards_of(ServerFiles)
    assert {name: sites[name] for name in moved} == {name: set() for name in moved}
    by = set() if fleet.sharder_is_go else {"sharder"}
    assert [managers for name, managers in children.items() if owners[name] == "b"] == [by] * len(moved)


async def test_a_shard_that_stops_hands_its_objects_over_in_one_event_each(fleet: Fleet) -> None:
    await fleet.start("a", "b")
    for site in SITES:
        await fleet.create(site)
    before, after = fleet.placement("a", "b"), fleet.placement("b")
    await eventually(lambda: fleet.rest(before))
    async with fleet.ring.history() as sites:
        assert await asyncio.to_thread(fleet.stop, "a") == 0
        await eventually(lambda: fleet.rest(after))
    assert sites == {name: [{"shard": "b"}] for name in differing(before, after)}
    lease = await fleet.ring.lease("a")
    assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("", 1)
    await eventually(lambda: _has_state(fleet.ring, "a", "dead"))


async def test_a_crashed_shard_keeps_its_objects_until_it_was_seized(fleet: Fleet) -> None:
    await fleet.start("a", "b")
    for site in SITES:
        await fleet.create(site)
    before, after = fleet.placement("a", "b"), fleet.placement("b")
    await eventually(lambda: fleet.rest(before))
    transitions = (await fleet.ring.lease("a")).spec.lease_transitions or 0
    async with fleet.ring.history() as sites:
        fleet.kill("a")
        await eventually(lambda: _has_state(fleet.ring, "a", "expired"))
        assert not sites
        assert await eventually(lambda: fleet.rest(after)) > LEASE_SECONDS / 2
    assert sites == {name: [{"shard": "b"}] for name in differing(before, after)}
    lease = await fleet.ring.lease("a")
    assert lease.spec.holder_identity == "shardlease-controller"
    assert lease.spec.lease_duration_seconds == 2 * LEASE_SECONDS
    assert lease.spec.lease_transitions == transitions + 1


async def _has_state(ring: Ring, shard: str, state: str) -> Any:
    return (await ring.lease(shard)).metadata.label(STATE_LABEL) == state
