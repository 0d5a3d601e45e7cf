"""Telling a missing permission from other refusals, and people about it (reliability 4.1, protocol 8).

A 403 may come from RBAC or from a policy on one object. RBAC: none beyond what every authenticated user has.
"""

from __future__ import annotations

from collections.abc import Collection

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupResource
from kubeshard.runtime.clock import SYSTEM_CLOCK, Clock
from kubeshard.sharder.reports import RingReports

ASKED_EVERY = 60.0


class Permissions:
    """Asks the server what it allows, at most once a minute per verb and resource."""

    def __init__(self, client: Client, reports: RingReports, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._reports = reports
        self._clock = clock
        self._asked: dict[tuple[str, GroupResource, str], float] = {}

    async def check(self, ring: str, resource: GroupResource) -> None:
        """Asks about all verbs that the sharder needs beside the one that just worked."""
        for verb in ("get", "patch", "watch"):
            await self.refused(ring, resource, verb)

    async def refused(self, ring: str, resource: GroupResource, verb: str) -> None:
        """A request was forbidden, or might be: finds out whether the verb is, and reports it."""
        now, question = self._clock.monotonic(), (ring, resource, verb)
        if now - self._asked.get(question, float("-inf")) < ASKED_EVERY:
            return
        self._asked[question] = now
        try:
            allowed = await self._client.can_i(verb, resource.group, resource.resource)
        except ApiError:
            return
        self._reports.permitted(ring, resource, verb, allowed)

    def keep(self, ring: str, resources: Collection[GroupResource]) -> None:
        """The ring has these resources only: what was asked about others is forgotten."""
        self._reports.keep(ring, resources)
        for question in [q for q in self._asked if q[0] == ring and q[1] not in resources]:
            del self._asked[question]

    def granted(self, ring: str, resource: GroupResource, verb: str) -> None:
        """A request succeeded."""
        self._asked.pop((ring, resource, verb), None)
        self._reports.permitted(ring, resource, verb, True)
