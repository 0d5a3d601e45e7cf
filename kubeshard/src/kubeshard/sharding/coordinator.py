"""Keeps the assignment of a ring that is sharded by ranges: what was seen and the time go in, commands come out.

Each bucket is decided about like an object that carries labels (`planner.place`), with the share that its shard is due
(`shares`) in place of the hash ring. All that is to be done at one time is one patch.

| the bucket's owner | its target | it should be at | written |
|---|---|---|---|
| none | | a shard | the shard as its owner, when no shard joins any more |
| not available, and proven dead (`Prove`) | any | a shard | the shard as its owner, at once |
| available, and works on nothing (`_work_on_nothing`) | any | a shard | the shard as its owner, at once |
| available | none | another one | the other one as its target, when no shard joins any more |
| available | another one | another one | that one as its target |
| available | some | its owner | no target |

| what is wrong with the object | |
|---|---|
| there is none | |
| it is unreadable | if it is not labelled, and nobody has seen an assignment, it is somebody else's: nothing is done |
| it divides objects differently | if nobody has seen another one, it is that of another program: nothing is done |
| shards say otherwise (`members.contradiction`) | it was edited or restored |
| this process has seen a bucket at a greater epoch, or elsewhere at the same | it was edited or restored |

If something is wrong in an answer to a read (`Look`) that was sent after the reports had arrived, nothing is moved. All
Leases are read (`ReadLeases`). A shard may have seen just before that it got a bucket, or see it only now, in a watch
that is late. So when every shard that may act has renewed its Lease `RENEWALS` times after that, and after any restore
of etcd meanwhile, the object is written anew from what all have said by then and this process has seen
(`members.claimed`), at an epoch that is greater than any (the time in seconds, if this process has seen none: all who
have may be gone). Nobody is waited for if there cannot have been an assignment: there is no object, no shard has seen
one, and nobody has led before. That no shard says so is not enough: it may have got something a moment ago.

Who keeps editing it is not fought: the third time, it is said (`contested`), and from then on the object is written
anew every `REWRITE` seconds at most (`kubeshard.runtime.repairs`). That is less rare than with other things that are
put right, since nothing moves meanwhile, also not what dead shards had.

Whoever drives the machine knows no rule:

    steps = machine.tend()                   # at `wake_at`, and when something was seen: a generator
    command = next(steps)                    # that yields a command,
    command = steps.send(outcome)            # and is sent what became of it, or thrown the error of the API server

It calls `seen` with every answer before it goes on, and tends once at a time.

A process may have the name of a shard, and never work on what is that shard's: it takes objects by labels, divides them
differently, or may not read the assignment. While it lives, nobody else gets its Lease. So what it says counts, if it
has said so since.

Guaranteed: a bucket is taken only from a shard that was proven to hold no Lease after the bucket was seen there, or has
said after that that it works on nothing, by a patch that fails if the shard has begun again since; every other change
needs the owner. Shards that join within `SETTLE` seconds of each other are one change. Not guaranteed: that an edit at
a greater epoch than the bucket's owner has seen is noticed: it looks like a change by the rules, and the owner works on
until it sees it; that nobody works on a bucket twice after an edit within a renewal after it has changed hands, if the
shard that it names takes over just then; that an edit is undone if the shard that it names, or a coordinator, begins
before anybody looks, and no process of the former owner lives that has seen the bucket: nobody works on it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

from kubeshard.core.errors import AlreadyExists, ApiError, Invalid, NotFound, PatchTestFailed
from kubeshard.core.patches import JsonPatch, add, test
from kubeshard.core.versions import precedes
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.repairs import Repairs
from kubeshard.sharding.assignment import Assignment, Group, Place, Unreadable
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.members import (
    RENEWALS,
    RingMember,
    by_labels_only,
    claimed,
    contradiction,
    kinds_of,
    named_idle,
    pins_of,
    renewals,
    unable_of,
    used_by,
    weights_of,
)
from kubeshard.sharding.planner import Action, place
from kubeshard.sharding.shares import due

SETTLE, LONGEST_SETTLE = 0.5, 3.0
"""Seconds without another shard that joins, and at most, before shards that join are given something."""
UNPROVEN = 2.0
"""Seconds until it is asked again whether a shard has ended."""
UNSEEN = 30.0
"""Seconds until the object is read again, if no event shows what a request was answered. A watch that was cut never
shows an object that was deleted before it was listed."""
UNCLAIMED = 10.0
"""Seconds until a shard is told again that it owns what it does not say that it owns."""
LOOKED = 1.0
"""Seconds for which a read says who has not handed over what. A watch that is late says nothing of it."""
REWRITE = 20.0
"""Seconds from one time that the object is written anew to the next, if somebody keeps changing it."""
RETRY_FIRST, RETRY_LAST = 0.5, 10.0
"""Seconds until a refused request is tried again, doubled each time."""


class Membership(Protocol):
    """The Leases, as seen by this process."""

    @property
    def fresh(self) -> bool:
        """Whether that can be up to date."""
        ...

    def members(self, buckets: Buckets) -> Collection[RingMember]: ...

    @property
    def kinds(self) -> frozenset[str]:
        """The main resources of the ring, as this process knows it."""
        ...


@dataclass(frozen=True, slots=True)
class Look:
    """Read the object from the API server."""


@dataclass(frozen=True, slots=True)
class ReadLeases:
    """Read all Leases from the API server."""


@dataclass(frozen=True, slots=True)
class Prove:
    """Which of these shards hold no Lease, by a read that is sent now? The outcome is these."""

    shards: frozenset[str]


@dataclass(frozen=True, slots=True)
class Create:
    """The object, with this data."""

    data: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """The object, by this patch. `reason` says why, `moved` how many buckets it is about: how many of them are `given`
    to a shard, and of how many a shard is `asked` to hand them over.
    """

    patch: JsonPatch
    reason: str
    moved: int = 0
    given: int = 0
    asked: int = 0


_OBJECT = "the assignment"

Command = Look | ReadLeases | Prove | Create | Change
Steps = Generator[Command, Any, None]


class _Renewing(NamedTuple):
    """A shard that is believed once it has renewed its Lease `RENEWALS` times, all after any restore of etcd, which has
    its Lease say again what it said before.
    """

    renewed: str
    times: int = 0

    @property
    def believed(self) -> bool:
        return self.times >= RENEWALS

    def seen(self, renewed: str) -> _Renewing:
        if renewed < self.renewed:
            return _Renewing(renewed)
        return _Renewing(renewed, self.times + (renewed != self.renewed))


class _Move(NamedTuple):
    owner: str
    target: str
    urgent: bool
    taken_from: str
    """The shard that has to be dead for it; "" if none."""


class Coordinator:
    """Of one ring, for one term of whoever leads. `first`: nobody has led before."""

    def __init__(self, buckets: Buckets, membership: Membership, clock: Clock, *, first: bool) -> None:
        self.buckets = buckets
        self.problem = ""
        """What people should know; "" if there is nothing."""
        self.note = ""
        """What people should know besides: something moves, but not everything."""
        self.unable = False
        """Whether the problem is with this process: another one, with other rights or settings, may have none."""
        self.wake_at = -math.inf
        """When to tend it, if nothing is seen before."""
        self._membership = membership
        self._clock = clock
        self._version: str | None = None
        """Of the object as it was seen last; "" if there is none, None if that is not known."""
        self._newest = self._newest_asked = ""
        """The newest version that was seen, of the object or of its deletion: by now, and by the last command."""
        self._assignment: Assignment | None = None
        self._unreadable = ""
        """Why there is no assignment."""
        self._labelled = True
        """Whether the object has the label of the ring, or can be read."""
        self.asked: dict[int, tuple[str, float]] = {}
        """The buckets that are to be handed over: who is asked for each, and since when, as seen here. Empty while the
        object is wrong: shards do not hand over what an edit or a restore has put there.
        """
        self._looked = -math.inf
        """When the object was read last."""
        self._first = first
        self._outdated = True
        """Whether the object has to be read before anything is decided."""
        self._shown = ""
        """The version that the last event had."""
        self._unseen = math.inf
        """When it has to be read again, if no event shows it as the last answer did."""
        self._since: dict[str, float] = {}
        """When shards were first seen that have joined, and are not in the assignment yet."""
        self._sound: Assignment | None = None
        """The last one with which nothing was wrong."""
        self._renewing: Mapping[str, _Renewing] | None = None
        """The shards that acted when the object was found to be wrong; None: nothing is wrong."""
        self._unclaimed: dict[tuple[int, Place], tuple[float, str]] = {}
        """Since when, and since which renewal, the owners of buckets do not say that they own them."""
        self._idle: dict[str, tuple[tuple[Group, ...], _Renewing]] = {}
        """The shards that say that they work on nothing, with the groups that name them."""
        self._failures = 0
        self._retry_at = -math.inf
        self._repairs = Repairs(clock, every=REWRITE)
        """Of the object."""

    @property
    def contested(self) -> str:
        """That somebody else keeps changing the object, for people; "" if nobody does."""
        if not self._repairs.contested(_OBJECT):
            return ""
        return (
            "somebody else keeps changing the assignment (`kubectl get configmap --show-managed-fields` says who), "
            f"which is written anew every {REWRITE:g} s at most"
        )

    @property
    def assignment(self) -> Assignment | None:
        """As it was seen last; None if there is none."""
        return self._assignment

    @property
    def awaits_renewals(self) -> bool:
        """Whether each renewal of a Lease is news."""
        return bool(self._renewing or self._idle)

    # Events

    def seen(
        self, version: str, data: Mapping[str, object] | None, *, read: bool = False, labelled: bool = True
    ) -> None:
        """What the object is at this version; None: it is not there. `read`: that is the answer to a command, not an
        event, which may come late. `labelled`: it has the label of the ring.
        """
        if not read:
            self._shown = version
        if self._newest and (read if not version else precedes(version, self._newest)):
            if not read:
                self._outdated = True  # or it was restored
                return
            if self._newest != self._newest_asked:
                return  # an event was faster than the answer
            self.asked = {}  # etcd was restored, and nobody may have been asked meanwhile
        self._newest = version or self._newest
        if read:
            self._looked = self._clock.monotonic()
        shown = data is None or version == self._shown
        self._unseen = math.inf if shown else self._clock.monotonic() + UNSEEN
        if version == self._version and data is not None:
            return
        self._version = "" if data is None else version
        self._outdated = self._outdated and read  # an event may have given a reason after the read was sent
        self._assignment, self._labelled = None, True
        self._unreadable = "it was deleted, or there has never been one"
        if data is not None:
            try:
                self._assignment = Assignment.parse(data)
            except Unreadable as error:
                self._unreadable, self._labelled = str(error), labelled

    # Questions

    def overdue(self, timeout: float) -> list[tuple[int, str]]:
        """The buckets that were not handed over this many seconds after their shards were asked, and these shards. It
        has to be tended before, whenever it is not known from a read that this is so: none then.
        """
        now = self._clock.monotonic()
        late = [(bucket, shard) for bucket, (shard, since) in self.asked.items() if now - since >= timeout]
        if late and now - self._looked > LOOKED:
            self._outdated, self.wake_at = True, max(now, self._retry_at)
            return []
        return late

    # What to do

    def tend(self) -> Steps:
        """Once. Errors of the API server are taken note of, and tried again."""
        self.wake_at = self._retry_at
        if self._retry_at > self._clock.monotonic():
            return
        self.wake_at = math.inf
        before = self._version
        try:
            yield from self._tend()
        except (PatchTestFailed, NotFound, AlreadyExists) as error:
            # Somebody was faster, unless it is the same when it is looked at again.
            self._outdated = True
            self._fail(str(error), soon=self._failures == 0 or self._version != before)
        except Invalid as error:  # it is immutable, say: whoever leads could not write it
            self._outdated = True
            self._fail(f"{error}. Delete it, and it is written anew from what the shards say", unable=False)
        except (ApiError, TimeoutError) as error:
            self._outdated = True
            self._fail(str(error))
        else:
            self._failures = 0
            self.wake_at = min(self.wake_at, self._unseen)

    def _fail(self, why: str, *, soon: bool = False, unable: bool = True) -> None:
        if self._failures and not soon:
            self.problem = f"the API server refuses what the coordinator asks for: {why}"
            self.unable = self.unable or unable
        wait = 0.0 if soon else min(RETRY_FIRST * 2**self._failures, RETRY_LAST)
        self._failures = min(self._failures + 1, 10)
        self.wake_at = self._retry_at = self._clock.monotonic() + wait

    def _tend(self) -> Steps:
        if not self._membership.fresh:
            yield ReadLeases()
        self._outdated = self._outdated or self._clock.monotonic() >= self._unseen
        members = self._membership.members(self.buckets)
        wrong = self._wrong(members)
        if self._outdated or (wrong and self._renewing is None):
            yield from self._look()
            wrong = self._wrong(members)
        assignment, ours = self._assignment, self._is_ours(members)
        differs = self._divides(assignment)
        self.unable, self.note = bool(differs) and not ours, ""
        if self.unable:
            self.problem = (
                f"{differs}: nothing is moved. A ring keeps its buckets for life: let another one replace it "
                "(`Sharding(replaces=)`), or delete the ConfigMap if it was edited"
            )
        elif not (self._labelled or ours):
            self.problem = (
                f"{self._unreadable}. It may be somebody else's object: it has not the label of the ring, and no shard "
                "has seen an assignment. So it is left alone: delete it, or give the ring another name"
            )
        elif wrong:
            self.asked = {}
            yield from self._write_anew(wrong)
        else:
            assert assignment is not None
            self._note_asked(assignment)
            self.problem, self._renewing, self._sound = "", None, assignment
            yield from self._move(assignment, members)

    def _look(self) -> Steps:
        self._outdated = False
        yield from self._ask(Look())

    def _ask(self, command: Look | Create | Change) -> Steps:
        """What is answered with the object."""
        self._newest_asked = self._newest
        yield command

    def _note_asked(self, assignment: Assignment) -> None:
        """The same shard may have handed a bucket over and got it back, while nothing was heard of the object. Not if
        it was in its place before anything else was written, which has a greater epoch.
        """
        now, last = self._clock.monotonic(), self._sound.epoch if self._sound else 0
        self.asked = {
            bucket: (owner, since if owner == before and epoch <= last + 1 else now)
            for bucket, (owner, target, epoch) in enumerate(assignment.places)
            if target
            for before, since in (self.asked.get(bucket, ("", now)),)
        }

    # Writing it anew

    def _is_ours(self, members: Iterable[RingMember]) -> bool:
        """Whether there has been an assignment that divides objects as this program does."""
        return self._sound is not None or any(m.report and m.report.seen for m in members)

    def _divides(self, assignment: Assignment | None) -> str:
        """How else it divides objects than this program does; "" if it does not."""
        if assignment is None or assignment.buckets == self.buckets:
            return ""
        return (
            f"it divides objects into {assignment.buckets.count} buckets by {assignment.buckets.by}, and this program "
            f"divides them into {self.buckets.count} by {self.buckets.by}"
        )

    def _wrong(self, members: Collection[RingMember]) -> str:
        """What is wrong with the object, according to these reports; "" if nothing is."""
        assignment = self._assignment
        if assignment is None:
            return self._unreadable or "it was not read yet"
        if differs := self._divides(assignment):
            return f"{differs}: it was edited" if self._is_ours(members) else ""
        if said := contradiction(assignment, members):
            return said
        before = self._sound.places if self._sound is not None else assignment.places
        for bucket, (last, now) in enumerate(zip(before, assignment.places, strict=True)):
            if now != last and now.epoch <= last.epoch:
                run = assignment.buckets.key(assignment.run_of(bucket))
                return f"{run} says {now}, but some of it was {last} before: it was edited or restored"
        return ""

    def _write_anew(self, wrong: str) -> Steps:
        at_once = self._renewing is None
        if self._renewing is None:
            yield ReadLeases()
            members = self._membership.members(self.buckets)
            ever = self._ever or any(m.report and m.report.seen for m in members)
            acting = renewals(members) if ever else {}
            self._renewing = {shard: _Renewing(renewed) for shard, renewed in acting.items()}
        if not self._all_renewed():
            self.problem = f"{wrong}. It is written anew when all shards have said what they own"
            if self.contested:
                self.problem = ""  # that is enough: what is wrong may be something else each time
            return
        if wait := self._repairs.wait(_OBJECT):
            self.problem, self.wake_at = "", self._clock.monotonic() + wait
            return
        yield from self._look()  # before the reports are read: what has been taken since is in neither
        looked = self._version
        if not at_once:
            yield ReadLeases()
        members = self._membership.members(self.buckets)
        changed = self._version != looked or self._outdated
        if changed or not self._all_renewed() or not self._wrong(members):
            self.wake_at = self._clock.monotonic()
            return
        forgotten = self._sound is None  # what those have who do not say it legibly
        unknown = (m.shard for m in members if m.available and (m.differs or (forgotten and m.illegible)))
        if waits := ", ".join(sorted(unknown)):
            self.problem = (
                f"{wrong}. It is not written anew before {waits} has ended, whose program divides objects differently, "
                "or does not say legibly what it has, and may go on with that"
            )
            return
        data, repair = self._from_claims(members).data(), self._ever
        if self._version:
            version = test("/metadata/resourceVersion", self._version)
            yield from self._ask(Change(JsonPatch([version, add("/data", data)]), wrong))
        else:
            yield from self._ask(Create(data))
        if repair:
            self._repairs.repaired(_OBJECT)
        self._renewing = None
        self.wake_at = self._clock.monotonic()

    @property
    def _ever(self) -> bool:
        """Whether there may have been an assignment: an object that is unreadable was one."""
        return not self._first or self._sound is not None or bool(self._version)

    def _all_renewed(self) -> bool:
        """Whether all shards that may act, and did so before, have renewed their Leases often enough."""
        acting = renewals(self._membership.members(self.buckets))
        before = (self._renewing or {}).items()
        self._renewing = {shard: each.seen(acting.get(shard, each.renewed)) for shard, each in before}
        return all(each.believed for shard, each in self._renewing.items() if shard in acting)

    def _from_claims(self, members: Collection[RingMember]) -> Assignment:
        forgotten = self._sound is None and self._ever  # all who knew it may have ended
        least, now = int(self._clock.wall()) if forgotten else 0, self._assignment
        if now is not None and self._divides(now):
            least, now = max(least, now.epoch), None
        heard = {shard for shard, each in (self._renewing or {}).items() if each.believed}
        return claimed(self.buckets, members, now, self._sound, heard=heard, greatest=least)

    # Moving

    def _move(self, assignment: Assignment, members: Collection[RingMember]) -> Steps:
        if not self._membership.fresh:
            self.wake_at = self._clock.monotonic() + RETRY_FIRST
            return
        members = self._membership.members(self.buckets)  # an answer may have been waited for
        if by_labels := by_labels_only(assignment, members):
            self.problem = (
                "nothing is given to shards by ranges before those that take objects by labels have ended: "
                f"{', '.join(by_labels)}"
            )
            return
        members, idle = yield from self._work_on_nothing(assignment, members)
        members = [each for each in members if each.shard not in idle]
        alive = frozenset(member.shard for member in members if member.available)
        kinds = kinds_of(assignment, members)
        weights, self.note = weights_of(assignment, members, kinds.strangers), kinds.problem
        if kinds.together and self._membership.kinds and not self._membership.kinds & kinds.together:
            self.unable, ours = True, ", ".join(sorted(self._membership.kinds))
            self.note = kinds.problem or f"the shards of the ring do not work on {ours}, as this program does"
        now, settled = self._clock.monotonic(), self._settled(assignment, weights)
        owners = due(
            assignment, weights, pins_of(members, weights), used_by(members), unable_of(members, weights)
        )
        moves = _moves(assignment, owners, weights, alive)
        if settled > now:
            if len(moves) > (urgent := sum(move.urgent for move in moves.values())):
                self.wake_at = settled
            moves = {bucket: move for bucket, move in moves.items() if move.urgent} if urgent else {}
        if dead := frozenset(move.taken_from for move in moves.values()) - {"", *idle}:
            version = self._version
            proven = yield Prove(dead)
            if self._version != version:  # they were asked about what was seen before
                self.wake_at = now
                return
            if proven != dead:
                self.wake_at = min(self.wake_at, now + UNPROVEN)
            believed = {"", *idle, *proven}
            moves = {bucket: move for bucket, move in moves.items() if move.taken_from in believed}
        moves = {**self._repeated(assignment, members), **moves}
        places = {bucket: (move.owner, move.target) for bucket, move in moves.items()}
        if moves and (patch := assignment.change(places, join=True)):
            if by_labels_only(assignment, self._membership.members(self.buckets)):  # seen meanwhile
                self.wake_at = now
                return
            each = [(assignment.places[bucket], move) for bucket, move in moves.items()]
            given = sum(move.owner != last.owner for last, move in each)
            asked = sum(move.target not in ("", last.target) for last, move in each)
            why = "shards have joined, left, or changed their weights"
            yield from self._ask(Change(patch, why, len(moves), given, asked))

    def _work_on_nothing(
        self, assignment: Assignment, members: Collection[RingMember]
    ) -> Generator[Command, Any, tuple[Collection[RingMember], frozenset[str]]]:
        """The shards that are named, live, and have said since that they work on nothing, beside the members as they
        are then.
        """
        groups = {
            shard: tuple(group for group in assignment.groups if shard in group.place[:2])
            for shard in named_idle(assignment, members)
        }
        self._idle = {shard: each for shard, each in self._idle.items() if each[0] == groups.get(shard)}
        if groups.keys() - self._idle.keys():
            yield ReadLeases()  # what a watch brings may have been said long before
            members = self._membership.members(self.buckets)
        for shard, renewed in named_idle(assignment, members).items():
            if shard in groups:
                _, last = self._idle.get(shard, ((), _Renewing(renewed)))
                self._idle[shard] = groups[shard], last.seen(renewed)
        return members, frozenset(shard for shard, (_, each) in self._idle.items() if each.believed)

    def _repeated(self, assignment: Assignment, members: Iterable[RingMember]) -> dict[int, _Move]:
        """What shards own, and do not say so: they may have seen it at a greater epoch, before it was edited."""
        now = self._clock.monotonic()
        missing = {
            (bucket, assignment.places[bucket]): member.renewed
            for member in members
            if member.available and member.report is not None
            for bucket in assignment.owned_by(member.shard) - member.report.epochs.keys()
        }
        self._unclaimed = {
            each: self._unclaimed.get(each, (now, renewed)) for each, renewed in missing.items()
        }
        waiting = [since for since, _ in self._unclaimed.values() if since + UNCLAIMED > now]
        self.wake_at = min(self.wake_at, *(since + UNCLAIMED for since in waiting), math.inf)
        return {
            bucket: _Move(last.owner, last.target, False, "")
            for (bucket, last), (since, renewed) in self._unclaimed.items()
            if now - since >= UNCLAIMED and missing[bucket, last] != renewed
        }

    def _settled(self, assignment: Assignment, weights: Mapping[str, Fraction]) -> float:
        """When no shard joins any more."""
        now = self._clock.monotonic()
        joined = {shard for shard, weight in weights.items() if weight} - assignment.shards
        self._since = {shard: self._since.get(shard, now) for shard in joined}
        since = self._since.values()
        return min(max(since) + SETTLE, min(since) + LONGEST_SETTLE) if since else -math.inf


def _moves(
    assignment: Assignment,
    owners: Sequence[str],
    weights: Mapping[str, Fraction],
    alive: Collection[str],
) -> dict[int, _Move]:
    """What is to be done about each bucket, if anything is, so that it gets to the one of `owners` that is due."""
    moves: dict[int, _Move] = {}
    for bucket, (now, shard) in enumerate(zip(assignment.places, owners, strict=True)):
        action = place(now.owner, shard, alive, asked=bool(now.target)).action
        lost = bool(now.target) and now.target not in alive
        match action:
            case Action.ASSIGN:
                moves[bucket] = _Move(shard, "", False, "")
            case Action.MOVE:
                moves[bucket] = _Move(shard, "", True, now.owner)
            case Action.DRAIN:
                moves[bucket] = _Move(now.owner, shard, not weights.get(now.owner, 0), "")
            case Action.WAIT if now.target != shard:
                moves[bucket] = _Move(now.owner, shard, lost, "")
            case Action.NOTHING if now.target and now.owner == shard:
                moves[bucket] = _Move(shard, "", lost, "")
    return moves
