"""The caches of a shard of a ring that is sharded by ranges: they have the objects of its buckets, and no others.

What was handed over meanwhile and came back leaves all of them first: it counts only as listed anew. Then they get what
is new, controlled kinds before main ones, so that what a run needs is there when its object comes.

Guaranteed: a kind that cannot be listed holds up the runs that read it, in new buckets, and nothing else. What else is
to be listed waits for its first failure, which may take a server half a minute, and for no later one.
"""

from __future__ import annotations

import asyncio
from asyncio import FIRST_COMPLETED
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from kubeshard.cache.cache import Cache
from kubeshard.cache.informer import Informer
from kubeshard.cache.scope import Scope
from kubeshard.core.errors import NotFound
from kubeshard.core.selectors import FieldSelector
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.shard.delivery import RingMember
from kubeshard.shard.range_driver import LOGGED_EVERY, PATIENCE, RETRY
from kubeshard.shard.range_ownership import RangeOwnership
from kubeshard.sharding.ring_resources import RingBuckets

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
        self._in_cache: dict[Informer[Any], Mapping[int, int]] = {}
        """The buckets that each has, and the terms in which they were listed."""
        self._rescoping: dict[Informer[Any], tuple[asyncio.Task[None], Scope]] = {}
        self._failing: set[Informer[Any]] = set()
        """Those that have failed and not been listed since: nothing waits for their next answer."""

    async def read(self, terms: Mapping[int, int], tasks: asyncio.TaskGroup) -> None:
        """Has the caches contain exactly these buckets, as listed in these terms. Returns before that if kinds cannot
        be listed: those that are not served, of which nothing is told, and all of them as soon as other terms count.
        """
        await self._end_what_fails()
        main: list[Informer[Any]] = []
        others: list[Informer[Any]] = []
        for kind in self._member.kinds.values():
            is_main = self._member.resources.entry(kind.group_resource).main
            (main if is_main else others).extend(self._objects.informers_of(kind))
        for informer in (*others, *main):
            has = self._in_cache.get(informer)
            kept = {bucket: term for bucket, term in (has or {}).items() if terms.get(bucket) == term}
            # One that was declared since has what its kind was given, in whatever terms.
            if kept != has and (has is not None or informer.scope.hashes is not None):
                self._begin(tasks, informer, kept)
        while self._unfinished:  # which takes no request
            await asyncio.wait(self._unfinished.values())
        for informers in others, main:
            self._note_listed(terms)
            for informer in informers:
                if self._in_cache.get(informer, {}) != terms:
                    self._begin(tasks, informer, terms)
            while self._note_failing() < self._unfinished.keys():
                await asyncio.wait(self._unfinished.values(), timeout=RETRY, return_when=FIRST_COMPLETED)
        await self._until_listed(terms)

    @property
    def _unfinished(self) -> dict[Informer[Any], asyncio.Task[None]]:
        return {informer: task for informer, (task, _) in self._rescoping.items() if not task.done()}

    def _begin(self, tasks: asyncio.TaskGroup, informer: Informer[Any], buckets: Mapping[int, int]) -> None:
        scope = replace(
            informer.scope,
            fields=informer.scope.fields.without(NOTHING),
            hashes=self._where.ranges(informer.form.kind, buckets),
        )

        async def rescope() -> None:
            try:
                await self._objects.rescope(informer, scope)
            finally:
                if informer.scope == scope:  # also if it is cancelled before all handlers have been called
                    self._in_cache[informer] = dict(buckets)
            self._note_listed(buckets)

        self._rescoping[informer] = tasks.create_task(rescope(), name="ranges: rescope"), scope

    async def _end_what_fails(self) -> None:
        self._failing &= self._unfinished.keys()
        while unfinished := self._unfinished:
            for informer in self._note_failing():
                if informer.scope != self._rescoping[informer][1]:
                    unfinished[informer].cancel()  # it has changed nothing yet
            await asyncio.wait(unfinished.values(), timeout=RETRY)
        self._rescoping.clear()

    def _note_failing(self) -> Set[Informer[Any]]:
        unfinished = self._unfinished.keys()
        self._failing.update(
            informer
            for informer in unfinished
            if informer.listing_error is not None or not informer.has_synced
        )
        return self._failing & unfinished

    def _note_listed(self, terms: Mapping[int, int]) -> None:
        listed = frozenset(
            kind.group_kind
            for kind in self._member.kinds.values()
            if all(self._in_cache.get(informer, {}) == terms for informer in self._objects.informers_of(kind))
        )
        self._ownership.listed(terms, None if len(listed) == len(self._member.kinds) else listed)

    async def _until_listed(self, terms: Mapping[int, int]) -> None:
        """... or until other terms count."""
        waited = 0.0
        while failing := {
            informer: task
            for informer, task in self._unfinished.items()
            if not isinstance(informer.listing_error, NotFound)
        }:
            if self._ownership.confirmed != terms:
                return
            if waited >= PATIENCE and self._notices.due("listing", names := sorted(map(str, failing))):
                _log.warning(
                    "Cannot list kinds of the ring, so runs that read them do not begin with what this shard was given",
                    ring=self._member.shard.ring,
                    kinds=", ".join(names),
                    error=next((e for informer in failing if (e := informer.listing_error)), None),
                )
            await asyncio.wait(failing.values(), timeout=RETRY)
            waited += RETRY
        self._note_listed(terms)
