"""Watches what the API server shows of a ring: Leases, and the metadata of sharded objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from kubeshard.cache import Cache, Scope
from kubeshard.cache.deltas import Delta, Updated
from kubeshard.cli.demo.picture import Picture, Sharded, picture
from kubeshard.client import Client
from kubeshard.core import Form, Kind, Lease, PartialObject, Selector, metadata_only
from kubeshard.sharding.names import RING_LABEL, drain_label, shard_label

_BURST = 0.02


class Observer:
    """`main` and `controlled` are the kinds that the ring shards."""

    def __init__(self, client: Client, ring: str, main: Sequence[Kind], controlled: Sequence[Kind]) -> None:
        self._ring = ring
        self._mains: dict[Kind, Form[PartialObject]] = {kind: metadata_only(kind) for kind in main}
        self._controlled = [metadata_only(kind) for kind in controlled]
        self._cache = Cache(client)
        self._changed = asyncio.Event()
        self._leases = self._cache.declare(Lease, Scope(labels=Selector.equals(RING_LABEL, ring)))
        self.moves = 0
        """How often an object's shard label changed from one shard to another."""
        self.drains = 0
        """How often a shard was asked to let go of an object."""
        self._leases.add_handler(lambda _: self._changed.set())
        for form in (*self._mains.values(), *self._controlled):
            self._cache.declare(form).add_handler(self._count)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Observer]:
        async with self._cache.running():
            await self._cache.synced()
            yield self

    def picture(self) -> Picture:
        objects = [
            Sharded(obj.metadata, (kind.api_version, kind.kind))
            for kind, form in self._mains.items()
            for obj in self._cache.list(form)
        ]
        objects += [
            Sharded(obj.metadata, None) for form in self._controlled for obj in self._cache.list(form)
        ]
        return picture(self._ring, self._leases.store.list(), objects)

    def live_shards(self) -> frozenset[str]:
        return frozenset(row.shard for row in self.picture().rows if row.live)

    async def until(self, condition: Callable[[Picture], bool], within: float) -> Picture:
        """The first picture for which the condition holds. Raises TimeoutError."""
        async with asyncio.timeout(within):
            while not condition(view := self.picture()):
                self._changed.clear()
                await self._changed.wait()
                # Changes come in bursts, and a picture looks at every object.
                await asyncio.sleep(_BURST)
            return view

    def _count(self, delta: Delta[PartialObject]) -> None:
        self._changed.set()
        if not isinstance(delta, Updated):
            return
        old, new = delta.old.metadata, delta.new.metadata
        shard_key, drain_key = shard_label(self._ring), drain_label(self._ring)
        self.moves += bool(old.label(shard_key)) and old.label(shard_key) != new.label(shard_key)
        self.drains += new.has_label(drain_key) and not old.has_label(drain_key)
