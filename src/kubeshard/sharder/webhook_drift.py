"""Detects drift of the webhook configurations: by watching them, or, if that is not allowed, by
applying them again periodically.

The reference's ClusterRole allows creating and patching webhook configurations, not listing and watching them. The
sharder works with that: it logs once which rule is missing, and corrects drift every `APPLY_AGAIN` seconds instead of
immediately.

Guaranteed: configurations that the sharder can read are compared, not applied again; permissions are checked
again every `APPLY_AGAIN` seconds, and used as soon as they are granted. RBAC: none needed; with list and watch on
mutatingwebhookconfigurations it sees drift immediately.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Added, Delta, Updated
from kubeshard.cache.scope import Scope
from kubeshard.client.client import Client
from kubeshard.controller.sources import Enqueue
from kubeshard.core.errors import ApiError
from kubeshard.core.objects import Key
from kubeshard.core.selectors import Selector
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.runtime.rng import Rng
from kubeshard.sharder.ring import Ring
from kubeshard.sharder.webhook_config import MutatingWebhookConfiguration, in_sync
from kubeshard.sharding.names import APP_LABEL, APP_NAME, RING_LABEL

APPLY_AGAIN = 600.0
PATIENCE = 10.0
"""Seconds for the first check of permissions and the initial sync."""

OUR_WEBHOOKS = Scope(labels=Selector.equals(APP_LABEL, APP_NAME) & Selector.exists(RING_LABEL))

_log = get_logger("kubeshard.sharder")


class WebhookDrift:
    """Triggers rings whose webhook configuration was changed by others."""

    def __init__(self, client: Client, clock: Clock, rng: Rng) -> None:
        self._client = client
        self._clock = clock
        self._cache = Cache(client)
        self._informer = self._cache.declare(MutatingWebhookConfiguration, OUR_WEBHOOKS)
        self._known = asyncio.Event()
        self._applied: WeakKeyDictionary[Ring, tuple[Mapping[str, Any], float]] = WeakKeyDictionary()
        """The configuration of each ring that was applied last, and when."""

    @property
    def watched(self) -> bool:
        """Whether drift is seen when it happens."""
        return self._informer.has_synced and self._informer.last_error is None

    async def run(self, enqueue: Enqueue) -> None:
        """Runs until cancelled."""
        registration = self._informer.add_handler(lambda delta: _tell(delta, enqueue))
        notices = Notices()
        try:
            while missing := await self._missing():
                if notices.due("missing"):
                    _log.warning(
                        "Not allowed to watch webhook configurations; applying them again periodically instead",
                        every=APPLY_AGAIN,
                        rule_to_grant='{apiGroups: ["admissionregistration.k8s.io"], '
                        f'resources: ["mutatingwebhookconfigurations"], verbs: [{", ".join(missing)}]}}',
                    )
                self._known.set()
                await asyncio.sleep(APPLY_AGAIN)
            async with self._cache.running():
                try:
                    async with asyncio.timeout(PATIENCE):
                        await self._informer.synced()
                except TimeoutError:
                    pass
                self._known.set()
                await asyncio.get_running_loop().create_future()
        finally:
            registration.remove()
            self._known.clear()

    async def in_place(self, ring: Ring, body: Mapping[str, Any]) -> bool:
        """Whether the ring's configuration need not be applied now: it is as desired, or was applied recently."""
        await self._known.wait()
        if self.watched:
            name = body["metadata"]["name"]
            return in_sync(self._cache.get(MutatingWebhookConfiguration, name, scope=OUR_WEBHOOKS), body)
        before, at = self._applied.get(ring, ({}, 0.0))
        return before == body and self._clock.monotonic() - at < APPLY_AGAIN

    def applied(self, ring: Ring, body: Mapping[str, Any]) -> None:
        self._applied[ring] = body, self._clock.monotonic()

    async def _missing(self) -> list[str]:
        """The verbs that are not allowed. If the check fails, the watch itself will show it."""
        kind = MutatingWebhookConfiguration.KIND
        try:
            async with asyncio.timeout(PATIENCE):
                return [
                    verb
                    for verb in ("list", "watch")
                    if not await self._client.can_i(verb, kind.group, kind.plural)
                ]
        except (ApiError, TimeoutError):
            return []


def _tell(delta: Delta[MutatingWebhookConfiguration], enqueue: Enqueue) -> None:
    if isinstance(delta, Added) and delta.initial:
        return  # all rings are reconciled at the start anyway
    config = delta.new if isinstance(delta, Updated) else delta.object
    enqueue(Key("", config.metadata.label(RING_LABEL)), "webhook configuration changed")
