"""Who should have which bucket: even shares, and the fewest moves.

A hash ring, which labels need because they have no place for a table, leaves the largest of five shards with a quarter
of all objects instead of a fifth. Buckets are in a table, so each shard can get the share that it is due, rounded. Two
wishes are in the way of each other then:

* Few moves: what is where it may stay, stays. This alone cuts the shares into smaller and smaller pieces with each
  shard that comes or goes, for a new one gets a little from each.
* Few runs: what a shard asks the API server for is a text with each of its runs of buckets, in a URL, parsed as an
  expression.

So of the ways with the fewest moves, one is taken that makes few runs: a shard gives the ends of its runs, to
neighbours where it can. A shard that has too many runs all the same exchanges the smallest of them for buckets next to
another one of its runs, which moves more than necessary. How much more that is over a long time is in
docs/in-manager-sharding.md.

Guaranteed, for weights that are not all 0: each shard gets the floor or the ceiling of its share by weight, and nothing
if its weight is 0; no more than `MOST_RUNS` runs; the fewest moves that the shares allow, unless a shard had too many
runs; the same arguments give the same result, in any process.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

from kubeshard.sharding.assignment import Assignment

MOST_RUNS = 24
"""Of a shard. The selector of so many is half of what proxies let through in a URL."""

_WEIGHT = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")


def weight_of(text: str) -> Fraction:
    """The weight in an annotation; 1 if there is none. Raises ValueError for what is not a number from 0 up."""
    if not text:
        return Fraction(1)
    if _WEIGHT.fullmatch(text) is None:
        raise ValueError(f"the weight {text[:50]!r} is not a number from 0 up, such as 2 or 0.5")
    return Fraction(text)


def shares(count: int, weights: Mapping[str, Fraction | int], present: Mapping[str, int]) -> dict[str, int]:
    """How many of `count` buckets each shard gets, given how many it has now: the floor or the ceiling of its share.
    Who has more than the floor already has the first claim to the ceiling, so that it need not give one more away.
    """
    total = sum(weights.values())
    if not total:
        return dict.fromkeys(weights, 0)
    exact = {shard: Fraction(count * weight) / total for shard, weight in weights.items()}
    found = {shard: math.floor(share) for shard, share in exact.items()}
    claims = sorted(
        (shard for shard in exact if exact[shard] > found[shard]),
        key=lambda shard: (present.get(shard, 0) <= found[shard], found[shard] - exact[shard], shard),
    )
    for shard in claims[: count - sum(found.values())]:
        found[shard] += 1
    return found


def divide(present: Sequence[str], weights: Mapping[str, Fraction | int]) -> list[str]:
    """Who should have each bucket, given who has it now. Names without a weight, and "", have theirs no more. If there
    is no weight above 0, nobody gets anything.
    """
    if not any(weights.values()):
        return [""] * len(present)
    return _Division(present, weights).owners()


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
    have = Counter(owners[each] for each in used)
    for bucket, shards in able.items():
        if owners[bucket] not in shards:
            have[owners[bucket]] -= bucket in used
            owners[bucket] = min(shards, key=lambda shard: (have[shard] / weights[shard], shard))
            have[owners[bucket]] += bucket in used
    return [pins.get(bucket, shard) for bucket, shard in enumerate(owners)]


class _Run(NamedTuple):
    owner: str
    length: int


class _Gift(NamedTuple):
    """Buckets of the run at an index, from its left or right end. The least is the best."""

    runs: int
    """How many runs more there are then."""
    alone: bool
    """Whether nothing beyond this end can be given, too."""
    negative_length: int
    at: int
    left: bool
    taker: str


class _Division:
    """The buckets as alternating runs of shards."""

    def __init__(self, present: Sequence[str], weights: Mapping[str, Fraction | int]) -> None:
        names = [owner if owner in weights else "" for owner in present]
        self._runs = [_Run(owner, len(list(each))) for owner, each in groupby(names)]
        have = Counter(names)
        due = shares(len(present), weights, have)
        self._over = {shard: have[shard] - due[shard] for shard in weights}
        """How many each shard has more than it is due."""
        self._over[""] = have[""]

    def owners(self) -> list[str]:
        self._give()
        while (shard := self._divided_most()) and self._exchange(shard):
            self._give()
        if self._divided_most():
            return self._in_order()
        return [run.owner for run in self._runs for _ in range(run.length)]

    def _give(self) -> None:
        """Until each has what it is due."""
        while gift := min(self._gifts(), default=None):
            self._move(gift.at, -gift.negative_length, left=gift.left, taker=gift.taker)

    def _gifts(self) -> Iterator[_Gift]:
        over, runs = self._over, self._runs
        neediest = min(over, key=lambda shard: (over[shard], shard))
        if over[neediest] >= 0:
            return
        for at, (owner, length) in enumerate(runs):
            if (most := min(over[owner], length)) <= 0:
                continue
            before = runs[at - 1].owner if at else None
            after = runs[at + 1].owner if at + 1 < len(runs) else None
            for left, beside, beyond in (True, before, after), (False, after, before):
                if beside is not None and over[beside] < 0:
                    given = min(most, -over[beside])
                    whole = (-2 if beyond == beside else -1) if given == length else 0
                    yield _Gift(whole, False, -given, at, left, beside)
                else:
                    given = min(most, -over[neediest])
                    alone = beside is None or over[beside] <= 0
                    yield _Gift(0 if given == length else 1, alone, -given, at, left, neediest)

    def _move(self, at: int, length: int, *, left: bool, taker: str) -> None:
        owner, whole = self._runs[at]
        self._over[owner] -= length
        self._over[taker] += length
        parts = [_Run(taker, length), _Run(owner, whole - length)]
        self._put(at, parts if left else parts[::-1])

    def _put(self, at: int, parts: Sequence[_Run]) -> None:
        """In place of the run, joined with its neighbours."""
        first, end = max(at - 1, 0), at + 2
        joined: list[_Run] = []
        for run in (*self._runs[first:at], *parts, *self._runs[at + 1 : end]):
            if joined and joined[-1].owner == run.owner:
                joined[-1] = _Run(run.owner, joined[-1].length + run.length)
            elif run.length:
                joined.append(run)
        self._runs[first:end] = joined

    def _divided_most(self) -> str:
        """A shard with too many runs; "" if there is none."""
        counts = Counter(run.owner for run in self._runs)
        return min((shard for shard in counts if counts[shard] > MOST_RUNS), default="")

    def _exchange(self, shard: str) -> bool:
        """Gives the smallest run that it can to a neighbour, which has to have as many buckets next to another run of
        the shard. Returns whether there is one.
        """
        runs = self._runs
        own = sorted((run.length, at) for at, run in enumerate(runs) if run.owner == shard)
        beside = [(runs[other], at) for _, at in own for other in (at - 1, at + 1) if 0 <= other < len(runs)]
        for length, at in own:
            for taker in (run.owner for run, place in beside if place == at):
                if any(run.owner == taker and run.length >= length and place != at for run, place in beside):
                    self._move(at, length, left=True, taker=taker)
                    return True
        return False

    def _in_order(self) -> list[str]:
        """One run for each shard, in the order in which they are now."""
        have = Counter[str]()
        for run in self._runs:
            have[run.owner] += run.length
        return [owner for owner, length in have.items() for _ in range(length)]
