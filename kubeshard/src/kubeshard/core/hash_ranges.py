"""Hash ranges: a share of the objects of a kind, as the API server selects it (`shardSelector`, KEP-5866).

An object is in the share if the 64-bit FNV-1a hash of its uid, or of its namespace, is in one of the ranges. Both stay
the same for an object's whole life, so an object never moves from one range to another. API servers that do not know
the parameter ignore it; whoever asks for a share checks what it gets with `selects`, which computes the same.

An object that goes where another one is carries the first bits of the other's hash as a label (`LabelledHash`). A share
of such objects is selected by that label, which every API server does. The label is a number, because selectors compare
numbers (`key>341,key<683`): a share of one range is two terms, where a list of its labels would be kilobytes. Several
ranges are what is between the first and the last, without a list of what is in the gaps, or a list of what is in the
ranges, whichever is shorter. API servers select by either equally fast.

Of 1024 parts, the longest such selector has 2 KB, besides its keys: that of every second part. If one is longer than
`LONGEST`, the smallest gaps are asked for as well, and left out here. Labels for coarse and fine parts beside each
other would not make it shorter: the terms of a selector are connected by "and", so each of these labels would need a
list/watch of its own.

Guaranteed: sets of ranges that contain the same hashes are equal. Not guaranteed: that names spread evenly. FNV-1a
mixes the last characters of a text only into the middle of the hash, so namespaces that are numbered are neighbours;
uids are random.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from kubeshard.core.objects import ObjectMeta

HashedField = Literal["uid", "namespace"]

HASHES = 1 << 64
"""How many hashes there are: the end of the last range."""

MOST_RANGES, LONGEST = 48, 4000
"""Ranges of a `shardSelector`, and characters of a label selector: as a part of a URL, either has 4 KB at most."""

_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, HASHES - 1


@lru_cache(maxsize=4096)  # whatever happens to an object, several judge it one after the other
def fnv1a(text: str) -> int:
    """The 64-bit FNV-1a hash of the text in UTF-8, as API servers compute it."""
    found = _OFFSET
    for byte in text.encode():
        found = (found ^ byte) * _PRIME & _MASK
    return found


class HashRange(NamedTuple):
    """The hashes from `start` up to but not including `end`."""

    start: int
    end: int


class LabelledHash(NamedTuple):
    """The hash of another object, as the label with this key says it: which one of so many equal parts it is in."""

    key: str
    parts: int

    def __str__(self) -> str:
        return self.key

    def part_of(self, metadata: ObjectMeta) -> int | None:
        """What the label says; None if it says nothing."""
        value = metadata.label(self.key)
        if not (value.isascii() and value.isdigit() and len(value) <= len(str(self.parts))):
            return None
        part = int(value)
        return part if part < self.parts and str(part) == value else None

    def selector(self, ranges: Iterable[HashRange]) -> str:
        """The label selector of these ranges; "" if there is none."""
        key, size = self.key, HASHES // self.parts
        runs = [range(start // size, end // size) for start, end in ranges]
        if not runs:
            return ""
        first, last = runs[0][0], runs[-1][-1]
        terms = [f"{key}>{first - 1}"] if first else []
        if last < self.parts - 1:
            terms.append(f"{key}<{last + 1}")
        if len(runs) == 1:
            return ",".join(terms) or key
        gaps = [each for before, after in pairwise(runs) for each in range(before.stop, after.start)]
        without = ",".join([*(terms or [key]), f"{key} notin ({','.join(map(str, gaps))})"])
        listed = f"{key} in ({','.join(str(each) for run in runs for each in run)})"
        return min(listed, without, key=len)


@dataclass(frozen=True, slots=True)
class HashRanges:
    """A set of hashes of one field, made by `of`. `str` is the parameter `shardSelector`, or `labelSelector` for hashes
    in labels; `""` without any hash, which no server takes.
    """

    field: HashedField | LabelledHash
    ranges: tuple[HashRange, ...] = ()
    _edges: tuple[int, ...] = dataclass_field(init=False, compare=False, repr=False)
    """Where they start and end, in turn: a hash is in one of them if an odd number of these is not above it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_edges", tuple(edge for each in self.ranges for edge in each))

    @classmethod
    def of(cls, field: HashedField | LabelledHash, ranges: Iterable[tuple[int, int]]) -> HashRanges:
        """The union of the ranges, in any order. Raises ValueError for a range without hashes, or beyond 64 bits."""
        joined: list[HashRange] = []
        for start, end in sorted(ranges):
            if not 0 <= start < end <= HASHES:
                raise ValueError(f"{start:#x} to {end:#x} is not a range of 64-bit hashes")
            if joined and start <= joined[-1].end:
                joined[-1] = HashRange(joined[-1].start, max(end, joined[-1].end))
            else:
                joined.append(HashRange(start, end))
        return cls(field, tuple(joined))

    @classmethod
    def everything(cls, field: HashedField) -> HashRanges:
        return cls(field, (HashRange(0, HASHES),))

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, hashed: int) -> bool:
        return bisect_right(self._edges, hashed) % 2 == 1

    def __or__(self, other: HashRanges) -> HashRanges:
        """The hashes in either. Both have to be of the same field."""
        self._same_field(other)
        return HashRanges.of(self.field, (*self.ranges, *other.ranges))

    def __and__(self, other: HashRanges) -> HashRanges:
        """The hashes in both."""
        self._same_field(other)
        return HashRanges.of(self.field, _common(self.ranges, other.ranges))

    def __sub__(self, other: HashRanges) -> HashRanges:
        """The hashes here that are not in the other."""
        self._same_field(other)
        return HashRanges.of(self.field, _common(self.ranges, _gaps(other.ranges)))

    @property
    def moves(self) -> bool:
        """Whether an object may enter and leave the share: labels can be changed."""
        return isinstance(self.field, LabelledHash)

    @property
    def asked(self) -> HashRanges:
        """What a server is asked for: more than these, where their selector would be too long."""
        if not isinstance(self.field, LabelledHash):
            return self.within(MOST_RANGES)
        asked = self
        while len(str(asked)) > LONGEST and len(asked.ranges) > 1:
            asked = asked.within(len(asked.ranges) - 1)
        return asked

    def within(self, most: int) -> HashRanges:
        """At most so many ranges that contain these: where there are more, the smallest gaps are closed."""
        if len(self.ranges) <= most:
            return self
        gaps = sorted(
            range(1, len(self.ranges)), key=lambda at: self.ranges[at].start - self.ranges[at - 1].end
        )
        closed = [(self.ranges[at - 1].end, self.ranges[at].start) for at in gaps[: len(self.ranges) - most]]
        return HashRanges.of(self.field, (*self.ranges, *closed))

    def selects(self, metadata: ObjectMeta) -> bool:
        return self.hash_of(metadata) in self

    def may_select(self, metadata: ObjectMeta) -> bool:
        """False if the object is certainly not in the share: metadata may lack what is hashed."""
        if self.field == "uid" and metadata.uid:  # each event comes here: without another call
            return bisect_right(self._edges, fnv1a(metadata.uid)) % 2 == 1 or not metadata.name
        return self.hash_of(metadata) in self or not metadata.name or self.field == "uid"

    def may_have(self, namespace: str, uid: str) -> bool:
        """False if no object with this uid, "" for any, is in the share whose other metadata are not known."""
        if self.field == "uid":
            return not uid or bisect_right(self._edges, fnv1a(uid)) % 2 == 1
        return self.field != "namespace" or fnv1a(namespace) in self

    def hash_of(self, metadata: ObjectMeta) -> int:
        """The hash that decides about the object; -1 if its label says none."""
        if self.field == "uid":
            return fnv1a(metadata.uid)
        if self.field == "namespace":
            return fnv1a(metadata.namespace)
        part = self.field.part_of(metadata)
        return -1 if part is None else part * (HASHES // self.field.parts)

    def __str__(self) -> str:
        if isinstance(self.field, LabelledHash):
            return self.field.selector(self.ranges)
        field = f"object.metadata.{self.field}"
        return " || ".join(
            f"shardRange({field}, '0x{start:016x}', '0x{end:016x}')" for start, end in self.ranges
        )

    def _same_field(self, other: HashRanges) -> None:
        if self.field != other.field:
            raise ValueError(f"ranges of {self.field} and of {other.field} have nothing in common")


def _common(left: Iterable[HashRange], right: Iterable[HashRange]) -> Iterator[HashRange]:
    """What is in both, of ascending ranges with gaps."""
    for start, end in left:
        for other in right:
            if other.start >= end:
                break
            if other.end > start:
                yield HashRange(max(start, other.start), min(end, other.end))


def _gaps(ranges: Iterable[HashRange]) -> list[HashRange]:
    """What is between ascending ranges, and on both sides of them."""
    found, start = [], 0
    for begin, end in ranges:
        if start < begin:
            found.append(HashRange(start, begin))
        start = end
    if start < HASHES:
        found.append(HashRange(start, HASHES))
    return found
