"""Keeps the MutatingWebhookConfiguration of each ring in the cluster as `webhook_config` renders it, and fights nobody.

| what is there | what is done |
|---|---|
| as desired, or narrower (`with_narrowing`) | nothing |
| the configuration of another installation whose leader lives | nothing: this sharder steps back |
| anything else, and the ring has changed | it is applied |
| anything else, and the ring has not: somebody changed it | it is applied, within the bound of `Repairs`, and it is \
said who else writes |

It is applied without force. Fields that others own and have changed are left as they are, and said to be; the rest is
applied. One exception: a selector that others have narrowed, of which our own part is new. It is applied with what they
added, which needs force, on the version that was read.

What is there is watched. The reference's ClusterRole allows creating and patching webhook configurations, not listing
and watching them. The sharder works with that: it logs once which rule is missing, and corrects drift every
`APPLY_AGAIN` seconds instead of immediately. Permissions are checked again as often, and used as soon as they are
granted. Configurations that it can read are compared, not applied again.

Two installations of the sharder decide by the configuration: it names the one that keeps it, the first one. The other
takes over when the first one's leader has released the Lease of its election, or has not renewed it for a while. That
Lease counts from its first observation here, and by the changes that this process sees; the other one's clock does not
matter. Who may not read it is told that the other sharder lives: to step back is the safe side. A sharder of the Go
project does not know that: the two repair each other's configuration, within the bound.

RBAC: create, patch on mutatingwebhookconfigurations; with list and watch on them it sees drift immediately; get on
leases.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Added, Deleted, Delta, Updated
from kubeshard.cache.scope import Scope
from kubeshard.client.client import Client
from kubeshard.controller.context import Context
from kubeshard.controller.sources import Enqueue
from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.errors import ApiError, FieldConflict, NotFound
from kubeshard.core.objects import Key
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.patches import ApplyPatch, MergePatch
from kubeshard.core.selectors import Selector
from kubeshard.core.versions import precedes
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.runtime.repairs import Repairs
from kubeshard.runtime.rng import Rng
from kubeshard.sharder.config import WebhookConfig
from kubeshard.sharder.webhook_config import (
    SELECTORS,
    applied_selector,
    in_sync,
    keeper_of,
    knows_match_conditions,
    narrows,
    webhook_configuration,
    with_narrowing,
)
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import APP_LABEL, APP_NAME, RING_LABEL, webhook_config_name
from kubeshard.sharding.ring import Ring, RingInputs
from kubeshard.sharding.shard_states import DEFAULT_DURATION
from kubeshard.webhook.shared_certificate import CaBundleSource

APPLY_AGAIN = 600.0
PATIENCE = 10.0
"""Seconds for the first check of permissions and the initial sync."""
BEHIND = 5.0
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
        if written is None or age >= BEHIND:
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
        within = BEHIND if self.watched else APPLY_AGAIN
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


BELIEVED_FOR = 15.0
"""Seconds for which an answer counts."""
DURATIONS = 4
"""Lease durations without renewal after which it does not live any more."""
LONGEST_SILENCE = 300.0
MOST_SHARDERS = 100


class _Seen(NamedTuple):
    asked: float
    spec: LeaseSpec
    changed: float
    lives: bool


class OtherSharders:
    """What this process has seen of them, by their elections."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[Key, _Seen] = {}

    async def lives(self, client: Client, election: Key) -> bool:
        """Raises nothing."""
        now, known = self._clock.monotonic(), self._seen.get(election)
        if known is not None and now - known.asked < BELIEVED_FOR:
            return known.lives
        try:
            spec = (await client.get(Lease, election.name, election.namespace)).spec
        except NotFound:
            spec = LeaseSpec()
        except ApiError:
            return True
        changed = now if known is None or known.spec != spec else known.changed
        patience = min(DURATIONS * (spec.lease_duration_seconds or DEFAULT_DURATION), LONGEST_SILENCE)
        lives = bool(spec.holder_identity) and now - changed < patience
        if len(self._seen) >= MOST_SHARDERS:
            self._seen.clear()
        self._seen[election] = _Seen(now, spec, changed, lives)
        return lives


FIELD_MANAGER = "controllerring-controller"

LOOK_AGAIN = 30.0
"""Seconds until it is looked whether another installation still keeps a configuration."""

_REFUSED = frozenset({400, 422, 500})
"""Status codes of an API server for an unknown field; they depend on its version."""


class Settled(NamedTuple):
    """What became of a ring's configuration."""

    again: float = math.inf
    """Seconds until it has to be looked at again."""
    problem: str = ""
    """Which fields are not as they should be, because they are others'."""
    keeper: Key | None = None
    """The other installation that keeps it."""


class _Applied(NamedTuple):
    """What was applied last for a ring."""

    wish: Mapping[str, Any]
    body: Mapping[str, Any]
    """The same, with the fields of others as these have set them."""
    left: str
    """Which fields these are."""
    at: float


class WebhookRegistration:
    """Of all rings. `election` is that of this sharder; without it, it does not know other installations."""

    def __init__(
        self,
        drift: WebhookDrift,
        config: WebhookConfig,
        inputs: RingInputs,
        clock: Clock,
        *,
        ca: CaBundleSource | None = None,
        sharders: Collection[str] = (),
        election: Key | None = None,
    ) -> None:
        self._drift = drift
        self._config = config
        self._without = inputs.system_namespaces
        self._ca = ca
        self._sharders = sharders
        self._election = election
        self._others = OtherSharders(clock)
        self._clock = clock
        self._repairs = Repairs(clock)
        self._applied: WeakKeyDictionary[Ring, _Applied] = WeakKeyDictionary()
        self._others_write: WeakKeyDictionary[Ring, str] = WeakKeyDictionary()
        """Who does, as far as that was seen when a configuration was not as it had been applied."""
        self._match_condition = True
        """Whether the webhook configurations get a match condition: not if the API server does not support them."""

    async def settle(self, ctx: Context, ring: Ring, obj: ControllerRing) -> Settled:
        """Puts the ring's configuration right, unless it is another's or was put right too often. By ranges, it is to
        have no webhook. Raises ApiError.
        """
        found = await self._drift.found(ring)
        keeper = keeper_of(found) if found is not None and self._election is not None else None
        if keeper is not None and keeper != self._election and await self._others.lives(ctx.client, keeper):
            self._applied.pop(ring, None)
            self._repairs.forget(ring.name)
            ring.report.contested_by = ""
            return Settled(LOOK_AGAIN, keeper=keeper)
        if ring.by_ranges:
            self._applied.pop(ring, None)
            if found is not None and found.webhooks:
                self._drift.written(ring, await _apply(ctx, {**self._body(obj), "webhooks": []}))
            return Settled()
        wish, last = self._body(obj), self._applied.get(ring)
        if in_sync(found, wish):
            return self._told(ring, Settled(self._drift.look_again(ring)))
        if repair := last is not None and last.wish == wish:
            self._others_write[ring] = _who(found)
            now = self._clock.monotonic()
            if last.left and in_sync(found, last.body) and now - last.at < APPLY_AGAIN:
                return self._told(ring, Settled(last.at + APPLY_AGAIN - now, last.left))
            if wait := self._repairs.wait(ring.name):
                return self._told(ring, Settled(wait, last.left))
        found, last = await self._apply_for(ctx, ring, obj, found)
        self._applied[ring] = last
        if repair:
            self._repairs.repaired(ring.name)
        return self._told(ring, Settled(self._drift.look_again(ring), last.left))

    def _told(self, ring: Ring, settled: Settled) -> Settled:
        """Says in the ring's report whether others keep changing its configuration."""
        if not self._repairs.contested(ring.name):
            ring.report.contested_by = ""
            return settled
        ring.report.contested_by = (
            f"{webhook_config_name(ring.name)}: {self._others_write.get(ring, _UNKNOWN)}"
        )
        return settled._replace(again=min(settled.again, self._repairs.quiet_in(ring.name)))

    async def _apply_for(
        self, ctx: Context, ring: Ring, obj: ControllerRing, found: MutatingWebhookConfiguration | None
    ) -> tuple[MutatingWebhookConfiguration, _Applied]:
        """Applies it; returns the answer."""
        asked = self._match_condition
        try:
            answer, applied = await self._put(ctx, ring, self._body(obj), found)
            known = knows_match_conditions(answer)
        except ApiError as error:
            if not asked or error.code not in _REFUSED:
                raise
            known = False
        if asked and not known:
            self._match_condition = False
            try:
                answer, applied = await self._put(ctx, ring, self._body(obj), found)
            except ApiError:
                self._match_condition = True  # it was not the problem
                raise
            ctx.log.info(
                "The API server does not support match conditions; the webhook is called for all assignments"
            )
        self._drift.written(ring, answer)
        return answer, applied

    async def _put(
        self,
        ctx: Context,
        ring: Ring,
        body: Mapping[str, Any],
        found: MutatingWebhookConfiguration | None,
    ) -> tuple[MutatingWebhookConfiguration, _Applied]:
        now = self._clock.monotonic()
        try:
            return await _apply(ctx, with_narrowing(body, found)), _Applied(body, body, "", now)
        except FieldConflict as conflict:
            live = await self._drift.read(ring)
            if live is None:
                raise
            wanted, left = _yielding(with_narrowing(body, live), live, conflict)
            answer = await _apply(ctx, wanted, live.metadata.resource_version)
            return answer, _Applied(body, wanted, left, now)

    def _body(self, ring: ControllerRing) -> dict[str, Any]:
        return webhook_configuration(
            ring,
            self._config,
            self._ca.ca_bundle if self._ca else "",
            sharders=self._sharders,
            match_condition=self._match_condition,
            without=self._without,
            keeper=self._election,
        )


async def _apply(ctx: Context, body: Mapping[str, Any], version: str = "") -> MutatingWebhookConfiguration:
    """`version`: of which it is known that what is forced takes nothing from anybody."""
    if version:
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
    return await ctx.client.patch(
        MutatingWebhookConfiguration,
        body["metadata"]["name"],
        "",
        ApplyPatch(body),
        field_manager=FIELD_MANAGER,
        force=bool(version),
    )


_FIELD = re.compile(r'\.webhooks\[name="(?P<webhook>[^"]+)"\]\.(?P<path>\w+(\.\w+)*)')


def _yielding(
    body: Mapping[str, Any], live: MutatingWebhookConfiguration, conflict: FieldConflict
) -> tuple[dict[str, Any], str]:
    """The body with the fields of others as they are, and which these are. Not a selector that they have only narrowed:
    what they added is in the body already. Raises the conflict if it is about anything else.
    """
    there = {each.get("name"): each for each in live.webhooks}
    wanted = {**body, "webhooks": msgspec.json.decode(msgspec.json.encode(body["webhooks"]))}
    webhooks = {each["name"]: each for each in wanted["webhooks"]}
    former, left = applied_selector(live), []
    for cause in conflict.causes:
        match = _FIELD.match(str(cause.get("field", "")))
        if match is None or match["webhook"] not in there or match["webhook"] not in webhooks:
            raise conflict
        *parents, name = match["path"].split(".")
        mine, theirs = webhooks[match["webhook"]], there[match["webhook"]]
        if (field := (*parents, name)[0]) in SELECTORS:
            ours_before = former if field == "namespaceSelector" else mine[field]
            if ours_before is not None and narrows(theirs.get(field), ours_before):
                continue
        for parent in parents:
            mine, theirs = mine.setdefault(parent, {}), theirs.get(parent) or {}
        if name in theirs:
            mine[name] = theirs[name]
        else:
            mine.pop(name, None)
        left.append(f"{match['path']} of {match['webhook']} ({cause.get('message', 'conflict')})")
    return wanted, ", ".join(dict.fromkeys(left))


_UNKNOWN = "somebody removes parts of it, or writes as its field manager, like another sharder"


def _who(found: MutatingWebhookConfiguration | None) -> str:
    """Who else writes a configuration."""
    if found is None:
        return "somebody deletes it"
    if others := found.metadata.writers(FIELD_MANAGER):
        names = ", ".join(dict.fromkeys(each.manager or "somebody unnamed" for each in others[:3]))
        return f"{names} also wrote it{f', last at {others[0].time}' if others[0].time else ''}"
    return _UNKNOWN
