"""The webhook configurations as they are, and when somebody has changed one: by watching them, or, if that is not
allowed, by looking again periodically.

The reference's ClusterRole allows creating and patching webhook configurations, not listing and watching them. The
sharder works with that: it logs once which rule is missing, and corrects drift every `APPLY_AGAIN` seconds instead of
immediately.

Guaranteed: configurations that the sharder can read are compared, not applied again; permissions are checked
again every `APPLY_AGAIN` seconds, and used as soon as they are granted. RBAC: patch on mutatingwebhookconfigurations;
with list and watch on them it sees drift immediately.
"""

from __future__ import annotations

import asyncio
import math

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Added, Deleted, Delta, Updated
from kubeshard.cache.scope import Scope
from kubeshard.client.client import Client
from kubeshard.controller.sources import Enqueue
from kubeshard.core.errors import ApiError, NotFound
from kubeshard.core.objects import Key
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import Selector
from kubeshard.core.versions import precedes
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.runtime.rng import Rng
from kubeshard.sharder.ring import Ring
from kubeshard.sharder.webhook_config import MutatingWebhookConfiguration
from kubeshard.sharding.names import APP_LABEL, APP_NAME, RING_LABEL, webhook_config_name

APPLY_AGAIN = 600.0
PATIENCE = 10.0
"""Seconds for the first check of permissions and the initial sync."""
SETTLED = 5.0
"""Seconds after a write until which the watch may be behind it."""

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
        self._written: dict[str, tuple[MutatingWebhookConfiguration, float]] = {}
        """The API server's answer to the last write of each ring's configuration, or to a read, and when."""

    @property
    def watched(self) -> bool:
        """Whether drift is seen when it happens."""
        return self._informer.has_synced and self._informer.last_error is None

    async def run(self, enqueue: Enqueue) -> None:
        """Runs until cancelled."""
        registration = self._informer.add_handler(lambda delta: self._heard(delta, enqueue))
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

    async def found(self, ring: Ring) -> MutatingWebhookConfiguration | None:
        """The ring's configuration as it is, as far as that is known; None if there is none. Raises ApiError."""
        await self._known.wait()
        written, at = self._written.get(ring.name, (None, 0.0))
        age = self._clock.monotonic() - at
        name = webhook_config_name(ring.name)
        if not self.watched:
            return written if written is not None and age < APPLY_AGAIN else await self.read(ring)
        cached = self._cache.get(MutatingWebhookConfiguration, name, scope=OUR_WEBHOOKS)
        if written is None or age >= SETTLED:
            return cached
        behind = cached is None or precedes(
            cached.metadata.resource_version, written.metadata.resource_version
        )
        return written if behind else cached

    async def read(self, ring: Ring) -> MutatingWebhookConfiguration | None:
        """Reads it from the API server with the right that every sharder has. Raises ApiError."""
        name = webhook_config_name(ring.name)
        try:
            found = await self._client.patch(MutatingWebhookConfiguration, name, None, MergePatch({}))
        except NotFound:
            return None
        self.written(ring, found)
        return found

    def look_again(self, ring: Ring) -> float:
        """The seconds until the configuration has to be looked at again, although nothing triggers that."""
        written, at = self._written.get(ring.name, (None, 0.0))
        within = SETTLED if self.watched else APPLY_AGAIN
        wait = at + within - self._clock.monotonic()
        return wait if written is not None and wait > 0 else math.inf

    def written(self, ring: Ring, answer: MutatingWebhookConfiguration) -> None:
        """The API server has answered a write of the configuration."""
        self._written[ring.name] = answer, self._clock.monotonic()

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

    def _heard(self, delta: Delta[MutatingWebhookConfiguration], enqueue: Enqueue) -> None:
        if isinstance(delta, Added) and delta.initial:
            return  # all rings are reconciled at the start anyway
        config = delta.new if isinstance(delta, Updated) else delta.object
        ring = config.metadata.label(RING_LABEL)
        if isinstance(delta, Deleted):
            written, _ = self._written.get(ring, (None, 0.0))
            if written and not precedes(config.metadata.resource_version, written.metadata.resource_version):
                del self._written[ring]
        enqueue(Key("", ring), "webhook configuration changed")
