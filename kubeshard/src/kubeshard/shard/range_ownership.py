"""Which buckets of a ring this shard owns, and what it has to do about each: a machine without I/O.

| state | seen in the assignment | next |
|---|---|---|
| FOREIGN | this shard as the owner, at a greater epoch than any before | ACQUIRING: `Read` |
| FOREIGN | this shard as the owner of what it is asked to hand over | DRAINING: `Drain` |
| ACQUIRING | (all kinds have been listed since it began: `listed`) | OWNED |
| ACQUIRING, OWNED | a target | DRAINING: `Drain` |
| DRAINING | another target | DRAINING |
| DRAINING | (nothing acts for the bucket any more: `idle`) | LEAVING: `Acknowledge` |
| DRAINING, LEAVING | no target any more | ACQUIRING: `Read` |
| LEAVING | another owner, at a greater epoch | FOREIGN: `Released`, `Read` |
| ACQUIRING, OWNED, DRAINING | another owner, at a greater epoch | FOREIGN: `Stop`, `Read`, `Tell` |
| any but FOREIGN | an owner at a lower epoch, or another one at the same | stays: `Tell` |
| DRAINING | nothing: the object is deleted or unreadable | ACQUIRING: `Read`, `Tell` |
| any other | nothing: the object is deleted or unreadable | stays: `Tell` |

The trap is the acknowledgement whose answer is lost. It may have given the bucket away, or may do so at any later time.
So a bucket that is LEAVING is run no more until the assignment shows what became of it: either another owner; or this
shard without a target at a greater epoch, which also means that the acknowledgement, which tests the former text, can
never take effect. If somebody puts that text back, it can, and a watch that is late hides that. So a read has to
confirm it (below).

The other trap is the cache. What it has of a bucket may be older than the acquisition, even if it has the bucket only
since it was owned before. So each acquisition is a term, and counts as listed only when lists that were requested in
that term have arrived; what the cache still has from a former term has to leave it first. Not all kinds need to have
been listed: a kind whose conversion webhook fails, say, holds up the runs that read it, and no others.

The third trap is a watch that is late. It shows what an edit or a restore gave to this shard and what has been undone
since, so that others work on it. So nothing is taken over, and nothing is said to be this shard's, before a read has
confirmed it (`confirm`). And it shows an edit of what this shard has, at an epoch that is no news, long after others
have got it at a greater one. So whatever is not by the rules is looked at again (`Tell.doubtful`).

Guaranteed, while the assignment is changed as it says (`kubeshard.sharding.assignment`) and seen in order: of all
shards that hold their Leases, at most one runs objects of a bucket; a run starts only after a read has confirmed its
term, and all kinds that it reads have been listed in it; whatever is asked for is acknowledged once nothing acts for
it. Not guaranteed: anything before `seen` is called with what was read after the Lease was acquired, agrees with what
other shards say (`members.doubts`), and was written to reclaim what names this shard.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from kubeshard.core.kinds import GroupKind
from kubeshard.sharding.assignment import Assignment, Place, Report
from kubeshard.sharding.buckets import Buckets, runs_of


class State(Enum):
    """See the module."""

    FOREIGN = auto()
    ACQUIRING = auto()
    OWNED = auto()
    DRAINING = auto()
    LEAVING = auto()


class Read(NamedTuple):
    """The caches should have exactly these buckets, each as listed in its term."""

    terms: Mapping[int, int]


class Drain(NamedTuple):
    """No further run of these buckets starts; say `idle` when nothing acts for them."""

    buckets: frozenset[int]


class Acknowledge(NamedTuple):
    """Hand these buckets to their targets, again and again until the assignment shows what became of them."""

    buckets: frozenset[int]


class Released(NamedTuple):
    """These were handed over as asked: each was in a `Drain` since this shard was given it."""

    buckets: frozenset[int]


class Stop(NamedTuple):
    """Cancel what runs for these buckets: they are another shard's."""

    buckets: frozenset[int]


class Tell(NamedTuple):
    """Something is not as it should be. `doubtful`: unless that has changed meanwhile, and the watch is late."""

    problem: str
    doubtful: bool = False


Command = Read | Drain | Acknowledge | Released | Stop | Tell


@dataclass(slots=True)
class _Held:
    state: State
    epoch: int
    term: int
    idle: bool = False
    listed: frozenset[GroupKind] | None = None
    """The kinds that have been listed in this term, while it is ACQUIRING; None until it is known what caches have."""
    confirmed: bool = False
    """Whether it was ours at some time since it was heard of, or since it was acknowledged last."""


class RangeOwnership:
    """Of one process of one shard. Each event returns what has to be done about it."""

    def __init__(self, shard: str, buckets: Buckets) -> None:
        self.buckets = buckets
        self._shard = shard
        self._held: dict[int, _Held] = {}
        """All buckets that are not FOREIGN."""
        self._epochs = [-1] * buckets.count
        """The greatest epoch that was seen with each."""
        self._older: Collection[int] = ()
        """The buckets of which the assignment says what is older than what was seen before."""
        self._seen = 0
        self._terms = itertools.count(1)

    # Events

    def seen(self, assignment: Assignment) -> list[Command]:
        """What the object says, at the beginning and after each change of it."""
        if assignment.buckets != self.buckets:
            its, ours = assignment.buckets, self.buckets
            return self.unreadable(
                f"it divides objects into {its.count} buckets by {its.by}, and this program divides them into "
                f"{ours.count} by {ours.by}"
            )
        before = self.terms
        drain, released, taken, older = set[int](), set[int](), set[int](), set[int]()
        for bucket, place in enumerate(assignment.places):
            held, last = self._held.get(bucket), self._epochs[bucket]
            if held is not None:
                if place.denies(self._shard, held.epoch):
                    older.add(bucket)
                elif place.owner != self._shard:
                    del self._held[bucket]
                    (released if held.state is State.LEAVING else taken).add(bucket)
                elif self._still_ours(held, place):
                    drain.add(bucket)
            elif place.owner == self._shard and place.epoch > last:
                state = State.DRAINING if place.target else State.ACQUIRING
                self._held[bucket] = _Held(state, place.epoch, next(self._terms))
                if place.target:
                    drain.add(bucket)
            self._epochs[bucket] = max(last, place.epoch)
        self._older = older
        self._seen = max(self._seen, assignment.epoch)
        commands: list[Command] = [Released(frozenset(released))] if released else []
        if taken:
            commands.append(Stop(frozenset(taken)))
            commands.append(Tell(f"{self._named(taken)} were given to others without this shard's consent"))
        if older:
            commands.append(
                Tell(
                    f"it says of {self._named(older)} what is older than what this shard has seen: it was edited or "
                    "restored",
                    doubtful=True,
                )
            )
        return [*commands, *self._changed(before, drain)]

    def confirm(
        self, terms: Mapping[int, int], assignment: Assignment, *, late: bool = False
    ) -> list[Command]:
        """A read that was sent after these terms began says this. What it gives to others has not been ours: it is
        forgotten, and is news if it is given to us again. `late`: something newer was heard since, so it may be what
        had not been given to us yet, or what an edit has taken since.
        """
        before = self.terms
        for bucket, term in terms.items() if assignment.buckets == self.buckets else ():
            if (held := self._held.get(bucket)) is None or held.term != term or held.confirmed:
                continue
            if assignment.places[bucket].owner == self._shard:
                held.confirmed = not (late and bucket in self._older)
            elif not late:
                del self._held[bucket]
                self._epochs[bucket] = held.epoch - 1
        return self._changed(before, ())

    def unreadable(self, why: str) -> list[Command]:
        """The object is deleted, or does not say where all buckets are."""
        before = self.terms
        for held in self._held.values():
            if held.state is State.DRAINING:
                self._begin_again(held)
        return [Tell(why), *self._changed(before, ())]

    def listed(self, terms: Mapping[int, int], kinds: frozenset[GroupKind] | None = None) -> None:
        """These kinds of these buckets, or all of them, have been listed; the requests for that were made in these
        terms. No cache has anything of an earlier term. Of what is not confirmed yet that says nothing.
        """
        for bucket, term in terms.items():
            held = self._held.get(bucket)
            if held is not None and held.term == term and held.state is State.ACQUIRING and held.confirmed:
                if kinds is None:
                    held.state = State.OWNED
                else:
                    held.listed = kinds | (held.listed or frozenset())

    def idle(self, buckets: Iterable[int]) -> list[Command]:
        """Nothing acts for these buckets. They are acknowledged together with all others that are drained."""
        for bucket in buckets:
            if (held := self._held.get(bucket)) is not None:
                held.idle = held.state is State.DRAINING
        return self.overdue() if all(self._held[bucket].idle for bucket in self.draining) else []

    def overdue(self) -> list[Command]:
        """What is idle is acknowledged now, although other buckets are not."""
        leaving = frozenset(bucket for bucket in self.draining if self._held[bucket].idle)
        for bucket in leaving:
            self._held[bucket].state = State.LEAVING
        return [Acknowledge(leaving)] if leaving else []

    # Questions

    def state(self, bucket: int) -> State:
        held = self._held.get(bucket)
        return State.FOREIGN if held is None else held.state

    def term(self, bucket: int, reads: Set[GroupKind] | None = None) -> int | None:
        """The term for a run that starts now, and reads these kinds only, or any; None: none may start."""
        held = self._held.get(bucket)
        if held is None:
            return None
        if held.state is State.ACQUIRING and reads is not None and held.listed is not None:
            return held.term if reads <= held.listed else None
        return held.term if held.state is State.OWNED else None

    def awaited(self, bucket: int) -> int | None:
        """The term whose lists a run has to wait for; None: no lists will make it start."""
        held = self._held.get(bucket)
        return held.term if held is not None and held.state is State.ACQUIRING else None

    def may_write(self, bucket: int, term: int | None = None) -> bool:
        """Whether a run that started in this term, or in the present one, may still write; and whatever else writes to
        the bucket. Not before a read has confirmed it. And not once it is idle, even if its acknowledgement waits for
        others: nobody waits for such a write.
        """
        held = self._held.get(bucket)
        if held is None or held.idle or not held.confirmed or held.state is State.LEAVING:
            return False
        if held.state is State.ACQUIRING and held.listed is None:
            return False
        return term is None or held.term == term

    @property
    def terms(self) -> dict[int, int]:
        """The present terms of all buckets that the caches should have."""
        return {bucket: held.term for bucket, held in self._held.items()}

    @property
    def confirmed(self) -> dict[int, int]:
        """Those of them that a read has confirmed."""
        return {bucket: held.term for bucket, held in self._held.items() if held.confirmed}

    @property
    def unconfirmed(self) -> dict[int, int]:
        """The terms of what the assignment was heard to give us, and nothing has confirmed yet."""
        return {bucket: held.term for bucket, held in self._held.items() if not held.confirmed}

    @property
    def states(self) -> Counter[State]:
        """How many buckets are in which state; none is counted as FOREIGN."""
        states = [held.state for held in self._held.values()]
        return Counter({each: n for each in State if (n := states.count(each))})  # their hash is a call

    @property
    def summary(self) -> str:
        """The same in words."""
        held = [f"{count} {state.name.lower()}" for state, count in self.states.items()]
        return f"of {self.buckets.count} buckets, {', '.join(held) or 'none'}"

    @property
    def draining(self) -> frozenset[int]:
        return self._in(State.DRAINING)

    @property
    def leaving(self) -> frozenset[int]:
        """Those for which acknowledgements are sent: not of what an edit or a restore has put there, where its epoch
        would be no news to anybody.
        """
        return self._in(State.LEAVING).difference(self._older)

    @property
    def report(self) -> Report:
        """For the shard's Lease."""
        return Report({b: held.epoch for b, held in self._held.items() if held.confirmed}, self._seen)

    def _in(self, state: State) -> frozenset[int]:
        return frozenset(bucket for bucket, held in self._held.items() if held.state is state)

    def _still_ours(self, held: _Held, place: Place) -> bool:
        """Takes over what the assignment says of a bucket of ours. Returns whether its drain begins."""
        held.epoch = place.epoch
        asked = held.state in (State.DRAINING, State.LEAVING)
        if place.target and not asked:
            held.state, held.idle = State.DRAINING, False
            return True
        if asked and not place.target:
            held.confirmed = held.confirmed and held.state is State.DRAINING
            self._begin_again(held)
        return False

    def _begin_again(self, held: _Held) -> None:
        held.state, held.idle, held.listed, held.term = State.ACQUIRING, False, None, next(self._terms)

    def _changed(self, before: Mapping[int, int], drain: Collection[int]) -> list[Command]:
        commands: list[Command] = [Drain(frozenset(drain))] if drain else []
        if (terms := self.terms) != before:
            commands.append(Read(terms))
        return commands

    def _named(self, buckets: Iterable[int]) -> str:
        return "buckets " + ", ".join(map(self.buckets.key, runs_of(buckets)))
