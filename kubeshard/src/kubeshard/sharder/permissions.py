"""Distinguishes missing permissions from other rejections, and reports them.

A 403 is caused by RBAC or by a policy on one object. The answer is the same for all rings with a resource, so one
question serves all that ask within a few seconds. It may come from an API server that has not heard of a change yet
that another one enforces, so what is refused again is asked about again. RBAC: none beyond what every authenticated
user has.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupResource
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.runtime.clock import Clock
from kubeshard.sharder.resource_sync import ResourceSync
from kubeshard.sharder.schedule import ScanScope
from kubeshard.sharding.ring_resources import named_namespaces

ASKED_EVERY = 60.0
SHARED_FOR = 5.0
"""Seconds for which an answer also serves other rings."""
ASKED_AGAIN = 10.0
"""Seconds between questions about a right that is missing, or without which a request was refused."""


_OF_ONE = ("get", "patch")
"""What moving an object needs."""

_Question = tuple[GroupResource, str, str | AllNamespaces]
"""A resource, a verb and a namespace."""


class Permissions:
    """Checks permissions with the server, at most every `ASKED_EVERY` seconds per verb and sync, or `ASKED_AGAIN` if a
    request is refused, and records them in the report. A right that is missing is asked for until it is there;
    then all objects are scanned.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._answers: dict[_Question, tuple[float, bool]] = {}
        """The last answers, and when they were asked for."""
        self._asking: defaultdict[_Question, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: set[ResourceSync] = set()
        """Syncs with a missing right."""

    async def check(self, sync: ResourceSync) -> None:
        """Checks all verbs that the sharder needs, except the one that just worked."""
        for verb in ("get", "patch", "watch"):
            await self._ask(sync, verb, ASKED_EVERY)

    async def refused(self, sync: ResourceSync, verb: str) -> None:
        """A request was forbidden: checks whether the verb is."""
        await self._ask(sync, verb, ASKED_AGAIN)

    def one_refused(self, sync: ResourceSync) -> None:
        """An object could not be read or written: checks meanwhile whether that is so for all of them."""
        if any(self._due(sync, verb, ASKED_AGAIN) for verb in _OF_ONE):
            sync.start(partial(self._ask_about_one, sync), "rights to one object")

    async def _ask_about_one(self, sync: ResourceSync) -> None:
        for verb in _OF_ONE:
            await self.refused(sync, verb)

    def _due(self, sync: ResourceSync, verb: str, every: float) -> bool:
        return self._clock.monotonic() - sync.asked.get(verb, float("-inf")) >= every

    async def _ask(self, sync: ResourceSync, verb: str, every: float) -> None:
        if not self._due(sync, verb, every):
            return
        now, resource = self._clock.monotonic(), sync.entry.resource
        sync.asked[verb] = now
        try:
            missing = await self._missing(sync, verb)
        except ApiError:
            return
        if sync.open:
            sync.ring.report.permitted(
                resource, verb, not missing, in_=tuple(n for n in missing if n is not ALL)
            )
            if missing and sync not in self._waiting:
                sync.start(partial(self._wait_for_rights, sync), "missing rights")

    def granted(self, sync: ResourceSync, verb: str) -> None:
        """A request succeeded."""
        sync.asked.pop(verb, None)
        sync.ring.report.permitted(sync.entry.resource, verb, True)

    async def everywhere(self, sync: ResourceSync, verb: str) -> bool:
        """Whether it is allowed in all namespaces; True if that is not known."""
        try:
            return await self._allowed(sync.entry.resource, verb, ALL)
        except ApiError:
            return True

    async def _missing(self, sync: ResourceSync, verb: str) -> Sequence[str | AllNamespaces]:
        """Where the ring needs it, and it is not allowed: for a ring that names its namespaces, in these. All of them
        may be read and written one by one, few of them listed and watched. Raises ApiError.
        """
        resource, ring = sync.entry.resource, sync.ring
        places: Sequence[str | AllNamespaces] = (ALL,)
        if await self._allowed(resource, verb, ALL):
            return ()
        if ring.named:
            places = ring.named_and_selected()
        elif verb in ("get", "patch"):
            places = named_namespaces(ring.resource.spec.namespace_selector) or places
        return [place for place in places if not await self._allowed(resource, verb, place)]

    async def _allowed(self, resource: GroupResource, verb: str, namespace: str | AllNamespaces) -> bool:
        """Raises ApiError."""
        what = resource, verb, namespace
        async with self._asking[what]:
            asked = self._clock.monotonic()
            at, allowed = self._answers.get(what, (float("-inf"), False))
            if asked - at > SHARED_FOR:
                allowed = await self._client.can_i(verb, resource.group, resource.resource, namespace)
                self._answers[what] = asked, allowed
            return allowed

    async def _wait_for_rights(self, sync: ResourceSync) -> None:
        self._waiting.add(sync)
        try:
            while missing := tuple(sync.ring.report.missing_verbs.get(sync.entry.resource, ())):
                await asyncio.sleep(ASKED_AGAIN)
                for verb in missing:
                    sync.asked.pop(verb, None)
                    await self.refused(sync, verb)
            sync.request(ScanScope.ALL, self._clock.monotonic())
        finally:
            self._waiting.discard(sync)
