"""What the Leases of a ring that is sharded by ranges say, and whether its assignment can be true by that.

The assignment may be deleted, edited, or restored from a backup, while shards go on with what they own. Who believes it
then gives away, or takes, buckets that somebody works on. That it is old is not written in it, but shards say on their
Leases what they own, and since which epoch (`assignment.Report`). They say so with their renewals, so what they say is
old, too, by a few seconds.

| what is wrong with the assignment (`contradiction`) | |
|---|---|
| its greatest epoch is less than one that a shard has seen | it was restored |
| an owner has seen a greater epoch of a bucket; or another shard has it, at no smaller epoch | it was edited |

The coordinator compares them, and writes anew what is wrong (`claimed`). So does a shard, before it believes what names
it: when it begins, and whenever it was given something (`doubts`).

A ring begins with ranges when no shard acts any more that takes objects by labels, and one by labels does not begin
before all by ranges have ended (`label_delivery`): the two know nothing of each other.

Two programs may have one ring by mistake. A bucket has objects of all kinds, so each would get objects that it does not
work on. Shards say which kinds these are (`names.KINDS_ANNOTATION`), and who has none in common with the others gets
nothing, and hands over what it has. A kind in common is enough: while a version is rolled out that adds or drops one,
some objects wait for a shard that knows their kind. Who "the others" are begins with who owns most. So when all shards
of a program are gone, those of another one get everything, and keep it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from operator import itemgetter
from typing import NamedTuple

from kubeshard.core.builtin import Lease
from kubeshard.sharding.assignment import (
    BY_LABELS,
    Assignment,
    DividedDifferently,
    Place,
    Report,
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
from kubeshard.sharding.shard_states import is_evicted
from kubeshard.sharding.shares import weight_of

RENEWALS = 2
"""How often a shard renews its Lease before others conclude from it what the shard has: with the second renewal, it
says what it has seen before the first.
"""


class RingMember(NamedTuple):
    """A Lease of the ring."""

    shard: str
    available: bool
    weight: Fraction
    report: Report | None
    """None if it is not a shard by ranges, or has not read the assignment yet: it gets nothing."""
    renewed: str
    """When, as the Lease says: less than it said before only if etcd was restored, or the clock was set back."""
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

    @property
    def illegible(self) -> bool:
        """Whether it says that it works on something, and nobody can read on what."""
        return self.report is None and not self.idle


def member_of(lease: Lease, buckets: Buckets, *, available: bool) -> tuple[RingMember, str]:
    """What a shard's Lease says of it, and what is wrong with that while it is available."""
    meta = lease.metadata
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
    pinned, wrong = buckets.pinned(meta.annotation(PINNED_ANNOTATION))
    problems += [f"{meta.name}: {wrong}"] if wrong else []
    if meta.annotation(LEAVING_ANNOTATION) or is_evicted(lease):
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
        lease.spec.renew_time or "",
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


def held(leases: Iterable[Lease]) -> list[Lease]:
    """Those of them that the shards hold that they are named after."""
    return [lease for lease in leases if lease.spec.holder_identity == lease.metadata.name]


def said_by(leases: Iterable[Lease]) -> dict[str, str]:
    """What the shards that hold these Leases say that they work on, by name (`assignment.takes_by_labels`)."""
    return {each.metadata.name: each.metadata.annotation(OWNED_RANGES_ANNOTATION) for each in held(leases)}


def kinds_stated(leases: Iterable[Lease]) -> dict[str, frozenset[str]]:
    """The resources that the programs of the shards work on that hold these Leases, and say so."""
    return {lease.metadata.name: kinds for lease in held(leases) if (kinds := _kinds(lease))}


def _kinds(lease: Lease) -> frozenset[str]:
    said = lease.metadata.annotation(KINDS_ANNOTATION)
    return frozenset(filter(None, map(str.strip, said.split(","))))


def contradiction(assignment: Assignment, members: Iterable[RingMember]) -> str:
    """Why the object cannot be what these shards have seen; "" if it can."""
    for member in members:
        if member.report is None or not member.available:
            continue
        if member.report.seen > assignment.epoch:
            return f"it is older than what {member.shard} has seen: it was restored"
        for bucket, epoch in member.report.epochs.items():
            if (place := assignment.places[bucket]).denies(member.shard, epoch):
                run = assignment.buckets.key(assignment.run_of(bucket))
                said = f"{run} is {place.owner or 'nobody'}'s since {place.epoch}"
                return f"{said}, but {member.shard} has had some of it since {epoch}: it was edited"
    return ""


def doubts(assignment: Assignment, shard: str, leases: Collection[Lease]) -> str:
    """Why a shard that begins, or was given something, must not believe the object, by the Leases of its ring, which
    were read before; "" if it may. The coordinator, which looks for shards by labels, too, may have done so before one
    of them began. Those that begin later have to see this one.
    """
    members = [member_of(lease, assignment.buckets, available=True)[0] for lease in held(leases)]
    if why := contradiction(assignment, [each for each in members if each.shard != shard]):
        return why
    if shard not in assignment.shards:
        return ""
    if takes_by_labels(said_by(leases).get(shard, "")):
        return f"the Lease of {shard} is gone, or not as this shard has written it"
    by_labels = ", ".join(each for each in by_labels_only(assignment, members) if each != shard)
    return f"shards that take objects by labels have to end first: {by_labels}" if by_labels else ""


def claimed(
    buckets: Buckets,
    members: Collection[RingMember],
    now: Assignment | None = None,
    last: Assignment | None = None,
    *,
    heard: Collection[str] = (),
    greatest: int = 0,
) -> Assignment:
    """Each bucket at whom the best witness names, and of equal ones the one with the greatest epoch: an available shard
    that says that it owns it, and `now` if it names the available shard to which `last` has asked it to be handed over,
    since the former owner may not have said so yet; else others that said so, `now` where it names an available shard,
    which may work on what it got meanwhile, and `last` where it names one that has said nothing; else `last`, and then
    `now`. At an epoch that is greater than any of theirs, and `greatest`. `heard`: the shards that have said what they
    own since the object was wrong. What `last` gave to one that acts, and says otherwise, it cannot take over any more.
    """
    available = {each.shard for each in members if each.available}
    denying = {m.shard for m in _acting(members) if m.shard in heard and (m.report is not None or m.idle)}
    handed = {
        bucket
        for (bucket, before), (_, each) in zip(_places(last), _places(now), strict=False)
        if before.target and each.owner == before.target and each.epoch > before.epoch
    }
    reports = [(each.shard, each.report) for each in members if each.report is not None]
    said = [
        ((2 + (bucket in handed)) * (each.owner in available), each.epoch, bucket, each.owner)
        for bucket, each in _places(now)
    ]
    said += [(2 - (each.owner in denying), each.epoch, bucket, each.owner) for bucket, each in _places(last)]
    for shard, report in reports:
        said += [(2 + (shard in available), each, bucket, shard) for bucket, each in report.epochs.items()]
    owners = {bucket: owner for _, _, bucket, owner in sorted(said, key=itemgetter(0, 1)) if owner}
    epochs = greatest, *(each.seen for _, each in reports), *(each for _, each, _, _ in said)
    epoch = max(epochs) + 1
    return Assignment.of(
        buckets, {each: Place(owners.get(each, ""), "", epoch) for each in buckets.all.buckets}
    )


def _places(assignment: Assignment | None) -> Iterable[tuple[int, Place]]:
    return enumerate(assignment.places if assignment is not None else ())


def by_labels_only(assignment: Assignment, members: Collection[RingMember]) -> list[str]:
    """The shards by labels, unless a shard already works on what it got by ranges, as a live read has confirmed."""
    owners = {place.owner for _, place in assignment.groups}
    if any(m.available and m.report and m.report.epochs and m.shard in owners for m in members):
        return []
    return sorted(m.shard for m in _acting(members) if m.by_labels)


def renewals(members: Iterable[RingMember]) -> dict[str, str]:
    """The last one of each shard that may see something yet."""
    return {member.shard: member.renewed for member in _acting(members)}


def named_idle(assignment: Assignment, members: Iterable[RingMember]) -> dict[str, str]:
    """The last renewal of each shard that is named, and says that it works on nothing."""
    return {m.shard: m.renewed for m in members if m.available and m.idle and m.shard in assignment.shards}


def _acting(members: Iterable[RingMember]) -> list[RingMember]:
    """When most of a ring dies, those that do not act any more are available for minutes."""
    return [member for member in members if member.available and not member.silent]


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
