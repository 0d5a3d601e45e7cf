"""Watches what the API server shows of a ring: Leases, and the metadata of sharded objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Delta, Updated
from kubeshard.cache.scope import Scope
from kubeshard.cli.demo.picture import Picture, Sharded, picture
from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease
from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Form, Key, PartialObject, metadata_only
from kubeshard.core.selectors import Selector
from kubeshard.examples.webhosting.api import RING
from kubeshard.examples.webhosting.manifests import NAMESPACE
from kubeshard.sharding.names import RING_LABEL, SYSTEM_NAMESPACE, drain_label, shard_label

SHARDER_ELECTION = Key(SYSTEM_NAMESPACE, "sharder")
IN_MANAGER_ELECTION = Key(NAMESPACE, f"sharder-{RING}")
_BURST = 0.02


class Observer:
    """`main` and `controlled` are the kinds that the ring shards, `election` is the Lease of the leading sharder."""

    def __init__(
        self, client: Client, ring: str, election: Key, main: Sequence[Kind], controlled: Sequence[Kind]
    ) -> None:
        self._ring = ring
        self._election = election
        self._mains: dict[Kind, Form[PartialObject]] = {kind: metadata_only(kind) for kind in main}
        self._controlled = [metadata_only(kind) for kind in controlled]
        self._cache = Cache(client)
        self._changed = asyncio.Event()
        self._view: Picture | None = None
        self._leases = self._cache.declare(Lease, Scope(labels=Selector.equals(RING_LABEL, ring)))
        self._elections = self._cache.declare(
            Lease, Scope(frozenset({election.namespace or client.namespace}))
        )
        self.moves = 0
        """How often an object's shard label changed from one shard to another."""
        self.drains = 0
        """How often a shard was asked to let go of an object."""
        self._leases.add_handler(self._notice)
        self._elections.add_handler(self._notice)
        for form in (*self._mains.values(), *self._controlled):
            self._cache.declare(form).add_handler(self._count)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Observer]:
        async with self._cache.running():
            await self._cache.synced()
            yield self

    def picture(self) -> Picture:
        if self._view is None:
            self._view = self._look()
        return self._view

    @property
    def leader(self) -> str:
        """The name of the leading sharder, `""` while there is none."""
        election = self._elections.store.get(self._election)
        identity = (election and election.spec.holder_identity) or ""
        return identity.rpartition("_")[0]

    def _look(self) -> Picture:
        objects = [
            Sharded(obj.metadata, (kind.api_version, kind.kind))
            for kind, form in self._mains.items()
            for obj in self._cache.list(form, ALL)
        ]
        objects += [
            Sharded(obj.metadata, None) for form in self._controlled for obj in self._cache.list(form, ALL)
        ]
        return picture(self._ring, self._leases.store.list(), objects)

    async def until(self, condition: Callable[[Picture], bool], within: float) -> None:
        """Returns when the condition holds. Raises TimeoutError."""
        async with asyncio.timeout(within):
            while not condition(self.picture()):
                self._changed.clear()
                await self._changed.wait()
                # Changes come in bursts, and a picture looks at every object.
                await asyncio.sleep(_BURST)

    def _notice(self, _: object) -> None:
        self._view = None
        self._changed.set()

    def _count(self, delta: Delta[PartialObject]) -> None:
        self._notice(delta)
        if not isinstance(delta, Updated):
            return
        old, new = delta.old.metadata, delta.new.metadata
        shard_key, drain_key = shard_label(self._ring), drain_label(self._ring)
        self.moves += bool(old.label(shard_key)) and old.label(shard_key) != new.label(shard_key)
        self.drains += new.has_label(drain_key) and not old.has_label(drain_key)
