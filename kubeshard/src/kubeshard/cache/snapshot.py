"""The result of a full list, while it is being read and when it is complete, and the changes that follow it.

Its mappings, by namespace and then by name, are the ones that the store keeps, so a full list of many objects never
needs a second set of mappings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.objects import Key, KubeObject
from kubeshard.listwatch.reflector import Interrupted, Sink
from kubeshard.listwatch.state_machine import Listed

T = TypeVar("T", bound=KubeObject)


class Snapshot(Mapping[Key, T | UndecodableObject]):
    """One entry for each existing object: the object, or why it cannot be decoded. The `objects` of a complete snapshot
    belong to the store that receives it.
    """

    def __init__(self, entries: Iterable[T | UndecodableObject] = ()) -> None:
        self.objects: dict[str, dict[str, T]] = {}
        """namespace -> name -> object, without empty namespaces."""
        self.undecodable: dict[Key, UndecodableObject] = {}
        """Undecodable objects; no key is also in `objects`."""
        for entry in entries:
            self.put(entry)

    def put(self, entry: T | UndecodableObject) -> None:
        metadata = entry.metadata
        namespace, name = metadata.namespace, metadata.name
        if isinstance(entry, UndecodableObject):
            key = Key(namespace, name)
            self.drop(key)
            self.undecodable[key] = entry
            return
        if self.undecodable:
            self.undecodable.pop(Key(namespace, name), None)
        objects = self.objects.get(namespace)
        if objects is None:
            objects = self.objects[namespace] = {}
        objects[name] = entry

    def drop(self, key: Key) -> None:
        """Removes an entry, if there is one."""
        self.undecodable.pop(key, None)
        objects = self.objects.get(key.namespace)
        if objects and objects.pop(key.name, None) is not None and not objects:
            del self.objects[key.namespace]

    def take(self, other: Snapshot[T]) -> None:
        """Moves all entries from another snapshot, which covers other namespaces. That snapshot must not be used
        afterwards.
        """
        self.objects.update(other.objects)
        self.undecodable.update(other.undecodable)

    def clear(self) -> None:
        self.objects.clear()
        self.undecodable.clear()

    def __getitem__(self, key: Key) -> T | UndecodableObject:
        objects = self.objects.get(key[0])
        found = objects.get(key[1]) if objects else None
        return self.undecodable[key] if found is None else found

    def __iter__(self) -> Iterator[Key]:
        for namespace, objects in self.objects.items():
            for name in objects:
                yield Key(namespace, name)
        yield from self.undecodable

    def __len__(self) -> int:
        return sum(map(len, self.objects.values())) + len(self.undecodable)


# Changes of a store. An entry that could not be decoded represents its object.


class Replace(NamedTuple, Generic[T]):
    """All objects at the version. `rewound`: see `Listed`. The receiver owns the `Snapshot`."""

    entries: Mapping[Key, T | UndecodableObject]
    resource_version: str
    rewound: bool = False


class Apply(NamedTuple, Generic[T]):
    entry: T | UndecodableObject


class Remove(NamedTuple, Generic[T]):
    entry: T | UndecodableObject


class Advance(NamedTuple):
    """There are no other changes up to the version."""

    resource_version: str


class Receiver(Protocol[T]):
    """Receives the changes. `part` is the namespace that the list/watch covers, or ALL_NAMESPACES."""

    def apply(self, change: Apply[T] | Remove[T] | Advance, part: str) -> Awaitable[None] | None:
        """One step. The awaitable that it returns, if any, is awaited before anything else is read."""

    async def replace(self, change: Replace[T], part: str) -> None:
        """A full list."""

    async def interrupted(self, interruption: Interrupted, part: str, *, quiet: bool) -> None:
        """A list or watch failed. `quiet`: for the same reason as before, without having worked since."""

    def unreadable(self, error: UndecodableObject) -> None:
        """An object that does not fit its class was received. If its name is known it is an entry of a change, too."""


class Collector(Sink[T]):
    """Collects full lists, so that the receiver gets each as one change."""

    def __init__(self, receiver: Receiver[T], part: str) -> None:
        self.receiver = receiver
        self.part = part
        self._entries: Snapshot[T] | None = None
        """The full list that is being read."""

    def begin(self) -> bool:
        self._entries = Snapshot()
        return True

    def put(self, entry: T | UndecodableObject, /) -> Awaitable[None] | None:
        if self._entries is None:
            return self.receiver.apply(Apply(entry), self.part)
        self._entries.put(entry)
        return None

    def drop(self, entry: T | UndecodableObject, /) -> Awaitable[None] | None:
        if self._entries is None:
            return self.receiver.apply(Remove(entry), self.part)
        self._entries.drop(Key(entry.metadata.namespace, entry.metadata.name))
        return None

    def advance(self, version: str, /) -> Awaitable[None] | None:
        return self.receiver.apply(Advance(version), self.part)

    def listed(self, listed: Listed, /) -> Awaitable[None]:
        entries, self._entries = self._entries, None
        assert entries is not None
        return self.receiver.replace(Replace(entries, listed.resource_version, listed.rewound), self.part)

    def interrupted(self, interruption: Interrupted, /, *, quiet: bool) -> Awaitable[None]:
        self._entries = None
        return self.receiver.interrupted(interruption, self.part, quiet=quiet)

    def unreadable(self, error: UndecodableObject, /) -> None:
        self.receiver.unreadable(error)
