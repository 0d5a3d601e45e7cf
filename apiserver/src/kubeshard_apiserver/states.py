"""The states of stored objects: JSON text, decoded while it is in use.

An object as Python values takes several times the memory of its text. So a state keeps the text, and `DecodedCache`
decides which states also keep the decoded object: the most recently written or read ones, up to a number of bytes.

Guaranteed: the memory of decoded objects is bounded, whatever is stored; an object that was handed out stays valid.
Decoding the same state twice may give two equal objects. `peek` may be called from any thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kubeshard.core.hash_ranges import fnv1a
from kubeshard.core.objects import Key
from kubeshard_apiserver.objects import Object, labels_of

MOST_DECODED = 4 * 1024 * 1024
"""The maximum size of the states that are kept decoded, in bytes of JSON."""


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None
    uid: str = ""


class _Judged(msgspec.Struct):
    """What selectors ask of most objects."""

    metadata: _Metadata


_encode = msgspec.json.Encoder().encode
_judged = msgspec.json.Decoder(_Judged).decode
_decode: Any = msgspec.json.Decoder(dict).decode


class State:
    """One state of one object; never changes. `data` is its JSON."""

    __slots__ = ("_cache", "_decoded", "_uid_hash", "data")

    def __init__(self, data: bytes, cache: DecodedCache) -> None:
        self.data = data
        self._cache = cache
        self._decoded: Object | None = None
        self._uid_hash = -1

    @property
    def value(self) -> Object:
        """The object, which is kept decoded from now on, because it is likely to be used again soon."""
        obj = self._decoded
        if obj is None:
            obj = self._decoded = _decode(self.data)
            self._cache.add(self)
        return obj

    def peek(self) -> Object:
        """Returns the object without keeping it; for those who look at many."""
        return self._decoded or _decode(self.data)

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the object, read without decoding the rest of it."""
        if self._decoded is not None:
            return labels_of(self._decoded)
        return _judged(self.data).metadata.labels or {}

    @property
    def uid_hash(self) -> int:
        """The FNV-1a hash of the object's uid: read and computed once, since every list of a share asks it of all."""
        if self._uid_hash < 0:
            self._uid_hash = fnv1a(_judged(self.data).metadata.uid)
        return self._uid_hash

    def __eq__(self, other: Any) -> bool:
        return type(other) is State and bool(self.data == other.data)

    def __hash__(self) -> int:
        return hash(self.data)


class DecodedCache:
    """The states that are decoded at the moment."""

    def __init__(self, most_bytes: int = MOST_DECODED) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._states: deque[State] = deque()

    def state(self, obj: Object) -> State:
        """Returns a state of the object, which must not be changed any more."""
        made = State(_encode(obj), self)
        made._decoded = obj
        self.add(made)
        return made

    def add(self, state: State) -> None:
        """Remembers a state that has just been decoded; those decoded first are forgotten if there are too many."""
        self._states.append(state)
        self._bytes += len(state.data)
        while self._bytes > self._most_bytes:
            first = self._states.popleft()
            first._decoded = None
            self._bytes -= len(first.data)

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[State]:
        return iter(self._states)


class Objects(Mapping[Key, Object]):
    """The objects of these states, each decoded when it is looked at."""

    def __init__(self, states: Mapping[Key, State]) -> None:
        self._states = states

    def __getitem__(self, key: Key) -> Object:
        return self._states[key].peek()

    def state(self, key: Key) -> State:
        return self._states[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)


class Items(Sequence[Object]):
    """Objects of which some are only decoded when they are looked at."""

    def __init__(self, kept: Sequence[State | Object]) -> None:
        self._kept = kept

    def __getitem__(self, index: Any) -> Any:
        kept = self._kept[index]
        if isinstance(index, slice):
            return Items(kept)
        return kept.peek() if isinstance(kept, State) else kept

    def __len__(self) -> int:
        return len(self._kept)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    def __hash__(self) -> int:
        return hash(tuple(self.texts()))

    def texts(self) -> Iterator[bytes]:
        """The JSON of each."""
        for kept in self._kept:
            yield kept.data if isinstance(kept, State) else _encode(kept)
