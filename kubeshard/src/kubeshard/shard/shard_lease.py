"""A shard's Lease: what it writes there, when it may acquire it, how it is held, and how writes prove it.

| holder | incarnation | take-over delay |
|---|---|---|
| nobody | | none |
| this shard's name | none, or this process's | none |
| this shard's name | of a process of this pod or machine that has ended | until nothing that it sent can take effect |
| this shard's name | another process's | twice the record's duration |
| kubeshard's sharder | | none; the record's duration with `Takeover.AFTER_RECORD` |
| kubeshard's sharder, early | | until nothing that the former process sent can take effect |
| another sharder | | the record's duration; none with `Takeover.AT_ONCE` |
| anybody else | | infinite: a mistake in the set-up |

In a ring with strict hand-over (`kubeshard.sharding.shard_states`) a process that has not ended for certain is waited
for until somebody confirms that it has, instead of for some time:

| holder | incarnation | take-over delay |
|---|---|---|
| this shard's name | another process's, which is not known to have ended | until it is confirmed |
| any sharder, and it is not confirmed | of a process that is not known to have ended | until it is confirmed |

The main loop holds it for the time of an `async with` block:

    lease = ShardLease(identify("my-ring", world=client.world), client)
    async with lease.held() as held:
        if held.returning:                # others may have considered this shard dead
            await reclaim(client.fenced(...), lease.shard, places)
            held.objects_reclaimed()
        ...                               # start controllers; stop them when `await held.lost()` returns
        held.stopped_cleanly()            # only when no worker, task or thread will write again

Guaranteed: the block is entered only when the Lease is ours; it is released (holder "", one second) only after
`stopped_cleanly`; after `lost` no write passes `held.check`, the sockets of the controllers' client are reset, and a
process that does not leave the block in time is killed. Not guaranteed: that the block's body stops, which is up to its
author.

`ShardFence` is the proof in every write: the Lease has not expired, and the object is still ours. The client does the
work (`Client.fenced`): it adds to each write of a sharded kind the condition that the API server checks in the same
transaction: the resourceVersion of an object that had our label, or a `test` of the label itself.

The Lease is renewed in a separate thread with its own connection: see docs/design/leases.md.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from types import MappingProxyType

from msgspec.structs import replace

from kubeshard.client.client import Client
from kubeshard.client.label_fence import LabelFence, LabelProof
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.times import parse_time
from kubeshard.leases.claim import Claim, TakeoverDelay
from kubeshard.leases.held_lease import HeldLease
from kubeshard.leases.renewer import LeaseMetrics, LeaseRenewer, NoLeaseMetrics
from kubeshard.leases.state_machine import LeaseStateMachine
from kubeshard.runtime.watchdog import NoSignals, ended_by_watchdog
from kubeshard.runtime.world import World
from kubeshard.shard.identity import ShardIdentity
from kubeshard.shard.timing import LONGEST_LEASE, SHORTEST_LEASE, LeaseTiming
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.names import (
    CONFIRMED_ANNOTATION,
    EVICTED_ANNOTATION,
    INCARNATION_ANNOTATION,
    LEAVING_ANNOTATION,
    OWNED_RANGES_ANNOTATION,
    PROOFS_ANNOTATION,
    REPORTED_SUFFIX,
    RING_LABEL,
    SHARDER_IDENTITY,
    UNREACHABLE_ANNOTATION,
    UNRELEASED_ANNOTATION,
    WATCHDOG_ANNOTATION,
)
from kubeshard.sharding.ring_resources import Belongs, RingResources, belongs, owner_kinds
from kubeshard.sharding.shard_states import is_confirmed

RETURNING_ANNOTATION = "alpha.sharding.timebertt.dev/returning"
"""On a Lease that was acquired after the name had been given up, until its holder has reclaimed the objects with that
name (`reclaim`): if the process ends before that, its successor must do it.
"""


_UNSAID = {LEAVING_ANNOTATION: "", UNREACHABLE_ANNOTATION: ""}
"""What is true of one process only: on the Lease of the next one if that says it, too."""

_UNDELIVERED = (
    "the former process of this shard has ended: waiting until nothing that it sent can take effect"
)


class Takeover(Enum):
    """When a Lease that a sharder took from a shard of this name may be taken back."""

    WITH_PROOF = "with-proof"
    """At once if kubeshard's sharder took it, which takes no object without a proof that the shard is still dead; if it
    took it early, because the shard's containers had ended, once their last writes cannot take effect any more; as
    `AFTER_RECORD` otherwise. While a ring passes from kubeshard's sharder to the Go sharder, use that.
    """
    AFTER_RECORD = "after-record"
    """After the record's duration since it was first seen here: meanwhile others get the objects."""
    AT_ONCE = "at-once"
    """Whoever took it. During a pass that has already started, the Go sharder continues to take objects from a shard
    that is back.
    """


class ShardClaim(Claim):
    """The claim of one process of one shard. `armed`: whether a watchdog ends the process at its deadline. `ended`
    returns whether a process of this machine has, and `wall` the time since the epoch.
    """

    def __init__(
        self,
        shard: ShardIdentity,
        timing: LeaseTiming,
        takeover: Takeover,
        *,
        strict_handover: bool = False,
        armed: bool = False,
        keep_on_stop: bool = False,
        ended: Callable[[str], bool] = lambda process: False,
        wall: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__(shard.namespace, shard.name, shard.name, timing)
        self.returning = False
        """Whether the name may have appeared unused to others before we acquired the Lease."""
        self.reclaimed = False
        """Whether others that saw it unused can no longer take an object from us. May be read from any thread."""
        self.unreleased = ""
        """Why objects cannot be released; "" if they can. May be read from any thread."""
        self.report = ""
        """Which buckets the shard works on, in a ring that is sharded by ranges. May be read from any thread."""
        self.says: Mapping[str, str] = {}
        """Annotations while it is held."""
        self._shard = shard
        self._takeover = takeover
        self._strict_handover = strict_handover
        self._armed = armed
        self._keep_on_stop = keep_on_stop
        self._in_flight = timing.last_write - timing.renew_deadline
        """Seconds for which something may take effect that a process sent before it ended."""
        self._ended = ended
        self._wall = wall

    def ours(self, lease: Lease) -> bool:
        return super().ours(lease) and _incarnation(lease) in ("", str(self._shard.incarnation))

    def whose(self, lease: Lease) -> str:
        if super().ours(lease):
            return f"another process ({_incarnation(lease)}) holds the Lease under this shard's name"
        return super().whose(lease)

    def takeover_delay(self, lease: Lease) -> TakeoverDelay:
        written = lease.spec.lease_duration_seconds or self.timing.lease_duration
        duration = min(max(written, SHORTEST_LEASE), LONGEST_LEASE)
        if super().ours(lease):
            rival = _incarnation(lease)
            if self._outlived(rival):
                return TakeoverDelay(self._undelivered(lease, duration), _UNDELIVERED)
            if self._strict_handover:
                return self._unconfirmed(rival)
            return TakeoverDelay(
                2 * duration,
                f"another process ({rival.strip('/')}) may still act under this shard's name: waiting until it has not "
                f"renewed the Lease for {2 * duration:g}s; if it is to stay, give this shard another name",
            )
        if lease.spec.holder_identity != SHARDER_IDENTITY:
            return TakeoverDelay(
                math.inf,
                f"Lease {self} is held by {lease.spec.holder_identity!r}, which is neither this shard nor a sharder: "
                "give this shard another name",
            )
        # Another number, if another sharder has taken the Lease since.
        number = str(lease.spec.lease_transitions or 0)
        if lease.metadata.annotation(EVICTED_ANNOTATION) == number:
            return TakeoverDelay(
                duration, "a sharder has evicted this shard, whose former process may still act"
            )
        confirmed = (self._strict_handover and is_confirmed(lease)) or None
        if self._strict_handover and not confirmed and not self._outlived(_incarnation(lease)):
            return self._unconfirmed(_incarnation(lease))
        proofs = lease.metadata.annotation(PROOFS_ANNOTATION)
        if proofs == number + REPORTED_SUFFIX and self._takeover is not Takeover.AFTER_RECORD:
            return TakeoverDelay(self._in_flight, _UNDELIVERED, confirmed)
        proven = self._takeover is Takeover.WITH_PROOF and proofs == number
        if proven or self._takeover is Takeover.AT_ONCE:
            return TakeoverDelay(confirmed=confirmed)
        return TakeoverDelay(duration, "a sharder took the Lease", confirmed)

    def _outlived(self, rival: str) -> bool:
        """Whether the process that wrote this incarnation has ended, as far as this pod and this machine show."""
        mine = self._shard.incarnation
        return mine.outlived(rival) or bool((process := mine.neighbour(rival)) and self._ended(process))

    def _unconfirmed(self, rival: str) -> TakeoverDelay:
        return TakeoverDelay(
            math.inf,
            f"nobody has confirmed that the former process of this shard ({rival.strip('/') or 'unknown'}) has ended, "
            f"which the ring's strict hand-over asks for: if it has, run `kubectl shard release {self.name}`",
            confirmed=False,
        )

    def _undelivered(self, lease: Lease, duration: float) -> float:
        """For how long something that a process sent before it ended may still take effect; 0 if it must have ended
        long ago: its watchdog used this machine's clock, as the record does.
        """
        renewed = parse_time(lease.spec.renew_time)
        armed = bool(lease.metadata.annotation(WATCHDOG_ANNOTATION))
        if armed and renewed is not None and self._wall() - renewed >= 2 * duration:
            return 0.0
        return self._in_flight

    def taking(self, found: Lease | None) -> None:
        super().taking(found)
        self.returning = (
            found is None or not super().ours(found) or bool(found.metadata.annotation(RETURNING_ANNOTATION))
        )

    def released(self, found: Lease, wall: float) -> Lease:
        """One that is kept stays the name's, but no process's: the next one need not wait for this one's last writes,
        because there are none.
        """
        released = super().released(found, wall)
        if not self._keep_on_stop:
            return released
        if self.returning and not self.reclaimed:
            annotations = {**(released.metadata.annotations or {}), RETURNING_ANNOTATION: "true"}
            released = replace(released, metadata=replace(released.metadata, annotations=annotations))
        return replace(released, spec=self.renewed_lease(found, wall).spec)

    def fate(self, lease: Lease) -> str:
        seconds = lease.metadata.annotation(WATCHDOG_ANNOTATION)
        return ended_by_watchdog(seconds) if seconds else "unknown: it had no watchdog"

    def metadata(self, found: ObjectMeta, *, held: bool) -> ObjectMeta:
        annotations = {**(found.annotations or {}), **_UNSAID, **(self.says if held else {})}
        for each in _UNSAID:
            if not annotations[each]:
                del annotations[each]
        if held:
            annotations[INCARNATION_ANNOTATION] = str(self._shard.incarnation)
        else:  # a successor in Go would keep it, and does not sign its acknowledgements
            annotations.pop(INCARNATION_ANNOTATION, None)
        if held and self.returning and not self.reclaimed:
            annotations[RETURNING_ANNOTATION] = "true"
        else:
            annotations.pop(RETURNING_ANNOTATION, None)
        if held and self._armed:
            annotations[WATCHDOG_ANNOTATION] = f"{self.timing.renew_deadline:g}"
        else:
            annotations.pop(WATCHDOG_ANNOTATION, None)
        if held and self.unreleased:
            annotations[UNRELEASED_ANNOTATION] = self.unreleased
        else:
            annotations.pop(UNRELEASED_ANNOTATION, None)
        if held and self.report:
            annotations[OWNED_RANGES_ANNOTATION] = self.report
        elif held:  # what a shard said last is also of use when it has ended: that there was an assignment
            annotations.pop(OWNED_RANGES_ANNOTATION, None)
        annotations.pop(PROOFS_ANNOTATION, None)
        annotations.pop(EVICTED_ANNOTATION, None)
        annotations.pop(CONFIRMED_ANNOTATION, None)
        labels = {**(found.labels or {}), RING_LABEL: self._shard.ring}
        return replace(super().metadata(found, held=held), labels=labels, annotations=annotations)


def _incarnation(lease: Lease) -> str:
    return lease.metadata.annotation(INCARNATION_ANNOTATION)


USER_AGENT = "shard-lease"

AS_INIT = (
    "a shard must not be process 1 of its container: the kernel would not kill it at its deadline. Use "
    "kubeshard.manager.run before any thread has started, which adds an init process; or an init in the container: "
    "tini, docker run --init, shareProcessNamespace: true"
)


class HeldShardLease(HeldLease):
    """The right to act for the shard."""

    def __init__(self, world: World, claim: ShardClaim, abort: Callable[[], None]) -> None:
        super().__init__(world.clock, "the Lease of this shard has expired, is lost or was released", abort)
        self._claim = claim

    @property
    def returning(self) -> bool:
        """Whether others may have considered the name given up. If so, `reclaim` its objects and call
        `objects_reclaimed` before any work starts.
        """
        return self._claim.returning and not self._claim.reclaimed

    def objects_reclaimed(self) -> None:
        """Call this when nobody who considered us dead can take an object from us any more."""
        self._claim.reclaimed = True

    def cannot_release(self, why: str) -> None:
        """Says on the Lease why objects cannot be released; "": they can."""
        self._claim.unreleased = why

    def says(self, annotation: str, text: str) -> None:
        """Has the Lease say it, at once or within a second, as long as it is held."""
        if self._claim.says.get(annotation) != text:
            self._claim.says = {**self._claim.says, annotation: text}
            self.renew_soon()

    @property
    def leaving(self) -> bool:
        """Whether the Lease says that this shard stops."""
        return LEAVING_ANNOTATION in self._claim.says

    def works_on(self, report: str) -> None:
        """Says on the Lease, at once or within a second, which buckets the shard works on."""
        if report != self._claim.report:
            self._claim.report = report
            self.renew_soon()


class ShardLease:
    """The Lease of one process; `held` may be entered once.

    `client` is what the controllers write with: its connections are reset when the Lease is lost, or whatever `abort`
    resets, which may be called from any thread. The renewer has its own client, with the same configuration and in the
    same world. `keep_on_stop` leaves the Lease to the name even after a clean stop, until it expires: a restart under
    the same name is back at once and still has its objects. `strict_handover`: whether the ring asks for confirmations.
    `report`: what it says first that it works on (`HeldShardLease.works_on`). `says`: annotations of the Lease while it
    is held. `metrics` is called from the renewer's thread.

    RBAC: `get`, `create`, `update`, `watch` on `leases` in the shard's namespace.
    """

    def __init__(
        self,
        shard: ShardIdentity,
        client: Client,
        *,
        timing: LeaseTiming | None = None,
        takeover: Takeover = Takeover.WITH_PROOF,
        keep_on_stop: bool = False,
        strict_handover: bool = False,
        report: str = "",
        says: Mapping[str, str] = MappingProxyType({}),
        metrics: LeaseMetrics | None = None,
        abort: Callable[[], None] | None = None,
    ) -> None:
        self.shard = shard
        self._client = client
        self._abort = abort or client.transport.abort
        self._timing = timing or LeaseTiming()
        self._takeover = takeover
        self._keep_on_stop = keep_on_stop
        self._strict_handover = strict_handover
        self._report = report
        self._says = says
        self._metrics = metrics or NoLeaseMetrics()

    @asynccontextmanager
    async def held(
        self,
        health: Callable[[], str | None] = lambda: None,
        rewound: Callable[[], None] = lambda: None,
        refused: Callable[[str], None] = lambda why: None,
    ) -> AsyncIterator[HeldShardLease]:
        """Enters when the Lease is ours. It is renewed while `health` returns None, and not while this loop, in which
        that is called, is blocked. `rewound` is called from the renewer's thread when the Lease shows that etcd was
        restored from a backup, and `refused` when the API server refuses a request for it.

        Raises ConfigurationError for a Lease whose holder is not a shard of this name, and in process 1 of a
        container, where the kernel's watchdog has no effect.
        """
        world, config = self._client.world, self._client.config

        def connect() -> Client:
            # A renewal that waits for a rate limit, or for the Retry-After of a throttling server, would be too late.
            return Client(config, world=world).with_user_agent(USER_AGENT).impatient()

        try:
            watchdog = world.watchdog()
        except NoSignals as error:
            raise ConfigurationError(AS_INIT) from error
        claim = ShardClaim(
            self.shard,
            self._timing,
            self._takeover,
            strict_handover=self._strict_handover,
            armed=bool(watchdog.kind),
            keep_on_stop=self._keep_on_stop,
            ended=world.host.has_ended,
            wall=world.clock.wall,
        )
        claim.report, claim.says = self._report, self._says
        held = HeldShardLease(world, claim, self._abort)
        renewer = LeaseRenewer(
            LeaseStateMachine(claim, world.rng.uniform),
            held,
            health,
            connect=connect,
            watches=True,
            watchdog=watchdog,
            clock=world.clock,
            alarm=world.alarm,
            metrics=self._metrics,
            rewound=rewound,
            refused=refused,
        )
        async with renewer.held(world.thread(USER_AGENT)):
            yield held


class ShardFence(LabelFence):
    """The `kubeshard.client.fence.Fence` of one shard in a ring with labels. `resources` are those of the ring, `kinds`
    their kinds, as far as they are known. `check` is `HeldShardLease.check`, or anything else that raises NotOurs in
    time.
    """

    def __init__(
        self,
        shard: ShardIdentity,
        resources: RingResources | Iterable[RingResource],
        kinds: Iterable[Kind],
        check: Callable[[], None],
    ) -> None:
        self.label_key = shard.label
        self.shard = shard.name
        self._resources = ring = (
            resources if isinstance(resources, RingResources) else RingResources(resources)
        )
        self._owners = owner_kinds(ring, {kind.group_resource: kind for kind in kinds})
        self._check = check
        self._proofs: dict[Kind, LabelProof | None] = {}

    def proof(self, kind: Kind) -> LabelProof | None:
        try:  # each write asks, and there are a few kinds
            return self._proofs[kind]
        except KeyError:
            proof = self._proofs[kind] = super().proof(kind)
            return proof

    def covers(self, kind: Kind) -> bool:
        """Whether the ring shards the kind, as a main or a controlled resource, in any version."""
        return kind.group_resource in self._resources

    def by_label(self, kind: Kind, meta: ObjectMeta) -> bool:
        """See `kubeshard.sharding.ring_resources`."""
        return self._belongs(kind, meta).by_label

    def stamps(self, kind: Kind, meta: ObjectMeta) -> bool:
        """See `kubeshard.sharding.ring_resources`."""
        return self._belongs(kind, meta) in (Belongs.OWNER, Belongs.FAR)

    def _belongs(self, kind: Kind, meta: ObjectMeta) -> Belongs:
        resource = kind.group_resource
        return belongs(self._resources.entry(resource), self._owners.get(resource), meta)

    def check(self) -> None:
        """Raises NotOurs once no write may start any more."""
        self._check()
