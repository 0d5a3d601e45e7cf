"""How this replica observes shard Leases: informer events, quorum reads, and a probe in case the watch is silent or
slow; what it keeps of them; and reads of one shard's Leases for a proof that it is dead (`sharding.proofs`).

Guaranteed: the record (`sharding.shard_states`) is fed with everything this process sees of the Leases of known rings,
whatever the source; the rings are told of each change once, after the record has it. While the probe runs,
the record is never older than 5 s (3 s when the watch is silent), which also bounds the lag of a slow watch: by then,
all ring-labelled Leases are listed, unless the watch shows what this process has just written to its own Lease.
So the record is fresh unless the API server cannot be reached, or takes longer than that for a list while the watch is
silent: nothing is decided then. This also detects a restore of etcd: each of these lists is a consistent read, and
shows Leases at earlier versions than were known when it was sent. Runs in every replica.

**Why its own renewal is as good as a list.** A watch delivers the writes of all Leases in their order. What it shows of
this process's last write was not there before that was sent, so all that others had written by then has been shown:
as if all had been listed then, at the version of that write. That holds for whichever API server, and cache, the watch
comes from. But it says nothing of what was not shown, and a restore of etcd may have mixed two histories. So it counts

* since a list of all that was asked for after the informer last read everything: the events of such a read may be
  older than what is known, and are no news then (`shard_states`);
* while this process's Lease has not gone back since that list: after a restore its renewal meets a conflict, and reads
  an earlier version, however far the new history has come, unless the backup is younger than the last renewal;
* if the record takes it as news, which it does not while what it knows is from a history that was lost;
* while no Lease is left out, or was passed over, which only a list shows.

All are listed once a minute nevertheless. A sharder without a shard of its own has no such proof, and always lists.

Anybody who may create Leases may set a ring's label, on any number of Leases, for rings that exist or not, with
annotations of 256 KiB. The lists are decoded as their bytes arrive, and hold nothing; Leases of rings that do not exist
are not judged, but once their ring appears. What is kept of a Lease (`kept`), and known of it, takes 2 to 5 KB without
long reports (`LONGEST_REPORT`), of which it may have five. At most so many are kept of each namespace, which take 7 to
17 MB without such reports:

| Lease | at most |
|---|---|
| of a ring that exists, held by its shard | four times as many as a ring may have shards |
| of a ring that exists, held by nobody, or by a sharder | twice as many |
| of a ring that does not exist: it may appear | as many |

None of these takes the place of another, and no namespace that of another one: whoever fills a namespace hides no shard
elsewhere. So the memory is bounded by the number of namespaces, which a sharder keeps as well. A Lease beyond that
counts as one that does not exist, and is looked at again with its next change, or list. Not guaranteed: which Leases of
a namespace are kept. The first ones are; whoever may write Leases among those of the shards may also take theirs away.

RBAC: list, watch on leases.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Collection, Container, Mapping
from enum import Enum
from functools import partial
from typing import Any

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Deleted, Delta, Updated
from kubeshard.cache.informer import Informer
from kubeshard.cache.scope import Scope
from kubeshard.cache.transforms import NotKept, Transform
from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.errors import ApiError, Timeout
from kubeshard.core.kinds import GroupKind, Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.selectors import FieldSelector, Selector
from kubeshard.leases.held_lease import Renewal, Renews
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.tasks import carried_out
from kubeshard.sharding.names import (
    CLUSTERS_ANNOTATION,
    CONFIRMED_ANNOTATION,
    EVICTED_ANNOTATION,
    INCARNATION_ANNOTATION,
    KINDS_ANNOTATION,
    LEAVING_ANNOTATION,
    OWNED_RANGES_ANNOTATION,
    PINNED_ANNOTATION,
    PROOFS_ANNOTATION,
    RING_LABEL,
    STATE_LABEL,
    UNREACHABLE_ANNOTATION,
    UNRELEASED_ANNOTATION,
    WATCHDOG_ANNOTATION,
    WEIGHT_ANNOTATION,
)
from kubeshard.sharding.proofs import (
    STANDS_FOR,
    Command,
    DeathProof,
    Pause,
    Proofs,
    ReadLeases,
    Tell,
)
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.shard_states import MAX_SHARDS, Shard, ShardChange, ShardStates

_LABELS = (RING_LABEL, STATE_LABEL)
_ANNOTATIONS = (
    INCARNATION_ANNOTATION,
    PROOFS_ANNOTATION,
    EVICTED_ANNOTATION,
    CONFIRMED_ANNOTATION,
    WATCHDOG_ANNOTATION,
    UNRELEASED_ANNOTATION,
    WEIGHT_ANNOTATION,
    LEAVING_ANNOTATION,
    PINNED_ANNOTATION,
    KINDS_ANNOTATION,
    OWNED_RANGES_ANNOTATION,
    CLUSTERS_ANNOTATION,
    UNREACHABLE_ANNOTATION,
)
LONGEST = 512
"""Characters of a text of a Lease: more than a name, a time or an incarnation has."""
LONGEST_REPORT = 32_768
"""Of what it says about ranges: a thousand buckets without neighbours, at any epoch, or as many names."""
_REPORTS = (
    OWNED_RANGES_ANNOTATION,
    CLUSTERS_ANNOTATION,
    UNREACHABLE_ANNOTATION,
    PINNED_ANNOTATION,
    KINDS_ANNOTATION,
)

LOGGED_EVERY = 600.0

_log = get_logger("kubeshard.sharder")


def kept(lease: Lease) -> Lease:
    """What a sharder needs of a shard's Lease, whatever else it has. Not for writing it."""
    meta, spec = lease.metadata, lease.spec
    labels, annotations, holder = meta.labels or {}, meta.annotations or {}, spec.holder_identity
    acquired, renewed = spec.acquire_time, spec.renew_time
    said = {
        key: annotations[key]
        for key in _ANNOTATIONS
        if key in annotations and len(annotations[key]) <= (LONGEST_REPORT if key in _REPORTS else LONGEST)
    }
    if OWNED_RANGES_ANNOTATION in annotations and OWNED_RANGES_ANNOTATION not in said:
        # It is no report any more. But a shard without one would be one that works on nothing.
        said[OWNED_RANGES_ANNOTATION] = annotations[OWNED_RANGES_ANNOTATION][:LONGEST]
    return Lease(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=meta.deletion_timestamp,
            labels={key: labels[key] for key in _LABELS if key in labels},
            annotations=said,
        ),
        spec=LeaseSpec(
            # One that is cut is no shard's name, nor a time.
            holder_identity=holder and holder[:LONGEST],
            lease_duration_seconds=spec.lease_duration_seconds,
            acquire_time=acquired and acquired[:LONGEST],
            renew_time=renewed and renewed[:LONGEST],
            lease_transitions=spec.lease_transitions,
        ),
    )


class Sort(Enum):
    """See the module."""

    HELD = "held"
    NOT_HELD = "not held"
    NO_RING = "no ring"


MOST = {Sort.HELD: 4 * MAX_SHARDS, Sort.NOT_HELD: 2 * MAX_SHARDS, Sort.NO_RING: MAX_SHARDS}
"""How many of a namespace are kept."""


class KeptLeases:
    """Which ones this process keeps, from whatever source. `rings`: those that exist."""

    def __init__(self, rings: Container[str], clock: Clock) -> None:
        self._rings = rings
        self.sorts: dict[tuple[str, str], Sort] = {}
        """Those that are kept."""
        self.left_out: dict[tuple[str, Sort], float] = {}
        """The namespaces of the others, and when one was left out there."""
        self._counts = Counter[tuple[str, Sort]]()
        self._clock = clock
        self._notices = Notices(clock, every=LOGGED_EVERY)

    def __call__(self, lease: Lease) -> Lease:
        """The transform of an informer. Raises NotKept."""
        if not self.keeps(lease):
            raise NotKept
        return kept(lease)

    def keeps(self, lease: Lease) -> bool:
        """Whether there is room for it; if so, it counts from now on."""
        meta = lease.metadata
        key, labels = (meta.namespace, meta.name), meta.labels  # a Key costs a call, for each renewal
        if (labels[RING_LABEL] if labels and RING_LABEL in labels else "") not in self._rings:
            sort = Sort.NO_RING
        else:
            sort = Sort.HELD if lease.spec.holder_identity == meta.name else Sort.NOT_HELD
        if key in self.sorts and self.sorts[key] is sort:
            return True
        self.forget(key)
        if self._counts[meta.namespace, sort] >= MOST[sort]:
            self.left_out[meta.namespace, sort] = self._clock.monotonic()
            return False
        self.sorts[key] = sort
        self._counts[meta.namespace, sort] += 1
        return True

    def passed_over(self, sort: Sort) -> bool:
        """Whether such Leases may be there that are left out."""
        return any(sort is each for _, each in self.left_out)

    def listed(self, asked: float) -> None:
        """Call it after a complete list. Only now it is told what is left out: before the rings are known, all Leases
        seem to be of none.
        """
        self.left_out = {place: at for place, at in self.left_out.items() if at >= asked}
        for place in self.left_out:
            if self._notices.due(place):
                namespace, sort = place
                _log.warning(
                    "A namespace has too many Leases with the label of a ring; the others are left out",
                    namespace=namespace,
                    which=sort.value,
                    most=MOST[sort],
                )

    def forget(self, key: tuple[str, str]) -> None:
        """It does not exist any more."""
        if (sort := self.sorts.pop(key, None)) is not None:
            place = key[0], sort
            self._counts[place] -= 1
            if not self._counts[place]:
                del self._counts[place]

    def only(self, there: Collection[Key]) -> None:
        """The others do not exist any more, whatever was missed."""
        for key in self.sorts.keys() - there:
            self.forget(key)


PROBE_INTERVAL = 5.0
PROBE_INTERVAL_SILENT = 3.0
PROBED_ANYWAY = 60.0
"""Seconds between two probes, whatever the watch shows."""
PROLONGED = 0.5
"""By how many seconds a wait is prolonged, at least: not by each of many events."""
PAUSE = 1.0
"""Seconds before the next probe, at least: a list that took long or failed is not repeated at once."""
_SHORTEST_WAIT = 0.01
"""A shorter wait may not advance the clock at all, and would be repeated in a loop: what is due so soon is due."""


def shard_leases(ring: str = "") -> Scope:
    """The cached Leases: those of shards, of this ring or of all, and not those of nodes."""
    return Scope(labels=Selector.equals(RING_LABEL, ring) if ring else Selector.exists(RING_LABEL))


class LeaseObserver:
    """Feeds a ShardStates, with Leases of one ring or of all. Call `declare` before the cache runs, then `run`
    concurrently with it. `own`: the Lease of this process, if it is a shard of the ring.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        ring: str = "",
        own: Renews | None = None,
    ) -> None:
        self.states = ShardStates()
        self.scope = shard_leases(ring)
        self._client = client
        self._clock = clock
        self.rings: Rings | None = None
        """Are told of each change once the record has it, and tell others."""
        self._informer: Informer[Lease] | None = None
        self._followed: set[str] = set()
        """The rings that exist."""
        self._listed: set[str] = set()
        """Those that existed when the last list of all Leases was asked for, or what is as good as one."""
        self._kept = KeptLeases(self._followed, clock)
        self._own = own
        self._history: tuple[int, int] | None = None
        """`_seen_history` when all Leases were listed last."""
        self._probed = self._due = -math.inf
        """When that was last tried, and when it is due unless the watch is silent (monotonic)."""
        self._over: asyncio.Future[None] | None = None
        """The end of the pause before the next probe; None if there is no pause now."""
        self._wakes_at = math.inf
        """When the last pause ends, or has ended (monotonic)."""
        self._pause: asyncio.TimerHandle

    @property
    def transforms(self) -> Mapping[GroupKind | Kind, Transform[Any]]:
        """Those of a cache that has shard Leases."""
        return {Lease.KIND.group_kind: self._kept}

    def declare(self, cache: Cache, rings: Rings) -> None:
        """The cache has the `transforms`."""
        self.rings = rings
        self._informer = cache.declare(Lease, self.scope)
        self._informer.add_handler(self._heard)

    def shards(self, ring: str) -> list[Shard]:
        """All known shards of the ring, including those with a deleted Lease."""
        return self.states.shards(ring, self._clock.monotonic())

    def follow(self, ring: str, namespaces: frozenset[str] | None = None) -> None:
        """The ring exists, and says in which namespaces its shards are; None: it does not say."""
        if ring not in self._followed:
            self._followed.add(ring)
            if self._kept.passed_over(Sort.NO_RING):
                self.states.miss(self._clock.monotonic())
            for lease in self._informer.store.list() if self._informer is not None else ():
                if lease.metadata.label(RING_LABEL) == ring:
                    self._tell(self.states.observe(lease, self._clock.monotonic(), self._echoes(lease)))
        self._confine(ring, namespaces)

    def leave(self, ring: str) -> None:
        """The ring is gone."""
        self._followed.discard(ring)
        self._confine(ring, None)

    def _confine(self, ring: str, namespaces: frozenset[str] | None) -> None:
        for change in self.states.confine(ring, namespaces, self._clock.monotonic()):
            self._tell(change)

    # Feeding

    def observe(self, lease: Lease, asked: float | None = None) -> None:
        """Feeds a Lease from a response of the API server. `asked`: for a consistent read, when it was sent."""
        if not self._is_known(lease) or self.states.has_version(lease) or not self._kept.keeps(lease):
            return
        rewinds = self.states.rewinds
        self._tell(self.states.observe(kept(lease), self._clock.monotonic(), asked))
        if self.states.rewinds != rewinds:
            _log.warning(
                "A shard's Lease reverted to an earlier version, as after a restore of etcd; judging it from now on",
                lease=str(lease.key),
                version=lease.metadata.resource_version,
            )

    def _echoes(self, lease: Lease) -> float | None:
        """When an event of the Lease counts as asked for: if the last list has passed over those of its ring, one that
        is older than that list is no late echo of what had been deleted by then.
        """
        passed_over = lease.metadata.label(RING_LABEL) not in self._listed and lease.key not in self.states
        return -math.inf if passed_over else None

    def _is_known(self, lease: Lease) -> bool:
        """Whether its ring exists, or it was in one before."""
        return lease.metadata.label(RING_LABEL) in self._followed or lease.key in self.states

    def forget(self, key: Key, resource_version: str = "", asked: float | None = None) -> None:
        """The API server reported that the Lease does not exist."""
        self._tell(self.states.forget(key, self._clock.monotonic(), resource_version, asked))

    def forget_tombstone(self, key: Key) -> None:
        """The deleted Lease can never be held again."""
        self._tell(self.states.forget_tombstone(key, self._clock.monotonic()))

    async def relist(self) -> None:
        """Reads all shard Leases from the server. Raises ApiError."""
        listed, asked, history = set(), self._clock.monotonic(), self._seen_history()
        followed = set(self._followed)
        stream = self._client.list(Lease, ALL, label_selector=self.scope.labels, page_size=None)
        async for lease in stream:
            if self.states.has_version(lease):
                listed.add(lease.key)
            elif self._kept.keeps(lease):
                listed.add(lease.key)
                self.observe(lease, asked)
        for key in sorted(self.states.keys() - listed):
            self.forget(key, stream.resource_version, asked)
        if len(self._kept.sorts) > len(listed):
            cached = {key for key in map(Key._make, self._kept.sorts) if self._is_cached(key)}
            self._kept.only(listed | self.states.keys() | cached)
        if self._kept.left_out:
            self._kept.listed(asked)
        self._listed = followed & self._followed
        self._history = history
        self.states.confirm(asked, self._clock.monotonic(), stream.resource_version)

    def _is_cached(self, key: Key) -> bool:
        return self._informer is not None and self._informer.store.metadata(key) is not None

    async def read_shard(self, ring: str, shard: str, client: Client) -> list[Lease]:
        """All Leases of one shard, read from the server with `client`. Raises ApiError."""
        asked = self._clock.monotonic()
        stream = client.list(
            Lease,
            ALL,
            label_selector=Selector.equals(RING_LABEL, ring),
            field_selector=FieldSelector.equals("metadata.name", shard),
        )
        leases = [kept(lease) async for lease in stream]
        for lease in leases:
            self.observe(lease, asked)
        for key in sorted(set(self.states.leases_of(ring, shard)) - {lease.key for lease in leases}):
            self.forget(key, stream.resource_version, asked)
        return leases

    async def run(self) -> None:
        """Probes until cancelled. A persistent failure is logged once."""
        self._probed, ended = self._clock.monotonic(), -math.inf
        self._due = self._probed + PROBE_INTERVAL
        notices, loop = Notices(), asyncio.get_running_loop()
        while True:
            now = self._clock.monotonic()
            due = min(self._due - now, PROBE_INTERVAL_SILENT - self.states.silence(now))
            wait = max(due, ended + PAUSE - now)
            if wait > _SHORTEST_WAIT:
                self._over, self._wakes_at = loop.create_future(), now + wait
                self._pause = loop.call_later(wait, self._over.set_result, None)
                try:
                    await self._over
                finally:
                    self._pause.cancel()
                    self._over = None
                continue
            self._probed, self._due = now, now + PROBE_INTERVAL
            try:
                await self.relist()
            except ApiError as error:
                log = _log.warning if notices.due("listing", type(error)) else _log.debug
                log("Cannot list shard Leases", error=error)
            else:
                if notices.resolved("listing"):
                    _log.info("Shard Leases can be listed again")
            ended = self._clock.monotonic()

    def _prolong(self, now: float) -> None:
        """The pause, since the watch has shown something: to wake up costs an idle process more than to put it off."""
        over, silent = self._over, now + PROBE_INTERVAL_SILENT
        at = silent if silent < self._due else self._due
        if over is not None and not over.done() and at - now > _SHORTEST_WAIT:
            self._pause.cancel()
            self._wakes_at = at
            self._pause = asyncio.get_running_loop().call_later(at - now, over.set_result, None)

    def _seen_history(self) -> tuple[int, int]:
        """Changes with all that may make what is known a mixture of two histories."""
        own = None if self._own is None else self._own.renewal
        return (
            0 if self._informer is None else self._informer.full_reads,
            0 if own is None else own.rewinds,
        )

    def _compare(self, lease: Lease, own: Renewal | None, now: float) -> None:
        """The watch shows news of a Lease: perhaps what this process wrote last, and all that came before."""
        meta = lease.metadata
        if own is None or own[:3] != (meta.namespace, meta.name, lease.spec.renew_time):
            return
        if self._history != self._seen_history() or self._kept.left_out or not self.states.fresh(now):
            return
        asked = now - (self._clock.boottime() - own.sent)
        self._listed = set(self._followed)
        self.states.confirm(asked, now, meta.resource_version)
        self._due = min(asked + PROBE_INTERVAL, self._probed + PROBED_ANYWAY)

    def _heard(self, delta: Delta[Lease]) -> None:
        now = self._clock.monotonic()
        heard = self.states.heard(now)
        if isinstance(delta, Deleted):
            lease, version = delta.object, delta.object.metadata.resource_version if delta.final else ""
            self._kept.forget(lease.key)
            self._tell(self.states.forget(lease.key, now, version))
            return
        lease = delta.new if isinstance(delta, Updated) else delta.object
        if (
            self._is_known(lease)
            and (change := self.states.observe(lease, now, self._echoes(lease))) is not None
        ):
            self._tell(change)
            if self._own is not None:
                self._compare(lease, self._own.renewal, now)
        at = now + PROBE_INTERVAL_SILENT
        differs = self._wakes_at != self._due if self._due < at else not at - PROLONGED < self._wakes_at <= at
        if heard and differs:
            self._prolong(now)

    def _tell(self, change: ShardChange | None) -> None:
        if change is not None and self.rings is not None:
            self.rings.shard_changed(change)


class DeadShardProofs:
    """Reads shards' Leases on demand, for `sharding.proofs`."""

    def __init__(self, client: Client, observer: LeaseObserver, clock: Clock) -> None:
        self._client = client.impatient()
        self._observer = observer
        self._clock = clock
        self._proofs = Proofs(observer.states, clock)
        self._reading: dict[DeathProof, asyncio.Task[None]] = {}

    async def proven(self, ring: Ring, shard: str, since: float) -> DeathProof | None:
        """A proof that objects read before `since` (monotonic) may be taken from the shard; None if it may live.
        The proof says later whether it still `stands`. Raises ApiError if the read fails: it does not
        wait or retry, so the caller has to back off from a server that throttles.
        """
        proof = self._proofs.asked(ring, shard, since)
        if (reading := self._reading.get(proof)) is None and proof.began == math.inf:
            reading = asyncio.create_task(self._read(proof), name="reading a dead shard")
            self._reading[proof] = reading
            reading.add_done_callback(partial(self._ended, proof))
        if reading is not None:
            await asyncio.shield(reading)
        return proof if proof.dead else None

    def forget(self, ring: str) -> None:
        """The ring was deleted, or this process lost leadership."""
        for proof in self._proofs.forget(ring):
            if (reading := self._reading.get(proof)) is not None:
                reading.cancel()

    def _ended(self, proof: DeathProof, reading: asyncio.Task[None]) -> None:
        del self._reading[proof]
        proof.failed = reading.cancelled() or reading.exception() is not None

    async def _read(self, proof: DeathProof) -> None:
        if proof.before is not None and (before := self._reading.get(proof.before)) is not None:
            await asyncio.wait([before])  # one at a time: later callers wait for this one
        await carried_out(proof.steps(), partial(self._do, proof))

    async def _do(self, proof: DeathProof, command: Command) -> object:
        match command:
            case ReadLeases():
                return await self._leases(proof)
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Tell(dead, leases):
                evidence = "; ".join(map(_record, leases)) or "none"
                text = "Shard is dead" if dead else "Shard may be alive: its objects stay"
                _log.info(text, ring=proof.ring.name, shard=proof.shard, leases=evidence)
        return None

    async def _leases(self, proof: DeathProof) -> list[Lease]:
        await self._client.turn()
        proof.began = self._clock.monotonic()
        try:
            async with asyncio.timeout(STANDS_FOR):
                return await self._observer.read_shard(proof.ring.name, proof.shard, self._client)
        except TimeoutError:
            what = f"the leases of shard {proof.shard}"
            raise Timeout(f"{what} could not be read within {STANDS_FOR:g}s") from None


def _record(lease: Lease) -> str:
    spec, meta = lease.spec, lease.metadata
    return (
        f"{lease.key} uid={meta.uid} rv={meta.resource_version}"
        f" holder={spec.holder_identity or ''} renewed={spec.renew_time or ''}"
    )
