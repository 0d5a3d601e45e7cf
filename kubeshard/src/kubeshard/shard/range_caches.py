"""The caches of a shard of a ring that is sharded by ranges: they have the objects of its buckets, and no others.

The caches of all kinds of the ring are rescoped, controlled kinds before main ones, one step after the other. What was
handed over meanwhile and came back leaves them first: it counts only as listed anew. A kind that cannot be listed,
although it is served, holds up new buckets, and no others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kubeshard.cache.cache import Cache
from kubeshard.cache.informer import Informer
from kubeshard.core.errors import NotFound
from kubeshard.core.selectors import FieldSelector
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.shard.delivery import RingMember
from kubeshard.shard.range_driver import LOGGED_EVERY, PATIENCE, RETRY
from kubeshard.shard.range_ownership import RangeOwnership
from kubeshard.sharding.ring_buckets import RingBuckets

NOTHING = FieldSelector.equals("metadata.name", "-")
"""Selects no object, whose name would have to begin with a letter or a digit."""

_log = get_logger("kubeshard.shard")


class RangeCaches:
    """Of one process. `objects`: the cache of the objects' cluster."""

    def __init__(
        self, member: RingMember, where: RingBuckets, ownership: RangeOwnership, objects: Cache
    ) -> None:
        self._member = member
        self._where = where
        self._ownership = ownership
        self._objects = objects
        self._notices = Notices(member.home.world.clock, every=LOGGED_EVERY)
        self._in_cache: dict[int, int] = {}
        """The buckets that the caches have, and the terms in which they were listed."""

    async def read(self, terms: Mapping[int, int], tasks: asyncio.TaskGroup) -> None:
        """Has the caches contain exactly these buckets, as listed in these terms."""
        main: list[Informer[Any]] = []
        others: list[Informer[Any]] = []
        for kind in self._member.kinds.values():
            is_main = self._member.resources.entry(kind.group_resource).main
            (main if is_main else others).extend(self._objects.informers_of(kind))
        kept = {bucket: term for bucket, term in self._in_cache.items() if terms.get(bucket) == term}
        if kept != self._in_cache:
            await self._rescope(tasks, [*main, *others], kept)
            self._in_cache = kept
        if kept == terms:
            return
        await self._rescope(tasks, others, terms)
        if len(main) == 1:  # what a run finds in the cache has been listed then, and the others were before
            self._ownership.listed(terms)
        await self._rescope(tasks, main, terms)
        self._in_cache = dict(terms)
        self._ownership.listed(terms)

    async def _rescope(
        self, tasks: asyncio.TaskGroup, informers: Sequence[Informer[Any]], buckets: Iterable[int]
    ) -> None:
        """Returns when they have these buckets. A kind that is not served has no objects: it is not waited for."""
        scopes = {
            informer: replace(
                informer.scope,
                fields=informer.scope.fields.without(NOTHING),
                hashes=self._where.ranges(informer.form.kind, buckets),
            )
            for informer in informers
        }
        rescoping = {
            tasks.create_task(self._objects.rescope(informer, scope), name="ranges: rescope"): informer
            for informer, scope in scopes.items()
        }
        waited = 0.0
        while pending := [
            task
            for task, informer in rescoping.items()
            if not task.done() and not isinstance(informer.listing_error, NotFound)
        ]:
            await asyncio.wait(pending, timeout=RETRY)
            waited += RETRY
            missing = [str(rescoping[task]) for task in pending if not task.done()]
            if waited >= PATIENCE and missing and self._notices.due("listing", missing):
                _log.warning(
                    "Cannot list kinds of the ring, so this shard does not begin with what it was given",
                    ring=self._member.shard.ring,
                    kinds=", ".join(missing),
                    error=next((e for task in pending if (e := rescoping[task].listing_error)), None),
                )
