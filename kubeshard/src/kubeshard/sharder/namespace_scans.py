"""Scans namespaces that a ring begins to select, for objects without a shard.

A namespace is selected once it is known, or has other labels; its objects may have been seen before, and were skipped
then. Namespaces that appear within `TOGETHER` seconds are scanned together: each by a list of its own, or, if there are
more than `NAMESPACES_AT_ONCE`, by one list of all namespaces. At most `AT_ONCE` rings list at the same time
(`StartLimit`). If a list fails, a scan of the objects without an available shard is requested instead.

RBAC: list on every main and controlled resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from weakref import WeakKeyDictionary

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import metadata_only
from kubeshard.core.selectors import Selector
from kubeshard.runtime.logs import get_logger
from kubeshard.sharder.bounded_tasks import BoundedTaskGroup, StartLimit
from kubeshard.sharder.late_assignment import LateAssignment
from kubeshard.sharder.resource_kinds import ResourceKinds
from kubeshard.sharder.resource_sync import ResourceSync
from kubeshard.sharding.names import shard_label

TOGETHER = 0.2
NAMESPACES_AT_ONCE = 10
AT_ONCE, PATIENCE = 5, 0.5

_log = get_logger("kubeshard.sharder")


class NamespaceScans:
    """See the module."""

    def __init__(
        self, client: Client, kinds: ResourceKinds, late: LateAssignment, *, concurrent_moves: int
    ) -> None:
        self._client = client
        self._kinds = kinds
        self._late = late
        self._concurrent_moves = concurrent_moves
        self._starting = StartLimit(AT_ONCE, PATIENCE)
        self._new = WeakKeyDictionary[ResourceSync, set[str]]()
        """The namespaces that are left to scan, while a task does that."""

    def scan(self, sync: ResourceSync, namespace: str) -> None:
        """The ring selects this namespace now."""
        if sync in self._new:
            self._new[sync].add(namespace)
        else:
            self._new[sync] = {namespace}
            sync.start(partial(self._scan, sync), "scan new namespaces")

    async def _scan(self, sync: ResourceSync) -> None:
        """Scans what has appeared, and what appears meanwhile, until nothing is left."""
        await asyncio.sleep(TOGETHER)
        while namespaces := self._new[sync]:
            self._new[sync] = set()
            await self._scan_together(sync, namespaces)
            await asyncio.sleep(TOGETHER)
        del self._new[sync]

    async def _scan_together(self, sync: ResourceSync, namespaces: set[str]) -> None:
        try:
            kind = await self._kinds.kind(sync.entry.resource)
            if not kind.namespaced:
                return
            some: Iterable[str | AllNamespaces] = sorted(namespaces)
            for namespace in some if len(namespaces) <= NAMESPACES_AT_ONCE else [ALL]:
                async with self._starting.slot():
                    await self._scan_namespace(sync, kind, namespace)
        except Exception as error:
            sync.missed()
            if not isinstance(error, ApiError):
                raise
            where = {"ring": sync.ring.name, "resource": sync.entry.resource}
            _log.debug("Cannot scan new namespaces", **where, error=error)

    async def _scan_namespace(self, sync: ResourceSync, kind: Kind, namespace: str | AllNamespaces) -> None:
        objects = self._client.list(
            metadata_only(kind),
            namespace,
            label_selector=Selector.absent(shard_label(sync.ring.name)),
            on_restart=lambda: None,  # deciding twice on an object is harmless
        )
        async with BoundedTaskGroup(self._concurrent_moves) as tasks:
            async for obj in objects:
                await self._late.assign(sync, kind, obj.metadata, tasks)
