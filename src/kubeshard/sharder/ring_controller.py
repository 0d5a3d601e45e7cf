"""The controllerring controller: webhook configuration and status of each ring.

Guaranteed: the webhook configuration is what `webhook_config` renders, even after another client edited or deleted
it; if the API server does not support match conditions, they are omitted until the process restarts, instead of
applying them forever; it is applied without force, so a field owned by another manager is a conflict, reported as
Ready=False like the reference does; so is, unless parity is strict, a finding (`ring_conditions`) because of which
something is not sharded. A new finding is also reported as an event. A status written by another client is overwritten.
A ring with `CLEAN_UP_FINALIZER` that is being deleted is let go when none of its objects carries its labels, or when
that makes no progress (`kubeshard.sharding.clean_up`), and meanwhile a condition says what is left.

RBAC: get, list, watch on controllerrings; patch on them, for the finalizer; update on controllerrings/status and
controllerrings/finalizers; create, patch on mutatingwebhookconfigurations, and what `webhook_drift` can use; delete on
leases; create, patch on events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from kubeshard.controller.context import Context
from kubeshard.controller.controller import Controller
from kubeshard.controller.reconciler import Reconciler, Result
from kubeshard.controller.sources import Enqueue
from kubeshard.controller.watch import Watch
from kubeshard.controller.when import Predicate, changed, generation_changed
from kubeshard.core.builtin import Lease
from kubeshard.core.conditions import Condition, set_condition, shortened
from kubeshard.core.errors import ApiError, Forbidden, NotFound, NotOurs
from kubeshard.core.finalizers import removing
from kubeshard.core.objects import Key
from kubeshard.core.patches import ApplyPatch
from kubeshard.core.times import second_time
from kubeshard.runtime.clock import Clock
from kubeshard.sharder.config import WebhookConfig
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.ring import Ring
from kubeshard.sharder.ring_conditions import (
    CHANGING,
    LOGGED_BEFORE,
    MAX_MESSAGE,
    OWN_CONDITIONS,
    findings,
    needed,
    with_findings,
)
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.webhook_config import (
    MutatingWebhookConfiguration,
    knows_match_conditions,
    webhook_configuration,
)
from kubeshard.sharder.webhook_drift import APPLY_AGAIN, WebhookDrift
from kubeshard.sharding.api import READY, ControllerRing, ControllerRingStatus
from kubeshard.sharding.clean_up import CleanUp, CleanUpState
from kubeshard.sharding.names import CLEAN_UP_FINALIZER
from kubeshard.sharding.shard_states import MAX_SHARDS, ShardChange
from kubeshard.webhook.shared_certificate import CaBundleSource

NAME = "controllerring"
FIELD_MANAGER = "controllerring-controller"

RECONCILED = "ControllerRing was successfully reconciled"

_REFUSED = frozenset({400, 422, 500})
"""Status codes of an API server for an unknown field; they depend on its version."""

_status_changed: Predicate[ControllerRing] = changed(lambda ring: ring.status)
_deleted: Predicate[ControllerRing] = changed(lambda ring: ring.metadata.deletion_timestamp)

CLEAN_UP_CHECKED = 5.0
"""Seconds between two checks of whether a clean-up is over."""


def ring_controller(
    rings: Rings,
    observer: LeaseObserver,
    config: WebhookConfig,
    drift: WebhookDrift,
    ca: CaBundleSource | None,
    clock: Clock,
    sharders: Collection[str] = (),
) -> Controller[ControllerRing]:
    """The controller. `ca` is the sharder's own certificate authority, if it has one.

    Triggers: new or changed ControllerRings, a changed status, changed shards or their availability, drift, new
    findings, a new authority.
    """
    return Controller(
        name=NAME,
        reconciler=ControllerRings(rings, observer, config, drift, ca, clock, sharders),
        primary=Watch(ControllerRing, when=generation_changed | _status_changed | _deleted),
        sources=[ShardChanges(rings, observer), drift, *([NewAuthority(rings, ca)] if ca else [])],
        workers=5,
    )


class ShardChanges:
    """Triggers rings with changed numbers of shards, or with new findings to report."""

    def __init__(self, rings: Rings, observer: LeaseObserver) -> None:
        self._rings = rings
        self._observer = observer

    async def run(self, enqueue: Enqueue) -> None:
        def heard(change: ShardChange) -> None:
            if change.availability or change.presence or len(change.rings) > 1:
                for ring in sorted(change.rings):
                    enqueue(Key("", ring), "shards changed")

        self._rings.listen(lambda ring: enqueue(ring.resource.key, "new findings"))
        try:
            with self._observer.subscribed(heard):
                await asyncio.get_running_loop().create_future()
        finally:
            self._rings.listen(None)


class NewAuthority:
    """Triggers all rings when the webhook's certificate authority changed."""

    def __init__(self, rings: Rings, ca: CaBundleSource) -> None:
        self._changed = asyncio.Event()
        self._rings = rings
        ca.on_change(self._changed.set)

    async def run(self, enqueue: Enqueue) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            for ring in self._rings:
                enqueue(ring.resource.key, "new certificate authority")


class ControllerRings(Reconciler[ControllerRing]):
    """Reconciles a ring's webhook configuration and status."""

    def __init__(
        self,
        rings: Rings,
        observer: LeaseObserver,
        config: WebhookConfig,
        drift: WebhookDrift,
        ca: CaBundleSource | None,
        clock: Clock,
        sharders: Collection[str] = (),
    ) -> None:
        self._rings = rings
        self._sharders = sharders
        self._observer = observer
        self._config = config
        self._drift = drift
        self._ca = ca
        self._clock = clock
        self._match_condition = not rings.inputs.strict
        """Whether the webhook configurations get a match condition: not if the API server does not support them."""

    async def reconcile(self, ctx: Context, obj: ControllerRing, /) -> Result | None:
        if (ring := self._rings.get(obj.name)) is None:
            return None  # not known yet, or deleted
        if ring.clean_up is not None:
            return await self._clean_up(ctx, ring, ring.clean_up, obj)
        try:
            await self._apply_webhook(ctx, ring, obj)
        except ApiError as error:
            message = shortened(f"error reconciling webhooks for ControllerRing: {error}", MAX_MESSAGE)
            await self._report_failure(ctx, ring, obj, message[:1].upper() + message[1:])
            raise
        status = self._status(ring, obj, "True", "ReconciliationSucceeded", RECONCILED)
        _tell_news(ctx, obj, status)
        await self._write(ctx, obj, status)
        return None if self._drift.watched else Result(requeue_after=APPLY_AGAIN)

    async def _clean_up(
        self, ctx: Context, ring: Ring, clean_up: CleanUp, obj: ControllerRing
    ) -> Result | None:
        """Lets a ring go that is being deleted, as soon as its labels are removed, or cannot be."""
        state = clean_up.state(ring.listed, self._clock.monotonic())
        left = clean_up.left(ring.listed)
        ring.report.cleaning_up(left)
        status = self._status(ring, obj, "True", "ReconciliationSucceeded", RECONCILED)
        await self._write(ctx, obj, status)
        if state is CleanUpState.UNDER_WAY:
            return Result(requeue_after=CLEAN_UP_CHECKED)
        if CLEAN_UP_FINALIZER not in obj.metadata.finalizers:
            return None
        await self._collect_leases(ctx, ring)
        if state is CleanUpState.CLEAN:
            ctx.event(obj, "Normal", "CleanedUp", "No object carries the ring's labels", action="CleanUp")
        else:
            note = f"The ring is deleted although objects may carry its labels: {left}"
            ctx.log.warning("Not all labels of a deleted ring could be removed", left=left)
            ctx.event(obj, "Warning", "CleanUpGivenUp", note[:MAX_MESSAGE], action="CleanUp")
        try:
            change = removing(obj.metadata, {CLEAN_UP_FINALIZER})
            await ctx.client.patch(ControllerRing, obj.name, "", change)
        except NotFound:
            pass
        except Forbidden as error:
            ctx.log.warning("Cannot remove the finalizer of a deleted ring", error=error)
            raise
        return None

    async def _collect_leases(self, ctx: Context, ring: Ring) -> None:
        """Deletes Leases that nobody holds: without the ring, nobody else does. Those of running shards stay theirs."""
        for shard in self._observer.states.shards(ring.name, self._clock.monotonic()):
            if shard.deleted or shard.state.available:
                continue
            meta = shard.lease.metadata
            version = meta.resource_version
            try:
                await ctx.client.delete(
                    Lease, meta.name, meta.namespace, uid=meta.uid, resource_version=version
                )
            except NotOurs:
                raise
            except ApiError as error:  # somebody holds it again, say
                ctx.log.debug("Cannot delete a Lease of a deleted ring", lease=str(shard.key), error=error)

    async def _apply_webhook(self, ctx: Context, ring: Ring, obj: ControllerRing) -> None:
        asked = self._match_condition
        body = self._webhook(obj, asked)
        if await self._drift.in_place(ring, body):
            return
        try:
            answer = await _applied(ctx, body)
            known = knows_match_conditions(answer)
        except ApiError as error:
            if not asked or error.code not in _REFUSED:
                raise
            known = False
        if asked and not known:
            body = self._webhook(obj, False)
            await _applied(ctx, body)  # raises if the condition was not the problem
        self._drift.applied(ring, body)
        if asked and not known:
            self._match_condition = False
            ctx.log.info(
                "The API server does not support match conditions; the webhook is called for all assignments"
            )

    def _webhook(self, ring: ControllerRing, match_condition: bool) -> dict[str, Any]:
        ca_bundle = self._ca.ca_bundle if self._ca else ""
        return webhook_configuration(
            ring,
            self._config,
            ca_bundle,
            sharders=self._sharders,
            match_condition=match_condition,
            without=self._rings.inputs.system_namespaces,
        )

    async def _report_failure(self, ctx: Context, ring: Ring, obj: ControllerRing, message: str) -> None:
        ctx.event(obj, "Warning", "ReconciliationFailed", message, action="Reconcile")
        try:
            status = self._status(ring, obj, "False", "ReconciliationFailed", message)
            _tell_news(ctx, obj, status)
            await self._write(ctx, obj, status)
        except ApiError as error:
            ctx.log.error("Cannot write the status of the ControllerRing", error=error)

    def _status(
        self, ring: Ring, obj: ControllerRing, ready: str, reason: str, message: str
    ) -> ControllerRingStatus:
        """The desired status; equal to the current one if nothing changed. A failed reconcile
        does not change the numbers of shards.
        """
        now = second_time(self._clock.wall())
        status = obj.status or ControllerRingStatus()
        shards = [
            s for s in self._observer.states.shards(ring.name, self._clock.monotonic()) if not s.deleted
        ]
        found = findings(ring.report, ring.resources, shards, max_shards=MAX_SHARDS)
        if ready == "True":
            available = sum(shard.member for shard in shards)
            status = msgspec.structs.replace(status, shards=len(shards), available_shards=available)
            if (lacking := needed(found)) and not ring.strict:
                ready, reason = "False", "PartlySharded"
                message = f"Not all that the ring lists is sharded: see {', '.join(lacking)}"
        condition = Condition(type=READY, status=ready, reason=reason, message=message)
        conditions = with_findings(status.conditions, found)
        for each in (condition, *found):
            each = msgspec.structs.replace(each, observed_generation=obj.metadata.generation)
            conditions = set_condition(conditions, each, now)
        return msgspec.structs.replace(
            status, observed_generation=obj.metadata.generation, conditions=conditions
        )

    async def _write(self, ctx: Context, ring: ControllerRing, status: ControllerRingStatus) -> None:
        if status != ring.status:
            await ctx.client.replace(msgspec.structs.replace(ring, status=status), subresource="status")


async def _applied(ctx: Context, body: Mapping[str, Any]) -> MutatingWebhookConfiguration:
    name = body["metadata"]["name"]
    return await ctx.client.patch(
        MutatingWebhookConfiguration, name, "", ApplyPatch(body), field_manager=FIELD_MANAGER
    )


def _tell_news(ctx: Context, ring: ControllerRing, status: ControllerRingStatus) -> None:
    """Records an event and a log line for each finding that is not in the ring's current status, and an event when the
    last shard is gone.
    """
    known = {c.type: c.message for c in (ring.status.conditions if ring.status else ())}
    for condition in status.conditions:
        told = (
            condition.type in known
            if condition.type in CHANGING
            else known.get(condition.type) == condition.message
        )
        if condition.type in OWN_CONDITIONS and not told:
            if condition.type not in LOGGED_BEFORE:
                problem = condition.message
                ctx.log.warning("The ring has a problem", what=condition.type, problem=problem)
            ctx.event(ring, "Warning", condition.reason, condition.message, action="Reconcile")
    before, after = ring.status, status
    if before is not None and before.available_shards and not after.available_shards:
        note = "No shard is available: objects keep their shard, and new ones stay unassigned"
        ctx.event(ring, "Warning", "NoShardAvailable", note, action="Assign")
