"""The objects of one informer in memory, with indexes.

Guaranteed: a change is visible as a whole or not at all (a replacement swaps everything at once); lists are
snapshots that later changes do not touch; iteration order depends on the history only, not on hashes. Objects
are shared with all readers and immutable: to change one is to copy it (`msgspec.structs.replace`). Not
guaranteed: that the store is up to date; `resource_version` says up to where it is. Not for use by several
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from kubeshard.cache.deltas import Added, Deleted, Delta, Updated
from kubeshard.cache.scope import ALL_NAMESPACES
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import KubeshardError
from kubeshard.core.namespaces import ALL, All
from kubeshard.core.objects import Key, KubeObject, ObjectMeta
from kubeshard.core.versions import at_least, compare, newest

T = TypeVar("T", bound=KubeObject)

IndexFunction = Callable[[T], Iterable[str]]
"""The values under which an object is found; pure. An object for which it raises is in the store, but not found
by this index: an index read goes on without it, as a list does without an undecodable object, and
`Store.unfiled` names it.
"""

IndexErrorHandler = Callable[[str, Key, Exception], None]
"""Called with the name of the index, the object's key, and what the function raised."""


class UndeclaredIndex(KubeshardError):
    """A read by an index that nobody declared."""


class Store(Generic[T]):
    """Objects by namespace and name, and by the values of named indexes.

    A store is fed in `parts`: ALL_NAMESPACES, or each namespace by its own list/watch. An object that could
    not be decoded is not an object: lists skip it, `get` raises its UndecodableObject, so that nobody takes it
    for absent.
    """

    def __init__(
        self,
        parts: Iterable[str] = (ALL_NAMESPACES,),
        *,
        index_failed: IndexErrorHandler = lambda name, key, error: None,
    ) -> None:
        self._index_failed = index_failed
        self._objects: dict[str, dict[str, T]] = {}  # namespace -> name -> object; no empty namespace
        self._undecodable: dict[Key, UndecodableObject] = {}  # no key that is in _objects
        self._indexes: dict[str, _Index[T]] = {}
        self._versions = dict.fromkeys(parts, "")  # part -> version up to which it is complete

    # Reading

    def __len__(self) -> int:
        return sum(map(len, self._objects.values()))

    def get(self, key: Key) -> T | None:
        """The object, or None. Raises UndecodableObject if the server has it but it does not fit its class."""
        objects = self._objects.get(key[0])
        found = objects.get(key[1]) if objects else None
        if found is None and key in self._undecodable:
            raise self._undecodable[key]
        return found

    def metadata(self, key: Key) -> ObjectMeta | None:
        """What identifies the object, decodable or not; None if it is not here."""
        entry = self._objects.get(key[0], {}).get(key[1]) or self._undecodable.get(key)
        return entry.metadata if entry is not None else None

    def list(self, namespace: str | All = ALL) -> Sequence[T]:
        """All objects, or those of one namespace."""
        if namespace is not ALL:
            return list(self._objects.get(namespace, {}).values())
        return [obj for objects in self._objects.values() for obj in objects.values()]

    def objects(self) -> Iterator[T]:
        """Each object once. Nothing may be written meanwhile."""
        return (obj for objects in self._objects.values() for obj in objects.values())

    def copy(self) -> dict[str, dict[str, T]]:
        """All objects by namespace and name, in a mapping of the caller's own. Fast: it touches no object."""
        return {namespace: objects.copy() for namespace, objects in self._objects.items()}

    def by_index(self, name: str, value: str, namespace: str | All = ALL) -> Sequence[T]:
        """The objects that the index function filed under `value`. Raises UndeclaredIndex."""
        found = self._index(name).lookup(value)
        return [obj for obj in found if namespace is ALL or obj.metadata.namespace == namespace]

    def has_index(self, name: str) -> bool:
        return name in self._indexes

    def filed(self, name: str, value: str) -> Mapping[Key, T]:
        """As `by_index`, by key, and not a copy: it changes with the store. Raises UndeclaredIndex."""
        return self._index(name).filed(value)

    def unfiled(self, name: str) -> frozenset[Key]:
        """Objects for which the function of this index raised, so that it does not find them."""
        return frozenset(self._index(name).unfiled)

    @property
    def undecodable(self) -> Mapping[Key, UndecodableObject]:
        return self._undecodable

    @property
    def resource_version(self) -> str:
        """The version up to which all parts are complete; `""` before the first full read of each."""
        return min(self._versions.values(), key=lambda version: (len(version), version), default="")

    def complete_up_to(self, namespace: str) -> str:
        """The version up to which objects of the namespace are complete."""
        versions = self._versions
        return versions[namespace] if namespace in versions else versions.get(ALL_NAMESPACES, "")

    # Writing: by the informer only

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """File all present and future objects under the function's values. Raises ValueError if the name is
        taken.
        """
        if name in self._indexes:
            raise ValueError(f"index {name!r} exists")
        index = _Index(name, function, self._index_failed)
        for obj in self.list():
            index.put(obj)
        self._indexes[name] = index

    def remove_index(self, name: str) -> None:
        """The name is free again. Nothing happens if there is no such index."""
        self._indexes.pop(name, None)

    def replace(
        self,
        entries: Mapping[Key, T | UndecodableObject],
        resource_version: str,
        part: str = ALL_NAMESPACES,
        *,
        rewound: bool = False,
    ) -> Sequence[Delta[T]]:
        """Make the part hold exactly these entries. Returns what that changed: deletions first, then the
        rest. `rewound`: the server's history was rewritten, so objects of one version may differ.
        """
        initial = not self._versions[part]
        self._versions[part] = resource_version
        return self._exchange(self._take_part(part), entries, initial=initial, rewound=rewound)

    def rescope(
        self, entries: Mapping[Key, T | UndecodableObject], versions: Mapping[str, str], kept: Iterable[str]
    ) -> Sequence[Delta[T]]:
        """Make the parts those of `versions`, which hold exactly these entries, and those that are kept as they are.
        Returns what that changed: deletions first, then the rest.
        """
        initial = not self.resource_version
        stay = {part: self._versions[part] for part in kept}
        before = {key: objects for key, objects in self._objects.items() if key not in stay}
        self._objects = {part: self._objects[part] for part in stay if part in self._objects}
        self._undecodable = {key: error for key, error in self._undecodable.items() if key.namespace in stay}
        self._versions = {**stay, **versions}
        return self._exchange(before, entries, initial=initial)

    def _exchange(
        self,
        before: Mapping[str, dict[str, T]],
        entries: Mapping[Key, T | UndecodableObject],
        *,
        initial: bool = False,
        rewound: bool = False,
    ) -> Sequence[Delta[T]]:
        absent: dict[str, T] = {}
        gone: list[Delta[T]] = []
        come: list[Delta[T]] = []
        for key, entry in entries.items():
            if isinstance(entry, UndecodableObject):
                self._undecodable[key] = entry
                continue
            namespace, name = key
            objects = self._objects.get(namespace)
            if objects is None:
                objects = self._objects[namespace] = {}
            objects[name] = entry
            old = before.get(namespace, absent).get(name)
            if old is None:
                come.append(Added(entry, initial))
            elif old.metadata.uid != entry.metadata.uid:
                gone.append(Deleted(old, final=False))
                come.append(Added(entry, initial))
            elif old.metadata.resource_version != entry.metadata.resource_version or (
                rewound and old != entry
            ):
                come.append(Updated(old, entry))
            else:
                objects[name] = old  # what readers hold already, and the indexes
        for namespace, objects in before.items():
            left = self._objects.get(namespace, absent)
            gone.extend(Deleted(old, final=False) for name, old in objects.items() if name not in left)
        if self._indexes:
            for delta in (*gone, *come):
                self._file(delta)
        return gone + come

    def apply(self, entry: T | UndecodableObject, part: str = ALL_NAMESPACES) -> tuple[Delta[T], ...]:
        """An object was added or modified. An entry that is here already, or older, changes nothing."""
        metadata = entry.metadata
        self.advance(metadata.resource_version, part)
        if isinstance(entry, UndecodableObject):
            return self._withhold(entry)
        namespace, name = metadata.namespace, metadata.name
        old = self._objects.get(namespace, {}).get(name)
        delta: tuple[Delta[T], ...]
        if old is None:
            if self._undecodable:
                self._undecodable.pop(Key(namespace, name), None)
            delta = (Added(entry),)
        elif at_least(old.metadata.resource_version, metadata.resource_version):
            return ()
        elif old.metadata.uid != metadata.uid:
            delta = (Deleted(old, final=False), Added(entry))
        else:
            delta = (Updated(old, entry),)
        self._objects.setdefault(namespace, {})[name] = entry
        if self._indexes:
            for change in delta:
                self._file(change)
        return delta

    def remove(self, entry: T | UndecodableObject, part: str = ALL_NAMESPACES) -> tuple[Delta[T], ...]:
        """An object left: deleted, or no longer selected. `entry` is its last state. Where the object that is here is
        newer, nothing changes.
        """
        version = entry.metadata.resource_version
        self.advance(version, part)
        key = Key(entry.metadata.namespace, entry.metadata.name)
        there = self._objects.get(key.namespace, {}).get(key.name)
        if there is not None and version and compare(there.metadata.resource_version, version) > 0:
            return ()
        self._undecodable.pop(key, None)
        old = self._pop(key)
        if old is None:
            return ()
        if isinstance(entry, UndecodableObject) or old.metadata.uid != entry.metadata.uid:
            return (Deleted(old, final=False),)
        return (Deleted(entry),)

    def advance(self, resource_version: str, part: str = ALL_NAMESPACES) -> None:
        """Nothing else has happened in the part up to this version."""
        self._versions[part] = newest(resource_version, self._versions[part])

    def _index(self, name: str) -> _Index[T]:
        if index := self._indexes.get(name):
            return index
        there = f"there are {', '.join(sorted(self._indexes))}" if self._indexes else "there is none"
        raise UndeclaredIndex(
            f"there is no index {name!r}: declare it, with `indexes=[Index(KIND, {name!r}, function)]` of the "
            f"controller or `add_index` of the cache ({there})"
        )

    def _withhold(self, entry: UndecodableObject) -> tuple[Delta[T], ...]:
        assert entry.key is not None
        old = self._pop(entry.key)
        self._undecodable[entry.key] = entry
        return () if old is None else (Deleted(old, final=False),)

    def _pop(self, key: Key) -> T | None:
        objects = self._objects.get(key.namespace)
        old = objects.pop(key.name, None) if objects else None
        if old is None:
            return None
        if not objects:
            del self._objects[key.namespace]
        self._file(Deleted(old))
        return old

    def _take_part(self, part: str) -> dict[str, dict[str, T]]:
        if part == ALL_NAMESPACES:
            before, self._objects, self._undecodable = self._objects, {}, {}
            return before
        for key in [key for key in self._undecodable if key.namespace == part]:
            del self._undecodable[key]
        objects = self._objects.pop(part, None)
        return {} if objects is None else {part: objects}

    def _file(self, delta: Delta[T]) -> None:
        for index in self._indexes.values():
            if isinstance(delta, Updated):
                index.move(delta.old, delta.new)
            elif isinstance(delta, Added):
                index.put(delta.object)
            else:
                index.drop(delta.object)


class _Index(Generic[T]):
    """value -> key -> object; no empty value."""

    def __init__(self, name: str, function: IndexFunction[T], failed: IndexErrorHandler) -> None:
        self._name = name
        self._function = function
        self._failed = failed
        self._filed: dict[str, dict[Key, T]] = {}
        self.unfiled: set[Key] = set()

    def lookup(self, value: str) -> Iterable[T]:
        return self.filed(value).values()

    def filed(self, value: str) -> Mapping[Key, T]:
        return self._filed.get(value, {})

    def put(self, obj: T) -> None:
        self._put(obj, self._told_values(obj))

    def move(self, old: T, new: T) -> None:
        values = self._told_values(new)
        self.drop(old, values or ())
        self._put(new, values)

    def drop(self, obj: T, kept: Iterable[str] = ()) -> None:
        key = obj.key
        self.unfiled.discard(key)
        try:
            values: Iterable[str] = self._values(obj)
        except Exception:  # it may have been filed all the same, if the function is not pure
            values = tuple(self._filed)
        for value in values:
            filed = self._filed.get(value)
            if value not in kept and filed and filed.pop(key, None) is not None and not filed:
                del self._filed[value]

    def _put(self, obj: T, values: tuple[str, ...] | None) -> None:
        if values is None:
            self.unfiled.add(obj.key)
            return
        for value in values:
            self._filed.setdefault(value, {})[obj.key] = obj

    def _told_values(self, obj: T) -> tuple[str, ...] | None:
        """The values, or None after having told of the failure."""
        try:
            return self._values(obj)
        except Exception as error:
            self._failed(self._name, obj.key, error)
            return None

    def _values(self, obj: T) -> tuple[str, ...]:
        found = self._function(obj)
        if isinstance(found, str):
            raise TypeError(f"it returned the string {found!r}: return a tuple or list of strings")
        values = tuple(found)
        if not all(isinstance(value, str) for value in values):
            raise TypeError(f"it returned {values!r}: return strings only")
        return values
