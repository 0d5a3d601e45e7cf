"""Which shards are alive, judged by the changes that this process saw.

A Lease is judged by the time at which its record (uid and spec) was last *seen to change*, on the monotonic clock of
this process; never by the times that shards write, so clock skew or a future or forged renewTime cannot kill or keep a
shard. A new Lease counts from its first observation. How certain it is that the shard is alive:

| holder is the shard itself | time | state | available |
|---|---|---|---|
| no, it was evicted | to_expired > 0 | expired | yes |
| no | to_orphaned <= 0 | orphaned | no |
| no | else | dead | no |
| yes | to_uncertain <= 0 | uncertain | yes |
| yes | to_expired <= 0 | expired | yes |
| yes | else | ready | yes |

evaluated from top to bottom, boundaries inclusive. `lease_machine` takes over a Lease whose holder is uncertain.
`unknown` is never computed; it is the state of an unrecognised label.

Guaranteed:
- Older versions of a Lease never replace newer ones, in whatever order watch events and quorum reads arrive; and a
  Lease that a complete list lacked is not there again because of an older event that comes late. There is one
  exception: a consistent read that was sent after the newer version had been seen. It proves
  that the API server's history was rewritten (etcd was restored from a backup). Then the Lease is judged again,
  from this observation. A restore does not kill shards: a shard that was available, and by the restored record is
  not, stays available as after a deletion of its Lease.
- Time counts only while a renewal would have been seen. After a silence, or a restore, the time of all Leases begins
  anew, as if they were seen for the first time (`count_anew`).
- A Lease that was held when it was deleted leaves a tombstone: its shard, whose process may still be at work,
  stays available until twice its duration after the last observed renewal. The same applies, in the ring that it left,
  to a Lease that was held when its ring label was changed.
- A shard that was evicted (`EVICTED_ANNOTATION`) stays available until the duration of the record is over, here too
  since it was first seen, whichever sharder has evicted it.
- A shard is available if any of its Leases is (the same name may exist in several namespaces). Names that are
  not label values are never available, because no object could carry them; beyond
  `max_shards` only the oldest of each namespace count, the same number of each.
- If a ring says in which namespaces its shards are (`confine`), Leases elsewhere are no shards of it, dead or alive.
- An incomplete Lease passes through the states like any other, with 15 s from its first observation.

**Why time counts anew.** A Lease at the version that was seen before may have been renewed since: a restore may have
erased that, and its shard lives. So a shard is given up only if each of its renewals within that time would have been
noticed:

| since the last sight of the Leases | a renewal that was erased in this time |
|---|---|
| more than `STALE_AFTER` seconds | leaves no sign. The backup may be younger than the last sight, and the new history \
may have passed it. So time begins anew with the next complete list, and nothing is taken over before that (`sees`) |
| less | leaves a sign, if the backup is older than that: fewer writes follow on the restore than it has undone, so \
that a version goes back, of a Lease or of a list of all. Time begins anew with that sign |

A watch that breaks and is opened again is no silence, and delays nothing. After a longer outage, a shard that died is
given up twice the duration of its Lease after the first list, as after a restart of this process.

Not covered: a shard that has taken its Lease, which nobody held, if that was not seen, and erased. Like one that
begins, this process believes a Lease that says that nobody holds it.

Strict hand-over, which a ring may ask for: a shard that is dead by its Lease keeps its objects until there is a record
in the cluster that its process has ended. A Lease says that a process has not renewed it. A fence refuses what that
process still writes to objects. Neither says that it does nothing any more: a machine that its hypervisor has stopped
goes on where it was, and so do its requests to systems that know neither Leases nor fences.

| the Leases of the shard's name | its objects may be taken |
|---|---|
| one is held, was deleted while it was held, or was taken by a sharder and is not confirmed | no |
| each was released by its holder, or is confirmed | yes |
| there are none | `longest` seconds after that was first asked here, since there was last one |

A Lease is confirmed by `CONFIRMED_ANNOTATION`, with the number of its transitions, so that the annotation is void once
anybody has taken the Lease again. Who confirms:

* a sharder, because the kubelet reports that the containers of the shard have ended (`Confirmed.KUBELET`), or because
  `longest` seconds are over since it saw that the Lease was taken (`Confirmed.WAITED`);
* a person, who knows it (`Confirmed.OPERATOR`).

Not guaranteed: anything about a shard of another implementation that releases its Lease while it still works; and
that the states are up to date. `fresh` returns whether they can be. Sans-IO:
every method that depends on time takes it as an argument; the caller feeds events, relists and quorum reads.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from functools import partial
from itertools import takewhile
from operator import itemgetter
from typing import NamedTuple

from msgspec import structs

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.names import is_label_value
from kubeshard.core.objects import Key
from kubeshard.core.times import parse_time
from kubeshard.core.versions import compare, precedes
from kubeshard.sharding.assignment import owns_some
from kubeshard.sharding.names import (
    CONFIRMED_ANNOTATION,
    EVICTED_ANNOTATION,
    INCARNATION_ANNOTATION,
    OWNED_RANGES_ANNOTATION,
    RING_LABEL,
    SHARDER_IDENTITY,
)

DEFAULT_DURATION = 15.0
"""The duration in seconds of a Lease without a duration or times."""

ORPHANED_AFTER = 60.0
"""Seconds after its expiration at which a Lease without a holder is garbage."""

STALE_AFTER = 6.0
"""Seconds without any event of held Leases, which change every 2 s, after which the states may be out of
date, and what was seen before does not count any more.
"""

MIN_DURATION, MAX_DURATION = 3.0, 60.0
"""Bounds of the seconds that a held Lease is trusted without renewal, whatever its duration. A dead shard's objects
wait for twice that, and whoever may create a Lease can cause it. Four times the usual duration is enough for a slow
API server.
"""

MAX_SHARDS = 500
"""The default maximum number of shards per ring."""

TOMBSTONE_KEPT = 600.0
"""Seconds after its end at which an unsettled tombstone is dropped."""

PRUNE_EVERY = 10.0
"""Seconds between looks for such tombstones."""


class ShardState(IntEnum):
    """In ascending order of liveness. `str()` is the value of the state label and of the metrics."""

    UNKNOWN = 0
    ORPHANED = 1
    DEAD = 2
    UNCERTAIN = 3
    EXPIRED = 4
    READY = 5

    @property
    def available(self) -> bool:
        """Whether the shard is a member of the hash ring: expired and uncertain shards are, until the Lease
        is taken over.
        """
        return self >= ShardState.UNCERTAIN

    def __str__(self) -> str:
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> ShardState:
        """The state of a label's value; UNKNOWN for anything else."""
        return _BY_TEXT.get(text, cls.UNKNOWN)


_BY_TEXT = {str(state): state for state in ShardState}


class LeaseTimes(NamedTuple):
    """Seconds from now until each change of state, and the duration that they are computed from."""

    duration: float
    to_expired: float

    @property
    def to_uncertain(self) -> float:
        return self.to_expired + self.duration

    @property
    def to_orphaned(self) -> float:
        return self.to_expired + ORPHANED_AFTER


def state_of(self_held: bool, times: LeaseTimes) -> ShardState:
    """The state according to the table above."""
    if not self_held:
        return ShardState.ORPHANED if times.to_orphaned <= 0 else ShardState.DEAD
    if times.to_uncertain <= 0:
        return ShardState.UNCERTAIN
    if times.to_expired <= 0:
        return ShardState.EXPIRED
    return ShardState.READY


class Shard(NamedTuple):
    """One Lease and its state. `deleted`: the Lease is gone and this is its tombstone."""

    key: Key
    lease: Lease
    ring: str
    state: ShardState
    times: LeaseTimes
    deleted: bool
    allowed: bool | None
    """Whether the ring allows shards in this namespace; None if it does not say."""
    valid: bool
    """Whether objects may be labelled with the name."""
    evicted: bool
    """Whether a sharder took its Lease while it was alive."""
    said: Lease
    """The Lease as it was first seen with its last renewal. What has changed since was not written by the shard, and
    counts once the shard has left it there with its next renewal.
    """

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def member(self) -> bool:
        """Whether objects are assigned to it (unless the ring has too many)."""
        return self.valid and self.allowed is not False and self.state.available

    @property
    def excess(self) -> float:
        """The duration that it asks for, if that is more than it gets; otherwise 0."""
        seconds = self.lease.spec.lease_duration_seconds or 0
        return seconds if self.state.available and seconds > MAX_DURATION else 0


class ShardChange(NamedTuple):
    """What an observation changed. `rings` are all rings that the Lease belongs or belonged to."""

    key: Key
    rings: frozenset[str]
    before: ShardState | None
    after: ShardState | None
    availability: bool
    """Whether a ring may have gained or lost a shard, including by the end of a tombstone, or it was confirmed that one
    has ended.
    """
    presence: bool
    """Whether the Lease was added to a ring, or removed from one."""
    news: bool
    """Whether people may be told something else: after one of these, or because the Lease has other annotations."""
    rewound: bool = False
    """Whether the API server's history was rewritten: recent writes were undone, not only to Leases."""


class Availability(NamedTuple):
    """Which shards of a ring are available, ascending."""

    names: tuple[str, ...] = ()
    labelled: tuple[str, ...] = ()
    """Those to which objects may be assigned by labels (`takes_labels`)."""
    until: float = math.inf
    """When the ring loses one of them without a further observation; infinite if it does not."""


class ShardStates:
    """See the module. Not thread-safe; one per process."""

    def __init__(self, *, max_shards: int = MAX_SHARDS) -> None:
        self._max_shards = max_shards
        self._records: dict[Key, _Record] = {}
        self._members: dict[str, dict[Key, _Record]] = {}
        """The same, by ring: there may be many rings, and each event is about one."""
        self._renewing: dict[Key, _Record] = {}
        """Those that shards hold, or held when they were deleted, by when they were last seen to change."""
        self._left: dict[tuple[str, Key], _Record] = {}
        """Tombstones of Leases that now belong to another ring, by the ring that they left."""
        self._namespaces: dict[str, frozenset[str]] = {}
        """Where shards of a ring have to be, if it says so."""
        self._prune_at = float("-inf")
        self._heard: float | None = None
        self._arrived = float("-inf")
        """When the last complete list had arrived."""
        self._listed = ""
        """The greatest version of a complete list since time began anew."""
        self._missing: float | None = None
        """Since when Leases may be missing."""
        self.since = float("-inf")
        """When the time of all Leases began anew: what was there before may have been another history."""
        self.rewinds = 0
        """How many Leases were seen to revert to an earlier version."""

    # Observations

    def observe(self, lease: Lease, now: float, asked: float | None = None) -> ShardChange | None:
        """Feeds a Lease from a watch event, a list or a read. Returns None if it is not new. `asked`: for a
        consistent read, when it was sent.
        """
        key, version = lease.key, lease.metadata.resource_version
        old = self._records.get(key)
        if old is None and asked is None and precedes(version, self._listed):
            return None  # a late echo of an object that was deleted before all were listed
        newer = -1 if old is None else old.compared_to(version)
        if (
            old is not None
            and newer == 0
            and old.deleted
            and old.seen_before(asked)
            and not old.state(now).available
        ):
            newer = -1  # versions come again after a restore: it is there, and that time is over
        rewound = old is not None and newer > 0 and old.seen_before(asked)
        if newer >= 0 and not rewound:
            return None  # seen before, or a late echo of the deleted object
        if rewound and asked is not None:
            old = self._went_back(key, now, asked)
        ring = lease.metadata.label(RING_LABEL)
        if not ring:
            return self.forget(key, now) if old is not None else None
        if old is not None and not old.deleted and not rewound and old.same_record(lease):
            new = _Record(lease, old.said, ring, old.changed, now)
        else:
            new = _Record(lease, lease, ring, now, now)
            if rewound and old is not None and old.ring == ring and old.state(now).available:
                new = new if new.state(now).available else old.undone(version, now)
        if old is not None and old.ring != ring and old.state(now).available:
            self._left[old.ring, key] = replace(old, deleted=True)
        self._left.pop((ring, key), None)
        return self._put(key, old, new, now)._replace(rewound=rewound)

    def forget(
        self, key: Key, now: float, resource_version: str = "", asked: float | None = None
    ) -> ShardChange | None:
        """Records that the Lease was deleted or left the ring-label selector, at `resource_version` if that is known.
        `asked`: for a consistent read that does not contain it, when it was sent.
        """
        old = self._records.get(key)
        if old is None:
            return None
        rewound = old.compared_to(resource_version) > 0
        if old.deleted and not rewound:
            return None
        if rewound and not old.seen_before(asked):
            return None
        if rewound and asked is not None:
            old = self._went_back(key, now, asked)
        if old.deleted:  # else its Lease would look as if it had gone back once more when it is made anew
            self._put(key, old, old.undone(resource_version, now), now)
            return None
        if not old.state(now).available:
            return self._put(key, old, None, now)._replace(rewound=rewound)
        tombstone = old.undone(resource_version, now) if rewound else replace(old, deleted=True, seen=now)
        return self._put(key, old, tombstone, now)._replace(rewound=rewound)

    def forget_tombstone(self, key: Key, now: float) -> ShardChange | None:
        """Ends a tombstone: the Lease can never be held again (its namespace is gone)."""
        old = self._records.get(key)
        return self._put(key, old, None, now) if old is not None and old.deleted else None

    def confine(self, ring: str, namespaces: frozenset[str] | None, now: float) -> list[ShardChange]:
        """The ring says in which namespaces its shards are; None: it does not."""
        before = {key: self._admits(ring, key) for key in self._of(ring)}
        self._namespaces.pop(ring, None)
        if namespaces is not None:
            self._namespaces[ring] = namespaces
        return [
            ShardChange(key, frozenset({ring}), state, state, availability=True, presence=False, news=True)
            for key, record in self._of(ring).items()
            if before[key] != self._admits(ring, key) and (state := record.state(now)).available
        ]

    def heard(self, now: float) -> bool:
        """A watch delivered something: returns whether no silence is left. Reads and writes of single Leases tell
        nothing about the others.
        """
        if self._heard is not None and now - self._heard > STALE_AFTER:
            if now - self._arrived > STALE_AFTER:
                return False
            self.count_anew(now)  # the list that arrived since is as old as the request for it
        self._heard = now
        return True

    def confirm(self, asked: float, arrived: float, resource_version: str = "") -> None:
        """A complete list at this version was read from the server and fed to `observe`, and what it lacks to `forget`.
        It is at least as recent as when it was asked for; it ends a silence when it arrives.
        """
        silent = self._heard is not None and arrived - self._heard > STALE_AFTER
        went_back = precedes(resource_version, self._listed)
        if silent or (went_back and self._arrived < asked):
            self.count_anew(arrived)
            went_back = False
        if not went_back:  # else it may be a list that was overtaken by another one
            self._listed = resource_version
        self._heard = asked if self._heard is None else max(asked, self._heard)
        self._arrived = arrived
        if self._missing is not None and self._missing < asked:
            self._missing = None

    def count_anew(self, now: float) -> None:
        """Renewals may have been erased until now: no time before counts as one without them."""
        self.since = now
        for key, record in list(self._records.items()):
            if record.self_held or record.deleted:
                new = self._records[key] = self._members[record.ring][key] = replace(record, changed=now)
                if key in self._renewing:
                    self._renewing[key] = new
        for place, record in list(self._left.items()):
            self._left[place] = replace(record, changed=now)

    def miss(self, now: float) -> None:
        """Leases that count from now on were passed over: only a complete list that is asked for later has them."""
        self._missing = now

    # Results

    def availability(self, ring: str, now: float) -> Availability:
        """It changes with the next news of the ring (`ShardChange`), or when it ends."""
        shards = [shard for shard in self.shards(ring, now) if shard.member]
        if len(shards) > self._max_shards:
            del (shards := _fairly(shards))[self._max_shards :]
        # Availability is lost by an observation, or by the end of a tombstone or of an evicted shard's time.
        until = now + min(map(_to_end, shards), default=math.inf)
        names = tuple(sorted({shard.name for shard in shards}))
        return Availability(names, takes_labels(names, (shard.lease for shard in shards)), until)

    def available(self, ring: str, now: float) -> tuple[str, ...]:
        """Names of the ring's available shards, ascending."""
        return self.availability(ring, now).names

    def shard(self, key: Key, now: float) -> Shard | None:
        """The Lease (or tombstone) of this namespace and name."""
        record = self._records.get(key)
        return self._judged(key, record, now) if record is not None else None

    def shards(self, ring: str, now: float) -> list[Shard]:
        """All Leases of a ring with their states, tombstones included; ordered by namespace and name."""
        self._prune(now)
        records = list(self._of(ring).items())
        records += [
            (key, record)
            for (left, key), record in self._left.items()
            if left == ring and record.times(now).to_uncertain > 0
        ]
        return [self._judged(key, record, now) for key, record in sorted(records, key=itemgetter(0))]

    def may_live(self, ring: str, shard: str, now: float) -> bool:
        """Whether the shard holds a Lease of this name; or held one when it was deleted, with an unsettled
        tombstone, or when it left the ring, not long enough ago.
        """
        known = (r for key, r in self._of(ring).items() if key.name == shard and self._admits(ring, key))
        left = (
            r
            for (of, key), r in self._left.items()
            if key.name == shard and of == ring and self._admits(ring, key)
        )
        return any(r.deleted or r.state(now).available for r in known) or any(
            r.state(now).available for r in left
        )

    def leases_of(self, ring: str, shard: str) -> list[Key]:
        """The current and former places of a shard's Leases: more than one for a duplicate name, none for a name never
        seen or one that left the ring.
        """
        return sorted(key for key in self._of(ring) if key.name == shard)

    def named(self, ring: str, shard: str) -> list[Lease]:
        """The Leases of this name, also those that were deleted, or left the ring, while they were held."""
        records = [
            *self._of(ring).items(),
            *((key, record) for (of, key), record in self._left.items() if of == ring),
        ]
        return [record.lease for key, record in records if key.name == shard and self._admits(ring, key)]

    def signs(self, ring: str, shard: str) -> bool:
        """Whether the shard acknowledges drains under its name: its Lease shows that it is one of this library."""
        return any(
            bool(record.lease.metadata.annotation(INCARNATION_ANNOTATION))
            for key, record in self._of(ring).items()
            if key.name == shard
        )

    def silent_in(self, seconds: float, now: float) -> float:
        """In how many seconds another Lease will not have been renewed for so long, if it is not; `seconds` at most."""
        for record in self._renewing.values():
            if record.changed + seconds > now:
                return record.changed + seconds - now
        return seconds

    def silent(self, seconds: float, now: float) -> list[Key]:
        """Leases of shards of this library that were not seen to be renewed for so long, and are not due yet."""
        silent = takewhile(lambda each: now - each[1].changed >= seconds, self._renewing.items())
        return [
            key
            for key, record in silent
            if not record.deleted
            and record.times(now).to_uncertain > 0
            and record.lease.metadata.annotation(INCARNATION_ANNOTATION)
        ]

    def held(self, ring: str, shard: str, leases: Iterable[Lease]) -> bool:
        """Whether the shard holds one of these Leases."""
        return any(lease.spec.holder_identity == shard and self._admits(ring, lease.key) for lease in leases)

    def has_version(self, lease: Lease) -> bool:
        """Whether this version of the Lease is the one that is known: to observe it tells nothing."""
        meta = lease.metadata
        known = self._records.get(Key(meta.namespace, meta.name))
        return (
            known is not None
            and not known.deleted
            and known.lease.metadata.resource_version == meta.resource_version
        )

    def __contains__(self, key: object) -> bool:
        """Whether a Lease or tombstone is known."""
        return key in self._records

    def keys(self) -> frozenset[Key]:
        """All Leases and tombstones."""
        return frozenset(self._records)

    def fresh(self, now: float) -> bool:
        """Whether the states may be used for decisions: they were fed, and there were events of held Leases in the last
        6 s. After a longer silence, and if Leases are missing, only a complete list counts: the first events to arrive
        may be as old as it. Not
        guaranteed: that a watch which delivers something is not late. How late it may be is up to who feeds the
        states: the observer's complete lists, some seconds apart, make up for what a late watch has not told yet.
        """
        if self._heard is None or self._missing is not None:
            return False
        return now - self._heard <= STALE_AFTER or not any(
            record.self_held and not record.deleted for record in self._records.values()
        )

    def sees(self, now: float) -> bool:
        """Whether time counts: otherwise it begins anew for all Leases, with the next complete list."""
        return self.silence(now) <= STALE_AFTER

    def silence(self, now: float) -> float:
        """Seconds since the last event that counts (see `fresh`); infinite if there was none."""
        return float("inf") if self._heard is None or self._missing is not None else now - self._heard

    def __len__(self) -> int:
        return len(self._records)

    def _went_back(self, key: Key, now: float, asked: float) -> _Record:
        self.rewinds += 1
        if asked >= self.since:  # once for each list
            self.count_anew(now)
        return self._records[key]

    def _put(self, key: Key, old: _Record | None, new: _Record | None, now: float) -> ShardChange:
        self._drop(key)
        renewed = new is None or old is None or old.changed != new.changed or not new.self_held
        if renewed and key in self._renewing:
            del self._renewing[key]
        if new is not None:
            self._records[key] = self._members.setdefault(new.ring, {})[key] = new
            if new.self_held:
                self._renewing[key] = new
        return _difference(key, old, new, now)

    def _admits(self, ring: str, key: Key) -> bool:
        namespaces = self._namespaces.get(ring)
        return namespaces is None or key.namespace in namespaces

    def _judged(self, key: Key, record: _Record, now: float) -> Shard:
        stated = record.ring in self._namespaces
        allowed = self._admits(record.ring, key) if stated else None
        return Shard(
            key,
            record.lease,
            record.ring,
            record.state(now),
            record.times(now),
            record.deleted,
            allowed,
            valid=record.valid,
            evicted=record.evicted,
            said=record.said,
        )

    def _of(self, ring: str) -> Mapping[Key, _Record]:
        return self._members.get(ring, _NONE)

    def _drop(self, key: Key) -> None:
        if (old := self._records.pop(key, None)) is not None:
            members = self._members[old.ring]
            del members[key]
            if not members:
                del self._members[old.ring]

    def _prune(self, now: float) -> None:
        """Keeps tombstones from accumulating if no leader settles them. Not at each call: it looks at all Leases."""
        if now < self._prune_at:
            return
        self._prune_at = now + PRUNE_EVERY
        for key, record in list(self._records.items()):
            if record.deleted and record.times(now).to_uncertain < -TOMBSTONE_KEPT:
                self._put(key, record, None, now)
        for place, record in list(self._left.items()):
            if record.times(now).to_uncertain <= 0:
                del self._left[place]


def written_state(lease: Lease, wall: float) -> ShardState:
    """The shard's state from the Lease alone, at `wall` seconds since the epoch: for callers that read it once and
    cannot observe changes. Only as accurate as the shard's clock; the sharder does not use it.
    """
    renewed = parse_time(lease.spec.renew_time)
    return _Record(lease, lease, "", wall if renewed is None else renewed, wall).state(wall)


def is_evicted(lease: Lease) -> bool:
    """Whether a sharder took the Lease from a shard that was alive, and nobody has taken it since."""
    spec = lease.spec
    if spec.holder_identity != SHARDER_IDENTITY:
        return False
    return lease.metadata.annotation(EVICTED_ANNOTATION) == str(spec.lease_transitions or 0)


def proves_end(lease: Lease) -> bool:
    """Whether a sharder took the Lease from a shard that had not renewed it for long enough: one that was evicted may
    act for a moment.
    """
    return lease.spec.holder_identity == SHARDER_IDENTITY and not is_evicted(lease)


def is_confirmed(lease: Lease) -> bool:
    """Whether nobody acts who has held the Lease: the last one has released it, or is confirmed to have ended."""
    spec = lease.spec
    if not spec.holder_identity:
        return True
    number, _, by = lease.metadata.annotation(CONFIRMED_ANNOTATION).partition("/")
    return (
        spec.holder_identity == SHARDER_IDENTITY and number == str(spec.lease_transitions or 0) and bool(by)
    )


def takes_labels(available: tuple[str, ...], leases: Iterable[Lease]) -> tuple[str, ...]:
    """The available shards to which objects may be assigned by labels, given the Leases of all: not those that work by
    hash ranges, and none while one of these works on something.
    """
    said = ((each.metadata.name, each.metadata.annotation(OWNED_RANGES_ANNOTATION)) for each in leases)
    by_ranges = {name: text for name, text in said if text}
    if any(map(owns_some, by_ranges.values())):
        return ()
    return tuple(name for name in available if name not in by_ranges) if by_ranges else available


def duplicates(shards: Iterable[Shard]) -> dict[str, list[Key]]:
    """Names with Leases in several namespaces, and the keys of these."""
    places: dict[str, list[Key]] = {}
    for shard in shards:
        if not shard.deleted:
            places.setdefault(shard.name, []).append(shard.key)
    return {name: keys for name, keys in places.items() if len(keys) > 1}


def _fairly(shards: list[Shard]) -> list[Shard]:
    """The oldest of each namespace, then the second oldest of each, and so on: whoever fills a namespace does not
    displace the shards in another one.
    """
    shards.sort(key=lambda shard: (shard.lease.metadata.creation_timestamp or "", shard.key))
    places, turns = Counter[str](), list[int]()
    for shard in shards:
        turns.append(places[shard.key.namespace])
        places[shard.key.namespace] += 1
    return [shard for _, shard in sorted(zip(turns, shards, strict=True), key=itemgetter(0))]


def _to_end(shard: Shard) -> float:
    """Seconds until the shard is not available any more without another observation."""
    if shard.evicted:
        return shard.times.to_expired
    return shard.times.to_uncertain if shard.deleted else float("inf")


@dataclass(frozen=True, slots=True)
class _Record:
    lease: Lease
    said: Lease
    ring: str
    changed: float
    """When the lease's record was last seen to change."""
    seen: float
    """When this version of it was first seen."""
    deleted: bool = False
    self_held: bool = field(init=False)
    evicted: bool = field(init=False)
    valid: bool = field(init=False)
    """Whether its name may be the value of a label."""
    duration: float | None = field(init=False)
    """Seconds that it is trusted for; None if it is incomplete."""

    def __post_init__(self) -> None:
        name, spec = self.lease.metadata.name, self.lease.spec
        set_once = partial(object.__setattr__, self)
        set_once("self_held", bool(name) and spec.holder_identity == name)
        set_once("evicted", is_evicted(self.lease))
        set_once("valid", bool(name) and is_label_value(name))
        set_once("duration", self._duration(spec))

    def _duration(self, spec: LeaseSpec) -> float | None:
        seconds = spec.lease_duration_seconds
        if seconds is None or seconds <= 0 or spec.renew_time is None or spec.acquire_time is None:
            return None
        if self.self_held:
            return min(max(float(seconds), MIN_DURATION), MAX_DURATION)
        if self.evicted:
            return min(max(float(seconds), 2 * MIN_DURATION), 2 * MAX_DURATION)
        return float(seconds)

    def same_record(self, lease: Lease) -> bool:
        return self.lease.metadata.uid == lease.metadata.uid and self.lease.spec == lease.spec

    # Versions of all Leases are ordered, so this also works for a Lease re-created under the same name.

    def compared_to(self, resource_version: str) -> int:
        """Greater than 0 if it is newer than that version, 0 if it is the same. An unknown version is newer."""
        return compare(self.lease.metadata.resource_version, resource_version) if resource_version else -1

    def seen_before(self, asked: float | None) -> bool:
        """Whether a consistent read sent then returns this version or a later one, unless history was rewritten."""
        return asked is not None and self.seen < asked

    def undone(self, version: str, now: float) -> _Record:
        """The tombstone of a record that a restore undid. The Lease is at `version` now."""
        lease = structs.replace(
            self.lease, metadata=structs.replace(self.lease.metadata, resource_version=version)
        )
        return _Record(lease, lease, self.ring, now, now, deleted=True)

    def times(self, now: float) -> LeaseTimes:
        if self.duration is None:
            return LeaseTimes(DEFAULT_DURATION, self.changed - now)
        return LeaseTimes(self.duration, self.changed + self.duration - now)

    def state(self, now: float) -> ShardState:
        times = self.times(now)
        if self.evicted and times.to_expired > 0:
            return ShardState.EXPIRED
        if self.deleted and times.to_uncertain <= 0:
            return ShardState.DEAD
        return state_of(self.self_held, times)


def _difference(key: Key, old: _Record | None, new: _Record | None, now: float) -> ShardChange:
    """Old and new are judged at the same time: the passing of time alone does not count as a change."""
    before = old.state(now) if old is not None else None
    after = new.state(now) if new is not None else None
    rings = frozenset([record.ring for record in (old, new) if record is not None])
    # A tombstone stops being available without an event: it counts as available until it is settled.
    was = old is not None and (old.deleted or old.state(now).available)
    evicted = new is not None and new.evicted  # so does an evicted shard
    confirmed = new is not None and is_confirmed(new.lease) and not (old is None or is_confirmed(old.lease))
    is_ = after is not None and after.available
    moved = len(rings) > 1 and (was or is_)
    existed, exists = old is not None and not old.deleted, new is not None and not new.deleted
    availability = was != is_ or moved or evicted or confirmed
    presence = existed != exists or len(rings) > 1
    said = None if old is None else (old.lease.metadata.annotations, old.said.metadata.annotations)
    says = None if new is None else (new.lease.metadata.annotations, new.said.metadata.annotations)
    news = availability or presence or said != says
    return ShardChange(key, rings, before, after, availability=availability, presence=presence, news=news)


_NONE: Mapping[Key, _Record] = {}
REMEMBERED = 1000
"""Names without a Lease: they are read from labels, which any user may write."""

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class Confirmed(Enum):
    """Why a process is known to have ended."""

    KUBELET = "kubelet"
    WAITED = "waited"
    """It is not known; the ring does not want to wait any longer."""
    OPERATOR = "operator"


def longest_wait(text: str) -> float | None:
    """The seconds of a ring's annotation: infinite for `true`, None if the ring does not ask for strict hand-over.
    Raises ValueError.
    """
    if text in ("", "false"):
        return None
    if text == "true":
        return math.inf
    if (found := re.fullmatch(r"([1-9][0-9]{0,8})([smh])", text)) is None:
        raise ValueError(f"{text!r} is neither true nor a duration such as 30m")
    return int(found[1]) * _SECONDS[found[2]]


def confirmation(lease: Lease, by: Confirmed) -> str:
    """The annotation that confirms that the process has ended from which a sharder took the Lease."""
    return f"{lease.spec.lease_transitions or 0}/{by.value}"


class Confirmations:
    """Of one ring. `longest`: for how many seconds objects wait at most."""

    def __init__(self, longest: float) -> None:
        self.longest = longest
        self._absent: dict[str, float] = {}
        """Since when names are known to have no Lease."""

    def has_ended(self, shard: str, leases: Collection[Lease], now: float) -> bool:
        """Whether objects may be taken from a shard. `leases`: all of its name, also those that were deleted while they
        were held.
        """
        if leases:
            self._absent.pop(shard, None)
            return all(map(is_confirmed, leases))
        if shard not in self._absent and len(self._absent) >= REMEMBERED:
            del self._absent[next(iter(self._absent))]
        return now - self._absent.setdefault(shard, now) >= self.longest

    def there(self, shard: str) -> None:
        """There is a Lease of this name: nobody may ask about it until that is gone again."""
        self._absent.pop(shard, None)

    def over(self, shard: Shard) -> bool:
        """Whether a shard whose Lease was taken is not waited for any longer."""
        return shard.times.duration - shard.times.to_expired >= self.longest
