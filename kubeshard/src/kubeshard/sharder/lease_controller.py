"""The shardlease controller: state labels, take-over of expired Leases, garbage collection.

| state | action | checks again after |
|---|---|---|
| ready | | to_expired |
| ready, and does not release objects | evicts it: takes the Lease over (PUT) | the previous duration, doubled |
| expired, because it was evicted | | to_expired |
| expired | | to_uncertain |
| uncertain | reads the Lease again; still uncertain: takes it over (PUT) | the previous duration |
| dead, and was evicted | notes that it is over | to_orphaned |
| dead | | to_orphaned |
| dead or orphaned, and its end is to be confirmed | confirms it, if the kubelet says so or it was waited for long \
enough | `ASK_AGAIN`, `KEPT` once it is confirmed |
| orphaned | deletes it, with UID and resourceVersion as preconditions | |
| deleted while held | waits for twice its duration, then re-creates it as taken over | |

A shard that has missed a renewal is taken over at once if the kubelet reports that its containers have ended, in two
answers `CONFIRMED` seconds apart (`pod_reports`): a container that is restarted is not.

When many shards of a ring seem to die at once, all Leases are read again, and take-overs are held back for a while
(`sharding.take_overs`).

In a ring with strict hand-over (`sharding.shard_states`) a dead shard keeps its objects until its end is confirmed.
Its Lease, which says so, is not deleted before that, nor for a long time after it.

A shard is evicted only if that is configured (`sharding.take_overs`). Unlike one that has not renewed its Lease, it is
alive: so it keeps its objects for twice the lease duration, in which it notices or its watchdog ends it, and every
sharder reads that from the Lease (`EVICTED_ANNOTATION`).

Guaranteed: only a successful take-over (or release) of a Lease makes its shard unavailable; a shard that is
still alive fails to renew then. A Lease without ring label, or of a ring that does not
exist, is not touched. The state label is informational: a Lease that cannot be labelled is taken over and deleted like
any other, at most `LABEL_PATIENCE` later. What the API server refuses is tried again after at most 10 s.

RBAC: get, list, watch, create, update, patch, delete on leases; create, patch on events; get on pods (optional).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from contextlib import suppress
from weakref import WeakKeyDictionary

import msgspec

from kubeshard.controller.context import Context
from kubeshard.controller.controller import Controller
from kubeshard.controller.reconciler import Reconciler, Result
from kubeshard.controller.sources import Enqueue
from kubeshard.controller.watch import Watch
from kubeshard.controller.when import never
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, NotOurs
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.core.times import micro_time
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.repairs import Repairs
from kubeshard.runtime.watchdog import ended_by_watchdog
from kubeshard.sharder.lease_observer import SHARD_LEASES, LeaseObserver
from kubeshard.sharder.pod_reports import PodReports
from kubeshard.sharder.rings import Rings
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import (
    CONFIRMED_ANNOTATION,
    EVICTED_ANNOTATION,
    INCARNATION_ANNOTATION,
    PROOFS_ANNOTATION,
    REPORTED_SUFFIX,
    RING_LABEL,
    SHARDER_IDENTITY,
    STATE_LABEL,
    WATCHDOG_ANNOTATION,
)
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.shard_states import (
    Confirmed,
    Shard,
    ShardChange,
    ShardState,
    confirmation,
    is_confirmed,
)
from kubeshard.sharding.take_overs import CircuitBreaker
from kubeshard.sharding.waiting import Refusals
from kubeshard.workqueue.limits import ItemExponential

NAME = "shardlease"
_MAX_INT32 = 2**31 - 1

LABEL_PATIENCE = 3.0
"""Seconds after which a patch of the state label is given up."""
RELABEL, RELABEL_CHANGED = 10.0, 0.5
"""Seconds until a refused label is tried again, and one of a Lease that had changed meanwhile."""
LONGEST_RETRY, JITTER = 8.0, 0.25
HELD_BACK = 2.0
"""Seconds until it is decided again about a Lease whose take-over is held back."""
SILENT = 2.5
"""Seconds without renewal after which the shard's pod is read: shards renew every 2 s."""
POLL_INTERVAL = 0.5
"""Seconds between two looks for silent shards."""
CONFIRMED = 1.0
REPORTED = 5.0
"""Seconds for which an answer counts."""
SPACED = 3.0
"""Seconds between two take-overs in a ring because of such answers: others that died with the first have missed a
renewal by then, so that it is known how many they are.
"""
ASK_AGAIN = 5.0
"""Seconds between two looks whether the end of a shard can be confirmed."""
KEPT = 3600.0
"""Seconds for which a Lease is kept in a ring with strict hand-over after it is garbage elsewhere: objects that could
not be moved yet would wait without it.
"""
KEYS_A_TURN = 100
"""Leases that are enqueued before other tasks get their turn."""


def lease_controller(
    rings: Rings, observer: LeaseObserver, clock: Clock, mass_failure_grace: float
) -> Controller[Lease]:
    """The controller. Triggers: state changes that the observer saw, new or changed rings."""
    leases = ShardLeases(rings, observer, clock, mass_failure_grace)
    return Controller(
        name=NAME,
        reconciler=leases,
        primary=Watch(Lease, when=never, scope=SHARD_LEASES),
        sources=[StateChanges(rings, observer), SilentShards(observer, clock), leases],
        workers=5,
        limiter=lambda world: ItemExponential(cap=LONGEST_RETRY, jitter=JITTER, rng=world.rng),
    )


class StateChanges:
    """Triggers Leases that were added, deleted, or observed to change their state, and those of a ring that was added
    or changed; all known ones at the start.
    """

    def __init__(self, rings: Rings, observer: LeaseObserver) -> None:
        self._rings = rings
        self._observer = observer

    async def run(self, enqueue: Enqueue) -> None:
        def heard(change: ShardChange) -> None:
            if change.before is not change.after or change.presence or len(change.rings) > 1:
                enqueue(change.key, "state changed")

        def ring_changed(ring: str) -> None:
            for shard in self._observer.shards(ring):
                enqueue(shard.key, "ring changed")

        with self._observer.subscribed(heard), self._rings.subscribed(ring_changed):
            for number, key in enumerate(sorted(self._observer.states.keys()), 1):
                enqueue(key, "start")
                if number % KEYS_A_TURN == 0:
                    await asyncio.sleep(0)
            await asyncio.get_running_loop().create_future()


class SilentShards:
    """Triggers the Leases of shards that have missed a renewal, again and again until they are renewed or due."""

    def __init__(self, observer: LeaseObserver, clock: Clock) -> None:
        self._observer = observer
        self._clock = clock

    async def run(self, enqueue: Enqueue) -> None:
        states = self._observer.states
        while True:
            now = self._clock.monotonic()
            silent = states.silent(SILENT, now) if (fresh := states.fresh(now)) else []
            for key in silent:
                enqueue(key, "silent")
            next_one = states.silent_in(SILENT, now) if fresh and not silent else 0.0
            await asyncio.sleep(max(POLL_INTERVAL, next_one))


class ShardLeases(Reconciler[Lease]):
    """Reconciles one Lease, or the tombstone of one. As a source it triggers nothing, and looks whether many shards of
    a ring still fail: of those that did, there may be no Lease left to reconcile.
    """

    def __init__(
        self, rings: Rings, observer: LeaseObserver, clock: Clock, mass_failure_grace: float = 0.0
    ) -> None:
        self._rings = rings
        self._observer = observer
        self._clock = clock
        self._breakers = WeakKeyDictionary[Ring, CircuitBreaker]()
        self._grace = mass_failure_grace
        self._pods = PodReports(clock)
        self._reported: dict[Key, tuple[float, float]] = {}
        """Shards that have ended according to the kubelet: when it said so first and last."""
        self._next_report = WeakKeyDictionary[Ring, float]()
        """From when the next shard of a ring may be taken over for that."""
        self._unlabelled: dict[Key, tuple[ShardState, float]] = {}
        """Leases whose label could not be written: the state that was announced, and the seconds until the next try."""
        self._labels: dict[Key, ShardState] = {}
        """The state labels that were written last."""
        self._repairs = Repairs(clock)
        """Of these labels."""
        self._refusals = Refusals()
        self._told: dict[Key, Ring] = {}
        """The rings whose reports have them."""

    async def run(self, enqueue: Enqueue) -> None:
        while True:
            await asyncio.sleep(HELD_BACK)
            now = self._clock.monotonic()
            self._reported = {key: said for key, said in self._reported.items() if now - said[1] < REPORTED}
            for ring, breaker in tuple(self._breakers.items()):
                if breaker.is_open and not ring.ended:
                    self._judge(ring)
                    await asyncio.sleep(0)  # it may be every ring of the cluster

    async def reconcile(self, ctx: Context, obj: Lease, /) -> Result | None:
        return await self._tend(ctx, ctx.key)

    async def gone(self, ctx: Context, key: Key, /) -> Result | None:
        return await self._tend(ctx, key)

    async def _tend(self, ctx: Context, key: Key) -> Result | None:
        shard = self._shard(key)
        ring = None if shard is None else self._rings.get(shard.ring)
        if shard is None or shard.deleted or ring is None:
            self._unlabelled.pop(key, None)
            self._labels.pop(key, None)
        if shard is None or ring is None:
            self._accepted(key)
            return None
        try:
            if shard.deleted:
                return await self._settle_tombstone(ctx, shard)
            shard = await self._labelled(ctx, shard)
            wait = await self._advance(ctx, shard)
        except (NotOurs, Conflict):
            raise
        except ApiError as error:
            self._rejected(ring, shard, error)
            raise
        if key not in self._unlabelled:
            self._accepted(key)
        _, relabel = self._unlabelled.get(key, (None, math.inf))
        return _after(min(wait, relabel)) if min(wait, relabel) < math.inf else None

    def _rejected(self, ring: Ring, shard: Shard, error: Exception) -> None:
        """The API server refused a request for a Lease: people are told if that lasts."""
        if self._refusals.refused(shard.lease.metadata, error, self._clock.monotonic()):
            ring.report.lease(str(shard.key), self._refusals.why(shard.key))
            self._told[shard.key] = ring

    def _accepted(self, key: Key) -> None:
        if self._refusals.ended(key) and (ring := self._told.pop(key, None)) is not None:
            ring.report.lease(str(key))

    async def _advance(self, ctx: Context, shard: Shard) -> float:
        """Does what the state asks for. Returns the seconds until the next state."""
        if shard.state.available and not shard.evicted and await self._reported_dead(ctx, shard):
            return await self._seize(ctx, shard, reported=True)
        return min(await self._by_state(ctx, shard), self._second_report(shard))

    async def _by_state(self, ctx: Context, shard: Shard) -> float:
        match shard.state:
            case ShardState.READY:
                self._returned(shard)
                return await self._evict(ctx, shard) or shard.times.to_expired
            case ShardState.EXPIRED:
                return shard.times.to_expired if shard.evicted else shard.times.to_uncertain
            case ShardState.UNCERTAIN:
                return await self._seize(ctx, shard)
            case ShardState.DEAD:
                if shard.evicted:
                    await self._settle_eviction(ctx, shard)
                return await self._confirm(ctx, shard) or shard.times.to_orphaned
            case _:
                if wait := await self._confirm(ctx, shard):
                    return wait
                await self._collect(ctx, shard)
                return math.inf

    async def _labelled(self, ctx: Context, shard: Shard) -> Shard:
        """Keeps the state label up to date; it is informational only."""
        meta = shard.lease.metadata
        before = ShardState.parse(meta.label(STATE_LABEL))
        if before is shard.state:
            self._unlabelled.pop(shard.key, None)
            return shard
        if repair := self._labels.get(shard.key) is shard.state:
            if self._repairs.wait(shard.key):
                return shard
            if self._repairs.contested(shard.key):
                note = (
                    "Somebody else keeps changing the state label, which is put right once a minute at most"
                )
                ctx.event(shard.lease, "Warning", "LabelContested", note, action="Observe")
        announced, _ = self._unlabelled.get(shard.key, (before, 0.0))
        if announced is not shard.state:
            self._announce(ctx, shard, announced)
        labels = {"resourceVersion": meta.resource_version, "labels": {STATE_LABEL: str(shard.state)}}
        try:
            async with asyncio.timeout(LABEL_PATIENCE):
                patched = await ctx.client.patch(
                    Lease, meta.name, meta.namespace, MergePatch({"metadata": labels})
                )
        except NotOurs:
            raise
        except NotFound:
            return shard
        except (ApiError, TimeoutError) as error:
            again = RELABEL_CHANGED if isinstance(error, Conflict) else RELABEL
            if again == RELABEL and announced is not shard.state:
                ctx.log.warning(
                    "Cannot label a shard's Lease with its state; it is judged and taken over nevertheless",
                    ring=shard.ring,
                    state=str(shard.state),
                    error=error,
                )
            self._unlabelled[shard.key] = shard.state, again
            if again == RELABEL and (ring := self._rings.get(shard.ring)) is not None:
                self._rejected(ring, shard, error)
        else:
            self._unlabelled.pop(shard.key, None)
            self._labels[shard.key] = shard.state
            if repair:
                self._repairs.repaired(shard.key)
            self._observer.observe(patched)
        return self._shard(shard.key) or shard

    def _announce(self, ctx: Context, shard: Shard, before: ShardState) -> None:
        """Says once that the state has changed."""
        available = shard.state.available
        changed = before.available != available
        if changed:
            ctx.log.info(
                "Shard is available" if available else "Shard is not available",
                ring=shard.ring,
                state=str(shard.state),
            )
        if not shard.valid:
            ctx.event(
                shard.lease,
                "Warning",
                "InvalidShardName",
                "The Lease is not a shard of its ring: its name is not a valid label value",
                action="Ignore",
            )
        if shard.state is ShardState.EXPIRED and not shard.evicted:
            ctx.log.info("Shard Lease has expired", ring=shard.ring)
            patience = f"its objects stay with it for another {shard.times.to_uncertain:.0f} s"
            note = f"{shard.key} has not renewed its Lease in time; {patience}"
            ctx.event(shard.lease, "Warning", "ShardExpired", note, action="Observe")
        if changed and shard.valid and shard.allowed is not False:
            self._tell_membership(ctx, shard)

    def _tell_membership(self, ctx: Context, shard: Shard) -> None:
        """Records events on the ControllerRing, if there is one: users look for its shards there."""
        ring = self._rings.get(shard.ring)
        about: ControllerRing | Lease = shard.lease
        if ring is not None and ring.resource.metadata.uid:
            about = ring.resource
        if shard.state.available:
            ctx.event(
                about,
                "Normal",
                "ShardJoined",
                f"{shard.key} joined the ring",
                action="Assign",
                related=shard.lease,
            )
        elif shard.lease.spec.holder_identity:
            then = "its objects move to the other shards"
            if ring is not None and ring.confirmations is not None and not is_confirmed(shard.lease):
                then = "its objects wait until it is confirmed that it has ended"
            note = f"{shard.key} did not renew its Lease, which was taken over; {then}"
            if shard.evicted:
                note = f"{shard.key} was evicted, and cannot act any more; {then}"
            elif seconds := shard.lease.metadata.annotation(WATCHDOG_ANNOTATION):
                note += f"; {ended_by_watchdog(seconds)}"
            ctx.event(about, "Warning", "ShardTakenOver", note, action="TakeOver", related=shard.lease)
        else:
            note = f"{shard.key} released its Lease; its objects move to the other shards"
            ctx.event(about, "Normal", "ShardLeft", note, action="Assign", related=shard.lease)

    async def _reported_dead(self, ctx: Context, shard: Shard) -> bool:
        """Whether the kubelet has reported twice that the shard has ended."""
        now, silence = self._clock.monotonic(), shard.times.duration - shard.times.to_expired
        silent = (
            silence >= SILENT
            and shard.times.to_uncertain > 0
            and self._observer.states.fresh(self._clock.monotonic())
        )
        if not silent or not await self._pods.certify(ctx.client, shard.lease):
            self._reported.pop(shard.key, None)
            return False
        first, _ = self._reported.get(shard.key, (now, now))
        if first < now - silence:  # it was about a process before the last renewal
            first = now
        self._reported[shard.key] = first, now
        ring = self._rings.get(shard.ring)
        if ring is None or now - first < CONFIRMED or now < self._next_report.get(ring, now):
            return False
        self._next_report[ring] = now + SPACED
        return True

    def _second_report(self, shard: Shard) -> float:
        """The seconds until the kubelet is asked again that has said once that the shard has ended."""
        first, _ = self._reported.get(shard.key, (-math.inf, 0.0))
        wait = first + CONFIRMED - self._clock.monotonic()
        return wait if wait > 0 else math.inf

    def _returned(self, shard: Shard) -> None:
        """With this shard, it may no longer be true that many fail."""
        ring = self._rings.get(shard.ring)
        if ring is not None and ring in self._breakers and self._breakers[ring].is_open:
            self._judge(ring)

    async def _held_back(self, ctx: Context, shard: Shard) -> bool:
        """Whether the Lease must not be taken over yet, because it is one of many. All are read again first: the view
        that makes them look dead may be this process's own problem.
        """
        ring = self._rings.get(shard.ring)
        if ring is None:
            return True  # it was deleted a moment ago
        was_open = ring in self._breakers and self._breakers[ring].is_open
        breaker = self._judge(ring)
        if breaker.is_open and not was_open:
            try:
                await self._observer.relist()
            except ApiError as error:
                ctx.log.debug("Cannot list shard Leases", error=error)
            breaker = self._judge(ring)
        return not breaker.may_take(shard)

    def _judge(self, ring: Ring) -> CircuitBreaker:
        breaker = self._breakers.setdefault(ring, CircuitBreaker(self._grace))
        now, states = self._clock.monotonic(), self._observer.states
        shards, fresh = states.shards(ring.name, now), states.fresh(now)
        breaker.update(shards, now, fresh=fresh, dead=_Ended(self._reported, now))
        ring.report.mass_failure(breaker.explained)
        ring.metrics.set("shards_failing_together", len(breaker.failing) if breaker.is_open else 0)
        return breaker

    async def _seize(self, ctx: Context, shard: Shard, *, reported: bool = False) -> float:
        """Takes the Lease over if another read returns exactly the record that was not renewed. `reported`: whether the
        kubelet has reported that the shard has ended, which is asked for again after that read.
        """
        if await self._held_back(ctx, shard):
            return HELD_BACK
        key, duration, asked = shard.key, shard.times.duration, self._clock.monotonic()
        try:
            whole = await ctx.client.get(Lease, key.name, key.namespace)
        except NotFound:
            self._observer.forget(key)
            return duration
        self._observer.observe(whole, asked)
        current = self._shard(key)
        if current is None or current.deleted:
            return duration if current is None else current.times.to_expired
        if current.state is ShardState.UNCERTAIN:
            ctx.log.info(
                "Shard Lease was not renewed for twice its duration; taking it over", ring=shard.ring
            )
        elif reported and current.state.available and await self._pods.certify(ctx.client, current.lease):
            ctx.log.info("Shard has ended according to its pod; taking its Lease over", ring=shard.ring)
        else:
            return current.times.to_expired
        early = current.state is not ShardState.UNCERTAIN
        taken = await ctx.client.replace(self._taken(current, whole, early=early))
        self._observer.observe(taken)
        if (ring := self._rings.get(shard.ring)) is not None:
            self._judge(ring).taken(current, self._clock.monotonic())
            ring.metrics.add("takeovers")
        return duration

    async def _evict(self, ctx: Context, shard: Shard) -> float:
        """Takes the Lease of a shard that does not release objects, if it has to be evicted. Returns the seconds until
        it counts as dead; 0 if it was not evicted.
        """
        ring, key = self._rings.get(shard.ring), shard.key
        if ring is None or not self._is_overdue(ring, shard):
            return 0.0
        asked = self._clock.monotonic()
        whole = await ctx.client.get(Lease, key.name, key.namespace)
        self._observer.observe(whole, asked)
        current = self._shard(key)
        if current is None or current.deleted or current.state is not ShardState.READY:
            return 0.0
        taken = await ctx.client.replace(self._taken(current, whole, evicted=True))
        number = ring.evictions.number(key.name)
        ring.evictions.evicted(key.name, self._clock.monotonic())
        ring.metrics.add("evictions")
        self._observer.observe(taken)
        objects = "1 object" if number == 1 else f"{number} objects"
        note = (
            f"{key} has not released {objects} within {ring.evictions.timeout:.0f} s of being asked to: its Lease was "
            "taken over, so its process has to end"
        )
        ctx.log.warning("Evicted a shard that does not release objects", ring=shard.ring, objects=number)
        about = ring.resource if ring.resource.metadata.uid else shard.lease
        ctx.event(about, "Warning", "ShardEvicted", note, action="Evict", related=shard.lease)
        return 2 * shard.times.duration

    async def _settle_eviction(self, ctx: Context, shard: Shard) -> None:
        """Notes in the Lease that the evicted process cannot act any more: else the next leader would wait again."""
        meta, number = shard.lease.metadata, str(shard.lease.spec.lease_transitions or 0)
        annotations = {EVICTED_ANNOTATION: None, PROOFS_ANNOTATION: number}
        change = MergePatch(
            {"metadata": {"resourceVersion": meta.resource_version, "annotations": annotations}}
        )
        with suppress(NotFound):
            self._observer.observe(await ctx.client.patch(Lease, meta.name, meta.namespace, change))

    async def _confirm(self, ctx: Context, shard: Shard) -> float:
        """Confirms that a shard has ended whose Lease was taken, if its ring wants that and it can be said. Returns the
        seconds until the next look; 0 if there is nothing to wait for.
        """
        ring, meta = self._rings.get(shard.ring), shard.lease.metadata
        if ring is None or ring.confirmations is None:
            return 0.0
        if is_confirmed(shard.lease):
            return max(0.0, shard.times.to_orphaned + KEPT) if shard.state is ShardState.ORPHANED else 0.0
        if await self._pods.certify(ctx.client, shard.lease):
            by = Confirmed.KUBELET
        elif ring.confirmations.over(shard):
            by = Confirmed.WAITED
        else:
            return ASK_AGAIN
        annotations = {CONFIRMED_ANNOTATION: confirmation(shard.lease, by)}
        change = MergePatch(
            {"metadata": {"resourceVersion": meta.resource_version, "annotations": annotations}}
        )
        with suppress(NotFound):
            self._observer.observe(await ctx.client.patch(Lease, meta.name, meta.namespace, change))
        ctx.log.info("Confirmed that a shard has ended", ring=shard.ring, by=by.value)
        return ASK_AGAIN

    def _is_overdue(self, ring: Ring, shard: Shard) -> bool:
        if ring.evictions.timeout == math.inf:
            return False
        available = set(ring.available)
        ring.evictions.keep(available)
        others = len(available - {shard.name})
        meta, spec = shard.lease.metadata, shard.lease.spec
        term = f"{meta.uid}/{spec.lease_transitions}/{meta.annotation(INCARNATION_ANNOTATION)}"
        due = ring.evictions.is_due(shard.name, term, others, self._clock.monotonic())
        return due and shard.member and not self._judge(ring).is_open

    async def _collect(self, ctx: Context, shard: Shard) -> None:
        meta = shard.lease.metadata
        try:
            await ctx.client.delete(
                Lease, meta.name, meta.namespace, uid=meta.uid, resource_version=meta.resource_version
            )
        except NotFound:
            return
        ctx.log.info("Deleted orphaned shard Lease", ring=shard.ring)

    async def _settle_tombstone(self, ctx: Context, shard: Shard) -> Result | None:
        """Handles a Lease that was deleted while held: after the time in which its shard would have been given up,
        the Lease is re-created as taken over, so that a shard that is still alive sees it and stops.
        """
        if shard.times.to_uncertain > 0:
            return _after(shard.times.to_uncertain)
        if await self._held_back(ctx, shard):
            return _after(HELD_BACK)
        meta = shard.lease.metadata
        labels = {RING_LABEL: shard.ring, STATE_LABEL: str(ShardState.DEAD)}
        incarnation = {INCARNATION_ANNOTATION: meta.annotation(INCARNATION_ANNOTATION)}
        new = ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            labels=labels,
            annotations=incarnation if all(incarnation.values()) else None,
        )
        lease = self._taken(shard, Lease(metadata=new, spec=shard.lease.spec))
        try:
            self._observer.observe(await ctx.client.create(lease))
        except AlreadyExists:
            current = await ctx.client.get(Lease, meta.name, meta.namespace)
            # Settled first: the Lease may be the same version that was taken for deleted.
            self._observer.forget_tombstone(shard.key)
            self._observer.observe(current)
        except (NotFound, Forbidden) as error:
            # The namespace is terminating or gone (or create is forbidden): the shard cannot hold it again either.
            ctx.log.warning(
                "Cannot create the deleted Lease of a shard again; giving the shard up",
                ring=shard.ring,
                error=error,
            )
            self._observer.forget_tombstone(shard.key)
        return None

    def _taken(self, shard: Shard, lease: Lease, *, early: bool = False, evicted: bool = False) -> Lease:
        """The Lease, which was read as a whole, as taken over; `early`: before it was due, because the shard has ended;
        `evicted`: although it lives.
        """
        metadata, before, now = lease.metadata, lease.spec, micro_time(self._clock.wall())
        spec = msgspec.structs.replace(
            before,
            holder_identity=SHARDER_IDENTITY,
            lease_duration_seconds=min(2 * round(shard.times.duration), _MAX_INT32),
            acquire_time=now,
            renew_time=now,
            lease_transitions=(before.lease_transitions or 0) + 1,
        )
        number = str(spec.lease_transitions)
        annotations = dict(metadata.annotations or {})
        if evicted:
            annotations[EVICTED_ANNOTATION] = number
        else:
            annotations[PROOFS_ANNOTATION] = number + REPORTED_SUFFIX if early else number
        ring = self._rings.get(shard.ring)
        if early and ring is not None and ring.confirmations is not None:
            annotations[CONFIRMED_ANNOTATION] = f"{number}/{Confirmed.KUBELET.value}"
        return Lease(metadata=msgspec.structs.replace(metadata, annotations=annotations), spec=spec)

    def _shard(self, key: Key) -> Shard | None:
        return self._observer.states.shard(key, self._clock.monotonic())


class _Ended:
    """Shards that have ended according to the kubelet. There may be many, and each is a reason to judge its ring."""

    def __init__(self, reported: Mapping[Key, tuple[float, float]], now: float) -> None:
        self._reported = reported
        self._now = now

    def __contains__(self, key: object) -> bool:
        said = self._reported.get(key) if isinstance(key, Key) else None
        return said is not None and self._now - said[1] < REPORTED


def _after(seconds: float) -> Result:
    return Result(requeue_after=max(seconds, 0.01))
