"""Which shard an object belongs on: its hash key, and the consistent hash ring, which names the owner of a key.

Guaranteed: the same set of shard names gives the same owner for every key, in every process and language
that computes the ring as below; a name that joins or leaves only changes the owner of the keys that it gains or
loses, except for colliding tokens of other names. Not guaranteed: equal shares.

Each name has 100 tokens, token i = XXH64(name + decimal i). A key belongs to the first token at or after
XXH64(key), or to the first one after the end. Names are added in ascending byte order, and the last one added
wins a colliding token.

The key is `<group>/<Kind>/<namespace>/<name>` of the object itself for a main resource, of its owner for a controlled
one, so that both are assigned to the same shard. Empty parts stay empty; the version is never included. The messages
are part of the wire contract: the webhook returns them. Which object is the owner says `ring_resources`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import lru_cache

from xxhash import xxh64_intdigest

from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import Key, ObjectMeta, OwnerReference


class KeyRefused(ValueError):
    """The object cannot be keyed. The message is the protocol's."""


class GeneratedName(KeyRefused):
    """A main object that is created with generateName: it has a key only after the server has named it."""


def main_key(api_version: str, kind: str, meta: ObjectMeta) -> str:
    """The key of an object of a main resource. Raises KeyRefused without a kind or name, GeneratedName if the name is
    not generated yet.
    """
    if not api_version and not kind:
        raise KeyRefused("apiVersion and kind must not be empty")
    if not meta.name:
        if meta.generate_name:
            raise GeneratedName(
                "generateName is not supported on ring resources that are not controlled by another resource"
            )
        raise KeyRefused("name must not be empty")
    try:
        group = _group(api_version)
    except ValueError:
        group = ""
    return f"{group}/{kind}/{meta.namespace}/{meta.name}"


def controlled_key(reference: OwnerReference, namespace: str) -> str:
    """The key of an object's controller, which is in this namespace, "" for a cluster-scoped one.

    Raises KeyRefused for a controller reference with missing or malformed parts. The object's own name is
    irrelevant.
    """
    if not reference.api_version:
        raise KeyRefused("apiVersion of controller reference must not be empty")
    if not reference.kind:
        raise KeyRefused("kind of controller reference must not be empty")
    if not reference.name:
        raise KeyRefused("name of controller reference must not be empty")
    try:
        group = _group(reference.api_version)
    except ValueError as error:
        raise KeyRefused(f"invalid apiVersion of controller reference: {error}") from None
    return f"{group}/{reference.kind}/{namespace}/{reference.name}"


def kind_of_key(key: str) -> GroupKind:
    """The kind in a key."""
    group, kind, *_ = key.split("/")
    return GroupKind(group, kind)


def object_of_key(key: str) -> Key:
    """The object with that key. Nobody checks the names in owner references: there may be a slash in one."""
    return Key(*key.split("/", 3)[2:])


def namespace_of_key(key: str) -> str:
    """The namespace in a key."""
    return key.split("/")[2]


@lru_cache(maxsize=1024)
def _group(api_version: str) -> str:
    """The group, parsed as leniently as by the reference: an empty part or a lone slash is not an error, a
    second slash is.
    """
    if api_version.count("/") > 1:
        raise ValueError(f"unexpected GroupVersion string: {api_version}")
    group, slash, _ = api_version.partition("/")
    return group if slash else ""


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
