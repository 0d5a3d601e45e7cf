"""The controller of ControllerRings: webhook configuration and status of each ring.

Guaranteed: the webhook configuration is what `webhook_config` renders, even after another client edited or deleted
it, within the bounds of `webhook_registration`; a field that another manager owns is left to it, and reported as
Ready=False like the reference does; so is a finding (`sharding.conditions`) because of which
something is not sharded. A new finding is also reported as an event. The status is written whatever becomes of the
webhook; one that another client changes is put right within the bound of `Repairs`, which an event tells.

Of two installations of the sharder, one keeps a ring's webhook configuration and status. The other one says so in a
condition of the ring, which the first one drops after `SAID_FOR` seconds, so that it is there as long as both run.

A ring with `CLEAN_UP_FINALIZER` that is being deleted is let go when none of its objects carries its labels, or when
that makes no progress (`kubeshard.sharding.waiting`), and meanwhile a condition says what is left.

RBAC: get, list, watch on controllerrings; patch on them, for the finalizer; update on controllerrings/status and
controllerrings/finalizers; what `webhook_registration` needs; delete on leases; create, patch on events.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Hashable
from contextlib import suppress
from weakref import WeakKeyDictionary

import msgspec

from kubeshard.controller.context import Context
from kubeshard.controller.controller import Controller
from kubeshard.controller.reconciler import Reconciler, Result
from kubeshard.controller.sources import Enqueue
from kubeshard.controller.watch import Watch
from kubeshard.controller.when import Predicate, changed, generation_changed
from kubeshard.core.builtin import Lease
from kubeshard.core.conditions import Condition, for_people, get_condition, set_condition
from kubeshard.core.errors import ApiError, Conflict, Forbidden, NotFound, NotOurs
from kubeshard.core.finalizers import removing
from kubeshard.core.objects import Key
from kubeshard.core.times import parse_time, second_time
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.notices import Notices
from kubeshard.runtime.repairs import Repairs
from kubeshard.sharder.config import WebhookConfig
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.rings import Rings, reading
from kubeshard.sharder.webhook_registration import Settled, WebhookDrift, WebhookRegistration
from kubeshard.sharding.api import READY, ControllerRing, ControllerRingStatus
from kubeshard.sharding.conditions import (
    CHANGING,
    LOGGED_BEFORE,
    MAX_MESSAGE,
    OWN_CONDITIONS,
    SEVERAL_SHARDERS,
    findings,
    needed,
    with_findings,
)
from kubeshard.sharding.names import CLEAN_UP_FINALIZER, DELIVERY_ANNOTATION
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.waiting import CleanUp, CleanUpState
from kubeshard.webhook.shared_certificate import CaBundleSource

NAME = "controllerring"

RECONCILED = "ControllerRing was successfully reconciled"

_status_changed: Predicate[ControllerRing] = changed(lambda ring: ring.status)
_delivery_changed: Predicate[ControllerRing] = changed(
    lambda ring: (ring.metadata.annotation(DELIVERY_ANNOTATION), ring.shard_namespaces)
)
_deleted: Predicate[ControllerRing] = changed(lambda ring: ring.metadata.deletion_timestamp)

CLEAN_UP_CHECKED = 5.0
"""Seconds between two checks of whether a clean-up is over."""

LOGGED_EVERY = 600.0

SAID_FOR = 600.0
"""Seconds for which a sharder believes the other one that said in a ring's status that both run."""


def ring_controller(
    rings: Rings,
    observer: LeaseObserver,
    config: WebhookConfig,
    drift: WebhookDrift,
    ca: CaBundleSource | None,
    clock: Clock,
    sharders: Collection[str] = (),
    election: Key | None = None,
) -> Controller[ControllerRing]:
    """The controller. `ca` is the sharder's own certificate authority, if it has one, and `election` its election.

    Triggers: new or changed ControllerRings, a changed status, changed shards or their availability, drift, new
    findings, a new authority.
    """
    webhooks = WebhookRegistration(
        drift, config, rings.inputs, clock, ca=ca, sharders=sharders, election=election
    )
    return Controller(
        name=NAME,
        reconciler=ControllerRings(rings, observer, webhooks, clock, election),
        primary=Watch(
            ControllerRing, when=generation_changed | _status_changed | _delivery_changed | _deleted
        ),
        sources=[News(rings), drift, *([NewAuthority(rings, ca)] if ca else [])],
        workers=5,
    )


class News:
    """Triggers rings with changed shards, or with new findings to report."""

    def __init__(self, rings: Rings) -> None:
        self._rings = rings

    async def run(self, enqueue: Enqueue) -> None:
        with reading(self._rings.news) as inbox:
            while True:
                for name in await inbox.take():
                    enqueue(Key("", name), "news")


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
        webhooks: WebhookRegistration,
        clock: Clock,
        election: Key | None = None,
    ) -> None:
        self._rings = rings
        self._observer = observer
        self._webhooks = webhooks
        self._clock = clock
        self._election = election
        self._written: WeakKeyDictionary[Ring, Hashable] = WeakKeyDictionary()
        """What the status of each ring said that was written last (`_said`)."""
        self._told: WeakKeyDictionary[Ring, Hashable] = WeakKeyDictionary()
        """The same of those whose news are told, and that could not be written yet."""
        self._repairs = Repairs(clock)
        """Of statuses."""
        self._notices = Notices(clock, every=LOGGED_EVERY)
        """Of statuses that cannot be written."""

    async def reconcile(self, ctx: Context, obj: ControllerRing, /) -> Result | None:
        if (ring := self._rings.get(obj.name)) is None:
            return None  # not known yet, or deleted
        if ring.clean_up is not None:
            return await self._clean_up(ctx, ring, ring.clean_up, obj)
        settled, failure = Settled(), None
        try:
            settled = await self._webhooks.settle(ctx, ring, obj)
        except NotOurs:
            raise
        except ApiError as error:
            settled, failure = Settled(problem=str(error)), error
        if settled.keeper is not None:
            return await self._step_back(ctx, ring, obj, settled)
        again = self._heed(ring, obj)
        if settled.problem:
            message = for_people(
                f"Error reconciling webhooks for ControllerRing: {settled.problem}", MAX_MESSAGE
            )
            ctx.event(obj, "Warning", "ReconciliationFailed", message, action="Reconcile")
            status = self._status(ring, obj, "False", "ReconciliationFailed", message)
        else:
            status = self._status(ring, obj, "True", "ReconciliationSucceeded", RECONCILED)
        try:
            again = min(again, await self._write(ctx, ring, obj, status))
        except NotOurs:
            raise
        except ApiError as error:
            if failure is None:
                raise
            self._cannot_write(ctx, ring, error)
        if failure is not None:
            raise failure
        again = min(again, settled.again)
        return Result(requeue_after=max(again, 0.1)) if again < math.inf else None

    async def _step_back(
        self, ctx: Context, ring: Ring, obj: ControllerRing, settled: Settled
    ) -> Result | None:
        """Another installation keeps the ring's webhook configuration and status. Says so, in the status too."""
        self._written.pop(ring, None)
        message = (
            f"the sharders {settled.keeper} and {self._election} both run: {settled.keeper} keeps the ring's webhook "
            "and status, the other one only helps to assign objects, and takes over when the first one is gone; "
            "uninstall one of them"
        )
        known = obj.status or ControllerRingStatus()
        if (said := get_condition(known.conditions, SEVERAL_SHARDERS)) is None or said.message != message:
            ctx.log.warning("Another sharder keeps this ring", keeper=str(settled.keeper))
            ctx.event(obj, "Warning", "SeveralSharders", message, action="Reconcile")
            wait = self._repairs.wait((ring.name, SEVERAL_SHARDERS))
            if wait:
                return Result(requeue_after=wait)
            condition = Condition(
                type=SEVERAL_SHARDERS,
                status="True",
                reason="AnotherSharderKeepsIt",
                message=message,
                observed_generation=obj.metadata.generation,
            )
            conditions = tuple(c for c in known.conditions if c.type != SEVERAL_SHARDERS)
            now = second_time(self._clock.wall())
            conditions = set_condition(conditions, condition, now)
            with suppress(Conflict):  # the other one has written it: it is looked again
                status = msgspec.structs.replace(known, conditions=conditions)
                await ctx.client.replace(msgspec.structs.replace(obj, status=status), subresource="status")
                self._repairs.repaired((ring.name, SEVERAL_SHARDERS))
        return Result(requeue_after=settled.again)

    def _heed(self, ring: Ring, obj: ControllerRing) -> float:
        """Notes whether another sharder has said that it stepped back. Returns the seconds for which that counts."""
        said = get_condition(obj.status.conditions if obj.status else (), SEVERAL_SHARDERS)
        at = parse_time(said.last_transition_time) if said is not None else None
        left = 0.0 if at is None else at + SAID_FOR - self._clock.wall()
        if said is None or not 0 < left <= 2 * SAID_FOR or str(self._election) not in said.message:
            ring.report.another_sharder = ""
            return math.inf
        ring.report.another_sharder = said.message
        return left

    async def _clean_up(
        self, ctx: Context, ring: Ring, clean_up: CleanUp, obj: ControllerRing
    ) -> Result | None:
        """Lets a ring go that is being deleted, as soon as its labels are removed, or cannot be. Whether its status can
        be written does not matter.
        """
        state = clean_up.state(ring.listed, self._clock.monotonic())
        left = clean_up.left(ring.listed)
        ring.report.labels_left = left
        status = self._status(ring, obj, "True", "ReconciliationSucceeded", RECONCILED)
        refused: ApiError | None = None
        try:
            await self._write(ctx, ring, obj, status)
        except NotOurs:
            raise
        except ApiError as error:
            refused = error
            self._cannot_write(ctx, ring, refused)
        if state is CleanUpState.UNDER_WAY:
            return Result(requeue_after=CLEAN_UP_CHECKED)
        if CLEAN_UP_FINALIZER not in obj.metadata.finalizers:
            if refused is not None and not isinstance(refused, NotFound):
                raise refused
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

    def _cannot_write(self, ctx: Context, ring: Ring, error: ApiError) -> None:
        """Tells it, unless the ring has just changed, or is gone."""
        if isinstance(error, Conflict | NotFound):
            return
        if self._notices.due(ring.name, type(error)):
            ctx.log.error("Cannot write the status of the ControllerRing", error=error)

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

    def _status(
        self, ring: Ring, obj: ControllerRing, ready: str, reason: str, message: str
    ) -> ControllerRingStatus:
        """The desired status; equal to the current one if nothing changed."""
        now = second_time(self._clock.wall())
        status = obj.status or ControllerRingStatus()
        shards = [
            s for s in self._observer.states.shards(ring.name, self._clock.monotonic()) if not s.deleted
        ]
        found = findings(ring.report, ring.resources, shards)
        available = sum(shard.member for shard in shards)
        status = msgspec.structs.replace(status, shards=len(shards), available_shards=available)
        if ready == "True" and (lacking := needed(found)):
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

    async def _write(
        self, ctx: Context, ring: Ring, obj: ControllerRing, status: ControllerRingStatus
    ) -> float:
        """Writes the status if it has changed, and tells the news in it. Returns the seconds until it may be put right,
        if others keep changing it.
        """
        if status == obj.status:
            return math.inf
        said = _said(status)
        repair = self._written.get(ring) == said
        if repair and (wait := self._repairs.wait(ring.name)):
            note = "Somebody else keeps changing the ring's status, which is put right once a minute at most"
            ctx.log.warning(
                "Somebody else keeps changing the ring's status, which is put right once a minute at most"
            )
            ctx.event(obj, "Warning", "StatusContested", note, action="Reconcile")
            return wait
        if self._told.get(ring) != said:
            _tell_news(ctx, obj, status)
            self._told[ring] = said
        await ctx.client.replace(msgspec.structs.replace(obj, status=status), subresource="status")
        self._written[ring] = said
        self._told.pop(ring, None)
        self._notices.resolved(ring.name)
        if repair:
            self._repairs.repaired(ring.name)
        return math.inf


def _said(status: ControllerRingStatus) -> Hashable:
    """What a status says for the sharder: without the conditions of others, and without the times, which begin anew
    when a condition is put right.
    """
    conditions = frozenset(
        msgspec.structs.replace(each, last_transition_time="")
        for each in status.conditions
        if each.type == READY or each.type in OWN_CONDITIONS
    )
    return status.observed_generation, status.shards, status.available_shards, conditions


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
