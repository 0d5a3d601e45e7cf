"""The consistent hash ring: which shard owns a key.

Guaranteed: the same set of shard names gives the same owner for every key, in every process and language
that computes the ring as below; a name that joins or leaves only changes the owner of the keys that it gains or
loses, except for colliding tokens of other names. Not guaranteed: equal shares.

Each name has 100 tokens, token i = XXH64(name + decimal i). A key belongs to the first token at or after
XXH64(key), or to the first one after the end. Names are added in ascending byte order, and the last one added
wins a colliding token.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import lru_cache

from xxhash import xxh64_intdigest

TOKENS_PER_SHARD = 100


def point_of(key: str) -> int:
    """The position of a key on the ring."""
    return xxh64_intdigest(key.encode())


class HashRing:
    """An immutable ring of shard names. Building it costs 100 hashes per name and one sort; a lookup one
    hash and a bisection.
    """

    __slots__ = ("_owners", "_tokens", "shards")

    def __init__(self, shards: Iterable[str] = ()) -> None:
        # Code point order of str is byte order of UTF-8.
        self.shards: tuple[str, ...] = tuple(sorted(set(shards)))
        owner_of = {
            xxh64_intdigest(f"{shard}{i}".encode()): shard
            for shard in self.shards
            for i in range(TOKENS_PER_SHARD)
        }
        self._tokens = sorted(owner_of)
        self._owners = [owner_of[token] for token in self._tokens]

    def owner(self, key: str) -> str:
        """The shard that owns `key`; `""` for an empty ring."""
        # As `owner_at`; this is asked for every object of every scan.
        if not self._tokens:
            return ""
        index = bisect_left(self._tokens, xxh64_intdigest(key.encode()))
        return self._owners[index if index < len(self._owners) else 0]

    def owner_at(self, point: int) -> str:
        """The shard that owns every key at `point`; `""` for an empty ring."""
        if not self._tokens:
            return ""
        index = bisect_left(self._tokens, point)
        return self._owners[index if index < len(self._owners) else 0]

    def successors(self, key: str) -> Iterator[str]:
        """Every shard once: the owner of `key`, the next owner if that one leaves, and so on (except collisions)."""
        start = bisect_left(self._tokens, point_of(key))
        return iter(dict.fromkeys(self._owners[start:] + self._owners[:start]))

    def tokens(self) -> list[tuple[int, str]]:
        """Every token with its owner, ascending: for drawing the ring."""
        return list(zip(self._tokens, self._owners, strict=True))

    def __len__(self) -> int:
        return len(self.shards)


@lru_cache(maxsize=256)
def ring_of(shards: tuple[str, ...]) -> HashRing:
    """The ring of these names, cached: membership changes far less often than keys are looked up."""
    return HashRing(shards)
