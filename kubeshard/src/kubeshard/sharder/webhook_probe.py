"""Finds out whether the API server calls the webhook of a ring.

An object that is found unassigned should have been assigned by the webhook. That alone proves nothing: it may be older
than the webhook, or no shard was available when it was created. The proof is a dry run: a patch that takes the shard
label away, and is never stored, comes back with the label if the webhook was called.

Guaranteed: while a webhook is not called although objects are assigned late, the ring's report says so, within a minute
of the first such object; it stops to say so within about a minute when the webhook is called again. Anything but an
answer without the label, twice in a row, about an object that the ring still wants, proves nothing. Not guaranteed:
that it goes on to be reported when the object of the dry runs is deleted, or not wanted any more; the next one that is
assigned late begins anew.

At most `AT_ONCE` requests are under way. RBAC: patch on the ring's resources.
"""

from __future__ import annotations

import asyncio
from functools import partial

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import Kind, TypeMeta
from kubeshard.core.objects import Key, metadata_only
from kubeshard.core.owners import controller_of, group_kind_of
from kubeshard.core.patches import MergePatch
from kubeshard.sharder.moves import Job
from kubeshard.sharder.resource_sync import ResourceSync
from kubeshard.sharder.rings import Ring
from kubeshard.sharding.planner import Action, plan

SOON, LATER = 10.0, 60.0
"""Seconds before each of the first two dry runs, which a new webhook configuration needs to take effect, and between
further ones.
"""
ENOUGH = 2
"""Dry runs in a row that have to agree."""
AT_ONCE = 4
"""A webhook that does not respond keeps each of them waiting for its timeout."""


class WebhookProbe:
    """One series of dry runs for each ring whose objects are assigned late."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._probed: dict[Ring, ResourceSync] = {}
        """For which sync of each ring a series is under way, or about to be."""
        self._places = asyncio.Semaphore(AT_ONCE)

    def late(self, job: Job) -> None:
        """The object of the job had to be assigned by a patch."""
        ring = job.sync.ring
        probed = self._probed.get(ring)
        if probed is not None and probed.open:  # of one that ends before it begins, no step runs
            return
        sync = job.sync.resources.get(job.entry.resource)
        if sync is not None and ring.has_webhook_in(job.meta.namespace) and not _is_looked_up(job):
            self._probed[ring] = sync
            sync.start(partial(self._keep_probing, sync, job.kind, job.key), "webhook probe")

    async def _keep_probing(self, sync: ResourceSync, kind: Kind, key: Key) -> None:
        ring, missed = sync.ring, 0
        self._probed[ring] = sync
        try:
            while True:
                await asyncio.sleep(SOON if missed < ENOUGH else LATER)
                if await self._is_called(sync, kind, key):
                    return
                missed += 1
                if missed >= ENOUGH:
                    self._tell(ring, reached=False)
        finally:
            if self._probed.get(ring) is sync:
                del self._probed[ring]
                self._tell(ring, reached=True)

    def _tell(self, ring: Ring, *, reached: bool) -> None:
        ring.report.webhook(reached=reached)
        ring.metrics.webhook_unreached(not reached)

    async def _is_called(self, sync: ResourceSync, kind: Kind, key: Key) -> bool:
        """Whether the webhook was called, or nobody can know."""
        ring = sync.ring
        view = ring.view
        if view is None or not view.available:
            return True
        unlabelled = MergePatch({"metadata": {"labels": {view.shard_label: None}}})
        async with self._places:
            try:
                answer = await self._client.patch(
                    metadata_only(kind), key.name, key.namespace, unlabelled, dry_run=True
                )
            except ApiError:
                return True
        # The webhook is not called in a namespace that the ring does not select any more, say.
        wanted = plan(view, sync.entry, TypeMeta(kind.api_version, kind.kind), answer.metadata)
        return wanted.action is not Action.ASSIGN or ring.view is not view


def _is_looked_up(job: Job) -> bool:
    """Whether the webhook leaves such an object to the sharder, which has to look for its owner."""
    controller, kinds = controller_of(job.meta), job.view and job.view.owner_kinds.get(job.entry.resource)
    owner = kinds.get(group_kind_of(controller)) if controller is not None and kinds else None
    return owner is not None and not owner.main
