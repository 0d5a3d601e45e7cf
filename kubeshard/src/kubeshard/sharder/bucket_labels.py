"""Labels the controlled objects of a ring that is sharded by ranges with the buckets of their owners, where shards have
not: objects that were there before, that others have made, or that have been given to another owner.

No selector shows those. So all objects of the ring's controlled resources are listed, their metadata only: at the
beginning of each term, and then every `sync_period`, as the sharder of a ring with labels does. They are streamed page
by page, and nothing is kept of them.

Guaranteed: a label is written only to the object as it was read, and not after this process has stopped leading; at
most `AT_ONCE` writes are under way, and an object with the right label is not written. A resource that cannot be read
is reported, tried again after `RETRY` seconds, and does not keep the others waiting. Not guaranteed: that an object
whose owner changes while it is listed is labelled by this scan; the next one finds it. Only objects that no shard has
labelled wait for a scan, and none of these whose owner's shard wants it: that takes it over.

An object whose controller is controlled itself belongs to the root of that chain: what controls what is read
(`kubeshard.sharder.owners`). The owner that an annotation names is read, too, but only for an object without a label.

RBAC: `list`, `get` and `patch` on the ring's controlled resources, in the namespaces that are listed; `get` on its main
resources, if annotations name owners.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Protocol

from kubeshard.cache.scope import ALL_NAMESPACES
from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError, Conflict, NotFound, NotOurs
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Key, ObjectMeta, metadata_only
from kubeshard.core.owners import controller_of
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.logs import get_logger
from kubeshard.sharder.kinds_and_rights import ResourceKinds
from kubeshard.sharder.owners import OwnerChains, read_metadata
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.tasks import BoundedTaskGroup, Crashes, supervised
from kubeshard.sharding.buckets import BUCKETS, Buckets
from kubeshard.sharding.planner import RingView
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.ring_resources import RingBuckets, RingEntry

AT_ONCE = 10
RETRY = 10.0
TRIES = 3
"""With an object that changes meanwhile."""

_ELSEWHERE, _PART = "?", "bucket labels"

_log = get_logger("kubeshard.sharder")


class Read(Protocol):
    """What shards read."""

    def places(self, kind: Kind) -> Collection[str]:
        """The namespaces in which they see objects of the kind."""
        ...


class Everywhere:
    def places(self, kind: Kind) -> Collection[str]:
        return (ALL_NAMESPACES,)


EVERYWHERE = Everywhere()


class BucketLabels:
    """Of one ring, for one term. `client` is for the objects' cluster, and writes only while this process leads.
    Only objects that shards `read` are listed.
    """

    def __init__(
        self,
        ring: str,
        buckets: Buckets,
        rings: Rings,
        kinds: ResourceKinds,
        chains: OwnerChains,
        client: Client,
        sync_period: float,
        read: Read = EVERYWHERE,
    ) -> None:
        self._ring = ring
        self._read = read
        self._buckets = buckets
        self._rings = rings
        self._kinds = kinds
        self._chains = chains
        self._client = client
        self._sync_period = sync_period

    async def run(self) -> None:
        """Scans until cancelled."""
        while True:
            if (ring := self._rings.get(self._ring)) is not None:
                crashes = Crashes(ring.metrics, self._client.clock, BUCKETS, ring=ring.name)
                await supervised(partial(self._keep_scanning, ring), _PART, crashes)
            else:
                await asyncio.sleep(min(RETRY, self._sync_period))

    async def _keep_scanning(self, ring: Ring) -> None:
        while not ring.ended:
            complete = await self._scan(ring)
            await asyncio.sleep(self._sync_period if complete else min(RETRY, self._sync_period))

    async def _scan(self, ring: Ring) -> bool:
        """Returns whether everything could be read and written."""
        entries = ring.resources.entries
        kinds, failed = dict[GroupResource, Kind](), dict[GroupResource, ApiError]()
        for entry in entries if any(not each.main for each in entries) else ():
            try:
                kinds[entry.resource] = await self._kinds.kind(entry.resource)
            except ApiError as error:
                failed[entry.resource] = error
        where = RingBuckets(self._buckets, ring.name, ring.resources, kinds.values())
        for entry in entries:
            kind, view = kinds.get(entry.resource), ring.view
            # While it is not known which kinds control these objects, anything seems to.
            if kind is None or view is None or not where.by_label(kind) or not entry.owners <= kinds.keys():
                continue
            places = self._read.places(kind)
            labelling = _Labelling(self._chains, self._client, where, view, entry, kind, places)
            try:
                labelled = await labelling.run()
            except ApiError as error:
                failed[entry.resource] = error
                if isinstance(error, NotFound):
                    self._kinds.forget(entry.resource)
                continue
            if labelled:
                _log.info(
                    "Labelled objects with the buckets of their owners",
                    ring=ring.name,
                    resource=entry.resource,
                    objects=labelled,
                )
        for entry in entries:
            problem = failed.get(entry.resource, "")
            ring.report.resolved(entry.resource, str(problem))
        return not failed


class _Labelling:
    """Of the objects of one resource."""

    def __init__(
        self,
        chains: OwnerChains,
        client: Client,
        where: RingBuckets,
        view: RingView,
        entry: RingEntry,
        kind: Kind,
        places: Collection[str],
    ) -> None:
        self._places = places
        self._chains = chains
        self._client = client
        self._where = where
        self._view = view
        self._entry = entry
        self._kind = kind
        self._labelled = 0
        self._failure: ApiError | None = None

    async def run(self) -> int:
        """Returns how many objects were written. Raises ApiError if they cannot be listed, or one cannot be written."""
        async with BoundedTaskGroup(AT_ONCE) as tasks:
            for place in self._places:
                async for obj in self._client.list(
                    metadata_only(self._kind),
                    place or ALL,
                    on_restart=lambda: None,  # twice is harmless
                ):
                    meta = obj.metadata
                    due = self._where.due(self._kind, meta, _ELSEWHERE)
                    if due != meta.label(self._where.label):
                        await tasks.start(self._label(meta))
        if self._failure is not None:
            raise self._failure
        return self._labelled

    async def _label(self, meta: ObjectMeta) -> None:
        """Does not raise: the others are labelled nevertheless."""
        try:
            for _ in range(TRIES):
                due = await self._due(meta)
                if due == meta.label(self._where.label):
                    return
                labels = {self._where.label: due or None}
                patch = MergePatch({"metadata": {"labels": labels, "resourceVersion": meta.resource_version}})
                try:
                    await self._client.patch(metadata_only(self._kind), meta.name, meta.namespace, patch)
                except Conflict:
                    meta = await read_metadata(self._client, self._kind, Key(meta.namespace, meta.name))
                else:
                    self._labelled += 1
                    return
        except (NotFound, NotOurs):
            return
        except ApiError as error:
            self._failure = self._failure or error

    async def _due(self, meta: ObjectMeta) -> str:
        """What the label should be; "" for none. Raises ApiError."""
        due = self._where.due(self._kind, meta, _ELSEWHERE)
        if due != _ELSEWHERE:
            return due or ""
        if controller_of(meta) is None and self._where.of(self._kind, meta) is not None:
            return meta.label(self._where.label)
        await self._chains.look_up(self._view, self._entry, meta)
        uid = self._chains.main_uid(self._view, self._entry, meta)
        return str(self._where.buckets.of(ObjectMeta(uid=uid))) if uid else ""
