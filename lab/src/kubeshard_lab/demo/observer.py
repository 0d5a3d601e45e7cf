"""Watches a ring through the API server, and which sharder leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from kubeshard.cache.cache import Cache
from kubeshard.cache.scope import Scope
from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import Key
from kubeshard.inspection.live import LiveRing
from kubeshard.inspection.stats import RingSnapshot
from kubeshard.sharding.hash_ring import ring_of
from kubeshard.sharding.names import SYSTEM_NAMESPACE
from kubeshard.sharding.planner import RingView
from kubeshard.sharding.ring_resources import RingEntry, RingResources
from kubeshard_lab.examples.webhosting.api import NAMESPACE, RING

SHARDER_ELECTION = Key(SYSTEM_NAMESPACE, "sharder")
IN_MANAGER_ELECTION = Key(NAMESPACE, f"sharder-{RING}")
_BURST = 0.02


class Observer:
    """`main` and `controlled` are the kinds that the ring shards; `election` is the Lease of the leading sharder."""

    def __init__(
        self, client: Client, ring: str, election: Key, main: Sequence[Kind], controlled: Sequence[Kind]
    ) -> None:
        owners = frozenset(kind.group_resource for kind in main)
        entries = [(RingEntry(kind.group_resource), kind) for kind in main]
        entries += [(RingEntry(kind.group_resource, owners), kind) for kind in controlled]
        view = RingView(ring, RingResources(()), ring_of(()))
        self._live = LiveRing(client, view, entries, selector=None, wall=client.world.clock.wall)
        self._election = election
        self._cache = Cache(client)
        self._elections = self._cache.declare(
            Lease, Scope(frozenset({election.namespace or client.namespace}))
        )
        self._elections.add_handler(lambda _: self._live.notify())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Observer]:
        async with self._cache.running():
            await self._cache.synced()
            async with asyncio.TaskGroup() as group:
                following = group.create_task(self._live.run(), name="follows the ring")
                await self._live.read()
                yield self
                following.cancel()

    def snapshot(self) -> RingSnapshot:
        return self._live.snapshot()

    @property
    def leader(self) -> str:
        election = self._elections.store.get(self._election)
        identity = (election and election.spec.holder_identity) or ""
        return identity.rpartition("_")[0]

    async def until(self, condition: Callable[[RingSnapshot], bool], within: float) -> None:
        async with asyncio.timeout(within):
            while not condition(self.snapshot()):
                await self._live.changed()
                # Changes come in bursts.
                await asyncio.sleep(_BURST)
