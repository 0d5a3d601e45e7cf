"""The assignment of a ring that is sharded by ranges: which shard has which buckets, as one object says it.

    by: uid
    buckets: "1024"
    0000-0341: a@3          the owner of these buckets, and the epoch of that
    0342-0682: b to c@4     b is asked to hand them to c
    0683-1023: "@0"         nobody has had them yet

Shards and the coordinator change it at the same time without asking each other. Writing the whole object with its
resourceVersion would make every acknowledgement a conflict for all others. So a change is a JSON Patch that tests the
groups of buckets that it is about, and replaces these only: writers of different groups never meet, and of two that
want the same group, the first one wins.

A test of values has a trap of its own: a patch that is late, perhaps minutes, must not find the value that it expects
*again*. Therefore whatever is written has an epoch, one more than the greatest that the writer has seen in the object,
so the epochs of a bucket only grow, and a place that a bucket has left never comes back.

The text of a place has none of the characters that API servers write escaped when they compare values as JSON texts
(`<`, `>`, `&`): a test made by any client, in any language, finds it.

Guaranteed, for an object that only patches made here have changed: it can be read; of patches that were made from the
same text and concern the same bucket, at most one takes effect; the epoch of a bucket never falls. Not guaranteed:
that someone who edits or restores the object keeps to that, or leaves room for epochs that are greater than theirs
(`GREATEST`). `parse` refuses what cannot be read completely; a bucket whose epoch is not greater than one that was seen
with it before is not news (`Report`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from kubeshard.core.names import is_label_value
from kubeshard.core.patches import JsonPatch, add, pointer, remove, replace, test
from kubeshard.sharding.buckets import EACH_BY, BucketRun, Buckets, runs_of

_BY, _BUCKETS = "by", "buckets"
_PLACE = re.compile(r"(?:([^ @]+)(?: to ([^ @]+))?)?@(0|[1-9][0-9]*)")
_REASONS_TOLD = 5

GREATEST = 2**59
"""No greater epoch is read. None is reached by counting. A number of nines that somebody writes is either greater, and
repaired like anything that cannot be read, or so much smaller that what is written after it can still be read.
"""


class Unreadable(ValueError):
    """The text is not a complete assignment. `reasons` are all of them."""

    def __init__(self, reasons: Collection[str]) -> None:
        self.reasons = tuple(reasons)
        told, more = "; ".join(self.reasons[:_REASONS_TOLD]), len(self.reasons) - _REASONS_TOLD
        super().__init__(f"{told}; and {more} more" if more > 0 else told)


class DividedDifferently(ValueError):
    """What a shard reports is about other buckets."""


class Place(NamedTuple):
    """Where a bucket is: its owner ("": nobody has had it yet), the shard that it is to be handed to ("": none), and
    the epoch of this.
    """

    owner: str = ""
    target: str = ""
    epoch: int = 0

    def __str__(self) -> str:
        target = f" to {self.target}" if self.target else ""
        return f"{self.owner}{target}@{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """The inverse of `str`. Raises ValueError."""
        match = _PLACE.fullmatch(text)
        if match is None:
            raise ValueError(f"{text[:200]!r} is not like shard@3 or shard to target@3")
        owner, target, epoch = match[1] or "", match[2] or "", _epoch(match[3])
        for name in owner, target:
            if not is_label_value(name):
                raise ValueError(f"{name[:200]!r} is not the name of a shard")
        if target and owner == target:
            raise ValueError(f"{text!r} would be handed to its own shard")
        return cls(owner, target, epoch)

    def denies(self, shard: str, epoch: int) -> bool:
        """Whether that cannot be, by the rules, if the shard has seen at this epoch that it owns the bucket."""
        return self.epoch < epoch or (self.epoch == epoch and self.owner != shard)


class Group(NamedTuple):
    """Neighbouring buckets in the same place, as they are written together."""

    run: BucketRun
    place: Place


@dataclass(frozen=True)
class Assignment:
    """All buckets of a ring, in ascending groups without gaps. Make it with `parse` or `of`."""

    buckets: Buckets
    groups: tuple[Group, ...]

    @classmethod
    def of(cls, buckets: Buckets, places: Mapping[int, Place] | None = None) -> Assignment:
        """With each bucket in its place. Those that are left out had no owner yet."""
        places = places or {}
        return cls(
            buckets, tuple(_grouped((each, places.get(each, Place())) for each in buckets.all.buckets))
        )

    @classmethod
    def parse(cls, data: Mapping[str, object] | None) -> Assignment:
        """The data of the object. Raises Unreadable for whatever `data` cannot have written."""
        rest = dict(data or {})
        reasons: list[str] = []
        count, by = rest.pop(_BUCKETS, None), rest.pop(_BY, None)
        if by not in EACH_BY:
            reasons.append(f"{_BY} is {_quoted(by)}, not one of {', '.join(EACH_BY)}")
        try:
            buckets = Buckets(int(str(count)) if re.fullmatch("[1-9][0-9]{0,4}", str(count)) else 0)
        except ValueError:
            reasons.append(f"{_BUCKETS} is {_quoted(count)}, not a power of two")
            raise Unreadable(reasons) from None
        groups: list[Group] = []
        if len(rest) > buckets.count:  # whatever fills the object, reading it takes no time
            raise Unreadable([*reasons, f"it has {len(rest)} more keys, and {buckets.count} buckets"])
        for key, value in rest.items():
            try:
                if not isinstance(value, str):
                    raise ValueError(f"{_quoted(value)} is not a text")
                groups.append(Group(buckets.run(key), Place.parse(value)))
            except ValueError as error:
                reasons.append(f"{_quoted(key)}: {error}")
        groups.sort()
        reasons += _gaps_and_overlaps(buckets, [group.run for group in groups])
        if reasons:
            raise Unreadable(reasons)
        return cls(Buckets(buckets.count, by), tuple(groups))  # type: ignore[arg-type] # it is one of the fields

    def data(self) -> dict[str, str]:
        """The inverse of `parse`."""
        groups = {self.buckets.key(run): str(place) for run, place in self.groups}
        return {_BY: self.buckets.by, _BUCKETS: str(self.buckets.count), **groups}

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The place of each bucket."""
        return tuple(place for run, place in self.groups for _ in run.buckets)

    @cached_property
    def epoch(self) -> int:
        """The greatest one."""
        return max(group.place.epoch for group in self.groups)

    @cached_property
    def shards(self) -> frozenset[str]:
        """Every shard that is named."""
        named = {name for _, place in self.groups for name in (place.owner, place.target)}
        return frozenset(named - {""})

    def run_of(self, bucket: int) -> BucketRun:
        """The bucket with those that are written together with it."""
        return next(run for run, _ in self.groups if bucket in run.buckets)

    def owned_by(self, shard: str) -> frozenset[int]:
        """The buckets whose owner it is, also those that it is asked to hand over."""
        return frozenset(
            bucket for run, place in self.groups if place.owner == shard for bucket in run.buckets
        )

    # Changes. None: there is nothing to change.

    def acknowledge(self, shard: str, buckets: Collection[int]) -> JsonPatch | None:
        """The shard works on these buckets no more: the targets of its drains have them. Those of them that it is not
        asked for stay where they are.
        """
        return self.change(
            {
                bucket: (place.target, "")
                for bucket in buckets
                if (place := self.places[bucket]).owner == shard and place.target
            }
        )

    def reclaim(self, shard: str) -> JsonPatch | None:
        """The shard has begun again, and goes on with everything that it owned: what was decided about it before, and
        has not taken effect yet, never will.
        """
        return self.change(dict.fromkeys(self.owned_by(shard), (shard, "")))

    def change(self, moves: Mapping[int, tuple[str, str]], *, join: bool = False) -> JsonPatch | None:
        """Gives buckets other owners, or other targets: owner and target by bucket.

        With `join`, neighbours of the same owner that have no target become one group, also others than those that are
        changed: an object that was divided often stays small. Acknowledgements are not made to fail by it.
        """
        epoch = self.epoch + 1
        places = {bucket: Place(*owners, epoch) for bucket, owners in moves.items()}
        groups: list[Group] = []
        for group in self.groups:
            if any(bucket in places for bucket in group.run.buckets):
                groups += _grouped((each, places.get(each, group.place)) for each in group.run.buckets)
            else:
                groups.append(group)
        return self._patch(_joined(groups) if join else groups)

    def _patch(self, groups: Iterable[Group]) -> JsonPatch | None:
        before = {self.buckets.key(run): str(place) for run, place in self.groups}
        after = {self.buckets.key(run): str(place) for run, place in groups}
        gone = [key for key in before if before[key] != after.get(key)]
        if not gone:
            return None
        ops = [test(pointer("data", key), before[key]) for key in gone]
        ops += [remove(pointer("data", key)) for key in gone if key not in after]
        for key, place in after.items():
            if place != before.get(key):
                ops.append((replace if key in before else add)(pointer("data", key), place))
        return JsonPatch(ops)


class Report(NamedTuple):
    """What a shard writes on its Lease: the buckets that it works on, with the epoch of each, and the greatest epoch
    that it has seen in the assignment. From the reports of all shards the assignment can be written again.

    The epoch of a bucket is the one that the shard has seen with it last. If the assignment `denies` that the shard has
    it, then the assignment was edited or restored: who takes a bucket by the rules writes a greater epoch.
    """

    epochs: Mapping[int, int]
    seen: int

    def __str__(self) -> str:
        """`0-341@3,683-700@7/9`"""
        groups = _grouped((bucket, Place(epoch=epoch)) for bucket, epoch in sorted(self.epochs.items()))
        return ",".join(f"{run.first}-{run.last}@{place.epoch}" for run, place in groups) + f"/{self.seen}"

    def text(self, buckets: Buckets) -> str:
        """With how the shard divides objects, because it cannot work on anything else: `uid/1024:0-341@3/9`"""
        return f"{buckets}:{self}"

    @classmethod
    def parse(cls, text: str, buckets: Buckets) -> Report | None:
        """The inverse of `str` and of `text`. None if the shard has not read the assignment yet: `uid/1024:`. Raises
        ValueError, and DividedDifferently if it is about other buckets.
        """
        divided, _, rest = text.rpartition(":")
        if divided and divided != str(buckets):
            raise DividedDifferently(
                f"its program divides objects by {divided[:200]}, and the ring by {buckets}"
            )
        if divided and not rest:
            return None
        runs, _, seen = rest.rpartition("/")
        if re.fullmatch("[0-9]+", seen) is None:
            raise ValueError(f"{text[:200]!r} is not a report like 0-341@3,683-700@7/9")
        epochs: dict[int, int] = {}
        after = 0  # the runs ascend, so there are no more of them than buckets
        for part in runs.split(",") if runs else ():
            match = re.fullmatch("([0-9]{1,4})-([0-9]{1,4})@([0-9]+)", part)
            if match is None or not after <= int(match[1]) <= int(match[2]) < buckets.count:
                raise ValueError(
                    f"{part[:200]!r} is not some of {buckets.count} buckets with an epoch, like 0-341@3, in their order"
                )
            after = int(match[2]) + 1
            epochs.update(dict.fromkeys(BucketRun(int(match[1]), int(match[2])).buckets, _epoch(match[3])))
        return cls(epochs, _epoch(seen))


BY_LABELS = "labels:"
"""What a shard that takes objects by labels reports while it waits for the end of all that work by ranges."""


def takes_by_labels(text: str) -> bool:
    """Whether a shard that reports this takes objects by labels, or waits for that."""
    return text in ("", BY_LABELS)


def owns_some(text: str) -> bool:
    """Whether a report, however the shard divides objects, says that it owns something."""
    return text.rpartition(":")[2].partition("/")[0] != ""


def _epoch(digits: str) -> int:
    if len(digits) > len(str(GREATEST)) or int(digits) > GREATEST:
        raise ValueError(f"the epoch {digits[:30]} is greater than any that is ever reached")
    return int(digits)


def _grouped(places: Iterable[tuple[int, Place]]) -> list[Group]:
    """Of ascending buckets."""
    groups = []
    for place, each in groupby(places, key=itemgetter(1)):
        groups += [Group(run, place) for run in runs_of(bucket for bucket, _ in each)]
    return groups


def _joined(groups: Iterable[Group]) -> list[Group]:
    """Neighbours of the same owner, without a target, at the greatest epoch of any."""
    joined: list[Group] = []
    for group in groups:
        run, place = group
        if joined and not place.target and joined[-1].place[:2] == place[:2]:
            before = joined.pop()
            group = Group(
                BucketRun(before.run.first, run.last),
                Place(place.owner, "", max(before.place.epoch, place.epoch)),
            )
        joined.append(group)
    return joined


def _gaps_and_overlaps(buckets: Buckets, runs: Iterable[BucketRun]) -> list[str]:
    reasons, next_ = [], 0
    for run in [*runs, BucketRun(buckets.count, buckets.count)]:
        if run.first > next_:
            reasons.append(f"{buckets.key(BucketRun(next_, run.first - 1))} is missing")
        elif run.first < next_:
            reasons.append(f"{buckets.key(BucketRun(run.first, min(run.last, next_ - 1)))} is there twice")
        next_ = max(next_, run.last + 1)
    return reasons


def _quoted(value: object) -> str:
    return repr(value)[:200]
