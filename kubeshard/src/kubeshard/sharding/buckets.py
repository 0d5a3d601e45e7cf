"""Buckets: the parts into which a ring that is sharded by ranges divides its objects, or its clusters.

The bucket of an object is the top bits of the hash of its uid or its namespace, so a bucket is a range of hashes that
the API server can select, and neighbouring buckets make one range. An object never changes its bucket.

    buckets = Buckets(1024, "uid")
    buckets.of(obj.metadata)            683
    str(buckets.ranges({682, 683}))     the selector of both: one range

All objects of a cluster are in the bucket of the cluster's name, whose hash is the beginning of its SHA-256: names of
clusters are often numbered, and FNV-1a, which API servers compute, would have these as neighbours. No API server
selects by it.

    Buckets(1024, "cluster").of_key("eu-3")

A ring has its buckets for life: with another count or field each object would be somewhere else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Literal, NamedTuple, get_args

from kubeshard.core.clusters import is_cluster_name
from kubeshard.core.hash_ranges import HASHES, HashRanges, LabelledHash, fnv1a
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import ObjectMeta

BUCKETS = GroupResource("", "buckets")
"""As which resource buckets are counted, where objects are counted by theirs."""

By = Literal["uid", "namespace", "cluster"]
"""What is hashed: a field of objects, or the name of the cluster that they are in."""
EACH_BY: tuple[By, ...] = get_args(By)

MOST_BUCKETS = 2048
"""A change of all of them at once is still one patch: the API server takes 10 000 operations."""

LONGEST_NAMES = 8192
"""Characters that the names of clusters may have on a Lease, which is sent anew with each renewal."""

_IN_BUCKETS = "buckets:"
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_RUN = re.compile(r"([0-9]{1,4})-([0-9]{1,4})")


class BucketRun(NamedTuple):
    """Neighbouring buckets, from the first up to and including the last."""

    first: int
    last: int

    @property
    def buckets(self) -> range:
        return range(self.first, self.last + 1)


def runs_of(buckets: Iterable[int]) -> list[BucketRun]:
    """The fewest runs with exactly these buckets, ascending."""
    runs: list[BucketRun] = []
    for bucket in sorted(set(buckets)):
        if runs and runs[-1].last == bucket - 1:
            runs[-1] = BucketRun(runs[-1].first, bucket)
        else:
            runs.append(BucketRun(bucket, bucket))
    return runs


@dataclass(frozen=True, slots=True)
class Buckets:
    """How many there are, a power of two, and what is hashed. Raises ValueError for anything else."""

    count: int = 1024
    by: By = "uid"

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_BUCKETS or self.count & (self.count - 1):
            raise ValueError(f"{self.count} buckets: not a power of two up to {MOST_BUCKETS}")
        if self.by not in EACH_BY:
            raise ValueError(f"by {self.by!r}: not one of {', '.join(EACH_BY)}")

    def __str__(self) -> str:
        """`uid/1024`"""
        return f"{self.by}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Buckets:
        """The inverse of `str`. Raises ValueError."""
        by, _, count = text.partition("/")
        if not count.isdecimal():
            raise ValueError(
                f"{text[:50]!r} does not say by what and into how many buckets objects are divided"
            )
        return cls(int(count), by)  # type: ignore[arg-type] # which is checked

    @property
    def all(self) -> BucketRun:
        return BucketRun(0, self.count - 1)

    def of(self, metadata: ObjectMeta) -> int:
        """The object's bucket, in a ring by a field of objects."""
        assert self.by != "cluster", "objects do not say in which cluster they are"
        return fnv1a(metadata.uid if self.by == "uid" else metadata.namespace) * self.count // HASHES

    def of_key(self, key: str) -> int:
        """The bucket of what has this uid, or is in the namespace or the cluster of this name."""
        return self.of_hash(self.hash_of(key))

    def of_hash(self, hashed: int) -> int:
        return hashed * self.count // HASHES

    def key_of(self, metadata: ObjectMeta) -> str:
        """What is hashed of an object, in a ring by a field of objects."""
        assert self.by != "cluster", "objects do not say in which cluster they are"
        return metadata.uid if self.by == "uid" else metadata.namespace

    def hash_of(self, key: str) -> int:
        if self.by == "cluster":
            return int.from_bytes(sha256(key.encode()).digest()[:8])
        return fnv1a(key)

    def pinned(self, text: str) -> tuple[frozenset[int], str]:
        """The buckets of what the annotation names, and what is wrong with that, which is left out."""
        keys = {key for each in text.split(",") if (key := each.strip())}
        wrong = sorted(key for key in keys if not self._may_be(key))
        what = "name of a cluster" if self.by == "cluster" else self.by
        return (
            frozenset(map(self.of_key, keys.difference(wrong))),
            f"{', '.join(wrong)[:200]} is pinned, which is no {what}, in a ring by {self.by}s"
            if wrong
            else "",
        )

    def stated(self, clusters: Collection[str]) -> str:
        """What a shard says of the clusters that its program has: their names, or in which buckets they are if there
        are too many. What `clusters` reads.
        """
        if len(names := ",".join(sorted(clusters))) <= LONGEST_NAMES:
            return names
        return _IN_BUCKETS + ",".join(map(self.key, runs_of(map(self.of_key, clusters))))

    def clusters(self, stated: str) -> tuple[frozenset[str], frozenset[int]]:
        """The names, if they are stated, and the buckets. Left out is what is no run behind the others."""
        return _clusters(self, stated)

    def _may_be(self, key: str) -> bool:
        if self.by == "uid":
            return _UID.fullmatch(key) is not None
        return self.by == "namespace" or is_cluster_name(key)

    def ranges(self, buckets: Iterable[int], *, label: str = "") -> HashRanges:
        """The hashes of these buckets; with a label, of the objects that it says to be in one of them."""
        assert self.by != "cluster", "clusters are not selected by hashes"
        size, field = HASHES // self.count, LabelledHash(label, self.count) if label else self.by
        return HashRanges.of(field, ((first * size, (last + 1) * size) for first, last in runs_of(buckets)))

    def key(self, run: BucketRun) -> str:
        """The run as a text whose order is that of the buckets: `0000-0341`."""
        width = len(str(self.count - 1))
        return f"{run.first:0{width}}-{run.last:0{width}}"

    def run(self, key: str) -> BucketRun:
        """The inverse of `key`. Raises ValueError for any other text."""
        if match := _RUN.fullmatch(key):
            run = BucketRun(int(match[1]), int(match[2]))
            if run.first <= run.last < self.count and key == self.key(run):
                return run
        raise ValueError(f"{key!r} is not a run of the {self.count} buckets, such as {self.key(self.all)}")


@lru_cache(maxsize=16)  # the programs of a ring have the same clusters, so all Leases state the same
def _clusters(buckets: Buckets, stated: str) -> tuple[frozenset[str], frozenset[int]]:
    listed = filter(None, stated.removeprefix(_IN_BUCKETS).split(","))
    if not stated.startswith(_IN_BUCKETS):
        names = frozenset(listed)
        return names, frozenset(map(buckets.of_key, names))
    found, after = set[int](), 0
    for each in listed:  # in their order, so there are no more of them than buckets
        with suppress(ValueError):
            if (run := buckets.run(each)).first >= after:
                found.update(run.buckets)
                after = run.last + 1
    return frozenset(), frozenset(found)
