"""What the leader does about the Leases of shards: what was seen and the time go in, commands come out.

| state | action | looks again after |
|---|---|---|
| any, and the label says another one | `Label` | |
| any, and a write was refused for its old version | `Read`, before anything else | |
| ready | | to_expired |
| ready, and does not release objects | evicts it: `Read`, `Take` | the previous duration, doubled |
| expired, because it was evicted | | to_expired |
| expired | | to_uncertain |
| ready or expired, and a renewal is missing | `AskKubelet`; if it has ended, as uncertain | `POLL_INTERVAL` |
| uncertain | `Read`; still uncertain: `Take` | the previous duration |
| dead, and was evicted | `Annotate`: it is over | to_orphaned |
| dead | | to_orphaned |
| dead or orphaned, and its end is to be confirmed | `AskKubelet`; `Annotate`, if it says so or it was waited for long \
enough | `ASK_AGAIN`, `KEPT` once it is confirmed |
| orphaned | `Collect` | |
| deleted while held | waits for twice its duration, then `Take`: creates it as taken over | |

A command is data, with what it is valid for: the version of the Lease that it was decided with. Whoever drives the
machine knows no rule:

    for key in machine.due(): ...            # again at `wake_at`, or as soon as that is earlier
        steps = machine.tend(key)            # a generator: it yields a command,
        command = next(steps)                # and is sent what became of it (`Command`),
        command = steps.send(outcome)        # or is thrown the error of the API server, until it returns

It feeds the `ShardStates` with every answer before it goes on, passes on what changed there (`changed`), and tends a
Lease once at a time. One that could not be tended, because the machine let an error pass, is tended again soon; one
whose tending was given up is due no more until it changes, or a ring or a term `begins`.

A shard that has missed a renewal is taken over at once if the kubelet reports that its containers have ended, in two
answers `CONFIRMED` seconds apart: a container that is restarted is not.

When many shards of a ring seem to die at once, all Leases are read again (`ReadAll`), and take-overs are held back for
a while (`take_overs`).

In a ring with strict hand-over (`shard_states`) a dead shard keeps what it has until its end is confirmed. Its Lease,
which says so, is not deleted before that, nor for a long time after it.

A shard is evicted only if that is configured (`take_overs`). Unlike one that has not renewed its Lease, it is alive: so
it keeps what it has for twice the lease duration, in which it notices or its watchdog ends it, and every sharder reads
that from the Lease (`EVICTED_ANNOTATION`).

Guaranteed: only a successful take-over (or release) of a Lease makes its shard unavailable; a shard that is still alive
fails to renew then. A Lease without ring label, or of a ring that does not exist, is not touched. The state label is
informational: a Lease that cannot be labelled is taken over and deleted like any other. What shards have, and how that
is labelled, does not matter here. No event loop is needed, and no time passes but that of the clock.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import msgspec

from kubeshard.core.builtin import Lease
from kubeshard.core.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, NotOurs
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.times import micro_time
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.repairs import Repairs
from kubeshard.sharding.names import (
    CONFIRMED_ANNOTATION,
    EVICTED_ANNOTATION,
    INCARNATION_ANNOTATION,
    PROOFS_ANNOTATION,
    REPORTED_SUFFIX,
    RING_LABEL,
    SHARDER_IDENTITY,
    STATE_LABEL,
)
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.shard_states import (
    Confirmed,
    Shard,
    ShardChange,
    ShardState,
    ShardStates,
    confirmation,
    is_confirmed,
)
from kubeshard.sharding.take_overs import CircuitBreaker
from kubeshard.sharding.waiting import Refusals

_MAX_INT32 = 2**31 - 1

RELABEL, RELABEL_CHANGED = 10.0, 0.5
"""Seconds until a refused label is tried again, and one of a Lease that had changed meanwhile, the first time."""
HELD_BACK = 2.0
"""Seconds until it is decided again about a Lease whose take-over is held back."""
SILENT = 2.5
"""Seconds without renewal after which the kubelet is asked: shards renew every 2 s."""
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
"""Seconds for which a Lease is kept in a ring with strict hand-over after it is garbage elsewhere: what could not be
moved yet would wait without it.
"""
SHORTEST_WAIT = 0.01
"""A shorter one may not advance the clock at all."""
AT_ONCE = 100
"""Leases that are due in one turn."""


class RingsByName(Protocol):
    """The existing ones: the `Rings`."""

    def get(self, name: str, /) -> Ring | None: ...


class Why(Enum):
    """Why a Lease is taken."""

    EXPIRED = auto()
    ENDED = auto()
    """The shard has ended according to the kubelet."""
    EVICTED = auto()
    """It lives, and does not release what it has."""


@dataclass(frozen=True, slots=True)
class Label:
    """Write the state of the shard to its Lease, if that still has this version. To be answered within seconds."""

    shard: Shard
    told: ShardState
    """The last state that people were told."""
    contested: bool
    """Whether somebody else keeps changing the label."""

    @property
    def news(self) -> bool:
        return self.told is not self.shard.state


@dataclass(frozen=True, slots=True)
class Read:
    """Read the Lease as a whole. Its outcome is the Lease."""

    key: Key
    settled: bool = False
    """Whether a tombstone of it is over with the answer: the Lease may be the same version that was taken for deleted.
    """


@dataclass(frozen=True, slots=True)
class ReadAll:
    """Read all Leases. That this failed is no error for the machine."""


@dataclass(frozen=True, slots=True)
class AskKubelet:
    """Ask whether the process that holds the Lease has ended. The outcome is the answer; False if there is none."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Take:
    """Replace the Lease by this one, if it still has its version; of a tombstone: create it, if there is none."""

    shard: Shard
    taken: Lease
    why: Why
    overdue: int = 0
    """How much an evicted one did not release."""


@dataclass(frozen=True, slots=True)
class Annotate:
    """Change annotations of the Lease, if it still has this version. One that is gone needs none."""

    shard: Shard
    annotations: Mapping[str, str | None]
    confirmed: Confirmed | None = None
    """By whom it is confirmed with it that the shard has ended."""


@dataclass(frozen=True, slots=True)
class Collect:
    """Delete the Lease, if it still is this one and has this version. One that is gone is no error."""

    shard: Shard


@dataclass(frozen=True, slots=True)
class Forget:
    """The API server has no such Lease. `refused`: its tombstone is over, because it cannot be created again."""

    shard: Shard
    refused: ApiError | None = None


Command = Label | Read | ReadAll | AskKubelet | Take | Annotate | Collect | Forget
Steps = Generator[Command, Any, None]


class LeaseMachine:
    """See the module. `states`: what is seen of the Leases. Not thread-safe."""

    def __init__(
        self,
        states: ShardStates,
        rings: RingsByName,
        clock: Clock,
        mass_failure_grace: float = 0.0,
    ) -> None:
        self.states = states
        self._rings = rings
        self._clock = clock
        self._grace = mass_failure_grace
        self._looks: dict[Key, float] = {}
        """When each Lease is looked at again, if that needs no event."""
        self._order: list[tuple[float, Key]] = []
        """The same as a heap, with entries that do not count any more."""
        self._polls_at = math.inf
        """When it is looked for silent shards."""
        self._polling = False
        """Whether there were some when it was looked last."""
        self._breakers = WeakKeyDictionary[Ring, CircuitBreaker]()
        self._judged_again = dict[Ring, float]()
        """When it is looked again whether many shards of a ring fail, ascending: there may be no Lease left to tend."""
        self._reported: dict[Key, tuple[float, float]] = {}
        """Shards that have ended according to the kubelet: when it said so first and last."""
        self._next_report = WeakKeyDictionary[Ring, float]()
        """From when the next shard of a ring may be taken over for that."""
        self._unlabelled: dict[Key, tuple[ShardState, float]] = {}
        """Leases whose label could not be written: the state that was told, and the seconds until the next try."""
        self._labels: dict[Key, ShardState] = {}
        """The state labels that were written last."""
        self._repairs = Repairs(clock)
        """Of these labels."""
        self._outdated: dict[Key, str] = {}
        """Versions of Leases with which a write was refused, because there is a newer one."""
        self._refusals = Refusals()
        self._told: dict[Key, Ring] = {}
        """The rings whose reports have them."""

    # When

    def begin(self) -> None:
        """A term begins: all Leases are due."""
        self._looks = dict.fromkeys(self.states.keys(), -math.inf)
        self._order = [(at, key) for key, at in self._looks.items()]
        heapify(self._order)
        self._polls_at = -math.inf

    def changed(self, change: ShardChange) -> bool:
        """Whether the Lease is to be tended now, after this change."""
        return change.before is not change.after or change.presence

    def renewed(self) -> bool:
        """Whether to ask for `wake_at` again, after news of a Lease: who would be silent then is not. To wake up once
        for many renewals is cheaper than once in between, too.
        """
        now = self._clock.monotonic()
        if self._polling or self._polls_at + POLL_INTERVAL > now + SILENT:
            return False
        at = now + self.states.silent_in(SILENT, now)
        if self._polls_at + POLL_INTERVAL > at or self.states.silent(SILENT, now):
            return False  # who is silent already is looked at
        self._polls_at = at
        return True

    def of_ring(self, ring: str) -> Collection[Key]:
        """The Leases to tend now, after the ring was added, changed, or ended."""
        return [shard.key for shard in self.states.shards(ring, self._clock.monotonic())]

    @property
    def wake_at(self) -> float:
        """When something is `due`; infinite if that needs an event."""
        at, order = self._polls_at, self._order
        while order and self._looks.get(order[0][1]) != order[0][0]:
            heappop(order)
        if order and order[0][0] < at:
            at = order[0][0]
        if self._judged_again:
            at = min(at, next(iter(self._judged_again.values())))
        return at

    def due(self) -> list[Key]:
        """The Leases to tend now. There may be more: `wake_at` says so. Call it again in another turn then."""
        now, order, keys = self._clock.monotonic(), self._order, list[Key]()
        if self._polls_at <= now:
            keys += self._silent(now)
        while order and order[0][0] <= now and len(keys) < AT_ONCE:
            at, key = heappop(order)
            if self._looks.get(key) == at:
                del self._looks[key]
                keys.append(key)
        if self._judged_again:
            ring, again = next(iter(self._judged_again.items()))
            if again <= now:  # one in each turn: it may be every ring of the cluster
                self._judge(ring)
        return keys

    def _silent(self, now: float) -> list[Key]:
        """Leases of shards that have missed a renewal: again and again until they are renewed or due."""
        fresh = self.states.fresh(now)
        silent = self.states.silent(SILENT, now) if fresh else []
        self._polling = bool(silent) or not fresh
        wait = 0.0 if self._polling else self.states.silent_in(SILENT, now)
        self._polls_at = now + max(POLL_INTERVAL, wait)
        if self._reported:
            self._reported = {key: said for key, said in self._reported.items() if now - said[1] < REPORTED}
        return silent

    def _look_again(self, key: Key, wait: float) -> None:
        if wait < math.inf:
            at = self._looks[key] = self._clock.monotonic() + max(wait, SHORTEST_WAIT)
            heappush(self._order, (at, key))
        else:
            self._looks.pop(key, None)

    # What

    def tend(self, key: Key) -> Steps:
        """Does for one Lease, or the tombstone of one, what its state asks for. Lets errors of the API server pass that
        are no part of that.
        """
        shard = self._shard(key)
        ring = None if shard is None else self._rings.get(shard.ring)
        if shard is None or shard.deleted or ring is None:
            self._unlabelled.pop(key, None)
            self._labels.pop(key, None)
            self._outdated.pop(key, None)
        if shard is None or ring is None:
            self._accepted(key)
            self._look_again(key, math.inf)
            return
        try:
            if (known := (yield from self._as_it_is(shard))) is not None and not known.deleted:
                known = yield from self._as_it_is((yield from self._labelled(known)))
            if known is None:
                self._look_again(key, math.inf)
                return
            if (shard := known).deleted:
                self._look_again(key, (yield from self._settle_tombstone(shard)))
                return
            wait = yield from self._advance(shard)
        except NotOurs:
            raise
        except Conflict:
            self._refused_as_old(shard)
            raise
        except ApiError as error:
            self._rejected(ring, shard, error)
            raise
        if key not in self._unlabelled:
            self._accepted(key)
        _, relabel = self._unlabelled.get(key, (None, math.inf))
        self._look_again(key, min(wait, relabel))

    def _refused_as_old(self, shard: Shard) -> None:
        self._outdated[shard.key] = shard.lease.metadata.resource_version

    def _as_it_is(self, shard: Shard) -> Generator[Command, Any, Shard | None]:
        """Reads the Lease again if a write was refused for the version that is known: neither a watch nor a list may
        show the newer one. Returns None if it is gone.
        """
        if self._outdated.get(shard.key) != shard.lease.metadata.resource_version or shard.deleted:
            return shard
        try:
            yield Read(shard.key)
        except NotFound:
            yield Forget(shard)
        return self._shard(shard.key)

    def _advance(self, shard: Shard) -> Generator[Command, Any, float]:
        """Does what the state asks for. Returns the seconds until it may ask for something else."""
        if shard.state.available and not shard.evicted and (yield from self._reported_dead(shard)):
            return (yield from self._seize(shard, reported=True))
        return min((yield from self._by_state(shard)), self._second_report(shard))

    def _by_state(self, shard: Shard) -> Generator[Command, Any, float]:
        match shard.state:
            case ShardState.READY:
                self._returned(shard)
                return (yield from self._evict(shard)) or shard.times.to_expired
            case ShardState.EXPIRED:
                return shard.times.to_expired if shard.evicted else shard.times.to_uncertain
            case ShardState.UNCERTAIN:
                return (yield from self._seize(shard))
            case ShardState.DEAD:
                if shard.evicted:  # it cannot act any more: else the next leader would wait again
                    number = str(shard.lease.spec.lease_transitions or 0)
                    yield Annotate(shard, {EVICTED_ANNOTATION: None, PROOFS_ANNOTATION: number})
                return (yield from self._confirm(shard)) or shard.times.to_orphaned
            case _:
                if wait := (yield from self._confirm(shard)):
                    return wait
                yield Collect(shard)
                return math.inf

    # The label

    def _labelled(self, shard: Shard) -> Generator[Command, Any, Shard]:
        """Keeps the state label up to date; it is informational only. Returns the shard as it is then."""
        key, before = shard.key, ShardState.parse(shard.lease.metadata.label(STATE_LABEL))
        if before is shard.state:
            self._unlabelled.pop(key, None)
            return shard
        if (repair := self._labels.get(key) is shard.state) and self._repairs.wait(key):
            return shard
        told, _ = self._unlabelled.get(key, (before, 0.0))
        try:
            yield Label(shard, told, contested=repair and self._repairs.contested(key))
        except NotOurs:
            raise
        except NotFound:
            return shard
        except (ApiError, TimeoutError) as error:
            if changed := isinstance(error, Conflict):
                self._refused_as_old(shard)
            first = changed and key not in self._unlabelled
            self._unlabelled[key] = shard.state, RELABEL_CHANGED if first else RELABEL
            if not changed and (ring := self._rings.get(shard.ring)) is not None:
                self._rejected(ring, shard, error)
        else:
            self._unlabelled.pop(key, None)
            self._labels[key] = shard.state
            if repair:
                self._repairs.repaired(key)
        return self._shard(key) or shard

    # Ends that the kubelet reports

    def _reported_dead(self, shard: Shard) -> Generator[Command, Any, bool]:
        """Whether the kubelet has reported twice that the shard has ended."""
        now, silence = self._clock.monotonic(), shard.times.duration - shard.times.to_expired
        silent = silence >= SILENT and shard.times.to_uncertain > 0 and self.states.fresh(now)
        if not silent or not (yield AskKubelet(shard.lease)):
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

    # Many that fail at once

    def _returned(self, shard: Shard) -> None:
        """With this shard, it may no longer be true that many fail."""
        ring = self._rings.get(shard.ring)
        if ring is not None and self._is_open(ring):
            self._judge(ring)

    def _is_open(self, ring: Ring) -> bool:
        return ring in self._breakers and self._breakers[ring].is_open

    def _held_back(self, shard: Shard) -> Generator[Command, Any, bool]:
        """Whether the Lease must not be taken over yet, because nothing was heard, or it is one of many. All are read
        again first: the view that makes them look dead may be this process's own problem.
        """
        ring = self._rings.get(shard.ring)
        if ring is None:
            return True  # it was deleted a moment ago
        if not self.states.sees(self._clock.monotonic()):
            return True
        was_open = self._is_open(ring)
        breaker = self._judge(ring)
        if breaker.is_open and not was_open:
            yield ReadAll()
            breaker = self._judge(ring)
        return not breaker.may_take(shard, self._clock.monotonic())

    def _judge(self, ring: Ring) -> CircuitBreaker:
        breaker = self._breakers.setdefault(ring, CircuitBreaker(self._grace))
        self._judged_again.pop(ring, None)
        if ring.ended:
            return breaker
        now = self._clock.monotonic()
        shards, fresh = self.states.shards(ring.name, now), self.states.fresh(now)
        breaker.update(shards, now, fresh=fresh, dead=_Ended(self._reported, now))
        if breaker.is_open:
            self._judged_again[ring] = now + HELD_BACK
        ring.report.failing_together = breaker.explained
        ring.metrics.set("shards_failing_together", len(breaker.failing) if breaker.is_open else 0)
        return breaker

    # Take-overs

    def _seize(self, shard: Shard, *, reported: bool = False) -> Generator[Command, Any, float]:
        """Takes the Lease over if another read returns exactly the record that was not renewed. `reported`: whether the
        kubelet has reported that the shard has ended, which is asked for again after that read.
        """
        if (yield from self._held_back(shard)):
            return HELD_BACK
        duration = shard.times.duration
        try:
            whole = yield Read(shard.key)
        except NotFound:
            yield Forget(shard)
            return duration
        current = self._shard(shard.key)
        if current is None or current.deleted:
            return duration if current is None else current.times.to_expired
        if not self.states.sees(self._clock.monotonic()):  # the read took long
            return HELD_BACK
        if current.state is ShardState.UNCERTAIN:
            why = Why.EXPIRED
        elif reported and current.state.available and (yield AskKubelet(current.lease)):
            why = Why.ENDED
        else:
            return current.times.to_expired
        yield Take(current, self._taken(current, whole, why), why)
        if (ring := self._rings.get(shard.ring)) is not None:
            self._judge(ring).taken(current, self._clock.monotonic())
            ring.metrics.add("takeovers")
        return duration

    def _evict(self, shard: Shard) -> Generator[Command, Any, float]:
        """Takes the Lease of a shard that does not release what it has, if it has to be evicted. Returns the seconds
        until it counts as dead; 0 if it was not evicted.
        """
        ring = self._rings.get(shard.ring)
        if ring is None or not self._is_overdue(ring, shard):
            return 0.0
        whole = yield Read(shard.key)
        current = self._shard(shard.key)
        if current is None or current.deleted or current.state is not ShardState.READY:
            return 0.0
        overdue = ring.evictions.number(shard.name)
        yield Take(current, self._taken(current, whole, Why.EVICTED), Why.EVICTED, overdue)
        ring.evictions.evicted(shard.name, self._clock.monotonic())
        ring.metrics.add("evictions")
        return 2 * shard.times.duration

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

    def _taken(self, shard: Shard, lease: Lease, why: Why) -> Lease:
        """The Lease, which was read as a whole, as taken over."""
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
        ring = self._rings.get(shard.ring)
        match why:
            case Why.EVICTED:
                annotations[EVICTED_ANNOTATION] = number
            case Why.EXPIRED:
                annotations[PROOFS_ANNOTATION] = number
            case Why.ENDED:
                annotations[PROOFS_ANNOTATION] = number + REPORTED_SUFFIX
                if ring is not None and ring.confirmations is not None:
                    annotations[CONFIRMED_ANNOTATION] = f"{number}/{Confirmed.KUBELET.value}"
        return Lease(metadata=msgspec.structs.replace(metadata, annotations=annotations), spec=spec)

    # After the end

    def _confirm(self, shard: Shard) -> Generator[Command, Any, float]:
        """Confirms that a shard has ended whose Lease was taken, if its ring wants that and it can be said. Returns the
        seconds until the next look; 0 if there is nothing to wait for.
        """
        ring = self._rings.get(shard.ring)
        if ring is None or ring.confirmations is None:
            return 0.0
        if is_confirmed(shard.lease):
            return max(0.0, shard.times.to_orphaned + KEPT) if shard.state is ShardState.ORPHANED else 0.0
        if (yield AskKubelet(shard.lease)):
            by = Confirmed.KUBELET
        elif ring.confirmations.over(shard):
            by = Confirmed.WAITED
        else:
            return ASK_AGAIN
        yield Annotate(shard, {CONFIRMED_ANNOTATION: confirmation(shard.lease, by)}, confirmed=by)
        return ASK_AGAIN

    def _settle_tombstone(self, shard: Shard) -> Generator[Command, Any, float]:
        """Handles a Lease that was deleted while held: after the time in which its shard would have been given up, the
        Lease is created again as taken over, so that a shard that is still alive sees it and stops.
        """
        if shard.times.to_uncertain > 0:
            return shard.times.to_uncertain
        if (yield from self._held_back(shard)):
            return HELD_BACK
        meta = shard.lease.metadata
        incarnation = meta.annotation(INCARNATION_ANNOTATION)
        new = ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            labels={RING_LABEL: shard.ring, STATE_LABEL: str(ShardState.DEAD)},
            annotations={INCARNATION_ANNOTATION: incarnation} if incarnation else None,
        )
        lease = Lease(metadata=new, spec=shard.lease.spec)
        try:
            yield Take(shard, self._taken(shard, lease, Why.EXPIRED), Why.EXPIRED)
        except AlreadyExists:
            yield Read(shard.key, settled=True)
        except (NotFound, Forbidden) as error:
            # The namespace is terminating or gone (or create is forbidden): the shard cannot hold it again either.
            yield Forget(shard, refused=error)
        return math.inf

    # Refusals

    def _rejected(self, ring: Ring, shard: Shard, error: Exception) -> None:
        """The API server refused a request for a Lease: people are told if that lasts."""
        if self._refusals.refused(shard.lease.metadata, error, self._clock.monotonic()):
            ring.report.lease(str(shard.key), self._refusals.why(shard.key))
            self._told[shard.key] = ring

    def _accepted(self, key: Key) -> None:
        if self._refusals.ended(key) and (ring := self._told.pop(key, None)) is not None:
            ring.report.lease(str(key))

    def _shard(self, key: Key) -> Shard | None:
        return self.states.shard(key, self._clock.monotonic())


class _Ended:
    """Shards that have ended according to the kubelet. There may be many, and each is a reason to judge its ring."""

    def __init__(self, reported: Mapping[Key, tuple[float, float]], now: float) -> None:
        self._reported = reported
        self._now = now

    def __contains__(self, key: object) -> bool:
        said = self._reported.get(key) if isinstance(key, Key) else None
        return said is not None and self._now - said[1] < REPORTED
