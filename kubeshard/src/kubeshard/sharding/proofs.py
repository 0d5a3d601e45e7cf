"""Proofs that a shard is dead, before objects are taken from it by force: a question goes in, commands come out.

| its Leases, by a consistent read that began after the caller had read the object | a proof |
|---|---|
| one is held by the shard, according to this read or to anything seen since | no |
| one was deleted while it was held, and its tombstone is not settled (`lease_machine`) | no |
| the ring wants a confirmation of the shard's end, and there is none (`shard_states`) | no |
| none was seen, since times began anew | only if a second read `ABSENT_FOR` seconds later shows none: a live shard \
re-creates its Lease |
| else | yes, for `STANDS_FOR` seconds from the start of the read, as long as nothing contradicts it |

Concurrent questions share one read. The evidence for each answer is told, again only after a change.

Whoever drives it knows no rule: it carries out the `steps` of a proof that is new, feeds the `ShardStates` with what is
read before it goes on, and says when the request is sent (`began`), and if the steps could not be carried out
(`failed`). No event loop is needed, and no time passes but that of the clock.

Not guaranteed: that the shard stays dead. `docs/design/taking-from-the-dead.md` explains why that is safe.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubeshard.core.builtin import Lease
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.notices import Notices
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.shard_states import ShardStates

SHARED_FOR = 2.0
"""Seconds from its start for which a read is shared with further callers."""
STANDS_FOR = 5.0
"""Seconds from its start for which a read is a valid proof; also its deadline."""
REMEMBERED = 1000
"""Names of shards: they are read from labels, which any user may write."""
ABSENT_FOR = 4.0
"""Seconds between the two reads of an unknown Lease: longer than a shard needs to notice at its next renewal that
its Lease was deleted, and to re-create it.
"""


@dataclass(frozen=True, slots=True)
class ReadLeases:
    """Read all Leases of the shard, within `STANDS_FOR` seconds. The outcome is these."""


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Tell:
    """What was found out, from which Leases."""

    dead: bool
    leases: Sequence[Lease]


Command = ReadLeases | Pause | Tell


@dataclass(slots=True)
class _Known:
    """What is known of the shards of one ring."""

    proofs: dict[str, DeathProof] = field(default_factory=dict)
    """The recent ones."""
    absent: set[str] = field(default_factory=set)
    """Shards that are known to have no Lease."""
    absent_since: float = -math.inf
    """The `ShardStates.since` that was known with."""
    notices: Notices = field(default_factory=lambda: Notices(most=REMEMBERED))
    """Of shards; told again only after a change."""


class Proofs:
    """See the module. For all rings, for one term."""

    def __init__(self, states: ShardStates, clock: Clock) -> None:
        self.states = states
        self.clock = clock
        self._rings = defaultdict[str, _Known](_Known)

    def asked(self, ring: Ring, shard: str, since: float) -> DeathProof:
        """Whether objects read before `since` (monotonic) may be taken from the shard: says the proof, once its steps
        are carried out. It may be one that others have asked for.
        """
        known, now = self._rings[ring.name], self.clock.monotonic()
        proof = known.proofs.get(shard)
        if proof is None or not proof.answers(since, now):
            known.proofs = {name: each for name, each in known.proofs.items() if not each.over(now)}
            proof = known.proofs[shard] = DeathProof(self, known, ring, shard, proof)
        return proof

    def forget(self, ring: str) -> Collection[DeathProof]:
        """The ring was deleted, or this process lost leadership. Returns proofs that nobody needs any longer."""
        return self._rings.pop(ring).proofs.values() if ring in self._rings else ()


class DeathProof:
    """One read of a shard's Leases, or two. `before`: the one that has to end first."""

    def __init__(self, of: Proofs, known: _Known, ring: Ring, shard: str, before: DeathProof | None) -> None:
        self.ring = ring
        self.shard = shard
        self.before = before
        self.began = math.inf
        """When its request was sent."""
        self.failed = False
        self._of = of
        self._known = known
        self._held = False
        """Whether it showed a Lease held by the shard."""

    def steps(self) -> Generator[Command, Any, None]:
        self.before = None
        states, ring, shard, absent = self._of.states, self.ring.name, self.shard, self._known.absent
        leases: list[Lease] = yield ReadLeases()
        if self._known.absent_since != states.since:
            absent.clear()
            self._known.absent_since = states.since
        if leases or states.leases_of(ring, shard):
            absent.discard(shard)
        elif shard not in absent or not states.sees(self._of.clock.monotonic()):
            self.began = math.inf
            yield Pause(ABSENT_FOR)
            leases = yield ReadLeases()
            if not leases:
                if len(absent) >= REMEMBERED:
                    absent.clear()
                absent.add(shard)
        self._held = states.held(ring, shard, leases)
        dead, versions = self.dead, [lease.metadata.resource_version for lease in leases]
        if self._known.notices.due(shard, (dead, *versions)):
            yield Tell(dead, leases)

    @property
    def dead(self) -> bool:
        """Also uses the read itself: states with newer versions, from before a restore, ignore it."""
        if self._held or self._of.states.may_live(self.ring.name, self.shard, self._of.clock.monotonic()):
            return False
        return self.ring.has_ended(self.shard)

    def stands(self) -> bool:
        """Whether it is still valid."""
        return self._of.clock.monotonic() - self.began <= STANDS_FOR and self.dead

    def answers(self, since: float, now: float) -> bool:
        return self.began >= since and now - self.began <= SHARED_FOR and not self.failed

    def over(self, now: float) -> bool:
        return now - self.began > STANDS_FOR or self.failed
