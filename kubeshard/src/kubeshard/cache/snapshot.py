"""The result of a full list, while it is being read and when it is complete.

Its mappings, by namespace and then by name, are the ones that the store keeps, so a full list of many objects never
needs a second set of mappings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from kubeshard.cache.scope import Part
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.objects import Key, KubeObject
from kubeshard.core.versions import at_least

T = TypeVar("T", bound=KubeObject)


class Snapshot(Mapping[Key, T | UndecodableObject]):
    """Each object, or why it cannot be decoded. A complete one's `objects` belong to the store."""

    def __init__(self, entries: Iterable[T | UndecodableObject] = ()) -> None:
        self.objects: dict[str, dict[str, T]] = {}
        """namespace -> name -> object, without empty namespaces."""
        self.undecodable: dict[Key, UndecodableObject] = {}
        """Undecodable objects; no key is also in `objects`."""
        for entry in entries:
            self.put(entry)

    def put(self, entry: T | UndecodableObject, _: str = "", /) -> None:
        metadata = entry.metadata
        namespace, name = metadata.namespace, metadata.name
        if isinstance(entry, UndecodableObject):
            key = Key(namespace, name)
            self.discard(key)
            self.undecodable[key] = entry
            return
        if self.undecodable:
            self.undecodable.pop(Key(namespace, name), None)
        objects = self.objects.get(namespace)
        if objects is None:
            objects = self.objects[namespace] = {}
        objects[name] = entry

    def keep(self, entry: T | UndecodableObject) -> None:
        """`put`, unless there is a newer entry with this name: another object, which took the name over."""
        metadata = entry.metadata
        namespace, name = metadata.namespace, metadata.name
        there: T | UndecodableObject | None = self.objects.get(namespace, {}).get(name)
        if there is None and self.undecodable:
            there = self.undecodable.get(Key(namespace, name))
        if there is None or not at_least(there.metadata.resource_version, metadata.resource_version):
            self.put(entry)

    def drop(self, entry: T | UndecodableObject, _: str = "", /) -> None:
        metadata = entry.metadata
        self.discard(Key(metadata.namespace, metadata.name))

    def discard(self, key: Key) -> None:
        self.undecodable.pop(key, None)
        objects = self.objects.get(key.namespace)
        if objects and objects.pop(key.name, None) is not None and not objects:
            del self.objects[key.namespace]

    def take(self, other: Snapshot[T]) -> None:
        """All entries of another snapshot, of other namespaces, which must not be used afterwards."""
        self.objects.update(other.objects)
        self.undecodable.update(other.undecodable)

    def limit_to(self, part: Part) -> Iterator[None]:
        """Removes, step by step, entries that are not in the part."""
        for key in list(self):
            if not part.may_contain(self[key].metadata):
                self.discard(key)
            yield

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
