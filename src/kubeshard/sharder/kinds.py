"""Which kind a ring's resource is: group, preferred version, kind, scope. Learned from discovery,
remembered.

Guaranteed: what was learned stays until the server denies it; asking never invents a kind. Not guaranteed:
that every resource is known at once; until its kind is known, a controlled resource accepts any controller
(protocol 14-A6). RBAC: none beyond what every authenticated user has.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from kubeshard.cache import Cache
from kubeshard.cache.deltas import Deleted, Delta, Updated
from kubeshard.client import Client
from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupKind, GroupResource, Kind
from kubeshard.sharding import ControllerRing, RingResources

RETRY = 10.0
"""Seconds until a resource that is not served is asked for again."""


class ResourceKinds:
    """`learned` grows with everything learned, so that what follows from it can be remembered."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kinds: dict[GroupResource, Kind] = {}
        self.learned = 0

    async def learn(self, resource: GroupResource) -> Kind:
        """The kind, from the server. Raises KindNotServed and other ApiErrors."""
        kind = await self._client.discovery.kind(resource.group, resource=resource.resource)
        if self._kinds.get(resource) != kind:
            self._kinds[resource] = kind
            self.learned += 1
        return kind

    async def kind(self, resource: GroupResource) -> Kind:
        """The kind, from memory or from the server. Raises as `learn`."""
        return self._kinds.get(resource) or await self.learn(resource)

    def forget(self, resource: GroupResource) -> None:
        """The server answered 404 to a request for the kind: ask again."""
        if self._kinds.pop(resource, None) is not None:
            self._client.discovery.forget(resource.group)
            self.learned += 1

    async def keep_learning(self, cache: Cache) -> None:
        """Learns the kinds of all rings' resources, and of new ones as they come. Until cancelled; in every
        replica.
        """
        unknown: dict[GroupResource, None] = {}
        wake = asyncio.Event()

        def note(delta: Delta[ControllerRing]) -> None:
            if isinstance(delta, Deleted):
                return
            ring = delta.new if isinstance(delta, Updated) else delta.object
            unknown.update(
                dict.fromkeys(entry.resource for entry in RingResources(ring.spec.resources).entries)
            )
            wake.set()

        registration = cache.declare(ControllerRing).add_handler(note)
        try:
            while True:
                await wake.wait()
                wake.clear()
                for resource in list(unknown):
                    with suppress(ApiError):
                        await self.kind(resource)
                        del unknown[resource]
                if unknown:
                    await asyncio.sleep(RETRY)
                    wake.set()
        finally:
            registration.remove()

    def owner_kinds(self, resources: RingResources) -> dict[GroupResource, frozenset[GroupKind]]:
        """Per controlled resource the kinds of the main resources that list it, where all of them are
        known.
        """
        return {
            entry.resource: frozenset(self._kinds[owner].group_kind for owner in entry.owners)
            for entry in resources.entries
            if not entry.main and entry.owners <= self._kinds.keys()
        }
