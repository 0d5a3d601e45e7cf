"""The objects of one informer in memory, with indexes.

Guaranteed: changes are atomic (a replacement swaps everything at once, however long it is prepared; an incomplete index
cannot be read); lists are snapshots that later changes do not affect; iteration order depends only on the history, not
on hashes. Objects are shared by all readers and immutable: copy an object to change it (`msgspec.structs.replace`). Not
guaranteed: that the store is up to date; `resource_version` is the version it has reached. Not thread-safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Generic, TypeVar

from kubeshard.cache.deltas import Added, Deleted, Delta, Updated
from kubeshard.cache.errors import CacheBehind
from kubeshard.cache.indexes import Files, Index, IndexErrorHandler, IndexFunction, IndexListener
from kubeshard.cache.scope import ALL_NAMESPACES, Part, Parts, whole
from kubeshard.cache.snapshot import Snapshot
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import KubeshardError
from kubeshard.core.hash_ranges import HashRanges
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import Key, KubeObject, ObjectMeta
from kubeshard.core.versions import at_least, may_be_at_least, newest, oldest, precedes

T = TypeVar("T", bound=KubeObject)


class UndeclaredIndex(KubeshardError):
    """A read by an undeclared index."""


class Store(Generic[T]):
    """Objects by namespace and name, and by the values of indexes. It is fed in `parts`, each by its own list/watch.
    Lists skip an object that cannot be decoded; `get` raises its error, so that it is not taken for absent.
    """

    def __init__(
        self,
        parts: Parts | None = None,
        *,
        index_failed: IndexErrorHandler = lambda name, key, error: None,
    ) -> None:
        self._index_failed = index_failed
        self._objects: dict[str, dict[str, T]] = {}  # namespace -> name -> object; no empty namespace
        self._undecodable: dict[Key, UndecodableObject] = {}  # no key that is in _objects
        self._indexes: dict[str, Index[T]] = {}
        self.parts: Parts = whole((ALL_NAMESPACES,)) if parts is None else parts
        self._versions = dict.fromkeys(self.parts, "")  # part -> version up to which it is complete

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
        """The object's metadata, even if it is not decodable; None if it is not in the store."""
        entry = self._objects.get(key[0], {}).get(key[1]) or self._undecodable.get(key)
        return entry.metadata if entry is not None else None

    def list(self, namespace: str | AllNamespaces = ALL) -> Sequence[T]:
        if namespace is not ALL:
            return list(self._objects.get(namespace, {}).values())
        return [obj for objects in self._objects.values() for obj in objects.values()]

    def objects(self) -> Iterator[T]:
        """Yields each object once. The store must not be changed meanwhile."""
        return (obj for objects in self._objects.values() for obj in objects.values())

    def copy(self) -> dict[str, dict[str, T]]:
        """All objects by namespace and name, in a new mapping. Fast: it does not touch the objects."""
        return {namespace: objects.copy() for namespace, objects in self._objects.items()}

    def by_index(self, name: str, value: str, namespace: str | AllNamespaces = ALL) -> Sequence[T]:
        """The objects with this index value. Raises UndeclaredIndex, and CacheBehind while the index is incomplete."""
        return self._index(name).find(value, namespace)

    def has_index(self, name: str) -> bool:
        """Whether the index exists and is complete."""
        return name in self._indexes and self._indexes[name].complete

    def filed(self, name: str, value: str) -> Mapping[Key, T]:
        """Like `by_index`, but by key. Read it at once: it may change with the store."""
        return self._index(name).filed(value)

    def unfiled(self, name: str) -> frozenset[Key]:
        """Objects for which the function of this index raised, and which the index therefore lacks."""
        return self._index(name).unfiled

    @property
    def undecodable(self) -> Mapping[Key, UndecodableObject]:
        return self._undecodable

    @property
    def resource_version(self) -> str:
        """The version up to which all parts are complete; `""` before the first full list of each."""
        return oldest(self._versions.values())

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions up to which the parts are complete."""
        return self._versions

    def complete_up_to(self, namespace: str, uid: str = "") -> str:
        """The version up to which objects of the namespace are complete. With a uid: up to which that object is, while
        objects with other hashes may lag behind.
        """
        versions = self._versions
        if namespace in versions:
            return versions[namespace]
        if ALL_NAMESPACES in versions:
            return versions[ALL_NAMESPACES]
        found = [versions[name] for name, part in self.parts.items() if part.may_have(namespace, uid)]
        return found[0] if len(found) == 1 else oldest(found)

    def reached(self, namespace: str, version: str, uid: str = "") -> bool:
        """Whether objects of the namespace are complete up to the version, or nobody can tell. `uid`: see
        `complete_up_to`.
        """
        return may_be_at_least(self.complete_up_to(namespace, uid), version)

    # Writing: only by the informer.

    def add_index(
        self, name: str, function: IndexFunction[T], changed: IndexListener = lambda value: None
    ) -> None:
        """Index all present and future objects by the function's values. Raises ValueError if the name is taken."""
        for _ in self.begin_index(name, function, changed):
            pass

    def begin_index(
        self, name: str, function: IndexFunction[T], changed: IndexListener = lambda value: None
    ) -> Iterator[None]:
        """`add_index`, one object a step; the store may change in between. The last step makes the index readable."""
        if name in self._indexes:
            raise ValueError(f"index {name!r} exists")
        index = self._indexes[name] = Index(name, function, self._places, self._index_failed, changed)
        return self._filing(index, self.list())

    def _filing(self, index: Index[T], objects: Iterable[T]) -> Iterator[None]:
        for obj in objects:
            if self._indexes.get(index.name) is not index:
                return  # removed: its parts no longer belong to the store
            namespace, name = obj.metadata.namespace, obj.metadata.name
            if (
                self._objects.get(namespace, {}).get(name) is obj
            ):  # later objects were indexed when they arrived
                place = namespace if namespace in index.parts else ALL_NAMESPACES
                index.file(Key(namespace, name), obj, index.parts[place])
            yield
        index.complete = True

    def remove_index(self, name: str) -> None:
        """Frees the name. Does nothing if there is no such index."""
        self._indexes.pop(name, None)

    def replace(
        self,
        entries: Mapping[Key, T | UndecodableObject],
        resource_version: str,
        part: str = ALL_NAMESPACES,
        *,
        rewound: bool = False,
    ) -> Sequence[Delta[T]]:
        """`replacement` and `exchange` in one step."""
        replacement = self.replacement(entries, {part: resource_version}, rewound=rewound)
        return list(self.exchange(replacement))

    def replacement(
        self,
        entries: Mapping[Key, T | UndecodableObject],
        versions: Mapping[str, str],
        parts: Parts | None = None,
        *,
        rewound: bool = False,
    ) -> Replacement[T]:
        """Makes these the parts of the store; by default they stay the same ones. Those of `versions` have exactly the
        entries. The others are kept: each is the same as before, or has fewer hashes, and then loses the objects with
        the others. `rewound`: the server's history was rewritten, so every object counts as updated.
        """
        snapshot = entries if isinstance(entries, Snapshot) else Snapshot(entries.values())
        parts = self.parts if parts is None else parts
        changed = {parts[name].namespace for name in versions}
        changed |= {part.namespace for name, part in self.parts.items() if parts.get(name) != part}
        stay = dict.fromkeys(part.namespace for part in parts.values() if part.namespace not in changed)
        before: dict[str, dict[str, T]] = {}
        unreadable: dict[Key, UndecodableObject] = {}
        if ALL_NAMESPACES not in stay:
            before = {place: objects for place, objects in self._objects.items() if place not in stay}
            unreadable = {key: error for key, error in self._undecodable.items() if key.namespace not in stay}
        retained = {
            place: None if hashes == _hashes(self.parts.values(), place) else hashes
            for place in changed
            if (hashes := _hashes((part for name, part in parts.items() if name not in versions), place))
        }
        read = [self._versions.get(part, self.resource_version) for part in versions]
        return Replacement(
            before,
            unreadable,
            retained,
            snapshot,
            versions,
            parts,
            tuple(stay),
            self._indexes,
            initial=not all(read),
            rewound=rewound,
        )

    def exchange(self, replacement: Replacement[T]) -> Iterator[Delta[T]]:
        """Applies the replacement now, finishing its preparation. Returns the changes, deletions first."""
        replacement.finish()
        kept, snapshot, versions = replacement.kept, replacement.snapshot, replacement.versions
        if ALL_NAMESPACES not in kept:
            stay = {namespace: self._objects[namespace] for namespace in self._objects if namespace in kept}
            self._objects = stay | snapshot.objects
            unreadable = {key: error for key, error in self._undecodable.items() if key.namespace in kept}
            self._undecodable = unreadable | snapshot.undecodable
        self.rearrange(replacement.parts, versions)
        for index in self._indexes.values():
            replacement.left += index.exchange(
                replacement.files[index], kept, changed=replacement.changes_anything
            )
        return replacement.changes()

    def rearrange(self, parts: Parts, versions: Mapping[str, str]) -> None:
        """The same objects are in other parts; `versions` are those of the new ones."""
        self.parts = parts
        self._versions = {
            part: versions[part] if part in versions else self._versions[part] for part in parts
        }

    @property
    def _places(self) -> Iterable[str]:
        """What the parts are parts of: namespaces, or ALL_NAMESPACES."""
        return dict.fromkeys(part.namespace for part in self.parts.values())

    def shares_place(self, part: str) -> bool:
        """Whether other parts are of the same namespace, or also of all: their objects are replaced with its own."""
        place = self.parts[part].namespace
        return any(other.namespace == place and name != part for name, other in self.parts.items())

    def apply(self, entry: T | UndecodableObject, part: str = ALL_NAMESPACES) -> tuple[Delta[T], ...]:
        """Stores an object that was added or modified. An entry that is already stored, or older, changes nothing."""
        metadata = entry.metadata
        self._versions[part] = newest(metadata.resource_version, self._versions[part])
        if isinstance(entry, UndecodableObject):
            return self._withhold(entry, part)
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
            key = Key(namespace, name)
            for change in delta:
                self._file(key, change, part)
        return delta

    def remove(self, entry: T | UndecodableObject, part: str = ALL_NAMESPACES) -> tuple[Delta[T], ...]:
        """Removes an object that was deleted or is no longer selected. `entry` is its last state. If the stored object
        is newer, or is in another part by now, nothing changes.
        """
        version = entry.metadata.resource_version
        self.advance(version, part)
        key = Key(entry.metadata.namespace, entry.metadata.name)
        there = self.metadata(key)
        if there is not None:
            if precedes(version, there.resource_version):
                return ()
            if not self.parts[part].may_contain(there):
                return ()
        self._undecodable.pop(key, None)
        old = self._pop(key, part)
        if old is None:
            return ()
        if isinstance(entry, UndecodableObject) or old.metadata.uid != entry.metadata.uid:
            return (Deleted(old, final=False),)
        return (Deleted(entry),)

    def advance(self, resource_version: str, part: str = ALL_NAMESPACES) -> None:
        """Records that there are no other changes in the part up to this version."""
        self._versions[part] = newest(resource_version, self._versions[part])

    def _index(self, name: str) -> Index[T]:
        if index := self._indexes.get(name):
            if not index.complete:
                raise CacheBehind(f"index {name!r} is not complete yet: its objects are being filed")
            return index
        there = f"there are {', '.join(sorted(self._indexes))}" if self._indexes else "there is none"
        raise UndeclaredIndex(
            f"there is no index {name!r}: declare it with `indexes=[Index(KIND, {name!r}, function)]` of the "
            f"controller or `add_index` of the cache ({there})"
        )

    def _withhold(self, entry: UndecodableObject, part: str) -> tuple[Delta[T], ...]:
        assert entry.key is not None
        old = self._pop(entry.key, part)
        self._undecodable[entry.key] = entry
        return () if old is None else (Deleted(old, final=False),)

    def _pop(self, key: Key, part: str) -> T | None:
        objects = self._objects.get(key.namespace)
        old = objects.pop(key.name, None) if objects else None
        if old is None:
            return None
        if not objects:
            del self._objects[key.namespace]
        self._file(key, Deleted(old), part)
        return old

    def _file(self, key: Key, delta: Delta[T], part: str) -> None:
        place = self.parts[part].namespace
        for index in self._indexes.values():
            if isinstance(delta, Updated):
                index.move(key, delta.old, delta.new, place)
            elif isinstance(delta, Added):
                index.put(key, delta.object, place)
            else:
                index.drop(key, delta.object, place)


def _hashes(parts: Iterable[Part], place: str) -> HashRanges | None:
    """The hashes of the parts that are of this place; None if no part has any, of none or of the whole of it."""
    found = [part.hashes for part in parts if part.namespace == place and part.hashes is not None]
    return reduce(or_, found) if found else None


Objects = Mapping[str, Mapping[str, T]]
"""Entries by namespace, then by name."""


class Replacement(Generic[T]):
    """Puts the result of a full list into a store.

    The differences are computed and all indexes are built step by step, separately from what readers see. Then
    everything is exchanged atomically, which costs the same however many objects there are. Readers never see half of a
    list and never wait for all of it.

    Created by a store, which will have these `parts`. What differs is all of the objects of some places, which are
    namespaces or ALL_NAMESPACES: `before`, those that are there now; `snapshot`, those that will be; the others are
    `kept`. `versions` has the parts that have been read, each with its version. Those of a place's parts that have not
    been read are taken from `before`: objects with the hashes that are `retained`, by place; None: all of them.
    `indexes` are those of the store, including those added in the meantime.

    During the preparation, nothing may be written to what it replaces.
    """

    def __init__(
        self,
        before: Objects[T],
        unreadable: Mapping[Key, UndecodableObject],
        retained: Mapping[str, HashRanges | None],
        snapshot: Snapshot[T],
        versions: Mapping[str, str],
        parts: Parts,
        kept: Sequence[str],
        indexes: Mapping[str, Index[T]],
        *,
        initial: bool,
        rewound: bool,
    ) -> None:
        self.snapshot = snapshot
        self.versions = versions
        self.parts = parts
        self.kept = kept
        self.files: dict[Index[T], dict[str, Files[T]]] = {}
        self.left: list[Files[T]] = []
        """The old parts of indexes, once they have been replaced."""
        self.gone: deque[Deleted[T]] = deque()
        self._come: deque[T | Updated[T]] = deque()
        self._before = before
        self._unreadable = unreadable
        self._retained = retained
        self._indexes = indexes
        self._initial = initial
        self._rewound = rewound
        self.steps: Iterator[None] = self._prepared()
        """Each prepares one object. After the last, the caller must pass the replacement to the store at once."""

    def finish(self) -> None:
        """Takes all remaining steps, and those for indexes that were added after the last one."""
        for _ in self.steps:
            pass
        for _ in self._all_filed():
            pass

    @property
    def changes_anything(self) -> bool:
        return bool(self.gone or self._come)

    def changes(self) -> Iterator[Delta[T]]:
        """Yields the changes once, deletions first, without keeping references to them."""
        while self.gone:
            yield self.gone.popleft()
        while self._come:
            found = self._come.popleft()
            yield found if isinstance(found, Updated) else Added(found, self._initial)

    def leaving(self) -> Iterator[None]:
        """Frees the old objects step by step, because freeing all of them at once would take long."""
        for files in self.left:
            while files.by_value:
                files.by_value.popitem()
                yield

    def _prepared(self) -> Iterator[None]:
        if self._retained:
            yield from self._taken()
        yield from self._compared()
        self._before = {}
        yield from self._all_filed()

    def _all_filed(self) -> Iterator[None]:
        while lacking := [index for index in self._indexes.values() if index not in self.files]:
            yield from self._filed(lacking)

    def _taken(self) -> Iterator[None]:
        """Puts what is retained of the old objects beside those that have been read."""
        for namespace, before in self._before.items():
            for obj in before.values() if self._retains_of(namespace) else ():
                self._take(obj)
                yield
        for error in self._unreadable.values():
            if self._retains_of(error.metadata.namespace):
                self._take(error)

    def _retains_of(self, namespace: str) -> bool:
        return namespace in self._retained or ALL_NAMESPACES in self._retained

    def _take(self, entry: T | UndecodableObject) -> None:
        retained = self._retained
        namespace = entry.metadata.namespace
        hashes = retained[namespace if namespace in retained else ALL_NAMESPACES]
        if hashes is None or hashes.may_select(entry.metadata):
            self.snapshot.keep(entry)

    def _compared(self) -> Iterator[None]:
        absent: dict[str, T] = {}
        for namespace, objects in self.snapshot.objects.items():
            before = self._before.get(namespace, absent)
            for name, new in objects.items():
                old = before.get(name)
                if old is None:
                    self._come.append(new)
                elif old.metadata.uid != new.metadata.uid:
                    self.gone.append(Deleted(old, final=False))
                    self._come.append(new)
                elif old is not new and (
                    self._rewound or old.metadata.resource_version != new.metadata.resource_version
                ):
                    self._come.append(Updated(old, new, relisted=True))
                else:
                    objects[name] = old  # the object that readers already have
                yield
        for namespace, before in self._before.items():
            left = self.snapshot.objects.get(namespace, absent)
            for name, old in before.items():
                if name not in left:
                    self.gone.append(Deleted(old, final=False))
                yield

    def _filed(self, indexes: Sequence[Index[T]]) -> Iterator[None]:
        places = dict.fromkeys(
            part.namespace for part in self.parts.values() if part.namespace not in self.kept
        )
        for index in indexes:
            self.files[index] = {place: Files() for place in places}
        if not places:
            return
        rest = next(iter(places))
        for namespace, objects in self.snapshot.objects.items():
            place = namespace if namespace in places else rest
            for name, obj in objects.items():
                for index in indexes:
                    index.file(Key(namespace, name), obj, self.files[index][place])
                yield
