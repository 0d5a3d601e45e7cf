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

The object may be deleted, edited, or restored from a backup, while shards go on with what they own. A coordinator that
believes it then gives buckets away that somebody works on. That an object is old is not written in it, but shards say
on their Leases what they own, and since which epoch (`assignment.Report`). They say so with their renewals, so what
they say is old, too, by a few seconds. A shard compares in the same way, before it believes what names it: when it
begins, and whenever it was given something (`doubts`).

| what is wrong | |
|---|---|
| there is no object | |
| it is unreadable | if it is not labelled, and nobody has seen an assignment, it is somebody else's: nothing is done |
| its greatest epoch is less than one that a shard has seen | it was restored |
| an owner has seen a greater epoch of a bucket; or another shard has it, at no smaller epoch | it was edited |
| this process has seen a bucket at a greater epoch, or elsewhere at the same | it was edited or restored |

If something is wrong in an answer to a read (`Look`) that was sent after the reports had arrived, nothing is moved. All
Leases are read (`ReadLeases`). A shard may have seen just before that it got a bucket, or see it only now, in a watch
that is late. So when every shard that may act has renewed its Lease `RENEWALS` times after that, the object is written
anew, at an epoch that is greater than any (the time in seconds, if this process has seen none: all who have may be
gone): each bucket to the available shard that says that it owns it; else to whoever owned it last, by what dead shards
have said and this process has seen; else to whom the object names. Nobody is waited for if there cannot have been an
assignment: there is no object, no shard has seen one, and nobody has led before. That no shard says so is not enough:
it may have got something a moment ago.

Who keeps editing it is not fought: the third time, it is said (`contested`), and from then on the object is written
anew every `REWRITE` seconds at most (`kubeshard.runtime.repairs`). That is less rare than with other things that are
put right, since nothing moves meanwhile, also not what dead shards had.

Whoever drives the machine knows no rule:

    steps = machine.tend()                   # at `wake_at`, and when something was seen: a generator
    command = next(steps)                    # that yields a command,
    command = steps.send(outcome)            # and is sent what became of it, or thrown the error of the API server

It calls `seen` with every answer before it goes on, and tends once at a time.

A ring begins with ranges when no shard acts any more that takes objects by labels, and one by labels does not begin
before all by ranges have ended (`label_delivery`): the two know nothing of each other.

A process may have the name of a shard, and never work on what is that shard's: it takes objects by labels, divides them
differently, or may not read the assignment. While it lives, nobody else gets its Lease. So what it says counts, if it
has said so since.

Two programs may have one ring by mistake. A bucket has objects of all kinds, so each would get objects that it does not
work on. Shards say which kinds these are (`names.KINDS_ANNOTATION`), and who has none in common with the others gets
nothing, and hands over what it has. A kind in common is enough: while a version is rolled out that adds or drops one,
some objects wait for a shard that knows their kind. Who "the others" are begins with who owns most. So when all shards
of a program are gone, those of another one get everything, and keep it.

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
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from kubeshard.core.builtin import Lease
from kubeshard.core.errors import AlreadyExists, ApiError, NotFound, PatchTestFailed
from kubeshard.core.patches import JsonPatch, add, test
from kubeshard.core.versions import precedes
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.repairs import Repairs
from kubeshard.sharding.assignment import (
    BY_LABELS,
    Assignment,
    DividedDifferently,
    Group,
    Place,
    Report,
    Unreadable,
    owns_some,
    takes_by_labels,
)
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.names import (
    CLUSTERS_ANNOTATION,
    KINDS_ANNOTATION,
    LEAVING_ANNOTATION,
    OWNED_RANGES_ANNOTATION,
    PINNED_ANNOTATION,
    UNREACHABLE_ANNOTATION,
    WEIGHT_ANNOTATION,
)
from kubeshard.sharding.planner import Action, place
from kubeshard.sharding.shares import divide, weight_of

SETTLE, LONGEST_SETTLE = 0.5, 3.0
"""Seconds without another shard that joins, and at most, before shards that join are given something."""
UNPROVEN = 2.0
"""Seconds until it is asked again whether a shard has ended."""
RENEWALS = 2
"""With the second one, a shard says what it has seen before the first."""
UNSEEN = 30.0
"""Seconds until the object is read again, if no event shows what a request was answered. A watch that was cut never
shows an object that was deleted before it was listed."""
UNCLAIMED = 10.0
"""Seconds until a shard is told again that it owns what it does not say that it owns."""
REWRITE = 20.0
"""Seconds from one time that the object is written anew to the next, if somebody keeps changing it."""
RETRY_FIRST, RETRY_LAST = 0.5, 10.0
"""Seconds until a refused request is tried again, doubled each time."""


class RingMember(NamedTuple):
    """A Lease of the ring."""

    shard: str
    available: bool
    weight: Fraction
    report: Report | None
    """None if it is not a shard by ranges, or has not read the assignment yet: it gets nothing."""
    renewed: str
    """Changes with each renewal."""
    by_labels: bool = False
    """Whether it takes objects by labels, and does not wait for the end of those that work by ranges."""
    differs: bool = False
    """Whether its program divides objects differently."""
    pinned: frozenset[int] = frozenset()
    """The buckets that it gets whatever its weight."""
    clusters: frozenset[str] = frozenset()
    """Those that its program has, in a ring by clusters, if it says their names."""
    used: frozenset[int] = frozenset()
    """Their buckets."""
    cannot: frozenset[int] = frozenset()
    """The buckets of those of them that it cannot reach."""
    idle: bool = False
    """Whether it says that it works on nothing, and has not read the assignment."""
    kinds: frozenset[str] = frozenset()
    """The resources that its program works on; empty if it does not say so."""
    silent: bool = False
    """Whether its Lease is due, so that its process does not act any more, although nobody has taken the Lease yet."""


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


class _Idle(NamedTuple):
    groups: tuple[Group, ...]
    renewed: str
    left: int
    """How often it has to renew its Lease until it is believed."""


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
        self._assignment: Assignment | None = None
        self._unreadable = ""
        """Why there is no assignment."""
        self._labelled = True
        """Whether the object has the label of the ring, or can be read."""
        self.asked: dict[int, tuple[str, float]] = {}
        """The buckets that are to be handed over: who is asked for each, and since when, as seen here. None while the
        object is wrong: shards do not hand over what an edit or a restore has put there.
        """
        self._first = first
        self._outdated = True
        """Whether the object has to be read before anything is decided."""
        self._unseen = math.inf
        """When it has to be read again, if no event shows it as the last answer did."""
        self._since: dict[str, float] = {}
        """When shards were first seen that have joined, and are not in the assignment yet."""
        self._sound: Assignment | None = None
        """The last one with which nothing was wrong."""
        self._renewals: int | None = None
        """How often shards have to renew their Leases before the object is written anew; None: nothing is wrong."""
        self._renewed: Mapping[str, str] = {}
        """The last renewals that do not count."""
        self._unclaimed: dict[tuple[int, Place], tuple[float, str]] = {}
        """Since when, and since which renewal, the owners of buckets do not say that they own them."""
        self._idle: dict[str, _Idle] = {}
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
        return bool(self._renewals or self._idle)

    # Events

    def seen(
        self, version: str, data: Mapping[str, object] | None, *, read: bool = False, labelled: bool = True
    ) -> None:
        """What the object is at this version; None: it is not there. `read`: that is the answer to a request, not an
        event, which may come late. `labelled`: it has the label of the ring.
        """
        if not read and self._version and precedes(version, self._version):
            self._outdated = True  # or it was restored
            return
        known = version == self._version and data is not None
        shown = not read or data is None or (known and self._unseen == math.inf)
        self._unseen = math.inf if shown else self._clock.monotonic() + UNSEEN
        if known:
            self._outdated = self._outdated and not read
            return
        self._version = "" if data is None else version
        self._outdated = False
        self._assignment, self._labelled = None, True
        self._unreadable = "it was deleted, or there has never been one"
        if data is not None:
            try:
                self._assignment = Assignment.parse(data)
            except Unreadable as error:
                self._unreadable, self._labelled = str(error), labelled

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
        except (ApiError, TimeoutError) as error:
            self._outdated = True
            self._fail(str(error))
        else:
            self._failures = 0
            self.wake_at = min(self.wake_at, self._unseen)

    def _fail(self, why: str, *, soon: bool = False) -> None:
        if self._failures and not soon:
            self.problem = f"the API server refuses what the coordinator asks for: {why}"
            self.unable = True
        wait = 0.0 if soon else min(RETRY_FIRST * 2**self._failures, RETRY_LAST)
        self._failures = min(self._failures + 1, 10)
        self.wake_at = self._retry_at = self._clock.monotonic() + wait

    def _tend(self) -> Steps:
        if not self._membership.fresh:
            yield ReadLeases()
        self._outdated = self._outdated or self._clock.monotonic() >= self._unseen
        members = self._membership.members(self.buckets)
        wrong = self._wrong(members)
        if self._outdated or (wrong and self._renewals is None):
            yield Look()
            wrong = self._wrong(members)
        assignment = self._assignment
        self.unable, self.note = assignment is not None and assignment.buckets != self.buckets, ""
        if assignment is not None and self.unable:
            self.problem = (
                f"it divides objects into {assignment.buckets.count} buckets by {assignment.buckets.by}, and this "
                f"program divides them into {self.buckets.count} by {self.buckets.by}: nothing is moved. A ring keeps "
                "its buckets for life: give this one another name"
            )
        elif not (self._labelled or self._sound or any(m.report and m.report.seen for m in members)):
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
            self.problem, self._renewals, self._sound = "", None, assignment
            yield from self._move(assignment, members)

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

    def _wrong(self, members: Iterable[RingMember]) -> str:
        """What is wrong with the object, according to these reports; "" if nothing is."""
        assignment = self._assignment
        if assignment is None:
            return self._unreadable or "it was not read yet"
        if assignment.buckets != self.buckets:
            return ""  # there is nothing to compare with
        if said := contradiction(assignment, members):
            return said
        before = self._sound.places if self._sound is not None else assignment.places
        for bucket, (last, now) in enumerate(zip(before, assignment.places, strict=True)):
            if now.epoch < last.epoch or (now.epoch == last.epoch and now != last):
                run = assignment.buckets.key(assignment.run_of(bucket))
                return f"{run} says {now}, but some of it was {last} before: it was edited or restored"
        return ""

    def _write_anew(self, wrong: str) -> Steps:
        if self._renewals is None:
            yield ReadLeases()
            members = self._membership.members(self.buckets)
            ever = self._ever or any(m.report and m.report.seen for m in members)
            self._renewals, self._renewed = RENEWALS if ever else 0, _renewals(_acting(members))
        if not self._all_renewed():
            self.problem = f"{wrong}. It is written anew when all shards have said what they own"
            if self.contested:
                self.problem = ""  # that is enough: what is wrong may be something else each time
            return
        if wait := self._repairs.wait(_OBJECT):
            self.problem, self.wake_at = "", self._clock.monotonic() + wait
            return
        yield Look()  # before the reports are looked at: what has been taken since is in neither
        members = self._membership.members(self.buckets)
        if not self._wrong(members):
            self.wake_at = self._clock.monotonic()
            return
        if differing := sorted(m.shard for m in members if m.available and m.differs):
            self.problem = (
                f"{wrong}. It is not written anew before {', '.join(differing)} has ended, whose program divides "
                "objects differently and may go on with what it has"
            )
            return
        data, repair = self._from_claims(members).data(), self._ever
        if self._version:
            version = test("/metadata/resourceVersion", self._version)
            yield Change(JsonPatch([version, add("/data", data)]), wrong)
        else:
            yield Create(data)
        if repair:
            self._repairs.repaired(_OBJECT)
        self._renewals = None
        self.wake_at = self._clock.monotonic()

    @property
    def _ever(self) -> bool:
        """Whether there may have been an assignment: an object that is unreadable was one."""
        return not self._first or self._sound is not None or bool(self._version)

    def _all_renewed(self) -> bool:
        """Whether all shards that may act have renewed their Leases often enough."""
        while self._renewals:
            renewed = _renewals(_acting(self._membership.members(self.buckets)))
            if any(self._renewed.get(shard) == version for shard, version in renewed.items()):
                return False
            self._renewals, self._renewed = self._renewals - 1, renewed
        return True

    def _from_claims(self, members: Collection[RingMember]) -> Assignment:
        forgotten = self._sound is None and self._ever  # all who knew it may have ended
        least = int(self._clock.wall()) if forgotten else 0
        return claimed(self.buckets, members, self._assignment, self._sound, least)

    # Moving

    def _move(self, assignment: Assignment, members: Collection[RingMember]) -> Steps:
        if not self._membership.fresh:
            self.wake_at = self._clock.monotonic() + RETRY_FIRST
            return
        members = self._membership.members(self.buckets)  # an answer may have been waited for
        if by_labels := _by_labels_only(assignment, members):
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
            if _by_labels_only(assignment, self._membership.members(self.buckets)):  # seen meanwhile
                self.wake_at = now
                return
            each = [(assignment.places[bucket], move) for bucket, move in moves.items()]
            given = sum(move.owner != last.owner for last, move in each)
            asked = sum(move.target not in ("", last.target) for last, move in each)
            why = "shards have joined, left, or changed their weights"
            yield Change(patch, why, len(moves), given, asked)

    def _work_on_nothing(
        self, assignment: Assignment, members: Collection[RingMember]
    ) -> Generator[Command, Any, tuple[Collection[RingMember], frozenset[str]]]:
        """The shards that are named, live, and have said since that they work on nothing, beside the members as they
        are then.
        """
        groups = {
            shard: tuple(group for group in assignment.groups if shard in group.place[:2])
            for shard in _named_idle(assignment, members)
        }
        self._idle = {shard: each for shard, each in self._idle.items() if each.groups == groups.get(shard)}
        if groups.keys() - self._idle.keys():
            yield ReadLeases()  # what a watch brings may have been said long before
            members = self._membership.members(self.buckets)
        for shard, renewed in _named_idle(assignment, members).items():
            if shard in groups:
                last = self._idle.get(shard, _Idle(groups[shard], renewed, RENEWALS))
                self._idle[shard] = _Idle(last.groups, renewed, last.left - (renewed != last.renewed))
        return members, frozenset(shard for shard, each in self._idle.items() if each.left <= 0)

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


def contradiction(assignment: Assignment, members: Iterable[RingMember]) -> str:
    """Why the object cannot be what these shards have seen; "" if it can."""
    for member in members:
        if member.report is None or not member.available:
            continue
        if member.report.seen > assignment.epoch:
            return f"it is older than what {member.shard} has seen: it was restored"
        for bucket, epoch in member.report.epochs.items():
            owner, _, since = assignment.places[bucket]
            if since < epoch or (since == epoch and owner != member.shard):
                run = assignment.buckets.key(assignment.run_of(bucket))
                said = f"{run} is {owner or 'nobody'}'s since {since}"
                return f"{said}, but {member.shard} has had some of it since {epoch}: it was edited"
    return ""


def member_of(lease: Lease, buckets: Buckets, *, available: bool) -> tuple[RingMember, str]:
    """What a shard's Lease says of it, and what is wrong with that while it is available."""
    meta, spec = lease.metadata, lease.spec
    said, problems = meta.annotation(OWNED_RANGES_ANNOTATION), list[str]()
    by_labels, said = not said, "" if said == BY_LABELS else said
    weight, report, differs = Fraction(1), None, False
    try:
        weight = weight_of(meta.annotation(WEIGHT_ANNOTATION))
    except ValueError as error:
        problems.append(f"{meta.name}: {error}; it counts as 1")
    try:
        report = Report.parse(said, buckets) if said else None
    except ValueError as error:
        problems.append(f"{meta.name} gets nothing: {error}")
        differs = isinstance(error, DividedDifferently)
    renewed = f"{meta.uid}/{spec.acquire_time}/{spec.renew_time}"
    pinned, wrong = buckets.pinned(meta.annotation(PINNED_ANNOTATION))
    problems += [f"{meta.name}: {wrong}"] if wrong else []
    if meta.annotation(LEAVING_ANNOTATION):
        weight, pinned = Fraction(0), frozenset()
    idle = report is None and not owns_some(said)
    names, used, cannot = frozenset[str](), frozenset[int](), frozenset[int]()
    if buckets.by == "cluster":
        names, used = buckets.clusters(meta.annotation(CLUSTERS_ANNOTATION))
        _, cannot = buckets.clusters(meta.annotation(UNREACHABLE_ANNOTATION))
    found = RingMember(
        meta.name,
        available,
        weight,
        report,
        renewed,
        by_labels,
        differs,
        pinned,
        names,
        used,
        cannot,
        idle,
        _kinds(lease),
    )
    return found, "; ".join(problems if available else ())


def doubts(assignment: Assignment, shard: str, leases: Collection[Lease]) -> str:
    """Why a shard that begins, or was given something, must not believe the object, by the Leases of its ring, which
    were read before; "" if it may. The coordinator, which looks for shards by labels, too, may have done so before one
    of them began. Those that begin later have to see this one.
    """
    members = [
        member_of(lease, assignment.buckets, available=True)[0]
        for lease in leases
        if lease.spec.holder_identity == lease.metadata.name
    ]
    if why := contradiction(assignment, [each for each in members if each.shard != shard]):
        return why
    if shard not in assignment.shards:
        return ""
    if takes_by_labels(said_by(leases).get(shard, "")):
        return f"the Lease of {shard} is gone, or not as this shard has written it"
    by_labels = ", ".join(each for each in _by_labels_only(assignment, members) if each != shard)
    return f"shards that take objects by labels have to end first: {by_labels}" if by_labels else ""


def said_by(leases: Iterable[Lease]) -> dict[str, str]:
    """What the shards that hold these Leases say that they work on, by name (`assignment.takes_by_labels`)."""
    return {
        lease.metadata.name: lease.metadata.annotation(OWNED_RANGES_ANNOTATION)
        for lease in leases
        if lease.spec.holder_identity == lease.metadata.name
    }


def kinds_stated(leases: Iterable[Lease]) -> dict[str, frozenset[str]]:
    """The resources that the programs of the shards work on that hold these Leases, and say so."""
    held = (lease for lease in leases if lease.spec.holder_identity == lease.metadata.name)
    return {lease.metadata.name: kinds for lease in held if (kinds := _kinds(lease))}


def _kinds(lease: Lease) -> frozenset[str]:
    said = lease.metadata.annotation(KINDS_ANNOTATION)
    return frozenset(filter(None, map(str.strip, said.split(","))))


def claimed(
    buckets: Buckets,
    members: Collection[RingMember],
    now: Assignment | None = None,
    last: Assignment | None = None,
    greatest: int = 0,
) -> Assignment:
    """Each bucket at whom the best witness names, and of equal ones the one with the greatest epoch: an available shard
    that says that it owns it; else others that said so, `last`, and `now` where it names an available shard, which may
    work on what was handed over meanwhile, and not have said so yet; else `now`. At an epoch that is greater than any
    of theirs, and `greatest`.
    """
    available = {each.shard for each in members if each.available}
    reports = [(each.shard, each.report) for each in members if each.report is not None]
    said = [(int(each.owner in available), each.epoch, bucket, each.owner) for bucket, each in _places(now)]
    said += [(1, each.epoch, bucket, each.owner) for bucket, each in _places(last)]
    for shard, report in reports:
        said += [(1 + (shard in available), each, bucket, shard) for bucket, each in report.epochs.items()]
    owners = {bucket: owner for _, _, bucket, owner in sorted(said, key=itemgetter(0, 1)) if owner}
    epochs = greatest, *(each.seen for _, each in reports), *(each for _, each, _, _ in said)
    epoch = max(epochs) + 1
    return Assignment.of(
        buckets, {each: Place(owners.get(each, ""), "", epoch) for each in buckets.all.buckets}
    )


def _places(assignment: Assignment | None) -> Iterable[tuple[int, Place]]:
    return enumerate(assignment.places if assignment is not None else ())


def weights_of(
    assignment: Assignment, members: Iterable[RingMember], strangers: Collection[str]
) -> dict[str, Fraction]:
    """Those of the shards that get something: not of one that has not read the assignment, or is a stranger."""
    return {m.shard: m.weight for m in _sharing(assignment, members) if m.shard not in strangers}


class Kinds(NamedTuple):
    """What the shards work on."""

    together: frozenset[str]
    """All of them that share out buckets."""
    strangers: frozenset[str]
    """The shards that have none of these kinds."""
    problem: str
    """What people should know about it."""


def kinds_of(assignment: Assignment, members: Iterable[RingMember]) -> Kinds:
    """Who works together, as the module says."""
    left = {m.shard: m.kinds for m in _sharing(assignment, members) if m.kinds}
    everyone = frozenset(left.values())
    if len(everyone) <= 1:
        return Kinds(next(iter(everyone), frozenset()), frozenset(), "")
    owned = Counter(place.owner for place in assignment.places)
    near = [min(left, key=lambda shard: (-owned[shard], shard))]
    together = frozenset[str]()
    while near:
        together = together.union(*(left.pop(shard) for shard in near))
        near = [shard for shard, kinds in left.items() if kinds & together]
    if left:
        theirs, ours = ", ".join(sorted(frozenset().union(*left.values()))), ", ".join(sorted(together))
        problem = (
            f"{', '.join(sorted(left))} gets nothing: its program works on {theirs}, and the other shards of the ring "
            f"on {ours}. If it is not their next version, give one of the two programs another ring"
        )
        return Kinds(together, frozenset(left), problem)
    missing = ", ".join(sorted(together.difference(frozenset.intersection(*everyone))))
    problem = (
        f"not all shards of the ring work on {missing}: objects of these kinds wait while a shard has them that does "
        "not. That ends when all run the same version"
    )
    return Kinds(together, frozenset(), problem)


def _sharing(assignment: Assignment, members: Iterable[RingMember]) -> list[RingMember]:
    """The shards among which buckets are shared out."""
    named = assignment.shards
    return [m for m in members if m.available and (m.report is not None or m.shard in named)]


def pins_of(members: Iterable[RingMember], weights: Mapping[str, Fraction]) -> dict[int, str]:
    """Which shard gets a bucket whatever the weights are. Of several, the first one by name does."""
    ordered = sorted((each.shard, each.pinned) for each in members if each.shard in weights)
    return {bucket: shard for shard, pinned in reversed(ordered) for bucket in pinned}


def used_by(members: Iterable[RingMember]) -> frozenset[int]:
    """The buckets of the clusters that are known, in a ring by clusters: what makes the shares even."""
    return frozenset[int]().union(*(member.used for member in members if member.available))


def unable_of(members: Iterable[RingMember], weights: Mapping[str, Fraction]) -> dict[int, frozenset[str]]:
    """Which shards cannot work on a bucket, of those that get something."""
    able = [each for each in members if weights.get(each.shard)]
    buckets = frozenset[int]().union(*(each.cannot for each in able))
    return {bucket: frozenset(m.shard for m in able if bucket in m.cannot) for bucket in sorted(buckets)}


def due(
    assignment: Assignment,
    weights: Mapping[str, Fraction],
    pins: Mapping[int, str],
    used: Collection[int] = (),
    unable: Mapping[int, Collection[str]] = MappingProxyType({}),
) -> list[str]:
    """Who should have each bucket. What somebody is asked to hand over counts as handed over: the next shard that joins
    does not stop it. Who would have a bucket that is in `pins` gets nothing in its place, so no others move for it.

    `used`: those of few that have anything in them. They are divided by themselves, and the others, too: objects are so
    many that all buckets have about as many, but of ten clusters in a thousand buckets, one shard may have seven.

    `unable`: who cannot work on a bucket, and gets it only if nobody can. It stays with who has it, or else goes to who
    has least; the rest is divided without it.
    """
    owners = [target if weights.get(target, 0) else owner for owner, target, _ in assignment.places]
    able = {
        bucket: shards
        for bucket, those in unable.items()
        if (shards := [shard for shard in weights if weights[shard] and shard not in those])
    }
    for part in (True, False):
        buckets = [b for b in range(len(owners)) if b not in able and (b in used) is part]
        divided = divide([owners[bucket] for bucket in buckets], weights)
        for bucket, shard in zip(buckets, divided, strict=True):
            owners[bucket] = shard
    for bucket, shards in able.items():
        if owners[bucket] not in shards:
            have = Counter(owners[each] for each in used)
            owners[bucket] = min(shards, key=lambda shard: (have[shard] / weights[shard], shard))
    return [pins.get(bucket, shard) for bucket, shard in enumerate(owners)]


def _named_idle(assignment: Assignment, members: Iterable[RingMember]) -> dict[str, str]:
    """The shards that are named, and say that they work on nothing, with their renewals."""
    return _renewals(each for each in members if each.idle and each.shard in assignment.shards)


def _by_labels_only(assignment: Assignment, members: Collection[RingMember]) -> list[str]:
    """The shards by labels, unless a shard already works on what it got by ranges, as a live read has confirmed."""
    owners = {place.owner for _, place in assignment.groups}
    if any(m.available and m.report and m.report.epochs and m.shard in owners for m in members):
        return []
    return sorted(m.shard for m in _acting(members) if m.available and m.by_labels)


def _acting(members: Iterable[RingMember]) -> list[RingMember]:
    """Those that may see something yet. When most of a ring dies, the others are available for minutes."""
    return [member for member in members if not member.silent]


def _renewals(members: Iterable[RingMember]) -> dict[str, str]:
    return {member.shard: member.renewed for member in members if member.available}


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
