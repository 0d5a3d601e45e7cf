"""The delivery of objects by ranges. In place of assignments of objects, the leader drives the
`sharding.coordinator`, which decides.

It reads and writes one ConfigMap, `ranges-<ring>`, next to the shards' Leases. No object of the ring is read or
written, and the work does not grow with their number; but in a ring with controlled resources these have labels
(`bucket_labels`).

RBAC: get, list, watch, create, patch on configmaps in the namespace of the shards; list on leases; that of
`bucket_labels`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import NoReturn

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Deleted, Delta, current
from kubeshard.cache.scope import Scope
from kubeshard.client.client import Client
from kubeshard.controller.syncing import until_filled
from kubeshard.core.builtin import ConfigMap
from kubeshard.core.errors import ApiError, NotFound
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.selectors import FieldSelector
from kubeshard.runtime.logs import get_logger
from kubeshard.sharder.bucket_labels import EVERYWHERE, BucketLabels, Read
from kubeshard.sharder.kinds_and_rights import ResourceKinds
from kubeshard.sharder.lease_observer import DeadShardProofs, LeaseObserver
from kubeshard.sharder.owners import OwnerChains
from kubeshard.sharder.rings import Inbox, Rings, reading
from kubeshard.sharder.tasks import carried_out
from kubeshard.sharding.assignment import Place
from kubeshard.sharding.buckets import BUCKETS, Buckets
from kubeshard.sharding.coordinator import Change, Command, Coordinator, Create, Look, Prove, ReadLeases
from kubeshard.sharding.members import RingMember, member_of
from kubeshard.sharding.names import (
    RING_LABEL,
    SYNC_PERIOD,
    assignment_name,
)
from kubeshard.sharding.ring import Namespaces, Ring
from kubeshard.sharding.shard_states import ShardChange, ShardState

OVERDUE_AGAIN = 10.0
"""Seconds, less than `take_overs.RECENT`."""

_log = get_logger("kubeshard.sharder")


class RangeAssignor:
    """How the objects of one ring reach its shards by ranges (see `assignments.LabelAssignor`). `namespace`:
    that of the shards' Leases. `objects`: a client for the cluster with the objects.
    """

    def __init__(
        self,
        ring: str,
        buckets: Buckets,
        namespace: str,
        objects: Client,
        cache: Cache,
        sync_period: float = SYNC_PERIOD,
        read: Read = EVERYWHERE,
    ) -> None:
        self._read = read
        self.namespaces = Namespaces()
        self.kinds = ResourceKinds(objects)
        self.chains = OwnerChains(objects, self.kinds)
        self._sync_period = sync_period
        self.ring = ring
        self.buckets = buckets
        self.namespace = namespace
        named = FieldSelector.equals("metadata.name", assignment_name(ring))
        self.informer = cache.declare(ConfigMap, Scope(frozenset({namespace}), fields=named))

    @asynccontextmanager
    async def ready(self, rings: Rings) -> AsyncIterator[None]:
        await until_filled([self.informer])
        yield

    async def lead(
        self, rings: Rings, observer: LeaseObserver, objects: Client, leases: Client, *, first: bool
    ) -> None:
        coordination = RangeCoordination(self, rings, observer, leases, first=first)
        labels = BucketLabels(
            self.ring, self.buckets, rings, self.kinds, self.chains, objects, self._sync_period, self._read
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(labels.run(), name="bucket labels")
            await coordination.run()


class RangeCoordination:
    """What a leader runs for one term, and the Leases next to the assignment, as it sees them (`Membership`). `client`
    writes only while this process leads. `first`: nobody has led before.
    """

    def __init__(
        self, of: RangeAssignor, rings: Rings, observer: LeaseObserver, client: Client, *, first: bool
    ) -> None:
        self._ring, self._namespace, self._informer = of.ring, of.namespace, of.informer
        self._rings = rings
        self._observer = observer
        self._client = client
        self._clock = client.world.clock
        self._proofs = DeadShardProofs(client, observer, self._clock)
        self._machine = Coordinator(of.buckets, self, self._clock, first=first)
        self._wrong = ""
        """What is wrong with weights and reports."""
        self._inbox = Inbox[str]()
        """What `run` reads: its ring, if something about it has changed, and others."""
        self._waiting: dict[tuple[int, Place], float] = {}
        """Since when buckets wait to be handed over, or for a shard."""

    async def run(self) -> None:
        """Runs until cancelled."""
        handler = self._informer.add_handler(self._heard)
        try:
            with reading(self._rings.changes) as self._inbox:
                await self._keep_tending()
        finally:
            handler.remove()
            if (ring := self._rings.get(self._ring)) is not None:
                ring.let_go(self)
            self._proofs.forget(self._ring)

    async def _keep_tending(self) -> NoReturn:
        while True:
            wait = self._clock.monotonic() + 60.0
            if (ring := self._rings.get(self._ring)) is not None:
                ring.led_by(self)
                await self._tend(ring)
                wait = min(wait, self._tell_overdue(ring), self._machine.wake_at)
                wait = min(wait, ring.shards.until)
                if self._waiting:  # for how long is measured at each look
                    wait = min(wait, self._clock.monotonic() + OVERDUE_AGAIN)
            while told := await self._inbox.take(max(wait - self._clock.monotonic(), 0.01)):
                if self._ring in told:
                    break

    def _tell_overdue(self, ring: Ring) -> float:
        """Which buckets have not been released in time, for evictions. Returns when to tell it again."""
        now, timeout = self._clock.monotonic(), ring.evictions.timeout
        late = self._machine.overdue(timeout)
        ring.evictions.overdue(((BUCKETS, str(bucket)), shard, now) for bucket, shard in late)
        if late:
            return now + OVERDUE_AGAIN
        due = (since + timeout for _, since in self._machine.asked.values())
        return min((at for at in due if at > now), default=math.inf)

    # Events

    def _heard(self, delta: Delta[ConfigMap]) -> None:
        if isinstance(delta, Deleted):
            self._machine.seen(delta.object.metadata.resource_version, None)
        else:
            self._take(current(delta))
        self._inbox.put(self._ring)

    def lease_changed(self, change: ShardChange) -> None:
        """Of a shard of the ring."""
        if change.news or self._machine.awaits_renewals:
            self._inbox.put(self._ring)

    def ring_changed(self) -> None:
        """It has another spec: `changes` says so, too."""

    def stop(self) -> None:
        """The ring has ended."""

    # Commands

    async def _tend(self, ring: Ring) -> None:
        machine = self._machine
        await carried_out(machine.tend(), self._do)
        ring.report.ranges_unable = machine.unable
        ring.report.ranges_problem = "; ".join(
            filter(None, (machine.problem, machine.contested, machine.note, self._wrong))
        )
        self._measure(ring)

    def _measure(self, ring: Ring) -> None:
        """What waits is measured as of the last look at it."""
        now, assignment = self._clock.monotonic(), self._machine.assignment
        places, alive = () if assignment is None else assignment.places, frozenset(ring.available)
        drains = {(bucket, each) for bucket, each in enumerate(places) if each.target and each.owner in alive}
        unowned = {(bucket, each) for bucket, each in enumerate(places) if alive and each.owner not in alive}
        self._waiting = {each: self._waiting.get(each, now) for each in drains | unowned}
        for what, oldest, some in (
            ("drains_pending", "oldest_drain_seconds", drains),
            ("objects_unassigned", "oldest_unassigned_seconds", unowned),
        ):
            ring.metrics.set(what, len(some), BUCKETS)
            ring.metrics.set(oldest, now - min((self._waiting[each] for each in some), default=now))
        ring.metrics.set("assignment_unusable", bool(self._machine.problem or self._machine.contested))

    async def _do(self, command: Command) -> object:
        name = assignment_name(self._ring)
        match command:
            case Look():
                try:
                    self._take(await self._client.get(ConfigMap, name, self._namespace), read=True)
                except NotFound:
                    self._machine.seen("", None, read=True)
            case ReadLeases():
                await self._observer.relist()
            case Prove(shards):
                return await self._proven(shards)
            case Create(data):
                labels = {RING_LABEL: self._ring}
                meta = ObjectMeta(name=name, namespace=self._namespace, labels=labels)
                self._take(await self._client.create(ConfigMap(metadata=meta, data=data)), read=True)
                _log.info("Wrote the assignment of the ring", ring=self._ring)
            case Change(patch, reason, moved, given, asked):
                self._take(await self._client.patch(ConfigMap, name, self._namespace, patch), read=True)
                if (ring := self._rings.get(self._ring)) is not None:
                    ring.metrics.add("movements", BUCKETS, count=given)
                    ring.metrics.add("drains", BUCKETS, count=asked)
                _log.info(
                    "Changed the assignment of the ring",
                    ring=self._ring,
                    reason=reason,
                    buckets=moved or "all",
                )
        return None

    def _take(self, found: ConfigMap, *, read: bool = False) -> None:
        labelled = found.metadata.label(RING_LABEL) == self._ring
        self._machine.seen(found.metadata.resource_version, found.data or {}, read=read, labelled=labelled)

    async def _proven(self, shards: frozenset[str]) -> frozenset[str]:
        since, ring = self._clock.monotonic(), self._rings.get(self._ring)
        if ring is None:
            return frozenset()
        async with asyncio.TaskGroup() as tasks:
            proofs = {
                shard: tasks.create_task(self._proof(ring, shard, since), name="proof")
                for shard in sorted(shards)
            }
        outcomes = {shard: proof.result() for shard, proof in proofs.items()}
        proven = frozenset(shard for shard, outcome in outcomes.items() if outcome is True)
        if not proven:
            for outcome in outcomes.values():
                if isinstance(outcome, ApiError):
                    raise outcome
        return proven

    async def _proof(self, ring: Ring, shard: str, since: float) -> bool | ApiError:
        """A read that fails proves nothing; it is asked again."""
        try:
            proof = await self._proofs.proven(ring, shard, since)
        except ApiError as error:
            return error
        return proof is not None and proof.stands()

    # Membership

    @property
    def fresh(self) -> bool:
        return self._observer.states.fresh(self._clock.monotonic())

    @property
    def kinds(self) -> frozenset[str]:
        ring = self._rings.get(self._ring)
        entries = ring.resources.entries if ring is not None else ()
        return frozenset(str(each.resource) for each in entries if each.main)

    def members(self, buckets: Buckets) -> Collection[RingMember]:
        ring, found, problems = self._rings.get(self._ring), list[RingMember](), list[str]()
        available = frozenset(ring.available if ring is not None else ())
        for shard in self._observer.shards(self._ring):
            if shard.key.namespace != self._namespace or not shard.valid:
                continue
            member, problem = member_of(shard.said, buckets, available=shard.name in available)
            found.append(member._replace(silent=shard.state is ShardState.UNCERTAIN))
            problems += [problem] if problem else []
        self._wrong = "; ".join(problems)
        return found
